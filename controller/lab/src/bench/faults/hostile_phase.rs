//! The last phase of a schedule: switches lie, clients and reporters attack.
//!
//! It begins when everything before has converged. The decision: honest parties are judged while
//! the others still lie. Every honest switch holds what its one leader desires, the plan has the
//! jobs of honest reporters and no other, no switch counts as verified that is not, and every
//! attack was refused. Then the lies end, and everything must converge as after any other fault.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use controller::northbound::cluster::TakeLeadRequest;
use controller::northbound::service::{
    ApplyPolicyRequest, NorthboundService, PolicyChangeResponse, PreviewPolicyRequest,
    RollbackPolicyRequest, ServiceError,
};
use controller::policy_history::PolicyRevision;
use controller::{Config, ControllerAccess, ControllerHandle, StateEvent};
use planner::{PolicyEdit, PolicyEditAction};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use topology::SwitchId;

use super::controller_setup::controller_config;
use super::fake_network::lock_mutex;
use super::fault_schedule::{FaultStep, SWITCHES};
use super::hostile_client::{FalseReport, HONEST_JOB, PreviewFlood, ReporterGroup};
use super::scenario_run::{CALM, POLL_INTERVAL, ScenarioRun};

/// The deadline for honest switches, while others still lie.
const HONEST_TIMEOUT: Duration = Duration::from_secs(6);

/// The deadline for what an operator needs in an emergency, whatever others do.
const EMERGENCY_TIMEOUT: Duration = Duration::from_secs(2);
/// The part that an operator drains under attack.
const DRAINED: &str = "spine2";

/// Hostile parties of a run, and what they have found out.
#[derive(Default)]
pub(super) struct HostileParties {
    reporters: Option<ReporterGroup>,
    floods: JoinSet<Result<(), String>>,
}

/// The emergency verbs of an operator: drains a switch at each controller, of which one leads, has it go
/// back to a revision, asks it for its findings, and moves the lead.
async fn act_under_attack(
    accesses: Vec<ControllerAccess>,
    config: Config,
    after: Duration,
) -> Result<(), String> {
    sleep(after).await;
    for access in accesses {
        let permit = access.watch_permit();
        let leads = || permit.borrow().may_write(Instant::now());
        let led_before = leads();
        let service = NorthboundService::new(access, &config);
        let drained = in_time("a drain", service.apply_policy(&drain_order())).await?;
        let had = in_time("the policy", service.get_policy()).await?;
        // Refused if it is drained already, or by a controller that does not lead.
        let holds_drain =
            |had: &PolicyRevision| had.content.policy.drained.iter().any(|part| part == DRAINED);
        let is_in_force =
            drained.as_ref().is_ok_and(|done| done.applied) || had.as_ref().is_ok_and(holds_drain);
        if led_before && !is_in_force && leads() {
            return Err(format!("a drain under attack is refused: {drained:?}"));
        }
        let revision = had.ok().map(|had| had.number);
        let back = RollbackPolicyRequest { revision, ..RollbackPolicyRequest::default() };
        let rolled_back = in_time("a rollback", service.rollback_policy(&back)).await?;
        if led_before && leads() && rolled_back.is_err() && !back_is_refused(&rolled_back) {
            return Err(format!("a rollback under attack fails: {rolled_back:?}"));
        }
        let findings = in_time("doctor", service.list_findings()).await?;
        findings.map_err(|error| format!("doctor under attack: {error}"))?;
        if led_before {
            let order = TakeLeadRequest { author: "ada".to_owned(), ..TakeLeadRequest::default() };
            let left = in_time("a change of lead", service.step_down(&order)).await?;
            // Where switches elect, the lead cannot be left.
            if leads() && left.is_err() && !matches!(left, Err(ServiceError::Refused(_))) {
                return Err(format!("a change of lead under attack fails: {left:?}"));
            }
        }
    }
    Ok(())
}

fn drain_order() -> ApplyPolicyRequest {
    let edit =
        PolicyEdit { action: PolicyEditAction::Drain, name: DRAINED.to_owned(), value: None };
    let change = PreviewPolicyRequest { edits: vec![edit], ..PreviewPolicyRequest::default() };
    ApplyPolicyRequest { change, force: true, ..ApplyPolicyRequest::default() }
}

/// Whether a rollback was considered, and refused for what is in force.
fn back_is_refused(answer: &Result<PolicyChangeResponse, ServiceError>) -> bool {
    matches!(answer, Err(ServiceError::Refused(_) | ServiceError::Unknown(_)))
}

/// The answer to a verb, in the time that an emergency leaves.
async fn in_time<T>(verb: &str, answer: impl Future<Output = T>) -> Result<T, String> {
    let answer = timeout(EMERGENCY_TIMEOUT, answer).await;
    answer.map_err(|_| format!("{verb} under attack has no answer in time"))
}

