//! Several controllers led through a real etcd: the leader dies, etcd restarts, etcd is out of
//! reach. Whatever happens, one writes at a time and the next one knows everything.
//!
//! The server is [`EtcdConfig`]; without it, every test here says so and passes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use controller::etcd::{ClusterNetwork, ClusterStore, EtcdClient, EtcdError, PlanManifest};
use controller::liveness::{FabricPart, PartHealth};
use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest,
};
use controller::southbound::arbitration::Mastership;
use controller::southbound::write_permit::WritePermit;
use controller::southbound::{GrpcNetwork, SwitchStatus};
use controller::store::StoredPlan;
use controller::{Controller, ControllerHandle, LeadChange, PlanRollout, StateEvent};
use planner::Policy;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use topology::{Fabric, LinkId, LinkPath, Severity};

use crate::etcd::Etcd;
use crate::lab::{DEADLINE, Lab, config, eventually, rollout_with, verified, written};

/// Longer than a busy machine takes for a call.
pub(crate) const LEASE_S: u64 = 4;

/// What a leader uses of it.
pub(crate) const LEASE_TERM: Duration = Duration::from_millis(LEASE_S * 800);

/// How long etcd is out of reach.
const AWAY: Duration = Duration::from_secs(30);

/// A connection to etcd that can be cut: messages then get stuck without an error.
struct Way {
    address: String,
    is_open: watch::Sender<bool>,
}

impl Way {
    async fn to(server: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_open = watch::Sender::new(true);
        let (seen, server) = (is_open.subscribe(), server.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), seen.clone()));
            }
        });
        Self { address, is_open }
    }
}

/// Carries a connection until the way is cut; then holds it, without a word, until it is open
/// again, when both ends learn that it is gone.
async fn carry(mut client: TcpStream, server: String, mut is_open: watch::Receiver<bool>) {
    let carried = async {
        if let Ok(mut server) = TcpStream::connect(server).await {
            drop(copy_bidirectional(&mut client, &mut server).await);
        }
    };
    let was_open = *is_open.borrow_and_update();
    if was_open {
        tokio::select! {
            () = carried => return,
            _ = is_open.changed() => {}
        }
    }
    drop(is_open.wait_for(|is_open| *is_open).await);
}

/// A controller of the lab that is led through etcd.
fn member(
    lab: &Lab,
    controller: u32,
    etcd: &str,
) -> impl Future<Output = ControllerHandle> + Send + use<> {
    member_on(lab.fabric.clone(), controller, etcd)
}

/// As [`member`], with the switches at the addresses of `fabric`.
fn member_on(
    fabric: Fabric,
    controller: u32,
    etcd: &str,
) -> impl Future<Output = ControllerHandle> + Send + use<> {
    let config = config(|raw| {
        raw.election.controller = controller;
        raw.etcd.endpoints = vec![etcd.to_owned()];
        raw.etcd.lease_s = LEASE_S;
        raw.etcd.deadline_ms = 800;
    });
    async { Controller::start(config, fabric, Policy::default()).await.unwrap() }
}

/// Waits until a controller's mandate is such.
pub(crate) async fn until(
    controller: &ControllerHandle,
    holds: impl Fn(&WritePermit) -> bool,
) -> WritePermit {
    let mut permit = controller.watch_permit();
    let found = timeout(DEADLINE, permit.wait_for(|permit| holds(permit))).await;
    *found.unwrap().unwrap()
}

pub(crate) fn leads(permit: &WritePermit) -> bool {
    permit.is_leader(Instant::now())
}

fn stands_by(permit: &WritePermit) -> bool {
    matches!(permit, WritePermit::Standby { .. })
}

/// Waits until a controller has planned for this many jobs.
async fn knows(controller: &ControllerHandle, jobs: usize) {
    rollout_with(controller, |had| had.plan.jobs.len() == jobs).await;
}

/// Tells a controller of this many jobs; whether it took them and has stored them.
pub(crate) async fn submit_jobs(lab: &Lab, controller: &ControllerHandle, jobs: u16) -> bool {
    let jobs = (0..jobs).map(|n| lab.job(&format!("job{n}"), 50_000 + n));
    let submitted = controller.submit_event(StateEvent::JobsChanged(jobs.collect())).await;
    let findings = submitted.unwrap().findings;
    findings.iter().all(|finding| finding.severity != Severity::Error)
}

