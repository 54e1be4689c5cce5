//! The P4Runtime service as a controller sees it: a tonic client against one stand-alone device
//! that runs `fabric.p4`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arbitration;
mod bench;
mod counters;
mod entities;
mod faults;
mod packets;
mod pins;
mod pipeline;
mod samples;
mod selectors;
mod state;
mod tls;
