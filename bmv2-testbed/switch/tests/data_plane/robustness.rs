//! Hostile input: cut packets are dropped or leave once, and programs that cannot run are refused.
//! That no input panics is tested by the targets `packets` and `programs` of `scripts/fuzz`.

use proptest::prelude::*;
use serde_json::Value;
use switch::{LoadError, Program};

use crate::support::{ByName, FLOW, JSON, leaf};

proptest! {
    #[test]
    fn a_real_packet_cut_and_mutated_is_survived(
        port in prop_oneof![Just(1_u16), Just(10), Just(255), Just(511)],
        keep in 0_usize..120,
        at in 0_usize..54,
        byte in any::<u8>(),
    ) {
        let mut packet = FLOW.packet(120);
        packet[at] = byte;
        packet.truncate(keep);
        let mut leaf = leaf();
        let out = leaf.send(port, &packet);
        prop_assert!(out.len() <= 1);
        // Only the CPU port's own headers change a packet's length.
        let lengths = [keep, keep.saturating_sub(2), keep + 2];
        prop_assert!(out.iter().all(|out| lengths.contains(&out.packet.len())));
    }

    #[test]
    fn a_cut_program_is_refused(length in 0..JSON.len() - 2) {
        prop_assert!(matches!(Program::from_json(&JSON[..length]), Err(LoadError::Json(_))));
    }
}

/// One edit of fabric.json by JSON pointer, and the refusal it must bring.
fn check_load(pointer: &str, with: Value, why: &str) {
    let mut root: Value = serde_json::from_slice(JSON).unwrap();
    *root.pointer_mut(pointer).expect("the pointer leads somewhere") = with;
    let refused = Program::from_json(root.to_string().as_bytes()).expect_err(why);
    assert_eq!(refused.to_string(), why);
}

#[test]
fn programs_that_cannot_run_are_refused_by_name() {
    let external = serde_json::json!([{ "name": "e" }]);
    check_load("/extern_instances", external, "extern is not supported (in e)");
    let register = serde_json::json!([{ "name": "r", "size": 1, "bitwidth": 129 }]);
    let why = "register of 129 bits is not supported (in r)";
    check_load("/register_arrays", register, why);
    let why = "meter of 1 rates in packets is not supported (in IngressImpl.punt_meter)";
    check_load("/meter_arrays/0/rate_count", Value::from(1), why);
    let why = "there is no direct meter IngressImpl.punt_meter (in IngressImpl.punt_rate)";
    check_load("/meter_arrays", Value::Array(Vec::new()), why);
    let why = "primitive rewind is not supported (in IngressImpl.drop)";
    let drop = place_of("actions", "IngressImpl.drop");
    check_load(&format!("/actions/{drop}/primitives/0/op"), Value::from("rewind"), why);
    let why = "hash algorithm xxh64 is not supported (in calc)";
    check_load("/calculations/0/algo", Value::from("xxh64"), why);
    let why = "counter arrays have more than 4194304 cells (in EgressImpl.port_level)";
    let counter = place_of("counter_arrays", "EgressImpl.port_level");
    check_load(&format!("/counter_arrays/{counter}/size"), Value::from(1_u64 << 40), why);
    let why = "there is no next node nowhere (in ingress)";
    check_load("/pipelines/0/init_table", Value::from("nowhere"), why);
    let why = "the control flow has a cycle (in ingress)";
    check_load("/pipelines/0/conditionals/0/false_next", Value::from("node_3"), why);
}

/// Where a list of fabric.json has the object of this name.
fn place_of(list: &str, name: &str) -> usize {
    let root: Value = serde_json::from_slice(JSON).unwrap();
    let objects = root[list].as_array().unwrap();
    objects.iter().position(|object| object["name"] == name).unwrap()
}
