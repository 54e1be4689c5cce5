//! Sessions against embedded switches, and against bmv2's where there is one, over real gRPC on
//! loopback: whatever happens to a switch or
//! to a connection, it ends with tables as desired, and what was refused is told with its reason.

#[cfg(test)]
mod admitted;
#[cfg(test)]
mod adoption;
#[cfg(test)]
mod atomic;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod bmv2;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod discovery;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod etcd;
#[cfg(test)]
mod events;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod foreign_programs;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod gnmi;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod hostile_clients;
#[cfg(test)]
mod http;
#[cfg(test)]
mod intruder;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod learned_flows;
#[cfg(test)]
mod learning;
mod liar;
mod line_counter;
#[cfg(test)]
mod live_fabric;
#[cfg(test)]
mod lying_switch;
#[cfg(test)]
mod operators_day;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod port_counters;
#[cfg(test)]
#[path = "../../../../bmv2-testbed/switch-server/examples/differential/program.rs"]
mod program;
#[cfg(test)]
mod queue_pairs;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod sai;
#[cfg(test)]
mod sai_bmv2;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod simple_switch;
mod slow_computation;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod unannounced_ports;
#[cfg(test)]
mod unowned_flows;

use std::collections::BTreeMap;
use std::time::Duration;

use controller::southbound::arbitration::Mastership;
use controller::southbound::{SwitchAddress, SwitchClient, SwitchStatus};
use controller::{LeadChange, StateEvent};
use lab::{DEADLINE, Lab, all_hold, first_leaf, written};
use planner::Policy;
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use tokio::time::timeout;
use tonic::Code;
use topology::{AvailabilityChange, PipelineKind, SwitchId};

#[tokio::test]
async fn from_empty_to_verified_and_a_later_pass_writes_nothing() {
    let lab = Lab::new().await;
    let controller = lab.control(|raw| raw.reconcile.interval_ms = 5).await;
    let timing = all_hold(&controller).await;
    assert!(timing.timestamps.origin.received <= timing.timestamps.planned);
    assert!(timing.timestamps.lowered <= timing.first_write.unwrap());
    assert!(timing.first_write.unwrap() <= timing.verified);

    let total: usize = controller.desired_tables().tables.values().map(|tables| tables.len()).sum();
    assert_eq!(written(&controller), total as u64);
    let passes = first_leaf(&controller, |line| line.verified.is_some()).await.passes;
    let line = first_leaf(&controller, |line| line.passes > passes + 2).await;
    assert_eq!((line.written.pipelines, line.failures), (1, 0));
    assert_eq!(written(&controller), total as u64);
    assert_eq!(lab.read_all().await, controller.desired_tables().tables);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_job_costs_its_own_entries_and_nothing_else() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    all_hold(&controller).await;
    let (before, tables) = (written(&controller), controller.desired_tables().tables.clone());

    let event = StateEvent::JobsChanged(vec![lab.job("a", 50_000)]);
    let receipt = controller.submit_event(event).await.unwrap();
    all_hold(&controller).await;
    let desired = controller.desired_tables();
    let pipeline = p4::ForwardingPipeline::embedded_fabric();
    let difference = desired.tables.iter().map(|(switch, desired)| {
        p4::diff_tables(&pipeline.p4info, desired, &tables[switch]).len() as u64
    });
    let difference: u64 = difference.sum();
    assert!((1..10).contains(&difference), "{difference}");
    assert_eq!(written(&controller) - before, difference);
    assert_eq!(lab.read_all().await, desired.tables);

    // The same jobs again change nothing, not even the generation.
    let event = StateEvent::JobsChanged(vec![lab.job("a", 50_000)]);
    assert_eq!(controller.submit_event(event).await.unwrap().generation, receipt.generation);
    controller.shutdown().await;
    assert_eq!(lab.read_all().await, desired.tables, "stopping withdraws nothing");
}

