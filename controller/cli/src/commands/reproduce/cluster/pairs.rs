//! Job schedulers above communication schedulers, every pair: who gains from whom. Beyond the
//! papers.

use simulator::Scheduler;
use simulator::placement::Placement;

use super::{CLOS, TWO_DAYS, VOLUME, Way, World, assumptions, per_cent};
use crate::commands::reproduce::Options;
use crate::commands::reproduce::report::{Reproduction, Row};
use crate::failure::Failure;

const PLACEMENTS: [Placement; 5] = [
    Placement::SjfBco,
    Placement::Crius,
    Placement::Hived,
    Placement::Muri,
    Placement::SameLeaf,
];

const SCHEDULERS: [Scheduler; 3] = [Scheduler::Ecmp, Scheduler::Cassini, Scheduler::Crux];

/// Every pair, and what CASSINI and Crux add to each job scheduler.
pub(in super::super) fn pairs(options: Options) -> Result<Reproduction, Failure> {
    let below = |placement| SCHEDULERS.map(|scheduler| Way::new(placement, scheduler));
    let ways: Vec<Way> = PLACEMENTS.into_iter().flat_map(below).collect();
    let world = World {
        fabric: CLOS,
        length: TWO_DAYS,
        volume: VOLUME,
    };
    let runs = world.replay(&ways, options)?;
    let mut rows = Vec::new();
    for way in &ways {
        let pair = format!("{} with {}", way.placement, way.scheduler);
        let hours = runs.each(*way, |outcome| outcome.mean_completion_seconds / 3600.0)?;
        let slowdown = runs.each(*way, |outcome| outcome.mean_slowdown)?;
        let busy = runs.each(*way, per_cent)?;
        rows.extend([
            Row::new(pair.clone(), "% of GPU time", None, &busy).in_part("GPU utilisation"),
            Row::new(pair.clone(), "hours", None, &hours).in_part("mean time to completion"),
            Row::new(pair, "times alone", None, &slowdown).in_part("mean slowdown"),
        ]);
    }
    for placement in PLACEMENTS {
        for scheduler in [Scheduler::Cassini, Scheduler::Crux] {
            let ecmp = Way::new(placement, Scheduler::Ecmp);
            let gains = runs.gains(Way::new(placement, scheduler), ecmp)?;
            let measure = format!("{scheduler}, with {placement}");
            rows.push(Row::new(measure, "%", None, &gains).in_part("utilisation over ecmp"));
        }
    }
    rows.sort_by_key(|row| PARTS.iter().position(|part| row.part == *part));
    Ok(Reproduction {
        about: "Job schedulers above communication schedulers: who gains from whom.".to_owned(),
        source: "Beyond the papers.".to_owned(),
        rows,
        assumptions: assumptions(&[
            "Two days; every byte counts 8 times.",
            "Crius may give a job other numbers of GPUs than it asks for, at an equal global \
             batch; its cluster has one kind of GPU here. Jobs whose models have no measured \
             throughput are as fast as their profile and a ring say.",
        ]),
        ..Reproduction::default()
    })
}

/// In the order in which they are shown.
const PARTS: [&str; 4] = [
    "GPU utilisation",
    "utilisation over ecmp",
    "mean time to completion",
    "mean slowdown",
];
