//! Clients of schedulers against servers that are a part of the test: an API server of Kubernetes
//! over TLS, and a slurmrestd on a Unix socket; and the scripts that Slurm runs.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
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

#[tokio::test]
async fn components_are_one_record_and_a_problem_is_returned_once_for_each_job() {
    let job = |number: u64, nodes: &str, gpus: &str, comment: &str, leader: u64| {
        json!({
            "job_id": number, "job_state": ["RUNNING"], "nodes": nodes, "comment": comment,
            "tres_alloc_str": format!("cpu=2,{gpus}"),
            "het_job_id": { "set": leader > 0, "infinite": false, "number": leader },
        })
    };
    let listed = |jobs: &[serde_json::Value]| json!({ "jobs": jobs }).to_string();
    let processors = job(60, "c[1-9]", "node=9", "", 0);
    let broken = job(61, "c[1", "gres/gpu=1", "", 0);
    let wrong = job(62, "d[1-2]", "gres/gpu:b200=16", "crux.flop=1e15 crux.bytes=a-lot", 0);
    let components =
        [job(63, "r[0-1]s[0-1]", "gres/gpu=32", "", 63), job(64, "e4", "gres/gpu:a=4", "", 63)];
    let all = listed(&[&[processors.clone(), broken, wrong], &components[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let (socket, token) = (folder.path().join("socket"), folder.path().join("token"));
    std::fs::write(&token, "jwt").unwrap();
    let description = json!({ "paths": { "/slurm/v0.0.40/jobs/": {} } }).to_string();
    let left = listed(&[processors, components[1].clone()]);
    serve_slurm(&socket, [description, all.clone(), all.clone(), all, left.clone(), left].to_vec());
    let spool = JobSpool::new(&folder.path().join("jobs"));
    // What a prolog recorded of one component.
    let mut recorded = JobDocument { id: "slurm-63".to_owned(), ..JobDocument::default() };
    recorded.gpus.insert("e4".to_owned(), 8);
    spool.add_job(&recorded).unwrap();
    let client = RestClient::new(&format!("unix:{}", socket.display()), &TlsIdentity::default());
    let user = SlurmUser { name: "crux".to_owned(), token_file: token };
    let mut rest = SlurmRest::new(client.unwrap(), Some(user), None);
    let first = rest.sync_spool(&spool).await.unwrap();
    assert_eq!(first.change.added, ["slurm-62", "slurm-63"]);
    let [refused, ignored] = &first.problems[..] else { panic!("{first:?}") };
    assert!(refused.starts_with("job 61 is not recorded: invalid host list"), "{refused}");
    assert!(ignored.starts_with("slurm-62: ignored crux.bytes=a-lot: expected"), "{ignored}");
    let found = spool.read_jobs().unwrap();
    assert_eq!(found.jobs[0].flop_per_iteration, Some(1e15));
    assert_eq!((found.jobs[1].gpus["r1s0"], found.jobs[1].gpus["e4"]), (8, 4));
    assert_eq!(found.problems.len(), 1, "agents of the folder log what was ignored");
    let again = rest.sync_spool(&spool).await.unwrap();
    assert_eq!((again.change.added.len(), again.problems.len()), (0, 0), "{again:?}");
    // The first component has ended.
    let last = rest.sync_spool(&spool).await.unwrap();
    assert_eq!(
        (last.change.added, last.change.removed),
        (vec!["slurm-63".to_owned()], vec!["slurm-62".to_owned()])
    );
    assert_eq!(spool.read_jobs().unwrap().jobs[0].gpus.len(), 1);
}

#[test]
fn the_shipped_prolog_records_what_slurm_gives() {
    let folder = tempfile::tempdir().unwrap();
    let (crux, spool) = (folder.path().join("crux"), folder.path().join("jobs"));
    let agent = env!("CARGO_BIN_EXE_crux-agent");
    std::fs::write(&crux, format!("#!/bin/sh\nshift\nexec {agent} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&crux, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let run = |script: &str, variables: &[(&str, &str)]| {
        let mut command = Command::new("sh");
        command.arg(format!("{}/slurm/{script}.sh", env!("CARGO_MANIFEST_DIR"))).env_clear();
        command.env("PATH", &path).env("CRUX_SPOOL", &spool).env("SLURM_NODELIST", "n[4-5]");
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let jobs = JobSpool::new(&spool).read_jobs().unwrap().jobs;
        let gpus = jobs.iter().flat_map(|job| &job.gpus);
        gpus.map(|(host, gpus)| format!("{host}:{gpus}")).collect::<Vec<_>>().join(" ")
    };
    let slurmd = ("SLURMD_NODENAME", "n4");
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[slurmd, ("SLURM_JOB_GPUS", "2,7")], "n4:2 n5:2"),
        (&[slurmd, ("SLURM_GPUS_ON_NODE", "4")], "n4:4 n5:4"),
        (&[slurmd], ""),
        (&[slurmd, ("CRUX_GPUS_PER_HOST", "6")], "n4:6 n5:6"),
        (&[], "n4:8 n5:8"),
        (&[("CRUX_GPUS_PER_HOST", "4")], "n4:4 n5:4"),
        (&[("SLURM_JOB_COMMENT", "crux.flop=x")], "n4:8 n5:8"),
    ];
    for (variables, expect) in cases {
        let job = ("SLURM_JOB_ID", "90");
        assert_eq!(run("prolog", &[&[job], variables].concat()), expect, "{variables:?}");
        assert_eq!(run("epilog", &[job]), "");
    }
    let component = |number, hosts| {
        [("SLURM_JOB_ID", number), ("SLURM_HET_JOB_ID", "90"), ("SLURM_JOB_NODELIST", hosts)]
    };
    let (first, second) = (component("90", "n4"), component("91", "m6"));
    run("prolog", &first);
    assert_eq!(run("prolog", &second), "n4:8 m6:8");
    assert_eq!(run("epilog", &first), "m6:8");
    assert_eq!(run("epilog", &second), "");
}
