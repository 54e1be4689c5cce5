//! A batch of updates as PINS carries it out: up to the first that fails, the rest is ABORTED.
//!
//! All updates are looked at before the first is applied: strings become numbers, restrictions and
//! roles are checked, and two updates of one entry reject the whole batch. What they refer to is
//! checked one by one as they are applied, since an update may refer to one before it.

use std::collections::BTreeSet;

use p4_constraints::Operand;
use p4rt::entity::Entity;
use p4rt::packet_replication_engine_entry::Type as ReplicationType;
use p4rt::table_action::Type as ActionType;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::PinsState;
use super::query::all_table_entries;
use super::references::{CalledAction, ReferredKey, check_references, entry_references};
use super::schema::{CheckedFields, PinsSchema};
use super::string_ids::used_numbers;
use crate::p4runtime::entity::{ActionUse, decode_action, decode_key, entity_kind};
use crate::p4runtime::entity_reader::EntityReader;
use crate::p4runtime::entity_writer::{EntityWriter, entry_action, find_table};
use crate::p4runtime::error::RequestFailure;
use crate::p4runtime::p4info::TableSchema;
use switch::{KeyField, MatchKey, TableAction};

/// The writer of a PINS switch for one request.
#[derive(Debug)]
pub(in crate::p4runtime) struct PinsWriter<'a> {
    pub(in crate::p4runtime) pins: &'a PinsSchema,
    pub(in crate::p4runtime) state: &'a mut PinsState,
    pub(in crate::p4runtime) writer: EntityWriter<'a>,
    pub(in crate::p4runtime) role: &'a str,
}

/// An update with numbers instead of strings, and what it changes.
#[derive(Debug)]
struct NumberedUpdate {
    kind: Kind,
    update: p4rt::Update,
    target: UpdateTarget,
}

/// What an update changes; within a batch, each at most once.
#[derive(Debug)]
enum UpdateTarget {
    Entry { table: u32, key: MatchKey, actions: Vec<CalledAction> },
    Replication(EntityKey),
}

/// The identity of what is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntityKey {
    Entry(u32, MatchKey),
    MulticastGroup(u32),
    CloneSession(u32),
}

/// The result of one update.
type UpdateResult = Result<(), RequestFailure>;

