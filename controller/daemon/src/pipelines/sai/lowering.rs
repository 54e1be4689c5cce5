//! Lowering, each continuing from the one before.
//!
//! The decision: rows of `sai.p4` depend on each other (a VRF has a copy of all routes, pins take
//! the room that is left), so a switch with other pins, other jobs or another way to any leaf has
//! all its rows made again. Equal rows are shared with its tables before, and the other
//! switches keep theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::entry::TableEntry;
use p4::{EntryPool, SwitchTables};
use planner::Plan;
use topology::{Fabric, SwitchId};

use super::pins::SwitchPins;
use super::{RowPlan, SaiWiring, program};
use crate::pipeline::PipelineLowering;
use crate::pipelines::switch_routes::SwitchRoutes;

/// The lowered tables of the switches that run the program, and what they follow from.
#[derive(Debug)]
pub(super) struct SaiLowering {
    wiring: Arc<SaiWiring>,
    routes: SwitchRoutes,
    switches: BTreeMap<SwitchId, LoweredSite>,
}

/// The tables of one switch, with what its rows follow from beside its routes.
#[derive(Debug)]
struct LoweredSite {
    tables: Arc<SwitchTables>,
    pins: SwitchPins,
    /// The rows about jobs.
    classes: Vec<TableEntry>,
}

impl SaiLowering {
    /// Nothing is lowered yet.
    pub(super) fn new(wiring: Arc<SaiWiring>) -> Self {
        let routes = SwitchRoutes::new(&wiring.unharmed);
        Self { wiring, routes, switches: BTreeMap::new() }
    }
}

impl PipelineLowering for SaiLowering {
    fn lower_plan(
        &mut self,
        fabric: &Fabric,
        plan: &Plan,
    ) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
        let rerouted = self.routes.follow(fabric).into_iter().map(|change| change.switch);
        let rerouted: BTreeSet<SwitchId> = rerouted.collect();
        let wiring = &*self.wiring;
        let RowPlan { mut pins, classes } = wiring.plan_rows(fabric, plan, &self.routes);
        let mut pool = EntryPool::default();
        for (switch, classes) in classes {
            let pins = pins.of_switches.remove(&switch).unwrap_or_default();
            let classes = classes.rows(plan, &wiring.budget);
            let before = self.switches.remove(&switch);
            let is_same = |had: &LoweredSite| {
                !rerouted.contains(&switch) && had.pins == pins && had.classes == classes
            };
            let mut tables = before.as_ref().map(|had| Arc::clone(&had.tables)).unwrap_or_default();
            if !before.as_ref().is_some_and(is_same) {
                let rows = wiring.rows_of(fabric, &self.routes, switch, (&pins, &classes));
                let rows = rows.into_iter().map(|row| pool.share_entry(row.with_signature()));
                let updates = tables.updates_to(program().p4info.table_ids(), rows.collect());
                if !updates.is_empty() {
                    Arc::make_mut(&mut tables).apply(&updates);
                }
            }
            self.switches.insert(switch, LoweredSite { tables, pins, classes });
        }
        let lowered = self.switches.iter();
        lowered.map(|(switch, lowered)| (*switch, Arc::clone(&lowered.tables))).collect()
    }
}
