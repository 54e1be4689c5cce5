//! Figures of SJF-BCO (Yu et al., `MobiHoc` 2022) and of Crius (Xue et al., `EuroSys` 2026).

use super::OURS;
use crate::figure::theme::SERIES;
use crate::reproduce::paper_figure::{
    BARS, FigurePanel, FigureSeries, LINES, PanelForm, PaperFigure,
};

const PDF_VALUES: &str = "Error bars: least to most of the seeds. The paper's values are those of \
                          the graphics in its PDF.";

const POLICIES: &[(&str, &str)] =
    &[("SJF-BCO", "SJF-BCO"), ("LS", "LS"), ("FF", "FF"), ("RAND", "RAND")];

const MAKESPANS: FigurePanel = FigurePanel {
    title: "",
    form: BARS,
    axes: ["", "slots"],
    part: "",
    measure: "makespan, {group}",
    groups: POLICIES,
    series: OURS,
    paper: &[],
};

pub(in super::super) const SJF_BCO_FIG_4: PaperFigure = PaperFigure {
    title: "SJF-BCO, Fig. 4: makespan and average completion on 20 servers",
    columns: 2,
    panels: &[
        FigurePanel { title: "Makespan", ..MAKESPANS },
        FigurePanel {
            title: "Average completion time",
            measure: "average completion, {group}",
            ..MAKESPANS
        },
    ],
    note: PDF_VALUES,
};

pub(in super::super) const SJF_BCO_FIG_5: PaperFigure = PaperFigure {
    title: "SJF-BCO, Fig. 5: impact of kappa on the makespan",
    columns: 1,
    panels: &[FigurePanel {
        form: LINES,
        axes: ["kappa", "makespan, slots"],
        measure: "makespan, kappa {group}",
        groups: &[
            ("1", "1"),
            ("2", "2"),
            ("4", "4"),
            ("8", "8"),
            ("10", "10"),
            ("16", "16"),
            ("32", "32"),
        ],
        ..MAKESPANS
    }],
    note: PDF_VALUES,
};

pub(in super::super) const SJF_BCO_FIG_6: PaperFigure = PaperFigure {
    title: "SJF-BCO, Fig. 6: impact of the number of servers on the makespan",
    columns: 1,
    panels: &[FigurePanel {
        axes: ["servers", "makespan, slots"],
        measure: "{group} servers, makespan, {series}",
        groups: &[("10", "10"), ("15", "15"), ("20", "20")],
        series: &[
            FigureSeries { name: "SJF-BCO", key: "SJF-BCO", shade: SERIES[0] },
            FigureSeries { name: "LS", key: "LS", shade: SERIES[2] },
            FigureSeries { name: "FF", key: "FF", shade: SERIES[6] },
            FigureSeries { name: "RAND", key: "RAND", shade: SERIES[4] },
        ],
        ..MAKESPANS
    }],
    note: PDF_VALUES,
};

pub(in super::super) const SJF_BCO_FIG_7: PaperFigure = PaperFigure {
    title: "SJF-BCO, Fig. 7: impact of lambda on the makespan",
    columns: 1,
    panels: &[FigurePanel {
        form: LINES,
        axes: ["lambda", "makespan, slots"],
        measure: "makespan, lambda {group}",
        groups: &[("1", "1"), ("2", "2"), ("4", "4"), ("8", "8")],
        ..MAKESPANS
    }],
    note: PDF_VALUES,
};

/// In the order of the authors' plotting script (plot/plotter.py).
const RIVALS: &[(&str, &str)] =
    &[("FCFS", "FCFS"), ("ElasticFlow", "ElasticFlow"), ("Gavel", "Gavel")];
const ALL: &[(&str, &str)] =
    &[("FCFS", "FCFS"), ("ElasticFlow", "ElasticFlow"), ("Gavel", "Gavel"), ("Crius", "Crius")];

pub(in super::super) const CRIUS_JCT: PaperFigure = PaperFigure {
    title: "Crius: completion time and throughput of the testbed by scheduler",
    columns: 2,
    panels: &[
        FigurePanel {
            title: "Completion time of ended jobs",
            axes: ["", "s"],
            measure: "completion of ended jobs, {group}",
            groups: ALL,
            ..MAKESPANS
        },
        FigurePanel {
            title: "Cut by Crius, unfinished jobs padded",
            axes: ["against", "% less"],
            measure: "completion against {group}, padded",
            groups: RIVALS,
            ..MAKESPANS
        },
        FigurePanel {
            title: "Average cluster throughput",
            axes: ["", "samples/s"],
            measure: "throughput, {group}",
            groups: ALL,
            ..MAKESPANS
        },
        FigurePanel {
            title: "Cluster throughput over the trace",
            form: PanelForm::Curves { x_end: 5.6, y_range: None, paper_mean: None },
            axes: ["hours", "samples/s"],
            measure: "throughput, {series}",
            groups: &[],
            series: &[
                FigureSeries { name: "Crius", key: "Crius", shade: SERIES[0] },
                FigureSeries { name: "Gavel", key: "Gavel", shade: SERIES[2] },
                FigureSeries { name: "ElasticFlow", key: "ElasticFlow", shade: SERIES[6] },
                FigureSeries { name: "FCFS", key: "FCFS", shade: SERIES[4] },
            ],
            ..MAKESPANS
        },
    ],
    note: "Error bars and faint bands: least to most of the seeds. Lines of the paper: what the \
           results that its authors stored in sjtu-epcc/arena come to.",
};

pub(in super::super) const CRIUS_ABLATION: PaperFigure = PaperFigure {
    title: "Crius: error of estimates, and loss of the plan that was estimated",
    columns: 2,
    panels: &[
        FigurePanel {
            title: "Error of estimates",
            axes: ["GPUs", "%"],
            measure: "error of estimates, {group} GPUs",
            groups: &[("1", "1"), ("2", "2"), ("4", "4"), ("8", "8"), ("16", "16")],
            ..MAKESPANS
        },
        FigurePanel {
            title: "Loss against the best plan",
            axes: ["", "%"],
            measure: "loss of the {group}",
            groups: &[("estimated plan", "estimated plan"), ("tuned plan", "tuned plan")],
            ..MAKESPANS
        },
    ],
    note: "Error bars: least to most of the measurements, and of the Cells. Lines: the paper's \
           means.",
};

/// Policies that know deadlines, and that do not.
const DEADLINE_POLICIES: &[(&str, &str)] = &[
    ("Crius with deadlines", "Crius with deadlines"),
    ("ElasticFlow with deadlines", "ElasticFlow with deadlines"),
    ("Crius", "Crius"),
    ("ElasticFlow", "ElasticFlow"),
    ("Gavel", "Gavel"),
    ("FCFS", "FCFS"),
];

const IN_TIME: FigurePanel =
    FigurePanel { axes: ["", "jobs of 244"], groups: DEADLINE_POLICIES, ..MAKESPANS };

pub(in super::super) const CRIUS_DEADLINES: PaperFigure = PaperFigure {
    title: "Crius: jobs that end in time",
    columns: 2,
    panels: &[
        FigurePanel {
            title: "Five time budgets",
            measure: "in time with 5 budgets, {group}",
            ..IN_TIME
        },
        FigurePanel {
            title: "One time budget",
            measure: "in time with 1 budgets, {group}",
            ..IN_TIME
        },
    ],
    note: "Error bars: least to most of the seeds. Lines: what the authors' simulator counts on \
           its own trace.",
};