impl PinsWriter<'_> {
    /// Carries out a batch. `refuse` may forbid an update, by the name of its table.
    pub(in crate::p4runtime) fn write_batch(
        &mut self,
        updates: &[p4rt::Update],
        mut refuse: impl FnMut(&str) -> Option<Code>,
    ) -> Vec<UpdateResult> {
        let mut failure = None;
        let mut numbered: Vec<NumberedUpdate> = Vec::new();
        let mut keys = BTreeSet::new();
        for update in updates {
            match self.check_update(update, &numbered) {
                Ok(update) if !keys.insert(update.target.entity_key()) => {
                    let twice = "two updates of the batch have the same key";
                    let rejected = RequestFailure::invalid_argument(twice);
                    return finish_results(Vec::new(), Some(rejected), updates.len());
                }
                Ok(update) => match self.check_existence(&update) {
                    Ok(()) => numbered.push(update),
                    Err(refused) => failure = Some(refused),
                },
                Err(refused) => failure = Some(refused),
            }
            if failure.is_some() {
                break;
            }
        }
        let mut results = Vec::new();
        for update in &numbered {
            let refused = self.table_name(update).and_then(&mut refuse);
            let applied = match refused {
                Some(code) => Err(RequestFailure::new(code, "refused by the fault script")),
                None => self.check_and_apply(update),
            };
            match applied {
                Ok(()) => results.push(Ok(())),
                Err(refused) => {
                    failure = Some(refused);
                    break;
                }
            }
        }
        finish_results(results, failure, updates.len())
    }

    /// Repeats an update that was carried out before, without the checks it has passed then.
    pub(in crate::p4runtime) fn replay_update(&mut self, update: &p4rt::Update) -> UpdateResult {
        let numbered = self.number_update(update, &[])?;
        self.apply_numbered(&numbered)
    }

    fn table_name(&self, update: &NumberedUpdate) -> Option<&str> {
        match &update.target {
            UpdateTarget::Entry { table, .. } => {
                self.writer.schema.tables.get(table).map(|table| table.name.as_str())
            }
            UpdateTarget::Replication(_) => None,
        }
    }

    /// What can be said about an update by itself.
    fn check_update(
        &mut self,
        update: &p4rt::Update,
        earlier: &[NumberedUpdate],
    ) -> Result<NumberedUpdate, RequestFailure> {
        let numbered = self.number_update(update, earlier)?;
        let UpdateTarget::Entry { table, key, actions } = &numbered.target else {
            return Ok(numbered);
        };
        let Some(known) = self.pins.tables.get(table) else {
            return Ok(numbered);
        };
        if numbered.kind != Kind::Delete {
            let place = format!("table {}", known.alias);
            check_restriction(&place, &known.checked, &key.fields, key.priority)?;
            for (id, arguments) in actions {
                if let Some(action) = self.pins.actions.get(id) {
                    let fields: Vec<_> = arguments.iter().copied().map(KeyField::Exact).collect();
                    let place = format!("action {}", action.name);
                    check_restriction(&place, &action.checked, &fields, 0)?;
                }
            }
        }
        if !self.role.is_empty() && known.role != self.role {
            let message = format!("role `{}` does not own table {}", self.role, known.alias);
            return Err(RequestFailure::new(Code::PermissionDenied, message));
        }
        Ok(numbered)
    }

    /// An update with numbers. Where none is left, those are freed that nothing uses: neither an
    /// entry nor an earlier update of the batch.
    fn number_update(
        &mut self,
        update: &p4rt::Update,
        earlier: &[NumberedUpdate],
    ) -> Result<NumberedUpdate, RequestFailure> {
        let kind = update.r#type();
        let mut entity = update.entity.clone().unwrap_or_default();
        check_entity(kind, &entity)?;
        if let (Kind::Delete, Some(Entity::TableEntry(entry))) = (kind, &mut entity.entity) {
            // Only the key of a deletion counts, and the rest may be left out.
            entry.action = None;
        }
        let numbered = self.state.ids.number_strings(self.pins, entity.clone());
        let entity = match numbered {
            Err(full) if full.code == Code::ResourceExhausted => {
                self.free_numbers(earlier)?;
                self.state.ids.number_strings(self.pins, entity)?
            }
            numbered => numbered?,
        };
        let target = self.decode_target(kind, &entity)?;
        let update = p4rt::Update { r#type: update.r#type, entity: Some(entity) };
        Ok(NumberedUpdate { kind, update, target })
    }

    fn free_numbers(&mut self, earlier: &[NumberedUpdate]) -> UpdateResult {
        let written = self.reader().read_entity(&all_table_entries())?;
        let pending = earlier.iter().filter_map(|update| update.update.entity.as_ref());
        let used = used_numbers(self.pins, written.iter().chain(pending))?;
        self.state.ids.retain_used(&used);
        Ok(())
    }

    fn reader(&self) -> EntityReader<'_> {
        let EntityWriter { schema, metadata, device } = &self.writer;
        EntityReader { schema, metadata, device }
    }

    fn decode_target(
        &self,
        kind: Kind,
        entity: &p4rt::Entity,
    ) -> Result<UpdateTarget, RequestFailure> {
        match &entity.entity {
            Some(Entity::TableEntry(entry)) => {
                let table = find_table(self.writer.schema, entry.table_id)?;
                let key = decode_key(table, &entry.r#match, entry.priority)?;
                let actions = match kind {
                    Kind::Delete => Vec::new(),
                    _ => called_actions(table, entry)?,
                };
                Ok(UpdateTarget::Entry { table: table.id, key, actions })
            }
            Some(Entity::PacketReplicationEngineEntry(entry)) => {
                let key = match &entry.r#type {
                    Some(ReplicationType::MulticastGroupEntry(group)) => {
                        EntityKey::MulticastGroup(group.multicast_group_id)
                    }
                    Some(ReplicationType::CloneSessionEntry(session)) => {
                        EntityKey::CloneSession(session.session_id)
                    }
                    None => {
                        let empty = "the replication entry has no type";
                        return Err(RequestFailure::invalid_argument(empty));
                    }
                };
                Ok(UpdateTarget::Replication(key))
            }
            _ => Err(RequestFailure::invalid_argument("the update has no entity")),
        }
    }

    /// Whether an entry is there, or not, as its update demands.
    fn check_existence(&self, update: &NumberedUpdate) -> UpdateResult {
        let UpdateTarget::Entry { table, key, .. } = &update.target else {
            return Ok(());
        };
        let table = find_table(self.writer.schema, *table)?;
        let exists = self.writer.device.entry(table.index, key).is_ok();
        match (update.kind, exists) {
            (Kind::Insert, true) => {
                let message = format!("table {} has the entry already", table.name);
                Err(RequestFailure::new(Code::AlreadyExists, message))
            }
            (Kind::Modify | Kind::Delete, false) => {
                Err(RequestFailure::not_found(format!("table {} has no such entry", table.name)))
            }
            _ => Ok(()),
        }
    }

    fn check_and_apply(&mut self, update: &NumberedUpdate) -> UpdateResult {
        if let UpdateTarget::Entry { table, key, actions } = &update.target {
            let device = &*self.writer.device;
            if update.kind == Kind::Delete {
                let table = find_table(self.writer.schema, *table)?;
                self.state.references.check_deletable(self.pins, table, key, device)?;
            } else {
                let references = entry_references(self.pins, *table, key, actions);
                check_references(&references, self.writer.schema, device)?;
            }
        }
        self.apply_numbered(update)
    }

    /// Carries out an update and counts what it refers to.
    fn apply_numbered(&mut self, update: &NumberedUpdate) -> UpdateResult {
        let UpdateTarget::Entry { table, key, actions } = &update.target else {
            return self.writer.apply_update(&update.update);
        };
        let old = self.written_references(*table, key)?;
        self.writer.apply_update(&update.update)?;
        let new = match update.kind {
            Kind::Delete => Vec::new(),
            _ => entry_references(self.pins, *table, key, actions),
        };
        self.state.references.replace(&old, new);
        Ok(())
    }

    /// What an entry refers to as it is now; nothing if it is not there.
    fn written_references(
        &self,
        table: u32,
        key: &MatchKey,
    ) -> Result<Vec<ReferredKey>, RequestFailure> {
        let schema = find_table(self.writer.schema, table)?;
        let Ok(entry) = self.writer.device.entry(schema.index, key) else {
            return Ok(Vec::new());
        };
        let note = self.writer.metadata.entry_metadata(schema.index, key);
        let one_shot = note.and_then(|note| note.one_shot.as_ref());
        let calls: Vec<_> = match (entry.action, one_shot) {
            (TableAction::Action(call), _) => vec![call],
            (_, Some(one_shot)) => one_shot.actions.iter().map(|choice| &choice.call).collect(),
            _ => Vec::new(),
        };
        let actions: Vec<CalledAction> = calls
            .into_iter()
            .filter_map(|call| {
                Some((*schema.actions.by_index.get(&call.action)?, call.arguments.clone()))
            })
            .collect();
        Ok(entry_references(self.pins, table, key, &actions))
    }
}

