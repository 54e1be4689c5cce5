//! Crux, Fig. 25: what Crux adds to schedulers of jobs (Crux §6.4).
//!
//! The paper compares Muri and HiveD with "no job scheduler" and does not say where jobs went then.
//! So that is swept: the first free GPUs, the emptiest hosts, any GPUs.

use simulator::Scheduler;
use simulator::placement::Placement;

use super::{CLOS, Runs, TWO_DAYS, VOLUME, Way, World, assumptions, per_cent};
use crate::commands::reproduce::Options;
use crate::commands::reproduce::report::{Reproduction, Row};
use crate::failure::Failure;

/// What the absence of a job scheduler may mean.
const NONE: [Placement; 3] = [
    Placement::FirstFit,
    Placement::LeastLoaded,
    Placement::Random,
];

/// Job schedulers, what the paper has them gain over none, and what Crux adds to them; in %.
const PAPER: [(Placement, f64, f64); 2] = [
    (Placement::Muri, 20.0, 14.0),
    (Placement::Hived, 25.0, 11.0),
];

/// What Crux adds to job schedulers.
pub(in super::super) fn fig25(options: Options) -> Result<Reproduction, Failure> {
    let placements = NONE
        .into_iter()
        .chain(PAPER.map(|(placement, ..)| placement));
    let placements: Vec<Placement> = placements.collect();
    let both =
        |placement: &Placement| [Scheduler::Ecmp, Scheduler::Crux].map(|s| Way::new(*placement, s));
    let ways: Vec<Way> = placements.iter().flat_map(both).collect();
    let world = World {
        fabric: CLOS,
        length: TWO_DAYS,
        volume: VOLUME,
    };
    let runs = world.replay(&ways, options)?;
    let mut rows = Vec::new();
    for way in &ways {
        let measure = format!("{} with {}", way.placement, way.scheduler);
        let row = Row::new(measure, "% of GPU time", None, &runs.each(*way, per_cent)?);
        rows.push(row.in_part("GPU utilisation"));
    }
    rows.extend(gains(&runs)?);
    Ok(Reproduction {
        about: "What Crux adds to schedulers of jobs.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 25 and §6.4.".to_owned(),
        rows,
        assumptions: assumptions(&[
            "Two days; every byte counts 8 times.",
            "What no job scheduler means is swept: in order of arrival onto the first free GPUs \
             (first-fit), the emptiest hosts (least-loaded), or any GPUs (random).",
        ]),
        ..Reproduction::default()
    })
}

fn gains(runs: &Runs) -> Result<Vec<Row>, Failure> {
    let ecmp = |placement| Way::new(placement, Scheduler::Ecmp);
    let mut rows = Vec::new();
    for none in NONE {
        for (placement, paper, _) in PAPER {
            let gains = runs.gains(ecmp(placement), ecmp(none))?;
            let row = Row::new(format!("{placement} over {none}"), "%", Some(paper), &gains);
            rows.push(row.in_part("job schedulers over none, all with ecmp"));
        }
    }
    let mut crux_over_ecmp = |placement, paper| -> Result<(), Failure> {
        let gains = runs.gains(Way::new(placement, Scheduler::Crux), ecmp(placement))?;
        let row = Row::new(format!("with {placement}"), "%", paper, &gains);
        rows.push(row.in_part("crux over ecmp"));
        Ok(())
    };
    for (placement, _, paper) in PAPER {
        crux_over_ecmp(placement, Some(paper))?;
    }
    for none in NONE {
        crux_over_ecmp(none, None)?;
    }
    Ok(rows)
}
