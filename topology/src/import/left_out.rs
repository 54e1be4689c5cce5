//! What an import leaves out of a fabric, with the reason: nothing is left out in silence.

use std::collections::BTreeMap;
use std::fmt;

use crate::finding::{count_noun, list_names};

/// Parts of a file that are not in the fabric, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What they are, in the singular: `node`, `cable`, `row`.
    pub noun: &'static str,
    /// Why they are left out.
    pub reason: String,
    /// Each by its name or its place in the file, in the order of the file.
    pub names: Vec<String>,
}

impl fmt::Display for LeftOut {
    /// `2 nodes (no cable to the fabric): grafana, loki`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { noun, reason, names } = self;
        write!(f, "{} ({reason}): {}", count_noun(names.len() as u64, noun), list_names(names))
    }
}

/// What an importer has to say beside the fabric, while it reads.
#[derive(Default)]
pub(super) struct ImportNotes {
    left_out: Vec<LeftOut>,
    /// How often each field occurs that says nothing of a fabric.
    unused_fields: BTreeMap<String, usize>,
    pub(super) assumptions: Vec<String>,
}

impl ImportNotes {
    pub(super) fn leave_out(
        &mut self,
        noun: &'static str,
        reason: impl Into<String>,
        name: impl Into<String>,
    ) {
        let (reason, name) = (reason.into(), name.into());
        let same = |other: &&mut LeftOut| other.noun == noun && other.reason == reason;
        match self.left_out.iter_mut().find(same) {
            Some(other) => other.names.push(name),
            None => self.left_out.push(LeftOut { noun, reason, names: vec![name] }),
        }
    }

    pub(super) fn count_unused_field(&mut self, field: impl Into<String>) {
        *self.unused_fields.entry(field.into()).or_default() += 1;
    }

    /// All that was left out, the fields last, and all that was assumed.
    pub(super) fn into_parts(mut self) -> (Vec<LeftOut>, Vec<String>) {
        let fields = self.unused_fields.iter().map(|(field, count)| match count {
            1 => field.clone(),
            _ => format!("{field} ({count} times)"),
        });
        let names: Vec<String> = fields.collect();
        if !names.is_empty() {
            let reason = "they say nothing of a fabric".to_owned();
            self.left_out.push(LeftOut { noun: "field", reason, names });
        }
        (self.left_out, self.assumptions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_by_reason_and_named() {
        let mut notes = ImportNotes::default();
        for host in 0..22 {
            notes.leave_out("node", "no cable", format!("h{host}"));
        }
        notes.leave_out("cable", "planned", "row 3");
        for field in ["mtu", "image", "image"] {
            notes.count_unused_field(field);
        }
        let (left_out, _) = notes.into_parts();
        let texts: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        assert!(texts[0].starts_with("22 nodes (no cable): h0, h1, "), "{texts:?}");
        assert!(texts[0].ends_with("h19 and 2 more"), "{texts:?}");
        let fields = "2 fields (they say nothing of a fabric): image (2 times), mtu";
        assert_eq!(texts[1..], ["1 cable (planned): row 3", fields]);
    }
}
