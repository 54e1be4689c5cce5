//! What events lead to, and that what cannot be is refused whole.

use std::collections::BTreeMap;

use planner::{Flow, Job, JobOverride, Policy};
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};
use topology::{AvailabilityChange, Fabric, HostId, LinkId, NicId, Severity, SwitchId};

use super::{Effects, PlanRollout, PolicyProposal, ReportedJobs, StartingState, State, StateEvent};
use crate::pipelines::fabric::tests as pipeline_tests;
use crate::policy_history::{PolicyContent, RevisionMetadata, TrialTerms};

fn fabric() -> Fabric {
    clos::build_clos("lab", &ClosSpec::default()).unwrap()
}

fn job(name: &str, dst: usize) -> Job {
    Job { id: name.into(), ..pipeline_tests::job(0, &[(0, dst, 50_000)]) }
}

fn learned() -> State {
    let mut state = State::new(8, 0);
    assert_eq!(settle(&mut state, StateEvent::FabricLearned(fabric())).generation, 1);
    state
}

/// Takes an event in and answers every question; what there is to realise in the end.
pub(crate) fn settle(state: &mut State, event: StateEvent) -> Effects {
    let mut effects = state.step(event);
    while let Some(request) = effects.plan_request.take() {
        let planned = state.step(StateEvent::Planned(Box::new(request.compute_plan())));
        effects.findings.extend(planned.findings);
        effects.rollout = planned.rollout.or(effects.rollout);
        effects.explanation = planned.explanation.or(effects.explanation);
        (effects.generation, effects.plan_request) = (planned.generation, planned.plan_request);
    }
    effects
}

#[test]
fn elected_controller_skips_generations_of_others() {
    let mut state = learned();
    let effects = settle(&mut state, StateEvent::ElectionWon(7));
    let rollout = effects.rollout.unwrap();
    assert_eq!((effects.generation, rollout.generation), (8, 8));
    let effects = settle(&mut state, StateEvent::ElectionWon(7));
    assert!(effects.rollout.is_none());
    assert_eq!(effects.generation, 8);
}

/// A controller with a jobs document showed no forecast until something changed its plan.
#[test]
fn a_comparison_that_keeps_the_plan_explains_it() {
    let mut state = learned();
    let jobs = vec![job("a", 9), job("b", 9)];
    let effects = settle(&mut state, StateEvent::JobsChanged(jobs));
    let explanation = effects.explanation.expect("the comparison kept the quick plan");
    assert_eq!(explanation.generation, effects.generation);
    assert!(!explanation.report.comparison.is_provisional);
    assert_eq!(state.latest_rollout().map(|had| &had.report), Some(&explanation.report));
}

#[test]
fn equal_plans_use_no_generation() {
    let mut state = learned();
    let jobs = || StateEvent::JobsChanged(vec![job("a", 9)]);
    let generations = [jobs(), jobs(), StateEvent::PolicyChanged(Policy::default())]
        .map(|event| settle(&mut state, event).generation);
    assert_eq!(generations, [2, 2, 2]);
    // Protected, repaired, and planned anew: the job has no way left.
    let changed = settle(
        &mut state,
        StateEvent::FabricChanged(vec![AvailabilityChange::LinkDown(LinkId(0))]),
    );
    assert_eq!(changed.rollout.unwrap().generation, 5);
    let again = StateEvent::FabricChanged(vec![AvailabilityChange::LinkDown(LinkId(0))]);
    assert!(settle(&mut state, again).rollout.is_none());
}

#[test]
fn failure_is_repaired_while_a_plan_is_computed() {
    let mut state = learned();
    let request = state.step(StateEvent::JobsChanged(vec![job("a", 9)])).plan_request;
    let request = request.unwrap();
    let spine = state.fabric.switches_of_tier(topology::Tier::Spine).next().unwrap();
    let effects =
        state.step(StateEvent::FabricChanged(vec![AvailabilityChange::SwitchDown(spine)]));
    let numbers = |rollout: Option<PlanRollout>| rollout.map(|rollout| rollout.generation);
    assert_eq!(numbers(effects.protection), Some(2));
    assert_eq!(numbers(effects.rollout), Some(3));
    assert!(effects.plan_request.is_none(), "one question at a time");

    // The answer knows the job and not the failure: it is taken, and the next one asked for.
    let effects = state.step(StateEvent::Planned(Box::new(request.compute_plan())));
    let rollout = effects.rollout.unwrap();
    assert_eq!(rollout.plan.jobs.len(), 1);
    assert!(!rollout.fabric.is_switch_up(spine));
    let request = effects.plan_request.unwrap();
    let effects = state.step(StateEvent::Planned(Box::new(request.compute_plan())));
    assert!(effects.plan_request.is_none());
    assert_eq!(state.planned_inputs(), state.inputs());
}

