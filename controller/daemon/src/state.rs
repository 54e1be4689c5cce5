//! The controller's state and the one function that writes it.
//!
//! Everything the controller learns arrives as a [`StateEvent`]; [`State::step`] applies it and
//! returns what follows as [`Effects`]. Sans-IO: [`runtime`](crate::runtime) delivers the events,
//! computes the plans, lowers them and gives the tables to the sessions. Two decisions. The state
//! does not plan: planning may take long, so a step only returns a [`PlanRequest`], and its result
//! is an event like any other; a failure in between is repaired with the plan in force. Every
//! request holds the whole input, so no part of the state can miss an update.

mod drain_progress;
mod drain_report;
mod event;
mod event_refusal;
mod fabric_changes;
mod invariants;
mod learned_connections;
mod part_state;
mod plan_request;
mod policy_revisions;
mod reported_jobs;
mod returning_parts;
mod snapshot;
mod submission;

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Job, JobId, JobOverride, Plan, PlanDepth, PlanReport, Policy, spread_over_ports};
use serde::{Deserialize, Serialize};
use topology::{Fabric, FabricParts, Finding, SwitchId};

pub use self::drain_progress::DrainProgress;
pub(crate) use self::drain_progress::join_names;
pub(crate) use self::drain_report::{DrainReport, LinkUse};
pub use self::event::{Effects, PlanRollout, PolicyProposal, StartingState, StateEvent};
use self::event_refusal::{EventRefusal, check_jobs, check_names};
pub use self::plan_request::{PlanRequest, PlanResult};
pub use self::reported_jobs::ReportedJobs;
use self::reported_jobs::{DocumentedJobs, ExcessJob};
use self::returning_parts::ReturningParts;
pub(crate) use self::snapshot::{
    FabricRecord, PlanRecord, RecordedPlan, ReportedJobsRecord, history_from_revisions,
    jobs_from_document,
};
pub use self::snapshot::{SnapshotError, StateSnapshot};
pub(crate) use self::submission::{ConsideredFabric, EventSubmission, SubmittedItem};
pub use self::submission::{FabricProposal, LeadChange, SubmitReceipt};
use crate::pipeline::SwitchReports;
use crate::pipelines::FabricWiring;
use crate::policy_history::{PolicyContent, PolicyHistory, PolicyRevision, RevisionMetadata};
use crate::store::{PlanBasis, StoreRecord, jobs_document};

/// How far the plan in force is from the best that the policy's budget finds. A plan is made
/// quickly first and improved afterwards, so that an event never waits for the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefinementState {
    /// Whether candidates are still to be compared for the plan in force.
    is_due: bool,
    /// Whether the request under way does that. An event supersedes it.
    is_requested: bool,
    /// Whether the plan in force is to be made anew from nothing.
    #[serde(default)]
    is_settling: bool,
    /// The latest `inputs` for which that was done.
    #[serde(default)]
    settled: u64,
    /// The revision of the policy for which that was done. After another one it is done at once: an
    /// operator waits for what a preview has shown.
    #[serde(default)]
    settled_revision: u64,
}

/// Everything the controller knows and has decided.
#[derive(Clone, Debug)]
pub struct State {
    /// Priority levels that every switch serves.
    levels: u8,
    /// What switches report by themselves.
    reports: SwitchReports,
    /// As observed; without the drains of the policy.
    fabric: Fabric,
    /// Parts of the fabric that work again and must not be used yet.
    returning: ReturningParts,
    wiring: Arc<FabricWiring>,
    jobs: Vec<Job>,
    reported: ReportedJobs,
    /// The policy of the latest revision.
    policy: Policy,
    history: PolicyHistory,
    /// The plan in force before the revision on trial.
    before_trial: Option<Arc<Plan>>,
    /// The plan to start from instead of the one in force, until a result covers so many events.
    resumed: Option<(u64, Arc<Plan>)>,
    /// Number of events applied so far.
    inputs: u64,
    /// `inputs` when the present fabric was learned.
    learned: u64,
    /// `inputs` of the plan request under way.
    requested: Option<u64>,
    /// `inputs` that the plan in force takes into account.
    planned: u64,
    refinement: RefinementState,
    generation: u64,
    /// Earlier leaders may have used the generations up to this one.
    spent: u64,
    rollout: Option<PlanRollout>,
    /// What tables follow from beside jobs and policy. One room for pins for all switches: those of
    /// a fabric are alike, and with a number for each the plan would depend on past events.
    basis: Arc<PlanBasis>,
}

