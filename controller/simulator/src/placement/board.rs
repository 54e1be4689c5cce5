//! The board: who waits and who runs where; the one place where decisions are carried out.

use super::{Cluster, Decision, Free, Gpus, Request, Running, Start, State};

/// The jobs of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    cluster: Cluster,
    waiting: Vec<Request>,
    running: Vec<Running>,
}

/// A decision that makes no sense: a mistake in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    /// A job that does not wait cannot begin or be refused.
    #[error("job {0} does not wait")]
    NotWaiting(u32),
    /// A job that does not run cannot be suspended or end.
    #[error("job {0} does not run")]
    NotRunning(u32),
    /// Somebody else has some of the GPUs, or there are none such.
    #[error("job {job}: not all GPUs are free: {gpus:?}")]
    NotFree {
        /// The job.
        job: u32,
        /// What it was to get.
        gpus: Gpus,
    },
    /// No GPU at all, or a host with none.
    #[error("job {0}: a placement without GPUs")]
    Empty(u32),
    /// Jobs of a group have the same GPUs.
    #[error("job {job}: group {group} has other GPUs")]
    Group {
        /// The job.
        job: u32,
        /// The group.
        group: u32,
    },
    /// An iteration without end, or a stall that is no time.
    #[error("job {0}: its pace or its stall makes no sense")]
    Pace(u32),
    /// The number is taken.
    #[error("job {0} is here already")]
    Known(u32),
}

impl Board {
    /// An empty cluster.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            waiting: Vec::new(),
            running: Vec::new(),
        }
    }

    /// What a policy sees at `now_seconds`.
    pub fn state(&self, now_seconds: f64) -> State<'_> {
        State {
            now_seconds,
            cluster: &self.cluster,
            waiting: &self.waiting,
            running: &self.running,
        }
    }

    /// A job comes and waits.
    ///
    /// # Errors
    /// Its number is taken.
    pub fn submit(&mut self, request: Request) -> Result<(), BoardError> {
        let job = request.job;
        let waits = self.waiting.iter().any(|other| other.job == job);
        if waits || self.find(job).is_ok() {
            return Err(BoardError::Known(job));
        }
        let arrival = |other: &Request| (other.submitted_seconds, other.job);
        let before = |other: &Request| arrival(other) <= arrival(&request);
        let place = self.waiting.partition_point(before);
        self.waiting.insert(place, request);
        Ok(())
    }

    /// A running job ends; its GPUs are free.
    ///
    /// # Errors
    /// It does not run.
    pub fn finish(&mut self, job: u32) -> Result<Running, BoardError> {
        let place = self.find(job)?;
        Ok(self.running.remove(place))
    }

    /// Says how many iterations a running job has still to go, and how long they would take it on
    /// the GPUs that it asked for, in seconds.
    ///
    /// # Errors
    /// It does not run.
    pub fn progress(&mut self, job: u32, iterations: f64, seconds: f64) -> Result<(), BoardError> {
        let place = self.find(job)?;
        let request = &mut self.running[place].request;
        request.remaining_iterations = iterations;
        request.remaining_seconds = seconds;
        Ok(())
    }

    /// Carries out a decision.
    ///
    /// # Errors
    /// It makes no sense; nothing has changed then.
    pub fn apply(&mut self, decision: &Decision) -> Result<(), BoardError> {
        match decision {
            Decision::Start(start) => self.start(start),
            Decision::Suspend { job } => {
                let stopped = self.finish(*job)?;
                self.submit(stopped.request)
            }
            Decision::Refuse { job, .. } => self.take_waiting(*job).map(drop),
        }
    }

    fn start(&mut self, start: &Start) -> Result<(), BoardError> {
        self.check(start)?;
        let job = start.job;
        let request = self.take_waiting(job)?;
        let place = self
            .running
            .partition_point(|other| other.request.job < job);
        let running = Running {
            request,
            gpus: start.gpus.clone(),
            group: start.group,
            pace: start.pace.clone(),
        };
        self.running.insert(place, running);
        Ok(())
    }

    /// Whether the GPUs can be had, and the pace be kept.
    fn check(&self, start: &Start) -> Result<(), BoardError> {
        let Start {
            job, gpus, group, ..
        } = start;
        let job = *job;
        if gpus.is_empty() || gpus.values().any(|gpus| *gpus == 0) {
            return Err(BoardError::Empty(job));
        }
        if !start.pace.makes_sense() || !(0.0..=f64::MAX).contains(&start.stall_seconds) {
            return Err(BoardError::Pace(job));
        }
        let shares = |other: &&Running| group.is_some() && other.group == *group;
        match (self.running.iter().find(shares), group) {
            (Some(other), Some(group)) if other.gpus != *gpus => {
                let group = *group;
                Err(BoardError::Group { job, group })
            }
            (Some(_), _) => Ok(()),
            (None, _) if Free::of(&self.cluster, &self.running).has(gpus) => Ok(()),
            (None, _) => Err(BoardError::NotFree {
                job,
                gpus: gpus.clone(),
            }),
        }
    }

    fn take_waiting(&mut self, job: u32) -> Result<Request, BoardError> {
        let place = self.waiting.iter().position(|request| request.job == job);
        let place = place.ok_or(BoardError::NotWaiting(job))?;
        Ok(self.waiting.remove(place))
    }

    fn find(&self, job: u32) -> Result<usize, BoardError> {
        let place = self
            .running
            .binary_search_by_key(&job, |running| running.request.job);
        place.map_err(|_| BoardError::NotRunning(job))
    }
}
