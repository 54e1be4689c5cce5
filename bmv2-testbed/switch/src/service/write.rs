//! One update: what `Write` does to the device, entity by entity.
//!
//! [`Writer::apply`] either carries an update out or leaves everything as it was. Tables and
//! counters are here, action profiles in [`profile`](super::profile).

use p4rt::entity::Entity;
use p4rt::table_action::Type as TableActionType;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::arrays::decode_rates;
use super::entity::{Place, decode_action, decode_count, decode_key, kind_of};
use super::error::Failure;
use super::ledger::{Ledger, Note};
use crate::control::{MatchKey, Target};
use crate::device::{Device, Nanos};
use crate::meter::MeterConfig;
use crate::p4info::{Schema, TableSchema};

/// A device with what is needed to write to it.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) schema: &'a Schema,
    pub(super) ledger: &'a mut Ledger,
    pub(super) device: &'a mut Device,
}

impl Writer<'_> {
    /// Carries out one update.
    pub(super) fn apply(&mut self, update: &p4rt::Update) -> Result<(), Failure> {
        let kind = update.r#type();
        if kind == Kind::Unspecified {
            return Err(Failure::invalid("the update has no type"));
        }
        match update
            .entity
            .as_ref()
            .and_then(|entity| entity.entity.as_ref())
        {
            None => Err(Failure::invalid("the update has no entity")),
            Some(Entity::TableEntry(entry)) => self.table_entry(kind, entry),
            Some(Entity::ActionProfileMember(member)) => self.member(kind, member),
            Some(Entity::ActionProfileGroup(group)) => self.group(kind, group),
            Some(Entity::CounterEntry(counter)) => self.counter(kind, counter),
            Some(Entity::DirectCounterEntry(counter)) => self.direct_counter(kind, counter),
            Some(Entity::MeterEntry(meter)) => self.meter(kind, meter),
            Some(Entity::DirectMeterEntry(meter)) => self.direct_meter(kind, meter),
            Some(Entity::RegisterEntry(register)) => self.register(kind, register),
            Some(Entity::PacketReplicationEngineEntry(entry)) => self.replication(kind, entry),
            Some(Entity::DigestEntry(digest)) => self.digest(kind, digest),
            Some(Entity::ValueSetEntry(set)) => self.value_set(kind, set),
            Some(other) => Err(Failure::unimplemented(kind_of(other))),
        }
    }

    fn table_entry(&mut self, kind: Kind, entry: &p4rt::TableEntry) -> Result<(), Failure> {
        let table = table_of(self.schema, entry.table_id)?;
        if entry.is_const {
            return Err(Failure::invalid("an entry cannot be written as const"));
        }
        if kind != Kind::Delete {
            check_features(table, entry)?;
        }
        if entry.is_default_action {
            return self.default_action(kind, table, entry);
        }
        if table.fields.is_empty() {
            let message = format!("table {} has no key, so it has no entries", table.name);
            return Err(Failure::invalid(message));
        }
        if table.is_const && (kind != Kind::Modify || entry.action.is_some()) {
            let message = format!("the entries of table {} are constant", table.name);
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        let key = decode_key(table, &entry.r#match, entry.priority)?;
        match kind {
            Kind::Insert => self.insert(table, &key, entry),
            Kind::Modify => self.modify(table, &key, entry),
            _ => self.delete(table, &key),
        }
    }

    fn insert(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        entry: &p4rt::TableEntry,
    ) -> Result<(), Failure> {
        let count = entry.counter_data.as_ref().map(decode_count).transpose()?;
        let features = Features::of(entry)?;
        let mut note = Note::of(entry);
        match action_of(entry)? {
            TableActionType::ActionProfileActionSet(set) => {
                note.one_shot = Some(self.insert_one_shot(table, key, set)?);
            }
            action => {
                let target = self.target(table, action)?;
                self.device.insert(table.index, key.clone(), target)?;
            }
        }
        if let Some(count) = count {
            self.device.set_direct_count(table.index, key, count)?;
        }
        self.set_features(table, key, &features)?;
        self.ledger.set_entry(table.index, key, note);
        Ok(())
    }

    /// An update without an action changes at most the counter.
    fn modify(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        entry: &p4rt::TableEntry,
    ) -> Result<(), Failure> {
        let count = entry.counter_data.as_ref().map(decode_count).transpose()?;
        let features = Features::of(entry)?;
        if entry.action.is_none() {
            self.device.get(table.index, key)?;
        } else {
            let mut note = Note::of(entry);
            match action_of(entry)? {
                TableActionType::ActionProfileActionSet(set) => {
                    self.device.get(table.index, key)?;
                    note.one_shot = Some(self.modify_one_shot(table, key, set)?);
                }
                action => {
                    let target = self.target(table, action)?;
                    self.device.modify(table.index, key, target)?;
                }
            }
            self.ledger.set_entry(table.index, key, note);
            self.set_features(table, key, &features)?;
        }
        if let Some(count) = count {
            self.device.set_direct_count(table.index, key, count)?;
        }
        Ok(())
    }

    /// Meter and idle timeout: what is left out is as if it had never been set.
    fn set_features(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        features: &Features,
    ) -> Result<(), Failure> {
        if table.direct_meter {
            self.device
                .set_direct_meter(table.index, key, features.rates)?;
        }
        if table.notifies_idle {
            self.device
                .set_idle_timeout(table.index, key, features.idle_timeout)?;
        }
        Ok(())
    }

    fn delete(&mut self, table: &TableSchema, key: &MatchKey) -> Result<(), Failure> {
        self.device.delete(table.index, key)?;
        let note = self.ledger.forget_entry(table.index, key);
        match note.and_then(|note| note.one_shot) {
            Some(one_shot) => self.delete_one_shot(&one_shot),
            None => Ok(()),
        }
    }

    /// What an entry leads to, for every form of action but the one-shot.
    fn target(&self, table: &TableSchema, action: &TableActionType) -> Result<Target, Failure> {
        let profile = table
            .profile
            .and_then(|profile| self.schema.profiles.get(&profile));
        match (action, profile) {
            (TableActionType::Action(action), None) => Ok(Target::Action(decode_action(
                &table.actions,
                action,
                Place::Entry,
            )?)),
            (TableActionType::ActionProfileMemberId(id), Some(profile)) => {
                self.check_style(profile)?;
                Ok(Target::Member(*id))
            }
            (TableActionType::ActionProfileGroupId(id), Some(profile)) if profile.with_selector => {
                self.check_style(profile)?;
                Ok(Target::Group(*id))
            }
            (_, None) => Err(Failure::invalid(format!(
                "table {} takes actions",
                table.name
            ))),
            (_, Some(profile)) => {
                let message = format!("table {} takes what {} offers", table.name, profile.name);
                Err(Failure::invalid(message))
            }
        }
    }

    fn default_action(
        &mut self,
        kind: Kind,
        table: &TableSchema,
        entry: &p4rt::TableEntry,
    ) -> Result<(), Failure> {
        if kind != Kind::Modify {
            return Err(Failure::invalid("a default action can only be modified"));
        }
        if !entry.r#match.is_empty() || entry.priority != 0 {
            return Err(Failure::invalid(
                "a default action has neither key nor priority",
            ));
        }
        refuse_default_features(entry)?;
        if table.const_default.is_some() || table.profile.is_some() {
            let message = format!("the default action of table {} is constant", table.name);
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        if entry.action.is_none() {
            self.device.reset_default(table.index)?;
            self.ledger.reset_default(table.index);
            return Ok(());
        }
        let TableActionType::Action(action) = action_of(entry)? else {
            return Err(Failure::invalid(format!(
                "table {} takes actions",
                table.name
            )));
        };
        let call = decode_action(&table.actions, action, Place::Default)?;
        self.device.set_default(table.index, call)?;
        self.ledger.set_default(table.index, Note::of(entry));
        Ok(())
    }

    fn counter(&mut self, kind: Kind, counter: &p4rt::CounterEntry) -> Result<(), Failure> {
        only_modify(kind, "CounterEntry")?;
        let id = counter.counter_id;
        let index = self.schema.counters.get(&id);
        let &index = index.ok_or_else(|| Failure::invalid(format!("there is no counter {id}")))?;
        let cells = match &counter.index {
            Some(at) => {
                let cell = cell_of(at)?;
                cell..cell.saturating_add(1)
            }
            None => 0..self.device.counter(index)?.len(),
        };
        let size = self.device.counter(index)?.len();
        if cells.end > size {
            let message = format!("cell {} is beyond the counter's size {size}", cells.start);
            return Err(Failure::out_of_range(message));
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

    fn direct_counter(
        &mut self,
        kind: Kind,
        counter: &p4rt::DirectCounterEntry,
    ) -> Result<(), Failure> {
        only_modify(kind, "DirectCounterEntry")?;
        let entry = counter.table_entry.as_ref();
        let entry = entry.ok_or_else(|| Failure::invalid("the table entry is missing"))?;
        let table = table_with_counter(self.schema, entry.table_id)?;
        if entry.is_default_action {
            return Err(Failure::unimplemented(
                "the direct counter of a default action",
            ));
        }
        let key = decode_key(table, &entry.r#match, entry.priority)?;
        self.device.get(table.index, &key)?;
        if let Some(data) = &counter.data {
            self.device
                .set_direct_count(table.index, &key, decode_count(data)?)?;
        }
        Ok(())
    }
}

/// The table with this id.
pub(super) fn table_of(schema: &Schema, id: u32) -> Result<&TableSchema, Failure> {
    schema
        .tables
        .get(&id)
        .ok_or_else(|| Failure::invalid(format!("there is no table {id}")))
}

/// The table with this id, if its entries are counted.
pub(super) fn table_with_counter(schema: &Schema, id: u32) -> Result<&TableSchema, Failure> {
    let table = table_of(schema, id)?;
    if table.direct_counter {
        return Ok(table);
    }
    Err(Failure::invalid(format!(
        "table {} has no direct counter",
        table.name
    )))
}

/// The cell that an index names.
pub(super) fn cell_of(index: &p4rt::Index) -> Result<usize, Failure> {
    usize::try_from(index.index).map_err(|_| Failure::invalid("the index is negative"))
}

/// Refuses what a table entry asks for beyond key, action and counter.
fn check_features(table: &TableSchema, entry: &p4rt::TableEntry) -> Result<(), Failure> {
    if entry.meter_counter_data.is_some() {
        return Err(Failure::unimplemented("MeterCounterData"));
    }
    if entry.meter_config.is_some() && !table.direct_meter {
        let message = format!("table {} has no direct meter", table.name);
        return Err(Failure::invalid(message));
    }
    if entry.time_since_last_hit.is_some() {
        return Err(Failure::invalid("time_since_last_hit cannot be written"));
    }
    if entry.idle_timeout_ns != 0 && !table.notifies_idle {
        return Err(no_idle_timeout(table));
    }
    if entry.counter_data.is_some() && !table.direct_counter {
        return Err(Failure::invalid(format!(
            "table {} has no direct counter",
            table.name
        )));
    }
    Ok(())
}

/// Refuses what only entries with a key have.
fn refuse_default_features(entry: &p4rt::TableEntry) -> Result<(), Failure> {
    let feature = if entry.counter_data.is_some() {
        "the direct counter of a default action"
    } else if entry.meter_config.is_some() {
        "the direct meter of a default action"
    } else if entry.idle_timeout_ns != 0 {
        "the idle timeout of a default action"
    } else {
        return Ok(());
    };
    Err(Failure::unimplemented(feature))
}

/// What an entry has beyond key, action and counter.
struct Features {
    rates: Option<MeterConfig>,
    idle_timeout: Nanos,
}

impl Features {
    fn of(entry: &p4rt::TableEntry) -> Result<Self, Failure> {
        Ok(Self {
            rates: entry.meter_config.as_ref().map(decode_rates).transpose()?,
            idle_timeout: Nanos::try_from(entry.idle_timeout_ns)
                .map_err(|_| Failure::invalid("the idle timeout is negative"))?,
        })
    }
}

/// Why an idle timeout is refused.
pub(super) fn no_idle_timeout(table: &TableSchema) -> Failure {
    Failure::invalid(format!("table {} has no idle timeout", table.name))
}

fn action_of(entry: &p4rt::TableEntry) -> Result<&TableActionType, Failure> {
    let action = entry
        .action
        .as_ref()
        .and_then(|action| action.r#type.as_ref());
    action.ok_or_else(|| Failure::invalid("the entry has no action"))
}

/// Refuses to insert or delete what always exists.
pub(super) fn only_modify(kind: Kind, entity: &str) -> Result<(), Failure> {
    if kind == Kind::Modify {
        return Ok(());
    }
    Err(Failure::invalid(format!("a {entity} can only be modified")))
}