#[test]
fn result_for_a_replaced_fabric_is_ignored() {
    let mut state = State::new(8, 0);
    let request = state.step(StateEvent::FabricLearned(fabric())).plan_request.unwrap();
    let other = clos::build_clos("other", &ClosSpec::default()).unwrap();
    assert!(state.step(StateEvent::FabricLearned(other)).plan_request.is_none());
    let effects = state.step(StateEvent::Planned(Box::new(request.compute_plan())));
    assert!(effects.rollout.is_none());
    let request = effects.plan_request.unwrap();
    let effects = state.step(StateEvent::Planned(Box::new(request.compute_plan())));
    assert_eq!(effects.rollout.unwrap().fabric.name(), "other");
}

#[test]
fn pin_room_limits_plans_until_the_policy_changes() {
    let mut state = learned();
    let jobs = vec![job("a", 9), job("b", 10), job("c", 11)];
    let pins = |effects: Effects| {
        let plan = effects.rollout.unwrap().plan;
        plan.flows.iter().filter(|flow| flow.pinned).count()
    };
    let all = settle(&mut state, StateEvent::JobsChanged(jobs));
    assert_eq!(pins(all), 3);
    let leaf = SwitchId(0);
    let effects = settle(&mut state, StateEvent::PinRoomLearned(leaf, 2));
    let is_reported = |text: &str| effects.findings.iter().any(|f| f.text.contains(text));
    assert!(is_reported("holds 2 pins") && is_reported("1 flows"), "{effects:?}");
    assert_eq!(pins(effects), 2);
    // The next plan has that finding as well; it was told.
    let change = StateEvent::JobsChanged(vec![job("a", 9), job("b", 10), job("d", 11)]);
    let effects = settle(&mut state, change);
    assert_eq!(effects.findings, []);
    let policy = StateEvent::PolicyChanged(Policy::default());
    assert_eq!(pins(settle(&mut state, policy)), 3);
}

#[test]
fn failed_spine_is_avoided_and_used_again() {
    let mut state = learned();
    settle(&mut state, StateEvent::JobsChanged(vec![job("a", 9)]));
    for spine in state.fabric.switches_of_tier(topology::Tier::Spine).collect::<Vec<_>>() {
        let effects = settle(
            &mut state,
            StateEvent::FabricChanged(vec![AvailabilityChange::SwitchDown(spine)]),
        );
        let rollout = effects.rollout.unwrap();
        assert!(rollout.plan.flows[0].links.iter().all(|link| rollout.fabric.is_usable(*link)));
        assert!(!rollout.plan.flows[0].links.is_empty());
        settle(&mut state, StateEvent::FabricChanged(vec![AvailabilityChange::SwitchUp(spine)]));
        let held = StateEvent::GenerationHeld(state.generation());
        settle(&mut state, held);
    }
}

#[test]
fn returning_part_is_used_once_every_switch_holds_it() {
    let mut state = learned();
    let leaf = state.fabric.switches_of_tier(topology::Tier::Leaf).next().unwrap();
    let cable = state.fabric.up_links(leaf)[0];
    settle(&mut state, StateEvent::FabricChanged(vec![AvailabilityChange::LinkDown(cable)]));
    let failed = state.generation();
    let back = StateEvent::FabricChanged(vec![AvailabilityChange::LinkUp(cable.reverse())]);
    let known = settle(&mut state, back).rollout.unwrap();
    assert!(known.fabric.is_up(cable) && !known.fabric.is_usable(cable));
    // What they held before does not know of it.
    assert!(settle(&mut state, StateEvent::GenerationHeld(failed)).rollout.is_none());
    assert!(state.is_returning());
    let used = settle(&mut state, StateEvent::GenerationHeld(known.generation)).rollout;
    assert!(used.unwrap().fabric.is_usable(cable));
    assert!(!state.is_returning());

    // A host has one cable.
    let host = state.fabric.nic(NicId(0)).uplink;
    settle(&mut state, StateEvent::FabricChanged(vec![AvailabilityChange::LinkDown(host)]));
    let used =
        settle(&mut state, StateEvent::FabricChanged(vec![AvailabilityChange::LinkUp(host)]))
            .rollout;
    assert!(used.unwrap().fabric.is_usable(host));
}

