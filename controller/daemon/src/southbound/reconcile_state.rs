//! One mastership's effort to keep a switch at what is desired: what it took, what was found, when
//! to look again.
//!
//! [`session`](super::session) makes the passes and hands their outcomes here; from here they go to
//! the log and to the [`StatusBoard`]. The decision: what the switch was seen to hold is kept as
//! long as nothing is missing. A new generation writes its difference from that, and where there is
//! none needs no pass; every so often, however fast generations come, the switch is read whole, and
//! what has changed on it since is drift and is told entry by entry.

use std::sync::Arc;

use p4::codec::RefusedUpdate;
use p4::{P4Info, SwitchTables, TableScope, UpdateKind, diff_tables};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use topology::SwitchId;
use tracing::{debug, info, warn};

use super::batch_size::BatchSize;
use super::read_schedule::ReadSchedule;
use super::reconcile::ReconcileOutcome;
use super::session_log::{SessionLog, shorten_text};
use super::spot_check::CheckCursor;
use super::status::{ENTRIES_SHOWN, StatusBoard, VerifiedTables, WriteCounts};
use super::{DesiredTables, UnknownEntries};
use crate::config::SouthboundConfig;
use crate::pipeline::SwitchPipeline;

/// What a mastership did so far for one generation.
pub(super) struct ReconcileState {
    switch: SwitchId,
    pipeline: &'static dyn SwitchPipeline,
    desired: Arc<DesiredTables>,
    first_write: Option<Instant>,
    last_answer: Option<Instant>,
    /// Passes in a row that left something missing.
    incomplete_passes: u32,
    /// When the latest pass ended.
    last_pass_ended: Instant,
    schedule: ReadSchedule,
    /// When the switch shall be read whole again.
    next_full_read: Instant,
    /// What the switch was last seen to hold, in this mastership.
    held: Option<Arc<SwitchTables>>,
    /// Whether a spot check has found something else than `held`.
    has_drifted: bool,
    /// Whether a pass has pushed the program since this was last asked.
    has_pushed: bool,
    next_check: Instant,
    cursor: CheckCursor,
    /// Updates that the switch takes in a request, as far as it has said so.
    batch_size: BatchSize,
    log: SessionLog,
}

/// What another generation asks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// This switch shall hold other tables, or does not yet hold what it shall.
    Reconcile,
    /// The switch was seen to hold the very same.
    Nothing,
}

impl NextStep {
    pub(super) fn needs_reconcile(self) -> bool {
        self == Self::Reconcile
    }
}

impl ReconcileState {
    pub(super) fn new(
        switch: SwitchId,
        pipeline: &'static dyn SwitchPipeline,
        desired: Arc<DesiredTables>,
        schedule: ReadSchedule,
        batch_size: BatchSize,
        log: SessionLog,
    ) -> Self {
        Self {
            switch,
            pipeline,
            desired,
            first_write: None,
            last_answer: None,
            incomplete_passes: 0,
            last_pass_ended: Instant::now(),
            next_full_read: schedule.book_full_read(Instant::now(), 0),
            schedule,
            held: None,
            has_drifted: false,
            has_pushed: false,
            next_check: Instant::now(),
            cursor: CheckCursor::default(),
            batch_size,
            log,
        }
    }

    /// What the switch shall hold, if anything is desired of it.
    pub(super) fn desired_tables(&self) -> Option<Arc<SwitchTables>> {
        self.desired.tables.get(&self.switch).map(Arc::clone)
    }

    /// Nothing is desired yet, so nothing is to be read for a while.
    pub(super) fn postpone_full_read(&mut self) {
        self.next_full_read = self.schedule.book_full_read(Instant::now(), 0);
    }

    /// Whether a pass has pushed the program since the last call.
    pub(super) fn take_pipeline_push(&mut self) -> bool {
        std::mem::take(&mut self.has_pushed)
    }

    pub(super) fn batch_size(&self) -> &BatchSize {
        &self.batch_size
    }

    /// What becomes of other entries on it.
    pub(super) fn unknown_entries(&self) -> UnknownEntries {
        self.desired.unknown_entries
    }

    /// What the switch was last seen to hold, unless a full read is due.
    pub(super) fn held_tables(&self, limits: &SouthboundConfig) -> Option<Arc<SwitchTables>> {
        let is_recent = !self.has_drifted && Instant::now() < self.next_reconcile(limits);
        self.held.clone().filter(|_| is_recent)
    }

    /// When there is something to do without an update: a pass or a spot check.
    pub(super) fn next_wake(&self, limits: &SouthboundConfig) -> Instant {
        let check = self.held.as_ref().map(|_| self.next_check);
        let pass = self.next_reconcile(limits);
        check.map_or(pass, |check| check.min(pass))
    }

