//! The present state of a job, for callers.

use super::Engine;
use super::iteration::EngineJob;
use crate::error::FluidError;
use crate::job::JobIndex;
use crate::observer::JobPhase;

impl Engine {
    /// Level of a job's flows.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_level(&self, job: JobIndex) -> Result<u32, FluidError> {
        self.find_job(job).map(|running| running.level)
    }

    /// Phase of a job.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_phase(&self, job: JobIndex) -> Result<JobPhase, FluidError> {
        self.find_job(job).map(|running| running.phase)
    }

    /// Rate of one flow of a job as last computed, bytes/s.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn flow_rate(&self, job: JobIndex, flow: u32) -> Result<f64, FluidError> {
        self.group_of_flow(job, flow).map(|group| self.rate_allocator.group_rate(group))
    }

    /// Whether one flow of a job has started in this iteration and not ended.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn is_flow_sending(&self, job: JobIndex, flow: u32) -> Result<bool, FluidError> {
        self.group_of_flow(job, flow).map(|group| self.rate_allocator.is_sending(group))
    }

    /// Bytes that one flow of a job still has to send in this iteration; 0 outside of it, and before
    /// the first of its flows starts.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn flow_bytes_left(&self, job: JobIndex, flow: u32) -> Result<f64, FluidError> {
        let group = self.group_of_flow(job, flow)?;
        Ok(self.group_progress[group as usize].bytes_left_at(self.now))
    }

    /// The longest time that one flow of a job has waited without service while it had bytes to
    /// send, in all iterations so far, seconds; a wait that is not over counts up to now. A flow is
    /// served at any rate above zero.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn flow_longest_wait(&self, job: JobIndex, flow: u32) -> Result<f64, FluidError> {
        let group = self.group_of_flow(job, flow)?;
        let longest = self.group_progress[group as usize].longest_wait.as_seconds();
        Ok(longest.max(self.open_wait_of_group(group)))
    }

    /// The longest wait of any flow of a job ([`Engine::flow_longest_wait`]), seconds; 0 for a job
    /// without flows.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_longest_wait(&self, job: JobIndex) -> Result<f64, FluidError> {
        let waits = self.find_job(job)?.groups.iter().map(|group| {
            let longest = self.group_progress[*group as usize].longest_wait.as_seconds();
            longest.max(self.open_wait_of_group(*group))
        });
        Ok(waits.fold(0.0, f64::max))
    }

    /// For how long the flow of a job that waits longest now has been waiting, seconds; 0 if all
    /// that have bytes to send are served.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn job_open_wait(&self, job: JobIndex) -> Result<f64, FluidError> {
        let waits = self.find_job(job)?.groups.iter().map(|group| self.open_wait_of_group(*group));
        Ok(waits.fold(0.0, f64::max))
    }

    fn open_wait_of_group(&self, group: u32) -> f64 {
        let progress = &self.group_progress[group as usize];
        // A group that is not sending has nothing to wait for.
        let waits = self.rate_allocator.is_sending(group) && progress.rate <= 0.0;
        if waits { progress.wait_at(self.now).as_seconds() } else { 0.0 }
    }

    pub(super) fn find_job(&self, job: JobIndex) -> Result<&EngineJob, FluidError> {
        let place = self.jobs.get(job.0 as usize).and_then(Option::as_ref);
        place.ok_or(FluidError::UnknownJob(job))
    }

    pub(super) fn group_of_flow(&self, job: JobIndex, flow: u32) -> Result<u32, FluidError> {
        let flows = &self.find_job(job)?.group_of_flow;
        flows.get(flow as usize).copied().ok_or(FluidError::UnknownFlow { job, flow })
    }
}
