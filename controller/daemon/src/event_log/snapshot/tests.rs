//! The events between snapshots, as sentences.

use planner::{Job, Policy};
use topology::clos::{self, ClosSpec};
use topology::{AvailabilityChange as Change, HostId};

use super::*;
use crate::pipelines::fabric::tests as pipeline_tests;
use crate::policy_history::{PolicyHistory, RevisionMetadata};
use crate::state::{ReportedJobs, StartingState, State, StateEvent};

/// A state on two leaves and two spines, with the snapshot of it.
struct TestState {
    state: State,
    snapshot: EventSnapshot,
}

impl TestState {
    fn open() -> Self {
        let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
        let start = StartingState {
            fabric: clos::build_clos("lab", &spec).unwrap(),
            history: PolicyHistory::new(
                PolicyRevision::from_initial_policy(&Policy::default()),
                [],
            ),
            jobs: Vec::new(),
            reported_jobs: ReportedJobs::default(),
            decisions: None,
        };
        let mut test = Self { state: State::new(8, 0), snapshot: EventSnapshot::default() };
        test.apply(StateEvent::Started(Box::new(start)));
        test
    }

    /// Applies an event and the plans that follow; the events between the snapshots.
    fn apply(&mut self, event: StateEvent) -> Vec<String> {
        let mut rollout = self.snapshot.rollout.clone();
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let effects = self.state.step(event);
            rollout = effects.rollout.or(rollout);
            let result = effects.plan_request.map(|request| request.compute_plan());
            next = result.map(|result| StateEvent::Planned(Box::new(result)));
        }
        let snapshot = EventSnapshot {
            rollout,
            revisions: super::revisions_from(&self.state, self.snapshot.latest_revision()),
            profiled: self.state.reported_jobs().profiled.clone(),
            ..self.snapshot.clone()
        };
        let events = snapshot.events_since(&self.snapshot);
        self.snapshot = snapshot;
        events.iter().map(ToString::to_string).collect()
    }
}

fn job(name: &str, port: u16) -> Job {
    let gpus = BTreeMap::from([(HostId(0), 1), (HostId(2), 1)]);
    Job { id: name.into(), gpus, ..pipeline_tests::job(0, &[(0, 2, port)]) }
}

fn contains(events: &[String], expected: &str) -> bool {
    events.iter().any(|text| text.contains(expected))
}

#[test]
fn reports_job_arrival_change_and_departure() {
    let mut test = TestState::open();
    let events = test.apply(StateEvent::JobsChanged(vec![job("a", 50_000), job("b", 50_001)]));
    assert!(contains(&events, "job a arrived: level"), "{events:?}");
    assert!(contains(&events, "is in force: 2 jobs, 2 flows, 0 moved"), "{events:?}");
    let profiled = ReportedJobs {
        jobs: vec![job("c", 50_002)],
        profiled: BTreeSet::from(["c".into()]),
        ..ReportedJobs::default()
    };
    let events = test.apply(StateEvent::JobsReported(profiled.clone()));
    assert!(contains(&events, "job c arrived and is being profiled"), "{events:?}");
    let events = test
        .apply(StateEvent::JobsReported(ReportedJobs { profiled: BTreeSet::new(), ..profiled }));
    assert!(contains(&events, "job c has been profiled"), "{events:?}");
    let events = test.apply(StateEvent::JobsChanged(vec![job("b", 50_001)]));
    assert!(contains(&events, "job a left"), "{events:?}");
    assert!(!contains(&events, "job b"), "{events:?}");
}

#[test]
fn reports_failures_repairs_and_moved_flows() {
    let mut test = TestState::open();
    test.apply(StateEvent::JobsChanged(vec![job("a", 50_000)]));
    let links = &test.snapshot.rollout.as_ref().unwrap().plan.flows[0].links;
    let uplink = links[1];
    let events = test.apply(StateEvent::FabricChanged(vec![Change::LinkDown(uplink)]));
    assert!(contains(&events, " is down, was up"), "{events:?}");
    assert!(contains(&events, "1 flow, 1 moved"), "{events:?}");
    let events = test.apply(StateEvent::FabricChanged(vec![Change::LinkUp(uplink)]));
    // It is not used before every switch holds tables with it.
    assert!(contains(&events, " is returning, was down"), "{events:?}");
    let events = test.apply(StateEvent::GenerationHeld(test.state.generation()));
    assert!(contains(&events, " is up, was returning"), "{events:?}");
    let events = test.apply(StateEvent::FabricChanged(vec![Change::SwitchDown(SwitchId(3))]));
    assert!(contains(&events, "spine2 is down, was up"), "{events:?}");
}