#[test]
fn drain_is_rolled_out_without_jobs() {
    let mut state = learned();
    let drained = || Policy { drained: vec!["spine1".into()], ..Policy::default() };
    let spine = state.fabric.switch_named("spine1").unwrap();
    let is_drained = |state: &mut State, policy| {
        let rollout = settle(state, StateEvent::PolicyChanged(policy)).rollout;
        rollout.map(|rollout| rollout.fabric.is_switch_drained(spine))
    };
    assert_eq!(is_drained(&mut state, drained()), Some(true));
    assert_eq!(is_drained(&mut state, drained()), None);
    assert_eq!(is_drained(&mut state, Policy::default()), Some(false));
}

#[test]
fn invalid_events_are_refused_and_change_nothing() {
    let too_many = Policy { levels: 5, ..Policy::default() };
    let unknown = Policy { levels: 4, drained: vec!["spine9".into()], ..Policy::default() };
    let cases = [
        (StateEvent::PolicyChanged(too_many), "policy", "5 levels, the switches serve 4"),
        (StateEvent::PolicyChanged(unknown), "policy", "spine9"),
        (StateEvent::JobsChanged(vec![job("a", 1), job("a", 2)]), "job a", "this name"),
        (StateEvent::JobsChanged(vec![job("b", 999)]), "job b", "NIC"),
        (
            StateEvent::FabricChanged(vec![AvailabilityChange::SwitchDown(SwitchId(99))]),
            "fabric",
            "no such part",
        ),
    ];
    for (event, about, text) in cases {
        let mut state = State::new(4, 0);
        settle(&mut state, StateEvent::FabricLearned(fabric()));
        let effects = settle(&mut state, event);
        assert_eq!(effects.generation, 1);
        assert!(effects.rollout.is_none());
        let finding = &effects.findings[0];
        assert_eq!((finding.severity, finding.about.as_str()), (Severity::Error, about));
        assert!(finding.text.contains(text), "{}", finding.text);
    }
}

#[test]
fn learning_a_fabric_forgets_the_jobs() {
    let mut state = learned();
    settle(&mut state, StateEvent::JobsChanged(vec![job("a", 9)]));
    let effects = settle(&mut state, StateEvent::FabricLearned(fabric()));
    assert!(effects.rollout.unwrap().plan.jobs.is_empty());
}

/// The names of the nodes that the one flow of a plan passes.
fn way(rollout: &PlanRollout) -> Vec<String> {
    let links = rollout.plan.flows[0].links.iter();
    let fabric = &rollout.fabric;
    links.map(|link| fabric.node_name(fabric.link(*link).to.node).to_owned()).collect()
}

#[test]
fn jobs_keep_their_paths_while_the_fabric_grows() {
    let mut state = learned();
    let spines: Vec<String> = { state.fabric.switches_of_tier(topology::Tier::Spine) }
        .map(|spine| state.fabric.switch(spine).name.clone())
        .collect();
    for spine in spines {
        // Planned where it would not be by itself: away from a spine that is then given back.
        let drained = Policy { drained: vec![spine.clone()], ..Policy::default() };
        settle(&mut state, StateEvent::PolicyChanged(drained));
        let last = NicId::from(state.fabric.nics().len() - 1);
        let jobs = vec![job("a", last.index())];
        settle(&mut state, StateEvent::JobsChanged(jobs));
        settle(&mut state, StateEvent::PolicyChanged(Policy::default()));
        let before = way(state.rollout.as_ref().unwrap());
        assert!(!before.contains(&spine));

        // One more spine, so that links have other ids.
        let host = state.fabric.host(state.fabric.nic(last).host).name.clone();
        let spec = ClosSpec { spines: 1 + ClosSpec::default().spines, ..ClosSpec::default() };
        let grown = clos::build_clos("lab", &spec).unwrap();
        let to = grown.host(grown.host_named(&host).unwrap()).nics[0];
        let start = StartingState {
            fabric: grown,
            history: state.history.clone(),
            jobs: vec![job("a", to.index())],
            reported_jobs: ReportedJobs::default(),
            decisions: None,
        };
        let effects = settle(&mut state, StateEvent::Started(Box::new(start)));
        assert_eq!(way(&effects.rollout.unwrap()), before);
        settle(&mut state, StateEvent::FabricLearned(fabric()));
    }
}

