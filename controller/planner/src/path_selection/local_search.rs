//! Local search over paths: flows move while the contention weighted by intensity falls.
//!
//! Where jobs a and b share a link, the less intense of them waits for as long as both want it,
//! at most min(load_a, load_b) of the time; the sum of that over links and pairs, each weighted by
//! the lesser intensity, is the contention. A job also waits for itself where its own flows load a
//! link more than its tightest link must be loaded anyway. A move of a flow, or of all flows of a
//! job between two leaves together, is made if contention falls by enough; every move lowers the
//! same sum, so the search ends.

use std::sync::Arc;

use topology::LinkId;

use super::path_assignment::PathAssignment;
use crate::intensity::NetworkDemand;
use crate::link_occupancy::LinkShare;
use crate::segment_search::{PathSegment, SegmentSearch};

/// Least gain of a flow that may move freely, as a share of link time; it keeps the search from
/// following rounding errors. It doubles with every round, up to the gain that running flows need,
/// so that the number of rounds stays small.
const LEAST_GAIN: f64 = 1.0 / 1024.0;

/// A gain must also be this part of what the flows pay: a fabric that is full everywhere always has
/// a slightly better place, and the search would go on for little.
const LEAST_FRACTION: ContentionPrice = 8;

/// Unit of a weight: the intensity of another job relative to that of the paying one, at most one.
const WEIGHT_ONE: f64 = 65536.0;

/// Contention in units of the intensity of the job that would move: weight times share.
type ContentionPrice = u64;

/// Moves flows until no move gains enough. `order` is the slots in the order of choice; flows that
/// were there before move only for `move_gain_min` of link time each.
pub(super) fn improve_paths(assignment: &mut PathAssignment, order: &[usize], move_gain_min: f64) {
    let mut search = PathSearch {
        least_gain: price_of_share(LEAST_GAIN),
        running_gain: price_of_share(move_gain_min),
        contention: ContentionModel::new(assignment),
        search: SegmentSearch::new(assignment.tables.switch_count()),
        assignment,
    };
    while order.iter().filter(|job_slot| search.improve_job(**job_slot)).count() > 0 {
        let doubled = search.least_gain.saturating_mul(2);
        search.least_gain = doubled.min(search.running_gain).max(search.least_gain);
    }
}

/// Price of a share of link time in which no job but the paying one is more intense.
fn price_of_share(share: f64) -> ContentionPrice {
    (share * WEIGHT_ONE * LinkShare::ONE).ceil() as ContentionPrice
}

/// Weights of the contention between the jobs.
struct ContentionModel {
    /// `I_j` in FLOP/s, by slot.
    intensities: Vec<f64>,
    /// The load that the tightest link of a job bears at least, by slot.
    unavoidable: Vec<LinkShare>,
}

impl ContentionModel {
    fn new(assignment: &PathAssignment) -> Self {
        let demands = assignment
            .job_slots
            .iter()
            .map(|assigned| assigned.as_ref().map(|assigned| &assigned.routes.demand));
        Self {
            intensities: demands.clone().map(|d| d.map_or(0.0, |d| d.intensity)).collect(),
            unavoidable: demands.map(|d| d.map_or(LinkShare(0), tightest_share)).collect(),
        }
    }

    /// Contention that `share` more of the job in a slot adds on a link with these `jobs`.
    fn added_contention(
        &self,
        job_slot: usize,
        jobs: &[(u32, u64)],
        share: LinkShare,
    ) -> ContentionPrice {
        let own = jobs.iter().find(|(job, _)| *job as usize == job_slot);
        let present = own.map_or(0, |own| own.1);
        let after = present + share.0;
        let mut price = 0;
        for (other, load) in jobs.iter().filter(|(job, _)| *job as usize != job_slot) {
            let weight = self.relative_weight(job_slot, *other as usize);
            price += weight * (after.min(*load) - present.min(*load));
        }
        let unavoidable = self.unavoidable[job_slot].0;
        let waits = after.saturating_sub(unavoidable) - present.saturating_sub(unavoidable);
        price + WEIGHT_ONE as ContentionPrice * waits
    }

