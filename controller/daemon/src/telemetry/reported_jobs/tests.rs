//! Jobs come, are profiled, change, fall silent; and nobody gets more than their share.

use std::time::Duration;

use indexmap::IndexMap;
use planner::{FlowDocument, PlanInput, Policy};
use topology::clos::{self, ClosSpec};

use super::*;
use crate::config::Config;

const SECOND: Duration = Duration::from_secs(1);

/// A census of a small fabric, and the time there.
pub(super) struct Town {
    pub(super) registry: ReportedJobRegistry,
    pub(super) fabric: Fabric,
    pub(super) now: Instant,
}

impl Town {
    pub(super) fn new() -> Self {
        let mut limits = Config::default().telemetry;
        limits.profiled_at_once = 1.try_into().unwrap();
        limits.jobs_per_reporter = 3.try_into().unwrap();
        Self {
            registry: ReportedJobRegistry::new(limits),
            fabric: clos::build_clos("lab", &ClosSpec::default()).unwrap(),
            now: Instant::now(),
        }
    }

    fn report(&mut self, from: u64, report: JobReport) -> String {
        let feedback =
            self.registry.ingest_report(ReporterId(from), report, &self.fabric, self.now);
        feedback.map_or(String::new(), |feedback| feedback.finding.to_string())
    }

    fn announce(&mut self, from: u64, name: &str) -> String {
        self.report(from, JobReport::Announcement(Box::new(job(name))))
    }

    fn window(&mut self, from: u64, name: &str) -> String {
        self.report(from, JobReport::Window(window(name)))
    }

