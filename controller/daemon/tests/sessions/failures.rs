//! Cables and switches that fail, come back and flap; switches that are silent, slow or full.

use std::time::Duration;

use controller::liveness::{FabricPart, PartHealth};
use controller::southbound::SwitchStatus;
use controller::{ControllerHandle, StateEvent};
use p4::fabric::table;
use planner::Job;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use tonic::Code;
use topology::{FabricNode, LinkId, SwitchId};

use crate::lab::{DEADLINE, Lab, all_hold, first_leaf, verified};

/// A cable from the first leaf to a spine.
fn uplink(lab: &Lab) -> LinkId {
    lab.fabric.up_links(SwitchId(0))[0]
}

/// Waits until something that the controller desires holds.
pub(crate) async fn desired(
    controller: &ControllerHandle,
    what: impl Fn(&ControllerHandle) -> bool,
) {
    let mut changes = controller.status_board().subscribe();
    let holds = async {
        while !what(controller) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, holds).await.unwrap();
}

pub(crate) fn rows(
    controller: &ControllerHandle,
    switch: SwitchId,
    table: p4::entry::TableId,
) -> usize {
    controller.desired_tables().tables[&switch].table_entries(table).count()
}

#[tokio::test]
async fn a_cut_cable_is_out_of_use_at_both_ends_and_comes_back_after_it_has_lasted() {
    let lab = Lab::new().await;
    let fast = |raw: &mut controller::RawConfig| {
        raw.liveness.hold_down_ms = 20;
        raw.liveness.hold_down_longest_ms = 20;
    };
    let controller = lab.control(fast).await;
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let before = verified(&lab, &controller).await;

    let cable = uplink(&lab);
    let spine = lab.fabric.switch_after(cable).unwrap();
    controller.report_health(FabricPart::Cable(cable), PartHealth::Down).await.unwrap();
    let is_marked = |controller: &ControllerHandle| {
        let down = |switch| rows(controller, switch, table::PORT_DOWN) == 1;
        down(SwitchId(0)) && down(spine)
    };
    desired(&controller, is_marked).await;
    let during = verified(&lab, &controller).await;
    assert!(during.generation > before.generation);
    let realised = controller.current_rollout().unwrap();
    let flows = &realised.plan.flows;
    assert!(flows.iter().all(|flow| !flow.links.contains(&cable)));

    controller.report_health(FabricPart::Cable(cable.reverse()), PartHealth::Up).await.unwrap();
    let is_used = |controller: &ControllerHandle| {
        let realised = controller.current_rollout();
        realised.is_some_and(|realised| realised.fabric.is_usable(cable))
    };
    desired(&controller, is_used).await;
    verified(&lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test]
async fn a_silent_switch_is_planned_around_and_restored_when_it_answers() {
    let mut lab = Lab::new().await;
    let impatient = |raw: &mut controller::RawConfig| {
        raw.liveness.switch_silence_ms = 20;
        raw.liveness.hold_down_ms = 1;
    };
    let controller = lab.control(impatient).await;
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&lab, &controller).await;
    let spine = lab.fabric.switch_after(uplink(&lab)).unwrap();
    lab.switches.servers.remove(spine.index()).shutdown().await;
    let is_avoided = |controller: &ControllerHandle| {
        let realised = controller.current_rollout().unwrap();
        let link = |link: &LinkId| realised.fabric.link(*link).to.node != FabricNode::Switch(spine);
        let mut flows = realised.plan.flows.iter();
        !realised.fabric.is_switch_up(spine) && flows.all(|flow| flow.links.iter().all(link))
    };
    desired(&controller, is_avoided).await;
    // Those that are there are as they should be; nobody waits for the one that is not.
    all_hold(&controller).await;
    let silent = controller.status_board().switch_status(spine).unwrap();
    assert_eq!(silent.verified, None, "nobody knows what a switch holds that does not answer");
    controller.shutdown().await;
}

#[tokio::test]
async fn a_full_table_spills_to_ecmp_with_a_finding() {
    let refusal = |nth| InjectedFault::RefuseUpdate {
        table: "IngressImpl.flow_pin".into(),
        nth,
        code: Code::ResourceExhausted,
    };
    let lab = Lab::with_faults(FaultScript(vec![refusal(2), refusal(3)])).await;
    let controller = lab.control(|_| {}).await;
    let job = |name: usize| -> Job { lab.job(&format!("job{name}"), 50_000 + name as u16) };
    let jobs = StateEvent::JobsChanged((0..3).map(job).collect());
    controller.submit_event(jobs).await.unwrap();
    let is_spilled =
        |controller: &ControllerHandle| rows(controller, SwitchId(0), table::FLOW_PIN) == 1;
    desired(&controller, is_spilled).await;
    verified(&lab, &controller).await;
    let report = controller.current_rollout().unwrap().report;
    let is_reported = |text: &str| report.findings.iter().any(|f| f.text.contains(text));
    assert!(is_reported("2 flows of the least intense jobs"), "{report:?}");
    controller.shutdown().await;
}

#[tokio::test]
async fn a_switch_that_takes_few_updates_in_a_request_gets_few() {
    for updates in [1, 20] {
        let lab = Lab::with_faults(FaultScript(vec![InjectedFault::LimitWrites { updates }])).await;
        let controller = lab.control(|_| {}).await;
        let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
        controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
        verified(&lab, &controller).await;
        let line = first_leaf(&controller, |line| line.verified.is_some()).await;
        assert!(line.written.total_entries() > 20, "{line:?}");
        assert_eq!((line.failures, line.last_error), (0, None), "at most {updates}");
        controller.shutdown().await;
    }
}

#[tokio::test]
async fn a_slow_switch_is_given_up_at_the_deadline_and_tried_again() {
    let by = Duration::from_millis(500);
    let lab = Lab::with_faults(FaultScript(vec![InjectedFault::DelayWrite { nth: 1, by }])).await;
    let controller = lab.control(|raw| raw.deadlines.rpc_ms = 100).await;
    let recovered = |line: &SwitchStatus| line.failures > 0 && line.verified.is_some();
    let line = first_leaf(&controller, recovered).await;
    let why = line.last_error.unwrap();
    assert!(why.contains("no answer to Write"), "{why}");
    verified(&lab, &controller).await;
    controller.shutdown().await;
}
