//! The order in which the updates of a switch are written.
//!
//! The decision: first what is new or different, every table after those it refers to; then what
//! has to go, in the reverse order. So no row ever points to nothing, and traffic moves before its
//! old way is taken away. A table of classifiers (ACL) without room for old and new rows at once
//! gives up its old rows first. Where one row leaves another for a third and the one that it leaves
//! changes as well, what others share with it, it leaves first; and what comes to the changed row
//! comes after: traffic never takes the new way of what it has no more to do with.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::P4Info;
use crate::entry::{ActionSpec, EntryKey, FieldMatch, RowField, TableId, TableRow};
use crate::sdn_string::FieldValue;
use crate::tables::{SwitchTables, TableUpdate, UpdateKind};

/// What a row is called where others refer to it: the table, and the value of its only field.
type RowName<'a> = (&'a str, &'a FieldValue);

/// Sorts the updates from `actual` to `desired`, each of another entry.
pub(crate) fn order_updates(
    p4info: &P4Info,
    (desired, actual): (&SwitchTables, &SwitchTables),
    updates: impl Iterator<Item = TableUpdate>,
) -> Vec<TableUpdate> {
    let (deletions, mut writes): (Vec<_>, Vec<_>) =
        updates.partition(|update| update.kind == UpdateKind::Delete);
    let rows = rows_with_deleted(desired, &deletions);
    // Referenced tables first: a row may refer only to rows that exist (`@refers_to`). Deletions in
    // the reverse order and last, so that no row loses what it refers to.
    let rank = |update: &TableUpdate| p4info.write_rank(update.entry.key.table);
    let is_tight = |update: &TableUpdate| {
        let table = update.entry.key.table;
        rows.get(&table).is_some_and(|rows| p4info.gives_up_old_rows(table, *rows))
    };
    let (first, mut deletions): (Vec<_>, Vec<_>) =
        deletions.into_iter().partition(|update| is_tight(update));
    let phases = write_phases(p4info, &writes, actual);
    let mut phases = phases.into_iter();
    // Stable: of one table, what goes stands before what comes.
    let mut writes: Vec<(u8, TableUpdate)> = first
        .into_iter()
        .map(|update| (0, update))
        .chain(writes.drain(..).map(|update| (phases.next().unwrap_or(0), update)))
        .collect();
    writes.sort_by_key(|(phase, update)| (*phase, rank(update)));
    deletions.sort_by_key(|update| Reverse(rank(update)));
    writes.into_iter().map(|(_, update)| update).chain(deletions).collect()
}

/// Runs of updates in the order of [`diff_tables`](crate::diff_tables): those within a run may
/// overtake each other, runs may not. A new run begins after a table with insertions, since later
/// entries may refer to those, and after a table with deletions. Modified entries exist before and
/// after, so they need no order, unless one waits for another: then tables come a second time.
pub fn split_stages<'a>(
    p4info: &P4Info,
    updates: &'a [TableUpdate],
) -> impl Iterator<Item = &'a [TableUpdate]> {
    let (mut adds, mut waits) = (false, false);
    updates.chunk_by(move |a, b| {
        adds |= a.kind == UpdateKind::Insert;
        let [a_deletes, b_deletes] = [a, b].map(|update| update.kind == UpdateKind::Delete);
        let [a, b] = [a, b].map(|update| update.entry.key.table);
        waits |= !b_deletes && p4info.write_rank(b) < p4info.write_rank(a);
        let goes_on = a_deletes == b_deletes && (a == b || !(adds || a_deletes || waits));
        adds &= goes_on;
        goes_on
    })
}

/// When each write has its turn, after all of smaller numbers: 1 for a modified row that some other
/// row leaves, 2 for the modified rows that come to such a one.
fn write_phases(p4info: &P4Info, writes: &[TableUpdate], actual: &SwitchTables) -> Vec<u8> {
    let modified = || writes.iter().filter(|update| update.kind == UpdateKind::Modify);
    let mut left = BTreeSet::new();
    for update in modified() {
        let had = actual.get(&update.entry.key).map(|had| named_rows(p4info, &had.action));
        let has = named_rows(p4info, &update.entry.value.action);
        left.extend(had.unwrap_or_default().difference(&has));
    }
    let changed: BTreeSet<RowName<'_>> =
        modified().flat_map(|update| row_names(p4info, &update.entry.key)).collect();
    left.retain(|name| changed.contains(name));
    let phase = |update: &TableUpdate| {
        let is_left = |names: &BTreeSet<RowName<'_>>| !names.is_disjoint(&left);
        match () {
            () if is_left(&row_names(p4info, &update.entry.key)) => 1,
            () if is_left(&named_rows(p4info, &update.entry.value.action)) => 2,
            () => 0,
        }
    };
    let turn = |update: &TableUpdate| match update.kind {
        UpdateKind::Modify if !left.is_empty() => phase(update),
        _ => 0,
    };
    writes.iter().map(turn).collect()
}

/// The rows that the arguments of an action name.
fn named_rows<'a>(p4info: &'a P4Info, action: &'a ActionSpec) -> BTreeSet<RowName<'a>> {
    let calls = action.action_calls();
    let names = calls.flat_map(|call| {
        let params = p4info.action(call.action).map_or(&[][..], |action| &action.params);
        let pairs = call.params.iter().filter_map(|param| {
            Some((params.iter().find(|info| info.id == param.id)?, &param.value))
        });
        pairs.flat_map(|(info, value)| info.refers_to.iter().map(move |to| (to.as_str(), value)))
    });
    names.collect()
}

