//! Export of traces of changes.
//!
//! The decision: the scheme of the address selects TLS, as for every other client of a collector,
//! and it must agree with whether roots are configured.

use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tonic::transport::Endpoint;

use super::tls::{self, RawTls, TlsConfig};
use super::{ConfigError, check_field, positive_count, positive_duration};

/// The collector of traces, and how many are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// A collector's OTLP/gRPC receiver: an `https` address where there is `tls`, else `http`.
    pub endpoint: String,
    /// The service name of the traces.
    pub service: String,
    /// The share of changes that are exported, 0..=1.
    pub ratio: f64,
    /// Spans that may wait to be sent; more are dropped.
    pub queue: NonZeroUsize,
    /// The time between two messages to the collector.
    pub interval: Duration,
    /// The deadline of one message, also of the last one when the controller stops.
    pub deadline: Duration,
    /// TLS of the connection, if it is configured.
    pub tls: Option<TlsConfig>,
}

/// Export of traces over OTLP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTraces {
    /// OTLP/gRPC receiver of the collector, `http://HOST:PORT`, or `https` with `tls`. Without one,
    /// nothing is exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Service name at the collector.
    pub service: String,
    /// Share of changes that are exported.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub ratio: f64,
    /// Spans that wait. More are dropped.
    #[schemars(range(min = 1))]
    pub queue: usize,
    /// Time between two messages to the collector.
    #[schemars(range(min = 1))]
    pub interval_ms: u64,
    /// Deadline of one message, also of the last one when the controller stops.
    #[schemars(range(min = 1))]
    pub deadline_ms: u64,
    /// TLS towards the collector.
    pub tls: RawTls,
}

impl Default for RawTraces {
    fn default() -> Self {
        Self {
            endpoint: None,
            service: "crux".to_owned(),
            ratio: 1.0,
            queue: 4_096,
            interval_ms: 1_000,
            deadline_ms: 2_000,
            tls: RawTls::default(),
        }
    }
}

impl RawTraces {
    /// Reads the TLS files and checks the fields; none without an endpoint.
    pub(super) fn load_traces(&self) -> Result<Option<TracesConfig>, ConfigError> {
        let share = (0.0..=1.0).contains(&self.ratio);
        check_field("traces.ratio", &self.ratio, "0 to 1", share)?;
        let queue = positive_count("traces.queue", self.queue)?;
        let interval = positive_duration("traces.interval_ms", self.interval_ms)?;
        let deadline = positive_duration("traces.deadline_ms", self.deadline_ms)?;
        let tls = self.tls.load_files(&tls::TRACES)?;
        let Some(endpoint) = self.endpoint.clone() else {
            return Ok(None);
        };
        let (scheme, wanted) = match &tls {
            Some(_) => ("https", "https://HOST:PORT of a collector's OTLP/gRPC receiver"),
            None => (
                "http",
                "http://HOST:PORT of a collector's OTLP/gRPC receiver, or https with traces.tls.ca",
            ),
        };
        let is_address = Endpoint::from_shared(endpoint.clone())
            .is_ok_and(|endpoint| endpoint.uri().scheme_str() == Some(scheme));
        check_field("traces.endpoint", &endpoint, wanted, is_address)?;
        Ok(Some(TracesConfig {
            endpoint,
            service: self.service.clone(),
            ratio: self.ratio,
            queue,
            interval,
            deadline,
            tls,
        }))
    }
}
