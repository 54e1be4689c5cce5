//! Clients that attack the northbound address: whatever they send, nobody else waits for it, and
//! nothing changes that they may not change.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use api::northbound::WatchEventsRequest;
use api::northbound::northbound_client::NorthboundClient;
use api::telemetry::telemetry_client::TelemetryClient;
use controller::config::AccessRole;
use controller::{Config, RawConfig, StateEvent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use topology::{HostId, NicId};

use crate::grpc::token;
use crate::http::{ask, ask_with};
use crate::lab::{DEADLINE, Lab, ServedController, open_config};
use crate::secured::file;

const APPLY: &str = r#"{"change": {"policy": {"file": "p.json", "text": "{\"fairness\": 0.2}"}},
    "author": "eve"}"#;

fn config(change: impl FnOnce(&mut RawConfig)) -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    change(&mut raw);
    Config::try_from(raw).unwrap()
}

/// A controller with a token of each role, called after it.
fn with_tokens(change: impl FnOnce(&mut RawConfig)) -> Config {
    config(|raw| {
        raw.northbound.tokens = vec![
            token("reader", AccessRole::Read, b"reader"),
            token("writer", AccessRole::Write, b"writer"),
        ];
        change(raw);
    })
}

/// The response to a request, as it is on the wire.
async fn exchange(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A POST with these headers.
fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n\
         {body}"
    )
}

/// How long somebody else waits for the jobs.
async fn time_of_others(served: &ServedController, authorization: &str) -> Duration {
    let begun = Instant::now();
    let (status, answer) = ask_with(served.at, "/v1/jobs", None, authorization).await;
    assert_eq!(status, 200, "{answer}");
    begun.elapsed()
}

fn preview(file: &str, text: &str) -> String {
    serde_json::json!({ "policy": { "file": file, "text": text } }).to_string()
}

