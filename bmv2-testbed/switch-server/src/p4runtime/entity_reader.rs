//! One query: what `Read` answers, entity by entity, and the whole state of a pipeline.
//!
//! A query is a pipeline of filters over what the device holds, in the device's order, so reading
//! never depends on the history of writes. What was written comes back in canonical form.

use p4rt::entity::Entity;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::v1 as p4rt;

use super::arrays::encode_rates;
use super::controller_metadata::{ControllerMetadata, EntryMetadata, OneShot};
use super::entity::{
    decode_fields, decode_key, encode_action, encode_count, encode_fields, entity_kind,
    saturating_i32,
};
use super::entity_writer::{
    cell_position, find_counted_table, find_table, no_idle_timeout_failure,
};
use super::error::RequestFailure;
use super::profile::find_profile;
use crate::p4runtime::p4info::{PipelineSchema, ProfileSchema, TableSchema};
use switch::CounterData;
use switch::Device;
use switch::EntryView;
use switch::{ActionCall, KeyField, MatchKey, TableAction};
use switch::{CounterIndex, GroupId};

/// A device with what is needed to read from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntityReader<'a> {
    pub(super) schema: &'a PipelineSchema,
    pub(super) metadata: &'a ControllerMetadata,
    pub(super) device: &'a Device,
}

/// What a query selects.
pub(super) type ReadResult = Result<Vec<p4rt::Entity>, RequestFailure>;

impl<'a> EntityReader<'a> {
    /// Everything that the query selects.
    pub(super) fn read_entity(self, query: &p4rt::Entity) -> ReadResult {
        match &query.entity {
            None => Err(RequestFailure::invalid_argument("the query has no entity")),
            Some(Entity::TableEntry(query)) => self.read_table_entries(query),
            Some(Entity::ActionProfileMember(query)) => self.read_members(query),
            Some(Entity::ActionProfileGroup(query)) => self.read_groups(query),
            Some(Entity::CounterEntry(query)) => self.read_counters(query),
            Some(Entity::DirectCounterEntry(query)) => self.read_direct_counters(query),
            Some(Entity::MeterEntry(query)) => self.read_meters(query),
            Some(Entity::DirectMeterEntry(query)) => self.read_direct_meters(query),
            Some(Entity::RegisterEntry(query)) => self.read_registers(query),
            Some(Entity::PacketReplicationEngineEntry(query)) => self.read_replication(query),
            Some(Entity::DigestEntry(query)) => self.read_digests(query),
            Some(Entity::ValueSetEntry(query)) => self.read_value_sets(query),
            Some(other) => Err(RequestFailure::unimplemented(entity_kind(other))),
        }
    }

