//! What the running controller stores, and when.
//!
//! [`store`](crate::store) writes; this module decides what to write. Two decisions. Generations are
//! reserved in blocks: the repair of a failure takes milliseconds and must not wait for a disk, and
//! after a crash the next generation must still be one that no switch holds. And a store that cannot
//! be written raises an alarm, as an etcd without space does: it is tried again every few seconds,
//! and the first write that succeeds ends the alarm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use planner::{Job, JobsDocument, Policy, PolicyDocument};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use topology::spec::{self, FabricDocument, LinkDocument, explicit_document};
use topology::{Fabric, Finding, error_chain};

use crate::config::Config;
use crate::etcd::StoreClient;
use crate::fabric_history::{FabricHistory, file_signature};
use crate::host_machine::HostMachine;
use crate::policy_history::{PolicyHistory, PolicyRevision, UnixMs};
use crate::standing_findings::StandingFindings;
use crate::state::{ReportedJobs, StartingState, State, StateEvent};
use crate::store::{
    EmbeddedStore, GENERATION_BLOCK, STORE_ALARM, StoreError, StoreRecord, StoredPlan, StoredState,
};

/// How long after a failed write the records in force are stored again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The name of stored documents of jobs in errors.
const STORED_JOBS: &str = "the stored jobs";

/// Where changes are stored.
#[derive(Clone, Debug, Default)]
enum StoreBackend {
    /// Nothing is stored.
    #[default]
    Disabled,
    /// In a file of this controller.
    File(Arc<EmbeddedStore>),
    /// In etcd, shared by all controllers; only the leader writes.
    Cluster(StoreClient),
}

/// The store, with a copy of its content.
#[derive(Debug, Default)]
pub(super) struct StateArchive {
    backend: StoreBackend,
    stored: StoredState,
    /// Earlier runs may have used the generations up to this one.
    used_generation: u64,
    /// The plan that the last run had in force.
    last_plan: Option<StoredPlan>,
    /// Policy revisions that were stored at the start.
    revisions: Vec<PolicyRevision>,
    /// When to store the records in force again; none while everything is stored.
    retry_at: Option<Instant>,
    /// Whether the fabric is learned by discovery, so that it must be stored.
    learns_fabric: bool,
    /// What the store had lost when it was opened.
    lost_progress: Option<String>,
    /// Whether the policy in force is one that could not be stored.
    lacks_policy: bool,
    /// Where the alarm is raised.
    findings: StandingFindings,
}

impl StateArchive {
    /// Opens the store and takes a new term and an unused block of generations. Where the disk is
    /// full, both are stored as soon as it has room: a controller that does not start drains nothing.
    pub(super) fn open(
        config: &Config,
        machine: &impl HostMachine,
        findings: StandingFindings,
    ) -> Result<Self, StoreError> {
        let learns_fabric = config.discovery.assumptions.is_some();
        let Some(path) = &config.store else {
            return Ok(Self { learns_fabric, findings, ..Self::default() });
        };
        let store = machine.open_store(path)?;
        // Both are on the disk before the first session starts: a run that crashes must not leave
        // its term or its generations to the next.
        let lost_progress = store.lost_progress()?;
        let mut stored = store.read_state()?;
        let used_generation = stored.generation;
        // The mark beside the store remembers the highest term, so a store that was restored from a
        // backup does not repeat one.
        stored.term = config.term.max(store.highest_term()? + 1);
        stored.generation += GENERATION_BLOCK;
        let numbers = [StoreRecord::Term(stored.term), StoreRecord::Generation(stored.generation)];
        let written = match store.write_records(&numbers) {
            Err(error) if !error.is_of_disk() => return Err(error),
            written => written.map_err(|error| error_chain(&error)),
        };
        let mut archive = Self {
            last_plan: store.read_plan()?,
            revisions: store.policy_revisions()?,
            backend: StoreBackend::File(Arc::new(store)),
            stored,
            used_generation,
            learns_fabric,
            lost_progress,
            findings,
            ..Self::default()
        };
        archive.note_outcome(&written);
        Ok(archive)
    }

    /// The store of this controller, if it has one.
    pub(super) fn embedded_store(&self) -> Option<Arc<EmbeddedStore>> {
        match &self.backend {
            StoreBackend::File(store) => Some(Arc::clone(store)),
            StoreBackend::Disabled | StoreBackend::Cluster(_) => None,
        }
    }

