//! The folder of a lab: its documents, logs and sockets.
//!
//! The decision: the documents are written before anything is made, and everything that is made has
//! a name that follows from them. So a lab can be removed whatever was killed, `crux lab up`
//! included.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use command_io::CommandError;
use command_io::files;
use planner::JobsDocument;
use serde::{Deserialize, Serialize};
use topology::Fabric;
use topology::spec::FabricDocument;

use super::scaling::LabScale;

/// Where the folders of labs are; they end with the running system, as namespaces do.
const LABS: &str = "/run/crux-lab";
/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 8;

/// The name of a lab, with which the namespaces of its hosts begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabName(String);

impl FromStr for LabName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match (1..=16).contains(&text.len()) && text.chars().all(is_plain) {
            true => Ok(Self(text.to_owned())),
            false => Err("a name has up to 16 letters, digits and _".to_owned()),
        }
    }
}

/// The folder of a lab.
#[derive(Clone, Debug)]
pub(super) struct LabFolder {
    pub(super) name: String,
    path: PathBuf,
}

/// What a lab is made of, besides the documents; for those who look into the folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LabRecord {
    /// Where the controller serves.
    pub(super) controller: SocketAddr,
    /// Factors between the documents as given and those in the folder.
    pub(super) scale: LabScale,
}

impl LabFolder {
    /// The folder of the lab of that name, whether it is there or not.
    pub(super) fn of_name(name: &LabName) -> Self {
        Self { name: name.0.clone(), path: Path::new(LABS).join(&name.0) }
    }

    /// Makes the folder with its documents.
    ///
    /// # Errors
    /// There is a lab of that name, or the folder cannot be written.
    pub(super) fn create(
        &self,
        record: &LabRecord,
        fabric: &FabricDocument,
        jobs: &JobsDocument,
    ) -> Result<(), CommandError> {
        fs::create_dir_all(LABS).map_err(|error| CommandError::input(LABS, error))?;
        fs::create_dir(&self.path)
            .map_err(|error| CommandError::input(self.path.display(), error))?;
        self.write_json("lab.json", record)?;
        self.write_json("jobs.json", jobs)?;
        self.write_json("fabric.json", fabric)
    }

    /// Refuses a name that a lab has.
    pub(super) fn check_absent(&self) -> Result<(), CommandError> {
        match self.exists() {
            false => Ok(()),
            true => Err(CommandError::Failed(format!(
                "lab `{0}` exists; remove it with crux lab down --name {0}",
                self.name
            ))),
        }
    }

    /// Removes the folder; a missing folder is not an error.
    pub(super) fn remove(&self) -> Result<(), CommandError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CommandError::input(self.path.display(), error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The fabric of the lab, at its emulated rates.
    ///
    /// # Errors
    /// There is no lab of that name.
    pub(super) fn read_fabric(&self) -> Result<Fabric, CommandError> {
        self.require()?;
        files::read_fabric(&self.text_of("fabric.json"))
    }

    fn require(&self) -> Result<(), CommandError> {
        match self.exists() {
            true => Ok(()),
            false => Err(CommandError::Failed(format!(
                "no lab `{}` runs; start one with crux lab up",
                self.name
            ))),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file of the folder as a word of a command line.
    pub(super) fn text_of(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    pub(super) fn write_json(
        &self,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), CommandError> {
        let text = serde_json::to_string(value).map_err(CommandError::failed)?;
        self.write_text(name, &text)
    }

    pub(super) fn write_text(&self, name: &str, text: &str) -> Result<(), CommandError> {
        let file = self.file(name);
        fs::write(&file, text).map_err(|error| CommandError::input(file.display(), error))
    }

    /// A new file for what a program prints.
    pub(super) fn create_log(&self, name: &str) -> Result<File, CommandError> {
        let file = self.file(name);
        File::create(&file).map_err(|error| CommandError::input(file.display(), error))
    }

    /// What a program printed so far.
    pub(super) fn read_log(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The last lines of a log.
    pub(super) fn log_end(&self, name: &str) -> String {
        let text = self.read_log(name);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labs_are_safe_in_paths_and_namespaces() {
        for good in ["lab", "a", "two_leaves9"] {
            assert!(good.parse::<LabName>().is_ok(), "{good}");
        }
        for bad in ["", "..", "a/b", "a-b", "a b", "seventeen_letters"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad}");
        }
    }
}