#[tokio::test]
async fn a_refused_update_is_reported_and_repaired() {
    let refusal = InjectedFault::RefuseUpdate {
        table: "IngressImpl.path".into(),
        nth: 2,
        code: Code::ResourceExhausted,
    };
    let lab = Lab::with_faults(FaultScript(vec![refusal])).await;
    // No retry by itself: what is refused stays refused until the next event wakes the sessions.
    let late = |raw: &mut controller::RawConfig| {
        raw.reconcile.retry_first_ms = 3_600_000;
        raw.reconcile.retry_longest_ms = 3_600_000;
    };
    let controller = lab.control(late).await;
    let line = first_leaf(&controller, |line| !line.refusals.is_empty()).await;
    assert_eq!(line.verified, None);
    let refusal = &line.refusals[0];
    assert!(refusal.starts_with("Insert path dst_leaf=2 path="), "{refusal}");
    assert!(refusal.contains("ResourceExhausted"), "{refusal}");

    let event = StateEvent::JobsChanged(vec![lab.job("a", 50_000)]);
    controller.submit_event(event).await.unwrap();
    all_hold(&controller).await;
    let line = first_leaf(&controller, |_| true).await;
    let counts = (line.written.refused, line.refusals.len(), line.failures);
    assert_eq!(counts, (1, 0, 0));
    assert_eq!(lab.read_all().await, controller.desired_tables().tables);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_pass_retries_by_itself() {
    let refusals = (1..=3).map(|nth| InjectedFault::RefuseUpdate {
        table: "IngressImpl.path".into(),
        nth,
        code: Code::Internal,
    });
    let lab = Lab::with_faults(FaultScript(refusals.collect())).await;
    let controller = lab.control(|_| {}).await;
    all_hold(&controller).await;
    let line = first_leaf(&controller, |_| true).await;
    assert_eq!(line.written.refused, 3);
    assert_eq!(lab.read_all().await, controller.desired_tables().tables);
    controller.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_never_answers_is_given_up_at_the_deadline() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = SwitchAddress {
        p4runtime: silent.local_addr().unwrap().to_string(),
        device_id: 1,
        pipeline: PipelineKind::Fabric,
    };
    let limits = controller::Config::default().southbound;
    let begun = tokio::time::Instant::now();
    let answer = match SwitchClient::connect(&address, &limits).await {
        Ok(client) => client.read_pin_counts().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(answer.is_err());
    assert!(begun.elapsed() <= limits.connect_deadline + limits.rpc_deadline);
}

#[tokio::test]
async fn a_stream_dropped_in_the_middle_and_a_restart_end_in_the_same_tables() {
    for fault in [InjectedFault::DropStream { nth: 1 }, InjectedFault::Restart { nth: 3 }] {
        let lab = Lab::with_faults(FaultScript(vec![fault.clone()])).await;
        // A small batch, so that there is a middle.
        let controller = lab.control(|raw| raw.reconcile.batch = 2).await;
        let broken = |line: &SwitchStatus| line.failures > 0 && line.verified.is_some();
        let line = first_leaf(&controller, broken).await;
        assert!(line.last_error.is_some(), "{fault:?}");
        all_hold(&controller).await;
        assert_eq!(lab.read_all().await, controller.desired_tables().tables, "{fault:?}");
        controller.shutdown().await;
    }
}

#[tokio::test]
async fn a_switch_restarted_empty_is_restored() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    all_hold(&controller).await;
    lab.switches.servers[0].restart().await.unwrap();
    let restored = |line: &SwitchStatus| line.written.pipelines == 2 && line.verified.is_some();
    let line = first_leaf(&controller, restored).await;
    let entries = line.verified.unwrap().entries as u64;
    assert_eq!(line.written.total_entries(), 2 * entries);
    assert_eq!(lab.read_all().await, controller.desired_tables().tables);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_stale_second_controller_writes_nothing_and_takes_over_when_the_first_is_gone() {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let options = |_| ServiceOptions { dialect, ..ServiceOptions::default() };
        let lab = Lab::with(options).await;
        let first = lab.control(|raw| raw.election.term = 5).await;
        all_hold(&first).await;

        // The second believes in an older term and in a fabric with a failed spine.
        let stale = lab.control(|raw| raw.election.controller = 2).await;
        let change = StateEvent::FabricChanged(vec![AvailabilityChange::SwitchDown(SwitchId(2))]);
        stale.submit_event(change).await.unwrap();
        let waits = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
        first_leaf(&stale, waits).await;
        assert_eq!(written(&stale), 0);
        assert_eq!(lab.read_all().await, first.desired_tables().tables);

        first.shutdown().await;
        all_hold(&stale).await;
        assert_eq!(lab.read_all().await, stale.desired_tables().tables);
        let pipelines = stale
            .status_board()
            .all_statuses()
            .values()
            .map(|line| line.written.pipelines)
            .sum::<u64>();
        assert_eq!(pipelines, 0, "{dialect:?}: the program is there already");
        stale.shutdown().await;
    }
}

/// bmv2 promotes it when the leader is gone, in a term in which nobody writes.
#[tokio::test]
async fn a_cold_standby_leads_only_on_command() {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let options = |_| ServiceOptions { dialect, ..ServiceOptions::default() };
        let lab = Lab::with(options).await;
        let leader = lab.control(|_| {}).await;
        let jobs = StateEvent::JobsChanged(vec![lab.job("a", 50_000)]);
        leader.submit_event(jobs.clone()).await.unwrap();
        all_hold(&leader).await;
        let tables = lab.read_all().await;
        let standby = lab
            .control(|raw| {
                (raw.election.controller, raw.election.standby) = (2, true);
                raw.election.grace_ms = 1;
            })
            .await;
        standby.submit_event(jobs).await.unwrap();
        let waits = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
        let all_wait = |lines: &BTreeMap<SwitchId, SwitchStatus>| lines.values().all(waits);
        timeout(DEADLINE, standby.status_board().wait_until(all_wait)).await.unwrap();

        leader.shutdown().await;
        let vacant = |line: &SwitchStatus| matches!(line.mastership, Mastership::NoPrimary { .. });
        let all_vacant = |lines: &BTreeMap<SwitchId, SwitchStatus>| lines.values().all(vacant);
        timeout(DEADLINE, standby.status_board().wait_until(all_vacant)).await.unwrap();
        let leads = |lines: &BTreeMap<SwitchId, SwitchStatus>| {
            lines.values().any(|line| line.mastership.is_primary())
        };
        let leading = timeout(Duration::from_millis(300), standby.status_board().wait_until(leads));
        assert!(leading.await.is_err(), "{dialect:?}: nobody has told it to");
        assert_eq!((written(&standby), lab.read_all().await), (0, tables.clone()));

        assert_eq!(standby.change_lead(LeadChange::Take).await.unwrap(), None);
        all_hold(&standby).await;
        assert_eq!((written(&standby), lab.read_all().await), (0, tables));
        let findings = standby.standing_findings().list_findings();
        assert!(findings.iter().any(|one| one.text.contains("election.standby = false")));
        let refused = standby.change_lead(LeadChange::Leave).await.unwrap();
        assert!(refused.unwrap().text.contains("without etcd"), "nobody else is elected");
        standby.shutdown().await;
    }
}

