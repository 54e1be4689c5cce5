//! One query: what `Read` answers, entity by entity, and the whole state of a pipeline.
//!
//! A query is a pipeline of filters over what the device holds, in the device's order, so reading
//! never depends on the history of writes. What was written comes back in canonical form.

use p4rt::entity::Entity;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::v1 as p4rt;

use super::arrays::encode_rates;
use super::entity::{
    decode_fields, decode_key, encode_action, encode_count, encode_fields, kind_of, saturated,
};
use super::error::Failure;
use super::ledger::{Ledger, Note, OneShot};
use super::profile::profile_of;
use super::write::{cell_of, no_idle_timeout, table_of, table_with_counter};
use crate::control::{ActionCall, KeyField, MatchKey, Target};
use crate::counter::Count;
use crate::device::Device;
use crate::p4info::{ProfileSchema, Schema, TableSchema};
use crate::program::CounterIndex;
use crate::table::EntryView;

/// A device with what is needed to read from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) schema: &'a Schema,
    pub(super) ledger: &'a Ledger,
    pub(super) device: &'a Device,
}

/// What a query selects.
pub(super) type Entities = Result<Vec<p4rt::Entity>, Failure>;

impl<'a> Reader<'a> {
    /// Everything that the query selects.
    pub(super) fn read(self, query: &p4rt::Entity) -> Entities {
        match &query.entity {
            None => Err(Failure::invalid("the query has no entity")),
            Some(Entity::TableEntry(query)) => self.table_entries(query),
            Some(Entity::ActionProfileMember(query)) => self.members(query),
            Some(Entity::ActionProfileGroup(query)) => self.groups(query),
            Some(Entity::CounterEntry(query)) => self.counters(query),
            Some(Entity::DirectCounterEntry(query)) => self.direct_counters(query),
            Some(Entity::MeterEntry(query)) => self.meters(query),
            Some(Entity::DirectMeterEntry(query)) => self.direct_meters(query),
            Some(Entity::RegisterEntry(query)) => self.registers(query),
            Some(Entity::PacketReplicationEngineEntry(query)) => self.replication(query),
            Some(Entity::DigestEntry(query)) => self.digests(query),
            Some(Entity::ValueSetEntry(query)) => self.value_sets(query),
            Some(other) => Err(Failure::unimplemented(kind_of(other))),
        }
    }

