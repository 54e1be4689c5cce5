//! The HTTP interface as it is on the wire: every endpoint answers, and what monitoring asks for
//! is there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use controller::northbound::openapi;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Lab, open_config};

/// Status and body of an answer.
pub(crate) async fn ask(address: SocketAddr, path: &str, body: Option<&str>) -> (u16, String) {
    ask_with(address, path, body, "").await
}

/// Status and body of an answer to a request with this authorization.
pub(crate) async fn ask_with(
    address: SocketAddr,
    path: &str,
    body: Option<&str>,
    authorization: &str,
) -> (u16, String) {
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let length = body.len();
    let shown = match authorization {
        "" => String::new(),
        shown => format!("authorization: {shown}\r\n"),
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         accept: application/json\r\ncontent-type: application/json\r\n\
         {shown}content-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

/// Names that begin with `crux_` in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("crux_")).collect()
}

const WISH: &str = r#"{"policy": {"file": "p.toml", "text": "fairness = 0.2"}}"#;

const ORDER: &str = r#"{"change": {"policy": {"file": "p.toml", "text": "fairness = 0.2"}},
    "author": "ada", "confirm_within_seconds": 600}"#;

const NO_FABRIC: &str = r#"{"fabric": {"file": "nothing.toml", "text": "links = 3"}}"#;

const NO_FABRIC_ORDER: &str =
    r#"{"fabric": {"file": "nothing.toml", "text": "links = 3"}, "author": "ada"}"#;

