//! Search of a large region: the model of mean rates proposes, simulations dispose.
//!
//! Simulating a hundred jobs takes tens of milliseconds even in steps, too long to try single
//! changes. So changes are tried in [`MeanRates`], hundreds in the time of one simulation: another
//! path for a flow, another level for a job, the levels of two jobs exchanged. A proposal is what
//! came of some that the model found better. The caller simulates it, and the model learns from
//! the result, whatever it is: how much longer each job communicates than the averages say.
//!
//! If the proposal is better, the next one starts there and may make twice as many changes; if not,
//! it starts where this one did and may make half as many, so that a model that promises too much
//! is trusted less far (a trust region, as in optimisation with surrogate models). A proposal that
//! is worth more but leaves a job too slow is repaired first: the next one starts from it.
//!
//! Most proposals are not better. So the next one is drafted while one is simulated, as if it were
//! not; if it is, the draft is thrown away. What is drafted does not depend on which ends first.

use super::LcgSampler;
use super::mean_rates::{DecisionChange, FlowChoice, MeanRates};
use super::refinement::{RegionTask, SearchResult};
use crate::policy::{PathMethod, Policy};
use crate::traffic::IndexedTraffic;

/// Changes that the first proposal may make, and the bounds of later ones.
const FIRST_RADIUS: usize = 64;
const LEAST_RADIUS: usize = 16;
const MAX_RADIUS: usize = 1_024;

/// Changes that are tried for a proposal.
const TRIED_CHANGES: usize = 512;

/// A change is made if the model gains this share by it.
const LEAST_CHANGE: f64 = 1e-4;

/// Changes that are made whatever they cost where the model finds none that is better.
const BLIND_CHANGES: usize = 3;

/// Proposals in a row that start from one that left a job too slow.
const MAX_REPAIRS: u32 = 2;

/// Weight of the last simulation in what the model has learned, at least.
const LEAST_WEIGHT: f64 = 0.2;

/// Of 16 changes that are tried, those that give the slowest flow of a job the freest path,
const INFORMED_CHANGES: usize = 4;

/// these and those of any path, and those of one level; the others exchange two.
const PATH_CHANGES: usize = 8;
const LEVEL_CHANGES: usize = 5;

/// Visits of links by the model that cost as much as an event of the fluid model.
const VISITS_PER_EVENT: u64 = 400;

/// What simulations say of the jobs of a region, by position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedJobs<'a> {
    /// Seconds of an iteration.
    pub(crate) seconds: &'a [f64],
    /// Seconds that it is wanted not to exceed.
    pub(crate) longest: &'a [f64],
}

/// What a simulation says of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProposalOutcome {
    /// It is the best so far.
    Better,
    /// It is worth more, but a job is too slow.
    Starving,
    /// It is worth less.
    Worse,
}

/// A search of one region.
pub(crate) struct GuidedSearch<'a> {
    task: RegionTask<'a>,
    choices: Vec<FlowChoice>,
    /// The model at the best decisions so far, at the proposal that is simulated, and at the draft
    /// of the next one.
    best: MeanRates,
    simulated: MeanRates,
    draft: MeanRates,
    /// Visits of links by the model so far.
    visits: u64,
    /// Learned stretches of the communication of each job.
    stretches: Vec<f64>,
    simulations: u32,
    repairs: u32,
    radius: usize,
    sampler: LcgSampler,
}

impl<'a> GuidedSearch<'a> {
    /// A search from the decisions of `start`, of which simulations say `jobs`.
    pub(crate) fn new(
        traffic: &'a IndexedTraffic<'a>,
        policy: &'a Policy,
        region: &[usize],
        start: &SearchResult,
        jobs: SimulatedJobs<'_>,
    ) -> Self {
        let task = RegionTask::unlimited(traffic, policy, region);
        let mut best = MeanRates::new(&task.space, &task.position_of(start), jobs);
        let visits = best.take_visits();
        let choices = match policy.paths {
            PathMethod::Greedy => Vec::new(),
            _ => best.choices(),
        };
        Self {
            choices,
            stretches: best.stretches(),
            simulated: best.clone(),
            draft: best.clone(),
            best,
            visits,
            task,
            simulations: 1,
            repairs: 0,
            radius: FIRST_RADIUS,
            sampler: LcgSampler(1),
        }
    }

    /// Cost of the model so far, in events.
    pub(crate) fn event_cost(&self) -> u64 {
        self.visits / VISITS_PER_EVENT
    }

