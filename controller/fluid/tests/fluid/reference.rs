//! The model once more, as plainly as can be: floating-point time, every flow by itself, all rates
//! of all levels from scratch at every event. Slow, and written without a look at the engine.

use fluid::FluidJob;

/// A flow's progress: bytes left, and its rate.
#[derive(Clone)]
struct Sender {
    path: Vec<u32>,
    bytes: f64,
    /// Seconds of computation before it starts.
    lead: f64,
    started: bool,
    left: f64,
    rate: f64,
}

struct Worker {
    job: FluidJob,
    senders: Vec<Sender>,
    /// When the next iteration or the present one began.
    begun: f64,
    gone: bool,
    iterations: u64,
    sent: f64,
    computed: f64,
}

pub(crate) struct Reference {
    now: f64,
    pub(crate) capacity: Vec<f64>,
    workers: Vec<Worker>,
}

/// Events closer than this are simultaneous, seconds: what the engine forgives as well.
const EPSILON: f64 = 1e-9;

impl Reference {
    pub(crate) fn new(capacity: &[f64]) -> Self {
        Self { now: 0.0, capacity: capacity.to_vec(), workers: Vec::new() }
    }

    pub(crate) fn add(&mut self, job: &FluidJob) {
        let sender = |flow: &fluid::FluidFlow| Sender {
            path: flow.path.clone(),
            bytes: flow.bytes,
            lead: job.compute_seconds * flow.overlap_from.unwrap_or(job.overlap_from),
            started: false,
            left: 0.0,
            rate: 0.0,
        };
        self.workers.push(Worker {
            senders: job.flows.iter().map(sender).collect(),
            begun: job.start.max(self.now),
            job: job.clone(),
            gone: false,
            iterations: 0,
            sent: 0.0,
            computed: 0.0,
        });
    }

    /// How many jobs there ever were.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn remove(&mut self, job: usize) {
        self.workers[job].gone = true;
    }

    pub(crate) fn set_level(&mut self, job: usize, level: u32) {
        self.workers[job].job.level = level;
    }

    pub(crate) fn set_path(&mut self, job: usize, flow: usize, path: &[u32]) {
        self.workers[job].senders[flow].path = path.to_vec();
    }

    /// Iterations, bytes and busy seconds of a job.
    pub(crate) fn tally(&self, job: usize) -> (u64, f64, f64) {
        let worker = &self.workers[job];
        (worker.iterations, worker.sent, worker.computed)
    }

    pub(crate) fn run_until(&mut self, until: f64) {
        loop {
            while self.turn() {}
            self.share();
            let next = self.next().min(until);
            self.pass(next);
            if next >= until {
                while self.turn() {}
                return;
            }
        }
    }

    /// Lets every job whose time has come begin to send or begin again. True if one did.
    fn turn(&mut self) -> bool {
        let now = self.now + EPSILON;
        let mut any = false;
        for worker in self.workers.iter_mut().filter(|worker| !worker.gone) {
            let compute = worker.job.compute_seconds;
            for sender in &mut worker.senders {
                if !sender.started && now >= worker.begun + sender.lead {
                    (sender.left, sender.started, any) = (sender.bytes, true, true);
                }
            }
            let sent = worker.senders.iter().all(|sender| sender.started && sender.left == 0.0);
            if sent && now >= worker.begun + compute {
                worker.iterations += 1;
                (worker.begun, any) = (self.now, true);
                worker.senders.iter_mut().for_each(|sender| sender.started = false);
            }
        }
        any
    }

    fn next(&self) -> f64 {
        let mut next = f64::INFINITY;
        for worker in self.workers.iter().filter(|worker| !worker.gone) {
            let compute = worker.job.compute_seconds;
            let ends = worker.senders.iter().filter(|sender| sender.rate > 0.0);
            let ends = ends.map(|sender| self.now + sender.left / sender.rate);
            let leads = worker.senders.iter().map(|sender| worker.begun + sender.lead);
            let times = ends.chain(leads).chain([worker.begun, worker.begun + compute]);
            next = times.filter(|at| *at > self.now + EPSILON).fold(next, f64::min);
        }
        next
    }

    /// Lets time pass at the present rates.
    fn pass(&mut self, to: f64) {
        let seconds = to - self.now;
        for worker in self.workers.iter_mut().filter(|worker| !worker.gone) {
            let computing = worker.begun + worker.job.compute_seconds - self.now;
            if worker.begun <= self.now + EPSILON {
                worker.computed += computing.clamp(0.0, seconds);
            }
            for sender in &mut worker.senders {
                let step = (sender.rate * seconds).min(sender.left);
                worker.sent += step;
                sender.left -= step;
                if sender.left <= EPSILON * sender.rate {
                    sender.left = 0.0;
                }
            }
        }
        self.now = to;
    }

    /// Strict levels, highest first; in each, raise all rates together and freeze those on a
    /// link that is full.
    fn share(&mut self) {
        let mut free = self.capacity.clone();
        let mut levels: Vec<u32> = self.workers.iter().map(|worker| worker.job.level).collect();
        levels.sort_unstable();
        levels.dedup();
        let workers = &mut self.workers;
        workers.iter_mut().flat_map(|worker| &mut worker.senders).for_each(|s| s.rate = 0.0);
        for level in levels.into_iter().rev() {
            let of_level = |worker: &&mut Worker| worker.job.level == level && !worker.gone;
            let mut rising: Vec<&mut Sender> = workers
                .iter_mut()
                .filter(of_level)
                .flat_map(|worker| &mut worker.senders)
                .filter(|sender| sender.left > 0.0)
                .collect();
            while !rising.is_empty() {
                let on = |link: usize| {
                    rising.iter().filter(|sender| sender.path.contains(&(link as u32))).count()
                };
                let share = |link: usize| free[link] / on(link) as f64;
                let links = (0..free.len()).filter(|link| on(*link) > 0);
                let tightest = links.min_by(|a, b| share(*a).total_cmp(&share(*b))).unwrap();
                let rate = share(tightest);
                let passes = |sender: &Sender| sender.path.contains(&(tightest as u32));
                for sender in rising.iter_mut().filter(|sender| passes(sender)) {
                    sender.rate = rate;
                    for link in &sender.path {
                        free[*link as usize] = (free[*link as usize] - rate).max(0.0);
                    }
                }
                rising.retain(|sender| !passes(sender));
            }
            for (free, capacity) in free.iter_mut().zip(&self.capacity) {
                if *free < 1e-9 * capacity {
                    *free = 0.0;
                }
            }
        }
    }
}
