//! The phase of a schedule in which machines fail: processes are stopped and go on, clocks are set,
//! disks are full, damaged or put back, and etcd is lost or restored.
//!
//! The decision: a stopped process is one whose messages do not leave and do not arrive. Its timers
//! run on, which they also do as soon as a real one goes on. What was on its way to a switch when
//! the process was stopped arrives when it goes on, however late that is, so only the election ids
//! of the switches can refuse it.

#[cfg(test)]
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::store::EmbeddedStore;
use controller::{Controller, ControllerError, ControllerHandle};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep};

#[cfg(test)]
use super::controller_setup::build_job;
use super::controller_setup::controller_config;
use super::fake_disk::FakeDisk;
use super::fake_network::{FakeNetwork, KEEPALIVE, lock_mutex};
use super::fault_schedule::{CONTROLLERS, FaultStep, LeadershipMode};
#[cfg(test)]
use super::fault_schedule::{ETCD, FaultSchedule};
#[cfg(test)]
use super::planted_bug::PlantedBug;
use super::scenario_run::ScenarioRun;
#[cfg(test)]
use super::scenario_run::{POLL_INTERVAL, run_on_virtual_clock};

/// How long processes are stopped, in milliseconds: from less than a message takes to longer than a
/// lease lasts.
const PAUSES_MS: [u64; 5] = [16, 64, 256, 1_024, 4_096];
/// How long a process is down while its disk is put back or damaged: switches notice that it ended.
const DOWNTIME: Duration = Duration::from_millis(256);
/// When another controller leads after the leader lost most switches: two leases, and an election.
#[cfg(test)]
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(8);
/// When everything in force is stored again after a disk has room: stores are tried again every
/// five seconds.
const STORE_TIMEOUT: Duration = Duration::from_secs(12);

/// A fault of a machine, or its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineStep {
    /// The process of a controller is stopped for so long.
    Pause { controller: u32, pause_ms: u64 },
    /// The wall clock of a controller is wrong by so many hours when it starts next.
    SetClock { controller: u32, hours: i64 },
    /// The disk of a controller becomes full, or has room again.
    FillDisk { controller: u32, is_full: bool },
    /// The disk of a controller is copied.
    BackUpDisk { controller: u32 },
    /// A controller is killed, its disk is what it was when it was copied, and it starts again.
    RestoreDisk { controller: u32 },
    /// A controller is killed, a page of its disk is damaged, and it starts again.
    DamageDisk { controller: u32, page: usize },
    /// etcd loses everything.
    WipeEtcd,
    /// etcd takes a snapshot.
    BackUpEtcd,
    /// etcd is what it was at its snapshot.
    RestoreEtcd,
    /// The clock of etcd jumps, so that all leases end.
    ExpireLeases,
}

impl MachineStep {
    /// Draws a step for a testbed that is led so.
    pub(super) fn draw(led: LeadershipMode, random: &mut ChaCha8Rng) -> Self {
        let controller = random.random_range(1..=CONTROLLERS);
        let kind = random.random_range(0..8);
        let pause_ms = PAUSES_MS[random.random_range(0..PAUSES_MS.len())];
        match (kind, led) {
            (0..=2, _) => Self::Pause { controller, pause_ms },
            (3, _) => Self::SetClock { controller, hours: random.random_range(-48..=48) },
            (4, LeadershipMode::Etcd) => Self::WipeEtcd,
            (5, LeadershipMode::Etcd) => Self::BackUpEtcd,
            (6, LeadershipMode::Etcd) => Self::RestoreEtcd,
            (_, LeadershipMode::Etcd) => Self::ExpireLeases,
            (4 | 5, _) => Self::FillDisk { controller, is_full: random.random_ratio(2, 3) },
            (6, _) if random.random() => Self::BackUpDisk { controller },
            (6, _) => Self::RestoreDisk { controller },
            _ => Self::DamageDisk { controller, page: random.random_range(0..1_024) },
        }
    }
}

/// Cuts the leader that etcd elected off from most switches, and checks that the other controller
/// leads those that it reaches while that lasts.
#[cfg(test)]
pub(super) fn run_handover(seed: u64) -> Result<(), String> {
    run_on_virtual_clock(async {
        let run = converge_under_etcd(seed).await?;
        let (leader, _) = run.find_leader()?;
        run.cut_connections(leader, 0..3);
        sleep(HANDOVER_TIMEOUT).await;
        let (next, _) = run.find_leader()?;
        match next == leader {
            true => Err(format!("controller {leader} still leads")),
            false => run.check_converged(),
        }
    })
}

