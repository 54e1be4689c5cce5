//! The daemon's configuration: every bound, every deadline, and who this controller is.
//!
//! A file becomes a [`RawConfig`] (serde, unknown fields refused), and that a [`Config`], which is
//! valid by construction and the only one that the rest of the crate uses. The decision: all limits
//! are defined here, so that the effective configuration logged at start determines the daemon's
//! behaviour; nothing reads the environment later.

use std::error::Error;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use p4::{ForwardingPipeline, PipelineError};
use topology::document::{self, DocumentError, DocumentFormat};

mod audit;
mod counters;
mod discovery;
mod etcd;
mod gnmi;
mod learning;
mod liveness;
mod northbound;
mod raw;
mod recorder;
mod sai;
mod section;
mod telemetry;
mod tls;
mod traces;

pub use audit::{AuditConfig, AuditFiles, RawAudit};
pub use counters::{CountersConfig, RawCounters};
pub use etcd::{EtcdConfig, EtcdUser, RawEtcd};
pub use gnmi::{GnmiConfig, RawGnmi};
pub use northbound::{
    AccessGrant, AccessRole, AccessToken, CertificateGrant, CertificateMatch, NorthboundConfig,
    NorthboundLimits, RawCertificate, RawNorthbound, RawNorthboundLimits, RawToken, TlsFiles,
};
pub use telemetry::{RawTelemetry, TelemetryConfig};
pub(crate) use tls::{RELOAD_INTERVAL, ServerCertificate};
pub use tls::{RawTls, TlsConfig};
pub use traces::{RawTraces, TracesConfig};

pub use crate::retry_backoff::RetryBackoff;

pub use discovery::{DiscoveryConfig, DiscoveryDefaults, RawDiscovery};
pub use learning::{LearningConfig, RawLearning};
pub use liveness::{LivenessTimeouts, RawLiveness};
pub use raw::{
    ForeignEntryPolicy, OtherPrograms, RawConfig, RawDeadlines, RawElection, RawMessages,
    RawQueues, RawReconcile, RawStore, RawSwitches,
};
pub use recorder::{RawRecorder, RecordingConfig};
pub use sai::RawSai;

/// A tenth above the least that servers of gRPC's C core allow by default (gRFC A8).
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(330);

/// The most levels of `fabric.p4`: its level has three bits.
const MAX_LEVELS: u8 = 8;

/// A configuration with a value that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that the configuration names cannot be read.
    #[error("{field}: cannot read {}", .path.display())]
    File {
        /// Path of the field, as `tls.ca`.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file that the configuration names is no P4 program that can be pushed.
    #[error("{field}: not a P4 program")]
    Program {
        /// Path of the field, as `sai.p4info`.
        field: &'static str,
        /// Why.
        #[source]
        source: Box<PipelineError>,
    },
    /// A field requires another one.
    #[error("{field}: requires {other}; set both or neither")]
    MissingPartner {
        /// Path of the field, as `tls.cert`.
        field: &'static str,
        /// Path of the required field.
        other: &'static str,
    },
    /// A value is out of its range.
    #[error("{field}: must be {wanted}, found {found}")]
    Invalid {
        /// Path of the field, as `deadlines.rpc_ms`.
        field: &'static str,
        /// The value found.
        found: String,
        /// The values that are valid.
        wanted: &'static str,
    },
}

impl ConfigError {
    /// The field at fault, as `deadlines.rpc_ms`.
    pub fn field(&self) -> &'static str {
        match self {
            Self::File { field, .. }
            | Self::Program { field, .. }
            | Self::MissingPartner { field, .. }
            | Self::Invalid { field, .. } => field,
        }
    }

    /// The error as one of the text that the configuration was read from, with its line.
    fn in_document(&self, text: &str, format: DocumentFormat, file: &str) -> DocumentError {
        let field = self.field();
        let cause = self.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let whole = format!("{self}{cause}");
        let problem = whole.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "));
        DocumentError::Invalid {
            file: file.to_owned(),
            line: document::line_of_field(text, format, field),
            field: field.to_owned(),
            problem: problem.unwrap_or(&whole).to_owned(),
        }
    }
}