    /// What the next spot check compares, if one is due and no pass is.
    pub(super) fn take_check(
        &mut self,
        p4info: &P4Info,
        limits: &SouthboundConfig,
    ) -> Option<(Arc<SwitchTables>, TableScope)> {
        let held = self.held_tables(limits)?;
        if Instant::now() < self.next_check {
            return None;
        }
        let tables: Vec<_> = p4info.table_ids().into_iter().collect();
        let part = self.cursor.next_scope(&held, &tables, self.schedule.check_entries.get());
        Some((held, part))
    }

    /// Records what a spot check found. After one that found something else, the whole switch is
    /// read.
    pub(super) fn record_check(&mut self, is_intact: bool, board: &StatusBoard) {
        // Kept until a full read has seen all of it: the next check reads other tables.
        self.has_drifted |= !is_intact;
        let now = Instant::now();
        self.next_check = self.schedule.book_check(now, self.desired_entries());
        if is_intact {
            board.update_status(self.switch, |line| line.checked_at = Some(now));
        }
    }

    /// When the next pass is due without an update: soon after one that left something missing.
    pub(super) fn next_reconcile(&self, limits: &SouthboundConfig) -> Instant {
        match self.incomplete_passes {
            // A switch that lacks something is retried with a backoff, outside of the schedule that
            // all share.
            0 => self.next_full_read,
            passes => self.last_pass_ended + limits.backoff.wait_after(passes),
        }
    }

    /// Waits for a newer generation until `due`; updates of the same generation are skipped.
    pub(super) async fn wait_for_newer(
        &self,
        updates: &mut watch::Receiver<Arc<DesiredTables>>,
        due: Instant,
    ) -> Option<Arc<DesiredTables>> {
        let generation = self.desired.generation;
        let next = updates.wait_for(|desired| desired.generation > generation);
        // A closed channel counts as a timeout: the controller ends, and drops this session.
        let newer = timeout_at(due, next).await.ok()?.ok()?;
        Some(Arc::clone(&newer))
    }

    /// Adopts a newer generation.
    pub(super) fn adopt_generation(
        &mut self,
        newer: Arc<DesiredTables>,
        board: &StatusBoard,
    ) -> NextStep {
        // Entries that `Keep` spared are not in `held`, so only a full read finds them.
        if self.unknown_entries() == UnknownEntries::Keep {
            self.held = None;
        }
        self.desired = newer;
        (self.first_write, self.last_answer) = (None, None);
        let same = match (&self.held, self.desired_tables()) {
            // Lowering shares equal tables with the generation before, so no entry is compared
            // here.
            (Some(held), Some(wanted)) => Arc::ptr_eq(held, &wanted),
            _ => false,
        };
        if !same {
            return NextStep::Reconcile;
        }
        let seen = self.verified_now();
        board.update_status(self.switch, |line| {
            line.verified = Some(seen);
            line.health.record_success();
        });
        NextStep::Nothing
    }

    /// Records the outcome of a pass and publishes it on the board.
    pub(super) fn record_outcome(
        &mut self,
        outcome: &ReconcileOutcome,
        p4info: &P4Info,
        board: &StatusBoard,
    ) {
        self.last_pass_ended = Instant::now();
        if outcome.foreign.is_some() {
            // Booked from the end of the read, or a slow switch would be read without a pause.
            let (ended, entries) = (self.last_pass_ended, self.desired_entries());
            self.next_full_read = self.schedule.book_full_read(ended, entries);
            self.next_check = self.schedule.book_check(ended, entries);
            self.has_drifted = false;
        }
        // The first write of the generation and its last answer: several passes may be needed for
        // it.
        self.first_write = self.first_write.or(outcome.first_write);
        self.last_answer = outcome.last_answer.or(self.last_answer);
        self.has_pushed |= outcome.written.pipelines > 0;
        self.incomplete_passes = match outcome.missing {
            0 => 0,
            _ => self.incomplete_passes + 1,
        };
        // Before `held` is replaced, with which the read is compared.
        let drift = self.log_drift(outcome, p4info);
        self.log_outcome(outcome, p4info);
        // The very `Arc` of the desired tables, by which the next generation sees that they are
        // equal.
        self.held = (outcome.missing == 0).then(|| self.desired_tables()).flatten();
        let seen = self.held.is_some().then(|| self.verified_now());
        board.update_status(self.switch, |line| {
            // The instant of verification stays where a pass only confirmed it, or timings would
            // grow with every full read.
            let nothing_new = outcome.pass.updates == 0
                && line.verified.map(|old| old.generation) == seen.map(|new| new.generation);
            if !nothing_new {
                line.verified = seen;
            }
            match seen {
                Some(_) => line.health.record_success(),
                None => line.health.record_failure(self.last_pass_ended),
            }
            line.checked_at = Some(self.last_pass_ended).filter(|_| seen.is_some());
            line.drifted += drift as u64;
            line.pin_room = self.pin_room(outcome).or(line.pin_room);
            line.written.add_counts(&outcome.written);
            if let Some(foreign) = &outcome.foreign {
                line.foreign = show_first(foreign, |entry| p4info.display(entry).to_string());
            }
            line.refusals =
                show_first(&outcome.refusals, |refusal| describe_refusal(refusal, p4info));
            line.last_pass = Some(outcome.pass);
            line.passes += 1;
        });
    }

