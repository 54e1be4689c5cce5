//! Figures of Crux (Cao et al., SIGCOMM 2024).

use super::{OURS, relative_series, relative_value};
use crate::figure::theme::{SERIES, ThemeShade};
use crate::reproduce::paper_figure::PaperChange::{Percent, Points};
use crate::reproduce::paper_figure::{
    BARS, FigurePanel, FigureSeries, PanelForm, PaperFigure, RelativeValue,
};

pub(in super::super) const FIG_6: PaperFigure = PaperFigure {
    title: "Crux, Fig. 6: popularity of communication contention",
    columns: 2,
    panels: &[
        FigurePanel {
            title: "(a) Jobs at risk",
            groups: &[("on any link", "jobs"), ("between switches", "jobs, between switches")],
            ..AT_RISK
        },
        FigurePanel {
            title: "(b) GPUs of these jobs",
            groups: &[("on any link", "GPUs"), ("between switches", "GPUs, between switches")],
            ..AT_RISK
        },
    ],
    note: "Error bars: least to most of the traces. Paper: 36.3 % of the jobs, 51 % of the GPUs.",
};

const AT_RISK: FigurePanel = FigurePanel {
    title: "",
    form: BARS,
    axes: ["", "%"],
    part: "Fig. 6: at risk of contention",
    measure: "{group}",
    groups: &[],
    series: OURS,
    paper: &[],
};

pub(in super::super) const FIG_7: PaperFigure = PaperFigure {
    title: "Crux, Fig. 7: impact of communication contention on a GPT",
    columns: 2,
    panels: &[
        FigurePanel {
            title: "Iteration time of the GPT",
            axes: ["", "s"],
            measure: "iteration of GPT, {group}",
            groups: &[("alone", "alone"), ("with BERT", "with BERT")],
            ..SHARED_LINKS
        },
        FigurePanel {
            title: "What sharing changes (text of §2.2)",
            axes: ["", "%"],
            measure: "{group}",
            groups: &[
                ("throughput of GPT", "throughput of GPT"),
                ("throughput of BERT", "throughput of BERT"),
                ("GPU utilisation", "GPU utilisation"),
            ],
            ..SHARED_LINKS
        },
    ],
    note: "One case without draws, so no error bars.",
};

const SHARED_LINKS: FigurePanel = FigurePanel { part: "", ..AT_RISK };

const OWN: FigureSeries = FigureSeries { name: "Crux", key: "crux", shade: SERIES[0] };
const PRINTED: ThemeShade = SERIES[6];

const fn rival(name: &'static str, key: &'static str, place: usize) -> FigureSeries {
    FigureSeries { name, key, shade: SERIES[place] }
}

/// How we name the method of the paper beside our own.
const fn printed_method(key: &'static str) -> FigureSeries {
    FigureSeries { name: "Crux, the paper's method", key, shade: PRINTED }
}

const ERROR_CDF: FigurePanel = FigurePanel {
    title: "",
    form: PanelForm::Curves { x_end: 20.0, y_range: Some([0.0, 1.0]), paper_mean: None },
    axes: ["error from the optimum, %", "share of cases"],
    part: "",
    measure: "",
    groups: &[],
    series: &[],
    paper: &[],
};

const fn error_cdf(paper_mean: f64) -> PanelForm {
    let y_range = Some([0.0, 1.0]);
    PanelForm::Curves { x_end: 20.0, y_range, paper_mean: Some(100.0 - paper_mean) }
}

pub(in super::super) const FIG_16: PaperFigure = PaperFigure {
    title: "Crux, Fig. 16: error relative to the global optimum",
    columns: 3,
    panels: &[
        FigurePanel {
            title: "(a) Priority assignment",
            form: error_cdf(97.24),
            measure: "assignment, {series}",
            series: &[
                OWN,
                printed_method("single-reference"),
                rival("Sincronia", "sincronia", 2),
                rival("Varys", "varys", 3),
            ],
            ..ERROR_CDF
        },
        FigurePanel {
            title: "(b) Path selection",
            form: error_cdf(97.69),
            measure: "paths, {series}",
            series: &[OWN, printed_method("greedy"), rival("TACCL*", "taccl", 5)],
            ..ERROR_CDF
        },
        FigurePanel {
            title: "(c) Priority compression",
            form: error_cdf(97.12),
            measure: "compression, {series}",
            series: &[OWN, printed_method("sampled"), rival("Sincronia", "sincronia", 2)],
            ..ERROR_CDF
        },
    ],
    note: "Cumulative share of the cases. Vertical line: the mean error of Crux that the paper \
           prints. 20 cases of one seed where the paper has 1,500, so no error bars; \
           docs/performance/decisions.md has 1,500 of three seeds.",
};

