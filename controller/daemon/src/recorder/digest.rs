//! Short digests of plans and tables, to compare a replay with its recording.
//!
//! Tables are hashed as encoded for the wire, plans with the bits of their numbers. The decision:
//! sixteen characters of SHA-256. They have to detect differences, not forgeries.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::SwitchTables;
use p4::codec::encode_entry;
use p4::entry::TableEntry;
use planner::Plan;
use prost::Message;
use sha2::{Digest, Sha256};
use topology::{Fabric, SwitchId};

use crate::hexadecimal::encode_hex;
use crate::state::{PlanRecord, PlanRollout};

/// The digest of a plan.
pub(super) fn plan_digest(plan: &Plan) -> String {
    let text = serde_json::to_vec(&PlanRecord::new(plan));
    short_hex(Sha256::digest(text.expect("a plan has text for keys")).as_slice())
}

/// The digest of a rollout: the plan, and the failures and drains of the fabric.
pub(super) fn rollout_digest(rollout: &PlanRollout) -> String {
    let changes = serde_json::to_vec(&rollout.fabric.availability_changes());
    let mut hash = Sha256::new();
    hash.update(changes.expect("changes have text for keys"));
    hash.update(plan_digest(&rollout.plan));
    short_hex(hash.finalize().as_slice())
}

/// Digests of the tables of all switches. Tables that are the same `Arc` as last time are not
/// hashed again.
#[derive(Debug, Default)]
pub(super) struct TableDigests {
    known: BTreeMap<SwitchId, (Arc<SwitchTables>, String)>,
}

impl TableDigests {
    /// The digest of the tables of each switch.
    pub(super) fn digest_all(
        &mut self,
        tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    ) -> BTreeMap<SwitchId, String> {
        self.known.retain(|switch, _| tables.contains_key(switch));
        for (switch, tables) in tables {
            let known = self.known.get(switch);
            if known.is_none_or(|(known, _)| !Arc::ptr_eq(known, tables)) {
                let digest = tables_digest(tables);
                self.known.insert(*switch, (Arc::clone(tables), digest));
            }
        }
        let known = self.known.iter();
        known.map(|(switch, (_, digest))| (*switch, digest.clone())).collect()
    }
}

fn tables_digest(tables: &SwitchTables) -> String {
    let mut hash = Sha256::new();
    for (key, value) in tables.iter() {
        let entry = TableEntry::from((key, value));
        hash.update(encode_entry(&entry).encode_length_delimited_to_vec());
    }
    short_hex(hash.finalize().as_slice())
}

/// The digests by the names of the switches.
pub(super) fn digests_by_name(
    fabric: &Fabric,
    digests: BTreeMap<SwitchId, String>,
) -> BTreeMap<String, String> {
    digests
        .into_iter()
        .map(|(switch, digest)| (fabric.switch(switch).name.clone(), digest))
        .collect()
}

fn short_hex(digest: &[u8]) -> String {
    encode_hex(&digest[..8])
}
