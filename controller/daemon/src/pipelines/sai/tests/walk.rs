//! Packets through tables of `sai.p4`: its ingress in a few lines, as a second reading of what rows
//! mean.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use p4::SwitchTables;
use p4::entry::{
    ActionCall, ActionSpec, EntryKey, EntryValue, FieldMatch, RowField, TableId, TableRow,
};
use p4::sai::{action, table};
use p4::{FieldValue, SdnString};
use topology::{Fabric, FabricNode, LinkEndpoint, LinkId, MacAddress, PipelineKind, SwitchId};

use crate::pipelines::fabric::tests::walk::{self, Packet, Walk, bits, fields};

/// Sends a RoCEv2 packet without a DSCP through switches that each have the tables of their own
/// program.
pub(in crate::pipelines) fn walk_sai(
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    packet: &Packet,
    choice: usize,
) -> Result<Walk, String> {
    walk_sai_with_dscp(fabric, tables, packet, choice, 0)
}

/// The same with the DSCP that its host writes.
pub(super) fn walk_sai_with_dscp(
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    packet: &Packet,
    choice: usize,
    dscp: u128,
) -> Result<Walk, String> {
    let mut walk = Walk { links: vec![fabric.nic(packet.src).uplink], levels: Vec::new() };
    // Hosts send to the address of their gateway.
    let mut view = PacketView {
        tables: &tables[&fabric.leaf_of(packet.src)],
        src: fabric.nic(packet.src).ip,
        dst: fabric.nic(packet.dst).ip,
        sport: packet.sport.into(),
        dst_mac: super::mac_number(MacAddress::GATEWAY.0),
        dscp,
    };
    for _ in 0..8 {
        let link = *walk.links.last().unwrap();
        if !fabric.is_up(link) {
            return Err(format!("sent over {}, which is down", fabric.link_name(link)));
        }
        let LinkEndpoint { node, port } = fabric.link(link).to;
        let FabricNode::Switch(switch) = node else {
            let mac = fabric.nic(packet.dst).mac;
            let is_addressed = view.is_addressed_to(mac.0, fabric, link);
            return if walk::has_arrived(fabric, packet, link) && is_addressed {
                Ok(walk)
            } else {
                Err(format!("arrived over {}", fabric.link_name(link)))
            };
        };
        view.tables = &tables[&switch];
        let sent = match fabric.switch(switch).pipeline {
            PipelineKind::Sai => view.forward(port, choice),
            PipelineKind::Fabric => view.forward_by_fabric(port, choice),
        };
        let (port, level) =
            sent.ok_or_else(|| format!("dropped at {}", fabric.switch(switch).name))?;
        walk.levels.push(level);
        walk.links.push(fabric.switch(switch).ports[&port]);
    }
    Err("runs in circles".to_owned())
}

/// A packet seen by one switch.
struct PacketView<'a> {
    tables: &'a SwitchTables,
    src: IpAddr,
    dst: IpAddr,
    sport: u128,
    dst_mac: u128,
    dscp: u128,
}

