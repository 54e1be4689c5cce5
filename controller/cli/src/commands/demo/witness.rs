//! What the switches themselves say: their tables, and which way the packets went.
//!
//! Read over P4Runtime with connections of the demo's own, after the controller has declared itself
//! done. Pins count the packets and bytes that they matched, ports those that left by each level;
//! at rest both must tell the same story on every hop of every planned path.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use controller::Config;
use controller::southbound::{Address, Client, Desired, Target};
use p4::codec::Count;
use p4::entry::EntryKey;
use p4::fabric::{self as rows, Flow, Level, Port};
use p4::{Pipeline, diff};
use planner::{Plan, PlannedFlow};
use topology::{Fabric, LinkId, Node, SwitchId};

use crate::failure::Failure;

/// Acknowledgements and flows without a pin pass the same ports: so much of the bytes of all pins
/// may leave a port beyond what its pins explain. One acknowledgement of 62 bytes answers at least
/// two packets of 4154.
const UNPINNED_SHARE: f64 = 0.02;

/// What the witness found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Entries that the switches shall hold.
    pub(super) entries: usize,
    /// Entries by which they differ from it; counted before training and again after.
    pub(super) different_entries: usize,
    /// Flows with a pin.
    pub(super) pins: usize,
    /// Pinned flows that sent nothing, and ports that carried other bytes than the pins say.
    pub(super) strays: Vec<String>,
}

impl Evidence {
    /// Every table is as desired and every pinned flow went its way.
    pub(super) fn is_clean(&self) -> bool {
        self.different_entries == 0 && self.strays.is_empty()
    }
}

/// Connections to all switches of a fabric.
pub(super) struct Witness {
    fabric: Fabric,
    pipeline: Pipeline,
    clients: BTreeMap<SwitchId, Client>,
}

/// What the pins of each switch have counted.
type Matched = BTreeMap<SwitchId, BTreeMap<EntryKey, Count>>;

/// Bytes that left a switch by a port on a level.
type Carried = BTreeMap<(SwitchId, Port, Level), u64>;

impl Witness {
    pub(super) async fn new(fabric: &Fabric) -> Result<Self, Failure> {
        let config = Config::default();
        let mut clients = BTreeMap::new();
        for Target {
            switch, address, ..
        } in Target::all(fabric)
        {
            let connected = connect(&address, &config).await?;
            clients.insert(switch, connected);
        }
        Ok(Self {
            fabric: fabric.clone(),
            pipeline: Pipeline::fabric(),
            clients,
        })
    }

    /// How many updates would make the switches what they shall be.
    pub(super) async fn different_entries(&self, desired: &Desired) -> Result<usize, Failure> {
        let mut different = 0;
        for (switch, client) in &self.clients {
            let actual = client
                .all_tables(&self.pipeline)
                .await
                .map_err(|e| Failure::work(&e))?;
            let nothing = p4::Tables::default();
            let wanted = desired.tables.get(switch).map_or(&nothing, AsRef::as_ref);
            different += diff(&self.pipeline.p4info, wanted, &actual).len();
        }
        Ok(different)
    }

    /// Pinned flows that sent nothing, and ports on which the bytes of the pins are not to be found
    /// or are not all that was carried. Without pins there is no other way than ECMP's.
    pub(super) async fn strays(&self, plan: &Plan) -> Result<Vec<String>, Failure> {
        let mut strays = Vec::new();
        let mut planned = Carried::new();
        let mut pinned_bytes = 0;
        let matched = self.matched().await?;
        for flow in plan.flows.iter().filter(|flow| flow.pinned) {
            let bytes = self.bytes_of(flow, &matched);
            pinned_bytes += bytes;
            if bytes == 0 {
                strays.push(format!(
                    "{}: nothing matched its pin",
                    self.name(plan, flow)
                ));
            }
            for key in self.hops(plan, flow) {
                *planned.entry(key).or_default() += bytes;
            }
        }
        if planned.is_empty() {
            return Ok(strays);
        }
        let carried = self.carried().await?;
        let allowed = (pinned_bytes as f64 * UNPINNED_SHARE) as u64;
        strays.extend(self.unexplained(&planned, &carried, allowed));
        Ok(strays)
    }

