//! What the controller sees by itself: whether switches answer, what they hold and have room for,
//! and what has lasted long enough to be believed.
//!
//! [`runtime`](super) looks whenever a session has something to say, or something falls due. The
//! decision: everything is looked at each time. A look that finds nothing new changes nothing, so
//! it does not matter what woke it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use topology::{Change, SwitchId};
use tracing::{info, warn};

use super::Timing;
use super::drains::{News, names};
use super::task::Runtime;
use crate::liveness::{Health, Part};
use crate::southbound::SwitchStatus;
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::{Network, Panicked};
use crate::state::Event;
use crate::traces::End;

/// What the sessions see together.
#[derive(Default)]
struct Seen {
    parts: Vec<(Part, Health)>,
    rooms: Vec<(SwitchId, usize)>,
    standings: Vec<Standing>,
    /// The generation that each switch is seen to hold, if it is.
    held: Vec<(SwitchId, Option<u64>)>,
}

impl Seen {
    /// Whether any switch is led from here.
    fn leads(&self) -> bool {
        self.standings.iter().any(|standing| standing.is_primary())
    }

    fn add(&mut self, switch: SwitchId, line: &SwitchStatus) {
        let health = match line.standing {
            Standing::Apart | Standing::Candidate => Health::Down,
            _ => Health::Up,
        };
        self.parts.push((Part::Switch(switch), health));
        self.standings.push(line.standing);
        self.rooms.extend(line.pin_room.map(|room| (switch, room)));
        let held = line.verified.map(|verified| verified.generation);
        self.held.push((switch, held));
    }
}

impl<N: Network> Runtime<N> {
    /// Looks at what the sessions see, and at what has lasted.
    pub(super) async fn look(&mut self) -> Result<(), Panicked> {
        let now = Instant::now();
        self.recorder.look(&self.shared.board, self.clock.now());
        self.measure();
        let mut seen = Seen::default();
        let board = &self.shared.board;
        board.for_each(|switch, line| seen.add(switch, line));
        let leads = seen.leads();
        for (part, health) in seen.parts {
            let change = self.liveness.observe(part, health, now);
            self.believe(change, now).await?;
        }
        for change in self.liveness.due(now) {
            self.believe(Some(change), now).await?;
        }
        let held = self.held_everywhere(&seen.held);
        match leads {
            true => self.tell_drains(held, now),
            false => self.drains.wait(now),
        }
        self.use_again(held, now).await?;
        if self.office.is_none() {
            self.weigh(&seen.standings, now).await;
        }
        if self.ledger_due().is_some_and(|due| due <= now) {
            let effects = self.take(Event::TimeCame(self.clock.now())).await;
            self.carry_out(effects, now).await?;
        }
        if self.archive.due().is_some_and(|due| due <= now) {
            self.keep_again().await;
        }
        for (switch, room) in seen.rooms {
            if self.rooms.insert(switch, room) != Some(room) {
                let effects = self.step(Event::PinRoomLearned(switch, room));
                self.carry_out(effects, now).await?;
            }
        }
        Ok(())
    }

    /// Counts how long the latest change took, once every switch that is not down holds it.
    fn measure(&mut self) {
        let desired = Arc::clone(&self.desired.borrow());
        if !self.stopwatch.awaits(desired.generation) {
            return;
        }
        let (lines, is_held) = self.holding(desired.generation);
        if !is_held || lines.is_empty() {
            return;
        }
        let timing = Timing::new(&desired, &lines);
        self.stopwatch.count(&timing);
        if let Some(teller) = &self.teller {
            teller.tell(&desired, lines.values(), End::Verified(timing.verified));
        }
    }

    /// Tells of the change that the next one overtakes, if any switch was seen to hold it.
    pub(super) fn overtake(&self, now: Instant) {
        let Some(teller) = &self.teller else { return };
        let desired = Arc::clone(&self.desired.borrow());
        let (lines, _) = self.holding(desired.generation);
        if self.stopwatch.awaits(desired.generation) && !lines.is_empty() {
            teller.tell(&desired, lines.values(), End::Overtaken(now));
        }
    }

    /// The lines of the switches that are seen to hold a generation, and whether those are all that
    /// are not down.
    fn holding(&self, generation: u64) -> (BTreeMap<SwitchId, SwitchStatus>, bool) {
        let mut lines = BTreeMap::new();
        let fabric = self.state.fabric();
        let mut is_held = true;
        self.shared.board.for_each(|switch, line| {
            let seen = line.verified.filter(|seen| seen.generation == generation);
            is_held &= seen.is_some() || !fabric.is_switch_up(switch);
            lines.extend(seen.map(|_| (switch, line.clone())));
        });
        (lines, is_held)
    }

    /// Believes a change, if there is one.
    pub(super) async fn believe(
        &mut self,
        change: Option<Change>,
        now: Instant,
    ) -> Result<(), Panicked> {
        let Some(change) = change else { return Ok(()) };
        warn!(?change, "the fabric changed");
        let effects = self.step(Event::FabricChanged(change));
        self.carry_out(effects, now).await
    }

    /// The generation that every switch which works is seen to hold; 0 where one is not.
    fn held_everywhere(&self, held: &[(SwitchId, Option<u64>)]) -> Option<u64> {
        let works = |switch: SwitchId| self.state.fabric().is_switch_up(switch);
        let held = held.iter().filter(|(switch, _)| works(*switch));
        held.map(|(_, held)| held.unwrap_or(0)).min()
    }

    /// Lets what works again be used, once every switch that works is seen to know of it. Where
    /// another controller writes that is never seen here, and only time tells.
    async fn use_again(&mut self, held: Option<u64>, now: Instant) -> Result<(), Panicked> {
        let Some(due) = self.returns_due() else {
            return Ok(());
        };
        let latest = self.state.generation();
        let generation = held.filter(|_| now < due).unwrap_or(latest);
        let effects = self.step(Event::Held(generation));
        self.carry_out(effects, now).await
    }

    /// Says what is drained, or not yet.
    fn tell_drains(&mut self, held: Option<u64>, now: Instant) {
        match self.drains.look(held, now) {
            None => return,
            Some(News::Complete(parts)) => {
                let parts = names(&parts);
                info!(parts, "drained: nothing sends there any more");
            }
            Some(News::Late(parts)) => {
                let parts = names(&parts);
                warn!(
                    parts,
                    "not drained in time: not every switch holds the tables for it"
                );
            }
        }
        self.show_drains();
    }

    /// Shows how far drains are to whoever looks.
    pub(super) fn show_drains(&self) {
        let now = self.drains.drainage();
        self.drainage.send_if_modified(|shown| {
            let is_news = shown != now;
            if is_news {
                shown.clone_from(now);
            }
            is_news
        });
    }

    /// When what works again is used at the latest.
    pub(super) fn returns_due(&mut self) -> Option<Instant> {
        let due = || Instant::now() + self.shared.config.patience.returning;
        self.returns = match self.state.is_returning() {
            true => self.returns.or_else(|| Some(due())),
            false => None,
        };
        self.returns
    }
}
