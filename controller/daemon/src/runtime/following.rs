//! What the task owes to other controllers: it follows what the leader stores, and bids for
//! switches in the term that their standings ask for.
//!
//! The decision: whoever is elected takes everything in once more before writing, as from then on
//! no other can store anything.

use tokio::time::Instant;

use super::archive;
use super::log::log;
use super::task::Runtime;
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::mandate::Mandate;
use crate::state::Event;
use crate::store::Record;

impl<N: Network> Runtime<N> {
    /// Takes in what the leader has stored. Once elected, everything again, as from then on no
    /// other can store anything; it is planned for before this controller writes to switches.
    pub(super) async fn follow(&mut self) -> Result<(), Panicked> {
        let now = Instant::now();
        let Some(office) = &mut self.office else {
            return Ok(());
        };
        let Some(news) = office.news() else {
            return Ok(());
        };
        let turns = office.turns(news.elected);
        if turns {
            let desk = news.elected.map(|_| office.desk());
            self.archive.share(desk);
        }
        let mut lost = Vec::new();
        let records = self.archive.follow(news.memory.clone());
        let found = match self.shared.config.discovery.assumed {
            Some(_) => self.archive.found(self.state.fabric()),
            None => Ok(None),
        };
        if let Some(fabric) = archive::or_lost(found, &mut lost).flatten() {
            let learned = self.learned(fabric, now);
            let effects = self.step(learned);
            self.carry_out(effects, now).await?;
        }
        for record in records {
            let event = archive::read(&record, self.state.fabric());
            if let Some(event) = archive::or_lost(event, &mut lost) {
                let effects = self.step(event);
                self.carry_out(effects, now).await?;
            }
        }
        if turns && news.elected.is_some() {
            let effects = self.step(Event::Elected(news.memory.generation));
            for record in self.archive.missing(self.state.records()) {
                lost.extend(self.archive.keep(record).await);
            }
            if let Some(office) = &mut self.office {
                office.prepare(self.state.inputs());
            }
            self.carry_out(effects, now).await?;
        }
        lost.iter().for_each(log);
        Ok(())
    }

    /// Bids at all switches in the term that their standings ask for, which is then used up.
    pub(super) async fn weigh(&mut self, standings: &[Standing], now: Instant) {
        let term = self.leadership.weigh(standings, now);
        let kept = self.archive.keep(Record::Term(term)).await;
        kept.iter().for_each(log);
        let mandate = Mandate::Open { term };
        self.mandate
            .send_if_modified(|had| std::mem::replace(had, mandate) != mandate);
    }
}
