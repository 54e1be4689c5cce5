//! Jump threading: a branch whose outcome is known on the way to it is left out of that way.
//!
//! p4c notes in a field whether a table was hit and branches on the field in the next node, and it
//! turns a chain of `else if` into tests of one field for one value after another. Branches have no
//! effect but the next node, so what a packet meets otherwise stays the same.

use crate::ids::PhvSlot;
use crate::run::action::{ActionPrimitive, CompiledAction};
use crate::run::expression::BoolExpr;
use crate::run::pipeline::PipelineNode;
use crate::spec::NextNode;

/// What is known of the bits of a field between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldFact {
    Are(PhvSlot, u128),
    AreNot(PhvSlot, u128),
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
    match (cond, truth) {
        (BoolExpr::HasBits(slot, bits), true) | (BoolExpr::HasOtherBits(slot, bits), false) => {
            vec![FieldFact::Are(*slot, *bits)]
        }
        (BoolExpr::HasBits(slot, bits), false) | (BoolExpr::HasOtherBits(slot, bits), true) => {
            vec![FieldFact::AreNot(*slot, *bits)]
        }
        _ => Vec::new(),
    }
}

/// The fields that an action leaves with constants, as far as it does nothing else.
fn assignment_facts(action: &CompiledAction) -> Vec<FieldFact> {
    let mut facts: Vec<FieldFact> = Vec::new();
    for primitive in &action.primitives {
        let (written, constant) = match primitive {
            ActionPrimitive::SetBits(slot, bits) => (*slot, Some(*bits)),
            ActionPrimitive::CopyBits { to, .. } => (*to, None),
            ActionPrimitive::Assign(field, _) => (field.slot, None),
            _ => return Vec::new(),
        };
        facts.retain(|fact| fact.slot() != written);
        facts.extend(constant.map(|bits| FieldFact::Are(written, bits)));
    }
    facts
}

impl FieldFact {
    fn slot(self) -> PhvSlot {
        match self {
            Self::Are(slot, _) | Self::AreNot(slot, _) => slot,
        }
    }

    /// The truth of a condition, where this is enough to know it.
    fn decide_condition(self, cond: &BoolExpr) -> Option<bool> {
        match cond {
            BoolExpr::HasBits(slot, bits) => self.decide_bits(*slot, *bits),
            BoolExpr::HasOtherBits(slot, bits) => self.decide_bits(*slot, *bits).map(|has| !has),
            _ => None,
        }
    }

    /// Whether a field has these bits.
    fn decide_bits(self, slot: PhvSlot, bits: u128) -> Option<bool> {
        match self {
            Self::Are(known, are) if known == slot => Some(are == bits),
            Self::AreNot(known, are_not) if known == slot && are_not == bits => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::HeaderIndex;
    use crate::run::expression::NumberExpr;
    use crate::run::phv::{Phv, PhvLayout};
    use crate::spec::FieldRef;

    fn field(slot: u32, bits: u32) -> FieldRef {
        FieldRef { slot: PhvSlot(slot), bits, signed: false, header: HeaderIndex(0) }
    }

    fn call(writes: &[(FieldRef, NumberExpr)], next: NextNode) -> PipelineNode {
        let primitives = writes.iter().cloned();
        PipelineNode::Call {
            action: CompiledAction {
                primitives: primitives
                    .map(|(to, of)| ActionPrimitive::assignment(to, of))
                    .collect(),
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
        BoolExpr::is_nonzero(NumberExpr::Field(field))
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
            branch(BoolExpr::field_equals(bit, 1), 5, 1),
            branch(BoolExpr::field_equals(bit, 1), 5, 2),
            branch(BoolExpr::field_equals(bit, 0), 6, 5),
            branch(BoolExpr::field_equals(byte, 7), 6, 4),
            branch(BoolExpr::field_equals(byte, 8), 6, 5),
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
            .prop_map(|(field, value)| BoolExpr::field_equals(field, value));
        let test = prop_oneof![is, any_field().prop_map(is_set), Just(BoolExpr::Const(true))];
        (test, any::<bool>()).prop_map(|(test, negated)| match negated {
            true => test.negated(),
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
                        match primitive {
                            ActionPrimitive::SetBits(slot, bits) => phv.set(*slot, *bits),
                            ActionPrimitive::CopyBits { from, to } => phv.set(*to, phv.get(*from)),
                            ActionPrimitive::Assign(field, value) => {
                                let value = value.eval_number(&phv, &[]);
                                phv.assign_field(*field, value);
                            }
                            _ => {}
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
