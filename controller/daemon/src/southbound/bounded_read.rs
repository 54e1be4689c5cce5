//! The answers to a read of a switch, entity by entity.
//!
//! A switch decides how much it sends, and two bytes of a message can become a structure of a
//! hundred times their size. The decision: messages are received as bytes, and entities are taken
//! from them and decoded one at a time, each of at most [`ENTITY_BYTES`]. So a read costs the bytes
//! of one message and what its caller keeps; [`ReadBudget`] bounds both, in all and for each table
//! by the room that the program gives it.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use p4::P4Info;
use p4::codec::DecodeError;
use p4::entry::TableId;
use p4runtime_proto::v1 as p4rt;
use prost::Message as _;
use prost::bytes::{Buf, Bytes};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::config::SouthboundConfig;

/// The most entities of one read, more than the program's tables and counters have room for.
const READ_ENTITIES: usize = 200_000;
/// The most bytes of one entity. An entry with a group of 512 members has 20,000.
const ENTITY_BYTES: usize = 64 << 10;
/// The key of `ReadResponse.entities`: field 1, with a length.
const ENTITIES_KEY: u8 = 0x0a;
const READ_PATH: &str = "/p4.v1.P4Runtime/Read";

/// Why a read is given up.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The switch sends more than it may, or what is no answer to a read.
    #[error("{0}")]
    Bound(String),
    /// The call failed.
    #[error("the call failed")]
    Call(#[from] Status),
    /// An entity cannot be understood.
    #[error("an entity cannot be understood")]
    Entity(#[from] DecodeError),
}

/// What a read has returned so far, and may return.
#[derive(Debug)]
pub struct ReadBudget<'a> {
    p4info: &'a P4Info,
    bytes: usize,
    bytes_max: usize,
    entities: usize,
    /// By table, how many rows may still come.
    room: BTreeMap<u32, u64>,
}

impl<'a> ReadBudget<'a> {
    /// The budget of a read of at most `bytes_max` bytes from a switch with the tables of `p4info`.
    /// A table may have its default beside its rows, and a row that is asked for may come a second
    /// time, with its table.
    pub fn new(p4info: &'a P4Info, bytes_max: usize, asked: &[p4rt::Entity]) -> Self {
        let mut room: BTreeMap<u32, u64> =
            p4info.tables().map(|table| (table.id.0, table.size + 1)).collect();
        for entry in asked.iter().filter_map(table_entry) {
            *room.entry(entry.table_id).or_default() += 1;
        }
        Self { p4info, bytes: 0, bytes_max, entities: 0, room }
    }

    /// Takes the entities of one encoded `ReadResponse`.
    ///
    /// # Errors
    /// The bound that the message exceeds, or what `take` returns; the read is of no more use.
    pub fn take_message(
        &mut self,
        mut message: Bytes,
        take: &mut impl FnMut(p4rt::Entity) -> Result<(), DecodeError>,
    ) -> Result<(), ReadError> {
        // Counted before decoding, so that a message which exceeds the budget is never expanded.
        self.bytes = self.bytes.saturating_add(message.len());
        while message.has_remaining() {
            let entity = split_entity(&mut message)?;
            self.count_entity(&entity).map_err(ReadError::Bound)?;
            take(entity)?;
        }
        Ok(())
    }

    fn count_entity(&mut self, entity: &p4rt::Entity) -> Result<(), String> {
        self.entities += 1;
        if self.bytes > self.bytes_max || self.entities > READ_ENTITIES {
            return Err(format!(
                "the switch sends more than {READ_ENTITIES} entities or {} bytes \
                 (messages.read_max)",
                self.bytes_max
            ));
        }
        let Some(entry) = table_entry(entity) else {
            return Ok(());
        };
        match self.room.get_mut(&entry.table_id) {
            Some(0) => {
                let table = self.p4info.table(TableId(entry.table_id));
                let name = table.map_or("a table", |table| &table.name);
                Err(format!("the switch sends more entries of {name} than it holds"))
            }
            Some(room) => {
                *room -= 1;
                Ok(())
            }
            // Decoding refuses it.
            None => Ok(()),
        }
    }
}

fn table_entry(entity: &p4rt::Entity) -> Option<&p4rt::TableEntry> {
    match &entity.entity {
        Some(p4rt::entity::Entity::TableEntry(entry)) => Some(entry),
        _ => None,
    }
}

/// Takes the next entity from what is left of a message.
fn split_entity(message: &mut Bytes) -> Result<p4rt::Entity, ReadError> {
    let malformed = |what: &str| ReadError::Bound(format!("the switch sends {what}"));
    if message.get_u8() != ENTITIES_KEY {
        return Err(malformed("something else than entities as an answer to a read"));
    }
    let length = prost::decode_length_delimiter(&mut *message).ok();
    // `split_to` panics beyond the end, and the length is the switch's word.
    let length = length.filter(|length| *length <= message.remaining());
    let length = length.ok_or_else(|| malformed("an entity that ends outside of its message"))?;
    if length > ENTITY_BYTES {
        return Err(malformed(&format!("an entity of {length} bytes; at most {ENTITY_BYTES}")));
    }
    let entity = p4rt::Entity::decode(message.split_to(length));
    entity.map_err(|error| malformed(&format!("an invalid entity: {error}")))
}

/// Asks a switch for entities, and gives each one of its answer to `take`.
pub(super) async fn read_switch(
    (channel, p4info): (Channel, &P4Info),
    limits: &SouthboundConfig,
    request: p4rt::ReadRequest,
    mut take: impl FnMut(p4rt::Entity) -> Result<(), DecodeError>,
) -> Result<(), ReadError> {
    let mut calls = tonic::client::Grpc::new(channel).max_decoding_message_size(limits.receive_max);
    // tonic requires readiness before a streaming call; its generated clients do the same.
    calls.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(READ_PATH);
    let mut budget = ReadBudget::new(p4info, limits.read_max, &request.entities);
    let answers = calls.server_streaming(Request::new(request), path, EncodedAnswers).await?;
    let mut answers = answers.into_inner();
    while let Some(message) = answers.try_next().await? {
        budget.take_message(message, &mut take)?;
    }
    Ok(())
}

/// Sends a request as usual, and leaves the answers as they arrive.
#[derive(Clone, Copy, Debug)]
struct EncodedAnswers;

impl Codec for EncodedAnswers {
    type Encode = p4rt::ReadRequest;
    type Decode = Bytes;
    type Encoder = ProstEncoder<p4rt::ReadRequest>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<p4rt::ReadRequest, ()>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Decoder for EncodedAnswers {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[cfg(test)]
mod tests;