/// A configuration whose values are all valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The first term to bid in.
    pub term: u64,
    /// This controller's number.
    pub controller: u32,
    /// How long a primary may be away from few switches before another takes over.
    pub primary_grace: Duration,
    /// Whether this controller leads only when an operator has it lead.
    pub is_standby: bool,
    /// Priority levels that every switch serves, 1..=8; if not given, those of the fabric document.
    pub levels: Option<u8>,
    /// File of the embedded store; without one, nothing survives a restart.
    pub store: Option<PathBuf>,
    /// Where the audit trail goes.
    pub audit: AuditConfig,
    /// The flight recorder, if it is enabled.
    pub recording: Option<RecordingConfig>,
    /// etcd, if it elects the leader.
    pub etcd: Option<EtcdConfig>,
    /// Events that may wait for the state.
    pub event_queue: NonZeroUsize,
    /// Bounds and timing of the sessions with switches.
    pub southbound: SouthboundConfig,
    /// How long observations of cables and switches must last before they are confirmed.
    pub liveness: LivenessTimeouts,
    /// How cables and hosts are discovered.
    pub discovery: DiscoveryConfig,
    /// How unknown flows are learned.
    pub learning: LearningConfig,
    /// The address for people and programs, and their access.
    pub northbound: NorthboundConfig,
    /// Events that the event log keeps.
    pub events_kept: NonZeroUsize,
    /// Bounds and timing of job reports.
    pub telemetry: TelemetryConfig,
    /// How often the switches' own counters are read.
    pub counters: CountersConfig,
    /// What is observed of switches over gNMI.
    pub gnmi: GnmiConfig,
    /// The program of switches with SAI P4, if it is not the controller's own.
    pub sai_program: Option<Arc<ForwardingPipeline>>,
    /// Where traces of changes go, if anywhere.
    pub traces: Option<TracesConfig>,
    /// How long a drain may take before it is reported as late.
    pub drain_deadline: Duration,
    /// How long nothing has to happen until the plan is made anew from nothing.
    pub quiet: Duration,
    /// How long switches may take to hold a change of policy before it is rolled back.
    pub verify_deadline: Duration,
    /// How long the calls to a switch must fail before policy changes no longer wait for it.
    pub quarantine_after: Duration,
    /// How long planning for a failure waits for its repair.
    pub repair_deadline: Duration,
    /// How long sessions may take to end when the controller stops.
    pub shutdown_deadline: Duration,
    raw: RawConfig,
}

/// Bounds and timing of the sessions with switches.
#[derive(Clone, Debug, PartialEq)]
pub struct SouthboundConfig {
    /// Messages that may wait to be sent on a stream.
    pub stream_queue: NonZeroUsize,
    /// Deadline for opening a connection.
    pub connect_deadline: Duration,
    /// Deadline of one call.
    pub rpc_deadline: Duration,
    /// Silence after which TCP asks whether the switch is there; after twice as much without an
    /// answer the connection counts as lost.
    pub keepalive: Duration,
    /// Time between two HTTP/2 pings of a connection whose stream is silent.
    pub ping_interval: Duration,
    /// Time between two full reconciles of a switch that is as desired.
    pub reconcile_interval: Duration,
    /// Time between two spot checks of such a switch.
    pub check_interval: Duration,
    /// Entries that a spot check reads at most.
    pub check_entries: NonZeroUsize,
    /// Entries of all switches that spot checks read in a second, and full reads as well.
    pub read_rate: NonZeroUsize,
    /// Backoff before retries.
    pub backoff: RetryBackoff,
    /// Updates in one write.
    pub batch: NonZeroUsize,
    /// Writes under way at once.
    pub concurrent_writes: NonZeroUsize,
    /// Switches that are read as a whole at once.
    pub concurrent_reads: NonZeroUsize,
    /// How long one of them may delay the next.
    pub read_turn: Duration,
    /// What happens to entries of others.
    pub foreign: ForeignEntryPolicy,
    /// What happens to programs of another kind.
    pub other_programs: OtherPrograms,
    /// TLS of connections, if it is configured.
    pub tls: Option<TlsConfig>,
    /// The largest read, in bytes of all its responses.
    pub read_max: usize,
    /// The largest response, in bytes.
    pub receive_max: usize,
    /// The largest headers, in bytes.
    pub headers_max: u32,
}

