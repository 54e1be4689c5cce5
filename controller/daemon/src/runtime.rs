//! Puts the controller together: one task that feeds the state, one session per switch.
//!
//! Events come in through a bounded queue, [`State::step`] decides, [`lower`](crate::lower()) makes
//! tables, a `watch` gives them to the sessions. The decision: planning and lowering run on the
//! blocking pool with the state moved there and back, so that a long plan never delays a session's
//! deadlines, and the state still has one owner at any time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use p4::Pipeline;
use planner::Policy;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, Severity, SwitchId};
use tracing::{error, info, warn};

use crate::config::Config;
use crate::lower::lower;
use crate::southbound::session::{self, Shared};
use crate::southbound::{Board, Desired, Grpc, Made, SwitchStatus, Target};
use crate::state::{Effects, Event, Realise, State};

/// A controller that is not there any more, or not there yet.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// It has stopped.
    #[error("the controller has stopped")]
    Stopped,
    /// It refused what it was started with.
    #[error("the controller cannot start: {}", texts(.0))]
    Refused(Vec<Finding>),
    /// Not every switch holds the tables in time.
    #[error("not verified within {} ms: {}", .within.as_millis(), .missing.join(", "))]
    NotVerified {
        /// How long it was waited for.
        within: Duration,
        /// The switches that miss something, and what is known of why.
        missing: Vec<String>,
    },
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// The generation that takes it into account.
    pub generation: u64,
    /// What a person should know, a refusal included.
    pub findings: Vec<Finding>,
}

/// From the event to the last switch, on the controller's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The generation that was verified: the one asked for or a later one.
    pub generation: u64,
    /// The event arrived, the plan was made, and it was lowered.
    pub made: Made,
    /// The first write was sent, if it took any.
    pub first_write: Option<Instant>,
    /// The last switch was seen to hold its tables.
    pub verified: Instant,
}

impl Timing {
    /// From the event to the last verified switch.
    pub fn total(&self) -> Duration {
        self.verified - self.made.received
    }
}

/// The controller; has no state of its own once started.
#[derive(Debug)]
pub struct Controller;

/// A running controller. Dropping it stops the controller as [`ControllerHandle::shutdown`] does,
/// without waiting.
#[derive(Debug)]
pub struct ControllerHandle {
    events: mpsc::Sender<Submission>,
    desired: watch::Receiver<Arc<Desired>>,
    realised: watch::Receiver<Option<Realise>>,
    board: Board,
    stop: CancellationToken,
    task: JoinHandle<()>,
    shutdown_deadline: Duration,
}

/// An event on its way to the state.
struct Submission {
    event: Event,
    received: Instant,
    receipt: oneshot::Sender<Receipt>,
}

impl Controller {
    /// Starts a controller for `fabric` under `policy`, without jobs, and returns when it has
    /// planned for them; the sessions are then on their way. Needs a tokio runtime.
    ///
    /// # Errors
    /// The switches cannot hold the fabric's tables, or the policy does not fit the fabric.
    pub async fn start(
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        info!(config = ?config.effective(), fabric = fabric.name(), "starting");
        let shutdown_deadline = config.shutdown_deadline;
        let (events, queue) = mpsc::channel(config.event_queue.get());
        let runtime = Runtime::new(config);
        let handle = ControllerHandle {
            events,
            desired: runtime.desired.subscribe(),
            realised: runtime.realised.subscribe(),
            board: runtime.shared.board.clone(),
            stop: runtime.stop.clone(),
            task: tokio::spawn(runtime.run(queue)),
            shutdown_deadline,
        };
        for event in [Event::FabricLearned(fabric), Event::PolicyChanged(policy)] {
            let findings = handle.submit(event).await?.findings;
            if findings
                .iter()
                .any(|finding| finding.severity == Severity::Error)
            {
                return Err(ControllerError::Refused(findings));
            }
        }
        Ok(handle)
    }
}

impl ControllerHandle {
    /// Gives the controller an event and waits until it has planned for it. Waits longer where more
    /// events are under way than the queue holds.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn submit(&self, event: Event) -> Result<Receipt, ControllerError> {
        let (receipt, answer) = oneshot::channel();
        let received = Instant::now();
        let submission = Submission {
            event,
            received,
            receipt,
        };
        let sent = self.events.send(submission).await;
        sent.map_err(|_| ControllerError::Stopped)?;
        answer.await.map_err(|_| ControllerError::Stopped)
    }

    /// What the switches shall hold now.
    pub fn desired(&self) -> Arc<Desired> {
        Arc::clone(&self.desired.borrow())
    }

    /// The fabric, plan and report in force; `None` before the first.
    pub fn realised(&self) -> Option<Realise> {
        self.realised.borrow().clone()
    }

    /// What the sessions are up to.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Waits until every switch was seen to hold the tables of `generation`, or later ones.
    ///
    /// # Errors
    /// Some were not within `deadline`; the error says which, and why as far as it is known.
    pub async fn await_verified(
        &self,
        generation: u64,
        deadline: Duration,
    ) -> Result<Timing, ControllerError> {
        let holds = |line: &SwitchStatus| is_verified(line, generation);
        let everywhere = self.board.wait_until(|lines| lines.values().all(holds));
        match timeout(deadline, everywhere).await {
            Ok(lines) => Ok(self.timing(&lines)),
            Err(_) => Err(ControllerError::NotVerified {
                within: deadline,
                missing: missing(&self.board.all(), generation),
            }),
        }
    }

    /// Stops the controller and waits until its sessions have ended. Withdraws nothing: switches
    /// keep forwarding by what they hold.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if timeout(self.shutdown_deadline, &mut self.task)
            .await
            .is_err()
        {
            warn!("sessions did not end in time; leaving them");
            self.task.abort();
        }
    }

    fn timing(&self, lines: &BTreeMap<SwitchId, SwitchStatus>) -> Timing {
        let desired = self.desired();
        let verified = || lines.values().filter_map(|line| line.verified);
        Timing {
            generation: desired.generation,
            made: desired.made,
            first_write: verified().filter_map(|verified| verified.first_write).min(),
            verified: verified()
                .map(|verified| verified.at)
                .max()
                .unwrap_or(desired.made.lowered),
        }
    }
}

