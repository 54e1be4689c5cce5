//! The runtime's part in following another controller: what it sends arrives as updates, and this
//! controller leads once everything received is planned for.
//!
//! [`leadership`](crate::leadership) elects, [`replication`](crate::replication) carries. The
//! decision: a follower plans from the documents of the leader and from its plan, so that a
//! takeover changes no table.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use topology::Finding;

use super::membership::ClusterWake;
use crate::config::Config;
use crate::leadership::{ElectionChoice, ReplicaStanding};
use crate::replication::{
    FollowedLeader, FollowerHandle, FollowerTable, LeaderFollower, LeaderNetwork, StateUpdate,
};
use crate::state::StateEvent;
use crate::supervision::TaskSupervisor;

/// How long the farewell of a leader counts, in multiples of the time in which followers confirm.
const FAREWELL: u32 = 4;

/// The runtime's side of a controller that follows or is followed, without etcd.
pub(super) struct FollowerMembership {
    handle: FollowerHandle,
    followers: FollowerTable,
    /// How recently a follower must have confirmed that it follows.
    lately: Duration,
    /// The update that woke the event loop.
    waiting: Option<StateUpdate>,
    /// The term in which the state of this controller was in force.
    state_term: watch::Sender<u64>,
    /// How many other members there are.
    members: usize,
    /// The highest generation that a leader may have used.
    spent_generation: u64,
    /// Until when the farewell of a leader counts: it may come back, or another one lead.
    leaving_until: Option<Instant>,
    choice: ElectionChoice,
    /// The term for which everything received is planned.
    prepared_term: u64,
    /// The term that is prepared and the number of the event with which it is.
    awaited: Option<(u64, u64)>,
}

impl FollowerMembership {
    /// Begins to follow whichever other member leads, if the configuration names any.
    pub(super) fn join_members<N: LeaderNetwork>(
        network: &N,
        config: &Config,
        (state_term, followers): (u64, FollowerTable),
        supervisor: &TaskSupervisor,
    ) -> Option<Self> {
        let follow = config.follow.as_ref()?;
        let (follower, handle) = LeaderFollower::new(
            network.clone(),
            follow,
            config.controller,
            config.follow_interval(),
        );
        supervisor.spawn_critical("follower", follower.run(supervisor.child_stop()));
        Some(Self {
            handle,
            followers,
            lately: config.primary_grace / 2,
            waiting: None,
            state_term: watch::Sender::new(state_term),
            members: follow.members.iter().collect::<BTreeSet<_>>().len(),
            spent_generation: 0,
            leaving_until: None,
            choice: ElectionChoice { term: 0, may_write: false },
            prepared_term: 0,
            awaited: None,
        })
    }

    /// The leader that this controller follows, as it changes.
    pub(super) fn watch_leader(&self) -> watch::Receiver<Option<FollowedLeader>> {
        self.handle.followed.clone()
    }

    /// The number of the leader, if one answers.
    pub(super) fn leader_number(&self) -> Option<u32> {
        self.handle.followed.borrow().as_ref().map(|leader| leader.controller)
    }

    /// What this controller knows beside the masterships.
    pub(super) fn standing(&self, now: Instant) -> ReplicaStanding {
        let terms = self.handle.member_terms.borrow();
        ReplicaStanding {
            state_term: *self.state_term.borrow(),
            member_term: terms.values().copied().max().unwrap_or(0),
            do_all_answer: terms.len() == self.members,
            is_leader_leaving: self.leaving_until.is_some_and(|until| now < until),
            is_followed: self.followers.is_followed(now, self.lately),
        }
    }

    /// The term in which the state of this controller was in force, as it changes.
    pub(super) fn watch_state_term(&self) -> watch::Receiver<u64> {
        self.state_term.subscribe()
    }

    /// Records what was chosen; the leader is told whether this controller goes on following.
    pub(super) fn note_choice(&mut self, choice: ElectionChoice, sees_vacancy: bool) {
        self.choice = choice;
        let leads = self.leads();
        self.handle.leads.send_if_modified(|led| std::mem::replace(led, leads) != leads);
        let follows = !sees_vacancy && !leads;
        self.handle
            .report
            .send_if_modified(|report| std::mem::replace(&mut report.follows, follows) != follows);
    }

    /// Whether this controller leads: switches have elected it, and it is prepared.
    pub(super) fn leads(&self) -> bool {
        self.choice.may_write && self.prepared_term == self.choice.term
    }

    /// The generation that earlier leaders may have used, if the chosen term is to be prepared for.
    pub(super) fn take_unprepared(&mut self) -> Option<u64> {
        let term = self.choice.term;
        let is_awaited = self.awaited.is_some_and(|(awaited, _)| awaited == term);
        (term > 0 && self.prepared_term != term && !is_awaited).then_some(self.spent_generation)
    }

    /// Waits until event `inputs` is planned for, with which everything received is applied.
    pub(super) fn await_inputs(&mut self, inputs: u64) {
        self.awaited = Some((self.choice.term, inputs));
    }

    /// Accepts the election once the awaited event is planned for.
    pub(super) fn confirm_prepared(&mut self, planned: u64) -> bool {
        let prepared = self.awaited.take_if(|(_, inputs)| *inputs <= planned);
        self.prepared_term = prepared.map_or(self.prepared_term, |(term, _)| term);
        prepared.is_some()
    }

    /// The term in which this controller leads, if its state was in force in an earlier one.
    pub(super) fn take_state_term(&mut self) -> Option<u64> {
        let known = *self.state_term.borrow();
        let term = Some(self.choice.term).filter(|term| self.leads() && *term > known);
        if let Some(term) = term {
            self.state_term.send_replace(term);
        }
        term
    }

    /// Waits for an update of the leader, or for another member that answers.
    pub(super) async fn wait_for_update(&mut self) -> ClusterWake {
        if self.waiting.is_some() {
            return ClusterWake::Updated;
        }
        tokio::select! {
            biased;
            Some(update) = self.handle.updates.recv() => {
                self.waiting = Some(update);
                ClusterWake::Updated
            }
            Ok(()) = self.handle.member_terms.changed() => ClusterWake::TermChanged,
            // The task has ended with the controller.
            else => std::future::pending().await,
        }
    }

    /// The update to apply; one of an earlier term than that of this controller's state is not.
    pub(super) fn take_update(&mut self) -> Option<StateUpdate> {
        let update = self.waiting.take()?;
        (!self.leads() && update.term >= *self.state_term.borrow()).then_some(update)
    }

    /// Records that an update is applied, and confirms it to the leader. True if its term is new.
    pub(super) fn confirm_update(&mut self, update: &StateUpdate) -> bool {
        let is_new = self.state_term.send_replace(update.term) < update.term;
        self.spent_generation = self.spent_generation.max(update.generation);
        let farewell = Instant::now() + FAREWELL * self.lately;
        self.leaving_until = Some(farewell).filter(|_| update.is_leaving);
        self.handle.report.send_modify(|report| report.applied = update.number);
        is_new
    }

    /// Why this controller refuses an event while another one leads, or none.
    pub(super) fn refusal_for(&self, event: &StateEvent) -> Option<Finding> {
        let about = event.shared_subject()?;
        let text = match &*self.handle.followed.borrow() {
            Some(leader) => format!(
                "refused: controller {} leads at {}; send it there",
                leader.controller, leader.address
            ),
            None => "refused: most switches have no leader that answers; send it again when one \
                     does, or have this controller lead (crux cluster lead)"
                .to_owned(),
        };
        Some(Finding::error(about, text))
    }
}
