//! Where the flows are so far, and how busy that makes the links.
//!
//! A job has a seat here for as long as it lives, whatever jobs come and go beside it. What changed
//! is remembered by time: a group of flows is looked at again only if something it depends on
//! changed after it was last looked at.

use std::cell::Cell;
use std::sync::Arc;

use topology::{Fabric, LinkId, Path, Tier};

use super::rate;
use crate::input::Job;
use crate::occupancy::{Occupancy, Share};
use crate::traffic::{LeafPair, Route, Routes, Traffic};
use crate::walker::{Ends, Segment, Walker};
use crate::ways::Ways;

/// A flow: the seat of its job and its position there.
pub(crate) type FlowAt = (usize, usize);

/// The state that choosing paths reads and changes.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(super) ways: Arc<Ways>,
    walker: Walker,
    pub(super) occupancy: Occupancy,
    pub(super) seats: Vec<Option<Seated>>,
    pub(super) changes: Changes,
}

/// A job with the paths of its flows.
#[derive(Clone, Debug)]
pub(crate) struct Seated {
    pub(super) routes: Arc<Routes>,
    /// Bytes per second of each flow; none for a flow that sends nothing.
    rates: Vec<Option<f64>>,
    /// Empty where a flow is on no path.
    pub(crate) paths: Vec<Path>,
    /// Which flows were there before this plan.
    pub(super) kept: Vec<bool>,
    /// When each group was last looked at.
    pub(super) seen: Vec<u32>,
}

impl Placement {
    /// Nobody there.
    pub(crate) fn new(fabric: &Fabric, ways: &Arc<Ways>) -> Self {
        Self {
            walker: Walker::new(fabric.switches().len()),
            occupancy: Occupancy::new(fabric),
            seats: Vec::new(),
            changes: Changes::new(fabric, ways),
            ways: Arc::clone(ways),
        }
    }

    /// A seat for a job, none of whose flows is on a path yet.
    pub(crate) fn seat(&mut self, job: &Job, routes: &Arc<Routes>) -> usize {
        let rate = |bytes: f64| (bytes > 0.0).then(|| rate(bytes, &routes.demand));
        let seated = Seated {
            rates: job.flows.iter().map(|flow| rate(flow.bytes)).collect(),
            paths: vec![Path::EMPTY; job.flows.len()],
            kept: vec![false; job.flows.len()],
            seen: vec![0; routes.groups.len()],
            routes: Arc::clone(routes),
        };
        let free = self.seats.iter().position(Option::is_none);
        let seat = free.unwrap_or(self.seats.len());
        if seat == self.seats.len() {
            self.seats.push(None);
            self.changes.of_seat.push(0);
        }
        self.seats[seat] = Some(seated);
        seat
    }

    /// Takes a job and its flows away.
    pub(crate) fn vacate(&mut self, seat: usize) {
        for flow in 0..self.at(seat).paths.len() {
            let path = self.lift((seat, flow));
            self.changes.eased(path.segment());
        }
        self.seats[seat] = None;
    }

    /// The job on a seat that is taken.
    pub(crate) fn at(&self, seat: usize) -> &Seated {
        self.seats[seat]
            .as_ref()
            .expect("seats are given up only with their job")
    }

    pub(super) fn at_mut(&mut self, seat: usize) -> &mut Seated {
        self.seats[seat]
            .as_mut()
            .expect("seats are given up only with their job")
    }

    /// The paths of all flows of the jobs on `seats`.
    pub(crate) fn paths(&self, seats: impl IntoIterator<Item = usize>) -> Vec<Path> {
        let paths = seats.into_iter().map(|seat| &self.at(seat).paths);
        paths.flatten().copied().collect()
    }

    /// Puts the flows of a job on other paths that were found for them, and forgets what was looked
    /// at.
    pub(crate) fn replace(&mut self, seat: usize, paths: impl Iterator<Item = Path>) {
        for (flow, path) in paths.enumerate() {
            self.lift((seat, flow));
            self.put((seat, flow), path);
        }
        self.at_mut(seat).seen.fill(0);
    }

    /// Puts a flow where it was, if that still is one of its equal-cost paths.
    pub(crate) fn keep(&mut self, fabric: &Fabric, flow: FlowAt, had: Option<Path>) {
        let Some(path) = had else { return };
        let (route, pair) = self.route(flow);
        let same_ends = path.first() == Some(&route.up) && path.last() == Some(&route.down);
        if route.has_path && same_ends && is_segment(fabric, &pair.ends, path.segment()) {
            self.put(flow, path);
            self.at_mut(flow.0).kept[flow.1] = true;
        }
    }

