//! Switches that lie: reads without an end, floods of messages, streams that die, answers for
//! others. They cost the controller little, and the other switches nothing (finding M2).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controller::{Controller, ControllerHandle, StateEvent};
use futures::{Stream, StreamExt, stream};
use p4::{ForwardingPipeline, TableUpdate, UpdateKind, codec};
use p4rt::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4runtime_proto::rpc;
use p4runtime_proto::v1 as p4rt;
use planner::Policy;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};
use topology::{Fabric, FabricParts, SwitchId};
use tracing::span;

use crate::lab::{DEADLINE, Lab, config};

/// How long each switch may lie.
const LIES_FOR: Duration = Duration::from_secs(3);

/// What a switch lies about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// A read that never ends.
    EndlessRead,
    /// Errors on the stream without an end.
    ErrorFlood,
    /// Another primary in every message.
    FlippingMastership,
    /// The stream ends after the first message.
    DyingStream,
    /// It answers for another device.
    OtherDevice,
}

#[derive(Clone, Debug)]
struct LyingSwitch {
    lie: Lie,
    streams: Arc<AtomicU64>,
}

type Messages = Pin<Box<dyn Stream<Item = Result<p4rt::StreamMessageResponse, Status>> + Send>>;
type Reads = Pin<Box<dyn Stream<Item = Result<p4rt::ReadResponse, Status>> + Send>>;

fn arbitration(bid: &p4rt::MasterArbitrationUpdate, code: i32) -> p4rt::StreamMessageResponse {
    let update = p4rt::MasterArbitrationUpdate {
        status: Some(rpc::Status { code, ..Default::default() }),
        ..bid.clone()
    };
    p4rt::StreamMessageResponse { update: Some(FromSwitch::Arbitration(update)) }
}

fn stream_error() -> p4rt::StreamMessageResponse {
    let error = p4rt::StreamError { message: "x".repeat(1_000), ..Default::default() };
    p4rt::StreamMessageResponse { update: Some(FromSwitch::Error(error)) }
}

#[tonic::async_trait]
impl P4Runtime for LyingSwitch {
    type ReadStream = Reads;
    type StreamChannelStream = Messages;

    async fn write(
        &self,
        _: Request<p4rt::WriteRequest>,
    ) -> Result<Response<p4rt::WriteResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn read(&self, _: Request<p4rt::ReadRequest>) -> Result<Response<Reads>, Status> {
        let row = p4::fabric::port_down(p4::fabric::PortNumber::CPU);
        let update = codec::encode_update(&TableUpdate { kind: UpdateKind::Insert, entry: row });
        let message = p4rt::ReadResponse { entities: vec![update.entity.unwrap(); 1_000] };
        Ok(Response::new(stream::repeat(message).map(Ok).boxed()))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        _: Request<p4rt::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4rt::SetForwardingPipelineConfigResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        _: Request<p4rt::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4rt::GetForwardingPipelineConfigResponse>, Status> {
        let config = codec::encode_pipeline(&ForwardingPipeline::embedded_fabric());
        Ok(Response::new(p4rt::GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4rt::StreamMessageRequest>>,
    ) -> Result<Response<Messages>, Status> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.update);
        let Some(ToSwitch::Arbitration(mut bid)) = first else {
            return Err(Status::invalid_argument("no bid"));
        };
        if self.lie == Lie::OtherDevice {
            bid.device_id += 1;
        }
        let answer = stream::iter([arbitration(&bid, 0)]);
        let device = bid.device_id;
        let further = requests.filter_map(move |request| {
            let Some(ToSwitch::Arbitration(bid)) = request.ok().and_then(|one| one.update) else {
                return std::future::ready(None);
            };
            let bid = p4rt::MasterArbitrationUpdate { device_id: device, ..bid };
            std::future::ready(Some(arbitration(&bid, 0)))
        });
        let messages = match self.lie {
            Lie::DyingStream => answer.boxed(),
            Lie::EndlessRead | Lie::OtherDevice => answer.chain(further).boxed(),
            Lie::ErrorFlood => answer.chain(stream::repeat_with(stream_error)).boxed(),
            Lie::FlippingMastership => {
                let flips = (0..).map(move |turn: i32| arbitration(&bid, turn % 2 * 6));
                stream::iter(flips).boxed()
            }
        };
        Ok(Response::new(messages.map(Ok).boxed()))
    }

    async fn capabilities(
        &self,
        _: Request<p4rt::CapabilitiesRequest>,
    ) -> Result<Response<p4rt::CapabilitiesResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

/// Counts the lines that a controller logs at `info` or above on this thread.
#[derive(Clone, Debug, Default)]
struct LineCounter(Arc<AtomicU64>);

impl tracing::Subscriber for LineCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("controller") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The lab with a liar in the place of its first leaf.
async fn with_liar(lab: &Lab, liar: LyingSwitch) -> Fabric {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder().add_service(P4RuntimeServer::new(liar));
    // On a thread of its own, so that what is counted and timed here is the controller's.
    let listener = listener.into_std().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
    });
    let mut switches = lab.fabric.switches().to_vec();
    switches[0].p4runtime = Some(address);
    Fabric::new(FabricParts {
        name: lab.fabric.name().to_owned(),
        hosts: lab.fabric.hosts().to_vec(),
        nics: lab.fabric.nics().to_vec(),
        switches,
        links: lab.fabric.links().to_vec(),
    })
}

