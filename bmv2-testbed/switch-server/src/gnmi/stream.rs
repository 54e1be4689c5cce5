//! One subscriber from its request to its end.
//!
//! ONCE and POLL send everything that is asked for, and say that it is all. STREAM does so first,
//! and then sends state when it changes and samples at their times. Its state is what it has sent:
//! whatever differs is sent, however many changes lie between.

use std::collections::BTreeMap;

use p4runtime_proto::gnmi as proto;
use proto::subscribe_request::Request;
use proto::subscribe_response::Response;
use proto::subscription_list::Mode;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use super::data_tree::{GnmiLeaf, LeafKind, LeafValue};
use super::path::LeafPath;
use super::subscription::{SubscribedPath, SubscribedPaths, UpdateTrigger};
use super::{GnmiSwitch, notification_of, stopped_status};
use switch::PortStates;

/// What a subscriber receives.
type SubscribeResult = Result<proto::SubscribeResponse, Status>;

/// Values in one message; a leaf takes about 200 bytes.
const LEAVES_PER_ANSWER: usize = 512;
/// How long a subscriber may leave an answer before its subscription ends.
const SUBSCRIBER_DEADLINE: Duration = Duration::from_secs(60);
/// How long a stream may be open without a request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// When a subscription without samples samples next.
const NEVER: Duration = Duration::from_secs(86_400);

/// Serves a subscriber until it leaves.
pub(super) async fn serve_subscriber(
    switch: GnmiSwitch,
    mut requests: Streaming<proto::SubscribeRequest>,
    answers: &mpsc::Sender<SubscribeResult>,
) -> Result<(), Status> {
    let first = timeout(REQUEST_DEADLINE, requests.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no subscription came in time"))??;
    let Some(Request::Subscribe(list)) = first.and_then(|request| request.request) else {
        return Err(Status::invalid_argument("the first request must be a subscription"));
    };
    let leaves = switch.all_leaves().await?;
    let paths = SubscribedPaths::check(list, &leaves, switch.dialect)?;
    let sender = AnswerSender { paths: &paths, answers };
    match paths.mode {
        Mode::Once => sender.send_all(&leaves).await,
        Mode::Poll => serve_polls(&switch, requests, &sender).await,
        Mode::Stream => serve_stream(&switch, requests, &sender, &leaves).await,
    }
}

async fn serve_polls(
    switch: &GnmiSwitch,
    mut requests: Streaming<proto::SubscribeRequest>,
    sender: &AnswerSender<'_>,
) -> Result<(), Status> {
    while let Some(request) = requests.message().await? {
        let Some(Request::Poll(_)) = request.request else {
            return Err(Status::invalid_argument("a subscription in mode POLL takes polls"));
        };
        sender.send_all(&switch.all_leaves().await?).await?;
    }
    Ok(())
}

async fn serve_stream(
    switch: &GnmiSwitch,
    mut requests: Streaming<proto::SubscribeRequest>,
    sender: &AnswerSender<'_>,
    leaves: &[GnmiLeaf],
) -> Result<(), Status> {
    let mut ports = switch.device.watch_port_states().await.map_err(stopped_status)?;
    let mut sent = SentValues::new(&sender.paths.paths, Instant::now());
    sent.note_values(&sender.selected_leaves(leaves));
    sender.send_all(leaves).await?;
    loop {
        tokio::select! {
            changed = ports.changed() => {
                changed.map_err(|_| Status::unavailable("the device has stopped"))?;
            }
            () = sleep_until(sent.next_due()) => {}
            () = sender.answers.closed() => return Ok(()),
            request = requests.message() => match request? {
                // Clients end their requests to end the subscription.
                None => return Ok(()),
                Some(_) => {
                    let text = "a subscription in mode STREAM takes no further request";
                    return Err(Status::invalid_argument(text));
                }
            },
        }
        let now = Instant::now();
        let leaves = current_leaves(switch, &mut ports, sent.next_due() <= now).await?;
        let updates = sent.take_updates(&leaves, now);
        sender.send_leaves(&updates).await?;
    }
}

/// What may be sent now. The device's thread is asked only where all values are due: a change of a
/// port is sent without waiting for it.
async fn current_leaves(
    switch: &GnmiSwitch,
    ports: &mut watch::Receiver<PortStates>,
    is_due: bool,
) -> Result<Vec<GnmiLeaf>, Status> {
    if is_due {
        return switch.all_leaves().await;
    }
    let states = ports.borrow_and_update().clone();
    Ok(switch.tree.state_leaves(&states))
}

/// What a STREAM subscription has sent, and when each path is due.
#[derive(Debug)]
struct SentValues {
    values: BTreeMap<LeafPath, LeafValue>,
    paths: Vec<(SubscribedPath, Option<Instant>)>,
}

impl SentValues {
    fn new(paths: &[SubscribedPath], now: Instant) -> Self {
        let due = |path: &SubscribedPath| Some(now + path.trigger.interval()?);
        let paths = paths.iter().map(|path| (path.clone(), due(path))).collect();
        Self { values: BTreeMap::new(), paths }
    }

    fn note_values(&mut self, leaves: &[GnmiLeaf]) {
        for leaf in leaves {
            self.values.insert(leaf.path.clone(), leaf.value.clone());
        }
    }

    fn next_due(&self) -> Instant {
        let due = self.paths.iter().filter_map(|(_, due)| *due).min();
        due.unwrap_or_else(|| Instant::now() + NEVER)
    }

    /// The leaves that are to be sent now, each once.
    fn take_updates(&mut self, leaves: &[GnmiLeaf], now: Instant) -> Vec<GnmiLeaf> {
        let mut is_due = Vec::new();
        for (path, due) in &mut self.paths {
            let due_now = due.is_some_and(|due| due <= now);
            if due_now {
                *due = path.trigger.interval().map(|interval| now + interval);
            }
            is_due.push(due_now);
        }
        let is_update = |leaf: &&GnmiLeaf| {
            let differs = self.values.get(&leaf.path) != Some(&leaf.value);
            let mut paths = self.paths.iter().zip(&is_due);
            paths.any(|((path, _), due)| {
                let sends = match path.trigger {
                    UpdateTrigger::OnChange { .. } => {
                        *due || (differs && leaf.kind == LeafKind::State)
                    }
                    UpdateTrigger::Sample { suppress_redundant, .. } => {
                        *due && (differs || !suppress_redundant)
                    }
                };
                sends && path.selects(leaf)
            })
        };
        let updates: Vec<GnmiLeaf> = leaves.iter().filter(is_update).cloned().collect();
        self.note_values(&updates);
        updates
    }
}

impl UpdateTrigger {
    /// How long until all values are sent again, if they are.
    fn interval(self) -> Option<Duration> {
        match self {
            Self::OnChange { heartbeat } => heartbeat,
            Self::Sample { interval, .. } => Some(interval),
        }
    }
}

/// Answers to one subscriber.
struct AnswerSender<'a> {
    paths: &'a SubscribedPaths,
    answers: &'a mpsc::Sender<SubscribeResult>,
}