    /// From now on every flow is one that was there before.
    pub(crate) fn keep_all(&mut self) {
        for seated in self.seats.iter_mut().flatten() {
            seated.kept.fill(true);
        }
    }

    /// Puts the flows of a job that are on no path, the largest first, each on the least congested.
    pub(crate) fn place_rest(&mut self, seat: usize) {
        let routes = Arc::clone(&self.at(seat).routes);
        for flow in &routes.largest_first {
            let is_placed = !self.at(seat).paths[*flow].is_empty();
            if routes.flows[*flow].has_path && !is_placed {
                let segment = self.least_congested((seat, *flow));
                self.put((seat, *flow), self.path((seat, *flow), &segment));
                self.changes.pressed(&segment);
            }
        }
    }

    fn least_congested(&mut self, flow: FlowAt) -> Segment {
        let (_, pair) = self.route(flow);
        if !pair.crosses_fabric() {
            return Segment::EMPTY;
        }
        let (ends, flows) = (pair.ends, [flow.1]);
        let seated = self.seats[flow.0].as_ref();
        let rates = seated.map_or(&[][..], |seated| &seated.rates);
        let shares = Shares::new(&self.ways, rates, &flows);
        let occupancy = &self.occupancy;
        let load = |link| (occupancy.total(link) + shares.on(link)).0;
        self.walker.least_loaded(&self.ways, &ends, load)
    }

    fn route(&self, flow: FlowAt) -> (Route, &LeafPair) {
        let routes = &self.at(flow.0).routes;
        let route = routes.flows[flow.1];
        (route, &routes.pairs[route.pair])
    }

    /// The whole path of a flow over a segment.
    pub(super) fn path(&self, flow: FlowAt, segment: &[LinkId]) -> Path {
        Traffic::path(&self.at(flow.0).routes.flows[flow.1], segment)
    }

    /// Shares of link time that the flows take together.
    pub(super) fn shares<'s>(&'s self, seat: usize, flows: &'s [usize]) -> Shares<'s> {
        Shares::new(&self.ways, &self.at(seat).rates, flows)
    }

    /// Puts a flow that is on no path there.
    pub(super) fn put(&mut self, flow: FlowAt, path: Path) {
        let Some(seated) = &mut self.seats[flow.0] else {
            return;
        };
        let flows = [flow.1];
        let shares = Shares::new(&self.ways, &seated.rates, &flows);
        for link in &path {
            self.occupancy.add(*link, flow.0 as u32, shares.on(*link));
        }
        seated.paths[flow.1] = path;
    }

    /// Takes a flow off its path, which is the answer.
    pub(super) fn lift(&mut self, flow: FlowAt) -> Path {
        let Some(seated) = &mut self.seats[flow.0] else {
            return Path::EMPTY;
        };
        let flows = [flow.1];
        let shares = Shares::new(&self.ways, &seated.rates, &flows);
        let path = std::mem::replace(&mut seated.paths[flow.1], Path::EMPTY);
        for link in &path {
            self.occupancy
                .remove(*link, flow.0 as u32, shares.on(*link));
        }
        path
    }
}

/// Whether `links` lead from one leaf to the other over usable links, as many as the ends are
/// apart, and never up again after going down.
fn is_segment(fabric: &Fabric, ends: &Ends, links: &[LinkId]) -> bool {
    let mut at = ends.from;
    let mut descends = false;
    for link in links {
        let is_known = link.index() < fabric.links().len() && fabric.is_usable(*link);
        let Some(next) = is_known.then(|| fabric.switch_after(*link)).flatten() else {
            return false;
        };
        let goes_down = fabric.switch(next).tier < fabric.switch(at).tier;
        if fabric.link(*link).from.node.switch() != Some(at) || (descends && !goes_down) {
            return false;
        }
        (at, descends) = (next, goes_down);
    }
    at == ends.to && links.len() == usize::from(ends.distance)
}

/// What some flows of one job take of a link's time together, worked out once for each speed.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    ways: &'a Ways,
    rates: &'a [Option<f64>],
    flows: &'a [usize],
    /// The last capacity asked for, and the share of it.
    last: Cell<(f64, Share)>,
}

impl<'a> Shares<'a> {
    fn new(ways: &'a Ways, rates: &'a [Option<f64>], flows: &'a [usize]) -> Self {
        let last = Cell::new((0.0, Share(0)));
        Self {
            ways,
            rates,
            flows,
            last,
        }
    }

