//! The state that survives a restart: jobs, policy revisions, a discovered fabric, the plan in
//! force, the last term and the generations that were used.
//!
//! [`runtime`](crate::runtime) reads it at start and writes every change before it acknowledges the
//! change. The decision: the store has documents with names. Ids are valid in one fabric of one run
//! only; names stay valid in a fabric that has grown, and the reader is that of document files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use planner::{FlowDocument, Job, JobDocument, JobsDocument};
pub use redb::StorageBackend;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use topology::Fabric;
use topology::spec::FabricDocument;
use tracing::warn;

pub use self::backup::{BackedUpState, BackupError, StateBackup};
use self::guarded_database::{Access, GuardedDatabase};
pub use self::progress_mark::AuditHead;
use self::progress_mark::ProgressMark;
pub use self::stored_plan::{PlanBasis, StoredPlan};
use crate::fabric_history::FabricHistory;
use crate::policy_history::{HISTORY_BYTES, PolicyRevision, REVISIONS_KEPT};
use api::private_file::ensure_private;

mod backup;
mod guarded_database;
mod progress_mark;
mod stored_plan;
#[cfg(test)]
mod tests;

/// The latest value of each fact, by name.
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");
/// Every policy revision, by its number.
const POLICIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("policy_revisions");

/// The version of the names and documents in the store; a store of another version is refused.
const SCHEMA_VERSION: u64 = 2;
const SCHEMA: &str = "schema";
const TERM: &str = "term";
const GENERATION: &str = "generation";
const JOBS: &str = "jobs";
const REPORTED_JOBS: &str = "reported_jobs";
const FABRIC: &str = "fabric";
const FABRIC_HISTORY: &str = "fabric_history";
const PLAN: &str = "plan";
const CHANGES: &str = "changes";

/// Generations that are reserved together, so that a repair never waits for a disk.
pub const GENERATION_BLOCK: u64 = 1_000;

/// The cause of the finding that the store cannot be written.
pub(crate) const STORE_ALARM: &str = "store alarm";

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error(
        "another controller has the store open: wait until it has ended, or give this one another \
         store.path"
    )]
    InUse,
    /// It cannot be opened: the rights are missing, or the file is no store.
    #[error("cannot open the store")]
    Open(#[source] Box<redb::DatabaseError>),
    /// It was written by another version of the controller.
    #[error(
        "the store has schema {found}, and this version of crux reads schema {SCHEMA_VERSION}: \
         save the policy with the version that wrote it (`crux policy show`), move the store away, \
         start the controller and apply the policy again (`crux policy apply`)"
    )]
    Schema {
        /// The schema of the store; 1 is that of stores that name none.
        found: u64,
    },
    /// Its bytes are not as they were written.
    #[error(
        "the store is damaged: move it away, or put a backup in its place, and start the \
         controller again"
    )]
    Damaged,
    /// Reading or writing failed.
    #[error("cannot {what} the store")]
    Access {
        /// `read` or `write`.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// A stored value cannot be parsed.
    #[error("the store's {what} cannot be read")]
    Content {
        /// The name of the value.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether the disk refused it: it is full, or fails for a while.
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Access { source, .. } => {
                matches!(**source, redb::Error::Io(_) | redb::Error::PreviousIo)
            }
            Self::Open(source) => {
                use redb::StorageError::{Io, PreviousIo};
                matches!(**source, redb::DatabaseError::Storage(Io(_) | PreviousIo))
            }
            _ => false,
        }
    }
}

/// One change to store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreRecord {
    /// The last term used.
    Term(u64),
    /// The highest generation that may be used.
    Generation(u64),
    /// The policy revision in force.
    Policy(Box<PolicyRevision>),
    /// All jobs of documents.
    Jobs(JobsDocument),
    /// All reported jobs.
    ReportedJobs(JobsDocument),
    /// The fabric that discovery found.
    Fabric(Box<FabricDocument>),
    /// The fabrics that operators gave, the last in force.
    FabricHistory(Box<FabricHistory>),
}

