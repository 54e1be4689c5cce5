//! Which row pins each flow at each switch that chooses a path for it, as far as there is room.
//!
//! A leaf pins the packets from one of its ports to one address by a route in the VRF of the port.
//! Another flow between the same ends by another link, and a flow in transit, needs a row by
//! five-tuple. The decision: jobs take room in the order of their ranks, so the least intense
//! spill first; and only a flow that has room at all switches takes any. What answers a pinned flow
//! then takes routes that are left.

use std::collections::{BTreeMap, BTreeSet};

use p4::entry::TableEntry;
use p4::fabric::{FlowKey, IpPrefix};
use p4::sai::{self, RouteTarget, Vrf};
use planner::{Plan, PlannedFlow};
use topology::{Fabric, Finding, LinkId, NicId, SwitchId};

use super::SaiWiring;
use super::answers::{self, AnsweredPairs};
use crate::pipelines::switch_routes::SwitchRoutes;

/// The pins of one switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SwitchPins {
    /// Links by the port where packets come in and the NIC that they go to.
    routes: BTreeMap<u32, BTreeMap<NicId, LinkId>>,
    /// Links by flow.
    redirects: BTreeMap<FlowKey, LinkId>,
}

/// The pins of all switches, and the flows without.
#[derive(Debug, Default)]
pub(super) struct PinAssignment {
    /// Pins by switch.
    pub(super) of_switches: BTreeMap<SwitchId, SwitchPins>,
    /// In the order of ranks.
    pub(super) spilled: Vec<SpilledFlow>,
}

/// A flow without room for its pin.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpilledFlow {
    /// Its position in the plan.
    pub(super) flow: usize,
    /// The first switch on its path that has no room.
    pub(super) switch: SwitchId,
}

/// A row by which a switch would pin a flow.
enum NeededPin {
    Route { switch: SwitchId, port: u32, to: NicId, link: LinkId },
    Redirect { switch: SwitchId, link: LinkId },
}

/// The pins that the switches of a wiring have room for.
pub(super) fn assign_pins(
    fabric: &Fabric,
    plan: &Plan,
    answers: &AnsweredPairs,
    routes: &SwitchRoutes,
    wiring: &SaiWiring,
) -> PinAssignment {
    let default_routes = fabric.switch_ids();
    let default_routes =
        default_routes.map(|switch| super::default_routes(fabric, routes, switch).len()).collect();
    let mut room = PinRoom { fabric, routes, wiring, default_routes, pins: BTreeMap::new() };
    let mut spilled = Vec::new();
    let mut fitting = Vec::new();
    for position in flows_by_rank(plan) {
        let flow = &plan.flows[position];
        match room.needed_pins(flow) {
            Ok(needed) => {
                needed.iter().for_each(|pin| room.take(flow, pin));
                fitting.push(flow);
            }
            Err(switch) => spilled.push(SpilledFlow { flow: position, switch }),
        }
    }
    for flow in fitting.into_iter().filter(|flow| answers.has_no_flow_back(fabric, flow)) {
        room.pin_answers(flow);
    }
    PinAssignment { of_switches: room.pins, spilled }
}

/// The flows to pin, those of the most intense jobs first.
fn flows_by_rank(plan: &Plan) -> Vec<usize> {
    let rank = |flow: &PlannedFlow| plan.jobs.get(flow.job).map_or(u32::MAX, |job| job.rank);
    let pinned = plan.flows.iter().enumerate().filter(|(_, flow)| flow.pinned);
    let mut order: Vec<usize> = pinned.map(|(position, _)| position).collect();
    order.sort_by_key(|position| rank(&plan.flows[*position]));
    order
}

/// Findings about the flows without room, one for each switch, with their names.
pub(super) fn spill_findings(
    fabric: &Fabric,
    plan: &Plan,
    spilled: &[SpilledFlow],
) -> Vec<Finding> {
    let mut by_switch: BTreeMap<SwitchId, Vec<String>> = BTreeMap::new();
    for spilled in spilled {
        let name = plan.flows[spilled.flow].name_in(fabric);
        by_switch.entry(spilled.switch).or_default().push(name);
    }
    let findings = by_switch.into_iter().map(|(switch, names)| {
        let text = format!("no room for pins, left to ECMP: {}", names.join(", "));
        Finding::warning(fabric.switch(switch).name.clone(), text)
    });
    findings.collect()
}

struct PinRoom<'a> {
    fabric: &'a Fabric,
    routes: &'a SwitchRoutes,
    wiring: &'a SaiWiring,
    /// Routes without any pin, by switch.
    default_routes: Vec<usize>,
    pins: BTreeMap<SwitchId, SwitchPins>,
}

