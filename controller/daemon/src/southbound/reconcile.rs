//! One pass over one switch: read everything, compare, write the difference, read again.
//!
//! [`session`](super::session) makes a pass when it becomes primary, when there is something new to
//! realise, and every so often. The decision: a pass takes no hint of what changed and remembers
//! nothing of the pass before. Whatever happened in between (a refused update, a restart, another
//! controller), the next pass sees it in what the switch holds, and that is the whole of error
//! handling: the next pass is the retry.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use p4::codec::{Refusal, WriteError};
use p4::{Pipeline, TableEntry, Tables, Update, UpdateKind, diff};
use tokio::time::Instant;
use tracing::info;

use super::arbitration::ElectionId;
use super::client::ClientError;
use super::connection::{Connection, Entries};
use super::foreign::{self, Sorted};
use super::status::{Pass, Written};
use crate::config::Southbound;

/// What a pass did and found.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How long its parts took.
    pub(super) pass: Pass,
    /// What of ours the switch held at first.
    pub(super) found: Tables,
    /// Entries of others that stay.
    pub(super) foreign: Vec<TableEntry>,
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
}

impl<C: Connection> Reconciler<'_, C> {
    /// Makes one pass. Dropping it half way leaves a switch that the next pass makes whole.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(super) async fn pass(&self, desired: &Tables) -> Result<Outcome, ClientError> {
        let mut outcome = Outcome::default();
        self.ensure_pipeline(&mut outcome.written).await?;
        let begun = Instant::now();
        let actual = self.read(desired).await?;
        outcome.pass.read = begun.elapsed();
        let updates = diff(&self.pipeline.p4info, desired, &actual.ours);
        (outcome.found, outcome.foreign) = (actual.ours, actual.foreign);
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
        let actual = self.read(desired).await?;
        outcome.missing = diff(&self.pipeline.p4info, desired, &actual.ours).len();
        Ok(outcome)
    }

    async fn read(&self, desired: &Tables) -> Result<Sorted, ClientError> {
        let actual = self.switch.tables(self.pipeline).await?;
        Ok(foreign::sort(self.limits.foreign, desired, actual))
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
        match self.switch.tables(self.pipeline).await {
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

/// Runs of updates on one table that either all add or all delete: batches within a run may
/// overtake each other, runs may not.
fn stages(updates: &[Update]) -> impl Iterator<Item = &[Update]> {
    let stage = |update: &Update| (update.entry.key.table, update.kind == UpdateKind::Delete);
    updates.chunk_by(move |a, b| stage(a) == stage(b))
}
