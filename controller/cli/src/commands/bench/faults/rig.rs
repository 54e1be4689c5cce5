//! The network between controllers and switches of one world, and everything that it does wrong.
//!
//! It stands where gRPC would. The decision: a message takes its time and may be lost on the way
//! there, on the way back, or arrive after whoever sent it has given up; which it is, the
//! [`world`](super::world) draws.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use controller::config::{Etcd, Southbound};
use controller::etcd::EtcdError;
use controller::southbound::arbitration::ElectionId;
use controller::southbound::connection::{
    Connection, Conversation, Entries, Heard, Network, Panicked, Say,
};
use controller::southbound::{Address, ClientError, Verdict};
use futures::{StreamExt, stream};
use p4::codec::{Refusal, WriteError};
use p4::{Extent, Pipeline, Tables, Update, UpdateKind, apply};
use rand::Rng;
use switch::election::SessionId;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Code;

use super::device::Device;
use super::mutant::Mutant;
use super::registry::Seat;
use super::schedule::Led;
use super::world::{Fate, Pair, TRIP, World};

/// Messages that wait on a stream.
const NOTICES: usize = 64;
/// The longest that a switch holds a stream for alive whose controller is cut off.
const KEEPALIVE: Duration = Duration::from_millis(200);

/// One controller's way to the switches of a world.
#[derive(Clone)]
pub(super) struct Rig {
    /// Shared by everything in the world. A lock, because the seam asks for values that any thread
    /// may hold; there is one thread, and nobody waits.
    world: Arc<Mutex<World>>,
    controller: u32,
    mutant: Mutant,
    remembered: Arc<Mutex<BTreeMap<usize, Tables>>>,
}

/// A connection.
pub(super) struct Line {
    rig: Rig,
    switch: usize,
    incarnation: u64,
    deadline: Duration,
    /// Whether the last word of the switch that arrived was that this controller is primary.
    is_primary: Arc<Mutex<bool>>,
}

