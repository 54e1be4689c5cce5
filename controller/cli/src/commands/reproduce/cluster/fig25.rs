//! Crux, Fig. 25: what Crux adds to schedulers of jobs (Crux §6.4).
//!
//! The paper compares Muri and HiveD with "no job scheduler" and does not say where jobs went then.
//! So that is swept: the first free GPUs, the emptiest hosts, any GPUs. Where jobs lie anywhere,
//! all of them meet and every instant concerns them all, so the sweep has half a day.

use simulator::Scheduler;
use simulator::placement::Placement;

use super::{CLOS, HALF_A_DAY, Runs, TWO_DAYS, VOLUME, Way, World, assumptions, per_cent};
use crate::commands::reproduce::Options;
use crate::commands::reproduce::report::{Reproduction, Row};
use crate::failure::Failure;

/// What the absence of a job scheduler means first, and what else it may mean.
const FIRST_FREE: Placement = Placement::FirstFit;
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
    let world = |length| World {
        fabric: CLOS,
        length,
        volume: VOLUME,
    };
    let papers = || PAPER.map(|(placement, _)| ecmp(placement)).into_iter();
    let mut ways: Vec<Way> = std::iter::once(ecmp(FIRST_FREE)).chain(papers()).collect();
    ways.extend(CRUX_BELOW.map(|(placement, _)| crux(placement)));
    let swept: Vec<Way> = NONE.map(ecmp).into_iter().chain(papers()).collect();
    let runs = world(TWO_DAYS).replay(&ways, options)?;
    let half_day = world(HALF_A_DAY).replay(&swept, options)?;
    let mut rows = utilisation(&runs, "GPU utilisation")?;
    rows.extend(over_none(
        &runs,
        FIRST_FREE,
        "job schedulers over none, all with ecmp",
    )?);
    rows.extend(crux_over_ecmp(&runs)?);
    rows.extend(utilisation(&half_day, "GPU utilisation, half a day")?);
    for none in NONE {
        rows.extend(over_none(&half_day, none, "over none, half a day")?);
    }
    Ok(Reproduction {
        about: "What Crux adds to schedulers of jobs.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 25 and §6.4.".to_owned(),
        rows,
        assumptions: assumptions(&[
            "Two days; every byte counts 8 times.",
            "No job scheduler means the first free GPUs in order of arrival (first-fit). Half a \
             day sweeps that: the emptiest hosts (least-loaded), or any GPUs (random).",
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

fn utilisation(runs: &Runs, part: &'static str) -> Result<Vec<Row>, Failure> {
    let row = |way: &Way| {
        let measure = format!("{} with {}", way.placement, way.scheduler);
        let row = Row::new(measure, "% of GPU time", None, &runs.each(*way, per_cent)?);
        Ok(row.in_part(part))
    };
    runs.ways.iter().map(row).collect()
}

fn over_none(runs: &Runs, none: Placement, part: &'static str) -> Result<Vec<Row>, Failure> {
    let row = |(placement, paper): (Placement, f64)| {
        let gains = runs.gains(ecmp(placement), ecmp(none))?;
        let measure = format!("{placement} over {none}");
        Ok(Row::new(measure, "%", Some(paper), &gains).in_part(part))
    };
    PAPER.into_iter().map(row).collect()
}

fn crux_over_ecmp(runs: &Runs) -> Result<Vec<Row>, Failure> {
    let row = |(placement, paper): (Placement, Option<f64>)| {
        let gains = runs.gains(crux(placement), ecmp(placement))?;
        let row = Row::new(format!("with {placement}"), "%", paper, &gains);
        Ok(row.in_part("crux over ecmp"))
    };
    CRUX_BELOW.into_iter().map(row).collect()
}