    /// The next decisions to simulate; other jobs as in `start`.
    pub(crate) fn draft_proposal(&mut self, start: &SearchResult) -> SearchResult {
        let mut made = 0;
        for _ in 0..TRIED_CHANGES {
            if made < self.radius {
                made += usize::from(self.try_change());
            }
        }
        if made == 0 {
            (0..BLIND_CHANGES).for_each(|_| self.make_blind_change());
        }
        self.visits += self.draft.take_visits();
        let mut found = start.clone();
        self.task.apply_position(&self.draft.position(&self.task.space), &mut found);
        found
    }

    /// The draft is simulated from now on, and another one begins at the best decisions so far.
    pub(crate) fn submit_draft(&mut self) {
        self.simulated.clone_from(&self.draft);
        self.draft.clone_from(&self.best);
    }

    /// Learns from the simulation of the proposal that was submitted last. Whether what was drafted
    /// since then is the next proposal; if not, the next draft begins where that one is to.
    pub(crate) fn learn_from(&mut self, seconds: &[f64], outcome: ProposalOutcome) -> bool {
        let position = self.simulated.position(&self.task.space);
        self.simulated.calibrate(&self.task.space, &position, seconds);
        self.visits += self.simulated.take_visits();
        self.simulations += 1;
        let weight = (1.0 / f64::from(self.simulations)).max(LEAST_WEIGHT);
        for (learned, new) in self.stretches.iter_mut().zip(self.simulated.stretches()) {
            *learned = learned.powf(1.0 - weight) * new.powf(weight);
        }
        let is_better = outcome == ProposalOutcome::Better;
        let changes = if is_better { self.radius * 2 } else { self.radius / 2 };
        self.radius = changes.clamp(LEAST_RADIUS, MAX_RADIUS);
        if outcome == ProposalOutcome::Starving && self.repairs < MAX_REPAIRS {
            self.repairs += 1;
            self.draft.clone_from(&self.simulated);
            return false;
        }
        self.repairs = 0;
        if is_better {
            self.best.clone_from(&self.simulated);
        }
        self.best.stretch_jobs(&self.stretches);
        self.visits += self.best.take_visits();
        if is_better {
            self.draft.clone_from(&self.best);
        }
        !is_better
    }

    /// Draws a change and makes it if the model gains by it; returns whether it did.
    fn try_change(&mut self) -> bool {
        let Some(change) = self.draw_change() else {
            return false;
        };
        let before = self.draft.score();
        self.draft.apply_change(change);
        let is_better = self.draft.score() > before + LEAST_CHANGE * before.abs();
        match is_better {
            true => self.draft.keep_change(),
            false => self.draft.undo_change(),
        }
        is_better
    }

    fn make_blind_change(&mut self) {
        if let Some(change) = self.draw_change() {
            self.draft.apply_change(change);
            self.draft.keep_change();
        }
    }

    /// A change that may be made; none if the drawn one changes nothing or is not allowed.
    fn draw_change(&mut self) -> Option<DecisionChange> {
        let kind = self.sampler.next_below(16);
        if kind < INFORMED_CHANGES && !self.choices.is_empty() {
            let job = self.sampler.next_below(self.task.space.jobs.len() as u64);
            return self.draft.relieve_slowest_flow(job);
        }
        if kind < PATH_CHANGES && !self.choices.is_empty() {
            let at = self.sampler.next_below(self.choices.len() as u64);
            let FlowChoice { job, flow, options } = self.choices[at];
            let option = self.sampler.next_below(options as u64);
            let is_other = option != self.draft.option_of(flow);
            return is_other.then_some(DecisionChange::Path { job, flow, option });
        }
        let jobs = &self.task.space.jobs;
        let job = self.sampler.next_below(jobs.len() as u64);
        if kind < PATH_CHANGES + LEVEL_CHANGES {
            let allowed = &jobs[job].levels;
            let count = u64::from(allowed.end() - allowed.start()) + 1;
            let level = allowed.start() + self.sampler.next_below(count) as u8;
            let is_other = level != self.draft.level(job);
            return is_other.then_some(DecisionChange::Level { job, level });
        }
        let other = self.sampler.next_below(jobs.len() as u64);
        let [a, b] = [job, other].map(|job| self.draft.level(job));
        let fits = a != b && jobs[job].levels.contains(&b) && jobs[other].levels.contains(&a);
        fits.then_some(DecisionChange::SwapLevels { jobs: [job, other] })
    }
}
