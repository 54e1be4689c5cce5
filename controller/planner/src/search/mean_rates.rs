//! Mean rates: what decisions are worth in the long run, as a fixed point of averages.
//!
//! A run of hundreds of jobs costs milliseconds even in steps, so a search over their paths and
//! levels cannot afford many. Here every job has one number, the seconds of its iterations, and
//! jobs know of each other only what a link carries in the mean: a flow gets, on each link, what
//! higher levels leave, divided by the flows of its level that send at the same time in the mean,
//! or what these do not use, if that is more. The slowest flow makes the iteration, and the
//! iteration makes the mean rates, until nothing changes.
//!
//! Averages know nothing of phases. So the model is calibrated: a run gives the seconds of each
//! job's iterations for some decisions, and each job's communication is stretched until the model
//! has the same. From there it judges changes (`change`), and a search that goes far calibrates it
//! again.

mod change;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use topology::LinkId;

pub(super) use self::change::DecisionChange;
use self::change::UndoLog;
use super::contention_group::LinkService;
use super::guided_search::SimulatedJobs;
use super::search_space::{SearchPosition, SearchSpace};

/// Sweeps over all jobs in a calibration.
const SWEEPS: usize = 12;

/// How much shorter or longer than the averages say a job's communication can be.
const STRETCHES: Range<f64> = 0.2..20.0;

/// The least share of a link that is left to a level, however busy the higher ones keep it.
const LEAST_LEFT: f64 = 1e-3;

/// Price of an iteration that is twice as long as wanted, in the worth of its job.
const SHORTFALL_PRICE: f64 = 1.0;

/// The largest shortfall that is told apart.
const MAX_SHORTFALL: f64 = 20.0;

/// No iteration is shorter, seconds.
const MIN_SECONDS: f64 = 1e-9;

/// Nor longer: a job that gets nothing still has an iteration.
const MAX_SECONDS: f64 = 1e9;

/// Decisions with the mean rates that come of them.
#[derive(Clone, Debug)]
pub(super) struct MeanRates {
    level_count: usize,
    links: Vec<LinkService>,
    /// Bytes per second in the mean, by link and level.
    used: Vec<f64>,
    /// Flows that send in the mean, by link and level.
    sending: Vec<f64>,
    /// The jobs on each link, with the number of their flows there.
    jobs_on: Vec<Vec<(u32, u32)>>,
    jobs: Vec<MeanJob>,
    flows: Vec<MeanFlow>,
    /// Links of all paths.
    hops: Vec<u32>,
    /// Where each path is in `hops`.
    paths: Vec<Range<usize>>,
    /// Flows on each link of the job that is being computed; 0 otherwise.
    own: Vec<f64>,
    /// What each link gives to a flow of that job, where `pass` is the present one.
    rates: Vec<LinkRate>,
    pass: u32,
    queue: VecDeque<u32>,
    is_queued: Vec<bool>,
    undo: UndoLog,
    score: f64,
    visits: u64,
}

/// Bytes per second that a link gives to a flow, kept for a pass: flows of one job share links.
#[derive(Clone, Copy, Debug, Default)]
struct LinkRate {
    pass: u32,
    rate: f64,
}

#[derive(Clone, Debug)]
struct MeanJob {
    compute: f64,
    flow_start: f64,
    worth: f64,
    /// Seconds of an iteration that it is wanted not to exceed.
    longest: f64,
    level: u8,
    flows: Range<usize>,
    /// Seconds of an iteration.
    seconds: f64,
    /// Seconds of communication for each one that the averages say.
    stretch: f64,
}

#[derive(Clone, Debug)]
struct MeanFlow {
    bytes: f64,
    /// Its options among all paths, and the one taken.
    options: Range<usize>,
    path: usize,
    /// Seconds that it sends in an iteration.
    sending: f64,
}

/// A flow with several paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowChoice {
    pub(super) job: usize,
    /// Its number in the model.
    pub(super) flow: usize,
    pub(super) options: usize,
}

