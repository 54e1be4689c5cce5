//! Placing all jobs in order under one rule: the loads of GPUs, and time passing until there is
//! room.
//!
//! Between two starts or exits nothing changes, so time goes from exit to exit; progress within is
//! a multiplication. Later jobs slow earlier ones, which is why placement and time go together.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{BatchSchedule, JobPlacement, PlacementProblem, RingJob, RingSpan};

/// How GPUs are chosen.
#[derive(Clone, Debug)]
pub enum PlacementRule {
    /// SJF-BCO with this bound on small jobs: smallest first, FA-FFP up to it, LBSGF beyond.
    Kappa(u32),
    /// LS: jobs as they come, on the GPUs with the least load.
    ListScheduling,
    /// FF: jobs as they come, on the first GPUs.
    FirstFit,
    /// RAND: jobs as they come, on any GPUs.
    Random(Box<ChaCha8Rng>),
}

/// `p_j` of every job, from the servers that each is on: the most rings that leave any of them; 0
/// for a job on one server, whose ring does not leave it.
pub fn ring_contention(jobs: &[&[usize]]) -> Vec<u32> {
    let rings = jobs.iter().filter(|on| on.len() > 1).copied().flatten();
    let servers = rings.clone().max().map_or(0, |last| last + 1);
    let mut leaving = vec![0_u32; servers];
    for server in rings {
        leaving[*server] += 1;
    }
    jobs.iter()
        .map(|on| match on {
            [] | [_] => 0,
            on => on.iter().map(|server| leaving[*server]).max().unwrap_or(0),
        })
        .collect()
}

/// A GPU by server and position.
type GpuPosition = (usize, usize);

/// A job that runs.
struct RunningRing {
    /// Its position in the problem; none if it ran before.
    number: Option<usize>,
    job: RingJob,
    gpus: Vec<GpuPosition>,
    /// The servers that those are on.
    servers: Vec<usize>,
    left: f64,
    rate: f64,
}

struct PlacementRun<'a> {
    problem: &'a PlacementProblem,
    /// `U`: estimated busy slots of each GPU.
    load: Vec<Vec<f64>>,
    busy: Vec<Vec<bool>>,
    runs: Vec<RunningRing>,
    now: u64,
    placed: Vec<Option<JobPlacement>>,
    makespan: u64,
}

pub(super) fn place_jobs(
    problem: &PlacementProblem,
    rule: &mut PlacementRule,
    theta: u64,
) -> BatchSchedule {
    let mut placing = PlacementRun::new(problem);
    for number in placement_order(problem, rule) {
        if !placing.place_when_free(number, rule, theta) {
            break;
        }
    }
    let all_ended = placing.run_to_end();
    let kappa = match rule {
        PlacementRule::Kappa(kappa) => Some(*kappa),
        _ => None,
    };
    let mut jobs = placing.placed;
    let mut makespan = placing.makespan;
    if !all_ended {
        jobs.fill(None);
        makespan = problem.horizon;
    }
    BatchSchedule { theta, kappa, makespan, jobs }
}

/// The order in which jobs are placed: the smallest first for SJF-BCO, as they come for others.
fn placement_order(problem: &PlacementProblem, rule: &PlacementRule) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    if matches!(rule, PlacementRule::Kappa(_)) {
        order.sort_by_key(|number| problem.jobs[*number].gpus);
    }
    order
}

impl<'a> PlacementRun<'a> {
    fn new(problem: &'a PlacementProblem) -> Self {
        let servers = problem.servers.iter();
        let mut placing = Self {
            problem,
            load: servers.clone().map(|gpus| vec![0.0; *gpus as usize]).collect(),
            busy: servers.map(|gpus| vec![false; *gpus as usize]).collect(),
            runs: Vec::new(),
            now: 0,
            placed: vec![None; problem.jobs.len()],
            makespan: 0,
        };
        for (job, on) in &problem.running {
            let gpus = on
                .iter()
                .enumerate()
                .flat_map(|(server, count)| {
                    let idle =
                        (0..placing.busy[server].len()).filter(|gpu| !placing.busy[server][*gpu]);
                    let taken: Vec<GpuPosition> =
                        idle.take(*count as usize).map(|gpu| (server, gpu)).collect();
                    taken
                })
                .collect();
            placing.start_job(None, job, gpus);
        }
        placing.set_rates();
        placing
    }

    /// Places a job as soon as there is room; whether there ever is.
    fn place_when_free(&mut self, number: usize, rule: &mut PlacementRule, theta: u64) -> bool {
        let job = &self.problem.jobs[number];
        loop {
            if let Some(gpus) = self.choose_gpus(job, rule, theta as f64) {
                self.start_job(Some(number), job, gpus);
                self.set_rates();
                return true;
            }
            if self.runs.is_empty() || !self.advance_to_exit() {
                return false;
            }
        }
    }

    /// Lets everything end; false if something never does, or not within the horizon.
    fn run_to_end(&mut self) -> bool {
        while !self.runs.is_empty() {
            if !self.advance_to_exit() {
                return false;
            }
        }
        true
    }

