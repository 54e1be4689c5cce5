//! `crux doctor`: the problems of a running controller, causes first.
//!
//! The decision: a dead switch takes all of its links with it, and where nobody leads no switch is
//! verified, so what follows from a cause is counted at its own line and not listed. What is left
//! is grouped by what it says. JSON has every finding.

mod bmv2;

use std::collections::{BTreeMap, BTreeSet};

use command_io::CommandError;
use command_io::output::{self, OutputFormat};
use topology::count_noun;
use topology::{Finding, Severity};

use super::status::StatusArgs;

/// Lines of a summary.
const LINES: usize = 10;
/// Names of a line.
const NAMES: usize = 3;
/// Characters of a finding's text in a line.
const TEXT: usize = 160;

/// Print the problems of a running controller
///
/// Causes come first: what follows from a dead switch is counted at its line.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux doctor
  crux doctor --bmv2")]
pub(crate) struct DoctorArgs {
    /// List every finding on a line of its own
    #[arg(long)]
    all: bool,
    /// Check the simple_switch_grpc of this machine instead: version, and queues by level
    #[arg(long, conflicts_with = "all")]
    bmv2: bool,
    #[command(flatten)]
    status: StatusArgs,
}

/// Exit status 1 where there is an error among the findings.
pub(crate) fn print_findings(args: &DoctorArgs) -> Result<(), CommandError> {
    if args.bmv2 {
        return bmv2::check(args.status.output.format);
    }
    let findings: Vec<Finding> = args.status.client.get_json("/v1/findings")?;
    match args.status.output.format {
        OutputFormat::Json => output::print_json(&findings)?,
        OutputFormat::Table if findings.is_empty() => output::print_line("no problems found")?,
        OutputFormat::Table if args.all => findings.iter().try_for_each(output::print_line)?,
        OutputFormat::Table => {
            summarize_findings(&findings).into_iter().try_for_each(output::print_line)?;
        }
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    match errors.count() {
        0 => Ok(()),
        count => Err(CommandError::Failed(count_noun(count, "error"))),
    }
}

/// At most [`LINES`] lines: why nobody leads and switches that do not work, with what follows from
/// them, then the others.
fn summarize_findings(findings: &[Finding]) -> Vec<String> {
    let vacancy = find_vacancy(findings);
    let mut lines: Vec<String> =
        vacancy.iter().map(|cause| describe_vacancy(cause, findings)).collect();
    let dead = dead_switches(findings);
    lines.extend(dead.iter().map(|name| describe_switch(name, findings)));
    let is_cause = |finding: &Finding| vacancy.is_some_and(|cause| std::ptr::eq(cause, finding));
    let follows = |finding: &Finding| {
        vacancy.is_some() && (is_unled_switch(finding) || finding.about == "cluster")
    };
    let other = findings
        .iter()
        .filter(|finding| !is_cause(finding) && !follows(finding) && !concerns_any(finding, &dead));
    let mut groups: BTreeMap<(Severity, String), Vec<&Finding>> = BTreeMap::new();
    for finding in other {
        let key = (finding.severity, without_numbers(&finding.text));
        groups.entry(key).or_default().push(finding);
    }
    lines.extend(groups.values().map(|group| describe_group(group)));
    if lines.len() > LINES {
        let left = lines.len() + 1 - LINES;
        lines.truncate(LINES - 1);
        lines.push(format!("{left} further kinds of findings: crux doctor --all"));
    }
    lines
}

/// The reason why no controller may write: etcd does not answer, or the switches have no primary.
fn find_vacancy(findings: &[Finding]) -> Option<&Finding> {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let mut causes: Vec<&Finding> =
        errors.filter(|finding| matches!(finding.about.as_str(), "etcd" | "cluster")).collect();
    // Where etcd does not answer, that nobody leads follows from it.
    causes.sort_by_key(|finding| finding.about != "etcd");
    causes.first().copied()
}

/// Whether a finding is that nobody verifies a switch which works.
fn is_unled_switch(finding: &Finding) -> bool {
    finding.text.starts_with("not verified: up and")
}

fn describe_vacancy(cause: &Finding, findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| is_unled_switch(finding)).count() {
        0 => cause.to_string(),
        count => format!("{cause}; with it {} without a leader", count_noun(count, "switch")),
    }
}

/// Switches with an error of their own and a link that is down.
fn dead_switches(findings: &[Finding]) -> BTreeSet<&str> {
    let linked: BTreeSet<&str> =
        findings.iter().flat_map(|finding| link_ends(&finding.about)).collect();
    let own = findings.iter().filter(|finding| finding.severity == Severity::Error);
    own.map(|finding| finding.about.as_str()).filter(|about| linked.contains(about)).collect()
}

