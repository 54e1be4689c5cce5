//! Another fabric on a running controller: parts come, go and change, and nothing else does.

use std::collections::BTreeMap;

use controller::northbound::service::{
    ApplyFabricRequest, DocumentFile, NorthboundService, PreviewFabricRequest,
    RollbackFabricRequest, ServiceError,
};
use controller::{Controller, ControllerHandle, RawConfig, StateEvent};
use p4::SwitchTables;
use planner::{Job, Policy};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use switch_server::p4runtime::ServiceOptions;
use tempfile::TempDir;
use topology::clos::{self, ClosSpec};
use topology::spec::{FabricDocument, explicit_document};
use topology::{Fabric, HostId, NicId};

use crate::lab::{DEADLINE, Lab, config, open_config, until, verified, written};
use crate::traffic::Busy;

/// Three leaves, two spines, two hosts on each leaf.
async fn three_leaves() -> Lab {
    let spec = ClosSpec { leaves: 3, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    let parts = clos::build_clos("lab", &spec).unwrap().parts().clone();
    Lab::of_parts(parts, |_| ServiceOptions::default(), |_, _| {}).await
}

/// The document without these switches and hosts, and without their cables.
pub(crate) fn without(fabric: &Fabric, gone: &[&str]) -> FabricDocument {
    let mut document = explicit_document(fabric);
    let stays = |name: &str| !gone.contains(&name);
    document.switches.retain(|switch| stays(&switch.name));
    document.hosts.retain(|host| stays(&host.name));
    let node = |end: &str| end.split(':').next().unwrap().to_owned();
    document.links.retain(|link| [&link.a, &link.b].iter().all(|end| stays(&node(end))));
    document
}

/// Random changes in a run: few for a change, more where `PROPTEST_CASES` says so.
fn random_changes() -> u32 {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    cases.unwrap_or(64_u32).div_ceil(5)
}

const THIRD_LEAF: [&str; 3] = ["leaf3", "h5", "h6"];

pub(crate) fn file(document: &FabricDocument) -> DocumentFile {
    let text = serde_json::to_string(document).unwrap();
    DocumentFile { file: "fabric.json".to_owned(), text }
}

fn apply_request(document: &FabricDocument) -> ApplyFabricRequest {
    ApplyFabricRequest {
        fabric: file(document),
        author: "ada".to_owned(),
        ..ApplyFabricRequest::default()
    }
}

async fn start(document: &FabricDocument, change: impl FnOnce(&mut RawConfig)) -> ControllerHandle {
    let fabric = Fabric::try_from(document).unwrap();
    Controller::start(config(change), fabric, Policy::default()).await.unwrap()
}

fn service(controller: &ControllerHandle) -> NorthboundService {
    NorthboundService::new(controller.access().clone(), &open_config())
}

/// A job from one host to another, by their names.
fn job_between(lab: &Lab, fabric: &Fabric, [from, to]: [&str; 2], name: &str, port: u16) -> Job {
    let mut job = lab.job(name, port);
    let [from, to]: [HostId; 2] = [from, to].map(|host| fabric.host_named(host).unwrap());
    job.gpus = BTreeMap::from([(from, 1), (to, 1)]);
    let nic = |host| -> NicId { fabric.nic_of(host, 0).unwrap() };
    (job.flows[0].src, job.flows[0].dst) = (nic(from), nic(to));
    job
}

async fn run_jobs(lab: &Lab, controller: &ControllerHandle, jobs: &[(&str, [&str; 2], u16)]) {
    let fabric = controller.current_rollout().unwrap().fabric;
    let jobs = jobs.iter().map(|(name, ends, port)| job_between(lab, &fabric, *ends, name, *port));
    controller.submit_event(StateEvent::JobsChanged(jobs.collect())).await.unwrap();
}

/// The paths in force, as names of links by ports of flows.
pub(crate) fn paths(controller: &ControllerHandle) -> BTreeMap<u16, Vec<String>> {
    let rollout = controller.current_rollout().unwrap();
    let name = |link: &topology::LinkId| rollout.fabric.link_name(*link);
    let flows = rollout.plan.flows.iter();
    flows.map(|flow| (flow.udp_src_port.unwrap(), flow.links.iter().map(name).collect())).collect()
}

/// What is desired of each switch, by its name.
fn tables(controller: &ControllerHandle) -> BTreeMap<String, SwitchTables> {
    let fabric = controller.current_rollout().unwrap().fabric;
    let desired = controller.desired_tables();
    let tables = desired.tables.iter();
    tables.map(|(id, held)| (fabric.switch(*id).name.clone(), SwitchTables::clone(held))).collect()
}

/// Waits until every switch of the fabric in force holds what is desired.
pub(crate) async fn all_hold(controller: &ControllerHandle) {
    until(async || {
        let desired = controller.desired_tables();
        let verified = controller.await_verified(desired.generation, DEADLINE).await;
        verified.is_ok() && controller.desired_tables().generation == desired.generation
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaf_comes_and_goes_and_no_flow_moves() {
    let lab = three_leaves().await;
    let small = without(&lab.fabric, &THIRD_LEAF);
    let controller = start(&small, |_| {}).await;
    let jobs = [("a", ["h1", "h3"], 50_000), ("b", ["h2", "h4"], 50_001)];
    run_jobs(&lab, &controller, &jobs).await;
    all_hold(&controller).await;
    let (paths_before, before) = (paths(&controller), tables(&controller));
    let service = service(&controller);

    let whole = explicit_document(&lab.fabric);
    let preview =
        service.preview_fabric(&PreviewFabricRequest { fabric: file(&whole) }).await.unwrap();
    assert_eq!(preview.fabric[0], "switch leaf3 is added");
    assert!(preview.lost_jobs.is_empty() && preview.plan.flows.is_empty(), "{preview:?}");
    assert_eq!(preview.plan.unchanged.len(), 2);
    assert!(preview.plan.switches.iter().any(|switch| switch.name == "leaf3"));

    let applied = service.apply_fabric(&apply_request(&whole)).await.unwrap();
    assert_eq!((applied.revision, &applied.findings[..]), (2, &[][..]));
    all_hold(&controller).await;
    assert_eq!(paths(&controller), paths_before);
    // A cold start on the document as it is has the same tables.
    let cold = start(&service.get_fabric().await.unwrap(), |raw| raw.election.term = 9).await;
    run_jobs(&lab, &cold, &jobs).await;
    assert_eq!(tables(&controller), tables(&cold));
    cold.shutdown().await;
    // Hosts of the new leaf can have jobs at once.
    run_jobs(&lab, &controller, &[jobs[0], jobs[1], ("c", ["h5", "h1"], 50_002)]).await;
    assert_eq!(paths(&controller).len(), 3);
    run_jobs(&lab, &controller, &jobs).await;

    let back = RollbackFabricRequest { author: "ada".to_owned(), ..Default::default() };
    let back = service.rollback_fabric(&back).await.unwrap();
    assert_eq!(back.revision, 3);
    assert_eq!(paths(&controller), paths_before);
    assert_eq!(tables(&controller), before);
    let history = service.list_fabric_revisions().await.unwrap();
    let numbers: Vec<u64> = history.iter().map(|revision| revision.number).collect();
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(history[0].changes[0], "switch leaf3 is removed");
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_running_jobs_are_removed_by_force_alone_and_cost_no_other_job() {
    let lab = three_leaves().await;
    let whole = explicit_document(&lab.fabric);
    let controller = start(&whole, |_| {}).await;
    run_jobs(&lab, &controller, &[("a", ["h1", "h3"], 50_000), ("c", ["h5", "h2"], 50_001)]).await;
    let service = service(&controller);

    let small = without(&lab.fabric, &THIRD_LEAF);
    let preview =
        service.preview_fabric(&PreviewFabricRequest { fabric: file(&small) }).await.unwrap();
    assert_eq!(preview.lost_jobs, ["c"]);
    let Err(ServiceError::Refused(findings)) = service.apply_fabric(&apply_request(&small)).await
    else {
        panic!("it costs a job its hosts");
    };
    assert!(findings[0].text.contains("running jobs (c)"), "{findings:?}");
    assert_eq!(controller.access().fabric_history().revisions().len(), 1);

    let forced = ApplyFabricRequest { force: true, ..apply_request(&small) };
    service.apply_fabric(&forced).await.unwrap();
    let jobs = service.list_jobs().await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["a"]);
    let none = ApplyFabricRequest { fabric: file(&small), ..apply_request(&small) };
    let none = service.apply_fabric(&none).await.unwrap();
    assert_eq!((none.revision, none.findings[0].text.as_str()), (2, "nothing changes"));

    // A drained part may leave, and its drain ends with it.
    let drained = Policy { drained: vec!["spine2".into(), "spine1".into()], ..Policy::default() };
    controller.submit_event(StateEvent::PolicyChanged(drained)).await.unwrap();
    let without_spine = without(&lab.fabric, &["spine2", "leaf3", "h5", "h6"]);
    service.apply_fabric(&apply_request(&without_spine)).await.unwrap();
    let policy = service.get_policy().await.unwrap();
    assert_eq!(policy.content.policy.drained, ["spine1"]);
    assert!(policy.metadata.reason.contains("lacks"), "{policy:?}");
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_switch_is_filled_and_a_failed_one_stays_out_of_use() {
    let lab = three_leaves().await;
    let spare = three_leaves().await;
    let controller = start(&explicit_document(&lab.fabric), |_| {}).await;
    run_jobs(&lab, &controller, &[("a", ["h1", "h3"], 50_000)]).await;
    verified(&lab, &controller).await;
    let failed = lab.fabric.link_named("leaf2:3>spine1:2").unwrap();
    controller
        .report_health(
            controller::liveness::FabricPart::Cable(failed),
            controller::liveness::PartHealth::Down,
        )
        .await
        .unwrap();
    until(async || !controller.current_rollout().unwrap().fabric.is_cable_up(failed)).await;
    all_hold(&controller).await;
    let before = written(&controller);

    // The same place in the fabric, another machine behind another address.
    let mut document = without(&lab.fabric, &["h6"]);
    let spine = document.switches.iter_mut().find(|switch| switch.name == "spine2").unwrap();
    let other = spare.fabric.switch_named("spine2").unwrap();
    spine.p4runtime.clone_from(&spare.fabric.switch(other).p4runtime);
    let applied = service(&controller).apply_fabric(&apply_request(&document)).await.unwrap();
    assert!(applied.changes[0].starts_with("switch spine2: p4runtime"), "{applied:?}");
    all_hold(&controller).await;
    let rollout = controller.current_rollout().unwrap();
    let failed = rollout.fabric.link_named("leaf2:3>spine1:2").unwrap();
    assert!(!rollout.fabric.is_cable_up(failed), "known failures stay");
    assert!(written(&controller) > before);
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fabric_stays_over_a_restart_until_the_file_is_edited() {
    let lab = three_leaves().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
    let small = without(&lab.fabric, &THIRD_LEAF);
    let whole = explicit_document(&lab.fabric);
    let hosts =
        |controller: &ControllerHandle| controller.current_rollout().unwrap().fabric.hosts().len();
    let first = start(&small, stored).await;
    run_jobs(&lab, &first, &[("a", ["h1", "h3"], 50_000)]).await;
    service(&first).apply_fabric(&apply_request(&whole)).await.unwrap();
    run_jobs(&lab, &first, &[("a", ["h1", "h3"], 50_000), ("c", ["h5", "h2"], 50_001)]).await;
    first.shutdown().await;

    let second = start(&small, stored).await;
    assert_eq!(hosts(&second), 6);
    assert_eq!(service(&second).list_jobs().await.unwrap().len(), 2);
    let findings = service(&second).list_findings().await.unwrap();
    let other_file = |text: &str| text.contains("not what the file says");
    assert!(findings.iter().any(|finding| other_file(&finding.text)), "{findings:?}");
    second.shutdown().await;

    let edited = without(&lab.fabric, &["h6"]);
    let third = start(&edited, stored).await;
    assert_eq!(hosts(&third), 5);
    assert_eq!(third.access().fabric_history().latest().unwrap().number, 3);
    third.shutdown().await;

    // The file loses a host of a job: the other job stays.
    let fourth = start(&small, stored).await;
    assert_eq!(hosts(&fourth), 4);
    let jobs = service(&fourth).list_jobs().await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["a"]);
    fourth.shutdown().await;
}

/// Random changes of a fabric of four leaves and three spines, one after the other: switches and
/// hosts come and go, documents are in any order. Jobs of hosts that stay keep their paths as long
/// as those are there, and the tables are those of a cold start.
#[tokio::test(flavor = "multi_thread")]
async fn random_changes_end_with_the_tables_of_a_cold_start() {
    let spec = ClosSpec { leaves: 4, spines: 3, hosts_per_leaf: 2, ..ClosSpec::default() };
    let parts = clos::build_clos("lab", &spec).unwrap().parts().clone();
    let lab = Lab::of_parts(parts, |_| ServiceOptions::default(), |_, _| {}).await;
    let controller = start(&explicit_document(&lab.fabric), |_| {}).await;
    let service = service(&controller);
    let jobs = [("a", ["h1", "h3"], 50_000), ("b", ["h4", "h2"], 50_001)];
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for step in 0..random_changes() {
        let has_jobs = step % 2 == 0;
        run_jobs(&lab, &controller, if has_jobs { &jobs } else { &[] }).await;
        let had = paths(&controller);
        let optional = ["leaf3", "leaf4", "spine2", "spine3", "h5", "h6", "h7", "h8"];
        let mut gone: Vec<&str> =
            optional.into_iter().filter(|_| random.random_ratio(1, 3)).collect();
        for (leaf, hosts) in [("leaf3", ["h5", "h6"]), ("leaf4", ["h7", "h8"])] {
            // No leaf without hosts, and no host without a leaf.
            if gone.contains(&leaf) || hosts.iter().all(|host| gone.contains(host)) {
                gone.push(leaf);
                gone.extend(hosts);
            }
        }
        let mut document = without(&lab.fabric, &gone);
        document.switches.shuffle(&mut random);
        document.hosts.shuffle(&mut random);
        document.links.shuffle(&mut random);
        service.apply_fabric(&apply_request(&document)).await.unwrap();
        all_hold(&controller).await;
        let fabric = controller.current_rollout().unwrap().fabric;
        for (port, path) in paths(&controller) {
            let before = &had[&port];
            let is_there = before.iter().all(|link| fabric.link_named(link).is_some());
            assert!(!is_there || path == *before, "step {step}: {before:?} -> {path:?}");
        }
        if !has_jobs {
            let mut alone = service.get_fabric().await.unwrap();
            // It writes no switch.
            alone.switches.iter_mut().for_each(|switch| switch.p4runtime = None);
            let cold = start(&alone, |_| {}).await;
            assert_eq!(tables(&controller), tables(&cold), "step {step}: without {gone:?}");
            cold.shutdown().await;
        }
    }
    controller.shutdown().await;
}

/// Switches and hosts come and go beside numbered packets of pinned and unpinned flows: nothing is
/// lost or overtaken, and no flow moves that has its path in both fabrics.
async fn change_under_traffic(spec: ClosSpec, start_without: &[&str], changes: &[&[&str]]) {
    let parts = clos::build_clos("lab", &spec).unwrap().parts().clone();
    let busy = Busy::of_parts(parts, |_| ServiceOptions::default()).await;
    let whole = &busy.lab.fabric;
    let controller = start(&without(whole, start_without), |_| {}).await;
    controller.submit_event(busy.jobs(4)).await.unwrap();
    all_hold(&controller).await;
    busy.send().await;
    busy.arrive(20).await;
    let service = service(&controller);
    for gone in changes {
        let had = paths(&controller);
        service.apply_fabric(&apply_request(&without(whole, gone))).await.unwrap();
        all_hold(&controller).await;
        busy.arrive(30).await;
        let fabric = controller.current_rollout().unwrap().fabric;
        let now = paths(&controller);
        assert_eq!(now.len(), had.len());
        for (port, path) in now {
            let is_there = had[&port].iter().all(|link| fabric.link_named(link).is_some());
            assert!(
                !is_there || path == had[&port],
                "without {gone:?}: {:?} -> {path:?}",
                had[&port]
            );
        }
    }
    busy.settle().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fabric_that_changes_under_traffic_loses_and_reorders_nothing() {
    let spec = ClosSpec { leaves: 4, spines: 3, hosts_per_leaf: 2, ..ClosSpec::default() };
    let changes: [&[&str]; 7] = [
        &[],
        &["h6"],
        &["spine3"],
        &["leaf3", "h5", "h6", "spine1"],
        &["spine2", "leaf4", "h7", "h8"],
        &THIRD_LEAF,
        &[],
    ];
    change_under_traffic(spec, &THIRD_LEAF, &changes).await;
}

/// A leaf with eight hosts comes, a host goes, and a spine is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fabric_of_thirty_two_switches_changes_under_traffic() {
    let spec = ClosSpec { leaves: 24, spines: 8, hosts_per_leaf: 8, ..ClosSpec::default() };
    let hosts: Vec<String> = (185..=192).map(|number| format!("h{number}")).collect();
    let mut last_leaf: Vec<&str> = hosts.iter().map(String::as_str).collect();
    last_leaf.push("leaf24");
    let changes: [&[&str]; 5] = [&[], &["h100"], &["h100", "spine5"], &["h100"], &last_leaf];
    change_under_traffic(spec, &last_leaf, &changes).await;
}