/// Without Crux, with Crux, and every job alone.
const SCHEMES: &[FigureSeries] =
    &[rival("without Crux", "ECMP", 4), rival("with Crux", "Crux", 0), rival("ideal", "alone", 2)];
const WITH_AND_WITHOUT: &[FigureSeries] =
    &[rival("without Crux", "ECMP", 4), rival("with Crux", "Crux", 0)];

const fn with_crux(percent: [f64; 2]) -> RelativeValue {
    relative_series("Crux", "ECMP", Percent(percent))
}

/// Utilisation by case.
const UTILISATION: FigurePanel = FigurePanel {
    title: "",
    form: BARS,
    axes: ["", "GPU utilisation, %"],
    part: "as the paper draws it",
    measure: "utilisation, {group}, {series}",
    groups: &[],
    series: SCHEMES,
    paper: &[],
};

/// Completion of jobs of one kind by case.
const COMPLETION: FigurePanel = FigurePanel {
    axes: ["", "completion time, ideal = 1"],
    series: WITH_AND_WITHOUT,
    ..UTILISATION
};

const FIG_19_UTILISATION: FigurePanel = FigurePanel {
    axes: ["8-GPU BERT jobs", "GPU utilisation, %"],
    groups: &[("2", "2 BERT"), ("4", "4 BERT"), ("6", "6 BERT"), ("8", "8 BERT")],
    paper: &[with_crux([8.3, 12.9])],
    ..UTILISATION
};

const FIG_19_GPT: FigurePanel = FigurePanel {
    axes: ["8-GPU BERT jobs", "completion time, ideal = 1"],
    groups: FIG_19_UTILISATION.groups,
    measure: "time of GPT, {group}, {series}",
    paper: &[with_crux([-25.0, -11.0])],
    ..COMPLETION
};

const FIG_19_BERT: FigurePanel = FigurePanel {
    measure: "time of BERT, {group}, {series}",
    paper: &[with_crux([0.0, 3.0])],
    ..FIG_19_GPT
};

const SET_PART: &str = "as the paper draws it, 8 conn.";
const ONE_PART: &str = "as the paper draws it, 1 conn.";

pub(in super::super) const FIG_19: PaperFigure = PaperFigure {
    title: "Crux, Fig. 19: a 32-GPU GPT and 8-GPU BERT jobs on network paths",
    columns: 3,
    panels: &[
        FigurePanel { title: "(a) 8 connections", part: SET_PART, ..FIG_19_UTILISATION },
        FigurePanel { title: "(b) GPT, 8 connections", part: SET_PART, ..FIG_19_GPT },
        FigurePanel { title: "(b) BERT, 8 connections", part: SET_PART, ..FIG_19_BERT },
        FigurePanel { title: "(a) 1 connection", part: ONE_PART, ..FIG_19_UTILISATION },
        FigurePanel { title: "(b) GPT, 1 connection", part: ONE_PART, ..FIG_19_GPT },
        FigurePanel { title: "(b) BERT, 1 connection", part: ONE_PART, ..FIG_19_BERT },
    ],
    note: "Error bars: least to most of the seeds. Bands: where the paper has Crux by what its \
           text prints, relative to our bar without Crux: utilisation +8.3 to +12.9 %, completion \
           of GPT -11 to -25 %, of BERT 0 to +3 %. The paper does not print how many connections \
           a ring opens on a NIC: 8 is the calibrated number.",
};

const FIG_20_UTILISATION: FigurePanel = FigurePanel {
    groups: &[("five jobs", "five jobs")],
    paper: &[with_crux([13.9, 13.9])],
    ..UTILISATION
};

const FIG_20_COMPLETION: FigurePanel = FigurePanel {
    measure: "time of {group}, five jobs, {series}",
    groups: &[("GPT", "GPT"), ("BERT", "BERT"), ("ResNet", "ResNet")],
    paper: &[
        relative_value(["GPT", "Crux"], ["", "ECMP"], Percent([-18.0, -18.0])),
        relative_value(["BERT", "Crux"], ["", "ECMP"], Percent([-15.0, -15.0])),
        relative_value(["ResNet", "Crux"], ["", "ECMP"], Percent([2.0, 2.0])),
    ],
    ..COMPLETION
};

