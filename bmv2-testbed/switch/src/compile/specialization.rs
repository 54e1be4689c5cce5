//! Specialisation: what follows a node is compiled once for each way that leads to it, and tests
//! nothing that is known on that way.
//!
//! Programs ask again and again whether a header is there, and p4c adds tests of its own: it notes
//! in a field whether a table was hit and branches on the field in the next node, and turns a chain
//! of `else if` into tests of one field for one value after another. A branch has no effect but the
//! next node, so a packet meets the tables and calls that it met before, except calls that write
//! what is there already.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::{HeaderIndex, PhvSlot};
use crate::run::action::{ActionPrimitive, CompiledAction};
use crate::run::expression::{BoolExpr, SMALL_DEPTH};
use crate::run::pipeline::{PipelineGraph, PipelineNode};
use crate::spec::{ActionNext, NextNode, NextNodes, TableSpec};

/// A control flow of more nodes is left as it is.
const NODE_LIMIT: usize = 2048;

/// A graph may grow by so much, and have so many edges after it: programs come from clients.
const GROWTH: usize = 24;
const EDGE_LIMIT: usize = 1 << 20;
/// So many nodes are passed over in all: tests that are known, and calls that change nothing.
const STEP_LIMIT: usize = 1 << 22;

/// Of what something is known: a field, or whether a header is valid (1 or 0), as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Subject(usize);

impl Subject {
    fn field(slot: PhvSlot) -> Self {
        Self(2 * slot.0 as usize)
    }

    fn header(header: HeaderIndex) -> Self {
        Self(2 * header.0 as usize + 1)
    }
}

/// What is known of the bits of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bits {
    Are(u128),
    AreNot(u128),
}

/// What is known before a node, in the order of the subjects. They are copied for every edge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Facts(Vec<(Subject, Bits)>);

/// The tables of a program, and the actions that they run.
#[derive(Clone, Copy)]
pub(super) struct TableActions<'a> {
    pub(super) tables: &'a [Arc<TableSpec>],
    pub(super) actions: &'a [CompiledAction],
}

/// Rewrites the graph, whose nodes lead to later ones of this order; the fields of `zeros` are 0 at
/// its start.
pub(super) fn specialize(
    graph: &mut PipelineGraph,
    order: &[usize],
    zeros: impl IntoIterator<Item = PhvSlot>,
    run: TableActions<'_>,
) {
    let edges: usize = graph.nodes.iter().map(edge_count).sum();
    if graph.nodes.len() > NODE_LIMIT || edges > EDGE_LIMIT / GROWTH {
        return;
    }
    let mut specializer = Specializer {
        nodes: &graph.nodes,
        later: LaterSubjects::new(&graph.nodes, order),
        run,
        budget: edges * GROWTH,
        steps: STEP_LIMIT,
        numbers: HashMap::new(),
        waiting: Vec::new(),
    };
    let mut start = Facts::default();
    zeros.into_iter().for_each(|slot| start.insert(Subject::field(slot), Bits::Are(0)));
    let start = specializer.lead_to(graph.start, start);
    let mut nodes = Vec::new();
    while let Some((node, facts)) = specializer.waiting.get(nodes.len()).cloned() {
        nodes.push(specializer.specialize_node(node, &facts));
    }
    *graph = PipelineGraph { nodes, start };
}

fn edge_count(node: &PipelineNode) -> usize {
    match node {
        PipelineNode::Table { flow, .. } => 2 * flow.by_action.len() + 1,
        PipelineNode::Branch { .. } => 2,
        PipelineNode::Call { .. } => 1,
    }
}

struct Specializer<'a> {
    nodes: &'a [PipelineNode],
    later: LaterSubjects,
    run: TableActions<'a>,
    /// Edges that may still be added. Without any, a node is made once, whatever is known before it.
    budget: usize,
    /// Nodes that may still be passed over.
    steps: usize,
    /// The new numbers of nodes, by what is known before them.
    numbers: HashMap<(u32, Facts), u32>,
    /// By new number: what the node is made from.
    waiting: Vec<(u32, Facts)>,
}

