//! The last acknowledged change survives a power failure at any point.

use std::io;
use std::sync::{Arc, Mutex};

use planner::{JobDocument, JobsDocument, PolicyDocument};
use proptest::prelude::*;
use redb::StorageBackend;
use topology::spec::FabricDocument;

use super::{EmbeddedStore, StoreError, StoreRecord, StoredState};
use crate::policy_history::{PolicyContent, PolicyRevision, PolicyTrial};

/// A disk that records every request.
#[derive(Clone, Debug, Default)]
struct RecordingDisk(Arc<Mutex<DiskJournal>>);

#[derive(Debug, Default)]
struct DiskJournal {
    live: Vec<u8>,
    asked: Vec<DiskRequest>,
    /// Whether writes are refused.
    is_full: bool,
}

#[derive(Clone, Debug)]
enum DiskRequest {
    Length(usize),
    Bytes(usize, Vec<u8>),
    Sync,
}

impl DiskRequest {
    /// Moments that it takes: one for each byte.
    fn duration(&self) -> usize {
        match self {
            Self::Bytes(_, data) => data.len(),
            Self::Length(_) | Self::Sync => 1,
        }
    }

    /// Applies the part of it that is done after some moments.
    fn apply(&self, bytes: &mut Vec<u8>, moments: usize) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Bytes(at, data) => {
                let data = &data[..data.len().min(moments)];
                bytes[*at..at + data.len()].copy_from_slice(data);
            }
            Self::Sync => {}
        }
    }
}

impl RecordingDisk {
    fn ask(&self, asked: DiskRequest) {
        let mut journal = self.0.lock().unwrap();
        asked.apply(&mut journal.live, usize::MAX);
        journal.asked.push(asked);
    }

    fn ask_for_room(&self, asked: DiskRequest) -> Result<(), io::Error> {
        if self.0.lock().unwrap().is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.ask(asked);
        Ok(())
    }

    /// Moments since the beginning.
    fn now(&self) -> usize {
        self.0.lock().unwrap().asked.iter().map(DiskRequest::duration).sum()
    }

    /// The disk after a power failure at some moment. What was synced is there; of the rest, only
    /// every `kept`-th request is, and the last of them in part.
    fn after_power_failure(&self, moment: usize, kept: usize) -> Self {
        let journal = self.0.lock().unwrap();
        let (mut bytes, mut left) = (Vec::new(), moment);
        let mut pending: Vec<(&DiskRequest, usize)> = Vec::new();
        for asked in &journal.asked {
            if left == 0 {
                break;
            }
            pending.push((asked, left));
            left = left.saturating_sub(asked.duration());
            if let DiskRequest::Sync = asked {
                for (asked, moments) in pending.drain(..) {
                    asked.apply(&mut bytes, moments);
                }
            }
        }
        for (index, (asked, moments)) in pending.into_iter().enumerate() {
            // A file does not shrink or grow behind the back of what is written to it.
            if index % kept == 0 || matches!(asked, DiskRequest::Length(_)) {
                asked.apply(&mut bytes, moments);
            }
        }
        let live = bytes.clone();
        let asked =
            vec![DiskRequest::Length(bytes.len()), DiskRequest::Bytes(0, bytes), DiskRequest::Sync];
        Self(Arc::new(Mutex::new(DiskJournal { live, asked, is_full: false })))
    }
}

impl StorageBackend for RecordingDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let journal = self.0.lock().unwrap();
        let from = offset as usize;
        let bytes = journal.live.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.ask_for_room(DiskRequest::Length(len as usize))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.ask(DiskRequest::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.ask_for_room(DiskRequest::Bytes(offset as usize, data.to_vec()))
    }
}

fn record(number: u64, kind: u8) -> StoreRecord {
    match kind {
        0 => StoreRecord::Term(number),
        1 => StoreRecord::Generation(number),
        2 => StoreRecord::Policy(Box::new(PolicyRevision {
            number,
            content: PolicyContent {
                policy: PolicyDocument {
                    drained: vec![format!("spine{number}")],
                    ..PolicyDocument::default()
                },
                temporary_overrides: Vec::new(),
            },
            ..PolicyRevision::default()
        })),
        3 => StoreRecord::Jobs(jobs(number)),
        4 => StoreRecord::ReportedJobs(jobs(number)),
        _ => StoreRecord::Fabric(Box::new(FabricDocument {
            name: format!("fabric{number}"),
            ..FabricDocument::default()
        })),
    }
}

