//! Our values to P4Runtime's messages and back: the only place that knows both.
//!
//! Sessions write with [`encode_update`], read with [`reads`] and [`decode_tables`], and explain a
//! refused batch with [`decode_write_error`]. The decision: decoding brings everything to the one
//! form in which we compare (numbers instead of byte strings, sorted fields, groups and arguments),
//! and leaves out what belongs to the program rather than to a controller: const entries and
//! default actions that are still the program's own.

mod decode;
mod encode;
mod packets;
mod write_error;

pub use decode::{Count, DecodeError, decode_cells, decode_counts, decode_entry, decode_tables};
pub use encode::{
    cell_of, cells_of, count_of, counts_of, encode_entry, encode_pipeline, encode_update, reads,
};
pub use packets::{Outlet, PacketIn, PacketOut, decode_packet_in, encode_packet_out};
pub use write_error::{Refusal, WriteError, decode_write_error};

#[cfg(test)]
mod tests;
