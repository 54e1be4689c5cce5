//! A controller that ends and starts again: fail static, and with everything it had acknowledged.

use controller::StateEvent;
use controller::southbound::arbitration::Mastership;
use planner::Policy;
use tempfile::TempDir;

use crate::lab::{Lab, verified, written};

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

    let second = loop {
        // The first one lets go of its store when its task has ended.
        match lab.try_control(stored).await {
            Ok(second) => break second,
            Err(error) => assert!(error.to_string().contains("store"), "{error}"),
        }
        tokio::task::yield_now().await;
    };
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
