//! What differs between two fabric documents, by the names of their parts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use topology::spec::{FabricDocument, LinkDocument};

/// The parts of a kind, by name, as JSON objects.
type Parts = BTreeMap<String, Value>;

/// Switches, hosts and cables that are added, removed or changed, a line each; both documents are
/// explicit ones.
pub fn diff_documents(before: &FabricDocument, after: &FabricDocument) -> Vec<String> {
    let mut lines = Vec::new();
    if before.name != after.name {
        lines.push(format!("name: {} -> {}", before.name, after.name));
    }
    let [had, has] = [before, after].map(|of| parts(&of.switches, |switch| switch.name.clone()));
    diff_parts("switch", &had, &has, &mut lines);
    let [had, has] = [before, after].map(|of| parts(&of.hosts, |host| host.name.clone()));
    diff_parts("host", &had, &has, &mut lines);
    let [had, has] = [before, after].map(|of| parts(&of.links, cable_name));
    diff_parts("cable", &had, &has, &mut lines);
    lines
}

fn parts<T: Serialize>(all: &[T], name: impl Fn(&T) -> String) -> Parts {
    let parts = all.iter().map(|part| (name(part), serde_json::to_value(part).unwrap_or_default()));
    parts.collect()
}

/// A cable has no direction.
fn cable_name(cable: &LinkDocument) -> String {
    let (a, b) = if cable.a <= cable.b { (&cable.a, &cable.b) } else { (&cable.b, &cable.a) };
    format!("{a} - {b}")
}

fn diff_parts(kind: &str, before: &Parts, after: &Parts, lines: &mut Vec<String>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        match (before.get(name), after.get(name)) {
            (None, _) => lines.push(format!("{kind} {name} is added")),
            (_, None) => lines.push(format!("{kind} {name} is removed")),
            (Some(had), Some(has)) => {
                let fields = field_changes(had, has).into_iter();
                lines.extend(fields.map(|change| format!("{kind} {name}: {change}")));
            }
        }
    }
}

/// The fields of a part that differ, with both values. Its ends or its name are what it is known by.
fn field_changes(had: &Value, has: &Value) -> Vec<String> {
    let (Some(had), Some(has)) = (had.as_object(), has.as_object()) else {
        return Vec::new();
    };
    let fields: BTreeSet<&String> = had.keys().chain(has.keys()).collect();
    let identity = ["name", "a", "b"];
    let others = fields.into_iter().filter(|field| !identity.contains(&field.as_str()));
    let changed = others.filter(|field| had.get(*field) != has.get(*field));
    let shown = |value: Option<&Value>| match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let lines = changed
        .map(|field| format!("{field} {} -> {}", shown(had.get(field)), shown(has.get(field))));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};
    use topology::spec::explicit_document;

    use super::*;

    #[test]
    fn parts_are_compared_by_name_and_cables_without_direction() {
        let spec = ClosSpec { leaves: 2, spines: 1, hosts_per_leaf: 1, ..ClosSpec::default() };
        let before = explicit_document(&clos::build_clos("small", &spec).unwrap());
        let mut after = before.clone();
        for cable in &mut after.links {
            std::mem::swap(&mut cable.a, &mut cable.b);
        }
        after.links.reverse();
        after.switches.reverse();
        assert_eq!(diff_documents(&before, &after), [""; 0]);
        let host = after.hosts.pop().unwrap();
        let ends = |cable: &LinkDocument| cable.a.starts_with("h2:") || cable.b.starts_with("h2:");
        let uplink = after.links.iter().position(ends).unwrap();
        let uplink = cable_name(&after.links.remove(uplink));
        let spine = after.switches.iter_mut().find(|switch| switch.name == "spine1").unwrap();
        spine.p4runtime = Some("10.0.0.9:9559".to_owned());
        let had = before.switches.iter().find(|switch| switch.name == "spine1").unwrap();
        let had = had.p4runtime.clone().unwrap_or_else(|| "nothing".to_owned());
        assert_eq!(
            diff_documents(&before, &after),
            [
                format!("switch spine1: p4runtime {had} -> 10.0.0.9:9559"),
                format!("host {} is removed", host.name),
                format!("cable {uplink} is removed"),
            ]
        );
    }
}
