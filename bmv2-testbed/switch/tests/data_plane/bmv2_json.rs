//! BMv2 JSON in the forms that p4c and its predecessors write: `queue.json` with parts replaced.

use std::sync::Arc;

use serde_json::{Value, json};
use switch::{Device, LoadError, OutputPacket, Program};

use crate::support::{ByName, config};

/// Loads `queue.json` after an edit.
fn load_edited(edit: impl FnOnce(&mut Value)) -> Result<Program, LoadError> {
    let mut root = serde_json::from_slice(include_bytes!("../programs/queue.json")).unwrap();
    edit(&mut root);
    Program::from_json(root.to_string().as_bytes())
}

/// What a device that runs `queue.json` after an edit makes of a packet at port 1.
fn forward_edited(edit: impl FnOnce(&mut Value), packet: &[u8]) -> Vec<OutputPacket> {
    let mut device = Device::new(config(1));
    device.load_program(Arc::new(load_edited(edit).unwrap()));
    device.send(1, packet)
}

fn ports(packets: &[OutputPacket]) -> Vec<u16> {
    packets.iter().map(|packet| packet.port).collect()
}

fn field(header: &str, field: &str) -> Value {
    json!({ "type": "field", "value": [header, field] })
}

fn hex(value: &str) -> Value {
    json!({ "type": "hexstr", "value": value })
}

fn primitive(op: &str, parameters: &[Value]) -> Value {
    json!({ "op": op, "parameters": parameters })
}

/// What p4c makes of `action d(inout standard_metadata_t s) { mark_to_drop(s); }`.
fn drop_by_copy(root: &mut Value, action: usize) {
    let headers = root["headers"].as_array_mut().unwrap();
    let copy = json!({
        "name": "s", "id": headers.len(), "header_type": "standard_metadata", "metadata": true,
    });
    headers.push(copy);
    let copied = |to: &str, from: &str| {
        let fields = ["egress_spec", "mcast_grp"];
        fields.map(|name| primitive("assign", &[field(to, name), field(from, name)]))
    };
    let mut primitives = copied("s", "standard_metadata").to_vec();
    primitives.push(primitive("mark_to_drop", &[json!({ "type": "header", "value": "s" })]));
    primitives.extend(copied("standard_metadata", "s"));
    root["actions"][action]["primitives"] = Value::Array(primitives);
}

#[test]
fn a_copy_of_the_metadata_that_is_dropped_drops_the_packet_when_copied_back() {
    assert_eq!(ports(&forward_edited(|_| {}, &[0; 20])), [2]);
    for action in [0, 1] {
        let packets = forward_edited(|root| drop_by_copy(root, action), &[0; 20]);
        assert_eq!(ports(&packets), [] as [u16; 0], "action {action}");
    }
}

