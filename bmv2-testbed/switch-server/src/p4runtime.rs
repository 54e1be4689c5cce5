//! The P4Runtime server of one device, over tonic.
//!
//! [`serve`] answers on a listener until [`ServerHandle::shutdown`]. The parts: `sessions` carries
//! out the decisions of [`election`], `requests` takes each call to the device's thread in one hop,
//! `pipeline` keeps the pipelines there, `entity_writer` and `entity_reader` handle the entities,
//! `entity` and `packet` translate. The decision behind it: one incarnation of the switch is one
//! value, so a restart drops it and makes the next, and only the listening socket remains.
//!
//! There are three locks, each because two threads use the value: streams and calls share the
//! sessions, and `requests` says why a reader may hold them; the pipelines belong to the device's
//! thread and are locked only there; both count for the fault script.

mod arrays;
mod background_task;
mod bytestring;
mod controller_metadata;
mod device_config;
mod digests;
pub mod election;
mod entity;
mod entity_reader;
mod entity_writer;
mod error;
mod number_pool;
mod p4info;
mod packet;
pub mod pins;
mod pipeline;
mod profile;
#[cfg(test)]
mod proptests;
mod replication;
mod request_budget;
mod requests;
mod role_rules;
mod service_options;
mod sessions;
mod stream;
mod tls_listener;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::{FutureExt, Stream};
use p4rt::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4runtime_proto::v1 as p4rt;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, RwLock, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::ServerConfig;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::p4runtime::election::{ElectionSettings, SwitchDialect};
use crate::p4runtime::p4info::PipelineSchema;
use crate::testing::faults::FaultInjector;
use background_task::spawn_restarting;
use pins::PortNames;
use pipeline::DevicePipelines;
use request_budget::BudgetedService;
pub use role_rules::{AllowedRole, RoleRules};
pub use service_options::{ServiceOptions, ServiceTls};
use sessions::SessionRegistry;
use switch::{DeviceHandle, OwnerStopped};
pub(crate) use tls_listener::{CurrentTls, accept_tls, tls_config};

