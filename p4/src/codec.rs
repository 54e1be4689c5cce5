//! Converts our values to P4Runtime messages and back; no other module uses both.
//!
//! Sessions write with [`encode_update`], read with [`encode_scope_read`] and [`decode_tables`],
//! and explain a refused batch with [`decode_write_error`]. The decision: decoding brings
//! everything to the one form in which we compare (numbers instead of byte strings where the
//! program has numbers, sorted fields, groups and arguments), and leaves out what belongs to the
//! program rather than to a controller: const entries and default actions that are still the
//! program's own.

mod decode;
mod digests;
mod encode;
mod packets;
mod write_error;

pub use decode::{
    CounterCell, CounterValue, DecodeError, decode_counter_cell, decode_entry, decode_row_counter,
    decode_table_entity, decode_table_names, decode_tables,
};
pub use digests::{
    DigestList, DigestTiming, RoceFlowDigest, RoceTuple, decode_digest_list, decode_digest_refusal,
    encode_digest_ack, encode_digest_update,
};
pub use encode::{
    encode_cell_read, encode_counter_read, encode_entry, encode_pipeline, encode_row_counter_read,
    encode_scope_read, encode_table_counter_read, encode_update, encode_whole_counter_read,
    encode_whole_read,
};
pub use packets::{PacketIn, PacketOut, PacketOutTarget, decode_packet_in, encode_packet_out};
pub use write_error::{RefusedUpdate, WriteError, decode_write_error};

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