impl MeanJob {
    /// What it adds to the score.
    fn score(&self) -> f64 {
        let busy = if self.seconds > 0.0 { self.compute / self.seconds } else { 1.0 };
        let shortfall = (self.seconds / self.longest - 1.0).clamp(0.0, MAX_SHORTFALL);
        self.worth * (busy - SHORTFALL_PRICE * shortfall)
    }

    /// Its communication if its iterations take so many seconds and the averages say `mean`.
    fn communication(&self, seconds: f64, mean: f64) -> f64 {
        let room = (self.compute - self.flow_start).max(0.0);
        let since_start = seconds - self.flow_start;
        if since_start > room * (1.0 + 1e-9) { since_start } else { mean.min(room) }
    }
}

impl MeanRates {
    /// The model of `position`, in which iterations take as long as simulations say.
    pub(super) fn new(
        space: &SearchSpace<'_>,
        position: &SearchPosition,
        SimulatedJobs { seconds, longest }: SimulatedJobs<'_>,
    ) -> Self {
        let level_count = space.jobs.iter().map(|job| usize::from(*job.levels.end()) + 1).max();
        let mut rates = Self {
            level_count: level_count.unwrap_or(1),
            links: Vec::new(),
            used: Vec::new(),
            sending: Vec::new(),
            jobs_on: Vec::new(),
            jobs: Vec::new(),
            flows: Vec::new(),
            hops: Vec::new(),
            paths: Vec::new(),
            own: Vec::new(),
            rates: Vec::new(),
            pass: 0,
            queue: VecDeque::new(),
            is_queued: vec![false; space.jobs.len()],
            undo: UndoLog::new(space.jobs.len()),
            score: 0.0,
            visits: 0,
        };
        let mut numbers = BTreeMap::new();
        for (job, of) in space.jobs.iter().enumerate() {
            let first = rates.flows.len();
            rates.add_flows(space, job, &mut numbers);
            rates.jobs.push(MeanJob {
                compute: of.compute_seconds,
                flow_start: of.overlap_from * of.compute_seconds,
                worth: of.worth,
                longest: longest[job],
                level: 0,
                flows: first..rates.flows.len(),
                seconds: seconds[job],
                stretch: 1.0,
            });
        }
        let cells = rates.links.len() * rates.level_count;
        rates.used = vec![0.0; cells];
        rates.sending = vec![0.0; cells];
        rates.own = vec![0.0; rates.links.len()];
        rates.rates = vec![LinkRate::default(); rates.links.len()];
        rates.calibrate(space, position, seconds);
        rates
    }

    /// Adds the flows of a job that send something and have a path.
    fn add_flows(
        &mut self,
        space: &SearchSpace<'_>,
        job: usize,
        numbers: &mut BTreeMap<LinkId, u32>,
    ) {
        let options = space.jobs[job].flows.iter().zip(&space.paths[job]);
        for (flow, options) in options.filter(|(flow, options)| is_modelled(flow.bytes, options)) {
            let first = self.paths.len();
            for path in options {
                let from = self.hops.len();
                for link in path {
                    let number = *numbers.entry(*link).or_insert_with(|| {
                        self.links.push(LinkService::of_link(space.fabric, *link));
                        self.links.len() as u32 - 1
                    });
                    self.hops.push(number);
                }
                self.paths.push(from..self.hops.len());
            }
            let options = first..self.paths.len();
            self.flows.push(MeanFlow { bytes: flow.bytes, options, path: first, sending: 0.0 });
        }
    }

    /// Takes other decisions and stretches the communication of jobs until their iterations take
    /// `seconds`.
    pub(super) fn calibrate(
        &mut self,
        space: &SearchSpace<'_>,
        position: &SearchPosition,
        seconds: &[f64],
    ) {
        self.take_position(space, position);
        self.used.fill(0.0);
        self.sending.fill(0.0);
        for (job, seconds) in seconds.iter().enumerate() {
            let of = &mut self.jobs[job];
            (of.seconds, of.stretch) = (seconds.clamp(MIN_SECONDS, MAX_SECONDS), 1.0);
            let sending = (of.seconds - of.flow_start).max(0.0);
            self.flows[of.flows.clone()].iter_mut().for_each(|flow| flow.sending = sending);
            self.change_sums(job, 1.0);
        }
        for _ in 0..SWEEPS {
            (0..self.jobs.len()).for_each(|job| self.stretch_job(job));
        }
        self.score = self.jobs.iter().map(MeanJob::score).sum();
        self.keep_change();
    }

