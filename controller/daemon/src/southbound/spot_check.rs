//! Spot checks: which tables to read between two full reads of a switch.
//!
//! A switch that others can reach may be written to behind the controller's back, and until the
//! next full read it counts as verified. The decision: every check reads the cookie of the program
//! and whole tables in turn, as many as a budget of entries allows. A small switch is read whole in
//! every check, a large one bit by bit, and no switch costs more than the budget.

use p4::entry::TableId;
use p4::{SwitchTables, TableScope};

/// A table of more budgets than this is left to full reads.
const LARGEST_TABLE_BUDGETS: usize = 8;

/// Where the next check begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckCursor(usize);

impl CheckCursor {
    /// The tables of the next check, of a switch that holds these.
    pub(super) fn next_scope(
        &mut self,
        held: &SwitchTables,
        tables: &[TableId],
        budget: usize,
    ) -> TableScope {
        let (mut chosen, mut entries) = (Vec::new(), 0);
        for _ in 0..tables.len() {
            let table = tables[self.0 % tables.len()];
            // An empty table costs an entry, so that a check is bounded in tables, too.
            let size = held.table_len(table).max(1);
            if entries + size > budget && !chosen.is_empty() {
                break;
            }
            self.0 = (self.0 + 1) % tables.len();
            // A larger table is passed over, or one check would read most of the switch.
            if size <= LARGEST_TABLE_BUDGETS * budget {
                chosen.push(table);
                entries += size;
            }
        }
        TableScope::whole_tables(chosen.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4::fabric::{self, PortNumber};

    /// Tables with so many entries of ports; how many tables each of these checks reads.
    fn check(ports: u32, budget: usize, expected: &[usize]) {
        let down = (1..=ports).map(|port| fabric::port_down(PortNumber::new(port).unwrap()));
        let held: SwitchTables = down.collect();
        let first = held.iter().next().unwrap().0.table;
        let p4info = &p4::ForwardingPipeline::embedded_fabric().p4info;
        let others = p4info.table_ids().into_iter().filter(|table| *table != first);
        let tables: Vec<TableId> = [first].into_iter().chain(others.take(4)).collect();
        let mut cursor = CheckCursor::default();
        for (round, expected) in expected.iter().enumerate() {
            let scope = cursor.next_scope(&held, &tables, budget);
            let covered = tables
                .iter()
                .filter(|table| scope.contains_key(&p4::entry::EntryKey::for_default(**table)));
            assert_eq!(covered.count(), *expected, "{ports} ports, check {round}");
        }
    }

    #[test]
    fn tables_take_turns_within_the_budget() {
        check(10, 100, &[5, 5]);
        check(10, 12, &[3, 3, 4]);
        check(10, 5, &[1, 4, 1, 4]);
        // Too large: never read here.
        check(50, 5, &[4, 4]);
    }
}
