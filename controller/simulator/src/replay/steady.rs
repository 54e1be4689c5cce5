//! How long iterations take once a neighbourhood has settled: it is simulated, event by event,
//! until it is known to repeat itself or a budget is spent.
//!
//! Between two events of a cluster nothing changes but the jobs' positions in their cycles. So what
//! a job does for hours is what it does in a few iterations, and the replay jumps. A neighbourhood
//! that repeats itself is known exactly. One that does not (cycles without a common multiple) is
//! known as a mean over its last iterations; by how much the halves of that differ is what is
//! unsure of it.

use std::collections::BTreeMap;

use fluid::{Engine, Flow, FluidError, JobIndex, MAX_SECONDS, Network, Options};
use topology::{Fabric, LinkId};

use super::meeting::Mover;
use crate::simulation::Grid;

/// What is known of a job in its neighbourhood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steady {
    /// Seconds of an iteration; infinite for a job that gets nothing.
    pub(super) seconds: f64,
    /// By which part of itself that may differ from the long run; 0 where everything repeats.
    pub(super) unsure: f64,
}

/// Events after which a neighbourhood counts as known, if every member has ended iterations, and
/// after which it does in any case.
const ENOUGH: u64 = 1_500;
const MOST: u64 = 8 * ENOUGH;

/// Iterations that every member should have ended.
const ITERATIONS: usize = 4;

/// Iterations of the slowest member after which all may repeat.
const CYCLE: usize = 6;

/// What is equal but for rounding, as a part of a cycle.
const EQUAL: f64 = 1e-6;

/// What is known of the members of a neighbourhood, in their order.
///
/// # Errors
/// A number of a member that makes no sense.
pub(super) fn settle(fabric: &Fabric, members: &[Mover]) -> Result<Vec<Steady>, FluidError> {
    if let [alone] = members
        && alone.streams.is_empty()
    {
        return Ok(vec![Steady {
            seconds: alone.free_seconds(),
            unsure: 0.0,
        }]);
    }
    let mut trial = Trial::new(fabric, members)?;
    trial.run()?;
    let cycle = trial.cycle();
    let known = |member: usize| match cycle {
        Some(cycle) => Ok(Steady {
            seconds: cycle / trial.within(member, cycle) as f64,
            unsure: 0.0,
        }),
        None => trial.mean(member),
    };
    (0..members.len()).map(known).collect()
}

/// A neighbourhood under simulation.
struct Trial<'a> {
    members: &'a [Mover],
    engine: Engine,
    /// Where the engine has each member.
    places: Vec<JobIndex>,
    /// When each member ended its iterations, seconds.
    ends: Vec<Vec<f64>>,
    grid: Grid,
}

impl<'a> Trial<'a> {
    fn new(fabric: &Fabric, members: &'a [Mover]) -> Result<Self, FluidError> {
        let mut links = Links::default();
        let jobs: Vec<fluid::Job> = members.iter().map(|m| links.job(fabric, m)).collect();
        let mut engine = Engine::new(&Network::new(links.capacities)?, Options::default())?;
        let mut grid = Grid::default();
        let mut places = Vec::with_capacity(jobs.len());
        for (job, member) in jobs.iter().zip(members) {
            let place = engine.add_job(job)?;
            if let Some(period) = member.period_seconds {
                grid.hold(place, job.start, period);
            }
            places.push(place);
        }
        Ok(Self {
            members,
            engine,
            ends: vec![Vec::new(); places.len()],
            places,
            grid,
        })
    }

    fn run(&mut self) -> Result<(), FluidError> {
        while self.engine.step(MAX_SECONDS)? {
            if self.record()? && self.is_known() {
                break;
            }
            if self.engine.events() >= MOST {
                break;
            }
        }
        Ok(())
    }

    /// Whether an iteration ended at the present instant; jobs on a grid are held to it.
    fn record(&mut self) -> Result<bool, FluidError> {
        let instant = self.engine.latest();
        let turned: Vec<JobIndex> = instant.phases().map(|(job, _)| job).collect();
        let postponed = self.grid.postponements(&instant);
        let mut is_end = false;
        for job in turned {
            let ended = self.engine.job_tally(job)?.iterations;
            let ends = &mut self.ends[job.0 as usize];
            if ended > ends.len() as u64 {
                ends.push(self.engine.now());
                is_end = true;
            }
        }
        for (job, seconds) in postponed {
            self.engine.postpone(job, seconds)?;
        }
        Ok(is_end)
    }

    fn is_known(&self) -> bool {
        let ended = |ends: &Vec<f64>| ends.len() >= ITERATIONS;
        let enough = self.engine.events() >= ENOUGH && self.ends.iter().all(ended);
        enough || self.cycle().is_some()
    }

