//! An API server of Kubernetes that has pods only, with the semantics of list and watch that its
//! page "API concepts" states, and with faults.
//!
//! Lists come in pages of one version; a watch begins after a version and ends after its time; what
//! is older than the history is gone (410), one newer than everything is refused (504).

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Between two bookmarks of a watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Clone)]
struct PodEvent {
    version: u64,
    kind: &'static str,
    pod: Value,
}

#[derive(Default)]
struct Cluster {
    version: u64,
    pods: BTreeMap<String, Value>,
    history: VecDeque<PodEvent>,
    /// Versions below are gone.
    oldest: u64,
    /// Lists whose next pages may be wanted, by version.
    pages: BTreeMap<u64, Vec<Value>>,
    /// Every event is sent twice.
    repeats: bool,
    /// Watches send nothing any more, nor do they end.
    is_silent: bool,
    /// Requests that are yet to be answered with status 500.
    failures: u32,
    connections: Vec<TcpStream>,
    is_open: bool,
    lists: u32,
    watches: u32,
}

/// The server and its pods, which outlive it.
pub(super) struct ApiServer {
    shared: Arc<(Mutex<Cluster>, Condvar)>,
    address: SocketAddr,
}

/// What is wrong from now on, or at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerFault {
    /// All connections break.
    Disconnect,
    /// All history is gone, and connections break.
    Compact,
    /// So many requests fail.
    Fail(u32),
    /// Every event comes twice, or no longer does.
    Repeat(bool),
    /// Watches stay open without a word, or no longer do.
    Silence(bool),
}

impl ApiServer {
    pub(super) fn start() -> Self {
        let cluster = Cluster { version: 1000, oldest: 1000, ..Cluster::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { shared: Arc::new((Mutex::new(cluster), Condvar::new())), address };
        server.serve(listener);
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds or replaces a pod.
    pub(super) fn put_pod(&self, name: &str, pod: Value) {
        self.change(name, Some(pod));
    }

    pub(super) fn delete_pod(&self, name: &str) {
        self.change(name, None);
    }

    pub(super) fn inject(&self, fault: ServerFault) {
        let mut cluster = self.lock();
        match fault {
            ServerFault::Disconnect => cluster.disconnect(),
            ServerFault::Compact => {
                cluster.history.clear();
                cluster.pages.clear();
                cluster.version += 1;
                cluster.oldest = cluster.version;
                cluster.disconnect();
            }
            ServerFault::Fail(count) => cluster.failures = count,
            ServerFault::Repeat(repeats) => cluster.repeats = repeats,
            ServerFault::Silence(is_silent) => cluster.is_silent = is_silent,
        }
        drop(cluster);
        self.shared.1.notify_all();
    }

    /// Ends the server as a kill does; the pods stay.
    pub(super) fn kill(&self) {
        let mut cluster = self.lock();
        cluster.is_open = false;
        cluster.disconnect();
        drop(cluster);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        self.shared.1.notify_all();
    }

    /// Serves again at the old address.
    pub(super) fn restart(&self) {
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        self.serve(listener);
    }

    /// Goes back to a backup that has these pods and is older than everything sent.
    pub(super) fn restore(&self, names: &[&str]) {
        let mut cluster = self.lock();
        cluster.version = 500;
        cluster.oldest = 500;
        cluster.history.clear();
        cluster.pods.retain(|name, _| names.contains(&name.as_str()));
        cluster.disconnect();
    }

    /// Lists and watches so far.
    pub(super) fn requests(&self) -> (u32, u32) {
        let cluster = self.lock();
        (cluster.lists, cluster.watches)
    }

    fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.shared.0.lock().unwrap()
    }

    fn change(&self, name: &str, pod: Option<Value>) {
        let mut cluster = self.lock();
        cluster.version += 1;
        let version = cluster.version;
        let event = |kind, mut pod: Value| {
            pod["metadata"]["resourceVersion"] = version.to_string().into();
            PodEvent { version, kind, pod }
        };
        let event = match pod {
            Some(pod) => {
                let kind = if cluster.pods.contains_key(name) { "MODIFIED" } else { "ADDED" };
                let event = event(kind, pod);
                cluster.pods.insert(name.to_owned(), event.pod.clone());
                event
            }
            None => event("DELETED", cluster.pods.remove(name).unwrap()),
        };
        cluster.history.push_back(event);
        drop(cluster);
        self.shared.1.notify_all();
    }

    fn serve(&self, listener: TcpListener) {
        self.lock().is_open = true;
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut cluster = shared.0.lock().unwrap();
                if !cluster.is_open {
                    return;
                }
                cluster.connections.push(stream.try_clone().unwrap());
                drop(cluster);
                let shared = Arc::clone(&shared);
                // A client that goes away is no failure of the test.
                thread::spawn(move || answer(&stream, &shared).ok());
            }
        });
    }
}

impl Cluster {
    fn disconnect(&mut self) {
        for connection in self.connections.drain(..) {
            let _gone = connection.shutdown(Shutdown::Both);
        }
    }

