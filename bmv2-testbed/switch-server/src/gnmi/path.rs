//! Paths: those of the leaves there are, and those that clients ask for.

use p4runtime_proto::gnmi as proto;
use tonic::Status;

/// A leaf's path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeafPath(pub(super) Vec<PathStep>);

/// One step of a leaf's path: a name, and the key where it is a list. No list here has two keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathStep {
    pub(super) name: &'static str,
    pub(super) key: Option<(&'static str, String)>,
}

/// Names of a path below which anything is meant.
const ANY_DEPTH: &str = "...";
/// One name, or one value of a key.
const ANY_NAME: &str = "*";

impl LeafPath {
    /// A path from text such as `interfaces/interface[name]/state`, and one value for each key.
    pub(super) fn new(text: &'static str, values: &[&str]) -> Self {
        let mut values = values.iter();
        let steps = text.split('/').map(|step| match step.split_once('[') {
            Some((name, key)) => {
                let value = values.next().map_or_else(String::new, |value| (*value).to_owned());
                PathStep { name, key: Some((key.trim_end_matches(']'), value)) }
            }
            None => PathStep { name: step, key: None },
        });
        Self(steps.collect())
    }

    pub(super) fn to_proto(&self) -> proto::Path {
        let elem = self.0.iter().map(|step| proto::PathElem {
            name: step.name.to_owned(),
            key: step.key.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        });
        proto::Path { elem: elem.collect(), ..proto::Path::default() }
    }
}

/// The steps that a client asks for: those of the prefix, then those of the path.
///
/// # Errors
/// The path is of another origin, or written in the form of gNMI before 0.4.
pub(super) fn join_paths(
    prefix: Option<&proto::Path>,
    path: Option<&proto::Path>,
) -> Result<Vec<proto::PathElem>, Status> {
    let mut steps = Vec::new();
    for part in [prefix, path].into_iter().flatten() {
        if !["", "openconfig"].contains(&part.origin.as_str()) {
            let text = format!("there is no origin `{}` here", part.origin);
            return Err(Status::invalid_argument(text));
        }
        #[allow(deprecated)] // Refused by name, not overlooked.
        let old_form = &part.element;
        if !old_form.is_empty() {
            return Err(Status::unimplemented("Path.element: use Path.elem"));
        }
        steps.extend(part.elem.iter().cloned());
    }
    Ok(steps)
}

/// Whether a leaf is at a path or below it.
pub(super) fn covers(asked: &[proto::PathElem], leaf: &LeafPath) -> bool {
    covers_steps(asked, &leaf.0)
}

fn covers_steps(asked: &[proto::PathElem], steps: &[PathStep]) -> bool {
    let Some((first, rest)) = asked.split_first() else {
        return true;
    };
    if first.name == ANY_DEPTH {
        return (0..=steps.len()).any(|skipped| covers_steps(rest, &steps[skipped..]));
    }
    let Some((step, below)) = steps.split_first() else {
        return false;
    };
    // A model's name may stand before the name of a node.
    let name = first.name.rsplit(':').next().unwrap_or_default();
    let has_key = |(key, value): (&String, &String)| {
        let known = step.key.as_ref();
        known.is_some_and(|(name, known)| name == key && (value == ANY_NAME || value == known))
    };
    (name == ANY_NAME || name == step.name)
        && first.key.iter().all(has_key)
        && covers_steps(rest, below)
}

/// Whether a key of a path is any.
pub(super) fn has_wildcard(asked: &[proto::PathElem]) -> bool {
    asked.iter().any(|step| step.key.values().any(|value| value == ANY_NAME))
}

/// A path as people write it.
pub(super) fn display_path(steps: &[proto::PathElem]) -> String {
    let steps = steps.iter().map(|step| {
        let keys = step.key.iter().map(|(key, value)| format!("[{key}={value}]"));
        format!("/{}{}", step.name, keys.collect::<String>())
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<proto::PathElem> {
        let parts = text.split('/').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (name, keys) = part.split_once('[').unwrap_or((part, ""));
                let key = keys.trim_end_matches(']').split_once('=');
                proto::PathElem {
                    name: name.to_owned(),
                    key: key.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
                }
            })
            .collect()
    }

    #[test]
    fn paths_cover_what_is_at_them_or_below() {
        let leaf = LeafPath::new("interfaces/interface[name]/state/oper-status", &["Ethernet4"]);
        for text in [
            "",
            "/interfaces",
            "/openconfig-interfaces:interfaces/interface",
            "/interfaces/interface[name=Ethernet4]",
            "/interfaces/interface[name=*]/state/oper-status",
            "/interfaces/*/state",
            "/.../oper-status",
            "/interfaces/...",
        ] {
            assert!(covers(&steps(text), &leaf), "{text}");
        }
        for text in [
            "/qos",
            "/interfaces/interface[name=Ethernet8]",
            "/interfaces/interface[id=Ethernet4]",
            "/interfaces/interface/state/oper-status/more",
            "/.../admin-status",
        ] {
            assert!(!covers(&steps(text), &leaf), "{text}");
        }
        let asked = steps("/interfaces/interface[name=a]");
        assert_eq!(display_path(&asked), "/interfaces/interface[name=a]");
    }

    #[test]
    fn prefix_and_path_are_one_path_of_openconfig() {
        let path = |elem, origin: &str| proto::Path {
            elem,
            origin: origin.to_owned(),
            ..proto::Path::default()
        };
        let (prefix, rest) = (path(steps("/a"), "openconfig"), path(steps("/b/c"), ""));
        assert_eq!(join_paths(Some(&prefix), Some(&rest)).unwrap(), steps("/a/b/c"));
        assert!(join_paths(None, Some(&path(Vec::new(), "cli"))).is_err());
    }
}
