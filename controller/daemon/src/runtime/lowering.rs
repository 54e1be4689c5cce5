//! Lowers a rollout to the desired tables of the sessions, with the instants of each stage.
//!
//! The decision: tables equal to the previous ones are the same `Arc`, so that a session compares
//! pointers to see whether a generation changes its switch. While the fabric is unknown, switches
//! get only the rows that discovery needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::{SwitchTables, TableScope};
use tokio::time::Instant;
use topology::SwitchId;

use crate::pipelines::{default_pipeline, lower_plan};
use crate::southbound::{ChangeOrigin, DesiredTables, DesiredTimestamps, UnknownEntries};
use crate::state::PlanRollout;

/// Lowers a rollout; tables equal to those in `before` are shared.
pub(super) fn lower_rollout(
    rollout: &PlanRollout,
    before: &DesiredTables,
    origin: ChangeOrigin,
) -> DesiredTables {
    let planned = Instant::now();
    let mut tables = lower_plan(&rollout.wiring, &rollout.fabric, &rollout.lowered_plan());
    if UnknownEntries::for_fabric(&rollout.fabric) == UnknownEntries::Keep {
        let punts =
            TableScope::whole_tables(default_pipeline().punt_tables().iter().copied().collect());
        tables.values_mut().for_each(|all| *all = all.entries_within(&punts));
    }
    let mut shared = BTreeMap::new();
    for (switch, tables) in tables {
        let tables = match before.tables.get(&switch) {
            Some(same) if **same == tables => Arc::clone(same),
            _ => Arc::new(tables),
        };
        shared.insert(switch, tables);
    }
    let mut desired = desired_tables(rollout, shared, origin);
    desired.timestamps.planned = planned;
    desired
}

pub(super) fn desired_tables(
    rollout: &PlanRollout,
    tables: BTreeMap<SwitchId, Arc<SwitchTables>>,
    origin: ChangeOrigin,
) -> DesiredTables {
    let now = Instant::now();
    DesiredTables {
        generation: rollout.generation,
        tables,
        unknown_entries: UnknownEntries::for_fabric(&rollout.fabric),
        timestamps: DesiredTimestamps { origin, planned: now, lowered: now },
    }
}