    /// Stores with this client from now on; without one, another controller stores. The content of
    /// the store counts as unknown.
    pub(super) fn use_cluster_store(&mut self, client: Option<StoreClient>) {
        self.backend = client.map_or(StoreBackend::Disabled, StoreBackend::Cluster);
        // Another leader may have replaced every record since this member last read it.
        (self.stored, self.retry_at) = (StoredState::default(), None);
    }

    /// Takes over what another controller has stored; the records that differ.
    pub(super) fn adopt_stored(&mut self, stored: StoredState) -> Vec<StoreRecord> {
        let records = stored.document_records();
        let changed = records.filter(|record| !self.stored.holds_record(record)).collect();
        self.stored = stored;
        changed
    }

    /// The records of kinds that the store does not have at all.
    pub(super) fn missing_records(
        &self,
        records: [StoreRecord; 3],
    ) -> impl Iterator<Item = StoreRecord> + use<> {
        let StoredState { policy, jobs, reported_jobs: reported, .. } = &self.stored;
        let has = [policy.is_some(), jobs.is_some(), reported.is_some()];
        let pairs = records.into_iter().zip(has);
        pairs.filter(|(_, has)| !has).map(|(record, _)| record)
    }

    /// The first term to bid in: that of the store, at least the configured `first`.
    pub(super) fn first_term(&self, first: u64) -> u64 {
        self.stored.term.max(first)
    }

    /// The finding that the store is older than it once was, if so.
    pub(super) fn loss_finding(&self) -> Option<Finding> {
        let lost = self.lost_progress.as_ref()?;
        let text = format!(
            "the store was damaged or is a backup, and has {lost}; check the policy in force \
             (crux policy show, crux policy history)"
        );
        Some(Finding::error("store", text))
    }

    /// The last generation of earlier runs; new ones follow it.
    pub(super) fn used_generation(&self) -> u64 {
        self.used_generation
    }

    /// The stored fabric of these switches, with the addresses of `inventory`. None if discovery
    /// found nothing beyond the inventory.
    pub(super) fn learned_fabric(&self, inventory: &Fabric) -> Result<Option<Fabric>, String> {
        self.merge_learned(&spec::explicit_document(inventory), FabricDocument::clone)
    }

    /// The fabric at a start with this document, whose cables are cables whatever was found at their
    /// ports: an operator says so.
    pub(super) fn starting_fabric(&self, document: &Fabric) -> Result<Option<Fabric>, String> {
        let known = spec::explicit_document(document);
        self.merge_learned(&known, |found| with_documented_cables(found, &known))
    }

    fn merge_learned(
        &self,
        known: &FabricDocument,
        correct: impl Fn(&FabricDocument) -> FabricDocument,
    ) -> Result<Option<Fabric>, String> {
        let Some(found) = self.stored.fabric.as_ref().filter(|_| self.learns_fabric) else {
            return Ok(None);
        };
        let whole = merge_inventory(known, &correct(found))?;
        let fabric = Fabric::try_from(&whole).map_err(|error| error.to_string())?;
        Ok(Some(fabric).filter(|_| whole != *known))
    }

    /// The history of the fabric at a start with this one; empty where discovery finds it.
    pub(super) fn fabric_history(&self, fabric: &Fabric, now: UnixMs) -> FabricHistory {
        if self.learns_fabric {
            return FabricHistory::default();
        }
        let (file, signature) = (explicit_document(fabric), file_signature(now));
        match &self.stored.fabric_history {
            Some(stored) => stored.clone().continue_with_file(file, signature),
            None => FabricHistory::from_file(file, signature),
        }
    }

    /// The history of the fabric that is stored, if it is not found by discovery.
    pub(super) fn stored_fabric_history(&self) -> Option<&FabricHistory> {
        self.stored.fabric_history.as_ref().filter(|_| !self.learns_fabric)
    }

    /// `fabric` with the parts that were out of order in the last run, until they are seen to work.
    pub(super) fn with_last_failures(&self, fabric: &Fabric) -> Fabric {
        let failures = self.last_plan.iter().flat_map(|plan| plan.failures_on(fabric));
        fabric.with_changes(failures)
    }

