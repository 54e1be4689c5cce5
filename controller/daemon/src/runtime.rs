//! Puts the controller together: one task that feeds the state, one session per switch.
//!
//! Events come in through a bounded queue, [`State::step`] decides, [`lower`](crate::lower()) makes
//! tables, a `watch` gives them to the sessions; what the sessions learn comes back over the
//! [`Board`], through [`Liveness`]. The decision: the task never thinks.
//! Planning and lowering run on the blocking pool, planning beside everything else, so that a
//! failure is repaired while the planner is busy, and the state has one owner at any time.

mod access;
mod archive;
mod clock;
mod handle;
mod log;
mod making;
mod office;
mod running;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use p4::Pipeline;
use planner::Policy;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, SwitchId};
use tracing::{error, info, warn};

pub(crate) use self::access::Submission;
use self::access::Submitted;
pub use self::access::{Access, ControllerError, Receipt, Timing};
use self::archive::Archive;
pub use self::clock::Clock;
pub use self::handle::ControllerHandle;
use self::log::log;
use self::making::{desired, lowered};
use self::office::Office;
use self::running::Session;
use self::waiting::Waiting;
use crate::config::Config;
use crate::discovery::{Antenna, Scout, Surroundings};
use crate::leadership::Leadership;
use crate::liveness::{Health, Liveness, Part};
use crate::lower::protect;
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::mandate::Mandate;
use crate::southbound::session::{self, Shared};
use crate::southbound::{Board, Desired, Grpc, Made, Target};
use crate::state::{Answer, Effects, Event, Realise, State};
use crate::store::Record;

/// Packets from switches that wait to be looked at.
const HEARD: usize = 4_096;

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
        let clock = Clock::start();
        let (started, lost) = archive.recall(fabric, &policy, clock.now());
        lost.iter().for_each(log);
        let shutdown_deadline = config.shutdown_deadline;
        let (events, queue) = mpsc::channel(config.event_queue.get());
        let (scout, antenna) = Scout::new(&config.discovery, HEARD);
        let found = scout.found();
        let runtime = Runtime::new(network, config, archive, antenna, clock);
        let around = Surroundings {
            realised: runtime.realised.subscribe(),
            board: runtime.shared.board.clone(),
            events: events.clone(),
        };
        tokio::spawn(scout.run(around, runtime.stop.clone()));
        let access = Access {
            clock: runtime.clock,
            events,
            desired: runtime.desired.subscribe(),
            realised: runtime.realised.subscribe(),
            board: runtime.shared.board.clone(),
            mandate: runtime.shared.mandate.clone(),
            found,
        };
        let handle = ControllerHandle {
            access,
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
    mandate: watch::Sender<Mandate>,
    sessions: BTreeMap<Target, Session>,
    stop: CancellationToken,
    state: State,
    archive: Archive,
    liveness: Liveness,
    leadership: Leadership,
    /// Where somebody else than the switches says who leads.
    office: Option<Office>,
    /// The planner at work on the latest question.
    thinking: Option<JoinHandle<Result<Answer, Panicked>>>,
    /// Who waits until an event is planned for, the earliest first.
    waiting: VecDeque<Waiting>,
    /// What switches were last seen to have room for.
    rooms: BTreeMap<SwitchId, usize>,
    clock: Clock,
}

/// What wakes the task.
enum Wake {
    Submitted(Submission),
    Answered(Result<Answer, Panicked>),
    /// A session has something to say, or what was seen has lasted.
    Look,
    /// Something that all controllers share may have changed.
    News,
    Stop,
}