impl Config {
    /// The configuration in a text; `file` is its name in errors.
    ///
    /// # Errors
    /// The text has an unknown field or an invalid value. The error has the line, the field, and
    /// the name that was probably meant.
    pub fn parse_text(
        text: &str,
        format: DocumentFormat,
        file: &str,
    ) -> Result<Self, DocumentError> {
        let built = match format {
            DocumentFormat::Toml => read_source(text, config::FileFormat::Toml),
            DocumentFormat::Json => read_source(text, config::FileFormat::Json),
            // One reader of YAML is enough; the library would bring its own.
            DocumentFormat::Yaml => {
                let value: serde_json::Value = document::parse_document(text, format, file)?;
                read_source(&value.to_string(), config::FileFormat::Json)
            }
        };
        let raw = built.and_then(config::Config::try_deserialize::<RawConfig>);
        let raw = raw.map_err(|error| locate_error(&error, text, format, file))?;
        Self::try_from(raw).map_err(|error| error.in_document(text, format, file))
    }

    /// The effective configuration in one line of JSON, without the digests of tokens.
    pub(crate) fn to_log_text(&self) -> String {
        let mut raw = self.raw.clone();
        let northbound = &mut raw.northbound;
        for token in &mut northbound.tokens {
            token.sha256 = "-".to_owned();
        }
        for digest in northbound.certificates.iter_mut().filter_map(|shown| shown.sha256.as_mut()) {
            *digest = "-".to_owned();
        }
        serde_json::to_string(&raw).unwrap_or_default()
    }

    /// The effective configuration in the form of a file, for printing.
    pub fn effective_raw(&self) -> &RawConfig {
        &self.raw
    }
}

fn read_source(
    text: &str,
    format: config::FileFormat,
) -> Result<config::Config, config::ConfigError> {
    config::Config::builder().add_source(config::File::from_str(text, format)).build()
}

/// What is wrong with a refused text. The library `config` knows no lines, so the text is read
/// once more by the reader of documents, which does; where that one accepts it, the refusal stands
/// alone.
fn locate_error(
    refused: &config::ConfigError,
    text: &str,
    format: DocumentFormat,
    file: &str,
) -> DocumentError {
    match document::parse_document::<RawConfig>(text, format, file) {
        Err(DocumentError::Invalid { file, line, field, .. }) if field == "follow" => {
            let problem = "controllers do not follow each other; remove it, and either name an \
                           etcd (etcd.endpoints), which elects the leader and has its plan, or run \
                           one controller that its supervisor restarts, with a cold standby \
                           (election.standby = true)";
            DocumentError::Invalid { file, line, field, problem: problem.to_owned() }
        }
        Err(located) => located,
        Ok(_) => DocumentError::Invalid {
            file: file.to_owned(),
            line: None,
            field: String::new(),
            problem: refused.to_string(),
        },
    }
}

impl Default for Config {
    fn default() -> Self {
        let valid = "the defaults are valid, as a test shows";
        RawConfig::default().try_into().expect(valid)
    }
}

impl TryFrom<RawConfig> for Config {
    type Error = ConfigError;

    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let controller = raw.election.controller;
        check_field("election.controller", &controller, "above 0", controller > 0)?;
        let is_standby = raw.election.standby;
        let wanted = "false with etcd.endpoints, as etcd then elects the leader";
        let is_alone = raw.etcd.endpoints.is_empty();
        check_field("election.standby", &is_standby, wanted, is_alone || !is_standby)?;
        let levels = raw.switches.levels;
        if let Some(levels) = levels {
            let possible = (1..=MAX_LEVELS).contains(&levels);
            check_field("switches.levels", &levels, "1 to 8", possible)?;
        }
        Ok(Self {
            term: raw.election.term,
            controller,
            primary_grace: positive_duration("election.grace_ms", raw.election.grace_ms)?,
            is_standby,
            levels,
            store: raw.store.path.clone(),
            audit: raw.audit.load_audit(raw.store.path.as_ref())?,
            recording: raw.recorder.load_recorder()?,
            etcd: raw.etcd.load_etcd(&raw)?,
            event_queue: positive_count("queues.events", raw.queues.events)?,
            southbound: SouthboundConfig::try_from(&raw)?,
            liveness: LivenessTimeouts::try_from(&raw.liveness)?,
            discovery: DiscoveryConfig::try_from(&raw.discovery)?,
            learning: LearningConfig::try_from(&raw.learning)?,
            northbound: NorthboundConfig::try_from(&raw.northbound)?,
            events_kept: positive_count("northbound.events", raw.northbound.events)?,
            telemetry: TelemetryConfig::try_from(&raw.telemetry)?,
            counters: CountersConfig::try_from(&raw.counters)?,
            gnmi: GnmiConfig::try_from(&raw.gnmi)?,
            sai_program: raw.sai.load_program()?.map(Arc::new),
            traces: raw.traces.load_traces()?,
            drain_deadline: positive_duration("deadlines.drain_ms", raw.deadlines.drain_ms)?,
            quiet: positive_duration("deadlines.quiet_ms", raw.deadlines.quiet_ms)?,
            verify_deadline: positive_duration("deadlines.verify_ms", raw.deadlines.verify_ms)?,
            quarantine_after: positive_duration(
                "deadlines.quarantine_ms",
                raw.deadlines.quarantine_ms,
            )?,
            repair_deadline: positive_duration("deadlines.repair_ms", raw.deadlines.repair_ms)?,
            shutdown_deadline: positive_duration(
                "deadlines.shutdown_ms",
                raw.deadlines.shutdown_ms,
            )?,
            raw,
        })
    }
}

