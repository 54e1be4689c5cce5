//! Switches with the tables of SAI P4, alone and beside those of `fabric.p4`: what they hold, what
//! a change of a level costs, what becomes of a plan that does not fit, and who is left alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::ControllerHandle;
use controller::liveness::{FabricPart, PartHealth};
use controller::northbound::explanation::ExplainJobResponse;
use controller::southbound::WriteCounts;
use controller::{State, StateEvent};
use p4::sai::{nexthop_port, table};
use p4::{SwitchTables, TableEntry};
use planner::{Flow, Job, JobOverride, Policy};
use switch::{DeviceIndex, EmulatedNetworkBuilder};
use switch_server::p4runtime::election::SwitchDialect;
use switch_server::p4runtime::{AllowedRole, RoleRules, ServiceOptions};
use tokio::time::timeout;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, FabricParts, NicId, PipelineKind, SwitchId, Tier};

use crate::failures::rows;
use crate::http::ask;
use crate::lab::{DEADLINE, Lab, first_leaf, open_config, parts, verified};

const LEAF: Tier = Tier::Leaf;
const SPINE: Tier = Tier::Spine;
const LEAVES: [SwitchId; 2] = [SwitchId(0), SwitchId(1)];

/// The switches of a fabric, of which those of some tiers have SAI P4 and behave like SONiC's.
async fn lab_of(parts: FabricParts, sai: &[Tier]) -> Lab {
    wired_lab(parts, sai, |_, _| {}).await
}

/// The same with the wires and endpoints that `wire` adds.
pub(crate) async fn wired_lab(
    parts: FabricParts,
    sai: &[Tier],
    wire: impl FnOnce(&mut EmulatedNetworkBuilder, &[DeviceIndex]),
) -> Lab {
    let pipelines = sai.iter().map(|tier| (*tier, PipelineKind::Sai)).collect();
    let fabric = Fabric::new(parts).with_pipelines(&pipelines);
    let kinds: Vec<PipelineKind> = fabric.switches().iter().map(|it| it.pipeline).collect();
    // Each program's own role writes, and no other.
    let options = |switch: usize| {
        let (dialect, role) = match kinds[switch] {
            PipelineKind::Fabric => (SwitchDialect::default(), ""),
            PipelineKind::Sai => (SwitchDialect::Pins, "sdn_controller"),
        };
        let roles = RoleRules(vec![AllowedRole { role: role.to_owned(), client: None }]);
        ServiceOptions { dialect, roles, ..ServiceOptions::default() }
    };
    Lab::of_parts(fabric.parts().clone(), options, wire).await
}

/// A job of one flow each way between the first hosts of two leaves, or between the second ones.
pub(crate) fn both_ways(lab: &Lab, name: &str, port: u16) -> Job {
    let pair = usize::from(port % 2);
    let (src, dst) = (NicId::from(pair), NicId::from(pair + 2));
    let job = lab.job(name, port);
    let flow = Flow { src, dst, ..job.flows[0].clone() };
    let back = Flow { src: dst, dst: src, ..flow.clone() };
    Job { flows: vec![flow, back], ..job }
}

/// Waits for the plan of full depth, and until all switches hold it.
pub(crate) async fn settled(lab: &Lab, controller: &ControllerHandle) {
    let planned = async {
        while controller.query_state(State::awaits_plan).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, planned).await.unwrap();
    verified(lab, controller).await;
}

fn writes(controller: &ControllerHandle) -> Vec<WriteCounts> {
    let lines = controller.status_board().all_statuses();
    lines.values().map(|line| line.written).collect()
}

#[tokio::test]
async fn fabrics_of_both_programs_hold_their_tables() {
    for tiers in [&[LEAF, SPINE][..], &[LEAF], &[SPINE]] {
        let lab = lab_of(parts(), tiers).await;
        let controller = lab.control(|raw| raw.discovery.enabled = true).await;
        let jobs = vec![both_ways(&lab, "a", 50_000), both_ways(&lab, "b", 50_001)];
        controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
        settled(&lab, &controller).await;
        let realised = controller.current_rollout().unwrap();
        assert!(realised.plan.flows.iter().all(|flow| flow.pinned), "{tiers:?}");
        assert_eq!(realised.report.findings, [], "{tiers:?}");

        // Those that come back empty are restored, and a controller that starts anew writes
        // nothing.
        lab.switches.servers[0].restart().await.unwrap();
        first_leaf(&controller, |line| line.written.pipelines == 2 && line.verified.is_some())
            .await;
        verified(&lab, &controller).await;
        controller.shutdown().await;
        let again = lab.control(|raw| raw.discovery.enabled = true).await;
        first_leaf(&again, |line| line.verified.is_some()).await;
        assert!(writes(&again).iter().all(|counts| counts.pipelines == 0), "{tiers:?}");
        again.shutdown().await;
    }
}

