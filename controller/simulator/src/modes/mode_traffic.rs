//! What a job sends, and on which paths, in each mode.

use std::collections::BTreeMap;

use planner::Job;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use topology::LinkId;

use super::{ForwardingMode, PlannedJobs};
use crate::baselines::spray;
use crate::demand::LinkDemand;
use crate::schedule::ScheduledJob;

/// A job as it sends in one mode, under one hash.
#[derive(Clone, Debug)]
pub(super) struct ModeTraffic {
    pub(super) job: Job,
    pub(super) scheduled: ScheduledJob,
}

impl ModeTraffic {
    /// What `job` sends in `mode`. Only ECMP depends on the hash, which `draw` stands for.
    pub(super) fn new(
        planned: &PlannedJobs<'_>,
        job: usize,
        mode: ForwardingMode,
        draw: u64,
    ) -> Self {
        let mut sending = planned.input.jobs[job].clone();
        let in_force = &planned.schedule.jobs[job];
        let paths = match mode {
            ForwardingMode::Pin => in_force.paths.clone(),
            ForwardingMode::QpEcmp => spread_connections(planned, &sending, draw),
            ForwardingMode::Spray => {
                let fabric = &planned.input.fabric;
                spray::spread_flows(fabric, std::slice::from_mut(&mut sending));
                planned.routes.paths_in_turn(&sending, |paths| paths)
            }
        };
        Self { job: sending, scheduled: ScheduledJob::new(in_force.level, paths) }
    }

    /// Seconds that an iteration takes each link.
    pub(super) fn link_demand(&self, planned: &PlannedJobs<'_>) -> LinkDemand {
        LinkDemand::new(&planned.input.fabric, &self.job, &self.scheduled.paths)
    }
}

/// The paths of connections whose source ports keep those of a NIC pair apart: each takes the next
/// path of its pair, in an order that the hash of the pair gives.
fn spread_connections(planned: &PlannedJobs<'_>, job: &Job, draw: u64) -> Vec<Vec<LinkId>> {
    let mut random = ChaCha8Rng::seed_from_u64(draw);
    planned.routes.paths_in_turn(job, |mut paths| {
        paths.shuffle(&mut random);
        take_uplinks_in_turn(paths)
    })
}

/// The paths in an order in which no uplink of the leaf is taken again before all others are.
fn take_uplinks_in_turn(mut paths: Vec<Vec<LinkId>>) -> Vec<Vec<LinkId>> {
    let mut used: BTreeMap<Option<LinkId>, u32> = BTreeMap::new();
    // The first link is that of the host.
    paths.sort_by_cached_key(|path| {
        let before = used.entry(path.get(1).copied()).or_default();
        *before += 1;
        *before
    });
    paths
}

#[cfg(test)]
mod tests {
    use planner::Policy;

    use super::*;
    use crate::baselines::test_input::TestInput;

    /// Four connections from h1 to h4 and three from h2 to h4 on two spines.
    fn planned_flows() -> planner::PlanInput {
        let pairs = [[("h1", "h4"); 4].as_slice(), &[("h2", "h4"); 3]].concat();
        TestInput::on_lab_fabric().with_job("a", &pairs).to_input()
    }

    #[test]
    fn connections_of_a_pair_use_all_uplinks_before_one_twice() {
        let input = planned_flows();
        let planned = PlannedJobs::new(&input, &Policy::default());
        for draw in 0..20 {
            let traffic = ModeTraffic::new(&planned, 0, ForwardingMode::QpEcmp, draw);
            let uplinks: Vec<LinkId> = traffic.scheduled.paths.iter().map(|path| path[1]).collect();
            for pair in [&uplinks[..4], &uplinks[4..]] {
                assert_ne!(pair[0], pair[1]);
                assert_eq!(pair[0], pair[2]);
            }
        }
    }

    #[test]
    fn every_mode_sends_all_bytes_in_the_planned_level() {
        let input = planned_flows();
        let planned = PlannedJobs::new(&input, &Policy::default());
        let whole: f64 = input.jobs[0].flows.iter().map(|flow| flow.bytes).sum();
        for mode in ForwardingMode::ALL {
            let traffic = ModeTraffic::new(&planned, 0, mode, 1);
            let sent: f64 = traffic.job.flows.iter().map(|flow| flow.bytes).sum();
            assert!((sent - whole).abs() < 1e-6 * whole, "{mode}: {sent}");
            assert!(traffic.scheduled.is_connected());
            assert_eq!(traffic.scheduled.level, planned.schedule.jobs[0].level);
        }
    }
}
