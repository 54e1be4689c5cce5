//! The leader's side of a stream: what one follower is sent.
//!
//! The decision: a feed looks at the state when it has changed and sends what differs from what it
//! has sent, so a slow follower costs no memory and gets the latest at once. Between two looks is a
//! pause in proportion to what a look cost the event loop. Heartbeats come between them, as a
//! follower's confirmation counts from when the update was made that it confirms.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use planner::JobsDocument;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use topology::spec;

use crate::access::{ControllerAccess, ControllerError};
use crate::policy_history::PolicyRevision;
use crate::replication::{
    FollowerReport, FollowerTable, ReplicatedDocuments, SentUpdates, StateUpdate,
};
use crate::southbound::write_permit::WritePermit;
use crate::state::{PlanRollout, State};
use crate::store::GENERATION_BLOCK;

/// The pause after a look at the state, in multiples of what it took.
const PAUSE: u32 = 10;
/// The longest time between two updates; also what a follower's takeover waits for at most where
/// nothing else is published.
const INTERVAL: Duration = Duration::from_millis(500);

/// What one follower is sent.
struct StateFeed {
    access: ControllerAccess,
    rollouts: watch::Receiver<Option<PlanRollout>>,
    revisions: watch::Receiver<(u64, bool)>,
    permit: watch::Receiver<WritePermit>,
    /// What the follower was sent last of each kind.
    sent: SentState,
    number: u64,
    /// The term in which this controller led last.
    term: u64,
    /// The highest generation that the follower knows of.
    generation: u64,
    /// When to look again at the earliest.
    read_at: Instant,
    /// When to send a heartbeat at the latest.
    heartbeat_at: Instant,
}

/// What a follower was sent last.
#[derive(Default)]
struct SentState {
    revision: Option<PolicyRevision>,
    jobs: Option<JobsDocument>,
    reported_jobs: Option<JobsDocument>,
    fabric: Option<spec::FabricDocument>,
    rollout: Option<PlanRollout>,
}

/// A copy of what is replicated.
struct StateCopy {
    /// Ascending, from the latest that the follower was sent.
    revisions: Vec<PolicyRevision>,
    jobs: JobsDocument,
    reported_jobs: JobsDocument,
    fabric: Option<spec::FabricDocument>,
    generation: u64,
}

/// The updates for one follower, whose reports are recorded, until its stream or the lead of this
/// controller ends. One that does not lead sends the term of its state, and nothing else.
pub fn replicate_state(
    access: &ControllerAccess,
    reports: BoxStream<'static, FollowerReport>,
) -> BoxStream<'static, StateUpdate> {
    if access.leading_term().is_none() {
        let update = StateUpdate {
            leader: access.controller_number(),
            term: *access.state_term.borrow(),
            ..StateUpdate::default()
        };
        return stream::iter([update]).boxed();
    }
    let (to_follower, updates) = mpsc::channel(1);
    let (feed, followers) = (StateFeed::new(access), access.followers.clone());
    tokio::spawn(async move {
        let (sent, mut follower) = (Mutex::new(SentUpdates::default()), None);
        tokio::select! {
            () = send_updates(feed, &sent, &to_follower) => {}
            () = record_reports(reports, &followers, &sent, &mut follower) => {}
            () = to_follower.closed() => {}
        }
        follower.into_iter().for_each(|number| followers.forget_follower(number));
    });
    ReceiverStream::new(updates).boxed()
}

async fn send_updates(
    mut feed: StateFeed,
    sent: &Mutex<SentUpdates>,
    to_follower: &mpsc::Sender<StateUpdate>,
) {
    while let Ok(Some((update, is_change))) = feed.next_update().await {
        lock_sent(sent).record_update(update.number, is_change, Instant::now());
        if to_follower.send(update).await.is_err() {
            return;
        }
    }
}

async fn record_reports(
    mut reports: BoxStream<'static, FollowerReport>,
    followers: &FollowerTable,
    sent: &Mutex<SentUpdates>,
    follower: &mut Option<u32>,
) {
    while let Some(report) = reports.next().await {
        *follower = Some(report.controller);
        followers.record_report(report, &mut lock_sent(sent), Instant::now());
    }
}

