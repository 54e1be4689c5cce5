//! What a host can tell of its jobs, and the program that tells it (`crux agent`).
//!
//! ```text
//! counters of NICs, GPUs -> Series -> period \
//! processes, by a socket -> Said            -> Watch -> reports -> uplink -> controller
//! ```
//!
//! [`ByteSeries`] makes equal intervals of counters that were read whenever it was possible;
//! [`period::estimate_period`] finds what repeats in them, so a training job need not cooperate, or know
//! of it (Crux §5). [`JobMonitor`] makes reports of that and of what processes say by themselves. These
//! are pure: times are arguments. Around them are shells that read ([`nic_counters`], [`gpus`],
//! [`socket`]) and send ([`report_stream`]), and [`service`] is the one place that puts them together.

pub mod announcement;
mod byte_series;
pub mod gpu_counters;
mod job_monitor;
pub mod nic_counters;
pub mod period;
pub mod process_message;
pub mod report_json;
pub mod report_stream;
pub mod service;
pub mod socket;
mod traffic_observer;

pub use byte_series::ByteSeries;
pub use job_monitor::{JobMonitor, JobOwner, ReportLimits, ReportRefusal};
pub use period::IterationPeriod;
pub use service::{AgentError, AgentSettings};