/// The latest of all stored records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredState {
    /// The last term used; 0 if none was.
    pub term: u64,
    /// The highest generation that may be used.
    pub generation: u64,
    /// The policy revision in force.
    pub policy: Option<PolicyRevision>,
    /// The jobs of documents.
    pub jobs: Option<JobsDocument>,
    /// The reported jobs.
    pub reported_jobs: Option<JobsDocument>,
    /// The fabric that discovery found.
    pub fabric: Option<FabricDocument>,
    /// The fabrics that operators gave, the last in force.
    pub fabric_history: Option<FabricHistory>,
}

impl StoredState {
    /// Whether this record is stored already.
    pub fn holds_record(&self, record: &StoreRecord) -> bool {
        match record {
            StoreRecord::Term(term) => self.term >= *term,
            StoreRecord::Generation(generation) => self.generation >= *generation,
            StoreRecord::Policy(policy) => self.policy.as_ref() == Some(&**policy),
            StoreRecord::Jobs(jobs) => self.jobs.as_ref() == Some(jobs),
            StoreRecord::ReportedJobs(jobs) => self.reported_jobs.as_ref() == Some(jobs),
            StoreRecord::Fabric(fabric) => self.fabric.as_ref() == Some(&**fabric),
            StoreRecord::FabricHistory(history) => self.fabric_history.as_ref() == Some(&**history),
        }
    }

    /// The stored policy and jobs, as records.
    pub fn document_records(&self) -> impl Iterator<Item = StoreRecord> + use<> {
        let policy = self.policy.clone().map(Box::new).map(StoreRecord::Policy);
        let jobs = self.jobs.clone().map(StoreRecord::Jobs);
        let reported = self.reported_jobs.clone().map(StoreRecord::ReportedJobs);
        policy.into_iter().chain(jobs).chain(reported)
    }

    /// Marks the stored value of this kind as unknown. Numbers only rise, so they stay.
    pub fn forget_record(&mut self, record: &StoreRecord) {
        match record {
            StoreRecord::Term(_) | StoreRecord::Generation(_) => {}
            StoreRecord::Policy(_) => self.policy = None,
            StoreRecord::Jobs(_) => self.jobs = None,
            StoreRecord::ReportedJobs(_) => self.reported_jobs = None,
            StoreRecord::Fabric(_) => self.fabric = None,
            StoreRecord::FabricHistory(_) => self.fabric_history = None,
        }
    }

    /// Applies a record that was stored.
    pub fn apply_record(&mut self, record: StoreRecord) {
        match record {
            StoreRecord::Term(term) => self.term = term,
            StoreRecord::Generation(generation) => self.generation = generation,
            StoreRecord::Policy(policy) => self.policy = Some(*policy),
            StoreRecord::Jobs(jobs) => self.jobs = Some(jobs),
            StoreRecord::ReportedJobs(jobs) => self.reported_jobs = Some(jobs),
            StoreRecord::Fabric(fabric) => self.fabric = Some(*fabric),
            StoreRecord::FabricHistory(history) => self.fabric_history = Some(*history),
        }
    }
}

/// An embedded store in one file. One process at a time has it open.
#[derive(Debug)]
pub struct EmbeddedStore {
    database: GuardedDatabase,
    /// The file of the mark and what is in it; none without a file. The lock orders its writers,
    /// of which each has the store for a transaction.
    mark: Option<(PathBuf, Mutex<ProgressMark>)>,
    /// Where the file was opened, and which it is; none without a file.
    opened: Option<(PathBuf, FileIdentity)>,
}

/// Device and inode of a file.
type FileIdentity = (u64, u64);

