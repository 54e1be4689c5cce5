//! Flows that nobody announced, adopted by a rule of the policy while they are on their way.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use controller::northbound::ApiServer;
use controller::northbound::controller_view::{JobRow, JobSource};
use controller::northbound::explanation::ExplainJobResponse;
use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest,
};
use controller::pipelines::fabric::port_level_counts;
use controller::{Config, ControllerHandle, RawConfig, StateEvent};
use p4::entry::EntryKey;
use p4::fabric::{PriorityLevel, table};
use planner::Job;
use topology::{NicId, SwitchId};

use crate::http::ask;
use crate::lab::{Lab, eventually, serve_controller, verified};
use crate::traffic::Busy;

/// The flow of no job: from the first host to the third.
const STRANGER: u16 = 50_004;

const RULE: &str = "[[adopt]]\njob = 'stranger'\nsrc = ['h1']\ndport = 4791\nlevel = 1\n";

/// Applies a policy and waits until all switches hold it.
async fn apply(lab: &Lab, controller: &ControllerHandle, service: &NorthboundService, text: &str) {
    let text = DocumentFile { file: "policy.toml".to_owned(), text: text.to_owned() };
    let wish = PreviewPolicyRequest { policy: Some(text), ..PreviewPolicyRequest::default() };
    let shown = service.preview_policy(&wish).await.unwrap();
    let order = ApplyPolicyRequest { change: wish, ..ApplyPolicyRequest::default() };
    let written = crate::lab::written(controller);
    let done = service.apply_policy(&order).await.unwrap();
    assert!(done.applied, "{done:?}");
    verified(lab, controller).await;
    let entries = shown.plan.switches.iter().map(|switch| switch.entries.len());
    let written = crate::lab::written(controller) - written;
    assert_eq!(entries.sum::<usize>() as u64, written, "a diff shows it");
}

/// The rows of `job_classify` at the first leaf.
fn rows(controller: &ControllerHandle) -> BTreeSet<EntryKey> {
    let desired = controller.desired_tables();
    let rows = desired.tables[&SwitchId(0)].table_entries(table::JOB_CLASSIFY);
    rows.map(|(key, _)| key.clone()).collect()
}

/// Packets of a level that left the second leaf for the third host.
async fn delivered(busy: &Busy, level: u32) -> u64 {
    let target = &controller::southbound::SwitchTarget::all_in_fabric(&busy.lab.fabric)[1];
    let client = busy.lab.client(&target.address).await;
    let counted = port_level_counts(client.read_port_level_cells().await.unwrap());
    let link = busy.lab.fabric.nic(NicId(2)).uplink.reverse();
    let port = busy.lab.fabric.link(link).from.port;
    let at = (p4::fabric::PortNumber::new(port).unwrap(), PriorityLevel::new(level).unwrap());
    counted.get(&at).map_or(0, |count| count.packets)
}

/// Waits until the job is listed, and its flows are counted.
async fn listed(address: SocketAddr, id: &str) -> JobRow {
    eventually(async || {
        let (_, jobs) = ask(address, "/v1/jobs", None).await;
        let mut jobs = serde_json::from_str::<Vec<JobRow>>(&jobs).unwrap().into_iter();
        jobs.find(|job| job.id == id && job.measured_bytes_per_second.is_some())
    })
    .await
}

/// A configuration that counts often and answers as often as it is asked.
fn config() -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    raw.counters.enabled = true;
    raw.counters.interval_ms = 20;
    raw.northbound.requests_per_second = 1_000_000;
    Config::try_from(raw).unwrap()
}

/// A lab under traffic, with jobs for all flows but the last, whose controller is served.
struct Ground {
    busy: Busy,
    controller: ControllerHandle,
    service: NorthboundService,
    server: ApiServer,
}

impl Ground {
    async fn new() -> Self {
        let busy = Busy::new().await;
        let controller = busy.lab.control(|_| {}).await;
        controller.submit_event(busy.jobs(4)).await.unwrap();
        verified(&busy.lab, &controller).await;
        let server = serve_controller(&controller, &config()).await;
        busy.send().await;
        busy.arrive(20).await;
        Self {
            service: NorthboundService::new(controller.access().clone(), &Config::default()),
            busy,
            controller,
            server,
        }
    }

    async fn apply(&self, policy: &str) {
        apply(&self.busy.lab, &self.controller, &self.service, policy).await;
        self.busy.arrive(20).await;
    }

    async fn submit(&self, jobs: Vec<Job>) {
        let jobs = StateEvent::JobsChanged(jobs);
        self.controller.submit_event(jobs).await.unwrap();
        verified(&self.busy.lab, &self.controller).await;
        self.busy.arrive(20).await;
    }

    fn level(&self, job: &str) -> Option<u8> {
        let plan = self.controller.current_rollout().unwrap().plan.clone();
        plan.job(&job.into()).map(|(_, job)| job.level)
    }

    /// Packets that come at the rule's level while twenty of each flow come.
    async fn coming(&self) -> u64 {
        let had = delivered(&self.busy, 1).await;
        self.busy.arrive(20).await;
        delivered(&self.busy, 1).await - had
    }

    async fn end(self) {
        self.busy.settle().await;
        self.server.shutdown().await;
        self.controller.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_of_no_job_are_adopted_by_a_rule_and_counted_until_it_ends() {
    let ground = Ground::new().await;
    let before = rows(&ground.controller);
    assert_eq!(ground.coming().await, 0);
    ground.apply(RULE).await;
    // The rule has a row beside those of pairs.
    let after = rows(&ground.controller);
    assert_eq!((after.difference(&before).count(), before.difference(&after).count()), (1, 0));
    assert!(ground.coming().await >= 10);

    let address = ground.server.local_addr();
    let job = listed(address, "stranger").await;
    assert_eq!((job.source, job.level, job.rank), (JobSource::Rule, 1, 5));
    assert_eq!((job.gpus, job.flows, job.reported), (0, 0, false));
    let rate = job.measured_bytes_per_second.unwrap();
    // 64 bytes a millisecond, of virtual time; that is never ahead of the clock.
    assert!(rate < 70_000.0, "{rate}");
    let (_, why) = ask(address, "/v1/explanations/stranger", None).await;
    let why: ExplainJobResponse = serde_json::from_str(&why).unwrap();
    assert_eq!(why.adopted_traffic, ["h1 > any host, to port 4791"]);
    assert_eq!((why.override_pattern, why.flows.len()), (None, 0));
    let (_, metrics) = ask(address, "/metrics", None).await;
    assert!(metrics.contains("crux_job_measured_bytes_per_second{job=\"stranger\"}"));

    ground.apply("levels = 8\n").await;
    assert_eq!(rows(&ground.controller), before);
    assert_eq!(ground.level("stranger"), None);
    assert_eq!(ground.coming().await, 0);
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_flows_take_precedence_over_adoption_rules() {
    let ground = Ground::new().await;
    ground.apply(RULE).await;
    assert!(ground.coming().await >= 10);
    let StateEvent::JobsChanged(others) = ground.busy.jobs(4) else {
        panic!("jobs change");
    };
    let mut all = others.clone();
    all.push(ground.busy.lab.job("announced", STRANGER));
    ground.submit(all).await;
    assert_ne!(ground.level("announced"), Some(1));
    assert_eq!(ground.level("stranger"), Some(1));
    assert_eq!(ground.coming().await, 0);
    ground.submit(others).await;
    assert!(ground.coming().await >= 10);
    ground.end().await;
}
