//! One match-action table of a device: its entries, its default action and the lookup.
//!
//! The control API writes it through `device`, which checks what concerns other objects (profiles);
//! the packet path asks [`Table::lookup`]. Entries live twice: ordered by key for the control
//! plane, so that reading a table never depends on its history, and in a `table/index.rs` for the
//! packets.

mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::ProfileIndex;
use crate::run::counter::CounterData;
use crate::run::meter::{MeterConfig, TwoRateMeter};
use crate::run::phv::Phv;
use crate::spec::entry::{ActionCall, ControlError, MatchKey, TableAction, check_key};
use crate::spec::{DefaultMutability, TableSpec};
use crate::time::Nanos;
use index::KeyIndex;

/// One entry as the control plane reads it.
#[derive(Clone, Copy, Debug)]
pub struct EntryView<'a> {
    /// The entry's key.
    pub key: &'a MatchKey,
    /// What it leads to.
    pub action: &'a TableAction,
    /// Its direct counter; stays 0 where the table has none.
    pub count: CounterData,
    /// The rates of its direct meter, once configured.
    pub meter: Option<MeterConfig>,
    /// Time without a hit after which the controller is notified; 0 disables the notification.
    pub idle_timeout: Nanos,
    /// When it was last hit, or written.
    pub last_hit: Nanos,
}

/// One table with its entries.
#[derive(Debug)]
pub(crate) struct MatchTable {
    pub(crate) spec: Arc<TableSpec>,
    /// Whether anything is noted on a hit: its count, its time or its colour. Every packet asks for
    /// it and for the profile, so both are here and not behind `spec`.
    pub(crate) tracks_hits: bool,
    pub(crate) profile: Option<ProfileIndex>,
    by_key: BTreeMap<MatchKey, u32>,
    /// Entries by number; a deleted one leaves its number to `free`, and the lowest free one is
    /// taken first. As in BMv2, numbers decide between entries of equal priority.
    entries: Vec<StoredEntry>,
    free: BTreeSet<u32>,
    default: Option<ActionCall>,
    index: KeyIndex,
}

#[derive(Debug)]
struct StoredEntry {
    action: TableAction,
    count: CounterData,
    meter: Option<TwoRateMeter>,
    idle: IdleState,
}

/// How long an entry has been without a hit.
#[derive(Clone, Copy, Debug, Default)]
struct IdleState {
    timeout: Nanos,
    since: Nanos,
    /// The controller has been notified since the last hit.
    notified: bool,
}

impl MatchTable {
    /// The table as the program declares it: its constant entries and its default action.
    pub(crate) fn new(spec: &Arc<TableSpec>) -> Self {
        let mut table = Self {
            spec: Arc::clone(spec),
            tracks_hits: spec.direct_counter || spec.idle_timeout || spec.direct_meter.is_some(),
            profile: spec.profile,
            by_key: BTreeMap::new(),
            entries: Vec::new(),
            free: BTreeSet::new(),
            default: spec.default.clone(),
            index: KeyIndex::new(spec),
        };
        for (key, call) in spec.constant_entries.iter().flatten() {
            // Past the checks of the control API, which refuse writes to constant entries.
            table.insert_entry(key.clone(), TableAction::Action(call.clone()));
        }
        table
    }

    /// The number of the entry that matches the packet.
    #[inline]
    pub(crate) fn lookup(&mut self, phv: &Phv) -> Option<u32> {
        self.index.lookup(phv)
    }

    /// What an entry found by [`Table::lookup`] leads to.
    #[inline]
    pub(crate) fn entry_action(&self, entry: u32) -> &TableAction {
        &self.entries[entry as usize].action
    }

    /// Counts a packet on an entry found by [`Table::lookup`].
    #[inline]
    pub(crate) fn count_hit(&mut self, entry: u32, bytes: u64) {
        self.entries[entry as usize].count.add_packet(bytes);
    }

    /// Notes that an entry found by [`Table::lookup`] was hit.
    pub(crate) fn touch_entry(&mut self, entry: u32, now: Nanos) {
        let idle = &mut self.entries[entry as usize].idle;
        // A hit after a notification begins the time anew, and may be notified again.
        (idle.since, idle.notified) = (now, false);
    }

    /// The colour of a packet by the direct meter of an entry found by [`Table::lookup`].
    pub(crate) fn color_packet(&mut self, entry: u32, now: Nanos, bytes: u64) -> u8 {
        let meter = &mut self.entries[entry as usize].meter;
        meter.as_mut().map_or(0, |meter| meter.color_packet(now, bytes))
    }

    /// The action of a miss.
    #[inline]
    pub(crate) fn default_action(&self) -> Option<&ActionCall> {
        self.default.as_ref()
    }

    /// Whether an entry with this key may be added.
    pub(crate) fn check_insert(&self, key: &MatchKey) -> Result<(), ControlError> {
        self.check_writable()?;
        check_key(&self.spec, key)?;
        if self.by_key.contains_key(key) {
            return Err(ControlError::AlreadyExists);
        }
        if self.by_key.len() >= self.spec.size {
            return Err(ControlError::Full { size: self.spec.size });
        }
        Ok(())
    }

    /// Whether an entry with this key is there to be changed.
    pub(crate) fn check_existing(&self, key: &MatchKey) -> Result<(), ControlError> {
        self.check_writable()?;
        self.entry_number(key).map(|_| ())
    }

