//! The gNMI service as a collector sees it: a tonic client against one device of an emulated
//! network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use p4runtime_proto::gnmi as proto;
use p4runtime_proto::gnmi::g_nmi_client::GNmiClient;
use p4runtime_proto::v1 as p4rt;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use proto::subscribe_request::Request;
use proto::subscribe_response::Response;
use proto::subscription_list::Mode;
use proto::typed_value::Value;
use switch::{
    DeviceConfig, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkHandle, QueueLimits, WireEnd,
    WireIndex, WireSpec, WireState,
};
use switch_server::gnmi::{GnmiHandle, GnmiOptions, GnmiService, QosMaps, serve};
use switch_server::p4runtime::pins::PortNames;
use switch_server::p4runtime::{self, ServiceOptions, ServiceTls};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Status, Streaming};

const OPER_STATUS: &str = "interfaces/interface/state/oper-status";
const COUNTERS: &str = "interfaces/interface/state/counters";

/// Two devices with two wires between them; the first is served.
struct GnmiTestServer {
    network: EmulatedNetworkHandle,
    devices: [DeviceIndex; 2],
    wires: [WireIndex; 2],
    server: GnmiHandle,
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, future).await.expect("it happens within 20 s")
}

impl GnmiTestServer {
    async fn start(options: GnmiOptions) -> Self {
        let mut builder = EmulatedNetworkBuilder::new();
        let devices = [1, 2].map(|device_id| {
            builder.add_device(DeviceConfig {
                device_id,
                cpu_port: 255,
                levels: 2,
                trusts_dscp: false,
            })
        });
        builder.name_device(devices[1], "second");
        let queue = QueueLimits::of_bytes(1 << 20);
        let wire = WireSpec { bits_per_second: 1_000_000_000, delay_ns: 0, queue };
        let wires = [1, 2].map(|port| {
            let ends = devices.map(|device| WireEnd::Device(device, port));
            builder.connect_wire(ends[0], ends[1], wire).unwrap()
        });
        let network = builder.spawn().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = serve(listener, network.device(devices[0]), options).await.unwrap();
        Self { network, devices, wires, server }
    }

    async fn client(&self) -> GNmiClient<Channel> {
        GNmiClient::new(connect(self.server.local_addr()).await)
    }

    async fn subscribe(&self, list: proto::SubscriptionList) -> TestSubscriber {
        let (requests, outgoing) = mpsc::channel(4);
        let request = proto::SubscribeRequest {
            request: Some(Request::Subscribe(list)),
            ..proto::SubscribeRequest::default()
        };
        requests.send(request).await.unwrap();
        let mut client = self.client().await;
        let subscribed = soon(client.subscribe(ReceiverStream::new(outgoing))).await.unwrap();
        TestSubscriber { requests, answers: subscribed.into_inner() }
    }
}

async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    soon(endpoint.connect()).await.unwrap()
}

/// As Stratum serves them, and finsy's ngsdn needs them.
#[tokio::test]
async fn gnmi_is_served_on_the_port_of_p4runtime_across_its_restarts() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let device = bench.network.device(bench.devices[0]);
    let gnmi = GnmiService::new(device.clone(), PortNames::default(), QosMaps::default());
    let gnmi = gnmi.as_stratum();
    let options = ServiceOptions { beside: gnmi.routes(), ..ServiceOptions::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = p4runtime::serve(listener, device, options).await.unwrap();
    for _ in 0..2 {
        let channel = connect(server.local_addr()).await;
        let mut reports = GNmiClient::new(channel.clone());
        let version = soon(reports.capabilities(proto::CapabilityRequest::default())).await;
        assert_eq!(version.unwrap().into_inner().g_nmi_version, "0.8.0");
        // finsy asks so, and takes numbers and texts from the answer.
        let ports = path("interfaces/interface/state/ifindex");
        let asked = proto::GetRequest { path: vec![ports], ..proto::GetRequest::default() };
        let answer = soon(reports.get(asked)).await.unwrap().into_inner();
        let value = answer.notification[0].update[0].val.clone().unwrap().value;
        assert_eq!(value, Some(proto::typed_value::Value::UintVal(1)));
        // A list may be empty, as of the ports of a switch without any.
        let mut none = path("interfaces/interface/state/none");
        none.elem[1].key.insert("name".to_owned(), "*".to_owned());
        let asked = proto::GetRequest { path: vec![none], ..proto::GetRequest::default() };
        let answer = soon(reports.get(asked)).await.unwrap().into_inner();
        assert!(answer.notification[0].update.is_empty());
        let mut programs = P4RuntimeClient::new(channel);
        let version = soon(programs.capabilities(p4rt::CapabilitiesRequest::default())).await;
        assert_eq!(version.unwrap().into_inner().p4runtime_api_version, "1.5.0");
        soon(server.restart()).await.unwrap();
    }
    drop(gnmi);
    soon(server.shutdown()).await;
}

