//! A plan that stands while jobs come and go: an event costs what it touches.
//!
//! The decision: a [`IncrementalPlanner`] is no other planner. It keeps the state that `plan` builds and
//! throws away (where flows are, how busy that makes links, when what changed), so that after an
//! event only flows that something changed for are looked at again, and its plan is the one that
//! `plan` would make of all jobs and the plan before. A test holds it to that.

use std::collections::BTreeMap;
use std::sync::Arc;

use topology::Fabric;

use crate::decision::PlanContext;
use crate::input::{Job, JobId, PlanInput};
use crate::job_ranking::JobRanking;
use crate::path_selection::{self, PathAssignment};
use crate::path_tables::PathTables;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::CorrectionCache;
use crate::report::PlanReport;
use crate::traffic::{IndexedTraffic, JobRoutes, RouteFinder};

/// An event that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobEventError {
    /// A job arrives that is there.
    #[error("job {0} arrives and is there already")]
    AlreadyPresent(JobId),
    /// A job departs that is not there.
    #[error("job {0} departs and is not there")]
    Absent(JobId),
}

/// A plan in force on one fabric under one policy, and what is needed to plan on from it.
#[derive(Debug)]
pub struct IncrementalPlanner {
    fabric: Fabric,
    policy: Policy,
    tables: Arc<PathTables>,
    jobs: BTreeMap<JobId, PresentJob>,
    assignment: PathAssignment,
    corrections: CorrectionCache,
    plan: Plan,
    previous: Option<Plan>,
}

/// A job that is there.
#[derive(Debug)]
struct PresentJob {
    job: Job,
    routes: Arc<JobRoutes>,
    job_slot: usize,
}

impl IncrementalPlanner {
    /// The plan for `input` under `policy`, `previous` being in force, ready for events.
    pub fn new(input: &PlanInput, policy: &Policy, previous: Option<&Plan>) -> Self {
        let traffic = IndexedTraffic::new(input);
        let had = PreviousPlan::new(&traffic, previous);
        let assignment = path_selection::select_paths(&traffic, &had, policy);
        let corrections = CorrectionCache::default();
        let context =
            PlanContext { traffic: &traffic, policy, previous: &had, corrections: &corrections };
        let decided = context.decide_plan(assignment.paths_of(0..traffic.jobs.len()));
        let members = traffic.jobs.iter().zip(&traffic.routes).enumerate();
        let jobs = members.map(|(job_slot, (job, routes))| {
            let member = PresentJob { job: (*job).clone(), routes: Arc::clone(routes), job_slot };
            (job.id.clone(), member)
        });
        let mut standing = Self {
            jobs: jobs.collect(),
            tables: Arc::clone(&traffic.tables),
            fabric: input.fabric.clone(),
            policy: policy.clone(),
            assignment,
            plan: decided.plan.succeeding(previous),
            corrections,
            previous: previous.cloned(),
        };
        standing.adopt_plan(decided.is_searched);
        standing
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Why it is so; what moved is relative to the plan before the last event.
    pub fn report(&self) -> PlanReport {
        let traffic = present_traffic(&self.fabric, &self.tables, &self.jobs);
        let had = PreviousPlan::new(&traffic, self.previous.as_ref());
        let context = PlanContext {
            traffic: &traffic,
            policy: &self.policy,
            previous: &had,
            corrections: &self.corrections,
        };
        let paths: Vec<_> = self.plan.flows.iter().map(|flow| flow.links).collect();
        let ranking = JobRanking::new(&traffic, &paths, &self.policy, &self.corrections);
        context.build_report(&self.plan, &ranking)
    }

    /// A job arrives, resolved against the fabric of this plan.
    ///
    /// # Errors
    /// A job of that name is there.
    pub fn add_job(&mut self, job: Job) -> Result<(), JobEventError> {
        if self.jobs.contains_key(&job.id) {
            return Err(JobEventError::AlreadyPresent(job.id));
        }
        let routes = Arc::new(RouteFinder::new(&self.fabric, &self.tables).job_routes(&job));
        let job_slot = self.assignment.add_job(&job, &routes);
        let member = PresentJob { routes, job_slot, job };
        self.jobs.insert(member.job.id.clone(), member);
        self.plan_next();
        Ok(())
    }

    /// A job departs.
    ///
    /// # Errors
    /// No job of that name is there.
    pub fn remove_job(&mut self, id: &JobId) -> Result<(), JobEventError> {
        let member = self.jobs.remove(id).ok_or_else(|| JobEventError::Absent(id.clone()))?;
        self.assignment.remove_job(member.job_slot);
        self.plan_next();
        Ok(())
    }

    /// The next plan, after the jobs changed.
    fn plan_next(&mut self) {
        let demands = self.jobs.values().map(|member| &member.routes.demand);
        let job_slots: Vec<usize> = self.jobs.values().map(|member| member.job_slot).collect();
        let order: Vec<usize> = path_selection::order_by_intensity(demands)
            .into_iter()
            .map(|ordinal| job_slots[ordinal])
            .collect();
        path_selection::assign_and_improve(&mut self.assignment, &order, &self.policy);

        let traffic = present_traffic(&self.fabric, &self.tables, &self.jobs);
        let had = PreviousPlan::new(&traffic, Some(&self.plan));
        let context = PlanContext {
            traffic: &traffic,
            policy: &self.policy,
            previous: &had,
            corrections: &self.corrections,
        };
        let decided = context.decide_plan(self.assignment.paths_of(job_slots));
        let plan = decided.plan.succeeding(Some(&self.plan));
        self.previous = Some(std::mem::replace(&mut self.plan, plan));
        self.adopt_plan(decided.is_searched);
    }

    /// Makes the state that of the plan in force.
    fn adopt_plan(&mut self, is_searched: bool) {
        self.corrections.evict_unused();
        self.assignment.mark_all_running();
        if is_searched {
            let members = self.jobs.values();
            let mut flows = self.plan.flows.iter();
            for member in members {
                let paths = flows.by_ref().take(member.job.flows.len()).map(|flow| flow.links);
                self.assignment.replace_paths(member.job_slot, paths);
            }
        }
    }
}

/// The jobs as the phases see them.
fn present_traffic<'a>(
    fabric: &'a Fabric,
    tables: &Arc<PathTables>,
    jobs: &'a BTreeMap<JobId, PresentJob>,
) -> IndexedTraffic<'a> {
    let routes = jobs.values().map(|member| Arc::clone(&member.routes));
    let jobs = jobs.values().map(|member| &member.job);
    IndexedTraffic::from_routes(fabric, Arc::clone(tables), jobs.collect(), routes.collect())
}
