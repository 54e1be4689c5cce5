//! Jobs of the fluid model: a duration of computation and the flows of an iteration.
//! They are validated here once; the engine relies on it.

use crate::clock::Ticks;
use crate::error::FluidError;
use crate::iteration_grid::JobGrid;

/// A job's place in the engine. Places of removed jobs are given to later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIndex(pub u32);

/// An iterative job: it computes, its flows start after their parts of the computation, the
/// iteration ends when computation and flows have ended, and the next begins at once.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidJob {
    /// Computation of one iteration, seconds.
    pub compute_seconds: f64,
    /// The part of the computation after which flows start that state no other, 0 to 1; 1 is no
    /// overlap.
    pub overlap_from: f64,
    /// Level of all its flows; the higher is served first.
    pub level: u32,
    /// When the first iteration begins, seconds; an instant that has passed means now.
    pub start: f64,
    /// The grid that its iterations keep, if they do; the first begins at `start` all the same.
    pub grid: Option<JobGrid>,
    /// How many iterations it runs; `None` is until it is removed.
    pub iterations: Option<u64>,
    /// Flows of every iteration.
    pub flows: Vec<FluidFlow>,
}

impl Default for FluidJob {
    /// One second of computation without flows, no overlap, lowest level, from 0 without end.
    fn default() -> Self {
        Self {
            compute_seconds: 1.0,
            overlap_from: 1.0,
            level: 0,
            start: 0.0,
            grid: None,
            iterations: None,
            flows: Vec::new(),
        }
    }
}

/// One flow of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidFlow {
    /// Indices of the links it passes, in order, each once.
    pub path: Vec<u32>,
    /// Bytes of one iteration; zero bytes take the latency of the path and nothing else.
    pub bytes: f64,
    /// The part of the computation after which it starts; that of its job if not given.
    pub overlap_from: Option<f64>,
}

impl FluidFlow {
    /// A flow that starts with its job's.
    pub fn new(path: Vec<u32>, bytes: f64) -> Self {
        Self { path, bytes, overlap_from: None }
    }
}

impl FluidJob {
    /// The part of the computation after which a flow of it starts.
    pub fn overlap_of(&self, flow: &FluidFlow) -> f64 {
        flow.overlap_from.unwrap_or(self.overlap_from)
    }

    /// Checks everything but the paths, which need the network.
    pub(crate) fn check_fields(&self, alpha: Ticks) -> Result<(), FluidError> {
        Ticks::checked_seconds("compute_seconds", self.compute_seconds)?;
        Ticks::checked_seconds("start", self.start)?;
        self.grid.map_or(Ok(()), |grid| grid.check_fields())?;
        let of_flows = self.flows.iter().map(|flow| self.overlap_of(flow));
        let mut overlaps = std::iter::once(self.overlap_from).chain(of_flows);
        // Negated, so that NaN is refused as well.
        if let Some(value) = overlaps.find(|value| !(0.0..=1.0).contains(value)) {
            return Err(FluidError::OverlapFrom { value });
        }
        for (flow, FluidFlow { bytes: value, .. }) in (0..).zip(&self.flows) {
            if !(value.is_finite() && *value >= 0.0) {
                return Err(FluidError::Bytes { flow, value: *value });
            }
        }
        let computes = Ticks::from_seconds(self.compute_seconds) > Ticks(0);
        let sends = self.flows.iter().any(|flow| flow.bytes > 0.0 || alpha > Ticks(0));
        match (computes || sends, self.iterations) {
            (false, _) | (_, Some(0)) => Err(FluidError::NothingToDo),
            _ => Ok(()),
        }
    }
}
