//! Traces of changes, for a collector that speaks OTLP.
//!
//! A trace is one generation: from the first report, over decision, plan and lowering, to the write
//! on each switch and its verification. [`runtime`](crate::runtime) exports a change once every
//! switch holds it, or the next one has superseded it. The decision: no stage of a change depends
//! on traces. The instants of all stages are recorded anyway, and spans are built from them
//! afterwards, so tracing delays no write and costs nothing where it is off.

mod collector;

use opentelemetry::trace::{Span, SpanBuilder, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::warn;

use self::collector::CollectorExporter;
use crate::clock::Clock;
use crate::config::TracesConfig;
use crate::southbound::{DesiredTables, DesiredTimestamps, SwitchStatus};

/// Why the exporter cannot be created with this configuration.
type ExporterError = Box<dyn std::error::Error + Send + Sync>;

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeEnd {
    /// Every switch that is not down was verified to hold it.
    Verified(Instant),
    /// The next generation came before that.
    Superseded(Instant),
}

/// The exporter of traces.
#[derive(Debug)]
pub(crate) struct TraceExporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    clock: Clock,
    traces: TracesConfig,
}

impl TraceExporter {
    /// An exporter to the collector, which may be unreachable. Needs a tokio runtime.
    ///
    /// # Errors
    /// The certificates are invalid, or the exporter cannot be created.
    pub(crate) fn new(traces: &TracesConfig, clock: Clock) -> Result<Self, ExporterError> {
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(traces.queue.get())
            .with_max_export_batch_size(traces.queue.get().min(512))
            .with_scheduled_delay(traces.interval)
            .build();
        let processor = BatchSpanProcessor::builder(CollectorExporter::new(traces)?)
            .with_batch_config(batches)
            .build();
        let resource = Resource::builder_empty()
            .with_service_name(traces.service.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let sampler = Sampler::TraceIdRatioBased(traces.ratio);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource.build())
            .build();
        Ok(Self { tracer: provider.tracer("crux"), provider, clock, traces: traces.clone() })
    }

    /// Exports a change, with the statuses of the switches that hold it.
    pub(crate) fn export_change<'a>(
        &self,
        desired: &DesiredTables,
        statuses: impl IntoIterator<Item = &'a SwitchStatus>,
        end: ChangeEnd,
    ) {
        let origin = desired.timestamps.origin;
        let change = SpanBuilder::from_name("change").with_attributes([
            KeyValue::new("crux.cause", origin.cause),
            number_attribute("crux.generation", desired.generation),
            KeyValue::new("crux.overtaken", matches!(end, ChangeEnd::Superseded(_))),
        ]);
        let change = self.start_span(&Context::new(), change, origin.first_reported);
        let change = Context::new().with_span(change);
        for (name, from, to) in stage_spans(&desired.timestamps) {
            let mut span = self.start_span(&change, SpanBuilder::from_name(name), from);
            span.end_with_timestamp(self.clock.wall_time(to));
        }
        for status in statuses {
            self.export_write(&change, status);
        }
        let (ChangeEnd::Verified(at) | ChangeEnd::Superseded(at)) = end;
        change.span().end_with_timestamp(self.clock.wall_time(at));
    }

    /// Exports the writes to a switch, from the first write to the read that verified them; none if
    /// it held its tables already.
    fn export_write(&self, change: &Context, status: &SwitchStatus) {
        let seen = status.verified;
        let Some((seen, first)) = seen.and_then(|seen| Some((seen, seen.first_write?))) else {
            return;
        };
        let write = SpanBuilder::from_name("write").with_attributes([
            KeyValue::new("crux.switch", status.name.clone()),
            number_attribute("crux.entries", seen.entries as u64),
        ]);
        let mut write = self.start_span(change, write, first);
        if let Some(answered) = seen.last_answer {
            write.add_event_with_timestamp("answered", self.clock.wall_time(answered), Vec::new());
        }
        let at = self.clock.wall_time(seen.at);
        write.add_event_with_timestamp("verified", at, Vec::new());
        write.end_with_timestamp(at);
    }

    /// A span below its parent; below an empty context, it is the root of a trace.
    fn start_span(
        &self,
        parent: &Context,
        span: SpanBuilder,
        from: Instant,
    ) -> <SdkTracer as Tracer>::Span {
        let start = self.clock.wall_time(from);
        span.with_start_time(start).start_with_context(&self.tracer, parent)
    }

    /// Sends the queued spans, within the deadline of one message.
    pub(crate) async fn shut_down(self) {
        let closing = spawn_blocking(move || {
            let within = self.traces.deadline;
            self.provider.shutdown_with_timeout(within)
        });
        if let Ok(Err(error)) = closing.await {
            warn!(%error, "the last traces did not reach their collector");
        }
    }
}

/// The stages of a generation before it was written, with their beginnings and ends; those that
/// took no time are left out.
fn stage_spans(
    timestamps: &DesiredTimestamps,
) -> impl Iterator<Item = (&'static str, Instant, Instant)> {
    let origin = timestamps.origin;
    let asked = origin.planning_started.unwrap_or(timestamps.planned);
    let stages = [
        ("telemetry", origin.first_reported, origin.received),
        ("decision", origin.received, asked),
        ("plan", asked, timestamps.planned),
        ("lowering", timestamps.planned, timestamps.lowered),
    ];
    stages.into_iter().filter(|(_, from, to)| from < to)
}

/// A numeric attribute; OpenTelemetry has signed integers only.
fn number_attribute(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}
