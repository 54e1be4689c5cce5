//! The communication model of SJF-BCO (`MobiHoc` 2022 §4): how long an iteration is, given how
//! many servers a ring spans and how many rings it contends with.

use super::RingJob;

/// Progress in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotProgress {
    /// Whole iterations, as in the paper; none if one takes longer than a slot.
    Whole,
    /// Parts of iterations too.
    Fractional,
}

/// The constants of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommunicationModel {
    /// `b_ext`: bandwidth between servers.
    pub external: f64,
    /// `b_int`: bandwidth within a server.
    pub internal: f64,
    /// `C`: rate at which a worker reduces gradients.
    pub reduction: f64,
    /// `xi_1`: how much of the counted contention is felt.
    pub contention: f64,
    /// `xi_2`: overhead for each server that a ring spans, in slots.
    pub overhead: f64,
    /// `a`: how much worse than fair sharing contention is.
    pub degradation: f64,
    /// What counts as progress.
    pub progress: SlotProgress,
}

/// How a job lies in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpan {
    /// Servers with a worker of it.
    pub servers: u32,
    /// `p_j`: rings that leave its busiest server, itself counted; 0 on one server.
    pub contention: u32,
}

impl CommunicationModel {
    /// `f(a, k) = k + a(k - 1)`: by how much `k` rings slow one another.
    pub fn contention_slowdown(&self, rings: f64) -> f64 {
        rings + self.degradation * (rings - 1.0)
    }

    /// `tau_j`: slots of one iteration.
    pub fn iteration_slots(&self, job: &RingJob, span: RingSpan) -> f64 {
        let workers = f64::from(job.gpus);
        let share = job.gradient / workers;
        let bandwidth = if span.servers <= 1 {
            self.internal
        } else {
            let rings = (self.contention * f64::from(span.contention)).max(1.0);
            self.external / self.contention_slowdown(rings)
        };
        share * 2.0 * (workers - 1.0) / bandwidth
            + share * (workers - 1.0) / self.reduction
            + self.overhead * f64::from(span.servers)
            + job.forward * job.batch
            + job.backward
    }

    /// `phi_j`: iterations in one slot.
    pub fn iterations_per_slot(&self, job: &RingJob, span: RingSpan) -> f64 {
        let rate = 1.0 / self.iteration_slots(job, span);
        match self.progress {
            SlotProgress::Whole => rate.floor(),
            SlotProgress::Fractional => rate,
        }
    }

    /// `rho_j`: slots that the job takes alone on one server, the least it can take.
    pub fn estimate_slots(&self, job: &RingJob) -> f64 {
        let alone = RingSpan { servers: 1, contention: 0 };
        (job.iterations as f64 / self.iterations_per_slot(job, alone)).ceil()
    }

    /// The longest iteration in a cluster whose servers have at most `most_gpus`: spread as far as
    /// it goes, with a ring leaving from every GPU of its server.
    pub fn worst_iteration(&self, job: &RingJob, most_gpus: u32) -> f64 {
        let span = RingSpan { servers: job.gpus, contention: most_gpus };
        self.iteration_slots(job, span)
    }
}
