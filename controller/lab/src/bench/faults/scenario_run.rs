//! One schedule from start to end, and the check of its final state.
//!
//! The controllers receive facts as they change. After the last step all faults end, every
//! controller receives all facts once more, and then they have time to converge. The decision: the
//! final state is read from the switches, not from the controllers: each holds exactly what the one
//! leader desires, and the leader's plan follows from the facts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::liveness::{FabricPart, PartHealth};
use controller::{ControllerHandle, State, StateEvent};
use p4::fabric::{PortNumber, port_down, switch_salt};
use planner::{Job, Policy};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Code;
use topology::{AvailabilityChange, Fabric, LinkId, SwitchId, Tier};

use super::controller_setup::{build_fabric, build_job};
use super::fake_disk::FakeDisk;
use super::fake_network::lock_mutex;
use super::fault_schedule::{
    CABLES, CONTROLLERS, ETCD, FaultSchedule, FaultStep, LeadershipMode, SWITCHES,
};
use super::fault_testbed::{FaultTestbed, SLOTS};
use super::hostile_phase::HostileParties;
use super::planted_bug::PlantedBug;

/// The deadline for convergence after the faults.
pub(super) const CALM_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the converged state must last.
pub(super) const CALM: Duration = Duration::from_secs(2);
/// How long faults may have effects after they end: a lost message is only given up, and its
/// connection with it, after its deadline.
const AFTERMATH: Duration = Duration::from_secs(2);
/// The interval of checks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(4 * SLOTS);

/// Runs the schedule of a seed; a hash over everything that was written, or what is wrong.
pub(super) fn run_schedule(seed: u64, planted_bug: PlantedBug) -> Result<u64, String> {
    run_on_virtual_clock(async {
        let schedule = FaultSchedule::from_seed(seed);
        let mut trial = ScenarioRun::new(seed, &schedule, planted_bug)?;
        trial.run_steps(&schedule).await?;
        trial.restore_facts().await?;
        trial.await_convergence().await?;
        if let Some(steps) = &schedule.change {
            let until = Duration::from_millis(schedule.change_ms());
            trial.run_policy_change(steps, until).await?;
        }
        if let Some(steps) = &schedule.hostile {
            let until = Duration::from_millis(schedule.change_ms());
            trial.run_hostile_phase(steps, until).await?;
        }
        if let Some(steps) = &schedule.machines {
            let until = Duration::from_millis(schedule.change_ms());
            trial.run_machine_phase(steps, until).await?;
        }
        if let Some((primary, steps)) = &schedule.foreign {
            let until = Duration::from_millis(schedule.change_ms());
            trial.run_foreign_phase(*primary, steps, until).await?;
        }
        trial.check_invariants()
    })
}

/// Runs on one thread, whose clock goes on when nothing else does.
pub(super) fn run_on_virtual_clock<T>(
    run: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(run)
}

/// The inputs of the controllers.
#[derive(Clone)]
pub(super) struct ScenarioFacts {
    pub(super) jobs: Vec<Job>,
    pub(super) policy: Policy,
    cables: BTreeMap<LinkId, PartHealth>,
}

pub(super) struct ScenarioRun {
    pub(super) testbed: Arc<Mutex<FaultTestbed>>,
    pub(super) planted_bug: PlantedBug,
    pub(super) led: LeadershipMode,
    pub(super) fabric: Fabric,
    pub(super) parties: HostileParties,
    pub(super) facts: ScenarioFacts,
    pub(super) controllers: BTreeMap<u32, ControllerHandle>,
}

impl ScenarioRun {
    pub(super) fn new(
        seed: u64,
        schedule: &FaultSchedule,
        planted_bug: PlantedBug,
    ) -> Result<Self, String> {
        let world = FaultTestbed::new(seed, schedule);
        Ok(Self {
            testbed: Arc::new(Mutex::new(world)),
            planted_bug,
            led: schedule.led,
            fabric: build_fabric()?,
            parties: HostileParties::default(),
            facts: ScenarioFacts {
                jobs: Vec::new(),
                policy: Policy::default(),
                cables: BTreeMap::new(),
            },
            controllers: BTreeMap::new(),
        })
    }

    async fn run_steps(&mut self, schedule: &FaultSchedule) -> Result<(), String> {
        let begun = Instant::now();
        for controller in 1..=CONTROLLERS {
            self.start_controller(controller).await?;
        }
        self.play_steps(begun, &schedule.steps).await
    }

