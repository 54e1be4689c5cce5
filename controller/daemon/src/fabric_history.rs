//! The revisions of the fabric: which document was in force, by whom, why, and what it changed.
//!
//! [`runtime`](crate::runtime) puts a revision in force, the [`store`](crate::store) keeps the
//! history. Two decisions. Revisions are only appended: a rollback is a new revision with an earlier
//! document. And the history has what the fabric file was when it was last read: the file counts
//! again once it was edited, and until then it does not take back what was applied since.

mod document_diff;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::spec::{FabricDocument, explicit_document};
use topology::{Fabric, Finding, Severity};

pub use self::document_diff::diff_documents;
use crate::revision::{RevisionMetadata, UnixMs};

/// Revisions that are kept with their documents.
const REVISIONS_KEPT: usize = 16;
/// Bytes of earlier revisions that are kept, as JSON; the one before the latest is kept in any case.
const HISTORY_BYTES: usize = 1 << 20;
/// Lines of a revision's changes that are kept.
const CHANGES_KEPT: usize = 64;

/// A fabric that is or was in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricRevision {
    /// Its number, rising by one with every revision.
    pub number: u64,
    /// The fabric, as an explicit document.
    pub document: FabricDocument,
    /// Author, reason and time.
    pub metadata: RevisionMetadata,
    /// What it changed, a part a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// The revisions of a fabric, the earliest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricHistory {
    revisions: Vec<FabricRevision>,
    /// The document of the fabric file when it was last read.
    file: FabricDocument,
}

impl FabricHistory {
    /// The history at a start without a stored one.
    pub fn from_file(file: FabricDocument, signature: RevisionMetadata) -> Self {
        let first = FabricRevision {
            number: 1,
            document: file.clone(),
            metadata: signature,
            changes: Vec::new(),
        };
        Self { revisions: vec![first], file }
    }

    /// The stored history at a start with this file, which is a revision if it was edited since it
    /// was last read, and is not what is in force.
    #[must_use]
    pub fn continue_with_file(mut self, file: FabricDocument, signature: RevisionMetadata) -> Self {
        let was_edited = !is_same(&file, &self.file);
        self.file = file;
        if was_edited && !self.holds_file() {
            let document = self.file.clone();
            return self.with_revision(document, signature);
        }
        self
    }

    /// The revision in force; none where no fabric was given yet.
    pub fn latest(&self) -> Option<&FabricRevision> {
        self.revisions.last()
    }

    /// The revision of a number, or the one before the latest.
    pub fn find_revision(&self, number: Option<u64>) -> Option<&FabricRevision> {
        match number {
            Some(number) => self.revisions.iter().find(|revision| revision.number == number),
            None => self.revisions.iter().rev().nth(1),
        }
    }

    /// All that are kept, the earliest first.
    pub fn revisions(&self) -> &[FabricRevision] {
        &self.revisions
    }

    /// Whether the fabric in force is that of the file.
    pub fn holds_file(&self) -> bool {
        self.latest().is_some_and(|latest| is_same(&latest.document, &self.file))
    }

    /// The document of the fabric file when it was last read.
    pub fn file(&self) -> &FabricDocument {
        &self.file
    }

    /// Notes what the fabric file is now.
    #[must_use]
    pub fn with_file(self, file: FabricDocument) -> Self {
        Self { file, ..self }
    }

    /// The history with one more revision; the oldest are dropped beyond the bounds.
    #[must_use]
    pub fn with_revision(mut self, document: FabricDocument, metadata: RevisionMetadata) -> Self {
        let latest = self.revisions.last();
        let number = latest.map_or(0, |latest| latest.number) + 1;
        let mut changes =
            latest.map_or_else(Vec::new, |latest| diff_documents(&latest.document, &document));
        let left_out = changes.len().saturating_sub(CHANGES_KEPT);
        if left_out > 0 {
            changes.truncate(CHANGES_KEPT);
            changes.push(format!("and {left_out} more"));
        }
        self.revisions.push(FabricRevision { number, document, metadata, changes });
        self.drop_oldest();
        self
    }

