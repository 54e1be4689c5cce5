//! What may happen to a run from outside: jobs come and go, classes and paths change, links fail.
//! Each takes effect at the present instant, when time next passes.

use std::collections::BTreeMap;

use super::iteration::Running;
use super::{Due, Engine, Strand};
use crate::clock::Ticks;
use crate::error::FluidError;
use crate::job::{Flow, Job, JobIndex};
use crate::network::check_capacity;
use crate::observer::Phase;
use crate::tallies::JobTally;

impl Engine {
    /// Adds a job; it begins at its start, or now if that has passed. Its flows with equal path
    /// and bytes are one group from here on: max-min fairness gives them equal rates at every
    /// instant, so they start and end together, and the group costs as much as one flow.
    ///
    /// # Errors
    /// What is wrong with the job, by name; the engine is unchanged.
    pub fn add_job(&mut self, job: &Job) -> Result<JobIndex, FluidError> {
        job.check(self.alpha)?;
        for (flow, Flow { path, .. }) in (0..).zip(&job.flows) {
            self.check_path(flow, path)?;
        }
        let index = self
            .free_jobs
            .pop()
            .map_or(JobIndex(self.jobs.len() as u32), JobIndex);
        let mut groups: BTreeMap<(&[u32], u64), u32> = BTreeMap::new();
        let mut running = Running::new(job, self.now);
        for flow in &job.flows {
            let group = groups.entry((&flow.path, flow.bytes.to_bits()));
            let strand = *group.or_insert_with(|| {
                let strand = self.lay(index, job.class, flow);
                running.strands.push(strand);
                strand
            });
            self.sharing
                .set_weight(strand, self.sharing.weight(strand) + 1.0);
            running.flows.push(strand);
        }
        let start = running.start;
        if index.0 as usize == self.jobs.len() {
            self.jobs.push(Some(running));
        } else {
            self.jobs[index.0 as usize] = Some(running);
        }
        self.agenda
            .reserve(2 * self.jobs.len().max(self.strands.len()));
        self.agenda.set(Due::Job(index).id(), start);
        Ok(index)
    }

