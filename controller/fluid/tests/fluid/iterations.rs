//! Jobs over time: closed forms, and the worked examples of Crux §3 and §4.2.

use fluid::{
    Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork, GridRule, JobGrid, JobIndex,
    JobPhase, run_jobs,
};

use crate::scenario::{close, engine, flow, job, totals};

/// A job alone takes T = max(comp, o*comp + t) an iteration, t = bytes / capacity.
fn check_alone(compute: f64, overlap_from: f64, bytes: f64, expected: f64) {
    let flows = vec![flow(&[0], bytes)];
    let job = FluidJob { compute_seconds: compute, overlap_from, flows, ..FluidJob::default() };
    let network = FluidNetwork::new(vec![100.0]).unwrap();
    let tallies = run_jobs(&network, &[job], 1000.0 * expected + 1e-9).unwrap();
    let found = tallies.jobs[0];
    assert_eq!(found.iterations, 1000);
    close(found.mean_iteration_seconds().unwrap(), expected);
    close(found.busy_fraction(), compute / expected);
    close(found.bytes, 1000.0 * bytes);
}

#[test]
fn alone_against_the_closed_form() {
    check_alone(2.0, 1.0, 300.0, 2.0 + 3.0);
    check_alone(2.0, 0.5, 300.0, 1.0 + 3.0);
    check_alone(2.0, 0.0, 300.0, 3.0);
    check_alone(4.0, 0.25, 300.0, 4.0);
    check_alone(4.0, 0.25, 200.0, 4.0);
    check_alone(0.0, 1.0, 300.0, 3.0);
    check_alone(1.5, 1.0, 0.0, 1.5);
    check_alone(0.1, 0.3, 100.0 / 3.0, 0.03 + 1.0 / 3.0);
}

#[test]
fn the_last_flow_ends_the_iteration() {
    // Flows of 100 and 300 bytes at 200 bytes/s: 100 each until 1 s, then the second alone for
    // 200 / 200 = 1 s. With 1 s of computation before, 3 s an iteration.
    let engine = &mut engine(&[200.0], &[job(0, 1.0, vec![flow(&[0], 100.0), flow(&[0], 300.0)])]);
    engine.run_until(30.0).unwrap();
    assert_eq!(totals(engine), [(10.0, 10, 4000.0)]);
}

/// Two jobs on one link of 1 byte/s, compute and communication in seconds.
fn two_on_a_link(jobs: [(u32, f64, f64); 2], overlap_from: f64) -> Engine {
    let jobs = jobs.map(|(level, compute, communicate)| FluidJob {
        overlap_from,
        ..job(level, compute, vec![flow(&[0], communicate)])
    });
    engine(&[1.0], &jobs)
}

/// E1: compute 2 s and 1 s, communicate 2 s and 1 s, no overlap. Per 12 s in the steady state:
/// busy seconds and link seconds of both.
fn check_e1(levels: [u32; 2], busy: [f64; 2], link: [f64; 2]) {
    let [first, second] = levels;
    let mut engine = two_on_a_link([(first, 2.0, 2.0), (second, 1.0, 1.0)], 1.0);
    engine.run_until(120.0).unwrap();
    let before = totals(&engine);
    engine.run_until(132.0).unwrap();
    let after = totals(&engine);
    for index in 0..2 {
        close(after[index].0 - before[index].0, busy[index]);
        close(after[index].2 - before[index].2, link[index]);
    }
}

#[test]
fn e1_steady_state() {
    // J1 first: J1 repeats every 4 s undisturbed and leaves [0,2) of each; J2 gets 1 s of that for
    // each 4 s. Busy 6 of 12 and 3 of 12: (6 + 3) / 24 = 37.5 %; link seconds (6, 3).
    check_e1([1, 0], [6.0, 3.0], [6.0, 3.0]);
    // J2 first: J2 repeats every 2 s and leaves half of the link; J1 takes 2 + 4 = 6 s. Busy 4 and
    // 6: 10 / 24 = 41.7 %; link seconds (4, 6).
    check_e1([0, 1], [4.0, 6.0], [4.0, 6.0]);
}

/// E2: compute 4 s and 2 s, communicate 1 s and 3 s after half of it. Idle seconds of J2 in 13 s.
fn check_e2(levels: [u32; 2], idle: f64) {
    let [first, second] = levels;
    let mut engine = two_on_a_link([(first, 4.0, 1.0), (second, 2.0, 3.0)], 0.5);
    engine.run_until(13.0).unwrap();
    close(13.0 - totals(&engine)[1].0, idle);
}

