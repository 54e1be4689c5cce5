//! Every house rule, each in a module of its own: a function from the tree to its violations.

mod cycles;
mod dependencies;
mod diaries;
mod exemptions;
mod floors;
mod layout;
mod messages;
mod page_commands;
mod pages;
mod programs;
mod words;

use std::path::Path;
use std::process::ExitCode;

use crate::{generate, tree};

/// What a rule finds: the places that break it, each with the remedy.
pub(crate) type RuleViolations = Vec<String>;

type RuleCheck = fn(&Path) -> Result<RuleViolations, String>;

/// The rules that read the tree, by the name they are reported under.
const RULES: [(&str, RuleCheck); 12] = [
    ("layout", layout::check_layout),
    ("floors", floors::check_floors),
    ("cycles", cycles::check_cycles),
    ("programs", programs::check_programs),
    ("words", words::check_words),
    ("pages", pages::check_pages),
    ("diaries", diaries::check_diaries),
    ("page commands", page_commands::check_page_commands),
    ("messages", messages::check_messages),
    ("exemptions", exemptions::check_exemptions),
    ("dependencies", dependencies::check_dependencies),
    ("generated files", generate::check_generated),
];

const FMT: [&str; 3] = ["fmt", "--all", "--check"];
const CLIPPY: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--keep-going", "--quiet", "--", "-Dwarnings"];
const DOC: [&str; 5] = ["doc", "--workspace", "--no-deps", "--keep-going", "--quiet"];

/// Runs every rule, reports all violations, and succeeds without violations.
pub(crate) fn run_checks(root: &Path) -> ExitCode {
    let cargo = [("fmt", FMT.as_slice()), ("clippy", &CLIPPY), ("doc", &DOC)];
    let by_cargo = cargo.map(|(name, arguments)| (name, run_cargo(root, arguments)));
    let by_reading = RULES.map(|(name, rule)| (name, rule(root)));
    let mut broken = 0;
    for (name, result) in by_cargo.into_iter().chain(by_reading) {
        let violations = result.unwrap_or_else(|error| vec![error]);
        println!("{name}: {}", if violations.is_empty() { "ok" } else { "FAILED" });
        violations.iter().for_each(|violation| println!("  {violation}"));
        broken += violations.len();
    }
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_cargo(root: &Path, arguments: &[&str]) -> Result<RuleViolations, String> {
    tree::run_command(root, "cargo", arguments).map(|()| Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_the_rules() {
        // Generated files need a build of the whole program; `cargo xtask check` compares them.
        let rules = RULES.into_iter().filter(|(name, _)| *name != "generated files");
        let broken = rules.flat_map(|(name, rule)| {
            let violations = rule(&tree::workspace_root()).unwrap_or_else(|error| vec![error]);
            violations.into_iter().map(move |violation| format!("{name}: {violation}"))
        });
        assert_eq!(broken.collect::<RuleViolations>(), RuleViolations::new());
    }
}
