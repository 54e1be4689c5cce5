//! A case over P4Runtime: a controller writes entries and reads counters; packets go to the device.
//!
//! What the in-memory runner writes by index is encoded here by the ids of the P4Info, so a case
//! that passes has also passed the checks of P4Info and the decoding of every entity. The decision:
//! it is a client of the served protocol and shares no code with the service.

use p4rt::entity::Entity as Kind;
use p4rt::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use p4rt::p4_data::Data;
use p4rt::p4_runtime_client::P4RuntimeClient;
use p4rt::packet_replication_engine_entry::Type as Replication;
use p4rt::set_forwarding_pipeline_config_request::Action as PipelineAction;
use p4rt::update::Type as UpdateType;
use p4runtime_proto::config_v1::match_field::{Match as DeclaredMatch, MatchType};
use p4runtime_proto::config_v1::{P4Info, Preamble};
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::{StfTarget, TargetError};
use switch::CounterData;
use switch::DeviceHandle;
use switch::Program;
use switch::ReplicationUpdate;
use switch::bit_mask;
use switch::{ActionCall, KeyField, MatchKey, Replica};
use switch::{CounterIndex, RegisterIndex, TableIndex};
use switch::{DeviceOutputs, OutputPacket};

const ELECTION: p4rt::Uint128 = p4rt::Uint128 { high: 0, low: 1 };

/// A served device and its primary controller. All methods block, so it is used outside of the
/// runtime that serves the device.
#[derive(Debug)]
pub struct P4RuntimeTarget<'a> {
    runtime: Handle,
    program: &'a Program,
    info: P4Info,
    device: DeviceHandle,
    device_id: u64,
    client: P4RuntimeClient<Channel>,
    /// The stream lasts as long as this.
    _requests: mpsc::Sender<p4rt::StreamMessageRequest>,
}

impl<'a> P4RuntimeTarget<'a> {
    /// Becomes primary of the device that is served at `address`, and has it run a program with its
    /// P4Info. `program` is the same one, for its names.
    ///
    /// # Errors
    /// Nobody serves there, or the service refuses the program.
    pub fn start(
        runtime: &Handle,
        address: &str,
        device: DeviceHandle,
        program: &'a Program,
        config: p4rt::ForwardingPipelineConfig,
    ) -> Result<Self, TargetError> {
        let info = config.p4info.clone().unwrap_or_default();
        let connecting = async {
            let device_id = device.with_device(|device| device.config().device_id).await?;
            let (client, requests) = claim_mastership(address, device_id).await?;
            Ok::<_, TargetError>((device_id, client, requests))
        };
        let (device_id, mut client, requests) = runtime.block_on(connecting)?;
        let request = p4rt::SetForwardingPipelineConfigRequest {
            device_id,
            election_id: Some(ELECTION),
            action: PipelineAction::VerifyAndCommit.into(),
            config: Some(config),
            ..Default::default()
        };
        runtime.block_on(client.set_forwarding_pipeline_config(request))?;
        let runtime = runtime.clone();
        Ok(Self { runtime, program, info, device, device_id, client, _requests: requests })
    }

