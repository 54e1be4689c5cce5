//! For how long, and from which starts, the jobs of a region are simulated.

use std::collections::{BTreeMap, BTreeSet};

use topology::LinkId;

use super::group_run::MeasureWindow;
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// The start of reports: all jobs at once.
pub(super) const FIRST_START: u32 = 0;

/// The first start for a part of the time: enough to tell which steps of a search are worth more.
pub(super) const COARSE_START: u32 = u32::MAX;

/// That part.
const COARSE_SHARE: f64 = 0.5;

/// Starts from which a group is simulated at most, and fewer where one costs more: in a region of
/// hundreds of jobs the phases of single ones matter little.
const MAX_SAMPLES: f64 = 4.0;
const SAMPLES_COST: f64 = 64_000.0;

/// How long decisions are simulated to compare them,
const JUDGED: RunLength = RunLength {
    iterations: [5.0, 20.0],
    cost: 16_000.0,
    wanted_iterations: 10.0,
    wanted_cost: 48_000.0,
};

/// and to forecast what comes of one, from each start: jobs of nearly equal periods drift past each
/// other, and find phases that last only after tens of iterations. With 40 iterations forecasts of
/// nine jobs were off by up to 13 %.
const FORECAST: RunLength = RunLength {
    iterations: [10.0, 400.0],
    cost: 32_000.0,
    wanted_iterations: 120.0,
    wanted_cost: 128_000.0,
};

/// As many starts as cost so many events together, or some where they cost no more than that; two at
/// least. Different starts find different phases that last.
const FORECAST_STARTS_COST: f64 = 256_000.0;
const WANTED_STARTS: f64 = 3.0;
const WANTED_STARTS_COST: f64 = 384_000.0;

/// Ends of flows in an iteration that are told apart at most, as a run merges what is near.
const MAX_ENDS: f64 = 30.0;

/// Nothing shorter is simulated: some of the shortest iterations of the fluid model.
const MIN_SECONDS: f64 = 1e-4;

/// Part of the simulated time that passes before anything counts, where decisions are compared and
/// in a forecast.
const SETTLING_SHARE: f64 = 0.2;
const FORECAST_SETTLING_SHARE: f64 = 0.3;

/// Kinds of flows of a region for which an event costs another one in rates.
const KINDS_PER_EVENT_COST: f64 = 8.0;

/// How a region is simulated. It depends on the jobs alone, so that values are comparable whatever
/// the paths, levels and budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedHorizon {
    pub(super) window: MeasureWindow,
    /// Of a coarse simulation.
    pub(super) coarse_window: MeasureWindow,
    /// Events of a simulation with their rates, by estimate.
    pub(super) estimated_cost: f64,
    /// First start, and how many.
    pub(super) starts: (u32, u32),
}

