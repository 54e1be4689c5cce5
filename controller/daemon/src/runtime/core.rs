//! The event loop: what wakes the controller, in one fixed order, and what follows from it.
//!
//! [`Core`] owns the parts of a running controller and moves values between them: an input
//! goes to the [`StateDriver`], the [`Effects`] of the step go to the [`Publisher`] and the
//! [`Planner`], what the switches hold comes from the [`Observer`], what other controllers stored
//! from the [`Cluster`]. No part depends on another. The decision: everything that wakes the loop
//! is one [`WakeReason`], taken in a fixed order, so that the result depends on what arrived and
//! not on which of two inputs a poll saw first. Hundreds of sessions report within milliseconds;
//! what they report is read whole, so it is read no more often than leaves time for all else.

mod cluster_sync;
mod effects;
mod fabric_change;
mod observation;
mod submission_queue;

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use topology::{AvailabilityChange, Finding};
use tracing::error;

pub(super) use self::fabric_change::{fabric_of, report_other_file};
use self::submission_queue::SubmissionQueue;
use super::archive::unstored_finding;
use super::cluster::Cluster;
use super::lowering::{LoweredRollout, RolloutLowering};
use super::membership::ClusterWake;
use super::observer::Observer;
use super::planner::{AdoptedPlan, PlanWaiter, Planner};
use super::publisher::Publisher;
use super::quiet_timer::QuietTimer;
use super::state_driver::StateDriver;
use crate::audit::AuditTrail;
use crate::policy_history::PolicyContent;
use crate::southbound::ChangeOrigin;
use crate::southbound::connection::ComputationPanicked;
use crate::standing_findings::StandingFindings;
use crate::state::{Effects, EventSubmission, LeadChange, PlanResult, StateEvent, SubmittedItem};

/// The running controller, one task.
pub(super) struct Core {
    pub(super) state: StateDriver,
    pub(super) planner: Planner,
    pub(super) lowering: RolloutLowering,
    pub(super) publisher: Publisher,
    pub(super) observer: Observer,
    pub(super) quiet: QuietTimer,
    pub(super) cluster: Cluster,
    pub(super) findings: StandingFindings,
    pub(super) audit: AuditTrail,
    pub(super) stop: CancellationToken,
    /// Cancelled when the plan keeper has ended, if there is one.
    pub(super) plan_kept: CancellationToken,
    /// How long that may take when the controller ends.
    pub(super) keep_deadline: Duration,
    /// When the switches may be observed again without a deadline.
    pub(super) next_observation: Instant,
}

/// An observation may take one part in so many of the time.
const OBSERVATION_PART: u32 = 4;
/// The shortest wait of a timer.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// What wakes the loop.
enum WakeReason {
    Stop,
    Lowered(Result<LoweredRollout, ComputationPanicked>),
    Planned(Result<PlanResult, ComputationPanicked>),
    Submitted(EventSubmission),
    /// The leader may have stored something, or leadership changed.
    ClusterUpdated,
    /// A session changed its status, the term changed, or a deadline has come.
    Observe,
}

impl Core {
    /// Runs until `stop`, or until every sender of the queue is dropped.
    pub(super) async fn run_loop(mut self, queue: mpsc::Receiver<EventSubmission>) {
        let mut queue = SubmissionQueue::new(queue);
        let mut statuses = self.publisher.board().subscribe();
        loop {
            let handled = match self.next_wake(&mut queue, &mut statuses).await {
                WakeReason::Stop => break,
                WakeReason::Lowered(Ok(lowered)) => self.publish_lowered(lowered).await,
                WakeReason::Lowered(Err(panicked)) => Err(panicked),
                WakeReason::Planned(Ok(result)) => self.adopt_plan(result).await,
                WakeReason::Planned(Err(panicked)) => Err(panicked),
                WakeReason::Submitted(submission) => {
                    self.accept_submission(submission, &mut queue).await
                }
                WakeReason::ClusterUpdated => self.sync_cluster().await,
                WakeReason::Observe => self.observe_switches().await,
            };
            // Going on without a plan would leave a controller that looks healthy and repairs
            // nothing.
            if let Err(ComputationPanicked) = handled {
                error!("planning panicked; the controller stops and leaves the switches unchanged");
                break;
            }
        }
        // Sessions stop first: none may write after the leadership is released.
        let meter = self.publisher.stop_sessions().await;
        // Only the leader can store the plan, so its successor is elected afterwards.
        drop(timeout(self.keep_deadline, self.plan_kept.cancelled()).await);
        self.cluster.leave().await;
        meter.shut_down().await;
    }

