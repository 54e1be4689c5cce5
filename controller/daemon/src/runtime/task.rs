//! The task that owns the state and the sessions.
//!
//! [`Controller`](super::Controller) starts it; what follows from an event is done in
//! [`effects`](super::effects), what other controllers store comes in by
//! [`cluster_sync`](super::cluster_sync), what is seen of switches by [`sight`](super::sight). The
//! decision: everything that wakes it is one [`WakeReason`], taken in a fixed order, so that what it does
//! depends on what came and not on which came first within a poll.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use p4::ForwardingPipeline;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, SwitchId, spec};
use tracing::error;

use super::archive::StateArchive;
use super::drains::DrainTracker;
use super::membership::ClusterMembership;
use super::plan_waiter::PlanWaiter;
use super::session_task::SessionTask;
use super::stage_timer::StageTimer;
use crate::clock::Clock;
use crate::config::Config;
use crate::etcd::ClusterNetwork;
use crate::leadership::LeaderElection;
use crate::liveness::LivenessTracker;
use crate::recorder::FlightRecorder;
use crate::southbound::connection::ComputationPanicked;
use crate::southbound::session::SessionContext;
use crate::southbound::write_permit::WritePermit;
use crate::southbound::{
    ChangeOrigin, DesiredTables, DesiredTimestamps, PacketIo, ReadLimiter, StatusBoard,
    SwitchTarget, UnknownEntries,
};
use crate::state::{
    DrainProgress, Effects, EventSubmission, PlanResult, PlanRollout, State, StateEvent,
    SubmittedItem,
};
use crate::store::StoreRecord;
use crate::trace_export::TraceExporter;

/// The task that owns the state and the sessions.
pub(super) struct Runtime<N> {
    pub(super) shared: SessionContext<N>,
    pub(super) desired: watch::Sender<Arc<DesiredTables>>,
    pub(super) rollout: watch::Sender<Option<PlanRollout>>,
    /// The edition in force and whether it is on trial.
    pub(super) revision: watch::Sender<(u64, bool)>,
    pub(super) write_permit: watch::Sender<WritePermit>,
    pub(super) sessions: BTreeMap<SwitchTarget, SessionTask>,
    pub(super) stop: CancellationToken,
    pub(super) state: State,
    pub(super) archive: StateArchive,
    pub(super) liveness: LivenessTracker,
    /// When what works again is used, whoever knows of it; while something waits for that.
    pub(super) return_deadline: Option<Instant>,
    /// What an operator drains.
    pub(super) drains: DrainTracker,
    /// The same, for whoever looks.
    pub(super) drain_progress: watch::Sender<DrainProgress>,
    pub(super) leadership: LeaderElection,
    /// Where somebody else than the switches says who leads.
    pub(super) membership: Option<ClusterMembership>,
    /// The planner at work on the latest question.
    pub(super) planning: Option<JoinHandle<Result<PlanResult, ComputationPanicked>>>,
    /// When and why it was asked.
    pub(super) planning_origin: ChangeOrigin,
    /// Who waits until an event is planned for, the earliest first.
    pub(super) plan_waiters: VecDeque<PlanWaiter>,
    /// What switches were last seen to have room for.
    pub(super) pin_rooms: BTreeMap<SwitchId, usize>,
    pub(super) clock: Clock,
    pub(super) recorder: FlightRecorder,
    pub(super) stage_timer: StageTimer,
    /// Who tells of changes, if anybody wants to know.
    pub(super) trace_exporter: Option<TraceExporter>,
}

/// What wakes the task.
enum WakeReason {
    Submitted(EventSubmission),
    Planned(Result<PlanResult, ComputationPanicked>),
    /// A session has something to say, or what was seen has lasted.
    Observe,
    /// Something that all controllers share may have changed.
    ClusterUpdated,
    Stop,
}

