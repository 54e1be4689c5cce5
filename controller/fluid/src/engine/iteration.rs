//! The life cycle of a job: waiting, computing, communicating, draining, and again.

use super::{Engine, GroupProgress, ScheduledEvent};
use crate::clock::Ticks;
use crate::iteration_grid::JobGrid;
use crate::job::JobIndex;
use crate::observer::JobPhase;

/// No iteration is shorter, whatever the input: 1 microsecond. Time then always passes.
const MIN_ITERATION: Ticks = Ticks(1_000_000);

/// A job in the engine.
#[derive(Debug, Clone)]
pub(super) struct EngineJob {
    pub(super) level: u32,
    pub(super) start_time: Ticks,
    pub(super) compute_time: Ticks,
    /// Computation before flows start, ascending, each once; and for how many of these the flows of
    /// this iteration have started.
    pub(super) start_delays: Vec<Ticks>,
    pub(super) starts_made: usize,
    /// Iterations to run.
    pub(super) iteration_limit: u64,
    /// Flow group of each flow, and every flow group once.
    pub(super) group_of_flow: Vec<u32>,
    pub(super) groups: Vec<u32>,
    pub(super) phase: JobPhase,
    /// The grid that its iterations keep, whether the next one waits for it, and how long all have.
    pub(super) grid: Option<JobGrid>,
    pub(super) is_held: bool,
    pub(super) waited: Ticks,
    /// Start of the iteration, latest arrival of its bytes so far, and groups still sending.
    pub(super) iteration_start: Ticks,
    pub(super) last_arrival: Ticks,
    pub(super) sending_groups: u32,
    /// When its last iteration ended, if it is finished.
    pub(super) end_time: Ticks,
    /// Totals of completed iterations.
    pub(super) iterations: u64,
    pub(super) iteration_time: Ticks,
    pub(super) bytes: f64,
}

impl EngineJob {
    /// Whether all flows of this iteration have started and ended.
    fn has_sent_all(&self) -> bool {
        self.sending_groups == 0 && self.starts_made == self.start_delays.len()
    }

    /// Discards all progress; the job waits for its start again.
    pub(super) fn reset_progress(&mut self) {
        self.phase = JobPhase::Waiting;
        (self.is_held, self.waited) = (false, Ticks(0));
        self.sending_groups = 0;
        (self.iterations, self.iteration_time, self.bytes) = (0, Ticks(0), 0.0);
    }
}

impl Engine {
    /// A job that the event queue or a flow group refers to.
    fn expect_job_mut(&mut self, job: JobIndex) -> &mut EngineJob {
        self.jobs[job.0 as usize].as_mut().expect("the queue and the groups refer to present jobs")
    }

    fn enter_phase(&mut self, job: JobIndex, phase: JobPhase) {
        self.expect_job_mut(job).phase = phase;
        self.phase_changes.push((job, phase));
    }

    pub(super) fn handle_job_event(&mut self, job: JobIndex) {
        match self.expect_job_mut(job).phase {
            JobPhase::Waiting => self.begin_iteration(job),
            JobPhase::Computing | JobPhase::Communicating => self.start_flows(job),
            JobPhase::Draining => self.end_iteration(job),
            JobPhase::Finished => {}
        }
    }

    fn begin_iteration(&mut self, job: JobIndex) {
        let now = self.now;
        let running = self.expect_job_mut(job);
        let was_held = std::mem::take(&mut running.is_held);
        // The first iteration begins when the caller says; one that was held has waited already,
        // and must not wait a period more for rounding.
        let grid = running.grid.filter(|_| !was_held && running.iterations > 0);
        let wait = grid.map_or(Ticks(0), |grid| grid.wait_at(now));
        if wait > Ticks(0) {
            (running.is_held, running.waited.0) = (true, running.waited.0 + wait.0);
            self.event_queue.set_time(ScheduledEvent::Job(job).to_id(), now.saturating_add(wait));
            return self.enter_phase(job, JobPhase::Waiting);
        }
        // After the wait, which is no part of an iteration.
        (running.iteration_start, running.last_arrival) = (now, now);
        running.starts_made = 0;
        let lead = running.start_delays[0];
        self.enter_phase(job, JobPhase::Computing);
        if lead > Ticks(0) {
            self.event_queue.set_time(ScheduledEvent::Job(job).to_id(), now.saturating_add(lead));
        } else {
            self.start_flows(job);
        }
    }

