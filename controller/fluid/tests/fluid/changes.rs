//! What happens to a run from outside: failures, new paths and levels, jobs that come and go.

use fluid::{Engine, FluidJob, JobIndex};

use crate::scenario::{close, engine, flow, job, totals};

const FIRST: JobIndex = JobIndex(0);

fn ends(engine: &mut Engine, horizon: f64) -> Vec<f64> {
    let mut ends = Vec::new();
    while engine.step_until(horizon).unwrap() {
        while engine.take_finished().is_some() {
            ends.push(engine.now_seconds());
        }
    }
    ends
}

fn once(level: u32, flows: Vec<fluid::FluidFlow>) -> FluidJob {
    FluidJob { iterations: Some(1), ..job(level, 0.0, flows) }
}

#[test]
fn a_failed_link_stops_its_flows_until_it_is_back() {
    // 100 bytes at 10 bytes/s, failed in [3, 7): ends at 10 + 4.
    let mut engine = engine(&[10.0], &[once(0, vec![flow(&[0], 100.0)])]);
    engine.run_until(3.0).unwrap();
    engine.set_capacity(0, 0.0).unwrap();
    engine.run_until(7.0).unwrap();
    close(engine.flow_bytes_left(FIRST, 0).unwrap(), 70.0);
    assert_eq!(engine.flow_rate(FIRST, 0).unwrap(), 0.0);
    engine.set_capacity(0, 10.0).unwrap();
    assert_eq!(ends(&mut engine, 100.0), [14.0]);
}

#[test]
fn a_failure_gives_others_what_the_stopped_flows_had() {
    // Two flows share link 0 at 5 each; when link 1 fails at 2 s the first stops, and the second
    // has 100 - 10 bytes left for 10 bytes/s: ends at 2 + 9.
    let jobs = [once(0, vec![flow(&[0, 1], 100.0)]), once(0, vec![flow(&[0], 100.0)])];
    let mut engine = engine(&[10.0, 10.0], &jobs);
    engine.run_until(2.0).unwrap();
    engine.set_capacity(1, 0.0).unwrap();
    assert_eq!(ends(&mut engine, 100.0), [11.0]);
}

#[test]
fn a_failure_for_ever_is_a_job_that_stands_still() {
    let mut engine = engine(&[10.0], &[job(0, 1.0, vec![flow(&[0], 10.0)])]);
    engine.run_until(5.5).unwrap();
    engine.set_capacity(0, 0.0).unwrap();
    engine.run_until(1e7).unwrap();
    assert_eq!(totals(&engine), [(3.0, 2, 25.0)]);
}

#[test]
fn a_flow_under_way_takes_the_rest_to_its_new_path() {
    // 3 s at 10 bytes/s, then 70 bytes at 35: ends at 3 + 2.
    let mut engine = engine(&[10.0, 35.0], &[once(0, vec![flow(&[0], 100.0)])]);
    engine.run_until(3.0).unwrap();
    engine.set_path(FIRST, 0, &[1]).unwrap();
    assert_eq!(ends(&mut engine, 100.0), [5.0]);
}

#[test]
fn one_of_equal_flows_moves_alone_and_back() {
    // Two flows of 100 on link 0 (10 bytes/s): 5 each. At 4 s, with 80 left, one moves to link 1
    // (20 bytes/s): ends 4 s later; the other at 10 bytes/s, 8 s later.
    let flows = vec![flow(&[0], 100.0), flow(&[0], 100.0)];
    let mut engine = engine(&[10.0, 20.0], &[once(0, flows)]);
    engine.run_until(4.0).unwrap();
    engine.set_path(FIRST, 1, &[1]).unwrap();
    let mut back = engine.clone();
    assert_eq!(ends(&mut engine, 100.0), [12.0]);
    close(engine.link_tally(1)[0].bytes, 80.0);
    close(engine.link_tally(0)[0].bytes, 120.0);
    // Moved back at once, it is as if nothing had happened: 200 / 10 = 20 s.
    back.set_path(FIRST, 1, &[0]).unwrap();
    assert_eq!(ends(&mut back, 100.0), [20.0]);
}

#[test]
fn a_new_class_counts_from_now() {
    // Both 100 bytes at 10 bytes/s, the second in the higher level. At 4 s the first overtakes: it
    // has 100 left and ends at 14; the second has 60 left and ends at 20.
    let jobs = [once(0, vec![flow(&[0], 100.0)]), once(1, vec![flow(&[0], 100.0)])];
    let mut engine = engine(&[10.0], &jobs);
    engine.run_until(4.0).unwrap();
    engine.set_level(FIRST, 2).unwrap();
    assert_eq!(engine.job_level(FIRST).unwrap(), 2);
    assert_eq!(ends(&mut engine, 100.0), [14.0, 20.0]);
}

#[test]
fn a_removed_job_frees_its_links_and_its_place() {
    let jobs = [job(1, 0.0, vec![flow(&[0], 1e9)]), once(0, vec![flow(&[0], 100.0)])];
    let mut engine = engine(&[10.0], &jobs);
    engine.run_until(5.0).unwrap();
    close(engine.remove_job(FIRST).unwrap().bytes, 50.0);
    let late = FluidJob { start: 2.0, ..once(0, vec![flow(&[0], 100.0)]) };
    assert_eq!(engine.add_job(&late).unwrap(), FIRST, "its start has passed, so it begins now");
    assert_eq!(ends(&mut engine, 100.0), [25.0, 25.0]);
}

#[test]
fn thousands_of_jobs_come_and_go_in_the_memory_of_two() {
    let mut engine = engine(&[10.0, 10.0], &[]);
    for index in 0..5_000_u32 {
        let path = [index % 2];
        let job =
            FluidJob { level: index % 3, ..job(0, 0.1, vec![flow(&path, 1.0), flow(&path, 2.0)]) };
        let job = engine.add_job(&job).unwrap();
        assert!(job < JobIndex(2));
        engine.run_until(f64::from(index)).unwrap();
        if index > 0 {
            engine.remove_job(JobIndex(1 - job.0)).unwrap();
        }
    }
    assert_eq!(engine.tallies().jobs.len(), 2);
}

#[test]
fn reset_runs_again_with_other_levels() {
    let levels = |first: u32, second: u32| {
        [job(first, 1.0, vec![flow(&[0], 15.0)]), job(second, 0.7, vec![flow(&[0], 12.0)])]
    };
    let mut used = engine(&[10.0], &levels(0, 1));
    used.run_until(50.3).unwrap();
    used.reset();
    used.set_level(JobIndex(0), 5).unwrap();
    used.set_level(JobIndex(1), 3).unwrap();
    used.run_until(50.3).unwrap();
    let mut fresh = engine(&[10.0], &levels(5, 3));
    fresh.run_until(50.3).unwrap();
    assert_eq!(used.tallies().jobs, fresh.tallies().jobs);
    assert_eq!(used.work_counters(), fresh.work_counters());
}