/// The version of the protocol, as `Capabilities` reports it.
const API_VERSION: &str = "1.5.0";
/// The largest request: a device config of a large program or a batch of 100,000 entries is 10 MB.
const MAX_REQUEST_BYTES: usize = 32 << 20;
/// Calls of one connection that are decoded and handled at once, its stream included.
const CALLS_PER_CONNECTION: usize = 32;
/// Time between two probes of a silent connection, and for their answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Wait after a failed accept, for example without descriptors; doubles up to the second one.
const ACCEPT_BACKOFF: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// The largest header list, as a controller must also accept it: 4 MiB.
const MAX_HEADER_LIST_BYTES: u32 = 4 << 20;
/// How long open calls may take to end when the switch stops serving.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Why a switch cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The listening socket failed.
    #[error("the listening socket cannot be used")]
    Listener(#[from] io::Error),
    /// Certificate, key or roots are not what they should be.
    #[error("the certificates cannot be used")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// The switch is served in the clear, so it has no certificates.
    #[error("the switch is not served over TLS")]
    NotSecured,
    /// The device's thread is gone.
    #[error("there is no device to serve")]
    Gone(#[from] OwnerStopped),
    /// The server has ended already.
    #[error("the server has ended")]
    Ended,
}

/// A running server. Dropping it stops the server in the background.
#[derive(Debug)]
pub struct ServerHandle {
    local_addr: SocketAddr,
    commands: mpsc::Sender<ServerCommand>,
    counts: Arc<PacketInCounts>,
    tls: Option<CurrentTls>,
    task: JoinHandle<()>,
}

/// Commands of the owner to a server.
#[derive(Debug)]
enum ServerCommand {
    Stop,
    /// Answered once the switch serves again.
    Restart(oneshot::Sender<()>),
}

/// What has become of the packets for controllers.
#[derive(Debug, Default)]
struct PacketInCounts {
    packet_ins_dropped: AtomicU64,
}

impl PacketInCounts {
    fn drop_packet_in(&self) {
        self.packet_ins_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves a device on a listener that is already bound.
///
/// # Errors
/// [`ServeError`] when the socket or the device is gone.
pub async fn serve(
    listener: TcpListener,
    device: DeviceHandle,
    options: ServiceOptions,
) -> Result<ServerHandle, ServeError> {
    let local_addr = listener.local_addr()?;
    let std_listener = listener.into_std()?;
    let device_id = device.with_device(|device| device.config().device_id).await?;
    let counts = Arc::new(PacketInCounts::default());
    let (orders, received) = mpsc::channel(1);
    let tls = options.tls.as_ref().map(tls_config).transpose().map_err(ServeError::Tls)?;
    let tls = tls.map(|config| watch::Sender::new(Arc::new(config)));
    let supervisor = ServerSupervisor {
        listener: std_listener,
        tls: tls.clone(),
        device,
        rules: ElectionSettings {
            device_id,
            dialect: options.dialect,
            max_sessions: options.max_sessions,
        },
        arbitration_deadline: options.arbitration_deadline,
        roles: options.roles,
        port_names: options.port_names,
        beside: options.beside,
        faults: Arc::new(Mutex::new(FaultInjector::new(options.faults))),
        counts: Arc::clone(&counts),
        commands: received,
    };
    let task = tokio::spawn(supervisor.serve_instances());
    Ok(ServerHandle { local_addr, commands: orders, counts, tls, task })
}

impl ServerHandle {
    /// Where the server listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Packets for the controller that none took: no primary, a full queue, or no whole header.
    #[must_use]
    pub fn packet_ins_dropped(&self) -> u64 {
        self.counts.packet_ins_dropped.load(Ordering::Relaxed)
    }

    /// Brings the switch back empty on the same address: no pipeline, no entries, no streams, no
    /// memory of election ids. Returns once it serves again.
    ///
    /// # Errors
    /// [`ServeError::Ended`] when the server is gone.
    pub async fn restart(&self) -> Result<(), ServeError> {
        let (done, serving) = oneshot::channel();
        self.commands.send(ServerCommand::Restart(done)).await.map_err(|_| ServeError::Ended)?;
        serving.await.map_err(|_| ServeError::Ended)
    }

    /// Presents another certificate, and trusts other roots, from the next connection on. Open
    /// connections stay as they are.
    ///
    /// # Errors
    /// [`ServeError::Tls`] when the certificates cannot be used, and the earlier ones stay;
    /// [`ServeError::NotSecured`] when the switch is served without TLS.
    pub fn replace_certificates(&self, tls: &ServiceTls) -> Result<(), ServeError> {
        let current = self.tls.as_ref().ok_or(ServeError::NotSecured)?;
        current.send_replace(Arc::new(tls_config(tls).map_err(ServeError::Tls)?));
        Ok(())
    }

    /// Waits until the server has ended by itself, which it does only where something is wrong.
    pub async fn wait_for_end(&mut self) {
        // A task that panicked has ended, too.
        let _ = (&mut self.task).await;
    }

    /// Ends every stream, lets open calls finish and stops listening. The device keeps what it has.
    pub async fn shutdown(self) {
        // Both fail only if the server has ended by itself, which is what is wanted.
        let _ = self.commands.send(ServerCommand::Stop).await;
        let _ = self.task.await;
    }
}

/// What outlives a restart.
#[derive(Debug)]
struct ServerSupervisor {
    listener: std::net::TcpListener,
    tls: Option<CurrentTls>,
    device: DeviceHandle,
    rules: ElectionSettings,
    arbitration_deadline: Duration,
    roles: RoleRules,
    port_names: PortNames,
    beside: Routes,
    faults: Arc<Mutex<FaultInjector>>,
    counts: Arc<PacketInCounts>,
    commands: mpsc::Receiver<ServerCommand>,
}

impl ServerSupervisor {
    /// Serves one incarnation of the switch after the other.
    async fn serve_instances(mut self) {
        let mut restarted: Option<oneshot::Sender<()>> = None;
        while let Ok(listener) = self.listener.try_clone().and_then(TcpListener::from_std) {
            let switch = Arc::new(self.new_instance());
            let (stop, stopped) = oneshot::channel();
            let mut server = tokio::spawn(run_server(
                Arc::clone(&switch),
                self.beside.clone(),
                listener,
                self.tls.as_ref().map(watch::Sender::subscribe),
                stopped,
            ));
            let served = Arc::clone(&switch);
            let packets =
                spawn_restarting("packet-ins", move || Arc::clone(&served).forward_packet_ins());
            let served = Arc::clone(&switch);
            let notices = spawn_restarting("notifications", move || {
                Arc::clone(&served).forward_notifications()
            });
            if let Some(restarted) = restarted.take() {
                // The caller may have stopped waiting.
                let _ = restarted.send(());
            }
            let order = tokio::select! {
                order = self.commands.recv() => order.unwrap_or(ServerCommand::Stop),
                () = switch.restart.notified() => ServerCommand::Restart(oneshot::channel().0),
                _ = &mut server => ServerCommand::Stop,
            };
            packets.abort();
            notices.abort();
            let _ = stop.send(());
            let leaving = Status::unavailable("the switch stops serving");
            switch.sessions.write().await.end_all(&leaving);
            if !server.is_finished()
                && tokio::time::timeout(GRACE_PERIOD, &mut server).await.is_err()
            {
                server.abort();
            }
            match order {
                ServerCommand::Stop => return,
                ServerCommand::Restart(done) => restarted = Some(done),
            }
            if self.device.with_device(|device| device.unload_program()).await.is_err() {
                return;
            }
        }
    }

    fn new_instance(&self) -> SwitchInstance {
        SwitchInstance {
            device_id: self.rules.device_id,
            dialect: self.rules.dialect,
            port_names: self.port_names.clone(),
            device: self.device.clone(),
            pipelines: Arc::default(),
            schema: watch::Sender::new(None),
            sessions: RwLock::new(SessionRegistry::new(self.rules, Arc::clone(&self.faults))),
            arbitration_deadline: self.arbitration_deadline,
            roles: self.roles.clone(),
            faults: Arc::clone(&self.faults),
            restart: Notify::new(),
            counts: Arc::clone(&self.counts),
        }
    }
}

/// What all incarnations have in common.
pub(crate) fn server_builder() -> Server {
    Server::builder()
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
}

/// The connections of a listener. Where none can be accepted, for example because the process has
/// no descriptors left, it waits instead of trying again at once.
pub(crate) fn accept_connections(
    listener: TcpListener,
) -> impl Stream<Item = io::Result<TcpStream>> {
    futures::stream::unfold(listener, |listener| async {
        let [mut backoff, longest] = ACCEPT_BACKOFF;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Without it writes are only slower.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(stream), listener));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(longest);
                }
            }
        }
    })
}

