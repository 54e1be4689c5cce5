//! Jump threading: a branch whose outcome is known on the way to it is left out of that way.
//!
//! p4c notes in a field whether a table was hit and branches on the field in the next node, and it
//! turns a chain of `else if` into tests of one field for one value after another. Branches have no
//! effect but the next node, so what a packet meets otherwise stays the same.

use crate::action::{Action, Primitive};
use crate::expression::{Cond, Expr};
use crate::phv::{Field, Slot, mask};
use crate::pipeline::Node;
use crate::program::Next;

/// What is known of a field between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Is(Slot, i128),
    IsNot(Slot, i128),
}

/// Leads every node to the first that is not a branch decided before.
pub(super) fn thread(nodes: &mut [Node]) {
    for at in 0..nodes.len() {
        let ways = match &nodes[at] {
            Node::Branch { cond, yes, no } => [
                undecided(nodes, *yes, &outcome(cond, true)),
                undecided(nodes, *no, &outcome(cond, false)),
            ],
            Node::Call { action, next, .. } => [undecided(nodes, *next, &written(action)); 2],
            Node::Table(_) => continue,
        };
        match &mut nodes[at] {
            Node::Branch { yes, no, .. } => [*yes, *no] = ways,
            Node::Call { next, .. } => *next = ways[0],
            Node::Table(_) => {}
        }
    }
}

/// The first node from `next` on that is not a branch which the facts decide. There is one, since
/// a program whose control flow runs in a circle has been refused.
fn undecided(nodes: &[Node], mut next: Next, facts: &[Fact]) -> Next {
    while let Some(Node::Branch { cond, yes, no }) = next.map(|node| &nodes[node as usize])
        && let Some(truth) = facts.iter().find_map(|fact| fact.decides(cond))
    {
        next = if truth { *yes } else { *no };
    }
    next
}

/// What the outcome of a condition says.
fn outcome(cond: &Cond, truth: bool) -> Vec<Fact> {
    match cond {
        Cond::Not(of) => outcome(of, !truth),
        Cond::FieldIs(field, value) => vec![Fact::of(*field, *value, truth)],
        Cond::NonZero(Expr::Field(field)) => vec![Fact::of(*field, 0, !truth)],
        _ => Vec::new(),
    }
}

/// The fields that an action leaves with constants, as far as it does nothing else.
fn written(action: &Action) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for primitive in &action.primitives {
        let Primitive::Assign(field, value) = primitive else {
            return Vec::new();
        };
        facts.retain(|fact| fact.slot() != field.slot);
        if let Expr::Const(value) = value
            && !field.signed
        {
            let bits = *value as u128 & mask(field.bits);
            facts.push(Fact::Is(field.slot, bits as i128));
        }
    }
    facts
}

impl Fact {
    /// Whether the field has the value. A single bit that is not the one is the other.
    fn of(field: Field, value: i128, has_it: bool) -> Self {
        match (has_it, field.bits, value) {
            (true, ..) => Self::Is(field.slot, value),
            (false, 1, 0 | 1) if !field.signed => Self::Is(field.slot, 1 - value),
            (false, ..) => Self::IsNot(field.slot, value),
        }
    }

    fn slot(self) -> Slot {
        match self {
            Self::Is(slot, _) | Self::IsNot(slot, _) => slot,
        }
    }

    /// The truth of a condition, where this is enough to know it.
    fn decides(self, cond: &Cond) -> Option<bool> {
        match cond {
            Cond::Not(of) => self.decides(of).map(|truth| !truth),
            Cond::FieldIs(field, value) => self.says(field.slot, *value),
            Cond::NonZero(Expr::Field(field)) => self.says(field.slot, 0).map(|is_zero| !is_zero),
            _ => None,
        }
    }

    /// Whether a field has a value.
    fn says(self, slot: Slot, value: i128) -> Option<bool> {
        match self {
            Self::Is(known, is) if known == slot => Some(is == value),
            Self::IsNot(known, is_not) if known == slot && is_not == value => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::HeaderIndex;

    fn field(slot: u32, bits: u32) -> Field {
        Field {
            slot: Slot(slot),
            bits,
            signed: false,
            header: HeaderIndex(0),
        }
    }

    fn call(writes: &[(Field, Expr)], next: Next) -> Node {
        let primitives = writes.iter().cloned();
        Node::Call {
            action: Action {
                primitives: primitives
                    .map(|(to, of)| Primitive::Assign(to, of))
                    .collect(),
            },
            arguments: Vec::new(),
            next,
        }
    }

    fn branch(cond: Cond, yes: u32, no: u32) -> Node {
        Node::Branch {
            cond,
            yes: Some(yes),
            no: Some(no),
        }
    }

    fn ways(node: &Node) -> Vec<Next> {
        match node {
            Node::Branch { yes, no, .. } => vec![*yes, *no],
            Node::Call { next, .. } => vec![*next],
            Node::Table(_) => Vec::new(),
        }
    }

    fn is_set(field: Field) -> Cond {
        Cond::NonZero(Expr::Field(field))
    }

    #[test]
    fn a_branch_on_what_was_just_written_is_passed() {
        let (hit, other) = (field(3, 1), field(4, 8));
        let mut nodes = [
            call(&[(hit, Expr::Const(1))], Some(3)),
            call(&[(hit, Expr::Const(0))], Some(3)),
            call(&[(hit, Expr::Const(1)), (hit, Expr::Field(other))], Some(3)),
            branch(is_set(hit), 4, 5),
            call(&[], None),
            call(&[], None),
        ];
        thread(&mut nodes);
        let ways: Vec<Next> = nodes[..3].iter().flat_map(ways).collect();
        assert_eq!(ways, [Some(4), Some(5), Some(3)]);
    }

    #[test]
    fn a_chain_of_tests_is_passed_as_far_as_one_outcome_tells() {
        let (bit, byte) = (field(3, 1), field(4, 8));
        let mut nodes = [
            branch(Cond::FieldIs(bit, 1), 5, 1),
            branch(Cond::FieldIs(bit, 1), 5, 2),
            branch(Cond::FieldIs(bit, 0), 6, 5),
            branch(Cond::FieldIs(byte, 7), 6, 4),
            branch(Cond::FieldIs(byte, 8), 6, 5),
            call(&[], None),
            call(&[], None),
        ];
        thread(&mut nodes);
        assert_eq!(ways(&nodes[0]), [Some(5), Some(6)]);
        assert_eq!(ways(&nodes[3]), [Some(6), Some(4)], "8 is not known from 7");
    }

    #[test]
    fn what_else_an_action_does_leaves_nothing_known() {
        let hit = field(3, 1);
        let mut nodes = [
            call(&[(hit, Expr::Const(1))], Some(1)),
            branch(is_set(hit), 2, 2),
            call(&[], None),
        ];
        if let Node::Call { action, .. } = &mut nodes[0] {
            action.primitives.push(Primitive::Exit);
        }
        thread(&mut nodes);
        assert_eq!(ways(&nodes[0]), [Some(1)]);
    }
}
