//! Processes tell, counters show, and reports add up.

use proptest::prelude::*;

use super::*;

const LIMITS: ReportLimits = ReportLimits {
    window_seconds: 1.0,
    presence_seconds: 3.0,
    jobs: 2,
    sample_seconds: 0.01,
    memory_seconds: 40.0,
};

fn job(name: &str) -> JobDocument {
    JobDocument {
        id: name.to_owned(),
        gpus: [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into(),
        flop_per_iteration: Some(1e15),
        ..JobDocument::default()
    }
}

fn announced(name: &str) -> ProcessMessage {
    ProcessMessage::Job(Box::new(job(name)))
}

fn iteration(name: &str, seconds: f64) -> ProcessMessage {
    ProcessMessage::Iteration(FinishedIteration {
        job: name.to_owned(),
        seconds,
        flop: 1e15,
        compute_seconds: 0.5 * seconds,
        communication_seconds: 0.75 * seconds,
        bytes: Some(8e9),
        slot_offset_seconds: None,
    })
}

fn window(report: Option<Report>) -> proto::JobWindow {
    match report {
        Some(Report::Window(window)) => window,
        other => panic!("no window: {other:?}"),
    }
}

#[test]
fn iterations_add_up_to_windows_that_end_with_one() {
    let mut watch = JobMonitor::new(LIMITS);
    watch.handle_message(1, announced("a"), 0.0).unwrap();
    assert_eq!(watch.handle_message(1, iteration("a", 0.4), 0.4), Ok(None));
    assert_eq!(watch.handle_message(1, iteration("a", 0.4), 0.8), Ok(None));
    let window = window(watch.handle_message(1, iteration("a", 0.4), 1.2).unwrap());
    assert_eq!(window.iteration_starts, [0.0, 0.4, 0.8]);
    assert!((window.seconds - 1.2).abs() < 1e-9);
    assert_eq!((window.flop, window.bytes), (3e15, Some(24e9)));
    // An iteration that outlasts windows is whole, and the job is there meanwhile.
    assert_eq!(watch.tick_windows(3.0), []);
    let here = super::tests::window(watch.tick_windows(4.2).pop());
    assert!(here.seconds <= PRESENCE_SECONDS && here.iteration_starts.is_empty());
    let long = super::tests::window(watch.handle_message(1, iteration("a", 6.0), 7.2).unwrap());
    assert_eq!((long.seconds, long.compute_seconds), (6.0, 3.0));
}

#[test]
fn a_process_reports_only_its_jobs_and_its_exit_ends_them() {
    let mut watch = JobMonitor::new(LIMITS);
    watch.handle_message(1, announced("a"), 0.0).unwrap();
    assert_eq!(watch.handle_message(2, announced("a"), 0.0), Err(ReportRefusal::OtherOwner));
    assert_eq!(watch.handle_message(2, iteration("a", 1.0), 0.0), Err(ReportRefusal::OtherOwner));
    assert_eq!(watch.handle_message(2, iteration("b", 1.0), 0.0), Err(ReportRefusal::UnknownJob));
    assert_eq!(
        watch.handle_message(2, ProcessMessage::End("a".into()), 0.0),
        Err(ReportRefusal::OtherOwner)
    );
    watch.handle_message(2, announced("b"), 0.0).unwrap();
    assert_eq!(watch.handle_message(2, announced("c"), 0.0), Err(ReportRefusal::TooManyJobs(2)));
    assert_eq!(watch.announcements().count(), 2);
    let end = |job: &str| Report::End(proto::JobEnd { job: job.to_owned() });
    assert_eq!(watch.remove_process(1), [end("a")]);
    assert_eq!(watch.end_all(), [end("b")]);
}

#[test]
fn jobs_of_schedulers_come_and_go_and_a_process_takes_one_over() {
    let mut watch = JobMonitor::new(LIMITS);
    let kinds = |reports: Vec<Report>| -> Vec<String> {
        let kind = |report: &Report| match report {
            Report::Announcement(job) => format!("+{}", job.job),
            Report::Window(window) => format!("={}", window.job),
            Report::End(end) => format!("-{}", end.job),
            Report::QueuePairs(_) | Report::HostStatus(_) => "?".to_owned(),
        };
        reports.iter().map(kind).collect()
    };
    assert_eq!(kinds(watch.sync_scheduled_jobs(vec![job("a"), job("b")], 0.0)), ["+a", "+b"]);
    assert!(watch.sync_scheduled_jobs(vec![job("a"), job("b")], 0.1).is_empty());
    // One job too many is not announced, but counted.
    assert!(watch.sync_scheduled_jobs(vec![job("a"), job("b"), job("c")], 0.2).is_empty());
    assert_eq!(watch.unreported_jobs(), 1);
    assert_eq!(kinds(watch.tick_windows(3.0)), ["=a", "=b"]);
    watch.handle_message(1, announced("a"), 3.1).unwrap();
    assert_eq!(watch.owner("a"), Some(JobOwner::Process(1)));
    // A job that a process reports is not left out.
    assert!(watch.sync_scheduled_jobs(vec![job("a"), job("b")], 3.1).is_empty());
    assert_eq!(watch.unreported_jobs(), 0);
    assert_eq!(kinds(watch.sync_scheduled_jobs(vec![job("a")], 3.2)), ["-b"]);
    // The process ends before the job does.
    assert_eq!(kinds(watch.remove_process(1)), ["-a"]);
    assert_eq!(kinds(watch.sync_scheduled_jobs(vec![job("a")], 3.3)), ["+a"]);
    let longer = JobDocument { tenant: Some("t".to_owned()), ..job("a") };
    assert_eq!(kinds(watch.sync_scheduled_jobs(vec![longer], 3.4)), ["+a"]);
    assert_eq!(kinds(watch.sync_scheduled_jobs(vec![], 3.5)), ["-a"]);
}

#[test]
fn jobs_beyond_the_limit_are_counted_until_there_is_room() {
    let mut watch = JobMonitor::new(LIMITS);
    let jobs = |names: &[&str]| names.iter().map(|name| job(name)).collect();
    watch.sync_scheduled_jobs(jobs(&["a", "b", "c", "d"]), 0.0);
    assert_eq!(watch.unreported_jobs(), 2);
    // A process names one of them, and another one.
    for name in ["d", "e"] {
        let refused = watch.handle_message(1, announced(name), 0.1);
        assert_eq!(refused, Err(ReportRefusal::TooManyJobs(2)));
    }
    assert_eq!(watch.unreported_jobs(), 3);
    assert_eq!(watch.handle_message(1, ProcessMessage::End("e".into()), 0.2).ok(), None);
    assert_eq!(watch.unreported_jobs(), 2);
    // One ends: the next has its place.
    assert_eq!(watch.sync_scheduled_jobs(jobs(&["a", "c", "d"]), 0.3).len(), 2);
    assert_eq!((watch.owner("c"), watch.unreported_jobs()), (Some(JobOwner::Scheduler), 1));
    assert_eq!(watch.sync_scheduled_jobs(jobs(&["a"]), 0.4).len(), 1);
    // The process still has one that it announced in vain.
    assert_eq!(watch.unreported_jobs(), 1);
    watch.handle_message(1, announced("d"), 0.5).unwrap();
    assert_eq!(watch.unreported_jobs(), 0);
    watch.handle_message(1, announced("f"), 0.6).unwrap_err();
    watch.remove_process(1);
    assert_eq!(watch.unreported_jobs(), 0);
}

#[test]
fn a_job_without_messages_is_reported_from_counters() {
    let mut watch = JobMonitor::new(LIMITS);
    watch.observe_job(job("quiet"), "h1", 0.0).unwrap();
    // 0.8 s of silence, then 0.4 s at 5 GB/s; half of the job's bytes leave this host.
    let (mut sent, mut windows) = (0, Vec::new());
    for step in 0..3600_u32 {
        let now = f64::from(step) / 100.0;
        watch.record_counter("quiet", now, sent);
        watch.record_gpu_busy(0.01, 0.5);
        sent += if step % 120 >= 80 { 50_000_000 } else { 0 };
        windows.extend(watch.tick_windows(now));
    }
    let period = watch.period("quiet").expect("it repeats");
    assert!((period.seconds / 1.2 - 1.0).abs() < 0.01, "{period:?}");
    let late: Vec<_> = windows.drain(20..).map(|report| window(Some(report))).collect();
    let seconds: f64 = late.iter().map(|window| window.seconds).sum();
    let iterations: usize = late.iter().map(|window| window.iteration_starts.len()).sum();
    assert!((seconds / iterations as f64 / 1.2 - 1.0).abs() < 0.1);
    let bytes: f64 = late.iter().filter_map(|window| window.bytes).sum();
    assert!((bytes / iterations as f64 / 4e9 - 1.0).abs() < 0.02);
    let one = &late[0];
    assert_eq!(one.flop, 1e15 * one.iteration_starts.len() as f64);
    assert!((one.compute_seconds / one.seconds - 0.5).abs() < 0.01);
    assert!((one.communication_seconds / one.seconds - 1.0 / 3.0).abs() < 0.05);
}

proptest! {
    /// Whatever is message, in whatever order: never more jobs than allowed, and every window says
    /// only what fits into it.
    #[test]
    fn no_message_breaks_a_bound(
        message in prop::collection::vec((0_u64..3, 0_usize..4, 0_usize..3, 0.01..5.0_f64), 1..60)
    ) {
        let mut watch = JobMonitor::new(LIMITS);
        let mut now = 0.0;
        for (from, name, what, seconds) in message {
            now += seconds;
            let name = ["a", "b", "c", "d"][name];
            let message = match what {
                0 => announced(name),
                1 => iteration(name, seconds),
                _ => ProcessMessage::End(name.to_owned()),
            };
            let reports = watch.handle_message(from, message, now).ok().flatten();
            for report in reports.into_iter().chain(watch.tick_windows(now)) {
                if let Report::Window(window) = report {
                    prop_assert!(window.seconds > 0.0);
                    prop_assert!(window.iteration_starts.iter().all(|at| *at <= window.seconds));
                }
            }
            prop_assert!(watch.announcements().count() <= LIMITS.jobs);
        }
    }
}
