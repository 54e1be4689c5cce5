//! What is true of a job now, for those who ask from outside.

use super::Engine;
use super::iteration::Running;
use crate::error::FluidError;
use crate::job::JobIndex;
use crate::observer::Phase;

impl Engine {
    /// Class of a job's flows.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn class(&self, job: JobIndex) -> Result<u32, FluidError> {
        self.job(job).map(|running| running.class)
    }

    /// What a job does now.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn phase(&self, job: JobIndex) -> Result<Phase, FluidError> {
        self.job(job).map(|running| running.phase)
    }

    /// Rate of one flow of a job as last shared, bytes/s.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn rate(&self, job: JobIndex, flow: u32) -> Result<f64, FluidError> {
        self.strand_of(job, flow)
            .map(|strand| self.sharing.rate(strand))
    }

    /// Bytes that one flow of a job has still to send in this iteration; 0 outside of it.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::UnknownFlow`].
    pub fn bytes_left(&self, job: JobIndex, flow: u32) -> Result<f64, FluidError> {
        let strand = self.strand_of(job, flow)?;
        Ok(self.strands[strand as usize].left_at(self.now))
    }

    pub(super) fn job(&self, job: JobIndex) -> Result<&Running, FluidError> {
        let place = self.jobs.get(job.0 as usize).and_then(Option::as_ref);
        place.ok_or(FluidError::UnknownJob(job))
    }

    pub(super) fn strand_of(&self, job: JobIndex, flow: u32) -> Result<u32, FluidError> {
        let flows = &self.job(job)?.flows;
        flows
            .get(flow as usize)
            .copied()
            .ok_or(FluidError::UnknownFlow { job, flow })
    }
}