fn jobs(number: u64) -> JobsDocument {
    JobsDocument {
        jobs: vec![JobDocument { id: format!("job{number}"), ..JobDocument::default() }],
    }
}

/// Stores records one by one, fails the power at some moment, and checks what is stored: everything
/// acknowledged until then, and at most the record being written.
fn check(kinds: &[u8], at: prop::sample::Index, kept: usize) {
    let disk = RecordingDisk::default();
    let store = EmbeddedStore::open_backend(disk.clone()).unwrap();
    let mut states = vec![(disk.now(), StoredState::default())];
    for (number, kind) in (1..).zip(kinds) {
        let record = record(number, *kind);
        store.write_records(std::slice::from_ref(&record)).unwrap();
        let mut state = states[states.len() - 1].1.clone();
        state.apply_record(record);
        states.push((disk.now(), state));
    }
    let begun = states[0].0;
    let moment = begun + at.index(disk.now() - begun + 1);
    let acknowledged = states.iter().rposition(|(when, _)| *when <= moment);
    let acknowledged = acknowledged.unwrap();

    let store = EmbeddedStore::open_backend(disk.after_power_failure(moment, kept)).unwrap();
    let found = store.read_state().unwrap();
    let mut possible = states[acknowledged..].iter().take(2);
    assert!(
        possible.any(|(_, state)| *state == found),
        "at {moment} after {acknowledged} changes: {found:?}"
    );
    // And it goes on from there.
    store.write_records(&[StoreRecord::Term(77)]).unwrap();
    assert_eq!(store.read_state().unwrap().term, 77);
}

proptest! {
    #[test]
    fn the_last_acknowledged_change_survives_a_power_failure_at_any_byte(
        kinds in prop::collection::vec(0u8..7, 1..6),
        at in any::<prop::sample::Index>(),
        kept in 1usize..4,
    ) {
        check(&kinds, at, kept);
    }

    /// After a disk was full once, nothing was stored any more until the next start.
    #[test]
    fn what_there_is_room_for_is_stored_also_after_the_disk_was_full(
        writes in prop::collection::vec((0u8..7, any::<bool>()), 1..10),
    ) {
        let disk = RecordingDisk::default();
        let store = EmbeddedStore::open_backend(disk.clone()).unwrap();
        let mut stored = StoredState::default();
        for (number, (kind, is_full)) in (1..).zip(writes) {
            disk.0.lock().unwrap().is_full = is_full;
            let record = record(number, kind);
            let written = store.write_records(std::slice::from_ref(&record));
            prop_assert_eq!(written.is_ok(), !is_full, "{:?}", written);
            disk.0.lock().unwrap().is_full = false;
            if written.is_ok() {
                stored.apply_record(record);
            }
            prop_assert_eq!(&store.read_state().unwrap(), &stored);
        }
    }
}

#[test]
fn every_policy_is_remembered_in_order() {
    let store = EmbeddedStore::open_backend(RecordingDisk::default()).unwrap();
    assert_eq!(store.read_state().unwrap(), StoredState::default());
    store.write_records(&[record(1, 2), record(2, 2)]).unwrap();
    store.write_records(&[record(3, 2)]).unwrap();
    let drained = store
        .policy_revisions()
        .unwrap()
        .into_iter()
        .map(|revision| revision.content.policy.drained);
    let names: Vec<_> = drained.flatten().collect();
    assert_eq!(names, ["spine1", "spine2", "spine3"]);
}

#[test]
fn a_file_that_is_no_store_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "not a store, whatever its name says").unwrap();
    assert!(EmbeddedStore::open(file.path()).is_err());
}

#[test]
fn a_store_that_another_controller_has_open_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let first = EmbeddedStore::open(&path).unwrap();
    assert!(matches!(EmbeddedStore::open(&path), Err(StoreError::InUse)));
    drop(first);
    EmbeddedStore::open(&path).unwrap();
}

