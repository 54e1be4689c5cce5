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

use super::error::Failure;
use super::learning::{digest_of, encode_digest};
use super::ledger::Ledger;
use super::read::Reader;
use super::write::Writer;
use crate::control::MatchKey;
use crate::device::Device;
use crate::p4info::Schema;
use crate::program::{Program, TableIndex};

/// A configuration that passed verification.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) schema: Arc<Schema>,
    program: Arc<Program>,
    config: Arc<p4rt::ForwardingPipelineConfig>,
}

/// A pipeline together with what is noted beside the device.
#[derive(Debug)]
struct Plane {
    pipeline: Pipeline,
    ledger: Ledger,
}

/// A saved pipeline and the device it is rehearsed on.
#[derive(Debug)]
struct Saved {
    plane: Plane,
    device: Device,
}

/// All pipelines of one device.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    running: Option<Plane>,
    saved: Option<Saved>,
}

impl Pipeline {
    /// Checks that the switch can run the configuration and that its two halves agree.
    pub(super) fn verify(config: p4rt::ForwardingPipelineConfig) -> Result<Self, Failure> {
        let info = config.p4info.as_ref();
        let info = info.ok_or_else(|| Failure::invalid("the config has no P4Info"))?;
        if config.p4_device_config.is_empty() {
            return Err(Failure::invalid("the config has no device config"));
        }
        let program = Program::load(&config.p4_device_config)
            .map_err(|error| Failure::invalid(format!("device config: {error}")))?;
        let schema = Arc::new(Schema::resolve(info, &program)?);
        Ok(Self {
            schema,
            program: Arc::new(program),
            config: Arc::new(config),
        })
    }
}

impl Plane {
    fn new(pipeline: Pipeline) -> Self {
        Self {
            pipeline,
            ledger: Ledger::default(),
        }
    }

    fn apply(&mut self, device: &mut Device, update: &p4rt::Update) -> Result<(), Failure> {
        let (schema, ledger) = (&*self.pipeline.schema, &mut self.ledger);
        Writer {
            schema,
            ledger,
            device,
        }
        .apply(update)
    }

    fn reader<'a>(&'a self, device: &'a Device) -> Reader<'a> {
        Reader {
            schema: &self.pipeline.schema,
            ledger: &self.ledger,
            device,
        }
    }
}

impl Pipelines {
    /// Keeps a pipeline for a later [`Pipelines::commit`]; packets see nothing of it.
    pub(super) fn save(&mut self, pipeline: Pipeline, device: &Device) {
        let mut rehearsal = Device::new(device.config());
        rehearsal.load(Arc::clone(&pipeline.program));
        self.saved = Some(Saved {
            plane: Plane::new(pipeline),
            device: rehearsal,
        });
    }

    /// Runs a pipeline with no state but the program's own.
    pub(super) fn replace(&mut self, pipeline: Pipeline, device: &mut Device) {
        device.load(Arc::clone(&pipeline.program));
        *self = Self {
            running: Some(Plane::new(pipeline)),
            saved: None,
        };
    }

    /// Runs the saved pipeline with the state written to it since it was saved.
    pub(super) fn commit(&mut self, device: &mut Device) -> Result<(), Failure> {
        let saved = self
            .saved
            .as_ref()
            .ok_or_else(|| Failure::not_found("no config is saved"))?;
        let state = saved.plane.reader(&saved.device).snapshot()?;
        self.replace(saved.plane.pipeline.clone(), device);
        self.repeat(device, &state)
    }

    /// Runs a pipeline with the state of the running one, or leaves everything as it is.
    pub(super) fn reconcile(
        &mut self,
        pipeline: Pipeline,
        device: &mut Device,
    ) -> Result<(), Failure> {
        let state = match &self.running {
            Some(running) => running.reader(device).snapshot()?,
            None => Vec::new(),
        };
        let (mut trial, mut rehearsal) = (Self::default(), Device::new(device.config()));
        trial.replace(pipeline.clone(), &mut rehearsal);
        trial
            .repeat(&mut rehearsal, &state)
            .map_err(|failure| Failure::invalid(failure.message).at("the state cannot be kept"))?;
        self.replace(pipeline, device);
        self.repeat(device, &state)
    }

    fn repeat(&mut self, device: &mut Device, updates: &[p4rt::Update]) -> Result<(), Failure> {
        let running = self.running.as_mut().ok_or_else(no_pipeline)?;
        updates
            .iter()
            .try_for_each(|update| running.apply(device, update))
    }

