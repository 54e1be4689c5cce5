//! Incremental planning: a plan kept up to date while jobs come and go, at the cost of the change.
//!
//! The decision: an [`IncrementalPlanner`] is not a second planner. It keeps the state that `plan`
//! builds and discards (paths of the flows, load of the links). After an event it examines only
//! flows that have no path yet, and its plan is the one that `plan` would make of all jobs and the
//! previous plan. A property test verifies that. Callers who have no
//! events, but the whole input each time, or a fabric that sprays, use a
//! [`PlanMemory`](crate::PlanMemory).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use topology::Fabric;

use crate::input::{Job, JobId, PlanInput};
use crate::input_digest::ComparedInputs;
use crate::job_ranking::JobRanking;
use crate::path_selection::{self, PathAssignment, PathRule};
use crate::path_tables::PathTables;
use crate::plan::Plan;
use crate::plan_context::{PlanContext, PlanDepth};
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache};
use crate::refine::{self, PlanComparison};
use crate::report::PlanReport;
use crate::traffic::{IndexedTraffic, JobRoutes, RouteFinder};

/// Corrections that are kept for each job: against several references, so that one that departs and
/// returns finds them.
const CORRECTIONS_PER_JOB: usize = 4;

/// An event that contradicts the present jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobEventError {
    /// An arriving job has the name of a present one.
    #[error("cannot add job {0}: a job of that name is present; remove it first")]
    AlreadyPresent(JobId),
    /// A departing job is not present.
    #[error("cannot remove job {0}: no job of that name is present")]
    Absent(JobId),
}

/// A plan in force on one fabric under one policy, and what is needed to plan on from it.
#[derive(Clone, Debug)]
pub struct IncrementalPlanner {
    fabric: Fabric,
    policy: Policy,
    tables: Arc<PathTables>,
    jobs: BTreeMap<JobId, PresentJob>,
    assignment: PathAssignment,
    corrections: CorrectionCache,
    plan: Arc<Plan>,
    ranking: Arc<JobRanking>,
    comparison: PlanComparison,
    previous: Option<Arc<Plan>>,
    depth: PlanDepth,
}

/// A present job with its routes and its slot in the assignment.
#[derive(Clone, Debug)]
struct PresentJob {
    job: Job,
    routes: Arc<JobRoutes>,
    job_slot: usize,
}

impl IncrementalPlanner {
    /// The plan for `input` under `policy`, `previous` being in force, ready for events.
    pub fn new(input: &PlanInput, policy: &Policy, previous: Option<&Plan>) -> Self {
        Self::with_depth(input, policy, previous, PlanDepth::Full)
    }

