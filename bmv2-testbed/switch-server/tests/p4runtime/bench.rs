//! A served device and controllers for it. Every wait has a deadline.

use std::future::Future;
use std::time::Duration;

use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::stream_message_response::Update as Response;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use switch::{DeviceConfig, DeviceHandle, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub(crate) const DEVICE: u64 = 7;
pub(crate) const CPU_PORT: u16 = 255;
const JSON: &[u8] = include_bytes!("../../../../p4/fabric.json");
const INFO: &str = include_str!("../../../../p4/fabric.p4info.txtpb");

/// Fails instead of waiting for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, future).await.expect("it happens within 20 s")
}

pub(crate) fn p4info() -> P4Info {
    P4Info::from_text(INFO).unwrap()
}

pub(crate) fn config(cookie: u64) -> p4rt::ForwardingPipelineConfig {
    p4rt::ForwardingPipelineConfig {
        p4info: Some(p4info()),
        p4_device_config: JSON.to_vec(),
        cookie: Some(p4rt::forwarding_pipeline_config::Cookie { cookie }),
    }
}

/// Another program than fabric.p4.
pub(crate) fn config_of(json: &[u8], info: &str) -> p4rt::ForwardingPipelineConfig {
    p4rt::ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(info).unwrap()),
        p4_device_config: json.to_vec(),
        cookie: None,
    }
}

/// One device, served.
pub(crate) struct Bench {
    pub(crate) fabric: EmulatedNetworkHandle,
    pub(crate) device: DeviceHandle,
    pub(crate) server: ServerHandle,
}

impl Bench {
    pub(crate) async fn start(options: ServiceOptions) -> Self {
        let mut builder = EmulatedNetworkBuilder::new();
        let index = builder.add_device(DeviceConfig {
            device_id: DEVICE,
            cpu_port: CPU_PORT,
            levels: 8,
            trusts_dscp: false,
        });
        let fabric = builder.spawn().unwrap();
        let device = fabric.device(index);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = serve(listener, device.clone(), options).await.unwrap();
        Self { fabric, device, server }
    }

    pub(crate) async fn client(&self) -> P4RuntimeClient<Channel> {
        let address = format!("http://{}", self.server.local_addr());
        let endpoint = Channel::from_shared(address).unwrap().http2_max_header_list_size(4 << 20);
        let channel = soon(endpoint.connect()).await.unwrap();
        P4RuntimeClient::new(channel).max_decoding_message_size(64 << 20)
    }

    /// A controller that has claimed an election id and been answered.
    pub(crate) async fn controller(&self, election_id: u128) -> Controller {
        let mut controller = Controller::open(self.client().await, election_id).await;
        controller.claim(election_id).await;
        let (_, election) = controller.notice().await;
        assert!(election.is_some());
        controller
    }

    /// The primary of a switch that runs `fabric.p4`.
    pub(crate) async fn primary(&self) -> Controller {
        let mut controller = self.controller(1).await;
        controller.commit(1).await.unwrap();
        controller
    }
}

/// One controller with its stream.
pub(crate) struct Controller {
    pub(crate) client: P4RuntimeClient<Channel>,
    pub(crate) election_id: u128,
    requests: mpsc::Sender<p4rt::StreamMessageRequest>,
    responses: Streaming<p4rt::StreamMessageResponse>,
}

impl Controller {
    pub(crate) async fn open(mut client: P4RuntimeClient<Channel>, election_id: u128) -> Self {
        let (requests, outgoing) = mpsc::channel(16);
        let call = client.stream_channel(ReceiverStream::new(outgoing));
        let responses = soon(call).await.unwrap().into_inner();
        Self { client, election_id, requests, responses }
    }

    pub(crate) async fn claim(&mut self, election_id: u128) {
        self.election_id = election_id;
        self.claim_for(DEVICE, "").await;
    }

    pub(crate) async fn claim_for(&mut self, device_id: u64, role: &str) {
        let role = Some(role).filter(|role| !role.is_empty());
        let claim = p4rt::MasterArbitrationUpdate {
            device_id,
            role: role.map(|name| p4rt::Role { name: name.into(), ..p4rt::Role::default() }),
            election_id: uint128(self.election_id),
            status: None,
        };
        self.send(p4rt::stream_message_request::Update::Arbitration(claim)).await;
    }

