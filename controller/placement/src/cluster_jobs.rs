//! The waiting and running jobs of a cluster. Placement decisions are validated and applied only
//! here.

use topology::Fabric;

use super::gpu_selection::DescribedHosts;
use super::{
    ClusterState, FreeGpus, GpuCluster, GpuIndices, GpusByHost, PlacementDecision,
    PlacementRequest, RunningJob, StartDecision,
};

/// The jobs of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterJobs {
    cluster: GpuCluster,
    /// Hosts on which it matters which GPUs a job has.
    described: DescribedHosts,
    waiting: Vec<PlacementRequest>,
    running: Vec<RunningJob>,
}

/// A decision that makes no sense: a mistake in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementDecisionError {
    /// A job that does not wait cannot begin or be refused.
    #[error("job {0} is not waiting")]
    NotWaiting(u32),
    /// A job that does not run cannot be suspended or end.
    #[error("job {0} is not running")]
    NotRunning(u32),
    /// Some of the GPUs are in use or do not exist.
    #[error("job {job}: not all GPUs are free: {gpus:?}")]
    NotFree {
        /// Number of the job.
        job: u32,
        /// What it was to get.
        gpus: GpusByHost,
    },
    /// No GPU at all, or a host with none.
    #[error("job {0}: a placement without GPUs")]
    NoGpus(u32),
    /// Jobs of a group have the same GPUs.
    #[error("job {job}: group {group} has other GPUs")]
    GroupMismatch {
        /// Number of the job.
        job: u32,
        /// Number of the group.
        group: u32,
    },
    /// An iteration without end, or a stall that is no time.
    #[error("job {0}: invalid iteration pace or stall time")]
    InvalidPace(u32),
    /// The number is taken.
    #[error("job {0} was submitted twice")]
    DuplicateJob(u32),
}

impl ClusterJobs {
    /// A cluster without any jobs, on whose hosts all GPUs are alike.
    pub fn new(cluster: GpuCluster) -> Self {
        let described = DescribedHosts::default();
        Self { cluster, described, waiting: Vec::new(), running: Vec::new() }
    }

    /// A cluster without any jobs, whose jobs get particular GPUs of the hosts of `fabric`, as far
    /// as it describes their inside.
    pub fn on_fabric(cluster: GpuCluster, fabric: &Fabric) -> Self {
        Self { described: DescribedHosts::of_fabric(fabric), ..Self::new(cluster) }
    }