/// A change of policy that writes to no switch.
fn order() -> ApplyPolicyRequest {
    let text = DocumentFile { file: "policy.toml".to_owned(), text: "fairness = 0.2".to_owned() };
    ApplyPolicyRequest {
        change: PreviewPolicyRequest { policy: Some(text), ..PreviewPolicyRequest::default() },
        author: "ada".to_owned(),
        ..ApplyPolicyRequest::default()
    }
}

/// Waits until a controller is connected to all switches and primary on none.
async fn is_ready(controller: &ControllerHandle) {
    let waits = |line: &SwitchStatus| matches!(line.mastership, Mastership::Backup { .. });
    let waiting = controller.status_board().wait_until(|lines| lines.values().all(waits));
    timeout(DEADLINE, waiting).await.unwrap();
}

/// Gives the leader two jobs, and waits until the standby knows them and is ready to take over.
async fn share_jobs(lab: &Lab, leader: &ControllerHandle, standby: &ControllerHandle) {
    assert!(submit_jobs(lab, leader, 2).await);
    knows(standby, 2).await;
    is_ready(standby).await;
    verified(lab, leader).await;
}

#[tokio::test]
async fn the_successor_of_a_leader_has_the_whole_state() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    // A runtime of its own, which can be killed.
    let life = tokio::runtime::Runtime::new().unwrap();
    let first = life.spawn(member(&lab, 1, &etcd.client)).await.unwrap();
    until(&first, leads).await;
    let second = member(&lab, 2, &etcd.client).await;
    until(&second, stands_by).await;
    assert!(submit_jobs(&lab, &first, 3).await);
    assert!(!submit_jobs(&lab, &second, 1).await, "only the leader takes jobs");
    knows(&second, 3).await;
    is_ready(&second).await;
    let before = verified(&lab, &first).await;
    let tables = first.desired_tables().tables.clone();

    life.shutdown_background();
    until(&second, leads).await;
    let after = verified(&lab, &second).await;
    assert!(after.generation > before.generation);
    assert_eq!(second.desired_tables().tables, tables);
    assert_eq!(written(&second), 0, "it desires what the switches hold");
    assert!(submit_jobs(&lab, &second, 1).await);
    verified(&lab, &second).await;
    second.shutdown().await;

    // All of them gone, and another one there.
    let third = member(&lab, 3, &etcd.client).await;
    let taking_over = Instant::now();
    until(&third, leads).await;
    assert!(taking_over.elapsed() < Duration::from_secs(LEASE_S), "given back");
    assert_eq!(third.current_rollout().unwrap().plan.jobs.len(), 1);
    verified(&lab, &third).await;
    assert_eq!(written(&third), 0);
    third.shutdown().await;
}

/// A member on a runtime of its own, which can be killed.
struct MortalMember {
    life: Runtime,
    controller: ControllerHandle,
}

impl MortalMember {
    async fn start(lab: &Lab, number: u32, etcd: &str) -> Self {
        let life = Runtime::new().unwrap();
        let controller = life.spawn(member(lab, number, etcd)).await.unwrap();
        Self { life, controller }
    }

    /// Ends without a farewell: its lease runs on.
    fn kill(self) {
        self.life.shutdown_background();
    }
}

/// The paths in force, by the ports of their flows.
fn paths(controller: &ControllerHandle) -> BTreeMap<u16, LinkPath> {
    let rollout = controller.current_rollout().unwrap();
    let flows = rollout.plan.flows.iter();
    flows.map(|flow| (flow.udp_src_port.unwrap(), flow.links)).collect()
}

/// Connects to etcd as a member does, with more patience: one that has just started answers late.
async fn connect(etcd: &str) -> EtcdClient {
    let config = config(|raw| {
        raw.etcd.endpoints = vec![etcd.to_owned()];
        raw.etcd.lease_s = 5 * DEADLINE.as_secs();
        raw.etcd.deadline_ms = DEADLINE.as_millis() as u64;
    });
    GrpcNetwork.connect_store(etcd, &config.etcd.unwrap()).await.unwrap()
}

/// The encoded plan that a manifest names; nothing if a piece of it is gone.
async fn read_plan(store: &EtcdClient, plan: &PlanManifest) -> Option<Vec<u8>> {
    let mut encoded = Vec::new();
    for index in 0..plan.pieces {
        encoded.extend(store.read_plan_piece(plan, index).await.unwrap()?);
    }
    Some(encoded)
}

