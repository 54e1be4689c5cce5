//! A P4Runtime server that lies: reads without an end, floods of messages, streams that die,
//! answers for others. Tests and benchmarks serve it in the place of a switch.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt, stream};
use p4::entry::TableId;
use p4::fabric::table;
use p4::{ForwardingPipeline, P4Info, codec};
use p4rt::field_match::FieldMatchType;
use p4rt::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4rt::table_action::Type as TableActionType;
use p4runtime_proto::rpc;
use p4runtime_proto::v1 as p4rt;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// How a switch departs from P4Runtime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ProtocolViolation {
    /// A read of one table that never ends.
    EndlessRead,
    /// A read that never ends, of tables with much room in turn.
    EndlessReadOfManyTables,
    /// Errors on the stream without an end.
    ErrorFlood,
    /// Another primary in every message.
    FlippingMastership,
    /// The stream ends after the first message.
    DyingStream,
    /// It answers for another device.
    OtherDevice,
}

/// A server that departs from P4Runtime in one way.
#[derive(Clone, Debug)]
pub(crate) struct LyingSwitch {
    violation: ProtocolViolation,
    streams: Arc<AtomicU64>,
}

impl LyingSwitch {
    pub(crate) fn new(violation: ProtocolViolation) -> Self {
        Self { violation, streams: Arc::default() }
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

/// The tables with the most room.
const LARGE_TABLES: [TableId; 7] = [
    table::FLOW_PIN,
    table::FLOW_PIN6,
    table::QP_PIN,
    table::QP_PIN6,
    table::TRANSIT_PIN6,
    table::TRANSIT_QP_PIN6,
    table::PATH,
];

type StreamMessageResponses =
    Pin<Box<dyn Stream<Item = Result<p4rt::StreamMessageResponse, Status>> + Send>>;
type ReadResponses = Pin<Box<dyn Stream<Item = Result<p4rt::ReadResponse, Status>> + Send>>;

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

fn p4info() -> &'static P4Info {
    &ForwardingPipeline::embedded_fabric().p4info
}

/// A row of a table with as much as it may have, and unlike the rows of other `index`es.
fn invent_row(table: TableId, index: u32) -> p4rt::Entity {
    let table = p4info().table(table).expect("it is a table of the program");
    let exact = |value: u32| {
        let value = value.to_be_bytes().to_vec();
        FieldMatchType::Exact(p4rt::field_match::Exact { value })
    };
    let fields = table.fields.iter().map(|field| p4rt::FieldMatch {
        field_id: field.info.id,
        field_match_type: Some(exact(index)),
    });
    let action = p4info().action(table.row_actions[0]).expect("it is an action of the program");
    let params = action.params.iter().map(|param| p4rt::action::Param {
        param_id: param.id,
        value: index.to_be_bytes().to_vec(),
    });
    let call = p4rt::Action { action_id: action.id.0, params: params.collect() };
    let entry = p4rt::TableEntry {
        table_id: table.id.0,
        r#match: fields.collect(),
        action: Some(p4rt::TableAction { r#type: Some(TableActionType::Action(call)) }),
        ..Default::default()
    };
    p4rt::Entity { entity: Some(p4rt::entity::Entity::TableEntry(entry)) }
}

#[tonic::async_trait]
impl P4Runtime for LyingSwitch {
    type ReadStream = ReadResponses;
    type StreamChannelStream = StreamMessageResponses;

    async fn write(
        &self,
        _: Request<p4rt::WriteRequest>,
    ) -> Result<Response<p4rt::WriteResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn read(&self, _: Request<p4rt::ReadRequest>) -> Result<Response<ReadResponses>, Status> {
        let tables: &[TableId] = match self.violation {
            ProtocolViolation::EndlessReadOfManyTables => &LARGE_TABLES,
            _ => &[table::PORT_DOWN],
        };
        let messages = (0..).zip(tables.iter().cycle()).map(|(turn, table)| {
            let rows = (0..1_000_u32).map(|row| invent_row(*table, 1_000 * turn + row));
            p4rt::ReadResponse { entities: rows.collect() }
        });
        Ok(Response::new(stream::iter(messages).map(Ok).boxed()))
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
        let config = codec::encode_pipeline(ForwardingPipeline::embedded_fabric());
        Ok(Response::new(p4rt::GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4rt::StreamMessageRequest>>,
    ) -> Result<Response<StreamMessageResponses>, Status> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.update);
        let Some(ToSwitch::Arbitration(mut bid)) = first else {
            return Err(Status::invalid_argument("no bid"));
        };
        if self.violation == ProtocolViolation::OtherDevice {
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
        let messages = match self.violation {
            ProtocolViolation::DyingStream => answer.boxed(),
            ProtocolViolation::EndlessRead
            | ProtocolViolation::EndlessReadOfManyTables
            | ProtocolViolation::OtherDevice => answer.chain(further).boxed(),
            ProtocolViolation::ErrorFlood => {
                answer.chain(stream::repeat_with(stream_error)).boxed()
            }
            ProtocolViolation::FlippingMastership => {
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
