//! Jobs that iterate longer than alone although no link is to blame, and the host that is late.
//!
//! Pure: iterations of jobs, what switches count at their ports, and the plan that says which links
//! a job has to itself. Two decisions. A job is named only if its links are known to be innocent,
//! and those that its replies may take, without which senders wait: no other job is planned over
//! them, and each that a switch sends on was fast, or had nothing waiting, all through the latest
//! iteration. And a host is named only if it began to send after every other host of its job in
//! each of the latest iterations, by about what these are longer; which of two hosts is late would
//! else be a matter of where an iteration begins.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use planner::{JobId, PlannedFlow};
use topology::{FabricNode, Finding, HostId, LinkId, NicId};

use super::slow_links::{READINGS_PER_ITERATION, SLOW, find_slow_links};
use crate::gnmi::{FabricCounters, SwitchCounters};
use crate::state::PlanRollout;

/// A job that iterates longer than alone by a smaller share is not slow.
const LONGER: f64 = 0.1;

/// Iterations in a row in which a host is late.
const ITERATIONS: usize = 4;

/// A late host is behind by this share of what iterations are longer, and at most by the other.
/// Computation that overlaps communication delays what is sent by less than the iteration.
const BEHIND: (f64, f64) = (0.25, 1.5);

/// Starts of bursts are known to this number of readings.
const BLUR: f64 = 2.0;

/// A job whose hosts are slow.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowJob {
    /// Its position in the plan.
    pub job: usize,
    /// How much longer it iterates than alone, as a share.
    pub longer: f64,
    /// The host that begins to send last, if one does.
    pub late_host: Option<LateHost>,
}

/// A host that begins to send after the other hosts of its job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LateHost {
    /// The host.
    pub host: HostId,
    /// By how many seconds it follows the last of the others, a mean.
    pub seconds: f64,
}

/// The finding about a slow job.
pub(super) fn describe_slow_job(rollout: &PlanRollout, slow: &SlowJob) -> Finding {
    let mut text = format!(
        "iterates {:.0} % longer than alone; no link on its paths is slow or shared: look at its \
         hosts",
        slow.longer * 100.0
    );
    if let Some(late) = slow.late_host {
        let name = &rollout.fabric.host(late.host).name;
        text += &format!("; {name} begins to send last, {:.3} s after the others", late.seconds);
    }
    Finding::warning(format!("job {}", rollout.plan.jobs[slow.job].id), text)
}

/// Jobs that iterate longer than alone, by the seconds of an iteration that are `measured`,
/// although no link is to blame.
pub fn find_slow_jobs(
    rollout: &PlanRollout,
    counters: &FabricCounters,
    measured: &BTreeMap<JobId, f64>,
) -> Vec<SlowJob> {
    let slow_links = find_slow_links(rollout, counters);
    let slow_links: BTreeSet<LinkId> = slow_links.iter().map(|slow| slow.link).collect();
    let jobs = rollout.plan.jobs.iter().zip(&rollout.report.rationales).enumerate();
    let slow = jobs.filter_map(|(job, (planned, rationale))| {
        let alone = rationale.iteration_seconds;
        let seconds = *measured.get(&planned.id)?;
        let evidence = JobEvidence { rollout, counters, job, seconds, excess: seconds - alone };
        let is_slow = seconds > alone * (1.0 + LONGER)
            && has_links_to_itself(rollout, job)
            && used_links(rollout, job)
                .into_iter()
                .all(|link| !slow_links.contains(&link) && evidence.was_innocent(link));
        is_slow.then(|| SlowJob {
            job,
            longer: seconds / alone - 1.0,
            late_host: evidence.late_host(),
        })
    });
    slow.collect()
}

/// Whether no other job is planned over any link that a job or a reply to it uses.
pub fn has_links_to_itself(rollout: &PlanRollout, job: usize) -> bool {
    let links = used_links(rollout, job);
    let others = rollout.plan.flows.iter().filter(|flow| flow.job != job);
    !links.is_empty() && others.flat_map(|flow| &flow.links).all(|link| !links.contains(link))
}

/// Links that the flows of a job take, and those that replies may take: switches hash these, so
/// that between leaves they may be on any link of either.
fn used_links(rollout: &PlanRollout, job: usize) -> BTreeSet<LinkId> {
    let fabric = &rollout.fabric;
    let flows = rollout.plan.flows.iter().filter(|flow| flow.job == job);
    let mut used = BTreeSet::new();
    let mut leaves = BTreeSet::new();
    for flow in flows {
        used.extend(flow.links.iter().flat_map(|link| [*link, link.reverse()]));
        let ends = [flow.src, flow.dst].map(|nic| fabric.leaf_of(nic));
        leaves.extend(ends.into_iter().filter(|_| ends[0] != ends[1]));
    }
    for link in leaves.iter().flat_map(|leaf| fabric.switch(*leaf).ports.values()) {
        if let FabricNode::Switch(_) = fabric.link(*link).to.node {
            used.extend([*link, link.reverse()]);
        }
    }
    used
}

