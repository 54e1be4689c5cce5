//! One switch over gNMI, as long as somebody wants to know: a subscription to the states of its
//! ports, and checks of its maps of queues and readings of its counters beside it.

use std::time::Duration;

use p4runtime_proto::gnmi as proto;
use p4runtime_proto::gnmi::g_nmi_client::GNmiClient;
use proto::subscribe_response::Response;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use topology::{Finding, SwitchId, error_chain};
use tracing::debug;

use super::GnmiTarget;
use super::interface_table::InterfaceTable;
use super::leaf_value::take_apart;
use super::neighbours::LldpTable;
use super::queue_maps::{QueueMaps, check_queue_maps};
use super::queue_settings::{ExpectedQueues, QueueSettings, check_queue_settings};
use super::switch_counters::SwitchCounters;
use crate::config::{GnmiConfig, SouthboundConfig};
use crate::liveness::PartHealth;
use crate::southbound::{
    ClientError, connect_channel, describe_status, is_too_many_pings, until_revoked,
};

/// The leaves of an interface that say which port it is, and whether it works.
const PORT_LEAVES: [&str; 2] = ["id", "oper-status"];
/// The lists that say how packets find their queue.
const QUEUE_LISTS: [&[&str]; 3] =
    [&["qos", "classifiers"], &["qos", "forwarding-groups"], &["qos", "scheduler-policies"]];

/// The port of each interface, and what it counts.
const INTERFACE_COUNTERS: [&[&str]; 2] = [
    &["interfaces", "interface", "state", "id"],
    &["interfaces", "interface", "state", "counters"],
];
/// The port of each interface, and what its queues count and how they are set.
const INTERFACE_QUEUES: [&[&str]; 2] =
    [&["interfaces", "interface", "state", "id"], &["qos", "interfaces"]];
/// The port of each interface, and who is at its other end.
const NEIGHBOURS: [&[&str]; 2] = [&["interfaces", "interface", "state", "id"], &["lldp"]];
/// Thresholds of marking.
const QUEUE_PROFILES: [&[&str]; 1] = [&["qos", "queue-management-profiles"]];

/// What a follower reports.
#[derive(Debug)]
pub(super) enum SwitchReport {
    /// The states of ports, by their numbers.
    Ports(SwitchId, Vec<(u32, PartHealth)>),
    /// A switch, by its name, has said all that it knows of its ports.
    Answers(String),
    /// A switch, also by its name, cannot be asked, and why.
    Silent(SwitchId, String, String),
    /// What a switch has counted at its ports.
    Counters(SwitchId, SwitchCounters),
    /// Who is at the other ends of the ports of a switch.
    Neighbours(SwitchId, LldpTable),
    /// What is wrong with the maps of a switch, by its name.
    QueueMaps(String, Vec<Finding>),
}

/// The follower of one switch.
pub(super) struct SwitchFollower {
    pub(super) target: GnmiTarget,
    pub(super) limits: GnmiConfig,
    pub(super) southbound: SouthboundConfig,
    pub(super) expected: ExpectedQueues,
    pub(super) reports: mpsc::Sender<SwitchReport>,
    /// When the clock of readings began, the same for all switches.
    pub(super) started: Instant,
}

/// Why a switch is not followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Connect(#[from] ClientError),
    #[error("no answer within the deadline")]
    Deadline,
    #[error("{0:?}: {1}")]
    Call(Code, String),
    #[error("the switch has ended the subscription")]
    Ended,
    #[error("nobody wants to know")]
    Unheard,
}

impl From<Status> for FollowError {
    fn from(status: Status) -> Self {
        Self::Call(status.code(), describe_status(&status))
    }
}

impl FollowError {
    /// Whether the server ended the connection for its HTTP/2 pings.
    fn is_too_many_pings(&self) -> bool {
        matches!(self, Self::Call(_, message) if is_too_many_pings(message))
    }
}