    fn write(&mut self, kind: UpdateType, entity: Kind) -> Result<(), TargetError> {
        let entity = Some(p4rt::Entity { entity: Some(entity) });
        let request = p4rt::WriteRequest {
            device_id: self.device_id,
            election_id: Some(ELECTION),
            updates: vec![p4rt::Update { r#type: kind.into(), entity }],
            ..Default::default()
        };
        let written = self.runtime.block_on(self.client.write(request));
        written.map(drop).map_err(|status| update_error(&status))
    }

    /// Reads the one entity that a query selects.
    fn read(&mut self, query: Kind) -> Result<Kind, TargetError> {
        let entities = vec![p4rt::Entity { entity: Some(query) }];
        let request =
            p4rt::ReadRequest { device_id: self.device_id, entities, ..Default::default() };
        let reading = async {
            let mut answer = self.client.read(request).await?.into_inner();
            answer.message().await
        };
        let found = self.runtime.block_on(reading)?.unwrap_or_default().entities;
        let entity = found.into_iter().find_map(|entity| entity.entity);
        entity.ok_or_else(|| "the read returns nothing".into())
    }

    fn table_entry(
        &self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Result<p4rt::TableEntry, TargetError> {
        let spec = self.program.table(table).ok_or("the program has no such table")?;
        let tables = self.info.tables.iter();
        let declared = find_named(tables, |table| table.preamble.as_ref(), &spec.name)?;
        let keys = declared.match_fields.iter().zip(&spec.keys).zip(&key.fields);
        let fields = keys.filter_map(|((declared, spec), field)| {
            let kind = MatchType::Optional as i32;
            let is_optional = declared.r#match == Some(DeclaredMatch::MatchType(kind));
            let field = if is_optional { optional_field(*field) } else { *field };
            let field_match_type = Some(encode_field(field, spec.bits)?);
            Some(p4rt::FieldMatch { field_id: declared.id, field_match_type })
        });
        Ok(p4rt::TableEntry {
            table_id: id_of(declared.preamble.as_ref()),
            r#match: fields.collect(),
            priority: i32::try_from(key.priority)?,
            ..Default::default()
        })
    }

    fn table_action(&self, call: &ActionCall) -> Result<p4rt::TableAction, TargetError> {
        let spec = self.program.action(call.action).ok_or("the program has no such action")?;
        let actions = self.info.actions.iter();
        let declared = find_named(actions, |action| action.preamble.as_ref(), &spec.name)?;
        let arguments = declared.params.iter().zip(&call.arguments);
        let params = arguments.map(|(param, value)| p4rt::action::Param {
            param_id: param.id,
            value: encode_number(*value),
        });
        let action =
            p4rt::Action { action_id: id_of(declared.preamble.as_ref()), params: params.collect() };
        Ok(p4rt::TableAction { r#type: Some(p4rt::table_action::Type::Action(action)) })
    }

    fn register_cell(
        &self,
        register: RegisterIndex,
        cell: usize,
        value: Option<u128>,
    ) -> Result<p4rt::RegisterEntry, TargetError> {
        let spec = self.program.register(register).ok_or("the program has no such register")?;
        let registers = self.info.registers.iter();
        let declared = find_named(registers, |register| register.preamble.as_ref(), &spec.name)?;
        let data =
            value.map(|value| p4rt::P4Data { data: Some(Data::Bitstring(encode_number(value))) });
        Ok(p4rt::RegisterEntry {
            register_id: id_of(declared.preamble.as_ref()),
            index: Some(p4rt::Index { index: i64::try_from(cell)? }),
            data,
        })
    }
}

impl StfTarget for P4RuntimeTarget<'_> {
    fn process_packet(
        &mut self,
        port: u16,
        packet: &[u8],
    ) -> Result<Vec<OutputPacket>, TargetError> {
        let packet = packet.to_vec();
        let processed = self.device.with_device(move |device| {
            let mut out = DeviceOutputs::default();
            device.process_packet(port, &packet, 0, &mut out);
            out.packets
        });
        Ok(self.runtime.block_on(processed)?)
    }

    fn insert_entry(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        call: &ActionCall,
    ) -> Result<(), TargetError> {
        let action = Some(self.table_action(call)?);
        let entry = p4rt::TableEntry { action, ..self.table_entry(table, key)? };
        self.write(UpdateType::Insert, Kind::TableEntry(entry))
    }

    fn set_default_action(
        &mut self,
        table: TableIndex,
        call: &ActionCall,
    ) -> Result<(), TargetError> {
        let action = Some(self.table_action(call)?);
        let whole_table = MatchKey { fields: Vec::new(), priority: 0 };
        let entry = p4rt::TableEntry {
            action,
            is_default_action: true,
            ..self.table_entry(table, &whole_table)?
        };
        self.write(UpdateType::Modify, Kind::TableEntry(entry))
    }

    fn read_counter_cell(
        &mut self,
        counter: CounterIndex,
        cell: usize,
    ) -> Result<CounterData, TargetError> {
        let spec = self.program.counter(counter).ok_or("the program has no such counter")?;
        let counters = self.info.counters.iter();
        let declared = find_named(counters, |counter| counter.preamble.as_ref(), &spec.name)?;
        let query = p4rt::CounterEntry {
            counter_id: id_of(declared.preamble.as_ref()),
            index: Some(p4rt::Index { index: i64::try_from(cell)? }),
            data: None,
        };
        match self.read(Kind::CounterEntry(query))? {
            Kind::CounterEntry(entry) => Ok(decode_count(entry.data)),
            other => Err(format!("the read returns {other:?}").into()),
        }
    }

    fn read_entry_counter(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
    ) -> Result<CounterData, TargetError> {
        let table_entry = Some(self.table_entry(table, key)?);
        let query = p4rt::DirectCounterEntry { table_entry, data: None };
        match self.read(Kind::DirectCounterEntry(query))? {
            Kind::DirectCounterEntry(entry) => Ok(decode_count(entry.data)),
            other => Err(format!("the read returns {other:?}").into()),
        }
    }

    fn read_register(&mut self, register: RegisterIndex, cell: usize) -> Result<u128, TargetError> {
        let query = self.register_cell(register, cell, None)?;
        let data = match self.read(Kind::RegisterEntry(query))? {
            Kind::RegisterEntry(entry) => entry.data.and_then(|data| data.data),
            other => return Err(format!("the read returns {other:?}").into()),
        };
        match data {
            Some(Data::Bitstring(value)) => {
                Ok(value.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
            }
            other => Err(format!("the register holds {other:?}").into()),
        }
    }

    fn write_register(
        &mut self,
        register: RegisterIndex,
        cell: usize,
        value: u128,
    ) -> Result<(), TargetError> {
        let entry = self.register_cell(register, cell, Some(value))?;
        self.write(UpdateType::Modify, Kind::RegisterEntry(entry))
    }

    fn insert_clone_session(
        &mut self,
        session: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError> {
        let entry = p4rt::CloneSessionEntry {
            session_id: session.into(),
            replicas: encode_replicas(&replicas),
            ..Default::default()
        };
        self.write(UpdateType::Insert, replication(Replication::CloneSessionEntry(entry)))
    }

    fn write_multicast_group(
        &mut self,
        kind: ReplicationUpdate,
        group: u16,
        replicas: Vec<Replica>,
    ) -> Result<(), TargetError> {
        let kind = match kind {
            ReplicationUpdate::Insert => UpdateType::Insert,
            ReplicationUpdate::Modify => UpdateType::Modify,
            ReplicationUpdate::Delete => UpdateType::Delete,
        };
        let entry = p4rt::MulticastGroupEntry {
            multicast_group_id: group.into(),
            replicas: encode_replicas(&replicas),
            ..Default::default()
        };
        self.write(kind, replication(Replication::MulticastGroupEntry(entry)))
    }
}

/// Connects, and becomes primary.
async fn claim_mastership(
    address: &str,
    device_id: u64,
) -> Result<(P4RuntimeClient<Channel>, mpsc::Sender<p4rt::StreamMessageRequest>), TargetError> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    let mut client = P4RuntimeClient::new(endpoint.connect().await?);
    let (requests, outgoing) = mpsc::channel(1);
    let claim = p4rt::MasterArbitrationUpdate {
        device_id,
        election_id: Some(ELECTION),
        ..Default::default()
    };
    let update = Some(p4rt::stream_message_request::Update::Arbitration(claim));
    requests.send(p4rt::StreamMessageRequest { update }).await?;
    let mut answers = client.stream_channel(ReceiverStream::new(outgoing)).await?.into_inner();
    answers.message().await?;
    // Someone must read the stream, or the service ends it.
    tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });
    Ok((client, requests))
}

/// The object with this full name.
fn find_named<'a, T>(
    mut objects: impl Iterator<Item = &'a T>,
    preamble: impl Fn(&T) -> Option<&Preamble>,
    name: &str,
) -> Result<&'a T, TargetError> {
    let found = objects.find(|object| preamble(object).is_some_and(|has| has.name == name));
    found.ok_or_else(|| format!("the P4Info has no {name}").into())
}

fn id_of(preamble: Option<&Preamble>) -> u32 {
    preamble.map_or(0, |preamble| preamble.id)
}

/// A match; none for a field that may have any value, which P4Runtime leaves out.
fn encode_field(field: KeyField, bits: u32) -> Option<FieldMatchType> {
    Some(match field {
        KeyField::Exact(value) => FieldMatchType::Exact(Exact { value: encode_number(value) }),
        KeyField::Lpm { prefix: 0, .. }
        | KeyField::Ternary { mask: 0, .. }
        | KeyField::Optional(None) => return None,
        KeyField::Range { low: 0, high } if high == bit_mask(bits) => return None,
        KeyField::Lpm { value, prefix } => FieldMatchType::Lpm(Lpm {
            value: encode_number(value),
            prefix_len: i32::try_from(prefix).ok()?,
        }),
        KeyField::Ternary { value, mask } => FieldMatchType::Ternary(Ternary {
            value: encode_number(value),
            mask: encode_number(mask),
        }),
        KeyField::Range { low, high } => {
            FieldMatchType::Range(Range { low: encode_number(low), high: encode_number(high) })
        }
        KeyField::Optional(Some(value)) => {
            FieldMatchType::Optional(Optional { value: encode_number(value) })
        }
    })
}

/// p4c writes a key of the kind `optional` as a ternary one.
fn optional_field(field: KeyField) -> KeyField {
    match field {
        KeyField::Ternary { value, mask: 1.. } => KeyField::Optional(Some(value)),
        KeyField::Ternary { .. } => KeyField::Optional(None),
        other => other,
    }
}

fn encode_replicas(replicas: &[Replica]) -> Vec<p4rt::Replica> {
    let replicas = replicas.iter().map(|replica| p4rt::Replica {
        port_kind: Some(p4rt::replica::PortKind::Port(encode_number(replica.port.into()))),
        instance: replica.instance.into(),
        ..Default::default()
    });
    replicas.collect()
}

fn replication(entry: Replication) -> Kind {
    let entry = p4rt::PacketReplicationEngineEntry { r#type: Some(entry) };
    Kind::PacketReplicationEngineEntry(entry)
}

fn decode_count(data: Option<p4rt::CounterData>) -> CounterData {
    let data = data.unwrap_or_default();
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    CounterData { packets: number(data.packet_count), bytes: number(data.byte_count) }
}

/// A number in as few bytes as it needs, at least one.
fn encode_number(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros.min(15)..].to_vec()
}

/// Why the one update of a write was refused.
fn update_error(status: &Status) -> TargetError {
    let details = p4runtime_proto::rpc::Status::decode(status.details());
    let mut errors = details.into_iter().flat_map(|details| details.details);
    let error = errors.find_map(|any| p4rt::Error::decode(&*any.value).ok());
    match error {
        Some(error) => format!("{:?}: {}", tonic::Code::from(error.canonical_code), error.message),
        None => status.to_string(),
    }
    .into()
}