impl SimulatedHorizon {
    /// Some iterations of the slowest job, or fewer where many flows or much faster jobs make them
    /// expensive.
    pub(super) fn of_region(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Self {
        let pace = RunPace::new(traffic, jobs);
        let seconds = pace.seconds_of(&JUDGED);
        let estimated_cost = seconds * pace.cost_per_second;
        // Small regions get more starts for the same cost, and there phases matter most.
        let samples = (SAMPLES_COST / estimated_cost).round().clamp(1.0, MAX_SAMPLES);
        Self {
            window: window_until(seconds),
            coarse_window: window_until(COARSE_SHARE * seconds),
            estimated_cost,
            starts: (FIRST_START, samples as u32),
        }
    }

    /// What is simulated of a contention group for a forecast: for how long from each start, so many
    /// `times` as long as usual, and from how many starts at most.
    pub(super) fn of_forecast(
        traffic: &IndexedTraffic<'_>,
        jobs: &[usize],
        times: f64,
    ) -> (MeasureWindow, usize) {
        let pace = RunPace::new(traffic, jobs);
        let seconds = pace.seconds_of(&FORECAST);
        let affordable = |cost: f64| cost / (seconds * pace.cost_per_second);
        let wanted = affordable(WANTED_STARTS_COST).min(WANTED_STARTS);
        let starts = affordable(FORECAST_STARTS_COST).max(wanted).max(2.0);
        let until = times * seconds;
        (MeasureWindow { from: FORECAST_SETTLING_SHARE * until, until }, starts as usize)
    }

    /// The time that is simulated from a start.
    pub(super) fn window_of(&self, sample: u32) -> MeasureWindow {
        if sample == COARSE_START { self.coarse_window } else { self.window }
    }

    /// Events of the simulations of one mean over all starts, by estimate.
    pub(super) fn cost_of_mean(&self) -> f64 {
        self.estimated_cost * f64::from(self.starts.1)
    }

    /// The starts whose mean counts.
    pub(super) fn samples(&self) -> std::ops::Range<u32> {
        let (first, count) = self.starts;
        first..first + count
    }
}

fn window_until(until: f64) -> MeasureWindow {
    MeasureWindow { from: SETTLING_SHARE * until, until }
}

/// How long some jobs are simulated from a start.
struct RunLength {
    /// Iterations of the slowest job, at least and at most,
    iterations: [f64; 2],
    /// and between them as many as cost so many events, by estimate,
    cost: f64,
    /// or so many if they cost no more than that.
    wanted_iterations: f64,
    wanted_cost: f64,
}

/// How expensive it is to simulate some jobs.
struct RunPace {
    /// Seconds of the longest iteration.
    slowest: f64,
    /// Events with their rates for each simulated second, by estimate.
    cost_per_second: f64,
}

impl RunPace {
    fn new(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Self {
        let iterations = contended_iterations(traffic, jobs);
        let kinds: Vec<f64> = jobs.iter().map(|job| kinds_of_flows(traffic, *job)).collect();
        let starts = jobs.iter().map(|job| traffic.jobs[*job].flow_starts().len().max(1) as f64);
        // A phase of computation, and flows begin and end.
        let per_second: f64 = iterations
            .iter()
            .zip(&kinds)
            .zip(starts)
            .filter(|((seconds, _), _)| **seconds > 0.0)
            .map(|((seconds, kinds), starts)| (1.0 + starts + kinds.min(MAX_ENDS)) / seconds)
            .sum();
        // An event computes the rates of the flows that it reaches, a part of all.
        let event_cost = 1.0 + kinds.iter().sum::<f64>() / KINDS_PER_EVENT_COST;
        Self {
            slowest: iterations.iter().copied().fold(0.0, f64::max),
            cost_per_second: per_second * event_cost,
        }
    }

    /// The seconds of a run of this length.
    fn seconds_of(&self, length: &RunLength) -> f64 {
        let [fewest, most] = length.iterations.map(|count| count * self.slowest);
        let wanted = length.wanted_iterations * self.slowest;
        let affordable = |cost: f64| cost / self.cost_per_second;
        let seconds = affordable(length.cost).max(wanted.min(affordable(length.wanted_cost)));
        // The clamp is last: no budget makes a run too short to have iterations.
        seconds.clamp(fewest, most).max(MIN_SECONDS)
    }
}

/// Flows of a job that may differ in their rates: by the leaves that they join, by bytes and by start.
fn kinds_of_flows(traffic: &IndexedTraffic<'_>, job: usize) -> f64 {
    let flows = traffic.flows[traffic.spans[job].clone()].iter();
    let start = |flow: &RoutableFlow<'_>| flow.flow.overlap_from.map(f64::to_bits);
    let kinds: BTreeSet<(usize, u64, Option<u64>)> =
        flows.map(|flow| (flow.pair, flow.flow.bytes.to_bits(), start(flow))).collect();
    kinds.len() as f64
}

/// Seconds of an iteration of each job where its NICs are shared fairly: as if alone, times the
/// share of time that all jobs together would keep the busiest of them busy.
fn contended_iterations(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Vec<f64> {
    let alone = |job: usize| traffic.routes[job].demand.iteration_seconds;
    let flows_of = |job: usize| traffic.flows[traffic.spans[job].clone()].iter();
    let host_links = |flow: &RoutableFlow<'_>| {
        [flow.up, flow.down].into_iter().chain(flow.flow.intra_host_links(traffic.fabric))
    };
    let mut loads: BTreeMap<LinkId, f64> = BTreeMap::new();
    for job in jobs.iter().copied().filter(|job| alone(*job) > 0.0) {
        for flow in flows_of(job) {
            for link in host_links(flow) {
                let seconds = flow.flow.bytes / traffic.tables.link_capacity(link);
                *loads.entry(link).or_default() += seconds / alone(job);
            }
        }
    }
    let load = |link: &LinkId| loads.get(link).copied().unwrap_or(0.0);
    let busiest =
        |job: usize| flows_of(job).flat_map(host_links).map(|link| load(&link)).fold(1.0, f64::max);
    jobs.iter().map(|job| alone(*job) * busiest(*job)).collect()
}