fn events() -> impl Strategy<Value = StateEvent> {
    let change = (0usize..60, 0usize..8).prop_map(|(at, kind)| match kind {
        0 | 1 => AvailabilityChange::LinkDown(LinkId::from(at)),
        2 | 3 => AvailabilityChange::LinkUp(LinkId::from(at)),
        4 => AvailabilityChange::SwitchDown(SwitchId::from(at % 8)),
        5 => AvailabilityChange::SwitchUp(SwitchId::from(at % 8)),
        6 => AvailabilityChange::DrainLink(LinkId::from(at)),
        _ => AvailabilityChange::UndrainLink(LinkId::from(at)),
    });
    let held = (0u64..40).prop_map(StateEvent::GenerationHeld);
    prop_oneof![
        held,
        Just(StateEvent::FabricLearned(fabric())),
        proptest::collection::vec(0usize..14, 0..4).prop_map(|to| {
            let jobs = to.iter().enumerate().map(|(index, to)| job(&format!("j{index}"), *to + 1));
            StateEvent::JobsChanged(jobs.collect())
        }),
        (1u8..=8)
            .prop_map(|levels| StateEvent::PolicyChanged(Policy { levels, ..Policy::default() })),
        proptest::collection::vec(change, 1..4).prop_map(StateEvent::FabricChanged),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: the invariant holds (checked in `step`), generations
    /// never fall, and one is spent exactly when there is something to realise.
    #[test]
    fn generations_only_rise(events in proptest::collection::vec(events(), 0..12)) {
        let mut state = State::new(8, 0);
        for event in events {
            let before = state.generation();
            let inputs = state.inputs();
            let effects = settle(&mut state, event);
            prop_assert_eq!(effects.rollout.is_some(), state.generation() > before);
            prop_assert_eq!(state.generation(), effects.generation);
            prop_assert_eq!(state.planned_inputs(), state.inputs());
            prop_assert!(state.inputs() <= inputs + 1);
        }
    }
}

/// A report under the name of a job of a document changed the level of that job.
#[test]
fn reports_change_no_level_of_a_documents_job() {
    let mut state = learned();
    let mut honest = job("gpt", 4);
    honest.flop_per_iteration = 5e15;
    settle(&mut state, StateEvent::JobsChanged(vec![job("bert", 3), honest]));
    let levels = |state: &State| {
        let plan = &state.latest_rollout().unwrap().plan;
        plan.jobs.iter().map(|job| (job.id.to_string(), job.level)).collect::<BTreeMap<_, _>>()
    };
    let before = levels(&state);
    for name in ["bert", "gpt"] {
        let one = std::collections::BTreeSet::from([name.into()]);
        let reports = [(one.clone(), Default::default()), (Default::default(), one)];
        for (profiled, distrusted) in reports {
            let reported = ReportedJobs { jobs: vec![job(name, 5)], profiled, distrusted };
            settle(&mut state, StateEvent::JobsReported(reported));
            assert_eq!(levels(&state), before);
        }
    }
    // Of jobs of their own, what is not believed has the lowest level.
    let alone = |name: &str| Job {
        flows: vec![Flow { src: NicId(1), ..job(name, 6).flows[0].clone() }],
        ..job(name, 6)
    };
    let distrusted = std::collections::BTreeSet::from(["liar".into()]);
    let reported =
        ReportedJobs { jobs: vec![alone("liar")], distrusted, ..ReportedJobs::default() };
    settle(&mut state, StateEvent::JobsReported(reported));
    assert_eq!(levels(&state)["liar"], 0);
}

/// Fifteen jobs on the sixteen GPUs of two hosts were all ranked by what they said of themselves.
#[test]
fn the_gpus_of_a_host_are_given_once() {
    let mut state = learned();
    let whole = |name: &str, host: usize| Job {
        gpus: BTreeMap::from([(HostId::from(host), 8)]),
        flop_per_iteration: 9e15,
        flows: vec![Flow { src: NicId::from(host), ..job(name, 9).flows[0].clone() }],
        ..job(name, 9)
    };
    settle(&mut state, StateEvent::JobsChanged(vec![whole("document", 0)]));
    let report = |state: &mut State, jobs: Vec<Job>| {
        settle(state, StateEvent::JobsReported(ReportedJobs { jobs, ..Default::default() }));
        settle(state, StateEvent::Quiet);
        let rollout = state.latest_rollout().unwrap();
        let levels = rollout.plan.jobs.iter().map(|job| (job.id.to_string(), job.level));
        (levels.collect::<BTreeMap<_, _>>(), rollout.report.findings.clone())
    };
    let with_port = |job: Job, port| {
        let flows = job.flows.iter().map(|flow| Flow { udp_src_port: Some(port), ..flow.clone() });
        Job { flows: flows.collect(), ..job }
    };
    let taker = with_port(whole("a", 0), 50_001);
    let (first, second) = (whole("z", 1), with_port(whole("b", 1), 50_001));
    let (levels, findings) = report(&mut state, vec![taker, first.clone(), second.clone()]);
    assert_eq!((levels["a"], levels["b"]), (0, 0));
    assert!(levels["z"] > 0 && levels["document"] > 0, "{levels:?}");
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("job a: announces 8 of the 8 GPUs of h1, and document has"));
    assert!(findings[1].contains("job b: announces 8 of the 8 GPUs of h2, and z has"));
    // Once the other one has ended, it is as good as any.
    let (levels, findings) = report(&mut state, vec![second]);
    assert!(levels["b"] > 0 && findings.is_empty(), "{levels:?} {findings:?}");
}