/// What others call a row, or what it belongs to: a path to leaves belongs to their group.
fn row_names<'a>(p4info: &'a P4Info, key: &'a EntryKey) -> BTreeSet<RowName<'a>> {
    let (TableRow::Match { fields, .. }, Some(table)) = (&key.row, p4info.table(key.table)) else {
        return BTreeSet::new();
    };
    let own = Some(table.name.as_str()).filter(|_| table.fields.len() == 1);
    let values = fields.iter().filter_map(|field| Some((field, exact_value(field)?)));
    let names = values.flat_map(|(field, value)| {
        let info = table.fields.iter().find(|info| info.info.id == field.id);
        let others = info.into_iter().flat_map(|info| &info.info.refers_to).map(String::as_str);
        others.chain(own).map(move |name| (name, value))
    });
    names.collect()
}

fn exact_value(field: &RowField) -> Option<&FieldValue> {
    match &field.matches {
        FieldMatch::Exact(value) => Some(value),
        _ => None,
    }
}

/// The rows of each table that loses some, old and new ones together.
fn rows_with_deleted(desired: &SwitchTables, deletions: &[TableUpdate]) -> BTreeMap<TableId, u64> {
    let mut rows: BTreeMap<TableId, u64> = BTreeMap::new();
    for deletion in deletions {
        let table = deletion.entry.key.table;
        *rows.entry(table).or_insert_with(|| desired.table_len(table) as u64) += 1;
    }
    rows
}

#[cfg(test)]
mod tests {
    use UpdateKind::{Delete, Insert, Modify};

    use super::*;
    use crate::entry::TableEntry;
    use crate::fabric::{self, PortNumber};
    use crate::{ForwardingPipeline, diff_tables};

    fn p4info() -> &'static P4Info {
        &ForwardingPipeline::embedded_fabric().p4info
    }

    /// Tables by letter in the order of writes, and the runs that these updates make.
    fn check(updates: &[(UpdateKind, char)], runs: &[usize]) {
        let entry = |table| match table {
            'a' => fabric::ecmp_group(1, [PortNumber::CPU]).unwrap(),
            'b' => fabric::path(1, 1, PortNumber::CPU, PortNumber::CPU),
            _ => fabric::dst_leaf([10, 0, 0, 3].into(), 1),
        };
        let update =
            |&(kind, table): &(UpdateKind, char)| TableUpdate { kind, entry: entry(table) };
        let updates: Vec<TableUpdate> = updates.iter().map(update).collect();
        let lengths: Vec<usize> =
            split_stages(p4info(), &updates).map(<[TableUpdate]>::len).collect();
        assert_eq!(lengths, runs, "{updates:?}");
    }

    #[test]
    fn modifications_wait_only_for_insertions_and_for_what_is_left() {
        check(&[(Modify, 'a'), (Modify, 'b'), (Modify, 'c')], &[3]);
        check(&[(Modify, 'a'), (Insert, 'b'), (Modify, 'b')], &[3]);
        check(&[(Insert, 'a'), (Modify, 'b'), (Modify, 'c')], &[1, 2]);
        check(&[(Insert, 'a'), (Modify, 'a'), (Modify, 'b')], &[2, 1]);
        check(&[(Insert, 'a'), (Insert, 'b'), (Insert, 'c')], &[1, 1, 1]);
        check(&[(Modify, 'a'), (Delete, 'c'), (Delete, 'b')], &[1, 1, 1]);
        check(&[(Modify, 'b'), (Modify, 'c'), (Modify, 'a'), (Modify, 'c')], &[2, 1, 1]);
    }

    /// Leaf 3 leaves group 1 for group 2, leaf 4 comes from group 2 to group 1, which changes.
    #[test]
    fn what_leaves_a_row_that_changes_leaves_first_and_what_comes_to_it_comes_last() {
        let [old, new] = [1, 2].map(|port| PortNumber::new(port).unwrap());
        let tables = |port, classes: [u16; 2]| -> SwitchTables {
            let addresses = [[10, 0, 0, 3], [10, 0, 0, 4]];
            let leaves = addresses.into_iter().zip(classes);
            let leaves = leaves.map(|(address, class)| fabric::dst_leaf(address.into(), class));
            let shared = [
                fabric::ecmp_group(1, [port]).unwrap(),
                fabric::path(1, 1, port, port),
                fabric::ecmp_group(2, [new]).unwrap(),
            ];
            leaves.chain(shared).collect::<Vec<TableEntry>>().into_iter().collect()
        };
        let updates = diff_tables(p4info(), &tables(new, [2, 1]), &tables(old, [1, 2]));
        let shown: Vec<String> =
            updates.iter().map(|update| p4info().display(update).to_string()).collect();
        let expected = [
            "modify dst_leaf dst=10.0.0.3/32 -> set_dst_leaf(id=2)",
            "modify ecmp_group dst_leaf=1 -> [1xto_ecmp_port(port=2)]",
            "modify path dst_leaf=1 path=1 -> to_uplink(port=2, backup=2)",
            "modify dst_leaf dst=10.0.0.4/32 -> set_dst_leaf(id=1)",
        ];
        assert_eq!(shown, expected);
        assert_eq!(split_stages(p4info(), &updates).count(), 4);
    }
}
