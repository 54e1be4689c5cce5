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

/// Job schedulers, and what the paper has them gain over none, in %.
const PAPER: [(Placement, f64); 2] = [(Placement::Muri, 20.0), (Placement::Hived, 25.0)];

/// Below whom Crux is replayed, and what the paper has it add there. Where jobs lie anywhere, all
/// of them meet, and planning at every event takes minutes.
const CRUX_BELOW: [(Placement, Option<f64>); 3] = [
    (Placement::Muri, Some(14.0)),
    (Placement::Hived, Some(11.0)),
    (Placement::FirstFit, None),
];

/// What Crux adds to job schedulers.
pub(in super::super) fn fig25(options: Options) -> Result<Reproduction, Failure> {
    let placements = NONE
        .into_iter()
        .chain(PAPER.map(|(placement, _)| placement));
    let mut ways: Vec<Way> = placements.map(ecmp).collect();
    ways.extend(CRUX_BELOW.map(|(placement, _)| crux(placement)));
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

fn ecmp(placement: Placement) -> Way {
    Way::new(placement, Scheduler::Ecmp)
}

fn crux(placement: Placement) -> Way {
    Way::new(placement, Scheduler::Crux)
}

fn gains(runs: &Runs) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for none in NONE {
        for (placement, paper) in PAPER {
            let gains = runs.gains(ecmp(placement), ecmp(none))?;
            let row = Row::new(format!("{placement} over {none}"), "%", Some(paper), &gains);
            rows.push(row.in_part("job schedulers over none, all with ecmp"));
        }
    }
    for (placement, paper) in CRUX_BELOW {
        let gains = runs.gains(crux(placement), ecmp(placement))?;
        let row = Row::new(format!("with {placement}"), "%", paper, &gains);
        rows.push(row.in_part("crux over ecmp"));
    }
    Ok(rows)
}