#[test]
fn a_store_without_a_schema_is_refused_with_the_commands_that_help() {
    let disk = RecordingDisk::default();
    let database = redb::Database::builder().create_with_backend(disk.clone()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(super::FACTS).unwrap().insert("term", &b"7"[..]).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = EmbeddedStore::open_backend(disk).unwrap_err().to_string();
    assert!(error.contains("schema 1") && error.contains("crux policy apply"), "{error}");
}

/// Finding M1: the store kept every revision.
#[test]
fn old_revisions_leave_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&folder.path().join("store")).unwrap();
    let revision = |number| {
        let mut revision = PolicyRevision { number, ..PolicyRevision::default() };
        revision.metadata.reason = "x".repeat(1 << 20);
        StoreRecord::Policy(Box::new(revision))
    };
    let records: Vec<StoreRecord> = (1..=40).map(revision).collect();
    store.write_records(&records).unwrap();
    let kept: Vec<u64> =
        store.policy_revisions().unwrap().iter().map(|revision| revision.number).collect();
    assert!((15..=16).contains(&kept.len()) && kept.last() == Some(&40), "{kept:?}");
}

/// Finding M9: a damaged store started with an older policy and said nothing.
#[test]
fn a_store_behind_its_mark_says_what_it_lost() {
    let folder = tempfile::tempdir().unwrap();
    let [path, backup] = ["store", "backup"].map(|name| folder.path().join(name));
    let revision = |number| {
        StoreRecord::Policy(Box::new(PolicyRevision { number, ..PolicyRevision::default() }))
    };
    let store = EmbeddedStore::open(&path).unwrap();
    store.write_records(&[StoreRecord::Term(3), revision(7)]).unwrap();
    drop(store);
    std::fs::copy(&path, &backup).unwrap();
    let store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.lost_progress().unwrap(), None);
    store.write_records(&[StoreRecord::Term(4), revision(9)]).unwrap();
    drop(store);
    std::fs::copy(&backup, &path).unwrap();
    let store = EmbeddedStore::open(&path).unwrap();
    let lost = store.lost_progress().unwrap();
    assert_eq!(
        lost.as_deref(),
        Some("term 3 instead of 4 and policy revision 7 instead of 9 and change 1 instead of 2")
    );
    assert_eq!(store.highest_term().unwrap(), 4, "switches have seen it");
    store.write_records(&[StoreRecord::Term(5), revision(10)]).unwrap();
    assert_eq!(store.lost_progress().unwrap(), None);
}

/// Found by attack: a confirmed revision has the number of its trial, so a file whose end was zeroed
/// after the confirmation came back as the trial, and with the policy from before it.
#[test]
fn a_lost_confirmation_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let [path, earlier] = ["store", "earlier"].map(|name| folder.path().join(name));
    let revision = |trial: Option<PolicyTrial>| {
        StoreRecord::Policy(Box::new(PolicyRevision { number: 7, trial, ..Default::default() }))
    };
    let before = PolicyContent::default();
    let trial = PolicyTrial { until_ms: 1, before, awaits_confirmation: false };
    let store = EmbeddedStore::open(&path).unwrap();
    store.write_records(&[revision(Some(trial))]).unwrap();
    drop(store);
    std::fs::copy(&path, &earlier).unwrap();
    let store = EmbeddedStore::open(&path).unwrap();
    store.write_records(&[revision(None)]).unwrap();
    drop(store);
    std::fs::copy(&earlier, &path).unwrap();
    let store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.lost_progress().unwrap().as_deref(), Some("change 1 instead of 2"));
    assert_eq!(store.lost_file(), None);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(store.lost_file(), Some(&*path));
}

#[test]
fn a_store_whose_pages_are_damaged_is_refused_and_not_a_panic() {
    let disk = RecordingDisk::default();
    let store = EmbeddedStore::open_backend(disk.clone()).unwrap();
    store.write_records(&[record(1, 0), record(2, 2), record(3, 3)]).unwrap();
    drop(store);
    let mut refused = 0;
    // Found by fuzzing: pages are not checked after a clean end.
    for page in 1..64 {
        let damaged = disk.after_power_failure(usize::MAX, 1);
        damaged.ask(DiskRequest::Bytes(page * 4_096, vec![0xed; 32]));
        let read = EmbeddedStore::open_backend(damaged).and_then(|store| store.read_state());
        refused += usize::from(matches!(read, Err(StoreError::Damaged)));
    }
    assert!(refused > 0, "no page made the library panic; then this is not needed");
}
