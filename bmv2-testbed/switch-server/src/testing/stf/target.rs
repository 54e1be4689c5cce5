//! What a case is played on: a device, or anything that does as one.

use std::error::Error;

use switch::CounterData;
use switch::{ActionCall, ControlError, MatchKey, Replica, TableAction};
use switch::{CloneSession, ReplicationUpdate};
use switch::{CounterIndex, RegisterIndex, TableIndex};
use switch::{Device, DeviceOutputs, OutputPacket};

/// Why a target refuses a statement.
pub type TargetError = Box<dyn Error + Send + Sync>;

/// A switch on which a case is played. Everything is by the indexes of the program that it runs.
pub trait StfTarget {
    /// Sends a packet to a port and waits for all packets that leave for it.
    ///
    /// # Errors
    /// The target has stopped.
    fn process_packet(
        &mut self,
        port: u16,
        packet: &[u8],
    ) -> Result<Vec<OutputPacket>, TargetError>;

    /// Inserts an entry.
    ///
    /// # Errors
    /// The target refuses it, as in all methods below.
    fn insert_entry(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        call: &ActionCall,
    ) -> Result<(), TargetError>;

    /// Sets the default action of a table.
    ///
    /// # Errors
    /// As above.
    fn set_default_action(
        &mut self,
        table: TableIndex,
        call: &ActionCall,
    ) -> Result<(), TargetError>;

    /// Reads a cell of an indexed counter.
    ///
    /// # Errors
    /// As above.
    fn read_counter_cell(
        &mut self,
        counter: CounterIndex,
        cell: usize,
    ) -> Result<CounterData, TargetError>;

    /// Reads the direct counter of an entry.
    ///
    /// # Errors
    /// As above.
    fn read_entry_counter(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Result<CounterData, TargetError>;

    /// Reads a cell of a register.
    ///
    /// # Errors
    /// As above.
    fn read_register(&mut self, register: RegisterIndex, cell: usize) -> Result<u128, TargetError>;

    /// Writes a cell of a register.
    ///
    /// # Errors
    /// As above.
    fn write_register(
        &mut self,
        register: RegisterIndex,
        cell: usize,
        value: u128,
    ) -> Result<(), TargetError>;

    /// Adds a clone session.
    ///
    /// # Errors
    /// As above.
    fn insert_clone_session(
        &mut self,
        session: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError>;

    /// Adds a multicast group or replaces its replicas.
    ///
    /// # Errors
    /// As above.
    fn write_multicast_group(
        &mut self,
        kind: ReplicationUpdate,
        group: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError>;
}

impl StfTarget for Device {
    fn process_packet(
        &mut self,
        port: u16,
        packet: &[u8],
    ) -> Result<Vec<OutputPacket>, TargetError> {
        let mut out = DeviceOutputs::default();
        Self::process_packet(self, port, packet, 0, &mut out);
        Ok(out.packets)
    }

    fn insert_entry(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        call: &ActionCall,
    ) -> Result<(), TargetError> {
        Ok(Self::insert_entry(self, table, key.clone(), TableAction::Action(call.clone()))?)
    }

    fn set_default_action(
        &mut self,
        table: TableIndex,
        call: &ActionCall,
    ) -> Result<(), TargetError> {
        Ok(Self::set_default_action(self, table, call.clone())?)
    }

    fn read_counter_cell(
        &mut self,
        counter: CounterIndex,
        cell: usize,
    ) -> Result<CounterData, TargetError> {
        Ok(self.counter_cells(counter)?.get(cell).copied().unwrap_or_default())
    }

    fn read_entry_counter(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Result<CounterData, TargetError> {
        Ok(self.entry(table, key)?.count)
    }

    fn read_register(&mut self, register: RegisterIndex, cell: usize) -> Result<u128, TargetError> {
        let cells = self.register_cells(register)?;
        let value = cells.get(cell).copied();
        Ok(value.ok_or(ControlError::NoSuchCell { cell, size: cells.len() })?)
    }

    fn write_register(
        &mut self,
        register: RegisterIndex,
        cell: usize,
        value: u128,
    ) -> Result<(), TargetError> {
        Ok(self.set_register(register, cell, value)?)
    }

    fn insert_clone_session(
        &mut self,
        session: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError> {
        let content = CloneSession { replicas, packet_bytes: 0 };
        Ok(self.write_clone_session(ReplicationUpdate::Insert, session, content)?)
    }

    fn write_multicast_group(
        &mut self,
        kind: ReplicationUpdate,
        group: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError> {
        Ok(Self::write_multicast_group(self, kind, group, replicas)?)
    }
}
