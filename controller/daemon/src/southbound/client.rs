//! One connection to one switch over gRPC: the P4Runtime calls that the controller makes.
//!
//! It is the [`Connection`] of sessions; tests and the demo read switches with it too, which needs
//! no mastership. The decision: limits and deadlines are set here once, so that no call can be made
//! without them.

use std::collections::BTreeMap;
use std::future::Future;

use futures::{StreamExt, TryStreamExt, future};
use p4::codec::{self, Count, DecodeError, WriteError};
use p4::entry::EntryKey;
use p4::fabric::{self, Level, Port};
use p4::{Extent, Pipeline, Tables, Update};
use p4rt::get_forwarding_pipeline_config_request::ResponseType;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4runtime_proto::v1 as p4rt;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::arbitration::ElectionId;
use super::connection::{Connection, Conversation, Entries, Heard, Network, Say};
use super::dialect::Verdict;
use crate::config::{Etcd, Southbound, Tls};
use crate::etcd::{Calls, EtcdError};
use crate::telemetry::gauges::Counted;

/// Where a switch is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Address of its P4Runtime server, `host:port`.
    pub p4runtime: String,
    /// Its P4Runtime device id.
    pub device_id: u64,
}

/// A call that did not succeed; the connection is given up and what the switch holds is read anew.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is no `host:port`.
    #[error("`{0}` is no address of a switch")]
    Address(String),
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] tonic::transport::Error),
    /// The switch did not answer in time.
    #[error("no answer to {0} within the deadline")]
    Deadline(&'static str),
    /// The switch answered with an error.
    #[error("{call} failed with {code:?}: {message}")]
    Call {
        /// What was called.
        call: &'static str,
        /// The code of the answer.
        code: Code,
        /// The text of the answer.
        message: String,
    },
    /// The answer cannot be understood.
    #[error("cannot understand the answer to {call}")]
    Decode {
        /// What was called.
        call: &'static str,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
}

/// One connection to one switch.
#[derive(Clone, Debug)]
pub struct Client {
    calls: P4RuntimeClient<Channel>,
    device_id: u64,
    limits: Southbound,
}

/// Switches that serve P4Runtime over gRPC.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grpc;

impl Network for Grpc {
    type Connection = Client;
    type Registry = Calls;

    async fn connect(&self, address: &Address, limits: &Southbound) -> Result<Client, ClientError> {
        Client::connect(address, limits).await
    }

    async fn registry(&self, server: &str, etcd: &Etcd) -> Result<Calls, EtcdError> {
        Calls::connect(server, etcd).await
    }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The address is none, or nobody answers there before the deadline.
    pub async fn connect(address: &Address, limits: &Southbound) -> Result<Self, ClientError> {
        let invalid = |_| ClientError::Address(address.p4runtime.clone());
        let endpoint = Endpoint::try_from(Tls::uri(limits.tls.as_ref(), &address.p4runtime));
        let endpoint = Tls::securing(limits.tls.as_ref(), endpoint.map_err(invalid)?);
        let endpoint = endpoint
            .map_err(ClientError::Connect)?
            .connect_timeout(limits.connect_deadline)
            .http2_keep_alive_interval(limits.keepalive)
            .keep_alive_timeout(limits.keepalive)
            .http2_max_header_list_size(limits.headers_max)
            .tcp_nodelay(true);
        let connecting = tokio::time::timeout(limits.connect_deadline, endpoint.connect());
        let connected = connecting
            .await
            .map_err(|_| ClientError::Deadline("connect"))?;
        let channel = connected.map_err(ClientError::Connect)?;
        Ok(Self {
            calls: P4RuntimeClient::new(channel).max_decoding_message_size(limits.receive_max),
            device_id: address.device_id,
            limits: limits.clone(),
        })
    }

    /// All tables of the switch.
    ///
    /// # Errors
    /// A call fails, takes too long, or its answer cannot be understood.
    pub async fn all_tables(&self, pipeline: &Pipeline) -> Result<Tables, ClientError> {
        let all = Extent::of_tables(pipeline.p4info.table_ids());
        self.tables(pipeline, &all).await
    }

    /// What each pin of the switch has counted.
    ///
    /// # Errors
    /// As for [`Client::all_tables`].
    pub async fn pin_counts(&self) -> Result<BTreeMap<EntryKey, Count>, ClientError> {
        let answer = self
            .read(vec![codec::counts_of(fabric::table::FLOW_PIN)])
            .await?;
        codec::decode_counts(&answer).map_err(decode_error)
    }

    /// What left the switch by port and level; pairs that counted nothing are left out.
    ///
    /// # Errors
    /// As for [`Client::all_tables`].
    pub async fn port_level_counts(&self) -> Result<BTreeMap<(Port, Level), Count>, ClientError> {
        let answer = self.read(vec![codec::cells_of(fabric::PORT_LEVEL)]).await?;
        let cells = codec::decode_cells(&answer).map_err(decode_error)?;
        let counted = cells
            .into_iter()
            .filter(|(_, count)| *count != Count::default());
        let of_cell = |(index, count): (u32, Count)| {
            let level = Level::new(index & ((1 << Level::BITS) - 1)).ok()?;
            Some(((Port::new(index >> Level::BITS).ok()?, level), count))
        };
        Ok(counted.filter_map(of_cell).collect())
    }

    /// What some pins and some cells of the port and level counter have counted; pins that the
    /// switch does not hold are left out.
    ///
    /// # Errors
    /// As for [`Client::all_tables`].
    pub async fn counts(&self, pins: &[EntryKey], cells: &[u32]) -> Result<Counted, ClientError> {
        let pins = pins.iter().map(codec::count_of);
        let cells = cells
            .iter()
            .map(|index| codec::cell_of(fabric::PORT_LEVEL, *index));
        let answer = self.read(pins.chain(cells).collect()).await?;
        Ok(Counted {
            pins: codec::decode_counts(&answer).map_err(decode_error)?,
            cells: codec::decode_cells(&answer).map_err(decode_error)?,
        })
    }

    async fn read(&self, entities: Vec<p4rt::Entity>) -> Result<Vec<p4rt::Entity>, ClientError> {
        let request = p4rt::ReadRequest {
            device_id: self.device_id,
            entities,
            ..Default::default()
        };
        let mut calls = self.calls.clone();
        let whole = async move {
            let answers = calls.read(request).await?.into_inner();
            answers.map_ok(|answer| answer.entities).try_concat().await
        };
        self.within("Read", whole).await
    }

    async fn within<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, ClientError> {
        let answer = tokio::time::timeout(self.limits.rpc_deadline, answer).await;
        let answer = answer.map_err(|_| ClientError::Deadline(call))?;
        answer.map_err(|status| call_error(call, &status))
    }
}

impl Connection for Client {
    async fn open(&self, bid: ElectionId) -> Result<Conversation, ClientError> {
        let (say, queue) = mpsc::channel(self.limits.stream_queue.get());
        say.try_send(Say::Bid(bid))
            .expect("a new queue has room for one message");
        let device_id = self.device_id;
        let messages = ReceiverStream::new(queue).map(move |said| message(device_id, said));
        let mut calls = self.calls.clone();
        let answer = self.within("StreamChannel", calls.stream_channel(messages));
        let answers = answer.await?.into_inner();
        let heard = answers.filter_map(|answer| {
            let heard = answer.map_err(|status| call_error("StreamChannel", &status));
            future::ready(heard.map(read_message).transpose())
        });
        let hear = heard.boxed();
        Ok(Conversation { say, hear })
    }

    async fn cookie(&self) -> Result<Option<u64>, ClientError> {
        let request = p4rt::GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: ResponseType::CookieOnly.into(),
        };
        let mut calls = self.calls.clone();
        let answer = calls.get_forwarding_pipeline_config(request);
        match self.within("GetForwardingPipelineConfig", answer).await {
            Ok(answer) => {
                let config = answer.into_inner().config;
                Ok(config
                    .and_then(|config| config.cookie)
                    .map(|cookie| cookie.cookie))
            }
            // How switches say that there is none.
            Err(ClientError::Call {
                code: Code::FailedPrecondition | Code::NotFound,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn push(
        &self,
        pipeline: &Pipeline,
        election: ElectionId,
        entries: Entries,
    ) -> Result<(), ClientError> {
        let action = match entries {
            Entries::Kept => Action::ReconcileAndCommit,
            Entries::Dropped => Action::VerifyAndCommit,
        };
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(election.into()),
            action: action.into(),
            config: Some(codec::encode_pipeline(pipeline)),
            ..Default::default()
        };
        let mut calls = self.calls.clone();
        let answer = calls.set_forwarding_pipeline_config(request);
        self.within("SetForwardingPipelineConfig", answer)
            .await
            .map(drop)
    }

    /// All are asked for together: a repair reads dozens of switches, and most of its time would be
    /// calls.
    async fn tables(&self, pipeline: &Pipeline, of: &Extent) -> Result<Tables, ClientError> {
        let entities = self.read(codec::reads(&pipeline.p4info, of)).await?;
        let tables = codec::decode_tables(&pipeline.p4info, &entities);
        tables.map(|tables| tables.within(of)).map_err(decode_error)
    }

    async fn write(
        &self,
        updates: &[Update],
        election: ElectionId,
    ) -> Result<Result<(), WriteError>, ClientError> {
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            election_id: Some(election.into()),
            updates: updates.iter().map(codec::encode_update).collect(),
            ..Default::default()
        };
        let mut calls = self.calls.clone();
        let answer = tokio::time::timeout(self.limits.rpc_deadline, calls.write(request)).await;
        match answer.map_err(|_| ClientError::Deadline("Write"))? {
            Ok(_) => Ok(Ok(())),
            Err(status) if status.code() == Code::Unknown => {
                Ok(Err(codec::decode_write_error(&status, updates)))
            }
            Err(status) => Err(call_error("Write", &status)),
        }
    }
}

fn message(device_id: u64, said: Say) -> p4rt::StreamMessageRequest {
    let update = match said {
        Say::Bid(election) => ToSwitch::Arbitration(p4rt::MasterArbitrationUpdate {
            device_id,
            election_id: Some(election.into()),
            ..Default::default()
        }),
        Say::Packet(packet) => ToSwitch::Packet(codec::encode_packet_out(packet)),
    };
    p4rt::StreamMessageRequest {
        update: Some(update),
    }
}

/// `None` for what nobody here asked for: digests and timeouts.
fn read_message(message: p4rt::StreamMessageResponse) -> Option<Heard> {
    match message.update? {
        FromSwitch::Arbitration(update) => Some(Heard::Verdict(Verdict::read(&update))),
        FromSwitch::Packet(packet) => Some(match codec::decode_packet_in(packet) {
            Ok(packet) => Heard::Packet(packet),
            Err(error) => Heard::Complaint(format!("a packet without its header: {error}")),
        }),
        FromSwitch::Error(error) => {
            let code = Code::from(error.canonical_code);
            Some(Heard::Complaint(format!("{code:?}: {}", error.message)))
        }
        _ => None,
    }
}

fn call_error(call: &'static str, status: &Status) -> ClientError {
    ClientError::Call {
        call,
        code: status.code(),
        message: status.message().to_owned(),
    }
}

fn decode_error(source: DecodeError) -> ClientError {
    let call = "Read";
    ClientError::Decode { call, source }
}