/// The file that has this path now.
fn file_identity(path: &Path) -> std::io::Result<FileIdentity> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl EmbeddedStore {
    /// Opens the store at `path`, or creates it.
    ///
    /// # Errors
    /// The file is no store, or another process has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        ensure_private(path).map_err(|error| open_error(redb::StorageError::from(error).into()))?;
        let [file, copied] = [path, path].map(Path::to_owned);
        let open = move || Database::create(&file);
        let database = GuardedDatabase::open(open, move || std::fs::read(&copied))?;
        let store = Self::check_schema(database)?;
        let mark = ProgressMark::path_of(path);
        let known = ProgressMark::read_file(&mark).unwrap_or_default();
        let identity = file_identity(path).ok();
        let opened = identity.map(|identity| (path.to_owned(), identity));
        Ok(Self { mark: Some((mark, Mutex::new(known))), opened, ..store })
    }

    /// The path of the file, if it is no longer what was opened there: somebody deleted or replaced
    /// it, and later changes are lost.
    pub fn lost_file(&self) -> Option<&Path> {
        let (path, identity) = self.opened.as_ref()?;
        let is_in_place = file_identity(path).is_ok_and(|now| now == *identity);
        (!is_in_place).then_some(path)
    }

    /// The last record of the audit trail that the mark knows.
    pub fn audit_head(&self) -> Option<AuditHead> {
        let (_, mark) = self.mark.as_ref()?;
        mark.lock().unwrap_or_else(PoisonError::into_inner).audit_head.clone()
    }

    /// Has the mark know the last record of the audit trail.
    pub fn keep_audit_head(&self, head: AuditHead) {
        self.replace_mark(|mark| ProgressMark { audit_head: Some(head), ..mark });
    }

    /// The highest term that was ever stored, also if the store has lost it since.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn highest_term(&self) -> Result<u64, StoreError> {
        let marked = self
            .mark
            .as_ref()
            .map_or(0, |(_, mark)| mark.lock().unwrap_or_else(PoisonError::into_inner).term);
        Ok(self.read_state()?.term.max(marked))
    }

    /// What the store lacks of what it once had, if anything: it was damaged, or is a backup.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn lost_progress(&self) -> Result<Option<String>, StoreError> {
        let Some((_, mark)) = &self.mark else {
            return Ok(None);
        };
        let stored = self.read_state()?;
        let policy_revision = stored.policy.map_or(0, |policy| policy.number);
        let changes = self.read_fact(CHANGES)?.unwrap_or_default();
        let now = ProgressMark { term: stored.term, policy_revision, changes, audit_head: None };
        Ok(now.missing_since(&mark.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Opens or creates a store on other storage than a file.
    ///
    /// # Errors
    /// The storage has no store and is not empty.
    pub fn open_backend(storage: impl StorageBackend + Clone) -> Result<Self, StoreError> {
        let copied = storage.clone();
        let open = move || Database::builder().create_with_backend(storage.clone());
        let read = move || {
            let mut bytes = vec![0; copied.len()? as usize];
            copied.read(0, &mut bytes)?;
            Ok(bytes)
        };
        Self::check_schema(GuardedDatabase::open(open, read)?)
    }

    /// Reads the latest of all records.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read_state(&self) -> Result<StoredState, StoreError> {
        Ok(StoredState {
            term: self.read_fact(TERM)?.unwrap_or_default(),
            generation: self.read_fact(GENERATION)?.unwrap_or_default(),
            policy: self.policy_revisions()?.pop(),
            jobs: self.read_fact(JOBS)?,
            reported_jobs: self.read_fact(REPORTED_JOBS)?,
            fabric: self.read_fact(FABRIC)?,
            fabric_history: self.read_fact(FABRIC_HISTORY)?,
        })
    }

    /// The plan that the last run had in force, if it stored one.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read_plan(&self) -> Result<Option<StoredPlan>, StoreError> {
        self.read_fact(PLAN)
    }

    /// Stores the plan in force. It is on the disk when this returns.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn write_plan(&self, plan: &StoredPlan) -> Result<(), StoreError> {
        // Encoded before the transaction, for which other records wait.
        let row = StoreRow::Fact(PLAN, to_json(plan));
        self.write_rows(&[row]).map(drop)
    }

    /// The latest policy revisions, as many as are kept, the earliest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn policy_revisions(&self) -> Result<Vec<PolicyRevision>, StoreError> {
        let rows = self.database.access(Access::Read, read_policy_rows)?;
        rows.iter().map(|row| parse_json("policies", row)).collect()
    }

    /// Stores changes, all or none. They are on the disk when this returns.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn write_records(&self, records: &[StoreRecord]) -> Result<(), StoreError> {
        let rows: Vec<StoreRow> = records.iter().map(StoreRow::from).collect();
        let changes = self.write_rows(&rows)?;
        self.advance_mark(records, changes);
        Ok(())
    }

    /// Writes the mark anew if these records are beyond it. A mark that stays behind costs nothing
    /// but a warning that does not come.
    fn advance_mark(&self, records: &[StoreRecord], changes: u64) {
        let marks = records.iter().filter_map(|record| match record {
            StoreRecord::Term(term) => {
                Some(ProgressMark { term: *term, ..ProgressMark::default() })
            }
            StoreRecord::Policy(policy) => {
                let policy_revision = policy.number;
                Some(ProgressMark { policy_revision, ..ProgressMark::default() })
            }
            StoreRecord::Jobs(_) | StoreRecord::Fabric(_) | StoreRecord::FabricHistory(_) => {
                Some(ProgressMark::default())
            }
            // Nobody waits for these, and they are stored often.
            StoreRecord::Generation(_) | StoreRecord::ReportedJobs(_) => None,
        });
        let marks: Vec<ProgressMark> = marks.map(|mark| ProgressMark { changes, ..mark }).collect();
        self.replace_mark(|mark| marks.iter().fold(mark, ProgressMark::max_with));
    }

    fn replace_mark(&self, change: impl FnOnce(ProgressMark) -> ProgressMark) {
        let Some((path, mark)) = &self.mark else {
            return;
        };
        let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
        let next = change(mark.clone());
        if next == *mark {
            return;
        }
        match next.write_file(path) {
            Ok(()) => *mark = next,
            Err(error) => warn!(%error, "cannot write {}", path.display()),
        }
    }

    /// Writes rows; how many changes the store has taken since it was made.
    fn write_rows(&self, rows: &[StoreRow]) -> Result<u64, StoreError> {
        self.database.access(Access::Write, |database| write_rows(database, rows))
    }

    /// The store in this database, unless another version wrote it. A new one has no schema yet,
    /// and no table either; every write creates both.
    fn check_schema(database: GuardedDatabase) -> Result<Self, StoreError> {
        let store = Self { database, mark: None, opened: None };
        let found = match store.read_fact(SCHEMA)? {
            Some(found) => found,
            // Version 1 wrote facts without a schema.
            None if store.database.access(Access::Read, has_facts)? => 1,
            None => SCHEMA_VERSION,
        };
        match found {
            SCHEMA_VERSION => Ok(store),
            found => Err(StoreError::Schema { found }),
        }
    }

    fn read_fact<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, StoreError> {
        let value =
            self.database.access(Access::Read, |database| read_fact_bytes(database, name))?;
        value.map(|value| parse_json(name, &value)).transpose()
    }
}