    /// The time in which everything repeated itself, if it did so last.
    fn cycle(&self) -> Option<f64> {
        let slowest = self.ends.iter().min_by_key(|ends| ends.len())?;
        let last = slowest.len().checked_sub(1)?;
        let candidates = (1..=CYCLE.min(last / 2)).map(|ago| slowest[last] - slowest[last - ago]);
        let repeats = |cycle: &f64| (0..self.ends.len()).all(|member| self.repeats(member, *cycle));
        candidates.into_iter().find(repeats)
    }

    /// Whether a member's ends in the last `cycle` are those of the one before.
    fn repeats(&self, member: usize, cycle: f64) -> bool {
        let ends = &self.ends[member];
        let count = self.within(member, cycle);
        let equal = |a: &f64, b: &f64| (a - b - cycle).abs() <= EQUAL * cycle;
        count > 0
            && ends.len() >= 2 * count
            && self.within(member, 2.0 * cycle) == 2 * count
            && (ends.iter().rev().zip(ends.iter().rev().skip(count)))
                .take(count)
                .all(|(late, early)| equal(late, early))
    }

    /// Iterations that a member ended within the last `seconds`.
    fn within(&self, member: usize, seconds: f64) -> usize {
        let ends = &self.ends[member];
        // What ended just a cycle ago belongs to the cycle before.
        let since = self.engine.now() - seconds * (1.0 - EQUAL);
        ends.len() - ends.partition_point(|end| *end < since)
    }

    /// The mean over the iterations after the first quarter, in which it settles.
    fn mean(&self, member: usize) -> Result<Steady, FluidError> {
        let ends = &self.ends[member];
        if ends.len() < 3 {
            return self.share(member);
        }
        let seen = &ends[ends.len() / 4..];
        let middle = seen.len() / 2;
        let mean = |part: &[f64]| (part[part.len() - 1] - part[0]) / (part.len() - 1).max(1) as f64;
        let seconds = mean(seen);
        let halves = mean(&seen[..=middle]) - mean(&seen[middle..]);
        let unsure = if seen.len() > 2 {
            halves.abs()
        } else {
            seconds
        };
        Ok(Steady {
            seconds,
            unsure: unsure / seconds,
        })
    }

    /// Of a member that hardly ended any: by the bytes that it sent.
    fn share(&self, member: usize) -> Result<Steady, FluidError> {
        let tally = self.engine.job_tally(self.places[member])?;
        let bytes: f64 = self.members[member].streams.iter().map(|s| s.bytes).sum();
        let private = self.members[member].unhindered_seconds * PRIVATE;
        let iterations = tally.bytes / (bytes + private);
        // One whose shift outlasts the budget has not begun: nothing is known against it.
        let seconds = match tally.present_seconds > 0.0 {
            true => tally.present_seconds / iterations,
            false => self.members[member].free_seconds(),
        };
        Ok(Steady {
            seconds,
            unsure: 1.0,
        })
    }
}

/// Bytes per second of a link that stands for all that nobody hinders.
const PRIVATE: f64 = 1e9;

/// The links of a neighbourhood, numbered as they come.
#[derive(Default)]
struct Links {
    numbers: BTreeMap<LinkId, u32>,
    capacities: Vec<f64>,
}

impl Links {
    fn job(&mut self, fabric: &Fabric, member: &Mover) -> fluid::Job {
        let mut flows: Vec<Flow> = Vec::with_capacity(member.streams.len() + 1);
        for stream in &member.streams {
            let links = stream.links.iter();
            flows.push(Flow {
                path: links.map(|link| self.number(fabric, *link)).collect(),
                bytes: stream.bytes,
            });
        }
        if member.unhindered_seconds > 0.0 {
            flows.push(Flow {
                path: vec![self.add(PRIVATE)],
                bytes: member.unhindered_seconds * PRIVATE,
            });
        }
        fluid::Job {
            compute_seconds: member.compute_seconds,
            overlap_from: member.overlap_from,
            class: member.class,
            start: member.offset_seconds,
            iterations: None,
            flows,
        }
    }

    fn number(&mut self, fabric: &Fabric, link: LinkId) -> u32 {
        if let Some(number) = self.numbers.get(&link) {
            return *number;
        }
        let number = self.add(fabric.link(link).bandwidth.bytes_per_second());
        self.numbers.insert(link, number);
        number
    }

    fn add(&mut self, capacity: f64) -> u32 {
        self.capacities.push(capacity);
        u32::try_from(self.capacities.len() - 1).unwrap_or(u32::MAX)
    }
}
