//! What the task owes to other controllers: it follows what the leader stores, and bids for
//! switches in the term that their standings ask for.
//!
//! The decision: whoever is elected takes everything in once more before writing. From then on no
//! other can store anything, so a leader takes nothing in: what it hears may be older than what it
//! has stored since.

use tokio::time::Instant;
use topology::spec;

use super::archive;
use super::log::log;
use super::task::Runtime;
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::{Network, Panicked};
use crate::southbound::mandate::Mandate;
use crate::state::Event;
use crate::store::Record;

impl<N: Network> Runtime<N> {
    /// Takes in what the leader has stored; once elected everything again, and then nothing. It is
    /// planned for before this controller writes to switches.
    pub(super) async fn follow(&mut self) -> Result<(), Panicked> {
        let now = Instant::now();
        let Some(office) = &mut self.office else {
            return Ok(());
        };
        let Some(news) = office.news() else {
            return Ok(());
        };
        let (turns, leads) = (office.turns(news.elected), news.elected.is_some());
        if leads && !turns {
            // As it can be read, what could not be stored may be now.
            self.keep_again().await;
            return Ok(());
        }
        if turns {
            let desk = leads.then(|| office.desk());
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
        if leads {
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

    /// Stores what is in force once more, if it is not known to be stored.
    pub(super) async fn keep_again(&mut self) {
        if self.archive.due().is_none() {
            return;
        }
        let learns = self.shared.config.discovery.assumed.is_some();
        let fabric = learns.then(|| Record::Fabric(spec::document(self.state.fabric())));
        let records = self.state.records().into_iter().chain(fabric);
        self.archive.keep_again(records).await;
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