    fn list(&mut self, query: &Query) -> (u16, Value) {
        self.lists += 1;
        let limit = query.number("limit").unwrap_or(u64::MAX) as usize;
        let (version, offset) = match query.get("continue") {
            Some(token) => {
                let (version, offset) = token.split_once('-').unwrap();
                (version.parse().unwrap(), offset.parse().unwrap())
            }
            None => {
                let selected = self.pods.values().filter(|pod| query.selects(pod));
                let selected = selected.cloned().collect();
                self.pages.insert(self.version, selected);
                (self.version, 0)
            }
        };
        let Some(all) = self.pages.get(&version) else {
            return (410, failure(410, "Expired"));
        };
        let items: Vec<&Value> = all.iter().skip(offset).take(limit).collect();
        let next = offset + items.len();
        let token = if next < all.len() { format!("{version}-{next}") } else { String::new() };
        let metadata = json!({ "resourceVersion": version.to_string(), "continue": token });
        (200, json!({ "kind": "PodList", "metadata": metadata, "items": items }))
    }
}

struct Query(BTreeMap<String, String>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(key, value)| (key.to_owned(), decode(value))).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Selectors of the form `LABEL=VALUE`.
    fn selects(&self, pod: &Value) -> bool {
        let selector = self.get("labelSelector").and_then(|selector| selector.split_once('='));
        selector.is_none_or(|(label, value)| pod["metadata"]["labels"][label] == value)
    }
}

fn decode(text: &str) -> String {
    let mut pieces = text.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |decoded, piece| {
        let byte = u8::from_str_radix(&piece[..2], 16).unwrap();
        decoded + &char::from(byte).to_string() + &piece[2..]
    })
}

fn answer(stream: &TcpStream, shared: &(Mutex<Cluster>, Condvar)) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let target = request.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    let mut cluster = shared.0.lock().unwrap();
    if cluster.failures > 0 {
        cluster.failures -= 1;
        drop(cluster);
        return respond(stream, 500, &failure(500, "InternalError"));
    }
    if path != "/api/v1/pods" {
        drop(cluster);
        return respond(stream, 404, &failure(404, "NotFound"));
    }
    if query.get("watch").is_none() {
        let (status, body) = cluster.list(&query);
        drop(cluster);
        return respond(stream, status, &body);
    }
    cluster.watches += 1;
    let after = query.number("resourceVersion").unwrap_or_default();
    let (newest, oldest, watches) = (cluster.version, cluster.oldest, cluster.watches);
    drop(cluster);
    match after {
        _ if after > newest => respond(stream, 504, &failure(504, "Timeout")),
        // Servers answer in one of two ways.
        _ if after < oldest && watches % 2 == 0 => respond(stream, 410, &failure(410, "Gone")),
        _ if after < oldest => {
            begin_stream(stream)?;
            send_event(stream, "ERROR", &failure(410, "Expired"))?;
            end_stream(stream)
        }
        _ => send_events(stream, shared, &query, after),
    }
}

fn send_events(
    stream: &TcpStream,
    shared: &(Mutex<Cluster>, Condvar),
    query: &Query,
    mut after: u64,
) -> io::Result<()> {
    begin_stream(stream)?;
    let seconds = query.number("timeoutSeconds").unwrap_or(3600);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut cluster = shared.0.lock().unwrap();
    while Instant::now() < deadline || cluster.is_silent {
        let events: Vec<PodEvent> =
            cluster.history.iter().filter(|event| event.version > after).cloned().collect();
        let (is_silent, repeats, newest) = (cluster.is_silent, cluster.repeats, cluster.version);
        drop(cluster);
        if !is_silent {
            for event in events.iter().filter(|event| query.selects(&event.pod)) {
                for _ in 0..=u32::from(repeats) {
                    send_event(stream, event.kind, &event.pod)?;
                }
            }
            after = newest;
            if events.is_empty() {
                let metadata = json!({ "resourceVersion": after.to_string() });
                send_event(stream, "BOOKMARK", &json!({ "kind": "Pod", "metadata": metadata }))?;
            }
        }
        cluster = shared.0.lock().unwrap();
        let has_update = cluster.history.back().is_some_and(|event| event.version > after);
        if !has_update || cluster.is_silent {
            cluster = shared.1.wait_timeout(cluster, BOOKMARK_INTERVAL).unwrap().0;
        }
    }
    drop(cluster);
    end_stream(stream)
}

fn failure(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason,
            "message": format!("{reason}, as scheduled") })
}

fn respond(mut stream: &TcpStream, status: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")?;
    stream.write_all(body.as_bytes())
}

fn begin_stream(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
}

/// One line, in two chunks: lines and chunks have nothing to do with each other.
fn send_event(mut stream: &TcpStream, kind: &str, object: &Value) -> io::Result<()> {
    let line = format!("{}\n", json!({ "type": kind, "object": object }));
    let (first, rest) = line.split_at(line.len() / 2);
    for chunk in [first, rest] {
        write!(stream, "{:x}\r\n{chunk}\r\n", chunk.len())?;
    }
    Ok(())
}

fn end_stream(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}
