//! The files of the audit trail: appended to, never rewritten, a bounded number of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::record::AuditRecord;
use crate::config::AuditFiles;
use api::private_file::ensure_private;

/// The file that is appended to; earlier ones have a number after its name.
#[derive(Debug)]
pub(super) struct TrailFile {
    config: AuditFiles,
    file: File,
    length: u64,
}

impl TrailFile {
    /// Opens the file, and cuts off a last line that a crash left half written.
    pub(super) fn open(config: &AuditFiles) -> io::Result<Self> {
        ensure_private(&config.path)?;
        let content = fs::read(&config.path)?;
        let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) as u64;
        let file = OpenOptions::new().append(true).open(&config.path)?;
        if whole < content.len() as u64 {
            file.set_len(whole)?;
        }
        Ok(Self { config: config.clone(), file, length: whole })
    }

    /// Appends a record as a line.
    pub(super) fn append_record(&mut self, record: &AuditRecord) -> io::Result<()> {
        if self.length >= self.config.file_bytes {
            self.begin_next_file()?;
        }
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            // A part of a line must not stand before the next one.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Whether the path still leads to this file.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let found = fs::metadata(&self.config.path).map(identity);
        self.file.metadata().map(identity).ok().zip(found.ok()).is_some_and(|(own, at)| own == at)
    }

    /// Has the disk keep what was appended.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Numbers the files anew, drops the oldest, and begins an empty one.
    fn begin_next_file(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let path = &self.config.path;
        let earlier = self.config.count.saturating_sub(1);
        for number in (1..earlier).rev() {
            let from = numbered_path(path, number);
            if from.exists() {
                fs::rename(from, numbered_path(path, number + 1))?;
            }
        }
        match earlier {
            0 => fs::remove_file(path)?,
            _ => fs::rename(path, numbered_path(path, 1))?,
        }
        ensure_private(path)?;
        self.file = OpenOptions::new().append(true).open(path)?;
        self.length = 0;
        Ok(())
    }
}

fn numbered_path(path: &Path, number: usize) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    path.with_file_name(name)
}

/// The records of the trail at `path`, the oldest first, those of earlier files included.
///
/// # Errors
/// A file cannot be read, or a line is no record.
pub(super) fn read_trail(path: &Path) -> io::Result<Vec<AuditRecord>> {
    let mut files = vec![path.to_owned()];
    files.extend((1..).map(|number| numbered_path(path, number)).take_while(|file| file.exists()));
    let mut records = Vec::new();
    for file in files.iter().rev() {
        for (number, line) in BufReader::new(File::open(file)?).lines().enumerate() {
            let record = serde_json::from_str(&line?).map_err(|error| {
                let text = format!("{}:{}: {error}", file.display(), number + 1);
                io::Error::new(io::ErrorKind::InvalidData, text)
            });
            records.push(record?);
        }
    }
    Ok(records)
}
