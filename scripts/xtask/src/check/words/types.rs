//! A type name means one thing: at most two crates define it (two layers of one concept).

use std::collections::BTreeMap;

use crate::check::RuleViolations;
use crate::source::{Token, TokenKind, is_test_file, read_tokens, without_tests};
use crate::tree::SourceFile;

const MAX_CRATES: usize = 2;
const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "union"];

/// Type names that more than two crates define; `files` are the paths of the whole tree, where
/// manifests say which folders are crates.
pub(super) fn repeated_types(sources: &[SourceFile], files: &[String]) -> RuleViolations {
    let crates: Vec<&str> =
        files.iter().filter_map(|path| path.strip_suffix("Cargo.toml")).collect();
    let mut definitions: BTreeMap<String, BTreeMap<&str, (&str, usize)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test_file(source)) {
        let folders = crates.iter().filter(|folder| source.path.starts_with(**folder));
        let Some(folder) = folders.max_by_key(|folder| folder.len()) else {
            continue;
        };
        for (name, line) in defined_types(&source.text) {
            let places = definitions.entry(name).or_default();
            places.entry(folder).or_insert((&source.path, line));
        }
    }
    let repeated = definitions.into_iter().filter(|(_, places)| places.len() > MAX_CRATES);
    repeated
        .filter_map(|(name, places)| {
            let folders: Vec<&str> = places.keys().copied().collect();
            let (path, line) = places.into_values().next()?;
            Some(format!("{path}:{line}: {name} is a type of {}", folders.join(", ")))
        })
        .collect()
}

/// Names and lines of the types that a file defines outside of its tests.
fn defined_types(text: &str) -> Vec<(String, usize)> {
    let tokens: Vec<Token<'_>> = without_tests(&read_tokens(text));
    let pairs = tokens.windows(2).filter(|pair| {
        let is_keyword = KEYWORDS.iter().any(|keyword| pair[0].is(keyword));
        is_keyword && pair[1].kind == TokenKind::Word
    });
    pairs.map(|pair| (pair[1].text.to_owned(), pair[1].line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_file;
    use super::*;

    #[test]
    fn names_of_three_crates_are_found() {
        let files = ["a/Cargo.toml", "a/b/Cargo.toml", "c/Cargo.toml"].map(str::to_owned);
        let sources = [
            test_file("a/src/lib.rs", "struct Host;"),
            test_file("a/b/src/lib.rs", "pub enum Host {}"),
        ];
        assert!(repeated_types(&sources, &files).is_empty());
        let third = |text| test_file("c/src/lib.rs", text);
        let [first, second] = sources;
        let sources = [first, second, third("trait Host {}")];
        assert_eq!(repeated_types(&sources, &files).len(), 1);
        let [first, second, _] = sources;
        let sources = [first, second, third("#[cfg(test)] mod tests { struct Host; }")];
        assert!(repeated_types(&sources, &files).is_empty());
    }
}