    /// The levels and paths of `position`, and which jobs are on each link.
    fn take_position(&mut self, space: &SearchSpace<'_>, position: &SearchPosition) {
        let mut flows = self.flows.iter_mut();
        for (job, of) in space.jobs.iter().enumerate() {
            self.jobs[job].level = position.levels[job];
            let options = of.flows.iter().zip(&space.paths[job]).zip(&space.choice_of[job]);
            let modelled = options.filter(|((flow, options), _)| is_modelled(flow.bytes, options));
            for ((_, choice), flow) in modelled.zip(flows.by_ref()) {
                let option = choice.map_or(0, |choice| position.options[choice]);
                flow.path = flow.options.start + option;
            }
        }
        self.jobs_on = vec![Vec::new(); self.links.len()];
        for (job, of) in (0_u32..).zip(&self.jobs) {
            for flow in &self.flows[of.flows.clone()] {
                for link in &self.hops[self.paths[flow.path].clone()] {
                    count_job(&mut self.jobs_on[*link as usize], job);
                }
            }
        }
    }

    /// The present paths and levels.
    pub(super) fn position(&self, space: &SearchSpace<'_>) -> SearchPosition {
        let mut options = vec![0; space.choices.len()];
        let mut flows = self.flows.iter();
        for (job, of) in space.jobs.iter().enumerate() {
            let all = of.flows.iter().zip(&space.paths[job]).zip(&space.choice_of[job]);
            let modelled = all.filter(|((flow, options), _)| is_modelled(flow.bytes, options));
            for ((_, choice), flow) in modelled.zip(flows.by_ref()) {
                if let Some(choice) = choice {
                    options[*choice] = flow.path - flow.options.start;
                }
            }
        }
        SearchPosition { options, levels: self.jobs.iter().map(|job| job.level).collect() }
    }

    /// Mean worth of the GPUs that compute, less the price of jobs that are too slow.
    pub(super) fn score(&self) -> f64 {
        self.score
    }

    /// Visits of links since the last call.
    pub(super) fn take_visits(&mut self) -> u64 {
        std::mem::take(&mut self.visits)
    }

    /// Seconds of communication of each job for each one that the averages say.
    pub(super) fn stretches(&self) -> Vec<f64> {
        self.jobs.iter().map(|job| job.stretch).collect()
    }

    /// Gives jobs other stretches and computes all of them anew.
    pub(super) fn stretch_jobs(&mut self, stretches: &[f64]) {
        for (job, stretch) in self.jobs.iter_mut().zip(stretches) {
            job.stretch = *stretch;
        }
        let jobs = self.jobs.len();
        for job in (0..SWEEPS).flat_map(|_| 0..jobs) {
            self.compute_job(job);
        }
        self.score = self.jobs.iter().map(MeanJob::score).sum();
        self.keep_change();
    }

    /// The level of a job, as an index into the levels that jobs may have.
    pub(super) fn level(&self, job: usize) -> u8 {
        self.jobs[job].level
    }

    /// The flows that have a choice.
    pub(super) fn choices(&self) -> Vec<FlowChoice> {
        let jobs = self.jobs.iter().enumerate();
        let flows = jobs.flat_map(|(job, of)| of.flows.clone().map(move |flow| (job, flow)));
        flows
            .map(|(job, flow)| FlowChoice { job, flow, options: self.flows[flow].options.len() })
            .filter(|choice| choice.options > 1)
            .collect()
    }

    /// The option that a flow has taken.
    pub(super) fn option_of(&self, flow: usize) -> usize {
        self.flows[flow].path - self.flows[flow].options.start
    }

