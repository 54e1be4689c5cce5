//! The engine: jobs, time, and the loop that processes one instant after the other.
//!
//! `job` and `network` validate the input, `rate_allocation` computes the rates, `event_queue`
//! orders the instants. Below, `iteration` is the life cycle of a job, `mutations` the changes that
//! a caller makes, `queries` and `meters` what a caller reads.
//!
//! The decision: bytes left are updated only when a rate changes, so an instant costs what it
//! changes and nothing else.

mod iteration;
mod meters;
mod mutations;
mod queries;

use std::collections::VecDeque;

use crate::clock::Ticks;
use crate::error::FluidError;
use crate::event_queue::EventQueue;
use crate::job::JobIndex;
use crate::network::FluidNetwork;
use crate::observer::{JobPhase, RunInstant, RunObserver};
use crate::rate_allocation::{RateAllocator, RateChanges, SendingFlow};
use crate::tallies::WorkCounters;
use iteration::EngineJob;
use meters::LevelMeter;

/// In which order flows are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceDiscipline {
    /// By the levels of their jobs, max-min fair inside a level: what switches do.
    #[default]
    Levels,
    /// Coflow by coflow, the smallest effective bottleneck first, whatever the levels: what hosts
    /// can do that give every flow a rate (Varys).
    Coflows,
    /// Without levels, max-min fair by a weight that grows with the part of its bytes that a flow
    /// has sent: hosts whose congestion control is MLTCP (Rajasekaran et al., HotNets 2024).
    BytesSent,
}

impl ServiceDiscipline {
    /// The level in which links have the flows of a job of this level.
    fn level_of_flows(self, level: u32) -> u32 {
        match self {
            Self::Levels => level,
            Self::Coflows | Self::BytesSent => 0,
        }
    }
}

/// Slope and intercept of MLTCP's aggressiveness `F(x) = 1.75 x + 0.25`, of the part `x` of its
/// bytes that a flow has sent. Two flows on a link share it in the ratio of their `F`.
const AGGRESSIVENESS: [f64; 2] = [1.75, 0.25];

/// The aggressiveness of a flow is constant for this part of its bytes.
const BYTES_SENT_STEP: f64 = 1.0 / 32.0;

/// Options of a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineOptions {
    /// In which order flows are served.
    pub discipline: ServiceDiscipline,
    /// Time from link to link, seconds: the last byte of a flow arrives this long after it was
    /// sent, for each link of the path ("alpha"). The links are not held meanwhile.
    pub alpha_seconds_per_hop: f64,
    /// Flows of a job that would end within this share of the time that they have been sent end
    /// together: an approximation that makes runs of many flows cheap. They arrive when they would
    /// have, but leave their links up to so much earlier. 0 is exact.
    pub merged_share: f64,
}

/// Progress over time of equal flows of one job on one path; `rate_allocation` has their links and
/// rates under the same index.
#[derive(Debug, Clone)]
pub(crate) struct GroupProgress {
    pub(crate) job: JobIndex,
    /// Bytes of an iteration, and those left at `updated_at`, of each flow.
    bytes: f64,
    bytes_left: f64,
    /// Computation of an iteration before it starts.
    start_delay: Ticks,
    /// Rate since then, bytes/s.
    rate: f64,
    updated_at: Ticks,
    /// Time from sending to arrival.
    latency: Ticks,
    /// While it waits: when it was last served, or began.
    waiting_since: Ticks,
    /// The longest that it has waited for service with bytes left, so far.
    longest_wait: Ticks,
}

/// A network and the jobs on it at one instant, with their totals so far.
///
/// Cloning copies everything. Indices of jobs and links are dense; those of removed jobs are used
/// again, so memory follows the jobs present at once.
#[derive(Debug, Clone)]
pub struct Engine {
    now: Ticks,
    discipline: ServiceDiscipline,
    hop_latency: Ticks,
    merged_share: f64,
    pub(crate) rate_allocator: RateAllocator,
    pub(crate) group_progress: Vec<GroupProgress>,
    jobs: Vec<Option<EngineJob>>,
    free_jobs: Vec<u32>,
    event_queue: EventQueue,
    meters: Vec<LevelMeter>,
    finished_jobs: VecDeque<JobIndex>,
    events: u64,
    /// What changed at the present instant.
    pub(crate) changes: RateChanges,
    pub(crate) phase_changes: Vec<(JobIndex, JobPhase)>,
}

