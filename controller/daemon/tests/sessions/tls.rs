//! The address where a controller is served, over TLS: who trusts it, whom it knows, and what who
//! speaks no TLS is told.
//!
//! Certificates are those of the switch's tests.

use std::net::SocketAddr;

use api::northbound as proto;
use api::northbound::northbound_client::NorthboundClient;
use controller::config::{AccessRole, RawCertificate, TlsFiles};
use controller::northbound::{self, ApiServer};
use controller::{Config, ControllerHandle, RawConfig};
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::Code;
use tonic::transport::{self, Certificate, Channel, ClientTlsConfig, Identity};

use crate::grpc::token;
use crate::http::ask;
use crate::lab::Lab;
use crate::secured::{file, pem};

fn raw(change: impl Fn(&mut TlsFiles)) -> RawConfig {
    let mut files = TlsFiles {
        certificate: file("switch.pem"),
        key: file("switch.key.pem"),
        client_roots: None,
        revoked: None,
    };
    change(&mut files);
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    raw.northbound.tls = Some(files);
    raw
}

fn config(change: impl Fn(&mut TlsFiles)) -> Config {
    Config::try_from(raw(change)).unwrap()
}

async fn served(lab: &Lab, config: &Config) -> (ControllerHandle, std::io::Result<ApiServer>) {
    let controller = lab.control(|_| {}).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = northbound::start_server(listener, controller.access(), config);
    (controller, server)
}

async fn client(
    at: SocketAddr,
    tls: ClientTlsConfig,
) -> Result<NorthboundClient<Channel>, transport::Error> {
    let endpoint = Channel::from_shared(format!("https://{at}")).unwrap();
    let channel = endpoint.tls_config(tls)?.connect().await?;
    Ok(NorthboundClient::new(channel))
}

fn certified(
    name: &str,
    role: AccessRole,
    dns_name: Option<String>,
    sha256: Option<String>,
) -> RawCertificate {
    let name = name.to_owned();
    RawCertificate { name, role, dns_name, sha256, hosts: Vec::new(), tenants: Vec::new() }
}

/// Whether a client gets an answer.
async fn is_answered(at: SocketAddr, tls: ClientTlsConfig) -> bool {
    match client(at, tls).await {
        Ok(mut client) => client.list_jobs(()).await.is_ok(),
        Err(_) => false,
    }
}

fn trusting() -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem("roots.pem")))
}

/// A client that trusts the roots and has a certificate of its own.
fn known_as(name: &str) -> ClientTlsConfig {
    let [certificate, key] = ["pem", "key.pem"].map(|kind| pem(&format!("{name}.{kind}")));
    trusting().identity(Identity::from_pem(certificate, key))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_trust_the_certificate_connect() {
    let lab = Lab::new().await;
    let (controller, server) = served(&lab, &config(|_| {})).await;
    let server = server.unwrap();
    let at = server.local_addr();
    assert!(is_answered(at, trusting()).await);
    assert!(!is_answered(at, ClientTlsConfig::new()).await);
    let (status, answer) = ask(at, "/v1/jobs", None).await;
    assert!(status == 400 && answer.contains("ask with https"), "{answer}");
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_clients_with_known_certificates_connect() {
    let lab = Lab::new().await;
    let known = config(|files| files.client_roots = Some(file("roots.pem")));
    let (controller, server) = served(&lab, &known).await;
    let server = server.unwrap();
    let at = server.local_addr();
    assert!(!is_answered(at, trusting()).await);
    assert!(is_answered(at, known_as("controller")).await);
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_certificate_replaces_a_token() {
    let lab = Lab::new().await;
    let mut raw = raw(|files| files.client_roots = Some(file("roots.pem")));
    let certificate = CertificateDer::from_pem_file(file("controller.pem")).unwrap();
    let digest = Some(token("ada", AccessRole::Read, &certificate).sha256);
    raw.northbound.certificates = vec![certified("ada", AccessRole::Read, None, digest)];
    let (controller, server) = served(&lab, &Config::try_from(raw).unwrap()).await;
    let server = server.unwrap();
    let at = server.local_addr();
    let mut ada = client(at, known_as("controller")).await.unwrap();
    ada.list_jobs(()).await.unwrap();
    let lacks = ada.confirm_policy(proto::ConfirmPolicyRequest::default()).await;
    let lacks = lacks.unwrap_err();
    assert_eq!(lacks.code(), Code::PermissionDenied, "{lacks}");
    assert!(lacks.message().contains("`ada` may read"), "{lacks}");
    let mut other = client(at, known_as("switch")).await.unwrap();
    let missing = other.list_jobs(()).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated, "{missing}");
    server.shutdown().await;
    controller.shutdown().await;
}

/// The certificates of both test clients are for `localhost`, under which they share a role.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_have_the_role_of_their_name() {
    let lab = Lab::new().await;
    let mut raw = raw(|files| files.client_roots = Some(file("roots.pem")));
    let named =
        |name: &str, role, dns_name: &str| certified(name, role, Some(dns_name.to_owned()), None);
    raw.northbound.certificates = vec![
        named("ops", AccessRole::Write, "ops.crux"),
        named("part", AccessRole::Write, "local"),
        named("here", AccessRole::Read, "LocalHost"),
    ];
    let (controller, server) = served(&lab, &Config::try_from(raw).unwrap()).await;
    let server = server.unwrap();
    for own in ["controller", "switch"] {
        let mut client = client(server.local_addr(), known_as(own)).await.unwrap();
        client.list_jobs(()).await.unwrap();
        let lacks = client.confirm_policy(proto::ConfirmPolicyRequest::default()).await;
        let lacks = lacks.unwrap_err();
        assert_eq!(lacks.code(), Code::PermissionDenied, "{lacks}");
        assert!(lacks.message().contains("`here` may read"), "{lacks}");
    }
    server.shutdown().await;
    controller.shutdown().await;
}

#[test]
fn certificates_are_listed_by_name_or_digest() {
    for (dns_name, sha256) in [(None, None), (Some("ops.crux"), Some("ab")), (Some("*.crux"), None)]
    {
        let mut raw = raw(|files| files.client_roots = Some(file("roots.pem")));
        let [dns_name, sha256] =
            [dns_name, sha256].map(|text: Option<&str>| text.map(str::to_owned));
        raw.northbound.certificates = vec![certified("ada", AccessRole::Read, dns_name, sha256)];
        let error = Config::try_from(raw).unwrap_err().to_string();
        assert!(error.contains("northbound.certificates"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_files_are_named() {
    let lab = Lab::new().await;
    let swapped = config(|files| files.certificate = file("switch.key.pem"));
    let (controller, server) = served(&lab, &swapped).await;
    let why = server.unwrap_err().to_string();
    assert!(why.contains("switch.key.pem: no certificate"), "{why}");
    controller.shutdown().await;
    let foreign = config(|files| files.key = file("controller.key.pem"));
    let (controller, server) = served(&lab, &foreign).await;
    let why = server.unwrap_err().to_string();
    assert!(why.contains("certificate and key"), "{why}");
    controller.shutdown().await;
}