impl Specializer<'_> {
    /// The node that does what follows, from `next` on.
    fn lead_to(&mut self, mut next: NextNode, mut facts: Facts) -> NextNode {
        let node = loop {
            let node = next?;
            if self.steps == 0 {
                break node;
            }
            next = match &self.nodes[node as usize] {
                PipelineNode::Branch { cond, yes, no } => match facts.decide_condition(cond) {
                    Some(true) => *yes,
                    Some(false) => *no,
                    None => break node,
                },
                PipelineNode::Call { action, next, .. } if facts.hold_after(action) => *next,
                _ => break node,
            };
            self.steps -= 1;
        };
        self.later.retain_tested(node, &mut facts);
        if self.budget == 0 {
            facts.0.clear();
        }
        let (waiting, budget) = (&mut self.waiting, &mut self.budget);
        let number = self.numbers.entry((node, facts)).or_insert_with_key(|made| {
            *budget = budget.saturating_sub(edge_count(&self.nodes[node as usize]));
            waiting.push(made.clone());
            waiting.len() as u32 - 1
        });
        Some(*number)
    }

    fn specialize_node(&mut self, node: u32, facts: &Facts) -> PipelineNode {
        match &self.nodes[node as usize] {
            PipelineNode::Branch { cond, yes, no } => {
                let cond = facts.simplify_condition(cond);
                let [yes, no] = [(true, *yes), (false, *no)].map(|(truth, next)| {
                    let mut facts = facts.clone();
                    facts.learn_outcome(&cond, truth);
                    self.lead_to(next, facts)
                });
                PipelineNode::Branch { cond, yes, no }
            }
            PipelineNode::Call { action, arguments, next } => {
                let mut facts = facts.clone();
                facts.run_action(action);
                let (action, arguments) = (action.clone(), arguments.clone());
                PipelineNode::Call { action, arguments, next: self.lead_to(*next, facts) }
            }
            PipelineNode::Table { table, flow } => {
                let spec = &self.run.tables[table.0 as usize];
                let missed = facts;
                let mut hit = facts.clone();
                if let Some(meter) = spec.direct_meter {
                    hit.remove(Subject::field(meter.color.slot));
                }
                let none = self.lead_to(flow.none, missed.clone());
                let by_action = flow.by_action.iter().map(|next| {
                    let [hit, miss] =
                        [(&hit, next.hit), (missed, next.miss)].map(|(facts, next_node)| {
                            let mut facts = facts.clone();
                            facts.run_action(&self.run.actions[next.action.0 as usize]);
                            self.lead_to(next_node, facts)
                        });
                    ActionNext { action: next.action, hit, miss }
                });
                let flow = NextNodes { by_action: by_action.collect(), none };
                PipelineNode::Table { table: *table, flow }
            }
        }
    }
}

/// By node, the subjects that it or a later one tests or writes: what is known of others makes no
/// difference.
struct LaterSubjects(Vec<Vec<bool>>);

impl LaterSubjects {
    fn new(nodes: &[PipelineNode], order: &[usize]) -> Self {
        let own: Vec<Vec<Subject>> = nodes.iter().map(own_subjects).collect();
        let count = own.iter().flatten().max().map_or(0, |last| last.0 + 1);
        let mut by_node = vec![Vec::new(); nodes.len()];
        for at in order.iter().rev() {
            let mut row = vec![false; count];
            own[*at].iter().for_each(|subject| row[subject.0] = true);
            for next in nodes[*at].successors() {
                let later: &Vec<bool> = &by_node[next as usize];
                row.iter_mut().zip(later).for_each(|(row, later)| *row |= later);
            }
            by_node[*at] = row;
        }
        Self(by_node)
    }

