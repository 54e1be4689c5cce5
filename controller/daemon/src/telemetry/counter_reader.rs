//! The task that reads counters of all switches, within a budget.
//!
//! Around [`CounterAggregator`]. Each switch has a turn every interval, in which some of its
//! counters are read: those after the ones that were read last. The decision: counters are read
//! over connections of their own. Nobody needs to be primary to read, a large answer never stands
//! before a write, and a switch that does not answer delays the reading of that switch alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::debug;

use super::counter_aggregator::{CounterAggregator, CounterSelection, MeasuredTraffic};
use crate::access::ControllerAccess;
use crate::config::{CountersConfig, SouthboundConfig};
use crate::southbound::{ClientError, CounterReading, SwitchClient, SwitchTarget};
use crate::state::PlanRollout;
use crate::supervision::TaskSupervisor;

/// Readings that wait; there is one task for each switch, and it waits for its turn.
const READINGS: usize = 256;
/// Between two looks at what all readings say.
const SELECTION_PERIOD: std::time::Duration = std::time::Duration::from_secs(1);

/// A reading of a switch.
type SwitchReading = (SwitchId, Instant, CounterReading);

/// The task.
pub(crate) struct CounterReader {
    access: ControllerAccess,
    limits: CountersConfig,
    southbound: SouthboundConfig,
    aggregator: CounterAggregator,
    rollout: watch::Receiver<Option<PlanRollout>>,
    measured: watch::Sender<Arc<MeasuredTraffic>>,
    tasks: BTreeMap<SwitchTarget, SwitchReadTask>,
    started: Instant,
}

/// The task of one switch, and what it is to read.
struct SwitchReadTask {
    wanted: watch::Sender<Arc<CounterSelection>>,
    task: JoinHandle<()>,
}

impl Drop for SwitchReadTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CounterReader {
    /// A reader, and where to see what it measures.
    pub(crate) fn new(
        access: ControllerAccess,
        limits: &CountersConfig,
        southbound: &SouthboundConfig,
    ) -> (Self, watch::Receiver<Arc<MeasuredTraffic>>) {
        let (measured, to_all) = watch::channel(Arc::default());
        let reader = Self {
            rollout: access.watch_rollout(),
            access,
            limits: *limits,
            southbound: southbound.clone(),
            aggregator: CounterAggregator::new(*limits),
            measured,
            tasks: BTreeMap::new(),
            started: Instant::now(),
        };
        (reader, to_all)
    }

    /// Reads until `stop`: everything if the configuration wants that, else what tells whether
    /// drains are complete.
    pub(crate) async fn run(mut self, supervisor: TaskSupervisor, stop: CancellationToken) {
        let running = supervisor
            .run_restarting("counter reader", &mut self, |task| task.run_readers().boxed());
        stop.run_until_cancelled(running).await;
    }

    async fn run_readers(&mut self) {
        self.tasks.clear();
        let (to_reader, mut readings) = mpsc::channel(READINGS);
        let mut drains = self.access.watch_drains();
        let mut selections = interval(SELECTION_PERIOD);
        selections.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.rollout.mark_changed();
        loop {
            tokio::select! {
                changed = self.rollout.changed() => match changed {
                    Ok(()) => self.assign_switches(&to_reader),
                    Err(_) => return,
                },
                changed = drains.changed() => match changed {
                    Ok(()) => self.assign_switches(&to_reader),
                    Err(_) => return,
                },
                _ = selections.tick() => {
                    if self.limits.is_enabled {
                        self.measured.send_replace(Arc::new(self.aggregator.measured_traffic()));
                    }
                    self.access.publish_link_use(self.aggregator.link_use());
                }
                Some((switch, at, counted)) = readings.recv() => {
                    let seconds = at.duration_since(self.started).as_secs_f64();
                    self.aggregator.record_reading(switch, seconds, &counted);
                }
            }
        }
    }

