//! What a collector hears of a change: the whole way of a job, from its report to the last switch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use controller::{ControllerHandle, RawConfig, StateEvent};
use opentelemetry_proto::tonic::collector::trace::v1 as otlp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::trace_service_server::{TraceService, TraceServiceServer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::lab::{DEADLINE, Lab, all_hold, verified};
use crate::secured::{file, pem};
use crate::telemetry::{ReportStream, announcement, planned, served};

/// A collector that hands on what it gets.
struct Collector(mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<otlp::ExportTraceServiceRequest>,
    ) -> Result<Response<otlp::ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let about = resource.resource.unwrap().attributes;
            let service = about.iter().find(|about| about.key == "service.name");
            let name = service.and_then(|service| service.value.clone()?.value);
            assert_eq!(name, Some(Value::StringValue("lab".to_owned())));
            let spans = resource.scope_spans.into_iter();
            for span in spans.flat_map(|scope| scope.spans) {
                self.0.send(span).unwrap();
            }
        }
        Ok(Response::new(otlp::ExportTraceServiceResponse::default()))
    }
}

/// A collector that serves clients with certificates of its authority only.
fn tls_server() -> Server {
    let identity = Identity::from_pem(pem("switch.pem"), pem("switch.key.pem"));
    let tls = ServerTlsConfig::new().identity(identity);
    let tls = tls.client_ca_root(Certificate::from_pem(pem("roots.pem")));
    Server::builder().tls_config(tls).unwrap()
}

/// A collector, its address as `host:port`, and what it hears.
async fn collector(mut server: Server) -> (SocketAddr, mpsc::UnboundedReceiver<Span>) {
    let (span_sender, spans) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let service = TraceServiceServer::new(Collector(span_sender));
    let server = server.add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (at, spans)
}

fn tracing(endpoint: String, ratio: f64) -> impl FnOnce(&mut RawConfig) {
    move |raw| {
        raw.traces.endpoint = Some(endpoint);
        raw.traces.service = "lab".to_owned();
        raw.traces.ratio = ratio;
        // Spans are sent when the controller stops.
        raw.traces.interval_ms = 3_600_000;
        raw.traces.deadline_ms = DEADLINE.as_millis() as u64;
        raw.deadlines.shutdown_ms = 2 * raw.traces.deadline_ms;
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|about| about.key == key);
    match found.and_then(|about| about.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => panic!("{key}: {other:?}"),
    }
}

/// A lab whose controller holds its switches at its first plan and tells this share of its changes,
/// and what a collector hears of them.
async fn traced(ratio: f64) -> (Lab, ControllerHandle, mpsc::UnboundedReceiver<Span>) {
    let (at, spans) = collector(Server::builder()).await;
    let lab = Lab::new().await;
    let controller = lab.control(tracing(format!("http://{at}"), ratio)).await;
    verified(&lab, &controller).await;
    (lab, controller, spans)
}

