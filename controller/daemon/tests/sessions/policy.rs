//! Changes of policy on a running controller: shown before, whole or not at all, and taken back.

use std::collections::BTreeSet;

use controller::northbound::service::{
    ApplyPolicyRequest, ConfirmPolicyRequest, DocumentFile, ListPolicyRevisionsRequest,
    NorthboundService, PreviewPolicyRequest, RollbackPolicyRequest, ServiceError,
    TemporaryOverrideRequest,
};
use controller::{ControllerHandle, RawConfig, State, StateEvent};
use planner::{OverrideDocument, PolicyEdit, PolicyEditAction};

use switch_server::testing::faults::{FaultScript, InjectedFault};

use crate::lab::{DEADLINE, Lab, config, first_leaf, until, verified};

/// A lab with two jobs that contend, and the service of its controller.
async fn served(
    lab: &Lab,
    change: impl Fn(&mut RawConfig),
) -> (ControllerHandle, NorthboundService) {
    let controller = lab.control(&change).await;
    let jobs = ["a", "b"].into_iter().zip([50_000, 50_001]);
    let jobs = jobs.map(|(name, port)| lab.job(name, port)).collect();
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let service = NorthboundService::new(controller.access().clone(), &config(&change));
    (controller, service)
}

fn wish(text: &str) -> PreviewPolicyRequest {
    PreviewPolicyRequest {
        policy: Some(DocumentFile { file: "policy.toml".to_owned(), text: text.to_owned() }),
        ..PreviewPolicyRequest::default()
    }
}

fn order(text: &str, confirm_within: Option<u64>) -> ApplyPolicyRequest {
    ApplyPolicyRequest {
        change: wish(text),
        author: "ada".to_owned(),
        reason: "a test".to_owned(),
        confirm_within_seconds: confirm_within,
        force: false,
    }
}

const RAISED: &str = "[[job]]\nmatch = 'b'\nlevel = 0\n";

/// Its flows go by ECMP.
const EXEMPT: &str = "[[job]]\nmatch = 'a'\nexempt = true\n";

