//! Plays STF cases: `cargo run -p switch-server --example stf -- [--p4runtime] PROGRAM.json
//! CASE.stf ...`, or with one folder instead, every case in it whose program lies beside it.
//!
//! With `--p4runtime`, each program needs its `PROGRAM.p4info.txtpb`. A server then loads both, and
//! a controller writes the entries over P4Runtime.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
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

fn main() -> Result<(), PlayError> {
    let mut arguments: Vec<PathBuf> = env::args().skip(1).map(PathBuf::from).collect();
    let is_served = arguments.first().is_some_and(|first| first.as_os_str() == "--p4runtime");
    if is_served {
        arguments.remove(0);
    }
    let pairs: Vec<(PathBuf, PathBuf)> = match arguments.as_slice() {
        [folder] if folder.is_dir() => cases_in(folder)?,
        [program, cases @ ..] => cases.iter().map(|case| (program.clone(), case.clone())).collect(),
        [] => return Err("stf [--p4runtime] PROGRAM.json CASE.stf ... | FOLDER".into()),
    };
    let play = if is_served { play_served } else { play_in_memory };
    match play_all(&pairs, play, &mut io::stdout()) {
        // The reader of the results has closed the pipe and needs no more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        played => Ok(played?),
    }
}

fn play_all(
    pairs: &[(PathBuf, PathBuf)],
    play: fn(&Path, &Path) -> Result<(), PlayError>,
    results: &mut impl Write,
) -> io::Result<()> {
    let mut passed = 0;
    for (program, case) in pairs {
        match play(program, case) {
            Ok(()) => passed += 1,
            Err(error) => writeln!(results, "{}: {}", case.display(), chain(&*error))?,
        }
    }
    writeln!(results, "{passed} of {} cases pass", pairs.len())
}

fn cases_in(folder: &Path) -> Result<Vec<(PathBuf, PathBuf)>, PlayError> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let case = entry?.path();
        let program = case.with_extension("json");
        if case.extension().is_some_and(|kind| kind == "stf") && program.exists() {
            cases.push((program, case));
        }
    }
    cases.sort();
    Ok(cases)
}

fn play_in_memory(program: &Path, case: &Path) -> Result<(), PlayError> {
    let program = Arc::new(Program::from_json(&fs::read(program)?)?);
    Ok(StfCase::parse(&fs::read_to_string(case)?)?.run_on(&program)?)
}

fn play_served(program: &Path, case: &Path) -> Result<(), PlayError> {
    let json = fs::read(program)?;
    let info = fs::read_to_string(program.with_extension("p4info.txtpb"))?;
    let config = ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(&info)?),
        p4_device_config: json.clone(),
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
    let case = StfCase::parse(&fs::read_to_string(case)?)?;
    let program = Program::from_json(&json)?;
    let address = server.local_addr().to_string();
    let target = P4RuntimeTarget::start(runtime.handle(), &address, device, &program, config);
    Ok(case.run_against(&program, &mut target.map_err(|error| error as PlayError)?)?)
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