    /// Gives every switch of the fabric in force its part.
    fn assign_switches(&mut self, to_reader: &mpsc::Sender<SwitchReading>) {
        let Some(rollout) = self.rollout.borrow_and_update().clone() else {
            return;
        };
        if self.limits.is_enabled {
            self.aggregator.follow_plan(&rollout);
        } else {
            self.aggregator.follow_links(&rollout, &self.access.links_into_drained());
        }
        // An answer of before this selection must not be taken for one after it.
        self.access.publish_link_use(self.aggregator.link_use());
        let mut targets = SwitchTarget::all_in_fabric(&rollout.fabric);
        targets.retain(|target| {
            self.limits.is_enabled
                || self.aggregator.counters_to_read(target.switch) != CounterSelection::default()
        });
        // A reader that has ended has panicked; it is started again.
        self.tasks.retain(|target, turn| targets.contains(target) && !turn.task.is_finished());
        for target in targets {
            let wanted = Arc::new(self.aggregator.counters_to_read(target.switch));
            if let Some(turn) = self.tasks.get(&target) {
                turn.wanted.send_replace(wanted);
            } else {
                self.spawn_reader(target, wanted, to_reader.clone());
            }
        }
    }

    fn spawn_reader(
        &mut self,
        target: SwitchTarget,
        wanted: Arc<CounterSelection>,
        to_reader: mpsc::Sender<SwitchReading>,
    ) {
        let (wanted, of_switch) = watch::channel(wanted);
        let meter = SwitchCounterReader {
            access: self.access.clone(),
            limits: self.limits,
            southbound: self.southbound.clone(),
            target: target.clone(),
            wanted: of_switch,
            next: 0,
        };
        let task = tokio::spawn(meter.read_until_closed(to_reader));
        self.tasks.insert(target, SwitchReadTask { wanted, task });
    }
}

/// Reads one switch.
struct SwitchCounterReader {
    access: ControllerAccess,
    limits: CountersConfig,
    southbound: SouthboundConfig,
    target: SwitchTarget,
    wanted: watch::Receiver<Arc<CounterSelection>>,
    /// Where the next turn begins, among pins and then cells.
    next: usize,
}

impl SwitchCounterReader {
    async fn read_until_closed(mut self, to_reader: mpsc::Sender<SwitchReading>) {
        for failures in 1.. {
            let Err(error) = self.read_connected(&to_reader).await else {
                return;
            };
            debug!(switch = self.target.name, %error, "counters are not read");
            tokio::time::sleep(self.southbound.backoff.wait_after(failures)).await;
        }
    }

    /// One connection, until it fails, or nobody wants to know any more.
    async fn read_connected(
        &mut self,
        to_reader: &mpsc::Sender<SwitchReading>,
    ) -> Result<(), ClientError> {
        let client = SwitchClient::connect(&self.target.address, &self.southbound).await?;
        let mut turns = interval(self.limits.interval);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            if !self.is_converged() {
                continue;
            }
            let part = self.next_selection();
            if part == CounterSelection::default() {
                continue;
            }
            let counted = client.read_counts(&part.pins, &part.cells).await?;
            let reading = (self.target.switch, Instant::now(), counted);
            if to_reader.send(reading).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Whether the switch holds its desired tables. While it is written, reads would slow writes
    /// down, and selected pins may not exist yet.
    fn is_converged(&self) -> bool {
        let line = self.access.status_board().switch_status(self.target.switch);
        let verified = line.and_then(|line| line.verified);
        verified.is_some_and(|seen| seen.generation == self.access.desired_tables().generation)
    }

    /// What this turn reads: as many as the budget allows, after those of the last turn.
    fn next_selection(&mut self) -> CounterSelection {
        let wanted = Arc::clone(&self.wanted.borrow_and_update());
        let (pins, all) = (wanted.pins.len(), wanted.pins.len() + wanted.cells.len());
        let rate = f64::from(self.limits.entries_per_second.get());
        let budget = (rate * self.limits.interval.as_secs_f64()).ceil() as usize;
        let mut part = CounterSelection::default();
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
