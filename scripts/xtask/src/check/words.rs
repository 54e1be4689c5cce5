//! The rules of names and prose (docs/glossary.md, docs/style.md) that a program can check.
//!
//! Each submodule has one rule: a function from the tree to its violations.

mod docs;
mod links;
mod terms;
mod types;

use std::path::Path;

use super::RuleViolations;
use crate::tree;

pub(super) fn check_words(root: &Path) -> Result<RuleViolations, String> {
    let sources = tree::rust_files(root)?;
    let pages = tree::read_files(root, ".md")?;
    let glossary = pages.iter().find(|page| page.path == "docs/glossary.md");
    let terms = terms::banned_terms(&glossary.ok_or("docs/glossary.md is missing")?.text);
    let files = tree::tracked_files(root)?;
    let mut found = RuleViolations::new();
    for source in &sources {
        found.extend(terms::replaced_terms(source, &terms));
        found.extend(docs::empty_docs(source));
    }
    found.extend(types::repeated_types(&sources, &files));
    found.extend(links::broken_links(&pages, &files));
    Ok(found)
}

/// A source file of a test of these rules.
#[cfg(test)]
fn test_file(path: &str, text: &str) -> tree::SourceFile {
    let (path, text) = (path.to_owned(), text.to_owned());
    tree::SourceFile { path, text }
}