impl PinRoom<'_> {
    /// The rows that a flow still needs, or the first switch that has no room for one.
    fn needed_pins(&self, flow: &PlannedFlow) -> Result<Vec<NeededPin>, SwitchId> {
        let mut needed = Vec::new();
        for &link in flow.links.iter() {
            let Some(switch) = self.fabric.link(link).from.node.switch() else {
                continue;
            };
            if !self.wiring.switches.contains(&switch) {
                continue;
            }
            let Some(links) = self.routes.links_to(self.fabric, switch, flow.dst) else {
                continue;
            };
            if !links.usable.contains(&link) {
                // The next plan has another path.
                return Ok(Vec::new());
            }
            if links.spread != [link] {
                needed.extend(self.needed_pin(flow, switch, link)?);
            }
        }
        Ok(needed)
    }

    fn needed_pin(
        &self,
        flow: &PlannedFlow,
        switch: SwitchId,
        link: LinkId,
    ) -> Result<Option<NeededPin>, SwitchId> {
        let none = SwitchPins::default();
        let pins = self.pins.get(&switch).unwrap_or(&none);
        let is_entry = self.fabric.leaf_of(flow.src) == switch;
        let port = entry_port(self.fabric, flow.src);
        let to = self.fabric.first_port(flow.dst);
        let route = pins.routes.get(&port).and_then(|routes| routes.get(&to));
        match route.filter(|_| is_entry) {
            Some(pinned) if *pinned == link => return Ok(None),
            Some(_) => {}
            None if is_entry && self.has_room_for_route(pins, switch, port) => {
                return Ok(Some(NeededPin::Route { switch, port, to, link }));
            }
            None => {}
        }
        let key = flow_key(self.fabric, flow).filter(|key| sai::flow_redirect(key, 0).is_some());
        // Flows of one connection from two ports have one row where they meet.
        if key.is_some_and(|key| pins.redirects.get(&key) == Some(&link)) {
            return Ok(None);
        }
        let has_room = pins.redirects.len() < self.wiring.budget.redirects;
        match key.filter(|key| has_room && !pins.redirects.contains_key(key)) {
            Some(_) => Ok(Some(NeededPin::Redirect { switch, link })),
            None => Err(switch),
        }
    }

    /// Leads what answers a flow back over the flow's own path, as far as the leaf of its receiver
    /// decides that. The first flow of a pair, by rank, decides it for all of them.
    fn pin_answers(&mut self, flow: &PlannedFlow) {
        let (from, to) = (self.fabric.leaf_of(flow.dst), self.fabric.first_port(flow.src));
        let Some(link) = answers::link_back(self.fabric, flow) else {
            return;
        };
        let links = self.routes.links_to(self.fabric, from, flow.src);
        let has_choice =
            links.is_some_and(|links| links.usable.contains(&link) && links.spread != [link]);
        let none = SwitchPins::default();
        let pins = self.pins.get(&from).unwrap_or(&none);
        let port = entry_port(self.fabric, flow.dst);
        let is_led = pins.routes.get(&port).is_some_and(|routes| routes.contains_key(&to));
        if self.wiring.switches.contains(&from)
            && has_choice
            && !is_led
            && self.has_room_for_route(pins, from, port)
        {
            self.take(flow, &NeededPin::Route { switch: from, port, to, link });
        }
    }

    /// Only the first ports of a leaf may have VRFs, so that the VRFs before and after a plan fit
    /// the table together.
    fn has_room_for_route(&self, pins: &SwitchPins, switch: SwitchId, port: u32) -> bool {
        let ports: BTreeSet<u32> =
            self.fabric.nics_on(switch).map(|nic| entry_port(self.fabric, nic)).collect();
        let budget = &self.wiring.budget;
        let vrfs_max = budget.vrfs.min(budget.port_classes);
        let may_have_vrf = ports.iter().take(vrfs_max).any(|first| *first == port);
        let vrfs = pins.routes.len() + usize::from(!pins.routes.contains_key(&port));
        let pinned: usize = pins.routes.values().map(BTreeMap::len).sum();
        let routes = self.default_routes[switch.index()] * (vrfs + 1) + pinned + 1;
        may_have_vrf && routes <= budget.routes
    }

    fn take(&mut self, flow: &PlannedFlow, pin: &NeededPin) {
        match *pin {
            NeededPin::Route { switch, port, to, link } => {
                let pins = self.pins.entry(switch).or_default();
                pins.routes.entry(port).or_default().insert(to, link);
            }
            NeededPin::Redirect { switch, link } => {
                let key = flow_key(self.fabric, flow);
                let redirects = &mut self.pins.entry(switch).or_default().redirects;
                redirects.extend(key.map(|key| (key, link)));
            }
        }
    }
}

impl SwitchPins {
    /// The ports that have a VRF, ascending.
    pub(super) fn vrf_ports(&self) -> impl Iterator<Item = u32> {
        self.routes.keys().copied()
    }

    /// The VRF of packets that come in by a port.
    pub(super) fn vrf_of(&self, port: u32) -> Vrf {
        if self.routes.contains_key(&port) { Vrf::OfPort(port) } else { Vrf::Default }
    }

    /// The routes of pins.
    pub(super) fn routes(&self, fabric: &Fabric) -> Vec<TableEntry> {
        let routes = self.routes.iter().flat_map(|(port, routes)| {
            let vrf = Vrf::OfPort(*port);
            routes.iter().map(move |(nic, link)| {
                let target = RouteTarget::Port(fabric.link(*link).from.port);
                sai::route(vrf, IpPrefix::from(fabric.nic(*nic).ip), target)
            })
        });
        routes.collect()
    }

    /// The VRFs and the rows by five-tuple.
    pub(super) fn rows(&self, fabric: &Fabric) -> Vec<TableEntry> {
        let redirects = self.redirects.iter();
        let redirects = redirects
            .filter_map(|(flow, link)| sai::flow_redirect(flow, fabric.link(*link).from.port));
        self.vrf_ports().map(sai::port_vrf).chain(redirects).collect()
    }
}

/// The port of a leaf at which a NIC is connected.
pub(super) fn entry_port(fabric: &Fabric, nic: NicId) -> u32 {
    fabric.link(fabric.nic(nic).uplink.reverse()).from.port
}

pub(super) fn flow_key(fabric: &Fabric, flow: &PlannedFlow) -> Option<FlowKey> {
    let [src, dst] = [flow.src, flow.dst].map(|nic| fabric.nic(nic).ip);
    Some(FlowKey::for_roce(src, dst, flow.udp_src_port?))
}
