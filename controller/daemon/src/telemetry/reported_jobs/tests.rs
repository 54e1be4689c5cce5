//! Jobs come, are profiled, change, fall silent; and nobody gets more than their share.

use std::collections::BTreeMap;
use std::time::Duration;

use planner::FlowDocument;
use topology::clos::{self, ClosSpec};

use super::*;
use crate::config::Config;

const SECOND: Duration = Duration::from_secs(1);

/// A census of a small fabric, and the time there.
struct Town {
    census: ReportedJobRegistry,
    fabric: Fabric,
    now: Instant,
}

impl Town {
    fn new() -> Self {
        let mut limits = Config::default().telemetry;
        limits.profiled_at_once = 1.try_into().unwrap();
        limits.jobs_per_reporter = 3.try_into().unwrap();
        Self {
            census: ReportedJobRegistry::new(limits),
            fabric: clos::build_clos("lab", &ClosSpec::default()).unwrap(),
            now: Instant::now(),
        }
    }

    fn say(&mut self, from: u64, report: TelemetryReport) -> String {
        let remark = self.census.ingest_report(ReporterId(from), report, &self.fabric, self.now);
        remark.map_or(String::new(), |remark| remark.finding.to_string())
    }

    fn announce(&mut self, from: u64, name: &str) -> String {
        self.say(from, TelemetryReport::Announcement(Box::new(job(name))))
    }

    fn window(&mut self, from: u64, name: &str) -> String {
        self.say(from, TelemetryReport::Window(window(name)))
    }

    /// Names of jobs, those that are profiled with a star.
    fn told(&self) -> Vec<String> {
        let told = self.census.reported_jobs();
        let name = |job: &Job| match told.profiled.contains(&job.id) {
            true => format!("{}*", job.id),
            false => job.id.to_string(),
        };
        told.jobs.iter().map(name).collect()
    }

    fn pass(&mut self, time: Duration) -> Vec<ReportFeedback> {
        self.now += time;
        self.census.advance_time(self.now)
    }
}