    /// The event that restores policy (or `first` if none is stored), jobs and plan of the last
    /// run. What no longer fits the fabric is left out, with a finding.
    pub(super) fn starting_event(
        &self,
        fabric: Fabric,
        first: &Policy,
        now: UnixMs,
    ) -> (StateEvent, Vec<Finding>) {
        let mut findings = Vec::new();
        let mut start = StartingState {
            fabric,
            history: PolicyHistory::new(PolicyRevision::from_initial_policy(first), []),
            jobs: Vec::new(),
            reported_jobs: ReportedJobs::default(),
            decisions: None,
        };
        if let Some(plan) = &self.last_plan {
            let (plan, basis, lost) = plan.restore_on(&start.fabric);
            findings.extend(lost);
            start.decisions = Some((Arc::new(plan), basis));
        }
        for record in self.stored.document_records() {
            match event_from_record(&record, &start.fabric, &mut findings) {
                Some(StateEvent::RevisionStored(stored)) => {
                    let latest = stored.number;
                    let earlier = self.revisions.iter().filter(|one| one.number < latest);
                    let effective = stored.effective_at(now);
                    findings.extend(expiry_finding(latest, &effective));
                    start.history = PolicyHistory::new(effective, earlier.cloned());
                }
                Some(StateEvent::JobsChanged(stored)) => start.jobs = stored,
                Some(StateEvent::JobsReported(stored)) => start.reported_jobs = stored,
                _ => {}
            }
        }
        (StateEvent::Started(Box::new(start)), findings)
    }

    /// The event that continues on another fabric: the policy in force, and the jobs, stored or in
    /// force, whose hosts exist there. The other jobs stay in the store until their hosts appear.
    pub(super) fn event_on_fabric(&self, fabric: Fabric, state: &State, now: UnixMs) -> StateEvent {
        let mut history = state.policy_history().clone();
        history.end_drains_without(|part| has_drainable(&fabric, part), now);
        let reported = ReportedJobs {
            profiled: state.reported_jobs().profiled.clone(),
            distrusted: state.reported_jobs().distrusted.clone(),
            ..ReportedJobs::default()
        };
        let mut start = StartingState {
            fabric,
            history,
            jobs: Vec::new(),
            reported_jobs: reported,
            decisions: None,
        };
        // Their hosts may appear later, as while a fabric is being discovered.
        let mut unfit = Vec::new();
        let in_force = state.stored_records().into_iter();
        // Stored records come last, so they win: those in force already lack jobs without hosts.
        for record in in_force.chain(self.stored.document_records()) {
            match record {
                StoreRecord::Jobs(stored) => {
                    start.jobs = resolvable_jobs(&stored, &start.fabric, &mut unfit);
                }
                StoreRecord::ReportedJobs(stored) => {
                    start.reported_jobs.jobs = resolvable_jobs(&stored, &start.fabric, &mut unfit);
                }
                _ => {}
            }
        }
        StateEvent::Started(Box::new(start))
    }

    /// Whether the fabric is learned by discovery.
    pub(super) fn learns_fabric(&self) -> bool {
        self.learns_fabric
    }

    /// When to store the records in force again.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether the policy in force is one that could not be stored.
    pub(super) fn lacks_policy(&self) -> bool {
        self.lacks_policy
    }

    /// Notes that a policy is in force which could not be stored.
    pub(super) fn note_unstored_policy(&mut self) {
        self.lacks_policy = true;
    }

    /// Stores the records in force again, and the numbers whether they are stored or not: that shows
    /// whether the store can be written.
    pub(super) async fn retry_records(&mut self, records: impl Iterator<Item = StoreRecord>) {
        self.retry_at = None;
        let generation = StoreRecord::Generation(self.stored.generation);
        let numbers = match self.backend {
            StoreBackend::Cluster(_) => vec![generation],
            _ => vec![StoreRecord::Term(self.stored.term), generation],
        };
        // The numbers are small and always there, so they show whether the disk has room again.
        if self.write_records(numbers).await.is_err() {
            return;
        }
        for record in records {
            if self.store_record(record).await.is_err() {
                return;
            }
        }
    }

    /// Stores a change, unless it is stored already. A change that cannot be stored stays in force,
    /// and the finding reports that a restart would lose it.
    pub(super) async fn store_or_report(&mut self, record: StoreRecord) -> Option<Finding> {
        let error = self.store_record(record).await.err()?;
        Some(unstored_finding(&error))
    }

