//! Who leads, as this controller sees it, and the request that this one does.
//!
//! The decision: nothing but an operator's request has a controller take the lead from one that
//! works. It is recorded in the audit trail like a change of the policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service::{NorthboundService, ServiceError};
use crate::audit::AuditAction;
use crate::southbound::arbitration::Mastership;
use crate::southbound::write_permit::WritePermit;

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

/// This controller is to lead.
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
    ///
    /// # Errors
    /// None.
    pub async fn get_cluster(&self) -> Result<ClusterStatus, ServiceError> {
        let permit = *self.access.watch_permit().borrow();
        let mut masterships = Vec::new();
        self.access.status_board().for_each_status(|_, line| masterships.push(line.mastership));
        Ok(ClusterStatus::new(self.access.controller_number(), permit, &masterships))
    }

    /// Has this controller take the lead from the one that has it; switches then refuse the other.
    ///
    /// # Errors
    /// etcd elects the leader, or the request has no author.
    pub async fn take_lead(
        &self,
        request: &TakeLeadRequest,
    ) -> Result<ClusterStatus, ServiceError> {
        let by = self.sign_change(&request.author, &request.reason)?;
        if let Some(refusal) = self.access.take_lead().await? {
            return Err(ServiceError::Refused(vec![refusal]));
        }
        self.access.audit_trail().record_action(AuditAction::LeadTaken, &by.author, &by.reason, "");
        self.get_cluster().await
    }
}

impl ClusterStatus {
    fn new(controller: u32, permit: WritePermit, masterships: &[Mastership]) -> Self {
        let count = |is_such: fn(&Mastership) -> bool| {
            masterships.iter().filter(|mastership| is_such(mastership)).count()
        };
        let primary = count(|mastership| mastership.is_primary());
        let (mode, leads, term, elected) = match permit {
            WritePermit::Open { term } => {
                (ElectionMode::Switches, 2 * primary > masterships.len(), term, None)
            }
            WritePermit::Unknown => (ElectionMode::Etcd, false, 0, None),
            WritePermit::Leader { term, .. } => (ElectionMode::Etcd, true, term, Some(controller)),
            WritePermit::Standby { term, leader } => (ElectionMode::Etcd, false, term, leader),
        };
        let seen = masterships.iter().find_map(|mastership| match mastership {
            Mastership::Backup { primary } => Some(primary.controller()),
            _ => None,
        });
        Self {
            controller,
            mode,
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
