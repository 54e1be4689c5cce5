//! An audit of the switches: their tables, and the paths that the packets took.
//!
//! Read over P4Runtime with connections of the demo's own, after the controller has reported
//! verified tables. Pins of `fabric.p4` count the packets and bytes that they matched, ports those
//! that left by each level; at rest the two must agree on every hop of every planned path. Where
//! switches have other programs, rows count what jobs send, and
//! [`packet_walk`](super::packet_walk) shows its way.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use controller::Config;
use controller::pipelines::{self, fabric::port_level_counts, pipeline_at};
use controller::southbound::{DesiredTables, SwitchAddress, SwitchClient, SwitchTarget};
use p4::codec::CounterValue;
use p4::diff_tables;
use p4::entry::EntryKey;
use p4::fabric::{self as rows, FlowKey, PinPoint, PortNumber, PriorityLevel};
use planner::{Plan, PlannedFlow};
use topology::{Fabric, FabricNode, SwitchId};

use command_io::CommandError;

/// Acknowledgements and flows without a pin pass the same ports: so much of the bytes of all pins
/// may leave a port beyond what its pins explain. One acknowledgement of 62 bytes answers at least
/// two packets of 4154.
const UNPINNED_SHARE: f64 = 0.02;

/// The findings of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwitchEvidence {
    /// Entries that the switches should hold.
    pub(super) entries: usize,
    /// Entries by which they differ from it; counted before training and again after.
    pub(super) different_entries: usize,
    /// Flows with a pin.
    pub(super) pins: usize,
    /// Pinned flows that sent nothing, and ports that carried other bytes than the pins say.
    pub(super) strays: Vec<String>,
}

impl SwitchEvidence {
    /// Every table is as desired and every pinned flow went its way.
    pub(super) fn is_clean(&self) -> bool {
        self.different_entries == 0 && self.strays.is_empty()
    }
}

/// Connections to all switches of a fabric.
pub(super) struct SwitchAuditor {
    fabric: Fabric,
    clients: BTreeMap<SwitchId, SwitchClient>,
}

/// What the pins of each switch have counted.
pub(super) type PinCounts = BTreeMap<SwitchId, BTreeMap<EntryKey, CounterValue>>;

/// Bytes that left a switch by a port on a level.
pub(super) type PortBytes = BTreeMap<(SwitchId, PortNumber, PriorityLevel), u64>;

impl SwitchAuditor {
    pub(super) async fn new(fabric: &Fabric) -> Result<Self, CommandError> {
        let config = Config::default();
        let mut clients = BTreeMap::new();
        for SwitchTarget { switch, address, .. } in SwitchTarget::all_in_fabric(fabric) {
            let connected = connect_client(&address, &config).await?;
            clients.insert(switch, connected);
        }
        Ok(Self { fabric: fabric.clone(), clients })
    }

    /// Whether the pins and ports of all switches count.
    pub(super) fn counts_pins(&self) -> bool {
        let mut switches = self.fabric.switch_ids();
        switches.all(|switch| {
            let capabilities = pipeline_at(&self.fabric, switch).capabilities();
            capabilities.counts_pins && capabilities.counts_levels
        })
    }

    /// Jobs of which a leaf has counted nothing.
    pub(super) async fn uncounted_jobs(&self, plan: &Plan) -> Result<Vec<String>, CommandError> {
        let counted = self.read_pin_counts().await?;
        let entries = pipelines::attributed_entries(&self.fabric, plan).into_iter();
        let silent = entries.filter(|entry| {
            let counts = counted.get(&entry.switch);
            let count = counts.and_then(|counts| counts.get(&entry.key));
            count.is_none_or(|count| count.bytes == 0)
        });
        let texts = silent.map(|entry| {
            let job = plan.jobs.get(entry.job).map_or("?", |job| job.id.as_str());
            format!("{job}: nothing counted at {}", self.fabric.switch(entry.switch).name)
        });
        Ok(texts.collect())
    }

    /// The number of updates that would make the switches hold what is desired.
    pub(super) async fn different_entries(
        &self,
        desired: &DesiredTables,
    ) -> Result<usize, CommandError> {
        let mut different = 0;
        for (switch, client) in &self.clients {
            let program = pipeline_at(&self.fabric, *switch).program();
            let actual = client.read_all_tables(program).await.map_err(CommandError::failed)?;
            let nothing = p4::SwitchTables::default();
            let wanted = desired.tables.get(switch).map_or(&nothing, AsRef::as_ref);
            different += diff_tables(&program.p4info, wanted, &actual).len();
        }
        Ok(different)
    }

    /// Pinned flows that sent nothing, and ports on which the bytes of the pins are not to be found
    /// or are not all that was carried. Without pins there is no other way than ECMP's.
    pub(super) async fn misrouted_flows(&self, plan: &Plan) -> Result<Vec<String>, CommandError> {
        let matched = self.read_pin_counts().await?;
        let pinned = plan.flows.iter().filter(|flow| flow.pinned);
        let pinned_bytes: u64 = pinned.clone().map(|flow| self.pinned_bytes(flow, &matched)).sum();
        let unmatched = pinned.filter(|flow| {
            self.pinned_bytes(flow, &matched) == 0
                && !self.is_sent_from_other_port(plan, flow, &matched)
        });
        let mut strays: Vec<String> = unmatched
            .map(|flow| format!("{}: nothing matched its pin", self.flow_name(plan, flow)))
            .collect();
        let planned = self.planned_bytes(plan, &matched);
        if planned.is_empty() {
            return Ok(strays);
        }
        let carried = self.read_port_bytes().await?;
        let allowed = (pinned_bytes as f64 * UNPINNED_SHARE) as u64;
        strays.extend(self.unexplained_ports(&planned, &carried, allowed));
        Ok(strays)
    }

