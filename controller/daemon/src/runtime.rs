//! Puts the controller together: one task that feeds the state, one session per switch.
//!
//! Events come in through a bounded queue, [`State::step`] decides, [`lower`](crate::lower()) makes
//! tables, a `watch` gives them to the sessions; what the sessions learn comes back over the
//! [`Board`](crate::southbound::Board), through [`Liveness`]. The decision: the task never thinks.
//! Planning and lowering run on the blocking pool, planning beside everything else, so that a
//! failure is repaired while the planner is busy, and the state has one owner at any time.

mod archive;
mod handle;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use p4::{Pipeline, Tables};
use planner::Policy;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, Severity, SwitchId};
use tracing::{error, info, warn};

use self::archive::Archive;
pub use self::handle::{ControllerError, ControllerHandle, Receipt, Timing};
use self::handle::{Submission, Submitted};
use crate::config::Config;
use crate::leadership::Leadership;
use crate::liveness::{Health, Liveness, Part};
use crate::lower::{lower, protect};
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::session::{self, Shared};
use crate::southbound::{Board, Desired, Grpc, Made, Target};
use crate::state::{Answer, Effects, Event, Realise, State};
use crate::store::Record;

/// The controller; has no state of its own once started.
#[derive(Debug)]
pub struct Controller;

impl Controller {
    /// Starts a controller for `fabric`, with the policy and jobs of its store, or under `policy`
    /// and without jobs where nothing is stored. Returns when it has planned for them; the sessions
    /// are then on their way. Needs a tokio runtime.
    ///
    /// # Errors
    /// The store cannot be used, the switches cannot hold the fabric's tables, or the policy does
    /// not fit the fabric.
    pub async fn start(
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        Self::start_on(Grpc, config, fabric, policy).await
    }

    /// The same on a network of the caller's.
    ///
    /// # Errors
    /// As for [`Controller::start`].
    pub async fn start_on<N: Network>(
        network: N,
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        info!(config = ?config.effective(), fabric = fabric.name(), "starting");
        let archive = Archive::open(config.store.as_deref(), config.term)?;
        let (started, lost) = archive.recall(fabric, policy);
        lost.iter().for_each(log);
        let shutdown_deadline = config.shutdown_deadline;
        let (events, queue) = mpsc::channel(config.event_queue.get());
        let runtime = Runtime::new(network, config, archive);
        let handle = ControllerHandle {
            events,
            desired: runtime.desired.subscribe(),
            realised: runtime.realised.subscribe(),
            board: runtime.shared.board.clone(),
            stop: runtime.stop.clone(),
            task: tokio::spawn(runtime.run(queue)),
            shutdown_deadline,
        };
        let started = handle.submit(started).await?;
        match handle.realised() {
            None => Err(ControllerError::Refused(started.findings)),
            Some(_) => Ok(handle),
        }
    }
}

/// The task that owns the state and the sessions.
struct Runtime<N> {
    shared: Shared<N>,
    desired: watch::Sender<Arc<Desired>>,
    realised: watch::Sender<Option<Realise>>,
    term: watch::Sender<u64>,
    sessions: BTreeMap<Target, Session>,
    stop: CancellationToken,
    state: State,
    archive: Archive,
    liveness: Liveness,
    leadership: Leadership,
    /// The planner at work on the latest question.
    thinking: Option<JoinHandle<Result<Answer, Panicked>>>,
    /// Who waits until an event is planned for, the earliest first.
    waiting: VecDeque<Waiting>,
    /// What switches were last seen to have room for.
    rooms: BTreeMap<SwitchId, usize>,
}

/// Somebody who waits for a plan.
struct Waiting {
    /// The event's number among those taken in.
    inputs: u64,
    received: Instant,
    findings: Vec<Finding>,
    receipt: oneshot::Sender<Receipt>,
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

/// What wakes the task.
enum Wake {
    Submitted(Submission),
    Answered(Result<Answer, Panicked>),
    /// A session has something to say, or what was seen has lasted.
    Look,
    Stop,
}

impl<N: Network> Runtime<N> {
    fn new(network: N, mut config: Config, archive: Archive) -> Self {
        config.term = archive.term(config.term);
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
        let term = watch::Sender::new(config.term);
        Self {
            state: State::new(config.levels, archive.generation()),
            archive,
            liveness: Liveness::new(config.patience),
            leadership: Leadership::new(config.term, config.grace),
            shared: Shared {
                network,
                config: Arc::new(config),
                pipeline: Arc::new(Pipeline::fabric()),
                desired: to_sessions,
                term: term.subscribe(),
                board: Board::default(),
            },
            term,
            desired,
            realised: watch::Sender::new(None),
            sessions: BTreeMap::new(),
            stop: CancellationToken::new(),
            thinking: None,
            waiting: VecDeque::new(),
            rooms: BTreeMap::new(),
        }
    }