/// Waits until all switches but the liar hold what is desired.
async fn others_hold(controller: &ControllerHandle) {
    let generation = controller.desired_tables().generation;
    let held = controller.status_board().wait_until(|statuses| {
        let mut others = statuses.iter().filter(|(switch, _)| **switch != SwitchId(0));
        others.all(|(_, status)| status.holds_generation(generation))
    });
    tokio::time::timeout(DEADLINE, held).await.unwrap();
}

/// Runs a controller beside a liar; what it says of the liar in the end.
async fn check(lie: Lie, error: &str) {
    let lab = Lab::new().await;
    let streams = Arc::<AtomicU64>::default();
    let liar = LyingSwitch { lie, streams: Arc::clone(&streams) };
    let fabric = with_liar(&lab, liar).await;
    let lines = LineCounter::default();
    let _counted = tracing::subscriber::set_default(lines.clone());
    let config = config(|raw| {
        (raw.reconcile.retry_first_ms, raw.reconcile.retry_longest_ms) = (50, 5_000);
    });
    let controller = Controller::start(config, fabric, Policy::default()).await.unwrap();
    others_hold(&controller).await;
    tokio::time::sleep(LIES_FOR).await;
    controller.submit_event(StateEvent::JobsChanged(vec![lab.job("a", 50_000)])).await.unwrap();
    others_hold(&controller).await;

    let status = controller.status_board().switch_status(SwitchId(0)).unwrap();
    let last_error = status.last_error.clone().unwrap_or_default();
    assert!(last_error.contains(error), "{lie:?}: {status:?}");
    let (streams, lines) = (streams.load(Ordering::Relaxed), lines.0.load(Ordering::Relaxed));
    println!("{lie:?}: {streams} streams, {lines} lines");
    assert!(streams <= 9, "{lie:?}: {streams} streams in {LIES_FOR:?}");
    assert!(lines < 10 * LIES_FOR.as_secs() + 20, "{lie:?}: {lines} lines");
    controller.shutdown().await;
}

#[tokio::test]
async fn a_read_without_end_is_cut() {
    check(Lie::EndlessRead, "messages.read_max").await;
}

#[tokio::test]
async fn a_flood_of_errors_ends_the_connection() {
    check(Lie::ErrorFlood, "floods").await;
}

#[tokio::test]
async fn a_mastership_that_flips_ends_the_connection() {
    check(Lie::FlippingMastership, "floods").await;
}

#[tokio::test]
async fn a_stream_that_dies_at_once_is_tried_ever_less_often() {
    check(Lie::DyingStream, "closed the stream").await;
}

#[tokio::test]
async fn an_answer_for_another_device_is_refused() {
    check(Lie::OtherDevice, "answers for device").await;
}
