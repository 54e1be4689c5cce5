//! One schedule from beginning to end, and the verdict.
//!
//! The controllers are told facts as they change; when the last step is over everything is mended,
//! every controller is told all facts once more, and then they have time. The decision: what must
//! hold in the end is asked of the switches, not of the controllers: each holds exactly what the
//! one leader desires, and the leader desires what follows from the facts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::liveness::{Health, Part};
use controller::{Config, Controller, ControllerHandle, Event, RawConfig};
use p4::fabric::{Port, port_down, switch_salt};
use planner::{Flow, Job, Policy};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Code;
use topology::clos::{self, ClosSpec};
use topology::{Change, Fabric, HostId, LinkId, NicId, Parts, SwitchId, Tier};

use super::mutant::Mutant;
use super::rig::{Rig, lock};
use super::schedule::{CABLES, CONTROLLERS, ETCD, Led, SWITCHES, Schedule, Step};
use super::world::{SLOTS, World};

/// How long the controllers may take in the end.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How long it must stay as it should be.
pub(super) const CALM: Duration = Duration::from_secs(2);
/// What went wrong before the faults end may still be felt for so long: a message that was lost is
/// given up, and a connection with it, after its deadline.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(4 * SLOTS);

/// Runs the schedule of a seed. A hash over all that was written, or what is wrong in the end.
pub(super) fn run(seed: u64, mutant: Mutant) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let schedule = Schedule::drawn(seed);
        let mut trial = Trial::new(seed, &schedule, mutant)?;
        trial.play(&schedule).await?;
        trial.mend().await?;
        trial.judge().await?;
        if let Some(steps) = &schedule.change {
            let until = Duration::from_millis(schedule.change_ms());
            trial.change(steps, until).await?;
        }
        trial.verdict()
    })
}

/// What the controllers are told.
#[derive(Clone)]
pub(super) struct Facts {
    pub(super) jobs: Vec<Job>,
    pub(super) policy: Policy,
    cables: BTreeMap<LinkId, Health>,
}

pub(super) struct Trial {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) mutant: Mutant,
    pub(super) led: Led,
    fabric: Fabric,
    pub(super) facts: Facts,
    pub(super) controllers: BTreeMap<u32, ControllerHandle>,
}

impl Trial {
    fn new(seed: u64, schedule: &Schedule, mutant: Mutant) -> Result<Self, String> {
        let world = World::new(seed, schedule.dialect, schedule.led);
        Ok(Self {
            world: Arc::new(Mutex::new(world)),
            mutant,
            led: schedule.led,
            fabric: fabric()?,
            facts: Facts {
                jobs: Vec::new(),
                policy: Policy::default(),
                cables: BTreeMap::new(),
            },
            controllers: BTreeMap::new(),
        })
    }

    async fn play(&mut self, schedule: &Schedule) -> Result<(), String> {
        let begun = Instant::now();
        for controller in 1..=CONTROLLERS {
            self.start(controller).await?;
        }
        for (at, step) in &schedule.steps {
            sleep_until(begun + Duration::from_millis(*at)).await;
            self.step(*step).await?;
        }
        Ok(())
    }

