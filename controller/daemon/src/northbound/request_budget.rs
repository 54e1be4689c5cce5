//! What the requests in progress may take, in all and of each caller.
//!
//! Pure but for a lock around the counts. The decision: a request without room is refused at once,
//! with the time after which it may be sent again; nothing queues, so memory is bounded by the
//! bounds of the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::NorthboundLimits;

/// On whose account a request is: the owner of a token, or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BudgetOwner {
    Caller(Arc<str>),
    Address(Option<IpAddr>),
}

/// What a request does. The last eighth of the requests in progress is for changes: streams of
/// events that nobody reads must not keep an operator from a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Query,
    Change,
}

impl RequestKind {
    /// How much of a bound it may use.
    fn share_of(self, bound: usize) -> usize {
        match self {
            Self::Query => bound - bound / 8,
            Self::Change => bound,
        }
    }
}

/// Counts of requests in progress and bytes of their bodies. Behind a lock, because requests arrive
/// on any task and are counted and checked in one step; it is held for that step only.
#[derive(Clone, Debug)]
pub(super) struct RequestBudget {
    limits: NorthboundLimits,
    /// Bytes of bodies of one caller.
    own_bytes: usize,
    counts: Arc<Mutex<BudgetCounts>>,
}

#[derive(Clone, Debug, Default)]
struct BudgetCounts {
    all: BudgetUsage,
    own: BTreeMap<BudgetOwner, BudgetUsage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BudgetUsage {
    requests: usize,
    bytes: usize,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetExceeded {
    /// That of the caller.
    Caller(&'static str),
    /// That of all callers.
    All(&'static str),
}

/// The share of a request, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestPermit {
    budget: RequestBudget,
    owner: BudgetOwner,
    bytes: usize,
}

impl RequestBudget {
    pub(super) fn new(limits: NorthboundLimits, body_max: usize) -> Self {
        let own_bytes = (limits.bodies.get() / 4).max(body_max);
        Self { limits, own_bytes, counts: Arc::default() }
    }

    /// Takes the share of a request with a body of `bytes`.
    pub(super) fn begin_request(
        &self,
        owner: BudgetOwner,
        kind: RequestKind,
        bytes: usize,
    ) -> Result<RequestPermit, BudgetExceeded> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.own.get(&owner).copied().unwrap_or_default();
        self.check_bounds([counts.all, own], kind, bytes)?;
        let own = counts.own.entry(owner.clone()).or_default();
        own.requests += 1;
        own.bytes += bytes;
        counts.all.requests += 1;
        counts.all.bytes += bytes;
        Ok(RequestPermit { budget: self.clone(), owner, bytes })
    }

    fn check_bounds(
        &self,
        [all, own]: [BudgetUsage; 2],
        kind: RequestKind,
        bytes: usize,
    ) -> Result<(), BudgetExceeded> {
        let NorthboundLimits { requests, requests_per_caller, bodies, .. } = self.limits;
        if own.requests >= kind.share_of(requests_per_caller.get()) {
            return Err(BudgetExceeded::Caller("northbound.limits.requests_per_caller"));
        }
        if own.bytes + bytes > self.own_bytes && own.bytes > 0 {
            return Err(BudgetExceeded::Caller("a quarter of northbound.limits.bodies_bytes"));
        }
        if all.requests >= kind.share_of(requests.get()) {
            return Err(BudgetExceeded::All("northbound.limits.requests"));
        }
        if all.bytes + bytes > bodies.get() && all.bytes > 0 {
            Err(BudgetExceeded::All("northbound.limits.bodies_bytes"))
        } else {
            Ok(())
        }
    }
}

impl RequestPermit {
    /// Counts the body as so many bytes, at most as many as before, from now on.
    pub(super) fn shrink_body(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        let mut counts = self.budget.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all.bytes -= freed;
        if let Some(own) = counts.own.get_mut(&self.owner) {
            own.bytes -= freed;
        }
        self.bytes -= freed;
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut counts = self.budget.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all.requests -= 1;
        counts.all.bytes -= self.bytes;
        if let Some(own) = counts.own.get_mut(&self.owner) {
            own.requests -= 1;
            own.bytes -= self.bytes;
            if own.requests == 0 {
                counts.own.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawNorthboundLimits;

    #[test]
    fn requests_are_bounded_for_each_caller_and_in_all() {
        let raw = RawNorthboundLimits {
            requests: 3,
            requests_per_caller: 2,
            bodies_bytes: 400,
            ..RawNorthboundLimits::default()
        };
        let budget = RequestBudget::new(NorthboundLimits::try_from(&raw).unwrap(), 50);
        let begin = |caller: &str, bytes| {
            budget.begin_request(BudgetOwner::Caller(caller.into()), RequestKind::Query, bytes)
        };
        let first = begin("ada", 60).unwrap();
        let over = |place| Err(BudgetExceeded::Caller(place));
        let bytes = "a quarter of northbound.limits.bodies_bytes";
        assert_eq!(begin("ada", 50).map(drop), over(bytes));
        let second = begin("ada", 40).unwrap();
        assert_eq!(begin("ada", 0).map(drop), over("northbound.limits.requests_per_caller"));
        let third = begin("bob", 100).unwrap();
        let full = BudgetExceeded::All("northbound.limits.requests");
        assert_eq!(begin("eve", 0).map(drop), Err(full));
        drop((first, second, third));
        let mut read = begin("ada", 100).unwrap();
        read.shrink_body(30);
        let second = begin("ada", 70).unwrap();
        drop((read, second));
        begin("eve", 1_000).unwrap();
        let counts = budget.counts.lock().unwrap();
        assert_eq!((counts.all, counts.own.len()), (BudgetUsage::default(), 0));
    }

    #[test]
    fn queries_leave_room_for_changes() {
        let raw = RawNorthboundLimits { requests: 16, ..RawNorthboundLimits::default() };
        let budget = RequestBudget::new(NorthboundLimits::try_from(&raw).unwrap(), 50);
        let begin = |kind| budget.begin_request(BudgetOwner::Address(None), kind, 0);
        let queries: Vec<_> = std::iter::from_fn(|| begin(RequestKind::Query).ok()).collect();
        let changes: Vec<_> = std::iter::from_fn(|| begin(RequestKind::Change).ok()).collect();
        assert_eq!((queries.len(), changes.len()), (14, 2));
    }
}