    fn retain_tested(&self, node: u32, facts: &mut Facts) {
        let row = &self.0[node as usize];
        facts.0.retain(|(subject, _)| row.get(subject.0).is_some_and(|tested| *tested));
    }
}

fn own_subjects(node: &PipelineNode) -> Vec<Subject> {
    let mut subjects = Vec::new();
    match node {
        PipelineNode::Branch { cond, .. } => collect_tested(cond, &mut subjects),
        PipelineNode::Call { action, .. } => {
            subjects.extend(action.primitives.iter().filter_map(|primitive| match primitive {
                ActionPrimitive::SetBits(slot, _) => Some(Subject::field(*slot)),
                _ => None,
            }));
        }
        PipelineNode::Table { .. } => {}
    }
    subjects
}

fn collect_tested(cond: &BoolExpr, subjects: &mut Vec<Subject>) {
    match cond {
        BoolExpr::HasBits(slot, _) | BoolExpr::HasOtherBits(slot, _) => {
            subjects.push(Subject::field(*slot));
        }
        BoolExpr::Valid(header) => subjects.push(Subject::header(*header)),
        BoolExpr::Not(of) => collect_tested(of, subjects),
        BoolExpr::Shared(of) => collect_tested(of, subjects),
        BoolExpr::And(of) | BoolExpr::Or(of) => {
            collect_tested(&of.0, subjects);
            collect_tested(&of.1, subjects);
        }
        _ => {}
    }
}

impl Facts {
    fn find(&self, subject: Subject) -> Result<usize, usize> {
        self.0.binary_search_by_key(&subject, |fact| fact.0)
    }

    fn get(&self, subject: Subject) -> Option<Bits> {
        self.find(subject).ok().map(|at| self.0[at].1)
    }

    fn insert(&mut self, subject: Subject, bits: Bits) {
        match self.find(subject) {
            Ok(at) => self.0[at].1 = bits,
            Err(at) => self.0.insert(at, (subject, bits)),
        }
    }

    fn remove(&mut self, subject: Subject) {
        if let Ok(at) = self.find(subject) {
            self.0.remove(at);
        }
    }

    /// The truth of a condition, where it follows.
    fn decide_condition(&self, cond: &BoolExpr) -> Option<bool> {
        match cond {
            BoolExpr::Const(truth) => Some(*truth),
            BoolExpr::Valid(header) => self.decide_bits(Subject::header(*header), 1),
            BoolExpr::HasBits(slot, bits) => self.decide_bits(Subject::field(*slot), *bits),
            BoolExpr::HasOtherBits(slot, bits) => {
                self.decide_bits(Subject::field(*slot), *bits).map(|has| !has)
            }
            BoolExpr::Shared(of) => self.decide_condition(of),
            BoolExpr::Not(of) => self.decide_condition(of).map(|truth| !truth),
            BoolExpr::And(of) => self.decide_either(of, false),
            BoolExpr::Or(of) => self.decide_either(of, true),
            _ => None,
        }
    }

    /// The truth of two conditions of which one decides both if it has this truth.
    fn decide_either(&self, of: &(BoolExpr, BoolExpr), decisive: bool) -> Option<bool> {
        match (self.decide_condition(&of.0), self.decide_condition(&of.1)) {
            (Some(one), Some(other)) => Some(if decisive { one || other } else { one && other }),
            (Some(truth), None) | (None, Some(truth)) if truth == decisive => Some(decisive),
            _ => None,
        }
    }

    /// Whether the subject has these bits.
    fn decide_bits(&self, subject: Subject, bits: u128) -> Option<bool> {
        match self.get(subject)? {
            Bits::Are(are) => Some(are == bits),
            Bits::AreNot(are_not) => (are_not == bits).then_some(false),
        }
    }

