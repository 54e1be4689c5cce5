//! The controller of one switch: the same requests to whichever serves them.

use std::error::Error;

use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A primary controller.
pub(crate) struct Controller {
    client: P4RuntimeClient<Channel>,
    _requests: mpsc::Sender<p4rt::StreamMessageRequest>,
    _responses: Streaming<p4rt::StreamMessageResponse>,
}

const ELECTION: p4rt::Uint128 = p4rt::Uint128 { high: 0, low: 1 };

impl Controller {
    /// Connects, becomes primary and pushes the program.
    pub(crate) async fn start(
        address: &str,
        config: p4rt::ForwardingPipelineConfig,
    ) -> Result<Self, Box<dyn Error>> {
        let endpoint =
            Channel::from_shared(format!("http://{address}"))?.http2_max_header_list_size(4 << 20);
        let channel = loop {
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        let mut client = P4RuntimeClient::new(channel).max_decoding_message_size(256 << 20);
        let (requests, outgoing) = mpsc::channel(16);
        let claim = p4rt::MasterArbitrationUpdate {
            device_id: 1,
            election_id: Some(ELECTION),
            ..p4rt::MasterArbitrationUpdate::default()
        };
        let update = p4rt::stream_message_request::Update::Arbitration(claim);
        requests.send(p4rt::StreamMessageRequest { update: Some(update) }).await?;
        let call = client.stream_channel(ReceiverStream::new(outgoing));
        let mut responses = call.await?.into_inner();
        responses.message().await?;
        let mut controller = Self { client, _requests: requests, _responses: responses };
        controller.push(config, Action::VerifyAndCommit).await?;
        Ok(controller)
    }

    /// Sends a program to the switch with the action to take (verify, save, commit).
    pub(crate) async fn push(
        &mut self,
        config: p4rt::ForwardingPipelineConfig,
        action: Action,
    ) -> Result<(), Status> {
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: 1,
            election_id: Some(ELECTION),
            action: action as i32,
            config: Some(config),
            ..p4rt::SetForwardingPipelineConfigRequest::default()
        };
        let pushed = self.client.set_forwarding_pipeline_config(request);
        pushed.await.map(drop)
    }

    /// Writes a batch and gives the code of each update.
    pub(crate) async fn write(
        &mut self,
        updates: Vec<p4rt::Update>,
    ) -> Result<Vec<(Code, String)>, Box<dyn Error>> {
        let count = updates.len();
        let request = p4rt::WriteRequest {
            device_id: 1,
            election_id: Some(ELECTION),
            updates,
            ..p4rt::WriteRequest::default()
        };
        match self.client.write(request).await {
            Ok(_) => Ok(vec![(Code::Ok, String::new()); count]),
            Err(status) => codes(&status),
        }
    }

    /// Everything that the queries select.
    pub(crate) async fn read(
        &mut self,
        entities: Vec<p4rt::Entity>,
    ) -> Result<Vec<p4rt::Entity>, Status> {
        let request = p4rt::ReadRequest { device_id: 1, entities, role: String::new() };
        let mut answer = self.client.read(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(message) = answer.message().await? {
            found.extend(message.entities);
        }
        Ok(found)
    }
}

fn codes(status: &Status) -> Result<Vec<(Code, String)>, Box<dyn Error>> {
    let details = p4runtime_proto::rpc::Status::decode(status.details())?;
    if details.details.is_empty() {
        return Err(status.clone().into());
    }
    let mut codes = Vec::new();
    for any in &details.details {
        let error = p4rt::Error::decode(any.value.as_slice())?;
        codes.push((Code::from(error.canonical_code), error.message));
    }
    Ok(codes)
}
