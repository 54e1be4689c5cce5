//! A change of policy under faults: whatever a switch does while it is applied, in the end all
//! switches hold the policy of before or the new one, whole, and the operator is told which.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PolicyChangeResponse, PreviewPolicyRequest,
};
use controller::{ControllerHandle, RawConfig, StateEvent};
use p4::SwitchTables;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use tonic::Code;
use topology::SwitchId;

use crate::lab::{Lab, config, verified};

type All = BTreeMap<SwitchId, Arc<SwitchTables>>;

/// Another level for one job, and paths of the other left to ECMP: job levels, pins and classes.
const CHANGE: &str = "[[job]]\nmatch = 'b'\nlevel = 0\n[[job]]\nmatch = 'a'\nexempt = true\n";

fn order() -> ApplyPolicyRequest {
    ApplyPolicyRequest {
        change: PreviewPolicyRequest {
            policy: Some(DocumentFile { file: "policy.toml".to_owned(), text: CHANGE.to_owned() }),
            ..PreviewPolicyRequest::default()
        },
        author: "ada".to_owned(),
        ..ApplyPolicyRequest::default()
    }
}

fn hasty(raw: &mut RawConfig) {
    raw.deadlines.verify_ms = 400;
    raw.deadlines.rpc_ms = 300;
}

async fn served(lab: &Lab) -> (ControllerHandle, NorthboundService) {
    let controller = lab.control(hasty).await;
    let jobs = ["a", "b"].into_iter().zip([50_000, 50_001]);
    let jobs = jobs.map(|(name, port)| lab.job(name, port)).collect();
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(lab, &controller).await;
    let service = NorthboundService::new(controller.access().clone(), &config(hasty));
    (controller, service)
}

/// What became of the change, and what all switches hold once they are verified.
async fn changed(faults: FaultScript) -> (PolicyChangeResponse, All) {
    let lab = Lab::with_faults(faults).await;
    let (controller, service) = served(&lab).await;
    let before = service.get_policy().await.unwrap().content;
    let done = service.apply_policy(&order()).await.unwrap();
    let latest = service.get_policy().await.unwrap();
    assert_eq!(latest.trial, None, "{done:?}");
    assert_eq!(latest.content != before, done.applied, "{done:?}");
    verified(&lab, &controller).await;
    let held = lab.read_all().await;
    controller.shutdown().await;
    (done, held)
}

/// The tables without the change, and with it.
async fn undisturbed() -> [All; 2] {
    let lab = Lab::new().await;
    let (controller, service) = served(&lab).await;
    let before = lab.read_all().await;
    assert!(service.apply_policy(&order()).await.unwrap().applied);
    let after = lab.read_all().await;
    assert!(before != after);
    controller.shutdown().await;
    [before, after]
}

fn refusals(table: &str, of: std::ops::Range<u64>) -> FaultScript {
    let refusal = |nth| InjectedFault::RefuseUpdate {
        table: format!("IngressImpl.{table}"),
        nth,
        code: Code::Unavailable,
    };
    FaultScript(of.map(refusal).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_faults_is_applied_completely_or_not_at_all() {
    let [before, after] = undisturbed().await;
    let drops = (4..=24).step_by(4).map(|nth| FaultScript(vec![InjectedFault::DropStream { nth }]));
    let restarts = (2..=10).step_by(2).map(|nth| FaultScript(vec![InjectedFault::Restart { nth }]));
    let delays = (3..=9).step_by(3).map(|nth| {
        let by = Duration::from_millis(200);
        FaultScript(vec![InjectedFault::DelayWrite { nth, by }])
    });
    let refused = ["job_qos", "flow_pin", "job_classify"].map(|table| refusals(table, 3..5));
    let scripts = drops.chain(restarts).chain(delays).chain(refused);
    for script in scripts {
        let (done, held) = changed(script.clone()).await;
        let expected = if done.applied { &after } else { &before };
        assert!(held == *expected, "{script:?}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanently_refused_policy_is_rolled_back() {
    let [before, _] = undisturbed().await;
    // Two jobs had their levels written; whatever else is written there is refused.
    let (done, held) = changed(refusals("job_qos", 3..2_000)).await;
    assert!(!done.applied, "{done:?}");
    let text = &done.findings[0].text;
    assert!(text.contains("leaf1") && text.contains("taken back"), "{text}");
    assert!(held == before);
}
