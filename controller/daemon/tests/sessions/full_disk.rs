//! A controller whose disk is full: what cannot be stored is not in force, drains and rollbacks
//! are, and each answer is true.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use controller::config::{EtcdConfig, SouthboundConfig};
use controller::etcd::{ClusterNetwork, EtcdClient, EtcdError};
use controller::host_machine::HostMachine;
use controller::northbound::service::{
    ApplyFabricRequest, ApplyPolicyRequest, ConfirmPolicyRequest, NorthboundService,
    PolicyChangeResponse, PreviewPolicyRequest, RollbackPolicyRequest, ServiceError,
};
use controller::southbound::connection::{
    Computation, ComputationPanicked, SwitchConnection, SwitchNetwork,
};
use controller::southbound::{ClientError, GrpcNetwork, SwitchAddress};
use controller::store::{EmbeddedStore, StorageBackend, StoreError};
use controller::{Controller, ControllerHandle, RawConfig, StateEvent};
use planner::{Policy, PolicyEdit, PolicyEditAction};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::sync::watch;
use topology::spec::explicit_document;

use crate::lab::{Lab, config, open_config, serve_controller, until};
use crate::live_fabric::{file, without};

/// A disk that may be full. It outlives the runs of its controller, of which the latest writes.
#[derive(Clone, Debug, Default)]
struct Disk {
    content: Arc<Mutex<DiskContent>>,
    run: u64,
}

#[derive(Debug, Default)]
struct DiskContent {
    bytes: Vec<u8>,
    is_full: bool,
    run: u64,
}

impl Disk {
    fn fill(&self, is_full: bool) {
        self.content.lock().unwrap().is_full = is_full;
    }

    /// The disk for another run; earlier ones cannot write any more.
    fn mount(&self) -> Self {
        let mut content = self.content.lock().unwrap();
        content.run += 1;
        Self { content: Arc::clone(&self.content), run: content.run }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut content = self.content.lock().unwrap();
        if content.is_full || content.run != self.run {
            return Err(io::Error::from_raw_os_error(28));
        }
        change(&mut content.bytes);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.content.lock().unwrap();
        let from = offset as usize;
        let bytes = content.bytes.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.resize(len as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = offset as usize;
        self.change(|bytes| bytes[from..from + data.len()].copy_from_slice(data))
    }
}

/// A machine with such a disk, whose computations begin only while it lets them.
#[derive(Clone)]
struct Machine {
    disk: Disk,
    /// Where the audit trail is, which is not on that disk.
    folder: Arc<TempDir>,
    computes: watch::Sender<bool>,
}

#[async_trait]
impl SwitchNetwork for Machine {
    async fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Box<dyn SwitchConnection>, ClientError> {
        GrpcNetwork.connect_switch(address, limits).await
    }

    async fn run_blocking(&self, work: Computation) -> Result<(), ComputationPanicked> {
        let mut computes = self.computes.subscribe();
        computes.wait_for(|computes| *computes).await.map_err(|_| ComputationPanicked)?;
        GrpcNetwork.run_blocking(work).await
    }
}

impl ClusterNetwork for Machine {
    type Store = EtcdClient;

    async fn connect_store(
        &self,
        server: &str,
        etcd: &EtcdConfig,
    ) -> Result<EtcdClient, EtcdError> {
        GrpcNetwork.connect_store(server, etcd).await
    }
}

impl HostMachine for Machine {
    fn open_store(&self, _: &Path) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::open_backend(self.disk.mount())
    }
}

impl Machine {
    fn new() -> Self {
        let folder = Arc::new(TempDir::new().unwrap());
        Self { disk: Disk::default(), folder, computes: watch::Sender::new(true) }
    }

    /// The next run of the controller, and its service.
    async fn start(&self, lab: &Lab) -> (ControllerHandle, NorthboundService) {
        let store = self.folder.path().join("disk");
        let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
        let fabric = lab.fabric.clone();
        let started =
            Controller::start_on(self.clone(), config(stored), fabric, Policy::default()).await;
        let controller = started.unwrap();
        let service = NorthboundService::new(controller.access().clone(), &config(stored));
        (controller, service)
    }
}

fn edit(action: PolicyEditAction, name: &str, value: Option<&str>) -> ApplyPolicyRequest {
    let edit = PolicyEdit { action, name: name.to_owned(), value: value.map(str::to_owned) };
    let change = PreviewPolicyRequest { edits: vec![edit], ..PreviewPolicyRequest::default() };
    ApplyPolicyRequest { change, author: "ada".to_owned(), ..ApplyPolicyRequest::default() }
}

