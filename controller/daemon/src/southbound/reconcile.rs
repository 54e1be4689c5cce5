//! One pass over one switch: compare, write the difference, read back what was written.
//!
//! [`session`](super::session) makes a pass when it becomes primary, when there is something new to
//! realise, and every so often. The decision: a pass compares with what the switch holds, read
//! whole, unless the same mastership has seen the switch hold all that it should, which only a
//! primary may change: then with that. Whatever went wrong in between (a refused update, entries
//! changed behind P4Runtime), reading back or the next whole pass sees it, and that is the whole of
//! error handling: the next pass is the retry.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use p4::codec::{RefusedUpdate, WriteError};
use p4::{
    ForwardingPipeline, P4Info, SwitchTables, TableEntry, TableScope, TableUpdate, UpdateKind,
    diff_tables, split_stages,
};
use tokio::time::Instant;
use tonic::Code;
use tracing::{info, warn};

use super::UnknownEntries;
use super::arbitration::ElectionId;
use super::batch_size::BatchSize;
use super::client::ClientError;
use super::connection::{ExistingEntries, SwitchConnection};
use super::foreign_entries::{self, SortedEntries};
use super::read_limiter::ReadLimiter;
use super::running_program::read_replaceable;
use super::session_log::SessionLog;
use super::status::{ReconcilePass, WriteCounts};
use crate::config::SouthboundConfig;
use crate::pipeline::SwitchPipeline;

/// What a pass did and found.
#[derive(Debug, Default)]
pub(super) struct ReconcileOutcome {
    /// How long its parts took.
    pub(super) pass: ReconcilePass,
    /// What of ours the switch held at first, as read or as seen before.
    pub(super) found: Arc<SwitchTables>,
    /// Entries of others that stay, where all were read.
    pub(super) foreign: Option<Vec<TableEntry>>,
    /// What was written.
    pub(super) written: WriteCounts,
    /// What the switch refused.
    pub(super) refusals: Vec<RefusedUpdate>,
    /// Batches that failed as a whole, in the switch's words.
    pub(super) failures: Vec<String>,
    /// When the first write was sent.
    pub(super) first_write: Option<Instant>,
    /// When the switch had answered the last one.
    pub(super) last_answer: Option<Instant>,
    /// Updates that are still missing after reading back; none means verified.
    pub(super) missing: usize,
}

/// Reconciles one switch in passes.
pub(super) struct SwitchReconciler<'a> {
    pub(super) switch: &'a dyn SwitchConnection,
    pub(super) pipeline: &'static dyn SwitchPipeline,
    pub(super) election: ElectionId,
    pub(super) limits: &'a SouthboundConfig,
    pub(super) unknown_entries: UnknownEntries,
    pub(super) read_limiter: &'a ReadLimiter,
    pub(super) batch_size: &'a BatchSize,
    pub(super) log: &'a SessionLog,
}