/// Serves until `stopped` resolves.
async fn run_server(
    switch: Arc<SwitchInstance>,
    beside: Routes,
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    stopped: oneshot::Receiver<()>,
) {
    let service = P4RuntimeServer::new(P4RuntimeService(switch))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX);
    let routes = beside.add_service(BudgetedService::new(service));
    let router = server_builder().add_routes(routes);
    let incoming = accept_connections(listener);
    // A dropped sender means the same as a message.
    let stop = stopped.map(drop);
    let served = match tls {
        None => router.serve_with_incoming_shutdown(incoming, stop).await,
        Some(tls) => router.serve_with_incoming_shutdown(accept_tls(incoming, tls), stop).await,
    };
    if let Err(error) = served {
        tracing::warn!(error = &error as &dyn std::error::Error, "the P4Runtime server ended");
    }
}

/// One incarnation of the switch, shared by all its calls.
#[derive(Debug)]
struct SwitchInstance {
    device_id: u64,
    dialect: SwitchDialect,
    port_names: PortNames,
    device: DeviceHandle,
    /// Locked on the device's thread only.
    pipelines: Arc<Mutex<DevicePipelines>>,
    /// The running pipeline, for the headers of packets.
    schema: watch::Sender<Option<Arc<PipelineSchema>>>,
    sessions: RwLock<SessionRegistry>,
    arbitration_deadline: Duration,
    roles: RoleRules,
    faults: Arc<Mutex<FaultInjector>>,
    restart: Notify,
    counts: Arc<PacketInCounts>,
}