    /// Takes steps at their times since `begun`.
    pub(super) async fn play_steps(
        &mut self,
        begun: Instant,
        steps: &[(u64, FaultStep)],
    ) -> Result<(), String> {
        for (at, step) in steps {
            sleep_until(begun + Duration::from_millis(*at)).await;
            self.apply_step(*step).await?;
        }
        Ok(())
    }

    /// Takes steps among lost and late messages, until the time `until` is over.
    pub(super) async fn play_lossy_steps(
        &mut self,
        steps: &[(u64, FaultStep)],
        until: Duration,
    ) -> Result<(), String> {
        let begun = Instant::now();
        lock_mutex(&self.testbed).is_lossy = true;
        self.play_steps(begun, steps).await?;
        sleep_until(begun + until).await;
        Ok(())
    }

    pub(super) async fn apply_step(&mut self, step: FaultStep) -> Result<(), String> {
        match step {
            FaultStep::Cut { controller, switch } => {
                self.cut_connections(controller, switch..switch + 1);
            }
            FaultStep::Partition { controller } => self.cut_connections(controller, 0..SWITCHES),
            FaultStep::Lose { controller } => self.cut_connections(controller, ETCD..ETCD + 1),
            FaultStep::Heal { controller } => {
                lock_mutex(&self.testbed).cuts.retain(|(of, _): &(u32, usize)| *of != controller);
            }
            FaultStep::Mend { controller, switch } => {
                lock_mutex(&self.testbed).cuts.remove(&(controller, switch));
            }
            FaultStep::Restart { switch } => lock_mutex(&self.testbed).devices[switch].restart(),
            FaultStep::Off { switch } => lock_mutex(&self.testbed).devices[switch].stop(),
            FaultStep::On { switch } => lock_mutex(&self.testbed).devices[switch].is_on = true,
            FaultStep::DropStreams { switch } => {
                let mut world = lock_mutex(&self.testbed);
                world.devices[switch].close_streams();
                world.devices[switch].open_foreign_stream();
            }
            FaultStep::Refuse { switch, updates, code } => {
                lock_mutex(&self.testbed).devices[switch].refuse_updates(updates, code);
            }
            FaultStep::Intrude { switch, kind } => self.inject_entry(switch, kind),
            FaultStep::Kill { controller } => self.kill_controller(controller),
            FaultStep::Start { controller } => self.start_controller(controller).await?,
            FaultStep::Jobs { jobs } => {
                self.facts.jobs = (0..jobs).map(build_job).collect();
                self.submit_jobs().await?;
            }
            FaultStep::Policy { levels } => {
                self.facts.policy.levels = levels;
                self.submit_policy().await?;
            }
            FaultStep::Drain { part, drained } => {
                let name = self.drained_part_name(part);
                self.facts.policy.drained.retain(|part| *part != name);
                self.facts.policy.drained.extend(drained.then_some(name));
                self.submit_policy().await?;
            }
            FaultStep::Cable { cable, works } => {
                let health = if works { PartHealth::Up } else { PartHealth::Down };
                self.set_cable_health(cable, health).await?;
            }
            FaultStep::Lie { switch, lie } => {
                lock_mutex(&self.testbed).devices[switch].lie = Some(lie);
            }
            FaultStep::Preview { controller, flood } => self.flood_previews(controller, flood)?,
            FaultStep::Report { report } => self.receive_false_report(report).await?,
            FaultStep::Machine(step) => Box::pin(self.apply_machine_step(step)).await?,
            FaultStep::Flap { cable, times } => {
                for _ in 0..times {
                    self.set_cable_health(cable, PartHealth::Down).await?;
                    self.set_cable_health(cable, PartHealth::Up).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn cut_connections(&self, controller: u32, switches: Range<usize>) {
        let mut world = lock_mutex(&self.testbed);
        world.cuts.extend(switches.map(|switch| (controller, switch)));
        world.cut_changes.send_replace(());
    }

    /// Inserts, changes or removes an entry that no controller wrote.
    fn inject_entry(&self, switch: usize, kind: u32) {
        let tables = &mut lock_mutex(&self.testbed).devices[switch].tables;
        let first = tables.iter().next().map(p4::TableEntry::from);
        match (kind, first) {
            (0, Some(first)) => drop(tables.remove(&first.key)),
            (1, Some(first)) => {
                let salt = std::num::NonZeroU32::MIN;
                let other = switch_salt(salt, p4::fabric::HashSlice::FIRST);
                let action = other.value.action.clone();
                drop(tables.insert((*first.key).clone().with_action(action)));
            }
            _ => drop(tables.insert(port_down(PortNumber::CPU))),
        }
    }

    /// Starts a controller that is not running, in a term that it never used, with all facts.
    pub(super) async fn start_controller(&mut self, controller: u32) -> Result<(), String> {
        if self.controllers.contains_key(&controller) {
            return Ok(());
        }
        let term = {
            // A store has the term of a run before the run bids.
            let mut testbed = lock_mutex(&self.testbed);
            let used = testbed.terms.entry(controller).or_default();
            *used += 1;
            *used
        };
        let handle = self.launch_controller(controller, term).await?;
        self.controllers.insert(controller, handle);
        self.submit_jobs().await?;
        self.report_cables().await
    }

    pub(super) fn kill_controller(&mut self, controller: u32) {
        let mut testbed = lock_mutex(&self.testbed);
        testbed.paused.remove(&controller);
        testbed.with_disk(controller, FakeDisk::unmount);
        drop(testbed);
        drop(self.controllers.remove(&controller));
    }

    pub(super) async fn submit_event(
        &self,
        event: impl Fn(&ScenarioFacts) -> StateEvent,
    ) -> Result<(), String> {
        for controller in self.controllers.values() {
            controller.submit_event(event(&self.facts)).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(super) async fn submit_jobs(&self) -> Result<(), String> {
        self.submit_event(|facts| StateEvent::JobsChanged(facts.jobs.clone())).await
    }

    async fn submit_policy(&self) -> Result<(), String> {
        self.submit_event(|facts| StateEvent::PolicyChanged(facts.policy.clone())).await
    }

    /// Reports the state of a cable to all controllers.
    async fn set_cable_health(&mut self, cable: usize, health: PartHealth) -> Result<(), String> {
        let cable = self.uplink_cable(cable);
        self.facts.cables.insert(cable, health);
        self.report_cables().await
    }

    async fn report_cables(&self) -> Result<(), String> {
        for controller in self.controllers.values() {
            for (cable, health) in &self.facts.cables {
                controller
                    .report_health(FabricPart::Cable(*cable), *health)
                    .await
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Ends the faults and sends all facts again.
    pub(super) async fn restore_facts(&mut self) -> Result<(), String> {
        self.end_faults().await?;
        // A full disk had a controller refuse them.
        self.submit_jobs().await?;
        self.submit_policy().await
    }

    /// Ends the faults: every element runs and is connected.
    pub(super) async fn end_faults(&mut self) -> Result<(), String> {
        {
            let mut world = lock_mutex(&self.testbed);
            world.cuts.clear();
            world.is_lossy = false;
            world.paused.clear();
            world.disks.values().for_each(|disk| disk.set_full(false));
            for device in &mut world.devices {
                device.is_on = true;
                device.lie = None;
                device.refuse_updates(0, Code::Ok);
            }
        }
        for controller in 1..=CONTROLLERS {
            self.start_controller(controller).await?;
        }
        sleep(AFTERMATH).await;
        Ok(())
    }

    /// Waits until the state has converged, and checks that it lasts.
    pub(super) async fn await_convergence(&self) -> Result<(), String> {
        let deadline = Instant::now() + CALM_TIMEOUT;
        loop {
            let why = match self.check_converged() {
                Err(why) => why,
                Ok(()) if self.is_settled().await? => break,
                // Facts that were sent again would put the settled plan off.
                Ok(()) if Instant::now() < deadline => {
                    sleep(POLL_INTERVAL).await;
                    continue;
                }
                Ok(()) => "the plan is not settled".to_owned(),
            };
            if Instant::now() >= deadline {
                return Err(why);
            }
            sleep(POLL_INTERVAL).await;
            // The controller that leads may not have led when the facts were sent.
            if self.led == LeadershipMode::Etcd {
                self.submit_jobs().await?;
                self.submit_reported().await?;
                self.submit_policy().await?;
            }
        }
        let calm = Instant::now() + CALM;
        while Instant::now() < calm {
            sleep(POLL_INTERVAL).await;
            self.check_converged().map_err(|why| format!("not stable: {why}"))?;
        }
        Ok(())
    }

    /// Whether the leader's plan is what it would be from nothing, so that it stays.
    async fn is_settled(&self) -> Result<bool, String> {
        let (_, leader) = self.find_leader()?;
        let settled = leader.access().query_state(State::is_settled).await;
        settled.map_err(|error| error.to_string())
    }

    /// Checks what no controller may do at any time; the hash over everything that was written.
    fn check_invariants(&self) -> Result<u64, String> {
        let world = lock_mutex(&self.testbed);
        let in_use: u32 = world.devices.iter().map(|device| device.ids_in_use).sum();
        match (world.violations.first(), in_use) {
            (Some(violation), _) => Err(violation.clone()),
            (None, 0) => Ok(world.trace),
            (None, _) => Err(format!("{in_use} bids with an election id in use")),
        }
    }

    /// The one controller that leads all switches.
    pub(super) fn find_leader(&self) -> Result<(u32, &ControllerHandle), String> {
        let leading: Vec<usize> = self
            .controllers
            .values()
            .map(|controller| {
                let lines = controller.status_board().all_statuses();
                lines.values().filter(|line| line.mastership.is_primary()).count()
            })
            .collect();
        let mut leaders = self.controllers.iter().zip(&leading);
        let leader = leaders.find(|(_, led)| **led == SWITCHES);
        let (leader, _) = leader.ok_or_else(|| {
            let seen = self.controllers.iter().map(|(number, controller)| {
                let lines = controller.status_board().all_statuses();
                let masterships: Vec<_> = lines.values().map(|line| line.mastership).collect();
                let permit = *controller.watch_permit().borrow();
                format!("; controller {number}: {permit:?}, {masterships:?}")
            });
            format!("switches led: {leading:?}{}", seen.collect::<String>())
        })?;
        let total: usize = leading.iter().sum();
        // Switches have it for their primary for as long as its successor is not elected.
        let may_write = leader.1.watch_permit().borrow().may_write(Instant::now());
        match (total == SWITCHES, may_write) {
            (true, true) => Ok((*leader.0, leader.1)),
            (true, false) => Err(format!("controller {} may not write", leader.0)),
            (false, _) => Err(format!("switches with two leaders: {leading:?}")),
        }
    }

    pub(super) fn check_converged(&self) -> Result<(), String> {
        let (_, leader) = self.find_leader()?;
        self.check_plan(leader)?;
        let desired = leader.desired_tables();
        let world = lock_mutex(&self.testbed);
        for (switch, tables) in &desired.tables {
            let held = &world.devices[switch.index()].tables;
            if *held != **tables {
                let p4info = &p4::ForwardingPipeline::embedded_fabric().p4info;
                let updates = p4::diff_tables(p4info, tables, held);
                let first = updates.first().map(|update| p4info.display(update).to_string());
                return Err(format!("{switch:?} lacks {} updates: {first:?}", updates.len()));
            }
        }
        Ok(())
    }

    fn check_plan(&self, leader: &ControllerHandle) -> Result<(), String> {
        let realised = leader.current_rollout().ok_or("there is no plan")?;
        let planned = realised.plan.jobs.len();
        let ScenarioFacts { jobs, policy, .. } = &self.facts;
        if planned != jobs.len() || realised.plan.levels != policy.levels {
            return Err(format!("the plan does not match the facts: {planned} jobs"));
        }
        let drained = policy.drained.iter().cloned().collect();
        let drainage = leader.watch_drains().borrow().clone();
        if drainage.complete != drained || drainage.late_finding().is_some() {
            return Err(format!("drains are not complete: {drainage:?}"));
        }
        let failed = self.facts.cables.iter().filter(|(_, seen)| **seen == PartHealth::Down);
        let fabric =
            self.fabric.with_changes(failed.map(|(cable, _)| AvailabilityChange::LinkDown(*cable)));
        let fabric = policy.apply_drains(&fabric).map_err(|error| error.to_string())?;
        let mut links = fabric.link_ids();
        let found = &realised.fabric;
        let differing = links.find(|link| {
            found.is_up(*link) != fabric.is_up(*link)
                || found.is_usable(*link) != fabric.is_usable(*link)
        });
        match differing {
            Some(link) => {
                Err(format!("the state of {} differs from the facts", fabric.link_name(link)))
            }
            None => Ok(()),
        }
    }

    /// The name of the element that a schedule drains.
    fn drained_part_name(&self, part: usize) -> String {
        match part.checked_sub(CABLES) {
            Some(spine) => self.fabric.switch(self.spine_switch(spine)).name.clone(),
            None => {
                let cable = self.fabric.link(self.uplink_cable(part));
                let ends = [cable.from, cable.to].map(|end| self.fabric.node_name(end.node));
                ends.join("-")
            }
        }
    }

    fn spine_switch(&self, spine: usize) -> SwitchId {
        let mut spines = self.fabric.switches_of_tier(Tier::Spine);
        spines.nth(spine).expect("the schedule knows how many")
    }

    /// The uplink with this number in the schedule.
    fn uplink_cable(&self, cable: usize) -> LinkId {
        let leaves: Vec<_> = self.fabric.switches_of_tier(Tier::Leaf).collect();
        let uplinks = self.fabric.up_links(leaves[cable / 2]);
        uplinks[cable % 2]
    }
}
