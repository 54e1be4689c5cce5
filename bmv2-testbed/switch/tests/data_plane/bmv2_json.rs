//! BMv2 JSON in the forms that p4c and its predecessors write: `queue.json` with parts replaced.

use std::sync::Arc;

use serde_json::{Value, json};
use switch::{CloneSession, Device, LoadError, OutputPacket, Program, Replica, ReplicationUpdate};

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

/// What p4c makes of `action d(inout standard_metadata_t s) { mark_to_drop(s); }`: a header `name`
/// of its own for every place that calls it, into which all fields are copied, and back again.
fn drop_by_copy(root: &mut Value, name: &str) -> Vec<Value> {
    let headers = root["headers"].as_array_mut().unwrap();
    headers.push(json!({
        "name": name, "id": headers.len(), "header_type": "standard_metadata", "metadata": true,
    }));
    let types = root["header_types"].as_array().unwrap();
    let declared = types.iter().find(|has| has["name"] == "standard_metadata").unwrap();
    let fields = declared["fields"].as_array().unwrap().iter();
    let fields: Vec<&str> = fields.map(|field| field[0].as_str().unwrap()).collect();
    let copied = |to: &str, from: &str| {
        let fields = fields.iter().filter(|name| **name != "_padding");
        let copy = |name: &&str| primitive("assign", &[field(to, name), field(from, name)]);
        fields.map(copy).collect::<Vec<_>>()
    };
    let mark = primitive("mark_to_drop", &[json!({ "type": "header", "value": name })]);
    let back = copied("standard_metadata", name);
    [copied(name, "standard_metadata"), vec![mark], back].concat()
}

fn to_port(port: &str) -> Value {
    primitive("assign", &[field("standard_metadata", "egress_spec"), hex(port)])
}

/// The ports of what leaves when the actions of ingress and egress are replaced.
fn ports_after(edit: impl FnOnce(&mut Value)) -> Vec<u16> {
    ports(&forward_edited(edit, &[0; 20]))
}

/// issue1739 of p4c's corpus: a table drops by a copy, and so may the next one, which has a copy of
/// its own; or the next one sets a port after all.
#[test]
fn issue1739_tables_that_drop_one_after_the_other() {
    assert_eq!(ports_after(|_| {}), [2]);
    let dropped_twice = ports_after(|root| {
        let drops = ["smeta_0", "smeta_2"].map(|name| drop_by_copy(root, name)).concat();
        root["actions"][0]["primitives"] = Value::Array(drops);
    });
    assert_eq!(dropped_twice, [0; 0]);
    let set_after_all = ports_after(|root| {
        let mut primitives = drop_by_copy(root, "smeta_0");
        primitives.push(to_port("0x0005"));
        root["actions"][0]["primitives"] = Value::Array(primitives);
    });
    assert_eq!(set_after_all, [5]);
}

/// issue461 of p4c's corpus: default actions of ingress and egress drop by copies, where others
/// drop `standard_metadata` itself.
#[test]
fn issue461_default_actions_that_drop() {
    for action in [0, 1] {
        let by_copy = ports_after(|root| {
            let drop = drop_by_copy(root, "smeta_0");
            root["actions"][action]["primitives"] = Value::Array(drop);
        });
        assert_eq!(by_copy, [0; 0], "action {action}");
        let itself = json!({ "type": "header", "value": "standard_metadata" });
        let by_itself = ports_after(|root| {
            root["actions"][action]["primitives"] = json!([primitive("mark_to_drop", &[itself])]);
        });
        assert_eq!(by_itself, [0; 0], "action {action}");
    }
}

/// special-ops of p4c's corpus: a clone that was requested before a drop by a copy leaves all the
/// same.
#[test]
fn special_ops_clone_before_a_drop() {
    let mut root: Value = serde_json::from_slice(include_bytes!("../programs/queue.json")).unwrap();
    let mut primitives =
        vec![primitive("clone_ingress_pkt_to_egress", &[hex("0x00000005"), hex("0x0")])];
    primitives.extend(drop_by_copy(&mut root, "smeta_0"));
    root["actions"][0]["primitives"] = Value::Array(primitives);
    let program = Program::from_json(root.to_string().as_bytes()).unwrap();
    let mut device = Device::new(config(1));
    device.load_program(Arc::new(program));
    let session =
        CloneSession { replicas: vec![Replica { port: 7, instance: 0 }], packet_bytes: 0 };
    device.write_clone_session(ReplicationUpdate::Insert, 5, session).unwrap();
    assert_eq!(ports(&device.send(1, &[0; 20])), [7]);
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

/// As p4c wrote parsers in 2017. The field is read-only, so that the header stays as it was.
#[test]
fn an_assignment_of_a_parser_to_the_validity_of_a_header_changes_nothing() {
    let packet: Vec<u8> = (0..20).collect();
    let plain = forward_edited(|_| {}, &packet);
    for value in ["0x00", "0x01"] {
        let edited = forward_edited(
            |root| {
                let header = root["headers"].as_array().unwrap().iter();
                let mut named = header.filter(|header| header["metadata"] == json!(false));
                let name = named.next().unwrap()["name"].as_str().unwrap().to_owned();
                let set =
                    json!({ "op": "set", "parameters": [field(&name, "$valid$"), hex(value)] });
                let operations = &mut root["parsers"][0]["parse_states"][0]["parser_ops"];
                operations.as_array_mut().unwrap().push(set);
            },
            &packet,
        );
        assert_eq!(edited, plain, "{value}");
    }
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
