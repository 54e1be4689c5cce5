//! The operator's program carries no laboratory (docs/decisions/0010-programs.md).

use std::collections::BTreeSet;
use std::path::Path;

use super::RuleViolations;
use crate::tree;

/// What evaluates Crux, and what is built to misbehave.
const LABORATORY: [&str; 6] =
    ["lab", "simulator", "placement", "emulator", "fuzz-targets", "switch-server"];

const TREE: [&str; 6] =
    ["tree", "--package=crux", "--edges=normal", "--prefix=none", "--offline", "--locked"];

pub(super) fn check_programs(root: &Path) -> Result<RuleViolations, String> {
    let text = tree::command_output(root, "cargo", &TREE)?;
    let packages: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let carried = LABORATORY.into_iter().filter(|name| packages.contains(name));
    Ok(carried.map(|name| format!("crux depends on {name}, which is of the laboratory")).collect())
}