    pub(super) async fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Cut { controller, switch } => self.cut(controller, switch..switch + 1),
            Step::Partition { controller } => self.cut(controller, 0..SWITCHES),
            Step::Lose { controller } => self.cut(controller, ETCD..ETCD + 1),
            Step::Heal { controller } => {
                let of_another = |(of, _): &(u32, usize)| *of != controller;
                lock(&self.world).cuts.retain(of_another);
            }
            Step::Mend { controller, switch } => {
                lock(&self.world).cuts.remove(&(controller, switch));
            }
            Step::Restart { switch } => lock(&self.world).devices[switch].restart(),
            Step::Off { switch } => {
                let device = &mut lock(&self.world).devices[switch];
                device.restart();
                device.is_on = false;
            }
            Step::On { switch } => lock(&self.world).devices[switch].is_on = true,
            Step::DropStreams { switch } => lock(&self.world).devices[switch].close_all(),
            Step::Refuse {
                switch,
                updates,
                code,
            } => lock(&self.world).devices[switch].refuse(updates, code),
            Step::Intrude { switch, kind } => self.intrude(switch, kind),
            Step::Kill { controller } => drop(self.controllers.remove(&controller)),
            Step::Start { controller } => self.start(controller).await?,
            Step::Jobs { jobs } => {
                self.facts.jobs = (0..jobs).map(job).collect();
                self.tell_jobs().await?;
            }
            Step::Policy { levels } => {
                self.facts.policy.levels = levels;
                self.tell_policy().await?;
            }
            Step::Drain { part, drained } => {
                let name = self.part(part);
                self.facts.policy.drained.retain(|part| *part != name);
                self.facts.policy.drained.extend(drained.then_some(name));
                self.tell_policy().await?;
            }
            Step::Cable { cable, works } => {
                let health = if works { Health::Up } else { Health::Down };
                self.see(cable, health).await?;
            }
            Step::Flap { cable, times } => {
                for _ in 0..times {
                    self.see(cable, Health::Down).await?;
                    self.see(cable, Health::Up).await?;
                }
            }
        }
        Ok(())
    }

    fn cut(&self, controller: u32, switches: Range<usize>) {
        let mut world = lock(&self.world);
        world
            .cuts
            .extend(switches.map(|switch| (controller, switch)));
        world.cut_news.send_replace(());
    }

    /// An entry that no controller wrote, or not so.
    fn intrude(&self, switch: usize, kind: u32) {
        let tables = &mut lock(&self.world).devices[switch].tables;
        let first = tables.iter().next().map(p4::TableEntry::from);
        match (kind, first) {
            (0, Some(first)) => drop(tables.remove(&first.key)),
            (1, Some(first)) => {
                let salt = std::num::NonZeroU32::MIN;
                let other = switch_salt(salt, p4::fabric::HashSlice::FIRST).value;
                drop(tables.insert(first.key.with(other.action)));
            }
            _ => drop(tables.insert(port_down(Port::CPU))),
        }
    }

    /// Starts a controller that is not there, in a term that it never used, and tells it all.
    async fn start(&mut self, controller: u32) -> Result<(), String> {
        if self.controllers.contains_key(&controller) {
            return Ok(());
        }
        let used = lock(&self.world).terms.get(&controller).copied();
        let config = config(controller, used.unwrap_or_default() + 1, self.led)?;
        let rig = Rig::new(Arc::clone(&self.world), controller, self.mutant);
        let (fabric, policy) = (self.fabric.clone(), self.facts.policy.clone());
        let handle = Controller::start_on(rig, config, fabric, policy).await;
        let handle = handle.map_err(|error| error.to_string())?;
        self.controllers.insert(controller, handle);
        self.tell_jobs().await?;
        self.look().await
    }

    async fn tell(&self, event: impl Fn(&Facts) -> Event) -> Result<(), String> {
        for controller in self.controllers.values() {
            let told = controller.submit(event(&self.facts)).await;
            told.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(super) async fn tell_jobs(&self) -> Result<(), String> {
        self.tell(|facts| Event::JobsChanged(facts.jobs.clone()))
            .await
    }

    async fn tell_policy(&self) -> Result<(), String> {
        self.tell(|facts| Event::PolicyChanged(facts.policy.clone()))
            .await
    }

    /// All controllers see how a cable looks.
    async fn see(&mut self, cable: usize, health: Health) -> Result<(), String> {
        let cable = self.cable(cable);
        self.facts.cables.insert(cable, health);
        self.look().await
    }

    async fn look(&self) -> Result<(), String> {
        for controller in self.controllers.values() {
            for (cable, health) in &self.facts.cables {
                let seen = controller.observe(Part::Cable(*cable), *health).await;
                seen.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// The faults end, and everybody knows the facts.
    async fn mend(&mut self) -> Result<(), String> {
        self.heal().await?;
        self.tell_policy().await
    }

    /// The faults end: everybody runs and hears each other.
    pub(super) async fn heal(&mut self) -> Result<(), String> {
        {
            let mut world = lock(&self.world);
            world.cuts.clear();
            world.is_rough = false;
            for device in &mut world.devices {
                device.is_on = true;
                device.refuse(0, Code::Ok);
            }
        }
        for controller in 1..=CONTROLLERS {
            self.start(controller).await?;
        }
        sleep(AFTERMATH).await;
        Ok(())
    }

    /// Waits until everything is as it should be, and looks whether it stays so.
    async fn judge(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.is_as_it_should_be() {
            if Instant::now() >= deadline {
                return Err(why);
            }
            sleep(LOOK).await;
            // Whoever leads by etcd may not have led when it was told.
            if self.led == Led::ByEtcd {
                self.tell_jobs().await?;
                self.tell_policy().await?;
            }
        }
        let calm = Instant::now() + CALM;
        while Instant::now() < calm {
            sleep(LOOK).await;
            self.is_as_it_should_be()
                .map_err(|why| format!("it does not last: {why}"))?;
        }
        Ok(())
    }

    /// What no controller may do at any time; else the hash over all that was written.
    fn verdict(&self) -> Result<u64, String> {
        let world = lock(&self.world);
        let in_use: u32 = world.devices.iter().map(|device| device.ids_in_use).sum();
        match (world.violations.first(), in_use) {
            (Some(violation), _) => Err(violation.clone()),
            (None, 0) => Ok(world.trace),
            (None, _) => Err(format!("{in_use} bids with an election id in use")),
        }
    }

    /// The one controller that leads all switches.
    pub(super) fn leader(&self) -> Result<(u32, &ControllerHandle), String> {
        let leads = |controller: &ControllerHandle| {
            let lines = controller.board().all();
            lines
                .values()
                .filter(|line| line.standing.is_primary())
                .count()
        };
        let leading: Vec<usize> = self.controllers.values().map(leads).collect();
        let mut leaders = self.controllers.iter().zip(&leading);
        let leader = leaders.find(|(_, led)| **led == SWITCHES);
        let (leader, _) = leader.ok_or_else(|| format!("switches led: {leading:?}"))?;
        let total: usize = leading.iter().sum();
        match total == SWITCHES {
            true => Ok((*leader.0, leader.1)),
            false => Err(format!("switches with two leaders: {leading:?}")),
        }
    }

    pub(super) fn is_as_it_should_be(&self) -> Result<(), String> {
        let (_, leader) = self.leader()?;
        self.follows_from_the_facts(leader)?;
        let desired = leader.desired();
        let world = lock(&self.world);
        for (switch, tables) in &desired.tables {
            let held = &world.devices[switch.index()].tables;
            if *held != **tables {
                let p4info = p4::Pipeline::fabric().p4info;
                let updates = p4::diff(&p4info, tables, held);
                let first = updates
                    .first()
                    .map(|update| p4info.show(update).to_string());
                return Err(format!(
                    "{switch:?} lacks {} updates: {first:?}",
                    updates.len()
                ));
            }
        }
        Ok(())
    }

    fn follows_from_the_facts(&self, leader: &ControllerHandle) -> Result<(), String> {
        let realised = leader.realised().ok_or("nothing is planned")?;
        let planned = realised.plan.jobs.len();
        let Facts { jobs, policy, .. } = &self.facts;
        if planned != jobs.len() || realised.plan.levels != policy.levels {
            return Err(format!("the plan is not about the facts: {planned} jobs"));
        }
        let drained = policy.drained.iter().cloned().collect();
        let drainage = leader.drainage().borrow().clone();
        if drainage.complete != drained || drainage.finding().is_some() {
            return Err(format!("drains are not complete: {drainage:?}"));
        }
        let failed = self.facts.cables.iter();
        let failed = failed.filter(|(_, seen)| **seen == Health::Down);
        let fabric = self
            .fabric
            .with(failed.map(|(cable, _)| Change::LinkDown(*cable)));
        let fabric = policy
            .apply_drains(&fabric)
            .map_err(|error| error.to_string())?;
        let mut links = (0..fabric.links().len()).map(LinkId::from);
        let found = &realised.fabric;
        let as_it_is = |link: &LinkId| {
            found.is_up(*link) == fabric.is_up(*link)
                && found.is_usable(*link) == fabric.is_usable(*link)
        };
        match links.find(|link| !as_it_is(link)) {
            Some(link) => Err(format!("{} is not as it looks", fabric.link_name(link))),
            None => Ok(()),
        }
    }

    /// The name of what a schedule drains.
    fn part(&self, part: usize) -> String {
        match part.checked_sub(CABLES) {
            Some(spine) => self.fabric.switch(self.spine(spine)).name.clone(),
            None => {
                let cable = self.fabric.link(self.cable(part));
                let ends = [cable.from, cable.to].map(|end| self.fabric.node_name(end.node));
                ends.join("-")
            }
        }
    }

    fn spine(&self, spine: usize) -> SwitchId {
        let mut spines = self.fabric.tier(Tier::Spine);
        spines.nth(spine).expect("the schedule knows how many")
    }

    /// The uplink that a schedule means.
    fn cable(&self, cable: usize) -> LinkId {
        let leaves: Vec<_> = self.fabric.tier(Tier::Leaf).collect();
        let uplinks = self.fabric.up_links(leaves[cable / 2]);
        uplinks[cable % 2]
    }
}

/// Two leaves, two spines, two hosts on each leaf; a switch's address is its number.
fn fabric() -> Result<Fabric, String> {
    let spec = ClosSpec {
        leaves: 2,
        spines: 2,
        hosts_per_leaf: 2,
        ..ClosSpec::default()
    };
    let fabric = clos::build("world", &spec).map_err(|error| error.to_string())?;
    let mut switches = fabric.switches().to_vec();
    for (number, switch) in switches.iter_mut().enumerate() {
        switch.p4runtime = Some(number.to_string());
    }
    Ok(Fabric::new(Parts {
        name: fabric.name().to_owned(),
        hosts: fabric.hosts().to_vec(),
        nics: fabric.nics().to_vec(),
        switches,
        links: fabric.links().to_vec(),
    }))
}

/// A controller in a hurry: a world lasts seconds. Its waits keep to the slots of its switches.
pub(super) fn config(controller: u32, term: u64, led: Led) -> Result<Config, String> {
    let mut raw = RawConfig::default();
    if led == Led::ByEtcd {
        raw.etcd.endpoints = vec!["etcd".to_owned()];
        raw.etcd.lease_s = 2;
        raw.etcd.deadline_ms = 16 * SLOTS;
    }
    raw.election.controller = controller;
    raw.election.term = term;
    raw.election.grace_ms = 8 * SLOTS;
    raw.deadlines.rpc_ms = 16 * SLOTS;
    raw.deadlines.connect_ms = 16 * SLOTS;
    raw.reconcile.interval_ms = 32 * SLOTS;
    raw.reconcile.retry_first_ms = SLOTS;
    raw.reconcile.retry_longest_ms = 8 * SLOTS;
    raw.reconcile.batch = 5;
    raw.deadlines.drain_ms = 64 * SLOTS;
    raw.deadlines.verify_ms = 64 * SLOTS;
    raw.liveness.hold_down_ms = 4 * SLOTS;
    raw.liveness.hold_down_longest_ms = 32 * SLOTS;
    raw.liveness.switch_silence_ms = 32 * SLOTS;
    raw.liveness.return_ms = 32 * SLOTS;
    Config::try_from(raw).map_err(|error| error.to_string())
}

/// A job with a flow between the leaves.
pub(super) fn job(number: u32) -> Job {
    let flow = Flow {
        src: NicId(number % 2),
        dst: NicId(2 + number / 2 % 2),
        bytes: 1e9,
        udp_src_port: 50_000 + number as u16,
    };
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(0), 1), (HostId(2), 1)]),
        flop_per_iteration: 1e15 * f64::from(number + 1),
        compute_seconds: 1.0,
        overlap_from: 1.0,
        recent_slowdown: 0.0,
        flows: vec![flow],
    }
}