/// The nodes at the ends of a link, `leaf1:4>spine1:1`; none of another name.
fn link_ends(about: &str) -> impl Iterator<Item = &str> {
    let ends = about.split_once('>').filter(|(from, to)| from.contains(':') && to.contains(':'));
    let ends = ends.into_iter().flat_map(|(from, to)| [from, to]);
    ends.filter_map(|end| end.split_once(':').map(|(node, _)| node))
}

fn concerns_any(finding: &Finding, switches: &BTreeSet<&str>) -> bool {
    switches.contains(finding.about.as_str())
        || link_ends(&finding.about).any(|node| switches.contains(node))
}

fn describe_switch(name: &str, findings: &[Finding]) -> String {
    let own = findings.iter().filter(|finding| finding.about == name);
    let worst = own.min_by_key(|finding| finding.severity);
    let why = worst.map_or("", |finding| finding.text.as_str());
    let links = findings.iter().filter(|finding| link_ends(&finding.about).any(|end| end == name));
    let links = count_noun(links.count(), "link");
    format!("error: {name}: {}; with it {links}. Repair it, or: crux drain {name}", shorten(why))
}

fn describe_group(group: &[&Finding]) -> String {
    let Some(first) = group.first() else {
        return String::new();
    };
    let names: Vec<&str> = group.iter().take(NAMES).map(|one| one.about.as_str()).collect();
    let more = match group.len().saturating_sub(NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}: {}{more}: {}", first.severity, names.join(", "), shorten(&first.text))
}

/// The text with `#` for every number, so that findings that differ by numbers alone are one kind.
fn without_numbers(text: &str) -> String {
    let mut kind = String::new();
    for letter in text.chars() {
        match letter.is_ascii_digit() {
            false => kind.push(letter),
            true if kind.ends_with('#') => {}
            true => kind.push('#'),
        }
    }
    kind
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a controller of 173 leaves and 16 spines finds where two spines are dead.
    fn two_dead_spines() -> Vec<Finding> {
        let mut findings = Vec::new();
        for spine in ["spine3", "spine9"] {
            findings.push(Finding::error(spine, "not verified: down and disconnected; refused"));
            findings.push(Finding::warning(spine, "in quarantine: its calls fail"));
            for leaf in 1..=173 {
                let up = format!("leaf{leaf}:9>{spine}:{leaf}");
                findings.push(Finding::warning(up, "down"));
            }
        }
        for leaf in 1..=40 {
            let text = format!("holds generation {leaf} of 42");
            findings.push(Finding::warning(format!("leaf{leaf}"), text));
        }
        findings
    }

    #[test]
    fn causes_come_first_in_few_lines() {
        let findings = two_dead_spines();
        let lines = summarize_findings(&findings);
        assert!(findings.len() > 380 && lines.len() <= LINES, "{lines:?}");
        assert_eq!(
            lines,
            [
                "error: spine3: not verified: down and disconnected; refused; with it 173 links. \
                 Repair it, or: crux drain spine3",
                "error: spine9: not verified: down and disconnected; refused; with it 173 links. \
                 Repair it, or: crux drain spine9",
                "warning: leaf1, leaf2, leaf3 and 37 more: holds generation 1 of 42",
            ]
        );
    }

    #[test]
    fn an_etcd_that_is_away_is_the_cause_of_switches_without_a_leader() {
        let mut findings = vec![Finding::error("etcd", "does not answer at a:2379: refused")];
        for leaf in 1..=6 {
            let text = "not verified: up and no_primary";
            findings.push(Finding::error(format!("leaf{leaf}"), text));
        }
        findings.push(Finding::warning("leaf1", "2 entries were changed by somebody else"));
        let expected = [
            "error: etcd: does not answer at a:2379: refused; with it 6 switches without a leader",
            "warning: leaf1: 2 entries were changed by somebody else",
        ];
        assert_eq!(summarize_findings(&findings), expected);
        let others = &findings[1..];
        assert!(summarize_findings(others)[0].starts_with("error: leaf1, leaf2, leaf3 and 3 more"));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let kinds = "abcdefghijklmno".chars();
        let findings: Vec<Finding> =
            kinds.map(|kind| Finding::warning("leaf1", kind.to_string())).collect();
        let lines = summarize_findings(&findings);
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[LINES - 1], "6 further kinds of findings: crux doctor --all");
    }
}
