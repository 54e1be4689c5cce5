//! A crate depends only on crates of lower floors (docs/architecture.md, "Rooms and floors").

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::RuleViolations;
use crate::tree;

/// Every crate of the workspace with its floor; `xtask` stands outside.
const FLOORS: [(&str, u32); 22] = [
    ("topology", 0),
    ("p4runtime-proto", 0),
    ("p4-constraints", 0),
    ("fluid", 0),
    ("period", 0),
    ("link-monitor", 0),
    ("nccl-profiler", 0),
    ("p4", 1),
    ("planner", 1),
    ("api", 1),
    ("placement", 2),
    ("command-io", 2),
    ("switch", 2),
    ("simulator", 3),
    ("agent", 3),
    ("switch-server", 3),
    ("controller", 4),
    ("crux-switch", 4),
    ("emulator", 4),
    ("crux", 5),
    ("fuzz-targets", 5),
    ("lab", 6),
];

/// Crates that may use fewer of the lower floors than their own floor allows, and why.
const ONLY: [(&str, &[&str], &str); 5] = [
    ("switch", &["link-monitor"], "it stays an independent witness of what was written"),
    (
        "switch-server",
        &["p4-constraints", "p4runtime-proto", "switch"],
        "it stays an independent witness of what was written",
    ),
    ("crux-switch", &["command-io", "switch", "switch-server"], "a program for bmv2's users"),
    ("p4", &["p4-constraints", "p4runtime-proto"], "tables know nothing of the fabric"),
    ("planner", &["topology", "fluid"], "decisions know nothing of tables"),
];

const METADATA: [&str; 4] = ["metadata", "--format-version=1", "--no-deps", "--offline"];

pub(super) fn check_floors(root: &Path) -> Result<RuleViolations, String> {
    let metadata = tree::command_output(root, "cargo", &METADATA)?;
    let metadata = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(floor_violations(&metadata))
}

fn floor_violations(metadata: &Value) -> RuleViolations {
    let floors = BTreeMap::from(FLOORS);
    let mut found = RuleViolations::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(floor) = floors.get(name) else {
            if name != "xtask" {
                found.push(format!("{name}: give the crate a floor in scripts/xtask"));
            }
            continue;
        };
        for used in normal_dependencies(package) {
            let higher = floors.get(used).is_some_and(|other| other >= floor);
            if higher {
                found.push(format!("{name} uses {used}, which is not on a lower floor"));
            }
            found.extend(outside_permission(name, used).filter(|_| floors.contains_key(used)));
        }
    }
    found
}

fn outside_permission(name: &str, used: &str) -> Option<String> {
    let (_, allowed, why) = ONLY.iter().find(|(limited, ..)| *limited == name)?;
    (!allowed.contains(&used)).then(|| format!("{name} must not use {used}: {why}"))
}

/// What the crate itself is built with; its tests may use any crate.
fn normal_dependencies(package: &Value) -> impl Iterator<Item = &str> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let normal = dependencies.filter(|dependency| dependency["kind"] != "dev");
    normal.filter_map(|dependency| dependency["name"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crate_using(name: &str, used: &str) -> Value {
        json!({"packages": [{"name": name, "dependencies": [{"name": used, "kind": null}]}]})
    }

    #[test]
    fn a_step_upwards_is_found() {
        assert_eq!(floor_violations(&crate_using("planner", "topology")), RuleViolations::new());
        assert_eq!(floor_violations(&crate_using("topology", "planner")).len(), 1);
        assert_eq!(floor_violations(&crate_using("controller", "emulator")).len(), 1);
        assert_eq!(floor_violations(&crate_using("switch", "p4")).len(), 1);
        assert_eq!(floor_violations(&crate_using("newcomer", "serde")).len(), 1);
    }
}