    /// GPUs for the job now, if there are enough that are idle and below the bound.
    fn choose_gpus(
        &self,
        job: &RingJob,
        rule: &mut PlacementRule,
        theta: f64,
    ) -> Option<Vec<GpuPosition>> {
        let wanted = job.gpus as usize;
        let idle = self.idle_gpus(job, theta);
        if wanted == 0 || idle.len() < wanted {
            return None;
        }
        let mut chosen = match rule {
            PlacementRule::Kappa(kappa) if job.gpus <= *kappa => self.least_loaded(idle),
            PlacementRule::Kappa(_) => {
                let group = self.least_busy_servers(job);
                let inside = idle.into_iter().filter(|(server, _)| group.contains(server));
                self.least_loaded(inside.collect())
            }
            PlacementRule::ListScheduling => {
                let mut idle = idle;
                idle.sort_by(|a, b| self.load_of(*a).total_cmp(&self.load_of(*b)));
                idle
            }
            PlacementRule::FirstFit => idle,
            PlacementRule::Random(random) => {
                let mut idle = idle;
                // The first draws of a shuffle, which is all that is needed.
                for place in 0..wanted {
                    let other = random.random_range(place..idle.len());
                    idle.swap(place, other);
                }
                idle
            }
        };
        chosen.truncate(wanted);
        (chosen.len() == wanted).then_some(chosen)
    }

    /// Idle GPUs that may take the job within the bound, by server and position.
    fn idle_gpus(&self, job: &RingJob, theta: f64) -> Vec<GpuPosition> {
        let more = self.estimated_load(job);
        let gpus = self
            .busy
            .iter()
            .enumerate()
            .flat_map(|(server, gpus)| (0..gpus.len()).map(move |gpu| (server, gpu)));
        gpus.filter(|gpu| !self.busy[gpu.0][gpu.1] && self.load_of(*gpu) + more <= theta).collect()
    }

    /// FA-FFP: the least load first, of equal ones those on servers that have jobs.
    fn least_loaded(&self, mut gpus: Vec<GpuPosition>) -> Vec<GpuPosition> {
        let vacant: Vec<bool> = self.busy.iter().map(|gpus| !gpus.contains(&true)).collect();
        gpus.sort_by(|a, b| {
            let loads = self.load_of(*a).total_cmp(&self.load_of(*b));
            loads.then((vacant[a.0], a).cmp(&(vacant[b.0], b)))
        });
        gpus
    }

    /// LBSGF: the shortest run of servers, by mean load, that has enough GPUs, busy ones counted.
    fn least_busy_servers(&self, job: &RingJob) -> Vec<usize> {
        let mut servers: Vec<usize> = (0..self.load.len()).collect();
        servers.sort_by(|a, b| self.mean_load(*a).total_cmp(&self.mean_load(*b)));
        let wanted = self.problem.server_slack * f64::from(job.gpus);
        let mut gpus = 0.0;
        let needed = servers.iter().take_while(|server| {
            let more = gpus < wanted;
            gpus += self.load[**server].len() as f64;
            more
        });
        let count = needed.count();
        servers.truncate(count);
        servers
    }

    fn mean_load(&self, server: usize) -> f64 {
        let loads = &self.load[server];
        loads.iter().sum::<f64>() / loads.len().max(1) as f64
    }

    fn load_of(&self, (server, gpu): GpuPosition) -> f64 {
        self.load[server][gpu]
    }

    /// What the job adds to the load of each of its GPUs.
    fn estimated_load(&self, job: &RingJob) -> f64 {
        self.problem.communication.estimate_slots(job) / self.problem.estimate_divisor
    }

    fn start_job(&mut self, number: Option<usize>, job: &RingJob, gpus: Vec<GpuPosition>) {
        let estimate = self.estimated_load(job);
        for (server, gpu) in &gpus {
            self.load[*server][*gpu] += estimate;
            self.busy[*server][*gpu] = true;
        }
        let mut servers: Vec<usize> = gpus.iter().map(|(server, _)| *server).collect();
        servers.sort_unstable();
        if let Some(number) = number {
            let mut on = vec![0; self.load.len()];
            servers.iter().for_each(|server| on[*server] += 1);
            self.placed[number] =
                Some(JobPlacement { start: self.now, end: u64::MAX, gpus_by_server: on });
        }
        servers.dedup();
        self.runs.push(RunningRing {
            number,
            job: *job,
            gpus,
            servers,
            left: job.iterations as f64,
            rate: 0.0,
        });
    }

    /// Sets the rates of all jobs, which hold until the next start or exit.
    fn set_rates(&mut self) {
        let on: Vec<&[usize]> = self.runs.iter().map(|run| &run.servers[..]).collect();
        let contention = ring_contention(&on);
        for (run, contention) in self.runs.iter_mut().zip(contention) {
            let span = RingSpan { servers: run.servers.len() as u32, contention };
            run.rate = self.problem.communication.iterations_per_slot(&run.job, span);
        }
    }

    /// Time passes until the next job ends; false if none does within the horizon.
    fn advance_to_exit(&mut self) -> bool {
        let slots =
            self.runs.iter().map(|run| (run.left / run.rate).ceil()).fold(f64::INFINITY, f64::min);
        let remaining = (self.problem.horizon - self.now) as f64;
        // A rate of 0 makes infinity, 0 iterations at rate 0 no number.
        if slots.is_nan() || slots > remaining {
            return false;
        }
        self.now += slots as u64;
        for run in &mut self.runs {
            run.left -= run.rate * slots;
        }
        let (ended, runs): (Vec<RunningRing>, Vec<RunningRing>) =
            std::mem::take(&mut self.runs).into_iter().partition(|run| run.left <= TOLERANCE);
        self.runs = runs;
        for run in ended {
            self.end_job(&run);
        }
        self.set_rates();
        true
    }

    fn end_job(&mut self, run: &RunningRing) {
        for (server, gpu) in &run.gpus {
            self.busy[*server][*gpu] = false;
        }
        self.makespan = self.makespan.max(self.now);
        if let Some(placed) = run.number.and_then(|number| self.placed[number].as_mut()) {
            placed.end = self.now;
        }
    }
}

/// Iterations that rounding of real progress may leave; whole progress leaves none.
const TOLERANCE: f64 = 1e-6;