#[test]
fn a_drop_of_something_else_than_a_header_is_refused() {
    let error = load_edited(|root| {
        root["actions"][0]["primitives"] = json!([primitive("mark_to_drop", &[hex("0x1")])]);
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the parameter of mark_to_drop is not a header"), "{error}");
}

#[test]
fn transitions_of_older_compilers_have_no_type() {
    let key = json!([{ "type": "field", "value": ["order", "kind"] }]);
    let transitions = json!([
        { "value": "0x0007", "mask": null, "next_state": "start" },
        { "value": "default", "mask": null, "next_state": null },
    ]);
    // A kind of 7 makes the parser extract the header again.
    let mut packet = [0; 28];
    packet[13] = 7;
    let sent = forward_edited(
        |root| {
            let state = &mut root["parsers"][0]["parse_states"][0];
            (state["transition_key"], state["transitions"]) = (key, transitions);
        },
        &packet,
    );
    assert_eq!(sent[0].packet.len(), 14);
}

#[test]
fn tables_of_older_compilers_name_their_actions_and_profiles() {
    let sent = forward_edited(
        |root| {
            for pipeline in root["pipelines"].as_array_mut().unwrap() {
                pipeline["tables"][0].as_object_mut().unwrap().remove("action_ids");
            }
        },
        &[0; 20],
    );
    assert_eq!(ports(&sent), [2]);

    let selector = json!({ "algo": "crc16", "input": [field("order", "found")] });
    let program = load_edited(|root| {
        let pipeline = &mut root["pipelines"][0];
        pipeline.as_object_mut().unwrap().remove("action_profiles");
        let table = pipeline["tables"][0].as_object_mut().unwrap();
        table.remove("action_ids");
        table.remove("default_entry");
        table.insert("type".to_owned(), json!("indirect_ws"));
        table.insert("act_prof_name".to_owned(), json!("members"));
        table.insert("selector".to_owned(), selector);
    });
    assert!(program.unwrap().profile_named("members").is_some());
}

/// P4_14 has the multicast group in a header of its own; p4c gives the field such a name.
#[test]
fn an_alias_stands_for_its_field() {
    let sent = forward_edited(
        |root| {
            root["field_aliases"] =
                json!([["intrinsic_metadata.level", ["standard_metadata", "egress_spec"]]]);
            let to = field("intrinsic_metadata", "level");
            root["actions"][0]["primitives"] = json!([primitive("assign", &[to, hex("0x0005")])]);
        },
        &[0; 20],
    );
    assert_eq!(ports(&sent), [5]);
}

#[test]
fn versions_that_bmv2_refuses_are_refused() {
    let load = |version: Value| load_edited(|root| root["__meta__"]["version"] = version);
    for version in [json!([2, 0]), json!([2, 24]), Value::Null] {
        assert!(load(version.clone()).is_ok(), "{version}");
    }
    for version in [json!([3, 0]), json!([2, 25]), json!([1, 7])] {
        let error = load(version.clone()).unwrap_err();
        assert!(matches!(error, LoadError::Version { .. }), "{version}");
    }
    assert!(load_edited(|root| drop(root.as_object_mut().unwrap().remove("__meta__"))).is_ok());
}

#[test]
fn a_file_that_is_not_bmv2_json_is_refused_with_the_cause() {
    let error = Program::from_json(b"{}").unwrap_err().to_string();
    assert_eq!(error, "not a BMv2 JSON: missing field `header_types` at line 1 column 2");
}

/// Adds `bit<160> wide` to the metadata and what p4c makes of a slice of it.
fn read_wide_lookahead(root: &mut Value, high: u32, low: u32) {
    root["header_types"][0]["fields"] = json!([["tmp", 32, false], ["wide", 160, false]]);
    let operations = &mut root["parsers"][0]["parse_states"][0]["parser_ops"];
    let ahead = json!({ "type": "lookahead", "value": [0, 160] });
    operations
        .as_array_mut()
        .unwrap()
        .insert(0, json!({ "op": "set", "parameters": [field("scalars", "wide"), ahead] }));
    let operation = |op: &str, left: Value, right: Value| {
        let value = json!({ "op": op, "left": left, "right": right });
        json!({ "type": "expression", "value": value })
    };
    let mask = (1_u64 << (high - low + 1)) - 1;
    let shifted = operation(">>", field("scalars", "wide"), hex(&format!("{low:#x}")));
    let slice = operation("&", shifted, hex(&format!("{mask:#x}")));
    let primitives = root["actions"][0]["primitives"].as_array_mut().unwrap();
    primitives.push(primitive("assign", &[field("standard_metadata", "egress_spec"), slice]));
    primitives.remove(1);
}

#[test]
fn slices_of_a_lookahead_over_128_bits_are_read() {
    let mut packet: Vec<u8> = (0..20).collect();
    // Bits 159 to 156 are the first; bits 132 to 124 lie in both pieces of the field.
    for (high, low, value) in [(159, 152, 0), (151, 144, 1), (132, 124, 0x030), (7, 0, 19)] {
        let sent = forward_edited(|root| read_wide_lookahead(root, high, low), &packet);
        assert_eq!(ports(&sent), [value], "[{high}:{low}]");
    }
    packet.truncate(19);
    // PacketTooShort before the header is extracted: nothing is emitted but the payload.
    let sent = forward_edited(|root| read_wide_lookahead(root, 7, 0), &packet);
    assert_eq!((ports(&sent), &sent[0].packet), (vec![0], &packet));
}

/// What p4c makes of `meta.last = hdr.stack.last` in a parser.
#[test]
fn the_last_element_of_a_stack_is_copied_as_a_header() {
    let packet: Vec<u8> = (0..28).collect();
    // The second element is emitted as `order`; egress has written all of it but the kind.
    let sent = forward_edited(
        |root| {
            let headers = root["headers"].as_array_mut().unwrap();
            for (id, name) in [(3, "stack[0]"), (4, "stack[1]")] {
                headers.push(json!({ "name": name, "id": id, "header_type": "order_t" }));
            }
            root["header_stacks"] = json!([{
                "name": "stack", "id": 0, "header_type": "order_t", "size": 2, "header_ids": [3, 4],
            }]);
            let extract = json!({
                "op": "extract", "parameters": [{ "type": "stack", "value": "stack" }],
            });
            let to = json!({ "type": "header", "value": "order" });
            let from = json!({ "type": "stack_field", "value": ["stack", "last"] });
            let from = json!({ "type": "expression", "value": from });
            let copy = primitive("assign_header", &[to, from]);
            let copy = json!({ "op": "primitive", "parameters": [copy] });
            root["parsers"][0]["parse_states"][0]["parser_ops"] = json!([extract, extract, copy]);
        },
        &packet,
    );
    assert_eq!(sent[0].packet[12..], [26, 27]);
}
