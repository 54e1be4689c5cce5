//! The messages of the stream between controller and switch, as P4Runtime has them.
//!
//! Apart from [`client`](super::client), which opens the stream. The decision: the form of a port
//! in a packet is that of the program's P4Info, so each message is translated for the kind of
//! program that the switch runs.

use p4::P4Info;
use p4::codec;
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;
use topology::PipelineKind;

use super::arbitration::ElectionId;
use super::client::ClientError;
use super::connection::{IncomingMessage, OutgoingMessage};
use super::mastership_status::MastershipStatus;
use super::session_log::shorten_text;
use crate::pipelines::pipeline_of;

/// What is sent to a switch that runs a program of this kind.
pub(super) fn encode_message(
    device_id: u64,
    pipeline: PipelineKind,
    message: OutgoingMessage,
) -> p4rt::StreamMessageRequest {
    let update = match message {
        OutgoingMessage::Bid(election) => ToSwitch::Arbitration(p4rt::MasterArbitrationUpdate {
            device_id,
            role: role_message(pipeline),
            election_id: (election != ElectionId::NONE).then(|| election.into()),
            ..Default::default()
        }),
        OutgoingMessage::Packet(packet) => {
            ToSwitch::Packet(codec::encode_packet_out(program_info(pipeline), packet))
        }
        OutgoingMessage::DigestAck(list) => ToSwitch::DigestAck(codec::encode_digest_ack(list)),
    };
    p4rt::StreamMessageRequest { update: Some(update) }
}

/// The role of a bid. Switches take an absent message for the role without a name.
fn role_message(pipeline: PipelineKind) -> Option<p4rt::Role> {
    let name = pipeline_of(pipeline).role();
    (!name.is_empty()).then(|| p4rt::Role { name: name.to_owned(), ..p4rt::Role::default() })
}

fn program_info(pipeline: PipelineKind) -> &'static P4Info {
    &pipeline_of(pipeline).program().p4info
}

/// `None` for what nobody here asked for: other digests and timeouts.
pub(super) fn decode_message(
    device_id: u64,
    pipeline: PipelineKind,
    message: p4rt::StreamMessageResponse,
) -> Result<Option<IncomingMessage>, ClientError> {
    let Some(update) = message.update else {
        return Ok(None);
    };
    Ok(match update {
        FromSwitch::Arbitration(update) if update.device_id != device_id => {
            return Err(ClientError::OtherDevice { wanted: device_id, found: update.device_id });
        }
        FromSwitch::Arbitration(update) => {
            Some(IncomingMessage::Mastership(MastershipStatus::from_update(&update)))
        }
        FromSwitch::Packet(packet) => {
            Some(match codec::decode_packet_in(program_info(pipeline), packet) {
                Ok(packet) => IncomingMessage::Packet(packet),
                Err(error) => {
                    IncomingMessage::StreamError(format!("a packet without its header: {error}"))
                }
            })
        }
        FromSwitch::Error(error) => {
            let code = Code::from(error.canonical_code);
            let text = shorten_text(&error.message);
            Some(IncomingMessage::StreamError(format!("{code:?}: {text}")))
        }
        FromSwitch::Digest(list) => codec::decode_digest_list(&list).map(IncomingMessage::Digests),
        _ => None,
    })
}