/// All that is told until the controller has stopped.
async fn collect_spans(
    controller: ControllerHandle,
    mut spans: mpsc::UnboundedReceiver<Span>,
) -> Vec<Span> {
    controller.shutdown().await;
    spans.close();
    let mut collect_spans = Vec::new();
    while let Some(span) = spans.recv().await {
        collect_spans.push(span);
    }
    collect_spans
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_leads_from_a_report_to_the_switches_that_were_seen_to_hold_it() {
    let (lab, controller, spans) = traced(1.0).await;
    let server = served(&controller).await;
    let mut line = ReportStream::open(&server).await;
    line.send(announcement("a", 50_000)).await;
    line.next_feedback().await;
    planned(&controller, "a", 0.0).await;
    verified(&lab, &controller).await;
    let tables = controller.desired_tables().tables.clone();
    server.shutdown().await;

    let all = collect_spans(controller, spans).await;
    let is_reported = |span: &&Span| {
        span.name == "change" && attribute(span, "crux.cause") == "jobs of telemetry"
    };
    let root = all.iter().find(is_reported).unwrap();
    assert!(root.parent_span_id.is_empty());
    assert_eq!(attribute(root, "crux.overtaken"), "false");
    let mut children: Vec<&Span> =
        all.iter().filter(|span| span.parent_span_id == root.span_id).collect();
    children.sort_by_key(|span| span.start_time_unix_nano);
    let names: Vec<&str> = children.iter().map(|span| &*span.name).collect();
    let stages = ["telemetry", "decision", "plan", "lowering"];
    assert_eq!(names[..4], stages, "{names:?}");
    // One stage begins where the one before ends, and the trace lasts from the first to the last.
    for pair in children[..4].windows(2) {
        assert_eq!(pair[0].end_time_unix_nano, pair[1].start_time_unix_nano);
    }
    let ends = children.iter().map(|span| span.end_time_unix_nano).max();
    assert_eq!(
        (root.start_time_unix_nano, Some(root.end_time_unix_nano)),
        (children[0].start_time_unix_nano, ends)
    );
    let writes = children[4..].iter();
    let writes: BTreeMap<String, &Span> =
        writes.map(|span| (attribute(span, "crux.switch"), *span)).collect();
    assert!(writes.contains_key("leaf1"), "{names:?}");
    for (switch, write) in writes {
        let events: Vec<&str> = write.events.iter().map(|event| &*event.name).collect();
        assert_eq!((&*write.name, &events[..]), ("write", &["answered", "verified"][..]));
        assert!(write.events[0].time_unix_nano <= write.events[1].time_unix_nano);
        assert!(write.start_time_unix_nano >= children[3].end_time_unix_nano);
        let id = lab.fabric.switch_named(&switch).unwrap();
        let entries = tables[&id].len().to_string();
        assert_eq!(attribute(write, "crux.entries"), entries);
    }
    assert!(all.iter().all(|span| {
        let parent = all.iter().find(|other| other.span_id == span.parent_span_id);
        parent.is_none_or(|parent| parent.trace_id == span.trace_id)
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn unsampled_traces_are_not_exported() {
    let (_lab, controller, spans) = traced(0.0).await;
    assert_eq!(collect_spans(controller, spans).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_collector_receives_spans_from_trusted_clients() {
    let (at, spans) = collector(tls_server()).await;
    let lab = Lab::new().await;
    let secured = |raw: &mut RawConfig| {
        tracing(format!("https://{at}"), 1.0)(raw);
        raw.traces.tls.ca = Some(file("roots.pem"));
        raw.traces.tls.cert = Some(file("controller.pem"));
        raw.traces.tls.key = Some(file("controller.key.pem"));
    };
    let controller = lab.control(secured).await;
    verified(&lab, &controller).await;
    let all = collect_spans(controller, spans).await;
    assert!(all.iter().any(|span| span.name == "change"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificates_reach_the_collector_without_a_restart() {
    let (at, mut spans) = collector(tls_server()).await;
    let lab = Lab::new().await;
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    // Those of an authority that has not signed the collector.
    std::fs::write(&roots, pem("controller.pem")).unwrap();
    let secured = |raw: &mut RawConfig| {
        tracing(format!("https://{at}"), 1.0)(raw);
        raw.traces.interval_ms = 10;
        raw.traces.deadline_ms = 500;
        raw.traces.tls.ca = Some(roots.clone());
        raw.traces.tls.cert = Some(file("controller.pem"));
        raw.traces.tls.key = Some(file("controller.key.pem"));
    };
    let controller = lab.control(secured).await;
    verified(&lab, &controller).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(spans.try_recv().is_err(), "the collector is trusted without its authority");
    std::fs::write(&roots, pem("roots.pem")).unwrap();
    let mut received = None;
    for port in 50_000..50_050 {
        let event = StateEvent::JobsChanged(vec![lab.job("a", port)]);
        controller.submit_event(event).await.unwrap();
        all_hold(&controller).await;
        let wait = Duration::from_millis(200);
        received = tokio::time::timeout(wait, spans.recv()).await.ok().flatten();
        if received.is_some() {
            break;
        }
    }
    assert!(received.is_some(), "renewed roots are not read");
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_blocks_nothing() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let lab = Lab::new().await;
    let few = |raw: &mut RawConfig| {
        tracing(endpoint, 1.0)(raw);
        (raw.traces.queue, raw.traces.interval_ms) = (2, 1);
        raw.traces.deadline_ms = 100;
    };
    let controller = lab.control(few).await;
    verified(&lab, &controller).await;
    for port in 50_000..50_010 {
        let event = StateEvent::JobsChanged(vec![lab.job("a", port)]);
        controller.submit_event(event).await.unwrap();
        all_hold(&controller).await;
    }
    let shutdown = tokio::time::timeout(Duration::from_secs(50), controller.shutdown());
    shutdown.await.unwrap();
}