/// Waits until etcd has the plan that a leader has in force; how many pieces it has.
async fn plan_is_stored(store: &EtcdClient, leader: &ControllerHandle) -> u32 {
    eventually(async || {
        let wanted = leader.current_rollout().unwrap().stored_plan();
        let manifest = store.read_snapshot().await.unwrap().plan?;
        let encoded = read_plan(store, &manifest).await?;
        let stored: StoredPlan = serde_json::from_slice(&encoded).unwrap();
        (stored == wanted).then_some(manifest.pieces)
    })
    .await
}

/// A member that knew jobs and policy alone would put the job that is left on the path of the one
/// that has ended, and would use the cable that failed before it was there.
#[tokio::test]
async fn a_member_that_takes_over_moves_no_flow_and_writes_no_entry() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let store = connect(&etcd.client).await;
    let mut leader = MortalMember::start(&lab, 1, &etcd.client).await;
    until(&leader.controller, leads).await;
    // With a name of a megabyte, the plan does not fit into one request to etcd.
    let jobs = [lab.job("a", 50_000), lab.job(&"b".repeat(1 << 20), 50_001)];
    for known in [&jobs[..1], &jobs, &jobs[1..]] {
        let changed = StateEvent::JobsChanged(known.to_vec());
        let receipt = leader.controller.submit_event(changed).await.unwrap();
        assert!(receipt.findings.iter().all(|finding| finding.severity != Severity::Error));
        verified(&lab, &leader.controller).await;
    }
    let before = paths(&leader.controller);
    let used = before[&50_001];
    let cables = lab.fabric.cables().filter(|link| {
        let ends = [lab.fabric.link(*link).from.node, lab.fabric.link(*link).to.node];
        ends.iter().all(|end| end.switch().is_some())
    });
    let is_used = |link: &LinkId| used.iter().any(|one| one.min(&one.reverse()) == link);
    let cable = cables.filter(|link| !is_used(link)).last().unwrap();
    let failed = |had: &PlanRollout| !had.fabric.is_cable_up(cable);
    leader.controller.report_health(FabricPart::Cable(cable), PartHealth::Down).await.unwrap();
    rollout_with(&leader.controller, failed).await;
    verified(&lab, &leader.controller).await;
    let tables = lab.read_all().await;

    for number in 2..=5 {
        assert!(plan_is_stored(&store, &leader.controller).await > 1, "in pieces");
        // Every second one is there before its predecessor dies, the others are started afterwards.
        let next = if number % 2 == 0 {
            let standby = MortalMember::start(&lab, number, &etcd.client).await;
            knows(&standby.controller, 1).await;
            is_ready(&standby.controller).await;
            leader.kill();
            standby
        } else {
            leader.kill();
            MortalMember::start(&lab, number, &etcd.client).await
        };
        until(&next.controller, leads).await;
        verified(&lab, &next.controller).await;
        assert_eq!(paths(&next.controller), before, "member {number}");
        assert_eq!(written(&next.controller), 0, "member {number}");
        assert_eq!(lab.read_all().await, tables, "member {number}");
        assert!(next.controller.current_rollout().unwrap().report.moved.is_empty());
        leader = next;
    }
    leader.controller.report_health(FabricPart::Cable(cable), PartHealth::Up).await.unwrap();
    let works = |had: &PlanRollout| had.fabric.is_cable_up(cable);
    rollout_with(&leader.controller, works).await;
    leader.kill();
}

/// What one leader of a test stores: three pieces, more than etcd takes in one request.
fn manifest(election: u64, number: u64) -> PlanManifest {
    PlanManifest { election, number, pieces: 3 }
}