    /// A condition that is not known as a whole, without those parts that are.
    fn simplify_condition(&self, cond: &BoolExpr) -> BoolExpr {
        match cond {
            BoolExpr::And(of) | BoolExpr::Or(of) => {
                match [&of.0, &of.1].map(|part| self.decide_condition(part)) {
                    [Some(_), None] => self.simplify_condition(&of.1),
                    [None, Some(_)] => self.simplify_condition(&of.0),
                    _ => cond.clone(),
                }
            }
            BoolExpr::Shared(of) => match self.simplify_condition(of) {
                part if part.is_small(SMALL_DEPTH) => part,
                _ => cond.clone(),
            },
            _ => cond.clone(),
        }
    }

    /// Adds what follows from the outcome of a condition.
    fn learn_outcome(&mut self, cond: &BoolExpr, truth: bool) {
        let mut learn = |subject, bits, is: bool| {
            self.insert(subject, if is { Bits::Are(bits) } else { Bits::AreNot(bits) });
        };
        match cond {
            BoolExpr::Valid(header) => {
                learn(Subject::header(*header), u128::from(truth), true);
            }
            BoolExpr::HasBits(slot, bits) => learn(Subject::field(*slot), *bits, truth),
            BoolExpr::HasOtherBits(slot, bits) => learn(Subject::field(*slot), *bits, !truth),
            BoolExpr::Not(of) => self.learn_outcome(of, !truth),
            BoolExpr::Shared(of) => self.learn_outcome(of, truth),
            BoolExpr::And(of) if truth => {
                self.learn_outcome(&of.0, true);
                self.learn_outcome(&of.1, true);
            }
            BoolExpr::Or(of) if !truth => {
                self.learn_outcome(&of.0, false);
                self.learn_outcome(&of.1, false);
            }
            _ => {}
        }
    }

    /// Whether an action only writes what is known to be there.
    fn hold_after(&self, action: &CompiledAction) -> bool {
        action.primitives.iter().all(|primitive| match primitive {
            ActionPrimitive::SetBits(slot, bits) => {
                self.get(Subject::field(*slot)) == Some(Bits::Are(*bits))
            }
            _ => false,
        })
    }