    /// Starts the flows whose turn it is, together. Flows without bytes arrive after their latency.
    fn start_flows(&mut self, job: JobIndex) {
        let now = self.now;
        if self.expect_job_mut(job).phase != JobPhase::Communicating {
            self.enter_phase(job, JobPhase::Communicating);
        }
        let running = self.jobs[job.0 as usize].as_mut().expect("it has just entered a phase");
        // All groups at the first start, so that those that begin later count as unsent until then.
        if running.starts_made == 0 {
            for &id in &running.groups {
                let group = &mut self.group_progress[id as usize];
                group.bytes_left = group.bytes;
            }
        }
        let delay = running.start_delays[running.starts_made];
        running.starts_made += 1;
        // One event for each job, at its next start: the queue has room for one instant for an id.
        if let Some(next) = running.start_delays.get(running.starts_made) {
            let at = running.iteration_start.saturating_add(*next);
            self.event_queue.set_time(ScheduledEvent::Job(job).to_id(), at);
        }
        for &id in &running.groups {
            let group = &mut self.group_progress[id as usize];
            if group.start_delay != delay {
                continue;
            }
            if group.bytes > 0.0 {
                (group.rate, group.updated_at, group.waiting_since) = (0.0, now, now);
                running.sending_groups += 1;
                self.rate_allocator.start_group(id);
            } else {
                // A flow without bytes still takes its latency, as a message without payload does.
                running.last_arrival = running.last_arrival.max(now.saturating_add(group.latency));
            }
        }
        if running.has_sent_all() {
            self.drain_job(job);
        }
    }

    /// The last byte of a flow group is sent at `at`, which is now or little later.
    pub(super) fn end_group(&mut self, id: u32, at: Ticks) {
        let now = self.now;
        self.rate_allocator.stop_group(id);
        self.changes.groups.push(id);
        // The whole bytes of the flows and not the integral of the rate, whose rounding would add
        // up over weeks.
        let sent = self.rate_allocator.group_weight(id) * self.group_progress[id as usize].bytes;
        let group = &mut self.group_progress[id as usize];
        (group.bytes_left, group.rate, group.updated_at) = (0.0, 0.0, now);
        let GroupProgress { job, latency, .. } = *group;
        let running = self.expect_job_mut(job);
        running.bytes += sent;
        // A group that was merged into this instant ends later, and arrives when it would have.
        running.last_arrival = running.last_arrival.max(at.max(now).saturating_add(latency));
        running.sending_groups -= 1;
        if running.has_sent_all() {
            self.drain_job(job);
        }
    }

    /// Waits for the rest of the computation and the last bytes.
    fn drain_job(&mut self, job: JobIndex) {
        let now = self.now;
        self.enter_phase(job, JobPhase::Draining);
        let running = self.expect_job_mut(job);
        let computed = running.iteration_start.saturating_add(running.compute_time);
        let end = computed
            .max(running.last_arrival)
            // Iterations of no length would keep time from passing.
            .max(running.iteration_start.saturating_add(MIN_ITERATION));
        if end > now {
            self.event_queue.set_time(ScheduledEvent::Job(job).to_id(), end);
        } else {
            self.end_iteration(job);
        }
    }

    fn end_iteration(&mut self, job: JobIndex) {
        let now = self.now;
        let running = self.expect_job_mut(job);
        running.iterations += 1;
        running.iteration_time.0 += now.0 - running.iteration_start.0;
        if running.iterations < running.iteration_limit {
            self.begin_iteration(job);
        } else {
            running.end_time = now;
            self.finished_jobs.push_back(job);
            self.enter_phase(job, JobPhase::Finished);
        }
    }
}
