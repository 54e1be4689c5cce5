//! Identifiers use the vocabulary of the field, not metaphors: docs/glossary.md says why.

use super::WordViolation;
use crate::source::{Token, TokenKind, read_tokens, split_identifier};
use crate::tree::SourceFile;

/// Words that no identifier contains, and the terms of the field to use instead.
const BANNED: [(&str, &str); 26] = [
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

pub(super) fn banned_identifiers(file: &SourceFile) -> Vec<WordViolation> {
    let tokens = read_tokens(&file.text).into_iter();
    let identifiers = tokens.filter(|token| token.kind == TokenKind::Word);
    identifiers
        .filter_map(|token: Token<'_>| {
            let words = split_identifier(token.text);
            let (banned, instead) =
                BANNED.iter().find(|(banned, _)| words.iter().any(|word| word == banned))?;
            Some(WordViolation {
                rule: "identifiers",
                path: file.path.clone(),
                line: token.line,
                problem: format!("{}: for `{banned}` write {instead}", token.text),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_file;
    use super::*;

    #[test]
    fn metaphors_are_found_in_identifiers_only() {
        let count = |text: &str| banned_identifiers(&test_file("a/src/b.rs", text)).len();
        assert_eq!(count("fn tell_all(x: FrontDesk) { self.heard_at }"), 3);
        assert_eq!(count("fn lookup(intelligence: Saidin) { \"heard\" } // heard"), 0);
    }
}
