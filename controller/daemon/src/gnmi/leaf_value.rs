//! Paths and values of gNMI as text, whatever encoding a switch chose.
//!
//! A switch may answer with leaves, or with one object in JSON for all that is at a path. The
//! decision: an object is taken apart into its leaves first ([`take_apart`]), so that everything
//! else sees leaves alone.

use std::collections::{BTreeMap, HashMap};

use p4runtime_proto::gnmi as proto;

/// A step of a path: its name without the name of a model, and the value of its key.
pub(super) type PathStep<'a> = (&'a str, Option<&'a str>);

/// The whole path of a part of a notification.
pub(super) fn path_steps<'a>(
    prefix: Option<&'a proto::Path>,
    path: Option<&'a proto::Path>,
) -> Vec<PathStep<'a>> {
    let steps = [prefix, path].into_iter().flatten().flat_map(|path| &path.elem);
    let named = steps.map(|step| {
        let name = step.name.rsplit(':').next().unwrap_or_default();
        (name, step.key.values().next().map(String::as_str))
    });
    named.collect()
}

/// The leaves that notifications set, each with its whole path and its value as text.
pub(super) fn leaf_values(
    notifications: &[proto::Notification],
) -> impl Iterator<Item = (Vec<PathStep<'_>>, String)> {
    let updates = notifications.iter().flat_map(|notification| {
        notification.update.iter().map(move |update| (notification.prefix.as_ref(), update))
    });
    updates.filter_map(|(prefix, update)| {
        let text = update.val.as_ref().and_then(value_text)?;
        Some((path_steps(prefix, update.path.as_ref()), text))
    })
}

/// A notification with every object of JSON replaced by its leaves.
pub(super) fn take_apart(notification: proto::Notification) -> proto::Notification {
    let mut leaves = Vec::new();
    for update in notification.update {
        match update.val.as_ref().and_then(json_object) {
            Some(object) => {
                let mut path = update.path.unwrap_or_default();
                // A server that takes the object from RESTCONF repeats the last step of the path.
                if path.elem.last().is_some_and(|last| names_only(&object, &last.name)) {
                    path.elem.pop();
                }
                push_leaves(&path, object, &mut leaves);
            }
            None => leaves.push(update),
        }
    }
    proto::Notification { update: leaves, ..notification }
}

fn json_object(value: &proto::TypedValue) -> Option<serde_json::Value> {
    use proto::typed_value::Value;
    let Some(Value::JsonVal(json) | Value::JsonIetfVal(json)) = &value.value else {
        return None;
    };
    // Most values are leaves, and need not be read twice.
    let is_object = json.trim_ascii_start().first() == Some(&b'{');
    is_object.then(|| serde_json::from_slice(json).ok()).flatten()
}

/// Whether an object has one member, of this name.
fn names_only(object: &serde_json::Value, name: &str) -> bool {
    let mut members = object.as_object().into_iter().flatten();
    let first = members.next().map(|(member, _)| identity_name(member));
    first == Some(identity_name(name)) && members.next().is_none()
}

/// The leaves below a path. Entries of a list differ in their scalars, which in OpenConfig
/// are the keys of the list and nothing else.
fn push_leaves(path: &proto::Path, value: serde_json::Value, leaves: &mut Vec<proto::Update>) {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::Array(entries) if entries.iter().all(Value::is_object) => {
                        for entry in entries {
                            push_leaves(&below(path, &name, list_key(&entry)), entry, leaves);
                        }
                    }
                    other => push_leaves(&below(path, &name, HashMap::new()), other, leaves),
                }
            }
        }
        leaf => {
            let json = leaf.to_string().into_bytes();
            let value = proto::typed_value::Value::JsonIetfVal(json);
            leaves.push(proto::Update {
                path: Some(path.clone()),
                val: Some(proto::TypedValue { value: Some(value) }),
                ..proto::Update::default()
            });
        }
    }
}

fn below(path: &proto::Path, name: &str, key: HashMap<String, String>) -> proto::Path {
    let mut path = path.clone();
    path.elem.push(proto::PathElem { name: name.to_owned(), key });
    path
}

fn list_key(entry: &serde_json::Value) -> HashMap<String, String> {
    let members = entry.as_object().into_iter().flatten();
    let scalars = members.filter_map(|(name, value)| Some((name.clone(), scalar_text(value)?)));
    scalars.collect()
}

/// The ports of interfaces, by their names: their P4Runtime ids are the ports of the document.
pub(super) fn interface_ports(notifications: &[proto::Notification]) -> BTreeMap<String, u32> {
    let ports = leaf_values(notifications).filter_map(|(steps, text)| match steps[..] {
        [("interfaces", _), ("interface", Some(name)), ("state", _), ("id", _)] => {
            Some((name.to_owned(), text.parse().ok()?))
        }
        _ => None,
    });
    ports.collect()
}

