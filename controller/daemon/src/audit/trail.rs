//! The trail of one controller: the latest records in memory, all of them in files if there are
//! any.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::Instant;
use topology::Finding;
use tracing::{error, info};

use super::denial_counter::{ADMISSION_WINDOW, DENIAL_WINDOW, RepeatCounter, RepeatedKind};
use super::record::{AuditAction, AuditEntry, AuditRecord, verify_chain, verify_head};
use super::syslog::SyslogSender;
use super::trail_file::{TrailFile, read_trail};
use crate::clock::Clock;
use crate::config::AuditConfig;
use crate::store::{AuditHead, EmbeddedStore};

/// Records that are kept in memory, for `crux audit`.
const RECORDS_KEPT: usize = 1_000;

/// Bytes of a text that a caller decides.
const TEXT_BYTES: usize = 1_024;

/// The trail; cheap to clone. Behind a lock, because requests on any task append to one chain; a
/// line is written while it is held, and no await.
#[derive(Clone, Debug)]
pub struct AuditTrail {
    clock: Clock,
    state: Arc<Mutex<TrailState>>,
}

#[derive(Debug)]
struct TrailState {
    latest: VecDeque<AuditRecord>,
    next_sequence: u64,
    last_hash: String,
    file: Option<TrailFile>,
    /// Records that the file has not taken yet, at most as many as are kept.
    unwritten: VecDeque<AuditRecord>,
    /// The store whose mark has the last record, if there is one.
    anchor: Option<Weak<EmbeddedStore>>,
    /// Where each record is sent as well.
    syslog: Option<SyslogSender>,
    denials: RepeatCounter,
    admissions: RepeatCounter,
    /// What was wrong with the trail when it was opened, or with its collector since.
    damage: Option<String>,
    /// Why the file takes no record now.
    write_error: Option<String>,
}

impl AuditTrail {
    /// Opens the trail, with the records in its files.
    ///
    /// # Errors
    /// A file cannot be read or created.
    pub fn open(config: &AuditConfig, clock: Clock) -> io::Result<Self> {
        Self::open_anchored(config, clock, None)
    }

    /// Opens the trail with a store whose mark has the last record, so that a trail whose end or whole
    /// is gone is found.
    ///
    /// # Errors
    /// A file cannot be read or created.
    pub fn open_anchored(
        config: &AuditConfig,
        clock: Clock,
        anchor: Option<&Arc<EmbeddedStore>>,
    ) -> io::Result<Self> {
        let mut state = TrailState {
            latest: VecDeque::new(),
            next_sequence: 1,
            last_hash: AuditRecord::first_hash(),
            file: None,
            unwritten: VecDeque::new(),
            anchor: None,
            syslog: None,
            denials: RepeatCounter::new(DENIAL_WINDOW),
            admissions: RepeatCounter::new(ADMISSION_WINDOW),
            damage: None,
            write_error: None,
        };
        if let Some(files) = &config.files {
            state.file = Some(TrailFile::open(files)?);
            state.restore_records(read_trail(&files.path));
            state.anchor = anchor.map(Arc::downgrade);
            state.check_head(anchor.and_then(|store| store.audit_head()));
        }
        if let Some(target) = &config.syslog {
            match SyslogSender::open(target) {
                Ok(syslog) => state.syslog = Some(syslog),
                // A collector that is away at the start is no reason not to control a fabric.
                Err(error) => state.damage = Some(format!("no syslog at {target}: {error}")),
            }
        }
        Ok(Self { clock, state: Arc::new(Mutex::new(state)) })
    }

    /// The records of the trail at `path`, the oldest first.
    ///
    /// # Errors
    /// A file cannot be read, or a line is no record.
    pub fn read_files(path: &Path) -> io::Result<Vec<AuditRecord>> {
        read_trail(path)
    }

    /// Records something that the controller or an operator did. It is on the disk when this
    /// returns, if there is a file.
    pub fn record_action(&self, action: AuditAction, who: &str, reason: &str, detail: &str) {
        let entry = AuditEntry {
            sequence: 0,
            at_ms: self.clock.unix_now(),
            action,
            who: who.to_owned(),
            address: String::new(),
            reason: shorten(reason),
            detail: shorten(detail),
            count: 1,
        };
        let mut state = self.lock();
        state.append_entry(entry);
        state.sync_file();
        state.keep_head();
    }