impl TryFrom<&RawConfig> for SouthboundConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawConfig) -> Result<Self, ConfigError> {
        let RawMessages { read_max, receive_max, headers_max } = raw.messages;
        let enough = read_max >= 4 << 20;
        check_field("messages.read_max", &read_max, "at least 4 MiB", enough)?;
        let enough = receive_max >= 4 << 20;
        check_field("messages.receive_max", &receive_max, "at least 4 MiB", enough)?;
        // With less, a batch with a few hundred refused updates loses all their reasons.
        let enough = headers_max >= 4 << 20;
        check_field("messages.headers_max", &headers_max, "at least 4 MiB", enough)?;
        Ok(Self {
            stream_queue: positive_count("queues.stream", raw.queues.stream)?,
            connect_deadline: positive_duration("deadlines.connect_ms", raw.deadlines.connect_ms)?,
            rpc_deadline: positive_duration("deadlines.rpc_ms", raw.deadlines.rpc_ms)?,
            keepalive: positive_duration("deadlines.keepalive_ms", raw.deadlines.keepalive_ms)?,
            ping_interval: PING_INTERVAL,
            reconcile_interval: positive_duration(
                "reconcile.interval_ms",
                raw.reconcile.interval_ms,
            )?,
            check_interval: positive_duration(
                "reconcile.check_interval_ms",
                raw.reconcile.check_interval_ms,
            )?,
            check_entries: positive_count("reconcile.check_entries", raw.reconcile.check_entries)?,
            read_rate: positive_count(
                "reconcile.read_entries_per_second",
                raw.reconcile.read_entries_per_second,
            )?,
            backoff: RetryBackoff::try_from(&raw.reconcile)?,
            batch: positive_count("reconcile.batch", raw.reconcile.batch)?,
            concurrent_writes: positive_count("reconcile.outstanding", raw.reconcile.outstanding)?,
            concurrent_reads: positive_count("reconcile.readers", raw.reconcile.readers)?,
            read_turn: positive_duration("reconcile.turn_ms", raw.reconcile.turn_ms)?,
            foreign: raw.reconcile.foreign,
            other_programs: raw.reconcile.other_programs,
            tls: raw.tls.load_files(&tls::SWITCHES)?,
            read_max,
            receive_max,
            headers_max,
        })
    }
}

impl TryFrom<&RawReconcile> for RetryBackoff {
    type Error = ConfigError;

    fn try_from(raw: &RawReconcile) -> Result<Self, ConfigError> {
        let names = [
            "reconcile.retry_first_ms",
            "reconcile.retry_longest_ms",
            "at least reconcile.retry_first_ms",
        ];
        backoff_config(names, [raw.retry_first_ms, raw.retry_longest_ms])
    }
}

/// A backoff from the first to the longest wait, in milliseconds, with the names of both fields and
/// the requirement on the second.
fn backoff_config(
    [first, longest, wanted]: [&'static str; 3],
    milliseconds: [u64; 2],
) -> Result<RetryBackoff, ConfigError> {
    let grows = milliseconds[1] >= milliseconds[0];
    let retry = RetryBackoff {
        first: positive_duration(first, milliseconds[0])?,
        longest: Duration::from_millis(milliseconds[1]),
    };
    check_field(longest, &milliseconds[1], wanted, grows)?;
    Ok(retry)
}

fn check_field(
    field: &'static str,
    found: &impl ToString,
    wanted: &'static str,
    holds: bool,
) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError::Invalid { field, found: found.to_string(), wanted })
    }
}

fn positive_duration(field: &'static str, milliseconds: u64) -> Result<Duration, ConfigError> {
    check_field(field, &milliseconds, "above 0 ms", milliseconds > 0)?;
    Ok(Duration::from_millis(milliseconds))
}