    /// As [`StateArchive::store_records`] for one.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn store_record(&mut self, record: StoreRecord) -> Result<(), String> {
        self.store_records(vec![record]).await
    }

    /// Stores changes, unless they are stored already: in a file all or none, in etcd one after the
    /// other. After a failure the stored values are unknown, as only the response may have been lost;
    /// the records in force are then stored again soon.
    ///
    /// # Errors
    /// The write failed or its response was lost.
    pub(super) async fn store_records(
        &mut self,
        mut records: Vec<StoreRecord>,
    ) -> Result<(), String> {
        records.retain(|record| !self.stored.holds_record(record));
        if records.is_empty() { Ok(()) } else { self.write_records(records).await }
    }

    async fn write_records(&mut self, records: Vec<StoreRecord>) -> Result<(), String> {
        let writing = records.clone();
        let written = match self.backend.clone() {
            StoreBackend::Disabled => return Ok(()),
            StoreBackend::File(store) => {
                match spawn_blocking(move || store.write_records(&writing)).await {
                    Ok(written) => written.map_err(|error| error_chain(&error)),
                    Err(_) => Err("storing it panicked".to_owned()),
                }
            }
            StoreBackend::Cluster(client) => {
                let mut written = Ok(());
                for record in writing {
                    // The first failure ends the loop: a later record may refer to one that etcd
                    // has refused.
                    if written.is_ok() {
                        written = client.store_record(record).await;
                    }
                }
                written.map_err(|error| error_chain(&error))
            }
        };
        for record in records {
            let is_number = matches!(record, StoreRecord::Term(_) | StoreRecord::Generation(_));
            match &written {
                Ok(()) => {
                    self.lacks_policy &= !matches!(record, StoreRecord::Policy(_));
                    self.stored.apply_record(record);
                }
                // Every observation asks for the numbers, and a retry stores them anyway.
                Err(_) if is_number => self.stored.apply_record(record),
                Err(_) => self.stored.forget_record(&record),
            }
        }
        self.note_outcome(&written);
        written
    }

    /// Raises the alarm after a failed write, and ends it after one that succeeded.
    fn note_outcome(&mut self, written: &Result<(), String>) {
        let Err(error) = written else {
            return self.findings.clear_finding(STORE_ALARM);
        };
        self.retry_at = Some(Instant::now() + RETRY_AFTER);
        let text = format!(
            "the store cannot be written: {error}; drains and rollbacks are in force and end with a \
             restart, other changes are refused; free its disk, and this ends within seconds"
        );
        self.findings.report_finding(STORE_ALARM, Finding::error("store", text));
    }

    /// Reserves the next block of generations once half of the present one is used, so that a
    /// failed write can be repeated before the block ends.
    pub(super) async fn reserve_generations(&mut self, spent: u64) -> Option<Finding> {
        let reserved = self.stored.generation;
        // Not at the end of the block: a repair at that moment would have to wait for the disk.
        if spent + GENERATION_BLOCK / 2 < reserved {
            return None;
        }
        self.store_or_report(StoreRecord::Generation(spent + GENERATION_BLOCK)).await
    }
}

/// The finding about something in force that could not be stored.
pub(super) fn unstored_finding(error: &str) -> Finding {
    let text = format!(
        "in force, but not stored, and ends with a restart or a new leader before it is: {error}"
    );
    Finding::error("store", text)
}

/// Whether the fabric has a switch or cable of this name.
fn has_drainable(fabric: &Fabric, part: &str) -> bool {
    let policy = Policy { drained: vec![part.to_owned()], ..Policy::default() };
    policy.apply_drains(fabric).is_ok()
}

/// The finding that the stored revision ended with the run that stored it, if so.
fn expiry_finding(stored: u64, effective: &PolicyRevision) -> Option<Finding> {
    let text = format!(
        "revision {stored} is replaced by revision {}: {}",
        effective.number, effective.metadata.reason
    );
    (effective.number != stored).then(|| Finding::warning("policy", text))
}

/// The event that applies a stored document on `fabric`.
pub(super) fn event_from_record(
    record: &StoreRecord,
    fabric: &Fabric,
    findings: &mut Vec<Finding>,
) -> Option<StateEvent> {
    or_finding(resolve_record(record, fabric, findings), findings)
}

