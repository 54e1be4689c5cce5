//! Plans a cluster of the size given, so that time and peak memory can be measured from outside:
//! `scale GPUS packed|scattered`, `scale production`, or `scale nics8`.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use planner::{IncrementalPlanner, Job, PlanDepth, PlanInput, Policy, plan_to_depth};

use crate::cluster::{Placement, UpperTiers, cluster};
use crate::eight_nics::eight_nics;
use crate::production::production;

mod cluster;
mod eight_nics;
mod production;
mod ring_job;

const UPPER_TIERS: UpperTiers = UpperTiers { spines: 16, cores: 256 };

fn main() {
    let mut args = std::env::args().skip(1);
    let size = args.next();
    let gpus = size.as_ref().and_then(|gpus| gpus.parse().ok());
    let placement = match args.next().as_deref() {
        Some("scattered") => Placement::Scattered,
        _ => Placement::Packed,
    };
    let input = match size.as_deref() {
        Some("production") => production(),
        Some("nics8") => eight_nics(),
        _ => cluster(gpus.unwrap_or(100_000), UPPER_TIERS, placement),
    };
    let policy = Policy::default();
    for _ in 0..5 {
        let watch = Stopwatch::start();
        let (plan, report) = plan_to_depth(&input, &policy, None, PlanDepth::Quick);
        let took = watch.read();
        println!(
            "{} jobs, {} flows: {:.1} ms on a core, {:.1} ms in all; \
             largest load {:.3}, at least {:.3}",
            plan.jobs.len(),
            plan.flows.len(),
            took.cpu,
            took.wall,
            report.bounds.max_load,
            report.bounds.max_load_lower_bound,
        );
    }
    events(&input, &policy);
}

/// Some two dozen jobs depart and come back; so does, by itself, the job that sends most, against
/// which all others are corrected. Plans are quick; what a comparison of candidates takes, which
/// follows later, is printed too.
fn events(input: &PlanInput, policy: &Policy) {
    let watch = Stopwatch::start();
    let mut planner = IncrementalPlanner::with_depth(input, policy, None, PlanDepth::Quick);
    planner.compare_candidates();
    println!("compared from scratch: {:.0} ms on a core", watch.read().cpu);
    let some = input.jobs.iter().step_by(1 + input.jobs.len() / 24);
    let mut took: Vec<Took> = some.flat_map(|job| departs_and_returns(&mut planner, job)).collect();
    took.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{} events: median {:.2} ms on a core, {:.2} ms in all; longest {:.2} ms on a core",
        took.len(),
        median.cpu,
        median.wall,
        longest.cpu
    );
    let sent = |job: &Job| job.flows.iter().map(|flow| flow.bytes).sum::<f64>();
    let most = input.jobs.iter().max_by(|a, b| sent(a).total_cmp(&sent(b)));
    let most = most.expect("there are jobs");
    let [gone, back] = departs_and_returns(&mut planner, most);
    println!(
        "the job that sends most departs: {:.2} ms on a core; returns: {:.2} ms",
        gone.cpu, back.cpu
    );
    let mut newcomer = Job { id: "newcomer".into(), ..most.clone() };
    newcomer.flows.iter_mut().for_each(|flow| flow.bytes *= 1.25);
    let watch = Stopwatch::start();
    planner.add_job(newcomer).expect("no job has its name");
    println!("a new job that sends more than all: {:.2} ms on a core", watch.read().cpu);
    let watch = Stopwatch::start();
    planner.compare_candidates();
    println!("compared after these events: {:.0} ms on a core", watch.read().cpu);
}

/// What both events took.
fn departs_and_returns(planner: &mut IncrementalPlanner, job: &Job) -> [Took; 2] {
    let watch = Stopwatch::start();
    planner.remove_job(&job.id).expect("the job is there");
    let gone = watch.read();
    let job = job.clone();
    let watch = Stopwatch::start();
    planner.add_job(job).expect("the job has just departed");
    [gone, watch.read()]
}

/// Time on a processor and on the wall, in milliseconds: others may work on the machine too.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Took {
    cpu: f64,
    wall: f64,
}

struct Stopwatch {
    cpu: f64,
    started: Instant,
}

impl Stopwatch {
    fn start() -> Self {
        Self { cpu: on_processor(), started: Instant::now() }
    }

    fn read(&self) -> Took {
        Took { cpu: on_processor() - self.cpu, wall: self.started.elapsed().as_secs_f64() * 1e3 }
    }
}

/// Milliseconds that this thread has been on a processor.
fn on_processor() -> f64 {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(spent).as_secs_f64() * 1e3
}
