//! Properties of the model, over random networks, jobs and changes.

use fluid::{Engine, FluidFlow, FluidJob, JobIndex, JobPhase, RunInstant};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::reference::Reference;
use crate::scenario::{engine, engine_with_fifo_links};

/// A change that a caller makes to a run. Jobs are those given at the start.
#[derive(Debug, Clone)]
enum Change {
    Capacity(u32, f64),
    Level(u32, u32),
    Path(u32, u32, Vec<u32>),
    Remove(u32),
    Add(FluidJob),
}

#[derive(Debug, Clone)]
struct Case {
    capacity: Vec<f64>,
    jobs: Vec<FluidJob>,
    /// Seconds between changes, and the changes.
    changes: Vec<(f64, Change)>,
}

const LINKS: u32 = 7;
const HORIZON: f64 = 30.0;

/// Round numbers half of the time, so that much happens at once.
fn amount(most: u32) -> impl Strategy<Value = f64> {
    prop_oneof![(1..=most).prop_map(f64::from), 0.1..f64::from(most)]
}

fn path() -> impl Strategy<Value = Vec<u32>> {
    let links: Vec<u32> = (0..LINKS).collect();
    prop::sample::subsequence(links, 1..=4).prop_shuffle()
}

fn any_job() -> impl Strategy<Value = FluidJob> {
    let bytes = prop_oneof![1 => Just(0.0), 8 => amount(20)];
    let starts = prop::option::weighted(0.25, prop_oneof![Just(0.0), Just(0.5), 0.0..1.0]);
    let flow = (path(), bytes, starts, 1_usize..3);
    let flows = prop::collection::vec(flow, 1..5).prop_map(|flows| {
        let copies = flows.into_iter().flat_map(|(path, bytes, overlap_from, copies)| {
            std::iter::repeat_n(FluidFlow { path, bytes, overlap_from }, copies)
        });
        copies.collect::<Vec<_>>()
    });
    let compute = prop_oneof![1 => Just(0.05), 8 => amount(3)];
    let overlap = prop_oneof![Just(1.0), Just(0.5), Just(0.0), 0.0..1.0];
    (compute, overlap, 0_u32..4, prop_oneof![Just(0.0), amount(4)], flows).prop_map(
        |(compute_seconds, overlap_from, level, start, flows)| FluidJob {
            compute_seconds,
            overlap_from,
            level,
            start,
            flows,
            ..FluidJob::default()
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..LINKS, amount(10)).prop_map(|(link, capacity)| Change::Capacity(link, capacity)),
        (0..LINKS).prop_map(|link| Change::Capacity(link, 0.0)),
        (0_u32..8, 0_u32..4).prop_map(|(job, level)| Change::Level(job, level)),
        (0_u32..8, 0_u32..8, path()).prop_map(|(job, flow, path)| Change::Path(job, flow, path)),
        (0_u32..8).prop_map(Change::Remove),
        any_job().prop_map(Change::Add),
    ]
}

fn any_case() -> impl Strategy<Value = Case> {
    let capacity = prop::collection::vec(amount(10), LINKS as usize);
    let jobs = prop::collection::vec(any_job(), 1..7);
    let gap = prop_oneof![Just(0.0), Just(1.0), 0.0..3.0];
    let changes = prop::collection::vec((gap, change()), 0..12);
    (capacity, jobs, changes).prop_map(|(capacity, jobs, changes)| Case { capacity, jobs, changes })
}

/// Links that serve all levels alike in `with_fifo_links`.
const FIFO: u32 = 3;

/// A case in which every flow passes at most one fifo link, as flows do that leave by a NIC.
fn with_fifo_links() -> impl Strategy<Value = Case> {
    quiet().prop_map(|mut case| {
        for flow in case.jobs.iter_mut().flat_map(|job| &mut job.flows) {
            let nic = flow.path.iter().position(|link| *link < FIFO);
            let mut position = 0;
            flow.path.retain(|link| {
                position += 1;
                *link >= FIFO || Some(position - 1) == nic
            });
        }
        case
    })
}

fn quiet() -> impl Strategy<Value = Case> {
    any_case().prop_map(|case| Case { changes: Vec::new(), ..case })
}

