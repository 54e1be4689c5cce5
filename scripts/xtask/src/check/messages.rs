//! docs/troubleshooting.md explains every finding and every error of the controller, the agent and
//! the client.
//!
//! The decision: messages are read from the sources, so a new one without a row fails the check.
//! Messages are the texts of functions that make a finding, those of `#[error("...")]`, and those
//! of the client of commands. Values in them are an ellipsis, in the sources and on the page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::RuleViolations;
use crate::source::{self, Token, TokenKind};
use crate::tree::{self, SourceFile};

const PAGE: &str = "docs/troubleshooting.md";
/// Folders whose findings people see in `crux doctor`, `crux plan` and `crux fabric check`.
const FINDINGS: [&str; 3] = ["topology/src/", "controller/planner/src/", "controller/daemon/src/"];
/// Folders whose errors people see in logs, in findings and as the failure of a command.
const ERRORS: [&str; 3] =
    ["controller/daemon/src/", "controller/agent/src/", "controller/command-io/src/"];
/// Texts of functions that make findings which are no messages.
const OTHER_TEXTS: [&str; 12] = [
    "… and …; …",
    "and of … more flows",
    "no queue",
    "nobody wants to know",
    "drain of …",
    "findings have text for keys",
    "learned flows",
    "etcd term",
    "levels at hosts",
    "levels at host …",
    "queue pairs of …",
    "and … more",
];

pub(super) fn check_messages(root: &Path) -> Result<RuleViolations, String> {
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let sources = tree::rust_files(root)?;
    let sources = sources.iter().filter(|file| !source::is_test_file(file));
    let mut messages = BTreeMap::new();
    for file in sources {
        for message in file_messages(file) {
            messages.entry(message).or_insert(file.path.as_str());
        }
    }
    Ok(unexplained_messages(&messages, &explained_messages(&page)))
}

/// Messages that no row explains.
fn unexplained_messages(
    messages: &BTreeMap<String, &str>,
    explained: &BTreeSet<String>,
) -> RuleViolations {
    let missing = messages.iter().filter(|(message, _)| !explained.contains(*message));
    missing.map(|(message, path)| format!("{PAGE}: no row for `{message}` of {path}")).collect()
}

/// The code spans in the first cells of the page's tables.
fn explained_messages(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').step_by(2))
        .filter(|text| *text != "<br>")
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The messages in a file of one of the folders.
fn file_messages(file: &SourceFile) -> BTreeSet<String> {
    let is_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let tokens = source::without_tests(&source::read_tokens(&file.text));
    let mut found = BTreeSet::new();
    if is_in(&FINDINGS) {
        let making = functions(&tokens).filter(|body| makes_finding(body));
        found.extend(making.flat_map(literals));
    }
    if is_in(&ERRORS) {
        found.extend(error_texts(&tokens));
    }
    if file.path.starts_with("controller/command-io/src/client") {
        let failing = functions(&tokens).filter(|body| body.iter().any(|t| t.is("CommandError")));
        found.extend(failing.flat_map(literals));
    }
    found.retain(|text| is_message(text));
    found
}

/// The bodies of all functions.
fn functions<'a, 'b>(tokens: &'b [Token<'a>]) -> impl Iterator<Item = &'b [Token<'a>]> {
    let starts = (0..tokens.len()).filter(|&at| tokens[at].is("fn"));
    starts.filter_map(|at| {
        let open = tokens[at..].iter().position(|token| token.is("{") || token.is(";"))? + at;
        let length = source::block_length(&tokens[open..]);
        tokens[open].is("{").then(|| &tokens[open..open + length])
    })
}

fn makes_finding(body: &[Token<'_>]) -> bool {
    let kinds = ["error", "warning", "info"];
    body.windows(4).any(|at| {
        at[0].is("Finding") && at[1].is(":") && at[2].is(":") && kinds.contains(&at[3].text)
    })
}

fn literals(tokens: &[Token<'_>]) -> impl Iterator<Item = String> {
    let strings = tokens.iter().filter(|token| token.kind == TokenKind::Literal);
    let texts: Vec<String> = strings.filter_map(|token| message_text(token.text)).collect();
    texts.into_iter()
}

/// The texts of `#[error("...")]`.
fn error_texts(tokens: &[Token<'_>]) -> Vec<String> {
    let attributes = tokens
        .windows(5)
        .filter(|at| at[0].is("#") && at[1].is("[") && at[2].is("error") && at[3].is("("));
    attributes.filter_map(|at| message_text(at[4].text)).collect()
}

/// The text of a string, with an ellipsis for each value and without backticks.
fn message_text(literal: &str) -> Option<String> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::new();
    let mut rest = inner;
    while let Some(at) = rest.find(['{', '\\', '`']) {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match &rest[at..=at] {
            "{" => {
                text.push('…');
                after.split_once('}').map_or("", |(_, after)| after)
            }
            "\\" if after.starts_with('\n') => after.trim_start(),
            "\\" if after.starts_with('n') => {
                text.push(' ');
                &after[1..]
            }
            _ => after,
        };
    }
    text.push_str(rest);
    Some(text.trim().replace("……", "…"))
}

/// Whether a text has two words of its own or more.
fn is_message(text: &str) -> bool {
    let words =
        text.split(' ').filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 1);
    words.count() >= 2 && !OTHER_TEXTS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let (path, text) = (path.to_owned(), text.to_owned());
        file_messages(&SourceFile { path, text }).into_iter().collect()
    }

    #[test]
    fn texts_of_findings_and_errors_are_messages() {
        let text = "fn f() { let text = format!(\"holds `{a}` \\\n   of {b:.1} pins\"); \
                    Finding::error(\"leaf\", text) } fn g() { log(\"no finding here\") }";
        assert_eq!(messages("topology/src/x.rs", text), ["holds … of … pins"]);
        assert_eq!(messages("topology/src/x/tests.rs", "fn g() { a(\"one two\") }"), [""; 0]);
        let text = "enum E { #[error(\"cannot connect to {0}\")] A, #[error(\"{0}\")] B }";
        assert_eq!(messages("controller/agent/src/x.rs", text), ["cannot connect to …"]);
    }

    #[test]
    fn messages_without_a_row_are_found() {
        let page =
            "| message | why |\n|---|---|\n| `is … down`<br>`has no …` | a `word here` | b |\n";
        let explained = explained_messages(page);
        assert_eq!(explained, ["has no …", "is … down"].map(str::to_owned).into());
        let messages = [("has no …".to_owned(), "a.rs"), ("new one".to_owned(), "b.rs")].into();
        let expected = ["docs/troubleshooting.md: no row for `new one` of b.rs"];
        assert_eq!(unexplained_messages(&messages, &explained), expected);
    }
}