/// A path, the request, and a part of the answer.
const CASES: [(&str, Option<&str>, &str); 31] = [
    ("/v1/jobs", None, r#""id":"a""#),
    ("/v1/switches", None, r#""mastership":"primary""#),
    ("/v1/links", None, r#""link":"leaf1:"#),
    ("/v1/fabric", None, r#""tier":"leaf""#),
    ("/v1/fabric/preview", Some(NO_FABRIC), "nothing.toml"),
    ("/v1/fabric/apply", Some(NO_FABRIC_ORDER), "nothing.toml"),
    ("/v1/fabric/rollback", Some(r#"{"author": "ada"}"#), "no other fabric was in force"),
    ("/v1/fabric/revisions", None, r#""number":1"#),
    ("/v1/fabric-graph", None, r#""tiers":["leaf""#),
    ("/v1/queues", None, "[]"),
    ("/v1/link-loads", None, r#""jobs":["a","b"]"#),
    ("/v1/job-flows/a", None, r#""identity":"announced""#),
    ("/v1/learned-flows", None, "[]"),
    ("/v1/planner-input", None, r#""down_links":[]"#),
    ("/v1/plan", None, r#""generation""#),
    ("/v1/explanations/a", None, r#""contenders":["b"]"#),
    ("/v1/explanations/h1%3Eh3:50001", None, r#""chosen":true"#),
    ("/v1/findings", None, "northbound.anyone"),
    ("/v1/utilization", None, r#""total":{"name":"""#),
    ("/v1/policy/preview", Some(WISH), "fairness: 0.0 -> 0.2"),
    ("/v1/policy/apply", Some(ORDER), r#""applied":true"#),
    ("/v1/policy", None, r#""number":2"#),
    ("/v1/policy/confirm", Some(r#"{"author": "ada"}"#), r#""trial_until_ms":null"#),
    ("/v1/policy/rollback", Some(r#"{"author": "ada"}"#), r#""revision":3"#),
    ("/v1/policy/revisions", None, "fairness: 0.2 -> 0.0"),
    ("/v1/cluster", None, r#""leads":true"#),
    ("/v1/cluster/lead", Some(r#"{"author": "ada"}"#), r#""controller":1"#),
    ("/v1/cluster/step-down", Some(r#"{"author": "ada"}"#), "without etcd"),
    ("/v1/audit-records", None, r#""action":"policy_confirmed""#),
    ("/v1/events", None, r#""kind":"job_arrived""#),
    ("/openapi.json", None, r#""openapi": "3.1.0""#),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_answers() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let at = served.at;

    for (path, body, expected) in CASES {
        let (status, answer) = ask(at, path, body).await;
        let wanted = match path {
            // No etcd elects another one; and the document is no fabric.
            "/v1/cluster/step-down" | "/v1/fabric/preview" | "/v1/fabric/apply" => 422,
            "/v1/fabric/rollback" => 404,
            _ => 200,
        };
        assert!(status == wanted && answer.contains(expected), "{path}: {status} {answer}");
    }
    let documented = openapi::openapi_document();
    let documented: BTreeSet<String> =
        documented["paths"].as_object().unwrap().keys().cloned().collect();
    let asked = CASES.iter().map(|(path, ..)| {
        let by_name = ["/v1/explanations/", "/v1/job-flows/"];
        let parent = by_name.into_iter().find(|parent| path.starts_with(parent));
        parent.map_or_else(|| (*path).to_owned(), |parent| format!("{parent}{{name}}"))
    });
    let mut asked: BTreeSet<String> = asked.filter(|path| path.starts_with("/v1")).collect();
    // It needs a store.
    asked.insert("/v1/state-backup".to_owned());
    let (status, answer) = ask(at, "/v1/state-backup", None).await;
    assert!(status == 404 && answer.contains("store.path"), "{status} {answer}");
    assert_eq!(asked, documented);

    let (status, page) = ask(at, "/v1/policy/revisions?before=3&limit=1", None).await;
    let page: Vec<Value> = serde_json::from_str(&page).unwrap();
    assert_eq!((status, page.len(), &page[0]["revision"]["number"]), (200, 1, &2.into()));
    let (status, refused) = ask(at, "/v1/policy/revisions?limit=many", None).await;
    assert!(status == 422 && refused.contains("`limit=many` is not NAME=NUMBER"), "{refused}");

    let (status, refused) = ask(at, "/v1/explanations/aa", None).await;
    assert!(status == 404 && refused.contains("did you mean `a`?"), "{refused}");
    let (status, refused) = ask(at, "/v1/policy/preview", Some("{}x")).await;
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!((status, &refused["findings"][0]["about"]), (422, &Value::from("request")));
    let (status, refused) = ask(at, "/v1/events?since=x", None).await;
    assert!(status == 422 && refused.contains("invalid position `x`"), "{refused}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_and_loads_nothing_from_elsewhere() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let at = served.at;
    let (status, page) = ask(at, "/", None).await;
    assert_eq!(status, 200);
    let files = page.split('"').filter(|text| text.starts_with("/page/"));
    let mut files: Vec<String> = files.map(str::to_owned).collect();
    assert_eq!(files.len(), 13, "{page}");
    let mut seen = 0;
    while let Some(path) = files.get(seen).cloned() {
        seen += 1;
        let (status, text) = ask(at, &path, None).await;
        assert_eq!(status, 200, "{path}");
        assert!(
            !text.contains("http://")
                || path.ends_with("elements.js")
                || path.ends_with("chart.js"),
            "{path}"
        );
        let imported = text.split("from \"./").skip(1);
        let imported = imported.filter_map(|text| text.split('"').next());
        for name in imported {
            let path = format!("/page/{name}");
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    assert_eq!(files.len(), 13, "{files:?}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_none_is_an_error() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    for path in ["/nonsense", "/healthz", "/v1/job"] {
        let (status, text) = ask(served.at, path, None).await;
        let expected = format!("there is no {path}; /openapi.json lists");
        assert!(status == 404 && text.contains(&expected), "{status} {text}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn monitoring_uses_existing_metrics() {
    let lab = Lab::new().await;
    let served = lab.served(&open_config()).await;
    let (_, text) = ask(served.at, "/metrics", None).await;
    let has = metrics(&text);
    assert!(text.contains("crux_switch_verified{switch=\"leaf1\"} 1"), "{text}");
    assert!(text.contains("crux_job_level{job=\"a\"}"), "{text}");
    let wanted = [
        include_str!("../../../../docs/monitoring/dashboard.json"),
        include_str!("../../../../docs/monitoring/alerts.yml"),
    ];
    for wanted in wanted {
        let missing: Vec<_> = metrics(wanted).difference(&has).copied().collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    served.end().await;
}