    /// Adds the mean rates of a job to its links, or takes them away.
    fn change_sums(&mut self, job: usize, sign: f64) {
        let Self { jobs, flows, hops, paths, links, used, sending, level_count, .. } = self;
        let job = &jobs[job];
        let per_second = sign / job.seconds;
        for flow in &flows[job.flows.clone()] {
            for link in &hops[paths[flow.path].clone()] {
                let link = *link as usize;
                let level = if links[link].is_fifo { 0 } else { usize::from(job.level) };
                let cell = link * *level_count + level;
                used[cell] += flow.bytes * per_second;
                sending[cell] += flow.sending * per_second;
            }
        }
    }

    /// Seconds of the job's communication from what others send, without a stretch. Its own sums
    /// are to be taken away before.
    fn mean_communication(&mut self, job: usize) -> f64 {
        let (of, level) = (self.jobs[job].flows.clone(), usize::from(self.jobs[job].level));
        self.count_own_flows(job, 1.0);
        self.pass += 1;
        let mut longest: f64 = 0.0;
        for number in of {
            let hops = self.paths[self.flows[number].path].clone();
            let mut rate = f64::INFINITY;
            for hop in hops.clone() {
                rate = rate.min(self.known_link_rate(self.hops[hop] as usize, level));
            }
            let seconds = self.flows[number].bytes / rate;
            self.visits += hops.len() as u64;
            self.flows[number].sending = seconds;
            longest = longest.max(seconds);
        }
        self.count_own_flows(job, -1.0);
        longest
    }

    /// Counts the flows of the job that is being computed on their links.
    fn count_own_flows(&mut self, job: usize, sign: f64) {
        let Self { jobs, flows, hops, paths, own, .. } = self;
        for flow in &flows[jobs[job].flows.clone()] {
            hops[paths[flow.path].clone()].iter().for_each(|link| own[*link as usize] += sign);
        }
    }

    /// Bytes per second that a link gives to a flow of the present job, computed once in a pass.
    fn known_link_rate(&mut self, link: usize, level: usize) -> f64 {
        if self.rates[link].pass != self.pass {
            self.rates[link] = LinkRate { pass: self.pass, rate: self.link_rate(link, level) };
        }
        self.rates[link].rate
    }

    /// Bytes per second that a link gives to a flow of the present job on `level`.
    fn link_rate(&self, link: usize, level: usize) -> f64 {
        let cells = link * self.level_count..(link + 1) * self.level_count;
        let LinkService { capacity, is_fifo } = self.links[link];
        let level = if is_fifo { 0 } else { level };
        let above: f64 = self.used[cells.clone()][level + 1..].iter().sum();
        let left = (capacity - above).max(LEAST_LEFT * capacity);
        let cell = cells.start + level;
        let equal = left / (self.sending[cell].max(0.0) + self.own[link]);
        equal.max((left - self.used[cell]) / self.own[link])
    }

    /// Stretches the communication of a job as the seconds of its iterations ask.
    fn stretch_job(&mut self, job: usize) {
        self.change_sums(job, -1.0);
        let mean = self.mean_communication(job);
        let of = &mut self.jobs[job];
        let stretch = of.communication(of.seconds, mean) / mean.max(MIN_SECONDS);
        of.stretch = stretch.clamp(STRETCHES.start, STRETCHES.end);
        let stretch = of.stretch;
        self.flows[of.flows.clone()].iter_mut().for_each(|flow| flow.sending *= stretch);
        self.change_sums(job, 1.0);
    }

    /// Computes the iteration of a job from what others send; returns by what share it changed.
    fn compute_job(&mut self, job: usize) -> f64 {
        self.change_sums(job, -1.0);
        let mean = self.mean_communication(job);
        let of = &mut self.jobs[job];
        let (stretch, earlier) = (of.stretch, of.seconds);
        let communication = of.flow_start + stretch * mean;
        of.seconds = of.compute.max(communication).max(MIN_SECONDS);
        let change = (of.seconds - earlier).abs() / earlier;
        self.flows[of.flows.clone()].iter_mut().for_each(|flow| flow.sending *= stretch);
        self.change_sums(job, 1.0);
        change
    }
}

/// Counts one more flow of a job on a link.
fn count_job(jobs: &mut Vec<(u32, u32)>, job: u32) {
    match jobs.iter_mut().find(|(on, _)| *on == job) {
        Some((_, flows)) => *flows += 1,
        None => jobs.push((job, 1)),
    }
}

