//! Requests to the address of a controller: raw bytes, and documents for each endpoint.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use controller::northbound::{self, ApiServer};
use controller::{Config, Controller, ControllerHandle, RawConfig};
use planner::Policy;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use topology::Fabric;
use topology::spec::explicit_document;

use crate::documents::small_fabric;

/// An answer within it is no stall, however loaded the machine.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);
/// The largest answer.
const ANSWER_BYTES: usize = 16 << 20;
/// Bytes that make a frame of gRPC.
const GRPC_HEADER: usize = 5;

/// What a document may be sent to, with its method. Streams of events do not end, so they are left
/// to raw bytes.
const ENDPOINTS: [&str; 13] = [
    "POST /v1/policy/apply",
    "POST /v1/policy/preview",
    "POST /v1/policy/confirm",
    "POST /v1/policy/rollback",
    "POST /v1/session",
    "GET /v1/explanations/",
    "GET /v1/planner-input",
    "GET /v1/policy/revisions",
    "GET /metrics",
    "POST /crux.northbound.v1.Northbound/PreviewPolicy",
    "POST /crux.northbound.v1.Northbound/ApplyPolicy",
    "POST /crux.northbound.v1.Northbound/ExplainJob",
    "POST /crux.telemetry.v1.Telemetry/StreamReports",
];

/// A controller of a fabric whose switches have no address, served to anyone.
struct ServedController {
    address: SocketAddr,
    _runtime: Runtime,
    _controller: ControllerHandle,
    _server: ApiServer,
}

impl ServedController {
    fn get() -> &'static Self {
        static SERVED: OnceLock<ServedController> = OnceLock::new();
        SERVED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let mut raw = RawConfig::default();
        raw.northbound.anyone = true;
        raw.northbound.requests_per_second = u32::MAX;
        let config = Config::try_from(raw).unwrap();
        let runtime = Runtime::new().unwrap();
        let (controller, server) = runtime.block_on(async {
            let fabric = unreachable_fabric();
            let controller =
                Controller::start(config.clone(), fabric, Policy::default()).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = northbound::start_server(listener, controller.access(), &config).unwrap();
            (controller, server)
        });
        let address = server.local_addr();
        Self { address, _runtime: runtime, _controller: controller, _server: server }
    }
}

/// A fabric whose switches nobody can reach, so that no change waits for them.
fn unreachable_fabric() -> Fabric {
    let mut document = explicit_document(small_fabric());
    document.switches.iter_mut().for_each(|switch| switch.p4runtime = None);
    Fabric::try_from(&document).unwrap()
}

/// A byte that chooses: 255 for raw bytes of a connection, and else the endpoint that takes the
/// rest as its document.
pub(crate) fn northbound_requests(data: &[u8]) -> Option<()> {
    let (choice, rest) = data.split_first()?;
    let mut stream = TcpStream::connect(ServedController::get().address).unwrap();
    stream.set_read_timeout(Some(ANSWER_DEADLINE)).unwrap();
    let request = match choice {
        255 => rest.to_vec(),
        choice => frame_request(ENDPOINTS[usize::from(*choice) % ENDPOINTS.len()], rest),
    };
    // The controller may close the connection at any time.
    let _refused = stream.write_all(&request);
    if *choice == 255 {
        // What is not a whole request would be waited for.
        let _closed = stream.shutdown(Shutdown::Write);
    }
    read_answer(stream)
}

/// The request with which this document is sent, and after which the connection ends.
fn frame_request(endpoint: &str, document: &[u8]) -> Vec<u8> {
    let (kind, body) = match endpoint.contains("crux.") {
        true => ("application/grpc", grpc_frame(document)),
        false => ("application/json", document.to_vec()),
    };
    let (endpoint, body) = match endpoint.strip_prefix("GET ") {
        Some(path) => (format!("GET {path}{}", path_segment(document)), Vec::new()),
        None => (endpoint.to_owned(), body),
    };
    let head = format!(
        "{endpoint} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTE: trailers\r\n\
         Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

fn grpc_frame(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(GRPC_HEADER + message.len());
    frame.push(0);
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// The bytes as a part of a path, escaped.
fn path_segment(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("%{byte:02x}")).collect()
}

/// Reads until the controller closes the connection, which it must do in time, or begins a stream
/// of events, which does not end; none if it has refused the request.
fn read_answer(mut stream: TcpStream) -> Option<()> {
    let (mut buffer, mut length) = (vec![0; 64 << 10], 0);
    let mut is_accepted = false;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return is_accepted.then_some(()),
            Ok(read) => {
                is_accepted |= length == 0 && buffer.starts_with(b"HTTP/1.1 200");
                if length == 0 && begins_event_stream(&buffer[..read]) {
                    return Some(());
                }
                length += read;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the controller stalls after {length} bytes")
            }
            Err(_) => return None,
        }
        assert!(length <= ANSWER_BYTES, "an answer of more than {ANSWER_BYTES} bytes");
    }
}

fn begins_event_stream(answer: &[u8]) -> bool {
    const KIND: &[u8] = b"content-type: text/event-stream";
    answer.windows(KIND.len()).any(|part| part.eq_ignore_ascii_case(KIND))
}
