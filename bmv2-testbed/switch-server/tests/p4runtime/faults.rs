//! Faults on purpose, and coming back empty.

use std::time::{Duration, Instant};

use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::ServiceOptions;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use tonic::Code;

use crate::bench::{Bench, Controller, soon};
use crate::samples::{Samples, insert, table_entry};

async fn with(faults: Vec<InjectedFault>) -> (Bench, Controller) {
    let options = ServiceOptions { faults: FaultScript(faults), ..ServiceOptions::default() };
    let bench = Bench::start(options).await;
    let controller = bench.controller(1).await;
    (bench, controller)
}

/// The switch has no pipeline, and an election id from before is good again.
async fn expect_empty(bench: &Bench) {
    let mut controller = bench.primary().await;
    let all = table_entry(p4rt::TableEntry::default());
    assert_eq!(controller.read(vec![all]).await.unwrap(), []);
}

#[tokio::test]
async fn the_nth_update_of_a_table_is_refused() {
    let table = "IngressImpl.local_host".to_owned();
    let (_bench, mut controller) =
        with(vec![InjectedFault::RefuseUpdate { table, nth: 2, code: Code::Internal }]).await;
    controller.commit(1).await.unwrap();
    let samples = Samples::new();
    let entry = |n| insert(&samples.entry(samples.table("local_host"), n, 0));
    let codes = controller.codes(vec![entry(1), entry(2), entry(3)]).await;
    assert_eq!(codes, [Code::Ok, Code::Internal, Code::Ok]);
    assert_eq!(controller.codes(vec![entry(2)]).await, [Code::Ok]);
}

#[tokio::test]
async fn a_write_is_delayed() {
    let by = Duration::from_millis(50);
    let (_bench, mut controller) = with(vec![InjectedFault::DelayWrite { nth: 1, by }]).await;
    controller.commit(1).await.unwrap();
    let start = Instant::now();
    controller.write(Vec::new()).await.unwrap();
    assert!(start.elapsed() >= by);
}

#[tokio::test]
async fn a_stream_is_dropped_and_can_be_opened_again() {
    let (bench, mut controller) = with(vec![InjectedFault::DropStream { nth: 2 }]).await;
    controller.claim(2).await;
    controller.notice().await;
    assert_eq!(controller.next().await.unwrap_err(), Code::Unavailable);
    let mut again = bench.controller(3).await;
    again.commit(1).await.unwrap();
}

#[tokio::test]
async fn a_restart_by_script_empties_the_switch() {
    let (bench, mut controller) = with(vec![InjectedFault::Restart { nth: 1 }]).await;
    controller.commit(1).await.unwrap();
    let samples = Samples::new();
    let entry = insert(&samples.entry(samples.table("local_host"), 1, 0));
    controller.write(vec![entry]).await.unwrap();
    assert_eq!(controller.next().await.unwrap_err(), Code::Unavailable);
    expect_empty(&bench).await;
}

#[tokio::test]
async fn a_restart_on_demand_keeps_the_address() {
    let (bench, mut controller) = with(Vec::new()).await;
    controller.commit(1).await.unwrap();
    let address = bench.server.local_addr();
    soon(bench.server.restart()).await.unwrap();
    assert_eq!(controller.next().await.unwrap_err(), Code::Unavailable);
    assert_eq!(bench.server.local_addr(), address);
    expect_empty(&bench).await;
    soon(bench.server.restart()).await.unwrap();
    expect_empty(&bench).await;
}
