//! Records of the audit trail, and the chain that they are.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hexadecimal::encode_hex;
use crate::policy_history::UnixMs;
use crate::store::AuditHead;

/// The kind of a record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// The controller started.
    Started,
    /// A caller was let in at an address, for the first time within an hour.
    Admitted,
    /// A request was refused for want of a token, a role or a trusted origin.
    Denied,
    /// The policy was changed.
    PolicyApplied,
    /// A trial was confirmed.
    PolicyConfirmed,
    /// A trial was ended, or an earlier revision applied again.
    PolicyRolledBack,
    /// A change of the policy was refused.
    PolicyRefused,
    /// A trial or a temporary override expired.
    PolicyExpired,
    /// Another fabric was put in force.
    FabricApplied,
    /// An earlier fabric was put in force again.
    FabricRolledBack,
    /// A change of the fabric was refused.
    FabricRefused,
    /// A controller was told to lead.
    LeadTaken,
    /// An operator had the controller leave the lead.
    LeadLeft,
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Started => "started",
            Self::Admitted => "admitted",
            Self::Denied => "denied",
            Self::PolicyApplied => "policy applied",
            Self::PolicyConfirmed => "policy confirmed",
            Self::PolicyRolledBack => "policy rolled back",
            Self::PolicyRefused => "policy refused",
            Self::PolicyExpired => "policy expired",
            Self::FabricApplied => "fabric applied",
            Self::FabricRolledBack => "fabric rolled back",
            Self::FabricRefused => "fabric refused",
            Self::LeadTaken => "lead taken",
            Self::LeadLeft => "lead left",
        })
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its number, rising by one.
    pub sequence: u64,
    /// When, milliseconds of Unix time; of the last one where several are counted.
    pub at_ms: UnixMs,
    /// What happened.
    pub action: AuditAction,
    /// Who: the name of the token or certificate, with the name that the caller gave; empty if
    /// nobody knows.
    pub who: String,
    /// Where from, an IP address; empty for the controller itself.
    pub address: String,
    /// Why, in the words of who did it, or the reason of a refusal.
    pub reason: String,
    /// What exactly: the revision, or the path of a request.
    pub detail: String,
    /// How often, since the record before it of the same kind.
    pub count: u64,
}

/// An entry in the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// What happened.
    pub entry: AuditEntry,
    /// The hash of the record before it; 64 zeros before the first.
    pub previous: String,
    /// SHA-256 of `previous` and the entry as JSON, in hexadecimal.
    pub hash: String,
}

/// Where a chain is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The content of a record is not what was hashed.
    #[error("record {0} was changed")]
    Changed(u64),
    /// A record does not follow the one before it.
    #[error("record {found} does not follow record {before}: records are missing or were added")]
    Gap {
        /// The number of the record before.
        before: u64,
        /// The number of the record.
        found: u64,
    },
    /// The trail ends before a record that was once in it.
    #[error("records {first} to {last} are missing")]
    Cut {
        /// The first that is missing.
        first: u64,
        /// The last that was once in it.
        last: u64,
    },
    /// A record is not the one that was once in its place.
    #[error("record {0} is another one, and those before it may be")]
    Replaced(u64),
}

impl AuditRecord {
    /// The record of an entry that follows a hash.
    pub(super) fn following(previous: String, entry: AuditEntry) -> Self {
        let hash = entry_hash(&previous, &entry);
        Self { entry, previous, hash }
    }

    /// What stands before the first record.
    pub(super) fn first_hash() -> String {
        "0".repeat(64)
    }
}

fn entry_hash(previous: &str, entry: &AuditEntry) -> String {
    let entry = serde_json::to_vec(entry).expect("an entry has text for keys");
    let digest = Sha256::new().chain_update(previous).chain_update(entry).finalize();
    encode_hex(&digest)
}

/// Checks that records follow each other and are as they were written. The first may follow
/// anything, since the oldest are dropped.
///
/// # Errors
/// The first place where the chain is broken.
pub fn verify_chain<'a>(
    records: impl IntoIterator<Item = &'a AuditRecord>,
) -> Result<(), ChainError> {
    let mut before: Option<&AuditRecord> = None;
    for record in records {
        let found = record.entry.sequence;
        if entry_hash(&record.previous, &record.entry) != record.hash {
            return Err(ChainError::Changed(found));
        }
        if let Some(before) = before {
            let last = before.entry.sequence;
            if record.previous != before.hash || found != last + 1 {
                return Err(ChainError::Gap { before: last, found });
            }
        }
        before = Some(record);
    }
    Ok(())
}

/// Checks that records, the oldest first, still have the one that was once their last.
///
/// # Errors
/// They end before it, or have another one in its place.
pub fn verify_head<'a>(
    records: impl IntoIterator<Item = &'a AuditRecord>,
    head: &AuditHead,
) -> Result<(), ChainError> {
    let mut last = 0;
    for record in records {
        last = record.entry.sequence;
        if last == head.sequence && record.hash != head.hash {
            return Err(ChainError::Replaced(last));
        }
    }
    match last < head.sequence {
        true => Err(ChainError::Cut { first: last + 1, last: head.sequence }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(length: u64) -> Vec<AuditRecord> {
        let mut records: Vec<AuditRecord> = Vec::new();
        for sequence in 1..=length {
            let entry = AuditEntry {
                sequence,
                at_ms: sequence,
                action: AuditAction::PolicyApplied,
                who: "ada".to_owned(),
                address: String::new(),
                reason: "a test".to_owned(),
                detail: format!("revision {sequence}"),
                count: 1,
            };
            let previous = records.last().map_or_else(AuditRecord::first_hash, |r| r.hash.clone());
            records.push(AuditRecord::following(previous, entry));
        }
        records
    }

    #[test]
    fn changed_removed_and_moved_records_break_the_chain() {
        let records = chain(5);
        assert_eq!(verify_chain(&records), Ok(()));
        assert_eq!(verify_chain(&records[2..]), Ok(()), "the oldest may be dropped");
        let mut changed = records.clone();
        changed[2].entry.reason = "another".to_owned();
        assert_eq!(verify_chain(&changed), Err(ChainError::Changed(3)));
        let mut removed = records.clone();
        removed.remove(2);
        assert_eq!(verify_chain(&removed), Err(ChainError::Gap { before: 2, found: 4 }));
        let mut forged = records;
        forged[2].entry.reason = "another".to_owned();
        forged[2] = AuditRecord::following(forged[2].previous.clone(), forged[2].entry.clone());
        assert_eq!(verify_chain(&forged), Err(ChainError::Gap { before: 3, found: 4 }));
    }
}
