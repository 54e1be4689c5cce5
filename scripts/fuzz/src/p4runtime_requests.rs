//! Requests and stream messages of P4Runtime, to a served device.

use std::sync::OnceLock;
use std::time::Duration;

use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use switch::{DeviceConfig, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tonic::transport::Endpoint;

use crate::controller_stub::Controller;
use crate::support::JSON;
use crate::switch_programs::PROGRAMS;

/// What fabric.p4 offers to a controller.
pub(crate) const FABRIC: &str = include_str!("../../../p4/fabric.p4info.txtpb");
/// What the first of [`PROGRAMS`] does.
pub(crate) const SHAPES: &str =
    include_str!("../../../bmv2-testbed/switch/tests/programs/shapes.p4info.txtpb");
/// An answer within it is no stall, however loaded the machine.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Stream messages of one input.
const STREAM_MESSAGES: usize = 8;

/// A switch that runs fabric.p4, and its primary.
struct ServedSwitch {
    runtime: Runtime,
    controller: Mutex<Controller>,
    address: String,
    _server: ServerHandle,
    _network: EmulatedNetworkHandle,
}

impl ServedSwitch {
    fn get() -> &'static Self {
        static SERVED: OnceLock<ServedSwitch> = OnceLock::new();
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
                trusts_dscp: false,
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
        let address = server.local_addr().to_string();
        let controller = Mutex::new(controller);
        Self { runtime, controller, address, _server: server, _network: network }
    }

    async fn send_request(&self, data: &[u8]) -> Option<()> {
        let mut controller = self.controller.lock().await;
        match data {
            [0, bytes @ ..] => {
                let request = p4rt::ReadRequest::decode(bytes).ok()?;
                controller.read(request.entities).await.ok().map(drop)
            }
            [1, bytes @ ..] => {
                let info = P4Info::decode(bytes).ok()?;
                controller.push(offered_pipeline(info), Action::Verify).await.ok()
            }
            [3, bytes @ ..] => self.send_stream(decode_messages(bytes)).await,
            [_, bytes @ ..] => {
                let request = p4rt::WriteRequest::decode(bytes).ok()?;
                let sent = request.updates.len();
                let codes = controller.write(request.updates).await;
                assert!(codes.is_ok_and(|codes| codes.len() == sent || sent == 0));
                Some(())
            }
            [] => None,
        }
    }

    /// A stream of somebody else, with any messages.
    async fn send_stream(&self, messages: Vec<p4rt::StreamMessageRequest>) -> Option<()> {
        let endpoint = Endpoint::new(format!("http://{}", self.address)).ok()?;
        let mut client = P4RuntimeClient::new(endpoint.connect().await.ok()?);
        let answers = client.stream_channel(tokio_stream::iter(messages)).await;
        let mut answers = answers.ok()?.into_inner();
        while let Ok(Some(_)) = answers.message().await {}
        Some(())
    }
}

/// Entities to read, a P4Info to verify with a program, stream messages, or updates to write: a
/// byte that chooses, then the message as it is encoded.
pub(crate) fn p4runtime_requests(data: &[u8]) -> Option<()> {
    let served = ServedSwitch::get();
    let work = async { tokio::time::timeout(ANSWER_DEADLINE, served.send_request(data)).await };
    served.runtime.block_on(work).expect("the switch stalls")
}

/// Messages with their lengths before them.
fn decode_messages(mut bytes: &[u8]) -> Vec<p4rt::StreamMessageRequest> {
    let next = || p4rt::StreamMessageRequest::decode_length_delimited(&mut bytes).ok();
    std::iter::from_fn(next).take(STREAM_MESSAGES).collect()
}

/// A program with what is said to be its P4Info.
fn offered_pipeline(info: P4Info) -> p4rt::ForwardingPipelineConfig {
    p4rt::ForwardingPipelineConfig {
        p4info: Some(info),
        p4_device_config: PROGRAMS[0].to_vec(),
        cookie: None,
    }
}