impl SwitchFollower {
    /// Follows the switch until nobody takes reports.
    pub(super) async fn follow_until_closed(mut self) {
        let mut failures = 0;
        loop {
            let mut has_answered = false;
            let error = match self.follow_connected(&mut has_answered).await {
                Err(FollowError::Unheard) => return,
                Err(error) => error,
                Ok(()) => FollowError::Ended,
            };
            failures = if has_answered { 1 } else { failures + 1 };
            if error.is_too_many_pings() {
                self.southbound.ping_interval = self.southbound.ping_interval.saturating_mul(2);
            }
            let (name, why) = (self.target.name.clone(), error_chain(&error));
            debug!(switch = name, why, "not followed over gNMI");
            let silent = SwitchReport::Silent(self.target.switch, name, why);
            if self.reports.send(silent).await.is_err() {
                return;
            }
            tokio::time::sleep(self.southbound.backoff.wait_after(failures)).await;
        }
    }

    /// One connection, until it fails. A check of queues that takes long delays no port.
    async fn follow_connected(&self, has_answered: &mut bool) -> Result<(), FollowError> {
        let (channel, certificate) =
            connect_channel(&self.target.address, &self.southbound).await?;
        let client =
            GNmiClient::new(channel).max_decoding_message_size(self.southbound.receive_max);
        tokio::select! {
            () = until_revoked(certificate) => Ok(()),
            ended = self.follow_ports(client.clone(), has_answered) => ended,
            ended = self.check_regularly(client.clone()) => ended,
            ended = self.count_regularly(client) => ended,
        }
    }

    async fn follow_ports(
        &self,
        mut client: GNmiClient<Channel>,
        has_answered: &mut bool,
    ) -> Result<(), FollowError> {
        // The sender stays open: to close it ends the subscription.
        let (requests, outgoing) = mpsc::channel(1);
        requests.send(port_subscription()).await.map_err(|_| FollowError::Ended)?;
        let subscribed = client.subscribe(ReceiverStream::new(outgoing));
        let mut ports = within(self.southbound.rpc_deadline, subscribed).await??.into_inner();
        let mut interfaces = InterfaceTable::default();
        while let Some(answer) = ports.message().await? {
            *has_answered |= self.take_answer(answer, &mut interfaces).await?;
        }
        Err(FollowError::Ended)
    }

