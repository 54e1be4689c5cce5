//! One term for one thing: identifiers that docs/glossary.md replaces by another do not occur.
//!
//! The last column of its table is "not"; what stands there in backticks is forbidden, as a whole
//! identifier or as consecutive words of one.

use super::WordViolation;
use crate::source::{TokenKind, read_tokens, split_identifier};
use crate::tree::SourceFile;

/// A forbidden identifier as its words, and the term to use instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplacedTerm {
    words: Vec<String>,
    term: String,
}

/// The forbidden identifiers of the tables of a page.
pub(super) fn parse_terms(page: &str) -> Vec<ReplacedTerm> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
        Some((cells.first()?.trim(), *cells.last()?))
    });
    rows.flat_map(|(term, not)| {
        not.split('`').skip(1).step_by(2).map(|identifier| ReplacedTerm {
            words: split_identifier(identifier),
            term: term.replace('*', ""),
        })
    })
    .collect()
}

pub(super) fn replaced_terms(file: &SourceFile, terms: &[ReplacedTerm]) -> Vec<WordViolation> {
    let tokens = read_tokens(&file.text).into_iter();
    let identifiers = tokens.filter(|token| token.kind == TokenKind::Word);
    identifiers
        .filter_map(|token| {
            let words = split_identifier(token.text);
            let replaced = terms
                .iter()
                .find(|term| words.windows(term.words.len()).any(|part| part == term.words))?;
            Some(WordViolation {
                rule: "terms",
                path: file.path.clone(),
                line: token.line,
                problem: format!(
                    "{}: the term is {} (docs/glossary.md)",
                    token.text, replaced.term
                ),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_file;
    use super::*;

    const PAGE: &str = "\
| term | meaning | elsewhere | not |
|---|---|---|---|
| host | a server | | `node`, server |
| policy revision | a policy in force | | `edition`, `PolicyVersion` |
";

    #[test]
    fn identifiers_that_the_page_replaces_are_found() {
        let terms = parse_terms(PAGE);
        assert_eq!(terms.len(), 3);
        let count = |text: &str| replaced_terms(&test_file("a/src/b.rs", text), &terms).len();
        assert_eq!(count("fn count_node(server: Edition) {}"), 2);
        assert_eq!(count("struct LastPolicyVersion; // node"), 1);
        assert_eq!(count("struct Policy { version: u32, nodes: u8 }"), 0);
    }
}
