//! How the loop applies the effects of a step.

use std::sync::Arc;

use tokio::time::Instant;

use super::Core;
use crate::runtime::log::log_finding;
use crate::southbound::connection::{ComputationPanicked, SwitchNetwork};
use crate::southbound::{ChangeOrigin, DesiredTables};
use crate::state::{Effects, PlanRollout};

impl<N: SwitchNetwork> Core<N> {
    /// Applies the effects of an event that was received at this instant.
    pub(super) async fn apply_effects(
        &mut self,
        effects: Effects,
        received: Instant,
    ) -> Result<(), ComputationPanicked> {
        let origin = ChangeOrigin::new(effects.cause, received);
        self.apply_effects_since(effects, origin).await
    }

    /// Applies the effects of a change that began before the present event.
    pub(super) async fn apply_effects_since(
        &mut self,
        effects: Effects,
        origin: ChangeOrigin,
    ) -> Result<(), ComputationPanicked> {
        effects.findings.iter().for_each(log_finding);
        self.state.publish_revision();
        let is_repair = effects.protection.is_some();
        // Protect before plan is a contract: first the ports of what failed go out of use, which
        // takes no lowering; then every switch is lowered around the failure with the plan in
        // force; only then is a new plan computed. Each step is complete before the next, so a
        // repair never waits for a plan.
        if let Some(protection) = effects.protection {
            let tables = self.publisher.protected_tables(&protection, origin);
            self.publish_tables(tables, protection).await;
        }
        if let Some(rollout) = effects.rollout {
            let tables = self.publisher.lowered_tables(&rollout, origin).await?;
            self.publish_tables(tables, rollout).await;
        }
        if let Some(request) = effects.plan_request {
            // The planner also leaves the processor to the repair until the switches hold it.
            let repair = is_repair.then(|| self.publisher.wait_for_repair());
            self.planner.start_planning(request, effects.cause, repair);
        }
        self.state.reserve_generations().await;
        Ok(())
    }

    /// Gives the sessions their tables.
    async fn publish_tables(&mut self, tables: DesiredTables, rollout: PlanRollout) {
        // Sessions of another fabric end first: their switch ids now mean other switches.
        self.publisher.stop_stale_sessions(&rollout.fabric).await;
        let tables = Arc::new(tables);
        self.state.note_published(&tables, &rollout);
        self.publisher.publish(tables, rollout);
    }
}
