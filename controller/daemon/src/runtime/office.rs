//! The runtime's part in a cluster that is led through etcd: what others stored comes in as events,
//! and an election is answered once everything stored is planned for.
//!
//! [`etcd`](crate::etcd) elects; the state plans as always, whether this controller leads or not.
//! The decision: who waits to lead plans the same as the leader, from the same documents, so that
//! to take over is to begin writing and nothing else.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::Finding;

use crate::config::Config;
use crate::etcd::{Desk, Door, Member, News};
use crate::southbound::connection::Network;
use crate::southbound::mandate::Mandate;
use crate::state::Event;

/// A membership as the runtime holds it.
#[derive(Debug)]
pub(super) struct Office {
    door: Door,
    mandate: watch::Receiver<Mandate>,
    /// The election that this controller won and did not lose.
    elected: Option<u64>,
    /// The number of the event with which everything stored is taken in.
    awaited: Option<u64>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Office {
    /// Takes part, if the configuration names an etcd; `mandate` is then decided there.
    pub(super) fn open<N: Network>(
        network: &N,
        config: &Config,
        mandate: &watch::Sender<Mandate>,
    ) -> Option<Self> {
        let etcd = config.etcd.as_ref()?;
        mandate.send_replace(Mandate::Unknown);
        let network = network.clone();
        let (member, door) = Member::new(network, etcd, config.controller, mandate.clone());
        let stop = CancellationToken::new();
        Some(Self {
            door,
            mandate: mandate.subscribe(),
            elected: None,
            awaited: None,
            task: tokio::spawn(member.run(stop.clone())),
            stop,
        })
    }

    /// Where records go.
    pub(super) fn desk(&self) -> Desk {
        self.door.desk.clone()
    }

    /// Waits for news.
    pub(super) async fn changed(&mut self) {
        if self.door.news.changed().await.is_err() {
            // The member has panicked: there is no news any more, and no mandate after its end.
            std::future::pending::<()>().await;
        }
    }

    /// What was read in etcd last.
    pub(super) fn news(&mut self) -> Option<Arc<News>> {
        self.door.news.borrow_and_update().clone()
    }

    /// Why this controller does not take an event: others would not hear of it.
    pub(super) fn refuses(&self, event: &Event) -> Option<Finding> {
        let about = match event {
            Event::JobsChanged(_) | Event::JobsTold(_) => "jobs",
            event if event.is_of_policy() => "policy",
            _ => return None,
        };
        let leader = match *self.mandate.borrow() {
            mandate if mandate.leads(Instant::now()) => return None,
            Mandate::Standby { leader, .. } => leader,
            _ => None,
        };
        let text = match leader {
            Some(number) => format!("refused: controller {number} leads; tell that one"),
            None => "refused: no controller leads now; tell again when one does".to_owned(),
        };
        Some(Finding::error(about, text))
    }

    /// Whether this controller leads.
    pub(super) fn leads(&self) -> bool {
        self.mandate.borrow().leads(Instant::now())
    }

    /// Whether it has turned: this controller was elected, or is not any more.
    pub(super) fn turns(&mut self, elected: Option<u64>) -> bool {
        let turns = self.elected != elected;
        if turns {
            (self.elected, self.awaited) = (elected, None);
        }
        turns
    }

    /// Everything stored until the election is taken in with event `inputs`.
    pub(super) fn prepare(&mut self, inputs: u64) {
        self.awaited = self.elected.map(|_| inputs);
    }

    /// Accepts the election, once all that was awaited is planned for.
    pub(super) fn accept(&mut self, planned: u64) {
        if self.awaited.take_if(|inputs| *inputs <= planned).is_some() {
            self.door.prepared.send_replace(self.elected);
        }
    }

    /// Leaves, and gives a leadership back.
    pub(super) async fn close(self) {
        self.stop.cancel();
        // If it has panicked, the lease runs out by itself.
        drop(self.task.await);
    }
}