/// Has the leaders that etcd elects die one after the other, and checks that each successor leaves
/// all flows where they are and writes nothing.
#[cfg(test)]
pub(super) fn run_takeovers(seed: u64, takeovers: u32) -> Result<(), String> {
    run_on_virtual_clock(async {
        let mut run = converge_under_etcd(seed).await?;
        run.plan_for(1..2).await?;
        let new_plan = run.flow_paths()?;
        for jobs in [0..0, 0..1, 0..2, 1..2] {
            run.plan_for(jobs).await?;
        }
        let paths = run.flow_paths()?;
        if paths == new_plan {
            return Err("the plan does not depend on what was planned before it".to_owned());
        }
        let trace = lock_mutex(&run.testbed).trace;
        for takeover in 0..takeovers {
            let (leader, _) = run.find_leader()?;
            // It cannot give its lease back, and stores nothing more.
            run.cut_connections(leader, 0..ETCD + 1);
            run.kill_controller(leader);
            sleep(HANDOVER_TIMEOUT).await;
            run.apply_step(FaultStep::Heal { controller: leader }).await?;
            run.start_controller(leader).await?;
            run.await_convergence().await?;
            if run.flow_paths()? != paths {
                return Err(format!("takeover {takeover} moved a flow"));
            }
            if lock_mutex(&run.testbed).trace != trace {
                return Err(format!("takeover {takeover} wrote entries"));
            }
        }
        Ok(())
    })
}

/// Has etcd elect anew after a snapshot and then restores that, or loses everything; how long after
/// that there is no leader for the last time.
#[cfg(test)]
pub(super) fn run_etcd_loss(seed: u64, loss: MachineStep) -> Result<Duration, String> {
    run_on_virtual_clock(async {
        let mut run = converge_under_etcd(seed).await?;
        for step in [MachineStep::BackUpEtcd, MachineStep::ExpireLeases] {
            run.apply_machine_step(step).await?;
        }
        sleep(HANDOVER_TIMEOUT).await;
        run.await_convergence().await?;
        run.apply_machine_step(loss).await?;
        let (begun, mut leaderless) = (Instant::now(), Duration::ZERO);
        while begun.elapsed() < 2 * HANDOVER_TIMEOUT {
            sleep(POLL_INTERVAL).await;
            if run.find_leader().is_err() {
                leaderless = begun.elapsed();
            }
        }
        Ok(leaderless)
    })
}

/// A run in which etcd elects, before anything fails.
#[cfg(test)]
async fn converge_under_etcd(seed: u64) -> Result<ScenarioRun, String> {
    let mut schedule = FaultSchedule::from_seed(seed);
    // Members that etcd elects store there and on no disk.
    (schedule.led, schedule.has_disks) = (LeadershipMode::Etcd, false);
    let mut run = ScenarioRun::new(seed, &schedule, PlantedBug::None)?;
    run.restore_facts().await?;
    run.await_convergence().await?;
    Ok(run)
}

#[cfg(test)]
impl ScenarioRun {
    /// Has these jobs planned for, and waits until all switches hold the plan.
    async fn plan_for(&mut self, jobs: std::ops::Range<u32>) -> Result<(), String> {
        self.facts.jobs = jobs.map(build_job).collect();
        self.submit_jobs().await?;
        self.await_convergence().await
    }

    /// The paths of the leader's plan by the ports of their flows.
    fn flow_paths(&self) -> Result<BTreeMap<Option<u16>, topology::LinkPath>, String> {
        let rollout = self.find_leader()?.1.current_rollout().ok_or("there is no plan")?;
        Ok(rollout.plan.flows.iter().map(|flow| (flow.udp_src_port, flow.links)).collect())
    }
}

impl ScenarioRun {
    /// Has machines fail over the time `until`, and then checks switches, plans and disks.
    pub(super) async fn run_machine_phase(
        &mut self,
        steps: &[(u64, FaultStep)],
        until: Duration,
    ) -> Result<(), String> {
        self.restore_facts().await?;
        self.await_convergence().await?;
        self.play_lossy_steps(steps, until).await?;
        self.restore_facts().await?;
        self.await_convergence().await?;
        self.await_stored().await
    }

