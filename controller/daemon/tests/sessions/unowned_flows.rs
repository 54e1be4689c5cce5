//! Connections of no job: switches count them by pairs of NICs, so that the list has first what
//! sends the most, and a rule gives them to a job. Counting changes no packet.

use std::time::Instant;

use controller::StateEvent;
use controller::northbound::{self, learned_flow::LearnedFlowRow};
use planner::{AdoptionRule, Policy};
use topology::SwitchId;

use crate::http::ask;
use crate::lab::{Lab, open_config, serve_controller, until, verified};
use crate::learned_flows::{difference, lab, send};
use crate::unannounced_ports::{learning_controller, packets_of, random_port};

/// A job between the first and the third host.
const JOBS: &str = r#"{ "jobs": [
  { "id": "gpt", "gpus": { "h1": 8, "h3": 8 }, "flop_per_iteration": 1e15, "compute_seconds": 0.1,
    "collective": { "kind": "ring_all_reduce", "bytes": 4e9 } } ] }"#;
/// Senders and receivers of no job, and packets of each in a round. The first sender has a job.
const STRANGERS: [(u32, u32, usize); 3] = [(0, 3, 2), (1, 2, 1), (1, 3, 5)];

/// Sender and receiver of the listed flows, with what is known of each.
async fn listed(server: &northbound::ApiServer) -> Vec<(String, String, LearnedFlowRow)> {
    let (_, rows) = ask(server.local_addr(), "/v1/learned-flows", None).await;
    let rows: Vec<LearnedFlowRow> = serde_json::from_str(&rows).unwrap();
    let named = rows.into_iter().map(|row| {
        let ends = [&row.src_nic, &row.dst_nic].map(|nic| nic.clone().unwrap());
        let [src, dst] = ends;
        (src, dst, row)
    });
    named.collect()
}

/// A packet of no job for each unit of [`STRANGERS`].
fn strangers() -> Vec<(u32, u32, u16)> {
    let flows =
        STRANGERS.iter().map(|(src, dst, packets)| vec![(*src, *dst, random_port(*dst)); *packets]);
    flows.collect::<Vec<_>>().concat()
}

/// Sends until the list is as `is_as_wanted`; how many packets that took.
async fn send_until(
    lab: &Lab,
    server: &northbound::ApiServer,
    is_as_wanted: impl Fn(&[(String, String, LearnedFlowRow)]) -> bool,
) -> u64 {
    let mut sent = 0;
    until(async || {
        send(lab, strangers()).await;
        sent += strangers().len() as u64;
        is_as_wanted(&listed(server).await)
    })
    .await;
    sent
}

/// RoCEv2 of the second host, for a job that nobody has announced.
fn adopting_policy() -> Policy {
    let rule = AdoptionRule {
        job: "checkpoints".into(),
        tenant: None,
        level: Some(2),
        src: vec!["h2".to_owned()],
        dst: Vec::new(),
        sport: None,
        dport: Some(4_791),
    };
    Policy { adopt: vec![rule], reserved_levels: [0].into(), ..Policy::default() }
}

#[tokio::test]
async fn flows_of_no_job_are_listed_by_their_bytes_until_a_rule_adopts_them() {
    let lab = lab().await;
    let controller = learning_controller(&lab, JOBS, |raw| {
        (raw.refresh_ms, raw.expire_ms) = (200, 60_000);
    })
    .await;
    let server = serve_controller(&controller, &open_config()).await;
    let (started, before) = (Instant::now(), packets_of(&lab, SwitchId(0)).await);
    let is_counted = |row: &LearnedFlowRow| row.pair_bytes.is_some_and(|bytes| bytes > 0);
    let mut sent = send_until(&lab, &server, |rows| {
        rows.len() == STRANGERS.len() && rows.iter().all(|(.., row)| is_counted(row))
    })
    .await;
    println!("counted {:?} after the first packet", started.elapsed());
    sent += send_until(&lab, &server, |rows| {
        let ends: Vec<_> = rows.iter().map(|(src, dst, _)| format!("{src}>{dst}")).collect();
        ends == ["h2:0>h4:0", "h1:0>h4:0", "h2:0>h3:0"]
    })
    .await;

    // Packets have the level that they would have without: that of the only job of their sender,
    // or 0.
    let plan = controller.current_rollout().unwrap().plan;
    let levels = difference(packets_of(&lab, SwitchId(0)).await, &before);
    assert!(levels.iter().all(|(_, level, _)| [0, plan.jobs[0].level].contains(level)));
    let of_second = levels.iter().filter(|(_, level, _)| *level == 0).map(|(.., count)| count);
    assert!(of_second.sum::<u64>() >= sent * 6 / 8, "{levels:?} of {sent}");

    controller.submit_event(StateEvent::PolicyChanged(adopting_policy())).await.unwrap();
    verified(&lab, &controller).await;
    let rows = listed(&server).await;
    let owners: Vec<_> = rows.iter().map(|(src, _, row)| (&src[..], row.job.as_deref())).collect();
    let of_rule = ("h2:0", Some("checkpoints"));
    assert_eq!(owners, [("h1:0", None), of_rule, of_rule]);
    assert!(rows.iter().all(|(.., row)| row.adopted == row.job.is_some()));
    let (_, findings) = ask(server.local_addr(), "/v1/findings", None).await;
    assert!(findings.contains("1 RoCEv2 flows belong to no job"), "{findings}");
    server.shutdown().await;
    controller.shutdown().await;
}
