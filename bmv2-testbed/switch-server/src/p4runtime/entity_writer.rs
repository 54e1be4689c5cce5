//! One update: what `Write` does to the device, entity by entity.
//!
//! [`EntityWriter::apply`] either carries an update out or leaves everything as it was. Tables and
//! counters are here, action profiles in [`profile_spec`](super::profile_spec).

use p4rt::entity::Entity;
use p4rt::table_action::Type as TableActionType;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::arrays::decode_rates;
use super::controller_metadata::{ControllerMetadata, EntryMetadata};
use super::entity::{ActionUse, decode_action, decode_count, decode_key, entity_kind};
use super::error::RequestFailure;
use crate::p4runtime::p4info::{PipelineSchema, TableSchema};
use switch::Device;
use switch::MeterConfig;
use switch::Nanos;
use switch::{MatchKey, TableAction};

/// A device with what is needed to write to it.
#[derive(Debug)]
pub(super) struct EntityWriter<'a> {
    pub(super) schema: &'a PipelineSchema,
    pub(super) metadata: &'a mut ControllerMetadata,
    pub(super) device: &'a mut Device,
}

impl EntityWriter<'_> {
    /// Carries out one update.
    pub(super) fn apply_update(&mut self, update: &p4rt::Update) -> Result<(), RequestFailure> {
        let kind = update.r#type();
        if kind == Kind::Unspecified {
            return Err(RequestFailure::invalid_argument("the update has no type"));
        }
        match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
            None => Err(RequestFailure::invalid_argument("the update has no entity")),
            Some(Entity::TableEntry(entry)) => self.write_table_entry(kind, entry),
            Some(Entity::ActionProfileMember(member)) => self.write_member(kind, member),
            Some(Entity::ActionProfileGroup(group)) => self.write_group(kind, group),
            Some(Entity::CounterEntry(counter)) => self.write_counter(kind, counter),
            Some(Entity::DirectCounterEntry(counter)) => self.write_direct_counter(kind, counter),
            Some(Entity::MeterEntry(meter)) => self.write_meter(kind, meter),
            Some(Entity::DirectMeterEntry(meter)) => self.write_direct_meter(kind, meter),
            Some(Entity::RegisterEntry(register)) => self.write_register(kind, register),
            Some(Entity::PacketReplicationEngineEntry(entry)) => {
                self.write_replication(kind, entry)
            }
            Some(Entity::DigestEntry(digest)) => self.write_digest(kind, digest),
            Some(Entity::ValueSetEntry(set)) => self.write_value_set(kind, set),
            Some(other) => Err(RequestFailure::unimplemented(entity_kind(other))),
        }
    }

    fn write_table_entry(
        &mut self,
        kind: Kind,
        entry: &p4rt::TableEntry,
    ) -> Result<(), RequestFailure> {
        let table = find_table(self.schema, entry.table_id)?;
        if entry.is_const {
            return Err(RequestFailure::invalid_argument("an entry cannot be written as const"));
        }
        if kind != Kind::Delete {
            check_features(table, entry)?;
        }
        if entry.is_default_action {
            return self.write_default_action(kind, table, entry);
        }
        if table.fields.is_empty() {
            let message = format!("table {} has no key, so it has no entries", table.name);
            return Err(RequestFailure::invalid_argument(message));
        }
        if table.is_const && (kind != Kind::Modify || entry.action.is_some()) {
            let message = format!("the entries of table {} are constant", table.name);
            return Err(RequestFailure::new(Code::PermissionDenied, message));
        }
        let key = decode_key(table, &entry.r#match, entry.priority)?;
        match kind {
            Kind::Insert => self.insert_entry(table, &key, entry),
            Kind::Modify => self.modify_entry(table, &key, entry),
            _ => self.delete_entry(table, &key),
        }
    }

    fn insert_entry(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        entry: &p4rt::TableEntry,
    ) -> Result<(), RequestFailure> {
        let count = entry.counter_data.as_ref().map(decode_count).transpose()?;
        let features = EntryFeatures::from_entry(entry)?;
        let mut note = EntryMetadata::from_entry(entry);
        match entry_action(entry)? {
            TableActionType::ActionProfileActionSet(set) => {
                note.one_shot = Some(self.insert_one_shot(table, key, set)?);
            }
            action => {
                let target = self.decode_target(table, action)?;
                self.device.insert_entry(table.index, key.clone(), target)?;
            }
        }
        if let Some(count) = count {
            self.device.set_direct_count(table.index, key, count)?;
        }
        self.set_features(table, key, &features)?;
        self.metadata.set_entry_metadata(table.index, key, note);
        Ok(())
    }

    /// An update without an action changes at most the counter.
    fn modify_entry(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        entry: &p4rt::TableEntry,
    ) -> Result<(), RequestFailure> {
        let count = entry.counter_data.as_ref().map(decode_count).transpose()?;
        let features = EntryFeatures::from_entry(entry)?;
        if entry.action.is_none() {
            self.device.entry(table.index, key)?;
        } else {
            let mut note = EntryMetadata::from_entry(entry);
            match entry_action(entry)? {
                TableActionType::ActionProfileActionSet(set) => {
                    self.device.entry(table.index, key)?;
                    note.one_shot = Some(self.modify_one_shot(table, key, set)?);
                }
                action => {
                    let target = self.decode_target(table, action)?;
                    self.device.modify_entry(table.index, key, target)?;
                }
            }
            self.metadata.set_entry_metadata(table.index, key, note);
            self.set_features(table, key, &features)?;
        }
        if let Some(count) = count {
            self.device.set_direct_count(table.index, key, count)?;
        }
        Ok(())
    }

    /// Meter and idle timeout: an absent one is removed.
    fn set_features(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        features: &EntryFeatures,
    ) -> Result<(), RequestFailure> {
        if table.direct_meter {
            self.device.set_direct_meter(table.index, key, features.rates)?;
        }
        if table.notifies_idle {
            self.device.set_idle_timeout(table.index, key, features.idle_timeout)?;
        }
        Ok(())
    }

    fn delete_entry(&mut self, table: &TableSchema, key: &MatchKey) -> Result<(), RequestFailure> {
        self.device.delete_entry(table.index, key)?;
        let note = self.metadata.remove_entry_metadata(table.index, key);
        match note.and_then(|note| note.one_shot) {
            Some(one_shot) => self.delete_one_shot(&one_shot),
            None => Ok(()),
        }
    }

    /// What an entry leads to, for every form of action but the one-shot.
    fn decode_target(
        &self,
        table: &TableSchema,
        action: &TableActionType,
    ) -> Result<TableAction, RequestFailure> {
        let profile = table.profile.and_then(|profile| self.schema.profiles.get(&profile));
        match (action, profile) {
            (TableActionType::Action(action), None) => {
                Ok(TableAction::Action(decode_action(&table.actions, action, ActionUse::Entry)?))
            }
            (TableActionType::ActionProfileMemberId(id), Some(profile)) => {
                self.check_programming_style(profile)?;
                Ok(TableAction::Member(*id))
            }
            (TableActionType::ActionProfileGroupId(id), Some(profile)) if profile.with_selector => {
                self.check_programming_style(profile)?;
                Ok(TableAction::Group(*id))
            }
            (_, None) => {
                Err(RequestFailure::invalid_argument(format!("table {} takes actions", table.name)))
            }
            (_, Some(profile)) => {
                let message = format!("table {} takes what {} offers", table.name, profile.name);
                Err(RequestFailure::invalid_argument(message))
            }
        }
    }

    fn write_default_action(
        &mut self,
        kind: Kind,
        table: &TableSchema,
        entry: &p4rt::TableEntry,
    ) -> Result<(), RequestFailure> {
        if kind != Kind::Modify {
            return Err(RequestFailure::invalid_argument("a default action can only be modified"));
        }
        if !entry.r#match.is_empty() || entry.priority != 0 {
            return Err(RequestFailure::invalid_argument(
                "a default action has neither key nor priority",
            ));
        }
        refuse_default_features(entry)?;
        if table.const_default.is_some() || table.profile.is_some() {
            let message = format!("the default action of table {} is constant", table.name);
            return Err(RequestFailure::new(Code::PermissionDenied, message));
        }
        if entry.action.is_none() {
            self.device.reset_default_action(table.index)?;
            self.metadata.remove_default_metadata(table.index);
            return Ok(());
        }
        let TableActionType::Action(action) = entry_action(entry)? else {
            return Err(RequestFailure::invalid_argument(format!(
                "table {} takes actions",
                table.name
            )));
        };
        let call = decode_action(&table.actions, action, ActionUse::Default)?;
        self.device.set_default_action(table.index, call)?;
        self.metadata.set_default_metadata(table.index, EntryMetadata::from_entry(entry));
        Ok(())
    }

    fn write_counter(
        &mut self,
        kind: Kind,
        counter: &p4rt::CounterEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "CounterEntry")?;
        let id = counter.counter_id;
        let index = self.schema.counters.get(&id);
        let &index = index
            .ok_or_else(|| RequestFailure::invalid_argument(format!("there is no counter {id}")))?;
        let cells = match &counter.index {
            Some(at) => {
                let cell = cell_position(at)?;
                cell..cell.saturating_add(1)
            }
            None => 0..self.device.counter_cells(index)?.len(),
        };
        let size = self.device.counter_cells(index)?.len();
        if cells.end > size {
            let message = format!("cell {} is beyond the counter's size {size}", cells.start);
            return Err(RequestFailure::out_of_range(message));
        }
        let Some(data) = &counter.data else {
            return Ok(());
        };
        let count = decode_count(data)?;
        for cell in cells {
            self.device.set_counter(index, cell, count)?;
        }
        Ok(())
    }

    fn write_direct_counter(
        &mut self,
        kind: Kind,
        counter: &p4rt::DirectCounterEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "DirectCounterEntry")?;
        let entry = counter.table_entry.as_ref();
        let entry =
            entry.ok_or_else(|| RequestFailure::invalid_argument("the table entry is missing"))?;
        let table = find_counted_table(self.schema, entry.table_id)?;
        if entry.is_default_action {
            return Err(RequestFailure::unimplemented("the direct counter of a default action"));
        }
        let key = decode_key(table, &entry.r#match, entry.priority)?;
        self.device.entry(table.index, &key)?;
        if let Some(data) = &counter.data {
            self.device.set_direct_count(table.index, &key, decode_count(data)?)?;
        }
        Ok(())
    }
}