    /// Records that a caller was let in, once an hour.
    pub fn record_admission(&self, who: &str, address: &str) {
        let kind = RepeatedKind {
            who: who.to_owned(),
            address: address.to_owned(),
            reason: String::new(),
        };
        let now = Instant::now();
        let mut state = self.lock();
        drop(state.admissions.take_ended(now));
        if let Some(kind) = state.admissions.count(kind, now) {
            let at_ms = self.clock.unix_now();
            state.append_entry(repeated_entry(at_ms, AuditAction::Admitted, kind, 1));
        }
    }

    /// Records that a request was refused; what repeats is counted.
    pub fn record_denial(&self, address: &str, reason: &str) {
        let kind = RepeatedKind {
            who: String::new(),
            address: address.to_owned(),
            reason: shorten(reason),
        };
        let (now, at_ms) = (Instant::now(), self.clock.unix_now());
        let mut state = self.lock();
        state.append_ended(now, at_ms);
        if let Some(kind) = state.denials.count(kind, now) {
            state.append_entry(repeated_entry(at_ms, AuditAction::Denied, kind, 1));
        }
    }

    /// The latest records, the latest first.
    pub fn latest_records(&self) -> Vec<AuditRecord> {
        let (now, at_ms) = (Instant::now(), self.clock.unix_now());
        let mut state = self.lock();
        state.append_ended(now, at_ms);
        state.latest.iter().rev().cloned().collect()
    }

    /// The finding that the trail is damaged or cannot be written, if so.
    pub fn damage_finding(&self) -> Option<Finding> {
        let state = self.lock();
        let is_gone = state.file.as_ref().is_some_and(|file| !file.is_in_place());
        let gone = is_gone.then(|| {
            "the file of the audit trail was deleted or replaced while the controller runs; start \
             it again"
                .to_owned()
        });
        let damage = gone.or_else(|| state.write_error.clone()).or_else(|| state.damage.clone());
        damage.map(|damage| Finding::error("audit", damage))
    }

    fn lock(&self) -> MutexGuard<'_, TrailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrailState {
    fn restore_records(&mut self, read: io::Result<Vec<AuditRecord>>) {
        let records = match read {
            Ok(records) => records,
            Err(error) => {
                self.damage = Some(format!("the audit trail cannot be read: {error}"));
                return;
            }
        };
        if let Err(error) = verify_chain(&records) {
            self.damage = Some(format!("the audit trail is not as it was written: {error}"));
        }
        if let Some(last) = records.last() {
            self.next_sequence = last.entry.sequence + 1;
            self.last_hash.clone_from(&last.hash);
        }
        let skipped = records.len().saturating_sub(RECORDS_KEPT);
        self.latest.extend(records.into_iter().skip(skipped));
    }

    /// Compares the records with the last one that the mark of the store knows, and goes on after it.
    fn check_head(&mut self, head: Option<AuditHead>) {
        let Some(head) = head else { return };
        let Err(error) = verify_head(&self.latest, &head) else { return };
        error!("the audit trail is not as it was written: {error}");
        self.damage.get_or_insert(format!("the audit trail is not as it was written: {error}"));
        if self.next_sequence <= head.sequence {
            (self.next_sequence, self.last_hash) = (head.sequence + 1, head.hash);
        }
    }

    /// Has the mark of the store know the last record, if the file has it.
    fn keep_head(&self) {
        let store = self.anchor.as_ref().and_then(Weak::upgrade);
        if let Some(store) = store.filter(|_| self.write_error.is_none()) {
            let (sequence, hash) = (self.next_sequence - 1, self.last_hash.clone());
            store.keep_audit_head(AuditHead { sequence, hash });
        }
    }

    /// Appends an entry under the next number.
    fn append_entry(&mut self, entry: AuditEntry) {
        let entry = AuditEntry { sequence: self.next_sequence, ..entry };
        info!(
            target: "audit",
            sequence = entry.sequence, action = %entry.action, who = entry.who,
            address = entry.address, reason = entry.reason, detail = entry.detail,
            count = entry.count
        );
        let record = AuditRecord::following(self.last_hash.clone(), entry);
        if self.file.is_some() {
            self.unwritten.push_back(record.clone());
            let written = self.write_records();
            self.note_write(written);
        }
        let sent = self.syslog.as_ref().map_or(Ok(()), |syslog| syslog.send_record(&record));
        self.note_sent(sent);
        self.next_sequence += 1;
        self.last_hash.clone_from(&record.hash);
        self.latest.push_back(record);
        if self.latest.len() > RECORDS_KEPT {
            self.latest.pop_front();
        }
    }

