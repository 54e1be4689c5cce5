//! What events lead to, and that what cannot be is refused whole.

use std::collections::BTreeMap;

use planner::{Flow, Job, Policy};
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};
use topology::{Change, Fabric, HostId, LinkId, NicId, Severity, SwitchId};

use super::{Event, State};

fn fabric() -> Fabric {
    clos::build("lab", &ClosSpec::default()).unwrap()
}

fn job(name: &str, dst: usize) -> Job {
    let flow = Flow {
        src: NicId(0),
        dst: NicId::from(dst),
        bytes: 1e9,
        udp_src_port: 50_000,
    };
    Job {
        id: name.into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(0), 1)]),
        flop_per_iteration: 1e15,
        compute_seconds: 1.0,
        overlap_from: 1.0,
        recent_slowdown: 0.0,
        flows: vec![flow],
    }
}

fn learned() -> State {
    let mut state = State::new(8);
    assert_eq!(state.step(Event::FabricLearned(fabric())).generation, 1);
    state
}

#[test]
fn a_generation_is_spent_only_on_what_differs() {
    let mut state = learned();
    let jobs = || Event::JobsChanged(vec![job("a", 9)]);
    let generations = [jobs(), jobs(), Event::PolicyChanged(Policy::default())]
        .map(|event| state.step(event).generation);
    assert_eq!(generations, [2, 2, 2]);
    let changed = state.step(Event::FabricChanged(Change::LinkDown(LinkId(0))));
    assert_eq!(changed.realise.unwrap().generation, 3);
}

#[test]
fn a_failed_spine_is_planned_around_and_used_again() {
    let mut state = learned();
    state.step(Event::JobsChanged(vec![job("a", 9)]));
    for spine in state.fabric.tier(topology::Tier::Spine).collect::<Vec<_>>() {
        let effects = state.step(Event::FabricChanged(Change::SwitchDown(spine)));
        let realise = effects.realise.unwrap();
        assert!(
            realise.plan.flows[0]
                .links
                .iter()
                .all(|link| realise.fabric.is_usable(*link))
        );
        assert!(!realise.plan.flows[0].links.is_empty());
        state.step(Event::FabricChanged(Change::SwitchUp(spine)));
    }
}

#[test]
fn a_drain_in_the_policy_is_realised_even_without_jobs() {
    let mut state = learned();
    let drained = || Policy {
        drained: vec!["spine1".into()],
        ..Policy::default()
    };
    let spine = state.fabric.switch_named("spine1").unwrap();
    let is_drained = |state: &mut State, policy| {
        let realise = state.step(Event::PolicyChanged(policy)).realise;
        realise.map(|realise| realise.fabric.is_switch_drained(spine))
    };
    assert_eq!(is_drained(&mut state, drained()), Some(true));
    assert_eq!(is_drained(&mut state, drained()), None);
    assert_eq!(is_drained(&mut state, Policy::default()), Some(false));
}

#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    let too_many = Policy::default();
    let unknown = Policy {
        levels: 4,
        drained: vec!["spine9".into()],
        ..Policy::default()
    };
    let cases = [
        (
            Event::PolicyChanged(too_many),
            "policy",
            "8 levels, the switches serve 4",
        ),
        (Event::PolicyChanged(unknown), "policy", "spine9"),
        (
            Event::JobsChanged(vec![job("a", 1), job("a", 2)]),
            "job a",
            "this name",
        ),
        (Event::JobsChanged(vec![job("b", 999)]), "job b", "NIC"),
        (
            Event::FabricChanged(Change::SwitchDown(SwitchId(99))),
            "fabric",
            "no such part",
        ),
    ];
    for (event, about, text) in cases {
        let mut state = State::new(4);
        state.step(Event::FabricLearned(fabric()));
        let effects = state.step(event);
        assert_eq!(effects.generation, 1);
        assert!(effects.realise.is_none());
        let finding = &effects.findings[0];
        assert_eq!(
            (finding.severity, finding.about.as_str()),
            (Severity::Error, about)
        );
        assert!(finding.text.contains(text), "{}", finding.text);
    }
}

#[test]
fn another_fabric_forgets_the_jobs_of_the_one_before() {
    let mut state = learned();
    state.step(Event::JobsChanged(vec![job("a", 9)]));
    let effects = state.step(Event::FabricLearned(fabric()));
    assert!(effects.realise.unwrap().plan.jobs.is_empty());
}

fn events() -> impl Strategy<Value = Event> {
    let part = (0usize..60, 0usize..8);
    prop_oneof![
        Just(Event::FabricLearned(fabric())),
        proptest::collection::vec(0usize..14, 0..4).prop_map(|to| {
            let jobs = to
                .iter()
                .enumerate()
                .map(|(index, to)| job(&format!("j{index}"), *to + 1));
            Event::JobsChanged(jobs.collect())
        }),
        (1u8..=8).prop_map(|levels| Event::PolicyChanged(Policy {
            levels,
            ..Policy::default()
        })),
        part.prop_map(|(at, kind)| Event::FabricChanged(match kind {
            0 | 1 => Change::LinkDown(LinkId::from(at)),
            2 | 3 => Change::LinkUp(LinkId::from(at)),
            4 => Change::SwitchDown(SwitchId::from(at % 8)),
            5 => Change::SwitchUp(SwitchId::from(at % 8)),
            6 => Change::DrainLink(LinkId::from(at)),
            _ => Change::UndrainLink(LinkId::from(at)),
        })),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: the invariant holds (checked in `step`), generations
    /// never fall, and one is spent exactly when there is something to realise.
    #[test]
    fn generations_only_rise(events in proptest::collection::vec(events(), 0..12)) {
        let mut state = State::new(8);
        for event in events {
            let before = state.generation();
            let effects = state.step(event);
            let spent = u64::from(effects.realise.is_some());
            prop_assert_eq!(effects.generation, before + spent);
            prop_assert_eq!(state.generation(), effects.generation);
        }
    }
}