    fn desired_entries(&self) -> usize {
        self.desired_tables().map_or(0, |tables| tables.len())
    }

    fn verified_now(&self) -> VerifiedTables {
        VerifiedTables {
            generation: self.desired.generation,
            lowered_generation: self.desired.lowered_generation,
            entries: self.desired_entries(),
            first_write: self.first_write,
            last_answer: self.last_answer,
            at: Instant::now(),
        }
    }

    /// Logs entries that others changed since the switch was verified, and returns their number.
    fn log_drift(&self, outcome: &ReconcileOutcome, p4info: &P4Info) -> usize {
        let Some(held) = self.held.as_ref() else {
            return 0;
        };
        // An incremental pass starts from `held` itself, without a read that could show drift.
        if Arc::ptr_eq(held, &outcome.found) {
            return 0;
        }
        let drift = diff_tables(p4info, held, &outcome.found);
        for update in &drift {
            let (what, entry) = match update.kind {
                UpdateKind::Insert => ("was removed", p4info.display(&update.entry)),
                UpdateKind::Modify => ("was changed; it shall be", p4info.display(&update.entry)),
                UpdateKind::Delete => ("was added", p4info.display(&update.entry)),
            };
            self.log.log_limited("drift", |omitted| {
                warn!(%entry, omitted, "drift: an entry {what}");
            });
        }
        drift.len()
    }

    /// The number of pins that fit into a switch which refused one for lack of room; `None` if that
    /// is more than it shall hold. Additions come before deletions, so a table may be full only in
    /// between.
    fn pin_room(&self, outcome: &ReconcileOutcome) -> Option<usize> {
        let pin_tables = self.pipeline.pin_tables();
        let no_room = outcome.refusals.iter().filter(|refusal| {
            let table = refusal.update.entry.key.table;
            refusal.code == Code::ResourceExhausted && pin_tables.contains(&table)
        });
        let refused = no_room.count();
        if refused == 0 {
            return None;
        }
        let wanted = self.desired_tables()?;
        let pins_of = |tables: &SwitchTables| -> usize {
            pin_tables.iter().map(|table| tables.table_len(*table)).sum()
        };
        let pins = pin_tables.iter().flat_map(|table| wanted.table_entries(*table));
        let added = pins.filter(|(key, _)| outcome.found.get(key).is_none()).count();
        let room = pins_of(&outcome.found) + added.saturating_sub(refused);
        (room < pins_of(&wanted)).then_some(room)
    }

    /// Logs what was written, and every refused entry with its reason.
    fn log_outcome(&self, outcome: &ReconcileOutcome, p4info: &P4Info) {
        let (generation, missing) = (self.desired.generation, outcome.missing);
        if outcome.pass.updates == 0 {
            let read_ms = outcome.pass.read.as_millis() as u64;
            debug!(generation, read_ms, "as it should be");
        } else {
            let WriteCounts { inserted, modified, deleted, refused, .. } = outcome.written;
            let [read_ms, write_ms] =
                [outcome.pass.read, outcome.pass.write].map(|time| time.as_millis() as u64);
            self.log.log_limited("written", |omitted| {
                info!(
                    generation,
                    inserted,
                    modified,
                    deleted,
                    refused,
                    missing,
                    read_ms,
                    write_ms,
                    omitted,
                    "wrote the difference"
                );
            });
        }
        for failure in &outcome.failures {
            let again = "a batch failed; the next pass tries again";
            self.log.log_limited("batch", |omitted| {
                warn!(generation, failure, omitted, "{again}");
            });
        }
        for refusal in &outcome.refusals {
            let refused = describe_refusal(refusal, p4info);
            self.log.log_limited("refusal", |omitted| {
                warn!(generation, refused, omitted, "refused; the next pass tries again");
            });
        }
        for entry in outcome.foreign.iter().flatten() {
            debug!(entry = %p4info.display(entry), "not ours; left as it is");
        }
    }
}

fn describe_refusal(refusal: &RefusedUpdate, p4info: &P4Info) -> String {
    let (kind, code) = (refusal.update.kind, refusal.code);
    let entry = p4info.display(&refusal.update.entry);
    format!("{kind:?} {entry}: {code:?}: {}", shorten_text(&refusal.message))
}

/// A status shows the first few; all of them are in the log.
fn show_first<T>(all: &[T], show: impl Fn(&T) -> String) -> Vec<String> {
    all.iter().take(ENTRIES_SHOWN).map(show).collect()
}
