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

/// Leads every node to the first that is not a branch decided before. From the last node to the
/// first, since p4c puts what follows behind: a long chain of tests is then passed in one step.
pub(super) fn thread(nodes: &mut [Node]) {
    for at in (0..nodes.len()).rev() {
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
    use proptest::prelude::*;

    use super::*;
    use crate::phv::{Phv, Shape};
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

    /// From the first node on, a step at a time this would take minutes.
    #[test]
    fn a_chain_of_a_hundred_thousand_tests_is_passed_in_one_step_each() {
        let (bit, last) = (field(3, 1), 100_000);
        let test = |at| branch(is_set(bit), last, at + 1);
        let mut nodes: Vec<Node> = (0..last).map(test).collect();
        nodes.push(call(&[], None));
        thread(&mut nodes);
        let (end, tests) = nodes.split_last().unwrap();
        assert!(ways(end) == [None] && tests.iter().all(|test| ways(test) == [Some(last); 2]));
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

    /// Two fields of a few values, one of them with a sign.
    fn any_field() -> impl Strategy<Value = Field> {
        (0..3_u32).prop_map(|slot| Field {
            signed: slot == 2,
            ..field(slot, 1 + slot.min(1))
        })
    }

    fn any_cond() -> impl Strategy<Value = Cond> {
        let is = (any_field(), -2..4_i128).prop_map(|(field, value)| Cond::FieldIs(field, value));
        let test = prop_oneof![is, any_field().prop_map(is_set), Just(Cond::Const(true))];
        (test, any::<bool>()).prop_map(|(test, negated)| match negated {
            true => Cond::Not(Box::new(test)),
            false => test,
        })
    }

    /// A node that leads on by so many nodes.
    fn any_node() -> impl Strategy<Value = Node> {
        let value = prop_oneof![
            (-2..4_i128).prop_map(Expr::Const),
            any_field().prop_map(Expr::Field)
        ];
        let writes = proptest::collection::vec((any_field(), value), 0..3);
        let call = (writes, 1..5_u32).prop_map(|(writes, on)| call(&writes, Some(on)));
        let test = (any_cond(), 1..5_u32, 1..5_u32);
        let test = test.prop_map(|(cond, yes, no)| branch(cond, yes, no));
        prop_oneof![1 => call, 2 => test]
    }

    /// Leads every node as far on as it says, or to the end.
    fn linked(mut nodes: Vec<Node>) -> Vec<Node> {
        let count = nodes.len() as u32;
        for (at, node) in (0..).zip(&mut nodes) {
            let link = |next: &mut Next| *next = next.map(|on| at + on).filter(|to| *to < count);
            match node {
                Node::Branch { yes, no, .. } => [yes, no].into_iter().for_each(link),
                Node::Call { next, .. } => link(next),
                Node::Table(_) => {}
            }
        }
        nodes
    }

    /// The calls that a packet meets whose fields begin with these values.
    fn met(nodes: &[Node], values: [u128; 3]) -> Vec<u32> {
        let mut phv = Phv::new(&Shape {
            slots: 3,
            metadata: vec![true],
            ..Shape::default()
        });
        let slots = (0..).map(Slot).zip(values);
        slots.for_each(|(slot, value)| phv.set(slot, value));
        let (mut met, mut next) = (Vec::new(), Some(0));
        while let Some(at) = next {
            next = match &nodes[at as usize] {
                Node::Branch { cond, yes, no } => match cond.eval(&phv, &[]) {
                    true => *yes,
                    false => *no,
                },
                Node::Call { action, next, .. } => {
                    met.push(at);
                    for primitive in &action.primitives {
                        if let Primitive::Assign(field, value) = primitive {
                            let value = value.eval(&phv, &[]);
                            phv.assign(*field, value);
                        }
                    }
                    *next
                }
                Node::Table(_) => None,
            };
        }
        met
    }

    proptest! {
        #[test]
        fn a_packet_meets_what_it_met_before(
            nodes in proptest::collection::vec(any_node(), 1..24).prop_map(linked),
            values in (0..2_u128, 0..4_u128, 0..4_u128),
        ) {
            let values = values.into();
            let before = met(&nodes, values);
            let mut nodes = nodes;
            thread(&mut nodes);
            prop_assert_eq!(met(&nodes, values), before);
        }
    }
}