impl PacketView<'_> {
    /// Whether the packet has the Ethernet address of its host, which the walk through `fabric.p4`
    /// does not follow.
    fn is_addressed_to(&self, mac: [u8; 6], fabric: &Fabric, link: LinkId) -> bool {
        let leaf = fabric.link(link).from.node.switch().unwrap();
        fabric.switch(leaf).pipeline == PipelineKind::Fabric
            || self.dst_mac == super::mac_number(mac)
    }

    /// As [`PacketView::forward`], at a switch with `fabric.p4`, which leaves the address of the
    /// gateway in the packet.
    fn forward_by_fabric(&mut self, ingress: u32, choice: usize) -> Option<(u32, u128)> {
        let Self { tables, src, dst, sport, .. } = *self;
        let view = walk::PacketView { tables, src, dst, sport, answer: None };
        let (port, level) = view.forward(ingress.into(), &mut self.dscp, choice)?;
        Some((u32::try_from(port).unwrap(), level))
    }

    /// The port and the level of the packet, which is dropped without a port.
    fn forward(&mut self, ingress: u32, choice: usize) -> Option<(u32, u128)> {
        let class = self.first_match(table::ACL_PRE_INGRESS, |id| match id {
            2 => Some(u128::from(self.dst.is_ipv4()).into()),
            5 => Some(bits(self.dst).into()),
            8 => Some(SdnString::try_from(&*ingress.to_string()).unwrap().into()),
            _ => None,
        });
        let class = class.map(params);
        let (vrf, job) = match class.as_deref() {
            Some([FieldValue::Text(vrf), FieldValue::Number(job)]) => (vrf.clone(), *job),
            // Published programs name no job.
            Some([FieldValue::Text(vrf)]) => (vrf.clone(), 0),
            Some([FieldValue::Number(job)]) => (SdnString::default(), *job),
            None => (SdnString::default(), 0),
            Some(other) => panic!("{other:?}"),
        };
        self.first_match(table::L3_ADMIT, |_| Some(self.dst_mac.into()))?;
        let qos = self.first_match(table::ACL_INGRESS_QOS, |_| Some(job.into()));
        if let Some([level, dscp]) = qos.map(params).as_deref() {
            assert_eq!(dscp.number().map(|dscp| dscp >> 3), level.number());
            self.dscp = dscp.number().unwrap();
        }
        let level = self.dscp >> 3;
        let nexthop = self.redirect().or_else(|| self.routed(&vrf, choice))?;
        let [interface, neighbor] = self.exact(table::NEXTHOP, &[nexthop])?;
        let to = [interface.clone(), neighbor];
        let [mac] = self.exact(table::NEIGHBOR, &to)?;
        let [port, _] = self.exact(table::ROUTER_INTERFACE, &[interface])?;
        self.dst_mac = mac.number().unwrap();
        Some((port.text().unwrap().as_str().parse().unwrap(), level))
    }

    fn redirect(&self) -> Option<FieldValue> {
        let (is_ipv4, [src, dst]) = (self.src.is_ipv4(), [self.src, self.dst].map(bits));
        let row = self.first_match(table::ACL_INGRESS, |id| match id {
            2 => Some(u128::from(is_ipv4).into()),
            6 => Some(src.into()),
            7 => Some(dst.into()),
            13 => Some(17_u32.into()),
            15 => Some(4791_u32.into()),
            20 => Some(self.sport.into()),
            _ => None,
        });
        row.map(|row| params(row)[0].clone())
    }

    fn routed(&self, vrf: &SdnString, choice: usize) -> Option<FieldValue> {
        let (table, width) =
            if self.dst.is_ipv4() { (table::IPV4, 32) } else { (table::IPV6, 128) };
        let rows = self.tables.table_entries(table).filter_map(|(key, value)| {
            let [vrf_field, prefix] = fields(key) else { panic!("{key:?}") };
            let FieldMatch::Lpm { value: prefix, prefix_len } = prefix.matches else { panic!() };
            let free = width - prefix_len;
            let matches = vrf_field.matches == FieldMatch::Exact(vrf.clone().into())
                && prefix >> free == bits(self.dst) >> free;
            matches.then_some((prefix_len, value))
        });
        let (_, value) = rows.max_by_key(|(length, _)| *length)?;
        let call = value.action.action_calls().next().unwrap();
        if call.action == action::SET_NEXTHOP_ID {
            return Some(call.params[0].value.clone());
        }
        let key = EntryKey::for_row(
            table::WCMP_GROUP,
            vec![RowField::exact(1, call.params[0].value.text()?.clone())],
            0,
        );
        match &self.tables.get(&key)?.action {
            ActionSpec::OneShot(group) => {
                Some(group[choice % group.len()].call.params[0].value.clone())
            }
            other => panic!("{other:?}"),
        }
    }

    /// The row of the highest priority that matches the values of fields.
    fn first_match(
        &self,
        table: TableId,
        value_of: impl Fn(u32) -> Option<FieldValue>,
    ) -> Option<&EntryValue> {
        let matches = |field: &RowField| match (&field.matches, value_of(field.id)) {
            (FieldMatch::Optional(value), Some(actual)) => *value == actual,
            (FieldMatch::Ternary { value, mask }, Some(actual)) => {
                actual.number().unwrap() & mask == *value
            }
            other => panic!("{other:?}"),
        };
        let rows = self.tables.table_entries(table);
        let rows = rows.filter(|(key, _)| fields(key).iter().all(matches));
        let first = rows.max_by_key(|(key, _)| match key.row {
            TableRow::Match { priority, .. } => priority,
            TableRow::Default => 0,
        });
        first.map(|(_, value)| value)
    }

    fn exact<const N: usize>(&self, table: TableId, key: &[FieldValue]) -> Option<[FieldValue; N]> {
        let fields = (1..)
            .zip(key)
            .map(|(id, value)| RowField { id, matches: FieldMatch::Exact(value.clone()) });
        let value = self.tables.get(&EntryKey::for_row(table, fields.collect(), 0))?;
        Some(params(value).try_into().unwrap())
    }
}

fn params(value: &EntryValue) -> Vec<FieldValue> {
    let call: &ActionCall = value.action.action_calls().next().unwrap();
    call.params.iter().map(|param| param.value.clone()).collect()
}
