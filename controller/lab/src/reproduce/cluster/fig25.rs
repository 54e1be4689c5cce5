//! Crux, Fig. 25: what Crux adds to schedulers of jobs (Crux §6.4).
//!
//! The paper compares Muri and HiveD with "no job scheduler" and does not say where jobs went then.
//! With the calibrated set that is the fragmented placement, which has the contention of the
//! paper's cluster (Fig. 6). With profiles it is the first free GPUs, and half a day sweeps it: the
//! emptiest hosts, any GPUs.

use placement::PlacementAlgorithm;
use simulator::Scheduler;

use super::{
    CALIBRATED, CLOS, HALF_A_DAY, PROFILES, ReplayLength, ReplayRuns, ReplayWorkload,
    SchedulingScheme, TWO_DAYS, WithheldFacts, list_assumptions, per_cent,
};
use crate::reproduce::SeedOptions;
use crate::reproduce::report::{MeasureRow, PaperReproduction};
use command_io::CommandError;

/// What the absence of a job scheduler means with the calibrated set, what it means with profiles,
/// and what else it may mean.
const FRAGMENTED: PlacementAlgorithm = PlacementAlgorithm::Fragmented;
const FIRST_FREE: PlacementAlgorithm = PlacementAlgorithm::FirstFit;
const NONE: [PlacementAlgorithm; 3] =
    [PlacementAlgorithm::FirstFit, PlacementAlgorithm::LeastLoaded, PlacementAlgorithm::Random];

/// Job schedulers, and what the paper has them gain over none, in %.
const PAPER: [(PlacementAlgorithm, f64); 2] =
    [(PlacementAlgorithm::Muri, 20.0), (PlacementAlgorithm::Hived, 25.0)];

/// What the paper has Crux add below them, in %.
const PAPER_BELOW: [(PlacementAlgorithm, f64); 2] =
    [(PlacementAlgorithm::Muri, 14.0), (PlacementAlgorithm::Hived, 11.0)];

/// What Crux adds to job schedulers with the calibrated set.
pub(in super::super) fn reproduce_fig25(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    Ok(PaperReproduction {
        rows: compare_schedulers(HALF_A_DAY, CALIBRATED, FRAGMENTED, options)?,
        assumptions: list_assumptions(
            CALIBRATED,
            &["Half a day, at most three traces. No job scheduler means fragmented placement, \
                 whose contention is that of the paper's cluster (crux-fig6)."],
        ),
        ..describe_figure()
    })
}

/// What Crux adds to job schedulers with profiles, and what their absence may mean.
pub(in super::super) fn reproduce_fig25_profiles(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let mut rows = compare_schedulers(TWO_DAYS, PROFILES, FIRST_FREE, options)?;
    let swept: Vec<SchedulingScheme> =
        NONE.into_iter().chain(paper_schedulers()).map(ecmp_scheme).collect();
    let half_day = ReplayWorkload { fabric: CLOS, length: HALF_A_DAY, facts: PROFILES };
    let half_day = half_day.replay_schemes(&swept, options)?;
    rows.extend(utilisation_rows(&half_day, "GPU utilisation, half a day")?);
    for none in NONE {
        rows.extend(gain_rows(&half_day, none, "over none, half a day")?);
    }
    Ok(PaperReproduction {
        rows,
        assumptions: list_assumptions(
            PROFILES,
            &[
                "Two days, at most three traces; every byte counts 8 times.",
                "No job scheduler means the first free GPUs in order of arrival (first-fit). Half \
                 a day sweeps that: the emptiest hosts (least-loaded), or any GPUs (random).",
            ],
        ),
        ..describe_figure()
    })
}

fn describe_figure() -> PaperReproduction {
    PaperReproduction {
        about: "What Crux adds to schedulers of jobs.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 25 and §6.4.".to_owned(),
        ..PaperReproduction::default()
    }
}

/// Job schedulers over `none`, and Crux below all of them.
fn compare_schedulers(
    length: ReplayLength,
    facts: WithheldFacts,
    none: PlacementAlgorithm,
    options: SeedOptions,
) -> Result<Vec<MeasureRow>, CommandError> {
    let placements = || std::iter::once(none).chain(paper_schedulers());
    let ways: Vec<SchedulingScheme> =
        placements().map(ecmp_scheme).chain(placements().map(crux_scheme)).collect();
    let runs = ReplayWorkload { fabric: CLOS, length, facts }.replay_schemes(&ways, options)?;
    let mut rows = utilisation_rows(&runs, "GPU utilisation")?;
    rows.extend(gain_rows(&runs, none, "job schedulers over none, all with ecmp")?);
    rows.extend(crux_over_ecmp(&runs, none)?);
    Ok(rows)
}

fn paper_schedulers() -> impl Iterator<Item = PlacementAlgorithm> {
    PAPER.into_iter().map(|(placement, _)| placement)
}

fn ecmp_scheme(placement: PlacementAlgorithm) -> SchedulingScheme {
    SchedulingScheme::new(placement, Scheduler::Ecmp)
}

fn crux_scheme(placement: PlacementAlgorithm) -> SchedulingScheme {
    SchedulingScheme::new(placement, Scheduler::Crux)
}

fn utilisation_rows(
    runs: &ReplayRuns,
    part: &'static str,
) -> Result<Vec<MeasureRow>, CommandError> {
    runs.ways
        .iter()
        .map(|way| {
            let measure = format!("{} with {}", way.placement, way.scheduler);
            let row = MeasureRow::new(
                measure,
                "% of GPU time",
                None,
                &runs.measure_by_seed(*way, per_cent)?,
            );
            Ok(row.in_part(part))
        })
        .collect()
}

fn gain_rows(
    runs: &ReplayRuns,
    none: PlacementAlgorithm,
    part: &'static str,
) -> Result<Vec<MeasureRow>, CommandError> {
    PAPER
        .into_iter()
        .map(|(placement, paper)| {
            let gains = runs.utilisation_gains(ecmp_scheme(placement), ecmp_scheme(none))?;
            let measure = format!("{placement} over {none}");
            Ok(MeasureRow::new(measure, "%", Some(paper), &gains).in_part(part))
        })
        .collect()
}

fn crux_over_ecmp(
    runs: &ReplayRuns,
    none: PlacementAlgorithm,
) -> Result<Vec<MeasureRow>, CommandError> {
    let papers = PAPER_BELOW.map(|(placement, paper)| (placement, Some(paper)));
    papers
        .into_iter()
        .chain([(none, None)])
        .map(|(placement, paper)| {
            let gains = runs.utilisation_gains(crux_scheme(placement), ecmp_scheme(placement))?;
            let row = MeasureRow::new(format!("with {placement}"), "%", paper, &gains);
            Ok(row.in_part("crux over ecmp"))
        })
        .collect()
}
