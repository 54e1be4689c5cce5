//! What others do to a switch: drift is repaired and told, foreign entries are dealt with as the
//! policy says, and a program is replaced under traffic.

use std::time::Duration;

use controller::config::ForeignEntryPolicy;
use controller::southbound::{SwitchStatus, SwitchTarget};
use p4::fabric::{self, PortNumber, table};
use p4::{ForwardingPipeline, TableEntry, UpdateKind};
use tokio::time::Instant;
use topology::SwitchId;

use crate::intruder::Intruder;
use crate::lab::{Lab, all_hold, first_leaf, written};

const LEAF: SwitchId = SwitchId(0);

async fn intruder(lab: &Lab, role: &str) -> Intruder {
    let SwitchTarget { address, .. } =
        SwitchTarget::all_in_fabric(&lab.fabric).swap_remove(LEAF.index());
    Intruder::new(&address.p4runtime, address.device_id, role).await
}

/// A row that no plan has.
fn foreign_entry() -> TableEntry {
    fabric::port_down(PortNumber::new(99).unwrap())
}

#[tokio::test]
async fn a_row_removed_changed_or_added_by_another_is_drift_and_is_repaired() {
    let lab = Lab::new().await;
    let controller = lab.control(|raw| raw.reconcile.interval_ms = 5).await;
    let desired = controller.desired_tables();
    all_hold(&controller).await;
    let row = desired.tables[&LEAF].table_entries(table::PATH).next().unwrap();
    let row = TableEntry::from(row);
    let mut changed = row.clone();
    changed.value = fabric::path(2, 2, PortNumber::CPU, PortNumber::CPU).value;
    let cases = [
        (UpdateKind::Insert, foreign_entry()),
        (UpdateKind::Modify, changed),
        (UpdateKind::Delete, row),
    ];
    let mut intruder = intruder(&lab, "intruder").await;
    for (count, (kind, entry)) in (1..).zip(cases) {
        intruder.write(kind, entry).await;
        let repaired = |line: &SwitchStatus| line.drifted == count && line.verified.is_some();
        first_leaf(&controller, repaired).await;
        assert_eq!(lab.read_all().await, desired.tables, "{kind:?}");
    }
    controller.shutdown().await;
}

/// Finding H4: what others wrote was seen after five seconds on average.
#[tokio::test]
async fn a_foreign_write_is_seen_within_a_second_on_average() {
    const WRITES: u32 = 8;
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    all_hold(&controller).await;
    let mut intruder = intruder(&lab, "intruder").await;
    let mut waited = Duration::ZERO;
    for count in 1..=WRITES {
        // At another phase of the checks each time.
        tokio::time::sleep(Duration::from_millis(137 * u64::from(count))).await;
        let begun = Instant::now();
        intruder.write(UpdateKind::Insert, foreign_entry()).await;
        first_leaf(&controller, |line| line.drifted == u64::from(count)).await;
        waited += begun.elapsed();
    }
    println!("seen after {:?} on average", waited / WRITES);
    assert!(waited < WRITES * Duration::from_secs(1), "{waited:?}");

    let embedded = ForwardingPipeline::embedded_fabric();
    let begun = Instant::now();
    intruder.push(embedded).await;
    first_leaf(&controller, |line| line.drifted > u64::from(WRITES)).await;
    println!("emptied tables are seen after {:?}", begun.elapsed());
    controller.shutdown().await;
}

#[tokio::test]
async fn the_policy_can_keep_foreign_entries() {
    for policy in [ForeignEntryPolicy::Delete, ForeignEntryPolicy::Report] {
        let lab = Lab::new().await;
        let mut other = intruder(&lab, "").await;
        other.push(ForwardingPipeline::embedded_fabric()).await;
        other.write(UpdateKind::Insert, foreign_entry()).await;
        drop(other);
        let controller = lab.control(|raw| raw.reconcile.foreign = policy).await;
        let desired = controller.desired_tables();
        all_hold(&controller).await;
        let mut expected = (*desired.tables[&LEAF]).clone();
        let line = first_leaf(&controller, |_| true).await;
        if policy == ForeignEntryPolicy::Report {
            expected.insert(foreign_entry());
            assert_eq!(line.foreign, ["port_down port=99 -> mark_down()"]);
        }
        assert_eq!(*lab.read_all().await[&LEAF], expected, "{policy:?}");
        assert_eq!(line.written.pipelines, 0, "the program was there");
        controller.shutdown().await;
    }
}

#[tokio::test]
async fn another_pipeline_is_replaced_and_entries_are_kept() {
    let lab = Lab::new().await;
    let first = lab.control(|_| {}).await;
    all_hold(&first).await;
    first.shutdown().await;

    // The same tables in a program of another name.
    let mut other = intruder(&lab, "").await;
    let mut program = ForwardingPipeline::embedded_fabric().clone();
    program.cookie ^= 1;
    other.push(&program).await;
    other.write(UpdateKind::Insert, foreign_entry()).await;
    drop(other);
    let second = lab.control(|raw| raw.reconcile.foreign = ForeignEntryPolicy::Keep).await;
    all_hold(&second).await;
    let line = first_leaf(&second, |_| true).await;
    assert_eq!(line.written.pipelines, 1);
    let held = &lab.read_all().await[&LEAF];
    assert!(held.get(&foreign_entry().key).is_some(), "reconciled, not emptied");
    assert!(written(&second) > 0);
    second.shutdown().await;
}
