//! What the owner of a device knows of its ports: whether they carry packets, and what they have
//! carried. The device itself knows only their numbers.

use crate::lldp::LldpNeighbour;
use crate::run::counter::CounterData;
use crate::scheduler::QueueCounts;

/// Whether a port can carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The interface is up and has carrier, or the wire is up.
    Up,
    /// It is there and one of the two is missing. Packets to it are lost.
    Down,
    /// There is no such interface. The port attaches again when there is one.
    Absent,
}

/// The states of all ports of a device, by number.
pub type PortStates = Vec<(u16, PortState)>;

/// A port and what it has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// Its number.
    pub number: u16,
    /// Whether it can carry packets.
    pub state: PortState,
    /// Who is at the other end, if it has said so.
    pub neighbour: Option<LldpNeighbour>,
    /// Received and given to the device.
    pub received: CounterData,
    /// Received and refused, because they are too long.
    pub refused: u64,
    /// Packets that were not sent although they had left their queue.
    pub lost: u64,
    /// What each level has seen, from level 0.
    pub queues: Vec<QueueCounts>,
    /// How often the neighbour was asked to pause each priority, from priority 0; empty without a
    /// shared buffer.
    pub pauses_requested: Vec<u64>,
}
