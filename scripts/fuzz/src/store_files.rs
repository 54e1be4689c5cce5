//! Files of the store: whole ones in which some bytes are others.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::{io, panic};

use controller::policy_history::{PolicyContent, PolicyRevision};
use controller::store::{EmbeddedStore, StoreRecord};
use redb::StorageBackend;
use topology::spec::FabricDocument;

/// Policy revisions of the whole store.
const REVISIONS: u64 = 20;
/// Bytes of one change: where, in four bytes, and with what.
const EDIT_BYTES: usize = 6;
/// The largest file; a length field that was changed must not ask for more.
const FILE_BYTES: usize = 64 << 20;

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryFile {
    fn with_bytes<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StorageBackend for MemoryFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.with_bytes(|bytes| bytes.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.with_bytes(|bytes| {
            let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            let end = from.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(bytes.get(from..end).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let length = usize::try_from(len).ok().filter(|length| *length <= FILE_BYTES);
        let length = length.ok_or(io::ErrorKind::StorageFull)?;
        self.with_bytes(|bytes| bytes.resize(length, 0));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.with_bytes(|bytes| {
            let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            let end = from.checked_add(data.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            let place = bytes.get_mut(from..end).ok_or(io::ErrorKind::UnexpectedEof)?;
            place.copy_from_slice(data);
            Ok(())
        })
    }
}

/// A store with everything in it, as its file is after a clean end.
fn whole_file() -> Vec<u8> {
    let file = MemoryFile::default();
    let store = EmbeddedStore::open_backend(file.clone()).unwrap();
    let revision = |number| PolicyRevision {
        number,
        content: PolicyContent::default(),
        ..PolicyRevision::default()
    };
    let policies = (1..=REVISIONS).map(|number| StoreRecord::Policy(Box::new(revision(number))));
    let fabric = FabricDocument::default();
    let others =
        [StoreRecord::Term(3), StoreRecord::Generation(9), StoreRecord::Fabric(Box::new(fabric))];
    store.write_records(&policies.chain(others).collect::<Vec<_>>()).unwrap();
    drop(store);
    file.with_bytes(|bytes| bytes.clone())
}

/// From now on a panic of redb is nobody's bug: the store refuses the file that it comes from. One
/// that the store does not catch still ends the target.
fn tolerate_library_panics() {
    let report_panic = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|place| place.file().contains("/redb-")) {
            report_panic(info);
        }
    }));
}

/// Six bytes for each change: four say where, two are written there.
pub(crate) fn store_files(data: &[u8]) -> Option<()> {
    static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        tolerate_library_panics();
        whole_file()
    });
    let mut bytes = WHOLE.clone();
    for edit in data.chunks_exact(EDIT_BYTES) {
        let place = u32::from_le_bytes([edit[0], edit[1], edit[2], edit[3]]);
        let place = place as usize % (bytes.len() - 1);
        bytes[place..place + 2].copy_from_slice(&edit[4..]);
    }
    let file = MemoryFile(Arc::new(Mutex::new(bytes)));
    let store = EmbeddedStore::open_backend(file).ok()?;
    let _refused = store.policy_revisions();
    let read = store.read_state();
    let _refused = store.write_records(&[StoreRecord::Term(4)]);
    read.ok().map(drop)
}
