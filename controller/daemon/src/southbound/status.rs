//! The state of every session, which the demo, the northbound interface and metrics read.
//!
//! Each session writes the line of its own switch, many observers read all lines at a glance. The
//! board is a concurrent map because there is no one owner: a task that owned it would put a queue
//! between a session and its status, and a `watch` channel for each switch would leave observers to
//! collect them while switches come and go with the fabric. Entries are replaced whole and no lock
//! is held across an await. A `watch` on the side only wakes who waits; what they see, they read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::watch;
use tokio::time::Instant;
use topology::SwitchId;

use super::CallHealth;
use super::arbitration::Mastership;

/// Entries of a kind that a status shows.
pub(super) const ENTRIES_SHOWN: usize = 16;

/// What the session of one switch is up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchStatus {
    /// Name of the switch.
    pub name: String,
    /// Whether this controller may write to it.
    pub mastership: Mastership,
    /// The tables that the switch was last seen to hold; `None` once it was seen to hold others or
    /// its connection ended, and from every beginning of a mastership until it is read again.
    pub verified: Option<VerifiedTables>,
    /// When a read last showed no difference, in all tables or in those of a spot check.
    pub checked_at: Option<Instant>,
    /// Everything written since the session began.
    pub written: WriteCounts,
    /// Entries that the switch refused in the latest pass, with its reasons; the first few.
    pub refusals: Vec<String>,
    /// Entries of others that the latest pass found and left; the first few.
    pub foreign: Vec<String>,
    /// Entries that somebody else added, changed or removed while this controller was primary, all
    /// repaired or left as the policy on foreign entries wants; since the session began.
    pub drifted: u64,
    /// Pins that fit into the switch, known once it has refused one for lack of room.
    pub pin_room: Option<usize>,
    /// How the latest pass went.
    pub last_pass: Option<ReconcilePass>,
    /// Passes since the session began.
    pub passes: u64,
    /// Connections that ended, or never came to be, since the session began.
    pub failures: u64,
    /// Those that ended because the switch exceeded a bound.
    pub limited: u64,
    /// Why the latest of them did.
    pub last_error: Option<String>,
    /// Whether it serves what is asked of it.
    pub health: CallHealth,
}

impl SwitchStatus {
    /// Whether the switch was seen to hold the tables of a generation, or later ones.
    pub fn holds_generation(&self, generation: u64) -> bool {
        self.verified.is_some_and(|seen| seen.generation >= generation)
    }

    /// Why the latest connection ended, until the switch is verified or another controller's.
    pub fn standing_error(&self) -> Option<&String> {
        let is_others = matches!(self.mastership, Mastership::Backup { .. });
        self.last_error.as_ref().filter(|_| self.verified.is_none() && !is_others)
    }
}

/// Tables seen to be as desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedTables {
    /// Whose tables.
    pub generation: u64,
    /// As [`DesiredTables::lowered_generation`](super::DesiredTables::lowered_generation).
    pub lowered_generation: u64,
    /// Entries in them.
    pub entries: usize,
    /// When the first write for this generation was sent, if it took any.
    pub first_write: Option<Instant>,
    /// When the switch had answered the last write for it, if it took any.
    pub last_answer: Option<Instant>,
    /// When the read that showed it first ended.
    pub at: Instant,
}

/// Updates by what the switch said to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// New entries.
    pub inserted: u64,
    /// Changed entries.
    pub modified: u64,
    /// Removed entries.
    pub deleted: u64,
    /// Refused updates; each counts every time that it is tried.
    pub refused: u64,
    /// Times the program was pushed.
    pub pipelines: u64,
}

impl WriteCounts {
    /// All updates that were done.
    pub fn total_entries(&self) -> u64 {
        self.inserted + self.modified + self.deleted
    }

    pub(super) fn add_counts(&mut self, more: &Self) {
        self.inserted += more.inserted;
        self.modified += more.modified;
        self.deleted += more.deleted;
        self.refused += more.refused;
        self.pipelines += more.pipelines;
    }
}

/// How one pass went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconcilePass {
    /// Reading all tables, the wait for its turn included; zero where they were known.
    pub read: Duration,
    /// Writing the difference; zero if there was none.
    pub write: Duration,
    /// Updates tried.
    pub updates: usize,
}

