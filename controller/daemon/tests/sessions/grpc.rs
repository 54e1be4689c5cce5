//! gRPC beside HTTP: each endpoint has its RPC, which answers the same; and who may ask either.

use std::net::SocketAddr;
use std::time::Duration;

use api::northbound as proto;
use api::northbound::northbound_client::NorthboundClient;
use controller::config::{AccessRole, RawToken};
use controller::northbound::openapi;
use controller::{Config, RawConfig, StateEvent};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::http::{ask, ask_with};
use crate::lab::{Lab, open_config};

async fn client(at: SocketAddr) -> NorthboundClient<Channel> {
    NorthboundClient::connect(format!("http://{at}")).await.unwrap()
}

/// What HTTP answers.
async fn http(at: SocketAddr, path: &str, body: Option<&str>) -> Value {
    let (status, answer) = ask(at, path, body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

/// The fields of `http` are in `grpc`, with the same values: documents as text, nothing as nothing.
fn assert_same_fields(http: &Value, grpc: &Value, place: &str) {
    match (http, grpc) {
        (_, Value::Object(fields)) if fields.len() == 1 && fields.contains_key("json") => {
            let text = fields["json"].as_str().unwrap();
            assert_eq!(&serde_json::from_str::<Value>(text).unwrap(), http, "{place}");
        }
        (Value::Object(http), Value::Object(grpc)) => {
            for (field, value) in http {
                let place = format!("{place}.{field}");
                let message = grpc.get(field).unwrap_or_else(|| panic!("{place} is missing"));
                assert_same_fields(value, message, &place);
            }
        }
        (Value::Array(http), Value::Array(grpc)) => {
            assert_eq!(http.len(), grpc.len(), "{place}");
            for (http, grpc) in http.iter().zip(grpc) {
                assert_same_fields(http, grpc, place);
            }
        }
        // It grows between the two.
        _ if place.ends_with("_age_seconds") => assert!(http.is_number() && grpc.is_number()),
        (Value::Number(http), Value::Number(grpc)) => {
            assert_eq!(http.as_f64(), grpc.as_f64(), "{place}");
        }
        (http, grpc) => assert_eq!(http, grpc, "{place}"),
    }
}

#[test]
fn each_endpoint_has_its_rpc() {
    let proto = include_str!("../../../api/proto/northbound.proto");
    let document = openapi::openapi_document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for operation in operations.as_object().unwrap().values() {
            let rpc = operation["operationId"].as_str().unwrap();
            assert!(proto.contains(&format!("rpc {rpc}(")), "{path} has no rpc {rpc}");
        }
    }
}

/// Asks both for the same, and compares; the answer over gRPC may be a field of its message.
macro_rules! same {
    ($at:ident, $path:literal, $body:expr, $asked:expr, $field:literal) => {
        let message = json!($asked.await.unwrap().into_inner());
        let message = if $field.is_empty() { &message } else { &message[$field] };
        assert_same_fields(&http($at, $path, $body).await, message, $path);
    };
}

fn name(name: &str) -> Request<proto::ExplainJobRequest> {
    Request::new(proto::ExplainJobRequest { name: name.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_is_answered_as_over_http() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let at = served.at;
    let mut grpc = client(at).await;
    same!(at, "/v1/jobs", None, grpc.list_jobs(()), "jobs");
    same!(at, "/v1/links", None, grpc.list_links(()), "links");
    same!(at, "/v1/switches", None, grpc.list_switches(()), "switches");
    same!(at, "/v1/queues", None, grpc.list_queues(()), "queues");
    same!(at, "/v1/learned-flows", None, grpc.list_learned_flows(()), "flows");
    same!(at, "/v1/fabric", None, grpc.get_fabric(()), "");
    same!(at, "/v1/fabric-graph", None, grpc.get_fabric_graph(()), "");
    same!(at, "/v1/link-loads", None, grpc.get_link_loads(()), "");
    let flows_of = proto::ListJobFlowsRequest { name: "a".to_owned() };
    same!(at, "/v1/job-flows/a", None, grpc.list_job_flows(flows_of), "flows");
    same!(at, "/v1/plan", None, grpc.get_plan(()), "");
    same!(at, "/v1/planner-input", None, grpc.get_planner_input(()), "");
    same!(at, "/v1/cluster", None, grpc.get_cluster(()), "");
    same!(at, "/v1/findings", None, grpc.list_findings(()), "findings");
    let page = proto::GetUtilizationRequest { samples: Some(9), seconds: None };
    same!(at, "/v1/utilization?samples=9", None, grpc.get_utilization(page), "");
    same!(at, "/v1/explanations/a", None, grpc.explain_job(name("a")), "");
    let unknown = grpc.explain_job(name("aa")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("did you mean `a`?"), "{unknown}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_does_as_over_http() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let at = served.at;
    let mut grpc = client(at).await;
    let text = "[[job]]\nmatch = 'b'\nlevel = 0\n[[job]]\nmatch = 'a'\nexempt = true\n";
    let policy = proto::DocumentFile { file: "p.toml".to_owned(), text: text.to_owned() };
    let wish = proto::PreviewPolicyRequest {
        policy: Some(policy),
        edits: vec![proto::PolicyEdit {
            action: "set".to_owned(),
            name: "fairness".to_owned(),
            value: Some("0.25".to_owned()),
        }],
        ..proto::PreviewPolicyRequest::default()
    };
    let body = json!(wish).to_string();
    same!(at, "/v1/policy/preview", Some(&body), grpc.preview_policy(wish.clone()), "");
    let order = proto::ApplyPolicyRequest {
        change: Some(wish),
        author: "ada".to_owned(),
        reason: String::new(),
        confirm_within_seconds: Some(600),
        force: false,
    };
    let done = grpc.apply_policy(order).await.unwrap().into_inner();
    assert!(done.applied && done.trial_until_ms.is_some(), "{done:?}");
    same!(at, "/v1/policy", None, grpc.get_policy(()), "");
    let done = grpc.confirm_policy(proto::ConfirmPolicyRequest::default()).await.unwrap();
    assert_eq!(done.into_inner().trial_until_ms, None);
    let done = grpc.rollback_policy(proto::RollbackPolicyRequest::default()).await.unwrap();
    assert_eq!(done.into_inner().revision, 3);
    same!(
        at,
        "/v1/policy/revisions",
        None,
        grpc.list_policy_revisions(proto::ListPolicyRevisionsRequest::default()),
        "revisions"
    );
    let lead = proto::TakeLeadRequest { author: "ada".to_owned(), reason: String::new() };
    assert!(grpc.take_lead(lead).await.unwrap().into_inner().leads);
    let nobody = grpc.confirm_policy(proto::ConfirmPolicyRequest::default()).await.unwrap_err();
    assert_eq!(nobody.code(), Code::FailedPrecondition);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_those_of_http_and_go_on() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let at = served.at;
    let mut grpc = client(at).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    let kept = loop {
        let kept = http(at, "/v1/events", None).await;
        if kept["events"].as_array().is_some_and(|events| !events.is_empty()) {
            break kept;
        }
        assert!(Instant::now() < deadline, "nothing has happened: {kept}");
    };
    let mut stream =
        grpc.watch_events(proto::WatchEventsRequest::default()).await.unwrap().into_inner();
    let page = stream.message().await.unwrap().unwrap();
    assert_eq!(json!(page.run), kept["run"]);
    let events = kept["events"].as_array().unwrap();
    assert!(page.events.len() >= events.len());
    for (http, grpc) in events.iter().zip(&page.events) {
        let mut grpc = json!(grpc);
        let kind = http["kind"].as_str().unwrap();
        let fields = grpc["kind"][kind].take();
        let fields = fields.as_object().unwrap_or_else(|| panic!("{kind}: {grpc}"));
        let mut flat = grpc.as_object().unwrap().clone();
        flat.extend(fields.clone());
        flat.insert("kind".to_owned(), kind.into());
        assert_same_fields(http, &Value::Object(flat), kind);
    }
    served.controller.submit_event(StateEvent::JobsChanged(Vec::new())).await.unwrap();
    let mut left = 0;
    while left < 2 {
        let page = stream.message().await.unwrap().unwrap();
        let is_left =
            |event: &&proto::Event| matches!(event.kind, Some(proto::event::Kind::JobLeft(_)));
        left += page.events.iter().filter(is_left).count();
    }
    let since = Some("soon".to_owned());
    let refused = grpc.watch_events(proto::WatchEventsRequest { since }).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services() {
    let lab = Lab::new().await;
    let config = guarded(|_| {});
    let served = lab.served(&config).await;
    let channel = Channel::from_shared(format!("http://{}", served.at)).unwrap();
    let channel = channel.connect().await.unwrap();
    let mut reflection = ServerReflectionClient::new(channel);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut asked = Request::new(tokio_stream::iter([list]));
    let bob = MetadataValue::from_static("Bearer bob");
    asked.metadata_mut().insert("authorization", bob);
    let mut answers = reflection.server_reflection_info(asked).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("{answer:?}");
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["crux.northbound.v1.Northbound", "crux.telemetry.v1.Telemetry"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_has_the_name_of_the_token() {
    let lab = Lab::new().await;
    let served = lab.served(&guarded(|_| {})).await;
    let at = served.at;
    let order =
        r#"{"change": {"policy": {"file": "p.toml", "text": "fairness = 0.2"}}, "author": "eve"}"#;
    let (status, answer) = ask_with(at, "/v1/policy/apply", Some(order), "Bearer ada").await;
    assert_eq!(status, 200, "{answer}");
    let mut asked = Request::new(proto::RollbackPolicyRequest::default());
    let ada = MetadataValue::from_static("Bearer ada");
    asked.metadata_mut().insert("authorization", ada);
    client(at).await.rollback_policy(asked).await.unwrap();
    let (_, history) = ask_with(at, "/v1/policy/revisions", None, "Bearer bob").await;
    let history: Vec<Value> = serde_json::from_str(&history).unwrap();
    let who = history.iter().map(|revision| &revision["revision"]["metadata"]["author"]);
    let who: Vec<_> = who.take(2).collect();
    assert_eq!(who, ["ada", "ada (says eve)"], "{history:?}");
    served.end().await;
}

/// Somebody whose token is this.
pub(crate) fn token(name: &str, role: AccessRole, token: &[u8]) -> RawToken {
    let digest = Sha256::digest(token);
    RawToken {
        name: name.to_owned(),
        role,
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        hosts: Vec::new(),
        tenants: Vec::new(),
    }
}

fn guarded(change: impl Fn(&mut RawConfig)) -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.tokens =
        vec![token("ada", AccessRole::Write, b"ada"), token("bob", AccessRole::Read, b"bob")];
    change(&mut raw);
    Config::try_from(raw).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_missing_role() {
    let lab = Lab::new().await;
    let config = guarded(|raw| raw.northbound.body_max = 1_000);
    let served = lab.served(&config).await;
    let at = served.at;
    let say = Some(r#"{"author": "x"}"#);
    let cases = [
        ("/v1/jobs", None, "", 401, "token of role `read`"),
        ("/v1/jobs", None, "Bearer eve", 401, "unknown token"),
        ("/v1/jobs", None, "Bearer bob", 200, r#""id":"a""#),
        ("/metrics", None, "", 401, "Authorization: Bearer"),
        ("/v1/policy/confirm", say, "Bearer bob", 403, "`bob` may read"),
        ("/v1/policy/confirm", say, "Bearer ada", 422, "no revision is on trial"),
        ("/v1/jobs", None, "Basic eDpib2I=", 401, "Authorization: Bearer"),
        ("/health", None, "", 200, "{}"),
        ("/ready", None, "", 200, "{}"),
    ];
    for (path, body, token, status, expected) in cases {
        let (answered, answer) = ask_with(at, path, body, token).await;
        assert_eq!(answered, status, "{path} {token}: {answer}");
        assert!(answer.contains(expected), "{path} {token}: {answer}");
    }
    let silent = Instant::now().checked_sub(Duration::from_secs(6)).unwrap();
    served.controller.heartbeat().record_answer(silent);
    for (path, status) in [("/health", 503), ("/ready", 503)] {
        assert_eq!(ask_with(at, path, None, "").await.0, status, "{path}");
    }
    served.controller.heartbeat().record_answer(Instant::now());
    assert_eq!(ask_with(at, "/health", None, "").await.0, 200);
    let long = format!(r#"{{"author": "{}"}}"#, "x".repeat(2_000));
    let (status, _) = ask_with(at, "/v1/policy/confirm", Some(&long), "Bearer ada").await;
    assert_eq!(status, 413);

    let mut grpc = client(at).await;
    let missing = grpc.list_jobs(()).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    let mut asked = Request::new(proto::ConfirmPolicyRequest::default());
    let bob = MetadataValue::from_static("Bearer bob");
    asked.metadata_mut().insert("authorization", bob);
    let lacks = grpc.confirm_policy(asked).await.unwrap_err();
    assert_eq!(lacks.code(), Code::PermissionDenied, "{lacks}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_rate_limit_are_refused() {
    let lab = Lab::new().await;
    let config = guarded(|raw| {
        raw.northbound.tokens.clear();
        raw.northbound.anyone = true;
        raw.northbound.requests_per_second = 1;
    });
    let served = lab.served(&config).await;
    let mut answered = Vec::new();
    for _ in 0..20 {
        answered.push(ask(served.at, "/v1/policy", None).await.0);
    }
    assert_eq!(answered[0], 200);
    assert!(answered.contains(&429), "{answered:?}");
    served.end().await;
}