    /// Waits for the next input.
    ///
    /// The order is a contract. Stopping comes before everything. Lowered tables and a finished
    /// plan come before new submissions, so that a stream of events cannot keep them from the
    /// switches. Submissions come before what the cluster and the sessions report: those are
    /// level-triggered and read whole, so they lose nothing by waiting, while a failure waits in
    /// the queue to be repaired. Deadlines are last, because an input may move them.
    async fn next_wake(
        &mut self,
        queue: &mut SubmissionQueue,
        statuses: &mut watch::Receiver<()>,
    ) -> WakeReason {
        let has_room = self.planner.has_room();
        let due = self.next_due();
        let observable = self.next_observation;
        let reported = async {
            // A timer is created only where there is something to wait for: this future is polled
            // anew for every input.
            if Instant::now() < observable {
                sleep_until(observable).await;
            }
            statuses.changed().await
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => WakeReason::Stop,
            result = self.lowering.next_result() => WakeReason::Lowered(result),
            result = self.planner.next_result() => WakeReason::Planned(result),
            submission = queue.next_submission(), if has_room => {
                submission.map_or(WakeReason::Stop, WakeReason::Submitted)
            }
            wake = self.cluster.wait_for_update() => match wake {
                ClusterWake::Updated => WakeReason::ClusterUpdated,
                ClusterWake::TermChanged => WakeReason::Observe,
            },
            // The publisher itself holds the board, so this cannot end.
            _ = reported => WakeReason::Observe,
            () = async { sleep_until(due.expect("checked")).await }, if due.is_some() => {
                WakeReason::Observe
            }
        }
    }

    fn next_due(&mut self) -> Option<Instant> {
        let state = self.state.state();
        let return_deadline = self.observer.return_deadline(state.is_returning());
        let dues = [
            self.observer.next_due(),
            self.cluster.next_due(),
            self.policy_due(),
            self.quiet.next_due().filter(|_| self.cluster.may_decide()),
            // A part that came back waits for a plan that includes it, however late that is.
            return_deadline.filter(|_| self.state.state().may_release_returning()),
            self.state.archive().retry_due(),
        ];
        dues.into_iter().flatten().min()
    }

    /// When the policy changes by itself. Only the leader changes it.
    fn policy_due(&self) -> Option<Instant> {
        self.state.policy_due().filter(|_| self.cluster.may_decide())
    }

    /// Handles a submission. The receipt of an event is sent when a plan includes it, or at once if
    /// it is refused or changes nothing.
    async fn accept_submission(
        &mut self,
        submission: EventSubmission,
        queue: &mut SubmissionQueue,
    ) -> Result<(), ComputationPanicked> {
        let EventSubmission { item, first_reported, received } = submission;
        // Read before the event is applied; the comparison below shows whether it changed anything.
        let inputs = self.state.state().inputs();
        let (effects, receipt) = match item {
            SubmittedItem::Event(event, receipt) => {
                (self.apply_event(*event, received).await, receipt)
            }
            SubmittedItem::Fabric(proposal, receipt) => {
                (self.apply_fabric(*proposal, received).await, receipt)
            }
            SubmittedItem::FabricPreview(fabric, answer) => {
                // The caller may have stopped waiting.
                answer.send(self.consider_fabric(&fabric)).ok();
                return Ok(());
            }
            SubmittedItem::Health(part, health) => {
                // Only reports that are next in the queue: an event of an operator between them
                // keeps its place.
                let others = std::iter::from_fn(|| queue.take_health());
                let all = std::iter::once((part, health, received)).chain(others);
                let observed = all.filter_map(|(part, health, received)| {
                    self.observer.observe_part(part, health, received)
                });
                let changes: Vec<AvailabilityChange> = observed.collect();
                return self.apply_changes(changes, received).await;
            }
            SubmittedItem::Lead(change, answer) => {
                let refusal = match change {
                    LeadChange::Take => self.cluster.request_lead(&self.findings),
                    LeadChange::Leave => self.cluster.step_down(),
                };
                // The caller may have stopped waiting.
                answer.send(refusal).ok();
                // The request changes the election, which chooses its term when switches are
                // observed.
                return self.observe_switches().await;
            }
            SubmittedItem::Query(query) => {
                query.run(self.state.state());
                return Ok(());
            }
        };
        let origin = ChangeOrigin { first_reported, ..ChangeOrigin::new(effects.cause, received) };
        let waiter = PlanWaiter::new(self.state.state().inputs(), origin, &effects, receipt);
        // An event that was applied has raised the count; only then will a plan cover it.
        match waiter.inputs > inputs {
            true => self.planner.add_waiter(waiter),
            false => waiter.send_receipt(effects.generation, &[]),
        }
        self.apply_effects(effects, received).await
    }