/// The table with this id.
pub(super) fn find_table(schema: &PipelineSchema, id: u32) -> Result<&TableSchema, RequestFailure> {
    schema.tables.get(&id).ok_or_else(|| schema.unknown_id("table", id))
}

/// The table with this id, if its entries are counted.
pub(super) fn find_counted_table(
    schema: &PipelineSchema,
    id: u32,
) -> Result<&TableSchema, RequestFailure> {
    let table = find_table(schema, id)?;
    if table.direct_counter {
        return Ok(table);
    }
    Err(RequestFailure::invalid_argument(format!("table {} has no direct counter", table.name)))
}

/// The cell that an index names.
pub(super) fn cell_position(index: &p4rt::Index) -> Result<usize, RequestFailure> {
    usize::try_from(index.index)
        .map_err(|_| RequestFailure::invalid_argument("the index is negative"))
}

/// Refuses features of a table entry beyond key, action and counter that its table lacks.
fn check_features(table: &TableSchema, entry: &p4rt::TableEntry) -> Result<(), RequestFailure> {
    if entry.meter_counter_data.is_some() {
        return Err(RequestFailure::unimplemented("MeterCounterData"));
    }
    if entry.meter_config.is_some() && !table.direct_meter {
        let message = format!("table {} has no direct meter", table.name);
        return Err(RequestFailure::invalid_argument(message));
    }
    if entry.time_since_last_hit.is_some() {
        return Err(RequestFailure::invalid_argument("time_since_last_hit cannot be written"));
    }
    if entry.idle_timeout_ns != 0 && !table.notifies_idle {
        return Err(no_idle_timeout_failure(table));
    }
    if entry.counter_data.is_some() && !table.direct_counter {
        return Err(RequestFailure::invalid_argument(format!(
            "table {} has no direct counter",
            table.name
        )));
    }
    Ok(())
}