    async fn check_regularly(&self, mut client: GNmiClient<Channel>) -> Result<(), FollowError> {
        let mut checks = interval(self.limits.queue_check_interval);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let mut wrong = self.check_queues(&mut client).await?;
            wrong.extend(self.check_settings(&mut client).await?);
            self.report(SwitchReport::QueueMaps(self.target.name.clone(), wrong)).await?;
            let table = self.read_neighbours(&mut client).await?;
            self.report(SwitchReport::Neighbours(self.target.switch, table)).await?;
        }
    }

    async fn count_regularly(&self, mut client: GNmiClient<Channel>) -> Result<(), FollowError> {
        let mut readings = interval(self.limits.counter_interval);
        readings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut earlier: Option<SwitchCounters> = None;
        loop {
            readings.tick().await;
            let mut counters = self.read_counters(&mut client).await?;
            if let Some(earlier) = earlier {
                counters = counters.since(earlier);
            }
            earlier = Some(counters.clone());
            self.report(SwitchReport::Counters(self.target.switch, counters)).await?;
        }
    }

    /// Takes an answer of the subscription; whether it says that everything has been sent.
    async fn take_answer(
        &self,
        answer: proto::SubscribeResponse,
        interfaces: &mut InterfaceTable,
    ) -> Result<bool, FollowError> {
        match answer.response {
            Some(Response::Update(notification)) => {
                let ports = interfaces.apply_notification(&take_apart(notification));
                if !ports.is_empty() {
                    self.report(SwitchReport::Ports(self.target.switch, ports)).await?;
                }
                Ok(false)
            }
            Some(Response::SyncResponse(true)) => {
                self.report(SwitchReport::Answers(self.target.name.clone())).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// What is wrong with the maps of queues. A switch without any has a finding that says so.
    async fn check_queues(
        &self,
        client: &mut GNmiClient<Channel>,
    ) -> Result<Vec<Finding>, FollowError> {
        match self.read_known(client, &QUEUE_LISTS).await? {
            Ok(answer) => {
                let maps = QueueMaps::from_notifications(&answer);
                Ok(check_queue_maps(&self.target.name, &maps, self.expected.levels))
            }
            Err(status) => {
                let text = format!(
                    "the maps from DSCP to queues cannot be checked over gNMI: {}",
                    status.message()
                );
                Ok(vec![Finding::info(self.target.name.clone(), text)])
            }
        }
    }

    /// What is not set on the queues as plans assume it, as far as the switch reports that.
    async fn check_settings(
        &self,
        client: &mut GNmiClient<Channel>,
    ) -> Result<Vec<Finding>, FollowError> {
        let mut settings = QueueSettings::default();
        for paths in [&INTERFACE_QUEUES[..], &QUEUE_PROFILES[..]] {
            if let Ok(answer) = self.read_known(client, paths).await? {
                settings.take_notifications(&answer);
            }
        }
        Ok(check_queue_settings(&self.target.name, &settings, &self.expected))
    }

    /// What the switch has counted at its ports, as far as it has such counters.
    async fn read_counters(
        &self,
        client: &mut GNmiClient<Channel>,
    ) -> Result<SwitchCounters, FollowError> {
        let read_at = self.started.elapsed().as_secs_f64();
        let mut counted = Vec::new();
        for paths in [&INTERFACE_COUNTERS, &INTERFACE_QUEUES] {
            counted.extend(self.read_known(client, paths).await?.unwrap_or_default());
        }
        Ok(SwitchCounters::from_notifications(&counted, read_at))
    }

    /// The ports of the switch and their neighbours. Without LLDP it still has ports, which those
    /// of others lead to.
    async fn read_neighbours(
        &self,
        client: &mut GNmiClient<Channel>,
    ) -> Result<LldpTable, FollowError> {
        let mut known = Vec::new();
        for path in NEIGHBOURS {
            known.extend(self.read_known(client, &[path]).await?.unwrap_or_default());
        }
        Ok(LldpTable::from_notifications(&known))
    }

    /// What the switch has at these paths, or how it says that it does not know one of them.
    async fn read_known(
        &self,
        client: &mut GNmiClient<Channel>,
        paths: &[&[&str]],
    ) -> Result<Result<Vec<proto::Notification>, Status>, FollowError> {
        let request = proto::GetRequest {
            path: paths.iter().map(|names| path_of(names)).collect(),
            encoding: proto::Encoding::JsonIetf as i32,
            ..proto::GetRequest::default()
        };
        match within(self.southbound.rpc_deadline, client.get(request)).await? {
            Ok(answer) => {
                let answer = answer.into_inner().notification;
                Ok(Ok(answer.into_iter().map(take_apart).collect()))
            }
            Err(status) if is_unsupported(&status) => Ok(Err(status)),
            Err(status) => Err(status.into()),
        }
    }

    async fn report(&self, report: SwitchReport) -> Result<(), FollowError> {
        self.reports.send(report).await.map_err(|_| FollowError::Unheard)
    }
}

/// Whether a switch has nothing at a path, or does not know it.
fn is_unsupported(status: &Status) -> bool {
    [Code::NotFound, Code::Unimplemented, Code::InvalidArgument].contains(&status.code())
}

/// The states of all ports when they change, and the ids of their interfaces.
fn port_subscription() -> proto::SubscribeRequest {
    use proto::subscribe_request::Request;
    let subscription = PORT_LEAVES.iter().map(|leaf| proto::Subscription {
        path: Some(path_of(&["interfaces", "interface", "state", leaf])),
        mode: proto::SubscriptionMode::OnChange as i32,
        ..proto::Subscription::default()
    });
    let list = proto::SubscriptionList {
        subscription: subscription.collect(),
        mode: proto::subscription_list::Mode::Stream as i32,
        encoding: proto::Encoding::JsonIetf as i32,
        ..proto::SubscriptionList::default()
    };
    let request = Some(Request::Subscribe(list));
    proto::SubscribeRequest { request, ..proto::SubscribeRequest::default() }
}

/// A path without keys, which means all entries of its lists.
fn path_of(names: &[&str]) -> proto::Path {
    let elem = names
        .iter()
        .map(|name| proto::PathElem { name: (*name).to_owned(), ..proto::PathElem::default() });
    proto::Path { elem: elem.collect(), ..proto::Path::default() }
}

async fn within<T>(deadline: Duration, future: impl Future<Output = T>) -> Result<T, FollowError> {
    timeout(deadline, future).await.map_err(|_| FollowError::Deadline)
}
