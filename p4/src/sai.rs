//! Entries of `sai.p4`, one constructor per table.
//!
//! The decision: identifiers are made of numbers of the fabric and nothing else, so that the rows
//! of a port or a leaf have the names they had before a restart. A port is named by its number, as
//! SONiC names them with `--use_port_ids`.

mod ids;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use crate::entry::{
    ActionCall, ActionId, ActionSpec, EntryKey, RowField, TableEntry, TableId, WeightedAction,
};
use crate::fabric::{FlowKey, FlowTransport, IpPrefix, IpVersion, PriorityLevel};
use crate::sdn_string::SdnString;

pub use ids::{action, table};

/// The priority of rows for single flows and for whole ports.
const ROW_PRIORITY: u32 = 1;
/// The priority of rows for the packets from a port to one address.
const PAIR_PRIORITY: u32 = 2;
/// What the id of a port's next hop begins with.
const NEXTHOP_PREFIX: &str = "port-";
/// The queue of packets to the controller, of those that a switch has for its processor.
const CONTROLLER_QUEUE: u32 = 1;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// An Ethernet address of which all bits matter.
const MAC_MASK: u128 = (1 << 48) - 1;
/// What gives packets a VRF in published programs; ours has no action that does only this.
const SET_VRF: ActionId = ActionId(0x0100_0100);
/// The neighbours of all ports have this address: fe80::1.
const NEIGHBOR: u128 = (0xfe80 << 112) | 1;

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteTarget {
    /// Out of this port.
    Port(u32),
    /// To a member of this group.
    Group(u32),
}

/// The routes that packets from a host port use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vrf {
    /// Those of the switch; always there.
    Default,
    /// Those of this port alone.
    OfPort(u32),
}

impl Vrf {
    fn id(self) -> SdnString {
        match self {
            Self::Default => SdnString::default(),
            Self::OfPort(port) => SdnString::numbered("vrf-", port),
        }
    }
}

/// The rows that make a port a next hop: its router interface, neighbour and next hop. Packets
/// leave it from `src` to `dst`.
pub fn port_rows(port: u32, src: [u8; 6], dst: [u8; 6]) -> [TableEntry; 3] {
    let interface = ActionCall::new(
        action::UNICAST_SET_PORT_AND_SRC_MAC,
        [SdnString::numbered("", port).into(), mac_bits(src).into()],
    );
    let neighbor = ActionCall::new(action::SET_DST_MAC, [mac_bits(dst).into()]);
    let nexthop =
        ActionCall::new(action::SET_IP_NEXTHOP, [interface_id(port).into(), NEIGHBOR.into()]);
    let of_interface = RowField::exact(1, interface_id(port));
    [
        exact_row(table::ROUTER_INTERFACE, vec![of_interface.clone()], interface),
        exact_row(table::NEIGHBOR, vec![of_interface, RowField::exact(2, NEIGHBOR)], neighbor),
        exact_row(table::NEXTHOP, vec![RowField::exact(1, nexthop_id(port))], nexthop),
    ]
}

/// `wcmp_group_table`: the ports of a group, with equal shares, each watched. `None` without ports.
pub fn wcmp_group(group: u32, ports: impl IntoIterator<Item = u32>) -> Option<TableEntry> {
    let members = ports.into_iter().map(|port| WeightedAction {
        call: ActionCall::new(action::SET_NEXTHOP_ID, [nexthop_id(port).into()]),
        weight: 1,
        watch_port: Some(SdnString::numbered("", port).into()),
    });
    let mut members = members.peekable();
    members.peek()?;
    Some(group_key(group).with_action(ActionSpec::one_shot(members)))
}

/// The key of a group.
pub fn group_key(group: u32) -> EntryKey {
    EntryKey::for_row(table::WCMP_GROUP, vec![RowField::exact(1, group_id(group))], 0)
}

/// The port to which an action of a route, a group or a pin leads; `None` for other actions.
pub fn nexthop_port(call: &ActionCall) -> Option<u32> {
    let leads = [action::SET_NEXTHOP_ID, action::REDIRECT_TO_NEXTHOP].contains(&call.action);
    let id = call.params.first().filter(|_| leads)?.value.text()?;
    id.as_str().strip_prefix(NEXTHOP_PREFIX)?.parse().ok()
}

/// `l3_admit_table`: packets to this Ethernet address are routed.
pub fn l3_admit(mac: [u8; 6]) -> TableEntry {
    let fields = RowField::ternary(1, mac_bits(mac), MAC_MASK);
    let admit = ActionCall::new(action::ADMIT_TO_L3, []);
    EntryKey::for_row(table::L3_ADMIT, fields.into_iter().collect(), ROW_PRIORITY)
        .with_action(admit.into())
}

/// `vrf_table`: the routes of a port. The default VRF has no row.
pub fn port_vrf(port: u32) -> TableEntry {
    let key = vec![RowField::exact(1, Vrf::OfPort(port).id())];
    exact_row(table::VRF, key, ActionCall::new(action::NO_ACTION, []))
}

/// `ipv4_table` and `ipv6_table`: a route. Needs the VRF's row, and the group or the port's rows.
pub fn route(vrf: Vrf, prefix: IpPrefix, target: RouteTarget) -> TableEntry {
    let call = route_action(target);
    let table = match prefix.version() {
        IpVersion::V4 => table::IPV4,
        IpVersion::V6 => table::IPV6,
    };
    let vrf = RowField::exact(1, vrf.id());
    exact_row(table, [Some(vrf), prefix.lpm_field(2)].into_iter().flatten().collect(), call)
}

