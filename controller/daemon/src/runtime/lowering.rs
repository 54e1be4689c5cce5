//! Lowers rollouts to the desired tables of the sessions, with the instants of each stage.
//!
//! Two decisions. Rollouts are lowered beside the event loop, one at a time, each continuing from
//! the one before: the first one of hundreds of switches takes a second, and failures and queries
//! must not wait for it. One that comes meanwhile waits, in the place of an older one. And tables
//! equal to the previous ones are the same `Arc`, so that a session compares pointers to see
//! whether a generation changes its switch. While the fabric is unknown, switches get only the rows
//! that discovery needs.

use std::sync::Arc;

use p4::TableScope;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::pipelines::{PlanLowering, pipeline_at};
use crate::southbound::connection::{self, ComputationPanicked, SwitchNetwork};
use crate::southbound::{ChangeOrigin, DesiredTables, DesiredTimestamps, UnknownEntries};
use crate::state::PlanRollout;

/// Lowers rollouts, the latest one last.
pub(super) struct RolloutLowering {
    network: Arc<dyn SwitchNetwork>,
    in_force: watch::Receiver<Arc<DesiredTables>>,
    /// What the next rollout continues from; with the task while one is lowered.
    lowering: PlanLowering,
    task: Option<JoinHandle<Result<(LoweredRollout, PlanLowering), ComputationPanicked>>>,
    waiting: Option<(PlanRollout, ChangeOrigin)>,
    /// The generation of the latest rollout.
    latest: Option<u64>,
}

/// A rollout with its tables.
pub(super) struct LoweredRollout {
    pub(super) tables: DesiredTables,
    pub(super) rollout: PlanRollout,
}

impl RolloutLowering {
    /// Nothing to lower; tables equal to those `in_force` will be shared.
    pub(super) fn new(
        network: Arc<dyn SwitchNetwork>,
        in_force: watch::Receiver<Arc<DesiredTables>>,
    ) -> Self {
        let lowering = PlanLowering::default();
        Self { network, in_force, lowering, task: None, waiting: None, latest: None }
    }

    /// Lowers a rollout, once the one under way is done.
    pub(super) fn lower_next(&mut self, rollout: PlanRollout, origin: ChangeOrigin) {
        self.latest = Some(rollout.generation);
        self.waiting = Some((rollout, origin));
        if self.task.is_none() {
            self.start_waiting();
        }
    }

    /// The generation of the latest rollout, until it is lowered.
    pub(super) fn latest_generation(&self) -> Option<u64> {
        self.latest
    }

    /// Waits for the rollout under way; for ever if nothing is under way.
    pub(super) async fn next_result(&mut self) -> Result<LoweredRollout, ComputationPanicked> {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        // The task stays in its place while it is awaited: a select that drops this future loses
        // nothing.
        let result = task.await;
        self.task = None;
        let (lowered, lowering) = result.unwrap_or(Err(ComputationPanicked))?;
        self.lowering = lowering;
        Ok(lowered)
    }

    /// Lowers the rollout that waits, if one does. The caller has published the one before, so that
    /// equal tables are shared with it.
    pub(super) fn start_waiting(&mut self) {
        let Some((rollout, origin)) = self.waiting.take() else {
            self.latest = None;
            return;
        };
        let (network, before) = (self.network.clone(), Arc::clone(&self.in_force.borrow()));
        // Moved into the task. If it panics, the controller ends, so an empty one is never
        // continued from.
        let mut lowering = std::mem::take(&mut self.lowering);
        self.task = Some(tokio::spawn(async move {
            let lowered = connection::compute(&*network, move || {
                let tables = lower_rollout(&mut lowering, &rollout, &before, origin);
                (LoweredRollout { tables, rollout }, lowering)
            });
            lowered.await
        }));
    }
}

/// Lowers a rollout; tables equal to those in `before` are shared.
fn lower_rollout(
    lowering: &mut PlanLowering,
    rollout: &PlanRollout,
    before: &DesiredTables,
    origin: ChangeOrigin,
) -> DesiredTables {
    let planned = Instant::now();
    let PlanRollout { wiring, fabric, .. } = rollout;
    let mut tables = lowering.lower_plan(wiring, fabric, &rollout.lowered_plan());
    if UnknownEntries::for_fabric(&rollout.fabric) == UnknownEntries::Keep {
        for (switch, all) in &mut tables {
            let punts = pipeline_at(&rollout.fabric, *switch).punt_tables().iter().copied();
            *all = Arc::new(all.entries_within(&TableScope::whole_tables(punts.collect())));
        }
    }
    for (switch, tables) in &mut tables {
        // Those that a protection has changed may be the same again.
        if let Some(same) = before.tables.get(switch).filter(|same| *same == tables) {
            *tables = Arc::clone(same);
        }
    }
    DesiredTables {
        generation: rollout.generation,
        lowered_generation: rollout.generation,
        tables,
        unknown_entries: UnknownEntries::for_fabric(&rollout.fabric),
        timestamps: DesiredTimestamps { origin, planned, lowered: Instant::now() },
    }
}
