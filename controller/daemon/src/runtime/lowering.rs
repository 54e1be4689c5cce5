//! From what is to be realised to what the sessions get: lowered, with the instants at which that
//! came to be.
//!
//! The decision: tables that are equal to those before are the very same, so that a session sees at
//! a glance whether another generation asks anything of its switch. Where nothing is known of the
//! fabric, all that is asked of switches is to tell of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::{SwitchTables, TableScope};
use tokio::time::Instant;
use topology::SwitchId;

use crate::pipelines::{default_pipeline, lower_plan};
use crate::southbound::{ChangeOrigin, DesiredTables, DesiredTimestamps, UnknownEntries};
use crate::state::PlanRollout;

/// Lowers.
pub(super) fn lower_rollout(
    rollout: &PlanRollout,
    before: &DesiredTables,
    origin: ChangeOrigin,
) -> DesiredTables {
    let planned = Instant::now();
    let mut tables = lower_plan(&rollout.wiring, &rollout.fabric, &rollout.plan);
    if UnknownEntries::for_fabric(&rollout.fabric) == UnknownEntries::Keep {
        let told = TableScope::whole_tables(BTreeSet::from([default_pipeline().punt_table()]));
        tables.values_mut().for_each(|all| *all = all.entries_within(&told));
    }
    let share = |(switch, tables): (SwitchId, SwitchTables)| {
        let same = before.tables.get(&switch);
        let same = same.filter(|before| ***before == tables);
        (switch, same.map_or_else(|| Arc::new(tables), Arc::clone))
    };
    let tables = tables.into_iter().map(share).collect();
    let mut desired = desired_tables(rollout, tables, origin);
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
