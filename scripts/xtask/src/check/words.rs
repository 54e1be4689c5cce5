//! The rules of names and prose (docs/glossary.md, docs/style.md) that a program can check.
//!
//! Each submodule has one rule: a function from the tree to its violations. The decision: a rule
//! that the tree does not keep yet is in force all the same; [`PENDING`] names the folders in which
//! it may still be broken, and an entry that is no longer needed is itself a violation.

mod docs;
mod identifiers;
mod links;
mod terms;
mod types;

use std::path::Path;

use super::RuleViolations;
use crate::tree;

/// A place that breaks a rule.
struct WordViolation {
    rule: &'static str,
    path: String,
    line: usize,
    problem: String,
}

impl WordViolation {
    fn is_pending_in(&self, place: &(&str, &str)) -> bool {
        self.rule == place.0 && self.path.starts_with(place.1)
    }
}

/// Rule and beginning of the path where it may be broken for now. May only shrink.
const PENDING: [(&str, &str); 0] = [];

pub(super) fn check_words(root: &Path) -> Result<RuleViolations, String> {
    let sources = tree::rust_files(root)?;
    let pages = tree::read_files(root, ".md")?;
    let glossary = pages.iter().find(|page| page.path == "docs/glossary.md");
    let terms = terms::parse_terms(&glossary.ok_or("docs/glossary.md is missing")?.text);
    let files = tree::tracked_files(root)?;
    let mut found = Vec::new();
    for source in &sources {
        found.extend(identifiers::banned_identifiers(source));
        found.extend(terms::replaced_terms(source, &terms));
        found.extend(docs::empty_docs(source));
    }
    found.extend(types::repeated_types(&sources, &files));
    found.extend(links::broken_links(&pages, &files));
    Ok(report_violations(&found, &PENDING))
}

/// The violations outside of pending places, and the pending places without any.
fn report_violations(found: &[WordViolation], pending: &[(&str, &str)]) -> RuleViolations {
    let unneeded = pending
        .iter()
        .filter(|place| !found.iter().any(|violation| violation.is_pending_in(place)))
        .map(|(rule, folder)| format!("{folder} keeps rule {rule}: remove it from PENDING"));
    let mut reported: RuleViolations = unneeded.collect();
    let broken = found
        .iter()
        .filter(|violation| !pending.iter().any(|place| violation.is_pending_in(place)));
    reported.extend(broken.map(|violation| {
        let WordViolation { path, line, problem, rule } = violation;
        format!("{path}:{line}: {problem} ({rule})")
    }));
    reported
}

/// A source file of a test of these rules.
#[cfg(test)]
fn test_file(path: &str, text: &str) -> tree::SourceFile {
    let (path, text) = (path.to_owned(), text.to_owned());
    tree::SourceFile { path, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_places_are_silent_until_they_are_clean() {
        let broken = || WordViolation {
            rule: "docs",
            path: "p4/src/lib.rs".to_owned(),
            line: 3,
            problem: "say more".to_owned(),
        };
        let check =
            |found: &[WordViolation], pending: &[(&str, &str)]| report_violations(found, pending);
        assert_eq!(check(&[broken()], &[]), ["p4/src/lib.rs:3: say more (docs)"]);
        assert_eq!(check(&[broken()], &[("docs", "p4/")]), RuleViolations::new());
        assert_eq!(check(&[broken()], &[("types", "p4/")]).len(), 2);
        assert_eq!(check(&[], &[("docs", "p4/")]).len(), 1);
    }
}
