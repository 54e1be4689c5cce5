//! The stream over gRPC: the client of a follower, and the messages of both sides.

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Request, Status};

use api::northbound as proto;
use api::northbound::northbound_client::NorthboundClient;

use super::{FollowerReport, LeaderNetwork, ReplicationError, StateUpdate, StateUpdates};
use crate::config::{FollowConfig, TlsConfig};
use crate::southbound::GrpcNetwork;

/// The largest update: everything of a large fabric in one message.
const UPDATE_BYTES: usize = 1 << 30;

impl LeaderNetwork for GrpcNetwork {
    fn follow_leader(
        &self,
        member: &str,
        config: &FollowConfig,
        reports: BoxStream<'static, FollowerReport>,
    ) -> impl Future<Output = Result<StateUpdates, ReplicationError>> + Send {
        let reports = ReceiverStream::new(forward_reports(reports));
        open_stream(member.to_owned(), config.clone(), reports)
    }
}

/// The messages of these reports, until nobody receives them.
fn forward_reports(
    mut reports: BoxStream<'static, FollowerReport>,
) -> mpsc::Receiver<proto::FollowerReport> {
    let (forward, messages) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(report) = reports.next().await {
            if forward.send(report_message(report)).await.is_err() {
                return;
            }
        }
    });
    messages
}

async fn open_stream(
    member: String,
    config: FollowConfig,
    reports: ReceiverStream<proto::FollowerReport>,
) -> Result<StateUpdates, ReplicationError> {
    let tls = config.tls.as_ref();
    let plain = Endpoint::try_from(TlsConfig::server_uri(tls, &member))
        .map_err(|_| ReplicationError::Address(member.clone()))?;
    let secured = TlsConfig::secure_endpoint(tls, plain).map_err(ReplicationError::Connect)?;
    let deadline = config.connect_deadline;
    let endpoint = secured
        .connect_timeout(deadline)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(deadline)
        .keep_alive_timeout(deadline);
    let channel = endpoint.connect().await.map_err(ReplicationError::Connect)?;
    let mut client = NorthboundClient::new(channel).max_decoding_message_size(UPDATE_BYTES);
    let mut request = Request::new(reports);
    if let Some(token) = &config.token {
        let bearer = MetadataValue::try_from(format!("Bearer {token}"));
        let bearer = bearer.map_err(|error| ReplicationError::Refused(error.to_string()))?;
        request.metadata_mut().insert("authorization", bearer);
    }
    let updates =
        client.replicate_state(request).await.map_err(|status| refusal(&status))?.into_inner();
    Ok(updates
        .map(|update| update.map_err(|status| refusal(&status)).and_then(update_from_message))
        .boxed())
}

fn refusal(status: &Status) -> ReplicationError {
    ReplicationError::Refused(status.message().to_owned())
}

fn report_message(report: FollowerReport) -> proto::FollowerReport {
    let FollowerReport { controller, applied, follows } = report;
    proto::FollowerReport { controller, applied, follows }
}

/// The report in a message.
pub(crate) fn report_from_message(message: &proto::FollowerReport) -> FollowerReport {
    let proto::FollowerReport { controller, applied, follows } = *message;
    FollowerReport { controller, applied, follows }
}

fn update_from_message(message: proto::StateUpdate) -> Result<StateUpdate, ReplicationError> {
    let documents = message.documents.unwrap_or_default().json;
    Ok(StateUpdate {
        number: message.number,
        leads: message.leads,
        leader: message.leader,
        term: message.term,
        generation: message.generation,
        is_leaving: message.is_leaving,
        documents: serde_json::from_str(&documents).map_err(ReplicationError::Update)?,
    })
}

/// The message of an update.
pub(crate) fn message_from_update(update: &StateUpdate) -> proto::StateUpdate {
    let json = serde_json::to_string(&update.documents).expect("documents have text for keys");
    proto::StateUpdate {
        number: update.number,
        leads: update.leads,
        leader: update.leader,
        term: update.term,
        generation: update.generation,
        is_leaving: update.is_leaving,
        documents: Some(proto::JsonDocument { json }),
    }
}