struct TestSubscriber {
    requests: mpsc::Sender<proto::SubscribeRequest>,
    answers: Streaming<proto::SubscribeResponse>,
}

/// A path as people write it, and its value.
type LeafText = (String, String);

impl TestSubscriber {
    /// The next answer: leaves, or nothing where everything has been sent.
    async fn next(&mut self) -> Result<Option<Vec<LeafText>>, Status> {
        let answer = soon(self.answers.message()).await?;
        match answer.and_then(|answer| answer.response) {
            Some(Response::Update(notification)) => Ok(Some(leaves(&notification))),
            Some(Response::SyncResponse(true)) => Ok(None),
            other => panic!("an update or a sync was due, not {other:?}"),
        }
    }

    /// What comes before the next sync.
    async fn until_sync(&mut self) -> Vec<LeafText> {
        let mut found = Vec::new();
        while let Some(part) = self.next().await.unwrap() {
            found.extend(part);
        }
        found
    }
}

fn leaves(notification: &proto::Notification) -> Vec<LeafText> {
    assert!(notification.timestamp > 0);
    let one = |update: &proto::Update| {
        let steps = update.path.as_ref().unwrap().elem.iter().map(|step| {
            let keys = step.key.iter().map(|(key, value)| format!("[{key}={value}]"));
            format!("/{}{}", step.name, keys.collect::<String>())
        });
        let value = match update.val.as_ref().unwrap().value.clone().unwrap() {
            Value::StringVal(text) => text,
            Value::UintVal(number) => number.to_string(),
            Value::JsonVal(json) | Value::JsonIetfVal(json) => String::from_utf8(json).unwrap(),
            other => panic!("no such value was due: {other:?}"),
        };
        (steps.collect(), value)
    };
    notification.update.iter().map(one).collect()
}

fn path(text: &str) -> proto::Path {
    let elem = text
        .split('/')
        .map(|name| proto::PathElem { name: name.to_owned(), ..proto::PathElem::default() });
    proto::Path { elem: elem.collect(), ..proto::Path::default() }
}

fn subscription(
    text: &str,
    mode: proto::SubscriptionMode,
    interval_ms: u64,
) -> proto::Subscription {
    proto::Subscription {
        path: Some(path(text)),
        mode: mode as i32,
        sample_interval: interval_ms * 1_000_000,
        ..proto::Subscription::default()
    }
}

fn list(mode: Mode, subscription: proto::Subscription) -> proto::SubscriptionList {
    proto::SubscriptionList {
        mode: mode as i32,
        subscription: vec![subscription],
        encoding: proto::Encoding::Proto as i32,
        ..proto::SubscriptionList::default()
    }
}

fn oper_status(port: u16, value: &str) -> LeafText {
    (format!("/interfaces/interface[name=Ethernet{port}]/state/oper-status"), value.to_owned())
}

#[tokio::test]
async fn capabilities_name_models_and_encodings() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let mut client = bench.client().await;
    let answer = soon(client.capabilities(proto::CapabilityRequest::default())).await.unwrap();
    let answer = answer.into_inner();
    assert_eq!(answer.g_nmi_version, "0.8.0");
    assert!(answer.supported_models.iter().any(|model| model.name == "openconfig-interfaces"));
    assert!(answer.supported_encodings.contains(&(proto::Encoding::JsonIetf as i32)));
    let set = soon(client.set(proto::SetRequest::default())).await.unwrap_err();
    assert_eq!(set.code(), Code::Unimplemented);
}

/// The second device has a name and the first none, so only the first hears of a neighbour.
#[tokio::test]
async fn neighbours_are_reported_at_wires_that_are_up() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    bench.network.set_wire_state(bench.wires[0], WireState::Down).await.unwrap();
    let mut client = bench.client().await;
    let request = proto::GetRequest {
        path: vec![path("lldp")],
        encoding: proto::Encoding::Proto as i32,
        ..proto::GetRequest::default()
    };
    let answer = soon(client.get(request)).await.unwrap().into_inner();
    let place = "/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state";
    assert_eq!(
        leaves(&answer.notification[0]),
        [
            (format!("{place}/system-name"), "second".to_owned()),
            (format!("{place}/port-id"), "Ethernet2".to_owned()),
        ]
    );
}

