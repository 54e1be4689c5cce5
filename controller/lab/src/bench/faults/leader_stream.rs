//! The stream from a leader to a follower in a testbed, with its faults.
//!
//! It replaces gRPC between controllers, as [`fake_network`](super::fake_network) does between
//! controllers and switches. The decision: members are cut off from each other as from etcd, for
//! whose messages there are slots already, and a message that is lost ends the stream.

use std::time::Duration;

use controller::config::FollowConfig;
use controller::northbound::state_feed::replicate_state;
use controller::replication::{
    FollowerReport, LeaderNetwork, ReplicationError, StateUpdate, StateUpdates,
};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use super::fake_network::FakeNetwork;
use super::fault_schedule::ETCD as MEMBERS;
use super::fault_testbed::MessageFate;
use super::planted_bug::PlantedBug;

/// How long a message waits for its receiver.
const DEADLINE: Duration = Duration::from_millis(256);

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
    let carried =
        stream::unfold((network.clone(), reports), move |(network, mut reports)| async move {
            let report = reports.next().await?;
            let arrives = network.carry_to_member(leader).await;
            match network.planted_bug() {
                PlantedBug::FollowedForEver => {
                    Some((FollowerReport { follows: true, ..report }, (network, reports)))
                }
                _ => arrives.then_some((report, (network, reports))),
            }
        });
    let updates = replicate_state(&access, carried.boxed());
    Ok(carry_updates(network, leader, updates))
}

fn carry_updates(
    network: FakeNetwork,
    leader: u32,
    updates: BoxStream<'static, StateUpdate>,
) -> StateUpdates {
    let carried = stream::unfold((network, updates), move |(network, mut updates)| async move {
        let update = updates.next().await?;
        let arrives = network.carry_to_member(leader).await
            || network.planted_bug() == PlantedBug::FollowedForEver;
        arrives.then_some((Ok(update), (network, updates)))
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
        let world = self.lock_testbed();
        let is_cut = world.cuts.contains(&(other, MEMBERS));
        drop(world);
        arrives && !is_cut && !self.is_cut(MEMBERS)
    }
}
