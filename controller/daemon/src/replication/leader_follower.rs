//! The follower's side: a task that keeps a stream to whichever other controller leads.
//!
//! The decision: the task decides nothing. It hands updates to the event loop, which applies and
//! confirms them, and the reports of the event loop to the leader, also those that do not change,
//! as silence means that nobody follows.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use topology::error_chain;
use tracing::{info, warn};

use super::{FollowerReport, ReplicationError, StateUpdate};
use crate::config::FollowConfig;

/// The leader's updates, in order; ends with the stream.
pub type StateUpdates = BoxStream<'static, Result<StateUpdate, ReplicationError>>;

/// Opens streams to other controllers.
pub trait LeaderNetwork: Clone + Send + Sync + 'static {
    /// Opens a stream to a controller that is expected to lead.
    ///
    /// # Errors
    /// It does not answer, does not lead, or refuses the token.
    fn follow_leader(
        &self,
        member: &str,
        config: &FollowConfig,
        reports: BoxStream<'static, FollowerReport>,
    ) -> impl Future<Output = Result<StateUpdates, ReplicationError>> + Send;
}

/// Updates that may wait for the event loop.
const QUEUE: usize = 4;

/// The leader that a controller follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedLeader {
    /// Its address.
    pub address: String,
    /// Its number.
    pub controller: u32,
    /// The term in which it leads.
    pub term: u64,
    /// Whether it has said that it leaves the lead.
    pub is_leaving: bool,
    /// When it last sent something.
    pub received: Instant,
}

/// The runtime's side of following.
#[derive(Debug)]
pub(crate) struct FollowerHandle {
    /// What the leader sends.
    pub(crate) updates: mpsc::Receiver<StateUpdate>,
    /// What is confirmed to the leader.
    pub(crate) report: watch::Sender<FollowerReport>,
    /// Whether this controller leads itself, and follows nobody.
    pub(crate) leads: watch::Sender<bool>,
    /// The leader that it follows, if one answers.
    pub(crate) followed: watch::Receiver<Option<FollowedLeader>>,
    /// The terms of the states of other members, by address, as far as they answer.
    pub(crate) member_terms: watch::Receiver<BTreeMap<String, u64>>,
}

/// Keeps a stream to the leader.
pub(crate) struct LeaderFollower<N> {
    network: N,
    config: FollowConfig,
    /// The longest time between two reports.
    interval: Duration,
    updates: mpsc::Sender<StateUpdate>,
    report: watch::Receiver<FollowerReport>,
    leads: watch::Receiver<bool>,
    followed: watch::Sender<Option<FollowedLeader>>,
    member_terms: watch::Sender<BTreeMap<String, u64>>,
    /// The last failure, which is not logged again.
    failure: String,
}

impl<N: LeaderNetwork> LeaderFollower<N> {
    /// A follower with this number, and its handle for the runtime.
    pub(crate) fn new(
        network: N,
        config: &FollowConfig,
        controller: u32,
        interval: Duration,
    ) -> (Self, FollowerHandle) {
        let (updates, to_runtime) = mpsc::channel(QUEUE);
        let (report, reported) = watch::channel(FollowerReport {
            controller,
            follows: true,
            ..FollowerReport::default()
        });
        let (leads, is_leading) = watch::channel(false);
        let (followed, to_watch) = watch::channel(None);
        let (member_terms, terms) = watch::channel(BTreeMap::new());
        let follower = Self {
            network,
            config: config.clone(),
            interval,
            updates,
            report: reported,
            leads: is_leading,
            followed,
            member_terms,
            failure: String::new(),
        };
        let handle = FollowerHandle {
            updates: to_runtime,
            report,
            leads,
            followed: to_watch,
            member_terms: terms,
        };
        (follower, handle)
    }

    /// Follows until `stop`, one member after the other until one of them leads.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow_forever()).await;
    }

    async fn follow_forever(&mut self) {
        let mut failures = 0_usize;
        // The runtime is gone when its side is; then the task is cancelled as well.
        while self.leads.wait_for(|leads| !leads).await.is_ok() {
            let members = &self.config.members;
            let member = members[failures % members.len()].clone();
            let mut leads = self.leads.clone();
            let ended = tokio::select! {
                ended = self.follow_member(&member) => ended,
                _ = leads.wait_for(|leads| *leads) => continue,
            };
            self.followed.send_replace(None);
            if !matches!(ended, ReplicationError::NoLeader) {
                self.member_terms.send_if_modified(|terms| terms.remove(&member).is_some());
            }
            self.log_failure(&member, &ended);
            failures = failures.wrapping_add(1);
            sleep(self.config.backoff.wait_after(1)).await;
        }
    }

    /// One stream, until it ends.
    async fn follow_member(&mut self, member: &str) -> ReplicationError {
        let reports = repeated_reports(self.report.clone(), self.interval);
        let opened = self.network.follow_leader(member, &self.config, reports).await;
        let mut updates = match opened {
            Ok(updates) => updates,
            Err(error) => return error,
        };
        loop {
            let update = match updates.next().await {
                Some(Ok(update)) => update,
                Some(Err(error)) => return error,
                None => return ReplicationError::Ended,
            };
            self.member_terms.send_if_modified(|terms| {
                terms.insert(member.to_owned(), update.term) != Some(update.term)
            });
            if !update.leads {
                return ReplicationError::NoLeader;
            }
            self.note_leader(member, &update);
            if self.updates.send(update).await.is_err() {
                return ReplicationError::Ended;
            }
        }
    }

    fn note_leader(&mut self, member: &str, update: &StateUpdate) {
        let leader = FollowedLeader {
            address: member.to_owned(),
            controller: update.leader,
            term: update.term,
            is_leaving: update.is_leaving,
            received: Instant::now(),
        };
        let before = self.followed.send_replace(Some(leader));
        if before.is_none() {
            info!(leader = update.leader, member, term = update.term, "follows the leader");
        }
        self.failure.clear();
    }

    fn log_failure(&mut self, member: &str, error: &ReplicationError) {
        let text = format!("{member}: {}", error_chain(error));
        if self.failure != text {
            warn!("follows nobody: {text}");
            self.failure = text;
        }
    }
}

/// The latest report whenever it changes, and at least once per `interval`.
fn repeated_reports(
    report: watch::Receiver<FollowerReport>,
    interval: Duration,
) -> BoxStream<'static, FollowerReport> {
    let first = Some((report, Duration::ZERO));
    let reports = stream::unfold(first, move |state| async move {
        let (mut report, wait) = state?;
        if let Ok(Err(_)) = timeout(wait, report.changed()).await {
            return None;
        }
        let latest = *report.borrow_and_update();
        Some((latest, Some((report, interval))))
    });
    reports.boxed()
}