    /// Carries out one update after the other. `refuse` may forbid one, by the name of its table.
    pub(super) fn write(
        &mut self,
        device: &mut Device,
        updates: &[p4rt::Update],
        mut refuse: impl FnMut(&str) -> Option<Code>,
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let (plane, device) = match (&mut self.saved, &mut self.running) {
            (Some(saved), _) => (&mut saved.plane, &mut saved.device),
            (None, Some(running)) => (running, device),
            (None, None) => return Err(no_pipeline()),
        };
        let mut attempt = |update: &p4rt::Update| {
            let table = table_name(&plane.pipeline.schema, update);
            match table.and_then(&mut refuse) {
                Some(code) => Err(Failure::new(code, "refused by the fault script")),
                None => plane.apply(device, update),
            }
        };
        Ok(updates.iter().map(&mut attempt).collect())
    }

    /// Answers each query.
    pub(super) fn read(
        &self,
        device: &Device,
        queries: &[p4rt::Entity],
    ) -> Result<Vec<Result<Vec<p4rt::Entity>, Failure>>, Failure> {
        let reader = match (&self.saved, &self.running) {
            (Some(saved), _) => saved.plane.reader(&saved.device),
            (None, Some(running)) => running.reader(device),
            (None, None) => return Err(no_pipeline()),
        };
        Ok(queries.iter().map(|query| reader.read(query)).collect())
    }

    /// What controllers are to be told since the last call: lists of digests, and idle entries.
    pub(super) fn notices(&mut self, device: &mut Device) -> Vec<Update> {
        let Some(running) = &mut self.running else {
            return Vec::new();
        };
        let now = device.now();
        let timestamp = i64::try_from(now).unwrap_or(i64::MAX);
        let schema = &*running.pipeline.schema;
        let learning = &mut running.ledger.learning;
        for digest in device.take_digests() {
            learning.learn(digest, now);
        }
        let mut notices = Vec::new();
        for (index, list_id, values) in learning.due(now) {
            let known = schema
                .digests
                .iter()
                .find(|(_, digest)| digest.index == index);
            notices.extend(known.map(|(&digest_id, digest)| {
                let data = values
                    .iter()
                    .map(|values| encode_digest(digest, values))
                    .collect();
                Update::Digest(p4rt::DigestList {
                    digest_id,
                    list_id,
                    data,
                    timestamp,
                })
            }));
        }
        let idle = device.take_idle();
        let reader = running.reader(device);
        let entry = |(table, key): &(TableIndex, MatchKey)| {
            let table = schema
                .tables
                .values()
                .find(|schema| schema.index == *table)?;
            reader.idle_entry(table, key)
        };
        let table_entry: Vec<p4rt::TableEntry> = idle.iter().filter_map(entry).collect();
        if !table_entry.is_empty() {
            let notice = p4rt::IdleTimeoutNotification {
                table_entry,
                timestamp,
            };
            notices.push(Update::IdleTimeoutNotification(notice));
        }
        notices
    }

    /// A controller has taken note of a list of digests.
    pub(super) fn acknowledge(&mut self, ack: &p4rt::DigestListAck) -> Result<(), Failure> {
        let running = self.running.as_mut().ok_or_else(no_pipeline)?;
        let digest = digest_of(&running.pipeline.schema, ack.digest_id)?;
        running
            .ledger
            .learning
            .acknowledge(digest.index, ack.list_id)
    }

    /// The configuration that requests refer to, with the parts asked for.
    pub(super) fn config(&self, parts: ResponseType) -> Option<p4rt::ForwardingPipelineConfig> {
        let plane = match (&self.saved, &self.running) {
            (Some(saved), _) => &saved.plane,
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
    pub(super) fn snapshot(&self, device: &Device) -> Result<Vec<p4rt::Update>, Failure> {
        self.running
            .as_ref()
            .ok_or_else(no_pipeline)?
            .reader(device)
            .snapshot()
    }

    /// The schema of the pipeline that handles packets.
    pub(super) fn running_schema(&self) -> Option<Arc<Schema>> {
        self.running
            .as_ref()
            .map(|running| Arc::clone(&running.pipeline.schema))
    }
}

fn no_pipeline() -> Failure {
    Failure::new(
        Code::FailedPrecondition,
        "no forwarding pipeline config has been set",
    )
}

/// The table that an update writes to, if it is a table entry of a known table.
fn table_name<'a>(schema: &'a Schema, update: &p4rt::Update) -> Option<&'a str> {
    match update.entity.as_ref()?.entity.as_ref()? {
        p4rt::entity::Entity::TableEntry(entry) => schema
            .tables
            .get(&entry.table_id)
            .map(|table| table.name.as_str()),
        _ => None,
    }
}
