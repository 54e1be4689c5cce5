//! Everything between the desired tables and the switches: one session per switch.
//!
//! [`runtime`](crate::runtime) publishes [`DesiredTables`] and starts a session for each
//! [`SwitchTarget`]; a session reads its switch, writes what differs and updates the
//! [`StatusBoard`]. The decision: sessions have no access to plans, jobs or each other; all they
//! receive is tables with a generation.

pub mod arbitration;
mod batch_size;
mod bounded_read;
mod call_health;
mod client;
pub mod connection;
mod connection_error;
mod digest_queue;
mod foreign_entries;
mod mastership_status;
mod packet_io;
mod read_limiter;
mod read_schedule;
mod reconcile;
mod reconcile_state;
mod running_program;
pub(crate) mod session;
pub(crate) mod session_log;
mod spot_check;
mod status;
mod stream_messages;
mod switch_channel;
mod timing;
pub mod write_permit;

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::SwitchTables;
use tokio::time::Instant;
use topology::{Fabric, SwitchId};

pub use bounded_read::{ReadBudget, ReadError};
pub use call_health::CallHealth;
pub use client::{ClientError, CounterReading, GrpcNetwork, SwitchAddress, SwitchClient};
pub(crate) use digest_queue::{DigestQueue, ReceivedDigests};
pub use mastership_status::MastershipStatus;
pub(crate) use packet_io::{PacketIo, PacketOutRound, SwitchPacket};
pub(crate) use read_limiter::ReadLimiter;
pub(crate) use read_schedule::ReadSchedule;
pub use running_program::RunningProgram;
pub use status::{ReconcilePass, StatusBoard, SwitchStatus, VerifiedTables, WriteCounts};
pub(crate) use switch_channel::{
    connect_channel, describe_status, is_too_many_pings, until_revoked,
};
pub use timing::ChangeTiming;

/// What the switches shall hold.
#[derive(Clone, Debug)]
pub struct DesiredTables {
    /// Rises with every change; 0 is before the first.
    pub generation: u64,
    /// The generation whose plan was lowered to these tables. A later `generation` has only taken
    /// ports of failed parts out of use since.
    pub lowered_generation: u64,
    /// The tables of every switch; the very same as in the generation before where they are equal.
    pub tables: BTreeMap<SwitchId, Arc<SwitchTables>>,
    /// What becomes of other entries.
    pub unknown_entries: UnknownEntries,
    /// When it came to be.
    pub timestamps: DesiredTimestamps,
}

impl DesiredTables {
    /// What is desired before the first plan: nothing, and every entry on the switches stays.
    pub(crate) fn before_first() -> Self {
        let now = Instant::now();
        Self {
            generation: 0,
            lowered_generation: 0,
            tables: BTreeMap::new(),
            unknown_entries: UnknownEntries::Keep,
            timestamps: DesiredTimestamps {
                origin: ChangeOrigin::new("nothing", now),
                planned: now,
                lowered: now,
            },
        }
    }
}

/// What becomes of entries on a switch that are not desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownEntries {
    /// They are deleted.
    Delete,
    /// They stay, also those of others: before the fabric is known, the entries on the switches are
    /// what keeps traffic flowing.
    Keep,
}

impl UnknownEntries {
    /// What becomes of unknown entries in this fabric.
    pub(crate) fn for_fabric(fabric: &Fabric) -> Self {
        // Without a link nothing is planned, and deleting would cut traffic that an earlier run has
        // set up.
        if fabric.links().is_empty() { Self::Keep } else { Self::Delete }
    }
}

/// When a generation came to be, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredTimestamps {
    /// What led to it.
    pub origin: ChangeOrigin,
    /// The plan was made.
    pub planned: Instant,
    /// The plan was lowered to tables.
    pub lowered: Instant,
}

/// What led to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeOrigin {
    /// What kind of event it was, as [`StateEvent::kind`](crate::StateEvent::kind) names it.
    pub cause: &'static str,
    /// The first report of it arrived, if reports of jobs led to it; else as `received`.
    pub first_reported: Instant,
    /// The event arrived.
    pub received: Instant,
    /// Planning started; none if the plan in force is lowered again.
    pub planning_started: Option<Instant>,
}

impl ChangeOrigin {
    /// An event that arrived at this instant.
    pub(crate) fn new(cause: &'static str, received: Instant) -> Self {
        Self { cause, first_reported: received, received, planning_started: None }
    }
}

/// A switch with a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwitchTarget {
    /// The switch.
    pub switch: SwitchId,
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: SwitchAddress,
}

impl SwitchTarget {
    /// The switches of a fabric that have an address.
    pub fn all_in_fabric(fabric: &Fabric) -> Vec<Self> {
        let targets = fabric.switch_ids().filter_map(|id| {
            let switch = fabric.switch(id);
            // A switch without an address can be planned for, and has no session.
            let p4runtime = switch.p4runtime.clone()?;
            let (device_id, pipeline) = (switch.device_id, switch.pipeline);
            Some(Self {
                switch: id,
                name: switch.name.clone(),
                address: SwitchAddress { p4runtime, device_id, pipeline },
            })
        });
        targets.collect()
    }
}
