//! The interfaces of one switch, as its notifications have told: names, P4Runtime ids, states.

use std::collections::BTreeMap;

use p4runtime_proto::gnmi as proto;

use super::leaf_value::{identity_name, path_steps, value_text};
use crate::liveness::PartHealth;

/// Interfaces by name.
#[derive(Debug, Default)]
pub(super) struct InterfaceTable {
    interfaces: BTreeMap<String, InterfaceState>,
}

/// What is known of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InterfaceState {
    /// Its P4Runtime id, which is the port of the fabric document.
    port: Option<u32>,
    health: Option<PartHealth>,
}

impl InterfaceTable {
    /// Takes a notification; the ports whose state it says or changes.
    pub(super) fn apply_notification(
        &mut self,
        notification: &proto::Notification,
    ) -> Vec<(u32, PartHealth)> {
        let prefix = notification.prefix.as_ref();
        let mut touched = Vec::new();
        for update in &notification.update {
            let steps = path_steps(prefix, update.path.as_ref());
            let [("interfaces", _), ("interface", Some(name)), ("state", _), (leaf, _)] = steps[..]
            else {
                continue;
            };
            let Some(text) = update.val.as_ref().and_then(value_text) else {
                continue;
            };
            let state = self.interfaces.entry(name.to_owned()).or_default();
            match leaf {
                "id" => state.port = text.parse().ok(),
                "oper-status" => state.health = health_of(identity_name(&text)),
                _ => continue,
            }
            touched.push(name.to_owned());
        }
        for path in &notification.delete {
            let steps = path_steps(prefix, Some(path));
            if let [("interfaces", _), ("interface", Some(name)), ..] = steps[..]
                && let Some(state) = self.interfaces.get_mut(name)
            {
                state.health = Some(PartHealth::Down);
                touched.push(name.to_owned());
            }
        }
        touched.dedup();
        let known = touched.iter().filter_map(|name| self.interfaces.get(name));
        known.filter_map(|state| Some((state.port?, state.health?))).collect()
    }
}

/// What a state of OpenConfig says of a port; nothing where the switch does not know.
fn health_of(status: &str) -> Option<PartHealth> {
    match status {
        "UP" => Some(PartHealth::Up),
        "UNKNOWN" => None,
        _ => Some(PartHealth::Down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[(&str, Option<&str>)]) -> proto::Path {
        let elem = names.iter().map(|(name, key)| proto::PathElem {
            name: (*name).to_owned(),
            key: key.iter().map(|key| ("name".to_owned(), (*key).to_owned())).collect(),
        });
        proto::Path { elem: elem.collect(), ..proto::Path::default() }
    }

    fn leaf(interface: &str, leaf: &str, json: &str) -> proto::Update {
        let names = [
            ("openconfig-interfaces:interfaces", None),
            ("interface", Some(interface)),
            ("state", None),
            (leaf, None),
        ];
        let value = proto::typed_value::Value::JsonIetfVal(json.as_bytes().to_vec());
        proto::Update {
            path: Some(path(&names)),
            val: Some(proto::TypedValue { value: Some(value) }),
            ..proto::Update::default()
        }
    }

    fn updates(update: Vec<proto::Update>) -> proto::Notification {
        proto::Notification { update, ..proto::Notification::default() }
    }

    #[test]
    fn ports_are_known_by_their_id_and_state_in_any_order() {
        let (up, down) = (PartHealth::Up, PartHealth::Down);
        let mut table = InterfaceTable::default();
        let state = updates(vec![leaf("Ethernet8", "oper-status", "\"UP\"")]);
        assert_eq!(table.apply_notification(&state), [], "its id is not known yet");
        let id = updates(vec![leaf("Ethernet8", "openconfig-p4rt:id", "3")]);
        assert_eq!(table.apply_notification(&id), [(3, up)]);
        for (json, expected) in [
            ("\"DOWN\"", Some(down)),
            ("\"UP\"", Some(up)),
            ("\"openconfig-interfaces:LOWER_LAYER_DOWN\"", Some(down)),
            ("\"UNKNOWN\"", None),
            ("\"NOT_PRESENT\"", Some(down)),
        ] {
            let state = updates(vec![leaf("Ethernet8", "oper-status", json)]);
            let expected: Vec<_> = expected.map(|health| (3, health)).into_iter().collect();
            assert_eq!(table.apply_notification(&state), expected, "{json}");
        }
        let counters = updates(vec![leaf("Ethernet8", "mtu", "9100")]);
        assert_eq!(table.apply_notification(&counters), []);
    }

    #[test]
    fn a_deleted_interface_is_down() {
        let mut table = InterfaceTable::default();
        table.apply_notification(&updates(vec![
            leaf("Ethernet0", "id", "\"1\""),
            leaf("Ethernet0", "oper-status", "\"UP\""),
        ]));
        let gone = path(&[("interfaces", None), ("interface", Some("Ethernet0"))]);
        let deleted = proto::Notification { delete: vec![gone], ..proto::Notification::default() };
        assert_eq!(table.apply_notification(&deleted), [(1, PartHealth::Down)]);
    }
}
