//! Threads that parse and plan on behalf of callers.
//!
//! Two decisions. Work that a caller causes runs on as many threads as the configuration says, and
//! waits in a bounded queue before it takes any memory. They are blocking threads of the runtime
//! that serves callers, so those on which the controller plans and stores are never used for it. And
//! planning ends when nobody waits for it, or when its caller has used the time that it may: else one
//! who asks and leaves would keep the threads from all others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use planner::Interrupt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::limit_counters::{LimitCounters, LimitReached};
use super::service::ServiceError;
use crate::access::ControllerError;
use crate::config::NorthboundLimits;

/// Of the time that passes, the part that comes back to a caller.
const REGAINED_PART: u32 = 4;

/// A caller, if a token identifies one.
type CallerName = Option<Arc<str>>;

/// The threads, and who waits for them.
#[derive(Clone, Debug)]
pub(super) struct PlanningPool {
    threads: Arc<Semaphore>,
    /// Places of those who wait or have a thread.
    places: Arc<Semaphore>,
    most_per_caller: usize,
    callers: CallerTable,
}

/// What each caller uses. Behind a lock, because requests are counted and checked in one step; it is
/// held for that step only.
#[derive(Clone, Debug)]
struct CallerTable {
    callers: Arc<Mutex<BTreeMap<CallerName, CallerUse>>>,
    /// The time of threads that a caller may use at once.
    planning: Duration,
    limited: LimitCounters,
}

/// What a caller uses.
#[derive(Clone, Copy, Debug)]
struct CallerUse {
    places: usize,
    /// The time of threads that it has used and that has not come back.
    used: Duration,
    /// As of this instant.
    at: Instant,
}

/// A place of a caller, until it is dropped.
#[derive(Debug)]
struct CallerPlace {
    caller: CallerName,
    table: CallerTable,
    _place: OwnedSemaphorePermit,
}

/// The right to one thread.
#[derive(Debug)]
pub(super) struct PlanningSlot {
    place: CallerPlace,
    _thread: OwnedSemaphorePermit,
}

/// Ends planning that nobody waits for.
struct RaisedAtEnd(Interrupt);

impl Drop for RaisedAtEnd {
    fn drop(&mut self) {
        self.0.raise();
    }
}

impl PlanningPool {
    pub(super) fn new(limits: &NorthboundLimits, limited: LimitCounters) -> Self {
        let [threads, queue] = [limits.planning_threads, limits.planning_queue];
        let places = threads.get() + queue.get();
        let callers = CallerTable { callers: Arc::default(), planning: limits.planning, limited };
        Self {
            threads: Arc::new(Semaphore::new(threads.get())),
            places: Arc::new(Semaphore::new(places)),
            most_per_caller: places.div_ceil(2),
            callers,
        }
    }

    /// Waits for a thread on behalf of a caller.
    ///
    /// # Errors
    /// Too many wait already, of this caller or in all, or it has used the time that it may.
    pub(super) async fn acquire_slot(
        &self,
        caller: &CallerName,
    ) -> Result<PlanningSlot, ServiceError> {
        self.callers.time_left(caller)?;
        let place = self.take_place(caller);
        let place =
            place.inspect_err(|_| self.callers.limited.count(LimitReached::PlanningQueue))?;
        let thread = Arc::clone(&self.threads).acquire_owned().await;
        let thread = thread.map_err(|_| ControllerError::Stopped)?;
        Ok(PlanningSlot { place, _thread: thread })
    }

    fn take_place(&self, caller: &CallerName) -> Result<CallerPlace, ServiceError> {
        let mut callers = self.callers.lock();
        let own = callers.entry(caller.clone()).or_insert_with(CallerUse::none);
        // Without tokens, all callers are the same one.
        if caller.is_some() && own.places >= self.most_per_caller {
            return Err(ServiceError::TooMany("half of northbound.limits.planning_queue"));
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place =
            place.map_err(|_| ServiceError::Overloaded("northbound.limits.planning_queue"))?;
        own.places += 1;
        let table = self.callers.clone();
        Ok(CallerPlace { caller: caller.clone(), table, _place: place })
    }
}

impl CallerTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CallerName, CallerUse>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of threads that a caller may still use.
    ///
    /// # Errors
    /// None is left.
    fn time_left(&self, caller: &CallerName) -> Result<Duration, ServiceError> {
        let mut callers = self.lock();
        let now = Instant::now();
        callers.retain(|_, of| {
            of.regain(now);
            of.places > 0 || !of.used.is_zero()
        });
        let used = callers.get(caller).map_or(Duration::ZERO, |of| of.used);
        match self.planning.saturating_sub(used) {
            Duration::ZERO => Err(self.refuse_time()),
            left => Ok(left),
        }
    }

