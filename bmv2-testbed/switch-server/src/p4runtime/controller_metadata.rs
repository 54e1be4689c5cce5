//! What controllers wrote that the packet path has no use for: metadata, groups and one-shots.
//!
//! The device keeps what packets need; this keeps the rest, so that everything is read back in the
//! form in which it was written. It lives and dies with the loaded pipeline, beside it.

use std::collections::BTreeMap;

use p4rt::action_profile_action::WatchKind as ActionWatch;
use p4runtime_proto::v1 as p4rt;

use super::digests::DigestSubscriptions;
use super::number_pool::NumberPool;
use switch::{ActionCall, MatchKey};
use switch::{GroupId, MemberId, ProfileIndex, TableIndex};

/// Notes by object of the device.
#[derive(Debug, Default)]
pub(super) struct ControllerMetadata {
    entries: BTreeMap<TableIndex, BTreeMap<MatchKey, EntryMetadata>>,
    defaults: BTreeMap<TableIndex, EntryMetadata>,
    /// Groups that a controller wrote as such.
    pub(super) groups: BTreeMap<(ProfileIndex, GroupId), p4rt::ActionProfileGroup>,
    pub(super) multicast_groups: BTreeMap<u16, p4rt::MulticastGroupEntry>,
    pub(super) clone_sessions: BTreeMap<u16, p4rt::CloneSessionEntry>,
    pub(super) value_sets: BTreeMap<u32, p4rt::ValueSetEntry>,
    pub(super) digests: DigestSubscriptions,
    /// One-shots in force per profile; a profile with any takes no other members or groups.
    one_shots: BTreeMap<ProfileIndex, usize>,
    numbers: BTreeMap<ProfileIndex, ProfileNumbers>,
}

/// The numbers of the groups and members of a profile that one-shots became.
#[derive(Debug, Default)]
pub(super) struct ProfileNumbers {
    pub(super) members: NumberPool,
    pub(super) groups: NumberPool,
}

/// What goes with one entry.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryMetadata {
    pub(super) metadata: Vec<u8>,
    pub(super) controller_metadata: u64,
    pub(super) one_shot: Option<OneShot>,
}

/// One action set: what was written, and the group and members it became.
#[derive(Clone, Debug)]
pub(super) struct OneShot {
    pub(super) profile: ProfileIndex,
    pub(super) group: GroupId,
    pub(super) members: Vec<MemberId>,
    pub(super) actions: Vec<OneShotAction>,
    pub(super) selection_mode: i32,
    pub(super) size_semantics: i32,
}

/// One action of an action set.
#[derive(Clone, Debug)]
pub(super) struct OneShotAction {
    pub(super) call: ActionCall,
    pub(super) weight: u32,
    /// As it was written, with a canonical port.
    pub(super) watch: Option<ActionWatch>,
    /// The port that it names.
    pub(super) watched_port: Option<u16>,
}

impl ControllerMetadata {
    /// The note of an entry, if there is anything to note.
    pub(super) fn entry_metadata(
        &self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Option<&EntryMetadata> {
        self.entries.get(&table)?.get(key)
    }

    /// Replaces the note of an entry; an empty one is not kept.
    pub(super) fn set_entry_metadata(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        note: EntryMetadata,
    ) {
        self.remove_entry_metadata(table, key);
        if let Some(one_shot) = &note.one_shot {
            *self.one_shots.entry(one_shot.profile).or_default() += 1;
        }
        if !note.is_empty() {
            self.entries.entry(table).or_default().insert(key.clone(), note);
        }
    }

    /// Removes and returns the note of an entry.
    pub(super) fn remove_entry_metadata(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Option<EntryMetadata> {
        let note = self.entries.get_mut(&table)?.remove(key)?;
        if let Some(one_shot) = &note.one_shot {
            let count = self.one_shots.entry(one_shot.profile).or_default();
            *count = count.saturating_sub(1);
        }
        Some(note)
    }

    /// The note of a default action.
    pub(super) fn default_metadata(&self, table: TableIndex) -> Option<&EntryMetadata> {
        self.defaults.get(&table)
    }

    /// Replaces the note of a default action, whether empty or not.
    pub(super) fn set_default_metadata(&mut self, table: TableIndex, note: EntryMetadata) {
        self.defaults.insert(table, note);
    }

    /// Forgets that a default action was ever changed.
    pub(super) fn remove_default_metadata(&mut self, table: TableIndex) {
        self.defaults.remove(&table);
    }

    /// The numbers that one-shots of a profile use.
    pub(super) fn numbers(&mut self, profile: ProfileIndex) -> &mut ProfileNumbers {
        self.numbers.entry(profile).or_default()
    }

    /// Whether the profile's members and groups belong to one-shots.
    pub(super) fn has_one_shots(&self, profile: ProfileIndex) -> bool {
        self.one_shots.get(&profile).is_some_and(|&count| count > 0)
    }
}

impl EntryMetadata {
    /// The parts that a controller writes straight into an entry.
    pub(super) fn from_entry(entry: &p4rt::TableEntry) -> Self {
        #[allow(deprecated)] // Still part of v1.5, and to be read back as written.
        let controller_metadata = entry.controller_metadata;
        Self { metadata: entry.metadata.clone(), controller_metadata, one_shot: None }
    }

    fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.controller_metadata == 0 && self.one_shot.is_none()
    }
}