/// What is known of one job.
#[derive(Clone, Copy)]
struct JobEvidence<'a> {
    rollout: &'a PlanRollout,
    counters: &'a FabricCounters,
    job: usize,
    /// Of an iteration.
    seconds: f64,
    /// By which it is longer than alone.
    excess: f64,
}

impl<'a> JobEvidence<'a> {
    fn flows(self) -> impl Iterator<Item = &'a PlannedFlow> {
        self.rollout.plan.flows.iter().filter(move |flow| flow.job == self.job)
    }

    /// Whether a link was fast enough all through the latest iteration, as far as a switch sends on
    /// it. What waits in NICs nobody reports, and it is a matter of the host.
    fn was_innocent(self, link: LinkId) -> bool {
        let sender = self.rollout.fabric.link(link).from;
        let FabricNode::Switch(switch) = sender.node else {
            return true;
        };
        let capacity = self.rollout.fabric.link(link).bandwidth.bytes_per_second();
        self.counters.get(&switch).is_some_and(|counted| {
            let times = (self.seconds / counted.interval).ceil();
            let rates = counted.backlogged.get(&sender.port);
            times.is_finite()
                && times >= READINGS_PER_ITERATION
                && rates.is_some_and(|rates| rates.was_fast(times as usize, SLOW * capacity))
        })
    }

    /// The only host that begins to send after all others.
    fn late_host(self) -> Option<LateHost> {
        let mut hosts: BTreeMap<HostId, HostStarts> = BTreeMap::new();
        for flow in self.flows() {
            let host = self.rollout.fabric.nic(flow.src).host;
            if let Entry::Vacant(unknown) = hosts.entry(host) {
                unknown.insert(self.starts_of(flow.src)?);
            }
        }
        let late = hosts.iter().filter_map(|(host, starts)| {
            let others = hosts.iter().filter(|(other, _)| *other != host);
            let behind = others.map(|(_, other)| self.mean_lag(starts, other));
            let least = behind.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
            Some(LateHost { host: *host, seconds: least })
        });
        let late: Vec<LateHost> = late.collect();
        if let [only] = late[..] { Some(only) } else { None }
    }

    /// When what a NIC sends has begun to arrive at its leaf.
    fn starts_of(self, nic: NicId) -> Option<HostStarts> {
        let fabric = &self.rollout.fabric;
        let uplink = fabric.nic(nic).uplink;
        let counted: &SwitchCounters = self.counters.get(&fabric.leaf_of(nic))?;
        let starts = counted.bursts.get(&fabric.link(uplink).to.port)?.starts();
        Some(HostStarts { starts: starts.collect(), interval: counted.interval })
    }

    /// By how many seconds a host starts after another in each of its latest bursts, a mean; none
    /// where it does not.
    fn mean_lag(self, late: &HostStarts, other: &HostStarts) -> Option<f64> {
        let blur = BLUR * late.interval.max(other.interval);
        let least = (BEHIND.0 * self.excess).max(blur);
        let most = BEHIND.1 * self.excess + blur;
        let lags = late.starts.iter().rev().take(ITERATIONS).map(|start| {
            let mut apart = other.starts.iter().map(|before| start - before);
            let is_beside = apart.clone().any(|apart| apart.abs() < least);
            apart.find(|apart| (least..=most).contains(apart)).filter(|_| !is_beside)
        });
        let lags: Vec<f64> = lags.collect::<Option<_>>()?;
        (lags.len() == ITERATIONS).then(|| lags.iter().sum::<f64>() / lags.len() as f64)
    }
}

/// When the bursts of a host began.
struct HostStarts {
    starts: Vec<f64>,
    /// Seconds between two readings.
    interval: f64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use planner::{Flow, FlowGpus, Job, MeasuredSlowdown, PlanInput, Policy};
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::gnmi::{InterfaceCounters, QueueCounters};
    use crate::pipelines::FabricWiring;

    /// Seconds between two readings.
    const STEP: f64 = 0.02;

