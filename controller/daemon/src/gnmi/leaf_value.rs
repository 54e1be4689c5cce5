//! Paths and values of gNMI as text, whatever encoding a switch chose.

use std::collections::BTreeMap;

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

/// A value as text: that of a number has its digits. Objects and lists are none.
pub(super) fn value_text(value: &proto::TypedValue) -> Option<String> {
    use proto::typed_value::Value;
    match value.value.as_ref()? {
        Value::StringVal(text) | Value::AsciiVal(text) => Some(text.clone()),
        Value::UintVal(number) => Some(number.to_string()),
        Value::IntVal(number) => Some(number.to_string()),
        Value::BoolVal(is_set) => Some(is_set.to_string()),
        Value::JsonVal(json) | Value::JsonIetfVal(json) => {
            match serde_json::from_slice(json).ok()? {
                serde_json::Value::String(text) => Some(text),
                serde_json::Value::Number(number) => Some(number.to_string()),
                serde_json::Value::Bool(is_set) => Some(is_set.to_string()),
                _ => None,
            }
        }
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
}
