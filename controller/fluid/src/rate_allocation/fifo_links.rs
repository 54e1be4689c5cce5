//! Links that serve all levels alike, such as a host's NIC that knows no levels: max-min fair over
//! all flow groups on the link, whatever their level.
//!
//! The other links make the rate of a group depend on higher levels only. A fifo link couples its
//! levels both ways: what a low level cannot use elsewhere is left to a high one. So rates are a
//! fixed point, and there may be several: two groups that meet on a fifo link and again on a strict
//! one may have half of both links each, or the higher one all of them, which leaves the lower one
//! nothing to ask for. Which of them holds is decided by what was before, as with packets. A group
//! that starts is served at once by a NIC, which serves all that ask. A group that another link has
//! held up waits there with all that it may have on its way, and asks for nothing until that moves.
//!
//! So a change begins with the rates from before it: groups that another link limits count with
//! their rate, and groups that start count as if they could use their share of the fifo link in
//! full. After a sweep over the levels all count with the rates found, and levels whose offer
//! changed are allocated again. A change starts this anew for every fifo link that it reaches and
//! that has groups of several levels; a link with groups of one level is an ordinary one.

use super::{NONE, RateAllocator};

/// Sweeps after which offers are taken as they are; most rates settle within three.
const MAX_SWEEPS: u32 = 8;

/// An offer that changes by less than this part of the link's capacity has settled.
const SETTLED: f64 = 1e-3;

/// Fifo links with work to do, and buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct FifoWork {
    /// Links on which groups started or stopped, or whose capacity changed.
    pub(super) changed: Vec<u32>,
    /// Links with several levels that the present reallocation reached.
    reached: Vec<u32>,
    /// Number of the present reallocation.
    reallocation: u64,
    shares: Vec<GroupShare>,
}

/// The rate of the flows that only a fifo link limits, on its way to the fixed point.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FifoShareSearch {
    /// Bytes/s.
    share: f64,
    /// The last step.
    step: f64,
    damping: f64,
}

impl FifoShareSearch {
    fn starting_at(share: f64) -> Self {
        Self { share, step: 0.0, damping: 1.0 }
    }

    /// A step towards `fair`. Upward steps grow: where a low level loses on another link what a
    /// high one gains here, each alone would be as small as the difference of the links. After a
    /// step that went too far all are shorter.
    fn approach(&mut self, fair: f64, capacity: f64) {
        let missing = fair - self.share;
        if missing.abs() <= SETTLED * capacity {
            return;
        }
        // The share has passed the fair one: smaller steps from here on, or it would swing for
        // ever.
        if missing * self.step < 0.0 {
            self.damping *= 0.5;
        }
        // Steps upwards get longer while they go on, since a level often needs several to find its
        // new limit.
        let goes_on = missing > 0.0 && self.step > 0.0;
        self.step = self.damping * missing + if goes_on { self.step } else { 0.0 };
        self.share = (self.share + self.step).clamp(0.0, capacity);
    }
}

/// A flow group on a fifo link.
#[derive(Debug, Clone, Copy)]
struct GroupShare {
    link_level: u32,
    weight: f64,
    /// What each of its flows can use at most, bytes/s.
    limit: f64,
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
        self.offer_fifo_shares(link, |search, fair, _| {
            *search = FifoShareSearch::starting_at(fair);
        });
    }

    /// After a sweep: offers by the rates found. Returns whether any changed.
    pub(super) fn settle_fifo_links(&mut self, sweep: u32) -> bool {
        // A fixed point need not exist; the rates of the last sweep respect all capacities.
        if sweep >= MAX_SWEEPS {
            return false;
        }
        let mut has_changed = false;
        for index in 0..self.fifo.reached.len() {
            has_changed |=
                self.offer_fifo_shares(self.fifo.reached[index], FifoShareSearch::approach);
        }
        has_changed
    }

    /// Forgets the links reached.
    pub(super) fn finish_fifo_links(&mut self) {
        self.fifo.reached.clear();
    }

    /// Offers each level of a fifo link what its groups get and what all leave, after
    /// `move_share(search, fair, capacity)`. Returns whether an offer changed.
    fn offer_fifo_shares(
        &mut self,
        link: u32,
        move_share: impl FnOnce(&mut FifoShareSearch, f64, f64),
    ) -> bool {
        let mut shares = std::mem::take(&mut self.fifo.shares);
        self.collect_shares(link, &mut shares);
        let of = &mut self.links[link as usize];
        let capacity = of.capacity;
        let fair = fair_share(capacity, &mut shares).min(capacity);
        move_share(&mut of.fifo_share, fair, capacity);
        let share = of.fifo_share.share;
        let used = |group: &GroupShare| group.weight * group.limit.min(share);
        let left = (capacity - shares.iter().map(used).sum::<f64>()).max(0.0);
        let mut has_changed = false;
        let mut next = of.top_level;
        while next != NONE {
            let own = shares.iter().filter(|group| group.link_level == next).map(used);
            has_changed |= self.set_fifo_offer(next, left + own.sum::<f64>(), SETTLED * capacity);
            next = self.link_levels[next as usize].below;
        }
        self.fifo.shares = shares;
        has_changed
    }

    /// Returns whether the offer of a level in use changed by more than a tolerance.
    fn set_fifo_offer(&mut self, link_level: u32, offer: f64, tolerance: f64) -> bool {
        let of = &mut self.link_levels[link_level as usize];
        if (of.offered - offer).abs() <= tolerance {
            return false;
        }
        of.offered = offer;
        let is_used = !of.members.is_empty();
        if is_used {
            self.mark_dirty(link_level);
        }
        is_used
    }

    fn collect_shares(&self, link: u32, shares: &mut Vec<GroupShare>) {
        shares.clear();
        for link_level in self.link_levels_of(link) {
            let members = &self.link_levels[link_level as usize].members;
            shares.extend(members.iter().map(|member| {
                let group = &self.groups[member.group as usize];
                let is_limited_here = group.bottleneck == link_level || group.bottleneck == NONE;
                let limit = if is_limited_here { f64::INFINITY } else { group.rate };
                GroupShare { link_level, weight: group.weight, limit }
            }));
        }
    }
}

/// The rate of the flows that only this link limits: max-min fairness over all. Sorts `shares`.
fn fair_share(capacity: f64, shares: &mut [GroupShare]) -> f64 {
    shares.sort_by(|a, b| a.limit.total_cmp(&b.limit));
    let (mut left, mut weight) = (capacity, shares.iter().map(|share| share.weight).sum::<f64>());
    for share in shares.iter() {
        // In ascending order: a group that needs less than an equal part leaves the rest to the
        // others.
        if share.limit * weight > left {
            return left / weight;
        }
        left -= share.limit * share.weight;
        weight -= share.weight;
    }
    f64::INFINITY
}