#[test]
fn e2_idles_seven_or_six_seconds_of_thirteen() {
    // J1 first: J1 sends in [2,3), [6,7), [10,11). J2 sends in [1,2) and [3,5), [7,10), [11,..):
    // its computations end at 2, 7, 12, its iterations at 5, 10: idle 3 + 3 + 1 = 7.
    check_e2([1, 0], 7.0);
    // J2 first: iterations of 1 + 3 = 4 s with 2 s idle: 3 * 2 and none in [12,13) = 6.
    check_e2([0, 1], 6.0);
}

#[test]
fn e2_ties_in_the_long_run() {
    // Both orders fall into step: J1 sends 1 of every 4 s, J2 the other 3, and neither waits.
    for levels in [[1, 0], [0, 1]] {
        let [first, second] = levels;
        let mut engine = two_on_a_link([(first, 4.0, 1.0), (second, 2.0, 3.0)], 0.5);
        engine.run_until(100.0).unwrap();
        let before = totals(&engine);
        engine.run_until(500.0).unwrap();
        let after = totals(&engine);
        let steps = after[1].1 - before[1].1;
        assert!((80..=100).contains(&steps), "{levels:?}: {steps} iterations of J2 in 400 s");
    }
}

#[test]
fn a_time_shift_can_take_two_jobs_out_of_each_others_way() {
    // Both compute 1 s and send 1 s. Together: they share the link, 1 + 2 s an iteration. Shifted
    // by 1 s: never at the same time, 2 s.
    let job = job(0, 1.0, vec![flow(&[0], 1.0)]);
    let together = [job.clone(), job.clone()];
    let apart = [job.clone(), FluidJob { start: 1.0, ..job }];
    for (jobs, expected) in [(together, 3.0), (apart, 2.0)] {
        let mut engine = engine(&[1.0], &jobs);
        engine.run_until(60.0).unwrap();
        let tallies = engine.tallies().jobs;
        for (job, given) in tallies.iter().zip(&jobs) {
            close(job.mean_iteration_seconds().unwrap(), expected);
            close(job.present_seconds, 60.0 - given.start);
        }
    }
}

#[test]
fn jobs_on_a_grid_take_turns() {
    // Each computes for 1 s and needs the link for 0.6 s; together they need it for 1.2 s. In slots of
    // 1.6 s, half a period apart, neither meets the other, and an iteration alone needs no wait.
    let slot = |start: f64, period: f64| {
        let grid = JobGrid { origin: start, period, rule: GridRule::Wait { most: 0.5 } };
        FluidJob { start, grid: Some(grid), ..job(0, 1.0, vec![flow(&[0], 0.6)]) }
    };
    for (period, waited) in [(1.6, 0.0), (2.0, 0.4)] {
        let mut engine = engine(&[1.0], &[slot(0.0, period), slot(period / 2.0, period)]);
        engine.run_until(100.0 * period).unwrap();
        for tally in engine.tallies().jobs {
            close(tally.mean_iteration_seconds().unwrap(), 1.6);
            assert!(tally.iterations >= 99, "{tally:?}");
            assert!((tally.waited_seconds / tally.iterations as f64 - waited).abs() < 0.01);
        }
    }
}

#[test]
fn latency_is_added_for_each_hop() {
    // T = comp + bytes / rate + hops * alpha: 1 + 2 + 3 * 0.25 = 3.75; a flow without bytes takes
    // 3 * 0.25. The link is free while the last bytes travel: 2 of 3.75 s in use.
    let network = FluidNetwork::new(vec![1.0; 3]).unwrap();
    for (bytes, expected) in [(2.0, 3.75), (0.0, 1.75)] {
        let options = EngineOptions { alpha_seconds_per_hop: 0.25, ..EngineOptions::default() };
        let mut engine = Engine::new(&network, options).unwrap();
        engine.add_job(&job(0, 1.0, vec![flow(&[0, 1, 2], bytes)])).unwrap();
        engine.run_until(10.0 * expected).unwrap();
        let tallies = engine.tallies();
        assert_eq!(tallies.jobs[0].iterations, 10);
        close(tallies.jobs[0].mean_iteration_seconds().unwrap(), expected);
        close(tallies.links[1][0].in_use_seconds, 10.0 * bytes);
    }
}

/// It computes for 4 s. Of its flows, which need 2 s each alone, one begins at 1 s and one at 2 s: they
/// share the link for 2 s, and the second ends at 5 s.
#[test]
fn flows_of_a_job_may_begin_one_after_the_other() {
    let begin = |overlap_from| FluidFlow { overlap_from, ..flow(&[0], 2.0) };
    let flows = vec![begin(Some(0.25)), begin(None)];
    let job = FluidJob { compute_seconds: 4.0, overlap_from: 0.5, flows, ..FluidJob::default() };
    let mut engine = engine(&[1.0], &[job]);
    for (at, rates) in [(0.5, [0.0, 0.0]), (1.5, [1.0, 0.0]), (3.0, [0.5, 0.5]), (4.5, [0.0, 1.0])]
    {
        engine.run_until(at).unwrap();
        let found = [0, 1].map(|flow| engine.flow_rate(JobIndex(0), flow).unwrap());
        assert_eq!(found, rates, "at {at} s");
    }
    engine.run_until(50.0).unwrap();
    close(engine.tallies().jobs[0].mean_iteration_seconds().unwrap(), 5.0);
}

