//! Threads that parse and plan on behalf of callers.
//!
//! The decision: work that a caller causes runs on as many threads as the configuration says, and
//! waits in a bounded queue before it takes any memory. They are blocking threads of the runtime
//! that serves callers, so those on which the controller plans and stores are never used for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::limit_counters::{LimitCounters, LimitReached};
use super::service::ServiceError;
use crate::access::ControllerError;
use crate::config::NorthboundLimits;

/// A caller, if a token identifies one.
type CallerName = Option<Arc<str>>;

/// The threads, and who waits for them.
#[derive(Clone, Debug)]
pub(super) struct PlanningPool {
    threads: Arc<Semaphore>,
    /// Places of those who wait or have a thread.
    places: Arc<Semaphore>,
    most_per_caller: usize,
    limited: LimitCounters,
    /// Places of each caller. Behind a lock, because requests are counted and checked in one step;
    /// it is held for that step only.
    callers: Arc<Mutex<BTreeMap<CallerName, usize>>>,
}

/// A place of a caller, until it is dropped.
#[derive(Debug)]
struct CallerPlace {
    caller: CallerName,
    callers: Arc<Mutex<BTreeMap<CallerName, usize>>>,
    _place: OwnedSemaphorePermit,
}

/// The right to one thread.
#[derive(Debug)]
pub(super) struct PlanningSlot {
    _place: CallerPlace,
    _thread: OwnedSemaphorePermit,
}

impl PlanningPool {
    pub(super) fn new(limits: &NorthboundLimits, limited: LimitCounters) -> Self {
        let [threads, queue] = [limits.planning_threads, limits.planning_queue];
        let places = threads.get() + queue.get();
        Self {
            threads: Arc::new(Semaphore::new(threads.get())),
            places: Arc::new(Semaphore::new(places)),
            most_per_caller: places.div_ceil(2),
            limited,
            callers: Arc::default(),
        }
    }

    /// Waits for a thread on behalf of a caller.
    ///
    /// # Errors
    /// Too many wait already, of this caller or in all.
    pub(super) async fn acquire_slot(
        &self,
        caller: &CallerName,
    ) -> Result<PlanningSlot, ServiceError> {
        let place = self.take_place(caller);
        let place = place.inspect_err(|_| self.limited.count(LimitReached::PlanningQueue))?;
        let thread = Arc::clone(&self.threads).acquire_owned().await;
        let thread = thread.map_err(|_| ControllerError::Stopped)?;
        Ok(PlanningSlot { _place: place, _thread: thread })
    }

    fn take_place(&self, caller: &CallerName) -> Result<CallerPlace, ServiceError> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let own = callers.get(caller).copied().unwrap_or_default();
        // Without tokens, all callers are the same one.
        if caller.is_some() && own >= self.most_per_caller {
            return Err(ServiceError::TooMany("half of northbound.limits.planning_queue"));
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place =
            place.map_err(|_| ServiceError::Overloaded("northbound.limits.planning_queue"))?;
        *callers.entry(caller.clone()).or_default() += 1;
        let callers = Arc::clone(&self.callers);
        Ok(CallerPlace { caller: caller.clone(), callers, _place: place })
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = callers.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

impl PlanningSlot {
    /// The result of `work`, on a thread that has the slot until the work is done, also when nobody
    /// waits for it any more.
    ///
    /// # Errors
    /// The work panicked, or the runtime has ended.
    pub(super) async fn run_work<R: Send + 'static>(
        self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ControllerError> {
        let (result, _) = self.run_then_return(work).await?;
        Ok(result)
    }

    /// As [`PlanningSlot::run_work`], with the slot for more work.
    pub(super) async fn run_then_return<R: Send + 'static>(
        self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(R, Self), ControllerError> {
        // A blocking task goes on when nobody waits for it any more, and a runtime whose time is
        // simulated waits for it. The slot travels with the result, so it is free only after it.
        let done = spawn_blocking(move || (work(), self));
        done.await.map_err(|_| ControllerError::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawNorthboundLimits;

    #[tokio::test]
    async fn places_are_bounded_for_each_caller_and_in_all() {
        let raw = RawNorthboundLimits {
            planning_threads: 1,
            planning_queue: 3,
            ..RawNorthboundLimits::default()
        };
        let pool =
            PlanningPool::new(&NorthboundLimits::try_from(&raw).unwrap(), LimitCounters::default());
        let [ada, bob] = ["ada", "bob"].map(|name| Some(name.into()));
        let first = pool.acquire_slot(&ada).await.unwrap();
        let own = [pool.take_place(&ada), pool.take_place(&ada)];
        assert!(own[0].is_ok() && matches!(own[1], Err(ServiceError::TooMany(_))), "{own:?}");
        let others = [(); 3].map(|()| pool.take_place(&bob));
        assert!(others[1].is_ok() && others[2].is_err(), "{others:?}");
        assert!(matches!(pool.take_place(&None), Err(ServiceError::Overloaded(_))));
        drop((own, others));
        assert_eq!(first.run_work(|| 7).await.unwrap(), 7);
        assert!(pool.acquire_slot(&ada).await.is_ok());
    }
}
