//! Leadership among the controllers of a fabric: elected by the switches or through etcd.
//!
//! Where etcd is configured, the [`ClusterMembership`] decides the write permit; else the switches
//! elect. Alone, a controller's permit only carries the term to bid in. With other members
//! ([`FollowerMembership`]), it is given by the majority of the switches.

use tokio::sync::watch;
use tokio::time::Instant;
use topology::Finding;

use super::follower_membership::FollowerMembership;
use super::membership::{ClusterMembership, ClusterWake};
use crate::config::Config;
use crate::etcd::ClusterNetwork;
use crate::leadership::{LeaderElection, etcd_elects};
use crate::replication::{FollowedLeader, FollowerTable, LeaderNetwork};
use crate::southbound::arbitration::Mastership;
use crate::southbound::write_permit::WritePermit;
use crate::state::StateEvent;
use crate::supervision::TaskSupervisor;

/// Leadership of this controller, and its write permit.
pub(super) struct Cluster {
    membership: Option<ClusterMembership>,
    follower: Option<FollowerMembership>,
    election: LeaderElection,
    write_permit: watch::Sender<WritePermit>,
    /// The permit by the latest choice.
    chosen: WritePermit,
    followers: FollowerTable,
}

impl Cluster {
    /// Joins the cluster, if the configuration names an etcd or other members. `state_term` is the
    /// term in which the state that was restored was in force.
    pub(super) fn join<N: ClusterNetwork + LeaderNetwork>(
        network: &N,
        config: &Config,
        state_term: u64,
        supervisor: &TaskSupervisor,
    ) -> Self {
        let write_permit = watch::Sender::new(WritePermit::Open { term: 0 });
        let followers = FollowerTable::default();
        let membership =
            ClusterMembership::join_cluster(network, config, &write_permit, supervisor);
        let follower = FollowerMembership::join_members(
            network,
            config,
            (state_term, followers.clone()),
            supervisor,
        );
        Self {
            membership,
            follower,
            election: LeaderElection::new(config.term, config.primary_grace),
            write_permit,
            chosen: WritePermit::Open { term: 0 },
            followers,
        }
    }

    pub(super) fn watch_permit(&self) -> watch::Receiver<WritePermit> {
        self.write_permit.subscribe()
    }

    /// Who follows this controller.
    pub(super) fn followers(&self) -> FollowerTable {
        self.followers.clone()
    }

    /// The leader that this controller follows, if it may follow one.
    pub(super) fn watch_followed(&self) -> Option<watch::Receiver<Option<FollowedLeader>>> {
        self.follower.as_ref().map(FollowerMembership::watch_leader)
    }

    /// The term in which the state of this controller was in force, as it changes, if it follows.
    pub(super) fn watch_state_term(&self) -> watch::Receiver<u64> {
        let none = || watch::Sender::new(0).subscribe();
        self.follower.as_ref().map_or_else(none, FollowerMembership::watch_state_term)
    }

    pub(super) fn membership_mut(&mut self) -> Option<&mut ClusterMembership> {
        self.membership.as_mut()
    }

    pub(super) fn follower_mut(&mut self) -> Option<&mut FollowerMembership> {
        self.follower.as_mut()
    }

    /// Whether the switches elect, without etcd.
    pub(super) fn is_switch_led(&self) -> bool {
        self.membership.is_none()
    }

    /// Whether this controller may change what all share.
    pub(super) fn may_decide(&self) -> bool {
        self.membership.as_ref().is_none_or(ClusterMembership::is_leader)
            && (self.follower.is_none() || self.is_permitted())
    }

    fn is_permitted(&self) -> bool {
        matches!(*self.write_permit.borrow(), WritePermit::Open { term: 1.. })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.election.next_due()
    }

    /// Waits for an update from etcd or from a leader; for ever where there is neither.
    pub(super) async fn wait_for_update(&mut self) -> ClusterWake {
        match (&mut self.membership, &mut self.follower) {
            (Some(membership), _) => membership.wait_for_update().await,
            (None, Some(follower)) => follower.wait_for_update().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// Why this controller refuses an event, if another one leads.
    pub(super) fn refusal_for(&self, event: &StateEvent) -> Option<Finding> {
        match (&self.membership, &self.follower) {
            (Some(membership), _) => membership.refusal_for(event),
            (None, Some(follower)) if !self.is_permitted() => follower.refusal_for(event),
            _ => None,
        }
    }

    /// Has this controller lead, whoever leads now; the refusal where etcd elects.
    pub(super) fn request_lead(&mut self) -> Option<Finding> {
        if !self.is_switch_led() {
            return Some(etcd_elects());
        }
        self.election.request_lead();
        None
    }

    /// Has this controller leave the lead; the refusal where nobody can take it.
    pub(super) fn step_down(&mut self, now: Instant) -> Option<Finding> {
        if let Some(membership) = &self.membership {
            return membership.step_down();
        }
        let refuse = |text| Some(Finding::error("cluster", text));
        if !self.may_decide() || self.follower.is_none() {
            return refuse("refused: this controller follows nobody or does not lead");
        }
        if !self.followers.has_current_follower() {
            return refuse("refused: no follower has everything; see `crux cluster show`");
        }
        self.election.resign(now);
        None
    }

    /// The term to bid in, by this controller's mastership at all switches. The permit for it
    /// follows with [`Cluster::permit_chosen`].
    pub(super) fn choose_term(&mut self, masterships: &[Mastership], now: Instant) -> u64 {
        let Some(follower) = &mut self.follower else {
            let term = self.election.choose_term(masterships, now);
            self.chosen = WritePermit::Open { term };
            return term;
        };
        let standing = follower.standing(now);
        let choice = self.election.choose_by_majority(masterships, standing, now);
        follower.note_choice(choice, self.election.sees_vacancy());
        self.chosen = match choice.term {
            0 => WritePermit::Follower { leader: follower.leader_number() },
            term if follower.leads() => WritePermit::Open { term },
            term => WritePermit::Standby { term, leader: None },
        };
        choice.term
    }

    /// Lets sessions bid, and write, as was chosen last.
    pub(super) fn permit_chosen(&self) {
        let permit = self.chosen;
        self.write_permit.send_if_modified(|had| std::mem::replace(had, permit) != permit);
    }

    /// As [`ClusterMembership::publish_reach`]; nothing where the switches elect.
    pub(super) fn publish_reach(&self, masterships: &[Mastership]) {
        if let Some(membership) = &self.membership {
            membership.publish_reach(masterships);
        }
    }

    /// As [`ClusterMembership::outbid_refusals`]; nothing where the switches elect.
    pub(super) fn outbid_refusals(&mut self, masterships: &[Mastership]) -> Option<u64> {
        self.membership.as_mut()?.outbid_refusals(masterships)
    }

    /// Accepts an election once everything stored before it is planned for.
    /// True if the switches have elected it and it may begin to write.
    pub(super) fn confirm_prepared(&mut self, planned: u64) -> bool {
        if let Some(membership) = &mut self.membership {
            membership.confirm_prepared(planned);
        }
        self.follower.as_mut().is_some_and(|follower| follower.confirm_prepared(planned))
    }

    /// Leaves the cluster and releases the leadership.
    pub(super) async fn leave(self) {
        if let Some(membership) = self.membership {
            membership.leave_cluster().await;
        }
    }
}
