//! A controller that ends and starts again: fail static, and with everything it had acknowledged.

use std::collections::BTreeMap;

use controller::liveness::{FabricPart, PartHealth};
use controller::northbound::service::NorthboundService;
use controller::southbound::arbitration::Mastership;
use controller::store::EmbeddedStore;
use controller::{ControllerHandle, RawConfig, StateEvent};
use planner::Policy;
use tempfile::TempDir;
use topology::LinkPath;

use crate::lab::{Lab, config, rollout_with, verified, written};

/// The next run, once the one before has let go of its store.
pub(crate) async fn restarted(lab: &Lab, change: impl Fn(&mut RawConfig)) -> ControllerHandle {
    loop {
        match lab.try_control(&change).await {
            Ok(controller) => return controller,
            Err(error) => assert!(error.to_string().contains("store"), "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// The paths in force, by the ports of their flows.
fn paths(controller: &ControllerHandle) -> BTreeMap<u16, LinkPath> {
    let rollout = controller.current_rollout().unwrap();
    let flows = rollout.plan.flows.iter();
    flows.map(|flow| (flow.udp_src_port.unwrap(), flow.links)).collect()
}

#[tokio::test]
async fn a_restarted_controller_restores_its_state_without_writes() {
    let lab = Lab::new().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut controller::RawConfig| raw.store.path = Some(store.clone());
    let first = lab.control(stored).await;
    let policy = Policy { drained: vec!["spine1".into()], ..Policy::default() };
    first.submit_event(StateEvent::PolicyChanged(policy)).await.unwrap();
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    first.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let before = verified(&lab, &first).await;
    let tables = first.desired_tables().tables.clone();
    // No farewell: whatever is acknowledged is stored.
    drop(first);
    assert_eq!(lab.read_all().await, tables, "fail static");

    let second = restarted(&lab, stored).await;
    let after = verified(&lab, &second).await;
    assert!(after.generation > before.generation);
    assert_eq!(second.desired_tables().tables, tables);
    assert_eq!(written(&second), 0, "reads first, and finds all as it should be");
    for line in second.status_board().all_statuses().values() {
        let Mastership::Primary { election } = line.mastership else {
            panic!("{line:?}");
        };
        assert!(election.term() > 1, "a term of its own");
    }
    second.shutdown().await;
}

/// A run that knew jobs and policy alone would put the job that is left on the path of the one that
/// has ended, and would use the failed cable.
#[tokio::test]
async fn a_restart_moves_no_flow_and_knows_what_has_failed() {
    let lab = Lab::new().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
    let first = lab.control(stored).await;
    let jobs = [lab.job("a", 50_000), lab.job("b", 50_001)];
    for known in [&jobs[..1], &jobs, &jobs[1..]] {
        first.submit_event(StateEvent::JobsChanged(known.to_vec())).await.unwrap();
        verified(&lab, &first).await;
    }
    let before = paths(&first);
    // A cable of another leaf, of which the plan makes no use.
    let used = before[&50_001];
    let cables = lab.fabric.cables().filter(|link| {
        let ends = [lab.fabric.link(*link).from.node, lab.fabric.link(*link).to.node];
        ends.iter().all(|end| end.switch().is_some())
    });
    let is_used = |link: &topology::LinkId| used.iter().any(|one| one.min(&one.reverse()) == link);
    let cable = cables.filter(|link| !is_used(link)).last().unwrap();
    first.report_health(FabricPart::Cable(cable), PartHealth::Down).await.unwrap();
    let failed = |had: &controller::PlanRollout| !had.fabric.is_cable_up(cable);
    rollout_with(&first, failed).await;
    verified(&lab, &first).await;
    let tables = lab.read_all().await;
    first.shutdown().await;

    let second = restarted(&lab, stored).await;
    verified(&lab, &second).await;
    assert_eq!((paths(&second), written(&second)), (before, 0));
    assert_eq!(lab.read_all().await, tables);
    assert!(second.current_rollout().unwrap().report.moved.is_empty());
    second.report_health(FabricPart::Cable(cable), PartHealth::Up).await.unwrap();
    let works = |had: &controller::PlanRollout| had.fabric.is_cable_up(cable);
    rollout_with(&second, works).await;
    second.shutdown().await;
}

/// A backup has what a restart restores, and is taken without a stop.
#[tokio::test]
async fn a_backup_is_taken_while_the_controller_runs() {
    let lab = Lab::new().await;
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let controller = lab.control(|raw| raw.store.path = Some(path("crux.redb"))).await;
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&lab, &controller).await;
    let before = paths(&controller);
    let service = NorthboundService::new(controller.access().clone(), &config(|_| {}));
    let backup = loop {
        let backup = service.get_state_backup().await.unwrap();
        if backup.state.plan.as_ref().is_some_and(|stored| stored.plan.jobs.len() == 2) {
            break backup;
        }
        tokio::task::yield_now().await;
    };
    controller.shutdown().await;

    let restored = EmbeddedStore::open(&path("restored.redb")).unwrap();
    restored.restore_backup(backup).unwrap();
    drop(restored);
    let second = restarted(&lab, |raw| raw.store.path = Some(path("restored.redb"))).await;
    verified(&lab, &second).await;
    assert_eq!((paths(&second), written(&second)), (before, 0));
    second.shutdown().await;
}