impl State {
    /// The state before anything is learned: an empty fabric, no jobs, the default policy on
    /// `levels` levels. The first generation is the one after `generation`.
    pub fn new(levels: u8, generation: u64) -> Self {
        let fabric = Fabric::new(FabricParts::default());
        let policy = Policy { levels, ..Policy::default() };
        Self {
            levels,
            reports: SwitchReports::default(),
            fabric,
            returning: ReturningParts::default(),
            wiring: Arc::default(),
            jobs: Vec::new(),
            reported: ReportedJobs::default(),
            refinement: RefinementState { settled_revision: 1, ..RefinementState::default() },
            history: PolicyHistory::new(PolicyRevision::from_initial_policy(&policy), []),
            before_trial: None,
            resumed: None,
            policy,
            inputs: 0,
            learned: 0,
            requested: None,
            planned: 0,
            generation,
            spent: 0,
            rollout: None,
            basis: Arc::default(),
        }
    }

    /// Has the switches report this by themselves.
    #[must_use]
    pub fn with_reports(self, reports: SwitchReports) -> Self {
        Self { reports, ..self }
    }

    /// Applies an event, which is the only way to change the state.
    pub fn step(&mut self, event: StateEvent) -> Effects {
        let cause = event.kind();
        let mut effects = match self.apply_event(event) {
            Ok(effects) => effects,
            Err(refused) => Effects::from_refusal(refused.to_finding()),
        };
        (effects.cause, effects.generation) = (cause, self.generation);
        effects.plan_request = self.next_request();
        self.check_invariant();
        effects
    }

    /// The generation in force.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The fabric as observed, without the drains of the policy.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Whether a part works again and its return waits for [`StateEvent::GenerationHeld`].
    pub fn is_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// The jobs known from reports, whether or not they are planned for.
    pub fn reported_jobs(&self) -> &ReportedJobs {
        &self.reported
    }

    /// The records to store: the policy, the jobs of documents and the reported jobs.
    pub fn stored_records(&self) -> [StoreRecord; 3] {
        [
            StoreRecord::Policy(Box::new(self.history.latest().clone())),
            StoreRecord::Jobs(jobs_document(&self.fabric, &self.jobs)),
            StoreRecord::ReportedJobs(jobs_document(&self.fabric, &self.reported.jobs)),
        ]
    }

    /// The policy revisions, of which the latest is in force.
    pub fn policy_history(&self) -> &PolicyHistory {
        &self.history
    }

    /// The plan request of a proposed policy; the state does not change.
    ///
    /// # Errors
    /// The reason for which the policy would be refused.
    pub fn preview_request(&self, content: &PolicyContent) -> Result<PlanRequest, Finding> {
        let refuse = |refused: event_refusal::EventRefusal| refused.to_finding();
        let policy = self.checked_content(content).map_err(refuse)?;
        self.check_last_paths(&policy).map_err(refuse)?;
        Ok(self.plan_request(&policy).settled())
    }

    /// The plan request of the present inputs, of full depth.
    pub fn current_request(&self) -> PlanRequest {
        self.plan_request(&self.policy).at_full_depth()
    }

    /// Whether a plan is under way or due: one for events that the plan in force does not cover, or
    /// one whose candidates have been compared.
    pub fn awaits_plan(&self) -> bool {
        let RefinementState { is_due, is_settling, .. } = self.refinement;
        self.requested.is_some() || self.planned != self.inputs || is_due || is_settling
    }

    /// Whether the plan in force is what it would be from nothing: hysteresis, which spares flows a
    /// move for every event, must not outlast the events.
    pub fn is_settled(&self) -> bool {
        self.refinement.settled == self.inputs || self.rollout.is_none()
    }

    /// Whether this is the wiring of the fabric in force.
    pub(crate) fn is_on_fabric(&self, wiring: &Arc<FabricWiring>) -> bool {
        Arc::ptr_eq(&self.wiring, wiring)
    }

    /// How many events were applied.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// How many of them the plan in force takes into account.
    pub fn planned_inputs(&self) -> u64 {
        self.planned
    }

