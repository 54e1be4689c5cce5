//! Connections that are protected: the switch's certificate, and the controller's.
//!
//! The certificates in `tls/` are of one root that has signed nothing else and whose key is gone.

use p4rt::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::{ServeError, ServiceOptions, ServiceTls};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::bench::{Bench, soon};

const ROOTS: &[u8] = include_bytes!("tls/roots.pem");

fn switch(client_roots: Option<&[u8]>) -> ServiceOptions {
    let tls = ServiceTls {
        certificate: include_bytes!("tls/switch.pem").to_vec(),
        key: include_bytes!("tls/switch.key.pem").to_vec(),
        client_roots: client_roots.map(<[u8]>::to_vec),
        revoked: None,
    };
    ServiceOptions { tls: Some(tls), ..ServiceOptions::default() }
}

/// One that trusts the root.
fn controller() -> ClientTlsConfig {
    let roots = Certificate::from_pem(ROOTS);
    ClientTlsConfig::new().ca_certificate(roots).domain_name("localhost")
}

/// Whether a controller gets an answer.
async fn is_answered(bench: &Bench, tls: Option<ClientTlsConfig>) -> bool {
    let address = bench.server.local_addr();
    let endpoint = match tls {
        None => Channel::from_shared(format!("http://{address}")).unwrap(),
        Some(tls) => {
            Channel::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap()
        }
    };
    let Ok(channel) = soon(endpoint.connect()).await else {
        return false;
    };
    let mut client = P4RuntimeClient::new(channel);
    let asked = client.capabilities(p4rt::CapabilitiesRequest::default());
    soon(asked).await.is_ok()
}

#[tokio::test]
async fn a_protected_switch_answers_who_trusts_it() {
    let bench = Bench::start(switch(None)).await;
    assert!(is_answered(&bench, Some(controller())).await);
    assert!(!is_answered(&bench, None).await);
    let trusts_nobody = ClientTlsConfig::new().domain_name("localhost");
    assert!(!is_answered(&bench, Some(trusts_nobody)).await);
}

#[tokio::test]
async fn other_certificates_and_roots_count_from_the_next_connection() {
    let bench = Bench::start(switch(None)).await;
    assert!(is_answered(&bench, Some(controller())).await);
    let strict = switch(Some(ROOTS)).tls.unwrap();
    bench.server.replace_certificates(&strict).unwrap();
    assert!(!is_answered(&bench, Some(controller())).await, "it has no certificate");
    let key = include_bytes!("tls/controller.key.pem").to_vec();
    let half = ServiceTls { key, client_roots: None, ..strict };
    let refused = bench.server.replace_certificates(&half).unwrap_err();
    assert!(matches!(refused, ServeError::Tls(_)), "{refused}");
    assert!(!is_answered(&bench, Some(controller())).await, "the earlier ones stay");
}

#[tokio::test]
async fn unfinished_handshakes_delay_nobody() {
    let bench = Bench::start(switch(None)).await;
    let address = bench.server.local_addr();
    let mut half_open = Vec::new();
    for _ in 0..200 {
        half_open.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    assert!(is_answered(&bench, Some(controller())).await);
}

#[tokio::test]
async fn a_switch_with_client_certificates_serves_their_holders() {
    let bench = Bench::start(switch(Some(ROOTS))).await;
    assert!(!is_answered(&bench, Some(controller())).await);
    let certificate = include_bytes!("tls/controller.pem");
    let identity = Identity::from_pem(certificate, include_bytes!("tls/controller.key.pem"));
    let known = controller().identity(identity);
    assert!(is_answered(&bench, Some(known)).await);
}
