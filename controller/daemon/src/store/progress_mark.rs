//! How far the store was once, in a small file beside it.
//!
//! A database repairs itself after a crash, and from a damaged file it may recover an earlier
//! state; a backup that was put back is one, too. Neither is an error that it reports. The
//! decision: the numbers that only rise are written a second time, after the store has them. A
//! store behind its mark has lost something, and whoever opens it says so.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::private_file::create_private;

/// The numbers that only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgressMark {
    pub(super) term: u64,
    pub(super) policy_revision: u64,
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
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok);
        Some(Self { term: next()?, policy_revision: next()? })
    }

    /// Replaces the mark in a file, as a whole.
    pub(super) fn write_file(self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("mark-new");
        // One process has the store open, so a draft is left over from a crash.
        drop(fs::remove_file(&draft));
        let mut file = create_private(&draft)?;
        writeln!(file, "{} {}", self.term, self.policy_revision)?;
        file.sync_all()?;
        fs::rename(draft, path)
    }

    /// What a store at `self` lacks of what it once had.
    pub(super) fn missing_since(self, mark: Self) -> Option<String> {
        let names = ["term", "policy revision"];
        let [now, before] = [self, mark].map(|mark| [mark.term, mark.policy_revision]);
        let lost = names.iter().zip(now).zip(before).filter(|((_, now), before)| now < before);
        let lost: Vec<String> =
            lost.map(|((name, now), before)| format!("{name} {now} instead of {before}")).collect();
        (!lost.is_empty()).then(|| lost.join(" and "))
    }

    /// The later of both.
    #[must_use]
    pub(super) fn max_with(self, other: Self) -> Self {
        Self {
            term: self.term.max(other.term),
            policy_revision: self.policy_revision.max(other.policy_revision),
        }
    }
}
