//! Simulations by hand: the equation first, then the number.

use super::*;
use crate::baselines::test_input::TestInput;

fn experiment(test_input: &TestInput, seconds: f64) -> SimulationExperiment {
    SimulationExperiment {
        input: test_input.to_input(),
        policy: Policy::default(),
        seconds,
        faults: Vec::new(),
        views: Vec::new(),
    }
}

fn run(experiment: &SimulationExperiment, scheduler: Scheduler) -> SimulationOutcome {
    simulate_experiment(experiment, scheduler, &mut |_| {}).unwrap().outcome
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn a_job_alone_takes_its_closed_form_under_every_scheduler() {
    // T = comp + t = 1 + 12.5e9 / 25e9 = 1.5 s; 15 s are 10 iterations; 16 of 96 GPUs.
    let experiment = experiment(&TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]), 15.0);
    for scheduler in Scheduler::ALL {
        let outcome = run(&experiment, scheduler);
        let job = &outcome.jobs[0];
        assert_eq!(job.iterations, 10, "{scheduler}");
        assert!(close(job.mean_iteration_seconds.unwrap(), 1.5));
        assert!(close(outcome.gpu_utilization, 2.0 / 3.0));
        assert!(close(outcome.cluster_gpu_utilization, 2.0 / 3.0 * 16.0 / 96.0));
        assert!(close(outcome.flop, 10.0 * 1e15));
        // Host links of 200 Gb/s are busy a third of the time, an uplink of 400 Gb/s a sixth, or
        // two of them half as long.
        let spines = if scheduler == Scheduler::Spray { 2 } else { 1 };
        let busy: Vec<f64> = outcome.links.iter().map(|link| link.busy_fraction).collect();
        let [host, uplink] = [1.0 / 3.0, 1.0 / 6.0 / f64::from(spines)];
        let count = |share| busy.iter().filter(|busy| close(**busy, share)).count() as u32;
        assert_eq!([count(host), count(uplink)], [2, 2 * spines], "{scheduler}: {busy:?}");
        assert!(outcome.findings.iter().all(|f| f.severity == topology::Severity::Info));
    }
    let alone =
        alone_seconds(&experiment.input.fabric, &experiment.input.jobs[0], &experiment.policy);
    assert!(close(alone.unwrap().unwrap(), 1.5));
}

/// Two jobs that send from h1 at the same time: 1 s of computation, then 0.5 s alone.
fn pair() -> TestInput {
    TestInput::on_lab_fabric().with_job("a", &[("h4", "h1")]).with_job("b", &[("h5", "h1")])
}

#[test]
fn equal_jobs_in_step_halve_each_other_and_shifted_ones_do_not() {
    // ECMP: both send 12.5 GB at half of 25 GB/s, T = 1 + 1. CASSINI: no overlap, T = 1.5.
    let experiment = experiment(&pair(), 600.0);
    let mean =
        |outcome: &SimulationOutcome, job: usize| outcome.jobs[job].mean_iteration_seconds.unwrap();
    let ecmp = run(&experiment, Scheduler::Ecmp);
    assert!(close(mean(&ecmp, 0), 2.0) && close(mean(&ecmp, 1), 2.0));
    let cassini = run(&experiment, Scheduler::Cassini);
    assert!(close(mean(&cassini, 0), 1.5) && close(mean(&cassini, 1), 1.5));
    assert!(close(cassini.jobs[1].start_shift_seconds, 0.5));
    // Any order: the second waits once, and they interleave from then on.
    let ordered = [Scheduler::Sincronia, Scheduler::Varys, Scheduler::VarysMadd, Scheduler::Crux];
    for scheduler in ordered {
        let outcome = run(&experiment, scheduler);
        assert!(mean(&outcome, 0) < 1.51 && mean(&outcome, 1) < 1.51, "{scheduler}");
    }
}

#[test]
fn a_job_on_a_grid_returns_to_it_after_a_disturbance() {
    let mut experiment = experiment(&pair(), 600.0);
    let fabric = experiment.input.fabric.clone();
    // A cable that both use fails for 0.7 s: they fall behind, in step, and part again.
    experiment.faults = vec![
        FabricFault::parse_failure(&fabric, "h1-leaf1@100.2").unwrap(),
        FabricFault::parse_repair(&fabric, "h1-leaf1@100.9").unwrap(),
    ];
    let outcome = run(&experiment, Scheduler::Cassini);
    for job in &outcome.jobs {
        assert!(job.iterations >= 396, "{outcome:?}");
        let mean = job.mean_iteration_seconds.unwrap();
        assert!((1.5..1.515).contains(&mean), "{mean}");
    }
}