pub(in super::super) const FIG_20: PaperFigure = PaperFigure {
    title: "Crux, Fig. 20: a 48-GPU GPT, two BERT and two ResNet on network paths",
    columns: 2,
    panels: &[
        FigurePanel { title: "(a) 8 connections", part: SET_PART, ..FIG_20_UTILISATION },
        FigurePanel { title: "(b) 8 connections", part: SET_PART, ..FIG_20_COMPLETION },
        FigurePanel { title: "(a) 1 connection", part: ONE_PART, ..FIG_20_UTILISATION },
        FigurePanel { title: "(b) 1 connection", part: ONE_PART, ..FIG_20_COMPLETION },
    ],
    note: "Error bars: least to most of the seeds. Lines of the paper: Crux by what its text \
           prints, relative to our bar without Crux: utilisation +13.9 %, completion of GPT -18 %, \
           BERT -15 %, ResNet +2 %. The paper does not print how many connections a ring opens on \
           a NIC: 8 is the calibrated number.",
};

const PCIE_NOTE: &str = "Error bars: least to most of the seeds. Bands: where the paper has Crux \
                         by what its text prints for Figs. 21 and 22 together, relative to our \
                         bar without Crux: utilisation +9.5 to +14.8 %, completion of BERT -7 to \
                         -33 %, of ResNet +1 to +3 %.";

const PCIE_BERT: FigurePanel = FigurePanel {
    title: "(b) Completion of BERT",
    measure: "time of BERT, {group}, {series}",
    paper: &[with_crux([-33.0, -7.0])],
    ..COMPLETION
};

const PCIE_RESNET: FigurePanel = FigurePanel {
    title: "(b) Completion of ResNet",
    measure: "time of ResNet, {group}, {series}",
    paper: &[with_crux([1.0, 3.0])],
    ..COMPLETION
};

const PCIE_UTILISATION: FigurePanel =
    FigurePanel { title: "(a) GPU utilisation", paper: &[with_crux([9.5, 14.8])], ..UTILISATION };

const RESNETS: &[(&str, &str)] =
    &[("1", "1 ResNet"), ("2", "2 ResNet"), ("3", "3 ResNet"), ("4", "4 ResNet")];
const BERT_GPUS: &[(&str, &str)] =
    &[("8", "8-GPU BERT"), ("16", "16-GPU BERT"), ("24", "24-GPU BERT")];

pub(in super::super) const FIG_21: PaperFigure = PaperFigure {
    title: "Crux, Fig. 21: a 16-GPU BERT and 4-GPU ResNet jobs on PCIe",
    columns: 3,
    panels: &[
        FigurePanel {
            axes: ["4-GPU ResNet jobs", "GPU utilisation, %"],
            groups: RESNETS,
            ..PCIE_UTILISATION
        },
        FigurePanel {
            axes: ["4-GPU ResNet jobs", "completion time, ideal = 1"],
            groups: RESNETS,
            ..PCIE_BERT
        },
        FigurePanel {
            axes: ["4-GPU ResNet jobs", "completion time, ideal = 1"],
            groups: RESNETS,
            ..PCIE_RESNET
        },
    ],
    note: PCIE_NOTE,
};

pub(in super::super) const FIG_22: PaperFigure = PaperFigure {
    title: "Crux, Fig. 22: an 8-GPU ResNet and a BERT of more and more GPUs on PCIe",
    columns: 3,
    panels: &[
        FigurePanel {
            axes: ["GPUs of BERT", "GPU utilisation, %"],
            groups: BERT_GPUS,
            ..PCIE_UTILISATION
        },
        FigurePanel {
            axes: ["GPUs of BERT", "completion time, ideal = 1"],
            groups: BERT_GPUS,
            ..PCIE_BERT
        },
        FigurePanel {
            axes: ["GPUs of BERT", "completion time, ideal = 1"],
            groups: BERT_GPUS,
            ..PCIE_RESNET
        },
    ],
    note: PCIE_NOTE,
};

/// Schedulers in the order of the paper, each a group.
const SCHEDULERS: &[(&str, &str)] = &[
    ("Sincronia", "sincronia"),
    ("TACCL*", "taccl"),
    ("CASSINI", "cassini"),
    ("Crux-PA", "crux-pa"),
    ("Crux-PS-PA", "crux-ps-pa"),
    ("Crux-full", "crux"),
];

const BY_SCHEDULER: FigurePanel = FigurePanel {
    title: "",
    form: BARS,
    axes: ["", "GPU utilisation, %"],
    part: "",
    measure: "GPU utilisation, {group}",
    groups: SCHEDULERS,
    series: OURS,
    paper: &[],
};

/// Crux is so many points above Sincronia, TACCL* and CASSINI.
const fn below_crux(group: &'static str, [least, most]: [f64; 2]) -> RelativeValue {
    relative_value([group, ""], ["crux", ""], Points([-most, -least]))
}

const CLOS: FigurePanel = FigurePanel {
    title: "(a) Two-layer Clos",
    paper: &[
        below_crux("sincronia", [13.0, 23.0]),
        below_crux("taccl", [13.0, 23.0]),
        below_crux("cassini", [13.0, 23.0]),
    ],
    ..BY_SCHEDULER
};