#[tokio::test]
async fn values_are_got_by_path_in_the_encoding_that_was_asked_for() {
    let names = PortNames::new([(1, "Ethernet0".to_owned()), (2, "Ethernet4".to_owned())]);
    let options = GnmiOptions { port_names: names.unwrap(), ..GnmiOptions::default() };
    let bench = GnmiTestServer::start(options).await;
    let mut client = bench.client().await;
    let get = |text: &str, encoding: proto::Encoding| proto::GetRequest {
        path: vec![path(text)],
        encoding: encoding as i32,
        ..proto::GetRequest::default()
    };
    let asked = get("interfaces/interface/state/id", proto::Encoding::JsonIetf);
    let answer = soon(client.get(asked)).await.unwrap().into_inner();
    assert_eq!(
        leaves(&answer.notification[0]),
        [
            ("/interfaces/interface[name=Ethernet0]/state/id".to_owned(), "\"1\"".to_owned()),
            ("/interfaces/interface[name=Ethernet4]/state/id".to_owned(), "\"2\"".to_owned()),
        ]
    );
    let asked = get("qos/interfaces", proto::Encoding::Proto);
    let answer = soon(client.get(asked)).await.unwrap().into_inner();
    // Four counters and a length of OpenConfig, packets marked, pauses received and sent.
    assert_eq!(leaves(&answer.notification[0]).len(), 2 * 2 * 8, "ports, queues, counters");
    let absent = soon(client.get(get("acl", proto::Encoding::Json))).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
    let ascii = soon(client.get(get("interfaces", proto::Encoding::Ascii))).await.unwrap_err();
    assert_eq!(ascii.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_subscription_once_ends_with_everything_sent() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let once = list(Mode::Once, subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0));
    let mut subscriber = bench.subscribe(once).await;
    let found = subscriber.until_sync().await;
    assert_eq!(found, [oper_status(1, "UP"), oper_status(2, "UP")]);
    assert!(soon(subscriber.answers.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_poll_is_answered_with_everything() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let poll = list(Mode::Poll, subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0));
    let mut subscriber = bench.subscribe(poll).await;
    for (state, expected) in [(WireState::Up, "UP"), (WireState::Down, "DOWN")] {
        bench.network.set_wire_state(bench.wires[1], state).await.unwrap();
        let request = proto::SubscribeRequest {
            request: Some(Request::Poll(proto::Poll {})),
            ..proto::SubscribeRequest::default()
        };
        subscriber.requests.send(request).await.unwrap();
        let found = subscriber.until_sync().await;
        assert_eq!(found, [oper_status(1, "UP"), oper_status(2, expected)]);
    }
}

#[tokio::test]
async fn a_changed_port_is_sent_and_nothing_else() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let stream = subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0);
    let mut subscriber = bench.subscribe(list(Mode::Stream, stream)).await;
    assert_eq!(subscriber.until_sync().await.len(), 2);
    for (state, expected) in [(WireState::Down, "DOWN"), (WireState::Up, "UP")] {
        bench.network.set_wire_state(bench.wires[0], state).await.unwrap();
        assert_eq!(subscriber.next().await.unwrap(), Some(vec![oper_status(1, expected)]));
    }
    let TestSubscriber { requests, mut answers } = subscriber;
    drop(requests);
    assert!(soon(answers.message()).await.unwrap().is_none(), "the end of requests is the end");
}

#[tokio::test]
async fn counters_are_sampled() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let sample = subscription(COUNTERS, proto::SubscriptionMode::Sample, 100);
    let mut subscriber = bench.subscribe(list(Mode::Stream, sample)).await;
    let first = subscriber.until_sync().await;
    assert!(first.iter().all(|(_, value)| value == "0"), "{first:?}");
    let begun = tokio::time::Instant::now();
    for _ in 0..3 {
        let sample = subscriber.next().await.unwrap().unwrap();
        assert_eq!(sample.len(), first.len(), "redundant values are sent too");
    }
    assert!(begun.elapsed() >= Duration::from_millis(250));

    let mut sample = subscription(COUNTERS, proto::SubscriptionMode::Sample, 100);
    sample.suppress_redundant = true;
    let mut subscriber = bench.subscribe(list(Mode::Stream, sample)).await;
    subscriber.until_sync().await;
    let quiet = tokio::time::timeout(Duration::from_millis(350), subscriber.answers.message());
    assert!(quiet.await.is_err(), "nothing has changed");
}