#[tokio::test]
async fn readers_of_a_plan_find_all_of_it_or_the_one_before() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let store = connect(&etcd.client).await;
    let elect = async |controller| {
        let lease = store.grant_lease(Duration::from_secs(60)).await.unwrap().lease;
        store.stand_for_election(controller, None, lease).await.unwrap();
        (store.read_snapshot().await.unwrap().leader.unwrap().revision, lease)
    };
    let (election, lease) = elect(1).await;
    let piece = |plan: &PlanManifest, index: u32| vec![plan.number as u8 + index as u8; 1 << 20];
    let store_pieces = async |plan: &PlanManifest, indices: Range<u32>| {
        for index in indices {
            store.store_plan_piece(plan, index, &piece(plan, index)).await?;
        }
        Ok::<(), EtcdError>(())
    };
    let published = async || store.read_snapshot().await.unwrap().plan;

    let first = manifest(election, 1);
    store_pieces(&first, 0..3).await.unwrap();
    assert_eq!(published().await, None, "nothing names the pieces");
    store.publish_plan(&first).await.unwrap();
    let whole = |plan: &PlanManifest| (0..3).flat_map(|index| piece(plan, index)).collect();
    assert_eq!(published().await, Some(first));
    assert_eq!(read_plan(&store, &first).await, Some(whole(&first)));

    // A leader that dies between two pieces leaves the plan before.
    let second = manifest(election, 2);
    store_pieces(&second, 0..2).await.unwrap();
    assert_eq!(published().await, Some(first));
    assert_eq!(read_plan(&store, &first).await, Some(whole(&first)));
    store.revoke_lease(lease).await.unwrap();
    let deposed = store_pieces(&second, 2..3).await;
    assert!(matches!(deposed, Err(EtcdError::NotLeader)), "{deposed:?}");
    let deposed = store.publish_plan(&second).await;
    assert!(matches!(deposed, Err(EtcdError::NotLeader)), "{deposed:?}");

    // Its successor deletes everything but its own.
    let (election, _) = elect(2).await;
    let third = manifest(election, 1);
    store_pieces(&third, 0..3).await.unwrap();
    store.publish_plan(&third).await.unwrap();
    assert_eq!(published().await, Some(third));
    assert_eq!(read_plan(&store, &third).await, Some(whole(&third)));
    for gone in [first, second] {
        for index in 0..3 {
            assert_eq!(store.read_plan_piece(&gone, index).await.unwrap(), None, "{gone:?}");
        }
    }
}

#[tokio::test]
async fn a_leader_that_etcd_elected_steps_down_and_another_one_leads() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let first = member(&lab, 1, &etcd.client).await;
    until(&first, leads).await;
    let second = member(&lab, 2, &etcd.client).await;
    until(&second, stands_by).await;
    share_jobs(&lab, &first, &second).await;
    let refused = second.change_lead(LeadChange::Leave).await.unwrap();
    assert!(refused.unwrap().text.contains("refused"), "it has no lead to leave");

    let leaving = Instant::now();
    assert_eq!(first.change_lead(LeadChange::Leave).await.unwrap(), None);
    until(&second, leads).await;
    assert!(leaving.elapsed() < Duration::from_secs(LEASE_S), "given back");
    verified(&lab, &second).await;
    assert_eq!(written(&second), 0);
    until(&first, stands_by).await;
    assert!(submit_jobs(&lab, &second, 3).await);
    knows(&first, 3).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test]
async fn a_leader_that_most_switches_do_not_answer_hands_over() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let mut parts = lab.fabric.parts().clone();
    let mut ways = Vec::new();
    for switch in &mut parts.switches {
        let way = Way::to(switch.p4runtime.as_ref().unwrap()).await;
        switch.p4runtime = Some(way.address.clone());
        ways.push(way);
    }
    let first = member_on(Fabric::new(parts), 1, &etcd.client).await;
    until(&first, leads).await;
    let second = member(&lab, 2, &etcd.client).await;
    share_jobs(&lab, &first, &second).await;

    for way in &ways[1..] {
        way.is_open.send_replace(false);
    }
    until(&second, leads).await;
    until(&first, stands_by).await;
    assert!(submit_jobs(&lab, &second, 3).await);
    knows(&first, 3).await;
    verified(&lab, &second).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test]
async fn an_etcd_that_restarts_changes_nothing() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let controller = member(&lab, 1, &etcd.client).await;
    let before = until(&controller, leads).await;
    assert!(submit_jobs(&lab, &controller, 2).await);
    verified(&lab, &controller).await;
    let total = written(&controller);

    etcd.kill();
    assert!(!submit_jobs(&lab, &controller, 3).await, "in force, but not stored");
    let service = NorthboundService::new(controller.access().clone(), &config(|_| {}));
    let refused = service.apply_policy(&order()).await.unwrap_err().to_string();
    assert!(refused.contains("nothing is changed"), "{refused}");
    assert_eq!(service.get_policy().await.unwrap().number, 1);
    assert!(etcd.run());
    let restarted = Instant::now();
    // Asked for after the restart, and granted.
    let is_renewed =
        |permit: &WritePermit| leads(permit) && permit.expires_at() > Some(restarted + LEASE_TERM);
    let renewed = until(&controller, is_renewed);
    assert_eq!(renewed.await.arbitration_input(), before.arbitration_input(), "the same term");
    assert!(submit_jobs(&lab, &controller, 2).await);
    let done = service.apply_policy(&order()).await.unwrap();
    assert!(done.applied && done.revision > 1, "{done:?}");
    verified(&lab, &controller).await;
    assert!(written(&controller) < 2 * total, "no table was written again");
    controller.shutdown().await;
}