/// Finding C1.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_others_change_nothing() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let json = "content-type: application/json\r\n";
    let cases = [
        ("host: evil.example\r\norigin: http://evil.example\r\ncontent-type: text/plain\r\n", 421),
        (&format!("host: evil.example\r\norigin: http://evil.example\r\n{json}"), 421),
        (&format!("host: localhost\r\norigin: http://evil.example\r\n{json}"), 403),
        (&format!("host: localhost\r\norigin: null\r\n{json}"), 403),
        ("host: localhost\r\ncontent-type: text/plain\r\n", 415),
        (&format!("host: localhost\r\norigin: http://localhost\r\n{json}"), 200),
    ];
    for (headers, status) in cases {
        let answer = exchange(served.at, &post("/v1/policy/apply", headers, APPLY)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
    }
    let (_, policy) = ask(served.at, "/v1/policy", None).await;
    assert!(policy.contains(r#""number":2"#), "one of them was allowed: {policy}");
    served.end().await;
}

/// Finding C1: a browser is known by a cookie of the page, and by no password.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_with_a_cookie() {
    let lab = Lab::new().await;
    let served = lab.served(&with_tokens(|_| {})).await;
    let at = served.at;
    let own = "host: localhost\r\norigin: http://localhost\r\ncontent-type: application/json\r\n";
    let refused = exchange(at, &post("/v1/session", own, r#"{"token": "eve"}"#)).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert!(refused.contains("www-authenticate: Bearer") && !refused.contains("Basic"));
    let answer = exchange(at, &post("/v1/session", own, r#"{"token": "reader"}"#)).await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let cookie = answer.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
    assert!(answer.contains("HttpOnly; SameSite=Strict") && !cookie.contains("reader"));
    let shown = format!("{own}cookie: {cookie}\r\n");
    let get = format!("GET /v1/jobs HTTP/1.1\r\nconnection: close\r\n{shown}\r\n");
    let jobs = exchange(at, &get).await;
    assert!(jobs.starts_with("HTTP/1.1 200"), "{jobs}");
    let apply = exchange(at, &post("/v1/policy/apply", &shown, APPLY)).await;
    assert!(apply.starts_with("HTTP/1.1 403"), "a reader: {apply}");
    let out = format!("DELETE /v1/session HTTP/1.1\r\nconnection: close\r\n{shown}\r\n");
    assert!(exchange(at, &out).await.starts_with("HTTP/1.1 204"));
    assert!(exchange(at, &get).await.starts_with("HTTP/1.1 401"), "logged out");
    served.end().await;
}

/// Finding C2: three documents of 400 kB froze the controller for 90 s.
#[tokio::test(flavor = "multi_thread")]
async fn nested_yaml_is_refused_at_once() {
    let lab = Lab::new().await;
    let served = lab.served(&with_tokens(|_| {})).await;
    let (at, body) = (served.at, preview("p.yaml", &"[".repeat(400_000)));
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let body = body.clone();
        clients.spawn(async move {
            let begun = Instant::now();
            let refused = ask_with(at, "/v1/policy/preview", Some(&body), "Bearer reader").await;
            (refused, begun.elapsed())
        });
    }
    let others = time_of_others(&served, "Bearer writer").await;
    for ((status, answer), took) in clients.join_all().await {
        assert_eq!(status, 422, "{answer}");
        println!("refused after {took:?}, others waited {others:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    let (_, answer) = ask_with(
        at,
        "/v1/policy/preview",
        Some(&preview("p.yaml", "fairness: 0.1")),
        "Bearer reader",
    )
    .await;
    assert!(answer.contains("TOML and JSON only"), "{answer}");
    served.end().await;
}

/// Finding C2: the other formats take time that grows with the size of a document only.
#[tokio::test(flavor = "multi_thread")]
async fn nested_documents_are_refused_in_linear_time() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let size = 256 << 10;
    let deep = |piece: &str| piece.repeat(size / piece.len() - 4);
    let documents = [
        ("p.json", deep("[")),
        ("p.json", deep(r#"{"a":"#)),
        ("p.toml", format!("a = {}", deep("["))),
        ("p.toml", format!("a = {}", deep("{a="))),
        ("p.toml", format!("{}a = 1", deep("a."))),
        ("p.toml", format!("[{}a]", deep("a."))),
        ("p.toml", deep("[[a]]\n")),
        ("p.toml", deep("[a.a.a]\n")),
        ("p.toml", deep("a = 1\n")),
    ];
    for (file, text) in documents {
        let begun = Instant::now();
        let (status, answer) =
            ask(served.at, "/v1/policy/preview", Some(&preview(file, &text))).await;
        let took = begun.elapsed();
        let start = &text[..20];
        println!("{file} {start:?}: {status} after {took:?}");
        assert_eq!(status, 422, "{}", &answer[..200]);
        assert!(took < Duration::from_secs(10), "{file} {start:?}: {took:?}");
    }
    let long = preview("p.json", &" ".repeat(size + 1));
    let (status, answer) = ask(served.at, "/v1/policy/preview", Some(&long)).await;
    assert!(status == 422 && answer.contains("document_bytes"), "{answer}");
    served.end().await;
}

/// Finding C3: 600 concurrent previews took 23 GB.
#[tokio::test(flavor = "multi_thread")]
async fn previews_beyond_the_queue_are_refused() {
    let lab = Lab::new().await;
    let served = lab.served(&with_tokens(|_| {})).await;
    let at = served.at;
    let mut clients = JoinSet::new();
    for _ in 0..200 {
        clients.spawn(async move {
            let headers = "host: localhost\r\nauthorization: Bearer reader\r\n\
                           content-type: application/json\r\n";
            let body = preview("p.toml", "fairness = 0.2");
            exchange(at, &post("/v1/policy/preview", headers, &body)).await
        });
    }
    let others = time_of_others(&served, "Bearer writer").await;
    println!("others waited {others:?}");
    let answers = clients.join_all().await;
    let done = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200")).count();
    assert!((1..200).contains(&done), "{done}");
    for answer in answers.iter().filter(|answer| !answer.starts_with("HTTP/1.1 200")) {
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: 1"), "{answer}");
    }
    served.end().await;
}

/// Finding H1: 1,100 half-sent requests took all descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_keep_nobody_out() {
    let lab = Lab::new().await;
    let short = |raw: &mut RawConfig| {
        raw.northbound.limits.connections_per_address = 20;
        raw.northbound.limits.first_request_ms = 1_500;
    };
    let served = lab.served(&config(short)).await;
    let mut held = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(served.at).await.unwrap();
        let sent: &[u8] = match number % 2 {
            0 => b"",
            _ => b"GET /v1/jobs HTTP/1.1\r\nhost: local",
        };
        // Those who gave way already are reset.
        drop(stream.write_all(sent).await);
        held.push(stream);
    }
    let others = time_of_others(&served, "").await;
    println!("others waited {others:?}");
    let (_, metrics) = ask(served.at, "/metrics", None).await;
    let none_evicted = "crux_northbound_limited_total{limit=\"connection_evicted\"} 0\n";
    assert!(!metrics.contains(none_evicted), "{metrics}");
    for stream in &mut held {
        let ended = timeout(DEADLINE, stream.read(&mut [0; 1_000])).await;
        assert!(matches!(ended, Ok(Ok(_) | Err(_))), "a half-sent request is kept for ever");
    }
    served.end().await;
}

/// Finding M5: slow bodies held 839 MB.
#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_are_refused_in_time() {
    let lab = Lab::new().await;
    let short = |raw: &mut RawConfig| {
        raw.northbound.limits.body_ms = 300;
        raw.northbound.limits.bodies_bytes = 4 << 20;
    };
    let served = lab.served(&config(short)).await;
    let begin = "POST /v1/policy/preview HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/json\r\ncontent-length: 1000000\r\n\r\n{";
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let at = served.at;
        clients.spawn(async move { exchange(at, begin).await });
    }
    let answers = clients.join_all().await;
    let slow = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 408")).count();
    assert!((1..20).contains(&slow), "{answers:?}");
    for answer in answers.iter().filter(|answer| !answer.starts_with("HTTP/1.1 408")) {
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    }
    let large = begin.replace("1000000", "10000000");
    assert!(exchange(served.at, &large).await.starts_with("HTTP/1.1 413"));
    served.end().await;
}

/// Finding M4: refused requests used up the rate of other clients at their address.
#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_use_up_nobodys_rate() {
    let lab = Lab::new().await;
    let served = lab.served(&with_tokens(|raw| raw.northbound.requests_per_second = 5)).await;
    let mut refused = Vec::new();
    for _ in 0..50 {
        refused.push(ask_with(served.at, "/v1/jobs", None, "Bearer eve").await.0);
    }
    assert!(refused[0] == 401 && refused[49] == 429, "{refused:?}");
    time_of_others(&served, "Bearer reader").await;
    served.end().await;
}

/// Finding M6: 400 half-open handshakes stalled all others.
#[tokio::test(flavor = "multi_thread")]
async fn half_open_handshakes_stall_nobody() {
    let lab = Lab::new().await;
    let mut raw = RawConfig::default();
    raw.northbound.tls = Some(controller::config::TlsFiles {
        certificate: file("switch.pem"),
        key: file("switch.key.pem"),
        client_roots: None,
        revoked: None,
    });
    raw.northbound.limits.connections_per_address = 100;
    let served = lab.served(&Config::try_from(raw).unwrap()).await;
    let mut held = Vec::new();
    for _ in 0..400 {
        let mut stream = TcpStream::connect(served.at).await.unwrap();
        // The beginning of a record of TLS.
        drop(stream.write_all(&[22, 3, 1]).await);
        held.push(stream);
    }
    let begun = Instant::now();
    let (status, answer) = ask(served.at, "/v1/jobs", None).await;
    assert!(status == 400 && answer.contains("ask with https"), "{answer}");
    println!("others waited {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5));
    served.end().await;
}

/// A client that asks and does not read holds its response for a bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_are_closed() {
    let lab = Lab::new().await;
    let served = lab.served(&config(|raw| raw.northbound.limits.stalled_ms = 500)).await;
    let mut stream = TcpStream::connect(served.at).await.unwrap();
    let get = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let pipelined = get.repeat(200);
    stream.write_all(pipelined.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let mut answer = Vec::new();
    drop(timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap());
    let whole = 200 * controller::northbound::openapi::openapi_text().len();
    println!("{} of {whole} bytes were sent", answer.len());
    assert!(answer.len() < whole, "{} bytes", answer.len());
    served.end().await;
}

/// Finding of the defaults: without tokens, every client of the address could do everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_tokens_is_closed() {
    let lab = Lab::new().await;
    let served = lab.served(&Config::default()).await;
    for (path, body) in [("/v1/jobs", None), ("/metrics", None), ("/v1/policy/apply", Some(APPLY))]
    {
        let (status, answer) = ask(served.at, path, body).await;
        assert_eq!(status, 401, "{path}: {answer}");
    }
    for (path, status) in [("/health", 200), ("/", 200), ("/page/main.js", 200), ("/x", 401)] {
        assert_eq!(ask(served.at, path, None).await.0, status, "{path}");
    }
    let mut grpc = TelemetryClient::connect(format!("http://{}", served.at)).await.unwrap();
    let refused = grpc.stream_reports(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused}");
    served.end().await;
}

/// Findings M1 and M3: reasons of a megabyte, or with escape sequences, went into the history.
#[tokio::test(flavor = "multi_thread")]
async fn texts_of_operators_are_short_and_plain() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let apply = async |author: &str, reason: &str| {
        let change =
            serde_json::json!({ "policy": { "file": "p.toml", "text": "fairness = 0.2" } });
        let order = serde_json::json!({ "change": change, "author": author, "reason": reason });
        ask(served.at, "/v1/policy/apply", Some(&order.to_string())).await
    };
    let cases = [
        ("eve", "x".repeat(1_025), "at most 1024"),
        ("eve", "a\u{1b}[2Jb".to_owned(), "control characters"),
        ("e\nve", String::new(), "control characters"),
    ];
    for (author, reason, expected) in cases {
        let (status, answer) = apply(author, &reason).await;
        assert!(status == 422 && answer.contains(expected), "{status} {answer}");
    }
    assert_eq!(apply("ada", "spines are replaced").await.0, 200);
    served.end().await;
}