    /// What a policy sees at `now_seconds`.
    pub fn state_at(&self, now_seconds: f64) -> ClusterState<'_> {
        ClusterState {
            now_seconds,
            cluster: &self.cluster,
            waiting: &self.waiting,
            running: &self.running,
        }
    }

    /// A job that runs.
    ///
    /// # Errors
    /// It does not run.
    pub fn running_job(&self, job: u32) -> Result<&RunningJob, PlacementDecisionError> {
        self.find_running(job).map(|place| &self.running[place])
    }

    /// A job comes and waits.
    ///
    /// # Errors
    /// Its number is taken.
    pub fn submit_job(&mut self, request: PlacementRequest) -> Result<(), PlacementDecisionError> {
        let job = request.job;
        let waits = self.waiting.iter().any(|other| other.job == job);
        if waits || self.find_running(job).is_ok() {
            return Err(PlacementDecisionError::DuplicateJob(job));
        }
        let arrival = (request.submitted_seconds, job);
        let place =
            self.waiting.partition_point(|other| (other.submitted_seconds, other.job) <= arrival);
        self.waiting.insert(place, request);
        Ok(())
    }

    /// A running job ends; its GPUs are free.
    ///
    /// # Errors
    /// It does not run.
    pub fn finish_job(&mut self, job: u32) -> Result<RunningJob, PlacementDecisionError> {
        let place = self.find_running(job)?;
        Ok(self.running.remove(place))
    }

    /// Says how many iterations a running job has still to go, and how long they would take it on
    /// the GPUs that it asked for, in seconds.
    ///
    /// # Errors
    /// It does not run.
    pub fn record_progress(
        &mut self,
        job: u32,
        iterations: f64,
        seconds: f64,
    ) -> Result<(), PlacementDecisionError> {
        let place = self.find_running(job)?;
        let request = &mut self.running[place].request;
        request.remaining_iterations = iterations;
        request.remaining_seconds = seconds;
        Ok(())
    }

    /// Carries out a decision.
    ///
    /// # Errors
    /// It makes no sense; nothing has changed then.
    pub fn apply_decision(
        &mut self,
        decision: &PlacementDecision,
    ) -> Result<(), PlacementDecisionError> {
        match decision {
            PlacementDecision::Start(start) => self.start_job(start),
            PlacementDecision::Suspend { job } => {
                let stopped = self.finish_job(*job)?;
                self.submit_job(stopped.request)
            }
            PlacementDecision::Refuse { job, .. } => self.remove_waiting(*job).map(drop),
        }
    }

    fn start_job(&mut self, start: &StartDecision) -> Result<(), PlacementDecisionError> {
        self.validate_start(start)?;
        let gpu_indices = self.gpu_indices_of(start);
        let job = start.job;
        let request = self.remove_waiting(job)?;
        let place = self.running.partition_point(|other| other.request.job < job);
        let running = RunningJob {
            request,
            gpus: start.gpus.clone(),
            gpu_indices,
            group: start.group,
            pace: start.pace.clone(),
        };
        self.running.insert(place, running);
        Ok(())
    }

    /// Which GPUs the job gets: those of its group, those that it is given, or selected ones.
    fn gpu_indices_of(&self, start: &StartDecision) -> GpuIndices {
        match self.group_member(start) {
            Some(member) => member.gpu_indices.clone(),
            None if start.gpu_indices.is_empty() => {
                self.described.select_gpus(&start.gpus, &self.running)
            }
            None => start.gpu_indices.clone(),
        }
    }

    /// A running job of the same group.
    fn group_member(&self, start: &StartDecision) -> Option<&RunningJob> {
        let group = start.group?;
        self.running.iter().find(|other| other.group == Some(group))
    }

    /// Whether the GPUs can be had, and the pace be kept.
    fn validate_start(&self, start: &StartDecision) -> Result<(), PlacementDecisionError> {
        let StartDecision { job, gpus, group, .. } = start;
        let job = *job;
        if gpus.is_empty() || gpus.values().any(|gpus| *gpus == 0) {
            return Err(PlacementDecisionError::NoGpus(job));
        }
        if !start.pace.is_valid() || !(0.0..=f64::MAX).contains(&start.stall_seconds) {
            return Err(PlacementDecisionError::InvalidPace(job));
        }
        if let (Some(member), Some(group)) = (self.group_member(start), *group) {
            let has_same = member.gpus == *gpus;
            let mismatch = PlacementDecisionError::GroupMismatch { job, group };
            return if has_same { Ok(()) } else { Err(mismatch) };
        }
        let indices = &start.gpu_indices;
        let are_free = FreeGpus::not_held_by(&self.cluster, &self.running).contains_all(gpus)
            && (indices.is_empty() || self.described.are_free(indices, gpus, &self.running));
        let taken = || PlacementDecisionError::NotFree { job, gpus: gpus.clone() };
        are_free.then_some(()).ok_or_else(taken)
    }

    fn remove_waiting(&mut self, job: u32) -> Result<PlacementRequest, PlacementDecisionError> {
        let place = self
            .waiting
            .iter()
            .position(|request| request.job == job)
            .ok_or(PlacementDecisionError::NotWaiting(job))?;
        Ok(self.waiting.remove(place))
    }

    fn find_running(&self, job: u32) -> Result<usize, PlacementDecisionError> {
        let place = self.running.binary_search_by_key(&job, |running| running.request.job);
        place.map_err(|_| PlacementDecisionError::NotRunning(job))
    }
}
