//! The levels in force of the jobs that send from each host, for the reporters that set them there.
//!
//! Pure. The decision: a host gets all of its levels at once, with a revision that stands for their
//! contents, and gets them again until it says that it has set them: a message that is lost delays
//! them and loses none. Every host of a job gets its levels, also where another host reported the
//! job.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use api::telemetry as proto;
use planner::{JobId, PlannedFlow};
use topology::{Fabric, HostId};

use crate::pipelines::pipeline_at;
use crate::state::PlanRollout;

/// Flows in one message: less than a quarter of what a gRPC client accepts.
const MAX_FLOWS: usize = 8_192;

/// The levels of the jobs that send from one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostLevels {
    /// Name of the host.
    pub(crate) host: String,
    /// The jobs, in the order of the plan.
    pub(crate) jobs: Vec<JobLevel>,
    /// Flows that are not in it.
    pub(crate) flows_left_out: u32,
}

/// The level of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobLevel {
    /// Its name.
    pub(crate) job: JobId,
    /// Its level.
    pub(crate) level: u8,
    /// What stands for the level in packets.
    pub(crate) dscp: Option<u8>,
    /// What it sends from the host.
    pub(crate) flows: BTreeSet<LevelFlow>,
}

/// A connection from a host, or all of a pair of NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LevelFlow {
    /// The sender.
    pub(crate) src: IpAddr,
    /// The receiver.
    pub(crate) dst: IpAddr,
    /// The sender's UDP port, if it is known.
    pub(crate) udp_src_port: Option<u16>,
}

impl HostLevels {
    /// Stands for the contents; never zero.
    pub(crate) fn revision(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish().max(1)
    }
}

/// What the reporters of hosts were last sent.
#[derive(Debug, Default)]
pub(super) struct LevelFeedback {
    /// By name of the host, with the revision.
    sent: BTreeMap<String, (Arc<HostLevels>, u64)>,
    is_stale: bool,
}

impl LevelFeedback {
    /// The plan may have changed.
    pub(super) fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Whether the levels have to be found anew.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// The levels of a host that has set those of `revision`, if they are others by now. A host
    /// that is new is found with all others.
    pub(super) fn levels_after(&mut self, host: &str, revision: u64) -> Option<Arc<HostLevels>> {
        match self.sent.get(host) {
            Some((levels, sent)) => (*sent != revision).then(|| Arc::clone(levels)),
            None => {
                self.is_stale = true;
                None
            }
        }
    }

    /// Replaces all levels; those of hosts for which they changed.
    pub(super) fn replace_levels(
        &mut self,
        levels: impl IntoIterator<Item = HostLevels>,
    ) -> Vec<Arc<HostLevels>> {
        let before = std::mem::take(&mut self.sent);
        let mut changed = Vec::new();
        for levels in levels {
            let (revision, levels) = (levels.revision(), Arc::new(levels));
            let had = before.get(&levels.host);
            if had.is_none_or(|(_, had)| *had != revision) {
                changed.push(Arc::clone(&levels));
            }
            self.sent.insert(levels.host.clone(), (levels, revision));
        }
        changed
    }
}