const DOUBLE_SIDED: FigurePanel = FigurePanel {
    title: "(b) Three-layer double-sided",
    paper: &[
        below_crux("sincronia", [4.0, 7.0]),
        below_crux("taccl", [4.0, 7.0]),
        below_crux("cassini", [4.0, 7.0]),
    ],
    ..BY_SCHEDULER
};

const FIG_23_NOTE: &str = "Error bars: least to most of the traces. Lines in (a): utilisations \
                           from notes of the authors' talk. Bands: where the paper has Crux's \
                           rivals, 13 to 23 points below our Crux in (a), 4 to 7 points in (b).";

pub(in super::super) const FIG_23: PaperFigure = PaperFigure {
    title: "Crux, Fig. 23: GPU utilisation across communication schedulers, calibrated",
    columns: 2,
    panels: &[
        FigurePanel { part: "Clos, half a day, calibrated, fragmented", ..CLOS },
        FigurePanel { part: "double-sided, half a day, calibrated, fragmented", ..DOUBLE_SIDED },
    ],
    note: FIG_23_NOTE,
};

pub(in super::super) const FIG_23_PROFILES: PaperFigure = PaperFigure {
    title: "Crux, Fig. 23: GPU utilisation across communication schedulers, 16 x profiles",
    columns: 2,
    panels: &[
        FigurePanel { part: "Clos, two weeks, volume x 16, same-leaf", ..CLOS },
        FigurePanel { part: "double-sided, two weeks, volume x 16, same-leaf", ..DOUBLE_SIDED },
    ],
    note: FIG_23_NOTE,
};

pub(in super::super) const FIG_24: PaperFigure = PaperFigure {
    title: "Crux, Fig. 24: what its panels and text compare",
    columns: 2,
    panels: &[
        FigurePanel { title: "GPU utilisation of panels (a) to (f)", ..BY_SCHEDULER },
        FigurePanel {
            title: "What Crux-PA gains over panels (a) to (c)",
            axes: ["", "%"],
            measure: "GPU utilisation, crux-pa over {group}",
            groups: &[("Sincronia", "sincronia"), ("TACCL*", "taccl"), ("CASSINI", "cassini")],
            ..BY_SCHEDULER
        },
    ],
    note: "Error bars: least to most of the snapshots. Lines at the left: utilisations of two \
           weeks from notes of the authors' talk; at the right: 26, 14 and 5 % from the text of \
           §6.3. The distribution of intensity on the wire itself is drawn below by a run.",
};

/// Utilisation by job scheduler; the key of None differs.
const JOB_SCHEDULERS: FigurePanel = FigurePanel {
    title: "",
    form: BARS,
    axes: ["job scheduler", "GPU utilisation, %"],
    part: "GPU utilisation",
    measure: "{group} with {series}",
    groups: &[],
    series: &[rival("without Crux", "ecmp", 4), rival("with Crux", "crux", 0)],
    paper: &[],
};

/// What the paper says of Muri and HiveD over none, and of Crux below them.
const fn beside_none(none: &'static str) -> [RelativeValue; 4] {
    [
        relative_value(["muri", "ecmp"], [none, "ecmp"], Percent([20.0, 20.0])),
        relative_value(["hived", "ecmp"], [none, "ecmp"], Percent([25.0, 25.0])),
        relative_value(["muri", "crux"], ["", "ecmp"], Percent([14.0, 14.0])),
        relative_value(["hived", "crux"], ["", "ecmp"], Percent([11.0, 11.0])),
    ]
}

const FIG_25_NOTE: &str = "Error bars: least to most of the traces. Lines of the paper, by what \
                           its text prints: without Crux, Muri +20 % and HiveD +25 % over our bar \
                           of None; with Crux, +14 % and +11 % over our bars without.";

pub(in super::super) const FIG_25: PaperFigure = PaperFigure {
    title: "Crux, Fig. 25: job schedulers alone and combined with Crux, calibrated",
    columns: 1,
    panels: &[FigurePanel {
        groups: &[("None", "fragmented"), ("Muri", "muri"), ("HiveD", "hived")],
        paper: &beside_none("fragmented"),
        ..JOB_SCHEDULERS
    }],
    note: FIG_25_NOTE,
};

pub(in super::super) const FIG_25_PROFILES: PaperFigure = PaperFigure {
    title: "Crux, Fig. 25: job schedulers alone and combined with Crux, 8 x profiles",
    columns: 1,
    panels: &[FigurePanel {
        groups: &[("None", "first-fit"), ("Muri", "muri"), ("HiveD", "hived")],
        paper: &beside_none("first-fit"),
        ..JOB_SCHEDULERS
    }],
    note: FIG_25_NOTE,
};
