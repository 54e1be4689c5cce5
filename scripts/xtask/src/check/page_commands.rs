//! Commands of pages that call this tree, and not `crux`, name what exists: scripts by their paths,
//! `cargo` with known crates, `cargo xtask` with known commands. The crate `crux` tests its own.

use std::collections::BTreeSet;
use std::path::Path;

use super::RuleViolations;
use crate::tree;
use crate::{USAGE, page_text};

pub(super) fn check_page_commands(root: &Path) -> Result<RuleViolations, String> {
    let files: BTreeSet<String> = tree::tracked_files(root)?.into_iter().collect();
    let manifests = tree::read_files(root, "Cargo.toml")?;
    let crates: BTreeSet<String> =
        manifests.iter().filter_map(|file| package_name(&file.text)).collect();
    let pages = tree::read_files(root, ".md")?;
    let found = pages.iter().flat_map(|page| {
        let commands = page_text::shell_commands(&page.text);
        let problems = commands.into_iter().filter_map(|(line, command)| {
            let problem = command_problem(&command, &files, &crates)?;
            Some(format!("{}:{line}: {problem}", page.path))
        });
        problems.collect::<Vec<_>>()
    });
    Ok(found.collect())
}

fn package_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some(line.trim_end_matches('"').to_owned())
}

/// What a command names that does not exist.
fn command_problem(
    command: &str,
    files: &BTreeSet<String>,
    crates: &BTreeSet<String>,
) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().filter(|word| *word != "sudo").collect();
    match words.as_slice() {
        ["cargo", "xtask", name, ..] => {
            let mut known =
                USAGE.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
            let is_known = known.any(|one| one == *name);
            (!is_known).then(|| format!("cargo xtask has no command {name}"))
        }
        ["cargo", ..] => {
            let named = words.windows(2).filter(|pair| ["-p", "--package"].contains(&pair[0]));
            let missing = named.map(|pair| pair[1]).find(|name| !is_crate(name, crates))?;
            Some(format!("there is no crate {missing}"))
        }
        [program, ..] if is_own_path(program) => {
            (!files.contains(*program)).then(|| format!("there is no {program}"))
        }
        _ => None,
    }
}

/// Whether a crate has this name, or the word stands for any.
fn is_crate(name: &str, crates: &BTreeSet<String>) -> bool {
    crates.contains(name) || name.chars().all(|letter| letter.is_ascii_uppercase())
}

fn is_own_path(program: &str) -> bool {
    ["scripts/", "bmv2-testbed/", "controller/", ".ci/"].iter().any(|at| program.starts_with(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_name_what_is_not_there_are_found() {
        let files = ["scripts/a".to_owned()].into();
        let crates = ["planner".to_owned()].into();
        let check = |command| command_problem(command, &files, &crates);
        for command in ["scripts/a --x", "cargo test -p planner", "cargo xtask check", "ls b/c"] {
            assert_eq!(check(command), None, "{command}");
        }
        assert_eq!(check("cargo bench -p CRATE"), None);
        for command in ["sudo scripts/b", "cargo test -p planer", "cargo xtask chek"] {
            assert!(check(command).is_some(), "{command}");
        }
    }

    #[test]
    fn manifests_have_names() {
        assert_eq!(package_name("[package]\nname = \"p4\"\n").as_deref(), Some("p4"));
    }
}