    async fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
        let mut news = self.shared.board.changes();
        loop {
            let done = match self.wake(&mut queue, &mut news).await {
                Wake::Stop => break,
                Wake::Submitted(submission) => self.accept(submission).await,
                Wake::Answered(Ok(answer)) => self.adopt(answer).await,
                Wake::Answered(Err(_)) => Err(Panicked),
                Wake::Look => self.look().await,
            };
            if let Err(Panicked) = done {
                error!("planning panicked; stopping, and leaving the switches as they are");
                break;
            }
        }
        for session in self.sessions.into_values() {
            session.end().await;
        }
    }

    /// Waits for something to do. While as many wait for a plan as may, nothing more is accepted.
    async fn wake(
        &mut self,
        queue: &mut mpsc::Receiver<Submission>,
        news: &mut watch::Receiver<()>,
    ) -> Wake {
        let has_room = self.waiting.len() < self.shared.config.event_queue.get();
        let due = [self.liveness.next_due(), self.leadership.next_due()];
        let due = due.into_iter().flatten().min();
        let thinking = &mut self.thinking;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Wake::Stop,
            answer = async { thinking.as_mut().expect("checked").await }, if thinking.is_some() => {
                self.thinking = None;
                Wake::Answered(answer.unwrap_or(Err(Panicked)))
            }
            submission = queue.recv(), if has_room => {
                submission.map_or(Wake::Stop, Wake::Submitted)
            }
            // The board is held by the task itself, so it does not end.
            _ = news.changed() => Wake::Look,
            () = async { sleep_until(due.expect("checked")).await }, if due.is_some() => Wake::Look,
        }
    }

    /// Takes in what somebody submitted. Who submitted an event hears of it when it is planned for,
    /// or at once that it is refused.
    async fn accept(&mut self, submission: Submission) -> Result<(), Panicked> {
        let received = submission.received;
        let (event, receipt) = match submission.what {
            Submitted::Event(event, receipt) => (*event, receipt),
            Submitted::Seen(part, seen) => {
                let change = self.liveness.observe(part, seen, received);
                return self.believe(change, received).await;
            }
        };
        let inputs = self.state.inputs();
        let mut effects = self.state.step(event);
        if let Some(record) = effects.record.take() {
            effects.findings.extend(self.archive.keep(record).await);
        }
        let waiting = Waiting {
            inputs: self.state.inputs(),
            received,
            findings: effects.findings.clone(),
            receipt,
        };
        match waiting.inputs > inputs {
            true => self.waiting.push_back(waiting),
            false => waiting.tell(effects.generation, &[]),
        }
        self.carry_out(effects, received).await
    }

    /// Takes in a plan, and tells everyone who waited for it.
    async fn adopt(&mut self, answer: Answer) -> Result<(), Panicked> {
        let first = self.waiting.front().map(|waiting| waiting.received);
        let effects = self.state.step(Event::Planned(Box::new(answer)));
        let (generation, findings) = (effects.generation, effects.findings.clone());
        self.carry_out(effects, first.unwrap_or_else(Instant::now))
            .await?;
        let planned = self.state.planned();
        while let Some(waiting) = self.waiting.pop_front_if(|next| next.inputs <= planned) {
            waiting.tell(generation, &findings);
        }
        Ok(())
    }

    /// Looks at what the sessions see, and at what has lasted.
    async fn look(&mut self) -> Result<(), Panicked> {
        let now = Instant::now();
        let mut seen = Vec::new();
        let mut rooms = Vec::new();
        let mut standings = Vec::new();
        self.shared.board.for_each(|switch, line| {
            let health = match line.standing {
                Standing::Apart | Standing::Candidate => Health::Down,
                _ => Health::Up,
            };
            seen.push((Part::Switch(switch), health));
            standings.push(line.standing);
            rooms.extend(line.pin_room.map(|room| (switch, room)));
        });
        for (part, health) in seen {
            let change = self.liveness.observe(part, health, now);
            self.believe(change, now).await?;
        }
        for change in self.liveness.due(now) {
            self.believe(Some(change), now).await?;
        }
        self.weigh(&standings, now).await;
        for (switch, room) in rooms {
            if self.rooms.insert(switch, room) != Some(room) {
                let effects = self.state.step(Event::PinRoomLearned(switch, room));
                self.carry_out(effects, now).await?;
            }
        }
        Ok(())
    }

    /// Bids at all switches in the term that their standings ask for, which is then used up.
    async fn weigh(&mut self, standings: &[Standing], now: Instant) {
        let term = self.leadership.weigh(standings, now);
        let kept = self.archive.keep(Record::Term(term)).await;
        kept.iter().for_each(log);
        self.term
            .send_if_modified(|had| std::mem::replace(had, term) != term);
    }

    async fn believe(
        &mut self,
        change: Option<topology::Change>,
        now: Instant,
    ) -> Result<(), Panicked> {
        let Some(change) = change else { return Ok(()) };
        warn!(?change, "the fabric changed");
        let effects = self.state.step(Event::FabricChanged(change));
        self.carry_out(effects, now).await
    }

    /// First the ports of what failed, then the tables, then the thinking.
    async fn carry_out(&mut self, effects: Effects, received: Instant) -> Result<(), Panicked> {
        effects.findings.iter().for_each(log);
        if let Some(protection) = effects.protect {
            let tables = protect(
                &protection.wiring,
                &protection.fabric,
                &self.desired.borrow().tables,
            );
            self.publish(desired(&protection, tables, received), protection)
                .await;
        }
        if let Some(realise) = effects.realise {
            let before = Arc::clone(&self.desired.borrow());
            let lowering = realise.clone();
            let work = move || lowered(&lowering, &before, received);
            let desired = self.shared.network.compute(work).await?;
            self.publish(desired, realise).await;
        }
        if let Some(question) = effects.question {
            let network = self.shared.network.clone();
            let thinking = async move { network.compute(move || question.answer()).await };
            self.thinking = Some(tokio::spawn(thinking));
        }
        let spent = self.archive.keep_generation(self.state.generation());
        spent.await.iter().for_each(log);
        Ok(())
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
        let (generation, plan) = (desired.generation, realise.plan.generation);
        info!(generation, plan, "publishing");
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

impl Waiting {
    fn tell(mut self, generation: u64, findings: &[Finding]) {
        self.findings.extend_from_slice(findings);
        let findings = self.findings;
        // Whoever asked may have gone; the event counts all the same.
        drop(self.receipt.send(Receipt {
            generation,
            findings,
        }));
    }
}

/// Lowers; tables that are equal to those before are the very same.
fn lowered(realise: &Realise, before: &Desired, received: Instant) -> Desired {
    let planned = Instant::now();
    let tables = lower(&realise.wiring, &realise.fabric, &realise.plan);
    let share = |(switch, tables): (SwitchId, Tables)| {
        let same = before.tables.get(&switch);
        let same = same.filter(|before| ***before == tables);
        (switch, same.map_or_else(|| Arc::new(tables), Arc::clone))
    };
    let tables = tables.into_iter().map(share).collect();
    let mut desired = desired(realise, tables, received);
    desired.made.planned = planned;
    desired
}

fn desired(
    realise: &Realise,
    tables: BTreeMap<SwitchId, Arc<Tables>>,
    received: Instant,
) -> Desired {
    let now = Instant::now();
    Desired {
        generation: realise.generation,
        tables,
        made: Made {
            received,
            planned: now,
            lowered: now,
        },
    }
}

fn log(finding: &Finding) {
    let Finding { about, text, .. } = finding;
    match finding.severity {
        Severity::Error => error!(about, "{text}"),
        Severity::Warning => warn!(about, "{text}"),
        Severity::Info => info!(about, "{text}"),
    }
}