#[tokio::test]
async fn another_level_of_a_job_is_one_modification_at_each_leaf() {
    let lab = lab_of(parts(), &[LEAF, SPINE]).await;
    let controller = lab.control(|_| {}).await;
    let levels = |of_a: u8| {
        let fixed = [("job:a", of_a), ("job:b", 6)];
        let overrides = fixed.map(|(job, level)| JobOverride::fixing_level(job, Some(level)));
        StateEvent::PolicyChanged(Policy { overrides: overrides.into(), ..Policy::default() })
    };
    let jobs = vec![both_ways(&lab, "a", 50_000), both_ways(&lab, "b", 50_001)];
    controller.submit_event(levels(5)).await.unwrap();
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    settled(&lab, &controller).await;
    let before = writes(&controller);
    controller.submit_event(levels(3)).await.unwrap();
    settled(&lab, &controller).await;
    let plan = controller.current_rollout().unwrap().plan;
    assert_eq!(plan.jobs.iter().map(|job| job.level).collect::<Vec<_>>(), [3, 6]);
    let expected = before.into_iter().enumerate().map(|(switch, counts)| WriteCounts {
        modified: counts.modified + u64::from(switch < LEAVES.len()),
        ..counts
    });
    assert_eq!(writes(&controller), expected.collect::<Vec<_>>());
    controller.shutdown().await;
}

/// The 65th port of a leaf has no VRF, so each of its flows takes a row of the 255.
#[tokio::test]
async fn a_plan_that_does_not_fit_names_its_flows_and_keeps_the_level() {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 65, ..ClosSpec::default() };
    let fabric = clos::build_clos("wide", &spec).unwrap();
    let lab = lab_of(fabric.parts().clone(), &[LEAF, SPINE]).await;
    let served = lab.served(&open_config()).await;
    let mut job = lab.job("many", 50_000);
    let first = Flow { src: NicId(64), dst: NicId(65), ..job.flows[0].clone() };
    let flow = |port: u16| Flow { udp_src_port: Some(50_000 + port), ..first.clone() };
    job.flows = (0..260).map(flow).collect();
    served.controller.submit_event(StateEvent::JobsChanged(vec![job])).await.unwrap();
    settled(&lab, &served.controller).await;

    let realised = served.controller.current_rollout().unwrap();
    assert_eq!(realised.plan.flows.iter().filter(|flow| !flow.pinned).count(), 5);
    let spilled = "h65>h66:50255, h65>h66:50256, h65>h66:50257, h65>h66:50258, h65>h66:50259";
    let expected = format!("warning: leaf1: no room for pins, left to ECMP: {spilled}");
    let mut findings = realised.report.findings.iter().map(ToString::to_string);
    assert!(findings.any(|finding| finding == expected), "{:?}", realised.report.findings);
    // The levels of the job, and of what has none.
    for (table, held) in [(table::ACL_INGRESS, 255), (table::ACL_INGRESS_QOS, 2)] {
        assert_eq!(rows(&served.controller, LEAVES[0], table), held);
    }
    let (_, body) = ask(served.at, "/v1/explanations/h65%3Eh66:50259", None).await;
    let explained: ExplainJobResponse = serde_json::from_str(&body).unwrap();
    assert_eq!(explained.flows[0].no_room_at.as_deref(), Some("leaf1"), "{body}");
    let (_, body) = ask(served.at, "/v1/findings", None).await;
    assert!(body.contains(spilled), "{body}");
    served.end().await;
}

#[tokio::test]
async fn a_failed_cable_is_in_no_group_and_no_pin() {
    let lab = lab_of(parts(), &[LEAF, SPINE]).await;
    let controller = lab.control(|_| {}).await;
    let jobs = (0..4).map(|number| both_ways(&lab, &format!("job{number}"), 50_000 + number));
    controller.submit_event(StateEvent::JobsChanged(jobs.collect())).await.unwrap();
    settled(&lab, &controller).await;
    let cable = lab.fabric.up_links(LEAVES[0])[0];
    let port = lab.fabric.link(cable).from.port;
    let leads_there = |tables: &BTreeMap<SwitchId, Arc<SwitchTables>>| {
        let entries = tables[&LEAVES[0]].iter().map(TableEntry::from);
        let calls = entries.flat_map(|entry| {
            entry.value.action.action_calls().filter_map(nexthop_port).collect::<Vec<_>>()
        });
        calls.filter(|to| *to == port).count()
    };
    assert!(leads_there(&lab.read_all().await) > 0);
    controller.report_health(FabricPart::Cable(cable), PartHealth::Down).await.unwrap();
    crate::failures::desired(&controller, |controller| {
        leads_there(&controller.desired_tables().tables) == 0
    })
    .await;
    settled(&lab, &controller).await;
    assert_eq!(leads_there(&lab.read_all().await), 0);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_switch_whose_document_names_another_program_is_left_alone() {
    let mut lab = Lab::new().await;
    let first = lab.control(|_| {}).await;
    verified(&lab, &first).await;
    first.shutdown().await;
    let (held, right) = (lab.read_all().await, lab.fabric.clone());

    lab.fabric = lab.fabric.with_pipelines(&BTreeMap::from([(LEAF, PipelineKind::Sai)]));
    let second = lab.control(|_| {}).await;
    let line = first_leaf(&second, |line| line.last_error.is_some()).await;
    assert_eq!(
        line.last_error.as_deref(),
        Some(
            "the switch runs the tables of fabric.p4, the fabric document says sai: set \
             `pipeline = \"fabric\"` for it in the fabric document, or restart it without a program"
        )
    );
    assert_eq!((line.written, line.verified), (WriteCounts::default(), None));
    second.shutdown().await;
    lab.fabric = right;
    for leaf in LEAVES {
        assert_eq!(lab.read_all().await[&leaf], held[&leaf]);
    }
}
