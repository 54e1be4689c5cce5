//! The iteration times of an interference group in its steady state. The group is simulated, event
//! by event, until it repeats itself or a budget is spent.
//!
//! Between two events of a cluster only the positions of jobs in their iterations change. What a
//! job does for hours is what it does in a few iterations, so the replay skips that time. The times
//! of a group that repeats itself are exact. For a group that does not (cycles without a common
//! multiple) they are means over its last iterations, and the uncertainty is the difference between
//! the two halves of these.

use std::collections::BTreeMap;

use fluid::{
    Engine, EngineOptions, FluidError, FluidFlow, FluidNetwork, JobIndex, MAX_SECONDS,
    ServiceDiscipline,
};
use topology::{Fabric, LinkId};

use super::interference_groups::JobTraffic;

/// Measurements of a job in its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SteadyState {
    /// Seconds of an iteration; infinite for a job that gets nothing.
    pub(super) seconds: f64,
    /// By which part of itself that may differ from the long run; 0 where everything repeats.
    pub(super) uncertainty: f64,
}

/// Events after which a group counts as known, if every member has ended iterations, and
/// after which it does in any case.
const ENOUGH_EVENTS: u64 = 1_500;
const MAX_EVENTS: u64 = 8 * ENOUGH_EVENTS;

/// Iterations that every member should have ended.
const MIN_ITERATIONS: usize = 4;

/// Iterations of the slowest member after which all may repeat.
const MAX_CYCLE: usize = 6;

/// What is equal but for rounding, as a part of a cycle.
const ROUNDING: f64 = 1e-6;

/// Measurements of the members of a group, in their order.
///
/// # Errors
/// A number of a member that makes no sense.
pub(super) fn find_steady_states(
    fabric: &Fabric,
    discipline: ServiceDiscipline,
    members: &[JobTraffic],
) -> Result<Vec<SteadyState>, FluidError> {
    if let [alone] = members
        && alone.contended_flows.is_empty()
    {
        return Ok(vec![SteadyState { seconds: alone.uncontended_iteration(), uncertainty: 0.0 }]);
    }
    let mut simulation = GroupSimulation::new(fabric, discipline, members)?;
    simulation.run_until_known()?;
    let cycle = simulation.find_cycle();
    (0..members.len())
        .map(|member| match cycle {
            Some(cycle) => Ok(SteadyState {
                seconds: cycle / simulation.iterations_within(member, cycle) as f64,
                uncertainty: 0.0,
            }),
            None => simulation.mean_state(member),
        })
        .collect()
}

/// A group under simulation.
struct GroupSimulation<'a> {
    members: &'a [JobTraffic],
    engine: Engine,
    /// Where the engine has each member.
    engine_jobs: Vec<JobIndex>,
    /// When each member ended its iterations, seconds.
    ends: Vec<Vec<f64>>,
}

