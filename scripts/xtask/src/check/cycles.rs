//! Modules of a crate are layers: none imports one above it, and no chain of imports is a cycle.
//!
//! The rule reads `use crate::...`, `crate::...` and `super::...` in the sources of a crate, tests
//! excluded, and draws a graph of its top modules. The decision: where a crate has floors, every
//! module has one, so a new module cannot evade the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::RuleViolations;
use crate::source::{Token, TokenKind, is_test_file, read_tokens, without_tests};
use crate::tree::{self, SourceFile};

/// A crate whose modules are layers.
struct LayeredCrate {
    /// The folder of its sources.
    folder: &'static str,
    /// Modules that may import each other in a cycle.
    max_cycle: usize,
    /// The floor of each module, if the crate has floors.
    floors: &'static [(&'static str, u32)],
}

const CRATES: [LayeredCrate; 10] = [
    LayeredCrate { folder: "controller/daemon/src/", max_cycle: 1, floors: DAEMON_FLOORS },
    LayeredCrate { folder: "bmv2-testbed/switch/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "bmv2-testbed/switch-server/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "controller/planner/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "controller/simulator/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "controller/agent/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "controller/cli/src/commands/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "controller/lab/src/", max_cycle: 1, floors: &[] },
    LayeredCrate { folder: "p4/src/", max_cycle: 2, floors: &[] },
    LayeredCrate { folder: "topology/src/", max_cycle: 4, floors: &[] },
];

/// The layers of the daemon: what decides below what talks, and the program that joins them on top.
const DAEMON_FLOORS: &[(&str, u32)] = &[
    ("config", 1),
    ("clock", 0),
    ("hexadecimal", 0),
    ("low_priority", 0),
    ("retry_backoff", 0),
    ("revision", 0),
    ("private_file", 0),
    ("pipeline", 0),
    ("policy_history", 1),
    ("fabric_history", 1),
    ("forecast", 1),
    ("pipelines", 1),
    ("standing_findings", 0),
    ("supervision", 1),
    ("audit", 3),
    ("certificates", 2),
    ("liveness", 2),
    ("southbound", 2),
    ("store", 2),
    ("state", 3),
    ("host_machine", 3),
    ("leadership", 3),
    ("etcd", 3),
    ("trace_export", 3),
    ("discovery", 4),
    ("recorder", 4),
    ("preview", 4),
    ("access", 6),
    ("gnmi", 5),
    ("event_log", 5),
    ("learning", 5),
    ("runtime", 7),
    ("telemetry", 8),
    ("northbound", 9),
];

/// The top modules of a crate, each with those that it imports.
type ImportGraph = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check_cycles(root: &Path) -> Result<RuleViolations, String> {
    let sources = tree::rust_files(root)?;
    let of_crate =
        |layered: &LayeredCrate| layered.violations(&import_graph(layered.folder, &sources));
    Ok(CRATES.iter().flat_map(of_crate).collect())
}

impl LayeredCrate {
    fn violations(&self, graph: &ImportGraph) -> RuleViolations {
        let mut found = self.cycle_violations(graph);
        if !self.floors.is_empty() {
            found.extend(self.floor_violations(graph));
        }
        found
    }

    fn cycle_violations(&self, graph: &ImportGraph) -> RuleViolations {
        import_cycles(graph)
            .iter()
            .filter(|cycle| cycle.len() > self.max_cycle)
            .map(|cycle| format!("{}: {} import each other in a cycle", self.folder, list(cycle)))
            .collect()
    }

    fn floor_violations(&self, graph: &ImportGraph) -> RuleViolations {
        let floors = BTreeMap::from_iter(self.floors.iter().copied());
        let folder = self.folder;
        let without_floor = graph
            .keys()
            .filter(|module| !floors.contains_key(module.as_str()))
            .map(|module| format!("{folder}: give {module} a floor in cycles.rs"));
        let upward = graph
            .iter()
            .flat_map(|(from, to)| to.iter().map(|to| (from.as_str(), to.as_str())))
            .filter(|(from, to)| floors.get(to) >= floors.get(from))
            .map(|(from, to)| {
                format!("{folder}: {from} imports {to}, which is not on a lower floor")
            });
        without_floor.chain(upward).collect()
    }
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// Sets of at least two modules that import each other, directly or by others.
fn import_cycles(graph: &ImportGraph) -> BTreeSet<BTreeSet<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|module| (module, reachable_modules(graph, module))).collect();
    let cycles = graph.keys().map(|module| {
        let others = reachable[module].iter().copied();
        others
            .filter(|other| reachable.get(other).is_some_and(|back| back.contains(module)))
            .cloned()
            .collect::<BTreeSet<String>>()
    });
    cycles.filter(|cycle| cycle.len() > 1).collect()
}

fn reachable_modules<'a>(graph: &'a ImportGraph, from: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found
}

fn import_graph(folder: &str, sources: &[SourceFile]) -> ImportGraph {
    let files: Vec<(Vec<&str>, &SourceFile)> = sources
        .iter()
        .filter(|source| !is_test_file(source))
        .filter_map(|source| Some((module_path(source.path.strip_prefix(folder)?), source)))
        .collect();
    let modules: BTreeSet<&str> =
        files.iter().filter_map(|(path, _)| path.first().copied()).collect();
    let roots = files.iter().filter(|(path, _)| path.is_empty());
    let exports: BTreeMap<String, String> =
        roots.flat_map(|(_, file)| root_exports(&file.text, &modules)).collect();
    let mut graph = ImportGraph::new();
    for (path, file) in &files {
        let Some(module) = path.first() else { continue };
        let imports = graph.entry((*module).to_owned()).or_default();
        for name in root_names(&file.text, path.len()) {
            let target = match modules.contains(name.as_str()) {
                true => Some(name),
                false => exports.get(&name).cloned(),
            };
            imports.extend(target.filter(|target| target != module));
        }
    }
    graph
}

