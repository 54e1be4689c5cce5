//! Totals of a run: for each job, and for each level on each link. Everything counts up to the
//! present, unfinished iterations and flows included.

/// Totals of one job between its start and the present.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct JobTally {
    /// Number of iterations that ended.
    pub iterations: u64,
    /// Sum of their durations, seconds.
    pub iteration_seconds: f64,
    /// Time during which it computed, the iteration under way included, seconds.
    pub busy_seconds: f64,
    /// Bytes sent, all flows together.
    pub bytes: f64,
    /// Time that its iterations waited for their grid, seconds.
    pub waited_seconds: f64,
    /// Time since its start, until the end of its last iteration if those are counted, seconds.
    pub present_seconds: f64,
}

impl JobTally {
    /// Mean duration of an iteration, seconds; `None` before the first has ended.
    #[must_use]
    pub fn mean_iteration_seconds(&self) -> Option<f64> {
        (self.iterations > 0).then(|| self.iteration_seconds / self.iterations as f64)
    }

    /// The part of its presence during which it computed, 0 to 1; 0 before its start.
    #[must_use]
    pub fn busy_fraction(&self) -> f64 {
        if self.present_seconds > 0.0 { self.busy_seconds / self.present_seconds } else { 0.0 }
    }
}

/// Totals of one level on one link.
///
/// "Busy" has two meanings: `bytes / capacity` are the seconds of the whole link that the level
/// took (shares of the levels add up to at most 1); `in_use_seconds` is the time during which it
/// sent anything at all (shares of levels may overlap).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkLevelTally {
    /// The level of the flows.
    pub level: u32,
    /// Bytes carried by all flows of the level.
    pub bytes: f64,
    /// Time during which the level sent at any rate above zero, seconds.
    pub in_use_seconds: f64,
}

/// All tallies at one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunTallies {
    /// The instant of the totals, seconds.
    pub seconds: f64,
    /// Per job, by index; places without a job are zero.
    pub jobs: Vec<JobTally>,
    /// Per link, by index, the levels that ever had a flow there, highest first.
    pub links: Vec<Vec<LinkLevelTally>>,
}

/// Work of the engine so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkCounters {
    /// Instants at which flows started, ended or were changed, so that rates were computed.
    pub events: u64,
    /// Groups of equal flows whose rate was computed, each time that it was, attempts included.
    pub groups_computed: u64,
}
