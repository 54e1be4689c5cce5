//! Packets to devices with programs, and programs in BMv2's JSON.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;
use switch::{Device, DeviceOutputs, Program};

use crate::support::{self, ByName, FLOW, JSON, config, exact};

pub(crate) const PROGRAMS: [&[u8]; 3] = [
    include_bytes!("../../../bmv2-testbed/switch/tests/programs/shapes.json"),
    include_bytes!("../../../bmv2-testbed/switch/tests/programs/state.json"),
    include_bytes!("../../../bmv2-testbed/switch/tests/programs/queue.json"),
];
/// Copies that one packet may leave by: the limit of the device.
const COPIES: usize = 4096 + 1;

thread_local! {
    static DEVICES: RefCell<(Vec<Device>, DeviceOutputs)> =
        RefCell::new((devices(), DeviceOutputs::default()));
    /// What is replaced in. A small program is loaded in a tenth of the time of fabric.p4, so most
    /// are small.
    static ROOTS: Vec<Value> = {
        let [shapes, state, queue] = PROGRAMS.map(bare_program);
        let small = std::iter::repeat_n(queue, 9);
        small.chain([shapes.clone(), shapes, state, bare_program(JSON)]).collect()
    };
}

/// A program without what refers to its source, which nothing reads.
pub(crate) fn bare_program(json: &[u8]) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Object(fields) => {
                fields.remove("source_info");
                fields.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    let mut root = serde_json::from_slice(json).unwrap();
    strip(&mut root);
    root
}

fn devices() -> Vec<Device> {
    let mut leaf = support::leaf();
    leaf.add("fabric_port", &[exact(10)], "trust_dscp", &[]);
    leaf.add("flow_pin", &support::pin_key(FLOW), "pin", &[1, 1]);
    leaf.add("job_qos", &[exact(1)], "set_class", &[5, 40]);
    let load = |json: &&[u8]| {
        let mut device = Device::new(config(1));
        device.load_program(Arc::new(Program::from_json(json).unwrap()));
        device
    };
    std::iter::once(leaf).chain(PROGRAMS.iter().map(load)).collect()
}

/// A packet on a port of one of four devices: two bytes that choose, then the packet.
pub(crate) fn packets(data: &[u8]) -> Option<()> {
    let [which, port, packet @ ..] = data else {
        return None;
    };
    // What an interface reads before the program: whatever is a frame of flow control is one again.
    if let Ok(frame) = switch::PauseFrame::parse(packet) {
        assert_eq!(switch::PauseFrame::parse(&frame.to_bytes()), Ok(frame));
    }
    DEVICES.with_borrow_mut(|(devices, out)| {
        let which = usize::from(*which) % devices.len();
        devices[which].process_packet(u16::from(*port), packet, 0, out);
        assert!(out.packets.len() <= COPIES);
        let sent: Vec<_> = out.packets.drain(..).collect();
        let is_forwarded = !sent.is_empty();
        sent.into_iter().for_each(|sent| out.recycle_buffer(sent.packet));
        is_forwarded.then_some(())
    })
}

/// A program as it is, or one of ours with one part replaced for every few bytes.
pub(crate) fn programs(data: &[u8]) -> Option<()> {
    let program = match data {
        [0, raw @ ..] => Program::from_json(raw),
        [which, edits @ ..] => {
            let at = |roots: &Vec<Value>| roots[usize::from(*which) % roots.len()].clone();
            let mut root = ROOTS.with(at);
            edits.chunks(12).for_each(|edit| replace_part(&mut root, edit));
            Program::from_json(root.to_string().as_bytes())
        }
        [] => return None,
    };
    let program = program.ok()?;
    let mut device = Device::new(config(1));
    device.load_program(Arc::new(program));
    for port in [1, 255] {
        device.send(port, &FLOW.packet(100));
    }
    Some(())
}

/// Descends into the value, a byte for each level, and replaces the part that it reaches.
fn replace_part(value: &mut Value, path: &[u8]) {
    match (path, value) {
        ([step, rest @ .., _], Value::Array(items)) if !items.is_empty() => {
            let at = usize::from(*step) % items.len();
            replace_part(&mut items[at], rest);
        }
        ([step, rest @ .., _], Value::Object(fields)) if !fields.is_empty() => {
            let at = usize::from(*step) % fields.len();
            if let Some(field) = fields.values_mut().nth(at) {
                replace_part(field, rest);
            }
        }
        ([.., with], value) => *value = replacement(*with),
        ([], _) => {}
    }
}

fn replacement(with: u8) -> Value {
    let texts = ["nobody", "field", "hexstr", "0x1", "lookahead", "exact"];
    match with % 16 {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 => Value::from(-1),
        3 => Value::from(1_u64 << 40),
        4 => Value::Array(Vec::new()),
        5 => serde_json::json!({"type": "field", "value": ["ipv4", "ttl"]}),
        6 => Value::from(u64::MAX),
        7..10 => Value::from(with >> 4),
        _ => Value::from(texts[usize::from(with >> 4) % texts.len()]),
    }
}
