//! The two controllers of a soak, one of which leads.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::liveness::{FabricPart, PartHealth};
use controller::southbound::{SwitchClient, SwitchTarget};
use controller::{Config, Controller, ControllerHandle, RawConfig, StateEvent};
use planner::{Job, Policy};
use topology::{Fabric, LinkId, SwitchId};

use command_io::CommandError;

/// Number of controllers, numbered from 1.
pub(super) const CONTROLLERS: u32 = 2;
/// The deadline of every operation.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of checks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The controllers of a fabric, and their inputs.
pub(super) struct SoakControllers {
    fabric: Fabric,
    jobs: Vec<Job>,
    policy: Policy,
    down: BTreeMap<LinkId, PartHealth>,
    controllers: BTreeMap<u32, ControllerHandle>,
    /// The latest term of each, as a store would record it.
    terms: BTreeMap<u32, u64>,
}

impl SoakControllers {
    /// Starts all of them, and waits until one leads and every switch is verified.
    pub(super) async fn start_all(fabric: Fabric, jobs: Vec<Job>) -> Result<Self, CommandError> {
        let mut controllers = Self {
            fabric,
            jobs,
            policy: Policy::default(),
            down: BTreeMap::new(),
            controllers: BTreeMap::new(),
            terms: BTreeMap::new(),
        };
        controllers.start_missing().await?;
        controllers.await_verified().await?;
        Ok(controllers)
    }

    /// Starts those that do not run, in terms that they never used, with all inputs.
    pub(super) async fn start_missing(&mut self) -> Result<(), CommandError> {
        for number in 1..=CONTROLLERS {
            if self.controllers.contains_key(&number) {
                continue;
            }
            let term = self.terms.entry(number).or_default();
            *term += 1;
            let config = controller_config(number, *term)?;
            let (fabric, policy) = (self.fabric.clone(), self.policy.clone());
            let started = Controller::start(config, fabric, policy).await;
            let controller = started.map_err(CommandError::failed)?;
            submit_event(&controller, StateEvent::JobsChanged(self.jobs.clone())).await?;
            for (cable, health) in &self.down {
                observe_cable(&controller, *cable, *health).await?;
            }
            self.controllers.insert(number, controller);
        }
        Ok(())
    }

    pub(super) async fn change_jobs(&mut self, jobs: Vec<Job>) -> Result<(), CommandError> {
        self.jobs = jobs;
        for controller in self.controllers.values() {
            submit_event(controller, StateEvent::JobsChanged(self.jobs.clone())).await?;
        }
        Ok(())
    }

    pub(super) async fn change_levels(&mut self, levels: u8) -> Result<(), CommandError> {
        self.policy.levels = levels;
        self.await_planned().await
    }

    /// Reports the state of a cable to all of them, and waits until their plans reflect it.
    pub(super) async fn report_cable(
        &mut self,
        cable: LinkId,
        health: PartHealth,
    ) -> Result<(), CommandError> {
        self.down.insert(cable, health);
        for controller in self.controllers.values() {
            observe_cable(controller, cable, health).await?;
        }
        let is_up = health == PartHealth::Up;
        wait_until(
            || {
                self.controllers.values().all(|controller| {
                    let realised = controller.current_rollout();
                    realised.is_some_and(|realised| realised.fabric.is_cable_up(cable) == is_up)
                })
            },
            || format!("the cable {cable:?} to be {health:?}"),
        )
        .await
    }

    /// Waits until all of them have planned for every input.
    pub(super) async fn await_planned(&self) -> Result<(), CommandError> {
        for controller in self.controllers.values() {
            submit_event(controller, StateEvent::PolicyChanged(self.policy.clone())).await?;
        }
        Ok(())
    }

    /// Kills the leader without a shutdown.
    pub(super) fn kill_leader(&mut self) {
        let leader = self.find_leader();
        drop(leader.and_then(|leader| self.controllers.remove(&leader)));
    }

    /// Kills all but the leader.
    pub(super) fn kill_standby(&mut self) {
        let leader = self.find_leader();
        self.controllers.retain(|number, _| Some(*number) == leader);
    }

    /// Sessions to a switch that have ended, by controller.
    pub(super) fn session_failures(&self, switch: SwitchId) -> BTreeMap<u32, u64> {
        let all = self.controllers.iter();
        all.map(|(number, controller)| {
            let status = controller.status_board().switch_status(switch);
            (*number, status.map_or(0, |status| status.failures))
        })
        .collect()
    }

