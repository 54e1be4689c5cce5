//! The testbed of one schedule beside the controllers: switches, etcd and random streams.
//!
//! [`fake_network`](super::fake_network) delivers messages by what is drawn here. The decision: the
//! order in which tasks run at one instant is undefined, so nothing may depend on it. Each pair of
//! controller and switch draws from its own random stream, and its messages arrive in milliseconds
//! in which no other pair's do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fake_disk::FakeDisk;
use super::fake_etcd::FakeEtcd;
use super::fake_switch::FakeSwitch;
use super::fault_schedule::{
    CONTROLLERS, ETCD, FaultSchedule, LeadershipMode, SWITCHES, random_stream,
};

/// The longest delay of a message without faults.
pub(super) const TRIP: Duration = Duration::from_millis(2);

/// Milliseconds of a cycle in which every pair has a slot of its own.
pub(super) const SLOTS: u64 = 16;
/// When a schedule begins by a wall clock that is right, since 1970.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);
/// The random stream of the first pair; those below belong to the schedule.
const FIRST_STREAM: u64 = 16;

/// The shared state of a run.
pub(super) struct FaultTestbed {
    pub(super) devices: Vec<FakeSwitch>,
    /// The state of etcd.
    pub(super) cluster: FakeEtcd,
    pub(super) led: LeadershipMode,
    /// Pairs of controller and switch without a connection.
    pub(super) cuts: BTreeSet<(u32, usize)>,
    /// Notifies connections that a cut has been made.
    pub(super) cut_changes: watch::Sender<()>,
    /// Whether messages are lost and delayed.
    pub(super) is_lossy: bool,
    /// The latest term in which each controller bid, as its store would record it.
    pub(super) terms: BTreeMap<u32, u64>,
    /// Until when the process of each controller is stopped.
    pub(super) paused: BTreeMap<u32, Instant>,
    /// By how many hours the wall clock of each controller is wrong when it starts next.
    pub(super) clock_hours: BTreeMap<u32, i64>,
    /// The disk of each controller that has one.
    pub(super) disks: BTreeMap<u32, FakeDisk>,
    /// Violations of invariants that hold at all times.
    pub(super) violations: Vec<String>,
    /// A hash over everything that was written.
    pub(super) trace: u64,
    seed: u64,
    begun: Instant,
    random: BTreeMap<EndpointPair, ChaCha8Rng>,
}

/// A controller and a switch, or etcd.
pub(super) type EndpointPair = (u32, usize);

/// What happens to a message.
pub(super) enum MessageFate {
    Arrives(Duration),
    Lost,
    /// It arrives after its sender has timed out.
    Late(Duration),
    /// It arrives, and a second time later.
    Twice(Duration),
}

impl FaultTestbed {
    pub(super) fn new(seed: u64, schedule: &FaultSchedule) -> Self {
        let FaultSchedule { dialect, led, has_disks, .. } = *schedule;
        let disks = (1..=CONTROLLERS).map(|controller| (controller, FakeDisk::default()));
        Self {
            devices: (0..SWITCHES).map(|_| FakeSwitch::new(dialect)).collect(),
            cluster: FakeEtcd::default(),
            led,
            cuts: BTreeSet::new(),
            cut_changes: watch::Sender::default(),
            is_lossy: true,
            terms: BTreeMap::new(),
            paused: BTreeMap::new(),
            clock_hours: BTreeMap::new(),
            disks: disks.filter(|_| has_disks).collect(),
            violations: Vec::new(),
            trace: seed,
            seed,
            begun: Instant::now(),
            random: BTreeMap::new(),
        }
    }

    /// Stops the process of a controller, unless it is stopped for longer already.
    pub(super) fn pause_until(&mut self, controller: u32, until: Instant) {
        let latest = self.paused.entry(controller).or_insert(until);
        *latest = until.max(*latest);
    }

    /// Whether the process of a controller is stopped.
    pub(super) fn is_paused(&self, controller: u32) -> bool {
        self.paused.get(&controller).is_some_and(|until| Instant::now() < *until)
    }

    /// The time since 1970 by the wall clock of a controller.
    pub(super) fn wall_clock(&self, controller: u32) -> Duration {
        let hours = self.clock_hours.get(&controller).copied().unwrap_or(0);
        let now = EPOCH + self.begun.elapsed();
        let wrong = Duration::from_secs(3_600 * hours.unsigned_abs());
        if hours < 0 { now - wrong } else { now + wrong }
    }

    /// Does something to the disk of a controller, if it has one.
    pub(super) fn with_disk(&self, controller: u32, change: impl FnOnce(&FakeDisk)) {
        if let Some(disk) = self.disks.get(&controller) {
            change(disk);
        }
    }

    /// Has etcd changed by someone else than its clients, whose connections it ends.
    pub(super) fn with_etcd(&mut self, change: impl FnOnce(&mut FakeEtcd)) {
        change(&mut self.cluster);
        self.cut_changes.send_replace(());
    }

    pub(super) fn pair_random(&mut self, pair: EndpointPair) -> &mut ChaCha8Rng {
        let seed = self.seed;
        let stream = || random_stream(seed, FIRST_STREAM + slot_of_pair(pair));
        self.random.entry(pair).or_insert_with(stream)
    }

    /// The first slot of a pair after a delay.
    pub(super) fn next_slot(&self, pair: EndpointPair, after: Duration) -> Instant {
        let at = (Instant::now() + after).duration_since(self.begun).as_millis() as u64;
        let wait = (SLOTS + slot_of_pair(pair) - at % SLOTS) % SLOTS;
        self.begun + Duration::from_millis(at + wait)
    }

    pub(super) fn draw_fate(&mut self, pair: EndpointPair, deadline: Duration) -> MessageFate {
        let random = self.pair_random(pair);
        let trip = TRIP.mul_f64(random.random_range(0.0..=1.0));
        let chance = random.random_range(0..100);
        match chance {
            0..=1 if self.is_lossy => MessageFate::Lost,
            2..=3 if self.is_lossy => MessageFate::Late(deadline + 20 * trip),
            4..=5 if self.is_lossy => MessageFate::Twice(trip),
            6..=11 if self.is_lossy => MessageFate::Arrives(10 * trip),
            _ => MessageFate::Arrives(trip),
        }
    }

    pub(super) fn record_word(&mut self, what: u64) {
        // FNV-1a over words.
        self.trace = (self.trace ^ what).wrapping_mul(0x0100_0000_01b3);
    }
}

/// The slot of a pair; slot 0 is the schedule's.
fn slot_of_pair((controller, switch): EndpointPair) -> u64 {
    1 + u64::from(controller - 1) * (ETCD as u64 + 1) + switch as u64
}
