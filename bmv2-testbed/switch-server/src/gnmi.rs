//! The gNMI server of one device: what SONiC reports of ports and queues, over OpenConfig's paths.
//!
//! A switch that runs SONiC reports the state of its ports over gNMI alone, so a controller cannot
//! repair such a fabric without it. [`GnmiService`] answers `Capabilities`, `Get` and `Subscribe`,
//! on the port of P4Runtime as Stratum does, or on a listener of its own ([`serve`]). The tree of
//! values (`gnmi/data_tree.rs`) is made anew whenever something is asked; a subscription
//! (`gnmi/subscription.rs`) compares it with what it has sent (`gnmi/stream.rs`).
//!
//! The decision: a subscriber that is slow gets the newest values later, never all of them, so that
//! nothing is queued for it beyond one answer.

mod data_tree;
mod path;
mod qos_maps;
mod stream;
mod subscription;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt, Stream};
use p4runtime_proto::gnmi as proto;
use p4runtime_proto::gnmi::g_nmi_server::{GNmi, GNmiServer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use crate::p4runtime::pins::PortNames;
use crate::p4runtime::{
    CurrentTls, ServeError, ServiceTls, accept_connections, accept_tls, nanos_since_epoch,
    server_builder, tls_config,
};
use data_tree::{DataTree, GnmiLeaf};
pub use qos_maps::{QosMaps, SchedulerType};
use subscription::GnmiDialect;
use switch::{DeviceHandle, OwnerStopped};

/// The version of the protocol, as `Capabilities` reports it.
const GNMI_VERSION: &str = "0.8.0";
/// Subscriptions open at once.
const SUBSCRIBER_LIMIT: usize = 64;
/// The largest request: some hundred paths.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Answers that may wait for one subscriber before the next is made.
const ANSWERS_WAITING: usize = 8;
/// How long open calls may take to end when the server stops.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// The models whose paths have values.
const MODELS: [&str; 4] =
    ["openconfig-interfaces", "openconfig-lldp", "openconfig-p4rt", "openconfig-qos"];

/// How a device reports itself.
#[derive(Clone, Debug, Default)]
pub struct GnmiOptions {
    /// The names of interfaces; a port without one is `EthernetN` by its number.
    pub port_names: PortNames,
    /// The maps from DSCP to queues that are reported.
    pub qos: QosMaps,
    /// How connections are protected; none means in the clear.
    pub tls: Option<ServiceTls>,
}

/// gNMI for a device, for as long as this lives: with it every subscription ends.
#[derive(Debug)]
pub struct GnmiService {
    switch: GnmiSwitch,
    _subscriptions: watch::Sender<()>,
}

impl GnmiService {
    /// The service of a device.
    #[must_use]
    pub fn new(device: DeviceHandle, port_names: PortNames, qos: QosMaps) -> Self {
        let (subscriptions, closing) = watch::channel(());
        let tree = Arc::new(DataTree::new(port_names, qos));
        let (dialect, subscribers) = (GnmiDialect::Specification, Arc::default());
        let switch = GnmiSwitch { closing, dialect, device, tree, subscribers };
        Self { switch, _subscriptions: subscriptions }
    }

    /// The service as Stratum has it on the port of P4Runtime: requests that name no encoding are
    /// answered with typed values, not with JSON, which finsy does not read, and short intervals
    /// count milliseconds, as in finsy's ngsdn.
    #[must_use]
    pub fn as_stratum(mut self) -> Self {
        self.switch.dialect = GnmiDialect::Stratum;
        self
    }

    /// The service for a server.
    #[must_use]
    pub fn routes(&self) -> Routes {
        let server = GNmiServer::new(self.switch.clone());
        Routes::new(server.max_decoding_message_size(MAX_REQUEST_BYTES))
    }
}

/// A running gNMI server. Dropping it stops the server.
#[derive(Debug)]
pub struct GnmiHandle {
    local_addr: SocketAddr,
    tls: Option<CurrentTls>,
    stop: Option<oneshot::Sender<()>>,
    service: Option<GnmiService>,
    task: JoinHandle<()>,
}

/// Serves gNMI for a device on a listener that is already bound.
///
/// # Errors
/// [`ServeError`] when the socket, the certificates or the device cannot be used.
pub async fn serve(
    listener: TcpListener,
    device: DeviceHandle,
    options: GnmiOptions,
) -> Result<GnmiHandle, ServeError> {
    let local_addr = listener.local_addr()?;
    let tls = options.tls.as_ref().map(tls_config).transpose().map_err(ServeError::Tls)?;
    let tls = tls.map(|config| watch::Sender::new(Arc::new(config)));
    // Fails if the device is gone, which is better known now.
    drop(device.watch_port_states().await?);
    let service = GnmiService::new(device, options.port_names, options.qos);
    let router = server_builder().add_routes(service.routes());
    let (stop, stopped) = oneshot::channel();
    let stopped = stopped.map(drop);
    let secured = tls.as_ref().map(watch::Sender::subscribe);
    let task = tokio::spawn(async move {
        let incoming = accept_connections(listener);
        let served = match secured {
            None => router.serve_with_incoming_shutdown(incoming, stopped).await,
            Some(tls) => {
                router.serve_with_incoming_shutdown(accept_tls(incoming, tls), stopped).await
            }
        };
        if let Err(error) = served {
            tracing::warn!(error = &error as &dyn std::error::Error, "the gNMI server ended");
        }
    });
    Ok(GnmiHandle { local_addr, tls, stop: Some(stop), service: Some(service), task })
}

impl GnmiHandle {
    /// Where the server listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Presents another certificate, and trusts other roots, from the next connection on.
    ///
    /// # Errors
    /// [`ServeError::Tls`] when the certificates cannot be used; [`ServeError::NotSecured`] when
    /// the server has none.
    pub fn replace_certificates(&self, tls: &ServiceTls) -> Result<(), ServeError> {
        let current = self.tls.as_ref().ok_or(ServeError::NotSecured)?;
        current.send_replace(Arc::new(tls_config(tls).map_err(ServeError::Tls)?));
        Ok(())
    }

    /// Ends every subscription and stops listening.
    pub async fn shutdown(mut self) {
        // Subscriptions would keep their connections open for ever.
        drop(self.service.take());
        // Fails only if the server has ended by itself.
        let _stopping = self.stop.take().map(|stop| stop.send(()));
        if tokio::time::timeout(GRACE_PERIOD, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for GnmiHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The device behind the server.
#[derive(Clone, Debug)]
struct GnmiSwitch {
    /// Ends with the server.
    closing: watch::Receiver<()>,
    dialect: GnmiDialect,
    device: DeviceHandle,
    tree: Arc<DataTree>,
    subscribers: Arc<AtomicUsize>,
}

/// A place among the subscribers, given back at its end.
#[derive(Debug)]
struct SubscriberPlace(Arc<AtomicUsize>);

impl Drop for SubscriberPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GnmiSwitch {
    fn take_place(&self) -> Result<SubscriberPlace, Status> {
        let before = self.subscribers.fetch_add(1, Ordering::Relaxed);
        let place = SubscriberPlace(Arc::clone(&self.subscribers));
        if before < SUBSCRIBER_LIMIT {
            return Ok(place);
        }
        let text = format!("all {SUBSCRIBER_LIMIT} subscriptions of this switch are taken");
        Err(Status::resource_exhausted(text))
    }

    /// Everything that the device reports now.
    async fn all_leaves(&self) -> Result<Vec<GnmiLeaf>, Status> {
        let reports = self.device.port_reports().await.map_err(stopped_status)?;
        let states: Vec<_> = reports.iter().map(|report| (report.number, report.state)).collect();
        let mut leaves = self.tree.state_leaves(&states);
        leaves.extend(self.tree.neighbour_leaves(&reports));
        leaves.extend(self.tree.counter_leaves(&reports));
        Ok(leaves)
    }
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl GNmi for GnmiSwitch {
    type SubscribeStream = ResponseStream<proto::SubscribeResponse>;

    async fn capabilities(
        &self,
        _request: Request<proto::CapabilityRequest>,
    ) -> Result<Response<proto::CapabilityResponse>, Status> {
        let model = |name: &str| proto::ModelData {
            name: name.to_owned(),
            organization: "OpenConfig working group".to_owned(),
            version: String::new(),
        };
        let encodings = [proto::Encoding::Json, proto::Encoding::JsonIetf, proto::Encoding::Proto];
        Ok(Response::new(proto::CapabilityResponse {
            supported_models: MODELS.into_iter().map(model).collect(),
            supported_encodings: encodings.into_iter().map(|encoding| encoding as i32).collect(),
            g_nmi_version: GNMI_VERSION.to_owned(),
            extension: Vec::new(),
        }))
    }

    async fn get(
        &self,
        request: Request<proto::GetRequest>,
    ) -> Result<Response<proto::GetResponse>, Status> {
        let request = request.into_inner();
        let encoding = subscription::check_encoding(request.encoding, self.dialect)?;
        let leaves = self.all_leaves().await?;
        let prefix = request.prefix.as_ref();
        let mut notification = Vec::new();
        for path in &request.path {
            let asked = path::join_paths(prefix, Some(path))?;
            let found: Vec<&GnmiLeaf> =
                leaves.iter().filter(|leaf| path::covers(&asked, &leaf.path)).collect();
            // A switch without ports has an empty list for Stratum's clients.
            let is_list = self.dialect == GnmiDialect::Stratum && path::has_wildcard(&asked);
            if found.is_empty() && !is_list {
                let text = format!("nothing is at {}", path::display_path(&asked));
                return Err(Status::not_found(text));
            }
            notification.push(notification_of(prefix, &found, encoding));
        }
        Ok(Response::new(proto::GetResponse { notification, ..proto::GetResponse::default() }))
    }

    async fn set(
        &self,
        _request: Request<proto::SetRequest>,
    ) -> Result<Response<proto::SetResponse>, Status> {
        Err(Status::unimplemented("this switch is configured by its command line"))
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<proto::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let place = self.take_place()?;
        let (answers, received) = mpsc::channel(ANSWERS_WAITING);
        let (switch, mut closing) = (self.clone(), self.closing.clone());
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = stream::serve_subscriber(switch, request.into_inner(), &answers) => ended,
                _ = closing.changed() => Err(Status::unavailable("the switch stops serving")),
            };
            if let Err(status) = ended {
                // A subscriber that has gone needs no reason.
                let _unheard = answers.send(Err(status)).await;
            }
            drop(place);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(received))))
    }
}

/// Leaves with the time of now.
fn notification_of(
    prefix: Option<&proto::Path>,
    leaves: &[&GnmiLeaf],
    encoding: proto::Encoding,
) -> proto::Notification {
    let target = prefix.map(|prefix| prefix.target.clone()).filter(|target| !target.is_empty());
    proto::Notification {
        timestamp: nanos_since_epoch(),
        prefix: target.map(|target| proto::Path { target, ..proto::Path::default() }),
        update: leaves.iter().map(|leaf| leaf.to_update(encoding)).collect(),
        ..proto::Notification::default()
    }
}

fn stopped_status(stopped: OwnerStopped) -> Status {
    Status::unavailable(stopped.to_string())
}