/// Makes one change. A change that the engine rejects (a removed job, a failed link) has no effect;
/// with a reference, jobs keep the places they had, so removed ones are not replaced.
fn apply(engine: &mut Engine, change: &Change) -> bool {
    match change {
        Change::Capacity(link, capacity) => engine.set_capacity(*link, *capacity).is_ok(),
        Change::Level(job, level) => engine.set_level(JobIndex(*job), *level).is_ok(),
        Change::Path(job, flow, path) => engine.set_path(JobIndex(*job), *flow, path).is_ok(),
        Change::Remove(job) => engine.remove_job(JobIndex(*job)).is_ok(),
        Change::Add(job) => engine.add_job(job).is_ok(),
    }
}

/// Runs a case to its horizon with an observer.
fn run_case(case: &Case, observer: &mut dyn fluid::RunObserver) -> Engine {
    let mut engine = engine(&case.capacity, &case.jobs);
    let mut at = 0.0;
    for (gap, change) in &case.changes {
        at += gap;
        engine.run_observed(at, observer).unwrap();
        apply(&mut engine, change);
    }
    engine.run_observed(at + HORIZON, observer).unwrap();
    engine
}

/// Flows that send at this instant, with everything that the properties need.
struct Sending {
    level: u32,
    path: Vec<u32>,
    rate: f64,
}

fn sending(engine: &Engine, jobs: &[FluidJob]) -> Vec<Sending> {
    let mut all = Vec::new();
    for (index, job) in (0..).zip(jobs).map(|(index, job)| (JobIndex(index), job)) {
        for (flow, FluidFlow { path, .. }) in (0..).zip(&job.flows) {
            let rate = engine.flow_rate(index, flow).unwrap();
            // One that has ended and has a rate ends at this very instant.
            if engine.is_flow_sending(index, flow).unwrap() || rate > 0.0 {
                let (level, path) = (job.level, path.clone());
                all.push(Sending { level, path, rate });
            }
        }
    }
    all
}

/// Rate of all levels from `level` up on a link.
fn used(flows: &[Sending], link: u32, level: u32) -> f64 {
    let there = flows.iter().filter(|flow| flow.level >= level && flow.path.contains(&link));
    there.map(|flow| flow.rate).sum()
}

/// No link is over its capacity, and every flow has a bottleneck: a link that its level and the
/// higher ones fill, and on which no flow of its level is faster.
fn check_shares(instant: &RunInstant<'_>, case: &Case) {
    let flows = sending(instant.engine(), &case.jobs);
    for (link, capacity) in (0..).zip(&case.capacity) {
        assert!(used(&flows, link, 0) <= capacity * (1.0 + 1e-9), "link {link} is over");
    }
    for flow in &flows {
        let fills = |link: &&u32| {
            let full = case.capacity[**link as usize] * (1.0 - 1e-8);
            used(&flows, **link, flow.level) >= full
        };
        let fastest = |link: &u32| {
            let there = flows.iter().filter(|other| other.path.contains(link));
            let equals = there.filter(|other| other.level == flow.level);
            equals.map(|other| other.rate).fold(0.0, f64::max)
        };
        let slack = 1e-7 * flow.rate + 1e-8;
        let bottleneck = |link: &u32| flow.rate >= fastest(link) - slack;
        assert!(flow.path.iter().filter(fills).any(bottleneck), "at {} s", instant.seconds());
    }
}

/// Whether no link is over its capacity, and every flow has a bottleneck: a strict link as above,
/// or a fifo link that is full and on which no flow of any level is faster. To five per cent, since
/// the fixed point is approached.
fn are_fifo_shares_fair(instant: &RunInstant<'_>, case: &Case) -> bool {
    let flows = sending(instant.engine(), &case.jobs);
    let is_within = |(link, capacity): (u32, &f64)| used(&flows, link, 0) <= capacity * 1.05;
    let has_bottleneck = |flow: &Sending| {
        flow.path.iter().any(|link| {
            let is_fifo = *link < FIFO;
            let rivals = flows.iter().filter(|other| other.path.contains(link));
            let rivals = rivals.filter(|other| is_fifo || other.level == flow.level);
            let fastest = rivals.map(|other| other.rate).fold(0.0, f64::max);
            let level = if is_fifo { 0 } else { flow.level };
            used(&flows, *link, level) >= case.capacity[*link as usize] * 0.95
                && flow.rate >= fastest * 0.95 - 1e-6
        })
    };
    (0..).zip(&case.capacity).all(is_within) && flows.iter().all(has_bottleneck)
}

