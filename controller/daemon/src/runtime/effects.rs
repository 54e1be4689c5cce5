//! What the task does with what follows from an event.
//!
//! The decision: first the ports of what failed, then the tables, then the thinking. Each step is
//! whole before the next, so that a repair never waits for a plan, nor shares the processor with
//! one for as long as a repair takes.

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use tracing::info;

use super::log::log_finding;
use super::lowering::{desired_tables, lower_rollout};
use super::session_task::SessionTask;
use super::task::Runtime;
use crate::etcd::ClusterNetwork;
use crate::lower::protect_tables;
use crate::southbound::connection::ComputationPanicked;
use crate::southbound::{ChangeOrigin, DesiredTables, SwitchTarget, session};
use crate::state::{Effects, PlanRequest, PlanRollout};

impl<N: ClusterNetwork> Runtime<N> {
    /// First the ports of what failed, then the tables, then the thinking.
    pub(super) async fn apply_effects(
        &mut self,
        effects: Effects,
        received: Instant,
    ) -> Result<(), ComputationPanicked> {
        let origin = ChangeOrigin::new(effects.cause, received);
        self.apply_effects_since(effects, origin).await
    }

    /// The same, of what began before the present event.
    pub(super) async fn apply_effects_since(
        &mut self,
        effects: Effects,
        origin: ChangeOrigin,
    ) -> Result<(), ComputationPanicked> {
        effects.findings.iter().for_each(log_finding);
        self.publish_revision();
        let is_repair = effects.protection.is_some();
        if let Some(protection) = effects.protection {
            self.protect_ports(protection, origin).await;
        }
        if let Some(realise) = effects.rollout {
            self.roll_out_plan(realise, origin).await?;
        }
        if let Some(question) = effects.plan_request {
            let repair = is_repair.then(|| self.wait_for_repair());
            self.start_planning(question, effects.cause, repair);
        }
        let spent = self.archive.reserve_generations(self.state.generation());
        spent.await.iter().for_each(log_finding);
        Ok(())
    }

    /// Shows whoever looks which edition is in force.
    fn publish_revision(&self) {
        let latest = self.state.policy_history().latest();
        let edition = (latest.number, latest.trial.is_some());
        self.revision.send_if_modified(|had| std::mem::replace(had, edition) != edition);
    }

    /// Takes the ports of what failed out of the tables as they are.
    async fn protect_ports(&mut self, protection: PlanRollout, origin: ChangeOrigin) {
        let tables =
            protect_tables(&protection.wiring, &protection.fabric, &self.desired.borrow().tables);
        let desired = desired_tables(&protection, tables, origin);
        self.publish_tables(desired, protection).await;
    }

    /// Lowers a plan to tables.
    async fn roll_out_plan(
        &mut self,
        realise: PlanRollout,
        origin: ChangeOrigin,
    ) -> Result<(), ComputationPanicked> {
        let before = Arc::clone(&self.desired.borrow());
        let lowering = realise.clone();
        let work = move || lower_rollout(&lowering, &before, origin);
        let desired = self.shared.network.run_blocking(work).await?;
        self.publish_tables(desired, realise).await;
        Ok(())
    }

    /// Has the planner begin, once a repair is done.
    fn start_planning(
        &mut self,
        question: PlanRequest,
        cause: &'static str,
        repair: Option<impl Future<Output = ()> + Send + 'static>,
    ) {
        let now = Instant::now();
        self.planning_origin =
            ChangeOrigin { planning_started: Some(now), ..ChangeOrigin::new(cause, now) };
        let network = self.shared.network.clone();
        self.planning = Some(tokio::spawn(async move {
            if let Some(repair) = repair {
                repair.await;
            }
            network.run_blocking(move || question.compute_plan()).await
        }));
    }

    /// Waits until every switch that is led from here holds what is desired now, or until a repair
    /// should have been done.
    fn wait_for_repair(&self) -> impl Future<Output = ()> + use<N> {
        let board = self.shared.board.clone();
        let generation = self.desired.borrow().generation;
        let deadline = self.shared.config.repair_deadline;
        let repaired = async move {
            let mut changes = board.subscribe();
            // The board itself holds the sender.
            while !board.is_generation_held(generation) && changes.changed().await.is_ok() {}
        };
        async move { drop(timeout(deadline, repaired).await) }
    }

    /// Gives the sessions their tables. Sessions with switches of another fabric end first, since
    /// its ids mean other switches now.
    async fn publish_tables(&mut self, desired: DesiredTables, realise: PlanRollout) {
        let targets = SwitchTarget::all_in_fabric(&realise.fabric);
        let stays = |target: &SwitchTarget| targets.contains(target);
        for (target, session) in self.sessions.extract_if(.., |target, _| !stays(target)) {
            session.stop_session().await;
            self.shared.board.remove_switch(target.switch);
        }
        let (generation, plan) = (desired.generation, realise.plan.generation);
        info!(generation, plan, "publishing");
        self.trace_superseded(Instant::now());
        let desired = Arc::new(desired);
        self.recorder.note_published(&desired, &realise, self.clock.unix_now());
        self.desired.send_replace(desired);
        self.rollout.send_replace(Some(realise));
        for target in targets {
            let shared = &self.shared;
            let start = |target: &SwitchTarget| {
                shared.board.add_switch(target.switch, &target.name);
                let stop = self.stop.child_token();
                let dealing = session::run_session(target.clone(), shared.clone(), stop.clone());
                let task = tokio::spawn(dealing);
                SessionTask { stop, task }
            };
            self.sessions.entry(target).or_insert_with_key(start);
        }
    }
}
