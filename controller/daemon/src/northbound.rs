//! What a running controller offers to people and programs.
//!
//! [`serve`] listens; streams of reports go to the desk of [`telemetry`](crate::telemetry). The
//! decision: whatever is offered is a question to the state or an event for it, through [`Access`];
//! nothing here remembers anything about the fabric.

mod pace;
mod telemetry;

use std::net::SocketAddr;

use api::telemetry::telemetry_server::TelemetryServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::telemetry::Reception;
use crate::config::Config;
use crate::runtime::Access;
use crate::telemetry::desk::Desk;

/// Streams that one connection may have open.
const STREAMS_PER_CONNECTION: u32 = 256;

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
/// The listener has no address.
pub fn serve(listener: TcpListener, access: &Access, config: &Config) -> std::io::Result<Server> {
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let (desk, calls) = Desk::new(access.clone(), &config.telemetry);
    let reception = Reception::new(calls, &config.telemetry);
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .add_service(TelemetryServer::new(reception));
    let (stopping, of_desk) = (stop.clone(), stop.child_token());
    let task = tokio::spawn(async move {
        let desk = tokio::spawn(desk.run(of_desk));
        let connections = TcpListenerStream::new(listener);
        let serving = server.serve_with_incoming(connections);
        // Streams of reports do not end by themselves, so nobody waits for them.
        if let Some(Err(why)) = stopping.run_until_cancelled(serving).await {
            error!("the northbound server ended: {why}");
        }
        drop(desk.await);
    });
    Ok(Server {
        address,
        stop,
        task,
    })
}
