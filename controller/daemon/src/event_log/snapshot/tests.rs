//! Scenes by hand, and the states behind them, told as sentences.

use planner::{Flow, Job, Policy};
use topology::clos::{self, ClosSpec};
use topology::{AvailabilityChange as Befalls, HostId};

use super::*;
use crate::policy_history::{PolicyHistory, RevisionMetadata};
use crate::state::{ReportedJobs, StartingState, State, StateEvent};

/// A state with its latest decision, on two leaves and two spines.
struct Stage {
    state: State,
    scene: EventSnapshot,
}

impl Stage {
    fn open() -> Self {
        let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
        let beginning = StartingState {
            fabric: clos::build_clos("lab", &spec).unwrap(),
            history: PolicyHistory::new(
                PolicyRevision::from_initial_policy(&Policy::default()),
                [],
            ),
            jobs: Vec::new(),
            reported_jobs: ReportedJobs::default(),
        };
        let mut stage = Self { state: State::new(8, 0), scene: EventSnapshot::default() };
        stage.tell(StateEvent::Started(Box::new(beginning)));
        stage
    }

    /// Gives the state an event and everything that follows; what is told of it.
    fn tell(&mut self, event: StateEvent) -> Vec<String> {
        let mut realised = self.scene.rollout.clone();
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let effects = self.state.step(event);
            realised = effects.rollout.or(realised);
            let answer = effects.plan_request.map(|question| question.compute_plan());
            next = answer.map(|answer| StateEvent::Planned(Box::new(answer)));
        }
        let scene = EventSnapshot {
            rollout: realised,
            revisions: super::revisions_from(&self.state, self.scene.latest_revision()),
            profiled: self.state.reported_jobs().profiled.clone(),
            ..self.scene.clone()
        };
        let told = scene.events_since(&self.scene);
        self.scene = scene;
        told.iter().map(ToString::to_string).collect()
    }
}

fn job(name: &str, udp_src_port: u16) -> Job {
    Job {
        id: name.into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(0), 1), (HostId(2), 1)]),
        flop_per_iteration: 1e15,
        compute_seconds: 1.0,
        overlap_from: 1.0,
        recent_slowdown: 0.0,
        flows: vec![Flow { src: NicId(0), dst: NicId(2), bytes: 1e9, udp_src_port }],
    }
}

fn has(told: &[String], expected: &str) -> bool {
    told.iter().any(|text| text.contains(expected))
}

#[test]
fn jobs_come_and_go() {
    let mut stage = Stage::open();
    let told = stage.tell(StateEvent::JobsChanged(vec![job("a", 50_000), job("b", 50_001)]));
    assert!(has(&told, "job a arrived: level"), "{told:?}");
    assert!(has(&told, "is in force: 2 jobs, 2 flows, 0 moved"), "{told:?}");
    let profiled =
        ReportedJobs { jobs: vec![job("c", 50_002)], profiled: BTreeSet::from(["c".into()]) };
    let told = stage.tell(StateEvent::JobsReported(profiled.clone()));
    assert!(has(&told, "job c arrived and is being profiled"), "{told:?}");
    let told = stage
        .tell(StateEvent::JobsReported(ReportedJobs { profiled: BTreeSet::new(), ..profiled }));
    assert!(has(&told, "job c has been profiled"), "{told:?}");
    let told = stage.tell(StateEvent::JobsChanged(vec![job("b", 50_001)]));
    assert!(has(&told, "job a left"), "{told:?}");
    assert!(!has(&told, "job b"), "{told:?}");
}

#[test]
fn what_fails_and_works_again_is_told_with_what_moves() {
    let mut stage = Stage::open();
    stage.tell(StateEvent::JobsChanged(vec![job("a", 50_000)]));
    let links = &stage.scene.rollout.as_ref().unwrap().plan.flows[0].links;
    let uplink = links[1];
    let told = stage.tell(StateEvent::FabricChanged(Befalls::LinkDown(uplink)));
    assert!(has(&told, " is down, was up"), "{told:?}");
    assert!(has(&told, "1 flows, 1 moved"), "{told:?}");
    let told = stage.tell(StateEvent::FabricChanged(Befalls::LinkUp(uplink)));
    // Nothing is sent over it before every switch knows of it.
    assert!(has(&told, " is returning, was down"), "{told:?}");
    let told = stage.tell(StateEvent::GenerationHeld(stage.state.generation()));
    assert!(has(&told, " is up, was returning"), "{told:?}");
    let told = stage.tell(StateEvent::FabricChanged(Befalls::SwitchDown(SwitchId(3))));
    assert!(has(&told, "spine2 is down, was up"), "{told:?}");
}

