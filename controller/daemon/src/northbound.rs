//! What a running controller offers to people and programs, all at one address.
//!
//! Streams of reports (gRPC) go to the desk of [`telemetry`](crate::telemetry); questions and
//! commands (HTTP with JSON, gRPC) are answered by [`service`]; who may ask is for the gate to say.
//! The decision: whatever is offered is a question to the state or an event for it, through
//! [`Access`]; nothing here remembers anything about the fabric.

pub mod answers;
mod doors;
pub mod events;
pub mod explain;
mod gate;
mod grpc;
mod http;
pub mod metrics;
pub mod openapi;
mod pace;
mod page;
pub mod service;
pub mod situation;
mod telemetry;

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

use self::doors::{Doors, Peer};
use self::gate::Gate;
use self::service::Service;
use self::telemetry::Reception;
use crate::config::Config;
use crate::runtime::Access;
use crate::telemetry::desk::Desk;
use crate::telemetry::reader::Reader;

/// A server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops it and waits for that.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // If it has panicked, it has ended as well.
        drop((&mut self.task).await);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves the controller of `access` to whoever connects to `listener`.
///
/// # Errors
/// The listener has no address, or the files of TLS cannot be used.
pub fn serve(listener: TcpListener, access: &Access, config: &Config) -> std::io::Result<Server> {
    let address = listener.local_addr()?;
    let doors = Doors::open(listener, config.northbound.tls.as_ref())?;
    let stop = CancellationToken::new();
    let (reader, measured) = Reader::new(access.clone(), &config.counters, &config.southbound);
    let (desk, calls) = Desk::new(access.clone(), config, measured.clone());
    let disputes = desk.disputes();
    let reception = Reception::new(calls, &config.telemetry);
    let service = Service::new(access.clone(), config).measuring(measured, disputes);
    let body_max = config.northbound.body_max.get();
    let operators = NorthboundServer::new(service.clone()).max_decoding_message_size(body_max);
    let grpc = Routes::new(TelemetryServer::new(reception))
        .add_service(operators)
        .add_service(grpc::reflection());
    let http = http::router(service).layer(DefaultBodyLimit::max(body_max));
    let router = http.merge(page::router()).merge(grpc.into_axum_router());
    let router = router.layer(from_fn_with_state(
        Gate::new(&config.northbound),
        gate::pass,
    ));
    let (stopping, of_desk, of_reader) = (stop.clone(), stop.child_token(), stop.child_token());
    let task = tokio::spawn(async move {
        let desk = tokio::spawn(desk.run(of_desk));
        let reader = tokio::spawn(reader.run(of_reader));
        let service = router.into_make_service_with_connect_info::<Peer>();
        let serving = axum::serve(doors, service).into_future();
        // Streams of reports do not end by themselves, so nobody waits for them.
        if let Some(Err(why)) = stopping.run_until_cancelled(serving).await {
            error!("the northbound server ended: {why}");
        }
        drop(desk.await);
        drop(reader.await);
    });
    Ok(Server {
        address,
        stop,
        task,
    })
}
