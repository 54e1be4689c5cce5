//! The northbound APIs of a running controller, all at one address.
//!
//! `report_ingest` receives the streams of job reports (gRPC); [`service`] answers queries and
//! commands (HTTP with JSON, and gRPC); `auth` decides who may call what. The decision: every call
//! is a query of the state or an event for it, through [`ControllerAccess`]; no module here keeps
//! state about the fabric.

mod auth;
pub mod controller_view;
pub mod events;
pub mod explanation;
mod grpc;
mod http;
pub mod learned_flow;
mod listener;
pub mod metrics;
pub mod openapi;
mod page;
pub mod planner_input;
mod policy_messages;
mod rate_limiter;
mod report_ingest;
pub mod service;

use std::future::IntoFuture;
use std::net::SocketAddr;

use api::northbound::northbound_server::NorthboundServer;
use api::telemetry::telemetry_server::TelemetryServer;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::error;

use self::auth::AccessControl;
use self::listener::{ClientPeer, ConnectionListener};
use self::report_ingest::ReportIngest;
use self::service::NorthboundService;
use crate::access::ControllerAccess;
use crate::config::Config;
use crate::telemetry::counter_reader::CounterReader;
use crate::telemetry::task::TelemetryTask;

/// A server. Dropping it stops it.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

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

/// Serves the controller of `access` to clients that connect to `listener`.
///
/// # Errors
/// The listener has no address, or the files of TLS cannot be used.
pub fn start_server(
    listener: TcpListener,
    access: &ControllerAccess,
    config: &Config,
) -> std::io::Result<ApiServer> {
    let address = listener.local_addr()?;
    let connections = ConnectionListener::wrap_listener(listener, config.northbound.tls.as_ref())?;
    let stop = CancellationToken::new();
    let (reader, measured) =
        CounterReader::new(access.clone(), &config.counters, &config.southbound);
    let (telemetry, events) = TelemetryTask::new(access.clone(), config, measured.clone());
    let disputes = telemetry.dispute_receiver();
    let ingest = ReportIngest::new(events, &config.telemetry);
    let service =
        NorthboundService::new(access.clone(), config).with_measurements(measured, disputes);
    let body_max = config.northbound.body_max.get();
    let operators = NorthboundServer::new(service.clone()).max_decoding_message_size(body_max);
    let grpc = Routes::new(TelemetryServer::new(ingest))
        .add_service(operators)
        .add_service(grpc::reflection_service());
    let http = http::build_router(service).layer(DefaultBodyLimit::max(body_max));
    let access_control = AccessControl::new(&config.northbound);
    // The layer comes last, so it covers every route, those of gRPC included.
    let router = http
        .merge(page::page_router())
        .merge(grpc.into_axum_router())
        .layer(from_fn_with_state(access_control, auth::enforce_access));
    let server_stop = stop.clone();
    let (telemetry_stop, reader_stop) = (stop.child_token(), stop.child_token());
    let task = tokio::spawn(async move {
        let telemetry = tokio::spawn(telemetry.run(telemetry_stop));
        let reader = tokio::spawn(reader.run(reader_stop));
        let service = router.into_make_service_with_connect_info::<ClientPeer>();
        let serving = axum::serve(connections, service).into_future();
        // Streams of reports do not end by themselves, so nobody waits for them.
        if let Some(Err(why)) = server_stop.run_until_cancelled(serving).await {
            error!("the northbound server ended: {why}");
        }
        drop(telemetry.await);
        drop(reader.await);
    });
    Ok(ApiServer { address, stop, task })
}