impl SwitchInstance {
    /// Carries packets from the CPU port to the primary until the device is gone.
    async fn forward_packet_ins(self: Arc<Self>) {
        let Ok(mut packets) = self.device.subscribe_packet_ins().await else {
            return;
        };
        while let Some(packet) = packets.recv().await {
            self.send_packet_in(&packet).await;
        }
    }
}

/// Time between two looks for notifications, at least.
const NOTICE_INTERVAL: Duration = Duration::from_millis(10);

impl SwitchInstance {
    /// Carries digests and idle timeouts to the primary. The device says when there may be some; it
    /// is asked again and again only while a list waits or entries age.
    async fn forward_notifications(self: Arc<Self>) {
        let Ok(signal) = self.device.with_device(|device| device.notice_signal()).await else {
            return;
        };
        let mut ticks = tokio::time::interval(NOTICE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let looked = self.on_device(|pipelines, device| {
                let notices = pipelines.take_notifications(device, nanos_since_epoch());
                (notices, pipelines.awaits_notifications(device))
            });
            let Ok((notices, awaits_more)) = looked.await else {
                return;
            };
            for notice in notices {
                // Without a primary the notification is lost, which is no error.
                let _delivered = self.notify_primaries(&notice).await;
            }
            if !awaits_more {
                signal.notified().await;
            }
        }
    }
}

/// The clock of the machine: the clock of a device begins with the device, or is virtual.
pub(crate) fn nanos_since_epoch() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}

/// The service in the form that tonic requires.
#[derive(Debug)]
struct P4RuntimeService(Arc<SwitchInstance>);

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for P4RuntimeService {
    type ReadStream = ResponseStream<p4rt::ReadResponse>;
    type StreamChannelStream = ResponseStream<p4rt::StreamMessageResponse>;

    async fn write(
        &self,
        request: Request<p4rt::WriteRequest>,
    ) -> Result<Response<p4rt::WriteResponse>, Status> {
        self.0.roles.check_role(&request.get_ref().role, &request.peer_certs())?;
        self.0.handle_write(request.into_inner()).await?;
        Ok(Response::new(p4rt::WriteResponse {}))
    }

    async fn read(
        &self,
        request: Request<p4rt::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let answer = self.0.handle_read(request.into_inner()).await?;
        Ok(Response::new(Box::pin(tokio_stream::iter(answer))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4rt::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4rt::SetForwardingPipelineConfigResponse>, Status> {
        self.0.roles.check_role(&request.get_ref().role, &request.peer_certs())?;
        self.0.set_pipeline(request.into_inner()).await?;
        Ok(Response::new(p4rt::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<p4rt::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4rt::GetForwardingPipelineConfigResponse>, Status> {
        let config = self.0.get_pipeline(request.into_inner()).await?;
        Ok(Response::new(p4rt::GetForwardingPipelineConfigResponse { config }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4rt::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let opened = self.0.sessions.write().await.open_session()?;
        let switch = Arc::clone(&self.0);
        let peer = request.peer_certs();
        let requests = request.into_inner();
        tokio::spawn(switch.serve_stream(opened.session, requests, peer, opened.ended));
        Ok(Response::new(Box::pin(ReceiverStream::new(opened.messages))))
    }

    async fn capabilities(
        &self,
        request: Request<p4rt::CapabilitiesRequest>,
    ) -> Result<Response<p4rt::CapabilitiesResponse>, Status> {
        match request.into_inner().device_id {
            0 => {}
            device_id => self.0.check_device(device_id)?,
        }
        let p4runtime_api_version = API_VERSION.to_owned();
        let experimental = None;
        Ok(Response::new(p4rt::CapabilitiesResponse { p4runtime_api_version, experimental }))
    }
}
