//! Sends spans to the collector, and logs when it is unreachable.
//!
//! It wraps the OTLP exporter, which would log every failed message. The decision: one log line
//! when the collector becomes unreachable, and one when it is back, with the number of lost spans.
//! Spans are not kept: metrics and the flight recorder have the same data. After a message that
//! failed, certificates are read again, as they are renewed while the controller runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;
use tonic::transport::Endpoint;
use tracing::{info, warn};

use super::ExporterError;
use crate::config::{TlsConfig, TracesConfig};

/// The OTLP exporter, with a count of lost spans.
#[derive(Debug)]
pub(super) struct CollectorExporter {
    /// Behind a lock, because it is replaced while the batch processor shares it; the lock is held
    /// for no longer than that.
    otlp: Mutex<Arc<Otlp>>,
    traces: TracesConfig,
    resource: Resource,
    /// Serves the connection; messages are sent by a thread of the batch processor.
    runtime: Handle,
    /// Spans lost since the collector was last reached.
    lost: AtomicU64,
}

impl CollectorExporter {
    /// An exporter to the collector. Needs a tokio runtime.
    pub(super) fn new(traces: &TracesConfig) -> Result<Self, ExporterError> {
        let resource = Resource::builder_empty().build();
        Ok(Self {
            otlp: Mutex::new(Arc::new(open_exporter(traces, &resource)?)),
            traces: traces.clone(),
            resource,
            runtime: Handle::current(),
            lost: AtomicU64::new(0),
        })
    }

    fn current_exporter(&self) -> Arc<Otlp> {
        Arc::clone(&self.otlp.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a new connection, with certificates as they are now.
    fn replace_exporter(&self) {
        let _entered = self.runtime.enter();
        if let Ok(fresh) = open_exporter(&self.traces, &self.resource) {
            *self.otlp.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        }
    }
}

fn open_exporter(traces: &TracesConfig, resource: &Resource) -> Result<Otlp, ExporterError> {
    let valid = "the configuration has checked that it is an address";
    let channel = Endpoint::from_shared(traces.endpoint.clone()).expect(valid);
    let (secured, _) = TlsConfig::secure_endpoint(traces.tls.as_ref(), channel)?;
    let timed = secured.connect_timeout(traces.deadline).timeout(traces.deadline);
    // Lazily: the controller starts whether or not the collector can be reached.
    let otlp = Otlp::builder().with_tonic().with_channel(timed.connect_lazy());
    let mut otlp = otlp.with_timeout(traces.deadline).build()?;
    otlp.set_resource(resource);
    Ok(otlp)
}

impl SpanExporter for CollectorExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (count, collector) = (batch.len() as u64, &self.traces.endpoint);
        let sent = self.current_exporter().export(batch).await;
        match &sent {
            Ok(()) => match self.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => info!(collector, lost, "traces reach their collector again"),
            },
            Err(error) => {
                if self.lost.fetch_add(count, Ordering::Relaxed) == 0 {
                    warn!(collector, %error, "traces do not reach their collector and are lost");
                }
                self.replace_exporter();
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.current_exporter().shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.current_exporter().force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
        self.replace_exporter();
    }
}
