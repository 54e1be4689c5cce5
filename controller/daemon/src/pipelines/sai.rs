//! `sai.p4`: from a plan to the tables of switches with SAI P4, a function of fabric and plan.
//!
//! A [`SaiWiring`] is the switches of a fabric that run the program, with their budget. The
//! decision: a pin is a route in a VRF of its ingress port where the leaf has room for one, because
//! routes are plenty, and else a row of the ACL by five-tuple; a flow is pinned at every switch
//! that chooses a path for it or at none. What fits nowhere goes by ECMP, the least intense jobs
//! first, and a finding names it.

mod answers;
mod lowering;
mod pins;
mod port_classes;
mod protection;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use p4::codec::{PacketOut, PacketOutTarget};
use p4::entry::{EntryKey, TableEntry, TableId};
use p4::fabric::{ETHERTYPE_ARP, ETHERTYPE_PROBE, IpPrefix, PortNumber, PriorityLevel};
use p4::sai::{self, RouteTarget, Vrf, action, table};
use p4::{ForwardingPipeline, P4Info, SwitchTables};
use planner::{PinGranularity, Plan, PlannedFlow, SwitchCapabilities};
use topology::{
    Fabric, Finding, LeafRoutes, LinkId, MacAddress, NicId, PipelineKind, SwitchId, Tier,
};

use self::answers::AnsweredPairs;
use self::lowering::SaiLowering;
use self::pins::{PinAssignment, SwitchPins};
use self::port_classes::PortClasses;
use super::switch_routes::{MovedNic, SwitchRoutes, without_failures};
use crate::pipeline::{
    AttributedEntry, PipelineLowering, PipelineWiring, PlanShortages, PortLevelCell, RefusalCell,
    SwitchPipeline, SwitchReports, WiringError,
};

/// The program of all such switches of this process.
static PROGRAM: OnceLock<Arc<ForwardingPipeline>> = OnceLock::new();

/// Tables by which a program is recognized: fixed ones, which every SAI P4 has.
const FIXED_TABLES: [TableId; 5] =
    [table::ROUTER_INTERFACE, table::NEXTHOP, table::WCMP_GROUP, table::VRF, table::IPV4];

/// The role whose tables they are, ours as the published ones.
const ROLE: &str = "sdn_controller";

/// The types of the packets that discovery needs. The table matches no types of ICMPv6, so
/// neighbour discovery stays at the switch.
const TRAPPED: [u16; 2] = [ETHERTYPE_PROBE, ETHERTYPE_ARP];

/// The program `sai.p4`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaiPipeline;

/// The program cannot be selected, because another one is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another SAI P4 program is in use in this process")]
pub struct ProgramInUse;

/// How many rows of each kind one switch can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaiBudget {
    /// VRFs beside the default one.
    pub vrfs: usize,
    /// Rows that give packets a VRF or a job.
    pub port_classes: usize,
    /// Pins by five-tuple.
    pub redirects: usize,
    /// Jobs with a level.
    pub job_levels: usize,
    /// Routes of one version of IP, in all VRFs together.
    pub routes: usize,
    /// Groups of next hops.
    pub groups: usize,
    /// Next hops of one group.
    pub group_members: usize,
    /// Whether rows can give packets a job, as those of our program do and those of published ones
    /// do not.
    pub names_jobs: bool,
}

/// The tables of all switches, and what they have no room for.
#[derive(Clone, Debug)]
pub struct LoweredPlan {
    /// The tables by switch.
    pub tables: BTreeMap<SwitchId, Arc<SwitchTables>>,
    /// What has no room.
    pub shortages: PlanShortages,
}

/// The switches of a fabric that run `sai.p4`.
#[derive(Clone, Debug)]
pub struct SaiWiring {
    switches: BTreeSet<SwitchId>,
    /// The ways to all leaves while nothing has failed.
    unharmed: LeafRoutes,
    budget: SaiBudget,
    reports: SwitchReports,
}

/// What the rows of a plan depend on: who pins what, and which jobs ports have.
struct RowPlan {
    pins: PinAssignment,
    classes: BTreeMap<SwitchId, PortClasses>,
}

