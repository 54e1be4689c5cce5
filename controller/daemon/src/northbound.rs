//! The northbound APIs of a running controller, all at one address.
//!
//! `report_ingest` receives the streams of job reports (gRPC); [`service`] answers queries and
//! commands (HTTP with JSON, and gRPC); `auth` decides who may call what. The decision: every call
//! is a query of the state or an event for it, through [`ControllerAccess`]; no module here keeps
//! state about the fabric.

mod auth;
pub mod cluster;
mod connection_table;
pub mod controller_view;
mod document_file;
pub mod events;
pub mod explanation;
pub mod fabric_map;
mod fabric_revisions;
mod grpc;
mod http;
mod iteration_findings;
pub mod learned_flow;
mod limit_counters;
mod listener;
pub mod local_token;
mod login;
mod measured_links;
mod metrics;
pub mod openapi;
mod paced_body;
mod page;
pub mod planner_input;
mod planning_pool;
pub mod policy_commit;
mod policy_messages;
mod process_state;
pub mod queue_table;
mod rate_limiter;
mod report_ingest;
mod request_budget;
mod request_origin;
pub mod service;
mod service_error;
pub mod slow_links;
pub mod utilization;

use std::net::SocketAddr;
use std::thread::available_parallelism;

use api::northbound::northbound_server::NorthboundServer;
use api::telemetry::telemetry_server::TelemetryServer;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use self::auth::AccessControl;
use self::listener::ConnectionListener;
use self::report_ingest::ReportIngest;
use self::service::NorthboundService;
use self::utilization::UtilizationTask;
use crate::access::ControllerAccess;
use crate::audit::AuditTrail;
use crate::config::Config;
use crate::telemetry::counter_reader::CounterReader;
use crate::telemetry::task::{StreamEvent, TelemetryTask};

/// Threads that serve callers, at most; switches are served by those of the caller's runtime.
const MAX_SERVING_THREADS: usize = 4;

/// A server. Dropping it stops it.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _serving: ServingRuntime,
}

/// The threads of the connections. Dropped, they end without anybody waiting for them.
#[derive(Debug)]
struct ServingRuntime(Option<Runtime>);

impl ApiServer {
    /// The address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server and waits until it has ended.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // A task that panicked has ended, too.
        drop((&mut self.task).await);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Drop for ServingRuntime {
    fn drop(&mut self) {
        if let Some(serving) = self.0.take() {
            serving.shutdown_background();
        }
    }
}

/// Serves the controller of `access` to clients that connect to `listener`.
///
/// Connections are served by threads of their own, so that no request, however costly, delays what
/// the controller does with switches.
///
/// # Errors
/// The listener has no address, the files of TLS cannot be used, or there are no threads.
pub fn start_server(
    listener: TcpListener,
    access: &ControllerAccess,
    config: &Config,
) -> std::io::Result<ApiServer> {
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let (reader, measured) =
        CounterReader::new(access.clone(), &config.counters, &config.southbound);
    let (telemetry, events) = TelemetryTask::new(access.clone(), config, measured.clone());
    let reports = telemetry.summary_receiver();
    let service =
        NorthboundService::new(access.clone(), config).with_measurements(measured, reports);
    let (utilization, samples) = UtilizationTask::new(service.clone());
    let service = service.with_utilization(samples);
    let counters = service.limit_counters();
    let router = build_router(service, events, config, address.port(), access.audit_trail());
    let runtime = serving_runtime()?;
    let threads = runtime.handle().clone();
    let serving = ServingRuntime(Some(runtime));
    let listener = listener.into_std()?;
    let connections = {
        let _entered = threads.enter();
        let listener = TcpListener::from_std(listener)?;
        ConnectionListener::new(listener, &config.northbound, router, counters)?
    };
    let supervisor = access.supervisor().clone();
    let connections = {
        let _entered = threads.enter();
        supervisor.spawn_critical("northbound connections", connections.run(stop.clone()))
    };
    let [telemetry_stop, reader_stop, utilization_stop] = [(); 3].map(|()| stop.child_token());
    let task = tokio::spawn(async move {
        let restarting = supervisor.clone();
        let telemetry = tokio::spawn(telemetry.run(restarting, telemetry_stop));
        let reader = tokio::spawn(reader.run(supervisor.clone(), reader_stop));
        let utilization = tokio::spawn(utilization.run(supervisor, utilization_stop));
        drop(connections.await);
        drop(telemetry.await);
        drop(reader.await);
        drop(utilization.await);
    });
    Ok(ApiServer { address, stop, task, _serving: serving })
}

/// All that is served: HTTP, gRPC and the page, behind the control of access.
fn build_router(
    service: NorthboundService,
    reports: mpsc::Sender<StreamEvent>,
    config: &Config,
    port: u16,
    audit: &AuditTrail,
) -> Router {
    let body_max = config.northbound.body_max.get();
    let operators = NorthboundServer::new(service.clone()).max_decoding_message_size(body_max);
    let counters = service.limit_counters();
    let ingest = ReportIngest::new(reports, &config.telemetry, counters.clone());
    let report_max = config.telemetry.report_max.get();
    let reports = TelemetryServer::new(ingest).max_decoding_message_size(report_max);
    let grpc = Routes::new(reports).add_service(operators).add_service(grpc::reflection_service());
    let http = http::build_router(service).layer(DefaultBodyLimit::max(body_max));
    let access_control = AccessControl::new(&config.northbound, port, counters, audit.clone());
    // The layer comes last, so it covers every route, those of gRPC included.
    http.merge(page::page_router())
        .merge(access_control.session_router())
        .merge(grpc.into_axum_router())
        .fallback(http::serve_unknown_path)
        .layer(from_fn_with_state(access_control, auth::enforce_access))
}

/// The threads that serve callers: half as many as there are cores.
fn serving_runtime() -> std::io::Result<Runtime> {
    let cores = available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .worker_threads((cores / 2).clamp(1, MAX_SERVING_THREADS))
        .thread_name("northbound")
        .enable_all()
        .build()
}