/// The levels of these hosts under a plan, of the jobs that `is_visible` to their reporters.
pub(super) fn levels_of_hosts(
    rollout: &PlanRollout,
    hosts: &BTreeSet<HostId>,
    is_visible: impl Fn(HostId, &JobId) -> bool,
) -> BTreeMap<HostId, HostLevels> {
    let PlanRollout { fabric, plan, learned, .. } = rollout;
    let mut flows: BTreeMap<(HostId, usize), BTreeSet<LevelFlow>> = BTreeMap::new();
    let mut left_out: BTreeMap<HostId, (usize, u32)> = BTreeMap::new();
    for flow in plan.flows.iter().chain(learned.iter()) {
        let host = fabric.nic(flow.src).host;
        let is_job_visible =
            || plan.jobs.get(flow.job).is_some_and(|job| is_visible(host, &job.id));
        if !hosts.contains(&host) || !is_job_visible() {
            continue;
        }
        let (sent, rest) = left_out.entry(host).or_default();
        if *sent >= MAX_FLOWS {
            *rest = rest.saturating_add(1);
        } else {
            *sent += 1;
            flows.entry((host, flow.job)).or_default().insert(level_flow(rollout, flow));
        }
    }
    let mut levels: BTreeMap<HostId, HostLevels> = BTreeMap::new();
    for host in hosts {
        let name = fabric.host(*host).name.clone();
        let flows_left_out = left_out.get(host).map_or(0, |(_, rest)| *rest);
        levels.insert(*host, HostLevels { host: name, jobs: Vec::new(), flows_left_out });
    }
    for ((host, job), flows) in flows {
        let planned = &plan.jobs[job];
        let dscp = host_dscp(fabric, host, planned.level);
        let job = JobLevel { job: planned.id.clone(), level: planned.level, dscp, flows };
        levels.entry(host).and_modify(|levels| levels.jobs.push(job));
    }
    levels
}

/// The DSCP that stands for a level at the first leaf of a host; all leaves of a host should agree.
fn host_dscp(fabric: &Fabric, host: HostId, level: u8) -> Option<u8> {
    let nic = fabric.host(host).nics.first()?;
    pipeline_at(fabric, fabric.leaf_of(*nic)).level_dscp(level)
}

fn level_flow(rollout: &PlanRollout, flow: &PlannedFlow) -> LevelFlow {
    let [src, dst] = [flow.src, flow.dst].map(|nic| rollout.fabric.nic(nic).ip);
    LevelFlow { src, dst, udp_src_port: flow.udp_src_port }
}

impl From<&HostLevels> for proto::HostLevels {
    fn from(levels: &HostLevels) -> Self {
        let flow = |flow: &LevelFlow| proto::LevelFlow {
            src: flow.src.to_string(),
            dst: flow.dst.to_string(),
            udp_src_port: flow.udp_src_port.map(u32::from),
        };
        let job = |job: &JobLevel| proto::JobLevel {
            job: job.job.to_string(),
            level: job.level.into(),
            dscp: job.dscp.map(u32::from),
            flows: job.flows.iter().map(flow).collect(),
        };
        Self {
            host: levels.host.clone(),
            revision: levels.revision(),
            jobs: levels.jobs.iter().map(job).collect(),
            flows_left_out: levels.flows_left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(host: &str, level: u8) -> HostLevels {
        let job = JobLevel {
            job: "gpt".into(),
            level,
            dscp: Some(level << 3),
            flows: BTreeSet::default(),
        };
        HostLevels { host: host.to_owned(), jobs: vec![job], flows_left_out: 0 }
    }

    #[test]
    fn a_host_gets_its_levels_when_they_change_and_until_it_has_them() {
        let mut feedback = LevelFeedback::default();
        assert_eq!(feedback.levels_after("h1", 0), None);
        assert!(feedback.take_stale() && !feedback.take_stale());
        let changed = feedback.replace_levels([levels("h1", 7), levels("h2", 7)]);
        assert_eq!(changed.len(), 2);
        // The message was lost: the host still has none.
        let again = feedback.levels_after("h1", 0).unwrap();
        assert_eq!(*again, levels("h1", 7));
        assert_eq!(feedback.levels_after("h1", again.revision()), None);
        let changed = feedback.replace_levels([levels("h1", 7), levels("h2", 3)]);
        assert_eq!(changed.iter().map(|levels| &levels.host).collect::<Vec<_>>(), ["h2"]);
        assert_ne!(levels("h2", 3).revision(), levels("h2", 7).revision());
        // A host that is not there any more is forgotten.
        feedback.replace_levels([levels("h2", 3)]);
        assert_eq!(feedback.levels_after("h1", again.revision()), None);
        assert!(feedback.take_stale());
    }
}
