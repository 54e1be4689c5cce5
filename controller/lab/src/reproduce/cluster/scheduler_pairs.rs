//! Job schedulers above communication schedulers, every pair: who gains from whom. Beyond the
//! papers.

use placement::PlacementAlgorithm;
use simulator::Scheduler;

use super::{
    CALIBRATED, CLOS, HALF_A_DAY, PROFILES, ReplayLength, ReplayWorkload, SchedulingScheme,
    TWO_DAYS, WithheldFacts, list_assumptions, per_cent,
};
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

/// Every pair with the calibrated set, and jobs that nobody packs beside them.
pub(in super::super) fn reproduce_pairs(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let mut placements = PLACEMENTS.to_vec();
    placements.push(PlacementAlgorithm::Fragmented);
    Ok(PaperReproduction {
        rows: pair_rows(HALF_A_DAY, CALIBRATED, &placements, options)?,
        assumptions: list_assumptions(CALIBRATED, &["Half a day, at most three traces.", CRIUS]),
        ..describe_pairs()
    })
}

/// Every pair with profiles.
pub(in super::super) fn reproduce_pairs_profiles(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let days = "Two days, at most three traces; every byte counts 8 times.";
    Ok(PaperReproduction {
        rows: pair_rows(TWO_DAYS, PROFILES, &PLACEMENTS, options)?,
        assumptions: list_assumptions(PROFILES, &[days, CRIUS]),
        ..describe_pairs()
    })
}

const CRIUS: &str = "Crius may give a job other numbers of GPUs than it asks for, at an equal \
                     global batch; its cluster has one kind of GPU here. Jobs whose models have no \
                     measured throughput are as fast as their profile and a ring say.";

fn describe_pairs() -> PaperReproduction {
    PaperReproduction {
        about: "Job schedulers above communication schedulers: who gains from whom.".to_owned(),
        source: "Beyond the papers.".to_owned(),
        ..PaperReproduction::default()
    }
}

/// Every pair, and what CASSINI and Crux add to each job scheduler.
fn pair_rows(
    length: ReplayLength,
    facts: WithheldFacts,
    placements: &[PlacementAlgorithm],
    options: SeedOptions,
) -> Result<Vec<MeasureRow>, CommandError> {
    let ways: Vec<SchedulingScheme> = placements
        .iter()
        .flat_map(|placement| {
            SCHEDULERS.map(|scheduler| SchedulingScheme::new(*placement, scheduler))
        })
        .collect();
    let runs = ReplayWorkload { fabric: CLOS, length, facts }.replay_schemes(&ways, options)?;
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
    for &placement in placements {
        for scheduler in [Scheduler::Cassini, Scheduler::Crux] {
            let ecmp = SchedulingScheme::new(placement, Scheduler::Ecmp);
            let gains =
                runs.utilisation_gains(SchedulingScheme::new(placement, scheduler), ecmp)?;
            let measure = format!("{scheduler}, with {placement}");
            rows.push(MeasureRow::new(measure, "%", None, &gains).in_part("utilisation over ecmp"));
        }
    }
    rows.sort_by_key(|row| PARTS.iter().position(|part| row.part == *part));
    Ok(rows)
}

/// In the order in which they are shown.
const PARTS: [&str; 4] =
    ["GPU utilisation", "utilisation over ecmp", "mean time to completion", "mean slowdown"];
