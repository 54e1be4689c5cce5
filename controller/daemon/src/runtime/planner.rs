//! The plan request under way, and the submitters that wait for its plan.
//!
//! The decision: one request at a time, computed beside the event loop. A request supersedes one
//! for a better plan: that one's result is dropped, and the next of its kind waits until its
//! computation has ended, so that at most one of them takes processor time beside the plan that is
//! waited for. A receipt is sent once, with the findings of the event before those of the plan.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use planner::PlanMemory;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use topology::Finding;

use crate::low_priority::at_low_priority;
use crate::southbound::connection::{self, ComputationPanicked, SwitchNetwork};
use crate::southbound::{ChangeOrigin, DesiredTables};
use crate::state::{Effects, PlanRequest, PlanResult, SubmitReceipt};

/// Runs plan requests.
pub(super) struct Planner {
    network: Arc<dyn SwitchNetwork>,
    task: Option<JoinHandle<Result<PlanResult, ComputationPanicked>>>,
    memory: SharedPlanMemory,
    /// One permit: held while a better plan is computed.
    refinements: Arc<Semaphore>,
    /// When and why the request under way was made.
    origin: ChangeOrigin,
    /// In the order of their events.
    waiters: VecDeque<PlanWaiter>,
    /// Plans whose tables are not published yet, in order.
    adopted: VecDeque<AdoptedPlan>,
    waiters_max: usize,
}

impl Planner {
    /// An idle planner, for which at most so many events wait.
    pub(super) fn new(network: Arc<dyn SwitchNetwork>, waiters_max: usize) -> Self {
        let origin = ChangeOrigin::new("nothing", Instant::now());
        Self {
            network,
            task: None,
            memory: SharedPlanMemory::default(),
            refinements: Arc::new(Semaphore::new(1)),
            origin,
            waiters: VecDeque::new(),
            adopted: VecDeque::new(),
            waiters_max,
        }
    }

    /// Whether another event may wait for a plan. Backpressure: while none may, the loop accepts no
    /// submission, and submitters wait at the queue.
    pub(super) fn has_room(&self) -> bool {
        self.waiters.len() < self.waiters_max
    }

    /// Computes the plan, once the processor is not needed for what is rolled out.
    pub(super) fn start_planning(
        &mut self,
        request: PlanRequest,
        cause: &'static str,
        rolled_out: impl Future<Output = ()> + Send + 'static,
    ) {
        let now = Instant::now();
        self.origin = ChangeOrigin { planning_started: Some(now), ..ChangeOrigin::new(cause, now) };
        let network = self.network.clone();
        let refinements = request.is_refinement().then(|| Arc::clone(&self.refinements));
        let memory = self.memory.clone();
        let task = tokio::spawn(async move {
            // On few cores planning would take the processor from the sessions that write the
            // repair.
            rolled_out.await;
            let permit = match refinements {
                Some(refinements) => refinements.acquire_owned().await.ok(),
                None => None,
            };
            connection::compute(&*network, move || {
                // Held to the end of the computation, even if nobody waits for it any more.
                let _permit = permit;
                memory.compute_plan(request)
            })
            .await
        });
        if let Some(superseded) = self.task.replace(task) {
            // The abort drops the wait for the result. The computation itself ends by itself, with
            // its permit.
            superseded.abort();
        }
    }

    /// Waits for the plan under way; for ever if nothing is under way.
    pub(super) async fn next_result(&mut self) -> Result<PlanResult, ComputationPanicked> {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let result = task.await;
        self.task = None;
        result.unwrap_or(Err(ComputationPanicked))
    }

    pub(super) fn add_waiter(&mut self, waiter: PlanWaiter) {
        self.waiters.push_back(waiter);
    }

    /// What led to a plan: the first event that waits for it, or the request itself.
    pub(super) fn origin_of(&self, result: &PlanResult) -> ChangeOrigin {
        let first = self.waiters.front().filter(|waiter| waiter.inputs <= result.inputs());
        ChangeOrigin {
            planning_started: self.origin.planning_started,
            ..first.map_or(self.origin, |waiter| waiter.origin)
        }
    }

    /// Keeps a plan until its tables are published.
    pub(super) fn note_adopted(&mut self, plan: AdoptedPlan) {
        self.adopted.push_back(plan);
    }

    /// Sends the receipts of all events whose plans are published; how many events these plans take
    /// into account. Receipts come after publishing: a submitter that has one may wait until
    /// switches hold the generation.
    pub(super) fn answer_published(&mut self, desired: &DesiredTables) -> Option<u64> {
        let mut planned = None;
        let lowered = desired.lowered_generation;
        while let Some(plan) = self.adopted.pop_front_if(|plan| plan.generation <= lowered) {
            planned = Some(plan.planned);
            while let Some(waiter) = self.waiters.pop_front_if(|next| next.inputs <= plan.planned) {
                waiter.send_receipt(desired.generation, &plan.findings);
            }
        }
        planned
    }
}

/// What the last plan left for the next.
#[derive(Clone, Debug, Default)]
struct SharedPlanMemory(Arc<Mutex<PlanMemory>>);

impl SharedPlanMemory {
    /// Computes the plan of a request, without the lock. A computation that panics leaves nothing,
    /// and one for a better plan works on a copy, for an event that supersedes it to go on from
    /// where it began.
    fn compute_plan(&self, request: PlanRequest) -> PlanResult {
        if !request.is_refinement() {
            let mut memory = self.with(std::mem::take);
            let result = request.continue_plan(&mut memory);
            self.with(|shared| *shared = memory);
            return result;
        }
        let mut memory = self.with(|shared| shared.clone());
        let begun = memory.latest_plan();
        let result = at_low_priority(|| request.continue_plan(&mut memory));
        self.with(|shared| {
            let latest = shared.latest_plan();
            // An event has planned meanwhile if the pointers differ, and its memory is the later
            // one.
            if latest.as_ref().map(Arc::as_ptr) == begun.as_ref().map(Arc::as_ptr) {
                *shared = memory;
            }
        });
        result
    }

    fn with<T>(&self, access: impl FnOnce(&mut PlanMemory) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A plan in force, as those who wait for it see it.
pub(super) struct AdoptedPlan {
    pub(super) generation: u64,
    /// How many events it takes into account.
    pub(super) planned: u64,
    pub(super) findings: Vec<Finding>,
}

/// A submitter that waits until its event is planned for.
pub(super) struct PlanWaiter {
    /// The event's number among those taken in.
    pub(super) inputs: u64,
    origin: ChangeOrigin,
    refusal: Option<Finding>,
    findings: Vec<Finding>,
    receipt: oneshot::Sender<SubmitReceipt>,
}

impl PlanWaiter {
    pub(super) fn new(
        inputs: u64,
        origin: ChangeOrigin,
        effects: &Effects,
        receipt: oneshot::Sender<SubmitReceipt>,
    ) -> Self {
        Self {
            inputs,
            origin,
            refusal: effects.refusal.clone(),
            findings: effects.findings.clone(),
            receipt,
        }
    }

    pub(super) fn send_receipt(mut self, generation: u64, findings: &[Finding]) {
        self.findings.extend_from_slice(findings);
        // The submitter may have stopped waiting; the event counts all the same.
        drop(self.receipt.send(SubmitReceipt {
            generation,
            refusal: self.refusal,
            findings: self.findings,
        }));
    }
}