/// Has switches with SAI P4 run this program instead of `sai.p4`, from the start of the process to
/// its end: every part of it must lower, push and read the same one.
///
/// # Errors
/// Another program has been selected or used before.
pub fn select_program(program: &Arc<ForwardingPipeline>) -> Result<(), ProgramInUse> {
    let selected = PROGRAM.get_or_init(|| Arc::clone(program));
    (selected == program).then_some(()).ok_or(ProgramInUse)
}

fn program() -> &'static ForwardingPipeline {
    PROGRAM.get_or_init(|| Arc::new(ForwardingPipeline::embedded_sai().clone()))
}

impl SaiBudget {
    /// The sizes that a program states.
    pub fn from_program(p4info: &P4Info) -> Self {
        let size = |table: TableId| {
            let size = p4info.table(table).map_or(0, |table| table.size);
            usize::try_from(size).unwrap_or(usize::MAX)
        };
        let names_jobs = p4info.action(action::SET_VRF_AND_ACL_METADATA).is_some();
        Self {
            vrfs: size(table::VRF),
            port_classes: size(table::ACL_PRE_INGRESS),
            redirects: size(table::ACL_INGRESS),
            job_levels: if names_jobs { size(table::ACL_INGRESS_QOS) } else { 0 },
            routes: size(table::IPV4).min(size(table::IPV6)),
            groups: size(table::WCMP_GROUP),
            group_members: p4info.group_members_max(table::WCMP_GROUP).unwrap_or(usize::MAX),
            names_jobs,
        }
    }
}

impl SwitchPipeline for SaiPipeline {
    fn kind(&self) -> PipelineKind {
        PipelineKind::Sai
    }

    fn program(&self) -> &'static ForwardingPipeline {
        program()
    }

    fn recognizes(&self, tables: &BTreeSet<TableId>) -> bool {
        FIXED_TABLES.iter().all(|table| tables.contains(table))
    }

    fn role(&self) -> &'static str {
        ROLE
    }

    fn is_read_whole(&self) -> bool {
        true
    }

    fn reports_flows(&self) -> bool {
        false
    }

    fn capabilities(&self) -> SwitchCapabilities {
        let budget = SaiBudget::from_program(&self.program().p4info);
        SwitchCapabilities {
            pin_granularity: PinGranularity::Flow,
            pins_max: budget.redirects,
            pair_ports_max: budget.vrfs,
            levels: PriorityLevel::all_levels().count() as u8,
            counts_pins: false,
            counts_levels: false,
            sets_levels: budget.names_jobs,
        }
    }

    fn wire_fabric(
        &self,
        fabric: &Fabric,
        switches: BTreeSet<SwitchId>,
    ) -> Result<Box<dyn PipelineWiring>, WiringError> {
        let budget = SaiBudget::from_program(&self.program().p4info);
        Ok(Box::new(Arc::new(SaiWiring::new(fabric, switches, budget)?)))
    }

    fn punts(&self) -> Vec<TableEntry> {
        TRAPPED.into_iter().filter_map(sai::ether_type_trap).collect()
    }

    fn punt_tables(&self) -> &'static [TableId] {
        &[table::ACL_INGRESS]
    }

    fn pin_tables(&self) -> &'static [TableId] {
        &[table::ACL_INGRESS]
    }

    fn counted_pin_tables(&self) -> &'static [TableId] {
        &[table::ACL_PRE_INGRESS, table::ACL_INGRESS, table::ACL_INGRESS_QOS]
    }

    fn packet_out(&self, port: u16, payload: Vec<u8>) -> Option<PacketOut> {
        let port = PortNumber::new(port.into()).ok().filter(|port| *port != PortNumber::CPU)?;
        Some(PacketOut { target: PacketOutTarget::Port(port), payload })
    }

    /// Rows count what enters by a port, or by a port to one address. Pins are not counted: most
    /// are routes, which have no counters.
    fn attributed_entries(&self, fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
        let switches = super::switches_of(fabric, self.kind());
        let budget = SaiBudget::from_program(&self.program().p4info);
        let wiring = SaiWiring::unchecked(fabric, switches, budget);
        let classes = wiring.plan_rows(fabric, plan, &wiring.routes_of(fabric)).classes.into_iter();
        let entries = classes.flat_map(|(switch, classes)| {
            let rows = classes.attributed_rows().into_iter();
            rows.map(move |(key, job)| AttributedEntry { switch, key, job, arrival_link: None })
        });
        entries.collect()
    }

    fn entry_pin(&self, fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey> {
        let row = sai::flow_redirect(&pins::flow_key(fabric, flow)?, 0)?;
        Some(Arc::unwrap_or_clone(row.key))
    }

    /// Rows match by port and address, and several jobs may share one.
    fn pair_entry(&self, _: &Fabric, _: (NicId, NicId)) -> Option<EntryKey> {
        None
    }

    fn port_level_counter(&self) -> Option<u32> {
        None
    }

    fn level_dscp(&self, level: u8) -> Option<u8> {
        table_level(level).map(PriorityLevel::dscp)
    }

    fn port_level_cells(&self, _: &Fabric, _: u8) -> Vec<PortLevelCell> {
        Vec::new()
    }

    /// What the switch itself refuses is in its own counters.
    fn refusal_cells(&self, _: &Fabric) -> Vec<RefusalCell> {
        Vec::new()
    }
}

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it, if all
/// of them run the program.
///
/// # Errors
/// A switch cannot hold the routes of the fabric.
pub fn lower_plan(
    fabric: &Fabric,
    plan: &Plan,
    budget: &SaiBudget,
) -> Result<LoweredPlan, WiringError> {
    let wiring = Arc::new(SaiWiring::new(fabric, fabric.switch_ids().collect(), *budget)?);
    let tables = wiring.start_lowering().lower_plan(fabric, plan);
    Ok(LoweredPlan { tables, shortages: wiring.find_shortages(fabric, plan) })
}