/// What a route to this target does.
pub fn route_action(target: RouteTarget) -> ActionCall {
    match target {
        RouteTarget::Port(port) => {
            ActionCall::new(action::SET_NEXTHOP_ID, [nexthop_id(port).into()])
        }
        RouteTarget::Group(group) => {
            ActionCall::new(action::SET_WCMP_GROUP_ID, [group_id(group).into()])
        }
    }
}

/// `acl_pre_ingress_table`: the VRF and the job of packets that come in by a port, or of those of
/// them that go to one address. Without a job they have the [`job_level`] of none.
pub fn port_class(
    port: u32,
    dst: Option<Ipv4Addr>,
    vrf: Vrf,
    job: Option<NonZeroU32>,
) -> TableEntry {
    let metadata = job_metadata(job);
    let call = match vrf {
        Vrf::Default => ActionCall::new(action::SET_ACL_METADATA, [metadata.into()]),
        Vrf::OfPort(_) => {
            ActionCall::new(action::SET_VRF_AND_ACL_METADATA, [vrf.id().into(), metadata.into()])
        }
    };
    let mut fields = vec![RowField::optional(8, SdnString::numbered("", port))];
    fields.extend(
        dst.iter()
            .flat_map(|dst| {
                [Some(RowField::optional(2, 1_u32)), full_field(5, dst.to_bits(), u32::MAX)]
            })
            .flatten(),
    );
    let priority = if dst.is_some() { PAIR_PRIORITY } else { ROW_PRIORITY };
    EntryKey::for_row(table::ACL_PRE_INGRESS, fields, priority).with_action(call.into())
}

/// `acl_pre_ingress_table` of published programs, which know no jobs: the VRF of packets that come
/// in by a port.
pub fn published_port_class(port: u32) -> TableEntry {
    let fields = vec![RowField::optional(8, SdnString::numbered("", port))];
    let call = ActionCall::new(SET_VRF, [Vrf::OfPort(port).id().into()]);
    EntryKey::for_row(table::ACL_PRE_INGRESS, fields, ROW_PRIORITY).with_action(call.into())
}

/// `acl_ingress_table`: the port by which a flow leaves. `None` for flows of IPv6, of whose
/// addresses only a half can be matched, and for flows that are told by queue pairs.
pub fn flow_redirect(flow: &FlowKey, port: u32) -> Option<TableEntry> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else {
        return None;
    };
    let FlowTransport::Port { protocol, dport } = flow.transport else {
        return None;
    };
    let fields = [
        Some(RowField::optional(2, 1_u32)),
        full_field(6, src.to_bits(), u32::MAX),
        full_field(7, dst.to_bits(), u32::MAX),
        full_field(13, protocol, u8::MAX),
        full_field(15, dport, u16::MAX),
        full_field(20, flow.sport, u16::MAX),
    ];
    let call = ActionCall::new(action::REDIRECT_TO_NEXTHOP, [nexthop_id(port).into()]);
    let fields = fields.into_iter().flatten().collect();
    Some(EntryKey::for_row(table::ACL_INGRESS, fields, ROW_PRIORITY).with_action(call.into()))
}

/// `acl_ingress_table`: packets of this type go to the controller and nowhere else. `None` for
/// those of IP, which the table's restriction excludes.
pub fn ether_type_trap(ether_type: u16) -> Option<TableEntry> {
    let is_ip = [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&ether_type);
    let fields = full_field(4, ether_type, u16::MAX).filter(|_| !is_ip);
    let queue = SdnString::numbered("0x", CONTROLLER_QUEUE);
    let call = ActionCall::new(action::ACL_TRAP, [queue.into()]);
    let key = EntryKey::for_row(table::ACL_INGRESS, vec![fields?], ROW_PRIORITY);
    Some(key.with_action(call.into()))
}

/// `acl_ingress_qos_table`: the level of a job, or of what comes from NICs and has none, and the DSCP
/// that carries it.
pub fn job_level(job: Option<NonZeroU32>, level: PriorityLevel) -> TableEntry {
    let call = ActionCall::new(action::SET_TC_AND_DSCP, [level.into(), level.dscp().into()]);
    let fields = full_field(13, job_metadata(job), u32::MAX);
    EntryKey::for_row(table::ACL_INGRESS_QOS, fields.into_iter().collect(), ROW_PRIORITY)
        .with_action(call.into())
}

/// The metadata that stands for a job, or for none. 0 is that of packets which no row before routing
/// matches: those from other switches, whose DSCP is their level.
fn job_metadata(job: Option<NonZeroU32>) -> u32 {
    job.map_or(0, NonZeroU32::get).saturating_add(1)
}

/// The link-local address that all next hops have.
pub fn neighbor_address() -> Ipv6Addr {
    Ipv6Addr::from_bits(NEIGHBOR)
}

fn interface_id(port: u32) -> SdnString {
    SdnString::numbered("interface-", port)
}

fn nexthop_id(port: u32) -> SdnString {
    SdnString::numbered(NEXTHOP_PREFIX, port)
}

fn group_id(group: u32) -> SdnString {
    SdnString::numbered("group-", group)
}

/// A ternary field all of whose bits matter; a row that leaves it out would match more.
fn full_field<T: Into<u128>>(id: u32, value: T, mask: T) -> Option<RowField> {
    RowField::ternary(id, value.into(), mask.into())
}

fn exact_row(table: TableId, fields: Vec<RowField>, call: ActionCall) -> TableEntry {
    EntryKey::for_row(table, fields, 0).with_action(call.into())
}

fn mac_bits(mac: [u8; 6]) -> u128 {
    mac.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests;
