//! Entries that are on a switch and that this controller did not write.
//!
//! [`reconcile`](super::reconcile) sorts entries before it compares them. An entry is ours by the
//! signature that [`lower_plan`](crate::lower_plan()) puts into it and the switch keeps, so a
//! controller that restarts or takes over recognises the entries of its predecessor. The decision:
//! only keys that are not desired can be foreign. Entries with desired keys are corrected, signed
//! or not. Before the fabric is known, every entry counts as foreign and stays.

use p4::{SwitchTables, TableEntry};

use super::UnknownEntries;
use crate::config::ForeignEntryPolicy;

/// The entries of a switch, ours and foreign.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SortedEntries {
    /// What is to be as desired.
    pub(super) ours: SwitchTables,
    /// What stays as it is.
    pub(super) foreign: Vec<TableEntry>,
}

/// Sorts the entries of `actual` under a policy on foreign entries.
pub(super) fn sort_entries(
    policy: ForeignEntryPolicy,
    others: UnknownEntries,
    desired: &SwitchTables,
    actual: SwitchTables,
) -> SortedEntries {
    let foreign: Vec<TableEntry> = actual
        .iter()
        // An entry with a desired key has to be corrected, signed or not.
        .filter(|(key, _)| desired.get(key).is_none())
        .filter(|(_, value)| match (others, policy) {
            (UnknownEntries::Keep, _) => true,
            (UnknownEntries::Delete, ForeignEntryPolicy::Delete) => false,
            (UnknownEntries::Delete, ForeignEntryPolicy::Keep | ForeignEntryPolicy::Report) => {
                !value.is_signed()
            }
        })
        .map(TableEntry::from)
        .collect();
    let mut ours = actual;
    for entry in &foreign {
        ours.remove(&entry.key);
    }
    SortedEntries { ours, foreign }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4::fabric::{self, PortNumber};

    fn row(port: u32) -> TableEntry {
        fabric::port_down(PortNumber::new(port).unwrap())
    }

    fn check(
        (policy, others): (ForeignEntryPolicy, UnknownEntries),
        ours: &[TableEntry],
        foreign: &[TableEntry],
    ) {
        // Desired, left over from an earlier plan, desired and tampered with, somebody else's.
        let actual = [row(1).with_signature(), row(2).with_signature(), row(3), row(4)];
        let desired = [row(1).with_signature(), row(3).with_signature()].into_iter().collect();
        let sorted = sort_entries(policy, others, &desired, actual.into_iter().collect());
        assert_eq!(sorted.ours, ours.iter().cloned().collect());
        assert_eq!(sorted.foreign, foreign);
    }

    #[test]
    fn entries_neither_desired_nor_signed_are_foreign() {
        let ours = [row(1).with_signature(), row(2).with_signature(), row(3)];
        check((ForeignEntryPolicy::Keep, UnknownEntries::Delete), &ours, &[row(4)]);
        check((ForeignEntryPolicy::Report, UnknownEntries::Delete), &ours, &[row(4)]);
        let all = [row(1).with_signature(), row(2).with_signature(), row(3), row(4)];
        check((ForeignEntryPolicy::Delete, UnknownEntries::Delete), &all, &[]);
    }

    #[test]
    fn without_a_known_fabric_all_other_entries_stay() {
        let ours = [row(1).with_signature(), row(3)];
        let others = [row(2).with_signature(), row(4)];
        check((ForeignEntryPolicy::Delete, UnknownEntries::Keep), &ours, &others);
    }
}
