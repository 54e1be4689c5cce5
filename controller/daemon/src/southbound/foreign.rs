//! Entries that are on a switch and that this controller did not write.
//!
//! [`reconcile`](super::reconcile) asks here before it compares. An entry is ours by the signature
//! that [`lower`](crate::lower()) puts into it and the switch keeps, so a controller that starts
//! anew, or takes over, still knows its predecessor's entries for its own. The decision: only keys
//! that nothing desires can be foreign. Whoever writes to one that is desired is corrected, signed
//! or not.

use p4::{TableEntry, Tables};

use crate::config::Foreign;

/// What a switch holds, told apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sorted {
    /// What is to be as desired.
    pub(super) ours: Tables,
    /// What stays as it is.
    pub(super) foreign: Vec<TableEntry>,
}

/// Tells apart what `actual` holds, under a policy on foreign entries.
pub(super) fn sort(policy: Foreign, desired: &Tables, actual: Tables) -> Sorted {
    let stays = |key: &_, value: &p4::EntryValue| desired.get(key).is_none() && !value.is_signed();
    let foreign: Vec<TableEntry> = match policy {
        Foreign::Delete => Vec::new(),
        Foreign::Keep | Foreign::Report => {
            let foreign = actual.iter().filter(|(key, value)| stays(key, value));
            foreign.map(TableEntry::from).collect()
        }
    };
    let mut ours = actual;
    for entry in &foreign {
        ours.remove(&entry.key);
    }
    Sorted { ours, foreign }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4::fabric::{self, Port};

    fn row(port: u32) -> TableEntry {
        fabric::port_down(Port::new(port).unwrap())
    }

    fn check(policy: Foreign, ours: &[TableEntry], foreign: &[TableEntry]) {
        // Desired, left over from an earlier plan, desired and tampered with, somebody else's.
        let actual = [row(1).signed(), row(2).signed(), row(3), row(4)];
        let desired = [row(1).signed(), row(3).signed()].into_iter().collect();
        let sorted = sort(policy, &desired, actual.into_iter().collect());
        assert_eq!(sorted.ours, ours.iter().cloned().collect());
        assert_eq!(sorted.foreign, foreign);
    }

    #[test]
    fn only_what_is_neither_desired_nor_signed_is_foreign() {
        let ours = [row(1).signed(), row(2).signed(), row(3)];
        check(Foreign::Keep, &ours, &[row(4)]);
        check(Foreign::Report, &ours, &[row(4)]);
        let all = [row(1).signed(), row(2).signed(), row(3), row(4)];
        check(Foreign::Delete, &all, &[]);
    }
}
