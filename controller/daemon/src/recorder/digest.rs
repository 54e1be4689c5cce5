//! Plans and tables as short texts that are equal where they are.
//!
//! Tables are taken as they go over the wire, plans with the bits of their numbers. The decision:
//! sixteen characters of SHA-256. They are compared with what should be equal, not with what
//! somebody wants to pass for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::SwitchTables;
use p4::codec::encode_entry;
use p4::entry::TableEntry;
use planner::Plan;
use prost::Message;
use sha2::{Digest, Sha256};
use topology::{Fabric, SwitchId};

use crate::state::{PlanRecord, PlanRollout};

/// Of a plan.
pub(super) fn plan_digest(plan: &Plan) -> String {
    let text = serde_json::to_vec(&PlanRecord::new(plan));
    short_hex(Sha256::digest(text.expect("a plan has text for keys")).as_slice())
}

/// Of what is to be realised: the plan, and what has befallen the fabric.
pub(super) fn rollout_digest(rollout: &PlanRollout) -> String {
    let changes = serde_json::to_vec(&rollout.fabric.availability_changes());
    let mut hash = Sha256::new();
    hash.update(changes.expect("changes have text for keys"));
    hash.update(plan_digest(&rollout.plan));
    short_hex(hash.finalize().as_slice())
}

/// Of the tables of all switches. Tables that are the very same as last time are not looked at.
#[derive(Debug, Default)]
pub(super) struct TableDigests {
    known: BTreeMap<SwitchId, (Arc<SwitchTables>, String)>,
}

impl TableDigests {
    /// The digest of each.
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
        let entry = TableEntry { key: key.clone(), value: value.clone() };
        hash.update(encode_entry(&entry).encode_length_delimited_to_vec());
    }
    short_hex(hash.finalize().as_slice())
}

/// The switches of a fabric by name with their digests.
pub(super) fn digests_by_name(
    fabric: &Fabric,
    digests: BTreeMap<SwitchId, String>,
) -> BTreeMap<String, String> {
    let name = |switch: SwitchId| fabric.switch(switch).name.clone();
    let digests = digests.into_iter();
    digests.map(|(switch, digest)| (name(switch), digest)).collect()
}

fn short_hex(digest: &[u8]) -> String {
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