/// Modules from the root of the crate to a file: none for the root itself.
fn module_path(file: &str) -> Vec<&str> {
    match file {
        "lib.rs" | "main.rs" => Vec::new(),
        file => file.trim_end_matches(".rs").split('/').collect(),
    }
}

/// What the root of a crate makes known by another path: `use module::{A, B}` as (A, module).
fn root_exports(text: &str, modules: &BTreeSet<&str>) -> Vec<(String, String)> {
    let tokens = without_tests(&read_tokens(text));
    let mut exports = Vec::new();
    for (index, _) in tokens.iter().enumerate().filter(|(_, token)| token.is("use")) {
        let statement = tokens[index..].iter().take_while(|token| !token.is(";"));
        let words = statement.filter(|token| token.kind == TokenKind::Word).skip(1);
        let mut words =
            words.map(|token| token.text).filter(|word| *word != "crate" && *word != "self");
        let Some(module) = words.next().filter(|word| modules.contains(word)) else {
            continue;
        };
        exports.extend(words.map(|name| (name.to_owned(), module.to_owned())));
    }
    exports
}

/// The names that a file `depth` modules below the root takes from the root of its crate.
fn root_names(text: &str, depth: usize) -> BTreeSet<String> {
    let tokens = without_tests(&read_tokens(text));
    let mut names = BTreeSet::new();
    for index in 0..tokens.len() {
        let behind_path = index > 0 && tokens[index - 1].is(":");
        if behind_path {
            continue;
        }
        let supers = tokens[index..].chunks(3).take_while(|step| is_step(step, "super")).count();
        let after = if is_step(&tokens[index..], "crate") {
            &tokens[index + 3..]
        } else if supers > 0 && supers == depth {
            &tokens[index + 3 * supers..]
        } else {
            continue;
        };
        names.extend(first_names(after));
    }
    names
}

/// Whether the tokens begin with `word::`.
fn is_step(tokens: &[Token<'_>], word: &str) -> bool {
    matches!(tokens, [first, a, b, ..] if first.is(word) && a.is(":") && b.is(":"))
}

/// The first name of a path, or of each path of a group `{a::b, c}`.
fn first_names(tokens: &[Token<'_>]) -> Vec<String> {
    let is_group = tokens.first().is_some_and(|token| token.is("{"));
    if !is_group {
        let first = tokens.first().filter(|token| token.kind == TokenKind::Word);
        return first.map(|token| token.text.to_owned()).into_iter().collect();
    }
    let mut names = Vec::new();
    let (mut depth, mut begins) = (0, false);
    for token in tokens {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        if depth == 0 {
            break;
        }
        if begins && token.kind == TokenKind::Word {
            names.push(token.text.to_owned());
        }
        begins = depth == 1 && (token.is("{") || token.is(","));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(files: &[(&str, &str)]) -> ImportGraph {
        let sources: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile {
                path: format!("x/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        import_graph("x/src/", &sources)
    }

    fn owned(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn layered(floors: &'static [(&'static str, u32)]) -> LayeredCrate {
        LayeredCrate { folder: "x/src/", max_cycle: 1, floors }
    }

    #[test]
    fn imports_are_read_in_all_their_forms() {
        let graph = graph_of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;\npub use d::{Deep, Down};"),
            ("a.rs", "use crate::{b::{self, X}, Deep};\nuse super::c;\nfn f() { crate::e::g() }"),
            ("b/inner.rs", "use super::super::c;\nuse super::other;"),
            ("c.rs", "//! crate::a\n#[cfg(test)]\nmod tests { use crate::a; }"),
            ("d.rs", ""),
            ("e.rs", "pub(crate) fn g() {}"),
            ("e/tests.rs", "use crate::a;"),
        ]);
        assert_eq!(graph["a"], owned(&["b", "c", "d", "e"]));
        assert_eq!(graph["b"], owned(&["c"]));
        assert!(["c", "d", "e"].iter().all(|module| graph[*module].is_empty()));
    }

    #[test]
    fn cycles_are_found_unless_they_are_short_enough() {
        let graph = graph_of(&[
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
        ]);
        assert_eq!(layered(&[]).violations(&graph).len(), 1);
        let short = LayeredCrate { max_cycle: 3, ..layered(&[]) };
        assert!(short.violations(&graph).is_empty());
    }

    #[test]
    fn imports_from_above_are_found() {
        let graph = graph_of(&[("a.rs", ""), ("b.rs", "use crate::a;"), ("c.rs", "use crate::a;")]);
        assert!(layered(&[("a", 1), ("b", 2), ("c", 2)]).violations(&graph).is_empty());
        assert_eq!(layered(&[("a", 2), ("b", 2), ("c", 3)]).violations(&graph).len(), 1);
        assert_eq!(layered(&[("a", 1), ("b", 2)]).violations(&graph).len(), 2);
    }
}
