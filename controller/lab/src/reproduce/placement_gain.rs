//! What Crux gains on the demo's testbed by placement of its jobs and connections of its rings:
//! what makes the gain of the demo, and what makes it vanish. Beyond the papers.

use std::collections::BTreeMap;

use super::SeedOptions;
use super::crux_gain::CruxGain;
use super::report::{MeasureRow, PaperReproduction};
use super::testbed::{CONNECTIONS, measure_gains};
use crate::demo::CALIBRATED;
use crate::demo::scenario::{DemoScenario, HostShare, ScenarioJob, TESTBED, draw_number};
use command_io::CommandError;

/// Hosts of the testbed, three on each leaf.
const HOSTS: [&str; 12] =
    ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "h10", "h11", "h12"];

/// Which hosts the jobs of the demo have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPlacement {
    /// Those of the demo: every job is spread over all leaves that have room.
    Spread,
    /// Any, drawn from the seed.
    Random,
    /// One after the other, leaf by leaf.
    Packed,
}

impl JobPlacement {
    const ALL: [Self; 3] = [Self::Spread, Self::Random, Self::Packed];

    fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Random => "random hosts",
            Self::Packed => "packed",
        }
    }

    /// The host in place of each that the demo has.
    fn host_map(self, seed: u64) -> BTreeMap<&'static str, &'static str> {
        let mut used: Vec<&str> = Vec::new();
        for (host, ..) in TESTBED.iter().flat_map(|job| job.shares) {
            if !used.contains(host) {
                used.push(host);
            }
        }
        let mut hosts = HOSTS;
        match self {
            Self::Spread => return HOSTS.iter().map(|host| (*host, *host)).collect(),
            Self::Random => hosts.sort_by_key(|host| draw_number(seed, &format!("place {host}"))),
            Self::Packed => {}
        }
        used.into_iter().zip(hosts).collect()
    }

    fn place_jobs(self, seed: u64) -> Result<DemoScenario, CommandError> {
        let hosts = self.host_map(seed);
        let shares = TESTBED.iter().map(|job| {
            let moved = job.shares.iter().map(|(host, gpus, nics)| (hosts[host], *gpus, *nics));
            moved.collect::<Vec<HostShare<'_>>>()
        });
        let shares: Vec<_> = shares.collect();
        let jobs = TESTBED.iter().zip(&shares);
        let jobs: Vec<_> = jobs.map(|(job, shares)| ScenarioJob { shares, ..*job }).collect();
        DemoScenario::on_testbed(&jobs, CALIBRATED, seed)
    }
}

/// GPU utilisation under Crux against ECMP, by placement and by connections of a ring for each NIC.
pub(super) fn reproduce_placement_gains(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let mut rows = Vec::new();
    for placement in JobPlacement::ALL {
        for connections in CONNECTIONS {
            let gains = measure_gains(options, connections, |seed| placement.place_jobs(seed))?;
            let measure = format!("GPU utilisation, {}, {connections} conn.", placement.name());
            let value = CruxGain::utilisation_change;
            rows.push(MeasureRow::of_runs(measure, "%", None, (&gains, value)));
        }
    }
    let assumptions = [
        "The five jobs, volumes and uplinks of the demo (docs/demo.md), in the fluid model; all \
         jobs begin together. ECMP with one level, UDP ports drawn from the seed.",
        "Spread: as in the demo. Random hosts: a permutation of the twelve hosts for each seed. \
         Packed: hosts in order, so that a job crosses as few leaves as it can.",
    ];
    Ok(PaperReproduction {
        about: "The gain of the demo by placement and connections: Crux against ECMP.".to_owned(),
        source: "Beyond the papers, which print neither.".to_owned(),
        rows,
        assumptions: assumptions.map(str::to_owned).to_vec(),
        ..PaperReproduction::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_use_every_host_once_and_packed_jobs_fewer_leaves() {
        for placement in JobPlacement::ALL {
            let hosts: Vec<&str> = placement.host_map(3).into_values().collect();
            assert_eq!(hosts.len(), HOSTS.len(), "{placement:?}");
            assert!(HOSTS.iter().all(|host| hosts.contains(host)), "{placement:?}");
        }
        let packed = JobPlacement::Packed.host_map(3);
        let leaf_of = |host: &str| HOSTS.iter().position(|other| *other == host).unwrap() / 3;
        let leaves = TESTBED[0].shares.iter().map(|(host, ..)| leaf_of(packed[host]));
        let leaves: std::collections::BTreeSet<usize> = leaves.collect();
        assert_eq!(leaves.len(), 2);
    }

    #[test]
    fn the_gain_needs_few_flows_and_jobs_that_cross_leaves() {
        let found = reproduce_placement_gains(SeedOptions { seed: 1, seeds: 3 }).unwrap();
        let gain = |placement: &str, connections: u16| {
            let measure = format!("GPU utilisation, {placement}, {connections} conn.");
            found.rows.iter().find(|row| row.measure == measure).unwrap().ours
        };
        assert!(gain("spread", 1) > 2.0 * gain("spread", 4));
        assert!(gain("spread", 1) > 2.0 * gain("packed", 1));
    }
}
