//! One connection to one switch over gRPC: the P4Runtime calls that the controller makes.
//!
//! It is the [`SwitchConnection`] of sessions; tests and the demo read switches with it too, which
//! needs no mastership. The decision: limits and deadlines are set here once, so that no call can
//! be made without them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use async_trait::async_trait;
use futures::{StreamExt, future};
use p4::codec::{self, CounterCell, CounterValue, DecodeError, DigestTiming, WriteError};
use p4::entry::EntryKey;
use p4::{ForwardingPipeline, SwitchTables, TableScope, TableUpdate, UpdateKind};
use p4rt::get_forwarding_pipeline_config_request::ResponseType;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1 as p4rt;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use topology::PipelineKind;

use super::arbitration::ElectionId;
use super::bounded_read::{ReadError, read_switch};
use super::connection::{
    ExistingEntries, OutgoingMessage, StreamChannel, SwitchConnection, SwitchNetwork,
};
use super::running_program::RunningProgram;
use super::stream_messages::{decode_message, encode_message};
use super::switch_channel::{connect_channel, describe_status, is_too_many_pings, until_revoked};
use crate::config::{ServerCertificate, SouthboundConfig};
use crate::pipeline::SwitchPipeline;
use crate::pipelines::pipeline_of;

/// Where a switch is reached, and which program it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwitchAddress {
    /// Address of its P4Runtime server, `host:port`.
    pub p4runtime: String,
    /// Its P4Runtime device id.
    pub device_id: u64,
    /// The program that the fabric has for it.
    pub pipeline: PipelineKind,
}