    /// Bytes of pinned flows by the switches, ports and levels on their paths.
    pub(super) fn planned_bytes(&self, plan: &Plan, matched: &PinCounts) -> PortBytes {
        let mut planned = PortBytes::new();
        for flow in plan.flows.iter().filter(|flow| flow.pinned) {
            let bytes = self.pinned_bytes(flow, matched);
            for key in self.planned_hops(plan, flow) {
                *planned.entry(key).or_default() += bytes;
            }
        }
        planned
    }

    /// Ports between switches that carried fewer bytes than planned, or more than pins and
    /// acknowledgements explain.
    fn unexplained_ports(
        &self,
        planned: &PortBytes,
        carried: &PortBytes,
        allowed: u64,
    ) -> Vec<String> {
        let mut keys: Vec<_> =
            planned.keys().chain(carried.keys().filter(|key| self.is_inside(key))).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .filter_map(|key: &(SwitchId, PortNumber, PriorityLevel)| {
                let [planned, carried] =
                    [planned, carried].map(|bytes| bytes.get(key).copied().unwrap_or(0));
                let fits = (planned..=planned + allowed).contains(&carried);
                (!fits).then(|| {
                    let (switch, port, level) = (key.0, key.1.number(), key.2.number());
                    let switch = &self.fabric.switch(switch).name;
                    format!("{switch}:{port} level {level}: {carried} bytes, planned {planned}")
                })
            })
            .collect()
    }

    /// What every pin has counted, by switch.
    pub(super) async fn read_pin_counts(&self) -> Result<PinCounts, CommandError> {
        let mut matched = PinCounts::new();
        for (switch, client) in &self.clients {
            let counts = client.read_pin_counts().await.map_err(CommandError::failed)?;
            matched.insert(*switch, counts);
        }
        Ok(matched)
    }

    /// Bytes that matched the pin of a flow at its source leaf.
    fn pinned_bytes(&self, flow: &PlannedFlow, matched: &PinCounts) -> u64 {
        let [src, dst] = [flow.src, flow.dst].map(|nic| self.fabric.nic(nic).ip);
        let Some(udp_src_port) = flow.udp_src_port else {
            return 0;
        };
        let flow_key = FlowKey::for_roce(src, dst, udp_src_port);
        let entry = self.fabric.link(self.fabric.nic(flow.src).uplink).to.port;
        let point = PortNumber::new(entry).ok().map(PinPoint::Edge);
        // The key does not depend on the action of the pin.
        let pin = point.and_then(|at| rows::flow_pin(at, &flow_key, 0, NonZeroU32::MIN));
        let counts = matched.get(&self.fabric.leaf_of(flow.src)).zip(pin);
        counts.and_then(|(pins, pin)| pins.get(&pin.key)).map_or(0, |count| count.bytes)
    }

    /// Whether the host sends a flow from the other port of its NIC: its hash chooses between the two.
    fn is_sent_from_other_port(
        &self,
        plan: &Plan,
        flow: &PlannedFlow,
        matched: &PinCounts,
    ) -> bool {
        let tuple =
            |flow: &PlannedFlow| (self.fabric.first_ports([flow.src, flow.dst]), flow.udp_src_port);
        let mut others = plan.flows.iter().filter(|other| tuple(other) == tuple(flow));
        others.any(|other| other.pinned && self.pinned_bytes(other, matched) > 0)
    }

    /// The switch ports that a planned flow leaves by.
    fn planned_hops(
        &self,
        plan: &Plan,
        flow: &PlannedFlow,
    ) -> Vec<(SwitchId, PortNumber, PriorityLevel)> {
        let level = plan.jobs.get(flow.job).map_or(0, |job| job.level);
        flow.links
            .iter()
            .filter_map(|link| {
                let from = self.fabric.link(*link).from;
                let port = PortNumber::new(from.port).ok()?;
                Some((from.node.switch()?, port, PriorityLevel::new(u32::from(level)).ok()?))
            })
            .collect()
    }

    async fn read_port_bytes(&self) -> Result<PortBytes, CommandError> {
        let mut carried = PortBytes::new();
        for (switch, client) in &self.clients {
            let cells = client.read_port_level_cells().await.map_err(CommandError::failed)?;
            let counts = port_level_counts(cells);
            let of_switch = counts.into_iter();
            carried.extend(
                of_switch.map(|((port, level), count)| ((*switch, port, level), count.bytes)),
            );
        }
        Ok(carried)
    }

    /// Whether the port leads to another switch.
    fn is_inside(&self, (switch, port, _): &(SwitchId, PortNumber, PriorityLevel)) -> bool {
        let link = self.fabric.switch(*switch).ports.get(&u32::from(port.number()));
        link.is_some_and(|link| matches!(self.fabric.link(*link).to.node, FabricNode::Switch(_)))
    }

    fn flow_name(&self, plan: &Plan, flow: &PlannedFlow) -> String {
        let job = plan.jobs.get(flow.job).map_or("?", |job| job.id.as_str());
        format!("{job} {}", flow.name_in(&self.fabric))
    }
}

async fn connect_client(
    address: &SwitchAddress,
    config: &Config,
) -> Result<SwitchClient, CommandError> {
    SwitchClient::connect(address, &config.southbound).await.map_err(CommandError::failed)
}
