//! The libraries of the workspace as cargo knows them, without a network where it has them all.
//!
//! The check of the supply chain and the bill of materials read the same list.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A library from a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Library {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Where it comes from, as Cargo.lock has it.
    pub(crate) source: String,
    /// Its licence, an SPDX expression.
    pub(crate) license: String,
    /// SHA-256 of its package, if Cargo.lock has it.
    pub(crate) checksum: Option<String>,
}

/// All libraries of Cargo.lock that are not our own crates, by name and version.
pub(crate) fn read_libraries(root: &Path) -> Result<Vec<Library>, String> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock"));
    let lock = lock.map_err(|error| format!("Cargo.lock: {error}"))?;
    // Libraries of other platforms are not there before somebody has asked for them.
    let metadata =
        read_metadata(root, &["--offline"]).or_else(|_missing| read_metadata(root, &[]))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut libraries: Vec<Library> = packages.filter_map(|one| library(one, &lock)).collect();
    libraries.sort();
    Ok(libraries)
}

fn read_metadata(root: &Path, network: &[&str]) -> Result<Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(network)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn library(package: &Value, lock: &str) -> Option<Library> {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let source = package["source"].as_str()?.to_owned();
    let (name, version) = (text("name"), text("version"));
    let checksum = locked_checksum(lock, &name, &version);
    Some(Library { name, version, source, license: text("license"), checksum })
}

/// The checksum of a package in Cargo.lock.
fn locked_checksum(lock: &str, name: &str, version: &str) -> Option<String> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let (_, rest) = lock.split_once(&head)?;
    let mut fields = rest.lines().take_while(|line| !line.is_empty());
    let line = fields.find_map(|line| line.strip_prefix("checksum = \""))?;
    Some(line.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_its_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"1\"\n\n\
                    [[package]]\nname = \"a\"\nversion = \"2.0.0\"\nchecksum = \"2\"\n";
        assert_eq!(locked_checksum(lock, "a", "2.0.0").as_deref(), Some("2"));
        assert_eq!(locked_checksum(lock, "a", "3.0.0"), None);
    }
}