/// An entry of the event queue: even ids are flow groups that end, odd ids jobs with a timed event.
enum ScheduledEvent {
    FlowGroup(u32),
    Job(JobIndex),
}

impl ScheduledEvent {
    fn from_id(id: u32) -> Self {
        if id & 1 == 0 { Self::FlowGroup(id >> 1) } else { Self::Job(JobIndex(id >> 1)) }
    }

    fn to_id(&self) -> u32 {
        match self {
            Self::FlowGroup(group) => group << 1,
            Self::Job(job) => job.0 << 1 | 1,
        }
    }
}

impl Engine {
    /// An engine at 0 s without jobs.
    ///
    /// # Errors
    /// [`FluidError::Seconds`] for an alpha that is no duration.
    pub fn new(network: &FluidNetwork, options: EngineOptions) -> Result<Self, FluidError> {
        Ok(Self {
            now: Ticks(0),
            discipline: options.discipline,
            hop_latency: Ticks::checked_seconds(
                "alpha_seconds_per_hop",
                options.alpha_seconds_per_hop,
            )?,
            merged_share: options.merged_share,
            rate_allocator: RateAllocator::new(network),
            group_progress: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            event_queue: EventQueue::default(),
            meters: Vec::new(),
            finished_jobs: VecDeque::new(),
            events: 0,
            changes: RateChanges::default(),
            phase_changes: Vec::new(),
        })
    }

    /// The present time, seconds.
    #[must_use]
    pub fn now_seconds(&self) -> f64 {
        self.now.as_seconds()
    }

    /// Number of instants so far at which rates were computed.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Work of the engine so far.
    #[must_use]
    pub fn work_counters(&self) -> WorkCounters {
        WorkCounters { events: self.events, groups_computed: self.rate_allocator.groups_computed() }
    }

    /// Runs to `seconds` inclusive.
    ///
    /// # Errors
    /// [`FluidError::Seconds`] for an invalid time, [`FluidError::Past`] for one that has passed.
    pub fn run_until(&mut self, seconds: f64) -> Result<(), FluidError> {
        let until = self.check_end_time(seconds)?;
        while self.process_instant(until) {}
        self.now = until;
        Ok(())
    }

    /// Runs to `seconds` inclusive and calls `observer` at every instant at which something
    /// happens.
    ///
    /// # Errors
    /// As [`Engine::run_until`].
    pub fn run_observed(
        &mut self,
        seconds: f64,
        observer: &mut dyn RunObserver,
    ) -> Result<(), FluidError> {
        let until = self.check_end_time(seconds)?;
        while self.process_instant(until) {
            observer.on_instant(&RunInstant { engine: self });
        }
        self.now = until;
        Ok(())
    }

    /// Processes the next instant if it is not later than `seconds`; false, and no time passes, if
    /// no event is left. For callers with a budget of events, and for those that wait for
    /// [`Engine::take_finished`].
    ///
    /// # Errors
    /// As [`Engine::run_until`].
    pub fn step_until(&mut self, seconds: f64) -> Result<bool, FluidError> {
        let until = self.check_end_time(seconds)?;
        Ok(self.process_instant(until))
    }

