//! Leadership among the controllers of a fabric: elected through etcd, or by the switches.
//!
//! Where etcd is configured, the [`ClusterMembership`] decides the write permit. Else the permit
//! only carries the term to bid in, and the switches admit one controller; a standby bids in no
//! term that may write until an operator has it lead.

use tokio::sync::watch;
use tokio::time::Instant;
use topology::Finding;

use super::membership::{ClusterMembership, ClusterWake};
use super::plan_keeper::LeaderPlanStore;
use crate::config::Config;
use crate::etcd::ClusterNetwork;
use crate::leadership::{LeaderElection, etcd_elects};
use crate::southbound::arbitration::Mastership;
use crate::southbound::write_permit::WritePermit;
use crate::standing_findings::StandingFindings;
use crate::state::StateEvent;
use crate::supervision::TaskSupervisor;

/// Leadership of this controller, and its write permit.
pub(super) struct Cluster {
    membership: Option<ClusterMembership>,
    election: LeaderElection,
    is_standby: bool,
    write_permit: watch::Sender<WritePermit>,
}

impl Cluster {
    /// Joins the cluster, if the configuration names an etcd.
    pub(super) fn join<N: ClusterNetwork>(
        network: &N,
        config: &Config,
        supervisor: &TaskSupervisor,
    ) -> Self {
        // Nobody writes in term 0: until the first observation this controller only learns who
        // leads.
        let write_permit = watch::Sender::new(WritePermit::Open { term: 0 });
        let membership =
            ClusterMembership::join_cluster(network, config, &write_permit, supervisor);
        let is_standby = config.is_standby;
        Self {
            membership,
            election: LeaderElection::new(config.term, config.primary_grace, is_standby),
            is_standby,
            write_permit,
        }
    }

    pub(super) fn watch_permit(&self) -> watch::Receiver<WritePermit> {
        self.write_permit.subscribe()
    }

    /// Where the plan is stored while this controller leads through etcd.
    pub(super) fn plan_store(&self) -> Option<LeaderPlanStore> {
        self.membership.as_ref().map(ClusterMembership::plan_store)
    }

    pub(super) fn membership_mut(&mut self) -> Option<&mut ClusterMembership> {
        self.membership.as_mut()
    }

    /// Whether the switches elect, without etcd.
    pub(super) fn is_switch_led(&self) -> bool {
        self.membership.is_none()
    }

    /// Whether this controller may change what all share.
    pub(super) fn may_decide(&self) -> bool {
        self.membership.as_ref().is_none_or(ClusterMembership::is_leader)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.election.next_due()
    }

    /// Waits for an update from etcd; for ever without an etcd.
    pub(super) async fn wait_for_update(&mut self) -> ClusterWake {
        match &mut self.membership {
            Some(membership) => membership.wait_for_update().await,
            None => std::future::pending().await,
        }
    }

    /// Why this controller refuses an event, if another one leads.
    pub(super) fn refusal_for(&self, event: &StateEvent) -> Option<Finding> {
        self.membership.as_ref()?.refusal_for(event)
    }

    /// Why nothing about `about` can be changed here, if another controller decides that.
    pub(super) fn refusal_about(&self, about: &'static str) -> Option<Finding> {
        self.membership.as_ref()?.refusal_about(about)
    }

    /// Has this controller take the lead; the refusal where etcd elects.
    pub(super) fn request_lead(&mut self, findings: &StandingFindings) -> Option<Finding> {
        if self.membership.is_some() {
            return Some(etcd_elects());
        }
        self.election.request_lead();
        if self.is_standby {
            // The request is not stored: two controllers that both believed in an old one would
            // outbid each other after every restart.
            let text = "this standby was told to lead, and will wait again after a restart: set \
                        election.standby = false here, and true at the other controller";
            findings.report_finding("standby", Finding::warning("cluster", text));
        }
        None
    }

    /// Has this controller leave the lead; the refusal where etcd elects nobody else.
    pub(super) fn step_down(&self) -> Option<Finding> {
        let Some(membership) = &self.membership else {
            let text = "refused: without etcd nobody else is elected; have the standby lead \
                        (crux cluster lead --controller STANDBY)";
            return Some(Finding::error("cluster", text));
        };
        membership.step_down()
    }

    /// The term to bid in, by this controller's mastership at all switches. Sessions bid in it
    /// after [`Cluster::permit_term`].
    pub(super) fn choose_term(&mut self, masterships: &[Mastership], now: Instant) -> u64 {
        self.election.choose_term(masterships, now)
    }

    /// Lets sessions bid in this term.
    pub(super) fn permit_term(&self, term: u64) {
        let permit = WritePermit::Open { term };
        // Each change wakes all sessions, so the same term must not be one.
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
    pub(super) fn confirm_prepared(&mut self, planned: u64) {
        if let Some(membership) = &mut self.membership {
            membership.confirm_prepared(planned);
        }
    }

    /// Leaves the cluster and releases the leadership.
    pub(super) async fn leave(self) {
        if let Some(membership) = self.membership {
            membership.leave_cluster().await;
        }
    }
}