impl<'a> GroupSimulation<'a> {
    fn new(
        fabric: &Fabric,
        discipline: ServiceDiscipline,
        members: &'a [JobTraffic],
    ) -> Result<Self, FluidError> {
        let mut links = GroupLinks::default();
        let jobs: Vec<fluid::FluidJob> =
            members.iter().map(|m| links.fluid_job(fabric, m)).collect();
        let options = EngineOptions { discipline, ..EngineOptions::default() };
        let mut engine = Engine::new(&links.into_network()?, options)?;
        let mut places = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let place = engine.add_job(job)?;
            places.push(place);
        }
        Ok(Self { members, engine, ends: vec![Vec::new(); places.len()], engine_jobs: places })
    }

    fn run_until_known(&mut self) -> Result<(), FluidError> {
        while self.engine.step_until(MAX_SECONDS)? {
            // Only the end of an iteration can complete a cycle.
            if self.record_iterations()? && self.is_known() {
                break;
            }
            if self.engine.event_count() >= MAX_EVENTS {
                break;
            }
        }
        Ok(())
    }

    /// Whether an iteration ended at the present instant.
    fn record_iterations(&mut self) -> Result<bool, FluidError> {
        let instant = self.engine.latest_instant();
        let turned: Vec<JobIndex> = instant.phase_changes().map(|(job, _)| job).collect();
        let mut is_end = false;
        for job in turned {
            let ended = self.engine.job_tally(job)?.iterations;
            let ends = &mut self.ends[job.0 as usize];
            if ended > ends.len() as u64 {
                ends.push(self.engine.now_seconds());
                is_end = true;
            }
        }
        Ok(is_end)
    }

    fn is_known(&self) -> bool {
        let enough = self.engine.event_count() >= ENOUGH_EVENTS
            && self.ends.iter().all(|ends| ends.len() >= MIN_ITERATIONS);
        enough || self.find_cycle().is_some()
    }

    /// The time in which everything repeated itself, if it did so last.
    fn find_cycle(&self) -> Option<f64> {
        let slowest = self.ends.iter().min_by_key(|ends| ends.len())?;
        let last = slowest.len().checked_sub(1)?;
        let candidates =
            (1..=MAX_CYCLE.min(last / 2)).map(|ago| slowest[last] - slowest[last - ago]);
        candidates
            .into_iter()
            .find(|cycle| (0..self.ends.len()).all(|member| self.repeats_cycle(member, *cycle)))
    }

    /// Whether a member's ends in the last `cycle` are those of the one before.
    fn repeats_cycle(&self, member: usize, cycle: f64) -> bool {
        let ends = &self.ends[member];
        let count = self.iterations_within(member, cycle);
        count > 0
            && ends.len() >= 2 * count
            && self.iterations_within(member, 2.0 * cycle) == 2 * count
            && (ends.iter().rev().zip(ends.iter().rev().skip(count)))
                .take(count)
                .all(|(late, early)| (late - early - cycle).abs() <= ROUNDING * cycle)
    }

    /// Iterations that a member ended within the last `seconds`.
    fn iterations_within(&self, member: usize, seconds: f64) -> usize {
        let ends = &self.ends[member];
        // What ended just a cycle ago belongs to the cycle before.
        let since = self.engine.now_seconds() - seconds * (1.0 - ROUNDING);
        ends.len() - ends.partition_point(|end| *end < since)
    }

    /// The mean over the iterations after the first quarter, in which it settles.
    fn mean_state(&self, member: usize) -> Result<SteadyState, FluidError> {
        let ends = &self.ends[member];
        if ends.len() < 3 {
            return self.estimate_from_bytes(member);
        }
        let seen = &ends[ends.len() / 4..];
        let middle = seen.len() / 2;
        let seconds = mean_interval(seen);
        let halves = mean_interval(&seen[..=middle]) - mean_interval(&seen[middle..]);
        let unsure = if seen.len() > 2 { halves.abs() } else { seconds };
        Ok(SteadyState { seconds, uncertainty: unsure / seconds })
    }

    /// Of a member that hardly ended any: by the bytes that it sent.
    fn estimate_from_bytes(&self, member: usize) -> Result<SteadyState, FluidError> {
        let tally = self.engine.job_tally(self.engine_jobs[member])?;
        let bytes: f64 = self.members[member].contended_flows.iter().map(|s| s.bytes).sum();
        let private = self.members[member].uncontended_seconds * PRIVATE;
        let iterations = tally.bytes / (bytes + private);
        // One whose shift outlasts the budget has not begun: nothing is known against it.
        let seconds = match tally.present_seconds > 0.0 {
            true => tally.present_seconds / iterations,
            false => self.members[member].uncontended_iteration(),
        };
        Ok(SteadyState { seconds, uncertainty: 1.0 })
    }
}

/// Mean seconds between the ends of consecutive iterations.
fn mean_interval(ends: &[f64]) -> f64 {
    (ends[ends.len() - 1] - ends[0]) / (ends.len() - 1).max(1) as f64
}

/// Bytes per second of a private link that stands for all uncontended flows.
const PRIVATE: f64 = 1e9;

/// The links of a group, numbered as they come.
#[derive(Default)]
struct GroupLinks {
    numbers: BTreeMap<LinkId, u32>,
    capacities: Vec<f64>,
    /// Those that serve all levels alike.
    fifo: Vec<u32>,
}

impl GroupLinks {
    fn into_network(self) -> Result<FluidNetwork, FluidError> {
        Ok(FluidNetwork::new(self.capacities)?.with_fifo_links(self.fifo))
    }

    fn fluid_job(&mut self, fabric: &Fabric, member: &JobTraffic) -> fluid::FluidJob {
        let mut flows: Vec<FluidFlow> = Vec::with_capacity(member.contended_flows.len() + 1);
        for stream in &member.contended_flows {
            let links = stream.links.iter();
            let path = links.map(|link| self.link_number(fabric, *link)).collect();
            flows.push(FluidFlow::new(path, stream.bytes));
        }
        if member.uncontended_seconds > 0.0 {
            let bytes = member.uncontended_seconds * PRIVATE;
            flows.push(FluidFlow::new(vec![self.add_link(PRIVATE)], bytes));
        }
        fluid::FluidJob {
            compute_seconds: member.compute_seconds,
            overlap_from: member.overlap_from,
            level: member.level,
            start: member.offset_seconds,
            grid: member.grid,
            iterations: None,
            flows,
        }
    }

    fn link_number(&mut self, fabric: &Fabric, link: LinkId) -> u32 {
        if let Some(number) = self.numbers.get(&link) {
            return *number;
        }
        let number = self.add_link(fabric.link_bandwidth(link).bytes_per_second());
        if !fabric.link_scheduler(link).serves_levels() {
            self.fifo.push(number);
        }
        self.numbers.insert(link, number);
        number
    }

    fn add_link(&mut self, capacity: f64) -> u32 {
        self.capacities.push(capacity);
        u32::try_from(self.capacities.len() - 1).unwrap_or(u32::MAX)
    }
}