    /// The instant processed last, as an observer sees it: for callers of [`Engine::step_until`]
    /// that change something between instants.
    #[must_use]
    pub fn latest_instant(&self) -> RunInstant<'_> {
        RunInstant { engine: self }
    }

    /// Runs until rates were computed `max` more times, or nothing is left to happen. Returns how
    /// often they were.
    pub fn run_events(&mut self, max: u64) -> u64 {
        let before = self.events;
        while self.events - before < max && self.process_instant(Ticks::LAST) {}
        self.events - before
    }

    /// The next job that has run all its iterations since the last call, in order of time. It
    /// stays until it is removed.
    pub fn take_finished(&mut self) -> Option<JobIndex> {
        self.finished_jobs.pop_front()
    }

    fn check_end_time(&self, seconds: f64) -> Result<Ticks, FluidError> {
        let until = Ticks::checked_seconds("the end of the run", seconds)?;
        if until < self.now {
            return Err(FluidError::Past { to: seconds, now: self.now_seconds() });
        }
        Ok(until)
    }

    /// Processes everything that happens at the next instant, if that is not later than `until`.
    /// A change by the caller makes the present an instant.
    fn process_instant(&mut self, until: Ticks) -> bool {
        // What the last instant has changed stays readable until time passes again; observers read
        // it.
        self.changes.groups.clear();
        self.changes.link_levels.clear();
        self.phase_changes.clear();
        // A caller may have changed something since the last instant. Then rates are computed at
        // the present one, and time does not move.
        if self.rate_allocator.is_up_to_date() {
            match self.event_queue.next_time() {
                Some(at) if at <= until => self.now = at,
                _ => return false,
            }
        }
        // All phases before any rate: what ends and what begins at one instant is one event.
        while let Some((at, event)) = self.take_due() {
            match event {
                // The end of a step of its share, not of the group.
                ScheduledEvent::FlowGroup(group) if self.has_bytes_left(group) => {
                    self.changes.groups.push(group);
                }
                ScheduledEvent::FlowGroup(group) => self.end_group(group, at),
                ScheduledEvent::Job(job) => self.handle_job_event(job),
            }
        }
        // Only instants that share rates anew count as events: a job that begins to compute changes
        // no rate.
        if self.reallocate() {
            self.events += 1;
            self.apply_new_rates();
            self.update_meters();
        }
        true
    }

    /// The next event that is due, and its time: a flow group may be due early.
    fn take_due(&mut self) -> Option<(Ticks, ScheduledEvent)> {
        let (at, id) = self.event_queue.peek()?;
        let event = ScheduledEvent::from_id(id);
        let is_due = at <= self.now
            || match event {
                ScheduledEvent::FlowGroup(group) => at <= self.end_of_merging(group),
                ScheduledEvent::Job(_) => false,
            };
        is_due.then(|| {
            // Removed before it is handled: the handler may set the next instant of the same id.
            self.event_queue.remove(id);
            (at, event)
        })
    }

    /// Whether the event of a flow group is the next step of its aggressiveness, and not its end.
    fn has_bytes_left(&self, group: u32) -> bool {
        let group = &self.group_progress[group as usize];
        self.discipline == ServiceDiscipline::BytesSent
            && group.bytes_left_at(self.now) > group.rate * GRACE
    }

    /// The latest end of a flow group that counts as now.
    fn end_of_merging(&self, group: u32) -> Ticks {
        if self.merged_share <= 0.0 {
            return self.now;
        }
        let GroupProgress { job, start_delay, .. } = self.group_progress[group as usize];
        let sending_since = self.jobs[job.0 as usize]
            .as_ref()
            // Since the flows began and not since the last event, or many small steps would merge
            // into a large one.
            .map_or(self.now, |job| job.iteration_start.saturating_add(start_delay));
        let sent_for = self.now.seconds_since(sending_since);
        self.now.saturating_add(Ticks::from_seconds(self.merged_share * sent_for))
    }

    /// Computes rates where something changed; false if nothing did.
    fn reallocate(&mut self) -> bool {
        match self.discipline {
            ServiceDiscipline::Levels => self.rate_allocator.reallocate(&mut self.changes),
            // A group that changed though nothing begins or ends has a new share.
            _ if self.rate_allocator.is_up_to_date() && self.changes.groups.is_empty() => false,
            discipline => {
                let flows = self.sending_flows();
                let by_coflow = discipline == ServiceDiscipline::Coflows;
                self.rate_allocator.reallocate_by_hosts(&flows, by_coflow, &mut self.changes);
                true
            }
        }
    }

    /// All flow groups that send, those of a job together.
    fn sending_flows(&self) -> Vec<SendingFlow> {
        let groups = self.jobs.iter().flatten().flat_map(|job| &job.groups);
        let sending = groups.filter(|group| self.rate_allocator.is_sending(**group));
        sending
            .map(|&group| {
                let progress = &self.group_progress[group as usize];
                SendingFlow {
                    coflow: progress.job.0,
                    group,
                    bytes_left: progress.bytes_left_at(self.now),
                    share: match self.discipline {
                        ServiceDiscipline::BytesSent => progress.aggressiveness_at(self.now),
                        ServiceDiscipline::Levels | ServiceDiscipline::Coflows => 1.0,
                    },
                }
            })
            .collect()
    }

    /// Takes over the rates that changed and reschedules the ends of those groups.
    fn apply_new_rates(&mut self) {
        for index in 0..self.changes.groups.len() {
            let id = self.changes.groups[index];
            // A group that ended in this instant is among the changes, and has no end to schedule.
            if !self.rate_allocator.is_sending(id) {
                continue;
            }
            let rate = self.rate_allocator.group_rate(id);
            let group = &mut self.group_progress[id as usize];
            // With the old rate, which held until now.
            group.advance_to(self.now);
            group.set_rate(rate, self.now);
            let end = match self.discipline {
                ServiceDiscipline::BytesSent => group.next_step_time(),
                ServiceDiscipline::Levels | ServiceDiscipline::Coflows => group.end_time(),
            };
            self.event_queue.set_time(ScheduledEvent::FlowGroup(id).to_id(), end);
        }
    }
}