impl Drop for ControllerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn is_verified(line: &SwitchStatus, generation: u64) -> bool {
    let seen = line
        .verified
        .is_some_and(|verified| verified.generation >= generation);
    seen && line.standing.is_primary()
}

fn missing(lines: &BTreeMap<SwitchId, SwitchStatus>, generation: u64) -> Vec<String> {
    let late = lines.values().filter(|line| !is_verified(line, generation));
    let why = |line: &SwitchStatus| {
        let reason = line.refusals.first().or(line.last_error.as_ref());
        let reason = reason.map_or("nothing known", String::as_str);
        format!("{} ({:?}; {reason})", line.name, line.standing)
    };
    late.map(why).collect()
}

fn texts(findings: &[Finding]) -> String {
    let texts: Vec<&str> = findings
        .iter()
        .map(|finding| finding.text.as_str())
        .collect();
    texts.join("; ")
}

/// The task that owns the sessions and hands the state around.
struct Runtime {
    shared: Shared<Grpc>,
    desired: watch::Sender<Arc<Desired>>,
    realised: watch::Sender<Option<Realise>>,
    sessions: BTreeMap<Target, Session>,
    stop: CancellationToken,
}

/// A session that was started.
struct Session {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Session {
    /// Ends it, and waits for that; it ends the next time that it would do anything.
    async fn end(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            error!("a session panicked");
        }
    }
}

/// What the blocking pool hands back.
struct Decided {
    state: State,
    effects: Effects,
    desired: Option<Desired>,
}

impl Runtime {
    fn new(config: Config) -> Self {
        let now = Instant::now();
        let made = Made {
            received: now,
            planned: now,
            lowered: now,
        };
        let nothing = Desired {
            generation: 0,
            tables: BTreeMap::new(),
            made,
        };
        let (desired, to_sessions) = watch::channel(Arc::new(nothing));
        Self {
            shared: Shared {
                network: Grpc,
                config: Arc::new(config),
                pipeline: Arc::new(Pipeline::fabric()),
                desired: to_sessions,
                board: Board::default(),
            },
            desired,
            realised: watch::Sender::new(None),
            sessions: BTreeMap::new(),
            stop: CancellationToken::new(),
        }
    }

    async fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
        let mut state = State::new(self.shared.config.levels);
        let stop = self.stop.clone();
        while let Some(submission) = stop.run_until_cancelled(queue.recv()).await.flatten() {
            let Submission {
                event,
                received,
                receipt,
            } = submission;
            let Some(decided) = decide(state, event, received).await else {
                error!("planning panicked; stopping, and leaving the switches as they are");
                break;
            };
            state = decided.state;
            let (effects, desired) = (decided.effects, decided.desired);
            effects.findings.iter().for_each(log);
            if let (Some(desired), Some(realise)) = (desired, effects.realise) {
                self.publish(desired, realise).await;
            }
            let answer = Receipt {
                generation: effects.generation,
                findings: effects.findings,
            };
            // Whoever asked may have gone; the event counts all the same.
            drop(receipt.send(answer));
        }
        for session in self.sessions.into_values() {
            session.end().await;
        }
    }

    /// Gives the sessions their tables. Sessions with switches of another fabric end first, since
    /// its ids mean other switches now.
    async fn publish(&mut self, desired: Desired, realise: Realise) {
        let targets = Target::all(&realise.fabric);
        let stays = |target: &Target| targets.contains(target);
        for (target, session) in self.sessions.extract_if(.., |target, _| !stays(target)) {
            session.end().await;
            self.shared.board.remove(target.switch);
        }
        info!(
            generation = desired.generation,
            plan = realise.plan.generation,
            "publishing"
        );
        self.desired.send_replace(Arc::new(desired));
        self.realised.send_replace(Some(realise));
        for target in targets {
            let shared = &self.shared;
            let start = |target: &Target| {
                shared.board.add(target.switch, &target.name);
                let stop = self.stop.child_token();
                let dealing = session::run(target.clone(), shared.clone(), stop.clone());
                let task = tokio::spawn(dealing);
                Session { stop, task }
            };
            self.sessions.entry(target).or_insert_with_key(start);
        }
    }
}

/// One event through state and lowering, off the threads that serve the network. `None` if either
/// panicked, which no event should make them do.
async fn decide(mut state: State, event: Event, received: Instant) -> Option<Decided> {
    let work = move || {
        let effects = state.step(event);
        let planned = Instant::now();
        let tables = |realise: &Realise| {
            let tables = lower(&realise.wiring, &realise.fabric, &realise.plan);
            tables
                .into_iter()
                .map(|(switch, tables)| (switch, Arc::new(tables)))
                .collect()
        };
        let desired = effects.realise.as_ref().map(|realise| Desired {
            generation: realise.generation,
            tables: tables(realise),
            made: Made {
                received,
                planned,
                lowered: Instant::now(),
            },
        });
        Decided {
            state,
            effects,
            desired,
        }
    };
    tokio::task::spawn_blocking(work).await.ok()
}

fn log(finding: &Finding) {
    let Finding { about, text, .. } = finding;
    match finding.severity {
        Severity::Error => error!(about, "{text}"),
        Severity::Warning => warn!(about, "{text}"),
        Severity::Info => info!(about, "{text}"),
    }
}