    /// Removes a job and says what it did.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn remove_job(&mut self, job: JobIndex) -> Result<JobTally, FluidError> {
        let tally = self.job_tally(job)?;
        if let Some(running) = self.jobs[job.0 as usize].take() {
            for &strand in &running.strands {
                self.pause(strand);
                self.sharing.lift(strand);
            }
        }
        self.agenda.remove(Due::Job(job).id());
        self.finished.retain(|finished| *finished != job);
        self.free_jobs.push(job.0);
        Ok(tally)
    }

    /// Gives all flows of a job another class.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`].
    pub fn set_class(&mut self, job: JobIndex, class: u32) -> Result<(), FluidError> {
        let running = self.job(job)?;
        if running.class == class {
            return Ok(());
        }
        for index in 0..running.strands.len() {
            let strand = self.job(job)?.strands[index];
            let sending = self.pause(strand);
            self.sharing.reclass(strand, class);
            self.resume(strand, sending);
        }
        self.job_mut(job)?.class = class;
        self.grow_meters();
        Ok(())
    }

    /// Gives one flow of a job another path. Under way, what it has left to send goes there.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`], [`FluidError::UnknownFlow`], or what is wrong with the path.
    pub fn set_path(&mut self, job: JobIndex, flow: u32, path: &[u32]) -> Result<(), FluidError> {
        let from = self.strand_of(job, flow)?;
        self.check_path(flow, path)?;
        if self.sharing.path(from).eq(path.iter().copied()) {
            return Ok(());
        }
        let sending = self.pause(from);
        let to = match self.twin(job, from, sending, path) {
            Some(twin) => {
                self.pause(twin);
                twin
            }
            None => self.branch(job, from, path)?,
        };
        self.sharing.set_weight(to, self.sharing.weight(to) + 1.0);
        self.sharing
            .set_weight(from, self.sharing.weight(from) - 1.0);
        self.resume(to, sending);
        let running = self.job_mut(job)?;
        running.flows[flow as usize] = to;
        if self.sharing.weight(from) > 0.0 {
            self.resume(from, sending);
        } else {
            self.job_mut(job)?.strands.retain(|strand| *strand != from);
            self.sharing.lift(from);
        }
        let senders = self.senders(job)?;
        self.job_mut(job)?.sending = senders;
        Ok(())
    }

    /// Lets the next iteration of a job begin `seconds` later than it could, once: a time shift.
    ///
    /// # Errors
    /// [`FluidError::UnknownJob`] or [`FluidError::Seconds`].
    pub fn postpone(&mut self, job: JobIndex, seconds: f64) -> Result<(), FluidError> {
        let postponed = Ticks::checked("postpone", seconds)?;
        self.job_mut(job)?.postponed = postponed;
        Ok(())
    }

    /// Gives a link another capacity, bytes/s; at 0 it has failed, and flows on it wait.
    ///
    /// # Errors
    /// [`FluidError::UnknownLink`] or [`FluidError::Capacity`].
    pub fn set_capacity(&mut self, link: u32, capacity: f64) -> Result<(), FluidError> {
        check_capacity(link, capacity)?;
        if self.sharing.capacity(link).is_none() {
            return Err(FluidError::UnknownLink {
                link,
                links: self.sharing.link_count(),
            });
        }
        self.sharing.set_capacity(link, capacity);
        Ok(())
    }

    /// Back to 0 s with the jobs, classes, paths and capacities of now, nothing begun and all
    /// tallies zero. Keeps its memory: much cheaper than a new engine. A run after it equals one of
    /// a new engine but for the order of additions, that is to the last digits of a float.
    pub fn reset(&mut self) {
        self.now = Ticks(0);
        self.events = 0;
        self.sharing.reset();
        self.agenda.clear();
        self.meters.fill(super::Meter::default());
        self.finished.clear();
        for strand in &mut self.strands {
            (strand.left, strand.rate, strand.since) = (0.0, 0.0, Ticks(0));
        }
        for (id, job) in (0..).zip(&mut self.jobs) {
            if let Some(running) = job {
                running.rewind();
                self.agenda.set(Due::Job(JobIndex(id)).id(), running.start);
            }
        }
    }

    fn job_mut(&mut self, job: JobIndex) -> Result<&mut Running, FluidError> {
        let place = self.jobs.get_mut(job.0 as usize).and_then(Option::as_mut);
        place.ok_or(FluidError::UnknownJob(job))
    }

    /// Another strand of the job on `path` that is exactly as far as the paused strand `like`.
    fn twin(&self, job: JobIndex, like: u32, sending: bool, path: &[u32]) -> Option<u32> {
        let state = |id: u32| {
            let strand = &self.strands[id as usize];
            (strand.bytes.to_bits(), strand.left_at(self.now).to_bits())
        };
        let equal = |id: &&u32| {
            self.sharing.is_sending(**id) == sending
                && state(**id) == state(like)
                && self.sharing.path(**id).eq(path.iter().copied())
        };
        self.job(job).ok()?.strands.iter().find(equal).copied()
    }

    /// A new strand of the job on `path`, as far as `like`, of no flow yet.
    fn branch(&mut self, job: JobIndex, like: u32, path: &[u32]) -> Result<u32, FluidError> {
        let Strand { bytes, left, .. } = self.strands[like as usize];
        let class = self.job(job)?.class;
        let to = self.lay(
            job,
            class,
            &Flow {
                path: path.to_vec(),
                bytes,
            },
        );
        self.strands[to as usize].left = left;
        self.job_mut(job)?.strands.push(to);
        self.agenda.reserve(2 * self.strands.len());
        Ok(to)
    }

    /// How many strands of a job send.
    fn senders(&self, job: JobIndex) -> Result<u32, FluidError> {
        let strands = &self.job(job)?.strands;
        Ok(strands
            .iter()
            .filter(|id| self.sharing.is_sending(**id))
            .count() as u32)
    }

    fn check_path(&self, flow: u32, path: &[u32]) -> Result<(), FluidError> {
        if path.is_empty() {
            return Err(FluidError::NoPath { flow });
        }
        for (position, &link) in path.iter().enumerate() {
            match self.sharing.capacity(link) {
                None => {
                    let links = self.sharing.link_count();
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

    /// A strand of no flow yet.
    fn lay(&mut self, job: JobIndex, class: u32, flow: &Flow) -> u32 {
        let id = self.sharing.lay(&flow.path, class, 0.0);
        let strand = Strand {
            job,
            bytes: flow.bytes,
            left: 0.0,
            rate: 0.0,
            since: self.now,
            latency: Ticks(self.alpha.0.saturating_mul(flow.path.len() as u64)),
        };
        match self.strands.get_mut(id as usize) {
            Some(place) => *place = strand,
            None => self.strands.push(strand),
        }
        self.grow_meters();
        id
    }

    /// Takes a strand off its links with what it has left. True if it was sending.
    fn pause(&mut self, id: u32) -> bool {
        let sending = self.sharing.is_sending(id);
        if sending {
            self.sharing.stop(id);
            let strand = &mut self.strands[id as usize];
            strand.advance(self.now);
            strand.rate = 0.0;
            self.agenda.remove(Due::Strand(id).id());
        }
        sending
    }

    fn resume(&mut self, id: u32, sending: bool) {
        if sending {
            let strand = &mut self.strands[id as usize];
            strand.since = self.now;
            self.agenda.set(Due::Strand(id).id(), strand.end());
            self.sharing.start(id);
        }
    }
}

impl Running {
    fn new(job: &Job, now: Ticks) -> Self {
        Self {
            class: job.class,
            start: Ticks::rounded(job.start).max(now),
            compute: Ticks::rounded(job.compute_seconds),
            lead: Ticks::rounded(job.compute_seconds * job.overlap_from),
            limit: job.iterations.unwrap_or(u64::MAX),
            flows: Vec::with_capacity(job.flows.len()),
            strands: Vec::new(),
            phase: Phase::Waiting,
            postponed: Ticks(0),
            begun: now,
            arrival: now,
            ended: now,
            sending: 0,
            iterations: 0,
            iterated: Ticks(0),
            bytes: 0.0,
        }
    }
}
