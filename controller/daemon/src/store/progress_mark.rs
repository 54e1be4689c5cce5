//! How far the store was once, in a small file beside it.
//!
//! A database repairs itself after a crash, and from a damaged file it may recover an earlier
//! state; a backup that was put back is one, too. Neither is an error that it reports. The
//! decision: the numbers that only rise are written a second time, after the store has them, the
//! number of changes among them: a confirmed revision has the number of its trial. A store behind
//! its mark has lost something, and opening it reports that. The head of the audit trail stands
//! there as well, so that a trail that was cut off or written anew is found.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::private_file::create_private;

/// The numbers that only rise, and the head of the audit trail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgressMark {
    pub(super) term: u64,
    pub(super) policy_revision: u64,
    /// How many changes the store has taken.
    pub(super) changes: u64,
    pub(super) audit_head: Option<AuditHead>,
}

/// The last record of an audit trail that is known to be on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    /// Its number.
    pub sequence: u64,
    /// Its hash, in hexadecimal.
    pub hash: String,
}

impl AuditHead {
    /// What the mark beside a store knows, also while a controller has the store open.
    pub fn of_store(store: &Path) -> Option<Self> {
        ProgressMark::read_file(&ProgressMark::path_of(store))?.audit_head
    }
}

impl ProgressMark {
    /// The file of the mark of a store.
    pub(super) fn path_of(store: &Path) -> PathBuf {
        let mut name = store.file_name().unwrap_or_default().to_owned();
        name.push(".mark");
        store.with_file_name(name)
    }

    /// The mark in a file; nothing if there is no file, or no mark in it.
    pub(super) fn read_file(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut words = text.split_whitespace();
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
        let [term, policy_revision] = [next()?, next()?];
        // Earlier versions wrote no more than these.
        let changes = next().unwrap_or_default();
        let audit_head = next()
            .zip(words.next())
            .map(|(sequence, hash)| AuditHead { sequence, hash: hash.to_owned() });
        Some(Self { term, policy_revision, changes, audit_head })
    }

    /// Replaces the mark in a file, as a whole.
    pub(super) fn write_file(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("mark-new");
        // One process has the store open, so a draft is left over from a crash.
        drop(fs::remove_file(&draft));
        let mut file = create_private(&draft)?;
        let head = self.audit_head.as_ref();
        let head = head.map(|head| format!(" {} {}", head.sequence, head.hash)).unwrap_or_default();
        writeln!(file, "{} {} {}{head}", self.term, self.policy_revision, self.changes)?;
        file.sync_all()?;
        fs::rename(draft, path)
    }

    /// What a store at `self` lacks of what it once had.
    pub(super) fn missing_since(&self, mark: &Self) -> Option<String> {
        let named = [
            ("term", self.term, mark.term),
            ("policy revision", self.policy_revision, mark.policy_revision),
            ("change", self.changes, mark.changes),
        ];
        let lost = named.iter().filter(|(_, now, before)| now < before);
        let lost: Vec<String> =
            lost.map(|(name, now, before)| format!("{name} {now} instead of {before}")).collect();
        (!lost.is_empty()).then(|| lost.join(" and "))
    }

    /// The later of both numbers each.
    #[must_use]
    pub(super) fn max_with(self, other: &Self) -> Self {
        Self {
            term: self.term.max(other.term),
            policy_revision: self.policy_revision.max(other.policy_revision),
            changes: self.changes.max(other.changes),
            audit_head: self.audit_head,
        }
    }
}
