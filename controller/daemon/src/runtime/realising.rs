//! What the task does with what follows from an event.
//!
//! The decision: first the ports of what failed, then the tables, then the thinking. Each step is
//! whole before the next, so that a repair never waits for a plan, nor shares the processor with
//! one for as long as a repair takes.

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use tracing::info;

use super::log::log;
use super::making::{desired, lowered};
use super::running::Session;
use super::task::Runtime;
use crate::lower::protect;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::{Desired, Origin, Target, session};
use crate::state::{Effects, Question, Realise};

impl<N: Network> Runtime<N> {
    /// First the ports of what failed, then the tables, then the thinking.
    pub(super) async fn carry_out(
        &mut self,
        effects: Effects,
        received: Instant,
    ) -> Result<(), Panicked> {
        let origin = Origin::new(effects.cause, received);
        self.carry_out_since(effects, origin).await
    }

    /// The same, of what began before the present event.
    pub(super) async fn carry_out_since(
        &mut self,
        effects: Effects,
        origin: Origin,
    ) -> Result<(), Panicked> {
        effects.findings.iter().for_each(log);
        self.show_edition();
        let is_repair = effects.protect.is_some();
        if let Some(protection) = effects.protect {
            self.protect(protection, origin).await;
        }
        if let Some(realise) = effects.realise {
            self.realise(realise, origin).await?;
        }
        if let Some(question) = effects.question {
            let repair = is_repair.then(|| self.repaired());
            self.ask(question, effects.cause, repair);
        }
        let spent = self.archive.keep_generation(self.state.generation());
        spent.await.iter().for_each(log);
        Ok(())
    }

    /// Shows whoever looks which edition is in force.
    fn show_edition(&self) {
        let latest = self.state.ledger().latest();
        let edition = (latest.number, latest.trial.is_some());
        self.edition
            .send_if_modified(|had| std::mem::replace(had, edition) != edition);
    }

    /// Takes the ports of what failed out of the tables as they are.
    async fn protect(&mut self, protection: Realise, origin: Origin) {
        let tables = protect(
            &protection.wiring,
            &protection.fabric,
            &self.desired.borrow().tables,
        );
        let desired = desired(&protection, tables, origin);
        self.publish(desired, protection).await;
    }

    /// Lowers a plan to tables.
    async fn realise(&mut self, realise: Realise, origin: Origin) -> Result<(), Panicked> {
        let before = Arc::clone(&self.desired.borrow());
        let lowering = realise.clone();
        let work = move || lowered(&lowering, &before, origin);
        let desired = self.shared.network.compute(work).await?;
        self.publish(desired, realise).await;
        Ok(())
    }

    /// Has the planner begin, once a repair is done.
    fn ask(
        &mut self,
        question: Question,
        cause: &'static str,
        repair: Option<impl Future<Output = ()> + Send + 'static>,
    ) {
        let now = Instant::now();
        self.asked = Origin {
            asked: Some(now),
            ..Origin::new(cause, now)
        };
        let network = self.shared.network.clone();
        self.thinking = Some(tokio::spawn(async move {
            if let Some(repair) = repair {
                repair.await;
            }
            network.compute(move || question.answer()).await
        }));
    }

    /// Waits until every switch that is led from here holds what is desired now, or until a repair
    /// should have been done.
    fn repaired(&self) -> impl Future<Output = ()> + use<N> {
        let board = self.shared.board.clone();
        let generation = self.desired.borrow().generation;
        let deadline = self.shared.config.repair_deadline;
        let repaired = async move {
            let mut changes = board.changes();
            // The board itself holds the sender.
            while !board.is_held(generation) && changes.changed().await.is_ok() {}
        };
        async move { drop(timeout(deadline, repaired).await) }
    }

    /// Gives the sessions their tables. Sessions with switches of another fabric end first, since
    /// its ids mean other switches now.
    async fn publish(&mut self, desired: Desired, realise: Realise) {
        let targets = Target::all(&realise.fabric);
        let stays = |target: &Target| targets.contains(target);
        for (target, session) in self.sessions.extract_if(.., |target, _| !stays(target)) {
            session.end().await;
            self.shared.board.remove(target.switch);
        }
        let (generation, plan) = (desired.generation, realise.plan.generation);
        info!(generation, plan, "publishing");
        self.overtake(Instant::now());
        let desired = Arc::new(desired);
        self.recorder.given(&desired, &realise, self.clock.now());
        self.desired.send_replace(desired);
        self.realised.send_replace(Some(realise));
        for target in targets {
            let shared = &self.shared;
            let start = |target: &Target| {
                shared.board.add(target.switch, &target.name);
                let stop = self.stop.child_token();
                let dealing = session::run(target.clone(), shared.clone(), stop.clone());
                let task = tokio::spawn(dealing);
                Session { stop, task }
            };
            self.sessions.entry(target).or_insert_with_key(start);
        }
    }
}
