//! Inserts a second, ours beside bmv2's in one run: `cargo run -p switch-server --release --example
//! inserts`. Needs `simple_switch_grpc` on PATH.
//!
//! The same client writes the pins of fabric.p4 to both, in batches one after the other: bmv2,
//! ours, bmv2, ours, each time with keys that are not there yet. Prints the rates as JSON.

#[path = "differential/bmv2.rs"]
#[allow(dead_code, reason = "shared with the differential runs, which send packets")]
mod bmv2;
#[path = "differential/controller.rs"]
#[allow(dead_code, reason = "shared with the differential runs, which read")]
mod controller;
#[path = "differential/program.rs"]
mod program;

use std::error::Error;
use std::time::Instant;

use bmv2::Bmv2;
use controller::Controller;
use p4rt::field_match::{Exact, FieldMatchType};
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use switch::{DeviceConfig, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tonic::Code;

/// Batch sizes, with the batches of a round: all rounds of all sizes fit the table of 16,384.
const SIZES: [(u32, u32); 3] = [(1, 500), (100, 15), (1_000, 3)];
const ROUNDS: u32 = 3;
const FLOW_PIN: u32 = 0x0200_0004;
const PIN: u32 = 0x0100_0005;

#[derive(serde::Serialize)]
struct Row {
    batch: u32,
    /// Inserts a second of each round.
    crux: Vec<f64>,
    bmv2: Vec<f64>,
    /// Of the best of each.
    ratio: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = p4rt::ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(include_str!("../../../p4/fabric.p4info.txtpb"))?),
        p4_device_config: include_bytes!("../../../p4/fabric.json").to_vec(),
        cookie: None,
    };
    let (server, _fabric) = start().await?;
    let mut ours = Controller::start(&server.local_addr().to_string(), config.clone()).await?;
    let process = Bmv2::start()?;
    let mut theirs = Controller::start(&process.address, config).await?;
    let (mut rows, mut next) = (Vec::new(), 0);
    for (batch, batches) in SIZES {
        let (mut crux, mut bmv2) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bmv2.push(rate(&mut theirs, next, batch, batches).await?);
            crux.push(rate(&mut ours, next, batch, batches).await?);
            next += batch * batches;
        }
        let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let ratio = best(&crux) / best(&bmv2);
        rows.push(Row { batch, crux, bmv2, ratio });
    }
    println!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

/// A switch as `crux switch` serves it.
async fn start() -> Result<(ServerHandle, EmulatedNetworkHandle), Box<dyn Error>> {
    let mut builder = EmulatedNetworkBuilder::new();
    let device = builder.add_device(DeviceConfig {
        device_id: 1,
        cpu_port: 255,
        levels: 8,
        trusts_dscp: false,
    });
    let fabric = builder.spawn()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = serve(listener, fabric.device(device), ServiceOptions::default()).await?;
    Ok((server, fabric))
}

/// Inserts a second over `batches` batches of new pins, the first of them the pin `from`.
async fn rate(
    controller: &mut Controller,
    from: u32,
    batch: u32,
    batches: u32,
) -> Result<f64, Box<dyn Error>> {
    let updates: Vec<Vec<p4rt::Update>> = (0..batches)
        .map(|number| (0..batch).map(|n| pin(from + number * batch + n)).collect())
        .collect();
    let begun = Instant::now();
    for updates in updates {
        let codes = controller.write(updates).await?;
        if let Some(refused) = codes.iter().find(|(code, _)| *code != Code::Ok) {
            return Err(format!("a pin was refused: {refused:?}").into());
        }
    }
    Ok(f64::from(batch * batches) / begun.elapsed().as_secs_f64())
}

/// The pin of a flow of its own.
fn pin(number: u32) -> p4rt::Update {
    let values = [
        vec![10, 0, 0, 1],
        vec![10, 0, 1, 1],
        vec![17],
        (0xc000 + number as u16).to_be_bytes().to_vec(),
        vec![0x12, 0xb7],
    ];
    let fields = values.into_iter().zip(1..).map(|(value, field_id)| {
        let exact = Exact { value };
        p4rt::FieldMatch { field_id, field_match_type: Some(FieldMatchType::Exact(exact)) }
    });
    let param = |param_id, value: &[u8]| p4rt::action::Param { param_id, value: value.to_vec() };
    let action = p4rt::Action { action_id: PIN, params: vec![param(1, &[1]), param(2, &[7])] };
    let entry = p4rt::TableEntry {
        table_id: FLOW_PIN,
        r#match: fields.collect(),
        action: Some(p4rt::TableAction { r#type: Some(p4rt::table_action::Type::Action(action)) }),
        ..p4rt::TableEntry::default()
    };
    p4rt::Update {
        r#type: p4rt::update::Type::Insert as i32,
        entity: Some(p4rt::Entity { entity: Some(p4rt::entity::Entity::TableEntry(entry)) }),
    }
}
