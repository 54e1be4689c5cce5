//! Job schedulers above communication schedulers, every pair: who gains from whom. Beyond the
//! papers.

use placement::PlacementAlgorithm;
use simulator::Scheduler;

use super::{CLOS, ReplayWorkload, SchedulingScheme, TWO_DAYS, VOLUME, list_assumptions, per_cent};
use crate::reproduce::SeedOptions;
use crate::reproduce::report::{MeasureRow, PaperReproduction};
use command_io::CommandError;

const PLACEMENTS: [PlacementAlgorithm; 5] = [
    PlacementAlgorithm::SjfBco,
    PlacementAlgorithm::Crius,
    PlacementAlgorithm::Hived,
    PlacementAlgorithm::Muri,
    PlacementAlgorithm::SameLeaf,
];

const SCHEDULERS: [Scheduler; 3] = [Scheduler::Ecmp, Scheduler::Cassini, Scheduler::Crux];

/// Every pair, and what CASSINI and Crux add to each job scheduler.
pub(in super::super) fn reproduce_pairs(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let ways: Vec<SchedulingScheme> = PLACEMENTS
        .into_iter()
        .flat_map(|placement| {
            SCHEDULERS.map(|scheduler| SchedulingScheme::new(placement, scheduler))
        })
        .collect();
    let world = ReplayWorkload { fabric: CLOS, length: TWO_DAYS, volume: VOLUME };
    let runs = world.replay_schemes(&ways, options)?;
    let mut rows = Vec::new();
    for way in &ways {
        let pair = format!("{} with {}", way.placement, way.scheduler);
        let hours =
            runs.measure_by_seed(*way, |outcome| outcome.mean_completion_seconds / 3600.0)?;
        let slowdown = runs.measure_by_seed(*way, |outcome| outcome.mean_slowdown)?;
        let busy = runs.measure_by_seed(*way, per_cent)?;
        rows.extend([
            MeasureRow::new(pair.clone(), "% of GPU time", None, &busy).in_part("GPU utilisation"),
            MeasureRow::new(pair.clone(), "hours", None, &hours).in_part("mean time to completion"),
            MeasureRow::new(pair, "times alone", None, &slowdown).in_part("mean slowdown"),
        ]);
    }
    for placement in PLACEMENTS {
        for scheduler in [Scheduler::Cassini, Scheduler::Crux] {
            let ecmp = SchedulingScheme::new(placement, Scheduler::Ecmp);
            let gains =
                runs.utilisation_gains(SchedulingScheme::new(placement, scheduler), ecmp)?;
            let measure = format!("{scheduler}, with {placement}");
            rows.push(MeasureRow::new(measure, "%", None, &gains).in_part("utilisation over ecmp"));
        }
    }
    rows.sort_by_key(|row| PARTS.iter().position(|part| row.part == *part));
    Ok(PaperReproduction {
        about: "Job schedulers above communication schedulers: who gains from whom.".to_owned(),
        source: "Beyond the papers.".to_owned(),
        rows,
        assumptions: list_assumptions(&[
            "Two days; every byte counts 8 times.",
            "Crius may give a job other numbers of GPUs than it asks for, at an equal global \
             batch; its cluster has one kind of GPU here. Jobs whose models have no measured \
             throughput are as fast as their profile and a ring say.",
        ]),
        ..PaperReproduction::default()
    })
}

/// In the order in which they are shown.
const PARTS: [&str; 4] =
    ["GPU utilisation", "utilisation over ecmp", "mean time to completion", "mean slowdown"];
