//! Jump threading: a branch whose outcome is known on the way to it is left out of that way.
//!
//! p4c notes in a field whether a table was hit and branches on the field in the next node, and it
//! turns a chain of `else if` into tests of one field for one value after another. Branches have no
//! effect but the next node, so what a packet meets otherwise stays the same.

use crate::ids::PhvSlot;
use crate::run::action::{ActionPrimitive, CompiledAction};
use crate::run::expression::{BoolExpr, NumberExpr};
use crate::run::pipeline::PipelineNode;
use crate::spec::{FieldRef, NextNode, bit_mask};

/// What is known of a field between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldFact {
    Is(PhvSlot, i128),
    IsNot(PhvSlot, i128),
}

/// Leads every node to the first that is not a branch decided before. From the last node to the
/// first, since p4c puts what follows behind: a long chain of tests is then passed in one step.
pub(super) fn thread_jumps(nodes: &mut [PipelineNode]) {
    for at in (0..nodes.len()).rev() {
        let ways = match &nodes[at] {
            PipelineNode::Branch { cond, yes, no } => [
                skip_decided(nodes, *yes, &branch_facts(cond, true)),
                skip_decided(nodes, *no, &branch_facts(cond, false)),
            ],
            PipelineNode::Call { action, next, .. } => {
                [skip_decided(nodes, *next, &assignment_facts(action)); 2]
            }
            PipelineNode::Table(_) => continue,
        };
        match &mut nodes[at] {
            PipelineNode::Branch { yes, no, .. } => [*yes, *no] = ways,
            PipelineNode::Call { next, .. } => *next = ways[0],
            PipelineNode::Table(_) => {}
        }
    }
}

/// The first node from `next` on that is not a branch which the facts decide. There is one, since
/// a program whose control flow has a cycle has been refused.
fn skip_decided(nodes: &[PipelineNode], mut next: NextNode, facts: &[FieldFact]) -> NextNode {
    while let Some(PipelineNode::Branch { cond, yes, no }) = next.map(|node| &nodes[node as usize])
        && let Some(truth) = facts.iter().find_map(|fact| fact.decide_condition(cond))
    {
        next = if truth { *yes } else { *no };
    }
    next
}

/// Field values that follow from the outcome of a condition.
fn branch_facts(cond: &BoolExpr, truth: bool) -> Vec<FieldFact> {
    match cond {
        BoolExpr::Not(of) => branch_facts(of, !truth),
        BoolExpr::FieldEquals(field, value) => vec![FieldFact::from_test(*field, *value, truth)],
        BoolExpr::NonZero(NumberExpr::Field(field)) => {
            vec![FieldFact::from_test(*field, 0, !truth)]
        }
        _ => Vec::new(),
    }
}

/// The fields that an action leaves with constants, as far as it does nothing else.
fn assignment_facts(action: &CompiledAction) -> Vec<FieldFact> {
    let mut facts: Vec<FieldFact> = Vec::new();
    for primitive in &action.primitives {
        let ActionPrimitive::Assign(field, value) = primitive else {
            return Vec::new();
        };
        facts.retain(|fact| fact.slot() != field.slot);
        if let NumberExpr::Const(value) = value
            && !field.signed
        {
            let bits = *value as u128 & bit_mask(field.bits);
            facts.push(FieldFact::Is(field.slot, bits as i128));
        }
    }
    facts
}

impl FieldFact {
    /// Whether the field has the value. A single bit that is not the one is the other.
    fn from_test(field: FieldRef, value: i128, has_it: bool) -> Self {
        match (has_it, field.bits, value) {
            (true, ..) => Self::Is(field.slot, value),
            (false, 1, 0 | 1) if !field.signed => Self::Is(field.slot, 1 - value),
            (false, ..) => Self::IsNot(field.slot, value),
        }
    }

    fn slot(self) -> PhvSlot {
        match self {
            Self::Is(slot, _) | Self::IsNot(slot, _) => slot,
        }
    }