fn lock_sent(sent: &Mutex<SentUpdates>) -> MutexGuard<'_, SentUpdates> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateFeed {
    /// A feed that begins with everything.
    fn new(access: &ControllerAccess) -> Self {
        Self {
            rollouts: access.watch_rollout(),
            revisions: access.watch_revision(),
            permit: access.watch_permit(),
            access: access.clone(),
            sent: SentState::default(),
            number: 0,
            term: 0,
            generation: 0,
            read_at: Instant::now(),
            heartbeat_at: Instant::now(),
        }
    }

    /// The next update, and whether it is more than a heartbeat; none once this controller does
    /// not lead any more.
    ///
    /// # Errors
    /// The controller has stopped.
    async fn next_update(&mut self) -> Result<Option<(StateUpdate, bool)>, ControllerError> {
        if self.number > 0 && self.wait_for_heartbeat().await {
            let heartbeat = self.number_update(ReplicatedDocuments::default(), false);
            return Ok(Some((heartbeat, false)));
        }
        let permit = *self.permit.borrow_and_update();
        let is_leaving = matches!(permit, WritePermit::Follower { .. }) && self.number > 0;
        let Some(term) = self.access.leading_term().or(is_leaving.then_some(self.term)) else {
            return Ok(None);
        };
        self.term = term;
        let begun = Instant::now();
        let rollout = self.rollouts.borrow_and_update().clone();
        self.revisions.borrow_and_update();
        let learns_fabric = self.access.learns_fabric;
        let known = self.sent.revision.as_ref().map_or(0, |revision| revision.number);
        let copy = move |state: &State| StateCopy::new(state, known, learns_fabric);
        let copy = self.access.query_state(copy).await?;
        self.read_at = Instant::now() + PAUSE * begun.elapsed();
        self.generation = copy.generation;
        let documents = self.documents_to_send(copy, rollout);
        Ok(Some((self.number_update(documents, is_leaving), true)))
    }

    fn number_update(&mut self, documents: ReplicatedDocuments, is_leaving: bool) -> StateUpdate {
        self.number += 1;
        self.heartbeat_at = Instant::now() + self.access.follow_interval;
        StateUpdate {
            number: self.number,
            leads: true,
            leader: self.access.controller_number(),
            term: self.term,
            generation: self.generation,
            is_leaving,
            documents,
        }
    }

    /// Waits until something is due; whether it is a heartbeat of a leader that leads on.
    async fn wait_for_heartbeat(&mut self) -> bool {
        let heartbeat_at = self.heartbeat_at;
        tokio::select! {
            biased;
            () = self.wait_for_reading() => false,
            () = sleep_until(heartbeat_at) => self.access.leading_term() == Some(self.term),
        }
    }

    /// Waits until it is time to look at the state: when it has changed, or after a while.
    async fn wait_for_reading(&mut self) {
        sleep_until(self.read_at).await;
        drop(timeout_at(self.read_at + INTERVAL, self.wait_for_change()).await);
    }

    async fn wait_for_change(&mut self) {
        tokio::select! {
            _ = self.rollouts.changed() => {}
            _ = self.revisions.changed() => {}
            _ = self.permit.changed() => {}
        }
    }

    /// What differs from what was sent, which it then counts as.
    fn documents_to_send(
        &mut self,
        copy: StateCopy,
        rollout: Option<PlanRollout>,
    ) -> ReplicatedDocuments {
        let sent = &self.sent;
        let is_new = |revision: &&PolicyRevision| Some(*revision) != sent.revision.as_ref();
        let had_plan = |rollout: &&PlanRollout| {
            sent.rollout.as_ref().is_some_and(|sent| sent.has_plan_of(rollout))
        };
        let update = ReplicatedDocuments {
            policy_revisions: copy.revisions.iter().filter(is_new).cloned().collect(),
            fabric: copy.fabric.clone().filter(|_| copy.fabric != sent.fabric),
            jobs: Some(&copy.jobs).filter(|jobs| sent.jobs.as_ref() != Some(jobs)).cloned(),
            reported_jobs: Some(&copy.reported_jobs)
                .filter(|jobs| sent.reported_jobs.as_ref() != Some(jobs))
                .cloned(),
            plan: rollout
                .as_ref()
                .filter(|rollout| !had_plan(rollout))
                .map(PlanRollout::stored_plan),
        };
        self.sent = SentState {
            revision: copy.revisions.into_iter().last(),
            jobs: Some(copy.jobs),
            reported_jobs: Some(copy.reported_jobs),
            fabric: copy.fabric,
            rollout,
        };
        update
    }
}

impl StateCopy {
    /// Revisions are only appended, and only the latest changes, when a trial is confirmed: those
    /// before the number `known` are left out.
    fn new(state: &State, known: u64, learns_fabric: bool) -> Self {
        let revisions = state.policy_history().revisions();
        let recent = revisions.take_while(|revision| revision.number >= known);
        let mut revisions: Vec<PolicyRevision> = recent.cloned().collect();
        revisions.reverse();
        let (jobs, reported_jobs) = state.job_documents();
        Self {
            revisions,
            jobs,
            reported_jobs,
            fabric: learns_fabric.then(|| spec::explicit_document(state.fabric())),
            generation: state.generation() + GENERATION_BLOCK,
        }
    }
}
