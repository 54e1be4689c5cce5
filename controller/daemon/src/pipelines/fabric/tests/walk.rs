//! Packets through lowered tables: the ingress of `fabric.p4` in a few lines, as a second reading
//! of what rows mean.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use p4::SwitchTables;
use p4::entry::{
    ActionParam, ActionSpec, EntryKey, EntryValue, FieldMatch, RowField, TableId, TableRow,
};
use p4::fabric::{action, table};
use topology::{Fabric, FabricNode, LinkEndpoint, LinkId, NicId, SwitchId};

/// Where a packet went and what it was on arrival.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pipelines) struct Walk {
    pub(in crate::pipelines) links: Vec<LinkId>,
    /// The level at which each switch sent it on.
    pub(in crate::pipelines) levels: Vec<u128>,
}

pub(in crate::pipelines) struct Packet {
    pub(in crate::pipelines) src: NicId,
    pub(in crate::pipelines) dst: NicId,
    pub(in crate::pipelines) sport: u16,
    /// That of an answer, if it is one.
    pub(in crate::pipelines) answer: Option<u8>,
}

/// Sends a RoCEv2 packet; of the ports of an ECMP group it takes the `choice`-th, round and round.
pub(in crate::pipelines) fn walk(
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    packet: &Packet,
    choice: usize,
) -> Result<Walk, String> {
    // What a host writes there is its own business until the first switch.
    let mut dscp = 0x3f;
    let mut walk = Walk { links: vec![fabric.nic(packet.src).uplink], levels: Vec::new() };
    for _ in 0..8 {
        let link = *walk.links.last().unwrap();
        if !fabric.is_up(link) {
            return Err(format!("sent over {}, which is down", fabric.link_name(link)));
        }
        let LinkEndpoint { node, port } = fabric.link(link).to;
        let FabricNode::Switch(switch) = node else {
            return if has_arrived(fabric, packet, link) {
                Ok(walk)
            } else {
                Err(format!("arrived over {}", fabric.link_name(link)))
            };
        };
        let view = PacketView {
            tables: &tables[&switch],
            src: fabric.nic(packet.src).ip,
            dst: fabric.nic(packet.dst).ip,
            sport: packet.sport.into(),
            answer: packet.answer.map(u128::from),
        };
        let (port, level) = view
            .forward(port.into(), &mut dscp, choice)
            .ok_or_else(|| format!("dropped at {}", fabric.switch(switch).name))?;
        walk.levels.push(level);
        walk.links.push(fabric.switch(switch).ports[&u32::try_from(port).unwrap()]);
    }
    Err("runs in circles".to_owned())
}

/// Whether a link leads to a port of the packet's receiver.
pub(in crate::pipelines) fn has_arrived(fabric: &Fabric, packet: &Packet, link: LinkId) -> bool {
    let arrived = fabric.nic_after(link).map(|port| fabric.first_port(port));
    arrived == Some(fabric.first_port(packet.dst))
}

/// A packet seen by one switch.
pub(in crate::pipelines) struct PacketView<'a> {
    pub(in crate::pipelines) tables: &'a SwitchTables,
    pub(in crate::pipelines) src: IpAddr,
    pub(in crate::pipelines) dst: IpAddr,
    pub(in crate::pipelines) sport: u128,
    pub(in crate::pipelines) answer: Option<u128>,
}

