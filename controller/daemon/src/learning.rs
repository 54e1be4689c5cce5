//! Learning of RoCEv2 flows that no job has announced, from the digests of their leaves.
//!
//! A leaf sends a digest for a packet of an admitted host that no pin and no class row matches,
//! within a rate for each port, and repeats it only after an acknowledgement.
//! [`LearnedFlowTable`] keeps what is reported within bounds, [`AckSchedule`] delays the
//! acknowledgements so that each flow is reported once in an interval, [`ConnectionList`] has the
//! connections between NICs of one job, which the state puts on the paths of the plan, and
//! `FlowLearner` is the task around them. Hosts may report their queue pairs besides:
//! [`QueuePairTable`] keeps them within bounds, and [`queue_pair_join`] makes flows of them, which
//! are then known before their first packet, and whose they are where jobs share NICs. The
//! decision: a host decides what its flows are called, so every bound is one of its port, and no
//! flow of another port is lost to them.

mod ack_schedule;
mod connection_list;
mod learned_flows;
mod pin_reader;
mod queue_pair_flows;
pub mod queue_pair_join;
mod queue_pair_table;
mod task;

pub use ack_schedule::AckSchedule;
pub use connection_list::ConnectionList;
pub use learned_flows::{
    CountedConnection, LearnedFlow, LearnedFlowTable, LearnedFlows, LearningCounts,
};
pub use queue_pair_table::{HostQueuePairs, QueuePairGroup, QueuePairTable, ReportedQueuePair};
pub(crate) use task::{FlowLearner, LearnerInputs};
