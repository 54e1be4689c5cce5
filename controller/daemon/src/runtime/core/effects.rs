//! How the loop applies the effects of a step.

use std::sync::Arc;

use futures::FutureExt;
use tokio::time::Instant;

use super::Core;
use crate::runtime::log::log_finding;
use crate::runtime::lowering::LoweredRollout;
use crate::southbound::connection::ComputationPanicked;
use crate::southbound::{ChangeOrigin, DesiredTables};
use crate::state::{Effects, PlanRollout};

impl Core {
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
        // takes no lowering and so waits for none; then every switch is lowered around the failure
        // with the plan in force; only then is a new plan computed. A repair never waits for a
        // plan.
        if let Some(protection) = effects.protection
            && let Some(tables) = self.publisher.protected_tables(&protection, origin)
        {
            self.publish_tables(tables, protection).await;
        }
        if let Some(rollout) = effects.rollout {
            self.lowering.lower_next(rollout, origin);
        }
        if let Some(explanation) = effects.explanation {
            self.publisher.explain_rollout(explanation);
        }
        if let Some(request) = effects.plan_request {
            let published = self.publisher.wait_for_rollout(self.lowering.latest_generation());
            if is_repair {
                // The planner leaves the processor to the repair until the switches hold it.
                let repaired = self.publisher.wait_for_repair(published);
                self.planner.start_planning(request, effects.cause, repaired);
            } else {
                self.planner.start_planning(request, effects.cause, published.map(drop));
            }
        }
        // Last, since it may wait for a disk: everything that a switch needs is on its way by now.
        self.state.reserve_generations().await;
        Ok(())
    }

    /// Publishes lowered tables. A failure may have been protected since they were begun: they do
    /// not know of it, and those that do are lowered next.
    pub(super) async fn publish_lowered(
        &mut self,
        lowered: LoweredRollout,
    ) -> Result<(), ComputationPanicked> {
        let LoweredRollout { tables, rollout } = lowered;
        if !self.state.state().is_on_fabric(&rollout.wiring) {
            // Tables of a fabric that was replaced meanwhile are those of other switches.
            self.publisher.pass_over(tables.generation);
        } else if tables.generation > self.publisher.in_force().generation {
            self.publish_tables(tables, rollout).await;
        }
        // After publishing: equal tables are shared with those in force, which are the new ones
        // now.
        self.lowering.start_waiting();
        self.answer_published();
        Ok(())
    }

    /// Gives the sessions their tables.
    async fn publish_tables(&mut self, tables: DesiredTables, rollout: PlanRollout) {
        let tables = Arc::new(tables);
        self.state.note_published(&tables, &rollout);
        self.publisher.publish(tables, rollout);
        // A comparison may have ended while the tables were lowered.
        if let Some(latest) = self.state.state().latest_rollout() {
            self.publisher.explain_rollout(latest.clone());
        }
    }
}
