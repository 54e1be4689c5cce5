//! Requests of P4Runtime, to a served device.

use std::sync::OnceLock;

use p4rt::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use switch::p4runtime::{ServerHandle, ServiceOptions, serve};
use switch::{DeviceConfig, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::PROGRAMS;
use crate::controller::Controller;
use crate::support::JSON;

/// What fabric.p4 offers to a controller.
pub(crate) const FABRIC: &str = include_str!("../../../../p4/fabric.p4info.txtpb");
/// What the first of [`PROGRAMS`] does.
pub(crate) const SHAPES: &str = include_str!("../../tests/programs/shapes.p4info.txtpb");

/// A switch that runs fabric.p4, and its primary.
struct Served {
    runtime: Runtime,
    controller: Mutex<Controller>,
    _server: ServerHandle,
    _network: EmulatedNetworkHandle,
}

impl Served {
    fn get() -> &'static Self {
        static SERVED: OnceLock<Served> = OnceLock::new();
        SERVED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let (controller, server, network) = runtime.block_on(async {
            let mut builder = EmulatedNetworkBuilder::new();
            let device = builder.add_device(DeviceConfig {
                device_id: 1,
                cpu_port: 255,
                levels: 8,
            });
            let network = builder.spawn().unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = serve(listener, network.device(device), ServiceOptions::default());
            let server = server.await.unwrap();
            let config = p4rt::ForwardingPipelineConfig {
                p4info: Some(P4Info::from_text(FABRIC).unwrap()),
                p4_device_config: JSON.to_vec(),
                cookie: None,
            };
            let address = server.local_addr().to_string();
            let controller = Controller::start(&address, config).await.unwrap();
            (controller, server, network)
        });
        Self {
            runtime,
            controller: Mutex::new(controller),
            _server: server,
            _network: network,
        }
    }
}

/// Entities to read, a P4Info to verify with a program, or updates to write: a byte that chooses,
/// then the message as it is encoded.
pub fn requests(data: &[u8]) {
    let served = Served::get();
    let work = async {
        let mut controller = served.controller.lock().await;
        // Refusals are what is wanted; that the switch answers is what counts.
        match data {
            [0, bytes @ ..] => {
                if let Ok(request) = p4rt::ReadRequest::decode(bytes) {
                    let _refused = controller.read(request.entities).await;
                }
            }
            [1, bytes @ ..] => {
                if let Ok(info) = P4Info::decode(bytes) {
                    let _refused = controller.push(offer(info), Action::Verify).await;
                }
            }
            [_, bytes @ ..] => {
                if let Ok(request) = p4rt::WriteRequest::decode(bytes) {
                    let sent = request.updates.len();
                    let codes = controller.write(request.updates).await;
                    assert!(codes.is_ok_and(|codes| codes.len() == sent || sent == 0));
                }
            }
            [] => {}
        }
    };
    let soon = std::time::Duration::from_secs(5);
    let answered = served
        .runtime
        .block_on(async { tokio::time::timeout(soon, work).await });
    assert!(answered.is_ok(), "the switch stalls");
}

/// A program with what is said to be its P4Info.
fn offer(info: P4Info) -> p4rt::ForwardingPipelineConfig {
    p4rt::ForwardingPipelineConfig {
        p4info: Some(info),
        p4_device_config: PROGRAMS[0].to_vec(),
        cookie: None,
    }
}
