//! The pipelines of one device: the one that runs and the one that waits to be committed.
//!
//! Everything here happens on the device's thread, one request at a time. A saved pipeline runs on
//! a device of its own that has no ports, and is written to and read from like the real one; to
//! commit it is to load the real device with it and repeat its state there. Reconciling works the
//! same way with the state of the running pipeline, and touches nothing unless all of it fits.

use std::sync::Arc;

use p4rt::get_forwarding_pipeline_config_request::ResponseType;
use p4rt::stream_message_response::Update;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::controller_metadata::ControllerMetadata;
use super::device_config::unwrap_json;
use super::digests::{DigestSubscriptions, encode_digest, find_digest};
use super::entity_reader::{EntityReader, ReadResult};
use super::entity_writer::EntityWriter;
use super::error::RequestFailure;
use crate::p4runtime::p4info::PipelineSchema;
use crate::p4runtime::pins::{PinsSchema, PinsState, PinsWriter, PortNames};
use switch::Device;
use switch::Program;

/// A configuration that passed verification.
#[derive(Clone, Debug)]
pub(super) struct VerifiedPipeline {
    pub(super) schema: Arc<PipelineSchema>,
    program: Arc<Program>,
    config: Arc<p4rt::ForwardingPipelineConfig>,
}

/// A pipeline together with what is noted beside the device.
#[derive(Debug)]
struct PipelineState {
    pipeline: VerifiedPipeline,
    metadata: ControllerMetadata,
    /// Used where the schema is that of a PINS switch.
    pins: PinsState,
}

/// A saved pipeline and the device without ports that runs it.
#[derive(Debug)]
struct SavedPipeline {
    state: PipelineState,
    device: Device,
}

/// All pipelines of one device.
#[derive(Debug, Default)]
pub(super) struct DevicePipelines {
    running: Option<PipelineState>,
    saved: Option<SavedPipeline>,
}

impl VerifiedPipeline {
    /// Checks that the switch can run the configuration and that its two halves agree.
    pub(super) fn verify_config(
        config: p4rt::ForwardingPipelineConfig,
    ) -> Result<Self, RequestFailure> {
        let info = config.p4info.as_ref();
        let info =
            info.ok_or_else(|| RequestFailure::invalid_argument("the config has no P4Info"))?;
        if config.p4_device_config.is_empty() {
            return Err(RequestFailure::invalid_argument("the config has no device config"));
        }
        let program = Program::from_json(&unwrap_json(&config.p4_device_config))
            .map_err(|error| RequestFailure::invalid_argument(format!("device config: {error}")))?;
        let schema = Arc::new(PipelineSchema::from_p4info(info, &program)?);
        Ok(Self { schema, program: Arc::new(program), config: Arc::new(config) })
    }

    /// Checks a configuration for a PINS switch. Such a switch is built for its program, so that a
    /// configuration without one is for the program that it has.
    pub(super) fn verify_for_pins(
        mut config: p4rt::ForwardingPipelineConfig,
        built_in: Option<&Arc<Program>>,
        port_names: PortNames,
    ) -> Result<Self, RequestFailure> {
        let mut verified = match built_in {
            Some(program) if config.p4_device_config.is_empty() => {
                let info = config.p4info.get_or_insert_default();
                let schema = Arc::new(PipelineSchema::from_p4info(info, program)?);
                Self { schema, program: Arc::clone(program), config: Arc::new(config) }
            }
            _ => Self::verify_config(config)?,
        };
        if let (Some(schema), Some(info)) =
            (Arc::get_mut(&mut verified.schema), &verified.config.p4info)
        {
            schema.pins = Some(PinsSchema::from_p4info(info, schema, port_names)?);
        }
        Ok(verified)
    }
}

impl PipelineState {
    fn new(pipeline: VerifiedPipeline) -> Self {
        let (metadata, pins) = (ControllerMetadata::default(), PinsState::default());
        Self { pipeline, metadata, pins }
    }

    fn apply_update(
        &mut self,
        device: &mut Device,
        update: &p4rt::Update,
    ) -> Result<(), RequestFailure> {
        match self.pins_writer(device, "") {
            Some(mut writer) => writer.replay_update(update),
            None => self.entity_writer(device).apply_update(update),
        }
    }

    fn entity_writer<'a>(&'a mut self, device: &'a mut Device) -> EntityWriter<'a> {
        EntityWriter { schema: &self.pipeline.schema, metadata: &mut self.metadata, device }
    }