    fn table_entries(self, query: &p4rt::TableEntry) -> Entities {
        if query.meter_counter_data.is_some() {
            return Err(Failure::unimplemented("MeterCounterData"));
        }
        if query.table_id == 0 {
            if is_filtered(query) {
                return Err(Failure::invalid(
                    "a query of all tables takes no other filter",
                ));
            }
            let tables = self.schema.tables.values();
            let answers = tables.map(|table| self.entries_of(table, query));
            return Ok(answers.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let table = table_of(self.schema, query.table_id)?;
        if query.time_since_last_hit.is_some() && !table.notifies_idle {
            return Err(no_idle_timeout(table));
        }
        self.entries_of(table, query)
    }

    fn entries_of(self, table: &TableSchema, query: &p4rt::TableEntry) -> Entities {
        if query.is_default_action {
            return Ok(self.default_action(table)?.into_iter().collect());
        }
        let wanted = query
            .action
            .as_ref()
            .and_then(|action| action.r#type.as_ref());
        let action = match wanted {
            None => None,
            Some(TableActionType::Action(action)) => Some(action.action_id),
            Some(_) => return Err(Failure::unimplemented("a query by member or group")),
        };
        #[allow(deprecated)] // Still part of v1.5.
        let cookie = query.controller_metadata;
        let entries = self.views(table, query)?;
        let entries = entries
            .into_iter()
            .filter(|view| action.is_none_or(|id| calls(table, view.target) == Some(id)))
            .map(|view| (view, self.ledger.entry(table.index, view.key)))
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
        Ok(entries
            .map(|entry| entity(Entity::TableEntry(entry)))
            .collect())
    }

    /// The entries that key and priority of a query select: all without a key, else at most one
    /// per priority.
    pub(super) fn views(
        self,
        table: &TableSchema,
        query: &p4rt::TableEntry,
    ) -> Result<Vec<EntryView<'a>>, Failure> {
        let priority = u32::try_from(query.priority)
            .map_err(|_| Failure::invalid("the priority is negative"))?;
        let at_priority = |view: &EntryView<'_>| priority == 0 || view.key.priority == priority;
        let entries = self.device.entries(table.index)?.filter(at_priority);
        if query.r#match.is_empty() {
            return Ok(entries.collect());
        }
        let fields: Vec<KeyField> = decode_fields(table, &query.r#match)?;
        if table.takes_priority && priority == 0 {
            return Ok(entries.filter(|view| view.key.fields == fields).collect());
        }
        let key = decode_key(table, &query.r#match, query.priority)?;
        Ok(self.device.get(table.index, &key).into_iter().collect())
    }

    fn encode_entry(
        self,
        table: &TableSchema,
        view: EntryView<'_>,
        note: Option<&Note>,
    ) -> p4rt::TableEntry {
        let one_shot = note.and_then(|note| note.one_shot.as_ref());
        let action = match (view.target, one_shot) {
            (_, Some(one_shot)) => Some(encode_one_shot(table, one_shot)),
            (Target::Action(call), None) => {
                encode_action(&table.actions, call).map(TableActionType::Action)
            }
            (Target::Member(id), None) => Some(TableActionType::ActionProfileMemberId(*id)),
            (Target::Group(id), None) => Some(TableActionType::ActionProfileGroupId(*id)),
        };
        let entry = p4rt::TableEntry {
            r#match: encode_fields(table, view.key),
            priority: saturated(view.key.priority),
            counter_data: table.direct_counter.then(|| encode_count(view.count)),
            meter_config: view.meter.map(encode_rates),
            idle_timeout_ns: i64::try_from(view.idle_timeout).unwrap_or(i64::MAX),
            time_since_last_hit: table.notifies_idle.then(|| self.since_last_hit(view)),
            is_const: table.is_const,
            ..with_action(table, action)
        };
        noted(entry, note)
    }

    fn since_last_hit(self, view: EntryView<'_>) -> p4rt::table_entry::IdleTimeout {
        let elapsed = self.device.now().saturating_sub(view.last_hit);
        let elapsed_ns = i64::try_from(elapsed).unwrap_or(i64::MAX);
        p4rt::table_entry::IdleTimeout { elapsed_ns }
    }

    /// An entry as an idle timeout tells of it: key, metadata and timeout.
    pub(super) fn idle_entry(
        self,
        table: &TableSchema,
        key: &MatchKey,
    ) -> Option<p4rt::TableEntry> {
        let view = self.device.get(table.index, key).ok()?;
        let entry = p4rt::TableEntry {
            idle_timeout_ns: i64::try_from(view.idle_timeout).unwrap_or(i64::MAX),
            ..key_entry(table, key)
        };
        Some(noted(entry, self.ledger.entry(table.index, key)))
    }

    /// The default action as an entry; a table that does nothing on a miss has that of its P4Info.
    fn default_action(self, table: &TableSchema) -> Result<Option<p4rt::Entity>, Failure> {
        let call = self.device.default_action(table.index)?;
        let action = call
            .and_then(|call| encode_action(&table.actions, call))
            .or_else(|| {
                let action_id = table.const_default?;
                Some(p4rt::Action {
                    action_id,
                    params: Vec::new(),
                })
            });
        Ok(action.map(|action| {
            let entry = p4rt::TableEntry {
                is_default_action: true,
                ..with_action(table, Some(TableActionType::Action(action)))
            };
            let note = self.ledger.default_action(table.index);
            entity(Entity::TableEntry(noted(entry, note)))
        }))
    }

    fn direct_counters(self, query: &p4rt::DirectCounterEntry) -> Entities {
        let entry = query.table_entry.as_ref();
        let entry = entry.ok_or_else(|| Failure::invalid("the table entry is missing"))?;
        if entry.is_default_action {
            return Err(Failure::unimplemented(
                "the direct counter of a default action",
            ));
        }
        let tables: Vec<&TableSchema> = if entry.table_id == 0 {
            self.schema
                .tables
                .values()
                .filter(|table| table.direct_counter)
                .collect()
        } else {
            vec![table_with_counter(self.schema, entry.table_id)?]
        };
        let mut found = Vec::new();
        for table in tables {
            let views = self.views(table, entry)?;
            found.extend(
                views
                    .into_iter()
                    .map(|view| direct_counter(table, view.key, view.count)),
            );
        }
        if found.is_empty() && !entry.r#match.is_empty() {
            return Err(Failure::not_found("there is no such entry"));
        }
        Ok(found)
    }

    fn counters(self, query: &p4rt::CounterEntry) -> Entities {
        let of = |(&id, &index): (&u32, &CounterIndex)| self.cells(id, index, query);
        if query.counter_id == 0 {
            if query.index.is_some() {
                return Err(Failure::invalid("an index needs a counter"));
            }
            return Ok(self
                .schema
                .counters
                .iter()
                .map(of)
                .collect::<Result<Vec<_>, _>>()?
                .concat());
        }
        let found = self.schema.counters.get_key_value(&query.counter_id);
        let unknown = || Failure::invalid(format!("there is no counter {}", query.counter_id));
        found.ok_or_else(unknown).and_then(of)
    }

    fn cells(self, id: u32, index: CounterIndex, query: &p4rt::CounterEntry) -> Entities {
        let cells = self.device.counter(index)?;
        let encode = |(cell, count): (usize, &Count)| {
            let index = Some(p4rt::Index {
                index: i64::try_from(cell).unwrap_or(i64::MAX),
            });
            let data = Some(encode_count(*count));
            entity(Entity::CounterEntry(p4rt::CounterEntry {
                counter_id: id,
                index,
                data,
            }))
        };
        let Some(at) = &query.index else {
            return Ok(cells.iter().enumerate().map(encode).collect());
        };
        let cell = cell_of(at)?;
        let count = cells.get(cell).ok_or_else(|| {
            Failure::out_of_range(format!(
                "cell {cell} is beyond the counter's {}",
                cells.len()
            ))
        })?;
        Ok(vec![encode((cell, count))])
    }

    fn members(self, query: &p4rt::ActionProfileMember) -> Entities {
        let mut found = Vec::new();
        for profile in self.profiles(query.action_profile_id)? {
            let table = table_of(self.schema, profile.table)?;
            let members = self.device.members(profile.index)?;
            let wanted = members.filter(|&(id, _)| query.member_id == 0 || id == query.member_id);
            found.extend(wanted.map(|(member_id, call)| {
                let action = encode_action(&table.actions, call);
                let action_profile_id = profile.id;
                entity(Entity::ActionProfileMember(p4rt::ActionProfileMember {
                    action_profile_id,
                    member_id,
                    action,
                }))
            }));
        }
        Ok(found)
    }

    fn groups(self, query: &p4rt::ActionProfileGroup) -> Entities {
        let profiles = self.profiles(query.action_profile_id)?;
        let written = self.ledger.groups.iter();
        let found = written
            .filter(|((index, _), _)| profiles.iter().any(|profile| profile.index == *index))
            .filter(|((_, id), _)| query.group_id == 0 || *id == query.group_id)
            .map(|(_, group)| entity(Entity::ActionProfileGroup(group.clone())));
        Ok(found.collect())
    }

    /// The profiles that an id selects, less those whose members and groups belong to one-shots.
    fn profiles(self, id: u32) -> Result<Vec<&'a ProfileSchema>, Failure> {
        let profiles: Vec<_> = match id {
            0 => self.schema.profiles.values().collect(),
            id => vec![profile_of(self.schema, id)?],
        };
        let is_plain = |profile: &&ProfileSchema| !self.ledger.has_one_shots(profile.index);
        Ok(profiles.into_iter().filter(is_plain).collect())
    }

    /// The updates that give an empty device of this pipeline the same state, in an order in which
    /// each finds what it refers to.
    pub(super) fn snapshot(self) -> Result<Vec<p4rt::Update>, Failure> {
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
            let found = self
                .read(&entity(query))?
                .into_iter()
                .filter(|found| !is_const(found));
            updates.extend(found.map(|found| update(p4rt::update::Type::Insert, found)));
        }
        for table in self.schema.tables.values() {
            if self.ledger.default_action(table.index).is_some() {
                let found = self.default_action(table)?;
                updates.extend(found.map(|found| update(p4rt::update::Type::Modify, found)));
            }
        }
        let modifies = [
            Entity::CounterEntry(p4rt::CounterEntry::default()),
            Entity::MeterEntry(p4rt::MeterEntry::default()),
            Entity::RegisterEntry(p4rt::RegisterEntry::default()),
            Entity::ValueSetEntry(p4rt::ValueSetEntry::default()),
        ];
        for query in modifies {
            let found = self.read(&entity(query))?.into_iter();
            let changed = found.filter(|found| !is_initial(found));
            updates.extend(changed.map(|found| update(p4rt::update::Type::Modify, found)));
        }
        Ok(updates)
    }
}

