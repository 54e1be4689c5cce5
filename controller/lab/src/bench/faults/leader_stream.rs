//! The stream from a leader to a follower in a testbed, with its faults.
//!
//! It replaces gRPC between controllers, as [`fake_network`](super::fake_network) does between
//! controllers and switches. The decision: members are cut off from each other as from etcd, for
//! whose messages there are slots already, and a message that is lost ends the stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controller::config::FollowConfig;
use controller::northbound::state_feed::replicate_state;
use controller::replication::{
    FollowerReport, LeaderNetwork, ReplicationError, StateUpdate, StateUpdates,
};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::fake_network::FakeNetwork;
use super::fault_schedule::ETCD as MEMBERS;
use super::fault_testbed::{MessageFate, TRIP};
use super::planted_bug::PlantedBug;

/// How long a message waits for its receiver.
const DEADLINE: Duration = Duration::from_millis(256);
/// Between two reports of a follower that a planted bug invents.
const REPORT_INTERVAL: Duration = Duration::from_millis(16);

impl LeaderNetwork for FakeNetwork {
    fn follow_leader(
        &self,
        member: &str,
        _: &FollowConfig,
        reports: BoxStream<'static, FollowerReport>,
    ) -> impl Future<Output = Result<StateUpdates, ReplicationError>> + Send {
        open_stream(self.clone(), member.to_owned(), reports).boxed()
    }
}

async fn open_stream(
    network: FakeNetwork,
    member: String,
    reports: BoxStream<'static, FollowerReport>,
) -> Result<StateUpdates, ReplicationError> {
    let leader: u32 =
        member.trim_start_matches("controller:").parse().map_err(|_| ReplicationError::Ended)?;
    if !network.carry_to_member(leader).await {
        return Err(ReplicationError::Ended);
    }
    let access = network.lock_testbed().members.get(&leader).cloned();
    let access = access.ok_or(ReplicationError::Ended)?;
    if network.planted_bug() != PlantedBug::FollowedForEver {
        let reports = carry_reports(network.clone(), leader, reports);
        return Ok(carry_updates(network, leader, replicate_state(&access, reports)));
    }
    let made = Arc::new(AtomicU64::new(0));
    let repeated = repeat_report(reports, Arc::clone(&made)).await;
    let updates = replicate_state(&access, repeated.ok_or(ReplicationError::Ended)?);
    Ok(carry_updates(network, leader, receive_for_ever(updates, made)))
}

/// A follower that has once confirmed that it follows, as a leader hears it that never forgets one:
/// it confirms whatever is `made`.
async fn repeat_report(
    mut reports: BoxStream<'static, FollowerReport>,
    made: Arc<AtomicU64>,
) -> Option<BoxStream<'static, FollowerReport>> {
    let first = FollowerReport { follows: true, ..reports.next().await? };
    let repeated = stream::unfold(made, move |made| async move {
        sleep(REPORT_INTERVAL).await;
        let applied = made.load(Ordering::Relaxed);
        Some((FollowerReport { applied, ..first }, made))
    });
    Some(repeated.boxed())
}

/// The updates, of which a leader never notices that nobody receives them; the number of the last.
fn receive_for_ever(
    mut updates: BoxStream<'static, StateUpdate>,
    made: Arc<AtomicU64>,
) -> BoxStream<'static, StateUpdate> {
    let (forward, received) = mpsc::unbounded_channel::<StateUpdate>();
    tokio::spawn(async move {
        while let Some(update) = updates.next().await {
            made.store(update.number, Ordering::Relaxed);
            // Nobody may receive it.
            forward.send(update).ok();
        }
    });
    stream::unfold(received, |mut received| async move {
        let update = received.recv().await?;
        Some((update, received))
    })
    .boxed()
}

fn carry_reports(
    network: FakeNetwork,
    leader: u32,
    reports: BoxStream<'static, FollowerReport>,
) -> BoxStream<'static, FollowerReport> {
    let carried = stream::unfold((network, reports), move |(network, mut reports)| async move {
        let report = reports.next().await?;
        network.carry_to_member(leader).await.then_some((report, (network, reports)))
    });
    carried.boxed()
}

fn carry_updates(
    network: FakeNetwork,
    leader: u32,
    updates: BoxStream<'static, StateUpdate>,
) -> StateUpdates {
    let carried = stream::unfold((network, updates), move |(network, mut updates)| async move {
        let update = updates.next().await?;
        network.carry_to_member(leader).await.then_some((Ok(update), (network, updates)))
    });
    carried.boxed()
}

impl FakeNetwork {
    /// Carries a message between this controller and another one; whether it arrives.
    async fn carry_to_member(&self, other: u32) -> bool {
        let (after, arrives) = match self.draw_fate(MEMBERS, DEADLINE) {
            MessageFate::Arrives(after) | MessageFate::Twice(after) => (after, true),
            MessageFate::Lost | MessageFate::Late(_) => (DEADLINE, false),
        };
        self.wait_for_slot(MEMBERS, after).await;
        while self.is_paused(other) {
            self.wait_for_slot(MEMBERS, TRIP).await;
        }
        let world = self.lock_testbed();
        let is_cut = world.cuts.contains(&(other, MEMBERS));
        drop(world);
        arrives && !is_cut && !self.is_cut(MEMBERS)
    }
}
