//! What all segments between two leaves have in common, without listing them: how long they are,
//! which links they use, and the width of the widest.
//!
//! All segments of a pair are equally long and pass through layers: some links up, then some down.
//! The best value of the rest of a path depends only on the switch, so one pass over the links of
//! the pair finds the best of its many segments. Values are whole numbers, so that the best value
//! is exact.

use topology::{DownwardHops, LinkId, SwitchHop, SwitchId};

use crate::path_tables::{LeafEnds, PathTables};
use crate::segment_search::{LAYERS, NEVER};

/// Buffers for one pass at a time: the value at each switch above the second leaf, valid while its
/// stamp is that of the pass.
#[derive(Clone, Debug)]
pub(crate) struct SegmentSurvey {
    pass: u32,
    values: Vec<SwitchValue>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SwitchValue {
    pass: u32,
    /// Its position among the downward hops.
    place: u32,
    distance: u8,
    value: u64,
}

impl SegmentSurvey {
    /// For fabrics of so many switches.
    pub(crate) fn new(switches: usize) -> Self {
        Self { pass: 0, values: vec![SwitchValue::default(); switches] }
    }

    /// Number of links between two leaves; none if there is no path.
    pub(crate) fn leaf_distance(
        &mut self,
        tables: &PathTables,
        from: SwitchId,
        to: SwitchId,
    ) -> Option<u8> {
        if from == to {
            return Some(0);
        }
        self.compute_descent(tables.descents_to(to), |_, _| 0);
        (1..=LAYERS as u8).find(|distance| {
            let ends = LeafEnds { from, to, distance: *distance };
            self.value_at_start(tables, &ends, &|_, onward| onward) != NEVER
        })
    }

    /// The largest value that some segment has at all its links.
    pub(crate) fn widest_capacity(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        width: impl Fn(LinkId) -> f64,
    ) -> f64 {
        // The bits of floats above zero have the order of the floats: the largest complement of the
        // bits belongs to the narrowest link.
        let best = self.best_value(tables, ends, &|link, onward: u64| {
            onward.max(NEVER - 1 - width(link).to_bits())
        });
        f64::from_bits(NEVER - 1 - best)
    }

    /// The links of all segments by layer, each once.
    pub(crate) fn link_layers(&mut self, tables: &PathTables, ends: &LeafEnds) -> Vec<Vec<LinkId>> {
        self.best_value(tables, ends, &reachable);
        let mut layers = Vec::with_capacity(usize::from(ends.distance));
        let mut switches = vec![ends.from];
        for left in (1..=ends.distance).rev() {
            let mut hops: Vec<SwitchHop> = Vec::new();
            for switch in &switches {
                hops.extend(self.hops_at(tables, ends, *switch).iter().filter(|hop| {
                    hop.to == ends.to
                        || self.value_at(tables, hop.to, left - 1, &reachable) != NEVER
                }));
            }
            switches = hops.iter().map(|hop| hop.to).collect();
            switches.sort_unstable();
            switches.dedup();
            layers.push(hops.into_iter().map(|hop| hop.link).collect());
        }
        layers
    }

    /// The links that a path may take at a switch: down where it is above the second leaf.
    fn hops_at<'w>(
        &self,
        tables: &'w PathTables,
        ends: &LeafEnds,
        switch: SwitchId,
    ) -> &'w [SwitchHop] {
        let at = &self.values[switch.index()];
        match at.pass == self.pass {
            true => tables.descents_to(ends.to).hops_at(at.place as usize),
            false => tables.hops_up(switch),
        }
    }

    /// The value of the best segment; `join` is the value of a link and the rest after it.
    fn best_value(
        &mut self,
        tables: &PathTables,
        ends: &LeafEnds,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        self.compute_descent(tables.descents_to(ends.to), join);
        self.value_at_start(tables, ends, join)
    }

    /// Values at the switches above the second leaf.
    fn compute_descent(&mut self, down: &DownwardHops, join: impl Fn(LinkId, u64) -> u64) {
        self.pass += 1;
        for (place, (switch, distance, hops)) in (0_u32..).zip(down.iter()) {
            let values = hops.iter().map(|hop| {
                let onward = if hop.to == down.destination() {
                    0
                } else {
                    self.values[hop.to.index()].value
                };
                join(hop.link, onward)
            });
            let value = values.min().unwrap_or(NEVER);
            self.values[switch.index()] = SwitchValue { pass: self.pass, place, distance, value };
        }
    }

    /// The value at the first leaf.
    fn value_at_start(
        &self,
        tables: &PathTables,
        ends: &LeafEnds,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        self.value_at(tables, ends.from, ends.distance, join)
    }

    /// The value at a switch so many links from the second leaf.
    fn value_at(
        &self,
        tables: &PathTables,
        switch: SwitchId,
        distance: u8,
        join: &impl Fn(LinkId, u64) -> u64,
    ) -> u64 {
        let at = &self.values[switch.index()];
        if at.pass == self.pass {
            return if at.distance == distance { at.value } else { NEVER };
        }
        if distance < 2 {
            return NEVER;
        }
        tables
            .hops_up(switch)
            .iter()
            .map(|hop| match self.value_at(tables, hop.to, distance - 1, join) {
                NEVER => NEVER,
                onward => join(hop.link, onward),
            })
            .min()
            .unwrap_or(NEVER)
    }
}

/// Every link has the same value: only whether there is a path counts.
fn reachable(_: LinkId, _: u64) -> u64 {
    0
}
