//! What happened, in the order in which it was seen: events for operators.
//!
//! A task beside the [`runtime`](crate::runtime) looks at what everybody may look at (what is in
//! force, the board, the mandate, what probes find) and compares it with what it saw before; a
//! `Scene` is one look, `Scene::since` what two of them differ in, [`Ring`]
//! where the latest are kept. The decision: it is an onlooker. The controller does not know of it,
//! so neither a slow chronicle nor a slow reader can cost the controller anything; what came and
//! went between two looks is not told.

mod happening;
mod ring;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use self::happening::{Happening, Kind, Move};
pub use self::ring::{Page, Position, Ring};
use self::scene::{Line, Scene};
use crate::discovery::Discovery;
use crate::ledger::Edition;
use crate::runtime::{Access, ControllerError, Drainage};
use crate::southbound::mandate::Mandate;
use crate::state::{Realise, State};

/// Between two looks. A person sees no difference, and a thousand sessions that say something at
/// once are looked at once.
const PAUSE: Duration = Duration::from_millis(50);

/// The task that watches and tells.
#[derive(Debug)]
pub(crate) struct Chronicler {
    ring: watch::Sender<Ring>,
}

impl Chronicler {
    /// One that keeps the latest `kept` of what happens in the run that started at `run`.
    pub(crate) fn new(run: u64, kept: usize) -> Self {
        let ring = watch::Sender::new(Ring::new(run, kept));
        Self { ring }
    }

    /// What it has to tell, as it comes.
    pub(crate) fn told(&self) -> watch::Receiver<Ring> {
        self.ring.subscribe()
    }

    /// Watches until the controller ends or `stop`.
    pub(crate) async fn run(self, access: Access, stop: CancellationToken) {
        // That the controller has stopped is the end, not a failure.
        drop(stop.run_until_cancelled(self.watch(&access)).await);
    }

    async fn watch(&self, access: &Access) -> Result<(), ControllerError> {
        let mut changes = Changes::of(access);
        let mut scene = Scene::default();
        loop {
            let next = look(access, &scene).await?;
            let told = next.since(&scene);
            if !told.is_empty() {
                let now = access.clock().now();
                self.ring.send_modify(|ring| ring.push(now, told));
            }
            scene = next;
            changes.next().await?;
            sleep(PAUSE).await;
        }
    }
}

/// Everything that can be seen now.
async fn look(access: &Access, before: &Scene) -> Result<Scene, ControllerError> {
    let known = before.edition();
    let (profiled, chapters) = access
        .look(move |state: &State| (state.told().profiled.clone(), chapters(state, known)))
        .await?;
    let mut lines = Vec::new();
    access
        .board()
        .for_each(|switch, status| lines.push(Line::of(switch, status)));
    let realised = access.realised();
    let found = access.discovery().borrow().findings.clone();
    let planned = realised.iter().flat_map(|had| &had.report.findings);
    let drainage = access.drainage().borrow().clone();
    let findings = planned.cloned().chain(found);
    let findings = findings.chain(drainage.finding()).collect();
    Ok(Scene {
        profiled,
        chapters,
        lines,
        findings,
        mandate: *access.mandate().borrow(),
        timing: Some(access.latest_timing()),
        drainage,
        realised,
    })
}

/// The editions from number `known` on, the earliest first, each with what it changed.
fn chapters(state: &State, known: u64) -> Vec<(Edition, Vec<String>)> {
    let history = state.ledger().history().into_iter();
    let news = history.take_while(|(edition, _)| edition.number >= known);
    let mut news: Vec<_> = news
        .map(|(edition, changes)| (edition.clone(), changes))
        .collect();
    news.reverse();
    news
}

/// Whatever may have something new to see.
struct Changes {
    realised: watch::Receiver<Option<Realise>>,
    edition: watch::Receiver<(u64, bool)>,
    board: watch::Receiver<()>,
    mandate: watch::Receiver<Mandate>,
    found: watch::Receiver<Arc<Discovery>>,
    drainage: watch::Receiver<Drainage>,
}

impl Changes {
    fn of(access: &Access) -> Self {
        Self {
            realised: access.watch_realised(),
            edition: access.watch_edition(),
            board: access.board().changes(),
            mandate: access.mandate(),
            found: access.discovery(),
            drainage: access.drainage(),
        }
    }

    /// Waits for the next of them.
    async fn next(&mut self) -> Result<(), ControllerError> {
        let (found, board) = (&mut self.found, &mut self.board);
        let changed = tokio::select! {
            changed = self.realised.changed() => changed,
            changed = self.edition.changed() => changed,
            changed = self.mandate.changed() => changed,
            changed = self.drainage.changed() => changed,
            changed = board.changed() => changed,
            // Where no probes are wanted, nobody is there to find anything.
            Ok(()) = found.changed() => Ok(()),
        };
        changed.map_err(|_| ControllerError::Stopped)
    }
}
