//! The same promises on bmv2's `simple_switch_grpc`, where it is installed: a switch that shares no
//! code with ours ends with the tables that are desired, and holds what it is read to hold.

use controller::southbound::SwitchStatus;
use controller::southbound::arbitration::Mastership;
use controller::{LeadChange, StateEvent};
use p4::{ForwardingPipeline, diff_tables};

use crate::lab::{Lab, first_leaf, verified, written};
use crate::simple_switch::SimpleSwitch;

type Bmv2 = Lab<Vec<SimpleSwitch>>;

/// The lab, or word that this was not run.
fn lab() -> Option<Bmv2> {
    let lab = Lab::bmv2();
    if lab.is_none() {
        println!("not run: simple_switch_grpc is not on PATH");
    }
    lab
}

#[tokio::test]
async fn simple_switch_goes_from_empty_to_verified_and_a_job_costs_its_own_entries() {
    let Some(lab) = lab() else { return };
    let controller = lab.control(|_| {}).await;
    let empty = verified(&lab, &controller).await;
    let (before, tables) = (written(&controller), controller.desired_tables().tables.clone());
    let total: usize = tables.values().map(|tables| tables.len()).sum();
    assert_eq!(before, total as u64);

    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let arrival = verified(&lab, &controller).await;
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let desired = controller.desired_tables();
    let updates = desired.tables.iter();
    let updates = updates.map(|(switch, to)| diff_tables(p4info, to, &tables[switch]).len() as u64);
    let updates: u64 = updates.sum();
    assert!((1..20).contains(&updates), "{updates}");
    assert_eq!(written(&controller) - before, updates);
    let (empty, arrival) = (empty.total_duration(), arrival.total_duration());
    println!("{total} entries from empty in {empty:?}, {updates} updates for jobs in {arrival:?}");
    controller.shutdown().await;
    let left = lab.read_all().await;
    assert_eq!(left, desired.tables, "stopping withdraws nothing");
}

#[tokio::test]
async fn a_simple_switch_killed_and_started_again_is_restored() {
    let Some(mut lab) = lab() else { return };
    let controller = lab.control(|_| {}).await;
    let jobs = vec![lab.job("a", 50_000)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&lab, &controller).await;

    let killed = tokio::time::Instant::now();
    lab.switches[0].restart();
    let restored = |line: &SwitchStatus| line.written.pipelines == 2 && line.verified.is_some();
    let line = first_leaf(&controller, restored).await;
    println!("restored in {:?}", killed.elapsed());
    assert!(line.failures > 0);
    verified(&lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test]
async fn a_second_controller_takes_simple_switch_over_and_gives_it_back() {
    let Some(lab) = lab() else { return };
    let first = lab.control(|_| {}).await;
    verified(&lab, &first).await;

    // An operator wants it, and it is of the same mind.
    let second = lab.control(|raw| raw.election.controller = 2).await;
    assert_eq!(second.change_lead(LeadChange::Take).await.unwrap(), None);
    verified(&lab, &second).await;
    let lines = second.status_board().all_statuses();
    let pushed = lines.values().map(|line| line.written.pipelines);
    assert_eq!((written(&second), pushed.sum::<u64>()), (0, 0));
    let lost = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
    first_leaf(&first, lost).await;

    // It learns of a job that the first does not know; when it goes, the first is there again.
    let before = written(&first);
    let jobs = vec![lab.job("a", 50_000)];
    second.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&lab, &second).await;
    assert_eq!(written(&first), before);
    second.shutdown().await;
    verified(&lab, &first).await;
    first.shutdown().await;
}
