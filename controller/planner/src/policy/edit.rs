//! Changes of single fields of a policy, as an operator gives them at a prompt.
//!
//! The decision: an edit names what it changes and leaves everything else, so that a drain cannot
//! reset another field, as a whole document from an old file can.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PolicyDocument;
use crate::name_matching::{self, DocumentFieldError};

/// Fields that hold lists of rules or names, which other commands change.
const LISTS: [(&str, &str); 3] = [
    ("drained", "drain and undrain change it"),
    ("job", "change its rules in a file: crux policy show > policy.toml"),
    ("adopt", "change its rules in a file, or add one with crux flows adopt"),
];

/// What an edit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyEditAction {
    /// Traffic avoids a switch, or a cable as `switch-switch`.
    Drain,
    /// It is used again.
    Undrain,
    /// A field gets a value.
    Set,
    /// A field gets its default.
    Unset,
}

/// A change of one field of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyEdit {
    /// What it does.
    pub action: PolicyEditAction,
    /// The part that is drained or used again, or the field.
    pub name: String,
    /// The value to set, as it would stand in a TOML document; text needs no quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl PolicyEdit {
    fn field_error(&self, problem: String) -> DocumentFieldError {
        DocumentFieldError { file: "policy".to_owned(), field: self.name.clone(), problem }
    }
}

impl PolicyDocument {
    /// The document after an edit; what the edit does not name stays.
    ///
    /// # Errors
    /// The field does not exist or takes no such value, or the part to be used again is not
    /// drained.
    pub fn with_edit(self, edit: &PolicyEdit) -> Result<Self, DocumentFieldError> {
        match edit.action {
            PolicyEditAction::Drain => Ok(self.with_drain(&edit.name)),
            PolicyEditAction::Undrain => self.without_drain(edit),
            PolicyEditAction::Set => {
                let value = edit.value.as_deref();
                let missing = || edit.field_error("has no value to be set to".to_owned());
                self.with_field(edit, Some(parse_value(value.ok_or_else(missing)?)))
            }
            PolicyEditAction::Unset => self.with_field(edit, None),
        }
    }

    fn with_drain(mut self, name: &str) -> Self {
        if self.drained.iter().all(|drained| drained != name) {
            self.drained.push(name.to_owned());
        }
        self
    }

    fn without_drain(mut self, edit: &PolicyEdit) -> Result<Self, DocumentFieldError> {
        let before = self.drained.len();
        self.drained.retain(|drained| *drained != edit.name);
        if self.drained.len() < before {
            return Ok(self);
        }
        Err(edit.field_error(match &self.drained[..] {
            [] => "is not drained, and nothing else is".to_owned(),
            drained => format!("is not drained; drained are: {}", drained.join(", ")),
        }))
    }

    /// The document with another value of a field, or without it, which is its default.
    fn with_field(
        self,
        edit: &PolicyEdit,
        value: Option<toml::Value>,
    ) -> Result<Self, DocumentFieldError> {
        if let Some((_, hint)) = LISTS.iter().find(|(list, _)| *list == edit.name) {
            return Err(edit.field_error((*hint).to_owned()));
        }
        let fields = field_names();
        if !fields.contains(&edit.name) {
            let hint = name_matching::suggestion(&edit.name, fields.iter().map(String::as_str));
            return Err(edit.field_error(format!("a policy has no such field{hint}")));
        }
        let mut table = to_table(&self, edit)?;
        match value {
            Some(value) => table.insert(edit.name.clone(), value),
            None => table.remove(&edit.name),
        };
        let changed = table.try_into::<Self>();
        changed.map_err(|error| edit.field_error(error.message().trim().to_owned()))
    }
}

/// All fields of a policy, those without a value as well.
fn field_names() -> Vec<String> {
    let schema = schemars::schema_for!(PolicyDocument);
    let properties = schema.get("properties").and_then(|value| value.as_object());
    properties.map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
}

fn to_table(
    document: &PolicyDocument,
    edit: &PolicyEdit,
) -> Result<toml::Table, DocumentFieldError> {
    toml::Table::try_from(document).map_err(|error| edit.field_error(error.to_string()))
}

/// A value of TOML; anything else is text.
fn parse_value(text: &str) -> toml::Value {
    let line: Option<toml::Table> = toml::from_str(&format!("value = {text}")).ok();
    let alone = line.filter(|line| line.len() == 1).and_then(|mut line| line.remove("value"));
    alone.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PathMethod;

    fn edit(action: PolicyEditAction, name: &str, value: Option<&str>) -> PolicyEdit {
        PolicyEdit { action, name: name.to_owned(), value: value.map(str::to_owned) }
    }

    fn edited(document: PolicyDocument, edits: &[PolicyEdit]) -> Result<PolicyDocument, String> {
        let changed = edits.iter().try_fold(document, PolicyDocument::with_edit);
        changed.map_err(|error| error.to_string())
    }

    #[test]
    fn an_edit_leaves_everything_that_it_does_not_name() {
        use PolicyEditAction::{Drain, Set, Undrain, Unset};
        let old = PolicyDocument { fairness: 0.3, ..PolicyDocument::default() };
        let drained = edited(
            old.clone(),
            &[edit(Drain, "spine2", None), edit(Drain, "spine2", None), edit(Drain, "a-b", None)],
        );
        let drained = drained.unwrap();
        assert_eq!(drained.drained, ["spine2", "a-b"]);
        assert_eq!(drained.fairness, 0.3);
        let back = edited(drained, &[edit(Undrain, "a-b", None), edit(Undrain, "spine2", None)]);
        assert_eq!(back.unwrap(), old);
        let set = [
            edit(Set, "paths", Some("greedy")),
            edit(Set, "levels", Some("4")),
            edit(Set, "reserved_levels", Some("[3]")),
            edit(Set, "service_bound_seconds", Some("0.25")),
            edit(Unset, "fairness", None),
        ];
        let set = edited(old, &set).unwrap();
        assert_eq!((set.paths, set.levels, set.fairness), (PathMethod::Greedy, Some(4), 0.0));
        assert_eq!((&set.reserved_levels[..], set.service_bound_seconds), (&[3][..], Some(0.25)));
        let unset = ["levels", "service_bound_seconds"].map(|field| edit(Unset, field, None));
        let unset = edited(set, &unset).unwrap();
        assert_eq!((unset.levels, unset.service_bound_seconds), (None, None));
    }

    #[test]
    fn errors_name_the_field_and_what_would_be_right() {
        use PolicyEditAction::{Set, Undrain};
        let document = || PolicyDocument::default().with_drain("spine1");
        let problem = |edit| edited(document(), &[edit]).unwrap_err();
        assert_eq!(
            problem(edit(Set, "fairnes", Some("1"))),
            "policy: fairnes: a policy has no such field; did you mean `fairness`?"
        );
        assert!(
            problem(edit(Set, "levels", Some("many"))).contains("policy: levels: invalid type")
        );
        assert!(problem(edit(Set, "paths", Some("best"))).contains("unknown variant `best`"));
        assert!(problem(edit(Set, "levels", None)).contains("no value"));
        assert!(problem(edit(Set, "levels", Some("4\nfairness = 1"))).contains("invalid type"));
        assert_eq!(
            problem(edit(Undrain, "spine2", None)),
            "policy: spine2: is not drained; drained are: spine1"
        );
        assert!(problem(edit(Set, "drained", Some("[]"))).contains("undrain"));
    }
}
