//! The task that owns the state and the sessions.
//!
//! [`Controller`](super::Controller) starts it; what follows from an event is done in
//! [`realising`](super::realising), what other controllers store comes in by
//! [`following`](super::following), what is seen of switches by [`sight`](super::sight). The
//! decision: everything that wakes it is one [`Wake`], taken in a fixed order, so that what it does
//! depends on what came and not on which came first within a poll.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use p4::Pipeline;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, SwitchId, spec};
use tracing::error;

use super::Clock;
use super::access::{Submission, Submitted};
use super::archive::Archive;
use super::drains::{Drainage, Drains};
use super::office::Office;
use super::running::Session;
use super::stages::Stopwatch;
use super::waiting::Waiting;
use crate::config::Config;
use crate::discovery::Antenna;
use crate::leadership::Leadership;
use crate::liveness::Liveness;
use crate::recorder::Recorder;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::mandate::Mandate;
use crate::southbound::session::Shared;
use crate::southbound::{Board, Desired, Made, Origin, Others, Target, Turns};
use crate::state::{Answer, Effects, Event, Realise, State};
use crate::store::Record;
use crate::traces::Teller;

/// The task that owns the state and the sessions.
pub(super) struct Runtime<N> {
    pub(super) shared: Shared<N>,
    pub(super) desired: watch::Sender<Arc<Desired>>,
    pub(super) realised: watch::Sender<Option<Realise>>,
    /// The edition in force and whether it is on trial.
    pub(super) edition: watch::Sender<(u64, bool)>,
    pub(super) mandate: watch::Sender<Mandate>,
    pub(super) sessions: BTreeMap<Target, Session>,
    pub(super) stop: CancellationToken,
    pub(super) state: State,
    pub(super) archive: Archive,
    pub(super) liveness: Liveness,
    /// When what works again is used, whoever knows of it; while something waits for that.
    pub(super) returns: Option<Instant>,
    /// What an operator drains.
    pub(super) drains: Drains,
    /// The same, for whoever looks.
    pub(super) drainage: watch::Sender<Drainage>,
    pub(super) leadership: Leadership,
    /// Where somebody else than the switches says who leads.
    pub(super) office: Option<Office>,
    /// The planner at work on the latest question.
    pub(super) thinking: Option<JoinHandle<Result<Answer, Panicked>>>,
    /// When and why it was asked.
    pub(super) asked: Origin,
    /// Who waits until an event is planned for, the earliest first.
    pub(super) waiting: VecDeque<Waiting>,
    /// What switches were last seen to have room for.
    pub(super) rooms: BTreeMap<SwitchId, usize>,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) stopwatch: Stopwatch,
    /// Who tells of changes, if anybody wants to know.
    pub(super) teller: Option<Teller>,
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
    pub(super) fn new(
        network: N,
        mut config: Config,
        archive: Archive,
        antenna: Antenna,
        (clock, recorder, teller): (Clock, Recorder, Option<Teller>),
    ) -> Self {
        config.term = archive.term(config.term);
        let now = Instant::now();
        let made = Made {
            origin: Origin::new("nothing", now),
            planned: now,
            lowered: now,
        };
        let nothing = Desired {
            generation: 0,
            tables: BTreeMap::new(),
            others: Others::Stay,
            made,
        };
        let (desired, to_sessions) = watch::channel(Arc::new(nothing));
        let mandate = watch::Sender::new(Mandate::Open { term: config.term });
        let office = Office::open(&network, &config, &mandate);
        let state = State::new(config.levels, archive.generation());
        Self {
            state: match config.discovery.is_enabled {
                true => state.probed(),
                false => state,
            },
            archive,
            liveness: Liveness::new(config.patience),
            returns: None,
            drains: Drains::new(config.drain),
            drainage: watch::Sender::default(),
            leadership: Leadership::new(config.term, config.grace),
            office,
            shared: Shared {
                network,
                turns: Turns::new(config.southbound.readers.get(), config.southbound.turn),
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
            edition: watch::Sender::default(),
            sessions: BTreeMap::new(),
            stop: CancellationToken::new(),
            thinking: None,
            asked: made.origin,
            waiting: VecDeque::new(),
            rooms: BTreeMap::new(),
            clock,
            recorder,
            stopwatch: Stopwatch::new(),
            teller,
        }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
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
        if let Some(teller) = self.teller {
            teller.close().await;
        }
    }

    /// Waits for something to do. While as many wait for a plan as may, nothing more is accepted.
    async fn wake(
        &mut self,
        queue: &mut mpsc::Receiver<Submission>,
        news: &mut watch::Receiver<()>,
    ) -> Wake {
        let has_room = self.waiting.len() < self.shared.config.event_queue.get();
        // What came back waits for a plan that knows of it, however late that is.
        let returns = self.returns_due();
        let due = [
            self.liveness.next_due(),
            self.leadership.next_due(),
            self.ledger_due(),
            returns.filter(|_| self.state.may_use_again()),
            self.drains.due(),
            self.archive.due(),
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
        let Submission {
            heard, received, ..
        } = submission;
        let origin = |effects: &Effects| Origin {
            heard,
            ..Origin::new(effects.cause, received)
        };
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
            let waiting = Waiting::new(inputs, origin(&effects), &effects, receipt);
            waiting.tell(self.state.generation(), &[]);
            return Ok(());
        }
        let effects = match event {
            Event::FabricLearned(fabric) => self.learn(fabric, received).await,
            event if event.is_of_policy() => self.take_stored(event).await,
            event => self.take(event).await,
        };
        let waiting = Waiting::new(self.state.inputs(), origin(&effects), &effects, receipt);
        match waiting.inputs > inputs {
            true => self.waiting.push_back(waiting),
            false => waiting.tell(effects.generation, &[]),
        }
        self.carry_out(effects, received).await
    }

    /// The one call of the state's transition.
    pub(super) fn step(&mut self, event: Event) -> Effects {
        let now = self.clock.now();
        let noted = self.recorder.note(&event, &self.state, now);
        let before = self.state.generation();
        let effects = self.state.step(event);
        self.recorder.came(noted, &effects, now);
        let drained = &self.state.ledger().latest().content.policy.drained;
        self.drains.begin(drained, before, Instant::now());
        self.show_drains();
        effects
    }

    /// Has the state take an event in, and stores what the next run must know of it.
    pub(super) async fn take(&mut self, event: Event) -> Effects {
        let mut effects = self.step(event);
        if let Some(record) = effects.record.take() {
            effects.findings.extend(self.archive.keep(record).await);
        }
        effects
    }

    /// Has the state take in a policy that an operator changes, if it can be stored: a copy takes
    /// it in first, and where it cannot be stored nothing has changed.
    async fn take_stored(&mut self, event: Event) -> Effects {
        let cause = event.kind();
        let considered = self.state.clone().step(event.clone());
        if let Some(record) = considered.record
            && let Err(why) = self.archive.store(record).await
        {
            // The answer may be lost, and the store hold the record; then it is overwritten soon.
            let text =
                format!("refused, since it could not be stored, and nothing is changed: {why}");
            return Effects {
                cause,
                generation: self.state.generation(),
                ..Effects::refusing(Finding::error("policy", text))
            };
        }
        Effects {
            record: None,
            ..self.step(event)
        }
    }

    /// Turns to another fabric of the same switches, with what is known of failures; the event that
    /// takes along what is known of jobs.
    pub(super) fn learned(&mut self, fabric: Fabric, now: Instant) -> Event {
        self.liveness.turn_to(&fabric, now);
        self.archive.carry(fabric, &self.state)
    }

    /// Takes another fabric in and stores it.
    async fn learn(&mut self, fabric: Fabric, now: Instant) -> Effects {
        let stored = Record::Fabric(spec::document(&fabric));
        let learned = self.learned(fabric, now);
        let mut effects = self.take(learned).await;
        if effects.refusal.is_none() {
            effects.findings.extend(self.archive.keep(stored).await);
        }
        effects
    }

    /// When the policy changes by itself, which is for the leader to see to.
    pub(super) fn ledger_due(&self) -> Option<Instant> {
        let leads = self.office.as_ref().is_none_or(Office::leads);
        let due = self.state.ledger().next_due().filter(|_| leads);
        due.map(|at| self.clock.instant(at))
    }

    /// Takes in a plan, and tells everyone who waited for it.
    async fn adopt(&mut self, answer: Answer) -> Result<(), Panicked> {
        let asked = self.asked;
        let first = self.waiting.front();
        let first = first.filter(|waiting| waiting.inputs <= answer.inputs());
        let first = first.map_or(asked, |waiting| waiting.origin);
        let origin = Origin {
            asked: asked.asked,
            ..first
        };
        let effects = self.step(Event::Planned(Box::new(answer)));
        let (generation, findings) = (effects.generation, effects.findings.clone());
        self.carry_out_since(effects, origin).await?;
        let planned = self.state.planned();
        while let Some(waiting) = self.waiting.pop_front_if(|next| next.inputs <= planned) {
            waiting.tell(generation, &findings);
        }
        if let Some(office) = &mut self.office {
            office.accept(planned);
        }
        Ok(())
    }
}

/// Waits for what others have stored.
async fn news_of(office: &mut Option<Office>) {
    match office {
        Some(office) => office.changed().await,
        None => std::future::pending().await,
    }
}