/// That event. Jobs that do not fit the fabric are left out, with a finding for each.
fn resolve_record(
    record: &StoreRecord,
    fabric: &Fabric,
    findings: &mut Vec<Finding>,
) -> Result<StateEvent, String> {
    match record {
        StoreRecord::Policy(stored) => {
            let checked = stored
                .content
                .validate("the stored policy", PolicyDocument::default_levels(fabric));
            checked
                .and_then(|policy| policy.check_on(fabric))
                .map_err(|error| error.to_string())?;
            Ok(StateEvent::RevisionStored(stored.clone()))
        }
        StoreRecord::Jobs(stored) => {
            Ok(StateEvent::JobsChanged(resolvable_jobs(stored, fabric, findings)))
        }
        // Stored jobs are not profiled again: they were ranked before, or reports will soon do it.
        StoreRecord::ReportedJobs(stored) => Ok(StateEvent::JobsReported(ReportedJobs {
            jobs: resolvable_jobs(stored, fabric, findings),
            ..ReportedJobs::default()
        })),
        StoreRecord::Term(_)
        | StoreRecord::Generation(_)
        | StoreRecord::Fabric(_)
        | StoreRecord::FabricHistory(_) => Err("not a document on a fabric".to_owned()),
    }
}

/// The switches of the inventory, with the tiers, cables and hosts that discovery found.
fn merge_inventory(
    known: &FabricDocument,
    found: &FabricDocument,
) -> Result<FabricDocument, String> {
    let mut switches = known.switches.clone();
    // Only the tier is taken from what was found: names, addresses and device ids are the
    // operator's.
    for before in &found.switches {
        let Some(now) = switches.iter_mut().find(|now| now.name == before.name) else {
            return Err(format!("the inventory no longer has switch {}", before.name));
        };
        now.tier = before.tier;
    }
    Ok(FabricDocument { switches, forwarding: known.forwarding, ..found.clone() })
}

/// What was found, with the cables between switches that `known` has. Hosts that were found at their
/// ports are gone until they are found elsewhere.
fn with_documented_cables(found: &FabricDocument, known: &FabricDocument) -> FabricDocument {
    let node = |end: &str| end.rsplit_once(':').map_or(end, |(node, _)| node).to_owned();
    let is_switch = |end: &String| known.switches.iter().any(|switch| switch.name == node(end));
    let mut corrected = found.clone();
    for cable in known.links.iter().filter(|link| is_switch(&link.a) && is_switch(&link.b)) {
        let ends = [&cable.a, &cable.b];
        let is_at_port = |link: &LinkDocument| ends.contains(&&link.a) || ends.contains(&&link.b);
        let is_known = |link: &LinkDocument| ends.contains(&&link.a) && ends.contains(&&link.b);
        if corrected.links.iter().any(is_known) {
            continue;
        }
        // Two hosts that relayed probes may have looked like a cable, or a cable like hosts; the
        // document decides.
        let displaced = corrected.links.iter().filter(|link| is_at_port(link));
        let displaced: BTreeSet<String> =
            displaced.flat_map(|link| [node(&link.a), node(&link.b)]).collect();
        corrected.hosts.retain(|host| !displaced.contains(&host.name));
        let is_host = |end: &str| !is_switch(&end.to_owned()) && displaced.contains(&node(end));
        corrected.links.retain(|link| !is_at_port(link) && !is_host(&link.a) && !is_host(&link.b));
        corrected.links.push(cable.clone());
    }
    corrected
}

/// The jobs whose hosts all exist, and a finding for each of the others.
fn resolvable_jobs(
    stored: &JobsDocument,
    fabric: &Fabric,
    findings: &mut Vec<Finding>,
) -> Vec<Job> {
    let (resolved, unfit) = stored.resolve_fitting_jobs(fabric, STORED_JOBS);
    findings.extend(unfit.into_iter().map(|(job, error)| {
        Finding::warning(format!("job {job}"), format!("not restored: {error}"))
    }));
    resolved.jobs
}

/// The value, or none and a finding with the error.
pub(super) fn or_finding<T>(read: Result<T, String>, findings: &mut Vec<Finding>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(error) => {
            findings.push(Finding::warning("store", format!("not restored: {error}")));
            None
        }
    }
}
