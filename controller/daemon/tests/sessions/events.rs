//! Events as they are on the wire: as they come, again after a break, and to who is too slow.

use std::net::SocketAddr;

use controller::northbound::ApiServer;
use controller::{ControllerHandle, RawConfig, StateEvent};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lab::{DEADLINE, Lab, config, serve_controller, verified};

/// A reader of server-sent events.
struct Reader {
    lines: Lines<BufReader<TcpStream>>,
}

/// One of them.
#[derive(Debug, Default)]
struct Frame {
    id: String,
    event: String,
    data: Value,
}

impl Reader {
    async fn open(at: SocketAddr, header: &str) -> Self {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let request = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let lines = BufReader::new(stream).lines();
        Self { lines }
    }

    async fn next(&mut self) -> Frame {
        let mut frame = Frame::default();
        loop {
            let line = timeout(DEADLINE, self.lines.next_line()).await.unwrap();
            let line = line.unwrap().expect("the stream goes on");
            match line.split_once(": ") {
                Some(("id", id)) => frame.id = id.to_owned(),
                Some(("event", event)) => frame.event = event.to_owned(),
                Some(("data", data)) => frame.data = serde_json::from_str(data).unwrap(),
                None if line.is_empty() && !frame.data.is_null() => return frame,
                _ => {}
            }
        }
    }

    /// Reads on to the first of a kind.
    async fn until(&mut self, kind: &str) -> Frame {
        loop {
            let frame = self.next().await;
            if frame.data["kind"] == kind {
                return frame;
            }
        }
    }
}

async fn served(lab: &Lab, change: impl Fn(&mut RawConfig)) -> (ControllerHandle, ApiServer) {
    let controller = lab.control(&change).await;
    let server = serve_controller(&controller, &config(change)).await;
    (controller, server)
}

async fn run(lab: &Lab, controller: &ControllerHandle, names: &[&str]) {
    let jobs = names.iter().zip(50_000..);
    let jobs = jobs.map(|(name, port)| lab.job(name, port)).collect();
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_as_they_happen_and_go_on_after_a_break() {
    let lab = Lab::new().await;
    let (controller, server) = served(&lab, |_| {}).await;
    let mut reader = Reader::open(server.local_addr(), "").await;
    run(&lab, &controller, &["a"]).await;
    let came = reader.until("job_arrived").await;
    assert_eq!((&came.data["job"], &came.data["rank"]), (&"a".into(), &1.into()));
    let held = reader.until("plan_verified").await;
    verified(&lab, &controller).await;
    drop(reader);
    run(&lab, &controller, &["b"]).await;
    let header = format!("last-event-id: {}\r\n", held.id);
    let mut reader = Reader::open(server.local_addr(), &header).await;
    let mut numbers = Vec::new();
    let left = loop {
        let frame = reader.next().await;
        numbers.push(frame.data["sequence"].as_u64().unwrap());
        if frame.data["kind"] == "job_left" {
            break frame;
        }
    };
    assert_eq!(left.data["text"], "job a left");
    let first = held.data["sequence"].as_u64().unwrap() + 1;
    let expected: Vec<u64> = (first..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "none twice, none left out");
    server.shutdown().await;
    controller.shutdown().await;
}

/// The controller does not wait for who does not read, and who reads again hears what it missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_receives_the_number_of_missed_events() {
    let lab = Lab::new().await;
    let (controller, server) = served(&lab, |raw| raw.northbound.events = 8).await;
    let asleep = Reader::open(server.local_addr(), "").await;
    let mut awake = Reader::open(server.local_addr(), "").await;
    for round in 0..6 {
        let names = [["a"], ["b"]][round % 2];
        run(&lab, &controller, &names).await;
        awake.until("job_arrived").await;
    }
    let header = "last-event-id: 1\r\n";
    let mut late = Reader::open(server.local_addr(), header).await;
    let first = late.next().await;
    assert_eq!(first.event, "missed");
    let missed = first.data["missed"].as_u64().unwrap();
    let next = late.next().await.data["sequence"].as_u64().unwrap();
    assert_eq!(next, missed + 2);
    drop(asleep);
    server.shutdown().await;
    controller.shutdown().await;
}

/// A stream ends with the controller, so that its readers go looking for the next.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_ends_with_the_controller() {
    let lab = Lab::new().await;
    let (controller, server) = served(&lab, |_| {}).await;
    let mut reader = Reader::open(server.local_addr(), "connection: close\r\n").await;
    reader.until("plan_adopted").await;
    controller.shutdown().await;
    let mut stream = reader.lines.into_inner();
    let mut rest = Vec::new();
    let ended = timeout(DEADLINE, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
    server.shutdown().await;
}