    /// The writer of a PINS switch, if this is one.
    fn pins_writer<'a>(
        &'a mut self,
        device: &'a mut Device,
        role: &'a str,
    ) -> Option<PinsWriter<'a>> {
        let schema = &*self.pipeline.schema;
        let pins = schema.pins.as_ref()?;
        let writer = EntityWriter { schema, metadata: &mut self.metadata, device };
        Some(PinsWriter { pins, state: &mut self.pins, writer, role })
    }

    /// Whether a new configuration of a PINS switch is the one it has but for its cookie, so that
    /// nothing needs to be written again.
    fn takes_config(&self, pipeline: &VerifiedPipeline) -> bool {
        let (here, there) = (&self.pipeline.config, &pipeline.config);
        self.pipeline.schema.pins.is_some()
            && here.p4info == there.p4info
            && here.p4_device_config == there.p4_device_config
    }

    /// Everything that was written, in an order in which it can be written again.
    fn state_updates(&self, device: &Device) -> Result<Vec<p4rt::Update>, RequestFailure> {
        let reader = self.entity_reader(device);
        match &self.pipeline.schema.pins {
            Some(pins) => self.pins.state_updates(pins, reader),
            None => reader.state_updates(),
        }
    }

    fn read_entity(&self, device: &Device, query: &p4rt::Entity, role: &str) -> ReadResult {
        let reader = self.entity_reader(device);
        match &self.pipeline.schema.pins {
            Some(pins) => self.pins.read_entity(pins, reader, query, role),
            None => reader.read_entity(query),
        }
    }

    fn entity_reader<'a>(&'a self, device: &'a Device) -> EntityReader<'a> {
        EntityReader { schema: &self.pipeline.schema, metadata: &self.metadata, device }
    }
}

impl DevicePipelines {
    /// Keeps a pipeline for a later [`DevicePipelines::commit_saved`]; packets see nothing of it.
    pub(super) fn save_pipeline(&mut self, pipeline: VerifiedPipeline, device: &Device) {
        let mut scratch_device = Device::new(device.config());
        scratch_device.load_program(Arc::clone(&pipeline.program));
        self.saved =
            Some(SavedPipeline { state: PipelineState::new(pipeline), device: scratch_device });
    }

    /// Runs a pipeline with no state but the program's own.
    pub(super) fn replace_pipeline(&mut self, pipeline: VerifiedPipeline, device: &mut Device) {
        device.load_program(Arc::clone(&pipeline.program));
        *self = Self { running: Some(PipelineState::new(pipeline)), saved: None };
    }

    /// Runs the saved pipeline with the state written to it since it was saved.
    pub(super) fn commit_saved(&mut self, device: &mut Device) -> Result<(), RequestFailure> {
        let saved =
            self.saved.as_ref().ok_or_else(|| RequestFailure::not_found("no config is saved"))?;
        let state = saved.state.state_updates(&saved.device)?;
        self.replace_pipeline(saved.state.pipeline.clone(), device);
        self.replay_updates(device, &state)
    }

    /// Runs a pipeline with the state of the running one, or leaves everything as it is.
    pub(super) fn reconcile_pipeline(
        &mut self,
        pipeline: VerifiedPipeline,
        device: &mut Device,
    ) -> Result<(), RequestFailure> {
        let state = match &self.running {
            Some(running) if running.takes_config(&pipeline) => {
                self.running.iter_mut().for_each(|running| running.pipeline = pipeline.clone());
                return Ok(());
            }
            Some(running) => running.state_updates(device)?,
            None => Vec::new(),
        };
        let (mut trial, mut scratch_device) = (Self::default(), Device::new(device.config()));
        trial.replace_pipeline(pipeline.clone(), &mut scratch_device);
        trial.replay_updates(&mut scratch_device, &state).map_err(|failure| {
            RequestFailure::invalid_argument(failure.message).in_context("the state cannot be kept")
        })?;
        self.replace_pipeline(pipeline, device);
        self.replay_updates(device, &state)
    }

    fn replay_updates(
        &mut self,
        device: &mut Device,
        updates: &[p4rt::Update],
    ) -> Result<(), RequestFailure> {
        let running = self.running.as_mut().ok_or_else(no_pipeline_failure)?;
        updates.iter().try_for_each(|update| running.apply_update(device, update))
    }

    /// Carries out one update after the other. `refuse` may forbid one, by the name of its table.
    pub(super) fn write_updates(
        &mut self,
        device: &mut Device,
        role: &str,
        updates: &[p4rt::Update],
        mut refuse: impl FnMut(&str) -> Option<Code>,
    ) -> Result<Vec<Result<(), RequestFailure>>, RequestFailure> {
        let (plane, device) = match (&mut self.saved, &mut self.running) {
            (Some(saved), _) => (&mut saved.state, &mut saved.device),
            (None, Some(running)) => (running, device),
            (None, None) => return Err(no_pipeline_failure()),
        };
        if let Some(mut writer) = plane.pins_writer(device, role) {
            return Ok(writer.write_batch(updates, refuse));
        }
        let mut results = Vec::new();
        for update in updates {
            let table = table_name(&plane.pipeline.schema, update);
            results.push(match table.and_then(&mut refuse) {
                Some(code) => Err(RequestFailure::new(code, "refused by the fault script")),
                None => plane.apply_update(device, update),
            });
        }
        Ok(results)
    }

