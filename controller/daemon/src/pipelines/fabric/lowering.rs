//! Lowering, each continuing from the one before.
//!
//! A switch has two kinds of rows: those about leaves, which follow from the ways to them
//! ([`LeafClasses`], [`RouteRows`]), and its own, which follow from its wiring, its failed ports
//! and what the plan asks of it ([`PlanIndex`]). The decision: a lowering makes the rows about
//! leaves and classes that have changed, as they were and as they are, and the own rows of switches
//! whose plan has, and applies the differences to the tables before it. The first lowering is no
//! other: before it there were no ways, no plan and no rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::entry::TableId;
use p4::fabric::PortNumber;
use p4::{ForwardingPipeline, SwitchTables, TableUpdate, diff_entries};
use planner::Plan;
use topology::{Fabric, NicId, RouteChange, SwitchId};

use super::leaf_classes::LeafClasses;
use super::numbering::FabricNumbering;
use super::plan_index::PlanIndex;
use super::route_rows::{self, NicWays, RouteRows};
use super::switch_context::{LoweringContext, NicPath, SwitchContext};
use super::{OWN_ROWS, liveness};
use crate::pipeline::PipelineLowering;
use crate::pipelines::switch_routes::{MovedNic, SwitchRoutes};

/// The lowered tables of the switches that run the program, and what they follow from.
#[derive(Debug)]
pub(super) struct FabricLowering {
    wiring: Arc<FabricNumbering>,
    routes: SwitchRoutes,
    index: PlanIndex,
    switches: BTreeMap<SwitchId, LoweredSwitch>,
    /// The tables of own rows.
    own_tables: Vec<TableId>,
}

/// The tables of one switch, with what its rows follow from beside its plan.
#[derive(Debug, Default)]
struct LoweredSwitch {
    tables: Arc<SwitchTables>,
    classes: Arc<LeafClasses>,
    nic_paths: Vec<NicPath>,
    failed_ports: Vec<PortNumber>,
    /// The ports of NICs with two by which it sends to them.
    arrival_ports: Vec<NicId>,
}

impl FabricLowering {
    /// Nothing is lowered yet.
    pub(super) fn new(wiring: Arc<FabricNumbering>) -> Self {
        let tables = ForwardingPipeline::embedded_fabric().p4info.table_ids().into_iter();
        Self {
            routes: SwitchRoutes::new(wiring.unharmed()),
            wiring,
            index: PlanIndex::default(),
            switches: BTreeMap::new(),
            own_tables: tables.filter(|table| !route_rows::TABLES.contains(table)).collect(),
        }
    }
}

impl PipelineLowering for FabricLowering {
    fn lower_plan(
        &mut self,
        fabric: &Fabric,
        plan: &Plan,
    ) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
        let moved_before = self.routes.moved().to_vec();
        let changes = self.routes.follow(fabric);
        let before = std::mem::replace(&mut self.index, PlanIndex::new(fabric, plan));
        let (routes, index, wiring) = (&self.routes, &self.index, &*self.wiring);
        let shared = LoweringContext { wiring, fabric, plan, routes, index };
        let mut rows = RouteRows::new(wiring, fabric);
        for &switch in wiring.switches() {
            let site = SwitchContext { shared: &shared, switch };
            let is_new = !self.switches.contains_key(&switch);
            let step = SwitchStep {
                is_new,
                rerouted: changes_at(&changes, switch),
                moved_before: &moved_before,
                is_replanned: is_new || !index.is_same_at(&before, switch, site.nics()),
                own_tables: &self.own_tables,
                site,
            };
            step.take(self.switches.entry(switch).or_default(), &mut rows);
        }
        let lowered = self.switches.iter();
        lowered.map(|(switch, lowered)| (*switch, Arc::clone(&lowered.tables))).collect()
    }
}

/// The changes at one switch of those that are in the order of switches.
fn changes_at(changes: &[RouteChange], switch: SwitchId) -> &[RouteChange] {
    let first = changes.partition_point(|change| change.switch < switch);
    let end = changes.partition_point(|change| change.switch <= switch);
    &changes[first..end]
}

/// What has changed for one switch.
struct SwitchStep<'a> {
    site: SwitchContext<'a>,
    /// Whether nothing was lowered for it before.
    is_new: bool,
    /// The ways that have changed.
    rerouted: &'a [RouteChange],
    /// The NICs that one of their two leaves was not used for.
    moved_before: &'a [MovedNic],
    is_replanned: bool,
    own_tables: &'a [TableId],
}

impl SwitchStep<'_> {
    /// Brings the tables to what they follow from now.
    fn take(&self, lowered: &mut LoweredSwitch, rows: &mut RouteRows<'_>) {
        let site = &self.site;
        let nic_paths = site.nic_paths();
        let before = NicWays { paths: &lowered.nic_paths, moved: self.moved_before };
        let nics = NicWays { paths: &nic_paths, moved: site.shared.routes.moved() };
        let failed = liveness::failed_ports(site.shared.wiring, site.shared.fabric, site.switch);
        let failed_ports: Vec<PortNumber> = failed.collect();
        let classes = if self.is_new || !self.rerouted.is_empty() {
            Arc::new(LeafClasses::of_switch(site))
        } else {
            Arc::clone(&lowered.classes)
        };
        let mut updates = Vec::new();
        for class in classes.changed_classes(&lowered.classes) {
            let then = rows.class_rows(class, site, &lowered.classes);
            let now = rows.class_rows(class, site, &classes);
            updates.extend(diff_entries(&then, &now));
        }
        let both = || [before, nics].into_iter();
        let of_nics = both().flat_map(|nics| nics.paths).map(|path| path.leaf);
        let of_moved = both().flat_map(|nics| nics.moved).map(|moved| moved.leaf);
        let moved = classes.moved_leaves(&lowered.classes).chain(of_nics).chain(of_moved);
        for leaf in moved.collect::<BTreeSet<usize>>() {
            let then = rows.rows_about(leaf, site, (&lowered.classes, before));
            let now = rows.rows_about(leaf, site, (&classes, nics));
            updates.extend(diff_entries(&then, &now));
        }
        let arrival_ports = site.arrival_ports();
        let is_cut = failed_ports != lowered.failed_ports || arrival_ports != lowered.arrival_ports;
        let is_moved = nics.moved != before.moved
            && both().flat_map(|nics| nics.moved).any(|moved| site.has_flows_to(moved.nic));
        if self.is_replanned || is_cut || is_moved || self.leads_elsewhere() {
            updates.extend(self.own_updates(&lowered.tables, rows));
        }
        lowered.classes = classes;
        (lowered.nic_paths, lowered.arrival_ports) = (nic_paths, arrival_ports);
        lowered.failed_ports = failed_ports;
        // Unchanged tables stay the same, by which a session sees that there is nothing to write.
        if !updates.is_empty() {
            Arc::make_mut(&mut lowered.tables).apply(&updates);
        }
    }

    /// Whether the way to a leaf that pinned flows go to has changed.
    fn leads_elsewhere(&self) -> bool {
        self.rerouted.iter().any(|change| self.site.planned().leads_to(change.leaf))
    }

    fn own_updates(&self, held: &SwitchTables, rows: &mut RouteRows<'_>) -> Vec<TableUpdate> {
        let own = OWN_ROWS.iter().flat_map(|build_entries| build_entries(&self.site));
        let own = own.map(|row| rows.pool.share_entry(row.with_signature())).collect();
        held.updates_to(self.own_tables.iter().copied(), own)
    }
}
