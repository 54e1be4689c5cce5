//! How many jobs of a trace are ever at risk of contention (Crux, Fig. 6): while they run, a flow
//! of theirs shares a link with a flow of another job.
//!
//! The risk depends on where jobs are placed and how ECMP hashes their flows, not on how long their
//! iterations take. So nothing is simulated: a job holds its GPUs for as long as it runs alone, and
//! each of its flows has the path of its hash. Policies decide at every arrival and end, those that
//! work in rounds as well, and a suspended job begins anew. Two weeks of a trace take seconds; that
//! makes a search over placements possible.

use std::collections::{BTreeMap, BTreeSet};

use planner::{Job, PlanInput};
use topology::{Fabric, LinkId};

use super::planner_jobs::PlannerJobBuilder;
use super::{ReplaySetup, TraceReplayError};
use crate::baselines::ecmp;
use crate::routes::EqualCostRoutes;
use crate::trace::JobLength;
use placement::{
    ClusterJobs, PlacementContext, PlacementDecision, PlacementPolicy, PlacementRequest,
};

/// The jobs of a trace and those at risk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContentionRisk {
    /// Jobs that ran.
    pub jobs: RiskCount,
    /// Their GPUs.
    pub gpus: RiskCount,
}

/// A number of jobs or GPUs, and how many of them are at risk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RiskCount {
    /// All of them.
    pub all: u64,
    /// Those that share any link.
    pub at_risk: u64,
    /// Those that share a link between switches.
    pub in_network: u64,
}

impl RiskCount {
    fn add(&mut self, count: u64, risk: JobRisk) {
        self.all += count;
        self.at_risk += if risk.any_link { count } else { 0 };
        self.in_network += if risk.network_link { count } else { 0 };
    }

    /// The share of all that is at risk, in per cent.
    pub fn percent_at_risk(self) -> f64 {
        100.0 * self.at_risk as f64 / self.all as f64
    }

    /// The share of all that is at risk between switches, in per cent.
    pub fn percent_in_network(self) -> f64 {
        100.0 * self.in_network as f64 / self.all as f64
    }
}

/// Which links a job has shared so far.
#[derive(Clone, Copy, Debug, Default)]
struct JobRisk {
    any_link: bool,
    network_link: bool,
}

/// Counts the jobs of the trace of `setup` that are at risk under its placement and ECMP.
///
/// # Errors
/// The policy does not work on the cluster, or a job makes no sense.
pub fn assess_contention_risk(setup: &ReplaySetup) -> Result<ContentionRisk, TraceReplayError> {
    let context = setup.placement_context();
    let mut run = RiskRun::new(setup, &context)?;
    while run.step_event()? {}
    Ok(run.count_risk())
}

/// A trace under way.
struct RiskRun<'a> {
    setup: &'a ReplaySetup,
    builder: PlannerJobBuilder<'a>,
    policy: Box<dyn PlacementPolicy>,
    cluster_jobs: ClusterJobs,
    now: f64,
    arrived: usize,
    /// When each running job ends.
    ends: BTreeMap<u32, f64>,
    sharing: SharedLinks,
}

impl<'a> RiskRun<'a> {
    fn new(setup: &'a ReplaySetup, context: &PlacementContext) -> Result<Self, TraceReplayError> {
        Ok(Self {
            setup,
            builder: PlannerJobBuilder::new(setup),
            policy: setup.placement.create_policy(&setup.cluster, context)?,
            cluster_jobs: ClusterJobs::on_fabric(setup.cluster.clone(), &setup.fabric),
            now: 0.0,
            arrived: 0,
            ends: BTreeMap::new(),
            sharing: SharedLinks::new(&setup.fabric),
        })
    }

    /// Goes to the next arrival or end; false after the last one.
    fn step_event(&mut self) -> Result<bool, TraceReplayError> {
        let arrival = self.setup.trace.jobs.get(self.arrived).map(|job| job.submitted_seconds);
        let next = self.ends.values().copied().chain(arrival).fold(f64::INFINITY, f64::min);
        if next.is_infinite() {
            return Ok(false);
        }
        self.now = next;
        let ended: Vec<u32> =
            self.ends.iter().filter(|(_, end)| **end <= next).map(|(job, _)| *job).collect();
        for number in ended {
            self.cluster_jobs.finish_job(number)?;
            self.stop_job(number);
        }
        self.submit_arrivals()?;
        for decision in self.policy.make_decisions(&self.cluster_jobs.state_at(next)) {
            self.cluster_jobs.apply_decision(&decision)?;
            match &decision {
                PlacementDecision::Start(start) => self.start_job(start.job)?,
                PlacementDecision::Suspend { job } => self.stop_job(*job),
                PlacementDecision::Refuse { .. } => {}
            }
        }
        Ok(true)
    }

    fn submit_arrivals(&mut self) -> Result<(), TraceReplayError> {
        let jobs = &self.setup.trace.jobs;
        while let Some(job) = jobs.get(self.arrived).filter(|job| job.submitted_seconds <= self.now)
        {
            let number = self.arrived as u32;
            let seconds = self.run_seconds(number)?;
            self.cluster_jobs.submit_job(PlacementRequest {
                job: number,
                gpus: job.gpus,
                kind: None,
                submitted_seconds: job.submitted_seconds,
                remaining_seconds: seconds,
                remaining_iterations: 1.0,
                model: job.model.clone(),
                tenant: job.tenant.clone(),
            })?;
            self.arrived += 1;
        }
        Ok(())
    }

