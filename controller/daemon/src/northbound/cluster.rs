//! Who leads, as this controller sees it, and the request that this one does.
//!
//! The decision: nothing but an operator's request has a controller take the lead from one that
//! works, or leave it. Both are recorded in the audit trail like a change of the policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::service::{NorthboundService, ServiceError};
use crate::access::ControllerAccess;
use crate::audit::AuditAction;
use crate::southbound::arbitration::Mastership;
use crate::southbound::write_permit::WritePermit;
use crate::state::LeadChange;

/// Who elects the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElectionMode {
    /// The switches, by their arbitration.
    Switches,
    /// etcd.
    Etcd,
}

/// The election as one controller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// The number of this controller (`election.controller`).
    pub controller: u32,
    /// Who elects.
    pub mode: ElectionMode,
    /// Whether this controller leads.
    pub leads: bool,
    /// The term that it bids in or leads in; 0 while it only stands by.
    pub term: u64,
    /// The number of the leader, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u32>,
    /// Switches that take writes of this controller.
    pub primary: usize,
    /// Switches that take writes of another one.
    pub backup: usize,
    /// Switches that take writes of nobody.
    pub vacant: usize,
    /// Switches that do not answer.
    pub disconnected: usize,
}

/// This controller is to lead, or to leave the lead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeLeadRequest {
    /// The operator who wants it.
    pub author: String,
    /// Why, for the audit trail.
    #[serde(default)]
    pub reason: String,
}

impl NorthboundService {
    /// Who leads, as this controller sees it.
    pub async fn get_cluster(&self) -> Result<ClusterStatus, ServiceError> {
        Ok(ClusterStatus::new(&self.access, Instant::now()))
    }

    /// Has this controller take the lead from the one that has it; switches then refuse the other.
    ///
    /// # Errors
    /// etcd elects the leader, or the request has no author.
    pub async fn take_lead(
        &self,
        request: &TakeLeadRequest,
    ) -> Result<ClusterStatus, ServiceError> {
        self.change_lead(request, LeadChange::Take, AuditAction::LeadTaken).await
    }

    /// Has this controller leave the lead to another one that etcd elects.
    ///
    /// # Errors
    /// It does not lead, there is no etcd, or the request has no author.
    pub async fn step_down(
        &self,
        request: &TakeLeadRequest,
    ) -> Result<ClusterStatus, ServiceError> {
        self.change_lead(request, LeadChange::Leave, AuditAction::LeadLeft).await
    }

    async fn change_lead(
        &self,
        request: &TakeLeadRequest,
        change: LeadChange,
        action: AuditAction,
    ) -> Result<ClusterStatus, ServiceError> {
        let by = self.sign_change(&request.author, &request.reason)?;
        if let Some(refusal) = self.access.change_lead(change).await? {
            return Err(ServiceError::Refused(vec![refusal]));
        }
        self.access.audit_trail().record_action(action, &by.author, &by.reason, "");
        self.get_cluster().await
    }
}

impl ClusterStatus {
    fn new(access: &ControllerAccess, now: Instant) -> Self {
        let permit = *access.watch_permit().borrow();
        let mut masterships = Vec::new();
        access.status_board().for_each_status(|_, line| masterships.push(line.mastership));
        let count = |is_such: fn(&Mastership) -> bool| {
            masterships.iter().filter(|mastership| is_such(mastership)).count()
        };
        let controller = access.controller_number();
        let (term, elected) = match permit {
            WritePermit::Unknown => (0, None),
            WritePermit::Open { term } => (term, None),
            WritePermit::Leader { term, .. } => (term, Some(controller)),
            WritePermit::Standby { term, leader } => (term, leader),
        };
        let primary = count(|mastership| mastership.is_primary());
        let leads = match permit {
            // Where the switches elect, most of them decide.
            WritePermit::Open { term } => term > 0 && 2 * primary > masterships.len(),
            _ => permit.is_leader(now),
        };
        let seen = masterships.iter().find_map(|mastership| match mastership {
            Mastership::Backup { primary } => Some(primary.controller()),
            _ => None,
        });
        Self {
            controller,
            mode: if access.is_switch_led { ElectionMode::Switches } else { ElectionMode::Etcd },
            leads,
            term,
            leader: if leads { Some(controller) } else { elected.or(seen) },
            primary,
            backup: count(|mastership| matches!(mastership, Mastership::Backup { .. })),
            vacant: count(|mastership| matches!(mastership, Mastership::NoPrimary { .. })),
            disconnected: count(|mastership| {
                matches!(mastership, Mastership::Disconnected | Mastership::Candidate)
            }),
        }
    }
}
