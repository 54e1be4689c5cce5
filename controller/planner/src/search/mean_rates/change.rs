//! Changes of decisions in the model of mean rates, judged incrementally: only jobs whose links
//! carry something else are computed again, and a change that is not kept is undone.

use super::{LinkService, MeanFlow, MeanRates, count_job};

/// A change of the seconds of an iteration that is smaller than this share concerns no other job.
const TOLERANCE: f64 = 5e-3;

/// Jobs that are computed again after a change, at most.
const MAX_SPREAD: usize = 96;

/// A change of the decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum DecisionChange {
    /// Another of its paths for a flow.
    Path { job: usize, flow: usize, option: usize },
    /// Another level for a job.
    Level { job: usize, level: u8 },
    /// The levels of two jobs exchanged.
    SwapLevels { jobs: [usize; 2] },
}

/// What the last change replaced.
#[derive(Clone, Debug)]
pub(super) struct UndoLog {
    score: f64,
    is_logged: Vec<bool>,
    /// Job, its level and the seconds of an iteration.
    jobs: Vec<(u32, u8, f64)>,
    /// Path and seconds of sending of the flows of these jobs.
    flows: Vec<(usize, f64)>,
}

impl UndoLog {
    pub(super) fn new(jobs: usize) -> Self {
        Self { score: 0.0, is_logged: vec![false; jobs], jobs: Vec::new(), flows: Vec::new() }
    }
}

impl MeanRates {
    /// The change that gives the slowest flow of a job the path with the most room for its level at
    /// its fullest link; none if that flow has no other path, or has this one.
    pub(in super::super) fn relieve_slowest_flow(&self, job: usize) -> Option<DecisionChange> {
        let of = &self.jobs[job];
        let flow = of
            .flows
            .clone()
            .max_by(|a, b| self.flows[*a].sending.total_cmp(&self.flows[*b].sending))?;
        let MeanFlow { options, path, .. } = &self.flows[flow];
        let room = |path: &usize| {
            let links = self.hops[self.paths[*path].clone()].iter();
            links.map(|link| self.room_on(*link as usize, of.level)).fold(f64::INFINITY, f64::min)
        };
        let freest = options.clone().filter(|other| other != path);
        let freest = freest.max_by(|a, b| room(a).total_cmp(&room(b)))?;
        let option = freest - options.start;
        (room(&freest) > room(path)).then_some(DecisionChange::Path { job, flow, option })
    }

    /// Bytes per second that flows of a level and of higher ones leave on a link.
    fn room_on(&self, link: usize, level: u8) -> f64 {
        let cells = link * self.level_count..(link + 1) * self.level_count;
        let LinkService { capacity, is_fifo } = self.links[link];
        let from = if is_fifo { 0 } else { usize::from(level) };
        capacity - self.used[cells][from..].iter().sum::<f64>()
    }

    /// Makes a change.
    pub(in super::super) fn apply_change(&mut self, change: DecisionChange) {
        match change {
            DecisionChange::Path { job, flow, option } => self.change_path(job, flow, option),
            DecisionChange::Level { job, level } => self.change_level(job, level),
            DecisionChange::SwapLevels { jobs: [a, b] } => {
                let [of_a, of_b] = [a, b].map(|job| self.level(job));
                self.change_level(a, of_b);
                self.change_level(b, of_a);
            }
        }
        self.spread_change();
    }

    /// Forgets what the changes since the last call replaced: they stay.
    pub(in super::super) fn keep_change(&mut self) {
        for (job, ..) in self.undo.jobs.drain(..) {
            self.undo.is_logged[job as usize] = false;
        }
        self.undo.flows.clear();
        self.undo.score = self.score;
    }