    /// Replaces an entry's target and keeps its counter; returns the old target.
    pub(crate) fn modify_entry(
        &mut self,
        key: &MatchKey,
        target: TableAction,
    ) -> Result<TableAction, ControlError> {
        self.check_writable()?;
        let number = self.entry_number(key)?;
        Ok(std::mem::replace(&mut self.entries[number as usize].action, target))
    }

    /// Removes an entry and returns its target.
    pub(crate) fn delete_entry(&mut self, key: &MatchKey) -> Result<TableAction, ControlError> {
        self.check_writable()?;
        let number = self.entry_number(key)?;
        self.by_key.remove(key);
        self.index.remove(key, number);
        // The entry stays in its place, where a new one overwrites it: numbers are never moved.
        self.free.insert(number);
        Ok(self.entries[number as usize].action.clone())
    }

    /// The entry with this key.
    pub(crate) fn get(&self, key: &MatchKey) -> Result<EntryView<'_>, ControlError> {
        check_key(&self.spec, key)?;
        let (key, number) = self.by_key.get_key_value(key).ok_or(ControlError::NotFound)?;
        Ok(self.entry_view(key, *number))
    }

    /// All entries, ordered by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntryView<'_>> {
        self.by_key.iter().map(|(key, number)| self.entry_view(key, *number))
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Sets an entry's direct counter.
    pub(crate) fn set_counter(
        &mut self,
        key: &MatchKey,
        count: CounterData,
    ) -> Result<(), ControlError> {
        if !self.spec.direct_counter {
            return Err(ControlError::NoDirectCounter);
        }
        let number = self.entry_number(key)?;
        self.entries[number as usize].count = count;
        Ok(())
    }

    /// Sets or removes the rates of an entry's direct meter.
    pub(crate) fn set_meter(
        &mut self,
        key: &MatchKey,
        config: Option<MeterConfig>,
    ) -> Result<(), ControlError> {
        let number = self.entry_number(key)?;
        let meter = &mut self.entries[number as usize].meter;
        meter.as_mut().ok_or(ControlError::NoDirectMeter)?.set_config(config);
        Ok(())
    }

    /// Sets how long an entry may go without a hit, from now on.
    pub(crate) fn set_idle_timeout(
        &mut self,
        key: &MatchKey,
        timeout: Nanos,
        now: Nanos,
    ) -> Result<(), ControlError> {
        if !self.spec.idle_timeout {
            return Err(ControlError::NoIdleTimeout);
        }
        let number = self.entry_number(key)?;
        self.entries[number as usize].idle = IdleState { timeout, since: now, notified: false };
        Ok(())
    }

    /// The entries that have gone without a hit for longer than their timeout, each told once
    /// until its next hit.
    pub(crate) fn take_idle_entries(&mut self, now: Nanos) -> Vec<MatchKey> {
        let mut expired = Vec::new();
        for (key, number) in &self.by_key {
            let idle = &mut self.entries[*number as usize].idle;
            let is_over = idle.timeout > 0 && now.saturating_sub(idle.since) >= idle.timeout;
            // Once for each time without hits; a controller that has not acted knows it already.
            if is_over && !idle.notified {
                idle.notified = true;
                expired.push(key.clone());
            }
        }
        expired
    }

    /// Changes the default action; the call's arguments have been checked by the caller.
    pub(crate) fn set_default(&mut self, call: ActionCall) -> Result<(), ControlError> {
        let same_action = self.spec.default.as_ref().is_some_and(|d| d.action == call.action);
        match self.spec.default_mutability {
            // The default of a table with a profile is that of the program, as in BMv2.
            _ if self.spec.profile.is_some() => {
                Err(ControlError::TargetKind("no default action from the control plane"))
            }
            DefaultMutability::Constant => Err(ControlError::Constant("the default action")),
            DefaultMutability::FixedAction if !same_action => {
                Err(ControlError::Constant("which action is the default"))
            }
            _ => {
                self.default = Some(call);
                Ok(())
            }
        }
    }

    /// Puts the program's default action back.
    pub(crate) fn reset_default(&mut self) {
        self.default = self.spec.default.clone();
    }

    /// Adds an entry that has passed [`Table::check_insert`].
    pub(crate) fn insert_entry(&mut self, key: MatchKey, target: TableAction) {
        let entry = StoredEntry {
            action: target,
            count: CounterData::default(),
            meter: self.spec.direct_meter.map(|meter| TwoRateMeter::new(meter.unit)),
            idle: IdleState::default(),
        };
        // The lowest free number, so that two switches with the same writes number entries alike.
        let number = match self.free.pop_first() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.index.insert(&key, number);
        self.by_key.insert(key, number);
    }

    fn entry_view<'a>(&'a self, key: &'a MatchKey, number: u32) -> EntryView<'a> {
        let entry = &self.entries[number as usize];
        EntryView {
            key,
            action: &entry.action,
            count: entry.count,
            meter: entry.meter.as_ref().and_then(TwoRateMeter::config),
            idle_timeout: entry.idle.timeout,
            last_hit: entry.idle.since,
        }
    }

    fn entry_number(&self, key: &MatchKey) -> Result<u32, ControlError> {
        check_key(&self.spec, key)?;
        self.by_key.get(key).copied().ok_or(ControlError::NotFound)
    }

    fn check_writable(&self) -> Result<(), ControlError> {
        match self.spec.constant_entries {
            Some(_) => Err(ControlError::Constant("the entries")),
            None => Ok(()),
        }
    }
}
