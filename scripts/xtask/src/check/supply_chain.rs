//! Licences, sources and unwanted libraries, as scripts/deny.toml has them; advisories need a
//! network and are cargo-deny's part.

use std::collections::BTreeSet;
use std::path::Path;

use super::RuleViolations;
use crate::libraries::{Library, read_libraries};

pub(super) fn check_supply_chain(root: &Path) -> Result<RuleViolations, String> {
    let path = root.join("scripts/deny.toml");
    let rules = std::fs::read_to_string(&path).map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = listed_names(&rules, "allow = [");
    let unwanted = listed_names(&rules, "deny = [");
    let libraries = read_libraries(root)?;
    let is_from_registry = |library: &&Library| library.source.starts_with("registry+");
    let registry = libraries.iter().find(is_from_registry);
    let rules = LibraryRules {
        registry: registry.map_or("", |library| &library.source),
        allowed: &allowed,
        unwanted: &unwanted,
    };
    Ok(libraries.iter().filter_map(|library| violation(library, &rules)).collect())
}

/// What libraries are checked against.
struct LibraryRules<'a> {
    /// Where all libraries come from: one registry.
    registry: &'a str,
    allowed: &'a BTreeSet<String>,
    unwanted: &'a BTreeSet<String>,
}

fn violation(library: &Library, rules: &LibraryRules<'_>) -> Option<String> {
    let Library { name, version, source, license, .. } = library;
    let LibraryRules { registry, allowed, unwanted } = rules;
    let what = match () {
        () if source != registry => format!("comes from {source}, not from the registry"),
        () if unwanted.contains(name) => "is not wanted (scripts/deny.toml)".to_owned(),
        () if !is_allowed(license, allowed) => {
            format!("has the licence `{license}`, which scripts/deny.toml does not allow")
        }
        () => return None,
    };
    Some(format!("{name} {version} {what}"))
}

/// The names in the first list of this head.
fn listed_names(rules: &str, head: &str) -> BTreeSet<String> {
    let list = rules.lines().skip_while(|line| *line != head).skip(1);
    let list = list.take_while(|line| *line != "]");
    list.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// Whether a licence expression can be satisfied by allowed licences alone.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = all_of(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_satisfied |= all_of(words, allowed);
    }
    is_satisfied
}

fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = one_licence(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_satisfied &= one_licence(words, allowed);
    }
    is_satisfied
}

fn one_licence(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let is_satisfied = any_of(words, allowed);
            *words = words.strip_prefix(&[")"]).unwrap_or(words);
            is_satisfied
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, rest @ ..] => {
            *words = rest;
            allowed.contains(*name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_evaluated() {
        let allowed = ["MIT", "Apache-2.0", "BSD-3-Clause"].map(str::to_owned).into();
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("Unlicense/MIT", true),
            ("(GPL-3.0 OR MIT) AND BSD-3-Clause", true),
            ("(GPL-3.0 OR MIT) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn lists_are_read() {
        let rules = "allow = [\n    \"MIT\",\n]\ndeny = [\n    \"openssl\",\n]\n";
        assert_eq!(listed_names(rules, "deny = ["), BTreeSet::from(["openssl".to_owned()]));
    }
}