    /// Appends what repeated within a window that has ended.
    fn append_ended(&mut self, now: Instant, at_ms: u64) {
        for (kind, count) in self.denials.take_ended(now) {
            self.append_entry(repeated_entry(at_ms, AuditAction::Denied, kind, count));
        }
    }

    /// Writes the records that wait, the oldest first. Those that a full disk does not take wait on.
    fn write_records(&mut self) -> io::Result<()> {
        while let (Some(file), Some(record)) = (&mut self.file, self.unwritten.front()) {
            if let Err(error) = file.append_record(record) {
                let surplus = self.unwritten.len().saturating_sub(RECORDS_KEPT);
                self.unwritten.drain(..surplus);
                return Err(error);
            }
            self.unwritten.pop_front();
        }
        Ok(())
    }

    fn sync_file(&mut self) {
        if let Err(error) = self.file.as_ref().map_or(Ok(()), TrailFile::sync) {
            self.note_write(Err(error));
        }
    }

    fn note_sent(&mut self, sent: io::Result<()>) {
        if let Err(error) = sent
            && self.damage.is_none()
        {
            error!(%error, "cannot send the audit trail to syslog");
            self.damage = Some(format!("the audit trail cannot be sent to syslog: {error}"));
        }
    }

    fn note_write(&mut self, written: io::Result<()>) {
        let failed =
            written.err().map(|error| format!("the audit trail cannot be written: {error}"));
        if let Some(failed) = failed.as_ref().filter(|_| self.write_error.is_none()) {
            error!("{failed}");
        }
        self.write_error = failed;
    }
}

fn repeated_entry(at_ms: u64, action: AuditAction, kind: RepeatedKind, count: u64) -> AuditEntry {
    let RepeatedKind { who, address, reason } = kind;
    AuditEntry { sequence: 0, at_ms, action, who, address, reason, detail: String::new(), count }
}