/// The status of all switches.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard {
    statuses: Arc<DashMap<SwitchId, SwitchStatus>>,
    changes: watch::Sender<()>,
}

impl StatusBoard {
    /// All lines, by switch.
    pub fn all_statuses(&self) -> BTreeMap<SwitchId, SwitchStatus> {
        let lines = self.statuses.iter();
        lines.map(|line| (*line.key(), line.value().clone())).collect()
    }

    /// Looks at every line in turn, by switch.
    pub(crate) fn for_each_status(&self, mut observe: impl FnMut(SwitchId, &SwitchStatus)) {
        let mut switches: Vec<SwitchId> = self.statuses.iter().map(|line| *line.key()).collect();
        // The map has no order, and what observers do with the statuses must not depend on one.
        switches.sort_unstable();
        for switch in switches {
            if let Some(line) = self.statuses.get(&switch) {
                observe(switch, &line);
            }
        }
    }

    /// Whether all switches that are led from here were seen to hold the tables of a generation, or
    /// later ones.
    pub(crate) fn is_generation_held(&self, generation: u64) -> bool {
        let mut lines = self.statuses.iter();
        lines.all(|line| !line.mastership.is_primary() || line.holds_generation(generation))
    }

    /// The switches whose calls have failed for `after` at least.
    pub fn quarantined_switches(&self, now: Instant, after: Duration) -> BTreeSet<SwitchId> {
        let mut quarantined = BTreeSet::new();
        self.for_each_status(|switch, status| {
            if status.health.quarantined_since(now, after).is_some() {
                quarantined.insert(switch);
            }
        });
        quarantined
    }

    /// The line of one switch, if it has a session.
    pub fn switch_status(&self, switch: SwitchId) -> Option<SwitchStatus> {
        self.statuses.get(&switch).map(|line| line.clone())
    }

    /// Tells when any line changes after this call.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits until `what` holds for all lines together and returns them. The caller sets the
    /// deadline, since only it knows what it waits for.
    pub async fn wait_until(
        &self,
        what: impl Fn(&BTreeMap<SwitchId, SwitchStatus>) -> bool,
    ) -> BTreeMap<SwitchId, SwitchStatus> {
        let mut changes = self.subscribe();
        loop {
            let lines = self.all_statuses();
            // The board itself holds the sender, so an error cannot come while it is asked.
            if what(&lines) || changes.changed().await.is_err() {
                return lines;
            }
        }
    }

    /// Waits until `holds` is true of every line, and returns all. Hundreds of switches change
    /// theirs with every generation, so lines are looked at in place, up to the first of which it
    /// is not true.
    pub(crate) async fn wait_for_all(
        &self,
        holds: impl Fn(SwitchId, &SwitchStatus) -> bool,
    ) -> BTreeMap<SwitchId, SwitchStatus> {
        let mut changes = self.subscribe();
        // The board itself holds the sender, so an error cannot come while it is asked.
        while !self.statuses.iter().all(|line| holds(*line.key(), line.value()))
            && changes.changed().await.is_ok()
        {}
        self.all_statuses()
    }

    /// Puts a switch on the board. It is there before its session first runs, so that nobody takes
    /// a board without it for a fabric without it.
    pub(crate) fn add_switch(&self, switch: SwitchId, name: &str) {
        let line = SwitchStatus { name: name.to_owned(), ..SwitchStatus::default() };
        self.statuses.insert(switch, line);
        self.changes.send_replace(());
    }

    /// Changes the line of a switch; its session does, and nobody else.
    pub(super) fn update_status(&self, switch: SwitchId, change: impl FnOnce(&mut SwitchStatus)) {
        // Only changed and never inserted, so that the line of a switch that left cannot come back.
        if let Some(mut line) = self.statuses.get_mut(&switch) {
            change(&mut line);
        }
        self.changes.send_replace(());
    }

    /// Takes a switch off the board.
    pub(crate) fn remove_switch(&self, switch: SwitchId) {
        self.statuses.remove(&switch);
        self.changes.send_replace(());
    }
}
