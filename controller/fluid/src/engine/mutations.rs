//! Changes that a caller makes to a run: jobs come and go, levels and paths change, links fail.
//! Each takes effect at the present instant, when time next passes.

use std::collections::BTreeMap;

use super::iteration::EngineJob;
use super::{Engine, GroupProgress, ScheduledEvent};
use crate::clock::Ticks;
use crate::error::FluidError;
use crate::job::{FluidFlow, FluidJob, JobIndex};
use crate::network::check_capacity;
use crate::observer::JobPhase;
use crate::tallies::JobTally;

impl Engine {
    /// Adds a job; it begins at its start, or now if that has passed. Its flows with equal path,
    /// bytes and start are one group from here on: max-min fairness gives them equal rates at every
    /// instant, so they end together, and the group costs as much as one flow.
    ///
    /// # Errors
    /// The first invalid field or path of the job; the engine is unchanged.
    pub fn add_job(&mut self, job: &FluidJob) -> Result<JobIndex, FluidError> {
        job.check_fields(self.hop_latency)?;
        for (flow, FluidFlow { path, .. }) in (0..).zip(&job.flows) {
            self.check_path(flow, path)?;
        }
        let index = self.free_jobs.pop().map_or(JobIndex(self.jobs.len() as u32), JobIndex);
        let mut groups: BTreeMap<(&[u32], u64, Ticks), u32> = BTreeMap::new();
        let mut running = EngineJob::new(job, self.now);
        for flow in &job.flows {
            let start_delay = start_delay(job, flow);
            // Flows of one job that are equal in all of these have the same rate at any time, and
            // become one group.
            let key = (&flow.path[..], flow.bytes.to_bits(), start_delay);
            let group = *groups.entry(key).or_insert_with(|| {
                let added = self.add_group(index, job.level, flow, start_delay);
                running.groups.push(added);
                added
            });
            self.rate_allocator.set_weight(group, self.rate_allocator.group_weight(group) + 1.0);
            running.group_of_flow.push(group);
        }
        let start = running.start_time;
        if index.0 as usize == self.jobs.len() {
            self.jobs.push(Some(running));
        } else {
            self.jobs[index.0 as usize] = Some(running);
        }
        // Ids of groups are even and those of jobs odd, so the larger number counts twice.
        self.event_queue.reserve(2 * self.jobs.len().max(self.group_progress.len()));
        self.event_queue.set_time(ScheduledEvent::Job(index).to_id(), start);
        Ok(index)
    }

