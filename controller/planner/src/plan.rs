//! The plan: every decision, with no choice left to execution.
//!
//! A plan names paths by directed links and jobs by their position in it. It is a value: made once,
//! compared, printed, lowered to tables, and given back to the planner as `previous`.

use fluid::{GridRule, JobGrid};
use topology::{Fabric, LinkPath, NicId};

use crate::input::{FlowIdentity, JobId};
use crate::input_digest::ComparedInputs;

/// Decisions on one job.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedJob {
    /// Unique name of the job.
    pub id: JobId,
    /// The number that stands for the job in switch tables: above zero, kept over plans for as long
    /// as the job lives.
    pub number: u32,
    /// `I_j` in FLOP/s, on the chosen paths (Crux Eq. 2).
    pub intensity: f64,
    /// `t_j` in seconds, on the chosen paths.
    pub bottleneck_seconds: f64,
    /// Correction factor `k_j` (Crux §4.2).
    pub correction: f64,
    /// `P_j` after fairness and policy (Crux Eq. 3).
    pub priority: f64,
    /// Place in the order of priority; 1 is first.
    pub rank: u32,
    /// Level after compression, `0..levels`; the highest is served first.
    pub level: u8,
    /// When it begins its iterations, if that is decided.
    pub start_shift: Option<StartShift>,
    /// Whether switches spread its packets over all equal-cost paths: its flows have no path of
    /// their own.
    pub sprayed: bool,
}

/// When a job begins its iterations: at `seconds + k * period_seconds` from an instant that the
/// jobs of its contention group have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartShift {
    /// Its slot, `0..period_seconds`.
    pub seconds: f64,
    /// Between two iterations.
    pub period_seconds: f64,
    /// A job that is early waits for its slot, and in an iteration for so long at most.
    pub most_wait_seconds: f64,
}

/// Share of the period that a job waits in an iteration, beside what it has left in every one: so
/// much drift is taken back.
pub(crate) const MOST_CORRECTED: f64 = 0.02;

impl StartShift {
    /// The grid that the job keeps.
    pub fn to_grid(self) -> JobGrid {
        let Self { seconds: origin, period_seconds: period, most_wait_seconds: most } = self;
        JobGrid { origin, period, rule: GridRule::Wait { most } }
    }
}

/// Decisions on one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFlow {
    /// Position of its job in [`Plan::jobs`].
    pub job: usize,
    /// NIC that sends the flow.
    pub src: NicId,
    /// NIC that receives the flow.
    pub dst: NicId,
    /// UDP source port of the flow; none where only its NICs are known.
    pub udp_src_port: Option<u16>,
    /// The links it takes, from the sending NIC to the receiving one. Empty where its job is
    /// sprayed, and where no path exists; the report then has a finding.
    pub links: LinkPath,
    /// Whether switches get an entry for its path. `false`: left to ECMP (no choice, no path, or
    /// over the budget of pins).
    pub pinned: bool,
}

impl PlannedFlow {
    /// How the plan knows the flow.
    pub fn identity(&self) -> FlowIdentity {
        self.udp_src_port.map_or(FlowIdentity::Pair, |_| FlowIdentity::Announced)
    }

    /// The flow in words: `h1>h3:50000`, or `h1>h3` without a port. Where a NIC has two ports,
    /// `h1(leaf1:4)` is the one that is meant.
    pub fn name_in(&self, fabric: &Fabric) -> String {
        let [src, dst] = [self.src, self.dst].map(|port| {
            let nic = fabric.nic(port);
            let host = &fabric.host(nic.host).name;
            match nic.bond {
                Some(_) => format!("{host}({})", fabric.endpoint_name(fabric.link(nic.uplink).to)),
                None => host.clone(),
            }
        });
        match self.udp_src_port {
            Some(port) => format!("{src}>{dst}:{port}"),
            None => format!("{src}>{dst}"),
        }
    }
}

/// Flows of a job that it has not announced: those that match and are not in [`Plan::flows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRule {
    /// Position of their job in [`Plan::jobs`].
    pub job: usize,
    /// NICs that send them, ascending; empty: any.
    pub senders: Vec<NicId>,
    /// NICs that receive them, ascending; empty: any.
    pub receivers: Vec<NicId>,
    /// The sender's TCP or UDP port, if it matters.
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port, if it matters.
    pub dport: Option<u16>,
}

impl PlannedRule {
    /// Whether it gives its job what is sent from one NIC to another between these ports.
    pub fn adopts(&self, [src, dst]: [NicId; 2], sport: u16, dport: u16) -> bool {
        let names = |nics: &[NicId], nic| nics.is_empty() || nics.binary_search(&nic).is_ok();
        names(&self.senders, src)
            && names(&self.receivers, dst)
            && self.sport.is_none_or(|port| port == sport)
            && self.dport.is_none_or(|port| port == dport)
    }
}

/// Every decision for one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rises by one with every plan that differs from the one before it.
    pub generation: u64,
    /// Levels of the switches (`K`).
    pub levels: u8,
    /// Jobs in the order of their ids.
    pub jobs: Vec<PlannedJob>,
    /// Flows by job, then in the order of the job's flows.
    pub flows: Vec<PlannedFlow>,
    /// Jobs of all other flows; the first rule that matches counts, and these flows have no paths.
    pub rules: Vec<PlannedRule>,
    /// The inputs for which it was compared with its alternatives.
    pub compared_inputs: ComparedInputs,
    /// Pairs of NICs whose flows of no job are counted, ascending. Observed and not decided: empty
    /// but in what is lowered ([`with_learned_flows`](crate::with_learned_flows)).
    pub counted_pairs: Vec<(NicId, NicId)>,
}

impl Plan {
    /// The plan as the successor of `previous`: unchanged where nothing differs, else of the
    /// next generation. The first plan has generation 1.
    pub(crate) fn succeeding(mut self, previous: Option<&Self>) -> Self {
        self.generation = previous.map_or(1, |plan| plan.generation);
        if previous.is_some_and(|plan| *plan != self) {
            self.generation += 1;
        }
        self
    }

    /// The decisions on the job of that name, with its position.
    pub fn job(&self, id: &JobId) -> Option<(usize, &PlannedJob)> {
        let position = self.jobs.binary_search_by(|job| job.id.cmp(id)).ok()?;
        Some((position, &self.jobs[position]))
    }

    /// The flows of the job at a position in [`Plan::jobs`].
    pub fn flows_of(&self, job: usize) -> impl Iterator<Item = &PlannedFlow> {
        self.flows.iter().filter(move |flow| flow.job == job)
    }
}
