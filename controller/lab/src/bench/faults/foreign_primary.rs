//! The phase of a schedule in which a switch belongs to somebody else: a live primary with a program of
//! its own, with a cookie or without, and with an election id below or above the controllers'.
//!
//! The decision: the law is checked at each message that arrives at the switch. The controllers, the
//! one that leads and the standby, and a survey of `crux fabric discover` send it no bid, no program
//! and no write, whatever else fails meanwhile. So it is neither demoted nor overwritten, and its
//! program stays after it has left. When it gives the switch back, everything converges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::discovery::discover_once;
use controller::northbound::service::NorthboundService;
use controller::southbound::RunningProgram;
use controller::southbound::arbitration::ElectionId;
use p4::entry::TableId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use topology::Fabric;

use super::controller_setup::controller_config;
use super::fake_network::{FakeNetwork, lock_mutex};
use super::fault_schedule::{CONTROLLERS, FaultStep, SWITCHES};
use super::scenario_run::ScenarioRun;

/// Whom the network takes a survey for: it has slots and random streams as a controller has.
const SURVEYOR: u32 = CONTROLLERS + 1;
/// How long a survey sends probes.
const SURVEY: Duration = Duration::from_millis(64);

/// A controller that is not ours, and the switch that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignPrimary {
    pub(super) switch: usize,
    pub(super) election: ElectionId,
    pub(super) cookie: Option<u64>,
    /// Whether it leaves the switch, with its program, before the end.
    pub(super) leaves: bool,
}

impl ForeignPrimary {
    pub(super) fn draw(random: &mut ChaCha8Rng) -> Self {
        // As p4runtime-shell bids, as finsy does, and above every term of a controller.
        let elections = [1, 10, u128::MAX];
        Self {
            switch: random.random_range(0..SWITCHES),
            election: ElectionId(elections[random.random_range(0..elections.len())]),
            cookie: [None, Some(7)][random.random_range(0..2)],
            leaves: random.random(),
        }
    }

    /// Whether it keeps its switch and program in spite of a step.
    pub(super) fn outlasts(self, step: FaultStep) -> bool {
        !matches!(
            step,
            FaultStep::Restart { switch }
                | FaultStep::Off { switch }
                | FaultStep::Intrude { switch, .. } if switch == self.switch
        )
    }

    /// Its program, of which no table is in any of the controller's.
    pub(super) fn program(self) -> RunningProgram {
        let tables = BTreeMap::from([(TableId(1), "foreign_table".to_owned())]);
        RunningProgram { cookie: self.cookie, tables }
    }
}

impl ScenarioRun {
    /// Has a switch belong to somebody else for the time `until`, among other faults.
    pub(super) async fn run_foreign_phase(
        &mut self,
        foreign: ForeignPrimary,
        steps: &[(u64, FaultStep)],
        until: Duration,
    ) -> Result<(), String> {
        self.restore_facts().await?;
        self.await_convergence().await?;
        lock_mutex(&self.testbed).devices[foreign.switch].give_away(foreign);
        let (before, after) = steps.split_at(steps.len() / 2);
        self.play_lossy_steps(before, until).await?;
        self.check_foreign(foreign).await?;
        if foreign.leaves {
            lock_mutex(&self.testbed).devices[foreign.switch].close_streams();
        }
        self.play_lossy_steps(after, until).await?;
        self.end_faults().await?;
        self.check_foreign(foreign).await?;
        lock_mutex(&self.testbed).devices[foreign.switch].restart();
        self.restore_facts().await?;
        self.await_convergence().await
    }

    /// Surveys the switch, and checks that findings name its program while it is still there.
    async fn check_foreign(&self, foreign: ForeignPrimary) -> Result<(), String> {
        let network = FakeNetwork::new(Arc::clone(&self.testbed), SURVEYOR, self.planted_bug);
        let config = controller_config(SURVEYOR, 1, self.led)?;
        let mut parts = self.fabric.parts().clone();
        for (number, switch) in parts.switches.iter_mut().enumerate() {
            switch.p4runtime = switch.p4runtime.take().filter(|_| number == foreign.switch);
        }
        let surveyed = discover_once(&network, &Fabric::new(parts), &config, SURVEY).await;
        if !surveyed.switches.is_empty() {
            return Err("a survey takes part in a switch of somebody else".to_owned());
        }
        for controller in self.controllers.values() {
            let service = NorthboundService::new(controller.access().clone(), &config);
            service.list_findings().await.map_err(|error| format!("doctor: {error}"))?;
        }
        let is_primary = lock_mutex(&self.testbed).devices[foreign.switch].is_primary_foreign();
        if is_primary || foreign.leaves {
            return Ok(());
        }
        Err("the primary of somebody else is demoted".to_owned())
    }
}