impl<N: Network> Runtime<N> {
    fn new(
        network: N,
        mut config: Config,
        archive: Archive,
        antenna: Antenna,
        clock: Clock,
    ) -> Self {
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
        let mandate = watch::Sender::new(Mandate::Open { term: config.term });
        let office = Office::open(&config, &mandate);
        let state = State::new(config.levels, archive.generation());
        Self {
            state: match config.discovery.is_enabled {
                true => state.probed(),
                false => state,
            },
            archive,
            liveness: Liveness::new(config.patience),
            leadership: Leadership::new(config.term, config.grace),
            office,
            shared: Shared {
                network,
                config: Arc::new(config),
                pipeline: Arc::new(Pipeline::fabric()),
                desired: to_sessions,
                mandate: mandate.subscribe(),
                board: Board::default(),
                antenna,
            },
            mandate,
            desired,
            realised: watch::Sender::new(None),
            sessions: BTreeMap::new(),
            stop: CancellationToken::new(),
            thinking: None,
            waiting: VecDeque::new(),
            rooms: BTreeMap::new(),
            clock,
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
                Wake::News => self.follow().await,
            };
            if let Err(Panicked) = done {
                error!("planning panicked; stopping, and leaving the switches as they are");
                break;
            }
        }
        for session in self.sessions.into_values() {
            session.end().await;
        }
        if let Some(office) = self.office {
            office.close().await;
        }
    }

    /// Waits for something to do. While as many wait for a plan as may, nothing more is accepted.
    async fn wake(
        &mut self,
        queue: &mut mpsc::Receiver<Submission>,
        news: &mut watch::Receiver<()>,
    ) -> Wake {
        let has_room = self.waiting.len() < self.shared.config.event_queue.get();
        let due = [
            self.liveness.next_due(),
            self.leadership.next_due(),
            self.ledger_due(),
        ];
        let due = due.into_iter().flatten().min();
        let (thinking, office) = (&mut self.thinking, &mut self.office);
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
            () = news_of(office) => Wake::News,
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
            Submitted::Look(look) => {
                (look.0)(&self.state);
                return Ok(());
            }
        };
        let inputs = self.state.inputs();
        if let Some(refusal) = self
            .office
            .as_ref()
            .and_then(|office| office.refuses(&event))
        {
            let effects = Effects::refusing(refusal);
            let waiting = Waiting::new(inputs, received, &effects, receipt);
            waiting.tell(self.state.generation(), &[]);
            return Ok(());
        }
        let effects = self.take(event).await;
        let waiting = Waiting::new(self.state.inputs(), received, &effects, receipt);
        match waiting.inputs > inputs {
            true => self.waiting.push_back(waiting),
            false => waiting.tell(effects.generation, &[]),
        }
        self.carry_out(effects, received).await
    }

    /// Has the state take an event in, and stores what the next run must know of it.
    async fn take(&mut self, event: Event) -> Effects {
        let mut effects = self.state.step(event);
        if let Some(record) = effects.record.take() {
            effects.findings.extend(self.archive.keep(record).await);
        }
        effects
    }

    /// When the policy changes by itself, which is for the leader to see to.
    fn ledger_due(&self) -> Option<Instant> {
        let leads = self.office.as_ref().is_none_or(Office::leads);
        let due = self.state.ledger().next_due().filter(|_| leads);
        due.map(|at| self.clock.instant(at))
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
        if let Some(office) = &mut self.office {
            office.accept(planned);
        }
        Ok(())
    }

    /// Takes in what the leader has stored. Once elected, everything again, as from then on no
    /// other can store anything; it is planned for before this controller writes to switches.
    async fn follow(&mut self) -> Result<(), Panicked> {
        let now = Instant::now();
        let Some(office) = &mut self.office else {
            return Ok(());
        };
        let Some(news) = office.news() else {
            return Ok(());
        };
        let turns = office.turns(news.elected);
        if turns {
            let desk = news.elected.map(|_| office.desk());
            self.archive.share(desk);
        }
        let mut lost = Vec::new();
        for record in self.archive.follow(news.memory.clone()) {
            let event = archive::read(&record, self.state.fabric());
            if let Some(event) = archive::or_lost(event, &mut lost) {
                let effects = self.state.step(event);
                self.carry_out(effects, now).await?;
            }
        }
        if turns && news.elected.is_some() {
            let effects = self.state.step(Event::Elected(news.memory.generation));
            for record in self.archive.missing(self.state.records()) {
                lost.extend(self.archive.keep(record).await);
            }
            if let Some(office) = &mut self.office {
                office.prepare(self.state.inputs());
            }
            self.carry_out(effects, now).await?;
        }
        lost.iter().for_each(log);
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
        if self.office.is_none() {
            self.weigh(&standings, now).await;
        }
        if self.ledger_due().is_some_and(|due| due <= now) {
            let effects = self.take(Event::TimeCame(self.clock.now())).await;
            self.carry_out(effects, now).await?;
        }
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
        let mandate = Mandate::Open { term };
        self.mandate
            .send_if_modified(|had| std::mem::replace(had, mandate) != mandate);
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

/// Waits for what others have stored.
async fn news_of(office: &mut Option<Office>) {
    match office {
        Some(office) => office.changed().await,
        None => std::future::pending().await,
    }
}
