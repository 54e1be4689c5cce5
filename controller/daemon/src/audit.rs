//! The audit trail: who was let in, who was refused, who changed the policy, when and why.
//!
//! The listener and the commands of operators add [`AuditEntry`]s; `crux audit` lists them and
//! verifies their chain. Two decisions. Every record has the hash of the one before it, so that a
//! record cannot be changed, added or removed without the rest of the file. And what anybody can
//! cause (refusals) is counted instead of repeated, so that nobody fills the disk or pushes other
//! records out.

mod denial_counter;
mod record;
mod syslog;
mod trail;
mod trail_file;

pub use self::record::{
    AuditAction, AuditEntry, AuditRecord, ChainError, verify_chain, verify_head,
};
pub use self::trail::AuditTrail;