    fn start_job(&mut self, number: u32) -> Result<(), TraceReplayError> {
        let running = self.cluster_jobs.running_job(number)?;
        let job = self.builder.build_job(running)?.job;
        let seconds = self.run_seconds(number)?;
        self.ends.insert(number, self.now + seconds);
        self.sharing.add_job(number, job);
        Ok(())
    }

    fn stop_job(&mut self, number: u32) {
        self.ends.remove(&number);
        self.sharing.remove_job(number);
    }

    /// How long a job runs alone.
    fn run_seconds(&mut self, number: u32) -> Result<f64, TraceReplayError> {
        match self.setup.trace.jobs[number as usize].length {
            JobLength::Seconds(seconds) => Ok(seconds),
            JobLength::Iterations(count) => Ok(count as f64 * self.builder.alone_seconds(number)?),
        }
    }

    fn count_risk(&self) -> ContentionRisk {
        let mut risk = ContentionRisk::default();
        for (number, of_job) in &self.sharing.risk {
            risk.jobs.add(1, *of_job);
            risk.gpus.add(u64::from(self.setup.trace.jobs[*number as usize].gpus), *of_job);
        }
        risk
    }
}

/// Which running job is on which link, and who has ever shared one.
struct SharedLinks {
    /// The fabric, with the job whose flows are hashed.
    input: PlanInput,
    routes: EqualCostRoutes,
    is_network: Vec<bool>,
    jobs_on: Vec<BTreeSet<u32>>,
    links_of: BTreeMap<u32, BTreeSet<LinkId>>,
    /// Of every job that ever ran.
    risk: BTreeMap<u32, JobRisk>,
}

impl SharedLinks {
    fn new(fabric: &Fabric) -> Self {
        let mut is_network = vec![true; fabric.links().len()];
        is_network.resize(fabric.capacity_link_count(), false);
        for nic in fabric.nics() {
            is_network[nic.uplink.index()] = false;
            is_network[nic.uplink.reverse().index()] = false;
        }
        Self {
            input: PlanInput { fabric: fabric.clone(), jobs: Vec::new() },
            routes: EqualCostRoutes::new(fabric),
            jobs_on: vec![BTreeSet::new(); is_network.len()],
            is_network,
            links_of: BTreeMap::new(),
            risk: BTreeMap::new(),
        }
    }

    fn add_job(&mut self, number: u32, job: Job) {
        self.routes.add_job(&job);
        self.input.jobs = vec![job];
        let PlanInput { fabric, jobs } = &self.input;
        let paths = ecmp::hash_paths(&self.input, &self.routes).into_iter().flatten();
        let flows = jobs.iter().flat_map(|job| &job.flows).zip(paths);
        let links: BTreeSet<LinkId> =
            flows.flat_map(|(flow, path)| flow.crossed_links(fabric, &path).into_owned()).collect();
        self.risk.entry(number).or_default();
        for link in &links {
            let jobs = &mut self.jobs_on[link.index()];
            jobs.insert(number);
            if jobs.len() > 1 {
                for sharer in jobs.iter() {
                    let risk = self.risk.entry(*sharer).or_default();
                    risk.any_link = true;
                    risk.network_link |= self.is_network[link.index()];
                }
            }
        }
        self.links_of.insert(number, links);
    }

    fn remove_job(&mut self, number: u32) {
        for link in self.links_of.remove(&number).unwrap_or_default() {
            self.jobs_on[link.index()].remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use placement::PlacementAlgorithm;
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::replay::tests::{job, setup};
    use crate::scheduler::Scheduler;

    /// Jobs one after the other, and all at once, on two leaves that one link each way joins.
    #[test]
    fn only_jobs_that_run_together_and_cross_are_at_risk() {
        let spec = ClosSpec { leaves: 2, spines: 1, hosts_per_leaf: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("narrow", &spec).unwrap();
        let risk_of = |jobs| {
            let setup = ReplaySetup {
                cluster: placement::GpuCluster::from_fabric(&fabric),
                fabric: fabric.clone(),
                placement: PlacementAlgorithm::FirstFit,
                ..setup(jobs, Scheduler::Ecmp)
            };
            assess_contention_risk(&setup).unwrap()
        };
        // Hosts of 8 GPUs: 8, 16 over both leaves, 8; nobody meets anybody.
        let apart =
            risk_of(vec![job(0, 0.0, 8, 60.0), job(1, 1.0, 16, 60.0), job(2, 2.0, 8, 60.0)]);
        assert_eq!((apart.jobs.all, apart.jobs.at_risk), (3, 0));
        // 12, 8 and 12: the middle job shares a host, and so its NIC, with each of the others. It
        // alone crosses.
        let sharing =
            risk_of(vec![job(0, 0.0, 12, 60.0), job(1, 1.0, 8, 60.0), job(2, 2.0, 12, 60.0)]);
        assert_eq!((sharing.jobs.all, sharing.jobs.at_risk, sharing.jobs.in_network), (3, 3, 0));
        assert_eq!((sharing.gpus.all, sharing.gpus.at_risk), (32, 32));
        // Those that follow one another never meet.
        let later = risk_of(vec![job(0, 0.0, 12, 60.0), job(1, 61.0, 12, 60.0)]);
        assert_eq!((later.jobs.all, later.jobs.at_risk), (2, 0));
    }
}
