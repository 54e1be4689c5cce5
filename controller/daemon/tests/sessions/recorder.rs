//! The flight recorder: a session with faults, recorded, runs again to the same plans and tables;
//! what a crash leaves of a file runs as far as it goes; a difference is told with its step.

use std::path::{Path, PathBuf};

use controller::liveness::{FabricPart, PartHealth};
use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest,
    RollbackPolicyRequest,
};
use controller::recorder::replay::{ReplaySummary, ReplayedLine, replay_recording};
use controller::{ControllerHandle, RawConfig, StateEvent};
use p4::fabric::table;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use tonic::Code;
use topology::{AvailabilityChange, SwitchId};

use crate::failures::{desired, rows};
use crate::lab::{Lab, config, verified};

fn faults() -> FaultScript {
    let refused = InjectedFault::RefuseUpdate {
        table: "IngressImpl.flow_pin".to_owned(),
        nth: 1,
        code: Code::Unavailable,
    };
    FaultScript(vec![refused, InjectedFault::Restart { nth: 6 }])
}

fn order(text: &str, confirm_within: Option<u64>) -> ApplyPolicyRequest {
    ApplyPolicyRequest {
        change: PreviewPolicyRequest {
            policy: Some(DocumentFile { file: "policy.toml".to_owned(), text: text.to_owned() }),
            ..PreviewPolicyRequest::default()
        },
        author: "ada".to_owned(),
        confirm_within_seconds: confirm_within,
        ..ApplyPolicyRequest::default()
    }
}

/// Jobs come and go, a cable and a spine fail, policies are tried, taken back and refused.
async fn session(folder: &Path, file_bytes: u64) {
    let lab = Lab::with_faults(faults()).await;
    let recorded = |raw: &mut RawConfig| {
        raw.recorder.folder = Some(folder.to_owned());
        raw.recorder.file_bytes = file_bytes;
        raw.recorder.files = 100;
        raw.liveness.hold_down_ms = 1;
        raw.liveness.hold_down_longest_ms = 1;
    };
    let controller = lab.control(recorded).await;
    let service = NorthboundService::new(controller.access().clone(), &config(recorded));
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&lab, &controller).await;

    let cable = FabricPart::Cable(lab.fabric.up_links(SwitchId(0))[0]);
    controller.report_health(cable, PartHealth::Down).await.unwrap();
    service.apply_policy(&order("[[job]]\nmatch = 'b'\nlevel = 0\n", Some(600))).await.unwrap();
    controller.report_health(cable, PartHealth::Up).await.unwrap();
    service.rollback_policy(&RollbackPolicyRequest::default()).await.unwrap();
    let spine = lab.fabric.switches_of_tier(topology::Tier::Spine).next().unwrap();
    for change in [AvailabilityChange::SwitchDown(spine), AvailabilityChange::SwitchUp(spine)] {
        let event = StateEvent::FabricChanged(vec![change]);
        controller.submit_event(event).await.unwrap();
    }
    let nowhere = StateEvent::FabricChanged(vec![AvailabilityChange::SwitchDown(SwitchId(99))]);
    controller.submit_event(nowhere).await.unwrap();
    let jobs = vec![lab.job("b", 50_001), lab.job("c", 50_002)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    // With one cable left there is nothing to pin, and the other is up only after its hold-down.
    let is_pinned =
        |controller: &ControllerHandle| rows(controller, SwitchId(0), table::FLOW_PIN) > 0;
    desired(&controller, is_pinned).await;
    verified(&lab, &controller).await;
    assert!(is_pinned(&controller));
    controller.shutdown().await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn run(mut text: &[u8]) -> (ReplaySummary, Vec<ReplayedLine>) {
    let mut happened = Vec::new();
    let replayed = replay_recording(&mut text, &mut |one| happened.push(one.clone()));
    (replayed.unwrap(), happened)
}

fn differences(happened: &[ReplayedLine]) -> Vec<&ReplayedLine> {
    let differs = |one: &&ReplayedLine| !one.differences.is_empty();
    happened.iter().filter(differs).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_faults_runs_again_to_the_same_plans() {
    let folder = tempfile::tempdir().unwrap();
    session(folder.path(), 1 << 30).await;
    let file = files(folder.path()).pop().unwrap();
    let text = std::fs::read(file).unwrap();
    let (replayed, happened) = run(&text);
    assert_eq!(differences(&happened), Vec::<&ReplayedLine>::new());
    assert!(!replayed.is_cut && replayed.plans >= 5, "{replayed:?}");
    assert!(replayed.published >= 5, "{replayed:?}");
    let is_recorded = |what: &str| happened.iter().any(|one| one.title.contains(what));
    assert!(
        is_recorded("LinkDown") && is_recorded("refused") && is_recorded("rolled back"),
        "{happened:#?}"
    );
    assert!(is_recorded("leaf1 holds"), "{happened:#?}");

    // What a crash leaves is a prefix, at whatever byte.
    let first = text.iter().position(|byte| *byte == b'\n').unwrap();
    for cut in (first + 1..text.len()).step_by(text.len() / 23) {
        let (replayed, happened) = run(&text[..cut]);
        assert_eq!(differences(&happened), Vec::<&ReplayedLine>::new(), "cut at {cut}");
        let is_line = text[cut - 1] == b'\n';
        assert_eq!(replayed.is_cut, !is_line, "cut at {cut}");
    }
    assert!(replay_recording(&mut &text[..first], &mut |_| {}).is_err());

    // Another input leads elsewhere, and that is told with its step.
    let text = String::from_utf8(text).unwrap();
    let (replayed, happened) = run(text.replace("50001", "50017").as_bytes());
    let first = differences(&happened)[0];
    assert!(replayed.differing > 0 && first.step > 1, "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_of_a_ring_runs_alone() {
    let folder = tempfile::tempdir().unwrap();
    session(folder.path(), 4_096).await;
    let files = files(folder.path());
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        let (_, happened) = run(&std::fs::read(&file).unwrap());
        assert_eq!(differences(&happened), Vec::<&ReplayedLine>::new(), "{file:?}");
    }
}