    /// Applies an event, unless another controller decides that.
    async fn apply_event(&mut self, event: StateEvent, received: Instant) -> Effects {
        if let Some(refusal) = self.cluster.refusal_for(&event) {
            let generation = self.state.state().generation();
            return Effects { cause: event.kind(), generation, ..Effects::from_refusal(refusal) };
        }
        match event {
            StateEvent::FabricLearned(fabric) => self.adopt_learned(fabric, received).await,
            event if event.is_ordered() => self.store_then_step(event).await,
            event => self.step_and_store(event).await,
        }
    }

    /// The only call of the state's step; drains are tracked after each.
    fn step_state(&mut self, event: StateEvent) -> Effects {
        // The generation before the step: tables that a switch held earlier cannot complete a new
        // drain.
        let before = self.state.state().generation();
        let effects = self.state.step(event);
        self.observer.track_drains(self.state.drained_parts(), before);
        self.quiet.follow(self.state.state(), Instant::now());
        effects
    }

    /// Steps, then stores the record for the next run.
    async fn step_and_store(&mut self, event: StateEvent) -> Effects {
        let effects = self.step_state(event);
        self.store_effects(effects).await
    }

    async fn store_effects(&mut self, mut effects: Effects) -> Effects {
        if let Some(record) = effects.record.take() {
            effects.findings.extend(self.state.archive_mut().store_or_report(record).await);
        }
        effects
    }

    /// Stores what an operator changes, then steps. A copy of the state applies the event first to
    /// get the record; if that cannot be stored, nothing has changed. Except in an emergency: a
    /// broken part must not wait for a disk.
    async fn store_then_step(&mut self, event: StateEvent) -> Effects {
        // On a copy, because a step cannot be undone if its record is not stored.
        let considered = self.state.state().clone().step(event.clone());
        let mut unstored = None;
        if let Some(record) = considered.record
            && let Err(reason) = self.state.archive_mut().store_record(record).await
        {
            // A leader that was replaced meanwhile decides nothing any more.
            if !self.is_emergency(&event) || !self.cluster.may_decide() {
                // The record may be stored although the response was lost; a retry then overwrites it.
                let about = event.shared_subject().unwrap_or("store");
                return Effects {
                    cause: event.kind(),
                    generation: self.state.state().generation(),
                    ..Effects::from_refusal(refused_unstored(about, &reason))
                };
            }
            self.state.archive_mut().note_unstored_policy();
            unstored = Some(unstored_finding(&reason));
        }
        let mut effects = Effects { record: None, ..self.step_state(event) };
        effects.findings.extend(unstored);
        effects
    }

    /// Whether a change of the policy is in force also where it cannot be stored: it drains, or goes
    /// back to what worked.
    fn is_emergency(&self, event: &StateEvent) -> bool {
        let history = self.state.state().policy_history();
        match event {
            StateEvent::PolicyProposed(proposal) => history.is_known(&proposal.content),
            StateEvent::PolicyChanged(policy) => history.is_known(&PolicyContent::from(policy)),
            StateEvent::PolicyRolledBack(_) => true,
            // A restart loses what is confirmed as well.
            StateEvent::PolicyConfirmed => self.state.archive().lacks_policy(),
            _ => false,
        }
    }

    /// Adopts a plan. The receipts of the events that it covers follow its tables.
    async fn adopt_plan(&mut self, result: PlanResult) -> Result<(), ComputationPanicked> {
        let origin = self.planner.origin_of(&result);
        let effects = self.step_state(StateEvent::Planned(Box::new(result)));
        self.planner.note_adopted(AdoptedPlan {
            generation: effects.generation,
            planned: self.state.state().planned_inputs(),
            findings: effects.findings.clone(),
        });
        self.apply_effects_since(effects, origin).await?;
        self.answer_published();
        Ok(())
    }

    /// Sends the receipts of the events whose plans are published.
    fn answer_published(&mut self) {
        if let Some(planned) = self.planner.answer_published(&self.publisher.in_force()) {
            // Leadership is confirmed only now: what was stored before the election is planned for.
            self.cluster.confirm_prepared(planned);
        }
    }
}

/// The refusal of a change that could not be stored.
fn refused_unstored(about: &str, reason: &str) -> Finding {
    let text = format!(
        "refused: it could not be stored, and nothing is changed: {reason}; drains and rollbacks are \
         accepted meanwhile"
    );
    Finding::error(about, text)
}