impl PipelineWiring for Arc<SaiWiring> {
    fn enable_reports(&mut self, reports: SwitchReports) {
        let wiring = Arc::make_mut(self);
        let reserved = if reports.probes { TRAPPED.len() } else { 0 };
        wiring.budget.redirects = wiring.budget.redirects.saturating_sub(reserved);
        wiring.reports = reports;
    }

    fn find_shortages(&self, fabric: &Fabric, plan: &Plan) -> PlanShortages {
        self.shortages(fabric, plan, &self.plan_rows(fabric, plan, &self.routes_of(fabric)))
    }

    fn start_lowering(&self) -> Box<dyn PipelineLowering> {
        Box::new(SaiLowering::new(Arc::clone(self)))
    }

    fn protect_tables(&self, fabric: &Fabric, tables: &mut BTreeMap<SwitchId, Arc<SwitchTables>>) {
        for (switch, tables) in tables.iter_mut().filter(|(at, _)| self.switches.contains(at)) {
            protection::protect_switch(fabric, *switch, tables);
        }
    }
}

impl SaiWiring {
    /// Switches that hold rows of this budget.
    fn new(
        fabric: &Fabric,
        switches: BTreeSet<SwitchId>,
        budget: SaiBudget,
    ) -> Result<Self, WiringError> {
        let wiring = Self::unchecked(fabric, switches, budget);
        let fabric = without_failures(fabric);
        let routes = wiring.routes_of(&fabric);
        for &switch in &wiring.switches {
            check_size(&fabric, &routes, switch, &budget)?;
        }
        Ok(wiring)
    }

    /// Switches that may or may not hold the routes of the fabric.
    fn unchecked(fabric: &Fabric, switches: BTreeSet<SwitchId>, budget: SaiBudget) -> Self {
        let unharmed = LeafRoutes::new(&without_failures(fabric));
        Self { switches, unharmed, budget, reports: SwitchReports::default() }
    }

    /// The routes of the fabric with these failures.
    fn routes_of(&self, fabric: &Fabric) -> SwitchRoutes {
        SwitchRoutes::of_fabric(&self.unharmed, fabric)
    }

    fn plan_rows(&self, fabric: &Fabric, plan: &Plan, routes: &SwitchRoutes) -> RowPlan {
        let answers = AnsweredPairs::new(fabric, plan);
        let pins = pins::assign_pins(fabric, plan, &answers, routes, self);
        let none = SwitchPins::default();
        let classes = self.switches.iter().map(|&switch| {
            let pins = pins.of_switches.get(&switch).unwrap_or(&none);
            (switch, PortClasses::new(fabric, plan, &answers, (switch, pins), &self.budget))
        });
        RowPlan { classes: classes.collect(), pins }
    }