impl SwitchReconciler<'_> {
    /// Reads the whole switch and writes what differs. The next pass completes a cancelled one.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(super) async fn full_reconcile(
        &self,
        desired: &SwitchTables,
    ) -> Result<ReconcileOutcome, ClientError> {
        let mut outcome = ReconcileOutcome::default();
        // Before the read, which the tables of another program would make useless.
        self.ensure_pipeline(&mut outcome.written).await?;
        let begun = Instant::now();
        let all = self.full_extent();
        let actual = self.read_limiter.run_limited(self.read_entries(desired, &all)).await?;
        outcome.pass.read = begun.elapsed();
        outcome.foreign = Some(actual.foreign);
        self.write_difference(desired, Arc::new(actual.ours), outcome).await
    }

    /// Makes a pass over a switch that this mastership has seen to hold `held` and no other entry
    /// of ours.
    ///
    /// # Errors
    /// As for [`SwitchReconciler::full_reconcile`].
    pub(super) async fn incremental_reconcile(
        &self,
        desired: &SwitchTables,
        held: Arc<SwitchTables>,
    ) -> Result<ReconcileOutcome, ClientError> {
        self.write_difference(desired, held, ReconcileOutcome::default()).await
    }

    /// Whether a part of the switch still is as this mastership has seen it, its program included.
    ///
    /// # Errors
    /// As for [`SwitchReconciler::full_reconcile`].
    pub(super) async fn check_part(
        &self,
        held: &SwitchTables,
        part: &TableScope,
    ) -> Result<bool, ClientError> {
        // A switch that restarted runs another program or none; its tables would not compare.
        if self.switch.read_cookie().await? != Some(self.program().cookie) {
            return Ok(false);
        }
        let actual = self.read_entries(held, part).await?;
        let expected = held.entries_within(part);
        Ok(diff_tables(&self.program().p4info, &expected, &actual.ours).is_empty())
    }

    /// Writes what is desired and not found, and reads back what was written.
    async fn write_difference(
        &self,
        desired: &SwitchTables,
        found: Arc<SwitchTables>,
        mut outcome: ReconcileOutcome,
    ) -> Result<ReconcileOutcome, ClientError> {
        let updates = diff_tables(&self.program().p4info, desired, &found);
        outcome.found = found;
        if updates.is_empty() {
            return Ok(outcome);
        }
        let is_large = updates.len() > self.limits.batch.get();
        if is_large {
            // Hundreds of switches at once would be late all together, and take memory for all that
            // is read back.
            let whole = async {
                let touched = self.write_updates(desired, updates, &mut outcome).await?;
                self.read_back(desired, &touched, &mut outcome).await
            };
            self.read_limiter.run_large_write(whole).await?;
        } else {
            let writing = self.write_updates(desired, updates, &mut outcome);
            let touched = self.read_limiter.run_small_write(writing).await?;
            // Traffic waits for the writes of other switches, and nobody for what is read back
            // here.
            self.read_limiter.wait_for_writes().await;
            self.read_back(desired, &touched, &mut outcome).await?;
        }
        Ok(outcome)
    }

    /// Writes updates stage by stage; returns what they touch.
    async fn write_updates(
        &self,
        desired: &SwitchTables,
        updates: Vec<TableUpdate>,
        outcome: &mut ReconcileOutcome,
    ) -> Result<TableScope, ClientError> {
        let begun = Instant::now();
        outcome.first_write = Some(begun);
        outcome.pass.updates = updates.len();
        let (allowed, violations) = refuse_violations(&self.program().p4info, updates);
        outcome.written.refused += violations.len() as u64;
        // One stage after the other: a row may refer to rows of the stage before.
        for stage in split_stages(&self.program().p4info, &allowed) {
            self.write_stage(stage, outcome).await?;
        }
        outcome.pass.write = begun.elapsed();
        outcome.last_answer = Some(Instant::now());
        // Refused rows are read back too, or the pass would count as verified without them.
        let refused = violations.iter().map(|refusal| &refusal.update);
        let touched = TableScope::from_updates(allowed.iter().chain(refused), desired);
        outcome.refusals.extend(violations);
        Ok(touched)
    }

    /// Reads what updates have touched, and counts what is missing.
    async fn read_back(
        &self,
        desired: &SwitchTables,
        touched: &TableScope,
        outcome: &mut ReconcileOutcome,
    ) -> Result<(), ClientError> {
        let actual = self.read_entries(desired, touched).await?;
        let wanted = desired.entries_within(touched);
        outcome.missing = diff_tables(&self.program().p4info, &wanted, &actual.ours).len();
        Ok(())
    }

    async fn read_entries(
        &self,
        desired: &SwitchTables,
        of: &TableScope,
    ) -> Result<SortedEntries, ClientError> {
        let actual = self.switch.read_tables(self.program(), of).await?;
        Ok(foreign_entries::sort_entries(
            self.limits.foreign,
            self.unknown_entries,
            desired,
            actual,
        ))
    }

    fn full_extent(&self) -> TableScope {
        TableScope::whole_tables(self.program().p4info.table_ids())
    }

    fn program(&self) -> &'static ForwardingPipeline {
        self.pipeline.program()
    }

    /// Pushes the program only where another one or none runs. Where another runs, its entries are
    /// kept if the switch can do that and we can read them, so that traffic goes on; else all
    /// tables are emptied and what follows is the restoration. A program of another kind stays: it
    /// is somebody else's, or the fabric document names the wrong one.
    async fn ensure_pipeline(&self, written: &mut WriteCounts) -> Result<(), ClientError> {
        if self.switch.read_cookie().await? == Some(self.program().cookie) {
            return Ok(());
        }
        let running = read_replaceable(self.switch, self.pipeline, self.limits).await?;
        written.pipelines += 1;
        // An empty switch has nothing to keep, which saves a call at every start.
        if running.is_some() && self.replace_under_traffic().await? {
            return Ok(());
        }
        self.push_pipeline(ExistingEntries::Drop).await
    }

    /// Whether the switch took the program and kept entries that make sense in it.
    async fn replace_under_traffic(&self) -> Result<bool, ClientError> {
        match self.push_pipeline(ExistingEntries::Keep).await {
            Ok(()) => {}
            Err(ClientError::Call { code, message, .. }) => {
                info!(%code, message, "the switch cannot keep its entries");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        // A server may accept the program and keep rows that it does not have; only a read shows
        // that.
        match self.switch.read_tables(self.program(), &self.full_extent()).await {
            Ok(_) => Ok(true),
            Err(ClientError::Decode { source, .. }) => {
                info!(error = %source, "what the switch kept makes no sense now");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn push_pipeline(&self, entries: ExistingEntries) -> Result<(), ClientError> {
        self.switch.push_pipeline(self.program(), self.election, entries).await
    }

    /// Writes updates that do not depend on each other, some batches at a time.
    async fn write_stage(
        &self,
        stage: &[TableUpdate],
        outcome: &mut ReconcileOutcome,
    ) -> Result<(), ClientError> {
        let batches = stage.chunks(self.batch_size.get());
        let writes: Vec<BoxFuture<'_, _>> =
            batches.map(|batch| self.write_batch(batch).boxed()).collect();
        // In order, so that two runs of one seed record the same.
        let mut answers = stream::iter(writes).buffered(self.limits.concurrent_writes.get());
        while let Some(answers) = answers.next().await {
            for (batch, answer) in answers? {
                outcome.record_batch(batch, answer);
            }
        }
        Ok(())
    }

    /// Writes a batch, in several requests where the switch takes fewer updates in one.
    async fn write_batch<'u>(
        &self,
        batch: &'u [TableUpdate],
    ) -> Result<Vec<BatchAnswer<'u>>, ClientError> {
        let mut answers = Vec::new();
        let mut rest = batch;
        while !rest.is_empty() {
            // The size is read anew for each request: another write of this switch may have halved
            // it.
            let (part, later) = rest.split_at(self.batch_size.get().min(rest.len()));
            let answer = self.switch.write_updates(part, self.election).await?;
            if let Err(error) = &answer
                && let Some(size) = self.batch_size.halve_after(error, part.len())
            {
                let updates = part.len();
                self.log.log_limited("batch size", |omitted| {
                    let what = "the switch refuses a request of so many updates; it gets smaller \
                                ones: set `reconcile.batch` to what it takes";
                    warn!(updates, %error, size, omitted, "{what}");
                });
                continue;
            }
            answers.push((part, answer));
            rest = later;
        }
        Ok(answers)
    }
}

/// Some updates and the answer of the switch to the request that had them.
type BatchAnswer<'u> = (&'u [TableUpdate], Result<(), WriteError>);

impl ReconcileOutcome {
    /// Records the answer of the switch to a batch.
    fn record_batch(&mut self, batch: &[TableUpdate], answer: Result<(), WriteError>) {
        let refusals = match answer {
            Ok(()) => Vec::new(),
            Err(WriteError::Refused(refusals)) => refusals,
            // Which updates were applied is unknown; reading back shows the missing ones.
            Err(failed @ WriteError::Batch { .. }) => {
                self.failures.push(failed.to_string());
                return;
            }
        };
        let refused: Vec<usize> = refusals.iter().map(|refusal| refusal.position).collect();
        for (_, update) in batch.iter().enumerate().filter(|(at, _)| !refused.contains(at)) {
            match update.kind {
                UpdateKind::Insert => self.written.inserted += 1,
                UpdateKind::Modify => self.written.modified += 1,
                UpdateKind::Delete => self.written.deleted += 1,
            }
        }
        self.written.refused += refused.len() as u64;
        self.refusals.extend(refusals);
    }
}

/// The updates that the program allows, and the others. A switch need not check its restrictions,
/// and one that does may refuse the whole batch.
fn refuse_violations(
    p4info: &P4Info,
    updates: Vec<TableUpdate>,
) -> (Vec<TableUpdate>, Vec<RefusedUpdate>) {
    if !p4info.has_constraints() {
        return (updates, Vec::new());
    }
    let mut refused = Vec::new();
    let mut allowed = Vec::with_capacity(updates.len());
    for (position, update) in updates.into_iter().enumerate() {
        // A row that violates a restriction was written before the program had it, and has to go.
        let is_deletion = update.kind == UpdateKind::Delete;
        match p4info.check_constraints(&update.entry) {
            Err(violation) if !is_deletion => {
                let message = violation.to_string();
                let code = Code::InvalidArgument;
                refused.push(RefusedUpdate { position, update, code, message });
            }
            _ => allowed.push(update),
        }
    }
    (allowed, refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use UpdateKind::{Delete, Insert};
    use p4::entry::{ActionCall, EntryKey, RowField};
    use p4::fabric::{self, PortNumber};

    #[test]
    fn rows_that_violate_a_restriction_are_not_written() {
        let program = ForwardingPipeline::embedded_fabric();
        let table = program.p4info.table(fabric::table::ACL_PUNT).unwrap();
        let ttl = table.fields.iter().find(|field| field.info.name == "ttl").unwrap();
        let ttl = RowField::ternary(ttl.info.id, 1, 0xff).unwrap();
        let punt = ActionCall::new(fabric::action::PUNT, []);
        let without_type = EntryKey::for_row(table.id, vec![ttl], 1).with_action(punt.into());
        let updates = [
            (Insert, fabric::port_down(PortNumber::CPU)),
            (Insert, without_type.clone()),
            (Delete, without_type.clone()),
        ];
        let updates = updates.map(|(kind, entry)| TableUpdate { kind, entry }).to_vec();
        let (allowed, refused) = refuse_violations(&program.p4info, updates.clone());
        assert_eq!(allowed, [updates[0].clone(), updates[2].clone()]);
        let expected = RefusedUpdate {
            position: 1,
            update: updates[1].clone(),
            code: Code::InvalidArgument,
            message: "`acl_punt` requires ttl::mask != 0 -> ether_type == 0x0800".to_owned(),
        };
        assert_eq!(refused, [expected]);
    }
}
