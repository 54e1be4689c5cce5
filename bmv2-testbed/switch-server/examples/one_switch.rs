//! One switch without links, served until interrupted: `cargo run --example one_switch
//! 127.0.0.1:9559`.
//!
//! For trying P4Runtime clients; a controller pushes the pipeline.

use std::env;
use std::error::Error;

use switch::{ClockPace, DeviceConfig, EmulatedNetworkBuilder};
use switch_server::p4runtime::{ServiceOptions, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9559".to_owned());
    let config = DeviceConfig { device_id: 1, cpu_port: 255, levels: 8, trusts_dscp: false };
    let mut builder = EmulatedNetworkBuilder::new();
    let index = builder.add_device(config);
    let fabric = builder.spawn()?;
    fabric.release_clock(ClockPace::RealTime).await?;
    let listener = TcpListener::bind(address).await?;
    let server = serve(listener, fabric.device(index), ServiceOptions::default()).await?;
    println!("P4Runtime on {}", server.local_addr());
    std::future::pending::<()>().await;
    Ok(())
}