    fn shortages(&self, fabric: &Fabric, plan: &Plan, rows: &RowPlan) -> PlanShortages {
        let mut findings = pins::spill_findings(fabric, plan, &rows.pins.spilled);
        let classes = rows.classes.iter();
        findings
            .extend(classes.filter_map(|(switch, classes)| classes.finding(fabric, plan, *switch)));
        findings.extend(self.rule_finding(fabric, plan));
        findings.extend(self.level_finding(fabric, plan));
        let spilled =
            rows.pins.spilled.iter().map(|spilled| (spilled.flow, spilled.switch)).collect();
        PlanShortages { spilled, findings }
    }

    /// That adoption rules have no rows.
    fn rule_finding(&self, fabric: &Fabric, plan: &Plan) -> Option<Finding> {
        let jobs = plan.rules.iter().filter_map(|rule| plan.jobs.get(rule.job));
        let jobs: BTreeSet<String> = jobs.map(|job| job.id.to_string()).collect();
        let about = jobs.into_iter().collect::<Vec<_>>().join(", ");
        let leaves = self.leaf_names(fabric).filter(|_| !about.is_empty())?;
        let text = if self.budget.names_jobs {
            format!(
                "no rows for adoption rules at {leaves}: packets have the lowest level; announce \
                 the flows"
            )
        } else {
            format!(
                "no rows for adoption rules at {leaves}: packets keep the level of their DSCP; set \
                 it at the hosts (crux agent --set-dscp), or announce the flows"
            )
        };
        Some(Finding::warning(about, text))
    }

    /// That no job has a level, because the program has no action for that.
    fn level_finding(&self, fabric: &Fabric, plan: &Plan) -> Option<Finding> {
        let is_missed = !self.budget.names_jobs && !plan.jobs.is_empty();
        let leaves = self.leaf_names(fabric).filter(|_| is_missed)?;
        let text = "no action of the program gives jobs a level (SET_ACL_META_DATA, SET_TC): \
                    packets keep the level of their DSCP; set it at the hosts (crux agent \
                    --set-dscp)";
        Some(Finding::warning(leaves, text))
    }

    /// The names of the leaves among the switches; `None` without any.
    fn leaf_names(&self, fabric: &Fabric) -> Option<String> {
        let leaves = self.switches.iter().map(|switch| fabric.switch(*switch));
        let leaves = leaves.filter(|switch| switch.tier == Tier::Leaf);
        let leaves: Vec<&str> = leaves.map(|switch| switch.name.as_str()).collect();
        (!leaves.is_empty()).then(|| leaves.join(", "))
    }

    /// All rows of a switch, with those about the jobs at its ports.
    fn rows_of(
        &self,
        fabric: &Fabric,
        routes: &SwitchRoutes,
        switch: SwitchId,
        (pins, classes): (&SwitchPins, &[TableEntry]),
    ) -> Vec<TableEntry> {
        let mut entries = port_rows(fabric, switch);
        entries.push(sai::l3_admit(MacAddress::GATEWAY.0));
        entries.extend(self.routes_and_groups(fabric, routes, switch, pins));
        entries.extend(pins.rows(fabric));
        entries.extend(classes.iter().cloned());
        if self.reports.probes {
            entries.extend(SaiPipeline.punts());
        }
        entries
    }
}

fn check_size(
    fabric: &Fabric,
    routes: &SwitchRoutes,
    switch: SwitchId,
    budget: &SaiBudget,
) -> Result<(), WiringError> {
    let leaves: Vec<_> = routes.destinations_from(fabric, switch).collect();
    let widest = leaves.iter().map(|(_, seen)| seen.spread.len()).max().unwrap_or(0);
    let needs = [
        ("groups of next hops", leaves.len(), budget.groups),
        ("next hops in one group", widest, budget.group_members),
        ("routes", default_routes(fabric, routes, switch).len(), budget.routes),
    ];
    match needs.into_iter().find(|(_, needed, max)| needed > max) {
        None => Ok(()),
        Some((what, needed, max)) => {
            let switch = fabric.switch(switch).name.clone();
            Err(WiringError::TooManyRows { switch, what, needed, max })
        }
    }
}