/// Wraps one kind of entity as the wire does.
pub(super) fn entity(entity: Entity) -> p4rt::Entity {
    p4rt::Entity {
        entity: Some(entity),
    }
}

fn update(kind: p4rt::update::Type, entity: p4rt::Entity) -> p4rt::Update {
    p4rt::Update {
        r#type: kind as i32,
        entity: Some(entity),
    }
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
            let zero = p4rt::p4_data::Data::Bitstring(super::bytestring::encode(0));
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
fn calls(table: &TableSchema, target: &Target) -> Option<u32> {
    match target {
        Target::Action(ActionCall { action, .. }) => table.actions.by_index.get(action).copied(),
        Target::Member(_) | Target::Group(_) => None,
    }
}

fn with_action(table: &TableSchema, action: Option<TableActionType>) -> p4rt::TableEntry {
    p4rt::TableEntry {
        table_id: table.id,
        action: action.map(|action| p4rt::TableAction {
            r#type: Some(action),
        }),
        ..p4rt::TableEntry::default()
    }
}

fn noted(mut entry: p4rt::TableEntry, note: Option<&Note>) -> p4rt::TableEntry {
    if let Some(note) = note {
        entry.metadata.clone_from(&note.metadata);
        #[allow(deprecated)] // Still part of v1.5.
        let cookie = &mut entry.controller_metadata;
        *cookie = note.controller_metadata;
    }
    entry
}

fn encode_one_shot(table: &TableSchema, one_shot: &OneShot) -> TableActionType {
    let choices = one_shot
        .choices
        .iter()
        .map(|choice| p4rt::ActionProfileAction {
            action: encode_action(&table.actions, &choice.call),
            weight: saturated(choice.weight),
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
        priority: saturated(key.priority),
        ..with_action(table, None)
    }
}

fn direct_counter(table: &TableSchema, key: &MatchKey, count: Count) -> p4rt::Entity {
    entity(Entity::DirectCounterEntry(p4rt::DirectCounterEntry {
        table_entry: Some(key_entry(table, key)),
        data: Some(encode_count(count)),
    }))
}