    /// The share of `link`.
    pub(super) fn on(&self, link: LinkId) -> Share {
        let capacity = self.ways.capacity(link);
        if self.last.get().0 != capacity {
            let rates = self.flows.iter().filter_map(|flow| self.rates[*flow]);
            let share = rates.map(|rate| Share::of(rate / capacity)).sum();
            self.last.set((capacity, share));
        }
        self.last.get().1
    }
}

/// When the load of links changed, as far as choices depend on it.
///
/// A link that got busier concerns the flows on it: nobody else was kept from moving there. A link
/// that got idler concerns everybody who might go there: those are told apart by leaf, and for
/// links to cores by pod, and by direction.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    now: u32,
    /// The area of each link, if anyone chooses it.
    area: Vec<Option<u32>>,
    /// By area.
    eased: Vec<u32>,
    /// By link.
    pressed: Vec<u32>,
    /// When flows of the job on each seat last moved.
    of_seat: Vec<u32>,
}

impl Changes {
    fn new(fabric: &Fabric, ways: &Ways) -> Self {
        let area = |link: usize| {
            let link = fabric.link(LinkId::from(link));
            let (from, to) = (link.from.node.switch()?, link.to.node.switch()?);
            let goes_up = fabric.switch(from).tier < fabric.switch(to).tier;
            let lower = if goes_up { from } else { to };
            let place = match fabric.switch(lower).tier {
                Tier::Leaf => lower.index(),
                _ => fabric.switches().len() + ways.pods().of(lower)? as usize,
            };
            Some((2 * place + usize::from(goes_up)) as u32)
        };
        let links = fabric.links().len();
        let areas = 2 * (fabric.switches().len() + ways.pods().count());
        Self {
            now: 1,
            area: (0..links).map(area).collect(),
            eased: vec![1; areas],
            pressed: vec![0; links],
            of_seat: Vec::new(),
        }
    }

    fn pressed(&mut self, links: &[LinkId]) {
        self.now += 1;
        links
            .iter()
            .for_each(|link| self.pressed[link.index()] = self.now);
    }

    fn eased(&mut self, links: &[LinkId]) {
        self.now += 1;
        for area in links.iter().filter_map(|link| self.area[link.index()]) {
            self.eased[area as usize] = self.now;
        }
    }
}

impl Placement {
    /// A flow left one segment for another.
    pub(super) fn moved(&mut self, seat: usize, from: &[LinkId], to: &[LinkId]) {
        self.changes.eased(from);
        self.changes.pressed(to);
        self.changes.of_seat[seat] = self.changes.now;
    }

    /// Whether anything changed for a group of flows since it was last looked at, which it is now.
    pub(super) fn look(&mut self, seat: usize, group: usize) -> bool {
        let seen = self.at(seat).seen[group];
        let is_stale = self.changed(seat, group) > seen || seen == 0;
        if is_stale {
            let now = self.changes.now;
            self.at_mut(seat).seen[group] = now;
        }
        is_stale
    }

    /// When something changed last that the best paths of a group depend on.
    fn changed(&self, seat: usize, group: usize) -> u32 {
        let (seated, changes) = (self.at(seat), &self.changes);
        let flows = &seated.routes.groups[group];
        let links = flows.iter().flat_map(|flow| seated.paths[*flow].segment());
        let pressed = links.map(|link| changes.pressed[link.index()]).max();
        let eased = |switch: usize, goes_up| changes.eased[2 * switch + usize::from(goes_up)];
        let pair = flows
            .first()
            .map(|flow| &seated.routes.pairs[seated.routes.flows[*flow].pair]);
        let eased = pair.map(|pair| {
            let (pods, first_pod) = (
                self.ways.pods(),
                changes.eased.len() / 2 - self.ways.pods().count(),
            );
            let (from, to) = (pair.ends.from, pair.ends.to);
            let leaves = eased(from.index(), true).max(eased(to.index(), false));
            match (pods.of(from), pods.of(to)) {
                (Some(near), Some(far)) if pair.ends.distance > 2 => {
                    let (near, far) = (first_pod + near as usize, first_pod + far as usize);
                    leaves.max(eased(near, true)).max(eased(far, false))
                }
                _ => leaves,
            }
        });
        let own = changes.of_seat[seat];
        own.max(pressed.unwrap_or(0)).max(eased.unwrap_or(0))
    }
}