impl AnswerSender<'_> {
    /// Sends everything that is asked for, and that it is all.
    async fn send_all(&self, leaves: &[GnmiLeaf]) -> Result<(), Status> {
        if !self.paths.updates_only {
            self.send_leaves(&self.selected_leaves(leaves)).await?;
        }
        self.send(Response::SyncResponse(true)).await
    }

    fn selected_leaves(&self, leaves: &[GnmiLeaf]) -> Vec<GnmiLeaf> {
        let is_selected = |leaf: &&GnmiLeaf| self.paths.paths.iter().any(|path| path.selects(leaf));
        leaves.iter().filter(is_selected).cloned().collect()
    }

    async fn send_leaves(&self, leaves: &[GnmiLeaf]) -> Result<(), Status> {
        for part in leaves.chunks(LEAVES_PER_ANSWER) {
            let part: Vec<&GnmiLeaf> = part.iter().collect();
            let prefix = self.paths.prefix.as_ref();
            let notification = notification_of(prefix, &part, self.paths.encoding);
            self.send(Response::Update(notification)).await?;
        }
        Ok(())
    }

    async fn send(&self, response: Response) -> Result<(), Status> {
        let response = Some(response);
        let answer = proto::SubscribeResponse { response, ..proto::SubscribeResponse::default() };
        match timeout(SUBSCRIBER_DEADLINE, self.answers.send(Ok(answer))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::cancelled("the subscriber has gone")),
            Err(_) => Err(Status::resource_exhausted("the subscriber takes no values")),
        }
    }
}
