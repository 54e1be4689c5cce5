//! Other controllers and their programs: who only looks outbids nobody, and a program that is not
//! ours stays, with a cookie or without.

use std::time::Duration;

use controller::config::OtherPrograms;
use controller::discovery::discover_once;
use controller::southbound::arbitration::Mastership;
use controller::southbound::{GrpcNetwork, SwitchTarget, WriteCounts};
use p4::{ForwardingPipeline, codec};
use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use topology::SwitchId;

use crate::intruder::Intruder;
use crate::lab::{Lab, config, eventually, first_leaf, verified};

const LEAF: SwitchId = SwitchId(0);

/// As p4runtime-shell and the P4 tutorials bid.
const LOW: p4rt::Uint128 = p4rt::Uint128 { high: 0, low: 1 };

/// As the controller's own, in a low term.
const HIGH: p4rt::Uint128 = p4rt::Uint128 { high: 3, low: 7 };

const LASTS: Duration = Duration::from_millis(50);

/// A program that has nothing to do with the controller's, with or without a cookie.
fn foreign_program(cookie: Option<u64>) -> p4rt::ForwardingPipelineConfig {
    let program = ForwardingPipeline::new(
        include_str!("../../../../bmv2-testbed/switch/tests/programs/state.p4info.txtpb"),
        include_str!("../../../../bmv2-testbed/switch/tests/programs/state.json"),
    );
    let cookie = cookie.map(|cookie| p4rt::forwarding_pipeline_config::Cookie { cookie });
    p4rt::ForwardingPipelineConfig { cookie, ..codec::encode_pipeline(&program.unwrap()) }
}

/// Another controller of the first leaf, as soon as nobody has its election id.
async fn other_controller(lab: &Lab, election: p4rt::Uint128) -> Intruder {
    let SwitchTarget { address, .. } =
        SwitchTarget::all_in_fabric(&lab.fabric).swap_remove(LEAF.index());
    let (address, device_id) = (address.p4runtime, address.device_id);
    eventually(async || Intruder::with_election(&address, device_id, "", election).await.ok()).await
}

/// What a survey says of the first leaf.
async fn survey(lab: &Lab) -> String {
    let mut short = config(|_| {});
    // How long it waits for a primary to leave.
    short.southbound.rpc_deadline = Duration::from_millis(300);
    let found = discover_once(&GrpcNetwork, &lab.fabric, &short, LASTS).await;
    let leaf = &lab.fabric.switch(LEAF).name;
    let findings = found.findings.iter().filter(|finding| finding.about == *leaf);
    findings.map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn a_survey_leaves_the_program_of_another_controller_alone() {
    for (cookie, election) in [(None, LOW), (None, HIGH), (Some(7), LOW)] {
        let lab = Lab::new().await;
        let mut other = other_controller(&lab, election).await;
        other.push_config(foreign_program(cookie)).await;
        let before = other.program().await;
        assert_eq!(survey(&lab).await, "it runs another program than the controller's");
        assert_eq!(other.program().await, before);
        // Still the primary, who may write.
        other.push_config(foreign_program(cookie)).await;

        // Nor does it matter whether somebody is there to defend it.
        drop(other);
        assert_eq!(survey(&lab).await, "it runs another program than the controller's");
        let other = other_controller(&lab, election).await;
        assert_eq!(other.program().await, before);
    }
}

#[tokio::test]
async fn a_survey_does_not_outbid_a_primary_without_a_program() {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let lab = Lab::with(|_| ServiceOptions { dialect, ..ServiceOptions::default() }).await;
        let mut other = other_controller(&lab, LOW).await;
        let message = survey(&lab).await;
        assert!(message.starts_with("another controller is its primary"), "{dialect:?}: {message}");
        other.push_config(foreign_program(None)).await;
    }
}

#[tokio::test]
async fn after_a_survey_a_controller_can_come_back_with_the_election_id_it_had() {
    for (dialect, election) in [
        (SwitchDialect::Specification, LOW),
        (SwitchDialect::Specification, HIGH),
        (SwitchDialect::Bmv2, LOW),
    ] {
        let lab = Lab::with(|_| ServiceOptions { dialect, ..ServiceOptions::default() }).await;
        drop(other_controller(&lab, election).await);
        assert_eq!(survey(&lab).await, "", "{dialect:?}");
        let mut back = other_controller(&lab, election).await;
        back.push(ForwardingPipeline::embedded_fabric()).await;
    }
}

#[tokio::test]
async fn a_controller_neither_outbids_nor_replaces_a_program_of_another_kind() {
    for cookie in [None, Some(7)] {
        let lab = Lab::new().await;
        let mut other = other_controller(&lab, LOW).await;
        other.push_config(foreign_program(cookie)).await;
        let before = other.program().await;
        let controller = lab.control(|_| {}).await;
        let refused = first_leaf(&controller, |line| line.failures > 2).await;
        let error = refused.last_error.unwrap();
        let expected = "the switch runs a program that is not fabric.p4 (tables: ";
        assert!(error.starts_with(expected) && error.contains("--replace-program"), "{error}");
        assert_eq!(refused.mastership, Mastership::Disconnected, "it never bids");
        assert_eq!(refused.written, WriteCounts::default());
        assert_eq!(other.program().await, before);
        other.push_config(foreign_program(cookie)).await;
        controller.shutdown().await;
    }
}

#[tokio::test]
async fn a_program_of_another_kind_is_replaced_where_the_operator_says_so() {
    let lab = Lab::new().await;
    let mut other = other_controller(&lab, LOW).await;
    other.push_config(foreign_program(None)).await;
    let replacing = lab.control(|raw| raw.reconcile.other_programs = OtherPrograms::Replace).await;
    verified(&lab, &replacing).await;
    replacing.shutdown().await;
}