/// Counter values read from one switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterReading {
    /// By pin, or row of a rule.
    pub pins: BTreeMap<EntryKey, CounterValue>,
    /// By cell of an indexed counter.
    pub cells: BTreeMap<CounterCell, CounterValue>,
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
    /// The switch answers something else than TLS.
    #[error(
        "{0} does not use TLS: start the switch with a certificate (crux switch: \
         --grpc-server-ssl), or remove `tls` from the configuration"
    )]
    WithoutTls(String),
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
    /// The server answers for another device.
    #[error("the server answers for device {found} instead of {wanted}; check the device id")]
    OtherDevice {
        /// The device id of the configuration.
        wanted: u64,
        /// The device id of the answer.
        found: u64,
    },
    /// The switch runs a program of another kind, whose tables carry traffic.
    #[error(
        "the switch runs the tables of {found}.p4, the fabric document says {wanted}: set \
         `pipeline = \"{found}\"` for it in the fabric document, or restart it without a program"
    )]
    OtherPipeline {
        /// The kind of the fabric document.
        wanted: PipelineKind,
        /// The kind of the program that runs.
        found: PipelineKind,
    },
    /// The switch runs a program of no known kind, with or without a cookie.
    #[error(
        "the switch runs a program that is not {wanted}.p4 (tables: {tables}): have its controller \
         leave the switch without a program, or start the controller with --replace-program"
    )]
    ForeignProgram {
        /// The kind of the fabric document.
        wanted: PipelineKind,
        /// Names of its first tables.
        tables: String,
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

impl ClientError {
    /// Whether the server ended the connection for its HTTP/2 pings.
    pub(crate) fn is_too_many_pings(&self) -> bool {
        matches!(self, Self::Call { message, .. } if is_too_many_pings(message))
    }
}

/// One connection to one switch.
#[derive(Clone, Debug)]
pub struct SwitchClient {
    channel: Channel,
    certificate: Option<ServerCertificate>,
    calls: P4RuntimeClient<Channel>,
    device_id: u64,
    pipeline: &'static dyn SwitchPipeline,
    limits: SouthboundConfig,
}

/// The call that reads, in errors.
const READ: &str = "Read";

/// The most bytes of a message of the stream; larger ones are of no use, and decoded they would
/// take a multiple.
const STREAM_MESSAGE_BYTES: usize = 256 << 10;

/// Switches that serve P4Runtime over gRPC.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcNetwork;

#[async_trait]
impl SwitchNetwork for GrpcNetwork {
    async fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Box<dyn SwitchConnection>, ClientError> {
        Ok(Box::new(SwitchClient::connect(address, limits).await?))
    }
}

impl SwitchClient {
    /// Connects to the switch at `address`.
    ///
    /// # Errors
    /// The address is invalid, or nothing answers there before the deadline.
    pub async fn connect(
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Self, ClientError> {
        let (channel, certificate) = connect_channel(&address.p4runtime, limits).await?;
        let calls = P4RuntimeClient::new(channel.clone());
        Ok(Self {
            channel,
            certificate,
            calls: calls.max_decoding_message_size(limits.receive_max),
            device_id: address.device_id,
            pipeline: pipeline_of(address.pipeline),
            limits: limits.clone(),
        })
    }

    /// All tables of the switch.
    ///
    /// # Errors
    /// A call fails, takes too long, or its answer cannot be understood.
    pub async fn read_all_tables(
        &self,
        pipeline: &ForwardingPipeline,
    ) -> Result<SwitchTables, ClientError> {
        let all = TableScope::whole_tables(pipeline.p4info.table_ids());
        self.read_tables(pipeline, &all).await
    }

    /// What each pin of the switch has counted.
    ///
    /// # Errors
    /// As for [`SwitchClient::read_all_tables`].
    pub async fn read_pin_counts(&self) -> Result<BTreeMap<EntryKey, CounterValue>, ClientError> {
        let tables = self.pipeline.counted_pin_tables();
        // SONiC's P4Runtime application serves only reads of all tables, with the counters inside
        // the rows.
        if self.pipeline.is_read_whole() {
            let mut pins = self.read_all_counters().await?;
            pins.retain(|key, _| tables.contains(&key.table));
            return Ok(pins);
        }
        let reads = tables.iter().map(|table| codec::encode_table_counter_read(*table));
        self.read_counters(reads.collect()).await.map(|reading| reading.pins)
    }

    /// What all rows that count have counted.
    async fn read_all_counters(&self) -> Result<BTreeMap<EntryKey, CounterValue>, ClientError> {
        let reading = self.read_counters(vec![codec::encode_whole_counter_read()]).await;
        reading.map(|reading| reading.pins)
    }

    /// All cells of the port and level counter, by index; none where the program has none.
    ///
    /// # Errors
    /// As for [`SwitchClient::read_all_tables`].
    pub async fn read_port_level_cells(&self) -> Result<BTreeMap<u32, CounterValue>, ClientError> {
        let Some(counter) = self.pipeline.port_level_counter() else {
            return Ok(BTreeMap::new());
        };
        let counter = codec::encode_counter_read(counter);
        let cells = self.read_counters(vec![counter]).await?.cells.into_iter();
        Ok(cells.map(|(cell, count)| (cell.index, count)).collect())
    }

    /// What some pins and some cells of indexed counters have counted; pins that the
    /// switch does not hold are left out.
    ///
    /// # Errors
    /// As for [`SwitchClient::read_all_tables`].
    pub async fn read_counts(
        &self,
        pins: &[EntryKey],
        cells: &[CounterCell],
    ) -> Result<CounterReading, ClientError> {
        if self.pipeline.is_read_whole() {
            let mut all = self.read_all_counters().await?;
            let wanted: BTreeSet<&EntryKey> = pins.iter().collect();
            all.retain(|key, _| wanted.contains(key));
            return Ok(CounterReading { pins: all, cells: BTreeMap::new() });
        }
        let pin_reads = pins.iter().map(codec::encode_row_counter_read);
        let cell_reads = cells.iter().copied().map(codec::encode_cell_read);
        self.read_counters(pin_reads.chain(cell_reads).collect()).await
    }

    async fn read_counters(
        &self,
        entities: Vec<p4rt::Entity>,
    ) -> Result<CounterReading, ClientError> {
        let mut reading = CounterReading::default();
        self.read_entities(entities, |entity| {
            reading
                .pins
                .extend(codec::decode_row_counter(&self.pipeline.program().p4info, &entity)?);
            reading.cells.extend(codec::decode_counter_cell(&entity)?);
            Ok(())
        })
        .await?;
        Ok(reading)
    }

    /// Gives each entity of the answer to `take`.
    async fn read_entities(
        &self,
        entities: Vec<p4rt::Entity>,
        take: impl FnMut(p4rt::Entity) -> Result<(), DecodeError>,
    ) -> Result<(), ClientError> {
        let role = self.pipeline.role().to_owned();
        let request = p4rt::ReadRequest { device_id: self.device_id, entities, role };
        let program = self.pipeline.program();
        let source = (self.channel.clone(), &program.p4info);
        let reading = read_switch(source, &self.limits, request, take);
        let in_time = tokio::time::timeout(self.limits.rpc_deadline, reading).await;
        in_time.map_err(|_| ClientError::Deadline(READ))?.map_err(|error| match error {
            ReadError::Bound(message) => {
                ClientError::Call { call: READ, code: Code::ResourceExhausted, message }
            }
            ReadError::Call(status) => call_error(READ, &status),
            ReadError::Entity(source) => ClientError::Decode { call: READ, source },
        })
    }

    async fn call_within_deadline<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, ClientError> {
        let in_time = tokio::time::timeout(self.limits.rpc_deadline, answer).await;
        let result = in_time.map_err(|_| ClientError::Deadline(call))?;
        result.map_err(|status| call_error(call, &status))
    }
}

#[async_trait]
impl SwitchConnection for SwitchClient {
    async fn open_stream(&self, bid: ElectionId) -> Result<StreamChannel, ClientError> {
        let (outgoing, queue) = mpsc::channel(self.limits.stream_queue.get());
        // Queued before the call, because some servers answer it only after the first message.
        outgoing.try_send(OutgoingMessage::Bid(bid)).expect("a new queue has room for one message");
        let (device_id, pipeline) = (self.device_id, self.pipeline.kind());
        let messages = ReceiverStream::new(queue)
            .map(move |message| encode_message(device_id, pipeline, message));
        // The limit of the client is that of reads, which is far too large for a message of the
        // stream.
        let mut calls = self.calls.clone().max_decoding_message_size(STREAM_MESSAGE_BYTES);
        let answer = self.call_within_deadline("StreamChannel", calls.stream_channel(messages));
        let answers = answer.await?.into_inner();
        let incoming = answers.filter_map(move |answer| {
            let message = answer.map_err(|status| call_error("StreamChannel", &status));
            future::ready(
                message
                    .and_then(|message| decode_message(device_id, pipeline, message))
                    .transpose(),
            )
        });
        // The next connection says why.
        let incoming = incoming.take_until(until_revoked(self.certificate.clone()));
        Ok(StreamChannel { outgoing, incoming: incoming.boxed() })
    }

    async fn read_cookie(&self) -> Result<Option<u64>, ClientError> {
        let config = self.read_config(ResponseType::CookieOnly).await?;
        Ok(config.and_then(|config| config.cookie).map(|cookie| cookie.cookie))
    }

    async fn read_program(&self) -> Result<Option<RunningProgram>, ClientError> {
        let Some(config) = self.read_config(ResponseType::P4infoAndCookie).await? else {
            return Ok(None);
        };
        let cookie = config.cookie.map(|cookie| cookie.cookie);
        let p4info = config.p4info.unwrap_or_default();
        // Servers without a program also answer with an empty message.
        let is_empty = cookie.is_none() && p4info == Default::default();
        let tables = codec::decode_table_names(&p4info);
        Ok((!is_empty).then_some(RunningProgram { cookie, tables }))
    }

    async fn push_pipeline(
        &self,
        pipeline: &ForwardingPipeline,
        election: ElectionId,
        entries: ExistingEntries,
    ) -> Result<(), ClientError> {
        let action = match entries {
            ExistingEntries::Keep => Action::ReconcileAndCommit,
            ExistingEntries::Drop => Action::VerifyAndCommit,
        };
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            role: self.pipeline.role().to_owned(),
            election_id: Some(election.into()),
            action: action.into(),
            config: Some(codec::encode_pipeline(pipeline)),
            ..Default::default()
        };
        let mut calls = self.calls.clone();
        let answer = calls.set_forwarding_pipeline_config(request);
        self.call_within_deadline("SetForwardingPipelineConfig", answer).await.map(drop)
    }

    /// All are asked for together: a repair reads dozens of switches, and most of its time would be
    /// calls.
    async fn read_tables(
        &self,
        pipeline: &ForwardingPipeline,
        of: &TableScope,
    ) -> Result<SwitchTables, ClientError> {
        let mut tables = SwitchTables::default();
        let asked = if self.pipeline.is_read_whole() {
            vec![codec::encode_whole_read()]
        } else {
            codec::encode_scope_read(&pipeline.p4info, of)
        };
        self.read_entities(asked, |entity| {
            if let Some(entry) = codec::decode_table_entity(&pipeline.p4info, &entity)? {
                tables.insert(entry);
            }
            Ok(())
        })
        .await?;
        // A server that reads whole, or ignores a filter, has sent more than was asked for.
        Ok(tables.restricted_to(of))
    }

    async fn write_updates(
        &self,
        updates: &[TableUpdate],
        election: ElectionId,
    ) -> Result<Result<(), WriteError>, ClientError> {
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            role: self.pipeline.role().to_owned(),
            election_id: Some(election.into()),
            updates: updates.iter().map(codec::encode_update).collect(),
            ..Default::default()
        };
        let written = self.call_write(request).await?;
        Ok(written.map_err(|status| codec::decode_write_error(&status, updates)))
    }

    async fn subscribe_digests(
        &self,
        timing: &DigestTiming,
        election: ElectionId,
    ) -> Result<Result<(), String>, ClientError> {
        let written = self.write_digest(UpdateKind::Insert, timing, election).await?;
        let written = match written {
            // From before this connection.
            Err((Code::AlreadyExists, _)) => {
                self.write_digest(UpdateKind::Modify, timing, election).await?
            }
            written => written,
        };
        Ok(written.map_err(|(code, message)| format!("{code:?}: {message}")))
    }
}

