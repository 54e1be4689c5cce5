//! What the running controller puts into its store, and when.
//!
//! [`store`](crate::store) writes; here is what is worth a write. The decision: generations are
//! reserved in blocks. A failure that is to be repaired in milliseconds does not wait for a disk,
//! and after a crash the next generation is still one that nobody has seen.

use std::sync::Arc;
use std::time::Duration;

use planner::{Job, JobsDocument, Policy};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use topology::spec::{self, FabricDocument};
use topology::{Fabric, Finding};

use crate::config::Config;
use crate::etcd::StoreClient;
use crate::policy_history::{PolicyHistory, PolicyRevision, UnixMs};
use crate::southbound::error_chain;
use crate::state::{ReportedJobs, StartingState, State, StateEvent};
use crate::store::{EmbeddedStore, StoreError, StoreRecord, StoredState};

/// How long after something could not be stored what is in force is stored again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Generations that are reserved together.
const GENERATION_BLOCK: u64 = 1_000;

/// Where changes are stored.
#[derive(Clone, Debug, Default)]
enum StoreBackend {
    /// Nowhere.
    #[default]
    Disabled,
    /// In a file of this controller.
    File(Arc<EmbeddedStore>),
    /// Where all controllers look, which takes what the leader says.
    Cluster(StoreClient),
}

/// Where changes are stored, and what is there.
#[derive(Debug, Default)]
pub(super) struct StateArchive {
    backend: StoreBackend,
    stored: StoredState,
    /// Up to here, generations were used up before.
    used_generation: u64,
    /// Editions of the policy that were there at the beginning.
    revisions: Vec<PolicyRevision>,
    /// When to store again what is in force; all of it is stored without it.
    retry_at: Option<Instant>,
    /// Whether the fabric is learned by discovery, and so worth storing.
    learns_fabric: bool,
}

impl StateArchive {
    /// Opens the store and takes a term and a block of generations that nobody has used.
    pub(super) fn open(config: &Config) -> Result<Self, StoreError> {
        let learns_fabric = config.discovery.assumptions.is_some();
        let Some(path) = &config.store else {
            return Ok(Self { learns_fabric, ..Self::default() });
        };
        let store = EmbeddedStore::open(path)?;
        let mut stored = store.read_state()?;
        let begins = stored.generation;
        stored.term = config.term.max(stored.term + 1);
        stored.generation += GENERATION_BLOCK;
        let term = StoreRecord::Term(stored.term);
        store.write_records(&[term, StoreRecord::Generation(stored.generation)])?;
        Ok(Self {
            revisions: store.policy_revisions()?,
            backend: StoreBackend::File(Arc::new(store)),
            stored,
            used_generation: begins,
            retry_at: None,
            learns_fabric,
        })
    }

    /// From now on, stores at this desk what all controllers share; without one, another controller
    /// does. Everything that is there counts as news.
    pub(super) fn use_cluster_store(&mut self, client: Option<StoreClient>) {
        self.backend = client.map_or(StoreBackend::Disabled, StoreBackend::Cluster);
        (self.stored, self.retry_at) = (StoredState::default(), None);
    }

    /// What another controller has stored since; from now on it counts as stored.
    pub(super) fn adopt_stored(&mut self, stored: StoredState) -> Vec<StoreRecord> {
        let changed = stored.document_records();
        let changed = changed.filter(|record| !self.stored.holds_record(record)).collect();
        self.stored = stored;
        changed
    }

    /// Which of these are stored nowhere though something else could have been.
    pub(super) fn missing_records(
        &self,
        records: [StoreRecord; 3],
    ) -> impl Iterator<Item = StoreRecord> + use<> {
        let StoredState { policy, jobs, reported_jobs: reported, .. } = &self.stored;
        let has = [policy.is_some(), jobs.is_some(), reported.is_some()];
        let pairs = records.into_iter().zip(has);
        pairs.filter(|(_, has)| !has).map(|(record, _)| record)
    }

    /// The first term to bid in, where the configuration says `first`.
    pub(super) fn first_term(&self, first: u64) -> u64 {
        self.stored.term.max(first)
    }

    /// The generation after which new ones begin.
    pub(super) fn used_generation(&self) -> u64 {
        self.used_generation
    }

    /// The fabric of these switches, as far as it was found before; they are reached where
    /// `inventory` says. Nothing if no more than that was found.
    pub(super) fn learned_fabric(&self, inventory: &Fabric) -> Result<Option<Fabric>, String> {
        let Some(found) = self.stored.fabric.as_ref().filter(|_| self.learns_fabric) else {
            return Ok(None);
        };
        let known = spec::explicit_document(inventory);
        let whole = merge_inventory(&known, found)?;
        let fabric = Fabric::try_from(&whole).map_err(|error| error.to_string())?;
        Ok(Some(fabric).filter(|_| whole != known))
    }