    /// The truth of a condition, where this is enough to know it.
    fn decide_condition(self, cond: &BoolExpr) -> Option<bool> {
        match cond {
            BoolExpr::Not(of) => self.decide_condition(of).map(|truth| !truth),
            BoolExpr::FieldEquals(field, value) => self.decide_value(field.slot, *value),
            BoolExpr::NonZero(NumberExpr::Field(field)) => {
                self.decide_value(field.slot, 0).map(|is_zero| !is_zero)
            }
            _ => None,
        }
    }

    /// Whether a field has a value.
    fn decide_value(self, slot: PhvSlot, value: i128) -> Option<bool> {
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
    use crate::ids::HeaderIndex;
    use crate::run::phv::{Phv, PhvLayout};

    fn field(slot: u32, bits: u32) -> FieldRef {
        FieldRef { slot: PhvSlot(slot), bits, signed: false, header: HeaderIndex(0) }
    }

    fn call(writes: &[(FieldRef, NumberExpr)], next: NextNode) -> PipelineNode {
        let primitives = writes.iter().cloned();
        PipelineNode::Call {
            action: CompiledAction {
                primitives: primitives.map(|(to, of)| ActionPrimitive::Assign(to, of)).collect(),
            },
            arguments: Vec::new(),
            next,
        }
    }

    fn branch(cond: BoolExpr, yes: u32, no: u32) -> PipelineNode {
        PipelineNode::Branch { cond, yes: Some(yes), no: Some(no) }
    }

    fn ways(node: &PipelineNode) -> Vec<NextNode> {
        match node {
            PipelineNode::Branch { yes, no, .. } => vec![*yes, *no],
            PipelineNode::Call { next, .. } => vec![*next],
            PipelineNode::Table(_) => Vec::new(),
        }
    }

    fn is_set(field: FieldRef) -> BoolExpr {
        BoolExpr::NonZero(NumberExpr::Field(field))
    }

    #[test]
    fn a_branch_on_what_was_just_written_is_passed() {
        let (hit, other) = (field(3, 1), field(4, 8));
        let mut nodes = [
            call(&[(hit, NumberExpr::Const(1))], Some(3)),
            call(&[(hit, NumberExpr::Const(0))], Some(3)),
            call(&[(hit, NumberExpr::Const(1)), (hit, NumberExpr::Field(other))], Some(3)),
            branch(is_set(hit), 4, 5),
            call(&[], None),
            call(&[], None),
        ];
        thread_jumps(&mut nodes);
        let ways: Vec<NextNode> = nodes[..3].iter().flat_map(ways).collect();
        assert_eq!(ways, [Some(4), Some(5), Some(3)]);
    }

    #[test]
    fn a_chain_of_tests_is_skipped_as_far_as_one_outcome_decides_it() {
        let (bit, byte) = (field(3, 1), field(4, 8));
        let mut nodes = [
            branch(BoolExpr::FieldEquals(bit, 1), 5, 1),
            branch(BoolExpr::FieldEquals(bit, 1), 5, 2),
            branch(BoolExpr::FieldEquals(bit, 0), 6, 5),
            branch(BoolExpr::FieldEquals(byte, 7), 6, 4),
            branch(BoolExpr::FieldEquals(byte, 8), 6, 5),
            call(&[], None),
            call(&[], None),
        ];
        thread_jumps(&mut nodes);
        assert_eq!(ways(&nodes[0]), [Some(5), Some(6)]);
        assert_eq!(ways(&nodes[3]), [Some(6), Some(4)], "8 is not known from 7");
    }

    /// From the first node on, a step at a time this would take minutes.
    #[test]
    fn a_chain_of_a_hundred_thousand_tests_is_passed_in_one_step_each() {
        let (bit, last) = (field(3, 1), 100_000);
        let test = |at| branch(is_set(bit), last, at + 1);
        let mut nodes: Vec<PipelineNode> = (0..last).map(test).collect();
        nodes.push(call(&[], None));
        thread_jumps(&mut nodes);
        let (end, tests) = nodes.split_last().unwrap();
        assert!(ways(end) == [None] && tests.iter().all(|test| ways(test) == [Some(last); 2]));
    }

    #[test]
    fn other_primitives_of_an_action_discard_all_facts() {
        let hit = field(3, 1);
        let mut nodes = [
            call(&[(hit, NumberExpr::Const(1))], Some(1)),
            branch(is_set(hit), 2, 2),
            call(&[], None),
        ];
        if let PipelineNode::Call { action, .. } = &mut nodes[0] {
            action.primitives.push(ActionPrimitive::Exit);
        }
        thread_jumps(&mut nodes);
        assert_eq!(ways(&nodes[0]), [Some(1)]);
    }

    /// Two fields of a few values, one of them with a sign.
    fn any_field() -> impl Strategy<Value = FieldRef> {
        (0..3_u32).prop_map(|slot| FieldRef { signed: slot == 2, ..field(slot, 1 + slot.min(1)) })
    }

    fn any_cond() -> impl Strategy<Value = BoolExpr> {
        let is = (any_field(), -2..4_i128)
            .prop_map(|(field, value)| BoolExpr::FieldEquals(field, value));
        let test = prop_oneof![is, any_field().prop_map(is_set), Just(BoolExpr::Const(true))];
        (test, any::<bool>()).prop_map(|(test, negated)| match negated {
            true => BoolExpr::Not(Box::new(test)),
            false => test,
        })
    }

    /// A node that leads on by so many nodes.
    fn any_node() -> impl Strategy<Value = PipelineNode> {
        let value = prop_oneof![
            (-2..4_i128).prop_map(NumberExpr::Const),
            any_field().prop_map(NumberExpr::Field)
        ];
        let writes = proptest::collection::vec((any_field(), value), 0..3);
        let call = (writes, 1..5_u32).prop_map(|(writes, on)| call(&writes, Some(on)));
        let test = (any_cond(), 1..5_u32, 1..5_u32);
        let test = test.prop_map(|(cond, yes, no)| branch(cond, yes, no));
        prop_oneof![1 => call, 2 => test]
    }

    /// Makes relative edges absolute; an edge past the last node leads to the end.
    fn linked(mut nodes: Vec<PipelineNode>) -> Vec<PipelineNode> {
        let count = nodes.len() as u32;
        for (at, node) in (0..).zip(&mut nodes) {
            let link =
                |next: &mut NextNode| *next = next.map(|on| at + on).filter(|to| *to < count);
            match node {
                PipelineNode::Branch { yes, no, .. } => [yes, no].into_iter().for_each(link),
                PipelineNode::Call { next, .. } => link(next),
                PipelineNode::Table(_) => {}
            }
        }
        nodes
    }

    /// The calls that a packet meets whose fields begin with these values.
    fn met(nodes: &[PipelineNode], values: [u128; 3]) -> Vec<u32> {
        let mut phv =
            Phv::new(&PhvLayout { slots: 3, metadata: vec![true], ..PhvLayout::default() });
        let slots = (0..).map(PhvSlot).zip(values);
        slots.for_each(|(slot, value)| phv.set(slot, value));
        let (mut met, mut next) = (Vec::new(), Some(0));
        while let Some(at) = next {
            next = match &nodes[at as usize] {
                PipelineNode::Branch { cond, yes, no } => match cond.eval_condition(&phv, &[]) {
                    true => *yes,
                    false => *no,
                },
                PipelineNode::Call { action, next, .. } => {
                    met.push(at);
                    for primitive in &action.primitives {
                        if let ActionPrimitive::Assign(field, value) = primitive {
                            let value = value.eval_number(&phv, &[]);
                            phv.assign_field(*field, value);
                        }
                    }
                    *next
                }
                PipelineNode::Table(_) => None,
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
            thread_jumps(&mut nodes);
            prop_assert_eq!(met(&nodes, values), before);
        }
    }
}