fn job(name: &str) -> JobDocument {
    let port = name.bytes().map(u16::from).sum();
    JobDocument {
        id: name.to_owned(),
        gpus: BTreeMap::from([("h1".to_owned(), 8), ("h9".to_owned(), 8)]),
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
fn window(name: &str) -> ReportWindow {
    ReportWindow {
        job: name.to_owned(),
        seconds: 1.0,
        iteration_starts: vec![0.0, 0.2, 0.4, 0.6, 0.8],
        flop: 5e15,
        compute_seconds: 0.5,
        communication_seconds: 0.5,
        flow_bytes: vec![1e9],
        bytes: None,
    }
}

#[test]
fn a_job_is_profiled_planned_and_gone() {
    let mut town = Town::new();
    assert!(town.announce(1, "a").contains("profiled in the highest class"));
    assert!(town.census.take_change());
    assert_eq!(town.told(), ["a*"]);
    assert!(town.window(1, "a").contains("profile complete"));
    assert!(town.census.take_change());
    let told = town.census.reported_jobs();
    assert!(told.profiled.is_empty());
    assert_eq!(told.jobs[0].flop_per_iteration, 1e15);
    assert_eq!(told.jobs[0].flows[0].bytes, 2e8);
    // The same again is no news, and double the work is.
    assert_eq!(town.window(1, "a"), "");
    assert!(!town.census.take_change());
    let more = ReportWindow { flop: 1e16, ..window("a") };
    assert!(town.say(1, TelemetryReport::Window(more)).contains("planned anew"));
    assert!(town.say(1, TelemetryReport::End("a".into())).contains("ended"));
    assert!(town.told().is_empty());
}

#[test]
fn bytes_of_all_flows_together_are_shared_out_as_announced() {
    let mut town = Town::new();
    let mut two = job("a");
    let first = two.flows.as_mut().unwrap();
    first[0].bytes = 3.0;
    first.push(FlowDocument { udp_src_port: Some(7), bytes: 1.0, ..first[0].clone() });
    town.say(1, TelemetryReport::Announcement(Box::new(two)));
    let together = ReportWindow { flow_bytes: Vec::new(), bytes: Some(20e9), ..window("a") };
    town.say(1, TelemetryReport::Window(together));
    let bytes = |town: &Town| {
        let told = town.census.reported_jobs();
        let flows = told.jobs[0].flows.iter();
        flows.map(|flow| flow.bytes).collect::<Vec<_>>()
    };
    assert_eq!(bytes(&town), [3e9, 1e9]);
    // What says nothing of bytes leaves them as they are.
    let silent = ReportWindow { flow_bytes: Vec::new(), flop: 1e16, ..window("a") };
    assert!(town.say(1, TelemetryReport::Window(silent)).contains("planned anew"));
    assert_eq!(bytes(&town), [3e9, 1e9]);
    let claim = town.census.reported_iterations()[&"a".into()];
    assert_eq!((claim.seconds, claim.bytes), (Some(0.2), 4e9));
}

#[test]
fn few_are_profiled_at_a_time_and_none_for_long() {
    let mut town = Town::new();
    town.announce(1, "a");
    assert!(town.announce(2, "b").contains("waits"));
    assert_eq!(town.told(), ["a*", "b"]);
    // Windows of who waits count for nothing yet.
    town.window(2, "b");
    for _ in 0..12 {
        town.pass(5 * SECOND);
        let idle = |name: &str| ReportWindow { iteration_starts: Vec::new(), ..window(name) };
        town.say(1, TelemetryReport::Window(idle("a")));
        town.say(2, TelemetryReport::Window(idle("b")));
    }
    let said = town.pass(SECOND);
    assert_eq!(town.told(), ["a", "b*"], "{said:?}");
}

#[test]
fn who_is_silent_is_gone_after_the_grace() {
    let mut town = Town::new();
    town.announce(1, "a");
    town.census.close_stream(ReporterId(1));
    assert!(town.pass(9 * SECOND).is_empty());
    // It comes back under another stream, and what was known of it is still known.
    assert!(town.announce(2, "a").contains("profiled"));
    assert!(town.pass(9 * SECOND).is_empty());
    let said = town.pass(SECOND);
    assert!(said[0].finding.text.contains("silent"), "{said:?}");
    assert!(town.told().is_empty());
}

#[test]
fn nobody_speaks_for_another_or_has_more_than_a_share() {
    let mut town = Town::new();
    town.announce(1, "a");
    assert!(town.announce(2, "a").contains("another reporter"));
    assert!(town.window(2, "a").contains("not this reporter's"));
    assert!(town.say(2, TelemetryReport::End("a".into())).contains("it stays"));
    // The sum of its letters is that of "bc".
    town.announce(2, "bc");
    assert!(town.announce(3, "cb").contains("has one of its connections"));
    for name in ["b", "c"] {
        town.announce(2, name);
    }
    assert!(town.announce(2, "d").contains("at most 3 jobs"));
}

#[test]
fn what_cannot_be_is_not_believed() {
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
    let mut town = Town::new();
    town.announce(1, "a");
    for (window, text) in cases {
        let said = town.say(1, TelemetryReport::Window(window));
        assert!(said.contains("not believed") && said.contains(text), "{said}");
    }
    assert_eq!(town.told(), ["a*"]);
}

#[test]
fn what_was_told_before_a_restart_is_known_after_it() {
    let mut town = Town::new();
    town.announce(1, "a");
    town.window(1, "a");
    let told = town.census.reported_jobs();
    let mut next = Town::new();
    next.census.restore_jobs(&told, &town.fabric, next.now);
    assert_eq!(next.census.reported_jobs(), told);
    assert!(next.announce(7, "a").contains("planned by what is known"));
    assert_eq!(next.census.reported_jobs(), told);
}
