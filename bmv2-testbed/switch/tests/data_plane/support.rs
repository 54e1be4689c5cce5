//! A device with fabric.p4, entries by name, and packets to send through it.

use std::sync::{Arc, OnceLock};

use switch::{
    ActionCall, ControlError, Device, DeviceConfig, DeviceOutputs, GroupMember, KeyField, MatchKey,
    Nanos, OutputPacket, ProfileIndex, Program, TableAction, TableIndex,
};

pub(crate) const JSON: &[u8] = include_bytes!("../../../../p4/fabric.json");
pub(crate) const CPU: u16 = 255;

/// The addresses of two hosts on two leaves.
pub(crate) const HERE: u32 = 0x0a00_0001;
pub(crate) const THERE: u32 = 0x0a00_0102;
/// The leaf id of `THERE`.
pub(crate) const LEAF: u128 = 7;

pub(crate) fn program() -> Arc<Program> {
    static PROGRAM: OnceLock<Arc<Program>> = OnceLock::new();
    Arc::clone(
        PROGRAM.get_or_init(|| Arc::new(Program::from_json(JSON).expect("fabric.json loads"))),
    )
}

pub(crate) fn config(device_id: u64) -> DeviceConfig {
    DeviceConfig { device_id, cpu_port: CPU, levels: 8, trusts_dscp: false }
}

pub(crate) fn device() -> Device {
    let mut device = Device::new(config(1));
    device.load_program(program());
    device
}

/// A leaf: `HERE` behind port 1, which admits it, `THERE` on leaf 7 through uplinks 10 to 13 by
/// ECMP.
pub(crate) fn leaf() -> Device {
    let mut leaf = device();
    leaf.add("source_guard", &[exact(1), exact(HERE)], "admit", &[]);
    let to_host = (u128::from(1_u8), 0x0200_0000_0001_u128);
    leaf.add("local_host", &[exact(HERE)], "to_host", &[to_host.0, to_host.1]);
    leaf.add("dst_leaf", &[prefix(THERE & !0xff, 24)], "set_dst_leaf", &[LEAF]);
    leaf.ecmp(1, &[10, 11, 12, 13]);
    leaf
}

/// Writes by name, as the tests say them.
pub(crate) trait ByName {
    fn add(&mut self, table: &str, key: &[KeyField], action: &str, arguments: &[u128]);
    fn try_add(
        &mut self,
        table: &str,
        key: MatchKey,
        action: &str,
        arguments: &[u128],
    ) -> Result<(), ControlError>;
    fn ecmp(&mut self, group: u32, ports: &[u128]);
    fn send(&mut self, port: u16, packet: &[u8]) -> Vec<OutputPacket>;
    fn send_one(&mut self, port: u16, packet: &[u8]) -> OutputPacket;
}

impl ByName for Device {
    fn add(&mut self, table: &str, key: &[KeyField], action: &str, arguments: &[u128]) {
        self.try_add(table, unranked(key), action, arguments).unwrap();
    }

    fn try_add(
        &mut self,
        table: &str,
        key: MatchKey,
        action: &str,
        arguments: &[u128],
    ) -> Result<(), ControlError> {
        let call = call(table, action, arguments);
        self.insert_entry(index(table), key, TableAction::Action(call))
    }

    fn ecmp(&mut self, group: u32, ports: &[u128]) {
        let profile = selector();
        let mut members = Vec::new();
        for (at, port) in ports.iter().enumerate() {
            let member = group * 100 + at as u32;
            let call = call("ecmp_group", "to_ecmp_port", &[*port]);
            self.insert_member(profile, member, call).unwrap();
            members.push(GroupMember::unwatched(member, 1));
        }
        self.insert_group(profile, group, members).unwrap();
        let key = unranked(&[KeyField::Exact(LEAF)]);
        self.insert_entry(index("ecmp_group"), key, TableAction::Group(group)).unwrap();
    }

    fn send(&mut self, port: u16, packet: &[u8]) -> Vec<OutputPacket> {
        let mut out = DeviceOutputs::default();
        self.process_packet(port, packet, 0, &mut out);
        out.packets
    }

    fn send_one(&mut self, port: u16, packet: &[u8]) -> OutputPacket {
        let mut out = self.send(port, packet);
        assert_eq!(out.len(), 1, "one packet in, one out");
        out.remove(0)
    }
}

pub(crate) fn index(table: &str) -> TableIndex {
    program().table_named(&format!("IngressImpl.{table}")).expect("a table of fabric.p4")
}

pub(crate) fn selector() -> ProfileIndex {
    program().profile_named("IngressImpl.ecmp_selector").expect("the selector of fabric.p4")
}

pub(crate) fn call(table: &str, action: &str, arguments: &[u128]) -> ActionCall {
    let program = program();
    let spec = program.table(index(table)).expect("the index is the program's");
    let name = format!("IngressImpl.{action}");
    let action = program.action_named(&spec.actions, &name).expect("an action of the table");
    ActionCall { action, arguments: arguments.to_vec() }
}

pub(crate) fn unranked(key: &[KeyField]) -> MatchKey {
    MatchKey { fields: key.to_vec(), priority: 0 }
}

pub(crate) fn exact(value: u32) -> KeyField {
    KeyField::Exact(u128::from(value))
}

pub(crate) fn prefix(value: u32, prefix: u32) -> KeyField {
    KeyField::Lpm { value: u128::from(value), prefix }
}

pub(crate) fn ternary(value: u32, mask: u32) -> KeyField {
    KeyField::Ternary { value: u128::from(value), mask: u128::from(mask) }
}

/// The exact key of a flow's pin.
pub(crate) fn pin_key(flow: Flow) -> [KeyField; 5] {
    let ports = (u32::from(flow.sport), u32::from(flow.dport));
    [exact(flow.src), exact(flow.dst), exact(17), exact(ports.0), exact(ports.1)]
}

/// A UDP flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) dscp: u8,
    pub(crate) ttl: u8,
}

pub(crate) const FLOW: Flow =
    Flow { src: HERE, dst: THERE, sport: 0xc001, dport: 4791, dscp: 0, ttl: 64 };

impl Flow {
    /// A packet of the flow, `bytes` long in all (at least 54).
    pub(crate) fn packet(self, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00];
        let length = (bytes - 14) as u16;
        let mut ip = vec![0x45, self.dscp << 2];
        ip.extend(length.to_be_bytes());
        ip.extend([0, 1, 0x40, 0, self.ttl, 17, 0, 0]);
        ip.extend(self.src.to_be_bytes());
        ip.extend(self.dst.to_be_bytes());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(ip);
        packet.extend(self.sport.to_be_bytes());
        packet.extend(self.dport.to_be_bytes());
        packet.extend((length - 20).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend((packet.len()..bytes).map(|at| at as u8));
        packet
    }
}

/// Gives an IPv4 packet the checksum of its header, as long as the header says it is.
pub(crate) fn finish_header(packet: &mut [u8]) {
    let end = 14 + 4 * usize::from(packet[14] & 0xf);
    if let Some(header) = packet.get_mut(14..end).filter(|header| header.len() >= 20) {
        header[10..12].fill(0);
        let sum = internet_checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// RFC 1071 over whole 16-bit words, written apart from the switch's own.
pub(crate) fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub(crate) fn ip_header(packet: &[u8]) -> &[u8] {
    &packet[14..34]
}

pub(crate) const MILLISECOND: Nanos = 1_000_000;
