//! STF cases, each in memory and with entries over P4Runtime: those that lie beside the program of
//! their name in `tests/programs`, or in `CRUX_STF_FOLDER` (an absolute path), and those of
//! `fabric.p4`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use switch::{DeviceConfig, EmulatedNetworkBuilder, Program};
use switch_server::p4runtime::{ServiceOptions, serve};
use switch_server::testing::stf::{P4RuntimeTarget, StfCase};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

type PlayError = Box<dyn Error>;

/// Plays a case in memory, and with entries over P4Runtime to a server that runs the program with its
/// P4Info.
fn play(json: &[u8], info: &str, case: &str) -> Result<(), PlayError> {
    let case = StfCase::parse(case)?;
    let program = Arc::new(Program::from_json(json)?);
    case.run_on(&program)?;
    let config = ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(info)?),
        p4_device_config: json.to_vec(),
        cookie: None,
    };
    let runtime = Runtime::new()?;
    let mut builder = EmulatedNetworkBuilder::new();
    let device = builder.add_device(DeviceConfig {
        device_id: 1,
        cpu_port: 510,
        levels: 8,
        trusts_dscp: false,
    });
    let network = builder.spawn()?;
    let device = network.device(device);
    let served = device.clone();
    let server = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        serve(listener, served, ServiceOptions::default()).await
    })?;
    let address = server.local_addr().to_string();
    let target = P4RuntimeTarget::start(runtime.handle(), &address, device, &program, config);
    Ok(case.run_against(&program, &mut target.map_err(|error| error as PlayError)?)?)
}

/// The cases of a folder that have a program, ascending.
fn cases_in(folder: &Path) -> Vec<PathBuf> {
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_case = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "stf");
    let cases = cases.filter(is_case).filter(|case| case.with_extension("json").exists());
    let mut cases: Vec<PathBuf> = cases.collect();
    cases.sort();
    cases
}

fn play_file(case: &Path) -> Result<(), PlayError> {
    let info = fs::read_to_string(case.with_extension("p4info.txtpb"))?;
    play(&fs::read(case.with_extension("json"))?, &info, &fs::read_to_string(case)?)
}

#[test]
fn every_case_of_a_folder_passes() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../switch/tests/programs");
    let folder = env::var_os("CRUX_STF_FOLDER").map_or(own, PathBuf::from);
    let cases = cases_in(&folder);
    let failure = |case: &PathBuf| {
        let error = play_file(case).err()?;
        Some(format!("{}: {error}: {error:?}", case.display()))
    };
    let failures: Vec<String> = cases.iter().filter_map(failure).collect();
    let count = cases.len();
    assert!(count > 0, "{} has no case with a program", folder.display());
    assert!(failures.is_empty(), "{} of {count} fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn fabric_p4_passes_the_tests_of_p4testgen() {
    let json = include_bytes!("../../../p4/fabric.json");
    let info = include_str!("../../../p4/fabric.p4info.txtpb");
    let cases = include_str!("../../switch/tests/programs/fabric.stf").split("# case ").skip(1);
    let mut played = 0;
    for case in cases {
        let (number, statements) = case.split_once('\n').expect("a number, then statements");
        play(json, info, statements).unwrap_or_else(|error| panic!("case {number}: {error:?}"));
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