    /// The lesser of two intensities relative to the first.
    fn relative_weight(&self, own: usize, other: usize) -> ContentionPrice {
        let (own, other) = (self.intensities[own], self.intensities[other]);
        if other >= own {
            return WEIGHT_ONE as ContentionPrice;
        }
        (WEIGHT_ONE * (other / own)) as ContentionPrice
    }
}

/// Share of its time that the tightest link of a job is busy at best.
fn tightest_share(demand: &NetworkDemand) -> LinkShare {
    LinkShare::from_fraction(demand.bottleneck_seconds / demand.iteration_seconds)
}

struct PathSearch<'s> {
    assignment: &'s mut PathAssignment,
    contention: ContentionModel,
    search: SegmentSearch,
    least_gain: ContentionPrice,
    running_gain: ContentionPrice,
}

impl PathSearch<'_> {
    /// Moves the flows of a job that gain enough; returns whether any moved.
    fn improve_job(&mut self, job_slot: usize) -> bool {
        let routes = Arc::clone(&self.assignment.job_at(job_slot).routes);
        let mut moved = false;
        for (group, flows) in routes.groups.iter().enumerate() {
            if self.assignment.examine_if_changed(job_slot, group) {
                moved |= flows.len() > 1 && self.relocate_flows(job_slot, flows);
                for flow in flows {
                    moved |= self.relocate_flows(job_slot, &[*flow]);
                }
            }
        }
        moved
    }

    /// Moves flows between the same leaves to the cheapest segment together, or leaves them where
    /// they are. Returns whether there was a better segment.
    fn relocate_flows(&mut self, job_slot: usize, flows: &[usize]) -> bool {
        let mut before = 0;
        let mut previous = Vec::with_capacity(flows.len());
        // All flows come off first: a flow must not pay for the others that move with it.
        for flow in flows {
            let path = self.assignment.unassign_path((job_slot, *flow));
            before += self.path_price(job_slot, *flow, path.without_host_links());
            previous.push(path);
        }
        let best = self.find_better_segment(job_slot, flows, before);
        for (flow, had) in flows.iter().zip(&previous) {
            let segment = best.as_ref().map_or(had.without_host_links(), |segment| segment);
            let path = self.assignment.full_path((job_slot, *flow), segment);
            self.assignment.assign_path((job_slot, *flow), path);
            if path != *had {
                self.assignment.record_move(
                    job_slot,
                    had.without_host_links(),
                    path.without_host_links(),
                );
            }
        }
        best.is_some()
    }

    /// The segment with the least price for the flows together, all of them unassigned, if it gains
    /// enough over their price `before`. Every running flow raises the gain that is needed.
    fn find_better_segment(
        &mut self,
        job_slot: usize,
        flows: &[usize],
        before: ContentionPrice,
    ) -> Option<PathSegment> {
        let (assignment, contention) = (&*self.assignment, &self.contention);
        let assigned = assignment.job_at(job_slot);
        let running =
            flows.iter().filter(|flow| assigned.was_running[**flow]).count() as ContentionPrice;
        let gain = self.running_gain.saturating_mul(running).max(self.least_gain);
        let limit = before.checked_sub(gain.max(before / LEAST_FRACTION))? + 1;
        let pair = assigned.routes.flows[*flows.first()?].pair;
        let shares = assignment.shares_of(job_slot, flows);
        let ends = &assigned.routes.pairs[pair].ends;
        let best = self.search.find_cheapest(&assignment.tables, ends, limit, |link| {
            contention.added_contention(
                job_slot,
                assignment.occupancy.jobs_on(link),
                shares.share_on(link),
            )
        })?;
        Some(best.1)
    }

    /// Contention that an unassigned flow would add on `links`.
    fn path_price(&self, job_slot: usize, flow: usize, links: &[LinkId]) -> ContentionPrice {
        let (assignment, flows) = (&*self.assignment, [flow]);
        let shares = assignment.shares_of(job_slot, &flows);
        links
            .iter()
            .map(|link| {
                self.contention.added_contention(
                    job_slot,
                    assignment.occupancy.jobs_on(*link),
                    shares.share_on(*link),
                )
            })
            .sum()
    }
}