/// Job a needs the link of both for 1 s from 0.2 s on. When b begins at 1 s with 0.5 s, a has 0.2 s
/// left: by what is left it ends first, at 1.2 s, by whole coflows b does, at 1.5 s.
#[test]
fn varys_serves_the_coflow_with_less_left_first() {
    let mut test_input = pair();
    for (job, figures) in test_input.jobs.iter_mut().zip([(0.2, 25e9), (1.0, 12.5e9)]) {
        (job.compute_seconds, job.flows[0].bytes) = figures;
    }
    let experiment = experiment(&test_input, 1.6);
    for (scheduler, expected) in [(Scheduler::Varys, [0, 1]), (Scheduler::VarysMadd, [1, 0])] {
        let jobs = run(&experiment, scheduler).jobs;
        assert_eq!([jobs[0].iterations, jobs[1].iterations], expected, "{scheduler}");
    }
}

#[test]
fn assignment_alone_keeps_the_paths_of_ecmp() {
    let hosts = ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"];
    let test_input = (0..8).fold(TestInput::on_lab_fabric(), |test_input, job| {
        let pairs: Vec<(&str, &str)> =
            (1..4).map(|hop| (hosts[job], hosts[(job + 2 * hop) % 8])).collect();
        test_input.with_job(&format!("j{job}"), &pairs)
    });
    let input = test_input.to_input();
    let policy = Policy::default();
    let of = |scheduler: Scheduler| scheduler.schedule_jobs(&input, &policy, None);
    let paths = |schedule: &Schedule| -> Vec<Vec<Vec<LinkId>>> {
        schedule.jobs.iter().map(|job| job.paths.clone()).collect()
    };
    let hashed = paths(&of(Scheduler::Ecmp));
    assert_eq!(paths(&of(Scheduler::CruxPa)), hashed);
    assert_ne!(paths(&of(Scheduler::Crux)), hashed);
    assert_eq!(paths(&of(Scheduler::CruxPsPa)), paths(&of(Scheduler::Crux)));
    for scheduler in [Scheduler::CruxPa, Scheduler::CruxPsPa] {
        let mut levels: Vec<u32> = of(scheduler).jobs.iter().map(|job| job.level).collect();
        levels.sort_unstable();
        assert_eq!(levels, [0, 1, 2, 3, 4, 5, 6, 7], "{scheduler}");
    }
}

#[test]
fn a_failed_link_is_left_and_a_lost_path_is_waited_for() {
    let mut experiment =
        experiment(&TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]), 15.0);
    let fabric = experiment.input.fabric.clone();
    let fail = |text: &str| FabricFault::parse_failure(&fabric, text).unwrap();
    for spine in ["spine1", "spine2"] {
        experiment.faults = vec![fail(&format!("leaf1-{spine}@1.2"))];
        for scheduler in Scheduler::ALL {
            let outcome = run(&experiment, scheduler);
            assert_eq!(outcome.jobs[0].iterations, 10, "{scheduler}");
            assert!(outcome.findings.iter().all(|f| !f.text.contains("path")), "{outcome:?}");
        }
    }
    // Both fail at 1.2 s, of the bytes 60 % are left; one comes back at 4.2 s.
    experiment.faults = vec![
        FabricFault::parse_repair(&fabric, "spine2@4.2").unwrap(),
        fail("spine1@1.2"),
        fail("spine2@1.2"),
    ];
    for scheduler in Scheduler::ALL {
        let outcome = run(&experiment, scheduler);
        assert_eq!(outcome.jobs[0].iterations, 8, "{scheduler}");
        let lost = outcome.findings.iter().any(|f| f.about == "job a" && f.text.contains("path"));
        assert!(lost, "{outcome:?}");
    }
}

#[test]
fn a_job_without_a_path_is_a_finding_and_runs_once_it_has_one() {
    let mut test_input =
        TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]).with_job("b", &[("h2", "h3")]);
    let fail = |text: &str| FabricFault::parse_failure(&test_input.fabric, text).unwrap().changes;
    test_input.fabric = test_input.fabric.with_changes(fail("h1-leaf1@0"));
    let mut experiment = experiment(&test_input, 15.0);
    for scheduler in Scheduler::ALL {
        let outcome = run(&experiment, scheduler);
        assert_eq!((outcome.jobs[0].iterations, outcome.jobs[1].iterations), (0, 10));
        assert_eq!(outcome.jobs[0].mean_iteration_seconds, None);
        let finding = &outcome.findings[0];
        assert_eq!(finding.about, "job a");
        assert!(finding.text.contains("path"), "{finding}");
    }
    experiment.faults = vec![FabricFault::parse_repair(&test_input.fabric, "h1-leaf1@6").unwrap()];
    assert_eq!(run(&experiment, Scheduler::Crux).jobs[0].iterations, 6);
}