    /// What is known after an action, whatever its arguments.
    fn run_action(&mut self, action: &CompiledAction) {
        for primitive in &*action.primitives {
            let Some(written) = primitive.written_slots() else {
                return self.0.clear();
            };
            let known = match primitive {
                ActionPrimitive::SetBits(_, bits) => Some(Bits::Are(*bits)),
                ActionPrimitive::CopyBits { from, .. } => self.get(Subject::field(*from)),
                _ => None,
            };
            for subject in written.into_iter().flatten().map(Subject::field) {
                match known {
                    Some(bits) => self.insert(subject, bits),
                    None => self.remove(subject),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compile::loader::sort_nodes;
    use crate::ids::{ActionIndex, LearnListIndex, TableIndex};
    use crate::run::expression::{HeaderRef, NumberExpr};
    use crate::run::phv::{Phv, PhvLayout};
    use crate::spec::{DefaultMutability, DirectMeter, FieldRef, MeterUnit};

    const HEADERS: usize = 2;
    const TABLES: usize = 3;
    const ACTIONS: usize = 4;

    fn field(slot: u32, bits: u32) -> FieldRef {
        FieldRef { slot: PhvSlot(slot), bits, signed: false, header: HeaderIndex(0) }
    }

    fn action(primitives: impl IntoIterator<Item = ActionPrimitive>) -> CompiledAction {
        CompiledAction { primitives: primitives.into_iter().collect() }
    }

    fn call(primitives: Vec<ActionPrimitive>, next: NextNode) -> PipelineNode {
        PipelineNode::Call { action: action(primitives), arguments: [].into(), next }
    }

    /// A call that can be seen, by its number.
    fn mark(number: u32) -> ActionPrimitive {
        ActionPrimitive::Digest(LearnListIndex(number))
    }

    fn write(to: FieldRef, of: NumberExpr) -> ActionPrimitive {
        ActionPrimitive::assignment(to, of)
    }

    fn branch(cond: BoolExpr, yes: u32, no: u32) -> PipelineNode {
        PipelineNode::Branch { cond: cond.shareable(), yes: Some(yes), no: Some(no) }
    }

    fn is_set(field: FieldRef) -> BoolExpr {
        BoolExpr::is_nonzero(NumberExpr::Field(field))
    }

    fn specialized(nodes: Vec<PipelineNode>, zeros: &[PhvSlot]) -> PipelineGraph {
        let mut graph = PipelineGraph { nodes, start: Some(0) };
        let order = sort_nodes(&graph.nodes).expect("edges lead on");
        let run = TableActions { tables: &[], actions: &[] };
        specialize(&mut graph, &order, zeros.iter().copied(), run);
        graph
    }

    fn branches(graph: &PipelineGraph) -> usize {
        graph.nodes.iter().filter(|node| matches!(node, PipelineNode::Branch { .. })).count()
    }

    #[test]
    fn a_branch_on_what_was_just_written_is_passed() {
        let hit = field(3, 1);
        let end = |number| call(vec![mark(number)], None);
        for (bits, expected) in [(1, 1), (0, 2)] {
            let wrote = call(vec![write(hit, NumberExpr::Const(bits)), mark(0)], Some(1));
            let graph = specialized(vec![wrote, branch(is_set(hit), 2, 3), end(1), end(2)], &[]);
            assert_eq!(branches(&graph), 0);
            assert_eq!(seen(&graph, &Way::default()).0, [0, expected]);
        }
    }

    #[test]
    fn a_header_is_asked_for_once() {
        let valid = || BoolExpr::Valid(HeaderIndex(1));
        let nodes = vec![
            branch(valid(), 1, 2),
            call(vec![mark(1)], Some(3)),
            call(vec![mark(2)], Some(3)),
            branch(BoolExpr::And(Box::new((valid(), is_set(field(0, 1))))), 4, 5),
            call(vec![mark(4)], None),
            call(vec![mark(5)], None),
        ];
        let graph = specialized(nodes, &[]);
        let conds = graph.nodes.iter().filter_map(|node| match node {
            PipelineNode::Branch { cond, .. } => Some(format!("{cond:?}")),
            _ => None,
        });
        let expected = [valid(), is_set(field(0, 1))].map(|cond| format!("{cond:?}"));
        assert_eq!(conds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_chain_of_tests_is_passed_as_far_as_one_outcome_decides_it() {
        let (bit, last) = (field(3, 1), NODE_LIMIT as u32 - 1);
        let test = |at| branch(is_set(bit), last, at + 1);
        let mut nodes: Vec<PipelineNode> = (0..last).map(test).collect();
        nodes.push(call(vec![mark(1)], None));
        let graph = specialized(nodes, &[]);
        assert_eq!((graph.nodes.len(), branches(&graph)), (2, 1));
        // Another value says nothing of the next.
        let byte = field(4, 8);
        let nodes = vec![
            branch(BoolExpr::field_equals(byte, 7), 2, 1),
            branch(BoolExpr::field_equals(byte, 8), 2, 3),
            call(vec![mark(1)], None),
            call(vec![mark(2)], None),
        ];
        assert_eq!(branches(&specialized(nodes, &[])), 2);
    }

    #[test]
    fn a_program_of_many_ways_grows_to_a_bound() {
        let count = 300;
        let test = |at: u32| branch(is_set(field(at % 64, 1)), at + 1, at + 2);
        let mut nodes: Vec<_> = (0..count).map(test).collect();
        nodes.extend([call(vec![mark(1)], None), call(vec![mark(2)], None)]);
        let edges: usize = nodes.iter().map(edge_count).sum();
        let graph = specialized(nodes, &[]);
        assert!(graph.nodes.len() <= edges * GROWTH + count as usize + 2);
    }

    /// What decides where a packet goes.
    #[derive(Clone, Debug, Default)]
    struct Way {
        values: [u128; 4],
        valid: [bool; HEADERS],
        /// By table: an action and whether the table was hit, or neither.
        outcomes: [Option<(usize, bool)>; TABLES],
        actions: Vec<CompiledAction>,
        color: [bool; TABLES],
    }

    const COLOR: u128 = 2;

    /// The marks that a packet meets, and the fields in the end.
    fn seen(graph: &PipelineGraph, way: &Way) -> (Vec<u32>, Vec<u128>) {
        let metadata = vec![false; HEADERS];
        let mut phv = Phv::new(&PhvLayout { slots: 4, metadata, ..PhvLayout::default() });
        let slots = (0..).map(PhvSlot).zip(way.values);
        slots.for_each(|(slot, value)| phv.set(slot, value));
        let headers = (0..).map(HeaderIndex).zip(way.valid);
        headers.for_each(|(header, valid)| phv.set_valid(header, valid));
        let (mut marks, mut next) = (Vec::new(), graph.start);
        let mut run = |action: &CompiledAction, phv: &mut Phv| {
            for primitive in &*action.primitives {
                match primitive {
                    ActionPrimitive::SetBits(slot, bits) => phv.set(*slot, *bits),
                    ActionPrimitive::CopyBits { from, to } => phv.set(*to, phv.get(*from)),
                    ActionPrimitive::Assign(field, value) => {
                        phv.assign_field(*field, value.eval_number(phv, &[]));
                    }
                    ActionPrimitive::RemoveHeader(HeaderRef::Fixed(header)) => {
                        phv.set_valid(*header, false);
                    }
                    ActionPrimitive::Digest(mark) => marks.push(mark.0),
                    other => panic!("no test makes {other:?}"),
                }
            }
        };
        while let Some(at) = next {
            next = match &graph.nodes[at as usize] {
                PipelineNode::Branch { cond, yes, no } => match cond.eval_condition(&phv, &[]) {
                    true => *yes,
                    false => *no,
                },
                PipelineNode::Call { action, next, .. } => {
                    run(action, &mut phv);
                    *next
                }
                PipelineNode::Table { table, flow } => match way.outcomes[table.0 as usize] {
                    None => flow.none,
                    Some((action, hit)) => {
                        if hit && way.color[table.0 as usize] {
                            phv.set(PhvSlot(3), COLOR);
                        }
                        run(&way.actions[action], &mut phv);
                        let next = flow.after(ActionIndex(action as u32));
                        if hit { next.hit } else { next.miss }
                    }
                },
            };
        }
        (marks, (0..4).map(|slot| phv.get(PhvSlot(slot))).collect())
    }

    /// Fields of a few values, one of them with a sign.
    fn any_field() -> impl Strategy<Value = FieldRef> {
        (0..4_u32).prop_map(|slot| FieldRef { signed: slot == 2, ..field(slot, 1 + slot.min(1)) })
    }

    fn any_cond() -> impl Strategy<Value = BoolExpr> {
        let is = (any_field(), -2..4_i128)
            .prop_map(|(field, value)| BoolExpr::field_equals(field, value));
        let valid = (0..HEADERS as u32).prop_map(|header| BoolExpr::Valid(HeaderIndex(header)));
        let leaf =
            prop_oneof![is, any_field().prop_map(is_set), valid, Just(BoolExpr::Const(true))];
        let tree = leaf.prop_recursive(3, 8, 2, |part| {
            let pair = || (part.clone(), part.clone()).prop_map(Box::new);
            prop_oneof![
                part.clone().prop_map(BoolExpr::negated),
                pair().prop_map(BoolExpr::And),
                pair().prop_map(BoolExpr::Or),
                pair().prop_map(BoolExpr::SameTruth),
            ]
        });
        (tree, any::<bool>()).prop_map(|(cond, whole)| if whole { cond } else { cond.shareable() })
    }

    fn any_primitive() -> impl Strategy<Value = ActionPrimitive> {
        let value = prop_oneof![
            (-2..4_i128).prop_map(NumberExpr::Const),
            any_field().prop_map(NumberExpr::Field)
        ];
        prop_oneof![
            6 => (any_field(), value).prop_map(|(to, of)| write(to, of)),
            2 => (0..100_u32).prop_map(mark),
            1 => (0..HEADERS as u32).prop_map(|header| {
                ActionPrimitive::RemoveHeader(HeaderRef::Fixed(HeaderIndex(header)))
            }),
        ]
    }

    fn any_primitives() -> impl Strategy<Value = Vec<ActionPrimitive>> {
        proptest::collection::vec(any_primitive(), 0..4)
    }

    /// A node that leads on by so many nodes.
    fn any_node() -> impl Strategy<Value = PipelineNode> {
        let call = (any_primitives(), 1..5_u32).prop_map(|(writes, on)| call(writes, Some(on)));
        let test = (any_cond(), 1..5_u32, 1..5_u32);
        let test = test.prop_map(|(cond, yes, no)| PipelineNode::Branch {
            cond,
            yes: Some(yes),
            no: Some(no),
        });
        let next = |action| {
            (1..5_u32, 1..5_u32).prop_map(move |(hit, miss)| ActionNext {
                action: ActionIndex(action),
                hit: Some(hit),
                miss: Some(miss),
            })
        };
        let by_action: Vec<_> = (0..ACTIONS as u32).map(next).collect();
        let table = (0..TABLES as u32, by_action, 1..5_u32).prop_map(|(table, by_action, none)| {
            let flow = NextNodes { by_action: by_action.into(), none: Some(none) };
            PipelineNode::Table { table: TableIndex(table), flow }
        });
        prop_oneof![2 => call, 4 => test, 1 => table]
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
                PipelineNode::Table { flow, .. } => {
                    let by_action = flow.by_action.iter_mut();
                    by_action.flat_map(|next| [&mut next.hit, &mut next.miss]).for_each(link);
                    link(&mut flow.none);
                }
            }
        }
        nodes
    }

    fn table(is_metered: bool) -> Arc<TableSpec> {
        let color = field(3, 2);
        Arc::new(TableSpec {
            name: String::new(),
            keys: Vec::new(),
            size: 0,
            actions: (0..ACTIONS as u32).map(ActionIndex).collect(),
            profile: None,
            direct_counter: false,
            direct_meter: is_metered.then_some(DirectMeter { unit: MeterUnit::Packets, color }),
            idle_timeout: false,
            default: None,
            default_mutability: DefaultMutability::Free,
            constant_entries: None,
        })
    }

    fn any_way() -> impl Strategy<Value = Way> {
        let values = (0..2_u128, 0..4_u128, 0..4_u128, 0..4_u128).prop_map(Into::into);
        let outcome = proptest::option::of((0..ACTIONS, any::<bool>()));
        let outcomes = proptest::array::uniform3(outcome);
        let actions = proptest::collection::vec(any_primitives().prop_map(action), ACTIONS);
        (values, any::<[bool; HEADERS]>(), outcomes, actions, any::<[bool; TABLES]>()).prop_map(
            |(values, valid, outcomes, actions, color)| Way {
                values,
                valid,
                outcomes,
                actions,
                color,
            },
        )
    }

    proptest! {
        #[test]
        fn a_packet_meets_what_it_met_before(
            nodes in proptest::collection::vec(any_node(), 1..24).prop_map(linked),
            way in any_way(),
        ) {
            let mut graph = PipelineGraph { nodes, start: Some(0) };
            let before = seen(&graph, &way);
            let order = sort_nodes(&graph.nodes).unwrap();
            let tables = way.color.map(table);
            let zeros = (0..).map(PhvSlot).zip(way.values).filter(|(_, value)| *value == 0);
            let run = TableActions { tables: &tables, actions: &way.actions };
            specialize(&mut graph, &order, zeros.map(|(slot, _)| slot), run);
            prop_assert_eq!(seen(&graph, &way), before);
        }
    }
}