    /// Applies an event, or refuses it and leaves everything as it was.
    fn apply_event(&mut self, event: StateEvent) -> Result<Effects, EventRefusal> {
        let effects = match event {
            StateEvent::Planned(result) => return Ok(self.adopt_plan(&result)),
            StateEvent::FlowsLearned(seen) => return Ok(self.adopt_connections(seen)),
            StateEvent::Quiet => {
                self.refinement.is_settling = !self.is_settled();
                return Ok(Effects::default());
            }
            StateEvent::Started(start) => self.apply_start(*start)?,
            StateEvent::FabricLearned(fabric) => self.learn_fabric(fabric)?,
            StateEvent::FabricChanged(changes) => self.change_fabric(&changes)?,
            StateEvent::JobsChanged(jobs) => {
                check_jobs(&self.fabric, &jobs)?;
                let record = StoreRecord::Jobs(jobs_document(&self.fabric, &jobs));
                self.reported.yield_to_documents(&jobs);
                self.jobs = jobs;
                Effects::with_record(record)
            }
            StateEvent::JobsReported(reported) => self.apply_reported_jobs(reported)?,
            StateEvent::PolicyChanged(policy) => self.propose_policy(PolicyProposal {
                content: PolicyContent::from(&policy),
                signature: RevisionMetadata::default(),
                trial: None,
                force: true,
            })?,
            StateEvent::PolicyProposed(proposal) => self.propose_policy(*proposal)?,
            StateEvent::PolicyConfirmed => self.enter_revision(self.history.confirm_trial()?)?,
            StateEvent::PolicyRolledBack(signature) => {
                self.enter_revision(self.history.revert_trial(signature)?)?
            }
            StateEvent::RevisionStored(revision) => self.enter_revision(*revision)?,
            StateEvent::DeadlineReached(now) => match self.history.due_revision(now) {
                Some(revision) => self.enter_due_revision(revision, now)?,
                None => return Ok(Effects::default()),
            },
            StateEvent::PinRoomLearned(switch, pins) => self.learn_pin_room(switch, pins)?,
            StateEvent::GenerationHeld(generation) => match self.returning.release_held(generation)
            {
                true => Effects::default(),
                false => return Ok(Effects::default()),
            },
            StateEvent::PlanResumed(decisions) => {
                let (plan, basis) = *decisions;
                self.resumed = Some((self.inputs + 1, plan));
                self.basis = Arc::new(basis);
                Effects::default()
            }
            StateEvent::ElectionWon(spent) => {
                self.spent = self.spent.max(spent);
                Effects::default()
            }
        };
        self.inputs += 1;
        Ok(effects)
    }

    fn apply_start(&mut self, start: StartingState) -> Result<Effects, EventRefusal> {
        let StartingState { fabric, history, jobs, reported_jobs: reported, decisions } = start;
        let policy = history.latest().content.validate("policy", self.levels)?;
        self.check_policy(&policy, &fabric)?;
        check_jobs(&fabric, &jobs)?;
        check_jobs(&fabric, &reported.jobs)?;
        let before = std::mem::replace(&mut self.policy, policy);
        if let Err(refused) = self.learn_fabric(fabric) {
            self.policy = before;
            return Err(refused);
        }
        (self.jobs, self.reported, self.history) = (jobs, reported, history);
        self.refinement.settled_revision = self.history.latest().number;
        if let Some((plan, basis)) = decisions {
            self.resumed = Some((self.learned, plan));
            self.basis = Arc::new(basis);
        }
        let revision = self.history.latest().clone();
        Ok(Effects::with_record(StoreRecord::Policy(Box::new(revision))))
    }

    /// Replaces the reported jobs. Names and flows of documented jobs win over those of reports.
    fn apply_reported_jobs(&mut self, mut reported: ReportedJobs) -> Result<Effects, EventRefusal> {
        check_jobs(&self.fabric, &reported.jobs)?;
        reported.yield_to_documents(&self.jobs);
        self.reported = reported;
        let record = StoreRecord::ReportedJobs(jobs_document(&self.fabric, &self.reported.jobs));
        Ok(Effects::with_record(record))
    }

    /// The documented jobs and the reported jobs that they do not hide.
    pub(crate) fn running_jobs(&self) -> Vec<Job> {
        let (planned, _) = self.partition_reports();
        self.jobs.iter().chain(planned).cloned().collect()
    }

    /// The reported jobs that no documented job hides, and those that one does.
    fn partition_reports(&self) -> (Vec<&Job>, Vec<&Job>) {
        // Documents may have tens of thousands of flows, and every event plans.
        if self.reported.jobs.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let documented = DocumentedJobs::new(&self.jobs);
        self.reported.jobs.iter().partition(|job| !documented.hides_job(job))
    }

