//! One `StreamChannel`: arbitration and packet-out from a controller, packet-in to it.

use std::sync::Arc;

use p4rt::stream_error::Details;
use p4rt::stream_message_request::Update as Request;
use p4rt::stream_message_response::Update as Response;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::SwitchInstance;
use super::error::RequestFailure;
use super::packet;
use super::pipeline::no_pipeline_failure;
use super::role_rules::PeerCertificates;
use super::sessions::{DeliveryStatus, fault_status, from_uint128};
use crate::p4runtime::election::{ArbitrationRequest, SessionId};

impl SwitchInstance {
    /// Serves what one controller sends until either side ends the stream.
    pub(super) async fn serve_stream(
        self: Arc<Self>,
        session: SessionId,
        mut requests: Streaming<p4rt::StreamMessageRequest>,
        peer: PeerCertificates,
        mut ended: oneshot::Receiver<()>,
    ) {
        let deadline = sleep(self.arbitration_deadline);
        let mut deadline = std::pin::pin!(deadline);
        let mut has_claimed = false;
        loop {
            let request = tokio::select! {
                _ = &mut ended => break,
                request = requests.message() => request,
                () = &mut deadline, if !has_claimed => {
                    let text = "no arbitration request came in time";
                    let late = Status::deadline_exceeded(text);
                    return self.end_session(session, Some(late)).await;
                }
            };
            // Whatever comes first must be one, or the stream ends.
            has_claimed = true;
            let handled = match request {
                Ok(Some(request)) => match self.check_bid(&request, &peer) {
                    Ok(()) => self.handle_request(session, request).await,
                    Err(refused) => return self.end_session(session, Some(refused)).await,
                },
                Ok(None) | Err(_) => break,
            };
            if let Err(failure) = handled {
                return self.end_session(session, Some(failure.into())).await;
            }
        }
        self.end_session(session, None).await;
    }

    /// Whether the client may bid in the role that it names, if it bids.
    fn check_bid(
        &self,
        request: &p4rt::StreamMessageRequest,
        peer: &PeerCertificates,
    ) -> Result<(), Status> {
        let Some(Request::Arbitration(update)) = &request.update else {
            return Ok(());
        };
        let role = update.role.as_ref().map_or("", |role| &role.name);
        self.roles.check_role(role, peer)
    }

    async fn end_session(&self, session: SessionId, error: Option<Status>) {
        self.sessions.write().await.end_session(session, error);
    }

    /// An error here ends the stream; everything else is reported on it.
    async fn handle_request(
        &self,
        session: SessionId,
        request: p4rt::StreamMessageRequest,
    ) -> Result<(), RequestFailure> {
        let (failure, details) = match request.update {
            Some(Request::Arbitration(update)) => {
                let claim = decode_arbitration(update)?;
                self.sessions.write().await.handle_arbitration(session, claim);
                return Ok(());
            }
            Some(Request::Packet(packet)) => match self.handle_packet_out(session, &packet).await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    let packet_out = Some(packet);
                    (failure, Details::PacketOut(p4rt::PacketOutError { packet_out }))
                }
            },
            Some(Request::DigestAck(ack)) => match self.acknowledge_digests(session, ack).await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    let digest_list_ack = Some(ack);
                    let details = p4rt::DigestListAckError { digest_list_ack };
                    (failure, Details::DigestListAck(details))
                }
            },
            Some(Request::Other(other)) => {
                let details = p4rt::StreamOtherError { other: Some(other) };
                (
                    RequestFailure::unimplemented("a message of another type"),
                    Details::Other(details),
                )
            }
            None => {
                return Err(RequestFailure::invalid_argument("the stream message is empty"));
            }
        };
        let error = p4rt::StreamError {
            canonical_code: failure.code as i32,
            message: failure.message,
            details: Some(details),
            ..p4rt::StreamError::default()
        };
        self.offer_message(session, Response::Error(error)).await;
        Ok(())
    }

    async fn acknowledge_digests(
        &self,
        session: SessionId,
        ack: p4rt::DigestListAck,
    ) -> Result<(), RequestFailure> {
        self.check_primary(session, "acknowledge digests").await?;
        self.on_device(move |pipelines, _| pipelines.acknowledge_digests(&ack)).await?
    }

    async fn check_primary(&self, session: SessionId, what: &str) -> Result<(), RequestFailure> {
        if self.sessions.read().await.election().is_primary(session) {
            return Ok(());
        }
        let message = format!("only the primary may {what}");
        Err(RequestFailure::new(Code::PermissionDenied, message))
    }

    async fn handle_packet_out(
        &self,
        session: SessionId,
        packet: &p4rt::PacketOut,
    ) -> Result<(), RequestFailure> {
        self.check_primary(session, "send packets").await?;
        let Some(schema) = self.schema.borrow().clone() else {
            return Err(no_pipeline_failure());
        };
        let bytes = match &schema.pins {
            None => packet::encode_packet_out(&schema.packet_out, packet, self.dialect)?,
            Some(pins) => {
                let numbered = pins.number_packet_ports(packet.clone())?;
                packet::encode_packet_out(&schema.packet_out, &numbered, self.dialect)?
            }
        };
        self.device.send_packet_out(bytes).await?;
        Ok(())
    }

    /// Hands a packet from the device's CPU port to every primary.
    pub(super) async fn send_packet_in(&self, bytes: &[u8]) {
        let schema = self.schema.borrow().clone();
        let packet = schema.and_then(|schema| {
            let packet = packet::decode_packet_in(&schema.packet_in, bytes)?;
            Some(match &schema.pins {
                None => packet,
                Some(pins) => pins.name_packet_ports(packet),
            })
        });
        let Some(packet) = packet else {
            return self.counts.drop_packet_in();
        };
        if !self.notify_primaries(&Response::Packet(packet)).await {
            self.counts.drop_packet_in();
        }
    }

    /// Sends a message to every primary; false without a primary, or when one does not take it.
    pub(super) async fn notify_primaries(&self, message: &Response) -> bool {
        let primaries: Vec<SessionId> =
            self.sessions.read().await.election().primary_sessions().collect();
        let mut is_delivered = !primaries.is_empty();
        for primary in primaries {
            is_delivered &=
                self.offer_message(primary, message.clone()).await != DeliveryStatus::Dropped;
        }
        is_delivered
    }

    async fn offer_message(&self, session: SessionId, response: Response) -> DeliveryStatus {
        let offer = self.sessions.read().await.offer_message(session, response);
        if offer == DeliveryStatus::SentAndBroken {
            self.end_session(session, Some(fault_status())).await;
        }
        offer
    }
}

fn decode_arbitration(
    update: p4rt::MasterArbitrationUpdate,
) -> Result<ArbitrationRequest, RequestFailure> {
    let role = update.role.unwrap_or_default();
    #[allow(deprecated)] // Refused by name, not overlooked.
    let number = role.id;
    if number != 0 {
        return Err(RequestFailure::unimplemented("a numeric role id"));
    }
    if role.config.is_some() {
        return Err(RequestFailure::invalid_argument(
            "role configs are not supported: leave Role.config empty",
        ));
    }
    let election_id = update.election_id.map(from_uint128);
    Ok(ArbitrationRequest { device_id: update.device_id, role: role.name, election_id })
}