/// A text without control characters and of bounded length.
fn shorten(text: &str) -> String {
    let printed = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    let mut short = String::new();
    for next in printed.take_while(|_| true) {
        if short.len() + next.len_utf8() > TEXT_BYTES {
            break;
        }
        short.push(next);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AuditFiles;

    fn config(folder: &Path, file_bytes: u64) -> AuditConfig {
        let files = AuditFiles { path: folder.join("audit"), file_bytes, count: 3 };
        AuditConfig { files: Some(files), syslog: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_collector_receives_every_record_and_may_be_away() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("log");
        let away = AuditConfig { files: None, syslog: Some(socket.to_str().unwrap().to_owned()) };
        let trail = AuditTrail::open(&away, Clock::start()).unwrap();
        trail.record_action(AuditAction::Started, "crux", "", "");
        assert!(trail.damage_finding().unwrap().text.contains("no syslog"));

        let local = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
        let remote = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = remote.local_addr().unwrap().to_string();
        for target in [socket.to_str().unwrap(), &address] {
            let config = AuditConfig { files: None, syslog: Some(target.to_owned()) };
            let trail = AuditTrail::open(&config, Clock::start()).unwrap();
            trail.record_action(AuditAction::PolicyApplied, "ada", "night", "revision 2");
            trail.record_denial("10.0.0.9", "unknown token");
            assert_eq!(trail.damage_finding(), None);
        }
        let mut messages = Vec::new();
        for _ in 0..2 {
            let mut buffer = [0; 2_048];
            let length = local.recv(&mut buffer).unwrap();
            messages.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            let length = remote.recv(&mut buffer).unwrap();
            messages.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        let sent: Vec<AuditRecord> = messages
            .iter()
            .map(|message| serde_json::from_str(&message[message.find('{').unwrap()..]).unwrap())
            .collect();
        assert!(messages.iter().all(|message| message.contains(" crux ")), "{messages:?}");
        let over = |way: usize| sent.iter().skip(way).step_by(2);
        assert_eq!([verify_chain(over(0)), verify_chain(over(1))], [Ok(()), Ok(())]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_chain_goes_on_over_restarts_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), 4_096);
        let path = folder.path().join("audit");
        for _ in 0..3 {
            let trail = AuditTrail::open(&config, Clock::start()).unwrap();
            assert_eq!(trail.damage_finding(), None);
            for number in 0..20 {
                let detail = format!("revision {number}");
                trail.record_action(AuditAction::PolicyApplied, "ada", "a test", &detail);
            }
        }
        let records = AuditTrail::read_files(&path).unwrap();
        assert_eq!(verify_chain(&records), Ok(()));
        let last = records.last().unwrap().entry.sequence;
        assert!(last == 60 && records.len() < 60, "the oldest file was dropped");
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_found_and_a_torn_line_is_not_damage() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), 1 << 20);
        let path = folder.path().join("audit");
        let trail = AuditTrail::open(&config, Clock::start()).unwrap();
        for reason in ["night", "day"] {
            trail.record_action(AuditAction::PolicyConfirmed, "ada", reason, "revision 2");
        }
        drop(trail);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{{\"entry\":")).unwrap();
        let trail = AuditTrail::open(&config, Clock::start()).unwrap();
        assert_eq!((trail.damage_finding(), trail.latest_records().len()), (None, 2));
        std::fs::write(&path, text.replace("night", "sleep")).unwrap();
        let trail = AuditTrail::open(&config, Clock::start()).unwrap();
        assert!(trail.damage_finding().unwrap().text.contains("record 1 was changed"));
    }

    /// Found by attack: a trail that was deleted, cut off or written anew passed its check.
    #[tokio::test(start_paused = true)]
    async fn a_trail_that_lost_its_end_is_found_by_the_mark_of_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let (config, path) = (config(folder.path(), 1 << 20), folder.path().join("audit"));
        let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
        let open = || AuditTrail::open_anchored(&config, Clock::start(), Some(&store)).unwrap();
        let record = |trail: &AuditTrail, reason: &str| {
            trail.record_action(AuditAction::PolicyConfirmed, "ada", reason, "revision 2");
        };
        let trail = open();
        record(&trail, "night");
        record(&trail, "day");
        assert_eq!(trail.damage_finding(), None);
        let whole = std::fs::read_to_string(&path).unwrap();
        let cut = &whole[..=whole.find('\n').unwrap()];
        let found = |written: Option<&str>| {
            store.keep_audit_head(AuditHead { sequence: 2, hash: trail.lock().last_hash.clone() });
            match written {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            open().damage_finding().map(|finding| finding.text).unwrap_or_default()
        };
        assert_eq!(found(Some(&whole)), "");
        assert!(found(Some(cut)).contains("records 2 to 2 are missing"));
        assert!(found(None).contains("records 1 to 2 are missing"));
        assert!(trail.damage_finding().unwrap().text.contains("deleted or replaced"));
        // A chain that holds, of other records.
        let elsewhere = tempfile::tempdir().unwrap();
        let forged = AuditTrail::open(&self::config(elsewhere.path(), 1 << 20), Clock::start());
        let forged = forged.unwrap();
        ["sleep", "day"].iter().for_each(|reason| record(&forged, reason));
        let text = std::fs::read_to_string(elsewhere.path().join("audit")).unwrap();
        assert!(found(Some(&text)).contains("record 2 is another one"));
        // The chain goes on after what is missing.
        assert!(found(Some(cut)).contains("missing"));
        record(&open(), "later");
        assert!(AuditTrail::read_files(&path).unwrap().last().unwrap().entry.sequence >= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refusals_is_a_few_records() {
        let trail = AuditTrail::open(&AuditConfig::default(), Clock::start()).unwrap();
        for _ in 0..10_000 {
            trail.record_denial("10.0.0.9", "unknown token");
            trail.record_admission("ada", "10.0.0.1");
        }
        assert_eq!(trail.latest_records().len(), 2);
        tokio::time::advance(DENIAL_WINDOW).await;
        let latest = trail.latest_records();
        assert_eq!((latest.len(), latest[0].entry.count), (3, 9_999));
    }
}