impl UpdateTarget {
    fn entity_key(&self) -> EntityKey {
        match self {
            Self::Entry { table, key, .. } => EntityKey::Entry(*table, key.clone()),
            Self::Replication(key) => key.clone(),
        }
    }
}

/// The results of a batch: those before a failure, the failure, and for the rest ABORTED.
fn finish_results(
    mut results: Vec<UpdateResult>,
    failure: Option<RequestFailure>,
    count: usize,
) -> Vec<UpdateResult> {
    results.extend(failure.map(Err));
    results.resize(count, Err(RequestFailure::new(Code::Aborted, "not attempted")));
    results
}

/// Refuses what PINS does not write: everything but entries with a key and replication.
fn check_entity(kind: Kind, entity: &p4rt::Entity) -> UpdateResult {
    if kind == Kind::Unspecified {
        return Err(RequestFailure::invalid_argument("the update has no type"));
    }
    match &entity.entity {
        Some(Entity::TableEntry(entry)) if entry.is_default_action => {
            Err(RequestFailure::unimplemented("a default action that changes"))
        }
        Some(Entity::TableEntry(_) | Entity::PacketReplicationEngineEntry(_)) => Ok(()),
        Some(other) => Err(RequestFailure::unimplemented(entity_kind(other))),
        None => Err(RequestFailure::invalid_argument("the update has no entity")),
    }
}

fn called_actions(
    table: &TableSchema,
    entry: &p4rt::TableEntry,
) -> Result<Vec<CalledAction>, RequestFailure> {
    let called = |action: &p4rt::Action| {
        let call = decode_action(&table.actions, action, ActionUse::Entry)?;
        Ok((action.action_id, call.arguments))
    };
    match entry_action(entry)? {
        ActionType::Action(action) => Ok(vec![called(action)?]),
        ActionType::ActionProfileActionSet(set) => {
            let choices = set.action_profile_actions.iter();
            choices.filter_map(|choice| choice.action.as_ref()).map(called).collect()
        }
        ActionType::ActionProfileMemberId(_) | ActionType::ActionProfileGroupId(_) => {
            Err(RequestFailure::unimplemented("an entry with a member or group"))
        }
    }
}

fn check_restriction(
    place: &str,
    checked: &CheckedFields,
    fields: &[KeyField],
    priority: u32,
) -> UpdateResult {
    let matched = |operand: Operand| match_numbers(fields[operand.id as usize], operand);
    match checked.restriction.violated_clause(priority, matched) {
        None => Ok(()),
        Some(clause) => {
            Err(RequestFailure::invalid_argument(format!("{place} requires: {clause}")))
        }
    }
}

/// A match as the language of restrictions has it.
fn match_numbers(field: KeyField, operand: Operand) -> [u128; 2] {
    match field {
        KeyField::Exact(value) => [value, 0],
        KeyField::Lpm { value, prefix } => [value, u128::from(prefix)],
        KeyField::Ternary { value, mask } => [value, mask],
        KeyField::Range { low, high } => [low, high],
        KeyField::Optional(Some(value)) => [value, operand.max],
        KeyField::Optional(None) => [0, 0],
    }
}
