//! One term for one thing: identifiers that docs/glossary.md replaces by another do not occur.
//!
//! The last column of its table is "not"; what stands there in backticks is forbidden, as a whole
//! identifier or as consecutive words of one. So are metaphors, for which the field has terms.

use crate::check::RuleViolations;
use crate::source::{TokenKind, read_tokens, split_identifier};
use crate::tree::SourceFile;

/// Words that no identifier contains, and the terms of the field to use instead.
const METAPHORS: [(&str, &str); 26] = [
    ("belief", "assumption, context"),
    ("beliefs", "assumptions, context"),
    ("believe", "assume"),
    ("believed", "assumed"),
    ("census", "registry"),
    ("chapter", "revision diff"),
    ("chronicler", "event log"),
    ("courier", "exporter"),
    ("desk", "client, task"),
    ("door", "listener, handle"),
    ("doors", "listener"),
    ("hear", "receive"),
    ("heard", "received"),
    ("heed", "handle"),
    ("hindrance", "interference"),
    ("ledger", "history, registry"),
    ("look", "observe, query, lookup"),
    ("mutant", "planted bug"),
    ("news", "update"),
    ("patience", "timeout"),
    ("rehearsal", "emulated run"),
    ("reign", "term, controllers"),
    ("said", "message, report"),
    ("tell", "report, send, publish"),
    ("teller", "exporter"),
    ("walker", "path search"),
];

/// A forbidden identifier as its words, and the term to use instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplacedTerm {
    words: Vec<String>,
    term: String,
}

/// The forbidden identifiers of the tables of a page, and the metaphors.
pub(super) fn banned_terms(page: &str) -> Vec<ReplacedTerm> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
        Some((cells.first()?.trim(), *cells.last()?))
    });
    let replaced = rows.flat_map(|(term, not)| {
        not.split('`').skip(1).step_by(2).map(|identifier| ReplacedTerm {
            words: split_identifier(identifier),
            term: term.replace('*', ""),
        })
    });
    let metaphors = METAPHORS.map(|(metaphor, terms)| ReplacedTerm {
        words: split_identifier(metaphor),
        term: terms.to_owned(),
    });
    replaced.chain(metaphors).collect()
}

pub(super) fn replaced_terms(file: &SourceFile, terms: &[ReplacedTerm]) -> RuleViolations {
    let tokens = read_tokens(&file.text).into_iter();
    let identifiers = tokens.filter(|token| token.kind == TokenKind::Word);
    identifiers
        .filter_map(|token| {
            let words = split_identifier(token.text);
            let replaced = terms
                .iter()
                .find(|term| words.windows(term.words.len()).any(|part| part == term.words))?;
            let ReplacedTerm { term, .. } = replaced;
            let place = format!("{}:{}: {}", file.path, token.line, token.text);
            Some(format!("{place}: the term is {term} (docs/glossary.md)"))
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
        let terms = banned_terms(PAGE);
        assert_eq!(terms.len(), 3 + METAPHORS.len());
        let count = |text: &str| replaced_terms(&test_file("a/src/b.rs", text), &terms).len();
        assert_eq!(count("fn count_node(server: Edition) {}"), 2);
        assert_eq!(count("struct LastPolicyVersion; // node"), 1);
        assert_eq!(count("fn tell_all(x: FrontDesk) { self.heard_at }"), 3);
        assert_eq!(count("fn lookup(intelligence: Saidin) { \"heard\" } // heard"), 0);
        assert_eq!(count("struct Policy { version: u32, nodes: u8 }"), 0);
    }
}