    /// What was in force when the controller ended: the policy, or else the `first`, and the jobs.
    /// What no longer fits the fabric is left out, and a finding says so.
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
        };
        for record in self.stored.document_records() {
            match or_finding(event_from_record(&record, &start.fabric), &mut findings) {
                Some(StateEvent::RevisionStored(stored)) => {
                    let latest = stored.number;
                    let earlier = self.revisions.iter().filter(|one| one.number < latest);
                    start.history =
                        PolicyHistory::new(stored.effective_at(now), earlier.cloned());
                }
                Some(StateEvent::JobsChanged(stored)) => start.jobs = stored,
                Some(StateEvent::JobsReported(stored)) => start.reported_jobs = stored,
                _ => {}
            }
        }
        (StateEvent::Started(Box::new(start)), findings)
    }

    /// What the controller goes on with on another fabric: the policy in force, and of the jobs,
    /// stored or in force, those whose hosts are there. The others are kept for when theirs are.
    pub(super) fn event_on_fabric(&self, fabric: Fabric, state: &State) -> StateEvent {
        let reported = ReportedJobs {
            profiled: state.reported_jobs().profiled.clone(),
            ..ReportedJobs::default()
        };
        let mut start = StartingState {
            fabric,
            history: state.policy_history().clone(),
            jobs: Vec::new(),
            reported_jobs: reported,
        };
        let in_force = state.stored_records().into_iter();
        for record in in_force.chain(self.stored.document_records()) {
            match record {
                StoreRecord::Jobs(stored) => {
                    start.jobs = resolvable_jobs(&stored, &start.fabric);
                }
                StoreRecord::ReportedJobs(stored) => {
                    start.reported_jobs.jobs = resolvable_jobs(&stored, &start.fabric);
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

    /// When to store again what is in force.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Stores what is in force once more, as far as it is not known to be stored. It has been told
    /// once that it could not be, and is not told again.
    pub(super) async fn retry_records(&mut self, records: impl Iterator<Item = StoreRecord>) {
        self.retry_at = None;
        for record in records {
            if self.store_record(record).await.is_err() {
                return;
            }
        }
    }

    /// Writes a change, unless that is what is stored. A change that cannot be written is in force
    /// all the same: a finding says that it would be forgotten.
    pub(super) async fn store_or_report(&mut self, record: StoreRecord) -> Option<Finding> {
        let why = self.store_record(record).await.err()?;
        let text = format!("in force, but not stored: {why}");
        Some(Finding::error("store", text))
    }

    /// Writes a change that is to count only if it is written, unless that is what is stored. If it
    /// fails, what is stored is not known, since it may be an answer that was lost; soon what is in
    /// force is stored again.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub(super) async fn store_record(&mut self, record: StoreRecord) -> Result<(), String> {
        if self.stored.holds_record(&record) {
            return Ok(());
        }
        let (backend, writing) = (self.backend.clone(), record.clone());
        let written = match backend {
            StoreBackend::Disabled => return Ok(()),
            StoreBackend::File(store) => {
                let written = spawn_blocking(move || store.write_records(&[writing])).await;
                match written {
                    Ok(written) => written.map_err(|error| error_chain(&error)),
                    Err(_) => Err("storing it panicked".to_owned()),
                }
            }
            StoreBackend::Cluster(client) => {
                client.store_record(writing).await.map_err(|error| error_chain(&error))
            }
        };
        match written {
            Ok(()) => self.stored.apply_record(record),
            Err(_) => {
                self.stored.forget_record(&record);
                self.retry_at = Some(Instant::now() + RETRY_AFTER);
            }
        }
        written
    }

    /// Reserves the next generations in time.
    pub(super) async fn reserve_generations(&mut self, spent: u64) -> Option<Finding> {
        let reserved = self.stored.generation;
        if spent + GENERATION_BLOCK / 2 < reserved {
            return None;
        }
        self.store_or_report(StoreRecord::Generation(spent + GENERATION_BLOCK)).await
    }
}

/// What a stored document says about `fabric`.
pub(super) fn event_from_record(
    record: &StoreRecord,
    fabric: &Fabric,
) -> Result<StateEvent, String> {
    match record {
        StoreRecord::Policy(stored) => {
            let policy = stored.content.validate("the stored policy");
            let policy = policy.map_err(|error| error.to_string())?;
            let checked = policy.check_on(fabric);
            checked.map_err(|error| error.to_string())?;
            Ok(StateEvent::RevisionStored(stored.clone()))
        }
        StoreRecord::Jobs(stored) => {
            let jobs = resolve_jobs(stored, fabric, "the stored jobs")?;
            Ok(StateEvent::JobsChanged(jobs))
        }
        // Of what ran when it was stored enough was known, or will be soon.
        StoreRecord::ReportedJobs(stored) => Ok(StateEvent::JobsReported(ReportedJobs {
            jobs: resolve_jobs(stored, fabric, "the stored jobs of telemetry")?,
            ..ReportedJobs::default()
        })),
        StoreRecord::Term(_) | StoreRecord::Generation(_) | StoreRecord::Fabric(_) => {
            Err("no document about a fabric".to_owned())
        }
    }
}

/// What is known of switches, with the cables and hosts that were found among them.
fn merge_inventory(
    known: &FabricDocument,
    found: &FabricDocument,
) -> Result<FabricDocument, String> {
    let mut switches = known.switches.clone();
    for before in &found.switches {
        let mut same = switches.iter_mut().filter(|now| now.name == before.name);
        let same = same.next();
        let same = same.ok_or_else(|| format!("switch {} is not there any more", before.name))?;
        same.tier = before.tier;
    }
    Ok(FabricDocument { switches, ..found.clone() })
}

/// The jobs whose hosts are all there.
fn resolvable_jobs(stored: &JobsDocument, fabric: &Fabric) -> Vec<Job> {
    let alone = stored.jobs.iter().map(|job| JobsDocument { jobs: vec![job.clone()] });
    let possible = alone.filter_map(|job| resolve_jobs(&job, fabric, "the jobs").ok());
    possible.flatten().collect()
}

fn resolve_jobs(stored: &JobsDocument, fabric: &Fabric, name: &str) -> Result<Vec<Job>, String> {
    let resolved = stored.resolve_jobs(fabric, name);
    resolved.map(|resolved| resolved.jobs).map_err(|error| error.to_string())
}

/// The value, or a finding that says why there is none.
pub(super) fn or_finding<T>(read: Result<T, String>, findings: &mut Vec<Finding>) -> Option<T> {
    let reported = |error| Finding::warning("store", format!("not taken up: {error}"));
    read.map_err(|error| findings.push(reported(error))).ok()
}