impl Rig {
    pub(super) fn new(world: Arc<Mutex<World>>, controller: u32, mutant: Mutant) -> Self {
        Self {
            world,
            controller,
            mutant,
            remembered: Arc::default(),
        }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub(super) fn mutant(&self) -> Mutant {
        self.mutant
    }

    /// What becomes of a message between this controller and a switch, or etcd.
    pub(super) fn fate(&self, with: usize, deadline: Duration) -> Fate {
        self.world().fate((self.controller, with), deadline)
    }

    /// Waits, and then for a moment in which no other pair's messages arrive.
    pub(super) async fn wait(&self, with: usize, after: Duration) {
        let moment = self.world().moment((self.controller, with), after);
        sleep_until(moment).await;
    }

    pub(super) fn is_cut(&self, with: usize) -> bool {
        self.world().cuts.contains(&(self.controller, with))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network for Rig {
    type Connection = Line;
    type Registry = Seat;

    async fn connect(&self, address: &Address, limits: &Southbound) -> Result<Line, ClientError> {
        let invalid = |_| ClientError::Address(address.p4runtime.clone());
        let switch: usize = address.p4runtime.parse().map_err(invalid)?;
        let incarnation = self.world().devices[switch].incarnation;
        let line = Line {
            rig: self.clone(),
            switch,
            incarnation,
            deadline: limits.rpc_deadline,
            is_primary: Arc::default(),
        };
        line.trip("connect").await?;
        Ok(line)
    }

    async fn registry(&self, _: &str, etcd: &Etcd) -> Result<Seat, EtcdError> {
        Seat::take(self.clone(), etcd.lease, etcd.deadline).await
    }

    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        Ok(work())
    }
}

impl Line {
    /// One way of a message; an error if it does not arrive, or nobody is there.
    async fn trip(&self, call: &'static str) -> Result<(), ClientError> {
        let fate = self.rig.fate(self.switch, self.deadline);
        match fate {
            // Once more is the same, for whatever changes nothing that is not there already.
            Fate::Arrives(after) | Fate::Twice(after) => self.wait(after).await,
            Fate::Lost | Fate::Late(_) => {
                self.wait(self.deadline).await;
                return Err(ClientError::Deadline(call));
            }
        }
        if self.is_cut() {
            self.wait(self.deadline).await;
            return Err(ClientError::Deadline(call));
        }
        match self.is_alive() {
            true => Ok(()),
            false => Err(failed(call, Code::Unavailable)),
        }
    }

    fn pair(&self) -> Pair {
        (self.rig.controller, self.switch)
    }

    /// A share that is drawn.
    fn chance(&self) -> f64 {
        self.rig.world().random(self.pair()).random_range(0.0..=1.0)
    }

    async fn wait(&self, after: Duration) {
        self.rig.wait(self.switch, after).await;
    }

    fn is_cut(&self) -> bool {
        self.rig.is_cut(self.switch)
    }

    fn is_alive(&self) -> bool {
        let world = self.rig.world();
        let device = &world.devices[self.switch];
        device.is_on && device.incarnation == self.incarnation
    }

    /// Something that happens on the switch.
    fn on_device<R>(&self, what: impl FnOnce(&mut Device) -> R) -> R {
        what(&mut self.rig.world().devices[self.switch])
    }

    /// A controller that has heard that another is primary writes nothing more, nor does one whose
    /// lease has ended.
    fn check_mastership(&self, call: &str) {
        let (controller, switch) = (self.rig.controller, self.switch);
        let is_primary = *lock(&self.is_primary);
        let mut world = self.rig.world();
        let leads =
            world.led == Led::BySwitches || world.cluster.is_led_by(controller, Instant::now());
        let why = match (is_primary, leads) {
            (true, true) => return,
            (false, _) => "as backup",
            (true, false) => "without a lease",
        };
        let what = format!("controller {controller} calls {call} of switch {switch} {why}");
        world.violations.push(what);
    }

    /// The same line, for what happens beside its calls.
    fn again(&self) -> Self {
        Self {
            rig: self.rig.clone(),
            is_primary: Arc::clone(&self.is_primary),
            ..*self
        }
    }

    /// Carries bids to the switch until the controller has hung up, which the switch notices later.
    async fn carry(self, session: SessionId, mut said: mpsc::Receiver<Say>) {
        while let Some(said) = said.recv().await {
            if self.rig.mutant == Mutant::BidsOnce {
                continue;
            }
            // A stream that loses a message has ended.
            if self.trip("StreamChannel").await.is_err() {
                break;
            }
            if let Say::Bid(bid) = said {
                let bid = self.spelled(bid);
                self.on_device(|device| device.bid(session, bid));
            }
        }
        let share = self.chance();
        self.wait(KEEPALIVE.mul_f64(share)).await;
        if self.is_alive() {
            self.on_device(|device| device.close(session));
        }
    }

    /// The next word of the switch, after its time; `None` once the line is dead.
    async fn next(&self, verdicts: &mut mpsc::Receiver<Verdict>) -> Option<Heard> {
        loop {
            let mut cuts = self.rig.world().cut_news.subscribe();
            if self.is_cut() {
                return None;
            }
            let verdict = tokio::select! {
                biased;
                verdict = verdicts.recv() => Some(verdict?),
                _ = cuts.changed() => None,
            };
            if self.is_cut() {
                return None;
            }
            let Some(verdict) = verdict else { continue };
            let trip = self.chance();
            self.wait(TRIP.mul_f64(trip)).await;
            let was_primary = {
                let mut is_primary = lock(&self.is_primary);
                std::mem::replace(&mut *is_primary, verdict == Verdict::Primary)
            };
            let deaf = self.rig.mutant == Mutant::DeafToLoss && was_primary;
            if !deaf {
                return Some(Heard::Verdict(verdict));
            }
        }
    }

    /// The id that arrives where this one is bid.
    fn spelled(&self, bid: ElectionId) -> ElectionId {
        let mut world = self.rig.world();
        let used = world.terms.entry(self.rig.controller).or_default();
        *used = bid.term().max(*used);
        match self.rig.mutant {
            Mutant::ReusesElectionIds => ElectionId::new(1, self.rig.controller, 1),
            _ => bid,
        }
    }

    /// Carries a batch out, now or, if it is late, when nobody waits for it any more.
    fn perform(&self, updates: &[Update], election: ElectionId) -> Result<Vec<Code>, Code> {
        if !self.is_alive() {
            return Err(Code::Unavailable);
        }
        let incarnation = self.incarnation;
        let codes = self.on_device(|device| {
            device.authorize(election)?;
            device.write(updates)
        })?;
        let mut world = self.rig.world();
        world.note(incarnation);
        world.note(election.0 as u64);
        for code in &codes {
            world.note(*code as u64 + 1);
        }
        Ok(codes)
    }

    /// Whatever comes of it, nobody hears.
    fn perform_later(&self, updates: Vec<Update>, election: ElectionId, after: Duration) {
        let line = self.again();
        tokio::spawn(async move {
            line.wait(after).await;
            drop(line.perform(&updates, election));
        });
    }

    fn remember(&self, tables: Tables) {
        lock(&self.rig.remembered).insert(self.switch, tables);
    }

    fn remembered(&self) -> Option<Tables> {
        let remembers = self.rig.mutant == Mutant::RemembersTables;
        lock(&self.rig.remembered)
            .get(&self.switch)
            .filter(|_| remembers)
            .cloned()
    }
}

impl Connection for Line {
    async fn open(&self, bid: ElectionId) -> Result<Conversation, ClientError> {
        self.trip("StreamChannel").await?;
        let bid = self.spelled(bid);
        let (session, verdicts) = self.on_device(|device| device.open(bid));
        let (say, said) = mpsc::channel(NOTICES);
        tokio::spawn(self.again().carry(session, said));
        let line = self.again();
        let heard = stream::unfold((line, verdicts), |(line, mut verdicts)| async move {
            let heard = line.next(&mut verdicts).await?;
            Some((Ok(heard), (line, verdicts)))
        });
        let hear = heard.boxed();
        Ok(Conversation { say, hear })
    }

    async fn cookie(&self) -> Result<Option<u64>, ClientError> {
        self.trip("GetForwardingPipelineConfig").await?;
        let program = self.on_device(|device| device.program);
        self.trip("GetForwardingPipelineConfig").await?;
        match self.rig.mutant {
            Mutant::BelievesInProgram => Ok(Some(Pipeline::fabric().cookie)),
            _ => Ok(program),
        }
    }

    async fn push(
        &self,
        pipeline: &Pipeline,
        election: ElectionId,
        entries: Entries,
    ) -> Result<(), ClientError> {
        let call = "SetForwardingPipelineConfig";
        self.check_mastership(call);
        self.trip(call).await?;
        let pushed = self.on_device(|device| {
            device.authorize(election)?;
            device.program = Some(pipeline.cookie);
            if entries == Entries::Dropped {
                device.tables = Tables::default();
            }
            Ok(())
        });
        pushed.map_err(|code| failed(call, code))?;
        self.trip(call).await
    }

    async fn tables(&self, _: &Pipeline, of: &Extent) -> Result<Tables, ClientError> {
        self.trip("Read").await?;
        let tables = self.on_device(|device| device.tables.only(of));
        self.trip("Read").await?;
        Ok(self.remembered().map_or(tables, |all| all.only(of)))
    }

    async fn write(
        &self,
        updates: &[Update],
        election: ElectionId,
    ) -> Result<Result<(), WriteError>, ClientError> {
        self.check_mastership("Write");
        let forgets = self.rig.mutant == Mutant::ForgetsDeletions;
        let kept = |update: &&Update| !forgets || update.kind != UpdateKind::Delete;
        let sent: Vec<Update> = updates.iter().filter(kept).cloned().collect();
        let fate = self.rig.fate(self.switch, self.deadline);
        match fate {
            Fate::Arrives(after) => self.wait(after).await,
            Fate::Lost => {
                self.wait(self.deadline).await;
                return Err(ClientError::Deadline("Write"));
            }
            Fate::Late(after) => {
                self.perform_later(sent, election, after);
                self.wait(self.deadline).await;
                return Err(ClientError::Deadline("Write"));
            }
            Fate::Twice(after) => {
                self.wait(after).await;
                self.perform_later(sent.clone(), election, 40 * after);
            }
        }
        let codes = self.perform(&sent, election);
        let codes = codes.map_err(|code| failed("Write", code))?;
        self.trip("Write").await?;
        let refusals = refusals(&sent, &codes);
        if refusals.is_empty() {
            let tables = self.on_device(|device| device.tables.clone());
            let before = self.remembered().unwrap_or(tables);
            self.remember(apply(before, &sent));
            return Ok(Ok(()));
        }
        Ok(Err(WriteError::Refused(refusals)))
    }
}

fn refusals(updates: &[Update], codes: &[Code]) -> Vec<Refusal> {
    let pairs = updates.iter().zip(codes).enumerate();
    let refused = pairs.filter(|(_, (_, code))| **code != Code::Ok);
    refused
        .map(|(position, (update, code))| Refusal {
            position,
            update: update.clone(),
            code: *code,
            message: "refused by the schedule".to_owned(),
        })
        .collect()
}

fn failed(call: &'static str, code: Code) -> ClientError {
    ClientError::Call {
        call,
        code,
        message: "so the schedule wants it".to_owned(),
    }
}