#[test]
fn a_trial_is_told_to_its_end() {
    let proposal = |fairness, trial_until| {
        let policy = Policy { fairness, ..Policy::default() };
        let signature =
            RevisionMetadata { author: "ada".to_owned(), reason: "night".to_owned(), at_ms: 0 };
        StateEvent::PolicyProposed(Box::new(crate::state::PolicyProposal {
            content: crate::policy_history::PolicyContent::from(&policy),
            signature,
            trial_until,
        }))
    };
    let mut stage = Stage::open();
    let told = stage.tell(proposal(0.2, Some(1_000)));
    let text = "policy: revision 2 by ada (night), on trial until it is confirmed: fairness: ";
    assert!(has(&told, text), "{told:?}");
    assert!(has(&stage.tell(StateEvent::PolicyConfirmed), "revision 2 stays"));
    stage.tell(proposal(0.3, Some(1_000)));
    let told = stage.tell(StateEvent::PolicyRolledBack(RevisionMetadata {
        author: "bob".to_owned(),
        ..RevisionMetadata::default()
    }));
    assert!(has(&told, "revision 3 was taken back by bob; revision 4"), "{told:?}");
    stage.tell(proposal(0.4, Some(1_000)));
    let told = stage.tell(StateEvent::DeadlineReached(1_000));
    assert!(has(&told, "revision 5 was not confirmed in time; revision 6"), "{told:?}");
    // Whoever did not look meanwhile hears all of it.
    let before = stage.scene.clone();
    for fairness in [0.5, 0.6] {
        stage.tell(proposal(fairness, None));
    }
    stage.scene = before;
    assert_eq!(stage.tell(StateEvent::ElectionWon(0)).len(), 2);
}

#[test]
fn switches_tell_of_drift_and_of_what_they_hold() {
    let mut stage = Stage::open();
    let generation = stage.scene.rollout.as_ref().unwrap().generation;
    let line = |switch: u32, verified, drifted| SessionSummary {
        switch: SwitchId(switch),
        name: format!("s{switch}"),
        is_primary: true,
        verified,
        drifted,
    };
    let scene = |lines: Vec<SessionSummary>| EventSnapshot {
        sessions: lines,
        mandate: WritePermit::Open { term: 4 },
        ..stage.scene.clone()
    };
    let half = scene(vec![line(0, Some(generation), 0), line(1, None, 0)]);
    let whole = scene(vec![line(0, Some(generation), 2), line(1, Some(generation), 0)]);
    let told = |scene: &EventSnapshot, before: &EventSnapshot| -> Vec<String> {
        scene.events_since(before).iter().map(ToString::to_string).collect()
    };
    assert_eq!(told(&half, &stage.scene), ["this controller leads, in term 4"]);
    assert_eq!(told(&whole, &half), ["s0: 2 entries were changed by somebody else"]);
    assert!(
        half.verified_generation().is_none() && whole.verified_generation() == Some(generation)
    );
    assert_eq!(told(&whole, &whole), [""; 0]);
    let finding = Finding::warning("leaf1", "is odd");
    stage.scene.findings.insert(finding);
    let told = stage.tell(StateEvent::ElectionWon(0));
    assert_eq!(told, [""; 0], "told when it was seen");
}

#[test]
fn a_drain_is_told_once_when_it_is_complete() {
    let stage = Stage::open();
    let mut complete = stage.scene.clone();
    complete.drainage.complete.insert("spine1".to_owned());
    let told = complete.events_since(&stage.scene);
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert!(has(&told, "drain of spine1 is complete"), "{told:?}");
    assert_eq!(complete.events_since(&complete), []);
}