impl<N: ClusterNetwork> Runtime<N> {
    pub(super) fn new(
        network: N,
        mut config: Config,
        archive: StateArchive,
        antenna: PacketIo,
        (clock, recorder, teller): (Clock, FlightRecorder, Option<TraceExporter>),
    ) -> Self {
        config.term = archive.first_term(config.term);
        let now = Instant::now();
        let made = DesiredTimestamps {
            origin: ChangeOrigin::new("nothing", now),
            planned: now,
            lowered: now,
        };
        let nothing = DesiredTables {
            generation: 0,
            tables: BTreeMap::new(),
            unknown_entries: UnknownEntries::Keep,
            timestamps: made,
        };
        let (desired, to_sessions) = watch::channel(Arc::new(nothing));
        let mandate = watch::Sender::new(WritePermit::Open { term: config.term });
        let office = ClusterMembership::join_cluster(&network, &config, &mandate);
        let state = State::new(config.levels, archive.used_generation());
        Self {
            state: match config.discovery.is_enabled {
                true => state.with_probes(),
                false => state,
            },
            archive,
            liveness: LivenessTracker::new(config.liveness),
            return_deadline: None,
            drains: DrainTracker::new(config.drain_deadline),
            drain_progress: watch::Sender::default(),
            leadership: LeaderElection::new(config.term, config.primary_grace),
            membership: office,
            shared: SessionContext {
                network,
                read_limiter: ReadLimiter::new(
                    config.southbound.concurrent_reads.get(),
                    config.southbound.read_turn,
                ),
                config: Arc::new(config),
                pipeline: Arc::new(ForwardingPipeline::embedded_fabric()),
                desired: to_sessions,
                write_permit: mandate.subscribe(),
                board: StatusBoard::default(),
                packet_io: antenna,
            },
            write_permit: mandate,
            desired,
            rollout: watch::Sender::new(None),
            revision: watch::Sender::default(),
            sessions: BTreeMap::new(),
            stop: CancellationToken::new(),
            planning: None,
            planning_origin: made.origin,
            plan_waiters: VecDeque::new(),
            pin_rooms: BTreeMap::new(),
            clock,
            recorder,
            stage_timer: StageTimer::new(),
            trace_exporter: teller,
        }
    }

    pub(super) async fn run_loop(mut self, mut queue: mpsc::Receiver<EventSubmission>) {
        let mut news = self.shared.board.subscribe();
        loop {
            let done = match self.next_wake(&mut queue, &mut news).await {
                WakeReason::Stop => break,
                WakeReason::Submitted(submission) => self.accept_submission(submission).await,
                WakeReason::Planned(Ok(answer)) => self.adopt_plan(answer).await,
                WakeReason::Planned(Err(_)) => Err(ComputationPanicked),
                WakeReason::Observe => self.observe_switches().await,
                WakeReason::ClusterUpdated => self.sync_cluster().await,
            };
            if let Err(ComputationPanicked) = done {
                error!("planning panicked; stopping, and leaving the switches as they are");
                break;
            }
        }
        for session in self.sessions.into_values() {
            session.stop_session().await;
        }
        if let Some(office) = self.membership {
            office.leave_cluster().await;
        }
        if let Some(teller) = self.trace_exporter {
            teller.shut_down().await;
        }
    }