#[test]
fn counted_iterations_end_a_job() {
    // 3 iterations of 2 s: finished at 6 s, present no longer.
    let limited = FluidJob { iterations: Some(3), ..job(0, 1.0, vec![flow(&[0], 1.0)]) };
    let mut engine =
        engine(&[1.0], &[limited.clone(), FluidJob { level: 1, start: 20.0, ..limited }]);
    while engine.step_until(100.0).unwrap()
        && engine.job_phase(JobIndex(0)).unwrap() != JobPhase::Finished
    {}
    assert_eq!(engine.now_seconds(), 6.0);
    assert_eq!(engine.take_finished(), Some(JobIndex(0)));
    assert_eq!(engine.take_finished(), None);
    engine.run_until(100.0).unwrap();
    assert_eq!(engine.take_finished(), Some(JobIndex(1)));
    let tallies = engine.tallies().jobs;
    assert_eq!((tallies[0].present_seconds, tallies[1].present_seconds), (6.0, 6.0));
    assert_eq!(engine.run_events(10), 0, "nothing is left to happen");
}

#[test]
fn an_iteration_longer_than_the_horizon_is_none() {
    let network = FluidNetwork::new(vec![1.0]).unwrap();
    let tallies = run_jobs(&network, &[job(0, 1.0, vec![flow(&[0], 1e9)])], 100.0).unwrap();
    assert_eq!(tallies.jobs[0].iterations, 0);
    assert_eq!(tallies.jobs[0].mean_iteration_seconds(), None);
    close(tallies.jobs[0].bytes, 99.0);
    close(tallies.jobs[0].busy_seconds, 1.0);
}

#[test]
fn a_burst_that_ends_as_a_higher_one_begins_has_ended() {
    // Found by a property test: at 28.77 s the eighth iteration's last byte leaves and the other
    // job begins to send at once. Rounding left 6e-12 bytes, which waited for the whole burst.
    let jobs = [
        FluidJob { overlap_from: 0.0, ..job(0, 3.0, vec![flow(&[0], 13.0)]) },
        job(1, 1.0, vec![flow(&[0], 6.780_015_832_759_727_5)]),
    ];
    let mut engine = engine(&[7.0], &jobs);
    engine.run_until(28.8).unwrap();
    assert_eq!(engine.job_tally(JobIndex(0)).unwrap().iterations, 8);
}

#[test]
fn shares_of_links_by_level() {
    // J1 (level 3) sends 1 of every 2 s at the full 10 bytes/s; J2 (level 1) would send always
    // and gets the other half.
    let jobs = [job(3, 1.0, vec![flow(&[0], 10.0)]), job(1, 0.0, vec![flow(&[0], 1e9)])];
    let mut engine = engine(&[10.0], &jobs);
    engine.run_until(20.0).unwrap();
    let link = engine.link_tally(0);
    assert_eq!(link.iter().map(|tally| tally.level).collect::<Vec<_>>(), [3, 1]);
    for tally in link {
        close(tally.bytes, 100.0);
        close(tally.in_use_seconds, 10.0);
    }
}

/// Flows that end one after the other within a tenth of their time: told apart they cost an event
/// each, and an iteration takes as long either way.
#[test]
fn merged_ends_cost_fewer_events_and_leave_an_iteration_as_long() {
    const FLOWS: u32 = 50;
    let run = |merged_share| {
        let network = FluidNetwork::new(vec![100.0; FLOWS as usize]).unwrap();
        let options = EngineOptions { merged_share, ..EngineOptions::default() };
        let mut engine = Engine::new(&network, options).unwrap();
        let flows = (0..FLOWS).map(|link| flow(&[link], 100.0 - 0.2 * f64::from(link))).collect();
        let job = engine.add_job(&FluidJob { flows, ..FluidJob::default() }).unwrap();
        engine.run_until(20.0).unwrap();
        let seconds = engine.job_tally(job).unwrap().mean_iteration_seconds().unwrap();
        (seconds, engine.event_count())
    };
    let ((exact, events), (merged, fewer)) = (run(0.0), run(0.01));
    close(exact, 2.0);
    close(merged, exact);
    assert!(fewer * 3 < events, "{fewer} of {events}");
}