/// The same cases in every run: the sweeps settle in nearly all networks, not in all.
#[test]
fn shares_of_fifo_links_are_fair_to_all_levels() {
    let mut runner = TestRunner::deterministic();
    let (mut instants, mut unfair) = (0, 0);
    for _ in 0..400 {
        let case = with_fifo_links().new_tree(&mut runner).unwrap().current();
        let mut engine = engine_with_fifo_links(&case.capacity, FIFO, &case.jobs);
        let mut check = |instant: &RunInstant<'_>| {
            instants += 1;
            unfair += u32::from(!are_fifo_shares_fair(instant, &case));
        };
        engine.run_observed(HORIZON, &mut check).unwrap();
    }
    assert!(instants > 10_000 && unfair * 50 < instants, "{unfair} of {instants} instants");
}

fn almost(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0)
}

proptest! {
    /// Theorem 1 of Crux (§3.2, appendix A, Eq. 5): on a single link, the iterations that a job has
    /// computed and those that it has sent differ by one at most. So the work done on GPUs, and the
    /// sum of `I_j` over the time for which each job occupies the link, differ by at most one
    /// iteration of each job, and their ratio tends to 1, whatever the levels are.
    #[test]
    fn gpu_work_follows_the_intensity_on_the_link(
        mut jobs in prop::collection::vec(any_job(), 1..7), seconds in 1.0..300.0
    ) {
        const BANDWIDTH: f64 = 5.0;
        for job in &mut jobs {
            job.flows = vec![FluidFlow::new(vec![0], 0.1 + job.flows[0].bytes)];
        }
        let mut engine = engine(&[BANDWIDTH], &jobs);
        engine.run_until(seconds).unwrap();
        let (mut computed, mut intensity, mut iteration) = (0.0, 0.0, 0.0);
        for (number, (job, tally)) in jobs.iter().zip(engine.tallies().jobs).enumerate() {
            // Any computation in FLOP; another one for each job.
            let work = (1 + number) as f64;
            let link_seconds = job.flows[0].bytes / BANDWIDTH;
            let done = tally.busy_seconds / job.compute_seconds;
            let sent = tally.bytes / BANDWIDTH / link_seconds;
            prop_assert!((done - sent).abs() <= 1.0 + 1e-6, "{done} iterations done, {sent} sent");
            computed += work * done;
            intensity += work / link_seconds * (tally.bytes / BANDWIDTH);
            iteration += work;
        }
        prop_assert!((computed - intensity).abs() <= iteration * (1.0 + 1e-6));
    }

    #[test]
    fn shares_are_feasible_and_conserve_work(case in quiet()) {
        run_case(&case, &mut |instant: &RunInstant<'_>| check_shares(instant, &case));
    }

    #[test]
    fn levels_are_nothing_where_all_links_are_fifo(mut case in with_fifo_links()) {
        for flow in case.jobs.iter_mut().flat_map(|job| &mut job.flows) {
            flow.path.truncate(1);
        }
        let mut fifo = engine_with_fifo_links(&case.capacity, LINKS, &case.jobs);
        let level = |job: &FluidJob| FluidJob { level: 0, ..job.clone() };
        let mut level = engine(&case.capacity, &case.jobs.iter().map(level).collect::<Vec<_>>());
        fifo.run_until(HORIZON).unwrap();
        level.run_until(HORIZON).unwrap();
        for (found, expected) in fifo.tallies().jobs.iter().zip(level.tallies().jobs) {
            prop_assert!((found.bytes - expected.bytes).abs() <= 0.1 * expected.bytes.max(1.0));
        }
    }

    #[test]
    fn bytes_are_conserved(case in any_case()) {
        // A link carried what the flows over it sent: whole iterations and the one under way.
        let mut carried = vec![0.0; LINKS as usize];
        let mut by_path: Vec<(Vec<u32>, f64)> = Vec::new();
        let mut sent = 0.0;
        let mut engine = engine(&case.capacity, &case.jobs);
        engine.run_until(HORIZON).unwrap();
        for (job, given) in (0..).zip(&case.jobs) {
            let tally = engine.job_tally(JobIndex(job)).unwrap();
            let one: f64 = given.flows.iter().map(|flow| flow.bytes).sum();
            let whole = one * tally.iterations as f64;
            prop_assert!(tally.bytes >= whole - 1e-6 && tally.bytes <= whole + one + 1e-6);
            sent += tally.bytes;
            for (flow, FluidFlow { path, bytes, .. }) in (0..).zip(&given.flows) {
                let left = engine.flow_bytes_left(JobIndex(job), flow).unwrap();
                let phase = engine.job_phase(JobIndex(job)).unwrap();
                let begun = matches!(phase, JobPhase::Communicating | JobPhase::Draining);
                let now = if begun { bytes - left } else { 0.0 };
                by_path.push((path.clone(), bytes * tally.iterations as f64 + now));
            }
        }
        prop_assert!(almost(by_path.iter().map(|flow| flow.1).sum(), sent));
        for (path, bytes) in &by_path {
            path.iter().for_each(|link| carried[*link as usize] += bytes);
        }
        for (link, expected) in (0..).zip(carried) {
            let found: f64 = engine.link_tally(link).iter().map(|tally| tally.bytes).sum();
            prop_assert!(almost(found, expected), "link {link}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_lower_level_never_affects_a_higher_one(case in quiet(), level in 1_u32..4) {
        // Same places for the same jobs: lower ones become jobs without flows.
        let alone = Case {
            jobs: case.jobs.iter().cloned().map(|mut job| {
                if job.level < level {
                    job.flows.clear();
                }
                job
            }).collect(),
            ..case.clone()
        };
        let mut ignore = |_: &RunInstant<'_>| {};
        let (all, alone) = (run_case(&case, &mut ignore), run_case(&alone, &mut ignore));
        for (index, job) in (0..).zip(&case.jobs).filter(|(_, job)| job.level >= level) {
            let index = JobIndex(index);
            prop_assert_eq!(all.job_tally(index), alone.job_tally(index), "{:?}", job);
        }
    }

    #[test]
    fn the_same_again_is_the_same(case in any_case()) {
        let mut ignore = |_: &RunInstant<'_>| {};
        let first = run_case(&case, &mut ignore);
        prop_assert_eq!(first.tallies(), run_case(&case, &mut ignore).tallies());
        // Stopping in between changes nothing either.
        let calm = Case { changes: Vec::new(), ..case };
        let mut stops = engine(&calm.capacity, &calm.jobs);
        for stop in 1..=60 {
            stops.run_until(f64::from(stop) * HORIZON / 60.0).unwrap();
        }
        prop_assert_eq!(stops.work_counters(), run_case(&calm, &mut ignore).work_counters());
        let found = stops.tallies().jobs;
        for (found, expected) in found.iter().zip(run_case(&calm, &mut ignore).tallies().jobs) {
            prop_assert_eq!(*found, expected);
        }
        stops.reset();
        stops.run_until(HORIZON).unwrap();
        prop_assert_eq!(stops.tallies(), run_case(&calm, &mut ignore).tallies());
    }

    #[test]
    fn following_a_change_is_the_same_as_starting_from_scratch(case in any_case()) {
        let mut engine = engine(&case.capacity, &case.jobs);
        let mut reference = Reference::new(&case.capacity);
        case.jobs.iter().for_each(|job| reference.add(job));
        let (mut at, mut removed) = (0.0, Vec::new());
        let mut places: Vec<usize> = (0..case.jobs.len()).collect();
        for (gap, change) in &case.changes {
            at += gap;
            engine.run_until(at).unwrap();
            reference.run_until(at);
            if !apply(&mut engine, change) {
                continue;
            }
            match change {
                Change::Capacity(link, capacity) => reference.capacity[*link as usize] = *capacity,
                Change::Level(job, level) => reference.set_level(places[*job as usize], *level),
                Change::Path(job, flow, path) => {
                    reference.set_path(places[*job as usize], *flow as usize, path);
                }
                Change::Remove(job) => {
                    reference.remove(places[*job as usize]);
                    removed.push(*job);
                }
                Change::Add(job) => {
                    let place = reference.len();
                    reference.add(job);
                    match removed.pop() {
                        Some(freed) => places[freed as usize] = place,
                        None => places.push(place),
                    }
                }
            }
        }
        engine.run_until(at + HORIZON).unwrap();
        reference.run_until(at + HORIZON);
        for (job, place) in (0..).zip(places).filter(|(job, _)| !removed.contains(job)) {
            let found = engine.job_tally(JobIndex(job)).unwrap();
            let (iterations, bytes, busy) = reference.tally(place);
            prop_assert!(found.iterations.abs_diff(iterations) <= 1);
            prop_assert!(almost(found.bytes, bytes), "job {job}: {} not {bytes}", found.bytes);
            prop_assert!(almost(found.busy_seconds, busy), "job {job}: {}", found.busy_seconds);
        }
    }
}
