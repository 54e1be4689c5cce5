//! A ring of files in a folder: the oldest are deleted.
//!
//! Each line is one write to the system, so a controller that crashes leaves whole lines and at
//! most one that is cut. The decision: file numbers rise for as long as the folder exists, so a
//! restarted controller overwrites no file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::private_file::create_private;

/// Numbered files, of which the latest are kept.
#[derive(Debug)]
pub(super) struct FileRing {
    folder: PathBuf,
    files: usize,
    /// The number of the current file.
    number: u64,
    file: Option<File>,
    written: u64,
}

impl FileRing {
    /// Continues in a folder, which is created if it does not exist.
    pub(super) fn open(folder: &Path, files: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let number = file_numbers(folder)?.pop().unwrap_or(0);
        Ok(Self { folder: folder.to_owned(), files, number, file: None, written: 0 })
    }

    /// Begins the next file and deletes the oldest.
    pub(super) fn start_next_file(&mut self) -> io::Result<()> {
        self.number += 1;
        let path = self.file_path(self.number);
        self.file = Some(create_private(&path)?);
        self.written = 0;
        let mut numbers = file_numbers(&self.folder)?;
        let surplus = numbers.len().saturating_sub(self.files);
        for number in numbers.drain(..surplus) {
            fs::remove_file(self.file_path(number))?;
        }
        Ok(())
    }

    /// Appends a line; the length of the file after it.
    pub(super) fn append_line(&mut self, line: &[u8]) -> io::Result<u64> {
        if let Some(file) = &mut self.file {
            file.write_all(line)?;
            self.written += line.len() as u64;
        }
        Ok(self.written)
    }

    fn file_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("flight-{number:06}.jsonl"))
    }
}

/// The numbers of the files in a folder, ascending.
fn file_numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let number: Option<u64> = name.to_str().and_then(|name| {
            let number = name.strip_prefix("flight-")?.strip_suffix(".jsonl")?;
            number.parse().ok()
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_files_are_deleted_and_numbers_continue() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = FileRing::open(folder.path(), 2).unwrap();
        for _ in 0..3 {
            ring.start_next_file().unwrap();
            assert_eq!(ring.append_line(b"{}\n").unwrap(), 3);
        }
        assert_eq!(file_numbers(folder.path()).unwrap(), [2, 3]);
        let mut ring = FileRing::open(folder.path(), 2).unwrap();
        ring.start_next_file().unwrap();
        assert_eq!(file_numbers(folder.path()).unwrap(), [3, 4]);
    }
}
