//! The top level is fixed, and no file has a generic name.

use std::path::Path;

use super::RuleViolations;
use crate::tree;

const FOLDERS: [&str; 6] = ["bmv2-testbed", "controller", "docs", "p4", "scripts", "topology"];
const FILES: [&str; 8] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "rustfmt.toml",
];
const EMPTY_NAMES: [&str; 6] =
    ["mod.rs", "utils.rs", "util.rs", "common.rs", "helpers.rs", "misc.rs"];

pub(super) fn check_layout(root: &Path) -> Result<RuleViolations, String> {
    let files = tree::tracked_files(root)?;
    let broken =
        files.iter().filter_map(|path| check_top_level(path).or_else(|| check_file_name(path)));
    Ok(broken.collect())
}

fn check_top_level(path: &str) -> Option<String> {
    let allowed = match path.split_once('/') {
        Some((folder, _)) => folder.starts_with('.') || FOLDERS.contains(&folder),
        None => path.starts_with('.') || FILES.contains(&path),
    };
    (!allowed).then(|| format!("{path}: the top level has a fixed set of names; move it into one"))
}

fn check_file_name(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    EMPTY_NAMES.contains(&name).then(|| format!("{path}: name the file for the noun it defines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_house_are_found() {
        for path in ["notes.md", "src/lib.rs", "controller/planner/src/utils.rs"] {
            assert!(check_top_level(path).or_else(|| check_file_name(path)).is_some(), "{path}");
        }
        for path in ["README.md", ".ci/run", "p4/src/lib.rs"] {
            assert_eq!(check_top_level(path).or_else(|| check_file_name(path)), None);
        }
    }
}
