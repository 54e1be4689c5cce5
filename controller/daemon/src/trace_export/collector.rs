//! Sends spans to the collector, and logs when it is unreachable.
//!
//! It wraps the OTLP exporter, which would log every failed message. The decision: one log line
//! when the collector becomes unreachable, and one when it is back, with the number of lost spans.
//! Spans are not kept: metrics and the flight recorder have the same data.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tonic::transport::Endpoint;
use tracing::{info, warn};

use super::ExporterError;
use crate::config::{TlsConfig, TracesConfig};

/// The OTLP exporter, with a count of lost spans.
#[derive(Debug)]
pub(super) struct CollectorExporter {
    otlp: Otlp,
    endpoint: String,
    /// Spans lost since the collector was last reached.
    lost: AtomicU64,
}

impl CollectorExporter {
    pub(super) fn new(traces: &TracesConfig) -> Result<Self, ExporterError> {
        let valid = "the configuration has checked that it is an address";
        let channel = Endpoint::from_shared(traces.endpoint.clone()).expect(valid);
        let secured = TlsConfig::secure_endpoint(traces.tls.as_ref(), channel)?;
        let timed = secured.connect_timeout(traces.deadline).timeout(traces.deadline);
        // Lazily: the controller starts whether or not the collector can be reached.
        let otlp = Otlp::builder().with_tonic().with_channel(timed.connect_lazy());
        Ok(Self {
            otlp: otlp.with_timeout(traces.deadline).build()?,
            endpoint: traces.endpoint.clone(),
            lost: AtomicU64::new(0),
        })
    }
}

impl SpanExporter for CollectorExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (count, collector) = (batch.len() as u64, &self.endpoint);
        let sent = self.otlp.export(batch).await;
        match &sent {
            Ok(()) => match self.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => info!(collector, lost, "traces reach their collector again"),
            },
            Err(error) => {
                if self.lost.fetch_add(count, Ordering::Relaxed) == 0 {
                    warn!(collector, %error, "traces do not reach their collector and are lost");
                }
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.otlp.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
