//! Switches that lie ([`LyingSwitch`]). They cost the controller little, and the other switches
//! nothing (finding M2).

use std::time::Duration;

use controller::{Controller, ControllerHandle, StateEvent};
use planner::Policy;
use topology::{Fabric, SwitchId};

use crate::lab::{DEADLINE, Lab, config};
use crate::liar::{LyingSwitch, ProtocolViolation};
use crate::line_counter::LineCounter;

/// How long each switch may lie.
const LIES_FOR: Duration = Duration::from_secs(3);

/// The lab with a liar in the place of its first leaf.
fn with_liar(lab: &Lab, liar: &LyingSwitch) -> Fabric {
    let address = liar.serve().unwrap().to_string();
    let mut parts = lab.fabric.parts().clone();
    parts.switches[0].p4runtime = Some(address);
    Fabric::new(parts)
}

/// Waits until all switches but the liar hold what is desired.
async fn others_hold(controller: &ControllerHandle) {
    let generation = controller.desired_tables().generation;
    let held = controller.status_board().wait_until(|statuses| {
        let mut others = statuses.iter().filter(|(switch, _)| **switch != SwitchId(0));
        others.all(|(_, status)| status.holds_generation(generation))
    });
    tokio::time::timeout(DEADLINE, held).await.unwrap();
}

/// Runs a controller beside a liar; what it says of the liar in the end.
async fn check(violation: ProtocolViolation, error: &str) {
    let lab = Lab::new().await;
    let liar = LyingSwitch::new(violation);
    let fabric = with_liar(&lab, &liar);
    let lines = LineCounter::default();
    let _counted = tracing::subscriber::set_default(lines.clone());
    let config = config(|raw| {
        (raw.reconcile.retry_first_ms, raw.reconcile.retry_longest_ms) = (50, 5_000);
    });
    let controller = Controller::start(config, fabric, Policy::default()).await.unwrap();
    others_hold(&controller).await;
    tokio::time::sleep(LIES_FOR).await;
    controller.submit_event(StateEvent::JobsChanged(vec![lab.job("a", 50_000)])).await.unwrap();
    others_hold(&controller).await;
    // A long answer may still be read by then on a busy machine.
    let has_failed = controller.status_board().wait_until(|statuses| {
        statuses.get(&SwitchId(0)).is_some_and(|status| status.last_error.is_some())
    });
    tokio::time::timeout(DEADLINE, has_failed).await.unwrap();

    let status = controller.status_board().switch_status(SwitchId(0)).unwrap();
    let last_error = status.last_error.clone().unwrap_or_default();
    assert!(last_error.contains(error), "{violation:?}: {status:?}");
    let (streams, lines) = (liar.streams(), lines.take_lines().values().sum::<u64>());
    println!("{violation:?}: {streams} streams, {lines} lines");
    assert!(streams <= 9, "{violation:?}: {streams} streams in {LIES_FOR:?}");
    assert!(lines < 10 * LIES_FOR.as_secs() + 20, "{violation:?}: {lines} lines");
    controller.shutdown().await;
}

#[tokio::test]
async fn a_read_without_end_is_cut() {
    check(ProtocolViolation::EndlessReadOfManyTables, "than it holds").await;
}

#[tokio::test]
async fn a_read_of_one_table_without_end_is_cut_at_its_room() {
    check(ProtocolViolation::EndlessRead, "than it holds").await;
}

#[tokio::test]
async fn a_flood_of_errors_ends_the_connection() {
    check(ProtocolViolation::ErrorFlood, "floods").await;
}

#[tokio::test]
async fn a_mastership_that_flips_ends_the_connection() {
    check(ProtocolViolation::FlippingMastership, "floods").await;
}

#[tokio::test]
async fn a_stream_that_dies_at_once_is_tried_ever_less_often() {
    check(ProtocolViolation::DyingStream, "closed the stream").await;
}

#[tokio::test]
async fn an_answer_for_another_device_is_refused() {
    check(ProtocolViolation::OtherDevice, "answers for device").await;
}
