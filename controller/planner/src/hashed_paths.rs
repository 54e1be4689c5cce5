//! Paths as a hash might choose them: what ECMP may do to the flows of an input.
//!
//! The hash of a real switch includes what only hosts know, so the planner draws from many and
//! uses no particular one. The decision: a draw is a pure function of its number, so that plans and
//! forecasts that compare with ECMP give the same figures for the same input.

use std::collections::BTreeMap;

use topology::LinkPath;

use crate::input::{JobId, PlanInput};
use crate::input_digest::mix_bits;
use crate::segment_search::SegmentSearch;
use crate::traffic::IndexedTraffic;

/// The paths of all flows of each job, in the order of its flows, in one of many draws. A path is
/// empty for a flow without a path.
pub fn ecmp_paths(input: &PlanInput, draw: u32) -> BTreeMap<JobId, Vec<LinkPath>> {
    let traffic = IndexedTraffic::new(input);
    let paths = hashed_paths(&traffic, draw);
    let jobs = traffic.jobs.iter().zip(&traffic.spans);
    jobs.map(|(job, span)| (job.id.clone(), paths[span.clone()].to_vec())).collect()
}

/// Paths of all flows as a hash might choose them, in one of several draws.
pub(crate) fn hashed_paths(traffic: &IndexedTraffic<'_>, draw: u32) -> Vec<LinkPath> {
    let mut finder = SegmentSearch::new(traffic.fabric.switches().len());
    let flows = (0_u64..).zip(&traffic.flows);
    flows
        .map(|(number, flow)| {
            let pair = traffic.leaf_pair(flow);
            if !flow.has_path {
                return LinkPath::EMPTY;
            }
            if !pair.crosses_fabric() {
                return IndexedTraffic::full_path(flow, &[]);
            }
            // The least of drawn loads is a drawn path.
            let seed = mix_bits(number << 8 | u64::from(draw));
            let segment = finder.find_least_loaded(&traffic.tables, &pair.ends, |link| {
                mix_bits(seed ^ link.index() as u64) >> 16
            });
            IndexedTraffic::full_path(flow, &segment)
        })
        .collect()
}
