//! Clients of schedulers against servers that are a part of the test: an API server of Kubernetes
//! over TLS, and a slurmrestd on a Unix socket.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use agent::job_spool::JobSpool;
use agent::kubernetes::{ApiAccess, PodNaming, PodWatchSettings, PodWatcher};
use agent::rest_client::{RestClient, TlsIdentity};
use agent::slurm_rest::{SlurmRest, SlurmRestError, SlurmUser};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use planner::JobDocument;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;

/// An authority, and certificates for a server and a client that it has issued.
struct Certificates {
    authority: String,
    acceptor: TlsAcceptor,
    client: (String, String),
}

fn issue_certificates() -> Certificates {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::from_params(&params, &key);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, server_key) = issue("127.0.0.1");
    let (client, client_key) = issue("watcher");
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![server.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der())),
        );
    Certificates {
        authority: authority.pem(),
        acceptor: TlsAcceptor::from(Arc::new(config.unwrap())),
        client: (client.pem(), client_key.serialize_pem()),
    }
}

fn response(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Answers lists with one pod if the token is right, and lets watches wait.
async fn serve_pods(listener: TcpListener, acceptor: TlsAcceptor) {
    let pod = json!({
        "metadata": { "name": "a", "namespace": "ml", "uid": "1" },
        "spec": { "nodeName": "h1", "containers": [
            { "resources": { "limits": { "nvidia.com/gpu": "8" } } },
        ] },
    });
    let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [pod] }).to_string();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap_or_default();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let answer = match request.contains("authorization: Bearer secret\r\n") {
            true if request.contains("watch=1") => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    drop(stream);
                });
                continue;
            }
            true => response(200, &list),
            false => response(401, "Unauthorized"),
        };
        drop(stream.write_all(answer.as_bytes()).await);
        drop(stream.shutdown().await);
    }
}

fn kubeconfig(address: &str, certificates: &Certificates, token: &str) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    let (certificate, key) = &certificates.client;
    json!({
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": data(&certificates.authority),
        } }],
        "users": [{ "name": "u", "user": {
            "tokenFile": token,
            "client-certificate-data": data(certificate),
            "client-key-data": data(key),
        } }],
    })
    .to_string()
}

async fn wait_recorded(spool: &JobSpool, expected: usize) -> Vec<JobDocument> {
    for _ in 0..1_000 {
        let jobs = spool.read_jobs().unwrap().jobs;
        if jobs.len() == expected {
            return jobs;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never {expected} jobs");
}

#[tokio::test]
async fn pods_are_watched_over_tls_with_a_certificate_and_a_token_that_is_renewed() {
    let certificates = issue_certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve_pods(listener, certificates.acceptor.clone()));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "expired").unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, kubeconfig(&address, &certificates, "token")).unwrap();
    let spool = JobSpool::new(&folder.path().join("jobs"));
    let settings = PodWatchSettings {
        access: ApiAccess::from_kubeconfig(&config, None).unwrap(),
        namespace: None,
        selector: String::new(),
        naming: PodNaming {
            cluster: "k8s".to_owned(),
            job_label: None,
            node_domain: None,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            gpus_per_pod: 0,
        },
        watch_time: Duration::from_secs(60),
    };
    let watcher = tokio::spawn(PodWatcher::new(settings, spool.clone()).run());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(spool.read_jobs().unwrap().jobs.is_empty(), "the token is refused");
    std::fs::write(&token, "secret\n").unwrap();
    assert_eq!(wait_recorded(&spool, 1).await[0].id, "k8s.ml.a");
    watcher.abort();
    // Another authority is not trusted.
    let other = issue_certificates();
    let tls = TlsIdentity { authorities: other.authority, client: None };
    let client = RestClient::new(&format!("https://{address}"), &tls).unwrap();
    let error = client.get_body("/api/v1/pods", &[]).await.unwrap_err().to_string();
    assert!(error.contains("cannot connect"), "{error}");
}

/// Serves these bodies, one for each request; a request without the token is refused.
fn serve_slurm(socket: &Path, bodies: Vec<String>) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for body in bodies {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let is_known = request.contains("x-slurm-user-name: crux\r\n")
                && request.contains("x-slurm-user-token: jwt\r\n");
            let answer = if is_known { response(200, &body) } else { response(401, "") };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

fn listing(numbers: &[u64]) -> String {
    let job = |number: &u64| {
        json!({
            "job_id": number, "job_state": ["RUNNING"], "nodes": "h[1-2]", "account": "ml",
            "tres_alloc_str": "cpu=2,gres/gpu=16,node=2",
        })
    };
    json!({ "jobs": numbers.iter().map(job).collect::<Vec<_>>() }).to_string()
}

#[tokio::test]
async fn records_follow_what_slurmrestd_lists() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, token) = (folder.path().join("socket"), folder.path().join("token"));
    std::fs::write(&token, "SLURM_JWT=jwt\n").unwrap();
    let description = json!({ "paths": { "/slurm/v0.0.41/jobs/": {} } }).to_string();
    let failed = json!({ "errors": [{ "error": "slurmctld is down" }], "jobs": [] }).to_string();
    serve_slurm(
        &socket,
        [
            description.clone(),
            listing(&[7, 8]),
            // Job 8 ended before it was recorded, so its epilog found nothing to remove.
            listing(&[7]),
            listing(&[7]),
            failed,
            description,
            listing(&[]),
        ]
        .to_vec(),
    );
    let spool = JobSpool::new(&folder.path().join("jobs"));
    let recorded = |id: &str| JobDocument { id: id.to_owned(), ..JobDocument::default() };
    spool.add_job(&recorded("slurm-6")).unwrap();
    spool.add_job(&recorded("k8s.ml.a")).unwrap();
    let client = RestClient::new(&format!("unix:{}", socket.display()), &TlsIdentity::default());
    let user = SlurmUser { name: "crux".to_owned(), token_file: token };
    let mut rest = SlurmRest::new(client.unwrap(), Some(user), None);
    let ids = || -> Vec<String> {
        spool.read_jobs().unwrap().jobs.into_iter().map(|job| job.id).collect()
    };
    let change = rest.sync_spool(&spool).await.unwrap().change;
    assert_eq!(change.removed, ["slurm-6", "slurm-8"]);
    assert_eq!(ids(), ["k8s.ml.a", "slurm-7"]);
    let gpus = &spool.read_jobs().unwrap().jobs[1].gpus;
    assert_eq!(*gpus, [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into());
    assert!(rest.sync_spool(&spool).await.unwrap().change.added.is_empty());
    // An error of Slurm ends no job.
    let error = rest.sync_spool(&spool).await.unwrap_err();
    assert!(matches!(error, SlurmRestError::Slurm(_)), "{error}");
    assert_eq!(ids(), ["k8s.ml.a", "slurm-7"]);
    assert_eq!(rest.sync_spool(&spool).await.unwrap().change.removed, ["slurm-7"]);
    assert_eq!(ids(), ["k8s.ml.a"]);
}
