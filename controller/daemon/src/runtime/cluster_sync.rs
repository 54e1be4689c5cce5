//! What the task owes to other controllers: it follows what the leader stores, and bids for
//! switches in the term that their standings ask for.
//!
//! The decision: whoever is elected takes everything in once more before writing. From then on no
//! other can store anything, so a leader takes nothing in: what it hears may be older than what it
//! has stored since.

use tokio::time::Instant;
use topology::spec;

use super::archive;
use super::log::log_finding;
use super::task::Runtime;
use crate::etcd::ClusterNetwork;
use crate::southbound::arbitration::Mastership;
use crate::southbound::connection::ComputationPanicked;
use crate::southbound::write_permit::WritePermit;
use crate::state::StateEvent;
use crate::store::StoreRecord;

impl<N: ClusterNetwork> Runtime<N> {
    /// Takes in what the leader has stored; once elected everything again, and then nothing. It is
    /// planned for before this controller writes to switches.
    pub(super) async fn sync_cluster(&mut self) -> Result<(), ComputationPanicked> {
        let now = Instant::now();
        let Some(office) = &mut self.membership else {
            return Ok(());
        };
        let Some(news) = office.latest_update() else {
            return Ok(());
        };
        let (turns, leads) = (office.update_election(news.elected), news.elected.is_some());
        if leads && !turns {
            // As it can be read, what could not be stored may be now.
            self.retry_store().await;
            return Ok(());
        }
        if turns {
            let desk = leads.then(|| office.store_client());
            self.archive.use_cluster_store(desk);
        }
        let mut lost = Vec::new();
        let records = self.archive.adopt_stored(news.stored.clone());
        let found = match self.shared.config.discovery.assumptions {
            Some(_) => self.archive.learned_fabric(self.state.fabric()),
            None => Ok(None),
        };
        if let Some(fabric) = archive::or_finding(found, &mut lost).flatten() {
            let learned = self.fabric_event(fabric, now);
            let effects = self.step_state(learned);
            self.apply_effects(effects, now).await?;
        }
        for record in records {
            let event = archive::event_from_record(&record, self.state.fabric());
            if let Some(event) = archive::or_finding(event, &mut lost) {
                let effects = self.step_state(event);
                self.apply_effects(effects, now).await?;
            }
        }
        if leads {
            let effects = self.step_state(StateEvent::ElectionWon(news.stored.generation));
            for record in self.archive.missing_records(self.state.stored_records()) {
                lost.extend(self.archive.store_or_report(record).await);
            }
            if let Some(office) = &mut self.membership {
                office.await_inputs(self.state.inputs());
            }
            self.apply_effects(effects, now).await?;
        }
        lost.iter().for_each(log_finding);
        Ok(())
    }

    /// Stores what is in force once more, if it is not known to be stored.
    pub(super) async fn retry_store(&mut self) {
        if self.archive.retry_due().is_none() {
            return;
        }
        let learns = self.shared.config.discovery.assumptions.is_some();
        let fabric =
            learns.then(|| StoreRecord::Fabric(spec::explicit_document(self.state.fabric())));
        let records = self.state.stored_records().into_iter().chain(fabric);
        self.archive.retry_records(records).await;
    }

    /// Bids at all switches in the term that their standings ask for, which is then used up.
    pub(super) async fn choose_term(&mut self, standings: &[Mastership], now: Instant) {
        let term = self.leadership.choose_term(standings, now);
        let kept = self.archive.store_or_report(StoreRecord::Term(term)).await;
        kept.iter().for_each(log_finding);
        let mandate = WritePermit::Open { term };
        self.write_permit.send_if_modified(|had| std::mem::replace(had, mandate) != mandate);
    }
}
