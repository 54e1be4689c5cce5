//! Links that serve all levels alike, such as a host's NIC that knows no levels: max-min fair over
//! all flow groups on the link, whatever their level.
//!
//! The other links make the rate of a group depend on higher levels only. A fifo link couples its
//! levels both ways: what a low level cannot use elsewhere is left to a high one. So rates are a
//! fixed point, and there may be several: two groups that meet on a fifo link and again on a strict
//! one may have half of both links each, or the higher one all of them, which leaves the lower one
//! nothing to ask for. Senders that probe for more bandwidth end at the first: a NIC serves whoever
//! asks, and only what it lets through competes further on.
//!
//! It is found by sweeps over the levels. At first every group counts as if it could use its share
//! of the fifo link in full; after a sweep the groups that another link limits count with the rate
//! that they have, and levels whose offer changed are allocated again. A change starts this anew for
//! every fifo link that it reaches and that has groups of several levels; a link with groups of one
//! level is an ordinary one.

use super::{NONE, RateAllocator};

/// Sweeps after which offers are taken as they are. Rates mostly settle within three.
const MAX_SWEEPS: u32 = 32;

/// An offer that changes by less than this part of the link's capacity has settled.
const SETTLED: f64 = 1e-4;

/// Fifo links with work to do, and buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct FifoWork {
    /// Links on which groups started or stopped, or whose capacity changed.
    pub(super) changed: Vec<u32>,
    /// Links with several levels that the present reallocation reached.
    reached: Vec<u32>,
    /// Number of the present reallocation.
    pub(super) reallocation: u64,
    shares: Vec<FifoShare>,
}

/// A flow group on a fifo link.
#[derive(Debug, Clone, Copy)]
struct FifoShare {
    link_level: u32,
    weight: f64,
    /// What each of its flows can use at most, bytes/s.
    limit: f64,
}

/// What the groups on a fifo link can use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupLimits {
    /// Any share.
    Unlimited,
    /// Their rate, where another link limits it.
    Rates,
}

impl RateAllocator {
    /// Begins with the fifo links whose groups changed.
    pub(super) fn refresh_changed_links(&mut self) {
        self.fifo.reallocation += 1;
        while let Some(link) = self.fifo.changed.pop() {
            self.refresh_fifo_link(link);
        }
    }

    /// Starts the offers of a fifo link anew, once in a reallocation.
    pub(super) fn refresh_fifo_link(&mut self, link: u32) {
        let reallocation = self.fifo.reallocation;
        let of = &mut self.links[link as usize];
        if !of.is_fifo || std::mem::replace(&mut of.refreshed_at, reallocation) == reallocation {
            return;
        }
        let in_use = |link_level: &u32| !self.link_levels[*link_level as usize].members.is_empty();
        if self.link_levels_of(link).filter(in_use).count() > 1 {
            self.fifo.reached.push(link);
        }
        self.offer_fifo_shares(link, GroupLimits::Unlimited);
    }

    /// After a sweep: offers by the rates found. Returns whether any changed.
    pub(super) fn settle_fifo_links(&mut self, sweep: u32) -> bool {
        if sweep >= MAX_SWEEPS {
            return false;
        }
        let mut has_changed = false;
        for index in 0..self.fifo.reached.len() {
            has_changed |= self.offer_fifo_shares(self.fifo.reached[index], GroupLimits::Rates);
        }
        has_changed
    }

    /// Forgets the links reached.
    pub(super) fn finish_fifo_links(&mut self) {
        self.fifo.reached.clear();
    }

    /// Offers each level of a fifo link what its groups get and what all leave. Returns whether an
    /// offer changed.
    fn offer_fifo_shares(&mut self, link: u32, limits: GroupLimits) -> bool {
        let mut shares = std::mem::take(&mut self.fifo.shares);
        self.collect_shares(link, limits, &mut shares);
        let capacity = self.links[link as usize].capacity;
        let fair = fair_share(capacity, &mut shares);
        let used = |share: &FifoShare| share.weight * share.limit.min(fair);
        let total: f64 = shares.iter().map(used).sum();
        let mut has_changed = false;
        let mut next = self.links[link as usize].top_level;
        while next != NONE {
            let own = shares.iter().filter(|share| share.link_level == next).map(used);
            let offer = (capacity - total + own.sum::<f64>()).max(0.0);
            has_changed |= match limits {
                GroupLimits::Unlimited => self.start_fifo_offer(next, offer),
                GroupLimits::Rates => self.approach_fifo_offer(next, offer, capacity),
            };
            next = self.link_levels[next as usize].below;
        }
        self.fifo.shares = shares;
        has_changed
    }

    fn start_fifo_offer(&mut self, link_level: u32, offer: f64) -> bool {
        let of = &mut self.link_levels[link_level as usize];
        of.last_step = 0.0;
        self.set_fifo_offer(link_level, offer)
    }

    /// Takes a step towards `offer`, longer with every step upwards: where a low level loses on
    /// another link what a high one gains here, each step alone would be as small as the difference
    /// of the links. Never a longer one downwards: a group that got less than its share would seem
    /// to be limited by this link.
    fn approach_fifo_offer(&mut self, link_level: u32, offer: f64, capacity: f64) -> bool {
        let of = &mut self.link_levels[link_level as usize];
        let missing = offer - of.offered;
        if missing.abs() <= SETTLED * capacity {
            return false;
        }
        of.last_step = match (missing > 0.0, of.last_step > 0.0) {
            (true, true) => missing + of.last_step,
            // Half way back where it went too far.
            (true, false) | (false, true) if of.last_step != 0.0 => 0.5 * missing,
            _ => missing,
        };
        let next = (of.offered + of.last_step).clamp(0.0, capacity);
        self.set_fifo_offer(link_level, next)
    }

    /// Returns whether the offer of a level in use changed.
    fn set_fifo_offer(&mut self, link_level: u32, offer: f64) -> bool {
        let of = &mut self.link_levels[link_level as usize];
        if of.offered == offer {
            return false;
        }
        of.offered = offer;
        let is_used = !of.members.is_empty();
        if is_used {
            self.mark_dirty(link_level);
        }
        is_used
    }

    fn collect_shares(&self, link: u32, limits: GroupLimits, shares: &mut Vec<FifoShare>) {
        shares.clear();
        for link_level in self.link_levels_of(link) {
            let members = &self.link_levels[link_level as usize].members;
            shares.extend(members.iter().map(|member| {
                let group = &self.groups[member.group as usize];
                let is_limited_here = group.bottleneck == link_level || group.bottleneck == NONE;
                let limit = match limits == GroupLimits::Unlimited || is_limited_here {
                    true => f64::INFINITY,
                    false => group.rate,
                };
                FifoShare { link_level, weight: group.weight, limit }
            }));
        }
    }
}

/// The rate of the flows that only this link limits: max-min fairness over all. Sorts `shares`.
fn fair_share(capacity: f64, shares: &mut [FifoShare]) -> f64 {
    shares.sort_by(|a, b| a.limit.total_cmp(&b.limit));
    let (mut left, mut weight) = (capacity, shares.iter().map(|share| share.weight).sum::<f64>());
    for share in shares.iter() {
        if share.limit * weight > left {
            return left / weight;
        }
        left -= share.limit * share.weight;
        weight -= share.weight;
    }
    f64::INFINITY
}
