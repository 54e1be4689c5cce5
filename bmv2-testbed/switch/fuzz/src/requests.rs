//! Requests of P4Runtime, to a served device.

use std::sync::OnceLock;

use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use switch::service::{ServerHandle, ServiceOptions, serve};
use switch::{DeviceConfig, FabricBuilder, FabricHandle};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::controller::Controller;
use crate::support::JSON;

/// A switch that runs fabric.p4, and its primary.
struct Served {
    runtime: Runtime,
    controller: Mutex<Controller>,
    _server: ServerHandle,
    _fabric: FabricHandle,
}

impl Served {
    fn get() -> &'static Self {
        static SERVED: OnceLock<Served> = OnceLock::new();
        SERVED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let (controller, server, fabric) = runtime.block_on(async {
            let mut builder = FabricBuilder::new();
            let device = builder.add_device(DeviceConfig {
                device_id: 1,
                cpu_port: 255,
                levels: 8,
            });
            let fabric = builder.spawn().unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = serve(listener, fabric.device(device), ServiceOptions::default());
            let server = server.await.unwrap();
            let config = p4rt::ForwardingPipelineConfig {
                p4info: Some(fabric_p4info()),
                p4_device_config: JSON.to_vec(),
                cookie: None,
            };
            let address = server.local_addr().to_string();
            let controller = Controller::start(&address, config).await.unwrap();
            (controller, server, fabric)
        });
        Self {
            runtime,
            controller: Mutex::new(controller),
            _server: server,
            _fabric: fabric,
        }
    }
}

/// Updates to write, or entities to read: a byte that chooses, then the message as it is encoded.
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

/// What fabric.p4 offers to a controller.
pub fn fabric_p4info() -> P4Info {
    let pool = DescriptorPool::decode(p4runtime_proto::FILE_DESCRIPTOR_SET).unwrap();
    let kind = pool.get_message_by_name("p4.config.v1.P4Info").unwrap();
    let text = include_str!("../../../../p4/fabric.p4info.txtpb");
    let message = DynamicMessage::parse_text_format(kind, text).unwrap();
    P4Info::decode(message.encode_to_vec().as_slice()).unwrap()
}
