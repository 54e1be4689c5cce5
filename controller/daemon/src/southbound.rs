//! Everything between the desired tables and the switches: one session per switch.
//!
//! [`runtime`](crate::runtime) publishes [`Desired`] and starts a session for each [`Target`]; a
//! session reads its switch, writes what differs and tells the [`Board`]. The decision: sessions
//! know nothing of plans, jobs or each other; all they get is tables with a generation.

pub mod arbitration;
mod client;
pub mod connection;
mod dialect;
mod effort;
mod foreign;
pub mod mandate;
mod reconcile;
pub(crate) mod session;
mod status;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::Tables;
use tokio::time::Instant;
use topology::{Fabric, SwitchId};

pub use client::{Address, Client, ClientError, Grpc};
pub use dialect::Verdict;
pub use status::{Board, Pass, SwitchStatus, Verified, Written};
pub(crate) use turns::Turns;

/// What the switches shall hold.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Rises with every change; 0 is before the first.
    pub generation: u64,
    /// The tables of every switch; the very same as in the generation before where they are equal.
    pub tables: BTreeMap<SwitchId, Arc<Tables>>,
    /// What becomes of other entries.
    pub others: Others,
    /// When it came to be.
    pub made: Made,
}

/// What becomes of entries that no table tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They go.
    Go,
    /// They stay, whoever wrote them: nothing is known of the fabric yet, and what the switches
    /// hold is better than nothing.
    Stay,
}

impl Others {
    /// What becomes of them where this is known of the fabric.
    pub(crate) fn of(fabric: &Fabric) -> Self {
        match fabric.links().is_empty() {
            true => Self::Stay,
            false => Self::Go,
        }
    }
}

/// When a generation came to be, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// What led to it.
    pub origin: Origin,
    /// The plan was made.
    pub planned: Instant,
    /// The plan was lowered to tables.
    pub lowered: Instant,
}

/// What led to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What kind of event it was, as [`Event::kind`](crate::Event::kind) names it.
    pub cause: &'static str,
    /// The first of it was heard: the report, where a job told of itself.
    pub heard: Instant,
    /// The event arrived.
    pub received: Instant,
    /// The planner was asked, unless the plan in force is realised anew.
    pub asked: Option<Instant>,
}

impl Origin {
    /// An event that arrived at this instant.
    pub(crate) fn new(cause: &'static str, received: Instant) -> Self {
        Self {
            cause,
            heard: received,
            received,
            asked: None,
        }
    }
}

/// A switch that a session deals with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The switch.
    pub switch: SwitchId,
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: Address,
}

impl Target {
    /// The switches of a fabric that say where they are reached.
    pub fn all(fabric: &Fabric) -> Vec<Self> {
        let switches = (0..fabric.switches().len()).map(SwitchId::from);
        let target = |id| {
            let switch = fabric.switch(id);
            let p4runtime = switch.p4runtime.clone()?;
            let device_id = switch.device_id;
            Some(Self {
                switch: id,
                name: switch.name.clone(),
                address: Address {
                    p4runtime,
                    device_id,
                },
            })
        };
        switches.filter_map(target).collect()
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}