fn has_facts(database: &Database) -> Result<bool, redb::Error> {
    match database.begin_read()?.open_table(FACTS) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
        table => Ok(table.map(|_| true)?),
    }
}

fn read_fact_bytes(database: &Database, name: &str) -> Result<Option<Vec<u8>>, redb::Error> {
    match database.begin_read()?.open_table(FACTS) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(table?.get(name)?.map(|value| value.value().to_vec())),
    }
}

fn read_policy_rows(database: &Database) -> Result<Vec<Vec<u8>>, redb::Error> {
    let table = match database.begin_read()?.open_table(POLICIES) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table?,
    };
    table.iter()?.map(|row| Ok(row?.1.value().to_vec())).collect()
}

/// Writes rows, all or none. They are on the disk when this returns; the number of this change.
fn write_rows(database: &Database, rows: &[StoreRow]) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let changes: u64;
    // The tables borrow the transaction and must be dropped before it is committed.
    {
        let mut facts = transaction.open_table(FACTS)?;
        let mut policies = transaction.open_table(POLICIES)?;
        facts.insert(SCHEMA, &to_json(&SCHEMA_VERSION)[..])?;
        let before = facts.get(CHANGES)?.and_then(|had| serde_json::from_slice(had.value()).ok());
        changes = before.unwrap_or(0_u64) + 1;
        facts.insert(CHANGES, &to_json(&changes)[..])?;
        for row in rows {
            match row {
                StoreRow::Fact(name, value) => drop(facts.insert(*name, &value[..])?),
                StoreRow::Policy(number, value) => {
                    policies.insert(*number, &value[..])?;
                    // The latest is in force: later ones are of a state that a backup replaces.
                    policies.retain(|stored, _| stored <= *number)?;
                    drop_oldest_policies(&mut policies)?;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(changes)
}

/// A row to write, encoded.
enum StoreRow {
    /// The latest value of a fact.
    Fact(&'static str, Vec<u8>),
    /// A policy revision, by its number.
    Policy(u64, Vec<u8>),
}

impl From<&StoreRecord> for StoreRow {
    fn from(record: &StoreRecord) -> Self {
        match record {
            StoreRecord::Term(term) => Self::Fact(TERM, to_json(term)),
            StoreRecord::Generation(number) => Self::Fact(GENERATION, to_json(number)),
            StoreRecord::Jobs(jobs) => Self::Fact(JOBS, to_json(jobs)),
            StoreRecord::ReportedJobs(jobs) => Self::Fact(REPORTED_JOBS, to_json(jobs)),
            StoreRecord::Fabric(fabric) => Self::Fact(FABRIC, to_json(fabric)),
            StoreRecord::FabricHistory(history) => Self::Fact(FABRIC_HISTORY, to_json(history)),
            StoreRecord::Policy(revision) => Self::Policy(revision.number, to_json(revision)),
        }
    }
}

/// Drops the oldest revisions beyond the bounds of the history.
fn drop_oldest_policies(policies: &mut Table<'_, u64, &'static [u8]>) -> Result<(), redb::Error> {
    let (mut kept, mut bytes, mut oldest) = (0, 0, 0);
    for row in policies.iter()?.rev() {
        let (number, value) = row?;
        (kept, bytes) = (kept + 1, bytes + value.value().len());
        if kept > 2 && (kept > REVISIONS_KEPT + 1 || bytes > HISTORY_BYTES) {
            break;
        }
        oldest = number.value();
    }
    policies.retain(|number, _| number >= oldest)?;
    Ok(())
}

/// The document of these jobs, with the names of `fabric`.
pub fn jobs_document(fabric: &Fabric, jobs: &[Job]) -> JobsDocument {
    JobsDocument { jobs: jobs.iter().map(|job| job_document(fabric, job)).collect() }
}

fn job_document(fabric: &Fabric, job: &Job) -> JobDocument {
    let gpus = job.gpus.iter().map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus));
    let flows = job.flows.iter().map(|flow| {
        let [src, dst] = [flow.src, flow.dst].map(|nic| fabric.nic(nic));
        FlowDocument {
            src: fabric.host(src.host).name.clone(),
            dst: fabric.host(dst.host).name.clone(),
            src_nic: src.index,
            dst_nic: dst.index,
            bytes: flow.bytes,
            udp_src_port: flow.udp_src_port,
            src_gpu: flow.gpus.src(),
            dst_gpu: flow.gpus.dst(),
            overlap_from: flow.overlap_from,
        }
    });
    JobDocument {
        id: job.id.to_string(),
        tenant: job.tenant.clone(),
        model: job.model.clone(),
        gpus: gpus.collect(),
        flop_per_iteration: Some(job.flop_per_iteration),
        compute_seconds: Some(job.compute_seconds),
        overlap_from: Some(job.overlap_from),
        can_wait: job.can_wait,
        recent_slowdown: Some(job.measured.over_alone),
        slowdown_over_forecast: Some(job.measured.over_forecast),
        flows: Some(flows.collect()),
        ..JobDocument::default()
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and documents are JSON")
}

fn parse_json<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|source| StoreError::Content { what, source })
}

fn open_error(source: redb::DatabaseError) -> StoreError {
    match source {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse,
        source => StoreError::Open(Box::new(source)),
    }
}