/// A value as text: that of a number has its digits. Objects and lists have no text.
pub(super) fn value_text(value: &proto::TypedValue) -> Option<String> {
    use proto::typed_value::Value;
    match value.value.as_ref()? {
        Value::StringVal(text) | Value::AsciiVal(text) => Some(text.clone()),
        Value::UintVal(number) => Some(number.to_string()),
        Value::IntVal(number) => Some(number.to_string()),
        Value::BoolVal(is_set) => Some(is_set.to_string()),
        Value::JsonVal(json) | Value::JsonIetfVal(json) => {
            scalar_text(&serde_json::from_slice(json).ok()?)
        }
        _ => None,
    }
}

fn scalar_text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(is_set) => Some(is_set.to_string()),
        _ => None,
    }
}

/// An identity without the name of its model: `openconfig-qos:STRICT` is `STRICT`.
pub(super) fn identity_name(text: &str) -> &str {
    text.rsplit(':').next().unwrap_or(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A leaf by its path, with keys as in `interface[name=Ethernet8]`, and its value in JSON.
    pub(in crate::gnmi) fn update(path: &str, json: &str) -> proto::Update {
        let elem = path.split('/').map(|step| {
            let (name, key) = step.split_once('[').unwrap_or((step, ""));
            let key = key.trim_end_matches(']').split_once('=');
            proto::PathElem {
                name: name.to_owned(),
                key: key
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into_iter()
                    .collect(),
            }
        });
        let value = proto::typed_value::Value::JsonIetfVal(json.as_bytes().to_vec());
        proto::Update {
            path: Some(proto::Path { elem: elem.collect(), ..proto::Path::default() }),
            val: Some(proto::TypedValue { value: Some(value) }),
            ..proto::Update::default()
        }
    }

    /// As switches with SONiC answer (sonic-net/sonic-telemetry, doc/gNMI_usage_examples.md).
    #[test]
    fn an_object_may_repeat_the_last_step_of_its_path() {
        let interface = "openconfig-interfaces:interfaces/interface[name=Ethernet8]";
        let update = vec![
            update(
                &format!("{interface}/state/counters"),
                r#"{"openconfig-interfaces:counters": {"in-octets": "893", "in-utilization": 0}}"#,
            ),
            update(&format!("{interface}/state/id"), r#"{"openconfig-p4rt:id": 3}"#),
            update(interface, r#"{"interface": [{"name": "Ethernet8", "state": {"mtu": 9100}}]}"#),
        ];
        let answer = take_apart(proto::Notification { update, ..proto::Notification::default() });
        let leaves: Vec<_> = leaf_values(std::slice::from_ref(&answer))
            .map(|(steps, text)| {
                let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
                assert_eq!(steps[1].1, Some("Ethernet8"));
                format!("{} {text}", names[2..].join("/"))
            })
            .collect();
        let expected = ["state/counters/in-octets 893", "state/counters/in-utilization 0"];
        assert_eq!(leaves[..2], expected);
        assert_eq!(leaves[2..], ["state/id 3", "name Ethernet8", "state/mtu 9100"]);
    }

    /// An object of the specification of gNMI has what is below its path.
    #[test]
    fn an_object_has_the_leaves_of_its_containers_and_lists() {
        let object = r#"{"openconfig-interfaces:interface": [
            {"name": "Ethernet8", "config": {"mtu": 9100}, "state": {
                "openconfig-p4rt:id": 3, "counters": {"in-octets": "700", "last-clear": "0"}}},
            {"name": "Ethernet9", "state": {"id": 4}}]}"#;
        let update = vec![
            update("interfaces", object),
            update("interfaces/interface[name=Ethernet7]/state/id", "2"),
        ];
        let answer = take_apart(proto::Notification { update, ..proto::Notification::default() });
        let answer = [answer];
        let ports = [("Ethernet7", 2), ("Ethernet8", 3), ("Ethernet9", 4)];
        let ports = ports.map(|(name, port)| (name.to_owned(), port));
        assert_eq!(interface_ports(&answer), BTreeMap::from(ports));
        let counted =
            leaf_values(&answer).find(|(steps, _)| steps.last() == Some(&("in-octets", None)));
        let (steps, text) = counted.unwrap();
        assert_eq!(steps[..2], [("interfaces", None), ("interface", Some("Ethernet8"))]);
        assert_eq!((steps.len(), &*text), (5, "700"));
    }
}
