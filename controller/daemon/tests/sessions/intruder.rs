//! Somebody else who writes to a switch: under a role of his own, so that no mastership is lost.

use futures::StreamExt;
use p4::{ForwardingPipeline, TableUpdate, UpdateKind, codec};
use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::stream_message_request::Update as ToSwitch;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// An open stream of a role, and the calls.
pub(crate) struct Intruder {
    calls: P4RuntimeClient<Channel>,
    device_id: u64,
    role: String,
    _stream: mpsc::Sender<p4rt::StreamMessageRequest>,
}

const ELECTION: p4rt::Uint128 = p4rt::Uint128 { high: 77, low: 0 };

impl Intruder {
    /// The primary of `role`; the empty one is the controllers' own.
    pub(crate) async fn new(address: &str, device_id: u64, role: &str) -> Self {
        let mut calls = P4RuntimeClient::connect(format!("http://{address}")).await.unwrap();
        let (stream, queue) = mpsc::channel(1);
        let named = p4rt::Role { name: role.to_owned(), ..Default::default() };
        let bid = p4rt::MasterArbitrationUpdate {
            device_id,
            role: Some(named).filter(|role| !role.name.is_empty()),
            election_id: Some(ELECTION),
            ..Default::default()
        };
        let first = p4rt::StreamMessageRequest { update: Some(ToSwitch::Arbitration(bid)) };
        stream.send(first).await.unwrap();
        let answers = calls.stream_channel(ReceiverStream::new(queue)).await;
        answers.unwrap().into_inner().next().await.unwrap().unwrap();
        Self { calls, device_id, role: role.to_owned(), _stream: stream }
    }

    /// Writes; a refusal fails the test.
    pub(crate) async fn write(&mut self, kind: UpdateKind, entry: p4::TableEntry) {
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: Some(ELECTION),
            updates: vec![codec::encode_update(&TableUpdate { kind, entry })],
            ..Default::default()
        };
        self.calls.write(request).await.unwrap();
    }

    /// Has the switch run `pipeline`, with empty tables.
    pub(crate) async fn push(&mut self, pipeline: &ForwardingPipeline) {
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: Some(ELECTION),
            action: Action::VerifyAndCommit.into(),
            config: Some(codec::encode_pipeline(pipeline)),
            ..Default::default()
        };
        let answer = self.calls.set_forwarding_pipeline_config(request).await;
        answer.unwrap();
    }
}
