//! Crux, Fig. 25: what Crux adds to schedulers of jobs (Crux §6.4).
//!
//! The paper compares Muri and HiveD with "no job scheduler" and does not say where jobs went then.
//! So that is swept: the first free GPUs, the emptiest hosts, any GPUs. Where jobs lie anywhere,
//! all of them meet and every instant concerns them all, so the sweep has half a day.

use placement::PlacementAlgorithm;
use simulator::Scheduler;

use super::{
    CLOS, HALF_A_DAY, ReplayRuns, ReplayWorkload, SchedulingScheme, TWO_DAYS, VOLUME,
    list_assumptions, per_cent,
};
use crate::reproduce::SeedOptions;
use crate::reproduce::report::{MeasureRow, PaperReproduction};
use command_io::CommandError;

/// What the absence of a job scheduler means first, and what else it may mean.
const FIRST_FREE: PlacementAlgorithm = PlacementAlgorithm::FirstFit;
const NONE: [PlacementAlgorithm; 3] =
    [PlacementAlgorithm::FirstFit, PlacementAlgorithm::LeastLoaded, PlacementAlgorithm::Random];

/// Job schedulers, and what the paper has them gain over none, in %.
const PAPER: [(PlacementAlgorithm, f64); 2] =
    [(PlacementAlgorithm::Muri, 20.0), (PlacementAlgorithm::Hived, 25.0)];

/// Below whom Crux is replayed, and what the paper has it add there. Where jobs lie anywhere, all
/// of them meet, and planning at every event takes minutes.
const CRUX_BELOW: [(PlacementAlgorithm, Option<f64>); 3] = [
    (PlacementAlgorithm::Muri, Some(14.0)),
    (PlacementAlgorithm::Hived, Some(11.0)),
    (PlacementAlgorithm::FirstFit, None),
];

/// What Crux adds to job schedulers.
pub(in super::super) fn reproduce_fig25(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let world = |length| ReplayWorkload { fabric: CLOS, length, volume: VOLUME };
    let papers = || PAPER.map(|(placement, _)| ecmp_scheme(placement)).into_iter();
    let mut ways: Vec<SchedulingScheme> =
        std::iter::once(ecmp_scheme(FIRST_FREE)).chain(papers()).collect();
    ways.extend(CRUX_BELOW.map(|(placement, _)| crux_scheme(placement)));
    let swept: Vec<SchedulingScheme> = NONE.map(ecmp_scheme).into_iter().chain(papers()).collect();
    let runs = world(TWO_DAYS).replay_schemes(&ways, options)?;
    let half_day = world(HALF_A_DAY).replay_schemes(&swept, options)?;
    let mut rows = utilisation_rows(&runs, "GPU utilisation")?;
    rows.extend(gain_rows(&runs, FIRST_FREE, "job schedulers over none, all with ecmp")?);
    rows.extend(crux_over_ecmp(&runs)?);
    rows.extend(utilisation_rows(&half_day, "GPU utilisation, half a day")?);
    for none in NONE {
        rows.extend(gain_rows(&half_day, none, "over none, half a day")?);
    }
    Ok(PaperReproduction {
        about: "What Crux adds to schedulers of jobs.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 25 and §6.4.".to_owned(),
        rows,
        assumptions: list_assumptions(&[
            "Two days; every byte counts 8 times.",
            "No job scheduler means the first free GPUs in order of arrival (first-fit). Half a \
             day sweeps that: the emptiest hosts (least-loaded), or any GPUs (random).",
        ]),
        ..PaperReproduction::default()
    })
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

fn crux_over_ecmp(runs: &ReplayRuns) -> Result<Vec<MeasureRow>, CommandError> {
    CRUX_BELOW
        .into_iter()
        .map(|(placement, paper)| {
            let gains = runs.utilisation_gains(crux_scheme(placement), ecmp_scheme(placement))?;
            let row = MeasureRow::new(format!("with {placement}"), "%", paper, &gains);
            Ok(row.in_part("crux over ecmp"))
        })
        .collect()
}
