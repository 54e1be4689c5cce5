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
use p4::codec::{Refusal, WriteError};
use p4::{Extent, Pipeline, TableEntry, Tables, Update, UpdateKind, diff};
use tokio::time::Instant;
use tracing::info;

use super::Others;
use super::arbitration::ElectionId;
use super::client::ClientError;
use super::connection::{Connection, Entries};
use super::foreign::{self, Sorted};
use super::status::{Pass, Written};
use super::turns::Turns;
use crate::config::Southbound;

/// What a pass did and found.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How long its parts took.
    pub(super) pass: Pass,
    /// What of ours the switch held at first, as read or as seen before.
    pub(super) found: Arc<Tables>,
    /// Entries of others that stay, where all were read.
    pub(super) foreign: Option<Vec<TableEntry>>,
    /// What was written.
    pub(super) written: Written,
    /// What the switch refused.
    pub(super) refusals: Vec<Refusal>,
    /// Batches that failed as a whole, in the switch's words.
    pub(super) failures: Vec<String>,
    /// When the first write was sent.
    pub(super) first_write: Option<Instant>,
    /// Updates that are still missing after reading back; none means verified.
    pub(super) missing: usize,
}

/// What a pass is made with.
pub(super) struct Reconciler<'a, C> {
    pub(super) switch: &'a C,
    pub(super) pipeline: &'a Pipeline,
    pub(super) election: ElectionId,
    pub(super) limits: &'a Southbound,
    pub(super) others: Others,
    pub(super) turns: &'a Turns,
}

