//! Somebody else who writes to a switch: under a role of his own, so that no mastership is lost.

use futures::StreamExt;
use p4::{ForwardingPipeline, TableUpdate, UpdateKind, codec};
use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::stream_message_request::Update as ToSwitch;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

/// An open stream of a role, and the calls.
pub(crate) struct Intruder {
    calls: P4RuntimeClient<Channel>,
    device_id: u64,
    role: String,
    election: p4rt::Uint128,
    _stream: mpsc::Sender<p4rt::StreamMessageRequest>,
}

const ELECTION: p4rt::Uint128 = p4rt::Uint128 { high: 77, low: 0 };

impl Intruder {
    /// The primary of `role`; the empty one is the controllers' own.
    pub(crate) async fn new(address: &str, device_id: u64, role: &str) -> Self {
        Self::with_election(address, device_id, role, ELECTION).await.unwrap()
    }

    /// A controller that bids with this election id, unless the switch ends its stream.
    pub(crate) async fn with_election(
        address: &str,
        device_id: u64,
        role: &str,
        election: p4rt::Uint128,
    ) -> Result<Self, Status> {
        let mut calls = P4RuntimeClient::connect(format!("http://{address}")).await.unwrap();
        let (stream, queue) = mpsc::channel(1);
        let named = p4rt::Role { name: role.to_owned(), ..Default::default() };
        let bid = p4rt::MasterArbitrationUpdate {
            device_id,
            role: Some(named).filter(|role| !role.name.is_empty()),
            election_id: Some(election),
            ..Default::default()
        };
        let first = p4rt::StreamMessageRequest { update: Some(ToSwitch::Arbitration(bid)) };
        stream.send(first).await.unwrap();
        let answers = calls.stream_channel(ReceiverStream::new(queue)).await;
        answers?.into_inner().next().await.unwrap()?;
        Ok(Self { calls, device_id, role: role.to_owned(), election, _stream: stream })
    }

    /// Writes; a refusal fails the test.
    pub(crate) async fn write(&mut self, kind: UpdateKind, entry: p4::TableEntry) {
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: Some(self.election),
            updates: vec![codec::encode_update(&TableUpdate { kind, entry })],
            ..Default::default()
        };
        self.calls.write(request).await.unwrap();
    }

    /// Has the switch run `pipeline`, with empty tables.
    pub(crate) async fn push(&mut self, pipeline: &ForwardingPipeline) {
        self.push_config(codec::encode_pipeline(pipeline)).await;
    }

    /// The same for a pipeline in the form of the protocol.
    pub(crate) async fn push_config(&mut self, config: p4rt::ForwardingPipelineConfig) {
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: Some(self.election),
            action: Action::VerifyAndCommit.into(),
            config: Some(config),
            ..Default::default()
        };
        let answer = self.calls.set_forwarding_pipeline_config(request).await;
        answer.unwrap();
    }

    /// What the switch runs.
    pub(crate) async fn program(&self) -> p4rt::ForwardingPipelineConfig {
        let device_id = self.device_id;
        let request = p4rt::GetForwardingPipelineConfigRequest { device_id, ..Default::default() };
        let answer = self.calls.clone().get_forwarding_pipeline_config(request).await;
        answer.unwrap().into_inner().config.unwrap()
    }
}