fn positive_count(field: &'static str, found: usize) -> Result<NonZeroUsize, ConfigError> {
    NonZeroUsize::new(found).ok_or_else(|| ConfigError::Invalid {
        field,
        found: found.to_string(),
        wanted: "above 0",
    })
}

fn positive_rate(field: &'static str, found: u32) -> Result<NonZeroU32, ConfigError> {
    NonZeroU32::new(found).ok_or_else(|| ConfigError::Invalid {
        field,
        found: found.to_string(),
        wanted: "above 0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(toml: &str) -> Result<Config, DocumentError> {
        Config::parse_text(toml, DocumentFormat::Toml, "crux.toml")
    }

    #[test]
    fn errors_have_the_line_the_field_and_a_suggestion() {
        let cases = [
            (
                DocumentFormat::Toml,
                "[store]\n\n[northbond]\n",
                "crux:3: northbond: unknown field `northbond`; did you mean `northbound`?",
            ),
            (
                DocumentFormat::Toml,
                "[northbound]\nlisten = '127.0.0.1:9300'\nanyon = true\n",
                "crux:3: northbound.anyon: unknown field `anyon`; did you mean `anyone`?",
            ),
            (
                DocumentFormat::Toml,
                "[reconcile]\nforeign = 'reprot'\n",
                "crux:2: reconcile.foreign: unknown variant `reprot`; did you mean `report`?",
            ),
            (
                DocumentFormat::Toml,
                "# levels\n[switches]\nlevels = 9\n",
                "crux:3: switches.levels: must be 1 to 8, found 9",
            ),
            (
                DocumentFormat::Yaml,
                "deadlines:\n  rpc_ms: 0\n",
                "crux:2: deadlines.rpc_ms: must be above 0 ms, found 0",
            ),
            (
                DocumentFormat::Json,
                "{\"tls\":\n {\"cert\":\n \"a.pem\"}}",
                "crux:3: tls.cert: requires tls.key; set both or neither",
            ),
        ];
        for (format, text, expected) in cases {
            let error = Config::parse_text(text, format, "crux").unwrap_err().to_string();
            assert_eq!(error, expected, "{text}");
        }
    }

    #[test]
    fn members_to_follow_are_refused_with_the_remedy() {
        let cases = [
            (DocumentFormat::Toml, "[store]\n[follow]\nmembers = ['10.0.0.5:9300']\n", 2),
            (DocumentFormat::Yaml, "follow:\n  members: ['10.0.0.5:9300']\n", 1),
            (DocumentFormat::Json, "{\"follow\":\n {\"members\": []}}", 1),
        ];
        for (format, text, line) in cases {
            let error = Config::parse_text(text, format, "crux").unwrap_err().to_string();
            assert!(error.starts_with(&format!("crux:{line}: follow: ")), "{error}");
            for remedy in ["etcd.endpoints", "supervisor", "election.standby = true"] {
                assert!(error.contains(remedy), "{error}");
            }
        }
    }

    #[test]
    fn empty_file_gives_the_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn logs_have_no_digests_of_tokens() {
        let digest = "ab".repeat(32);
        let token = format!("[[northbound.tokens]]\nname='a'\nrole='read'\nsha256='{digest}'");
        let text = parse(&token).unwrap().to_log_text();
        assert!(text.contains("\"name\":\"a\"") && !text.contains(&digest), "{text}");
    }

    #[test]
    fn given_values_are_used_and_printed() {
        let config = parse("[reconcile]\nbatch = 7\n[election]\nterm = 3").unwrap();
        assert_eq!((config.southbound.batch.get(), config.term), (7, 3));
        assert_eq!(config.effective_raw().reconcile.batch, 7);
    }

    #[test]
    fn invalid_values_are_refused_by_field() {
        let cases = [
            ("[queues]\nevents = 0", "queues.events"),
            ("[queues]\nstream = 0", "queues.stream"),
            ("[deadlines]\nrpc_ms = 0", "deadlines.rpc_ms"),
            ("[reconcile]\nretry_first_ms = 9000", "reconcile.retry_longest_ms"),
            ("[election]\ncontroller = 0", "election.controller"),
            ("[switches]\nlevels = 9", "switches.levels"),
            ("[messages]\nheaders_max = 16384", "messages.headers_max"),
            ("[reconcile]\nbatches = 1", "batches"),
            ("[discovery]\nstale_ms = 300", "discovery.stale_ms"),
            ("[discovery]\nlearn = true", "discovery.learn"),
            ("[discovery]\ngbps = -1.0", "discovery.gbps"),
            ("[tls]\ncert = 'a.pem'", "tls.key"),
            ("[tls]\nca = 'no such file'", "tls.ca"),
            ("[etcd.tls]\ncert = 'a.pem'", "etcd.tls.key"),
            ("[etcd]\nuser = 'crux'", "etcd.password"),
            ("[etcd]\npassword = 'x'", "etcd.user"),
            ("[etcd]\nuser = 'crux'\npassword = 'no such file'", "etcd.password"),
            ("[telemetry]\nchange_min = 2", "telemetry.change_min"),
            ("[telemetry]\nstreams = 0", "telemetry.streams"),
            ("[recorder]\nfile_bytes = 1", "recorder.file_bytes"),
            ("[recorder]\nfiles = 0", "recorder.files"),
            ("[traces]\nratio = 2.0", "traces.ratio"),
            ("[traces]\nendpoint = 'collector:4317'", "traces.endpoint"),
            ("[traces]\nendpoint = 'https://c:4317'", "traces.endpoint"),
            ("[traces.tls]\ncert = 'a.pem'", "traces.tls.key"),
            ("[northbound]\nlisten = '10.0.0.1:9'", "northbound.listen"),
            ("[northbound]\nbody_max = 0", "northbound.body_max"),
            (
                "[[northbound.tokens]]\nname = 'a'\nrole = 'read'\nsha256 = 'ab'",
                "northbound.tokens",
            ),
            (
                "[[northbound.certificates]]\nname = 'a'\nrole = 'read'\nsha256 = 'ab'",
                "northbound.certificates",
            ),
            ("[etcd]\nendpoints = ['a:1']\nlease_s = 1", "etcd.lease_s"),
            ("[etcd]\nendpoints = ['a:1']\ndeadline_ms = 2000", "etcd.deadline_ms"),
            ("[etcd]\nendpoints = ['a:1']\n[store]\npath = 'x'", "store.path"),
            ("[etcd]\nendpoints = ['a:1']\n[election]\nstandby = true", "election.standby"),
        ];
        for (toml, field) in cases {
            let text = parse(toml).unwrap_err().to_string();
            assert!(text.contains(field), "{toml}: {text}");
        }
    }

    /// Each number of the schema with a bound: its section, its name and its lower bound.
    fn bounded_fields() -> Vec<(String, String, i64)> {
        let schema = schemars::schema_for!(RawConfig);
        let sections = schema.get("properties").unwrap().as_object().unwrap();
        let properties = |section: &serde_json::Value| {
            let definition = section["$ref"].as_str().unwrap().trim_start_matches('#');
            let definition = schema.pointer(definition).unwrap();
            definition["properties"].as_object().unwrap().clone()
        };
        let mut found = Vec::new();
        for (section, reference) in sections {
            for (name, property) in properties(reference) {
                let minimum = property.get("minimum").and_then(serde_json::Value::as_f64);
                found.extend(minimum.map(|least| (section.clone(), name, least as i64)));
            }
        }
        found
    }

    #[test]
    fn values_below_the_schema_minimum_are_refused() {
        let fields = bounded_fields();
        assert!(fields.len() > 40, "{fields:?}");
        for (section, name, least) in fields {
            // Fields of etcd are checked where there are servers.
            let servers = if section == "etcd" { "endpoints = ['a:1']\n" } else { "" };
            let below = format!("[{section}]\n{servers}{name} = {}", least - 1);
            let text = parse(&below).expect_err(&below).to_string();
            // A negative number is refused by the type, which names its value.
            let is_named = text.contains(&format!("{section}.{name}")) || least == 0;
            assert!(is_named, "{below}: {text}");
        }
    }

    #[test]
    fn schema_defaults_match_the_defaults() {
        let schema = serde_json::to_value(schemars::schema_for!(RawConfig)).unwrap();
        let defaults = serde_json::to_value(RawConfig::default()).unwrap();
        for (section, value) in defaults.as_object().unwrap() {
            assert_eq!(&schema["properties"][section]["default"], value, "{section}");
        }
    }

    #[test]
    fn retries_double_up_to_the_longest() {
        let retry =
            RetryBackoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
        let waits = [1, 2, 3, 6, 40].map(|failures| retry.wait_after(failures).as_millis());
        assert_eq!(waits, [50, 100, 200, 1000, 1000]);
    }
}