    pub(super) async fn apply_machine_step(&mut self, step: MachineStep) -> Result<(), String> {
        match step {
            MachineStep::Pause { controller, pause_ms } => {
                self.pause_controller(controller, Duration::from_millis(pause_ms));
            }
            MachineStep::SetClock { controller, hours } => {
                lock_mutex(&self.testbed).clock_hours.insert(controller, hours);
            }
            MachineStep::FillDisk { controller, is_full } => {
                lock_mutex(&self.testbed).with_disk(controller, |disk| disk.set_full(is_full));
            }
            MachineStep::BackUpDisk { controller } => {
                lock_mutex(&self.testbed).with_disk(controller, |disk| disk.back_up());
            }
            MachineStep::RestoreDisk { controller } => {
                self.restart_on_disk(controller, FakeDisk::restore).await?;
            }
            MachineStep::DamageDisk { controller, page } => {
                self.restart_on_disk(controller, |disk| disk.damage(page)).await?;
            }
            MachineStep::WipeEtcd => lock_mutex(&self.testbed).with_etcd(|etcd| etcd.wipe()),
            MachineStep::BackUpEtcd => lock_mutex(&self.testbed).cluster.back_up(),
            MachineStep::RestoreEtcd => lock_mutex(&self.testbed).with_etcd(|etcd| etcd.restore()),
            MachineStep::ExpireLeases => {
                lock_mutex(&self.testbed).with_etcd(|etcd| etcd.expire_all_leases());
            }
        }
        Ok(())
    }

    /// Kills a controller, changes its disk, and starts it again.
    async fn restart_on_disk(
        &mut self,
        controller: u32,
        change: impl FnOnce(&FakeDisk),
    ) -> Result<(), String> {
        self.kill_controller(controller);
        lock_mutex(&self.testbed).with_disk(controller, change);
        sleep(DOWNTIME).await;
        self.start_controller(controller).await
    }

    /// Stops the process of a controller; switches end its streams if that lasts.
    fn pause_controller(&self, controller: u32, pause: Duration) {
        let until = Instant::now() + pause;
        lock_mutex(&self.testbed).pause_until(controller, until);
        let testbed = Arc::clone(&self.testbed);
        tokio::spawn(async move {
            sleep(KEEPALIVE).await;
            let mut testbed = lock_mutex(&testbed);
            if testbed.is_paused(controller) {
                testbed.devices.iter_mut().for_each(|device| device.close_streams_of(controller));
            }
        });
    }

    /// Starts a controller. One whose store is damaged is given an empty disk, as its error says.
    pub(super) async fn launch_controller(
        &self,
        controller: u32,
        term: u64,
    ) -> Result<ControllerHandle, String> {
        let mut config = controller_config(controller, term, self.led)?;
        if lock_mutex(&self.testbed).disks.contains_key(&controller) {
            // The term is that of the store.
            (config.store, config.term) = (Some("disk".into()), 1);
        }
        let launch = || {
            let network = FakeNetwork::new(Arc::clone(&self.testbed), controller, self.planted_bug);
            let (fabric, policy) = (self.fabric.clone(), self.facts.policy.clone());
            Controller::start_on(network, config.clone(), fabric, policy)
        };
        // A disk may be both full and damaged.
        for _ in 0..2 {
            match launch().await {
                Err(ControllerError::Store(_)) => {
                    lock_mutex(&self.testbed).with_disk(controller, FakeDisk::repair);
                }
                started => return started.map_err(|error| error.to_string()),
            }
        }
        launch().await.map_err(|error| error.to_string())
    }

    /// Waits until each disk has what its controller has in force.
    async fn await_stored(&self) -> Result<(), String> {
        let deadline = Instant::now() + STORE_TIMEOUT;
        while let Err(why) = self.check_stored().await {
            if Instant::now() >= deadline {
                return Err(why);
            }
            sleep(DOWNTIME).await;
        }
        Ok(())
    }

    async fn check_stored(&self) -> Result<(), String> {
        for (number, controller) in &self.controllers {
            let Some(disk) = lock_mutex(&self.testbed).disks.get(number).map(|disk| disk.copy())
            else {
                continue;
            };
            let fault = |error| format!("the store of controller {number}: {error}");
            let store =
                EmbeddedStore::open_backend(disk).map_err(|error| fault(error.to_string()))?;
            let mut stored = store.read_state().map_err(|error| fault(error.to_string()))?;
            let in_force = controller.query_state(|state| state.stored_records()).await;
            let in_force = in_force.map_err(|error| error.to_string())?;
            // Nothing is stored before there was a job.
            stored.jobs.get_or_insert_default();
            stored.reported_jobs.get_or_insert_default();
            if let Some(record) = in_force.iter().find(|record| !stored.holds_record(record)) {
                return Err(fault(format!("lacks {record:?}")));
            }
            let plan = store.read_plan().map_err(|error| fault(error.to_string()))?;
            let rollout = controller.current_rollout().ok_or("there is no plan")?;
            if plan != Some(rollout.stored_plan()) {
                return Err(fault("has another plan than the one in force".to_owned()));
            }
        }
        Ok(())
    }
}
