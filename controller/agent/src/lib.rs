//! What a host can tell of its jobs, and the program that tells it (`crux agent`).
//!
//! ```text
//! counters of NICs, GPUs -> Series -> period \
//! processes, by a socket -> Said            -> Watch -> reports -> uplink -> controller
//! ```
//!
//! [`Series`] makes equal intervals of counters that were read whenever it was possible;
//! [`period::estimate`] finds what repeats in them, so a training job need not cooperate, or know
//! of it (Crux §5). [`Watch`] makes reports of that and of what processes say by themselves. These
//! are pure: times are arguments. Around them are shells that read ([`counters`], [`gpus`],
//! [`socket`]) and send ([`uplink`]), and [`service`] is the one place that puts them together.

pub mod announcement;
mod cadence;
pub mod counters;
pub mod gpus;
pub mod lines;
pub mod period;
pub mod said;
mod series;
pub mod service;
pub mod socket;
pub mod uplink;
mod watch;

pub use period::Period;
pub use series::Series;
pub use service::{AgentError, Settings};
pub use watch::{Limits, Owner, Refused, Watch};