    pub(crate) async fn send(&mut self, update: p4rt::stream_message_request::Update) {
        let request = p4rt::StreamMessageRequest { update: Some(update) };
        soon(self.requests.send(request)).await.unwrap();
    }

    /// The next message of the stream, its error, or `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Response>, Code> {
        let message = soon(self.responses.message()).await;
        message.map(|message| message.and_then(|m| m.update)).map_err(|status| status.code())
    }

    /// The next message, which must be an arbitration update: its status and election id.
    pub(crate) async fn notice(&mut self) -> (Code, Option<u128>) {
        match self.next().await {
            Ok(Some(Response::Arbitration(update))) => {
                let id =
                    update.election_id.map(|id| u128::from(id.high) << 64 | u128::from(id.low));
                (Code::from(update.status.unwrap().code), id)
            }
            other => panic!("an arbitration update was due, not {other:?}"),
        }
    }

    pub(crate) async fn set(
        &mut self,
        action: p4rt::set_forwarding_pipeline_config_request::Action,
        config: Option<p4rt::ForwardingPipelineConfig>,
    ) -> Result<(), Status> {
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: uint128(self.election_id),
            action: action as i32,
            config,
            ..p4rt::SetForwardingPipelineConfigRequest::default()
        };
        soon(self.client.set_forwarding_pipeline_config(request)).await.map(|_| ())
    }

    pub(crate) async fn commit(&mut self, cookie: u64) -> Result<(), Status> {
        use p4rt::set_forwarding_pipeline_config_request::Action;
        self.set(Action::VerifyAndCommit, Some(config(cookie))).await
    }

    pub(crate) async fn write(&mut self, updates: Vec<p4rt::Update>) -> Result<(), Status> {
        let request = p4rt::WriteRequest {
            device_id: DEVICE,
            election_id: uint128(self.election_id),
            updates,
            ..p4rt::WriteRequest::default()
        };
        soon(self.client.write(request)).await.map(|_| ())
    }

    /// Writes a batch and gives the code of each update.
    pub(crate) async fn codes(&mut self, updates: Vec<p4rt::Update>) -> Vec<Code> {
        let count = updates.len();
        match self.write(updates).await {
            Ok(()) => vec![Code::Ok; count],
            Err(status) => codes(&status),
        }
    }

    pub(crate) async fn read(
        &mut self,
        entities: Vec<p4rt::Entity>,
    ) -> Result<Vec<p4rt::Entity>, Status> {
        let request = p4rt::ReadRequest { device_id: DEVICE, entities, role: String::new() };
        let mut answer = soon(self.client.read(request)).await?.into_inner();
        let mut found = Vec::new();
        while let Some(message) = soon(answer.message()).await? {
            found.extend(message.entities);
        }
        Ok(found)
    }

    pub(crate) async fn cookie(&mut self) -> Option<u64> {
        let request = p4rt::GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            ..p4rt::GetForwardingPipelineConfigRequest::default()
        };
        let answer = soon(self.client.get_forwarding_pipeline_config(request)).await.unwrap();
        answer.into_inner().config.and_then(|config| config.cookie).map(|cookie| cookie.cookie)
    }
}

/// The codes that a batch status carries.
pub(crate) fn codes(status: &Status) -> Vec<Code> {
    assert_eq!(status.code(), Code::Unknown, "{status:?}");
    let details = p4runtime_proto::rpc::Status::decode(status.details()).unwrap();
    assert_eq!((details.code, &*details.message), (2, status.message()));
    let error = |any: &prost_types::Any| p4rt::Error::decode(any.value.as_slice()).unwrap();
    details.details.iter().map(|any| Code::from(error(any).canonical_code)).collect()
}

pub(crate) fn uint128(id: u128) -> Option<p4rt::Uint128> {
    Some(p4rt::Uint128 { high: (id >> 64) as u64, low: id as u64 })
}