fn fairness(value: &str) -> ApplyPolicyRequest {
    edit(PolicyEditAction::Set, "fairness", Some(value))
}

fn drain(part: &str) -> ApplyPolicyRequest {
    edit(PolicyEditAction::Drain, part, None)
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ServiceError>) -> String {
    match answer {
        Err(ServiceError::Refused(findings)) => findings[0].text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Whether the answer says that a restart loses what it is about.
fn is_unstored(done: &PolicyChangeResponse) -> bool {
    done.findings.iter().any(|finding| finding.text.starts_with("in force, but not stored"))
}

async fn in_force(service: &NorthboundService) -> (f64, Vec<String>) {
    let policy = service.get_policy().await.unwrap().content.policy;
    (policy.fairness, policy.drained)
}

async fn has_alarm(service: &NorthboundService) -> bool {
    let findings = service.list_findings().await.unwrap();
    findings.iter().any(|finding| finding.text.starts_with("the store cannot be written"))
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_refused_and_drains_and_rollbacks_go_on() {
    let (lab, machine) = (Lab::new().await, Machine::new());
    let (controller, service) = machine.start(&lab).await;
    service.apply_policy(&fairness("0.25")).await.unwrap();
    service.apply_policy(&fairness("0.5")).await.unwrap();
    assert!(!has_alarm(&service).await);

    machine.disk.fill(true);
    let refused = refusal(service.apply_policy(&fairness("0.75")).await);
    assert!(refused.contains("nothing is changed") && refused.contains("No space"), "{refused}");
    assert_eq!(in_force(&service).await, (0.5, Vec::new()));
    assert!(has_alarm(&service).await);
    let jobs = controller.submit_event(StateEvent::JobsChanged(vec![lab.job("a", 50_000)])).await;
    assert!(jobs.unwrap().refusal.is_some());
    assert!(service.list_jobs().await.unwrap().is_empty());
    let fabric = ApplyFabricRequest {
        fabric: file(&without(&lab.fabric, &["h4"])),
        author: "ada".to_owned(),
        ..ApplyFabricRequest::default()
    };
    assert!(refusal(service.apply_fabric(&fabric).await).contains("nothing is changed"));
    assert_eq!(service.get_fabric().await.unwrap(), explicit_document(&lab.fabric));

    let drained = service.apply_policy(&drain("spine1")).await.unwrap();
    assert!(drained.applied && is_unstored(&drained), "{drained:?}");
    let back = RollbackPolicyRequest { revision: Some(2), ..RollbackPolicyRequest::default() };
    let back = service.rollback_policy(&back).await.unwrap();
    assert!(back.applied && is_unstored(&back), "{back:?}");
    let undrain = edit(PolicyEditAction::Undrain, "spine1", None);
    assert!(is_unstored(&service.apply_policy(&undrain).await.unwrap()));
    let drained = service.apply_policy(&drain("spine2")).await.unwrap();
    assert!(drained.applied && is_unstored(&drained), "{drained:?}");
    assert_eq!(in_force(&service).await, (0.25, vec!["spine2".to_owned()]));
    let server = serve_controller(&controller, &open_config()).await;
    let metrics = crate::http::ask(server.local_addr(), "/metrics", None).await.1;
    assert!(metrics.contains("crux_store_writable 0\n"), "{metrics}");
    server.shutdown().await;

    // The alarm ends by itself, and everything in force is stored.
    machine.disk.fill(false);
    until(async || !has_alarm(&service).await).await;
    let stored = service.apply_policy(&fairness("0.75")).await.unwrap();
    assert!(stored.applied && !is_unstored(&stored), "{stored:?}");
    drop((controller, service));
    let (controller, service) = machine.start(&lab).await;
    assert_eq!(in_force(&service).await, (0.75, vec!["spine2".to_owned()]));
    controller.shutdown().await;
}

/// The answer was "nothing is changed", and the change was in force for half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_trial_that_cannot_be_confirmed_is_taken_back() {
    let (lab, machine) = (Lab::new().await, Machine::new());
    let (controller, service) = machine.start(&lab).await;
    machine.computes.send_replace(false);
    let (asked, order) = (service.clone(), fairness("0.5"));
    let applying = tokio::spawn(async move { asked.apply_policy(&order).await });
    until(async || service.get_policy().await.unwrap().trial.is_some()).await;
    machine.disk.fill(true);
    machine.computes.send_replace(true);
    let done = applying.await.unwrap().unwrap();
    assert!(!done.applied && done.findings[0].text.contains("could not be stored"), "{done:?}");
    assert_eq!(in_force(&service).await, (0.0, Vec::new()));
    drop((controller, service));

    machine.disk.fill(false);
    let (controller, service) = machine.start(&lab).await;
    assert_eq!(in_force(&service).await, (0.0, Vec::new()));
    let order = ApplyPolicyRequest { confirm_within_seconds: Some(3_600), ..fairness("0.5") };
    assert!(service.apply_policy(&order).await.unwrap().applied);
    machine.disk.fill(true);
    for _ in 0..2 {
        refusal(service.confirm_policy(&ConfirmPolicyRequest::default()).await);
        assert!(service.get_policy().await.unwrap().trial.is_some());
    }
    let done = service.rollback_policy(&RollbackPolicyRequest::default()).await.unwrap();
    assert!(is_unstored(&done), "{done:?}");
    assert_eq!(in_force(&service).await, (0.0, Vec::new()));
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_full_disk_serves_reads_and_drains() {
    let (lab, machine) = (Lab::new().await, Machine::new());
    let (controller, service) = machine.start(&lab).await;
    service.apply_policy(&fairness("0.5")).await.unwrap();
    drop((controller, service));

    machine.disk.fill(true);
    let (controller, service) = machine.start(&lab).await;
    assert!(has_alarm(&service).await);
    assert_eq!(in_force(&service).await, (0.5, Vec::new()));
    refusal(service.apply_policy(&fairness("0.75")).await);
    let drained = service.apply_policy(&drain("spine1")).await.unwrap();
    assert!(drained.applied && is_unstored(&drained), "{drained:?}");
    machine.disk.fill(false);
    until(async || !has_alarm(&service).await).await;
    let generation = controller.desired_tables().generation;
    drop((controller, service));
    let (controller, service) = machine.start(&lab).await;
    assert_eq!(in_force(&service).await, (0.5, vec!["spine1".to_owned()]));
    assert!(controller.desired_tables().generation > generation);
    controller.shutdown().await;
}

/// A controller is killed between and after changes while its disk fills up and has room again. What
/// is in force is what the latest answers say; after a kill, what was stored by the answers is there.
/// `CRUX_FULL_DISK_KILLS` says how many kills.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_belied_by_kills_at_a_full_disk() {
    let (lab, machine) = (Lab::new().await, Machine::new());
    let mut random = ChaCha8Rng::seed_from_u64(51);
    let (mut controller, mut service) = machine.start(&lab).await;
    let mut now = (0.0, Vec::new());
    let mut stored = now.clone();
    let (mut kills, mut refused, mut unstored) = (0, 0, 0);
    let wanted_kills = std::env::var("CRUX_FULL_DISK_KILLS").ok();
    let wanted_kills = wanted_kills.map_or(20, |text| text.parse().expect("a number"));
    for step in 0_u32.. {
        if kills == wanted_kills {
            break;
        }
        machine.disk.fill(random.random());
        let mut wanted = now.clone();
        let order = if random.random() {
            wanted.0 = f64::from(step % 63 + 1) / 64.0;
            fairness(&wanted.0.to_string())
        } else if wanted.1.is_empty() {
            wanted.1 = vec!["spine1".to_owned()];
            drain("spine1")
        } else {
            wanted.1.clear();
            edit(PolicyEditAction::Undrain, "spine1", None)
        };
        match service.apply_policy(&order).await {
            Ok(done) => {
                assert!(done.applied, "{done:?}");
                now = wanted;
                match is_unstored(&done) {
                    true => unstored += 1,
                    false => stored = now.clone(),
                }
            }
            Err(_) => refused += 1,
        }
        assert_eq!(in_force(&service).await, now, "step {step}");
        if random.random_ratio(1, 3) {
            kills += 1;
            drop((controller, service));
            (controller, service) = machine.start(&lab).await;
            let found = in_force(&service).await;
            assert!(found == stored || found == now, "step {step}: {found:?}");
            (now, stored) = (found.clone(), found);
        }
    }
    println!("{kills} kills, {refused} changes refused, {unstored} in force and not stored");
    assert!(kills > 10 && refused > 5 && unstored > 5, "{kills} {refused} {unstored}");
    controller.shutdown().await;
}
