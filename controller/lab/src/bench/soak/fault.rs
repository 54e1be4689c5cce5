//! The faults that are injected during a soak, beside the constant ones of the switches.

use controller::liveness::PartHealth;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use switch::WireState;
use topology::{Fabric, LinkId, SwitchId, Tier};

use super::controllers::SoakControllers;
use super::testbed::SoakTestbed;
use command_io::CommandError;

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoakFault {
    /// A cable between leaf and spine is cut.
    Cut(LinkId),
    /// A switch restarts, empty.
    Restart(SwitchId),
    /// The controller that leads is killed; the other one takes over.
    KillLeader,
    /// The standby controller is killed.
    KillStandby,
}

impl SoakFault {
    pub(super) fn draw_fault(fabric: &Fabric, random: &mut ChaCha8Rng) -> Self {
        let leaves: Vec<SwitchId> = fabric.switches_of_tier(Tier::Leaf).collect();
        let uplinks = fabric.up_links(leaves[random.random_range(0..leaves.len())]);
        let uplink = uplinks[random.random_range(0..uplinks.len())];
        let switch = SwitchId::from(random.random_range(0..fabric.switches().len()));
        match random.random_range(0..4) {
            0 => Self::Cut(uplink),
            1 => Self::Restart(switch),
            2 => Self::KillLeader,
            _ => Self::KillStandby,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cut(_) => "cable cut",
            Self::Restart(_) => "switch restarted",
            Self::KillLeader => "leader killed",
            Self::KillStandby => "standby killed",
        }
    }

    /// Whether packets may be lost until it is repaired. No loss is permitted where only a
    /// controller fails.
    pub(super) fn may_lose(self) -> bool {
        matches!(self, Self::Cut(_) | Self::Restart(_))
    }

    /// Injects the fault; returns when the controllers have repaired its effects.
    pub(super) async fn inject_fault(
        self,
        ground: &SoakTestbed,
        controllers: &mut SoakControllers,
    ) -> Result<(), CommandError> {
        match self {
            Self::Cut(cable) => {
                ground.set_cable(cable, WireState::Down).await?;
                controllers.report_cable(cable, PartHealth::Down).await?;
                // Its ports are out of use by now; the alternative paths come next.
                controllers.await_planned().await?;
            }
            Self::Restart(switch) => {
                let before = controllers.session_failures(switch);
                ground.restart_switch(switch).await?;
                controllers.await_disconnects(switch, &before).await?;
            }
            Self::KillLeader => controllers.kill_leader(),
            Self::KillStandby => controllers.kill_standby(),
        }
        controllers.await_verified().await
    }

    /// Ends the fault; returns when the controllers have noticed.
    pub(super) async fn repair_fault(
        self,
        ground: &SoakTestbed,
        controllers: &mut SoakControllers,
    ) -> Result<(), CommandError> {
        if let Self::Cut(cable) = self {
            ground.set_cable(cable, WireState::Up).await?;
            controllers.report_cable(cable, PartHealth::Up).await?;
            controllers.await_planned().await?;
        }
        controllers.start_missing().await?;
        controllers.await_verified().await
    }
}