    /// Takes back all changes that were not kept.
    pub(in super::super) fn undo_change(&mut self) {
        let logged_flows = std::mem::take(&mut self.undo.flows);
        let logged_jobs = std::mem::take(&mut self.undo.jobs);
        let mut flows = logged_flows.iter();
        for (job, level, seconds) in &logged_jobs {
            let job = *job as usize;
            self.undo.is_logged[job] = false;
            self.change_sums(job, -1.0);
            for (flow, (path, sending)) in self.jobs[job].flows.clone().zip(flows.by_ref()) {
                self.replace_path(job, flow, *path);
                self.flows[flow].sending = *sending;
            }
            (self.jobs[job].level, self.jobs[job].seconds) = (*level, *seconds);
            self.change_sums(job, 1.0);
        }
        self.score = self.undo.score;
        // The lists keep their memory for the next change.
        (self.undo.flows, self.undo.jobs) = (logged_flows, logged_jobs);
        self.undo.flows.clear();
        self.undo.jobs.clear();
    }

    fn log_job(&mut self, job: usize) {
        if !std::mem::replace(&mut self.undo.is_logged[job], true) {
            let of = &self.jobs[job];
            self.undo.jobs.push((job as u32, of.level, of.seconds));
            let flows = self.flows[of.flows.clone()].iter();
            self.undo.flows.extend(flows.map(|flow| (flow.path, flow.sending)));
        }
    }

    fn change_level(&mut self, job: usize, level: u8) {
        self.log_job(job);
        let higher = self.jobs[job].level.max(level);
        self.change_sums(job, -1.0);
        self.jobs[job].level = level;
        self.change_sums(job, 1.0);
        self.queue_neighbours(job, higher);
    }

    fn change_path(&mut self, job: usize, flow: usize, option: usize) {
        self.log_job(job);
        let level = self.jobs[job].level;
        self.queue_neighbours(job, level);
        self.change_sums(job, -1.0);
        self.replace_path(job, flow, self.flows[flow].options.start + option);
        self.change_sums(job, 1.0);
        self.queue_neighbours(job, level);
    }

    fn replace_path(&mut self, job: usize, flow: usize, path: usize) {
        let before = std::mem::replace(&mut self.flows[flow].path, path);
        if before == path {
            return;
        }
        for link in &self.hops[self.paths[before].clone()] {
            uncount_job(&mut self.jobs_on[*link as usize], job as u32);
        }
        for link in &self.hops[self.paths[path].clone()] {
            count_job(&mut self.jobs_on[*link as usize], job as u32);
        }
    }

    /// Queues the jobs that share links with `job`, itself among them; where levels count, those up
    /// to a level.
    fn queue_neighbours(&mut self, job: usize, highest: u8) {
        self.pass += 1;
        let Self {
            jobs, flows, hops, paths, links, jobs_on, rates, pass, queue, is_queued, ..
        } = self;
        for flow in &flows[jobs[job].flows.clone()] {
            for link in &hops[paths[flow.path].clone()] {
                let link = *link as usize;
                if std::mem::replace(&mut rates[link].pass, *pass) == *pass {
                    continue;
                }
                for (other, _) in &jobs_on[link] {
                    let concerned = links[link].is_fifo || jobs[*other as usize].level <= highest;
                    if concerned && !std::mem::replace(&mut is_queued[*other as usize], true) {
                        queue.push_back(*other);
                    }
                }
            }
        }
    }

    /// Computes the queued jobs, and those that they concern, until changes are small.
    fn spread_change(&mut self) {
        let mut computed = 0;
        while let Some(job) = self.queue.pop_front() {
            let job = job as usize;
            self.is_queued[job] = false;
            computed += 1;
            if computed > MAX_SPREAD {
                continue;
            }
            self.log_job(job);
            let before = self.jobs[job].score();
            let change = self.compute_job(job);
            self.score += self.jobs[job].score() - before;
            if change > TOLERANCE {
                self.queue_neighbours(job, self.jobs[job].level);
            }
        }
    }
}

/// Counts one flow of a job less on a link.
fn uncount_job(jobs: &mut Vec<(u32, u32)>, job: u32) {
    if let Some(place) = jobs.iter().position(|(on, _)| *on == job) {
        jobs[place].1 -= 1;
        if jobs[place].1 == 0 {
            jobs.swap_remove(place);
        }
    }
}