    /// Answers each query of a role.
    pub(super) fn read_entities(
        &self,
        device: &Device,
        queries: &[p4rt::Entity],
        role: &str,
    ) -> Result<Vec<ReadResult>, RequestFailure> {
        let (state, device) = match (&self.saved, &self.running) {
            (Some(saved), _) => (&saved.state, &saved.device),
            (None, Some(running)) => (running, device),
            (None, None) => return Err(no_pipeline_failure()),
        };
        let mut answers: Vec<ReadResult> =
            queries.iter().map(|query| state.read_entity(device, query, role)).collect();
        // PINS answers all queries of a request or none.
        if state.pipeline.schema.pins.is_some() && answers.iter().any(Result::is_err) {
            answers.iter_mut().flatten().for_each(Vec::clear);
        }
        Ok(answers)
    }

    /// Whether a pipeline runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The notifications for controllers since the last call: lists of digests, and idle entries,
    /// with the time at which they are sent, in nanoseconds since the Epoch.
    pub(super) fn take_notifications(
        &mut self,
        device: &mut Device,
        timestamp: i64,
    ) -> Vec<Update> {
        let Some(running) = &mut self.running else {
            return Vec::new();
        };
        let now = device.now();
        let schema = &*running.pipeline.schema;
        let learning = &mut running.metadata.digests;
        for digest in device.take_digests() {
            learning.add_digest(digest, now);
        }
        let mut notices = Vec::new();
        for (index, list_id, values) in learning.take_due_lists(now) {
            let known = schema.digests.iter().find(|(_, digest)| digest.index == index);
            notices.extend(known.map(|(&digest_id, digest)| {
                let data = values.iter().map(|values| encode_digest(digest, values)).collect();
                Update::Digest(p4rt::DigestList { digest_id, list_id, data, timestamp })
            }));
        }
        let idle = device.take_idle_entries();
        let reader = running.entity_reader(device);
        let mut table_entry = Vec::new();
        for (index, key) in &idle {
            let table = schema.tables.values().find(|table| table.index == *index);
            table_entry.extend(table.and_then(|table| reader.idle_entry(table, key)));
        }
        if !table_entry.is_empty() {
            let notice = p4rt::IdleTimeoutNotification { table_entry, timestamp };
            notices.push(Update::IdleTimeoutNotification(notice));
        }
        notices
    }

    /// Whether there may be notifications as time passes, without anything else happening.
    pub(super) fn awaits_notifications(&self, device: &Device) -> bool {
        let digests = self.running.as_ref().map(|running| &running.metadata.digests);
        digests.is_some_and(DigestSubscriptions::awaits_time) || device.has_ageing_entries()
    }

    /// A controller has taken note of a list of digests.
    pub(super) fn acknowledge_digests(
        &mut self,
        ack: &p4rt::DigestListAck,
    ) -> Result<(), RequestFailure> {
        let running = self.running.as_mut().ok_or_else(no_pipeline_failure)?;
        let digest = find_digest(&running.pipeline.schema, ack.digest_id)?;
        running.metadata.digests.acknowledge_list(digest.index, ack.list_id)
    }

    /// The configuration that requests refer to, with the requested parts.
    pub(super) fn pipeline_config(
        &self,
        parts: ResponseType,
    ) -> Option<p4rt::ForwardingPipelineConfig> {
        let plane = match (&self.saved, &self.running) {
            (Some(saved), _) => &saved.state,
            (None, running) => running.as_ref()?,
        };
        let config = &plane.pipeline.config;
        let (with_info, with_device_config) = match parts {
            ResponseType::All => (true, true),
            ResponseType::CookieOnly => (false, false),
            ResponseType::P4infoAndCookie => (true, false),
            ResponseType::DeviceConfigAndCookie => (false, true),
        };
        let device_config = with_device_config.then(|| config.p4_device_config.clone());
        Some(p4rt::ForwardingPipelineConfig {
            p4info: config.p4info.as_ref().filter(|_| with_info).cloned(),
            p4_device_config: device_config.unwrap_or_default(),
            cookie: config.cookie,
        })
    }

    /// The updates that make the same state of an empty device under the same pipeline.
    #[cfg(test)]
    pub(super) fn state_updates(
        &self,
        device: &Device,
    ) -> Result<Vec<p4rt::Update>, RequestFailure> {
        self.running.as_ref().ok_or_else(no_pipeline_failure)?.state_updates(device)
    }

    /// The schema of the pipeline that handles packets.
    pub(super) fn running_schema(&self) -> Option<Arc<PipelineSchema>> {
        self.running.as_ref().map(|running| Arc::clone(&running.pipeline.schema))
    }
}

pub(super) fn no_pipeline_failure() -> RequestFailure {
    RequestFailure::new(Code::FailedPrecondition, "no forwarding pipeline config has been set")
}

/// The table that an update writes to, if it is a table entry of a known table.
fn table_name<'a>(schema: &'a PipelineSchema, update: &p4rt::Update) -> Option<&'a str> {
    match update.entity.as_ref()?.entity.as_ref()? {
        p4rt::entity::Entity::TableEntry(entry) => {
            schema.tables.get(&entry.table_id).map(|table| table.name.as_str())
        }
        _ => None,
    }
}