/// Finding B2: eight idle streams of an operator's own token refused everything else, drains
/// included.
#[tokio::test(flavor = "multi_thread")]
async fn idle_streams_of_events_keep_nobody_from_a_drain() {
    let lab = Lab::new().await;
    let few = |raw: &mut RawConfig| raw.northbound.limits.requests_per_caller = 64;
    let served = lab.served(&config(few)).await;
    let mut streams = Vec::new();
    loop {
        let mut grpc = NorthboundClient::connect(format!("http://{}", served.at)).await.unwrap();
        match grpc.watch_events(WatchEventsRequest::default()).await {
            Ok(stream) => streams.push((grpc, stream)),
            Err(refused) => {
                assert!(refused.message().contains("requests_per_caller"), "{refused:?}");
                break;
            }
        }
    }
    // All but an eighth, and each has let go of its megabyte.
    assert_eq!(streams.len(), 56);
    let drain =
        r#"{"change": {"edits": [{"action": "drain", "name": "spine1"}]}, "author": "ada"}"#;
    let (status, answer) = ask(served.at, "/v1/policy/apply", Some(drain)).await;
    assert_eq!(status, 200, "{answer}");
    drop(streams);
    served.end().await;
}

/// Found by attack: one preview with a large budget kept the thread for 641 s, also when its caller
/// had left.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_ends_when_its_caller_leaves() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let jobs = (0..24_u16).map(|number| {
        let mut job = lab.job(&format!("job{number}"), 50_000 + number);
        job.compute_seconds = 0.02 + 0.003 * f64::from(number);
        job.flows[0].bytes = 2e8 + 3e7 * f64::from(number % 4);
        job.flows[0].src = NicId(u32::from(number % 2));
        job.flows[0].dst = NicId(2 + u32::from(number / 2 % 2));
        let hosts = [u32::from(number % 2), 2 + u32::from(number / 2 % 2)];
        job.gpus = hosts.map(|host| (HostId(host), 1)).into();
        job
    });
    served.controller.submit_event(StateEvent::JobsChanged(jobs.collect())).await.unwrap();
    let preview = async |events: u32| {
        let text = format!("search_events = {events}");
        let body = format!(r#"{{"policy": {{"file": "p.toml", "text": "{text}"}}}}"#);
        ask(served.at, "/v1/policy/preview", Some(&body)).await
    };
    let left = timeout(Duration::from_secs(2), preview(100_000_000)).await;
    assert!(left.is_err(), "the preview is no long one: {left:?}");
    let (status, answer) = timeout(DEADLINE, preview(0)).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    served.end().await;
}

