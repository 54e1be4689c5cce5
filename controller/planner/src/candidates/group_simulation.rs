//! One simulation of a contention group: for how long, from which start, and in which model.

use std::collections::BTreeMap;

use topology::LinkId;

use crate::search::contention_group::ContentionGroup;
use crate::search::group_run::{GroupRun, MeasureWindow};
use crate::search::stepped_run::SteppedRun;
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// Starts from which a group is simulated, and a group of a large region.
const SAMPLES: u32 = 4;
const STEPPED_SAMPLES: u32 = 2;

/// Iterations of the slowest job that are simulated at most and at least,
const MAX_ITERATIONS: f64 = 20.0;
const MIN_ITERATIONS: f64 = 4.0;

/// and between them as many as cost so many events, by estimate, for all jobs of a region.
const SIMULATION_COST: f64 = 24_000.0;

/// A region whose fewest iterations cost more than that by this factor is simulated in steps.
const MAX_EXCESS: f64 = 2.0;

/// Steps of a simulation at most, and of a coarse one; fewer where so many flows make them more
/// expensive than so many rates.
const FINE_STEPS: f64 = 500.0;
const COARSE_STEPS: f64 = 200.0;
const MAX_STEPPED_RATES: f64 = 4e6;

/// Nothing shorter is simulated: some of the shortest iterations of the fluid model.
const MIN_SECONDS: f64 = 1e-4;

/// Part of the simulated time that passes before anything counts.
const SETTLING_SHARE: f64 = 0.2;

/// Flows of a region for which an event costs another one in rates.
const FLOWS_PER_EVENT_COST: f64 = 16.0;

/// Rates in steps that cost as much as an event of the exact model.
const STEPPED_RATES_PER_EVENT: u64 = 12;

/// When the members of a group start, and how finely that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StartSample {
    /// One of the starts whose mean counts, by number; in the first all start at once.
    Fine(u32),
    /// The first start in fewer steps, to tell cheaply which proposals of a search are not worth
    /// more.
    Coarse,
}

impl StartSample {
    /// That of reports.
    pub(super) const FIRST: Self = Self::Fine(0);

    /// Which of the starts it is.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Fine(number) => number,
            Self::Coarse => 0,
        }
    }
}

/// What became of a job in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MemberOutcome {
    /// Share of time that it computed.
    pub(super) busy: f64,
    /// The longest that a flow of it waited for service, seconds.
    pub(super) wait: f64,
    /// Whether only steps tell that, which they do roughly.
    pub(super) is_wait_rough: bool,
}

/// How a region is simulated. It depends on the jobs alone, so that values are comparable whatever
/// the paths, levels and budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedHorizon {
    pub(super) window: MeasureWindow,
    pub(super) model: EvaluationModel,
    /// Steps of a simulation in steps at most.
    pub(super) most_steps: f64,
    /// Events of a simulation event by event, with their rates.
    pub(super) estimated_cost: f64,
    /// First start, and how many.
    pub(super) starts: (u32, u32),
}

/// How a contention group is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvaluationModel {
    /// In the fluid model, event by event.
    Events,
    /// In steps of equal length, an approximation for large groups.
    Steps,
}