impl<C: Connection> Reconciler<'_, C> {
    /// Makes a whole pass. Dropping it half way leaves a switch that the next one makes whole.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(super) async fn whole_pass(&self, desired: &Tables) -> Result<Outcome, ClientError> {
        let mut outcome = Outcome::default();
        self.ensure_pipeline(&mut outcome.written).await?;
        let begun = Instant::now();
        let all = self.all();
        let actual = self.turns.take(self.read(desired, &all)).await?;
        outcome.pass.read = begun.elapsed();
        outcome.foreign = Some(actual.foreign);
        self.realise(desired, Arc::new(actual.ours), outcome).await
    }

    /// Makes a pass over a switch that this mastership has seen to hold `held` and no other entry
    /// of ours.
    ///
    /// # Errors
    /// As for [`Reconciler::whole_pass`].
    pub(super) async fn short_pass(
        &self,
        desired: &Tables,
        held: Arc<Tables>,
    ) -> Result<Outcome, ClientError> {
        self.realise(desired, held, Outcome::default()).await
    }

    /// Writes what is desired and not found, and reads back what was written.
    async fn realise(
        &self,
        desired: &Tables,
        found: Arc<Tables>,
        mut outcome: Outcome,
    ) -> Result<Outcome, ClientError> {
        let updates = diff(&self.pipeline.p4info, desired, &found);
        outcome.found = found;
        if updates.is_empty() {
            return Ok(outcome);
        }
        let begun = Instant::now();
        outcome.first_write = Some(begun);
        outcome.pass.updates = updates.len();
        for stage in stages(&updates) {
            self.write_stage(stage, &mut outcome).await?;
        }
        outcome.pass.write = begun.elapsed();
        let touched = Extent::of_updates(&updates, desired);
        let actual = self.read(desired, &touched).await?;
        let wanted = desired.only(&touched);
        outcome.missing = diff(&self.pipeline.p4info, &wanted, &actual.ours).len();
        Ok(outcome)
    }

    async fn read(&self, desired: &Tables, of: &Extent) -> Result<Sorted, ClientError> {
        let actual = self.switch.tables(self.pipeline, of).await?;
        Ok(foreign::sort(
            self.limits.foreign,
            self.others,
            desired,
            actual,
        ))
    }

    fn all(&self) -> Extent {
        Extent::of_tables(self.pipeline.p4info.table_ids())
    }

    /// Pushes the program only where another one or none runs. Where another runs, its entries are
    /// kept if the switch can do that and we can read them, so that traffic goes on; else all
    /// tables are emptied and what follows is the restoration.
    async fn ensure_pipeline(&self, written: &mut Written) -> Result<(), ClientError> {
        let running = self.switch.cookie().await?;
        if running == Some(self.pipeline.cookie) {
            return Ok(());
        }
        written.pipelines += 1;
        if running.is_some() && self.replace_under_traffic().await? {
            return Ok(());
        }
        self.push(Entries::Dropped).await
    }

    /// Whether the switch took the program and kept entries that make sense in it.
    async fn replace_under_traffic(&self) -> Result<bool, ClientError> {
        match self.push(Entries::Kept).await {
            Ok(()) => {}
            Err(ClientError::Call { code, message, .. }) => {
                info!(?code, message, "the switch cannot keep its entries");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        match self.switch.tables(self.pipeline, &self.all()).await {
            Ok(_) => Ok(true),
            Err(ClientError::Decode { source, .. }) => {
                info!(error = %source, "what the switch kept makes no sense now");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn push(&self, entries: Entries) -> Result<(), ClientError> {
        let pushing = self.switch.push(self.pipeline, self.election, entries);
        pushing.await
    }

    /// Writes updates that do not depend on each other, some batches at a time.
    async fn write_stage(
        &self,
        stage: &[Update],
        outcome: &mut Outcome,
    ) -> Result<(), ClientError> {
        let batches = stage.chunks(self.limits.batch.get());
        let write = |batch| {
            let answer = self.switch.write(batch, self.election);
            answer
                .map(move |answer| answer.map(|answer| (batch, answer)))
                .boxed()
        };
        let writes: Vec<BoxFuture<'_, _>> = batches.map(write).collect();
        let mut answers = stream::iter(writes).buffered(self.limits.outstanding.get());
        while let Some(answer) = answers.next().await {
            let (batch, answer) = answer?;
            outcome.count(batch, answer);
        }
        Ok(())
    }
}

impl Outcome {
    /// Takes in the switch's word on a batch.
    fn count(&mut self, batch: &[Update], answer: Result<(), WriteError>) {
        let refusals = match answer {
            Ok(()) => Vec::new(),
            Err(WriteError::Refused(refusals)) => refusals,
            // What of it was written is unknown; reading back will tell.
            Err(failed @ WriteError::Batch { .. }) => {
                self.failures.push(failed.to_string());
                return;
            }
        };
        let refused: Vec<usize> = refusals.iter().map(|refusal| refusal.position).collect();
        for (_, update) in batch
            .iter()
            .enumerate()
            .filter(|(at, _)| !refused.contains(at))
        {
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

/// Runs of updates: batches within a run may overtake each other, runs may not. After a table to
/// which rows were added, and that others may refer to, and after one from which rows went, a new
/// run begins; what only changes was there before and is there after.
fn stages(updates: &[Update]) -> impl Iterator<Item = &[Update]> {
    let deletes = |update: &Update| update.kind == UpdateKind::Delete;
    let mut adds = false;
    updates.chunk_by(move |a, b| {
        adds |= a.kind == UpdateKind::Insert;
        let is_same_table = a.entry.key.table == b.entry.key.table;
        let goes_on = deletes(a) == deletes(b) && (is_same_table || !(adds || deletes(a)));
        adds &= goes_on;
        goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use UpdateKind::{Delete, Insert, Modify};
    use p4::fabric::{self, Port};

    /// Tables by letter, and the runs that these updates make.
    fn check(updates: &[(UpdateKind, char)], runs: &[usize]) {
        let entry = |table| match table {
            'a' => fabric::port_down(Port::CPU),
            'b' => fabric::path(1, 1, Port::CPU, Port::CPU),
            _ => fabric::fabric_port(Port::CPU),
        };
        let update = |&(kind, table): &(UpdateKind, char)| Update {
            kind,
            entry: entry(table),
        };
        let updates: Vec<Update> = updates.iter().map(update).collect();
        let lengths: Vec<usize> = stages(&updates).map(<[Update]>::len).collect();
        assert_eq!(lengths, runs, "{updates:?}");
    }

    #[test]
    fn what_only_changes_waits_for_nothing_but_what_is_added() {
        check(&[(Modify, 'a'), (Modify, 'b'), (Modify, 'c')], &[3]);
        check(&[(Modify, 'a'), (Insert, 'b'), (Modify, 'b')], &[3]);
        check(&[(Insert, 'a'), (Modify, 'b'), (Modify, 'c')], &[1, 2]);
        check(&[(Insert, 'a'), (Modify, 'a'), (Modify, 'b')], &[2, 1]);
        check(&[(Insert, 'a'), (Insert, 'b'), (Insert, 'c')], &[1, 1, 1]);
        check(&[(Modify, 'a'), (Delete, 'c'), (Delete, 'b')], &[1, 1, 1]);
    }
}
