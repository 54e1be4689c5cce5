//! Everything that a store has, as one document: for backups, for people, for another version.
//!
//! The decision: a backup is a document and no copy of the file. It can be taken while a controller
//! runs, read by a person, and restored by a version that stores otherwise. Its digest tells a
//! backup from a part of one.

use planner::JobsDocument;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use topology::spec::FabricDocument;

use super::{EmbeddedStore, SCHEMA_VERSION, StoreError, StoreRecord, StoredPlan};
use crate::fabric_history::FabricHistory;
use crate::hexadecimal::encode_hex;
use crate::policy_history::PolicyRevision;

/// The state of a controller, as `crux state backup` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateBackup {
    /// SHA-256 of the other fields, in hexadecimal.
    pub digest: String,
    /// The stored values.
    pub state: BackedUpState,
}

/// The stored values, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackedUpState {
    /// The version of the store's names and documents.
    pub schema: u64,
    /// The last term used.
    pub term: u64,
    /// The highest generation that may have been used.
    pub generation: u64,
    /// The policy revisions that are kept; the last is in force.
    pub policy_revisions: Vec<PolicyRevision>,
    /// Jobs of documents.
    pub jobs: Option<JobsDocument>,
    /// Reported jobs.
    pub reported_jobs: Option<JobsDocument>,
    /// The fabric that discovery found.
    pub fabric: Option<FabricDocument>,
    /// The fabrics that operators gave, the last in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_history: Option<FabricHistory>,
    /// The plan in force.
    pub plan: Option<StoredPlan>,
}

/// A backup cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is not as it was written.
    #[error("the backup was changed or is a part of one: its digest is {found}, not {stated}")]
    Changed {
        /// The digest that it states.
        stated: String,
        /// That of its fields.
        found: String,
    },
    /// Another version wrote it.
    #[error(
        "the backup has schema {found}, and this version of crux reads schema {SCHEMA_VERSION}"
    )]
    Schema {
        /// The schema of the backup.
        found: u64,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateBackup {
    /// Checks that it is as it was written, and by this version.
    ///
    /// # Errors
    /// It was changed, or is of another version.
    pub fn check(&self) -> Result<(), BackupError> {
        let found = self.state.digest();
        if found != self.digest {
            return Err(BackupError::Changed { stated: self.digest.clone(), found });
        }
        match self.state.schema {
            SCHEMA_VERSION => Ok(()),
            found => Err(BackupError::Schema { found }),
        }
    }
}

impl BackedUpState {
    fn digest(&self) -> String {
        let text = serde_json::to_vec(self).expect("documents have text for keys");
        encode_hex(&Sha256::digest(text))
    }
}

impl EmbeddedStore {
    /// A backup of everything that is stored.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn create_backup(&self) -> Result<StateBackup, StoreError> {
        let stored = self.read_state()?;
        let state = BackedUpState {
            schema: SCHEMA_VERSION,
            term: stored.term,
            generation: stored.generation,
            policy_revisions: self.policy_revisions()?,
            jobs: stored.jobs,
            reported_jobs: stored.reported_jobs,
            fabric: stored.fabric,
            fabric_history: stored.fabric_history,
            plan: self.read_plan()?,
        };
        Ok(StateBackup { digest: state.digest(), state })
    }

    /// Stores a backup; what it lacks stays as it is.
    ///
    /// # Errors
    /// The backup was changed, is of another version, or the store cannot be written.
    pub fn restore_backup(&self, backup: StateBackup) -> Result<(), BackupError> {
        backup.check()?;
        let state = backup.state;
        let mut records =
            vec![StoreRecord::Term(state.term), StoreRecord::Generation(state.generation)];
        let policies = state.policy_revisions.into_iter().map(Box::new);
        records.extend(policies.map(StoreRecord::Policy));
        records.extend(state.jobs.map(StoreRecord::Jobs));
        records.extend(state.reported_jobs.map(StoreRecord::ReportedJobs));
        records.extend(state.fabric.map(Box::new).map(StoreRecord::Fabric));
        records.extend(state.fabric_history.map(Box::new).map(StoreRecord::FabricHistory));
        self.write_records(&records)?;
        Ok(state.plan.map_or(Ok(()), |plan| self.write_plan(&plan))?)
    }
}
