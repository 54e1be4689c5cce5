//! Rows refer only to rows that are there.

use super::*;

/// No row refers to a row that is not there (`@refers_to` of `fabric.p4`).
pub(super) fn check_references(tables: &SwitchTables) -> Result<(), TestCaseError> {
    let keys = |table, field: usize| -> BTreeSet<u128> {
        let exact = |key: &p4::entry::EntryKey| match &key.row {
            p4::entry::TableRow::Match { fields, .. } => match &fields[field].matches {
                p4::entry::FieldMatch::Exact(value) => value.number(),
                _ => None,
            },
            p4::entry::TableRow::Default => None,
        };
        tables.table_entries(table).filter_map(|(key, _)| exact(key)).collect()
    };
    let params = |table, param: usize| -> BTreeSet<u128> {
        let calls = tables.table_entries(table).flat_map(|(_, value)| value.action.action_calls());
        calls.map(|call| call.params[param].value.number().unwrap()).collect()
    };
    let leaves = keys(table::ECMP_GROUP, 0);
    prop_assert!(keys(table::PATH, 0).is_subset(&leaves));
    for table in [table::DST_LEAF, table::DST_LEAF6] {
        prop_assert!(params(table, 0).is_subset(&leaves));
    }
    for table in [table::FLOW_PIN, table::FLOW_PIN6, table::TRANSIT_PIN6] {
        prop_assert!(params(table, 0).is_subset(&keys(table::PATH, 1)));
    }
    for table in [table::JOB_CLASSIFY, table::JOB_CLASSIFY6, table::JOB_PAIR, table::JOB_PAIR6] {
        prop_assert!(params(table, 0).is_subset(&keys(table::JOB_QOS, 0)));
    }
    Ok(())
}