/// Waits until this revision is in force and planned for.
async fn in_force(controller: &ControllerHandle, service: &NorthboundService, number: u64) {
    let reached = async {
        while service.get_policy().await.unwrap().number != number {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, reached).await.unwrap();
    // Whatever event comes next is planned for after it.
    controller.submit_event(StateEvent::ElectionWon(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_equals_the_change_and_its_rollback() {
    let lab = Lab::new().await;
    let (controller, service) = served(&lab, |raw| raw.deadlines.quiet_ms = 100).await;
    settled(&lab, &controller).await;
    let before = lab.read_all().await;

    let preview = service.preview_policy(&wish(RAISED)).await.unwrap();
    assert!(lab.read_all().await == before, "a diff writes nothing");
    assert!(preview.policy[0].starts_with("job: [] -> ["), "{:?}", preview.policy);
    let shown: usize = preview.plan.switches.iter().map(|switch| switch.entries.len()).sum();
    let written = crate::lab::written(&controller);
    let done = service.apply_policy(&order(RAISED, None)).await.unwrap();
    settled(&lab, &controller).await;
    assert!((done.applied, done.trial_until_ms) == (true, None), "{done:?}");
    assert_eq!(crate::lab::written(&controller) - written, shown as u64);
    verified(&lab, &controller).await;

    service.rollback_policy(&RollbackPolicyRequest::default()).await.unwrap();
    settled(&lab, &controller).await;
    let before = lab.read_all().await;
    service.apply_policy(&order(EXEMPT, Some(600))).await.unwrap();
    assert!(lab.read_all().await != before);
    service.rollback_policy(&RollbackPolicyRequest::default()).await.unwrap();
    settled(&lab, &controller).await;
    assert!(lab.read_all().await == before, "a trial leaves nothing behind");
    let history =
        service.list_policy_revisions(&ListPolicyRevisionsRequest::default()).await.unwrap();
    let numbers: Vec<_> =
        history.iter().map(|revision_diff| revision_diff.revision.number).collect();
    assert_eq!(numbers, [5, 4, 3, 2, 1]);
    assert_eq!(history[3].revision.metadata.author, "ada");
    assert_eq!(history[3].revision.trial, None);
    controller.shutdown().await;
}

/// Waits until the plan does not depend on what was in force before, and switches hold it.
async fn settled(lab: &Lab, controller: &ControllerHandle) {
    until(async || {
        let is_settled = |state: &State| state.is_settled() && !state.awaits_plan();
        controller.access().query_state(is_settled).await.unwrap()
    })
    .await;
    verified(lab, controller).await;
}

/// An order to change single fields.
fn edit(action: PolicyEditAction, name: &str, value: Option<&str>) -> ApplyPolicyRequest {
    let edit = PolicyEdit { action, name: name.to_owned(), value: value.map(str::to_owned) };
    let change = PreviewPolicyRequest { edits: vec![edit], ..PreviewPolicyRequest::default() };
    ApplyPolicyRequest { change, ..ApplyPolicyRequest::default() }
}

/// Drains at the same time, too, leave what the other changed.
#[tokio::test(flavor = "multi_thread")]
async fn edits_leave_what_they_do_not_name() {
    use PolicyEditAction::{Drain, Set, Undrain};
    let lab = Lab::new().await;
    let (controller, service) = served(&lab, |_| {}).await;
    let fairer = edit(Set, "fairness", Some("0.3"));
    let preview = service.preview_policy(&fairer.change).await.unwrap();
    assert_eq!(preview.policy, ["fairness: 0.0 -> 0.3"]);
    assert_eq!(preview.plan.least_gpu_utilization, None);
    let under_dcqcn = edit(Set, "transport", Some("dcqcn"));
    let preview = service.preview_policy(&under_dcqcn.change).await.unwrap();
    assert_eq!(preview.policy, ["transport: \"max-min\" -> \"dcqcn\""]);
    let least = preview.plan.least_gpu_utilization.unwrap();
    assert!((0.0..=preview.plan.gpu_utilization.after).contains(&least.after), "{least:?}");
    assert!(preview.plan.unchanged.iter().all(|job| job.dcqcn_excess_seconds.is_some()));
    service.apply_policy(&fairer).await.unwrap();
    let drains = ["leaf1-spine2", "leaf2-spine2"].map(|cable| edit(Drain, cable, None));
    let (one, other) =
        tokio::join!(service.apply_policy(&drains[0]), service.apply_policy(&drains[1]));
    assert!(one.unwrap().applied && other.unwrap().applied);
    let policy = service.get_policy().await.unwrap().content.policy;
    let drained: BTreeSet<&str> = policy.drained.iter().map(String::as_str).collect();
    assert_eq!((drained.len(), policy.fairness), (2, 0.3), "{policy:?}");
    let wrong = service.apply_policy(&edit(Undrain, "spine1", None)).await;
    let Err(ServiceError::Refused(findings)) = wrong else { panic!("{wrong:?}") };
    assert!(findings[0].text.contains("drained are: leaf"), "{findings:?}");
    service.apply_policy(&edit(Undrain, "leaf1-spine2", None)).await.unwrap();
    let policy = service.get_policy().await.unwrap().content.policy;
    assert_eq!((&policy.drained[..], policy.fairness), (&["leaf2-spine2".to_owned()][..], 0.3));
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconfirmed_trial_expires_also_after_a_restart() {
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let stored = |raw: &mut RawConfig| raw.store.path = Some(path.clone());
    let (controller, service) = served(&lab, stored).await;
    let done = service.apply_policy(&order(RAISED, Some(1))).await.unwrap();
    assert!(done.applied && done.trial_until_ms.is_some(), "{done:?}");
    assert!(matches!(service.apply_policy(&order("", None)).await, Err(ServiceError::Refused(_))));
    in_force(&controller, &service, 3).await;
    verified(&lab, &controller).await;

    let confirmed = service.apply_policy(&order(RAISED, Some(3_600))).await.unwrap();
    service.confirm_policy(&ConfirmPolicyRequest::default()).await.unwrap();
    assert!(
        service.confirm_policy(&ConfirmPolicyRequest::default()).await.is_err(),
        "nothing is on trial"
    );
    assert_eq!(confirmed.revision, 4);
    let done = service.apply_policy(&order("fairness = 0.5", Some(1))).await.unwrap();
    assert_eq!(done.revision, 5);
    drop(service);
    controller.shutdown().await;

    let (again, service) = served(&lab, stored).await;
    in_force(&again, &service, 6).await;
    let content = service.get_policy().await.unwrap().content;
    assert_eq!(
        content,
        service.list_policy_revisions(&ListPolicyRevisionsRequest::default()).await.unwrap()[2]
            .revision
            .content
    );
    assert_eq!(content.policy.jobs[0].pattern, "b");
    verified(&lab, &again).await;
    again.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_switch_refuses_is_rolled_back() {
    let mut lab = Lab::new().await;
    let hasty = |raw: &mut RawConfig| raw.deadlines.verify_ms = 200;
    let (controller, service) = served(&lab, hasty).await;
    verified(&lab, &controller).await;
    let before = service.get_policy().await.unwrap().content;
    // The switch is gone, and for some seconds it is not yet given up.
    lab.switches.servers.remove(0).shutdown().await;
    let done = service.apply_policy(&order(RAISED, None)).await.unwrap();
    assert!(!done.applied, "{done:?}");
    assert!(done.findings[0].text.contains("leaf1"), "{done:?}");
    let latest = service.get_policy().await.unwrap();
    assert_eq!((latest.content, latest.trial), (before, None));
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_override_expires() {
    let lab = Lab::new().await;
    let (controller, service) = served(&lab, |_| {}).await;
    let level = || {
        let realised = controller.current_rollout().unwrap();
        realised.plan.job(&"b".into()).unwrap().1.level
    };
    let before = level();
    let wanted = TemporaryOverrideRequest {
        rule: OverrideDocument {
            pattern: "job:b".to_owned(),
            level: Some(0),
            ..OverrideDocument::default()
        },
        duration_seconds: 1,
    };
    let order = ApplyPolicyRequest {
        change: PreviewPolicyRequest {
            temporary_override: Some(wanted),
            ..PreviewPolicyRequest::default()
        },
        ..ApplyPolicyRequest::default()
    };
    service.apply_policy(&order).await.unwrap();
    assert_eq!(level(), 0);
    in_force(&controller, &service, 3).await;
    let content = service.get_policy().await.unwrap().content;
    assert!(
        content.temporary_overrides.is_empty()
            && content.validate("policy", 8).unwrap().overrides.is_empty()
    );
    // Hysteresis had left the job there for good.
    until(async || level() == before).await;
    controller.shutdown().await;
}

/// A drain of the last path reported itself complete over running traffic.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_path_is_drained_by_force_alone_and_never_complete() {
    use PolicyEditAction::{Drain, Undrain};
    let lab = Lab::new().await;
    let (controller, service) = served(&lab, |_| {}).await;
    service.apply_policy(&edit(Drain, "spine1", None)).await.unwrap();
    let last = edit(Drain, "spine2", None);
    let refused = service.apply_policy(&last).await.unwrap_err().to_string();
    assert!(refused.contains("1 pair of leaves (leaf1 and leaf2)"), "{refused}");
    assert!(refused.contains("(drained: spine1)") && refused.contains("--force"), "{refused}");
    let previewed = service.preview_policy(&last.change).await.unwrap_err().to_string();
    assert_eq!(previewed, refused);
    let forced = ApplyPolicyRequest { force: true, ..last };
    assert!(service.apply_policy(&forced).await.unwrap().applied);
    verified(&lab, &controller).await;
    let findings = service.list_findings().await.unwrap();
    let kept = findings.iter().find(|one| one.about == "drain of spine1, spine2").unwrap();
    assert!(kept.text.contains("drained and still in use, as the last path of"), "{kept}");
    // A change of policy ends no drain, nor does going back to one without it.
    for text in ["levels = 8\n", "fairness = 0.2\n"] {
        service.apply_policy(&order(text, None)).await.unwrap();
    }
    let first = RollbackPolicyRequest { revision: Some(1), ..RollbackPolicyRequest::default() };
    service.rollback_policy(&first).await.unwrap();
    let content = service.get_policy().await.unwrap().content;
    assert_eq!((&content.policy.drained[..], content.policy.fairness), (&names()[..], 0.0));
    service.apply_policy(&edit(Undrain, "spine1", None)).await.unwrap();
    let refused = service.rollback_policy(&RollbackPolicyRequest::default()).await.unwrap_err();
    assert!(refused.to_string().contains("crux undrain"), "{refused}");
    until(async || {
        let findings = service.list_findings().await.unwrap();
        findings.iter().all(|one| !one.text.contains("still in use"))
    })
    .await;
    controller.shutdown().await;
}

/// One reader with expensive previews kept every drain waiting for minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_behind_previews() {
    let lab = Lab::new().await;
    let few = |raw: &mut RawConfig| {
        raw.northbound.limits.planning_threads = 1;
        raw.northbound.limits.planning_queue = 1;
    };
    let (controller, service) = served(&lab, few).await;
    let costly = wish("search_events = 100000000\nfairness = 0.7\n");
    let previews = (0..16).map(|_| service.preview_policy(&costly));
    let previews = futures::future::join_all(previews);
    let drain = edit(PolicyEditAction::Drain, "spine1", None);
    let drained = async {
        tokio::task::yield_now().await;
        service.apply_policy(&drain).await
    };
    let (previews, drained) = tokio::join!(previews, drained);
    assert!(previews.iter().any(Result::is_err), "the queue was never full");
    assert!(drained.unwrap().applied);
    let beyond = service.preview_policy(&wish("search_events = 100000001\n")).await;
    assert!(beyond.unwrap_err().to_string().contains("search_events: at most 100000000"));
    controller.shutdown().await;
}

fn names() -> [String; 2] {
    ["spine1", "spine2"].map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_document_is_refused_with_its_line() {
    let lab = Lab::new().await;
    let (controller, service) = served(&lab, |_| {}).await;
    let cases = [
        (
            "levels = 8\nfairnes = 1\n",
            "policy.toml:2: fairnes: unknown field `fairnes`; did you mean `fairness`?",
        ),
        ("levels = 8\n\nfairness = 2\n", "policy.toml:3: fairness: 2 is not a number from 0 to 1"),
        (
            "drained = ['leaf1']\n",
            "drained: drains are changed by crux drain and crux undrain alone",
        ),
    ];
    for (text, expected) in cases {
        let refused = service.apply_policy(&order(text, None)).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(service.get_policy().await.unwrap().number, 1);
    controller.shutdown().await;
}

/// Finding H8: a switch that answers bids and refuses what it is asked vetoed every change, also
/// the one that drains it.
#[tokio::test(flavor = "multi_thread")]
async fn a_sick_switch_vetoes_neither_changes_nor_its_drain() {
    let table = "IngressImpl.path".to_owned();
    let refusals = (1..20_000).map(|nth| InjectedFault::RefuseUpdate {
        table: table.clone(),
        nth,
        code: tonic::Code::Internal,
    });
    let lab = Lab::with_faults(FaultScript(refusals.collect())).await;
    let strict = |raw: &mut RawConfig| {
        raw.deadlines.verify_ms = 300;
        raw.deadlines.quarantine_ms = 3_600_000;
    };
    let (controller, service) = served(&lab, strict).await;
    first_leaf(&controller, |line| !line.refusals.is_empty()).await;
    let done = service.apply_policy(&order(RAISED, None)).await.unwrap();
    assert!(!done.applied, "until it is in quarantine, it has a vote: {done:?}");
    let drain = edit(PolicyEditAction::Drain, "spine1", None);
    let done = service.apply_policy(&drain).await.unwrap();
    assert!(done.applied && done.trial_until_ms.is_none(), "{done:?}");
    assert!(done.findings.iter().any(|finding| finding.text.contains("leaf1")), "{done:?}");
    controller.shutdown().await;

    let brief = |raw: &mut RawConfig| raw.deadlines.quarantine_ms = 50;
    let (controller, service) = served(&lab, brief).await;
    until(async || service.list_switches().await.unwrap()[0].quarantined).await;
    let done = service.apply_policy(&order(RAISED, None)).await.unwrap();
    assert!(done.applied && done.trial_until_ms.is_none(), "{done:?}");
    assert!(done.findings.iter().any(|finding| finding.text.contains("without leaf1")), "{done:?}");
    let found = service.list_findings().await.unwrap();
    assert!(found.iter().any(|one| one.about == "leaf1" && one.text.contains("quarantine")));
    controller.shutdown().await;
}