    /// Waits until every controller has noticed that its connection to a switch ended.
    pub(super) async fn await_disconnects(
        &self,
        switch: SwitchId,
        before: &BTreeMap<u32, u64>,
    ) -> Result<(), CommandError> {
        wait_until(
            || {
                let now = self.session_failures(switch);
                now.iter().all(|(number, failures)| before.get(number) < Some(failures))
            },
            || format!("the restart of {switch:?} to be noticed"),
        )
        .await
    }

    /// Waits until one controller leads everywhere and has verified what it desires.
    pub(super) async fn await_verified(&self) -> Result<(), CommandError> {
        wait_until(
            || {
                let leader = self.find_leader().and_then(|leader| self.controllers.get(&leader));
                leader.is_some_and(is_verified)
            },
            || {
                let boards = self
                    .controllers
                    .values()
                    .map(|controller| controller.status_board().all_statuses());
                format!(
                    "one controller to have verified all switches: {:#?}",
                    boards.collect::<Vec<_>>()
                )
            },
        )
        .await
    }

    /// Switches whose tables, read by a separate client, differ from what the leader desires.
    pub(super) async fn divergent_switches(&self) -> Result<Vec<String>, CommandError> {
        let leader = self
            .find_leader()
            .and_then(|leader| self.controllers.get(&leader))
            .ok_or_else(|| CommandError::Failed("no controller leads".to_owned()))?;
        let desired = leader.desired_tables();
        let (limits, pipeline) =
            (Config::default().southbound, p4::ForwardingPipeline::embedded_fabric());
        let mut different = Vec::new();
        for target in SwitchTarget::all_in_fabric(&self.fabric) {
            let client = SwitchClient::connect(&target.address, &limits)
                .await
                .map_err(CommandError::failed)?;
            let held = client.read_all_tables(pipeline).await.map_err(CommandError::failed)?;
            if desired.tables.get(&target.switch).is_none_or(|wanted| **wanted != held) {
                different.push(target.name);
            }
        }
        Ok(different)
    }

    pub(super) async fn shutdown_all(self) {
        for controller in self.controllers.into_values() {
            controller.shutdown().await;
        }
    }

    /// The one that is primary of every switch.
    fn find_leader(&self) -> Option<u32> {
        let (number, _) = self.controllers.iter().find(|(_, controller)| {
            let statuses = controller.status_board().all_statuses();
            statuses.values().all(|status| status.mastership.is_primary())
        })?;
        Some(*number)
    }
}

fn is_verified(controller: &ControllerHandle) -> bool {
    let generation = controller.desired_tables().generation;
    let lines = controller.status_board().all_statuses();
    lines.values().all(|line| line.holds_generation(generation))
}

async fn submit_event(
    controller: &ControllerHandle,
    event: StateEvent,
) -> Result<(), CommandError> {
    let receipt = tokio::time::timeout(CONVERGENCE_TIMEOUT, controller.submit_event(event))
        .await
        .map_err(|_| CommandError::Failed("no plan for an event in time".to_owned()))?;
    receipt.map(drop).map_err(CommandError::failed)
}

async fn observe_cable(
    controller: &ControllerHandle,
    cable: LinkId,
    health: PartHealth,
) -> Result<(), CommandError> {
    controller.report_health(FabricPart::Cable(cable), health).await.map_err(CommandError::failed)
}

async fn wait_until(
    holds: impl Fn() -> bool,
    what: impl FnOnce() -> String,
) -> Result<(), CommandError> {
    let looking = async {
        while !holds() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(CONVERGENCE_TIMEOUT, looking)
        .await
        .map_err(|_| CommandError::Failed(format!("timed out while waiting for {}", what())))
}

/// A configuration with short hold-down times and frequent reconciliation.
fn controller_config(controller: u32, term: u64) -> Result<Config, CommandError> {
    let mut raw = RawConfig::default();
    raw.election.controller = controller;
    raw.election.term = term;
    raw.reconcile.interval_ms = 1_000;
    raw.liveness.hold_down_ms = 200;
    raw.liveness.hold_down_longest_ms = 500;
    Config::try_from(raw).map_err(CommandError::failed)
}
