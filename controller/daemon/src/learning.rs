//! Learning of RoCEv2 flows that no job has announced, from the digests of their leaves.
//!
//! A leaf sends a digest for a packet of an admitted host that no pin and no class row matches,
//! within a rate for each port, and repeats it only after an acknowledgement.
//! [`LearnedFlowTable`] keeps what is reported within bounds, [`AckSchedule`] delays the
//! acknowledgements so that each flow is reported once in an interval, and `FlowLearner` is the
//! task around both. The decision: a host decides what its flows are called, so every bound is one
//! of its port, and no flow of another port is lost to them.

mod ack_schedule;
mod learned_flows;
mod task;

pub use ack_schedule::AckSchedule;
pub use learned_flows::{LearnedFlow, LearnedFlowTable, LearnedFlows, LearningCounts};
pub(crate) use task::FlowLearner;