/// A flow that would end within this time ends now, seconds: 1 ns, 50 bytes at 400 Gb/s. Rounding
/// separates instants that should be equal, and a residue must not wait for a whole burst of a
/// higher level that begins as its flow ends.
const GRACE: f64 = 1e-9;

/// What counts as the end of a step, in steps: rounding must not leave a rest of it.
const STEP_TOLERANCE: f64 = 1e-6;

impl GroupProgress {
    /// Takes another rate; a wait begins with a rate of 0 and ends with any other.
    fn set_rate(&mut self, rate: f64, now: Ticks) {
        // A wait begins where service ends, and is counted where service begins again.
        if self.rate > 0.0 {
            self.waiting_since = now;
        } else if rate > 0.0 {
            self.longest_wait = self.longest_wait.max(self.wait_at(now));
        }
        self.rate = rate;
    }

    /// How long it has been waiting.
    fn wait_at(&self, now: Ticks) -> Ticks {
        Ticks(now.0.saturating_sub(self.waiting_since.0))
    }

    /// Updates the bytes left, before the rate changes.
    fn advance_to(&mut self, now: Ticks) {
        let left = self.bytes_left_at(now);
        // Less than a nanosecond of sending is rounding; kept, it would schedule an end at the same
        // instant again.
        self.bytes_left = if left > self.rate * GRACE { left } else { 0.0 };
        self.updated_at = now;
    }

    fn bytes_left_at(&self, now: Ticks) -> f64 {
        // An end rounded up to the next tick takes a few more bytes than there are.
        (self.bytes_left - self.rate * now.seconds_since(self.updated_at)).max(0.0)
    }

    /// Time of the last byte if the rate stays.
    fn end_time(&self) -> Ticks {
        self.time_of_sending(self.bytes_left)
    }

    /// When the next step of its aggressiveness begins, or the last byte is sent.
    fn next_step_time(&self) -> Ticks {
        let later = self.later_steps(self.bytes_left) * BYTES_SENT_STEP * self.bytes;
        self.time_of_sending(self.bytes_left - later)
    }

    /// Steps of its aggressiveness after the one that it is in, with so many bytes left.
    fn later_steps(&self, bytes_left: f64) -> f64 {
        // Without the tolerance, a group at the end of a step would still be in it, and step again
        // at once.
        (bytes_left / (BYTES_SENT_STEP * self.bytes) - STEP_TOLERANCE).floor().max(0.0)
    }

    /// MLTCP's `F` of the part of its bytes that is sent, in the middle of the step that it is in.
    fn aggressiveness_at(&self, now: Ticks) -> f64 {
        let later = self.later_steps(self.bytes_left_at(now));
        // The middle of the step stands for all of it.
        let sent = 1.0 - (later + 0.5) * BYTES_SENT_STEP;
        AGGRESSIVENESS[0] * sent + AGGRESSIVENESS[1]
    }

    /// When so many bytes more are sent if the rate stays.
    fn time_of_sending(&self, bytes: f64) -> Ticks {
        if bytes <= 0.0 {
            self.updated_at
        } else if self.rate > 0.0 {
            self.updated_at.saturating_add(Ticks::from_seconds(bytes / self.rate))
        } else {
            Ticks::NEVER
        }
    }
}