    /// Names of jobs, those that are profiled with a star.
    fn reported(&self) -> Vec<String> {
        let reported = self.registry.reported_jobs();
        let name = |job: &Job| {
            if reported.profiled.contains(&job.id) {
                format!("{}*", job.id)
            } else {
                job.id.to_string()
            }
        };
        reported.jobs.iter().map(name).collect()
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<ReportFeedback> {
        self.now += time;
        self.registry.advance_time(self.now)
    }
}

pub(super) fn job(name: &str) -> JobDocument {
    let port = name.bytes().map(u16::from).sum();
    JobDocument {
        id: name.to_owned(),
        gpus: IndexMap::from([("h1".to_owned(), 8), ("h9".to_owned(), 8)]),
        flows: Some(vec![FlowDocument {
            src: "h1".to_owned(),
            dst: "h9".to_owned(),
            udp_src_port: Some(port),
            ..FlowDocument::default()
        }]),
        ..JobDocument::default()
    }
}

/// A second with five iterations.
pub(super) fn window(name: &str) -> ReportWindow {
    ReportWindow {
        job: name.to_owned(),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop: 5e15,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![1e9],
        bytes: None,
        slot_offset_seconds: None,
    }
}

#[test]
fn a_job_is_profiled_planned_and_gone() {
    let mut lab = Town::new();
    assert!(lab.announce(1, "a").contains("profiled in the highest class"));
    assert!(lab.registry.take_change());
    assert_eq!(lab.reported(), ["a*"]);
    assert!(lab.window(1, "a").contains("profile complete"));
    assert!(lab.registry.take_change());
    let reported = lab.registry.reported_jobs();
    assert!(reported.profiled.is_empty());
    assert_eq!(reported.jobs[0].flop_per_iteration, 1e15);
    assert_eq!(reported.jobs[0].flows[0].bytes, 2e8);
    // The same again is no news, and double the work is.
    assert_eq!(lab.window(1, "a"), "");
    assert!(!lab.registry.take_change());
    let more = || JobReport::Window(ReportWindow { flop: 1e16, ..window("a") });
    assert_eq!(lab.report(1, more()), "", "once may be chance");
    assert_eq!(lab.window(1, "a"), "");
    assert_eq!(lab.report(1, more()), "");
    assert!(!lab.registry.take_change());
    assert!(lab.report(1, more()).contains("planned anew"));
    assert!(lab.report(1, JobReport::End("a".into())).contains("ended"));
    assert!(lab.reported().is_empty());
}

#[test]
fn a_pod_is_of_the_one_job_that_has_announced_it() {
    let mut lab = Town::new();
    let with_pods = |name: &str, pods: &[&str]| {
        let pods = pods.iter().map(|uid| (*uid).to_owned()).collect();
        JobReport::Announcement(Box::new(JobDocument { pods, ..job(name) }))
    };
    lab.report(1, with_pods("a", &["1", "2"]));
    lab.report(1, with_pods("b", &["3"]));
    let owners = |lab: &Town| {
        ["1", "2", "3", "4"].map(|uid| lab.registry.job_of_pod(uid).map(|job| job.to_string()))
    };
    let shown =
        |owners: [&str; 4]| owners.map(|job| Some(job.to_owned()).filter(|j| !j.is_empty()));
    assert_eq!(owners(&lab), shown(["a", "a", "b", ""]));
    // A pod that two jobs claim is nobody's; one that was replaced is gone.
    lab.report(1, with_pods("b", &["2", "4"]));
    assert_eq!(owners(&lab), shown(["a", "", "", "b"]));
    lab.report(1, JobReport::End("a".into()));
    assert_eq!(owners(&lab), shown(["", "b", "", "b"]));
}

/// Connections are made again after a fault, from other ports.
#[test]
fn a_job_that_is_announced_from_other_ports_keeps_what_was_measured() {
    let mut lab = Town::new();
    lab.announce(1, "a");
    lab.window(1, "a");
    let mut again = job("a");
    again.flows.as_mut().unwrap()[0].udp_src_port = Some(61_000);
    lab.report(1, JobReport::Announcement(Box::new(again)));
    let reported = lab.registry.reported_jobs();
    let flow = &reported.jobs[0].flows[0];
    assert_eq!((flow.udp_src_port, flow.bytes), (Some(61_000), 2e8));
    assert_eq!(reported.jobs[0].flop_per_iteration, 1e15);
    assert!(reported.profiled.is_empty());
    // Its old connection is anybody's.
    let mut other = job("b");
    other.flows.as_mut().unwrap()[0].udp_src_port = job("a").flows.unwrap()[0].udp_src_port;
    let announced = lab.report(2, JobReport::Announcement(Box::new(other)));
    assert!(!announced.contains("refused"), "{announced}");
}

#[test]
fn total_bytes_are_split_as_announced() {
    let mut lab = Town::new();
    let mut two = job("a");
    let first = two.flows.as_mut().unwrap();
    first[0].bytes = 3.0;
    first.push(FlowDocument { udp_src_port: Some(7), bytes: 1.0, ..first[0].clone() });
    lab.report(1, JobReport::Announcement(Box::new(two)));
    let together = ReportWindow { flow_bytes: Vec::new(), bytes: Some(20e9), ..window("a") };
    lab.report(1, JobReport::Window(together));
    let bytes = |lab: &Town| {
        let reported = lab.registry.reported_jobs();
        let flows = reported.jobs[0].flows.iter();
        flows.map(|flow| flow.bytes).collect::<Vec<_>>()
    };
    assert_eq!(bytes(&lab), [3e9, 1e9]);
    // What says nothing of bytes leaves them as they are.
    let silent = ReportWindow { flow_bytes: Vec::new(), flop: 1e16, ..window("a") };
    assert_eq!(lab.report(1, JobReport::Window(silent.clone())), "");
    assert!(lab.report(1, JobReport::Window(silent)).contains("planned anew"));
    assert_eq!(bytes(&lab), [3e9, 1e9]);
    let claim = lab.registry.reported_iterations()[&"a".into()];
    assert_eq!((claim.seconds, claim.bytes), (None, 4e9), "no plan was in force");
}

#[test]
fn few_are_profiled_at_a_time_and_none_for_long() {
    let mut lab = Town::new();
    lab.announce(1, "a");
    assert!(lab.announce(2, "b").contains("waits"));
    assert_eq!(lab.reported(), ["a*", "b"]);
    // Windows of who waits count for nothing yet.
    lab.window(2, "b");
    for _ in 0..12 {
        lab.pass(5 * SECOND);
        let idle = |name: &str| ReportWindow { iteration_starts: Vec::new(), ..window(name) };
        lab.report(1, JobReport::Window(idle("a")));
        lab.report(2, JobReport::Window(idle("b")));
    }
    let feedback = lab.pass(SECOND);
    assert_eq!(lab.reported(), ["a", "b*"], "{feedback:?}");
}

#[test]
fn silent_jobs_expire_after_the_grace_or_the_longest_pause() {
    let mut lab = Town::new();
    lab.announce(1, "a");
    lab.registry.close_stream(ReporterId(1));
    assert!(lab.pass(9 * SECOND).is_empty());
    // It comes back under another stream, and what was known of it is still known.
    assert!(lab.announce(2, "a").contains("profiled"));
    assert!(lab.pass(9 * SECOND).is_empty());
    // Its reporter is there and says nothing, as while the job saves a checkpoint.
    lab.window(2, "a");
    assert!(lab.pass(300 * SECOND).is_empty());
    lab.registry.close_stream(ReporterId(2));
    let feedback = lab.pass(SECOND);
    assert!(feedback[0].finding.text.contains("silent"), "{feedback:?}");
    assert!(lab.reported().is_empty());
}

#[test]
fn a_reporter_has_only_its_own_jobs_and_a_limited_number() {
    let mut lab = Town::new();
    lab.announce(1, "a");
    assert!(lab.announce(2, "a").contains("another reporter"));
    assert!(lab.window(2, "a").contains("not this reporter's"));
    assert!(lab.report(2, JobReport::End("a".into())).contains("it stays"));
    // The sum of its letters is that of "bc".
    lab.announce(2, "bc");
    assert!(lab.announce(3, "cb").contains("has one of its connections"));
    for name in ["b", "c"] {
        lab.announce(2, name);
    }
    assert!(lab.announce(2, "d").contains("at most 3 jobs"));
}

/// A reporter whose windows were all refused had the highest class for a minute, and then the first
/// rank.
#[test]
fn implausible_windows_raise_no_job() {
    let lie = |name: &str| JobReport::Window(ReportWindow { flop: 1e30, ..window(name) });
    let distrusted = |lab: &Town| -> Vec<String> {
        lab.registry.reported_jobs().distrusted.iter().map(ToString::to_string).collect()
    };
    let mut lab = Town::new();
    lab.announce(1, "a");
    lab.announce(2, "b");
    assert_eq!(lab.reported(), ["a*", "b"]);
    lab.report(1, lie("a"));
    assert_eq!(
        (lab.reported(), distrusted(&lab)),
        (vec!["a".into(), "b*".into()], vec!["a".into()])
    );
    let findings = lab.registry.distrust_findings();
    assert_eq!((findings.len(), &*findings[0].about), (1, "job a"));
    assert!(findings[0].text.contains("not believed") && findings[0].text.contains("no GPU does"));
    lab.window(1, "a");
    assert!(distrusted(&lab).is_empty() && lab.registry.distrust_findings().is_empty());
    // A job that is ranked by evidence keeps its rank after one wrong window, and not after two.
    for _ in 0..40 {
        lab.window(2, "b");
    }
    assert_eq!(lab.reported(), ["a", "b"]);
    lab.report(2, lie("b"));
    assert!(distrusted(&lab).is_empty());
    lab.report(2, lie("b"));
    assert_eq!(distrusted(&lab), ["b"]);
}

#[test]
fn implausible_windows_are_refused() {
    let change = |change: fn(&mut ReportWindow)| {
        let mut changed = window("a");
        change(&mut changed);
        changed
    };
    let cases = [
        (change(|w| w.flop = f64::NAN), "flop is not a number"),
        (change(|w| w.flop = 1e30), "no GPU does"),
        (change(|w| w.seconds = 0.0), "a window of 0 s"),
        (change(|w| w.compute_seconds = 3.0), "compute_seconds of 3 s"),
        (change(|w| w.flow_bytes = vec![1e12]), "more than its cable takes"),
        (change(|w| w.flow_bytes = vec![1.0; 2]), "bytes of 2 flows"),
        (change(|w| w.iteration_starts = vec![0.5, 0.1]), "in no order"),
    ];
    let mut lab = Town::new();
    lab.announce(1, "a");
    for (window, text) in cases {
        let feedback = lab.report(1, JobReport::Window(window));
        assert!(feedback.contains("not believed") && feedback.contains(text), "{feedback}");
    }
    assert_eq!(lab.reported(), ["a"]);
}

/// A registry with the job that another one had, and what that one knew.
fn restored_lab() -> (Town, ReportedJobs) {
    let mut lab = Town::new();
    lab.announce(1, "a");
    lab.window(1, "a");
    let reported = lab.registry.reported_jobs();
    let mut next = Town::new();
    next.registry.restore_jobs(&reported, &lab.fabric, next.now);
    (next, reported)
}

#[test]
fn jobs_are_restored_after_a_restart() {
    let (mut next, reported) = restored_lab();
    assert_eq!(next.registry.reported_jobs(), reported);
    assert!(next.announce(7, "a").contains("planned by what is known"));
    assert_eq!(next.registry.reported_jobs(), reported);
}

/// A standby that began to lead ended the jobs that it had known for longer than the grace.
#[test]
fn whoever_begins_to_lead_gives_jobs_the_whole_grace() {
    let (mut standby, reported) = restored_lab();
    let grace = Config::default().telemetry.grace;
    standby.pass(grace.mul_f64(0.9));
    standby.registry.restore_jobs(&reported, &standby.fabric, standby.now);
    standby.pass(grace.mul_f64(0.9));
    assert_eq!(standby.registry.reported_jobs(), reported);
    standby.pass(grace.mul_f64(0.2));
    assert!(standby.reported().is_empty());
}

/// Finding H2: 1e30 FLOP in a nanosecond were planned for.
#[test]
fn impossible_announcements_are_refused() {
    let mut lab = Town::new();
    let announced = |lab: &mut Town, flop, seconds, bytes| {
        let mut job = job("a");
        (job.flop_per_iteration, job.compute_seconds) = (Some(flop), Some(seconds));
        job.flows.as_mut().unwrap()[0].bytes = bytes;
        lab.report(1, JobReport::Announcement(Box::new(job)))
    };
    assert!(announced(&mut lab, 1e30, 1e-9, 1e9).contains("no GPU does"));
    assert!(announced(&mut lab, 1e15, 1e7, 1e9).contains("at most 3600"));
    assert!(announced(&mut lab, 1e15, 1.0, 1e18).contains("its cable takes"));
    assert!(lab.reported().is_empty());
    assert!(announced(&mut lab, 1e15, 1.0, 1e9).contains("planned by what is known"));
}

/// A job that was cut off for the grace found its name taken, and was refused from then on.
#[test]
fn a_silent_name_is_kept_for_its_tenant_and_an_ended_one_is_free() {
    let mut lab = Town::new();
    let of_tenant = |name: &str, tenant: &str| {
        let job = JobDocument { tenant: Some(tenant.to_owned()), ..job(name) };
        JobReport::Announcement(Box::new(job))
    };
    lab.report(1, of_tenant("a", "red"));
    lab.registry.close_stream(ReporterId(1));
    lab.pass(Config::default().telemetry.grace);
    assert!(lab.reported().is_empty());
    let refused = lab.report(2, of_tenant("a", "blue"));
    assert!(refused.contains("a job of tenant `red` has or had this name"), "{refused}");
    assert!(lab.announce(2, "a").contains("refused"), "nor has a job without a tenant");
    assert!(lab.report(3, of_tenant("a", "red")).contains("profiled"));
    assert!(lab.report(3, of_tenant("a", "green")).contains("profiled"), "it may say so itself");
    lab.report(3, JobReport::End("a".into()));
    assert!(lab.report(2, of_tenant("a", "blue")).contains("profiled"));
    // After a restart the stream of a job is not known, and its tenant is.
    let reported = lab.registry.reported_jobs();
    let mut next = Town::new();
    next.registry.restore_jobs(&reported, &lab.fabric, next.now);
    assert!(next.report(4, of_tenant("a", "red")).contains("refused"));
    assert!(next.report(4, of_tenant("a", "blue")).contains("planned by what is known"));
}

/// Finding H2: the name of a job whose stream broke could be taken by anyone.
#[test]
fn a_broken_stream_leaves_its_jobs_to_their_reporter() {
    let mut lab = Town::new();
    let open = |lab: &mut Town, reporter, lease: u8| {
        let identity = ReporterIdentity { lease: Some([lease; 32]), ..Default::default() };
        lab.registry.open_stream(ReporterId(reporter), identity);
    };
    open(&mut lab, 1, 1);
    open(&mut lab, 2, 2);
    assert!(lab.announce(1, "a").contains("profiled"));
    lab.registry.close_stream(ReporterId(1));
    assert!(lab.announce(2, "a").contains("another reporter has a job of this name"));
    open(&mut lab, 3, 1);
    assert!(lab.announce(3, "a").contains("profiled"), "with the lease");
    assert!(lab.announce(2, "a").contains("another reporter"));
    lab.registry.close_stream(ReporterId(3));
    lab.pass(Config::default().telemetry.grace);
    assert!(lab.announce(2, "a").contains("profiled"), "it was silent for too long");
}

#[test]
fn slowdown_is_measured_against_the_planned_paths() {
    let mut lab = Town::new();
    lab.announce(1, "a");
    lab.window(1, "a");
    let slowdown = |lab: &Town| lab.registry.reported_jobs().jobs[0].measured.over_alone;
    let input = PlanInput { fabric: lab.fabric.clone(), jobs: lab.registry.reported_jobs().jobs };
    let (plan, report) = planner::plan(&input, &Policy::default(), None);
    lab.registry.follow_plan(&plan, &report, lab.now);
    let (_, planned) = plan.job(&"a".into()).unwrap();
    let alone = input.jobs[0].iteration_seconds(planned.bottleneck_seconds);
    lab.registry.take_change();
    // Five iterations, half as fast as alone.
    let seconds = 10.0 * alone;
    let slow = ReportWindow {
        seconds,
        iteration_starts: (0..5).map(|number| f64::from(number) * 2.0 * alone).collect(),
        communication_seconds: seconds - 0.5,
        ..window("a")
    };
    lab.report(1, JobReport::Window(slow.clone()));
    assert!(!lab.registry.take_change(), "most of it was before the plan");
    lab.pass(Duration::from_secs_f64(seconds));
    lab.report(1, JobReport::Window(slow.clone()));
    assert!(lab.registry.take_change());
    assert!((slowdown(&lab) - 1.0).abs() < 0.05, "{}", slowdown(&lab));
    // Once more is no news.
    lab.report(1, JobReport::Window(slow));
    assert!(!lab.registry.take_change());
}

/// An hour of two jobs on the same links, of which the more intense saves a checkpoint for 30 s every
/// five minutes. Its reporter says nothing meanwhile, or that no iteration began, or reports the pause
/// as one long iteration.
#[test]
fn checkpoints_of_an_hour_move_nothing() {
    const PERIOD: u64 = 300;
    const PAUSE: u64 = 30;
    let mut lab = Town::new();
    let weak = |name: &str| ReportWindow { flop: 1e15, ..window(name) };
    let mut plan: Option<planner::Plan> = None;
    let mut changes = Vec::new();
    lab.announce(1, "a");
    lab.announce(2, "b");
    for second in 0..3_600 {
        let (pause, into) = (second / PERIOD, second % PERIOD);
        let of_a = match (into < PERIOD - PAUSE, pause % 3) {
            (true, _) => Some(window("a")),
            (false, 0) => None,
            (false, 1) => Some(ReportWindow {
                iteration_starts: Vec::new(),
                flop: 0.0,
                flow_bytes: vec![0.0],
                communication_seconds: 0.0,
                ..window("a")
            }),
            (false, _) => (into == PERIOD - 1).then(|| ReportWindow {
                seconds: PAUSE as f64,
                iteration_starts: vec![0.0],
                flop: 1e15,
                compute_seconds: 0.1,
                flow_bytes: vec![2e8],
                ..window("a")
            }),
        };
        of_a.into_iter().for_each(|window| drop(lab.report(1, JobReport::Window(window))));
        lab.report(2, JobReport::Window(weak("b")));
        lab.pass(SECOND);
        if lab.registry.take_change() || plan.is_none() {
            let jobs = lab.registry.reported_jobs().jobs;
            let input = PlanInput { fabric: lab.fabric.clone(), jobs };
            let (next, report) = planner::plan(&input, &Policy::default(), plan.as_ref());
            lab.registry.follow_plan(&next, &report, lab.now);
            changes.push(second);
            plan = Some(next);
        }
    }
    assert!(changes.iter().all(|second| *second < PERIOD - PAUSE), "{changes:?}");
    let plan = plan.unwrap();
    let intensity = |name: &str| plan.job(&name.into()).unwrap().1.intensity;
    assert!(intensity("a") > 2.0 * intensity("b"));
}

#[test]
fn a_job_that_misses_its_slot_for_a_minute_is_one_that_cannot_wait() {
    let mut lab = Town::new();
    let waiting = || {
        let known = JobDocument {
            flop_per_iteration: Some(1e15),
            compute_seconds: Some(0.1),
            can_wait: true,
            ..job("a")
        };
        JobReport::Announcement(Box::new(known))
    };
    let can_wait = |lab: &Town| lab.registry.reported_jobs().jobs[0].can_wait;
    lab.report(1, waiting());
    let shift = StartShift { seconds: 0.15, period_seconds: 0.2, most_wait_seconds: 0.01 };
    lab.registry.shifts.insert("a".into(), shift);
    let slots = lab.registry.take_slot_changes(lab.now);
    assert!((slots[0].slot.unwrap().first_send_seconds - 0.05).abs() < 1e-9, "{slots:?}");
    assert_eq!(lab.registry.take_slot_changes(lab.now), []);
    let late = |offset| {
        JobReport::Window(ReportWindow { slot_offset_seconds: Some(offset), ..window("a") })
    };
    for offset in [0.001, 0.05, 0.05] {
        assert!(!lab.report(1, late(offset)).contains("missed its slot"));
        lab.pass(Duration::from_secs(30));
    }
    assert!(can_wait(&lab));
    assert!(lab.report(1, late(0.05)).contains("missed its slot for 60 s"));
    assert!(!can_wait(&lab) && lab.registry.take_change());
    assert_eq!(lab.registry.take_slot_changes(lab.now)[0].slot, None);
    lab.report(1, waiting());
    assert!(can_wait(&lab), "it is announced again");
}