    /// Ports between switches whose bytes are fewer than planned, or more than can be explained.
    fn unexplained(&self, planned: &Carried, carried: &Carried, allowed: u64) -> Vec<String> {
        let keys = planned
            .keys()
            .chain(carried.keys().filter(|key| self.is_inside(key)));
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        keys.dedup();
        let judge = |key: &(SwitchId, Port, Level)| {
            let of = |bytes: &Carried| bytes.get(key).copied().unwrap_or(0);
            let (planned, carried) = (of(planned), of(carried));
            let fits = (planned..=planned + allowed).contains(&carried);
            (!fits).then(|| {
                let (switch, port, level) = (key.0, key.1.number(), key.2.number());
                let switch = &self.fabric.switch(switch).name;
                format!("{switch}:{port} level {level}: {carried} bytes, planned {planned}")
            })
        };
        keys.into_iter().filter_map(judge).collect()
    }

    /// What every pin has counted, by switch.
    async fn matched(&self) -> Result<Matched, Failure> {
        let mut matched = Matched::new();
        for (switch, client) in &self.clients {
            let counts = client
                .pin_counts()
                .await
                .map_err(|error| Failure::work(&error))?;
            matched.insert(*switch, counts);
        }
        Ok(matched)
    }

    /// Bytes that matched the pin of a flow at its source leaf.
    fn bytes_of(&self, flow: &PlannedFlow, matched: &Matched) -> u64 {
        let [src, dst] = [flow.src, flow.dst].map(|nic| self.fabric.nic(nic).ip);
        let five_tuple = Flow::roce(src, dst, flow.udp_src_port);
        // The key is the same whatever the pin says.
        let key = rows::flow_pin(&five_tuple, 0, NonZeroU32::MIN).key;
        let leaf = matched.get(&self.fabric.leaf_of(flow.src));
        leaf.and_then(|pins| pins.get(&key))
            .map_or(0, |count| count.bytes)
    }

    /// The switch ports that a planned flow leaves by.
    fn hops(&self, plan: &Plan, flow: &PlannedFlow) -> Vec<(SwitchId, Port, Level)> {
        let level = plan.jobs.get(flow.job).map_or(0, |job| job.level);
        let hop = |link: &LinkId| {
            let from = self.fabric.link(*link).from;
            let port = Port::new(from.port).ok()?;
            Some((
                from.node.switch()?,
                port,
                Level::new(u32::from(level)).ok()?,
            ))
        };
        flow.links.iter().filter_map(hop).collect()
    }

    async fn carried(&self) -> Result<Carried, Failure> {
        let mut carried = Carried::new();
        for (switch, client) in &self.clients {
            let counts = client
                .port_level_counts()
                .await
                .map_err(|e| Failure::work(&e))?;
            let of_switch = counts.into_iter();
            carried.extend(
                of_switch.map(|((port, level), count)| ((*switch, port, level), count.bytes)),
            );
        }
        Ok(carried)
    }

    /// Whether the port leads to another switch.
    fn is_inside(&self, (switch, port, _): &(SwitchId, Port, Level)) -> bool {
        let link = self
            .fabric
            .switch(*switch)
            .ports
            .get(&u32::from(port.number()));
        link.is_some_and(|link| matches!(self.fabric.link(*link).to.node, Node::Switch(_)))
    }

    fn name(&self, plan: &Plan, flow: &PlannedFlow) -> String {
        let job = plan.jobs.get(flow.job).map_or("?", |job| job.id.as_str());
        let [src, dst] = [flow.src, flow.dst].map(|nic| self.fabric.nic(nic).ip);
        format!("{job} {src} > {dst} port {}", flow.udp_src_port)
    }
}

async fn connect(address: &Address, config: &Config) -> Result<Client, Failure> {
    Client::connect(address, &config.southbound)
        .await
        .map_err(|error| Failure::work(&error))
}
