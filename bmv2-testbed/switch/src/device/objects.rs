//! The control API of a device, continued: meters, registers, replication, value sets, idle
//! entries.

use std::collections::BTreeMap;

use super::Device;
use super::control::no_such_object;
use crate::device::replication::{CloneSession, ReplicationUpdate};
use crate::ids::{MeterIndex, RegisterIndex, TableIndex, ValueSetIndex};
use crate::run::meter::{MeterConfig, TwoRateMeter};
use crate::run::parser::ValueSetMember;
use crate::spec::bit_mask;
use crate::spec::entry::{ControlError, MatchKey, Replica};
use crate::time::Nanos;

/// Meters.
impl Device {
    /// The rates of every cell of an indirect meter.
    pub fn meter_configs(
        &self,
        meter: MeterIndex,
    ) -> Result<impl ExactSizeIterator<Item = Option<MeterConfig>>, ControlError> {
        let meters = &self.loaded_ref()?.arrays.meters;
        let cells = meters.get(meter.0 as usize).ok_or(no_such_object("meter", meter.0))?;
        Ok(cells.iter().map(TwoRateMeter::config))
    }

    /// Sets or removes the rates of one cell of an indirect meter.
    pub fn set_meter(
        &mut self,
        meter: MeterIndex,
        cell: usize,
        config: Option<MeterConfig>,
    ) -> Result<(), ControlError> {
        check_rates(config)?;
        let meters = &mut self.loaded_mut()?.arrays.meters;
        let cells = meters.get_mut(meter.0 as usize).ok_or(no_such_object("meter", meter.0))?;
        cell_mut(cells, cell)?.set_config(config);
        Ok(())
    }

    /// Sets or removes the rates of an entry's direct meter.
    pub fn set_direct_meter(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        config: Option<MeterConfig>,
    ) -> Result<(), ControlError> {
        check_rates(config)?;
        self.loaded_mut()?.table_mut(table)?.set_meter(key, config)
    }
}

/// Registers.
impl Device {
    /// All cells of a register array.
    pub fn register_cells(&self, register: RegisterIndex) -> Result<&[u128], ControlError> {
        let registers = &self.loaded_ref()?.arrays.registers;
        let index = register.0 as usize;
        Ok(&registers.get(index).ok_or(no_such_object("register", register.0))?.cells)
    }

    /// Sets one cell of a register array.
    pub fn set_register(
        &mut self,
        register: RegisterIndex,
        cell: usize,
        value: u128,
    ) -> Result<(), ControlError> {
        let registers = &mut self.loaded_mut()?.arrays.registers;
        let index = register.0 as usize;
        let found = registers.get_mut(index).ok_or(no_such_object("register", register.0))?;
        if value & !bit_mask(found.bits()) != 0 {
            return Err(ControlError::RegisterWidth(found.bits()));
        }
        *cell_mut(&mut found.cells, cell)? = value;
        Ok(())
    }
}

/// Replication.
impl Device {
    /// Adds, replaces or removes a multicast group.
    pub fn write_multicast_group(
        &mut self,
        change: ReplicationUpdate,
        id: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.replication.write_group(change, id, replicas)
    }

    /// Adds, replaces or removes a clone session.
    pub fn write_clone_session(
        &mut self,
        change: ReplicationUpdate,
        id: u16,
        session: CloneSession,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.replication.write_session(change, id, session)
    }

    /// All multicast groups, by number.
    pub fn multicast_groups(&self) -> Result<&BTreeMap<u16, Vec<Replica>>, ControlError> {
        Ok(self.loaded_ref()?.replication.groups())
    }

    /// All clone sessions, by number.
    pub fn clone_sessions(&self) -> Result<&BTreeMap<u16, CloneSession>, ControlError> {
        Ok(self.loaded_ref()?.replication.sessions())
    }
}

/// Value sets and idle entries.
impl Device {
    /// Gives a parser value set these members: value and mask of each part of the key, in order.
    pub fn set_value_set(
        &mut self,
        set: ValueSetIndex,
        members: &[Vec<(u128, u128)>],
    ) -> Result<(), ControlError> {
        let loaded = self.loaded_mut()?;
        let specs = &loaded.program.value_sets;
        let spec = specs.get(set.0 as usize).ok_or(no_such_object("value set", set.0))?;
        if members.len() > spec.size {
            return Err(ControlError::Full { size: spec.size });
        }
        let expected = spec.bits.len();
        if let Some(parts) = members.iter().find(|parts| parts.len() != expected) {
            return Err(ControlError::KeyLength { expected, found: parts.len() });
        }
        loaded.value_sets[set.0 as usize] =
            members.iter().map(|parts| join_key_parts(parts, &spec.bits)).collect();
        Ok(())
    }

    /// Sets how long an entry may go without a hit from now on; 0 means for ever.
    pub fn set_idle_timeout(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        timeout: Nanos,
    ) -> Result<(), ControlError> {
        let now = self.now;
        self.loaded_mut()?.table_mut(table)?.set_idle_timeout(key, timeout, now)?;
        self.digests.signal_notices();
        Ok(())
    }

    /// Whether an entry may become idle as time passes.
    pub fn has_ageing_entries(&self) -> bool {
        let tables = self.loaded.iter().flat_map(|loaded| &loaded.tables);
        tables.into_iter().any(|table| table.spec.idle_timeout && table.len() > 0)
    }

    /// The entries of all tables whose idle timeout has passed; each is reported once
    /// until its next hit.
    pub fn take_idle_entries(&mut self) -> Vec<(TableIndex, MatchKey)> {
        let now = self.now;
        let Some(loaded) = &mut self.loaded else {
            return Vec::new();
        };
        let tables = loaded.tables.iter_mut().enumerate();
        let ageing = tables.filter(|(_, table)| table.spec.idle_timeout);
        let idle = ageing.flat_map(|(number, table)| {
            let keys = table.take_idle_entries(now).into_iter();
            keys.map(move |key| (TableIndex(number as u32), key))
        });
        idle.collect()
    }
}

/// Parts of a key as the parser joins them: each padded to whole bytes.
fn join_key_parts(parts: &[(u128, u128)], bits: &[u32]) -> ValueSetMember {
    let mut joined: ValueSetMember = (0, 0);
    for ((value, mask), bits) in parts.iter().zip(bits) {
        let width = bits.next_multiple_of(8);
        let padding = bit_mask(width) & !bit_mask(*bits);
        joined.0 = joined.0.unbounded_shl(width) | value;
        joined.1 = joined.1.unbounded_shl(width) | mask | padding;
    }
    joined
}

fn check_rates(config: Option<MeterConfig>) -> Result<(), ControlError> {
    match config {
        Some(config) if config.pir < config.cir => Err(ControlError::PeakBelowCommitted),
        _ => Ok(()),
    }
}

fn cell_mut<T>(cells: &mut [T], cell: usize) -> Result<&mut T, ControlError> {
    let size = cells.len();
    cells.get_mut(cell).ok_or(ControlError::NoSuchCell { cell, size })
}
