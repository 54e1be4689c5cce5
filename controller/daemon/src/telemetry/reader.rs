//! The task that reads counters of all switches, within a budget.
//!
//! Around [`Gauges`]. Each switch has a turn every interval, in which some of its counters are
//! read: those after the ones that were read last. The decision: counters are read over
//! connections of their own. Nobody needs to be primary to read, a large answer never stands before
//! a write, and a switch that does not answer delays the reading of that switch alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::debug;

use super::gauges::{Counted, Gauges, Measured, Wanted};
use crate::config::{Counters, Southbound};
use crate::runtime::Access;
use crate::southbound::{Client, ClientError, Target};
use crate::state::Realise;

/// Readings that wait; there is one task for each switch, and it waits for its turn.
const READINGS: usize = 256;
/// Between two looks at what all readings say.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

/// A reading of a switch.
type Reading = (SwitchId, Instant, Counted);

/// The task.
pub(crate) struct Reader {
    access: Access,
    limits: Counters,
    southbound: Southbound,
    gauges: Gauges,
    realised: watch::Receiver<Option<Realise>>,
    measured: watch::Sender<Arc<Measured>>,
    turns: BTreeMap<Target, Turn>,
    since: Instant,
}

/// The task of one switch, and what it is to read.
struct Turn {
    wanted: watch::Sender<Arc<Wanted>>,
    task: JoinHandle<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// A reader, and where to see what it measures.
    pub(crate) fn new(
        access: Access,
        limits: &Counters,
        southbound: &Southbound,
    ) -> (Self, watch::Receiver<Arc<Measured>>) {
        let (measured, to_all) = watch::channel(Arc::default());
        let reader = Self {
            realised: access.watch_realised(),
            access,
            limits: limits.clone(),
            southbound: southbound.clone(),
            gauges: Gauges::new(limits.clone()),
            measured,
            turns: BTreeMap::new(),
            since: Instant::now(),
        };
        (reader, to_all)
    }

    /// Reads until `stop`, if the configuration wants that.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        if self.limits.is_enabled {
            stop.run_until_cancelled(self.read()).await;
        }
    }

    async fn read(&mut self) {
        let (to_reader, mut readings) = mpsc::channel(READINGS);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.realised.mark_changed();
        loop {
            tokio::select! {
                changed = self.realised.changed() => match changed {
                    Ok(()) => self.settle(&to_reader),
                    Err(_) => return,
                },
                _ = looks.tick() => {
                    self.measured.send_replace(Arc::new(self.gauges.measured()));
                }
                Some((switch, at, counted)) = readings.recv() => {
                    let at = at.duration_since(self.since).as_secs_f64();
                    self.gauges.take(switch, at, &counted);
                }
            }
        }
    }

    /// Gives every switch of the fabric in force its part.
    fn settle(&mut self, to_reader: &mpsc::Sender<Reading>) {
        let Some(realised) = self.realised.borrow_and_update().clone() else {
            return;
        };
        self.gauges.settle_on(&realised);
        let targets = Target::all(&realised.fabric);
        self.turns.retain(|target, _| targets.contains(target));
        for target in targets {
            let wanted = Arc::new(self.gauges.wanted(target.switch));
            if let Some(turn) = self.turns.get(&target) {
                turn.wanted.send_replace(wanted);
            } else {
                self.begin(target, wanted, to_reader.clone());
            }
        }
    }

    fn begin(&mut self, target: Target, wanted: Arc<Wanted>, to_reader: mpsc::Sender<Reading>) {
        let (wanted, of_switch) = watch::channel(wanted);
        let meter = Meter {
            access: self.access.clone(),
            limits: self.limits.clone(),
            southbound: self.southbound.clone(),
            target: target.clone(),
            wanted: of_switch,
            next: 0,
        };
        let task = tokio::spawn(meter.read(to_reader));
        self.turns.insert(target, Turn { wanted, task });
    }
}

/// Reads one switch.
struct Meter {
    access: Access,
    limits: Counters,
    southbound: Southbound,
    target: Target,
    wanted: watch::Receiver<Arc<Wanted>>,
    /// Where the next turn begins, among pins and then cells.
    next: usize,
}

impl Meter {
    async fn read(mut self, to_reader: mpsc::Sender<Reading>) {
        for failures in 1.. {
            let Err(error) = self.connected(&to_reader).await else {
                return;
            };
            debug!(switch = self.target.name, %error, "counters are not read");
            tokio::time::sleep(self.southbound.retry.after(failures)).await;
        }
    }

    /// One connection, until it fails, or nobody wants to know any more.
    async fn connected(&mut self, to_reader: &mpsc::Sender<Reading>) -> Result<(), ClientError> {
        let client = Client::connect(&self.target.address, &self.southbound).await?;
        let mut turns = interval(self.limits.interval);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            if !self.is_quiet() {
                continue;
            }
            let part = self.part();
            if part == Wanted::default() {
                continue;
            }
            let counted = client.counts(&part.pins, &part.cells).await?;
            let reading = (self.target.switch, Instant::now(), counted);
            if to_reader.send(reading).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Whether the switch holds what it shall: while it is written, it has better things to do, and
    /// pins that are wanted may not be there.
    fn is_quiet(&self) -> bool {
        let line = self.access.board().of(self.target.switch);
        let verified = line.and_then(|line| line.verified);
        verified.is_some_and(|seen| seen.generation == self.access.desired().generation)
    }

    /// What this turn reads: as many as the budget allows, after those of the last turn.
    fn part(&mut self) -> Wanted {
        let wanted = Arc::clone(&self.wanted.borrow_and_update());
        let (pins, all) = (wanted.pins.len(), wanted.pins.len() + wanted.cells.len());
        let budget = f64::from(self.limits.entries_per_second.get());
        let budget = (budget * self.limits.interval.as_secs_f64()).ceil() as usize;
        let mut part = Wanted::default();
        for step in 0..budget.min(all) {
            match (self.next + step) % all {
                pin if pin < pins => part.pins.push(wanted.pins[pin].clone()),
                cell => part.cells.push(wanted.cells[cell - pins]),
            }
        }
        self.next = (self.next + budget.min(all)).checked_rem(all).unwrap_or(0);
        part
    }
}