impl SwitchClient {
    /// What of its pipeline a switch answers; `None` if it has none.
    async fn read_config(
        &self,
        parts: ResponseType,
    ) -> Result<Option<p4rt::ForwardingPipelineConfig>, ClientError> {
        let request = p4rt::GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: parts.into(),
        };
        let mut calls = self.calls.clone();
        let answer = calls.get_forwarding_pipeline_config(request);
        match self.call_within_deadline("GetForwardingPipelineConfig", answer).await {
            Ok(answer) => Ok(answer.into_inner().config),
            // Switches answer so when they have no pipeline.
            Err(ClientError::Call { code: Code::FailedPrecondition | Code::NotFound, .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn write_digest(
        &self,
        kind: UpdateKind,
        timing: &DigestTiming,
        election: ElectionId,
    ) -> Result<Result<(), (Code, String)>, ClientError> {
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            role: self.pipeline.role().to_owned(),
            election_id: Some(election.into()),
            updates: vec![codec::encode_digest_update(kind, timing)],
            ..Default::default()
        };
        let written = self.call_write(request).await?;
        Ok(written.map_err(|status| codec::decode_digest_refusal(&status)))
    }

    /// The status where the switch refused some of the updates and names them, or the request for
    /// its size.
    async fn call_write(
        &self,
        request: p4rt::WriteRequest,
    ) -> Result<Result<(), Status>, ClientError> {
        let mut calls = self.calls.clone();
        let answer = tokio::time::timeout(self.limits.rpc_deadline, calls.write(request)).await;
        match answer.map_err(|_| ClientError::Deadline("Write"))? {
            Ok(_) => Ok(Ok(())),
            Err(status) if is_refusal(&status) => Ok(Err(status)),
            Err(status) => Err(call_error("Write", &status)),
        }
    }
}

/// Whether a status is the switch's own answer to a write, and no failure of the connection, which
/// has the same codes and a cause.
fn is_refusal(status: &Status) -> bool {
    let codes = [Code::Unknown, Code::ResourceExhausted, Code::OutOfRange];
    codes.contains(&status.code()) && std::error::Error::source(status).is_none()
}

fn call_error(call: &'static str, status: &Status) -> ClientError {
    ClientError::Call { call, code: status.code(), message: describe_status(status) }
}