#[tokio::test]
async fn a_leader_cut_off_from_etcd_stops_before_another_leads() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let way = Way::to(&etcd.client).await;
    let first = member(&lab, 1, &way.address).await;
    until(&first, leads).await;
    let second = member(&lab, 2, &etcd.client).await;
    is_ready(&second).await;
    assert!(submit_jobs(&lab, &first, 2).await);
    knows(&second, 2).await;
    verified(&lab, &first).await;

    way.is_open.send_replace(false);
    until(&second, leads).await;
    let now = Instant::now();
    let last = *first.watch_permit().borrow();
    assert!(last.expires_at().is_some_and(|end| end < now), "{last:?} at {now:?}");
    let total = written(&first);
    assert!(submit_jobs(&lab, &second, 3).await);
    assert!(!submit_jobs(&lab, &first, 4).await);
    let mut permit = first.watch_permit();
    let again = timeout(AWAY, permit.wait_for(leads)).await;
    assert!(again.is_err(), "it leads nothing while it is cut off");
    verified(&lab, &second).await;
    assert_eq!(written(&first), total);

    way.is_open.send_replace(true);
    until(&first, stands_by).await;
    knows(&first, 3).await;
    is_ready(&first).await;
    second.shutdown().await;
    until(&first, leads).await;
    verified(&lab, &first).await;
    first.shutdown().await;
}

#[tokio::test]
async fn without_etcd_no_member_writes_and_switches_keep_their_entries() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let first = member(&lab, 1, &etcd.client).await;
    let second = member(&lab, 2, &etcd.client).await;
    // Either may win.
    let is_first = |permit: &WritePermit| leads(permit) || stands_by(permit);
    until(&first, is_first).await;
    let (mut a, mut b) = (first.watch_permit(), second.watch_permit());
    tokio::select! {
        _ = a.wait_for(leads) => {}
        _ = b.wait_for(leads) => {}
    }
    let leader = if leads(&first.watch_permit().borrow()) { &first } else { &second };
    assert!(submit_jobs(&lab, leader, 2).await);
    verified(&lab, leader).await;
    let tables = leader.desired_tables().tables.clone();

    etcd.kill();
    // An answer under way when etcd died may still prolong the leadership that it confirms.
    tokio::time::sleep(LEASE_TERM).await;
    let total = (written(&first), written(&second));
    let nobody = async {
        tokio::select! {
            _ = a.wait_for(leads) => {}
            _ = b.wait_for(leads) => {}
        }
    };
    assert!(timeout(AWAY, nobody).await.is_err(), "nobody leads");
    assert_eq!((written(&first), written(&second)), total);
    assert_eq!(lab.read_all().await, tables);

    assert!(etcd.run());
    let leader = tokio::select! {
        _ = until(&first, leads) => &first,
        _ = until(&second, leads) => &second,
    };
    assert!(submit_jobs(&lab, leader, 1).await);
    verified(&lab, leader).await;
    first.shutdown().await;
    second.shutdown().await;
}

/// Finding H7: terms are revisions of etcd, and after its loss every switch refused the leader.
#[tokio::test]
async fn an_etcd_that_lost_everything_gets_a_leader_that_switches_accept() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let lab = Lab::new().await;
    let first = member(&lab, 1, &etcd.client).await;
    until(&first, leads).await;
    for jobs in 1..12 {
        assert!(submit_jobs(&lab, &first, jobs).await);
    }
    let second = member(&lab, 2, &etcd.client).await;
    is_ready(&second).await;
    // The term of the next leader is above all of these revisions.
    first.shutdown().await;
    until(&second, leads).await;
    verified(&lab, &second).await;

    etcd.lose_data().await;
    let third = member(&lab, 3, &etcd.client).await;
    let leader = tokio::select! {
        _ = until_elected_anew(&second) => &second,
        _ = until(&third, leads) => &third,
    };
    assert!(submit_jobs(&lab, leader, 2).await);
    verified(&lab, leader).await;
    let service = NorthboundService::new(leader.access().clone(), &config(|_| {}));
    let found = service.list_findings().await.unwrap();
    assert!(found.iter().any(|one| one.about == "etcd" && one.text.contains("lost")), "{found:?}");
    second.shutdown().await;
    third.shutdown().await;
}

/// Waits until a leader has lost its leadership and has it again.
async fn until_elected_anew(controller: &ControllerHandle) {
    until(controller, |permit| !leads(permit)).await;
    until(controller, leads).await;
}