    /// As [`IncrementalPlanner::new`], or quickly. The plans after events have this depth as well,
    /// and [`IncrementalPlanner::compare_candidates`] makes up for what a quick one leaves out.
    pub fn with_depth(
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Plan>,
        depth: PlanDepth,
    ) -> Self {
        let traffic = IndexedTraffic::new(input);
        let depth = refine::judged_depth(&traffic, policy, depth);
        let in_force =
            PreviousPlan::new(&traffic, previous).with_start(depth != PlanDepth::Settled);
        let corrections = CorrectionCache::default();
        let context = PlanContext {
            traffic: &traffic,
            policy,
            previous: &in_force,
            corrections: &corrections,
            depth,
        };
        let (assignment, decided) = context.select_and_decide();
        let members = traffic.jobs.iter().zip(&traffic.routes).enumerate();
        let jobs = members.map(|(job_slot, (job, routes))| {
            let member = PresentJob { job: (*job).clone(), routes: Arc::clone(routes), job_slot };
            (job.id.clone(), member)
        });
        let mut planner = Self {
            jobs: jobs.collect(),
            tables: Arc::clone(&traffic.tables),
            fabric: input.fabric.clone(),
            policy: policy.clone(),
            assignment,
            plan: Arc::new(decided.plan.succeeding(previous)),
            ranking: Arc::new(decided.ranking),
            comparison: decided.comparison,
            corrections,
            previous: previous.cloned().map(Arc::new),
            depth: if depth == PlanDepth::Settled { PlanDepth::Full } else { depth },
        };
        planner.adopt_plan();
        planner
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan in force, shared with its users.
    pub(crate) fn shared_plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// The report on it; moved flows are relative to the plan before the last event.
    pub fn report(&self) -> PlanReport {
        let traffic = index_traffic(&self.fabric, &self.tables, &self.jobs);
        let in_force = PreviousPlan::new(&traffic, self.previous.as_deref());
        let context = PlanContext {
            traffic: &traffic,
            policy: &self.policy,
            previous: &in_force,
            corrections: &self.corrections,
            depth: PlanDepth::Full,
        };
        context.build_report(&self.plan, &self.ranking, self.comparison.clone())
    }

    /// Whether the plan that follows `previous` on this fabric under this policy follows from what
    /// is kept here.
    pub(crate) fn can_continue(&self, fabric: &Fabric, policy: &Policy, previous: &Plan) -> bool {
        let had = &self.policy;
        let same_paths = policy.paths == had.paths && policy.move_gain_min == had.move_gain_min;
        let is_in_force = std::ptr::eq(previous, &*self.plan) || *previous == *self.plan;
        same_paths && is_in_force && *fabric == self.fabric
    }

    /// Plans for exactly these `jobs`, at the cost of those that differ. `compared` is of the plan
    /// in force, which may be an equal one that was compared for less.
    pub(crate) fn plan_for_jobs(
        &mut self,
        jobs: Vec<Job>,
        policy: &Policy,
        compared: &ComparedInputs,
        depth: PlanDepth,
    ) {
        if self.plan.compared_inputs.0 != compared.0 {
            Arc::make_mut(&mut self.plan).compared_inputs = compared.clone();
        }
        self.policy = policy.clone();
        self.replace_jobs(jobs);
        self.comparison = PlanComparison::default();
        self.plan_next(depth);
    }

    /// The plan in force differs in its pins.
    pub(crate) fn replace_pins(&mut self, plan: &Arc<Plan>) {
        self.plan = Arc::clone(plan);
    }

    /// Removes the jobs that are not among `jobs` and adds those that are new. One that differs is
    /// both, but keeps the paths of its flows.
    fn replace_jobs(&mut self, jobs: Vec<Job>) {
        let mut new: BTreeMap<JobId, Job> =
            jobs.into_iter().map(|job| (job.id.clone(), job)).collect();
        let is_different = |id: &JobId, had: &mut PresentJob| new.get(id) != Some(&had.job);
        let gone: Vec<(JobId, PresentJob)> = self.jobs.extract_if(.., is_different).collect();
        gone.iter().for_each(|(_, had)| self.assignment.remove_job(had.job_slot));
        new.retain(|id, _| !self.jobs.contains_key(id));
        let changed: BTreeSet<JobId> =
            gone.into_iter().map(|(id, _)| id).filter(|id| new.contains_key(id)).collect();
        new.into_values().for_each(|job| self.insert_job(job));
        self.restore_paths(&changed);
    }

    /// Puts the flows of jobs that are present again on the paths that they have in the plan.
    fn restore_paths(&mut self, jobs: &BTreeSet<JobId>) {
        if jobs.is_empty() {
            return;
        }
        let traffic = index_traffic(&self.fabric, &self.tables, &self.jobs);
        let in_force = PreviousPlan::new(&traffic, Some(&self.plan));
        for (ordinal, (id, member)) in self.jobs.iter().enumerate() {
            if jobs.contains(id) {
                for (flow, had) in in_force.job_paths(ordinal, &member.job).enumerate() {
                    self.assignment.keep_path(&self.fabric, (member.job_slot, flow), had);
                }
            }
        }
    }

    /// A job arrives, resolved against the fabric of this plan.
    ///
    /// # Errors
    /// A job of that name is there.
    pub fn add_job(&mut self, job: Job) -> Result<(), JobEventError> {
        if self.jobs.contains_key(&job.id) {
            return Err(JobEventError::AlreadyPresent(job.id));
        }
        self.insert_job(job);
        self.plan_next(self.depth);
        Ok(())
    }

    fn insert_job(&mut self, job: Job) {
        let routes = Arc::new(RouteFinder::new(&self.fabric, &self.tables).job_routes(&job));
        let job_slot = self.assignment.add_job(&job, &routes);
        let member = PresentJob { routes, job_slot, job };
        self.jobs.insert(member.job.id.clone(), member);
    }

    /// A job departs.
    ///
    /// # Errors
    /// No job of that name is there.
    pub fn remove_job(&mut self, id: &JobId) -> Result<(), JobEventError> {
        let member = self.jobs.remove(id).ok_or_else(|| JobEventError::Absent(id.clone()))?;
        self.assignment.remove_job(member.job_slot);
        self.plan_next(self.depth);
        Ok(())
    }

    /// Plans again with all candidates compared, and prepares for the departure of the job that all
    /// others are corrected against.
    pub fn compare_candidates(&mut self) {
        self.plan_next(PlanDepth::Full);
    }

    /// The next plan, after the jobs changed.
    fn plan_next(&mut self, depth: PlanDepth) {
        let demands = self.jobs.values().map(|member| &member.routes.demand);
        let job_slots: Vec<usize> = self.jobs.values().map(|member| member.job_slot).collect();
        let order: Vec<usize> = path_selection::order_by_intensity(demands)
            .into_iter()
            .map(|ordinal| job_slots[ordinal])
            .collect();

        let traffic = index_traffic(&self.fabric, &self.tables, &self.jobs);
        let in_force = PreviousPlan::new(&traffic, Some(&self.plan));
        let context = PlanContext {
            traffic: &traffic,
            policy: &self.policy,
            previous: &in_force,
            corrections: &self.corrections,
            depth,
        };
        let regions = context.find_regions();
        for job_slot in order {
            self.assignment.assign_remaining(job_slot, PathRule::of_policy(&self.policy));
        }
        let decided = context.decide_plan(&regions, self.assignment.paths_of(job_slots));
        if depth == PlanDepth::Full {
            let demands = &decided.ranking.demands;
            priority::prepare_next_reference(&traffic, demands, &self.policy, &self.corrections);
        }
        let plan = decided.plan.succeeding(Some(&self.plan));
        let earlier = std::mem::replace(&mut self.comparison, decided.comparison);
        self.comparison.keep_earlier(&plan, &self.plan, &earlier);
        self.previous = Some(std::mem::replace(&mut self.plan, Arc::new(plan)));
        self.ranking = Arc::new(decided.ranking);
        self.adopt_plan();
    }

    /// Makes the state consistent with the plan in force.
    fn adopt_plan(&mut self) {
        self.corrections.evict_unused(CORRECTIONS_PER_JOB * self.jobs.len());
        // A candidate with other paths than those assigned here may have been adopted.
        let mut flows = self.plan.flows.iter();
        for member in self.jobs.values() {
            let paths = flows.by_ref().take(member.job.flows.len()).map(|flow| flow.links);
            self.assignment.replace_paths(member.job_slot, paths);
        }
    }
}

/// The jobs as the phases of a plan index them.
fn index_traffic<'a>(
    fabric: &'a Fabric,
    tables: &Arc<PathTables>,
    jobs: &'a BTreeMap<JobId, PresentJob>,
) -> IndexedTraffic<'a> {
    IndexedTraffic::from_routes(
        fabric,
        Arc::clone(tables),
        jobs.values().map(|member| &member.job).collect(),
        jobs.values().map(|member| Arc::clone(&member.routes)).collect(),
    )
}
