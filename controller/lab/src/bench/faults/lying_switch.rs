//! Switches that lie, and what their lies look like to a controller.
//!
//! [`fake_network`](super::fake_network) asks here what a lying switch returns. The decision: a lie
//! concerns what a switch says, never what it forwards, so that the tables of the testbed remain
//! the truth by which a run is judged. Bounds that the controller's gRPC client would apply are
//! applied by its own code, [`ReadBudget`].

use controller::southbound::{ClientError, ReadBudget, ReadError};
use p4::fabric::{PortNumber, port_down};
use p4::{ForwardingPipeline, SwitchTables, TableEntry, TableScope};
use p4runtime_proto::v1 as p4rt;
use prost::Message as _;
use prost::bytes::Bytes;
use tonic::Code;

use super::planted_bug::PlantedBug;

/// Messages of a flood that arrive at once.
pub(super) const FLOOD_BURST: u32 = 64;
/// Messages of a flood that a controller may take from one stream, several times its bound.
pub(super) const FLOOD_MAX: u32 = 1_000;
/// Bytes of an entity of a read without an end.
const ENTITY_BYTES: usize = 32 << 10;
/// Entities of a message of such a read.
const MESSAGE_ENTITIES: usize = 32;
/// Messages after which a read that goes on counts as one without a bound.
const READ_MESSAGES: usize = 64;

/// What a switch lies about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchLie {
    /// Reads lack every other entry.
    HidesEntries,
    /// Reads have an entry that is not there.
    InventsEntries,
    /// It acknowledges updates and does nothing.
    ClaimsWrites,
    /// Reads do not end.
    EndlessReads,
    /// It floods every stream with errors.
    FloodsStreams,
    /// It accepts calls and does not answer.
    Silent,
    /// It answers shortly before the deadline.
    Slow,
}

impl SwitchLie {
    /// All of them.
    pub(super) const ALL: [Self; 7] = [
        Self::HidesEntries,
        Self::InventsEntries,
        Self::ClaimsWrites,
        Self::EndlessReads,
        Self::FloodsStreams,
        Self::Silent,
        Self::Slow,
    ];

    /// What a read of a switch with these entries returns.
    pub(super) fn distort_tables(self, tables: SwitchTables, of: &TableScope) -> SwitchTables {
        match self {
            Self::HidesEntries => tables.iter().step_by(2).map(TableEntry::from).collect(),
            Self::InventsEntries => {
                let invented = port_down(PortNumber::CPU).with_signature();
                let read = of.contains_key(&invented.key).then_some(invented);
                tables.iter().map(TableEntry::from).chain(read).collect()
            }
            _ => tables,
        }
    }
}

/// Why a read without an end ends: the bound, or the number of bytes that were read beyond it.
pub(super) fn read_endlessly(
    bytes_max: usize,
    planted_bug: PlantedBug,
) -> Result<ClientError, String> {
    let row = p4rt::TableEntry { metadata: vec![0; ENTITY_BYTES], ..Default::default() };
    let entity = p4rt::Entity { entity: Some(p4rt::entity::Entity::TableEntry(row)) };
    let message = p4rt::ReadResponse { entities: vec![entity; MESSAGE_ENTITIES] };
    let message = Bytes::from(message.encode_to_vec());
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let mut budget = ReadBudget::new(p4info, bytes_max, &[]);
    for _ in 0..READ_MESSAGES {
        let bounded = budget.take_message(message.clone(), &mut |_| Ok(()));
        if planted_bug == PlantedBug::ReadsWithoutEnd {
            continue;
        }
        if let Err(ReadError::Bound(message)) = bounded {
            return Ok(ClientError::Call { call: "Read", code: Code::ResourceExhausted, message });
        }
    }
    Err(format!("{} MiB of one read were taken", (READ_MESSAGES * message.len()) >> 20))
}