    fn read_table_entries(self, query: &p4rt::TableEntry) -> ReadResult {
        if query.meter_counter_data.is_some() {
            return Err(RequestFailure::unimplemented("MeterCounterData"));
        }
        if query.table_id == 0 {
            if is_filtered(query) {
                return Err(RequestFailure::invalid_argument(
                    "a query of all tables takes no other filter",
                ));
            }
            let tables = self.schema.tables.values();
            let answers = tables.map(|table| self.read_entries(table, query));
            return Ok(answers.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let table = find_table(self.schema, query.table_id)?;
        if query.time_since_last_hit.is_some() && !table.notifies_idle {
            return Err(no_idle_timeout_failure(table));
        }
        self.read_entries(table, query)
    }

    fn read_entries(self, table: &TableSchema, query: &p4rt::TableEntry) -> ReadResult {
        if query.is_default_action {
            return Ok(vec![self.read_default_action(table)?]);
        }
        let wanted = query.action.as_ref().and_then(|action| action.r#type.as_ref());
        let action = match wanted {
            None => None,
            Some(TableActionType::Action(action)) => Some(action.action_id),
            Some(_) => return Err(RequestFailure::unimplemented("a query by member or group")),
        };
        #[allow(deprecated)] // Still part of v1.5.
        let cookie = query.controller_metadata;
        let entries = self
            .matching_entries(table, query)?
            .into_iter()
            .filter(|view| action.is_none_or(|id| called_action(table, view.action) == Some(id)))
            .map(|view| (view, self.metadata.entry_metadata(table.index, view.key)))
            .filter(|(_, note)| {
                query.metadata.is_empty() || note.is_some_and(|n| n.metadata == query.metadata)
            })
            .filter(|(_, note)| {
                cookie == 0 || note.is_some_and(|n| n.controller_metadata == cookie)
            })
            .map(|(view, note)| self.encode_entry(table, view, note))
            .map(|entry| p4rt::TableEntry {
                counter_data: entry.counter_data.filter(|_| query.counter_data.is_some()),
                meter_config: entry.meter_config.filter(|_| query.meter_config.is_some()),
                time_since_last_hit: entry
                    .time_since_last_hit
                    .filter(|_| query.time_since_last_hit.is_some()),
                ..entry
            });
        Ok(entries.map(|entry| wrap_entity(Entity::TableEntry(entry))).collect())
    }

    /// The entries that key and priority of a query select: all without a key, else at most one
    /// per priority.
    pub(super) fn matching_entries(
        self,
        table: &TableSchema,
        query: &p4rt::TableEntry,
    ) -> Result<Vec<EntryView<'a>>, RequestFailure> {
        let priority = u32::try_from(query.priority)
            .map_err(|_| RequestFailure::invalid_argument("the priority is negative"))?;
        let entries = self
            .device
            .entries(table.index)?
            .filter(|view| priority == 0 || view.key.priority == priority);
        if query.r#match.is_empty() {
            return Ok(entries.collect());
        }
        let fields: Vec<KeyField> = decode_fields(table, &query.r#match)?;
        if table.takes_priority && priority == 0 {
            return Ok(entries.filter(|view| view.key.fields == fields).collect());
        }
        let key = decode_key(table, &query.r#match, query.priority)?;
        Ok(self.device.entry(table.index, &key).into_iter().collect())
    }

    fn encode_entry(
        self,
        table: &TableSchema,
        view: EntryView<'_>,
        note: Option<&EntryMetadata>,
    ) -> p4rt::TableEntry {
        let one_shot = note.and_then(|note| note.one_shot.as_ref());
        let action = match (view.action, one_shot) {
            (_, Some(one_shot)) => Some(encode_one_shot(table, one_shot)),
            (TableAction::Action(call), None) => {
                encode_action(&table.actions, call).map(TableActionType::Action)
            }
            (TableAction::Member(id), None) => Some(TableActionType::ActionProfileMemberId(*id)),
            (TableAction::Group(id), None) => Some(TableActionType::ActionProfileGroupId(*id)),
        };
        let entry = p4rt::TableEntry {
            r#match: encode_fields(table, view.key),
            priority: saturating_i32(view.key.priority),
            counter_data: table.direct_counter.then(|| encode_count(view.count)),
            meter_config: view.meter.map(encode_rates),
            idle_timeout_ns: i64::try_from(view.idle_timeout).unwrap_or(i64::MAX),
            time_since_last_hit: table.notifies_idle.then(|| self.since_last_hit(view)),
            is_const: table.is_const,
            ..with_action(table, action)
        };
        with_metadata(entry, note)
    }

    fn since_last_hit(self, view: EntryView<'_>) -> p4rt::table_entry::IdleTimeout {
        let elapsed = self.device.now().saturating_sub(view.last_hit);
        let elapsed_ns = i64::try_from(elapsed).unwrap_or(i64::MAX);
        p4rt::table_entry::IdleTimeout { elapsed_ns }
    }

    /// An entry as an idle timeout notification carries it: key, metadata and timeout.
    pub(super) fn idle_entry(
        self,
        table: &TableSchema,
        key: &MatchKey,
    ) -> Option<p4rt::TableEntry> {
        let view = self.device.entry(table.index, key).ok()?;
        let entry = p4rt::TableEntry {
            idle_timeout_ns: i64::try_from(view.idle_timeout).unwrap_or(i64::MAX),
            ..key_entry(table, key)
        };
        Some(with_metadata(entry, self.metadata.entry_metadata(table.index, key)))
    }

    /// The default action as an entry; a table that does nothing on a miss has that of its P4Info.
    /// Without either, as where actions are in a profile, the entry has no action: as bmv2 has it.
    fn read_default_action(self, table: &TableSchema) -> Result<p4rt::Entity, RequestFailure> {
        let call = self.device.default_action(table.index)?;
        let action = call.and_then(|call| encode_action(&table.actions, call)).or_else(|| {
            let action_id = table.const_default?;
            Some(p4rt::Action { action_id, params: Vec::new() })
        });
        let entry = p4rt::TableEntry {
            is_default_action: true,
            ..with_action(table, action.map(TableActionType::Action))
        };
        let note = self.metadata.default_metadata(table.index);
        Ok(wrap_entity(Entity::TableEntry(with_metadata(entry, note))))
    }

    fn read_direct_counters(self, query: &p4rt::DirectCounterEntry) -> ReadResult {
        let entry = query.table_entry.as_ref();
        let entry =
            entry.ok_or_else(|| RequestFailure::invalid_argument("the table entry is missing"))?;
        if entry.is_default_action {
            return Err(RequestFailure::unimplemented("the direct counter of a default action"));
        }
        let tables: Vec<&TableSchema> = if entry.table_id == 0 {
            self.schema.tables.values().filter(|table| table.direct_counter).collect()
        } else {
            vec![find_counted_table(self.schema, entry.table_id)?]
        };
        let mut found = Vec::new();
        for table in tables {
            let views = self.matching_entries(table, entry)?;
            found.extend(
                views.into_iter().map(|view| direct_counter_entity(table, view.key, view.count)),
            );
        }
        if found.is_empty() && !entry.r#match.is_empty() {
            return Err(RequestFailure::not_found("there is no such entry"));
        }
        Ok(found)
    }

    fn read_counters(self, query: &p4rt::CounterEntry) -> ReadResult {
        let id = query.counter_id;
        if id != 0 {
            let Some(&index) = self.schema.counters.get(&id) else {
                let message = format!("there is no counter {id}");
                return Err(RequestFailure::invalid_argument(message));
            };
            return self.read_counter_cells(id, index, query);
        }
        if query.index.is_some() {
            return Err(RequestFailure::invalid_argument("an index needs a counter"));
        }
        let mut found = Vec::new();
        for (&id, &index) in &self.schema.counters {
            found.extend(self.read_counter_cells(id, index, query)?);
        }
        Ok(found)
    }

    fn read_counter_cells(
        self,
        id: u32,
        index: CounterIndex,
        query: &p4rt::CounterEntry,
    ) -> ReadResult {
        let cells = self.device.counter_cells(index)?;
        let selected = match &query.index {
            None => 0..cells.len(),
            Some(at) => match cell_position(at)? {
                cell if cell < cells.len() => cell..cell + 1,
                cell => {
                    let message = format!("cell {cell} is beyond the counter's {}", cells.len());
                    return Err(RequestFailure::out_of_range(message));
                }
            },
        };
        Ok(selected
            .map(|cell| {
                let index = Some(p4rt::Index { index: i64::try_from(cell).unwrap_or(i64::MAX) });
                let data = Some(encode_count(cells[cell]));
                let entry = p4rt::CounterEntry { counter_id: id, index, data };
                wrap_entity(Entity::CounterEntry(entry))
            })
            .collect())
    }

    fn read_members(self, query: &p4rt::ActionProfileMember) -> ReadResult {
        let mut found = Vec::new();
        for profile in self.selected_profiles(query.action_profile_id)? {
            let table = find_table(self.schema, profile.table)?;
            let wanted: Vec<_> = match query.member_id {
                0 => self.device.members(profile.index)?.collect(),
                id => self
                    .device
                    .member(profile.index, id)
                    .map(|call| (id, call))
                    .into_iter()
                    .collect(),
            };
            found.extend(wanted.into_iter().map(|(member_id, call)| {
                let action = encode_action(&table.actions, call);
                let action_profile_id = profile.id;
                wrap_entity(Entity::ActionProfileMember(p4rt::ActionProfileMember {
                    action_profile_id,
                    member_id,
                    action,
                }))
            }));
        }
        Ok(found)
    }

    fn read_groups(self, query: &p4rt::ActionProfileGroup) -> ReadResult {
        let profiles = self.selected_profiles(query.action_profile_id)?;
        let ids = match query.group_id {
            0 => 0..=GroupId::MAX,
            id => id..=id,
        };
        let written = profiles.into_iter().flat_map(|profile| {
            let places = (profile.index, *ids.start())..=(profile.index, *ids.end());
            self.metadata.groups.range(places)
        });
        let found =
            written.map(|(_, group)| wrap_entity(Entity::ActionProfileGroup(group.clone())));
        Ok(found.collect())
    }

    /// The profiles that an id selects, less those whose members and groups belong to one-shots.
    fn selected_profiles(self, id: u32) -> Result<Vec<&'a ProfileSchema>, RequestFailure> {
        let profiles: Vec<_> = match id {
            0 => self.schema.profiles.values().collect(),
            id => vec![find_profile(self.schema, id)?],
        };
        Ok(profiles
            .into_iter()
            .filter(|profile| !self.metadata.has_one_shots(profile.index))
            .collect())
    }

    /// The updates that give an empty device of this pipeline the same state, in an order in which
    /// each finds what it refers to.
    pub(super) fn state_updates(self) -> Result<Vec<p4rt::Update>, RequestFailure> {
        let mut updates = Vec::new();
        let inserts = [
            Entity::PacketReplicationEngineEntry(p4rt::PacketReplicationEngineEntry::default()),
            Entity::DigestEntry(p4rt::DigestEntry::default()),
            Entity::ActionProfileMember(p4rt::ActionProfileMember::default()),
            Entity::ActionProfileGroup(p4rt::ActionProfileGroup::default()),
            Entity::TableEntry(p4rt::TableEntry {
                counter_data: Some(p4rt::CounterData::default()),
                meter_config: Some(p4rt::MeterConfig::default()),
                ..p4rt::TableEntry::default()
            }),
        ];
        for query in inserts {
            let found =
                self.read_entity(&wrap_entity(query))?.into_iter().filter(|found| !is_const(found));
            updates.extend(found.map(|found| wrap_update(p4rt::update::Type::Insert, found)));
        }
        for table in self.schema.tables.values() {
            if self.metadata.default_metadata(table.index).is_some() {
                let found = self.read_default_action(table)?;
                updates.push(wrap_update(p4rt::update::Type::Modify, found));
            }
        }
        let modifies = [
            Entity::CounterEntry(p4rt::CounterEntry::default()),
            Entity::MeterEntry(p4rt::MeterEntry::default()),
            Entity::RegisterEntry(p4rt::RegisterEntry::default()),
            Entity::ValueSetEntry(p4rt::ValueSetEntry::default()),
        ];
        for query in modifies {
            let found = self.read_entity(&wrap_entity(query))?.into_iter();
            let changed = found.filter(|found| !is_initial(found));
            updates.extend(changed.map(|found| wrap_update(p4rt::update::Type::Modify, found)));
        }
        Ok(updates)
    }
}

/// Wraps one kind of entity as the wire does.
pub(super) fn wrap_entity(entity: Entity) -> p4rt::Entity {
    p4rt::Entity { entity: Some(entity) }
}

fn wrap_update(kind: p4rt::update::Type, entity: p4rt::Entity) -> p4rt::Update {
    p4rt::Update { r#type: kind as i32, entity: Some(entity) }
}

fn is_const(found: &p4rt::Entity) -> bool {
    matches!(&found.entity, Some(Entity::TableEntry(entry)) if entry.is_const)
}

/// Whether an array's cell or a value set is as a new device has it.
fn is_initial(found: &p4rt::Entity) -> bool {
    match &found.entity {
        Some(Entity::CounterEntry(counter)) => counter.data == Some(p4rt::CounterData::default()),
        Some(Entity::MeterEntry(meter)) => meter.config.is_none(),
        Some(Entity::RegisterEntry(register)) => {
            let zero = p4rt::p4_data::Data::Bitstring(super::bytestring::encode_bytestring(0));
            register.data.as_ref().and_then(|data| data.data.as_ref()) == Some(&zero)
        }
        Some(Entity::ValueSetEntry(set)) => set.members.is_empty(),
        _ => false,
    }
}

fn is_filtered(query: &p4rt::TableEntry) -> bool {
    #[allow(deprecated)] // Still part of v1.5.
    let cookie = query.controller_metadata;
    !query.r#match.is_empty()
        || query.priority != 0
        || query.action.is_some()
        || !query.metadata.is_empty()
        || cookie != 0
}

/// The P4Info id of the action that a direct target calls.
fn called_action(table: &TableSchema, target: &TableAction) -> Option<u32> {
    match target {
        TableAction::Action(ActionCall { action, .. }) => {
            table.actions.by_index.get(action).copied()
        }
        TableAction::Member(_) | TableAction::Group(_) => None,
    }
}

fn with_action(table: &TableSchema, action: Option<TableActionType>) -> p4rt::TableEntry {
    p4rt::TableEntry {
        table_id: table.id,
        action: action.map(|action| p4rt::TableAction { r#type: Some(action) }),
        ..p4rt::TableEntry::default()
    }
}

fn with_metadata(mut entry: p4rt::TableEntry, note: Option<&EntryMetadata>) -> p4rt::TableEntry {
    if let Some(note) = note {
        entry.metadata.clone_from(&note.metadata);
        #[allow(deprecated)] // Still part of v1.5.
        let cookie = &mut entry.controller_metadata;
        *cookie = note.controller_metadata;
    }
    entry
}

fn encode_one_shot(table: &TableSchema, one_shot: &OneShot) -> TableActionType {
    let choices = one_shot.actions.iter().map(|choice| p4rt::ActionProfileAction {
        action: encode_action(&table.actions, &choice.call),
        weight: saturating_i32(choice.weight),
        watch_kind: choice.watch.clone(),
    });
    TableActionType::ActionProfileActionSet(p4rt::ActionProfileActionSet {
        action_profile_actions: choices.collect(),
        action_selection_mode: one_shot.selection_mode,
        size_semantics: one_shot.size_semantics,
    })
}

/// An entry with nothing but its key.
pub(super) fn key_entry(table: &TableSchema, key: &MatchKey) -> p4rt::TableEntry {
    p4rt::TableEntry {
        r#match: encode_fields(table, key),
        priority: saturating_i32(key.priority),
        ..with_action(table, None)
    }
}

fn direct_counter_entity(table: &TableSchema, key: &MatchKey, count: CounterData) -> p4rt::Entity {
    wrap_entity(Entity::DirectCounterEntry(p4rt::DirectCounterEntry {
        table_entry: Some(key_entry(table, key)),
        data: Some(encode_count(count)),
    }))
}