#[tokio::test]
async fn heartbeats_and_state_left_to_the_switch_are_sent() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let mut beating = subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0);
    beating.heartbeat_interval = 100_000_000;
    let mut subscriber = bench.subscribe(list(Mode::Stream, beating)).await;
    subscriber.until_sync().await;
    assert_eq!(subscriber.next().await.unwrap().unwrap().len(), 2, "although nothing changed");

    let defined = subscription("interfaces", proto::SubscriptionMode::TargetDefined, 0);
    let mut subscriber = bench.subscribe(list(Mode::Stream, defined)).await;
    assert!(subscriber.until_sync().await.len() > 2 * 4, "state and counters");
    bench.network.set_wire_state(bench.wires[1], WireState::Down).await.unwrap();
    assert_eq!(subscriber.next().await.unwrap(), Some(vec![oper_status(2, "DOWN")]));
}

#[tokio::test]
async fn updates_only_sends_what_comes_later() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let stream = subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0);
    let updates = proto::SubscriptionList { updates_only: true, ..list(Mode::Stream, stream) };
    let mut subscriber = bench.subscribe(updates).await;
    assert_eq!(subscriber.until_sync().await, []);
    bench.network.set_wire_state(bench.wires[1], WireState::Down).await.unwrap();
    assert_eq!(subscriber.next().await.unwrap(), Some(vec![oper_status(2, "DOWN")]));
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let on_change = proto::SubscriptionMode::OnChange;
    let sample = proto::SubscriptionMode::Sample;
    let stream = |subscription| list(Mode::Stream, subscription);
    let many = vec![subscription(OPER_STATUS, on_change, 0); 1_000];
    for refused in [
        stream(subscription(COUNTERS, on_change, 0)),
        stream(subscription("interfaces", on_change, 0)),
        stream(subscription(COUNTERS, sample, 1)),
        proto::SubscriptionList { subscription: many, ..proto::SubscriptionList::default() },
        proto::SubscriptionList::default(),
        proto::SubscriptionList {
            encoding: proto::Encoding::Bytes as i32,
            ..stream(subscription(OPER_STATUS, on_change, 0))
        },
    ] {
        let mut subscriber = bench.subscribe(refused.clone()).await;
        let status = subscriber.next().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{refused:?}");
    }
}

#[tokio::test]
async fn subscribers_are_bounded_and_give_their_place_back() {
    let bench = GnmiTestServer::start(GnmiOptions::default()).await;
    let stream =
        list(Mode::Stream, subscription(OPER_STATUS, proto::SubscriptionMode::OnChange, 0));
    let mut subscribers = Vec::new();
    for _ in 0..64 {
        let mut subscriber = bench.subscribe(stream.clone()).await;
        subscriber.until_sync().await;
        subscribers.push(subscriber);
    }
    let (_requests, outgoing) = mpsc::channel(1);
    let mut client = bench.client().await;
    let refused = soon(client.subscribe(ReceiverStream::new(outgoing))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    subscribers.clear();
    let admitted = async {
        loop {
            let (_requests, outgoing) = mpsc::channel(1);
            if client.subscribe(ReceiverStream::new(outgoing)).await.is_ok() {
                return;
            }
        }
    };
    soon(admitted).await;
}

#[tokio::test]
async fn a_protected_server_answers_who_trusts_it() {
    let tls = ServiceTls {
        certificate: include_bytes!("p4runtime/tls/switch.pem").to_vec(),
        key: include_bytes!("p4runtime/tls/switch.key.pem").to_vec(),
        client_roots: None,
        revoked: None,
    };
    let bench =
        GnmiTestServer::start(GnmiOptions { tls: Some(tls), ..GnmiOptions::default() }).await;
    let address = bench.server.local_addr();
    let roots = Certificate::from_pem(include_bytes!("p4runtime/tls/roots.pem"));
    let tls = ClientTlsConfig::new().ca_certificate(roots).domain_name("localhost");
    let secured = Channel::from_shared(format!("https://{address}")).unwrap().tls_config(tls);
    let channel = soon(secured.unwrap().connect()).await.unwrap();
    let asked = GNmiClient::new(channel).capabilities(proto::CapabilityRequest::default()).await;
    assert!(asked.is_ok());
    let plain = Channel::from_shared(format!("http://{address}")).unwrap();
    if let Ok(channel) = soon(plain.connect()).await {
        let mut client = GNmiClient::new(channel);
        let asked = soon(client.capabilities(proto::CapabilityRequest::default())).await;
        assert!(asked.is_err(), "in the clear nobody is answered");
    }
}