/// Hysteresis ends with the events: levels that an override left behind stayed for good.
#[test]
fn quiet_settles_the_plan_once_after_events() {
    let mut state = learned();
    settle(&mut state, StateEvent::JobsChanged(vec![job("bert", 3), job("gpt", 3)]));
    settle(&mut state, StateEvent::Quiet);
    let levels = |state: &State| {
        let plan = &state.latest_rollout().unwrap().plan;
        plan.jobs.iter().map(|job| job.level).collect::<Vec<_>>()
    };
    let (before, inputs) = (levels(&state), state.inputs());
    assert!(state.is_settled());
    let rule = JobOverride::fixing_level("job:bert", Some(0));
    let lowered = Policy { overrides: vec![rule], ..Policy::default() };
    for policy in [lowered, Policy::default()] {
        settle(&mut state, StateEvent::PolicyChanged(policy));
        assert!(state.is_settled(), "an operator waits for it");
    }
    assert_eq!(levels(&state), before);
    for jobs in [vec![job("gpt", 3)], vec![job("bert", 3), job("gpt", 3)]] {
        settle(&mut state, StateEvent::JobsChanged(jobs));
        assert!(!state.is_settled());
    }
    let effects = state.step(StateEvent::Quiet);
    let request = effects.plan_request.unwrap();
    assert!(request.is_refinement() && state.awaits_plan());
    state.step(StateEvent::Planned(Box::new(request.compute_plan())));
    assert!(state.is_settled() && !state.awaits_plan());
    assert_eq!((levels(&state), state.inputs()), (before, inputs + 4));
    // An event supersedes it, and quiet of a settled plan asks for nothing.
    assert!(state.step(StateEvent::Quiet).plan_request.is_none());
}

#[test]
fn trial_is_retained_when_the_previous_policy_no_longer_fits() {
    let mut state = learned();
    let drained = Policy { drained: vec!["spine2".to_owned()], ..Policy::default() };
    settle(&mut state, StateEvent::PolicyChanged(drained));
    let proposal = PolicyProposal {
        content: PolicyContent::from(&Policy::default()),
        signature: RevisionMetadata::default(),
        trial: Some(TrialTerms { until_ms: 70, awaits_confirmation: true }),
        force: false,
    };
    settle(&mut state, StateEvent::PolicyProposed(Box::new(proposal)));
    let spec = ClosSpec { spines: 1, ..ClosSpec::default() };
    let smaller = clos::build_clos("lab", &spec).unwrap();
    settle(&mut state, StateEvent::FabricLearned(smaller));

    let effects = settle(&mut state, StateEvent::DeadlineReached(70));
    let about: Vec<_> = effects.findings.iter().map(|finding| &*finding.about).collect();
    assert_eq!((effects.refusal, about), (None, vec!["policy"]));
    let latest = state.policy_history().latest();
    assert_eq!((latest.trial.as_ref(), latest.number), (None, 4));
    assert_eq!(latest.content, PolicyContent::from(&Policy::default()));
    assert_eq!(state.policy_history().next_due_ms(), None, "there is nothing left to wait for");
}