    /// Waits for something to do. While as many wait for a plan as may, nothing more is accepted.
    async fn next_wake(
        &mut self,
        queue: &mut mpsc::Receiver<EventSubmission>,
        news: &mut watch::Receiver<()>,
    ) -> WakeReason {
        let has_room = self.plan_waiters.len() < self.shared.config.event_queue.get();
        // What came back waits for a plan that knows of it, however late that is.
        let returns = self.return_due();
        let due = [
            self.liveness.next_due(),
            self.leadership.next_due(),
            self.policy_due(),
            returns.filter(|_| self.state.may_release_returning()),
            self.drains.next_due(),
            self.archive.retry_due(),
        ];
        let due = due.into_iter().flatten().min();
        let (thinking, office) = (&mut self.planning, &mut self.membership);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => WakeReason::Stop,
            answer = async { thinking.as_mut().expect("checked").await }, if thinking.is_some() => {
                self.planning = None;
                WakeReason::Planned(answer.unwrap_or(Err(ComputationPanicked)))
            }
            submission = queue.recv(), if has_room => {
                submission.map_or(WakeReason::Stop, WakeReason::Submitted)
            }
            () = wait_for_update(office) => WakeReason::ClusterUpdated,
            // The board is held by the task itself, so it does not end.
            _ = news.changed() => WakeReason::Observe,
            () = async { sleep_until(due.expect("checked")).await }, if due.is_some() => WakeReason::Observe,
        }
    }

    /// Takes in what somebody submitted. Who submitted an event hears of it when it is planned for,
    /// or at once that it is refused.
    async fn accept_submission(
        &mut self,
        submission: EventSubmission,
    ) -> Result<(), ComputationPanicked> {
        let EventSubmission { first_reported: heard, received, .. } = submission;
        let origin = |effects: &Effects| ChangeOrigin {
            first_reported: heard,
            ..ChangeOrigin::new(effects.cause, received)
        };
        let (event, receipt) = match submission.item {
            SubmittedItem::Event(event, receipt) => (*event, receipt),
            SubmittedItem::Health(part, seen) => {
                let change = self.liveness.observe_part(part, seen, received);
                return self.apply_change(change, received).await;
            }
            SubmittedItem::Query(look) => {
                look.run(&self.state);
                return Ok(());
            }
        };
        let inputs = self.state.inputs();
        if let Some(refusal) =
            self.membership.as_ref().and_then(|office| office.refusal_for(&event))
        {
            let effects = Effects::from_refusal(refusal);
            let waiting = PlanWaiter::new(inputs, origin(&effects), &effects, receipt);
            waiting.send_receipt(self.state.generation(), &[]);
            return Ok(());
        }
        let effects = match event {
            StateEvent::FabricLearned(fabric) => self.adopt_fabric(fabric, received).await,
            event if event.changes_policy() => self.store_then_step(event).await,
            event => self.step_and_store(event).await,
        };
        let waiting = PlanWaiter::new(self.state.inputs(), origin(&effects), &effects, receipt);
        match waiting.inputs > inputs {
            true => self.plan_waiters.push_back(waiting),
            false => waiting.send_receipt(effects.generation, &[]),
        }
        self.apply_effects(effects, received).await
    }

    /// The one call of the state's transition.
    pub(super) fn step_state(&mut self, event: StateEvent) -> Effects {
        let now = self.clock.unix_now();
        let noted = self.recorder.begin_step(&event, &self.state, now);
        let before = self.state.generation();
        let effects = self.state.step(event);
        self.recorder.finish_step(noted, &effects, now);
        let drained = &self.state.policy_history().latest().content.policy.drained;
        self.drains.update_drained(drained, before, Instant::now());
        self.publish_drains();
        effects
    }

    /// Has the state take an event in, and stores what the next run must know of it.
    pub(super) async fn step_and_store(&mut self, event: StateEvent) -> Effects {
        let mut effects = self.step_state(event);
        if let Some(record) = effects.record.take() {
            effects.findings.extend(self.archive.store_or_report(record).await);
        }
        effects
    }

    /// Has the state take in a policy that an operator changes, if it can be stored: a copy takes
    /// it in first, and where it cannot be stored nothing has changed.
    async fn store_then_step(&mut self, event: StateEvent) -> Effects {
        let cause = event.kind();
        let considered = self.state.clone().step(event.clone());
        if let Some(record) = considered.record
            && let Err(why) = self.archive.store_record(record).await
        {
            // The answer may be lost, and the store hold the record; then it is overwritten soon.
            let text =
                format!("refused, since it could not be stored, and nothing is changed: {why}");
            return Effects {
                cause,
                generation: self.state.generation(),
                ..Effects::from_refusal(Finding::error("policy", text))
            };
        }
        Effects { record: None, ..self.step_state(event) }
    }

    /// Turns to another fabric of the same switches, with what is known of failures; the event that
    /// takes along what is known of jobs.
    pub(super) fn fabric_event(&mut self, fabric: Fabric, now: Instant) -> StateEvent {
        self.liveness.adopt_fabric(&fabric, now);
        self.archive.event_on_fabric(fabric, &self.state)
    }

    /// Takes another fabric in and stores it.
    async fn adopt_fabric(&mut self, fabric: Fabric, now: Instant) -> Effects {
        let stored = StoreRecord::Fabric(spec::explicit_document(&fabric));
        let learned = self.fabric_event(fabric, now);
        let mut effects = self.step_and_store(learned).await;
        if effects.refusal.is_none() {
            effects.findings.extend(self.archive.store_or_report(stored).await);
        }
        effects
    }

    /// When the policy changes by itself, which is for the leader to see to.
    pub(super) fn policy_due(&self) -> Option<Instant> {
        let leads = self.membership.as_ref().is_none_or(ClusterMembership::is_leader);
        let due = self.state.policy_history().next_due_ms().filter(|_| leads);
        due.map(|at| self.clock.instant_at(at))
    }

    /// Takes in a plan, and tells everyone who waited for it.
    async fn adopt_plan(&mut self, answer: PlanResult) -> Result<(), ComputationPanicked> {
        let asked = self.planning_origin;
        let first = self.plan_waiters.front();
        let first = first.filter(|waiting| waiting.inputs <= answer.inputs());
        let first = first.map_or(asked, |waiting| waiting.origin);
        let origin = ChangeOrigin { planning_started: asked.planning_started, ..first };
        let effects = self.step_state(StateEvent::Planned(Box::new(answer)));
        let (generation, findings) = (effects.generation, effects.findings.clone());
        self.apply_effects_since(effects, origin).await?;
        let planned = self.state.planned_inputs();
        while let Some(waiting) = self.plan_waiters.pop_front_if(|next| next.inputs <= planned) {
            waiting.send_receipt(generation, &findings);
        }
        if let Some(office) = &mut self.membership {
            office.confirm_prepared(planned);
        }
        Ok(())
    }
}

/// Waits for what others have stored.
async fn wait_for_update(office: &mut Option<ClusterMembership>) {
    match office {
        Some(office) => office.wait_for_update().await,
        None => std::future::pending().await,
    }
}