    /// The fabric with its parts in the order that they have in force.
    ///
    /// # Errors
    /// The first error that a check of the fabric finds.
    pub fn prepare(&self, fabric: &Fabric) -> Result<Fabric, Finding> {
        let document = explicit_document(fabric);
        let ordered = match self.latest() {
            None => document,
            Some(latest) => in_order_of(document, &latest.document),
        };
        let fabric = Fabric::try_from(&ordered)
            .map_err(|error| Finding::error("fabric", error.to_string()))?;
        let mut findings = topology::check_fabric(&fabric).into_iter();
        match findings.find(|finding| finding.severity == Severity::Error) {
            Some(error) => Err(error),
            None => Ok(fabric),
        }
    }

    fn drop_oldest(&mut self) {
        let (mut kept, mut bytes) = (0, 0);
        for revision in self.revisions.iter().rev() {
            bytes += serde_json::to_vec(revision).map_or(0, |json| json.len());
            if kept >= 2 && (kept >= REVISIONS_KEPT || bytes > HISTORY_BYTES) {
                break;
            }
            kept += 1;
        }
        self.revisions.drain(..self.revisions.len() - kept);
    }
}

/// Whether two documents have the same parts, in whatever order.
pub(crate) fn is_same(a: &FabricDocument, b: &FabricDocument) -> bool {
    diff_documents(a, b).is_empty()
}

/// `document` with its switches and hosts in the order that they have in `before`, and new ones
/// after them: numbers that follow from the order stay, and with them sessions and table entries.
#[must_use]
fn in_order_of(mut document: FabricDocument, before: &FabricDocument) -> FabricDocument {
    let places = |names: Vec<&str>| -> BTreeMap<String, usize> {
        names.into_iter().enumerate().map(|(place, name)| (name.to_owned(), place)).collect()
    };
    let switches = places(before.switches.iter().map(|switch| switch.name.as_str()).collect());
    let hosts = places(before.hosts.iter().map(|host| host.name.as_str()).collect());
    let place = |places: &BTreeMap<String, usize>, name: &str| {
        places.get(name).copied().unwrap_or(usize::MAX)
    };
    document.switches.sort_by_key(|switch| place(&switches, &switch.name));
    document.hosts.sort_by_key(|host| place(&hosts, &host.name));
    document
}

/// Who is behind the first revision.
pub fn file_signature(at_ms: UnixMs) -> RevisionMetadata {
    RevisionMetadata { author: "start".to_owned(), reason: "the fabric file".to_owned(), at_ms }
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::*;

    fn document(hosts_per_leaf: u32) -> FabricDocument {
        let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf, ..ClosSpec::default() };
        explicit_document(&clos::build_clos("small", &spec).unwrap())
    }

    #[test]
    fn a_file_counts_again_once_it_was_edited() {
        let history = FabricHistory::from_file(document(1), file_signature(1));
        let applied = history.with_revision(document(2), file_signature(2));
        let same = applied.clone().continue_with_file(document(1), file_signature(3));
        assert_eq!(same.latest(), applied.latest());
        assert!(!same.holds_file());
        let edited = applied.clone().continue_with_file(document(3), file_signature(3));
        assert_eq!(edited.latest().unwrap().number, 3);
        assert!(edited.holds_file());
        let copied = applied.clone().continue_with_file(document(2), file_signature(3));
        assert_eq!(copied.revisions(), applied.revisions());
        assert!(copied.holds_file());
    }

    #[test]
    fn revisions_are_bounded_and_the_one_before_the_latest_is_kept() {
        let mut history = FabricHistory::from_file(document(1), file_signature(1));
        for number in 0..40 {
            history = history.with_revision(document(1 + number % 2), file_signature(2));
        }
        assert_eq!(history.revisions().len(), REVISIONS_KEPT);
        assert_eq!(history.find_revision(None).unwrap().number, 40);
        assert_eq!(history.find_revision(Some(41)), history.latest());
        assert_eq!(history.find_revision(Some(3)), None);
    }

    #[test]
    fn known_parts_keep_their_places() {
        let before = document(2);
        let mut after = document(2);
        after.switches.reverse();
        after.hosts.reverse();
        after.hosts[0].name = "new".to_owned();
        let ordered = in_order_of(after, &before);
        assert_eq!(ordered.switches, before.switches);
        assert_eq!(ordered.hosts.last().unwrap().name, "new");
        assert_eq!(ordered.hosts[..3], before.hosts[..3]);
    }
}
