//! A P4Runtime server that lies: reads without an end, floods of messages, streams that die,
//! answers for others. Tests and benchmarks serve it in the place of a switch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt, stream};
use p4::{ForwardingPipeline, TableUpdate, UpdateKind, codec};
use p4rt::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4runtime_proto::rpc;
use p4runtime_proto::v1 as p4rt;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::span;

/// What a switch lies about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lie {
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

/// A server that tells one lie.
#[derive(Clone, Debug)]
pub(crate) struct LyingSwitch {
    lie: Lie,
    streams: Arc<AtomicU64>,
}

impl LyingSwitch {
    pub(crate) fn new(lie: Lie) -> Self {
        Self { lie, streams: Arc::default() }
    }

    /// How many streams it has been asked for so far.
    pub(crate) fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Serves on a loopback address and on a thread of its own, for as long as the process lives.
    pub(crate) fn serve(&self) -> std::io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let service = P4RuntimeServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it does not block");
                server.serve_with_incoming(TcpListenerStream::new(listener)).await
            })
        });
        Ok(address)
    }
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
        let message = p4rt::ReadResponse {
            entities: vec![update.entity.expect("an update has an entity"); 1_000],
        };
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

/// Counts the lines that a controller logs at `info` or above where it subscribes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineCounter(Arc<Mutex<LinesByPlace>>);

/// How many lines each place in the source has logged.
pub(crate) type LinesByPlace = BTreeMap<String, u64>;

impl LineCounter {
    /// The lines since it was asked last.
    pub(crate) fn take_lines(&self) -> LinesByPlace {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl tracing::Subscriber for LineCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("controller") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let file = metadata.file().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let place = format!("{file}:{}", metadata.line().unwrap_or_default());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