impl ScenarioRun {
    /// Has hostile parties act over the time `until`, and judges what they achieve.
    pub(super) async fn run_hostile_phase(
        &mut self,
        steps: &[(u64, FaultStep)],
        until: Duration,
    ) -> Result<(), String> {
        self.restore_facts().await?;
        self.await_convergence().await?;
        let config = controller_config(1, 1, self.led)?;
        self.parties.reporters = Some(ReporterGroup::open(self.fabric.clone(), &config)?);
        self.submit_reported().await?;
        let accesses: Vec<_> = self.controllers.values().map(|one| one.access().clone()).collect();
        let acting = tokio::spawn(act_under_attack(accesses, config, until / 2));
        self.play_lossy_steps(steps, until).await?;
        acting.await.map_err(|_| "an operator's task panicked".to_owned())??;
        lock_mutex(&self.testbed).is_lossy = false;
        self.await_honest().await?;
        self.check_verified().await?;
        while let Some(flood) = self.parties.floods.join_next().await {
            flood.map_err(|_| "a preview panicked".to_owned())??;
        }
        if let Some(mut reporters) = self.parties.reporters.take() {
            reporters.close();
            self.submit_event(|_| StateEvent::JobsReported(reporters.reported_jobs())).await?;
        }
        self.restore_facts().await?;
        self.await_convergence().await
    }

    /// Sends previews to a controller, if it runs.
    pub(super) fn flood_previews(
        &mut self,
        controller: u32,
        flood: PreviewFlood,
    ) -> Result<(), String> {
        let config = controller_config(controller, 1, self.led)?;
        if let Some(handle) = self.controllers.get(&controller) {
            let access = handle.access().clone();
            self.parties.floods.spawn(flood.send_requests(access, config, self.planted_bug));
        }
        Ok(())
    }

    /// A hostile reporter sends its report, and all controllers plan for what remains of it.
    pub(super) async fn receive_false_report(&mut self, report: FalseReport) -> Result<(), String> {
        if let Some(reporters) = &mut self.parties.reporters {
            reporters.receive_false(report, self.planted_bug)?;
        }
        self.submit_reported().await
    }

    /// Sends the jobs that reporters report; none before there are reporters, and after them.
    pub(super) async fn submit_reported(&self) -> Result<(), String> {
        let reporters = self.parties.reporters.as_ref();
        let reported = || reporters.map(ReporterGroup::reported_jobs).unwrap_or_default();
        self.submit_event(|_| StateEvent::JobsReported(reported())).await
    }

    /// Waits until honest switches hold the plan, although others lie.
    async fn await_honest(&self) -> Result<(), String> {
        let deadline = Instant::now() + HONEST_TIMEOUT;
        while let Err(why) = self.check_honest() {
            if Instant::now() >= deadline {
                return Err(format!("beside liars: {why}"));
            }
            sleep(POLL_INTERVAL).await;
            self.submit_jobs().await?;
            self.submit_reported().await?;
        }
        Ok(())
    }

    fn check_honest(&self) -> Result<(), String> {
        let honest = self.honest_switches();
        let leads = |controller: &ControllerHandle| {
            let statuses = controller.status_board().all_statuses();
            let mut own = honest.iter().filter_map(|switch| statuses.get(switch));
            own.all(|status| status.mastership.is_primary())
        };
        let leader = self.controllers.values().find(|controller| leads(controller));
        let leader = leader.ok_or("no controller leads all honest switches")?;
        let rollout = leader.current_rollout().ok_or("there is no plan")?;
        let planned: BTreeSet<String> =
            rollout.plan.jobs.iter().map(|job| job.id.to_string()).collect();
        let facts = self.facts.jobs.iter().map(|job| job.id.to_string());
        let wanted: BTreeSet<String> = facts.chain([HONEST_JOB.to_owned()]).collect();
        if planned != wanted {
            return Err(format!("the plan has the jobs {planned:?} instead of {wanted:?}"));
        }
        let desired = leader.desired_tables();
        let world = lock_mutex(&self.testbed);
        let differs = |switch: &&SwitchId| {
            desired.tables.get(switch).map(Arc::as_ref)
                != Some(&world.devices[switch.index()].tables)
        };
        match honest.iter().find(differs) {
            Some(switch) => Err(format!("honest {switch:?} does not hold its tables")),
            None => Ok(()),
        }
    }

    fn honest_switches(&self) -> Vec<SwitchId> {
        let world = lock_mutex(&self.testbed);
        let switches = (0..SWITCHES as u32).map(SwitchId);
        switches.filter(|switch| world.devices[switch.index()].lie.is_none()).collect()
    }

    /// Checks that no switch is taken for verified all the time while it holds other tables.
    async fn check_verified(&self) -> Result<(), String> {
        let until = Instant::now() + CALM;
        let mut always: Option<BTreeSet<(u32, SwitchId)>> = None;
        while Instant::now() < until {
            let found = self.falsely_verified();
            always = Some(match always {
                None => found,
                Some(before) => before.intersection(&found).copied().collect(),
            });
            sleep(POLL_INTERVAL).await;
        }
        match always.unwrap_or_default().first() {
            Some((controller, switch)) => {
                Err(format!("controller {controller} takes {switch:?} for verified"))
            }
            None => Ok(()),
        }
    }

    /// Switches that a controller has verified to hold what they do not hold.
    fn falsely_verified(&self) -> BTreeSet<(u32, SwitchId)> {
        let mut found = BTreeSet::new();
        for (number, controller) in &self.controllers {
            let desired = controller.desired_tables();
            let statuses = controller.status_board().all_statuses();
            let world = lock_mutex(&self.testbed);
            for (switch, status) in statuses {
                let tables = desired.tables.get(&switch).map(Arc::as_ref);
                let differs = tables != Some(&world.devices[switch.index()].tables);
                if differs && status.holds_generation(desired.generation) {
                    found.insert((*number, switch));
                }
            }
        }
        found
    }
}