    fn refuse_time(&self) -> ServiceError {
        self.limited.count(LimitReached::PlanningTime);
        ServiceError::TooMany("northbound.limits.planning_ms")
    }
}

impl CallerUse {
    fn none() -> Self {
        Self { places: 0, used: Duration::ZERO, at: Instant::now() }
    }

    /// Takes back a part of the time that has passed since it last used a thread.
    fn regain(&mut self, now: Instant) {
        self.used = self.used.saturating_sub((now - self.at) / REGAINED_PART);
        self.at = now;
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        if let Some(own) = self.table.lock().get_mut(&self.caller) {
            own.places -= 1;
        }
    }
}

impl PlanningSlot {
    /// The result of `work`, which is told when nobody waits for it any more or its caller has no
    /// time left, and then returns nothing.
    ///
    /// # Errors
    /// The caller has no time left, the work panicked, or the runtime has ended.
    pub(super) async fn run_interruptible<R: Send + 'static>(
        self,
        work: impl FnOnce(Interrupt) -> Option<R> + Send + 'static,
    ) -> Result<R, ServiceError> {
        let (caller, table) = (self.place.caller.clone(), self.place.table.clone());
        let left = table.time_left(&caller)?;
        let guard = RaisedAtEnd(Interrupt::default());
        let (interrupt, begun, charged) = (guard.0.clone(), Instant::now(), table.clone());
        let working = self.run_then_return(move || {
            let result = work(interrupt);
            // Also of what nobody waits for any more.
            if let Some(own) = charged.lock().get_mut(&caller) {
                (own.used, own.at) = (own.used + begun.elapsed(), Instant::now());
            }
            result
        });
        match timeout(left, working).await {
            Ok(done) => done?.0.ok_or_else(|| ControllerError::Stopped.into()),
            Err(_) => Err(table.refuse_time()),
        }
    }

    /// The result of `work`, on a thread that has the slot until the work is done, also when nobody
    /// waits for it any more; with the slot for more work.
    ///
    /// # Errors
    /// The work panicked, or the runtime has ended.
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
        assert_eq!(first.run_then_return(|| 7).await.unwrap().0, 7);
        assert!(pool.acquire_slot(&ada).await.is_ok());
    }

    /// Work that goes on until it is interrupted, and says that it was.
    fn endless(
        ended: &Arc<std::sync::atomic::AtomicBool>,
    ) -> impl FnOnce(Interrupt) -> Option<()> + Send + 'static {
        let ended = Arc::clone(ended);
        move |interrupt: Interrupt| {
            while !interrupt.is_raised() {
                std::thread::yield_now();
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            None
        }
    }

    /// Found by attack: one preview kept the thread for 641 s, whether or not its caller waited.
    #[tokio::test]
    async fn planning_ends_with_its_caller_and_with_the_time_of_its_caller() {
        let raw = RawNorthboundLimits { planning_ms: 200, ..RawNorthboundLimits::default() };
        let limited = LimitCounters::default();
        let pool = PlanningPool::new(&NorthboundLimits::try_from(&raw).unwrap(), limited.clone());
        let [ada, bob] = ["ada", "bob"].map(|name| Some(name.into()));
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let slot = pool.acquire_slot(&ada).await.unwrap();
        let leaving = timeout(Duration::from_millis(5), slot.run_interruptible(endless(&ended)));
        assert!(leaving.await.is_err());
        // The only thread is free again.
        let slot = pool.acquire_slot(&ada).await.unwrap();
        assert!(ended.load(std::sync::atomic::Ordering::Relaxed));
        let refused = slot.run_interruptible(endless(&ended)).await;
        assert!(matches!(refused, Err(ServiceError::TooMany(_))), "{refused:?}");
        let slot = pool.acquire_slot(&bob).await.unwrap();
        assert_eq!(slot.run_interruptible(|_| Some(7)).await.unwrap(), 7);
        let left = pool.callers.time_left(&ada).unwrap_or_default();
        assert!(left < Duration::from_millis(100), "{left:?}");
        assert!(limited.count_of(LimitReached::PlanningTime) > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quarter_of_the_time_comes_back() {
        let mut used = CallerUse { used: Duration::from_secs(300), ..CallerUse::none() };
        tokio::time::advance(Duration::from_secs(400)).await;
        used.regain(Instant::now());
        assert_eq!(used.used, Duration::from_secs(200));
    }
}