#[test]
fn reports_every_end_of_a_trial() {
    let proposal = |fairness, trial_until: Option<u64>| {
        let policy = Policy { fairness, ..Policy::default() };
        let signature =
            RevisionMetadata { author: "ada".to_owned(), reason: "night".to_owned(), at_ms: 0 };
        StateEvent::PolicyProposed(Box::new(crate::state::PolicyProposal {
            content: crate::policy_history::PolicyContent::from(&policy),
            signature,
            trial: trial_until.map(|until_ms| crate::policy_history::TrialTerms {
                until_ms,
                awaits_confirmation: true,
            }),
            force: false,
        }))
    };
    let mut test = TestState::open();
    let events = test.apply(proposal(0.2, Some(1_000)));
    let text = "policy: revision 2 by ada (night), on trial until it is confirmed: fairness: ";
    assert!(contains(&events, text), "{events:?}");
    assert!(contains(&test.apply(StateEvent::PolicyConfirmed), "revision 2 was confirmed"));
    test.apply(proposal(0.3, Some(1_000)));
    let events = test.apply(StateEvent::PolicyRolledBack(RevisionMetadata {
        author: "bob".to_owned(),
        ..RevisionMetadata::default()
    }));
    assert!(contains(&events, "revision 3 was rolled back by bob; revision 4"), "{events:?}");
    test.apply(proposal(0.4, Some(1_000)));
    let events = test.apply(StateEvent::DeadlineReached(1_000));
    assert!(contains(&events, "revision 5 was not confirmed in time; revision 6"), "{events:?}");
    // Revisions between two snapshots are all reported.
    let before = test.snapshot.clone();
    for fairness in [0.5, 0.6] {
        test.apply(proposal(fairness, None));
    }
    test.snapshot = before;
    assert_eq!(test.apply(StateEvent::ElectionWon(0)).len(), 2);
}

#[test]
fn reports_drift_verification_and_leadership() {
    let mut test = TestState::open();
    let generation = test.snapshot.rollout.as_ref().unwrap().generation;
    let line = |switch: u32, verified, drifted| SessionSummary {
        switch: SwitchId(switch),
        name: format!("s{switch}"),
        is_primary: true,
        verified,
        drifted,
    };
    let snapshot = |lines: Vec<SessionSummary>| EventSnapshot {
        sessions: lines,
        permit: WritePermit::Open { term: 4 },
        ..test.snapshot.clone()
    };
    let half = snapshot(vec![line(0, Some(generation), 0), line(1, None, 0)]);
    let whole = snapshot(vec![line(0, Some(generation), 2), line(1, Some(generation), 0)]);
    let events = |snapshot: &EventSnapshot, before: &EventSnapshot| -> Vec<String> {
        snapshot.events_since(before).iter().map(ToString::to_string).collect()
    };
    assert_eq!(events(&half, &test.snapshot), ["this controller leads, in term 4"]);
    assert_eq!(events(&whole, &half), ["s0: 2 entries were changed by somebody else"]);
    assert!(
        half.verified_generation().is_none() && whole.verified_generation() == Some(generation)
    );
    assert_eq!(events(&whole, &whole), [""; 0]);
    let finding = Finding::warning("leaf1", "is odd");
    test.snapshot.findings.insert(finding);
    let events = test.apply(StateEvent::ElectionWon(0));
    assert_eq!(events, [""; 0], "reported with the snapshot that has it");
}

#[test]
fn reports_a_complete_drain_once() {
    let test = TestState::open();
    let mut complete = test.snapshot.clone();
    complete.drainage.complete.insert("spine1".to_owned(), true);
    let events = complete.events_since(&test.snapshot);
    let events: Vec<String> = events.iter().map(ToString::to_string).collect();
    assert!(contains(&events, "drain of spine1 is complete"), "{events:?}");
    assert_eq!(complete.events_since(&complete), []);
}
