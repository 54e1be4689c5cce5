//! The address where a controller is served, over TLS: who trusts it, whom it knows, and what who
//! speaks no TLS is told.
//!
//! Certificates are those of the switch's tests.

use std::net::SocketAddr;

use api::northbound as proto;
use api::northbound::northbound_client::NorthboundClient;
use controller::config::TlsFiles;
use controller::northbound::{self, Server};
use controller::{Config, ControllerHandle, RawConfig};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::http::ask;
use crate::lab::Lab;
use crate::secured::{file, pem};

fn config(change: impl Fn(&mut TlsFiles)) -> Config {
    let mut files = TlsFiles {
        certificate: file("switch.pem"),
        key: file("switch.key.pem"),
        client_roots: None,
    };
    change(&mut files);
    let mut raw = RawConfig::default();
    raw.northbound.tls = Some(files);
    Config::try_from(raw).unwrap()
}

async fn served(lab: &Lab, config: &Config) -> (ControllerHandle, std::io::Result<Server>) {
    let controller = lab.control(|_| {}).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = northbound::serve(listener, controller.access(), config);
    (controller, server)
}

/// Whether a client gets an answer.
async fn is_answered(at: SocketAddr, tls: ClientTlsConfig) -> bool {
    let endpoint = Channel::from_shared(format!("https://{at}")).unwrap();
    let Ok(channel) = endpoint.tls_config(tls).unwrap().connect().await else {
        return false;
    };
    let asked = NorthboundClient::new(channel).jobs(proto::Nothing {}).await;
    asked.is_ok()
}

fn trusting() -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem("roots.pem")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_a_certificate_answers_who_trusts_it() {
    let lab = Lab::new().await;
    let (controller, server) = served(&lab, &config(|_| {})).await;
    let server = server.unwrap();
    let at = server.local_addr();
    assert!(is_answered(at, trusting()).await);
    assert!(!is_answered(at, ClientTlsConfig::new()).await);
    let (status, answer) = ask(at, "/v1/jobs", None).await;
    assert!(
        status == 400 && answer.contains("ask with https"),
        "{answer}"
    );
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_knows_its_clients_answers_nobody_else() {
    let lab = Lab::new().await;
    let known = config(|files| files.client_roots = Some(file("roots.pem")));
    let (controller, server) = served(&lab, &known).await;
    let server = server.unwrap();
    let at = server.local_addr();
    assert!(!is_answered(at, trusting()).await);
    let identity = Identity::from_pem(pem("controller.pem"), pem("controller.key.pem"));
    assert!(is_answered(at, trusting().identity(identity)).await);
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_use_are_named() {
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