    /// Removes a job and returns its totals.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn remove_job(&mut self, job: JobIndex) -> Result<JobTally, FluidError> {
        let tally = self.job_tally(job)?;
        if let Some(running) = self.jobs[job.0 as usize].take() {
            for &group in &running.groups {
                // Stopped before its memory is given away, or its place on the links would be that
                // of the next group.
                self.pause_group(group);
                self.rate_allocator.remove_group(group);
            }
        }
        self.event_queue.remove(ScheduledEvent::Job(job).to_id());
        self.finished_jobs.retain(|finished| *finished != job);
        self.free_jobs.push(job.0);
        Ok(tally)
    }

    /// Gives all flows of a job another level.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn set_level(&mut self, job: JobIndex, level: u32) -> Result<(), FluidError> {
        let running = self.find_job(job)?;
        if running.level == level {
            return Ok(());
        }
        for index in 0..running.groups.len() {
            let group = self.find_job(job)?.groups[index];
            // A group is on the links with its old level; it leaves them, changes, and comes back.
            let sending = self.pause_group(group);
            self.rate_allocator.set_group_level(group, self.discipline.level_of_flows(level));
            self.resume_group(group, sending);
        }
        self.job_mut(job)?.level = level;
        self.grow_meters();
        Ok(())
    }

    /// Gives one flow of a job another path. If the flow is sending, its remaining bytes go there.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`], [`FluidError::UnknownFlow`], or an invalid path.
    pub fn set_path(&mut self, job: JobIndex, flow: u32, path: &[u32]) -> Result<(), FluidError> {
        let from = self.group_of_flow(job, flow)?;
        self.check_path(flow, path)?;
        if self.rate_allocator.group_path(from).eq(path.iter().copied()) {
            return Ok(());
        }
        let sending = self.pause_group(from);
        let to = match self.find_equal_group(job, from, sending, path) {
            Some(equal) => {
                // The weight of a sending group is part of sums on its links, so it changes only
                // while it is paused.
                self.pause_group(equal);
                equal
            }
            None => self.split_group(job, from, path)?,
        };
        self.rate_allocator.set_weight(to, self.rate_allocator.group_weight(to) + 1.0);
        self.rate_allocator.set_weight(from, self.rate_allocator.group_weight(from) - 1.0);
        self.resume_group(to, sending);
        let running = self.job_mut(job)?;
        running.group_of_flow[flow as usize] = to;
        if self.rate_allocator.group_weight(from) > 0.0 {
            self.resume_group(from, sending);
        } else {
            self.job_mut(job)?.groups.retain(|group| *group != from);
            self.rate_allocator.remove_group(from);
        }
        let senders = self.count_sending_groups(job)?;
        self.job_mut(job)?.sending_groups = senders;
        Ok(())
    }

    /// Gives a link another capacity, bytes/s; at 0 it has failed, and flows on it wait.
    ///
    /// # Errors
    /// [`FluidError::UnknownLink`] or [`FluidError::Capacity`].
    pub fn set_capacity(&mut self, link: u32, capacity: f64) -> Result<(), FluidError> {
        check_capacity(link, capacity)?;
        if self.rate_allocator.link_capacity(link).is_none() {
            return Err(FluidError::UnknownLink { link, links: self.rate_allocator.link_count() });
        }
        self.rate_allocator.set_link_capacity(link, capacity);
        Ok(())
    }

    /// Returns to 0 s with the present jobs, levels, paths and capacities, nothing begun and all
    /// totals zero. Keeps its memory: much cheaper than a new engine. A run after it equals one of
    /// a new engine except for the order of additions, that is up to the last digits of a float.
    pub fn reset(&mut self) {
        self.now = Ticks(0);
        self.events = 0;
        // Capacities, levels and paths stay: a caller runs the same jobs again under other levels.
        self.rate_allocator.reset();
        self.event_queue.clear();
        self.meters.fill(super::LevelMeter::default());
        self.finished_jobs.clear();
        for group in &mut self.group_progress {
            (group.bytes_left, group.rate, group.updated_at) = (0.0, 0.0, Ticks(0));
            (group.waiting_since, group.longest_wait) = (Ticks(0), Ticks(0));
        }
        for (id, job) in (0..).zip(&mut self.jobs) {
            if let Some(running) = job {
                running.reset_progress();
                self.event_queue
                    .set_time(ScheduledEvent::Job(JobIndex(id)).to_id(), running.start_time);
            }
        }
    }

    fn job_mut(&mut self, job: JobIndex) -> Result<&mut EngineJob, FluidError> {
        let place = self.jobs.get_mut(job.0 as usize).and_then(Option::as_mut);
        place.ok_or(FluidError::UnknownJob(job))
    }

    /// Another group of the job on `path` with exactly the progress of the paused group `like`.
    fn find_equal_group(
        &self,
        job: JobIndex,
        like: u32,
        sending: bool,
        path: &[u32],
    ) -> Option<u32> {
        let groups = &self.find_job(job).ok()?.groups;
        let equal = groups.iter().find(|id| {
            self.rate_allocator.is_sending(**id) == sending
                // Bits, because groups that only nearly agree would drift apart and must not be
                // one.
                && self.progress_bits(**id) == self.progress_bits(like)
                && self.rate_allocator.group_path(**id).eq(path.iter().copied())
        });
        equal.copied()
    }

    /// Bytes and bytes left of a group as bits, and its start: only flows that are equal to the last
    /// digit stay equal, whatever rates they get.
    fn progress_bits(&self, id: u32) -> (u64, u64, Ticks) {
        let group = &self.group_progress[id as usize];
        (group.bytes.to_bits(), group.bytes_left_at(self.now).to_bits(), group.start_delay)
    }

    /// A new group of the job on `path` with the progress of `like`, without flows yet.
    fn split_group(&mut self, job: JobIndex, like: u32, path: &[u32]) -> Result<u32, FluidError> {
        let progress = self.group_progress[like as usize].clone();
        let level = self.find_job(job)?.level;
        let flow = FluidFlow::new(path.to_vec(), progress.bytes);
        let to = self.add_group(job, level, &flow, progress.start_delay);
        let new = &mut self.group_progress[to as usize];
        new.bytes_left = progress.bytes_left;
        (new.waiting_since, new.longest_wait) = (progress.waiting_since, progress.longest_wait);
        self.job_mut(job)?.groups.push(to);
        self.event_queue.reserve(2 * self.group_progress.len());
        Ok(to)
    }

    /// Number of groups of a job that are sending.
    fn count_sending_groups(&self, job: JobIndex) -> Result<u32, FluidError> {
        let groups = &self.find_job(job)?.groups;
        Ok(groups.iter().filter(|id| self.rate_allocator.is_sending(**id)).count() as u32)
    }

    fn check_path(&self, flow: u32, path: &[u32]) -> Result<(), FluidError> {
        if path.is_empty() {
            return Err(FluidError::NoPath { flow });
        }
        for (position, &link) in path.iter().enumerate() {
            match self.rate_allocator.link_capacity(link) {
                None => {
                    let links = self.rate_allocator.link_count();
                    return Err(FluidError::UnknownLink { link, links });
                }
                Some(0.0) => return Err(FluidError::NoCapacity { flow, link }),
                Some(_) if path[..position].contains(&link) => {
                    return Err(FluidError::Loop { flow, link });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A group without flows yet.
    fn add_group(
        &mut self,
        job: JobIndex,
        level: u32,
        flow: &FluidFlow,
        start_delay: Ticks,
    ) -> u32 {
        let level = self.discipline.level_of_flows(level);
        let id = self.rate_allocator.add_group(&flow.path, level, 0.0);
        let group = GroupProgress {
            job,
            bytes: flow.bytes,
            bytes_left: 0.0,
            start_delay,
            rate: 0.0,
            updated_at: self.now,
            latency: Ticks(self.hop_latency.0.saturating_mul(flow.path.len() as u64)),
            waiting_since: self.now,
            longest_wait: Ticks(0),
        };
        match self.group_progress.get_mut(id as usize) {
            Some(place) => *place = group,
            None => self.group_progress.push(group),
        }
        self.grow_meters();
        id
    }

    /// Stops a group and keeps its bytes left. Returns whether it was sending.
    fn pause_group(&mut self, id: u32) -> bool {
        let sending = self.rate_allocator.is_sending(id);
        if sending {
            self.rate_allocator.stop_group(id);
            let group = &mut self.group_progress[id as usize];
            group.advance_to(self.now);
            // The pause lasts no time, but a wait that is open has to be closed with the rate that
            // held.
            group.set_rate(0.0, self.now);
            self.event_queue.remove(ScheduledEvent::FlowGroup(id).to_id());
        }
        sending
    }

    fn resume_group(&mut self, id: u32, sending: bool) {
        if sending {
            let group = &mut self.group_progress[id as usize];
            group.updated_at = self.now;
            self.event_queue.set_time(ScheduledEvent::FlowGroup(id).to_id(), group.end_time());
            self.rate_allocator.start_group(id);
        }
    }
}

/// Computation of an iteration before a flow of `job` starts.
fn start_delay(job: &FluidJob, flow: &FluidFlow) -> Ticks {
    Ticks::from_seconds(job.compute_seconds * job.overlap_of(flow))
}

impl EngineJob {
    fn new(job: &FluidJob, now: Ticks) -> Self {
        let mut start_delays: Vec<Ticks> =
            job.flows.iter().map(|flow| start_delay(job, flow)).collect();
        if start_delays.is_empty() {
            start_delays.push(Ticks::from_seconds(job.compute_seconds * job.overlap_from));
        }
        start_delays.sort_unstable();
        start_delays.dedup();
        Self {
            level: job.level,
            start_time: Ticks::from_seconds(job.start).max(now),
            compute_time: Ticks::from_seconds(job.compute_seconds),
            start_delays,
            starts_made: 0,
            iteration_limit: job.iterations.unwrap_or(u64::MAX),
            group_of_flow: Vec::with_capacity(job.flows.len()),
            groups: Vec::new(),
            phase: JobPhase::Waiting,
            grid: job.grid,
            is_held: false,
            waited: Ticks(0),
            iteration_start: now,
            last_arrival: now,
            end_time: now,
            sending_groups: 0,
            iterations: 0,
            iteration_time: Ticks(0),
            bytes: 0.0,
        }
    }
}