    /// A plan for rings over the first hosts, of so many hosts each.
    fn rollout(rings: &[usize]) -> PlanRollout {
        let spec = ClosSpec { leaves: 2, spines: 1, hosts_per_leaf: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("slow-hosts", &spec).unwrap();
        let nic = |host: usize| fabric.hosts()[host].nics[0];
        let jobs = rings.iter().zip(0..).map(|(hosts, number)| Job {
            id: format!("j{number}").as_str().into(),
            tenant: None,
            model: None,
            gpus: (0..*hosts as u32).map(|host| (HostId(host), 8)).collect(),
            flop_per_iteration: 1e15,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            measured: MeasuredSlowdown::default(),
            flows: (0..*hosts)
                .map(|host| Flow {
                    src: nic(host),
                    dst: nic((host + 1) % hosts),
                    bytes: 5e9,
                    udp_src_port: Some(50_000 + 10 * number + host as u16),
                    gpus: FlowGpus::default(),
                })
                .collect(),
        });
        let input = PlanInput { jobs: jobs.collect(), fabric: fabric.clone() };
        let (plan, report) = planner::plan(&input, &Policy::default(), None);
        PlanRollout {
            wiring: Arc::new(FabricWiring::new(&fabric).unwrap()),
            returning: BTreeSet::new(),
            fabric,
            plan: plan.into(),
            report: report.into(),
            generation: 1,
            learned: Arc::default(),
            basis: Arc::default(),
        }
    }

    /// What switches count while each host sends for 0.2 s in every iteration, from its time on.
    struct PeriodicTraffic {
        seconds: f64,
        starts: [f64; 4],
        /// Bytes that wait at each port.
        waiting: u64,
    }

    impl PeriodicTraffic {
        fn sent(&self, host: usize, at: f64) -> u64 {
            let since = at - self.starts[host];
            let (whole, part) = (since.div_euclid(self.seconds), since.rem_euclid(self.seconds));
            ((whole * 0.2 + part.min(0.2)).max(0.0) * 1e10) as u64
        }

        fn counters(&self, rollout: &PlanRollout) -> FabricCounters {
            let mut all = BTreeMap::new();
            for reading in 0..600 {
                let read_at = f64::from(reading) * STEP;
                for switch in rollout.fabric.switch_ids() {
                    let later = self.reading(rollout, switch, read_at);
                    let counted = match all.remove(&switch) {
                        Some(earlier) => later.since(earlier),
                        None => later,
                    };
                    all.insert(switch, counted);
                }
            }
            Arc::new(all)
        }

        fn reading(
            &self,
            rollout: &PlanRollout,
            switch: topology::SwitchId,
            read_at: f64,
        ) -> SwitchCounters {
            let mut counted = SwitchCounters { read_at, ..SwitchCounters::default() };
            let fabric = &rollout.fabric;
            for (port, link) in &fabric.switch(switch).ports {
                if let FabricNode::Host(host) = fabric.link(*link).to.node {
                    let received_bytes = Some(self.sent(host.index(), read_at));
                    let counters = InterfaceCounters { received_bytes, ..Default::default() };
                    counted.interfaces.insert(*port, counters);
                }
                let queue = QueueCounters {
                    sent_bytes: Some((read_at * 1e9) as u64),
                    waiting_bytes: Some(self.waiting),
                    ..QueueCounters::default()
                };
                counted.queues.insert((*port, 0), queue);
            }
            counted
        }

        /// The jobs that are named if the first one iterates for so long.
        fn slow_jobs(&self, rollout: &PlanRollout) -> Vec<SlowJob> {
            let measured = BTreeMap::from([(JobId::from("j0"), self.seconds)]);
            find_slow_jobs(rollout, &self.counters(rollout), &measured)
        }
    }

    /// A ring over three hosts that iterates so many seconds longer than alone.
    fn longer_by(excess: f64, starts: [f64; 4]) -> (PlanRollout, PeriodicTraffic) {
        let rollout = rollout(&[3]);
        let seconds = rollout.report.rationales[0].iteration_seconds + excess;
        (rollout, PeriodicTraffic { seconds, starts, waiting: 0 })
    }

    #[test]
    fn the_host_that_begins_to_send_last_is_named() {
        let (rollout, training) = longer_by(0.3, [0.5, 0.5, 0.8, 0.0]);
        let slow = training.slow_jobs(&rollout);
        let late = slow[0].late_host.unwrap();
        assert_eq!((slow.len(), slow[0].job, late.host), (1, 0, HostId(2)));
        assert!((late.seconds - 0.3).abs() < 2.0 * STEP, "{late:?}");
        let text = describe_slow_job(&rollout, &slow[0]).to_string();
        assert!(text.contains("look at its hosts; h3 begins to send last, 0.3"), "{text}");
    }

    #[test]
    fn a_job_whose_hosts_begin_together_is_named_alone() {
        for starts in [[0.5; 4], [0.5, 0.52, 0.54, 0.0], [0.5, 0.8, 0.8, 0.0]] {
            let (rollout, training) = longer_by(0.3, starts);
            let slow = training.slow_jobs(&rollout);
            assert_eq!(slow.iter().map(|slow| slow.late_host).collect::<Vec<_>>(), [None]);
        }
    }

    #[test]
    fn a_job_is_not_named_whose_links_may_be_to_blame() {
        let (alone, mut training) = longer_by(0.3, [0.5; 4]);
        assert_eq!(training.slow_jobs(&rollout(&[3, 2])), [], "another job is on its links");
        let unknown = FabricCounters::default();
        let measured = BTreeMap::from([(JobId::from("j0"), training.seconds)]);
        assert_eq!(find_slow_jobs(&alone, &unknown, &measured), [], "nobody counts");
        training.waiting = 100_000;
        assert_eq!(training.slow_jobs(&alone), [], "packets waited, and no port was fast");
        let (rollout, training) = longer_by(0.05, [0.5; 4]);
        assert_eq!(training.slow_jobs(&rollout), [], "it is hardly longer");
    }
}