/// The next hops of all ports, whether or not they are up: nothing about them ever changes, so no
/// write of another table has to wait for them.
fn port_rows(fabric: &Fabric, switch: SwitchId) -> Vec<TableEntry> {
    let nic_macs: BTreeMap<LinkId, [u8; 6]> = fabric
        .nics_on(switch)
        .map(|nic| (fabric.nic(nic).uplink.reverse(), fabric.nic(nic).mac.0))
        .collect();
    let ports = fabric.switch(switch).ports.iter();
    let rows = ports.flat_map(|(port, link)| {
        let next_mac = nic_macs.get(link).copied().unwrap_or(MacAddress::GATEWAY.0);
        sai::port_rows(*port, MacAddress::GATEWAY.0, next_mac)
    });
    rows.collect()
}

impl SaiWiring {
    /// The groups of a switch, its routes, and a copy of them in each VRF, with those of pins. A
    /// group that failures have made wider than the table allows has its first members.
    fn routes_and_groups(
        &self,
        fabric: &Fabric,
        routes: &SwitchRoutes,
        switch: SwitchId,
        pins: &SwitchPins,
    ) -> Vec<TableEntry> {
        let groups = routes.destinations_from(fabric, switch).filter_map(|(leaf, seen)| {
            let members = seen.spread.iter().take(self.budget.group_members);
            let ports = members.map(|link| fabric.link(*link).from.port);
            sai::wcmp_group(group_number(fabric, leaf), ports)
        });
        let mut rows: Vec<TableEntry> = groups.collect();
        let defaults = default_routes(fabric, routes, switch);
        let vrfs = pins.vrf_ports().map(Vrf::OfPort);
        for vrf in std::iter::once(Vrf::Default).chain(vrfs) {
            rows.extend(defaults.iter().map(|(prefix, target)| sai::route(vrf, *prefix, *target)));
        }
        // A pin to a NIC whose leaf has a route for it alone replaces that.
        rows.extend(pins.routes(fabric));
        rows
    }
}

/// The routes of a switch without any plan: to its own NICs, to the leaves that it reaches, and to
/// NICs that one of their two leaves is not used for.
fn default_routes(
    fabric: &Fabric,
    routes: &SwitchRoutes,
    switch: SwitchId,
) -> BTreeMap<IpPrefix, RouteTarget> {
    let reached: BTreeMap<usize, RouteTarget> = routes
        .destinations_from(fabric, switch)
        .map(|(leaf, _)| (leaf, RouteTarget::Group(group_number(fabric, leaf))))
        .collect();
    let leaves = reached.iter().flat_map(|(leaf, target)| {
        let prefixes = fabric.prefixes_of(fabric.destinations()[*leaf]).into_iter();
        let prefixes =
            prefixes.filter_map(|prefix| IpPrefix::new(prefix.address, prefix.length).ok());
        prefixes.map(move |prefix| (prefix, *target))
    });
    // Where the same links lead to both leaves, as at most leaves, switches above decide.
    let is_elsewhere = |moved: &&MovedNic| {
        let [now, all] = [moved.to, moved.leaf].map(|leaf| routes.links(fabric, switch, leaf));
        now != all
    };
    let moved = routes.moved().iter().filter(is_elsewhere).filter_map(|moved| {
        let address = IpPrefix::from(fabric.nic(moved.nic).ip);
        reached.get(&moved.to).map(|target| (address, *target))
    });
    let own = fabric.nics_on(switch);
    let own = own.filter(|port| fabric.arrival_port(switch, *port) == Some(*port)).map(|port| {
        let nic = fabric.nic(port);
        let port = fabric.link(nic.uplink.reverse()).from.port;
        (IpPrefix::from(nic.ip), RouteTarget::Port(port))
    });
    leaves.chain(moved).chain(own).collect()
}

/// The number of the group that leads to the destination at a position, from 1: that of its leaf, or
/// of two leaves one after those of all switches.
fn group_number(fabric: &Fabric, position: usize) -> u32 {
    let leaf = fabric.destinations()[position].only_leaf();
    let number = leaf.map_or(fabric.switches().len() + position, SwitchId::index);
    u32::try_from(number).unwrap_or(u32::MAX - 1) + 1
}

/// A level as the tables have it; plans have no more levels than that.
fn table_level(level: u8) -> Option<PriorityLevel> {
    PriorityLevel::new(level.into()).ok()
}

#[cfg(test)]
pub(super) mod tests;