/// Refuses what only entries with a key have.
fn refuse_default_features(entry: &p4rt::TableEntry) -> Result<(), RequestFailure> {
    let feature = if entry.counter_data.is_some() {
        "the direct counter of a default action"
    } else if entry.meter_config.is_some() {
        "the direct meter of a default action"
    } else if entry.idle_timeout_ns != 0 {
        "the idle timeout of a default action"
    } else {
        return Ok(());
    };
    Err(RequestFailure::unimplemented(feature))
}

/// What an entry has beyond key, action and counter.
struct EntryFeatures {
    rates: Option<MeterConfig>,
    idle_timeout: Nanos,
}

impl EntryFeatures {
    fn from_entry(entry: &p4rt::TableEntry) -> Result<Self, RequestFailure> {
        Ok(Self {
            rates: entry.meter_config.as_ref().map(decode_rates).transpose()?,
            idle_timeout: Nanos::try_from(entry.idle_timeout_ns)
                .map_err(|_| RequestFailure::invalid_argument("the idle timeout is negative"))?,
        })
    }
}

/// Why an idle timeout is refused.
pub(super) fn no_idle_timeout_failure(table: &TableSchema) -> RequestFailure {
    RequestFailure::invalid_argument(format!("table {} has no idle timeout", table.name))
}

pub(super) fn entry_action(entry: &p4rt::TableEntry) -> Result<&TableActionType, RequestFailure> {
    let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
    action.ok_or_else(|| RequestFailure::invalid_argument("the entry has no action"))
}

/// Refuses to insert or delete what always exists.
pub(super) fn require_modify(kind: Kind, entity: &str) -> Result<(), RequestFailure> {
    if kind == Kind::Modify {
        return Ok(());
    }
    Err(RequestFailure::invalid_argument(format!("a {entity} can only be modified")))
}
