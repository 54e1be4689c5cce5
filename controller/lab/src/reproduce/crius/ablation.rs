//! What the parts of Crius are worth: its estimates, its tuner, and the means of its scheduler.

use std::collections::BTreeMap;

use placement::crius::calibration::{self, JudgedEstimate, MachineEvidence};
use placement::crius::{
    self, CriusAbilities, CriusCell, CriusPolicy, estimate, gpu_kinds, layers, tuner,
};
use placement::throughput::ThroughputTable;

use super::CriusTestbed;
use crate::reproduce::SeedOptions;
use crate::reproduce::large_models::draw_jobs;
use crate::reproduce::report::{MeasureRow, PaperReproduction, percent_change};
use command_io::CommandError;

/// Mean errors of estimates there, in %, by number of GPUs.
const ESTIMATE_ERRORS: [(u32, f64); 5] = [(1, 4.4), (2, 5.1), (4, 3.1), (8, 4.6), (16, 8.3)];

/// What the plan that was estimated loses against the best of all there, in %.
const PLAN_LOSS: f64 = 6.6;

/// Errors of estimates, loss of the tuner, and the scheduler without each of its means.
pub(in crate::reproduce) fn reproduce_ablation(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let mut rows = estimate_rows();
    rows.extend(tuner_rows());
    rows.extend(scheduler_rows(options)?);
    Ok(PaperReproduction {
        about: "What the parts of Crius are worth: estimates, tuner, means of its scheduler."
            .to_owned(),
        source: "Xue et al., arXiv 2403.16125; the README of sjtu-epcc/arena, \
                 ae-eurosys."
            .to_owned(),
        rows,
        assumptions: [
            "Estimates rest on a model of kernels that is fitted to the authors' timings on one \
             GPU, on their measured collectives and memory, and on the published measurements on \
             one and two GPUs; those on 4, 8 and 16 GPUs calibrate nothing.",
            "Measured is the best parallelism that Alpa found, which is not published; the paper's \
             errors compare one parallelism with itself.",
            "Contradictions: twice the GPUs are less than 1.1 times or more than 2.1 times as \
             fast. A machine: as many GPUs of a kind on as many hosts; its evidence is the median \
             error of what else was measured on it.",
            "Plans are timed by the estimator's own model, so that the loss of the tuner is that \
             of its pruning alone; Cells of 4 and 8 A40 on hosts of two.",
            "The scheduler without a mean is compared with the whole one on the jobs of crius-jct; \
             the paper has no figure for this cluster.",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..PaperReproduction::default()
    })
}

/// Speed of NICs that was assumed before measured collectives were used: 100 Gb/s.
const ASSUMED_NIC_BYTES_PER_SECOND: f64 = 12.5e9;

fn estimate_rows() -> Vec<MeasureRow> {
    let judged = calibration::judge_estimates();
    let mut rows: Vec<MeasureRow> = ESTIMATE_ERRORS
        .map(|(gpus, paper)| error_row("error of estimates", gpus, Some(paper), &judged))
        .to_vec();
    let published: Vec<JudgedEstimate> =
        judged.iter().copied().filter(|judged| judged.published_error().is_some()).collect();
    for (gpus, _) in ESTIMATE_ERRORS {
        let errors = of_size(&published, gpus).filter_map(JudgedEstimate::published_error);
        let errors: Vec<f64> = errors.map(|error| 100.0 * error).collect();
        let measure = format!("error of the authors' own estimates, {gpus} GPUs");
        rows.push(MeasureRow::new(measure, "%", None, &errors));
        rows.push(error_row("error of ours for the same", gpus, None, &published));
    }
    for (name, judged) in swept_estimates(&judged) {
        let beyond = ESTIMATE_ERRORS.iter().filter(|(gpus, _)| *gpus > 2);
        rows.extend(beyond.map(|(gpus, _)| error_row(name, *gpus, None, &judged)));
    }
    rows
}

/// What decides the errors beyond two GPUs, one at a time.
fn swept_estimates(judged: &[JudgedEstimate]) -> Vec<(&'static str, Vec<JudgedEstimate>)> {
    let corrected = |evidence| calibration::corrected_estimates(judged, evidence);
    let consistent = calibration::without_contradictions(judged);
    let known = |evidence| calibration::corrected_estimates(&consistent, evidence);
    let assumed = calibration::judge_with_nics(ASSUMED_NIC_BYTES_PER_SECOND);
    let (family, itself) = (MachineEvidence::SameFamily, MachineEvidence::Itself);
    vec![
        ("error with 100 Gb/s between hosts", assumed),
        ("error without contradictions", consistent.clone()),
        ("error with other families on the machine", corrected(MachineEvidence::OtherFamilies)),
        ("error with the family on the machine", corrected(family)),
        ("error with both of these", known(family)),
        ("error with a factor by machine and family", corrected(itself)),
        ("error with that factor, without contradictions", known(itself)),
    ]
}

fn error_row(
    measure: &str,
    gpus: u32,
    paper: Option<f64>,
    judged: &[JudgedEstimate],
) -> MeasureRow {
    let errors = of_size(judged, gpus).map(|judged| judged.relative_error() * 100.0);
    MeasureRow::new(format!("{measure}, {gpus} GPUs"), "%", paper, &errors.collect::<Vec<f64>>())
}

fn of_size(judged: &[JudgedEstimate], gpus: u32) -> impl Iterator<Item = &JudgedEstimate> {
    judged.iter().filter(move |judged| judged.measured.gpu_count() == gpus)
}

/// Models, and hosts of two A40, whose Cells are searched in full.
const SEARCHED: [&str; 6] = [
    "bert-760M/128",
    "bert-1.3B/256",
    "moe-690M/256",
    "moe-2.4B/256",
    "wide-resnet-500M/256",
    "wide-resnet-2B/256",
];
const SEARCHED_HOSTS: [u32; 2] = [2, 4];

fn tuner_rows() -> Vec<MeasureRow> {
    let (mut estimated, mut tuned, mut tried) = (Vec::new(), Vec::new(), Vec::new());
    let gpu = gpu_kinds::GpuKind::by_name("A40").expect("A40 is a built-in kind");
    for name in SEARCHED {
        let model = layers::LayeredModel::by_name(name).expect("its names are built in");
        let cells = SEARCHED_HOSTS.into_iter().flat_map(|hosts| CriusCell::for_gpus(hosts, 2));
        for cell in cells {
            let setting = estimate::CellEstimator {
                model: &model,
                gpu,
                cell,
                kernel_speed: calibration::kernel_speed(model.family, gpu),
            };
            let plans = (
                setting.estimate_best_plan(),
                tuner::tune_cell(&setting),
                tuner::tune_exhaustively(&setting),
            );
            let (Some((seconds, _)), Some(pruned), Some(all)) = plans else {
                continue;
            };
            estimated.push(percent_change(all.seconds, seconds));
            tuned.push(percent_change(all.seconds, pruned.seconds));
            tried.push(100.0 * pruned.tried as f64 / all.tried as f64);
        }
    }
    vec![
        MeasureRow::new("loss of the estimated plan", "%", Some(PLAN_LOSS), &estimated),
        MeasureRow::new("loss of the tuned plan", "%", None, &tuned),
        MeasureRow::new("plans that the tuner tries", "%", None, &tried),
    ]
}

/// Crius without one of its means.
const WITHOUT: [(&str, CriusAbilities); 4] = [
    ("without other numbers of GPUs", CriusAbilities { scaling: false, ..CriusAbilities::ALL }),
    ("without other kinds of GPU", CriusAbilities { moving: false, ..CriusAbilities::ALL }),
    ("without opportunism", CriusAbilities { opportunism: false, ..CriusAbilities::ALL }),
    ("without merging", CriusAbilities { merging: false, ..CriusAbilities::ALL }),
];

fn scheduler_rows(options: SeedOptions) -> Result<Vec<MeasureRow>, CommandError> {
    let lab = CriusTestbed::new();
    let estimated = ThroughputTable::from_estimates(
        &lab.cluster,
        lab.truth.model_names(),
        crius::search::MOST_GPUS,
    );
    let estimated = lab.truth.clone().with_speeds_of(&estimated);
    let mut ratios: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for seed in options.all_seeds() {
        let jobs = draw_jobs(seed, 1.0, &lab.truth);
        let whole = lab.replay_policy(&jobs, &mut CriusPolicy::new(lab.truth.clone()))?;
        let mut note = |name, crius: &mut CriusPolicy| {
            let achieved = lab.replay_policy(&jobs, crius)?;
            let [ended, speed] = ratios.entry(name).or_default();
            ended.push(
                achieved.completion_seconds.len() as f64 / whole.completion_seconds.len() as f64,
            );
            speed.push(achieved.mean_samples_per_second() / whole.mean_samples_per_second());
            Ok::<(), CommandError>(())
        };
        for (name, abilities) in WITHOUT {
            let mut crius = CriusPolicy::new(lab.truth.clone());
            crius.abilities = abilities;
            note(name, &mut crius)?;
        }
        note(ON_ESTIMATES, &mut CriusPolicy::new(estimated.clone()))?;
    }
    let names = WITHOUT.iter().map(|(name, _)| *name).chain([ON_ESTIMATES]);
    let rows = names.flat_map(|name| {
        let [ended, speed] = &ratios[name];
        [
            MeasureRow::new(format!("throughput {name} / whole"), "ratio", None, speed),
            MeasureRow::new(format!("jobs ended {name} / whole"), "ratio", None, ended),
        ]
    });
    Ok(rows.collect())
}

/// Decisions by the estimates of Cells, while jobs run as measured.
const ON_ESTIMATES: &str = "on estimates";