impl SimulatedHorizon {
    /// Some iterations of the slowest job, or fewer where many flows or much faster jobs make them
    /// expensive; if even the fewest are too expensive, those in steps.
    pub(super) fn of_region(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Self {
        let iterations = contended_iterations(traffic, jobs);
        let slowest = iterations.iter().copied().fold(0.0, f64::max);
        let flow_counts = jobs.iter().map(|job| traffic.spans[*job].len() as f64);
        // A phase of computation, and each flow begins and ends.
        let per_second: f64 = iterations
            .iter()
            .zip(flow_counts.clone())
            .filter(|(seconds, _)| **seconds > 0.0)
            .map(|(seconds, flows)| (2.0 + flows) / seconds)
            .sum();
        let flows: f64 = flow_counts.sum();
        let event_cost = 1.0 + flows / FLOWS_PER_EVENT_COST;
        let affordable = SIMULATION_COST / (per_second * event_cost);
        let [fewest, most] = [MIN_ITERATIONS, MAX_ITERATIONS].map(|count| count * slowest);
        let seconds = affordable.clamp(fewest, most).max(MIN_SECONDS);
        let model = match affordable * MAX_EXCESS < fewest {
            true => EvaluationModel::Steps,
            false => EvaluationModel::Events,
        };
        Self {
            window: MeasureWindow { from: SETTLING_SHARE * seconds, until: seconds },
            model,
            most_steps: (MAX_STEPPED_RATES / flows).min(FINE_STEPS),
            estimated_cost: seconds * per_second * event_cost,
            starts: match model {
                EvaluationModel::Events => (0, SAMPLES),
                EvaluationModel::Steps => (0, STEPPED_SAMPLES),
            },
        }
    }

    /// The samples of starts whose mean counts.
    pub(super) fn samples(&self) -> impl ExactSizeIterator<Item = StartSample> + Clone + use<> {
        let (first, count) = self.starts;
        (first..first + count).map(StartSample::Fine)
    }

    /// What is simulated for a sample: nothing is coarser where a region is simulated by events.
    pub(super) fn simulated_sample(&self, sample: StartSample) -> StartSample {
        match self.model {
            EvaluationModel::Events => StartSample::Fine(sample.number()),
            EvaluationModel::Steps => sample,
        }
    }
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

/// A simulation of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupSimulation<'g> {
    pub(super) group: &'g ContentionGroup,
    /// By member.
    pub(super) levels: &'g [u8],
    pub(super) horizon: SimulatedHorizon,
    /// The longest wait that is followed, seconds.
    pub(super) wait_limit: f64,
}

/// What came of a simulation.
#[derive(Debug)]
pub(super) struct SimulatedGroup {
    /// By member; none if the model rejects a job, or the simulation costs too much.
    pub(super) outcomes: Option<Vec<MemberOutcome>>,
    /// In events.
    pub(super) cost: u64,
}

impl GroupSimulation<'_> {
    /// The simulation in the model of the region, members beginning at `starts`, those of `sample`.
    pub(super) fn run(self, starts: &[f64], sample: StartSample) -> SimulatedGroup {
        let SimulatedHorizon { model, most_steps, .. } = self.horizon;
        match (model, sample) {
            (EvaluationModel::Events, _) => self.run_events(starts, u64::MAX),
            (EvaluationModel::Steps, StartSample::Fine(_)) => self.run_steps(starts, most_steps),
            (EvaluationModel::Steps, StartSample::Coarse) => {
                self.run_steps(starts, most_steps.min(COARSE_STEPS))
            }
        }
    }

    fn run_steps(self, starts: &[f64], most_steps: f64) -> SimulatedGroup {
        let mut run = SteppedRun::new(self.group, starts, self.horizon.window, most_steps);
        let busy = run.busy_shares(self.levels);
        let is_wait_rough = !self.is_one_level();
        let waits = if is_wait_rough { run.longest_waits() } else { vec![0.0; busy.len()] };
        SimulatedGroup {
            outcomes: Some(join_outcomes(busy, waits, is_wait_rough)),
            cost: run.rates_computed() / STEPPED_RATES_PER_EVENT,
        }
    }

    /// The simulation event by event, of at most so many events. What the fluid model rejects has
    /// no value: the caller keeps what it has.
    pub(super) fn run_events(self, starts: &[f64], most: u64) -> SimulatedGroup {
        let Ok(mut run) = GroupRun::new(self.group, starts) else {
            return SimulatedGroup { outcomes: None, cost: 0 };
        };
        let busy = run.busy_shares(self.levels, self.horizon.window, most).ok().flatten();
        let waits = busy.as_ref().and_then(|_| run.longest_waits(self.wait_limit).ok());
        SimulatedGroup {
            outcomes: busy.zip(waits).map(|(busy, waits)| join_outcomes(busy, waits, false)),
            cost: run.event_cost(),
        }
    }

    /// Whether all flows share every link, so that none waits.
    pub(super) fn is_one_level(self) -> bool {
        self.levels.iter().all(|level| *level == self.levels[0])
    }
}

fn join_outcomes(busy: Vec<f64>, waits: Vec<f64>, is_wait_rough: bool) -> Vec<MemberOutcome> {
    let members = busy.into_iter().zip(waits);
    members.map(|(busy, wait)| MemberOutcome { busy, wait, is_wait_rough }).collect()
}
