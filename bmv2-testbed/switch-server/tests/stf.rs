//! The STF cases of `tests/programs`, each on the program of its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use switch::{DeviceConfig, EmulatedNetworkBuilder, Program};
use switch_server::p4runtime::{ServiceOptions, serve};
use switch_server::testing::stf::{P4RuntimeTarget, StfCase};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

fn check(json: &[u8], case: &str) {
    let program = Arc::new(Program::from_json(json).expect("the program loads"));
    let played = StfCase::parse(case).expect("the case is read").run_on(&program);
    if let Err(error) = played {
        panic!("{error}");
    }
}

/// The same with entries by P4Runtime, to a server that runs the program with its P4Info.
fn check_served(json: &[u8], info: &str, case: &str) {
    let program = Program::from_json(json).expect("the program loads");
    let config = ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(info).expect("the P4Info is read")),
        p4_device_config: json.to_vec(),
        cookie: None,
    };
    let runtime = Runtime::new().unwrap();
    let mut builder = EmulatedNetworkBuilder::new();
    let device = builder.add_device(DeviceConfig {
        device_id: 1,
        cpu_port: 510,
        levels: 8,
        trusts_dscp: false,
    });
    let network = builder.spawn().unwrap();
    let device = network.device(device);
    let served = device.clone();
    let server = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        serve(listener, served, ServiceOptions::default()).await.unwrap()
    });
    let address = server.local_addr().to_string();
    let target = P4RuntimeTarget::start(runtime.handle(), &address, device, &program, config);
    let case = StfCase::parse(case).expect("the case is read");
    if let Err(error) = case.run_against(&program, &mut target.expect("the program is taken")) {
        panic!("{error}: {error:?}");
    }
}

#[test]
fn objects_with_state() {
    let (json, case) = (
        include_bytes!("../../switch/tests/programs/state.json"),
        include_str!("../../switch/tests/programs/state.stf"),
    );
    check(json, case);
    check_served(json, include_str!("../../switch/tests/programs/state.p4info.txtpb"), case);
}

#[test]
fn headers_of_every_shape() {
    let json = include_bytes!("../../switch/tests/programs/shapes.json");
    let case = include_str!("../../switch/tests/programs/shapes.stf");
    check(json, case);
    check_served(json, include_str!("../../switch/tests/programs/shapes.p4info.txtpb"), case);
}

#[test]
fn fabric_p4_passes_the_tests_of_p4testgen() {
    let json = include_bytes!("../../../p4/fabric.json");
    let info = include_str!("../../../p4/fabric.p4info.txtpb");
    let cases = include_str!("../../switch/tests/programs/fabric.stf").split("# case ").skip(1);
    let mut played = 0;
    for case in cases {
        let (number, statements) = case.split_once('\n').expect("a number, then statements");
        eprintln!("case {number}");
        check(json, statements);
        check_served(json, info, statements);
        played += 1;
    }
    assert_eq!(played, 75);
}

#[test]
fn a_case_that_does_not_hold_fails() {
    let program =
        Program::from_json(include_bytes!("../../switch/tests/programs/shapes.json")).unwrap();
    let case = StfCase::parse("packet 1 00 00 00 00\nexpect 2 00 00 00 65 $").unwrap();
    let error = case.run_on(&Arc::new(program)).unwrap_err().to_string();
    assert_eq!(error, "port 2: packet 0 is 00000064");
}