#[test]
fn impossible_input_has_a_name() {
    let error = |experiment: &SimulationExperiment| {
        let error = simulate_experiment(experiment, Scheduler::Ecmp, &mut |_| {}).unwrap_err();
        let source = std::error::Error::source(&error).map_or(String::new(), ToString::to_string);
        format!("{error}: {source}")
    };
    let test_input = TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let text = error(&experiment(&test_input, seconds));
        assert!(text.contains("cannot simulate"), "{text}");
    }
    let of_all = |broken: &SimulationExperiment, field: &str| {
        for scheduler in Scheduler::ALL {
            let error = simulate_experiment(broken, scheduler, &mut |_| {}).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(error.to_string().contains("job a"), "{error}");
            assert!(source.contains(field), "{scheduler}: {source}");
        }
    };
    let mut broken = experiment(&test_input, 10.0);
    broken.input.jobs[0].compute_seconds = f64::NAN;
    of_all(&broken, "compute_seconds");
    let mut broken = experiment(&test_input, 10.0);
    broken.input.jobs[0].flows[0].bytes = f64::NAN;
    of_all(&broken, "bytes");
    let mut broken = experiment(&test_input, 10.0);
    broken.input.jobs[0].overlap_from = f64::INFINITY;
    of_all(&broken, "overlap_from");
    let mut broken = experiment(&test_input, 1e7);
    broken.input.jobs[0].compute_seconds = 0.0;
    broken.input.jobs[0].flows[0].bytes = 1.0;
    let text = error(&broken);
    assert!(text.contains("job a") && text.contains("iterate"), "{text}");
}

#[test]
fn an_iteration_longer_than_the_horizon_and_a_job_of_nothing_are_findings() {
    let mut test_input =
        TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]).with_job("b", &[]);
    test_input.jobs[1].compute_seconds = 0.0;
    let outcome = run(&experiment(&test_input, 1.2), Scheduler::Crux);
    let about = |about: &str| outcome.findings.iter().find(|f| f.about == about).unwrap();
    assert!(about("job a").text.contains("no iteration ended"));
    assert!(about("job b").text.contains("neither computes nor sends"));
    assert!(close(outcome.jobs[0].gpu_busy_fraction, 1.0 / 1.2));
}

#[test]
fn timelines_add_up_to_the_outcome() {
    let mut experiment = experiment(&pair().with_job("c", &[("h2", "h6"), ("h3", "h1")]), 20.0);
    experiment.views = vec![TimelineView { from_seconds: 0.0, until_seconds: 20.0, bins: 40 }];
    for scheduler in [Scheduler::Ecmp, Scheduler::Crux] {
        let SimulationResult { outcome, timelines } =
            simulate_experiment(&experiment, scheduler, &mut |_| {}).unwrap();
        let mean = |series: &[f64]| series.iter().sum::<f64>() / series.len() as f64;
        let [timeline] = &timelines[..] else { panic!("one view") };
        assert!(close(mean(&timeline.computing), outcome.gpu_utilization));
        for series in &timeline.links {
            let name = experiment.input.fabric.link_name(series.link);
            let link = outcome.links.iter().find(|link| link.link == name).unwrap();
            let shares: f64 = series.levels.values().map(|level| mean(level)).sum();
            assert!(close(shares, link.busy_fraction), "{name}");
        }
        // For any sender: the busy links of a tier are the links times the share its jobs took.
        for wire in &timeline.tiers {
            let of_hosts = wire.tier == crate::LinkTier::Hosts;
            let busy = outcome.links.iter().filter(|link| link.link.contains('h') == of_hosts);
            let busy: f64 = busy.map(|link| link.busy_fraction).sum();
            let taken: f64 = wire.bands.iter().map(|band| mean(band)).sum();
            // Of the lab: a link for each of 12 hosts, 4 leaves with 2 spines, both ways.
            let links = 2.0 * if of_hosts { 12.0 } else { 4.0 * 2.0 };
            assert!(close(taken * links, busy), "{:?}: {taken} {busy}", wire.tier);
        }
        // Every byte of a job is on the wire for its links' seconds, at the job's intensity.
        assert!(mean(&timeline.intensity) > 0.0);
    }
}

#[test]
fn the_same_experiment_gives_the_same_outcome() {
    let experiment = experiment(&pair().with_job("c", &[("h2", "h6"), ("h3", "h1")]), 50.0);
    for scheduler in Scheduler::ALL {
        assert_eq!(run(&experiment, scheduler), run(&experiment, scheduler));
    }
}

#[test]
fn a_horizon_between_two_ticks_of_the_clock_ends() {
    let test_input = TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]);
    for tenths in 1..200 {
        let seconds = 40.0 * (1.53 + f64::from(tenths) / 10.0) / 3.0;
        let outcome = run(&experiment(&test_input, seconds), Scheduler::Ecmp);
        assert!(close(outcome.seconds, seconds));
    }
}