/// It has a higher number, a later term, no jobs and another policy: none of that is a reason.
#[tokio::test]
async fn a_newcomer_leaves_the_leader_alone_and_follows_when_it_is_gone() {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let options = |_| ServiceOptions { dialect, ..ServiceOptions::default() };
        let lab = Lab::with(options).await;
        let leader = lab.control(|_| {}).await;
        leader.submit_event(StateEvent::JobsChanged(vec![lab.job("a", 50_000)])).await.unwrap();
        all_hold(&leader).await;
        let (before, tables) = (written(&leader), lab.read_all().await);

        let newcomer =
            lab.control(|raw| (raw.election.controller, raw.election.term) = (9, 9)).await;
        let drained = Policy { drained: vec!["spine1".into()], ..Policy::default() };
        newcomer.submit_event(StateEvent::PolicyChanged(drained)).await.unwrap();
        let waits = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
        let all_wait = |lines: &BTreeMap<SwitchId, SwitchStatus>| lines.values().all(waits);
        timeout(DEADLINE, newcomer.status_board().wait_until(all_wait)).await.unwrap();
        assert_eq!((written(&newcomer), written(&leader)), (0, before), "{dialect:?}");
        assert_eq!(lab.read_all().await, tables);
        let leads = leader.status_board().all_statuses();
        assert!(leads.values().all(|line| line.mastership.is_primary()), "{leads:?}");

        leader.shutdown().await;
        all_hold(&newcomer).await;
        assert_eq!(lab.read_all().await, newcomer.desired_tables().tables);
        newcomer.shutdown().await;
    }
}

#[tokio::test]
async fn losing_mastership_stops_all_writes() {
    let lab = Lab::new().await;
    let first = lab.control(|raw| raw.reconcile.interval_ms = 5).await;
    all_hold(&first).await;
    let second = lab.control(|raw| raw.election.controller = 9).await;
    assert_eq!(second.change_lead(LeadChange::Take).await.unwrap(), None);
    all_hold(&second).await;

    let lost = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
    first_leaf(&first, lost).await;
    let before = written(&first);
    first.submit_event(StateEvent::JobsChanged(vec![lab.job("a", 50_000)])).await.unwrap();
    let event = StateEvent::JobsChanged(vec![lab.job("b", 60_000)]);
    second.submit_event(event).await.unwrap();
    all_hold(&second).await;
    assert_eq!(written(&first), before);
    assert_eq!(lab.read_all().await, second.desired_tables().tables);

    // What the first once verified does not count when it is primary again.
    second.shutdown().await;
    let desired = first.desired_tables();
    all_hold(&first).await;
    assert_eq!(lab.read_all().await, desired.tables);
    first.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_switch_is_named() {
    let lab = Lab::new().await;
    let controller = lab.control(|_| {}).await;
    all_hold(&controller).await;
    let error = controller
        .await_verified(
            controller.desired_tables().generation + 1,
            std::time::Duration::from_millis(1),
        )
        .await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("leaf1") && text.contains("spine2"), "{text}");
    controller.shutdown().await;
}