/// Whether a flow with these paths sends anything.
fn is_modelled(bytes: f64, options: &[Vec<LinkId>]) -> bool {
    bytes > 0.0 && !options.is_empty()
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;
    use crate::search::search_space::{SearchedFlow, SearchedJob};

    /// Two jobs that send from hosts of one leaf to hosts of another, over one of two spines.
    fn with_two_jobs(check: impl FnOnce(&SearchSpace<'_>)) {
        let spec = ClosSpec {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 2,
            host_gbps: 100.0,
            uplink_gbps: 50.0,
            ..ClosSpec::default()
        };
        let fabric = build_clos("test", &spec).unwrap();
        let host =
            |leaf: usize, number: usize| fabric.host(topology::HostId::from(2 * leaf + number));
        let [from, to] = [0, 1].map(|leaf| fabric.leaf_of(*host(leaf, 0).nics.first().unwrap()));
        let segments = topology::equal_cost_paths(&fabric, from, to);
        let segments: Vec<Vec<LinkId>> = segments.iter().map(|path| path.to_vec()).collect();
        let job = |number: usize| SearchedJob {
            compute_seconds: 1.0,
            overlap_from: 1.0,
            worth: 1.0,
            levels: 0..=7,
            flows: vec![SearchedFlow {
                bytes: 1e10,
                ends: (
                    vec![fabric.nic(host(0, number).nics[0]).uplink],
                    vec![fabric.nic(host(1, number).nics[0]).uplink.reverse()],
                ),
                segments: &segments,
            }],
        };
        check(&SearchSpace::new(&fabric, vec![job(0), job(1)]));
    }

    fn model_of(space: &SearchSpace<'_>, levels: [u8; 2], seconds: [f64; 2]) -> MeanRates {
        let position = SearchPosition { options: vec![0, 0], levels: levels.to_vec() };
        let jobs = SimulatedJobs { seconds: &seconds, longest: &[100.0; 2] };
        MeanRates::new(space, &position, jobs)
    }

    #[test]
    fn a_calibrated_model_has_the_simulated_seconds() {
        with_two_jobs(|space| {
            let mut model = model_of(space, [3, 3], [4.0, 3.0]);
            model.stretch_jobs(&model.stretches());
            for (job, seconds) in model.jobs.iter().zip([4.0, 3.0]) {
                assert!((job.seconds / seconds - 1.0).abs() < 0.05, "{job:?}");
            }
        });
    }

    #[test]
    fn a_higher_level_and_a_free_path_are_better_for_a_job() {
        with_two_jobs(|space| {
            let base = model_of(space, [3, 3], [3.0, 3.0]);
            let mut raised = base.clone();
            raised.apply_change(DecisionChange::Level { job: 0, level: 4 });
            assert!(raised.jobs[0].seconds < base.jobs[0].seconds);
            assert!(raised.jobs[1].seconds > base.jobs[1].seconds);
            let mut apart = base.clone();
            apart.apply_change(DecisionChange::Path { job: 0, flow: 0, option: 1 });
            assert!(apart.score() > base.score());
            assert_eq!(apart.position(space).options, [1, 0]);
        });
    }

    #[test]
    fn a_change_that_is_undone_leaves_nothing() {
        with_two_jobs(|space| {
            let base = model_of(space, [3, 5], [3.0, 2.5]);
            let mut model = base.clone();
            model.apply_change(DecisionChange::SwapLevels { jobs: [0, 1] });
            model.apply_change(DecisionChange::Path { job: 1, flow: 1, option: 1 });
            assert_ne!(model.position(space), base.position(space));
            model.undo_change();
            assert_eq!(model.position(space), base.position(space));
            assert_eq!(model.score().to_bits(), base.score().to_bits());
            let sums = |model: &MeanRates| [model.used.clone(), model.sending.clone()].concat();
            for (now, before) in sums(&model).iter().zip(sums(&base)) {
                assert!((now - before).abs() <= 1e-6 * before.abs().max(1.0), "{now} {before}");
            }
        });
    }
}