impl PacketView<'_> {
    /// The port and the level of the packet, which is dropped without a port.
    pub(in crate::pipelines) fn forward(
        &self,
        ingress: u128,
        dscp: &mut u128,
        choice: usize,
    ) -> Option<(u128, u128)> {
        let is_edge = self.exact(table::FABRIC_PORT, &[ingress]).is_none();
        if is_edge {
            *dscp = 0;
        }
        let guard = self.pick(table::SOURCE_GUARD, table::SOURCE_GUARD6);
        let is_guarded = is_edge && self.exact(guard, &[ingress, bits(self.src)]).is_some();
        let inside = self.exact(table::DSCP_LEVEL, &[*dscp]).filter(|_| !is_edge);
        let mut level = inside.map_or(0, |params| params[0]);
        let pin = self.pin(is_edge, ingress).filter(|_| is_guarded || !is_edge);
        let job = match &pin {
            Some(params) => params.get(1).copied(),
            None => self.classified(ingress),
        };
        // Job 0 means none.
        if let (true, Some(job)) = (is_guarded, job.filter(|job| *job != 0)) {
            let class = self.exact(table::JOB_QOS, &[job]).expect("a job that is named has a row");
            (level, *dscp) = (class[0], class[1]);
        }
        let answer = self.answer.filter(|_| is_guarded);
        if let Some(class) = answer.and_then(|opcode| self.exact(table::ROCE_ANSWER, &[opcode])) {
            (level, *dscp) = (class[0], class[1]);
        }
        if let Some(host) =
            self.exact(self.pick(table::LOCAL_HOST, table::LOCAL_HOST6), &[bits(self.dst)])
        {
            return Some((host[0], level));
        }
        let (leaf, hosts_only) = self.leaf()?;
        if hosts_only && !is_edge {
            return None;
        }
        let pinned = pin.and_then(|params| self.pinned(leaf, params[0]));
        Some((pinned.or_else(|| self.ecmp(leaf, choice))?, level))
    }

    /// The table of the packet's version.
    fn pick(&self, ipv4: TableId, ipv6: TableId) -> TableId {
        if self.src.is_ipv4() { ipv4 } else { ipv6 }
    }

    fn pin(&self, is_edge: bool, ingress: u128) -> Option<Vec<u128>> {
        let (table, from) = match (self.src.is_ipv4(), is_edge) {
            (true, _) => (table::FLOW_PIN, bits(self.src)),
            (false, true) => (table::FLOW_PIN6, ingress),
            (false, false) => (table::TRANSIT_PIN6, bits(self.src)),
        };
        self.exact(table, &[from, bits(self.dst), 17, self.sport, 4791])
    }

    fn pinned(&self, leaf: u128, path: u128) -> Option<u128> {
        let path = self.exact(table::PATH, &[leaf, path])?;
        let is_up = |table, port| self.exact(table, &[port]).is_none();
        let primary = Some(path[0]).filter(|port| is_up(table::PORT_DOWN, *port));
        primary.or_else(|| Some(path[1]).filter(|port| is_up(table::BACKUP_DOWN, *port)))
    }

    fn ecmp(&self, leaf: u128, choice: usize) -> Option<u128> {
        let key = EntryKey::for_row(table::ECMP_GROUP, vec![RowField::exact(1, leaf)], 0);
        match &self.tables.get(&key)?.action {
            ActionSpec::OneShot(group) => Some(number(&group[choice % group.len()].call.params[0])),
            other => panic!("{other:?}"),
        }
    }

    /// The number of the leaf, and whether its row is for packets from hosts alone.
    fn leaf(&self) -> Option<(u128, bool)> {
        let rows = self.tables.table_entries(self.pick(table::DST_LEAF, table::DST_LEAF6));
        let width = if self.dst.is_ipv4() { 32 } else { 128 };
        let matching = rows.filter_map(|(key, value)| match &fields(key)[0].matches {
            FieldMatch::Lpm { value: prefix, prefix_len } => {
                let free = width - prefix_len;
                let mut calls = value.action.action_calls();
                let hosts_only = calls.any(|call| call.action == action::SET_DST_LEAF_OF_HOSTS);
                (prefix >> free == bits(self.dst) >> free)
                    .then_some((*prefix_len, (params(value)[0], hosts_only)))
            }
            other => panic!("{other:?}"),
        });
        matching.max().map(|(_, leaf)| leaf)
    }

    /// The job by the pair of NICs, and by what else its flows or a rule say.
    fn classified(&self, ingress: u128) -> Option<u128> {
        let from = if self.src.is_ipv4() { bits(self.src) } else { ingress };
        let pair = self.pick(table::JOB_PAIR, table::JOB_PAIR6);
        let pair = self.exact(pair, &[from, bits(self.dst)]).map_or(0, |params| params[0]);
        let values = [bits(self.src), bits(self.dst), 4791, self.sport, pair];
        let value_of = |id| values[id as usize - 1];
        let matches = |field: &RowField| match &field.matches {
            FieldMatch::Ternary { value, mask } => value_of(field.id) & mask == *value,
            other => panic!("{other:?}"),
        };
        let rows = self.tables.table_entries(self.pick(table::JOB_CLASSIFY, table::JOB_CLASSIFY6));
        let matching = rows.filter(|(key, _)| fields(key).iter().all(matches));
        let first = matching.max_by_key(|(key, _)| match key.row {
            TableRow::Match { priority, .. } => priority,
            TableRow::Default => 0,
        });
        Some(first.map_or(pair, |(_, value)| params(value)[0]))
    }

    fn exact(&self, table: TableId, key: &[u128]) -> Option<Vec<u128>> {
        let fields = (1..).zip(key).map(|(id, value)| RowField::exact(id, *value));
        self.tables.get(&EntryKey::for_row(table, fields.collect(), 0)).map(params)
    }
}

pub(in crate::pipelines) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

pub(in crate::pipelines) fn fields(key: &EntryKey) -> &[RowField] {
    match &key.row {
        TableRow::Match { fields, .. } => fields,
        TableRow::Default => &[],
    }
}

fn params(value: &EntryValue) -> Vec<u128> {
    match &value.action {
        ActionSpec::Direct(call) => call.params.iter().map(number).collect(),
        other => panic!("{other:?}"),
    }
}

fn number(param: &ActionParam) -> u128 {
    param.value.number().unwrap()
}