    /// The documented jobs and these reported ones, with the slowdown of those for which this policy
    /// asks for it: what no plan depends on must not be planned anew.
    fn jobs_under(&self, policy: &Policy, reported: &[&Job]) -> Vec<Job> {
        let mut jobs: Vec<Job> =
            self.jobs.iter().chain(reported.iter().copied()).cloned().collect();
        for job in &mut jobs {
            job.measured = policy.used_slowdown(job);
        }
        jobs
    }

    /// `policy` as the planner gets it: within the switches' room for pins, with the highest level
    /// for jobs that are being profiled, and the lowest for those that are not believed or have no room
    /// for their GPUs.
    fn effective_policy(&self, policy: &Policy, excess: &[ExcessJob<'_>]) -> Policy {
        let job_levels = policy.job_levels();
        let fixed = |jobs: &BTreeSet<JobId>, level: Option<&u8>| {
            let level = level.copied();
            let rules =
                jobs.iter().map(|job| JobOverride::fixing_level(&format!("job:{job}"), level));
            rules.collect::<Vec<_>>()
        };
        // The first override that matches wins, so what is known of reports comes before the
        // operator's: a job that is not believed must not get what was meant for an honest one.
        let mut distrusted = self.reported.distrusted.clone();
        distrusted.extend(excess.iter().map(|excess| excess.job.id.clone()));
        let mut overrides = fixed(&distrusted, job_levels.first());
        overrides.extend(fixed(&self.reported.profiled, job_levels.last()));
        overrides.extend(policy.overrides.iter().cloned());
        let room = self.basis.pin_room.map_or(usize::MAX, |(_, pins)| pins);
        Policy {
            max_pins_per_switch: policy.max_pins_per_switch.min(room),
            overrides,
            ..policy.clone()
        }
    }

    /// Replaces the fabric. Jobs that continue on it keep their paths, as far as the new fabric
    /// has the links, by name.
    fn learn_fabric(&mut self, fabric: Fabric) -> Result<Effects, EventRefusal> {
        check_names(&self.policy, &fabric)?;
        self.wiring = Arc::new(FabricWiring::new(&fabric)?.with_reports(self.reports));
        // The number of this event: results of earlier requests are about the old fabric's ids.
        self.learned = self.inputs + 1;
        let rollout = self.rollout.take();
        self.resumed = rollout.map(|had| (self.learned, Arc::new(had.plan_on(&fabric))));
        self.fabric = fabric;
        self.jobs.clear();
        self.reported = ReportedJobs::default();
        self.returning = ReturningParts::default();
        (self.basis, self.before_trial) = (Arc::default(), None);
        Ok(Effects::default())
    }

    fn learn_pin_room(&mut self, switch: SwitchId, pins: usize) -> Result<Effects, EventRefusal> {
        let Some(name) = self.fabric.switches().get(switch.index()) else {
            return Err(EventRefusal::UnknownPart);
        };
        let text = format!("its table holds {pins} pins; further flows are left to ECMP");
        let mut effects = Effects::default();
        if self.basis.pin_room.is_none_or(|(_, known)| pins < known) {
            Arc::make_mut(&mut self.basis).pin_room = Some((switch, pins));
            effects.findings = vec![Finding::warning(&name.name, text)];
        }
        Ok(effects)
    }

    /// The next plan request: for events that the plan does not cover, unless one is under way for
    /// them; else, once, for a better plan. Events supersede a request for a better plan.
    fn next_request(&mut self) -> Option<PlanRequest> {
        let is_covered = self.planned == self.inputs;
        let is_idle = self.requested.is_none();
        let RefinementState { is_due, is_settling, .. } = self.refinement;
        let starts_refinement = is_covered && is_idle && (is_due || is_settling);
        let starts_plan = !is_covered && (is_idle || self.refinement.is_requested);
        if !starts_plan && !starts_refinement {
            return None;
        }
        self.requested = Some(self.inputs);
        let revision = self.history.latest().number;
        if starts_plan {
            self.refinement.is_settling = self.refinement.settled_revision != revision;
        }
        self.refinement.is_requested = starts_refinement;
        let request = self.plan_request(&self.policy);
        Some(match starts_refinement {
            // A settled plan compares all candidates, too.
            true if is_settling => request.settled(),
            true => request.at_full_depth(),
            false => request,
        })
    }

    /// The quick plan request of the present inputs under this policy.
    fn plan_request(&self, policy: &Policy) -> PlanRequest {
        let in_force = self.rollout.as_ref();
        let (planned, hidden) = self.partition_reports();
        let excess = reported_jobs::excess_jobs(&self.fabric, &self.jobs, &planned);
        let hidden = hidden.into_iter().map(reported_jobs::hidden_job_finding);
        let findings = hidden.chain(excess.iter().map(|excess| excess.to_finding(&self.fabric)));
        let fabric = self.usable_fabric(policy);
        PlanRequest {
            inputs: self.inputs,
            jobs: spread_over_ports(&fabric, self.jobs_under(policy, &planned)),
            fabric,
            wiring: Arc::clone(&self.wiring),
            policy: self.effective_policy(policy, &excess),
            previous: self.previous_plan(),
            depth: PlanDepth::Quick,
            in_force: in_force.map(|had| (Arc::clone(&had.plan), Arc::clone(&had.report))),
            findings: findings.collect(),
        }
    }

    /// The plan that the next one starts from.
    fn previous_plan(&self) -> Option<Arc<Plan>> {
        let resumed = self.resumed.as_ref().map(|(_, plan)| Arc::clone(plan));
        resumed.or_else(|| self.rollout.as_ref().map(|had| Arc::clone(&had.plan)))
    }

    /// Adopts a plan, even one that does not cover the latest events: the next request follows, and
    /// lowering leads around what has failed since. Only a plan for a replaced fabric is dropped.
    fn adopt_plan(&mut self, result: &PlanResult) -> Effects {
        let is_awaited = self.refinement.is_requested && self.requested == Some(result.inputs);
        if result.is_refined() && !is_awaited {
            // A better plan for inputs that have changed since.
            return Effects::default();
        }
        self.requested = None;
        self.refinement.is_requested = false;
        if result.inputs < self.learned {
            return Effects::default();
        }
        self.refinement.is_due = result.report.comparison.is_provisional;
        if result.depth == PlanDepth::Settled {
            self.refinement.is_settling = false;
            self.refinement.settled = result.inputs;
            if result.inputs == self.inputs {
                self.refinement.settled_revision = self.history.latest().number;
            }
        }
        self.planned = result.inputs;
        self.resumed.take_if(|(inputs, _)| *inputs <= result.inputs);
        let findings = self.new_findings(&result.report);
        let fabric = self.usable_fabric(&self.policy);
        // A plan equal to the one in force uses no generation, unless an earlier leader may have
        // used the present one: switches that it wrote must be written again.
        let is_same = self.rollout.as_ref().is_some_and(|had| {
            *had.plan == *result.plan
                && had.fabric == fabric
                && had.returning == self.returning.part_set()
                && had.generation > self.spent
        });
        let rollout = (!is_same).then(|| self.roll_out(&result.plan, &result.report));
        let explanation = self.rollout.as_mut().filter(|_| is_same).map(|had| {
            // What was compared is no decision, but the next plan and explanations need it.
            (had.plan, had.report) = (Arc::clone(&result.plan), Arc::clone(&result.report));
            had.clone()
        });
        Effects { rollout, explanation, findings, ..Effects::default() }
    }

    /// The findings that the plan in force does not have: one that lasts is told once.
    fn new_findings(&self, report: &PlanReport) -> Vec<Finding> {
        let had = self.rollout.as_ref().map(|had| had.report.findings.iter());
        let had: BTreeSet<&Finding> = had.into_iter().flatten().collect();
        report.findings.iter().filter(|finding| !had.contains(finding)).cloned().collect()
    }

    /// Puts a plan in force on the present fabric, under the next generation.
    fn roll_out(&mut self, plan: &Arc<Plan>, report: &Arc<PlanReport>) -> PlanRollout {
        self.generation = self.generation.max(self.spent) + 1;
        let rollout = PlanRollout {
            generation: self.generation,
            fabric: self.usable_fabric(&self.policy),
            returning: self.returning.part_set(),
            wiring: Arc::clone(&self.wiring),
            plan: Arc::clone(plan),
            report: Arc::clone(report),
            learned: Arc::new(self.place_connections(plan)),
            basis: Arc::clone(&self.basis),
        };
        self.rollout = Some(rollout.clone());
        rollout
    }
}

#[cfg(test)]
pub(crate) mod tests;