/// Finding N6: ten thousand streams of reflection were in no budget, and took 196 MB.
#[tokio::test(flavor = "multi_thread")]
async fn idle_streams_of_reflection_count_as_requests() {
    let lab = Lab::new().await;
    let few = |raw: &mut RawConfig| raw.northbound.limits.requests_per_caller = 64;
    let served = lab.served(&config(few)).await;
    let mut streams = Vec::new();
    let refused = loop {
        let channel = Channel::from_shared(format!("http://{}", served.at)).unwrap();
        let mut reflection = ServerReflectionClient::new(channel.connect().await.unwrap());
        match reflection.server_reflection_info(tokio_stream::pending()).await {
            Ok(stream) => streams.push((reflection, stream)),
            Err(refused) => break refused,
        }
    };
    assert!(refused.message().contains("requests_per_caller"), "{refused:?}");
    assert_eq!(streams.len(), 56);
    drop(streams);
    served.end().await;
}

/// Finding N1: a megabyte of edits took 44 s of a thread that answers requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_has_a_bounded_number_of_edits() {
    let lab = Lab::new().await;
    let served = lab.served(&config(|_| {})).await;
    let edit = r#"{"action": "undrain", "name": "spine1"}"#;
    let edits = |number: usize| {
        let body = vec![edit; number].join(",");
        format!(r#"{{"change": {{"edits": [{body}]}}, "author": "ada"}}"#)
    };
    let (status, answer) = ask(served.at, "/v1/policy/apply", Some(&edits(1_001))).await;
    assert!(status == 422 && answer.contains("a request has at most 1000"), "{status} {answer}");
    let (status, answer) = ask(served.at, "/v1/policy/preview", Some(&edits(1_000))).await;
    assert_ne!(status, 503, "{answer}");
    assert!(!answer.contains("a request has at most"), "{answer}");
    served.end().await;
}
