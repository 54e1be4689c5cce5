//! Pages are results, not diaries: none has a date, a commit id or words about states that no
//! release had, and those of operators and newcomers name no test.

use std::collections::BTreeSet;
use std::path::Path;

use super::RuleViolations;
use crate::page_text::prose_lines;
use crate::tree::{self, SourceFile};

/// Where readers are developers, or judge the proof of a claim: such pages may name tests.
const PAGES_WITH_TESTS: [&str; 12] = [
    "SECURITY.md",
    "bmv2-testbed/",
    "controller/",
    "docs/algorithms/",
    "docs/architecture.md",
    "docs/decisions/",
    "docs/development.md",
    "docs/fault-campaign.md",
    "docs/performance",
    "docs/reproduction",
    "docs/style.md",
    "scripts/",
];

/// Commit ids that identify programs of others.
const FOREIGN_COMMITS: [(&str, &str); 2] =
    [("docs/queues-ns3.md", "9f4be2a"), ("docs/switch.md", "b08b068")];

/// Words about how something was in a state that no user has seen.
const HISTORY: [&str; 9] = [
    "missed",
    "than before",
    "as before",
    "from before",
    "formerly",
    "previously",
    "until now",
    "used to be",
    "at the time of writing",
];

const MONTHS: &str = "January February March April May June July August September October November \
                      December";

pub(super) fn check_diaries(root: &Path) -> Result<RuleViolations, String> {
    let sources = tree::rust_files(root)?;
    let tests: BTreeSet<&str> = sources.iter().flat_map(|file| test_names(&file.text)).collect();
    let pages = tree::read_files(root, ".md")?;
    Ok(pages.iter().flat_map(|page| page_violations(page, &tests)).collect())
}

fn page_violations(page: &SourceFile, tests: &BTreeSet<&str>) -> RuleViolations {
    let may_name_tests = PAGES_WITH_TESTS.iter().any(|place| page.path.starts_with(place));
    let prose = prose_lines(&page.text).flat_map(|(number, line)| {
        let problem = history_in(&without_code(line), &page.path);
        problem.map(|problem| (number, problem))
    });
    let named = (1..).zip(page.text.lines()).filter(|_| !may_name_tests);
    let named = named.filter(|(_, line)| names_test(line, tests));
    let named = named.map(|(number, _)| (number, "names a test; say what holds".to_owned()));
    let found = prose.chain(named);
    found.map(|(number, problem)| format!("{}:{number}: {problem}", page.path)).collect()
}

fn history_in(prose: &str, path: &str) -> Option<String> {
    let words: Vec<&str> = prose.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    if let Some(date) = words.iter().find(|word| is_date(word)) {
        return Some(format!("{date} is a date; name the version"));
    }
    if words.windows(2).any(is_month_with_number) {
        return Some("a date; name the version".to_owned());
    }
    let is_foreign = |word: &str| FOREIGN_COMMITS.contains(&(path, word));
    if let Some(commit) = words.iter().find(|word| is_commit_id(word) && !is_foreign(word)) {
        return Some(format!("{commit} is a commit id; name the version"));
    }
    let lower = prose.to_lowercase();
    let word = HISTORY.iter().find(|word| lower.contains(*word))?;
    Some(format!("`{word}` tells how it was; say how it is"))
}

/// Whether a word begins as a date of ISO 8601 does, with year and month.
fn is_date(word: &str) -> bool {
    let mut parts = word.split('-');
    let is_number = |part: Option<&str>, digits| {
        part.is_some_and(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))
    };
    is_number(parts.next(), 4) && is_number(parts.next(), 2)
}

fn is_month_with_number(pair: &[&str]) -> bool {
    let is_number = |word: &str| word.parse::<u32>().is_ok();
    let is_month = |word: &str| MONTHS.split(' ').any(|month| month == word);
    is_month(pair[0]) && is_number(pair[1]) || is_number(pair[0]) && is_month(pair[1])
}

fn is_commit_id(word: &str) -> bool {
    let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (7..=40).contains(&word.len())
        && word.bytes().all(is_hexadecimal)
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// A line without its code spans and the targets of its links.
fn without_code(line: &str) -> String {
    let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = outside.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Whether a line runs tests of this tree by name, or has the name of one.
fn names_test(line: &str, tests: &BTreeSet<&str>) -> bool {
    let runs_some = line.contains("cargo test") && !line.contains("cargo test --workspace");
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    runs_some || words.any(|word| tests.contains(word))
}

/// The names of a file's test functions. A name of fewer words than a claim has is one of the
/// language too.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let declared = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        let name = declared.split('(').next()?;
        (std::mem::take(&mut is_test) && name.matches('_').count() >= 3).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> RuleViolations {
        let page = SourceFile { path: path.to_owned(), text: text.to_owned() };
        page_violations(&page, &["packets_arrive"].into())
    }

    #[test]
    fn diaries_are_found() {
        for text in [
            "Measured on 2025-11-03.",
            "Measured in November 2025.",
            "Since 3 May it holds.",
            "At 1a2b3c4 it held.",
            "The limit was missed.",
            "It is faster than before.",
            "See `packets_arrive`.",
            "`cargo test -p planner` shows it.",
        ] {
            assert_eq!(found("docs/recipes.md", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn results_are_not() {
        for text in [
            "A row has a date (`2017-10-09T07:01:55`).",
            "```text\n2025-11-03 missed\n```",
            "An event `missed` has the number of lost events.",
            "The address 02:00:00:00:00:fe, of 1000000 rows, in decade 2000-2010.",
            "Crux (SIGCOMM 2024) may wait before 5 s have passed.",
            "See [the list](https://example.org/1a2b3c4).",
            "cargo test --workspace",
        ] {
            assert_eq!(found("docs/recipes.md", text), [""; 0], "{text}");
        }
        assert_eq!(found("docs/development.md", "`packets_arrive`"), [""; 0]);
        assert_eq!(found("docs/switch.md", "p4rt_app at b08b068"), [""; 0]);
    }

    #[test]
    fn test_functions_have_names() {
        let text = "#[test]\nfn jobs() {}\nfn a_b_c_d() {}\n#[tokio::test(start_paused)]\nasync \
                    fn b_is_a_claim() {}\n";
        assert_eq!(test_names(text).collect::<Vec<_>>(), ["b_is_a_claim"]);
    }
}
