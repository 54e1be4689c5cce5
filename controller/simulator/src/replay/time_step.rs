//! Time: the next event, the progress of jobs until then, arrivals and ends.

use super::{ActiveJob, ClusterUsage, TraceReplay, TraceReplayError};
use placement::PlacementRequest;

impl ActiveJob {
    /// When it ends, if everything stays as it is at `now`.
    fn end_seconds(&self, now: f64, left: f64) -> f64 {
        self.ready_seconds.max(now) + left * self.steady.seconds
    }
}

impl TraceReplay<'_> {
    /// When something happens next.
    pub(super) fn next_event_seconds(&self) -> Option<f64> {
        let now = self.progress.now;
        let arrival = self
            .setup
            .trace
            .jobs
            .get(self.progress.arrived)
            .map_or(f64::INFINITY, |job| job.submitted_seconds.max(now));
        let ends = self.active.iter().map(|(number, active)| {
            let left = self.progress.records[*number as usize].left;
            active.end_seconds(now, left)
        });
        let ahead = ends.fold(arrival, f64::min);
        // Rounds that change nothing, with nothing ahead, would go on for ever.
        let is_over = ahead.is_infinite() && self.progress.is_idle;
        let round = self.progress.round.filter(|_| !is_over);
        let next = round.unwrap_or(f64::INFINITY).min(ahead);
        next.is_finite().then_some(next)
    }

    /// Lets time pass until `next`, at which nothing has happened yet.
    pub(super) fn advance_time(&mut self, next: f64) {
        let now = self.progress.now;
        let mut busy = 0.0;
        for (number, active) in &self.active {
            let record = &mut self.progress.records[*number as usize];
            let since = active.ready_seconds.max(now);
            // The same expression as in `next_event_seconds`: else rounding would leave a rest.
            let ends = active.end_seconds(now, record.left) <= next;
            let done = match ends {
                true => record.left,
                false => ((next - since).max(0.0) / active.steady.seconds).min(record.left),
            };
            record.left = if ends { 0.0 } else { record.left - done };
            record.held_seconds += next - now;
            busy += done * active.training.busy_gpu_seconds;
            let gpus = f64::from(active.training.job.gpu_count());
            self.progress.unsure_gpu_seconds += gpus * (next - now) * active.steady.uncertainty;
        }
        let state = self.cluster_jobs.state_at(now);
        let held = f64::from(state.cluster.total_gpus() - state.free_gpus().total_free());
        let level = ClusterUsage {
            held_gpus: held,
            busy_gpus: if next > now { busy / (next - now) } else { 0.0 },
            waiting_jobs: state.waiting.len() as f64,
        };
        self.progress.busy_gpu_seconds += busy;
        self.progress.held_gpu_seconds += held * (next - now);
        self.count_alternatives(held, next - now);
        self.progress.hours.record_usage(now, next, level);
        self.progress.now = next;
    }

    /// Jobs without iterations left leave; their numbers.
    pub(super) fn end_jobs(&mut self) -> Result<Vec<u32>, TraceReplayError> {
        let records = &self.progress.records;
        let ended = self.active.keys().copied();
        let ended: Vec<u32> =
            ended.filter(|number| records[*number as usize].left <= 0.0).collect();
        for number in &ended {
            self.cluster_jobs.finish_job(*number)?;
            self.progress.records[*number as usize].ended_seconds = Some(self.progress.now);
        }
        Ok(ended)
    }

    /// Jobs that are submitted now wait; whether there are any.
    pub(super) fn admit_arrivals(&mut self) -> Result<bool, TraceReplayError> {
        let jobs = self.setup.trace.jobs.iter().enumerate();
        let now = self.progress.now;
        let come =
            jobs.skip(self.progress.arrived).take_while(|(_, job)| job.submitted_seconds <= now);
        let mut count = 0;
        for (number, _) in come {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.cluster_jobs.submit_job(self.placement_request(number))?;
            count += 1;
        }
        self.progress.arrived += count;
        Ok(count > 0)
    }

    pub(super) fn placement_request(&self, number: u32) -> PlacementRequest {
        let job = &self.setup.trace.jobs[number as usize];
        let left = self.progress.records[number as usize].left;
        PlacementRequest {
            job: number,
            gpus: job.gpus,
            kind: None,
            submitted_seconds: job.submitted_seconds,
            remaining_seconds: left * self.alone[number as usize],
            remaining_iterations: left,
            model: job.model.clone(),
            tenant: job.tenant.clone(),
        }
    }
}
