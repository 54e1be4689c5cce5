//! An etcd that does not let everybody in: it has users, or asks for certificates.
//!
//! The server is [`EtcdConfig`]; without it, every test here says so and passes.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use controller::etcd::ClusterNetwork;
use controller::etcd::{ClusterSnapshot, ClusterStore, EtcdError};
use controller::southbound::GrpcNetwork;
use controller::southbound::write_permit::WritePermit;
use controller::{Controller, RawConfig};
use planner::Policy;
use tempfile::NamedTempFile;
use tokio::time::{Instant, timeout};

use crate::cluster::{LEASE_S, LEASE_TERM, leads, submit_jobs, until};
use crate::etcd::Etcd;
use crate::http::ask;
use crate::lab::{DEADLINE, Lab, config, verified};
use crate::secured::file;

/// What makes `crux` with password `secret` a user of an etcd, who may do what a controller does:
/// `/crux/` to `/crux0` are the keys below `/crux`.
const USERS: [(&str, &str); 7] = [
    ("user/add", r#"{"name": "root", "password": "root"}"#),
    ("user/grant", r#"{"user": "root", "role": "root"}"#),
    ("user/add", r#"{"name": "crux", "password": "secret"}"#),
    ("role/add", r#"{"name": "crux"}"#),
    (
        "role/grant",
        r#"{"name": "crux",
            "perm": {"permType": "READWRITE", "key": "L2NydXgv", "range_end": "L2NydXgw"}}"#,
    ),
    ("user/grant", r#"{"user": "crux", "role": "crux"}"#),
    ("enable", "{}"),
];

/// An etcd that knows only `root` and `crux`, and forgets a token after a second.
async fn with_users() -> Option<Etcd> {
    let quick = ["--auth-token-ttl", "1", "--bcrypt-cost", "4"];
    let etcd = Etcd::start_with("http", &quick).await?;
    let at: SocketAddr = etcd.client.parse().unwrap();
    let served = async {
        while ask(at, "/v3/kv/range", Some(r#"{"key": "eA=="}"#)).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, served).await.unwrap();
    for (call, body) in USERS {
        let (status, answer) = ask(at, &format!("/v3/auth/{call}"), Some(body)).await;
        assert_eq!(status, 200, "{call}: {answer}");
    }
    Some(etcd)
}

fn password(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{text}").unwrap();
    file
}

/// Connects and reads.
async fn read(etcd: &Etcd, change: impl Fn(&mut RawConfig)) -> Result<ClusterSnapshot, EtcdError> {
    let config = config(|raw| {
        asking(etcd, raw);
        change(raw);
    });
    let calls = GrpcNetwork.connect_store(&etcd.client, &config.etcd.unwrap()).await?;
    calls.read_snapshot().await
}

fn asking(etcd: &Etcd, raw: &mut RawConfig) {
    raw.etcd.endpoints = vec![etcd.client.clone()];
    raw.etcd.lease_s = LEASE_S;
    raw.etcd.deadline_ms = 800;
}

#[tokio::test]
async fn leadership_survives_expired_tokens() {
    let Some(etcd) = with_users().await else {
        return;
    };
    let secret = password("secret");
    let lab = Lab::new().await;
    let known = config(|raw| {
        asking(&etcd, raw);
        raw.etcd.user = Some("crux".to_owned());
        raw.etcd.password = Some(secret.path().to_owned());
    });
    let controller = Controller::start(known, lab.fabric.clone(), Policy::default());
    let controller = controller.await.unwrap();
    until(&controller, leads).await;
    assert!(submit_jobs(&lab, &controller, 2).await);
    // Far longer than etcd remembers a token that nobody shows.
    let later = Instant::now() + Duration::from_secs(4) + LEASE_TERM;
    until(&controller, |permit: &WritePermit| permit.expires_at() > Some(later)).await;
    assert!(submit_jobs(&lab, &controller, 1).await, "with another token");
    verified(&lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test]
async fn login_errors_name_the_missing_setting() {
    let Some(etcd) = with_users().await else {
        return;
    };
    let (right, wrong) = (password("secret"), password("wrong"));
    let known = |file: &NamedTempFile, prefix: &str| {
        let (file, prefix) = (file.path().to_owned(), prefix.to_owned());
        move |raw: &mut RawConfig| {
            raw.etcd.user = Some("crux".to_owned());
            raw.etcd.password = Some(file.clone());
            raw.etcd.prefix.clone_from(&prefix);
        }
    };
    let cases = [
        (read(&etcd, |_| {}).await, "set etcd.user and etcd.password"),
        (read(&etcd, known(&wrong, "/crux")).await, "login of `crux`"),
        (read(&etcd, known(&right, "/other")).await, "readwrite"),
    ];
    for (answer, expected) in cases {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    read(&etcd, known(&right, "/crux")).await.unwrap();
}

#[tokio::test]
async fn etcd_admits_clients_with_a_certificate() {
    let [certificate, key, roots] = ["switch.pem", "switch.key.pem", "roots.pem"].map(file);
    let secured = [
        "--client-cert-auth",
        "--cert-file",
        certificate.to_str().unwrap(),
        "--key-file",
        key.to_str().unwrap(),
        "--trusted-ca-file",
        roots.to_str().unwrap(),
    ];
    let Some(etcd) = Etcd::start_with("https", &secured).await else {
        return;
    };
    let lab = Lab::new().await;
    let known = config(|raw| {
        asking(&etcd, raw);
        raw.etcd.tls.ca = Some(file("roots.pem"));
        raw.etcd.tls.cert = Some(file("controller.pem"));
        raw.etcd.tls.key = Some(file("controller.key.pem"));
    });
    let controller = Controller::start(known, lab.fabric.clone(), Policy::default());
    let controller = controller.await.unwrap();
    until(&controller, leads).await;
    assert!(submit_jobs(&lab, &controller, 1).await);
    controller.shutdown().await;
    let strangers: [fn(&mut RawConfig); 2] =
        [|raw| raw.etcd.tls.ca = Some(file("roots.pem")), |_| {}];
    for stranger in strangers {
        assert!(read(&etcd, stranger).await.is_err());
    }
}
