//! The plan: every decision, with no choice left to execution.
//!
//! A plan names paths by directed links and jobs by their position in it. It is a value: made once,
//! compared, printed, lowered to tables, and given back to the planner as `previous`.

use topology::{LinkId, NicId};

use crate::input::JobId;

/// Decisions on one job.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedJob {
    /// Its name.
    pub id: JobId,
    /// The number that stands for the job in switch tables: above zero, kept over plans for as long
    /// as the job lives.
    pub number: u32,
    /// `I_j` in FLOP/s, on the chosen paths (Crux Eq. 2).
    pub intensity: f64,
    /// `t_j` in seconds, on the chosen paths.
    pub bottleneck_seconds: f64,
    /// `k_j` (Crux §4.2).
    pub correction: f64,
    /// `P_j` after fairness and policy (Crux Eq. 3).
    pub priority: f64,
    /// Place in the order of priority; 1 is first.
    pub rank: u32,
    /// Class after compression, `0..levels`; the highest is served first.
    pub level: u8,
}

/// Decisions on one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFlow {
    /// Position of its job in [`Plan::jobs`].
    pub job: usize,
    /// Sending NIC.
    pub src: NicId,
    /// Receiving NIC.
    pub dst: NicId,
    /// UDP source port.
    pub udp_src_port: u16,
    /// The links it takes, from the sending NIC to the receiving one. Empty where no path exists;
    /// the report then has a finding.
    pub links: Vec<LinkId>,
    /// Whether switches are told its path. `false`: left to ECMP (no choice, no path, or over the
    /// budget of pins).
    pub pinned: bool,
    /// Whether the previous plan had it on another path.
    pub moved: bool,
}

/// Every decision for one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rises by one with every plan that differs from the one before it.
    pub generation: u64,
    /// Classes of the switches (`K`).
    pub levels: u8,
    /// Jobs in the order of their ids.
    pub jobs: Vec<PlannedJob>,
    /// Flows by job, then in the order of the job's flows.
    pub flows: Vec<PlannedFlow>,
}
