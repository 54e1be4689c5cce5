//! Connections to switches that are secured: who trusts and is trusted leads, nobody else does.

use std::path::{Path, PathBuf};

use api::private_file::write_private_once;
use controller::RawConfig;
use controller::southbound::{SwitchClient, SwitchStatus, SwitchTarget};
use p4::ForwardingPipeline;
use sha2::{Digest, Sha256};
use switch_server::p4runtime::{ServiceOptions, ServiceTls};
use topology::SwitchId;

use crate::lab::{Lab, all_hold, config, first_leaf};

/// Certificates of one root, for tests of the embedded switch.
pub(crate) fn file(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = crates.join("../../bmv2-testbed/switch-server/tests/p4runtime/tls");
    // Keys that others can read are refused, and everybody can read those in the tree.
    let content = std::fs::read(tests.join(name)).unwrap();
    let version: String =
        Sha256::digest(&content).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(version).join(name);
    write_private_once(&own, &content).unwrap();
    own
}

pub(crate) fn pem(name: &str) -> Vec<u8> {
    std::fs::read(file(name)).unwrap()
}

/// Switches that ask for a certificate.
async fn lab() -> Lab {
    let tls = ServiceTls {
        certificate: pem("switch.pem"),
        key: pem("switch.key.pem"),
        client_roots: Some(pem("roots.pem")),
        revoked: None,
    };
    Lab::with(|_| ServiceOptions { tls: Some(tls.clone()), ..ServiceOptions::default() }).await
}

fn trusting(raw: &mut RawConfig) {
    raw.tls.ca = Some(file("roots.pem"));
    raw.tls.domain = Some("localhost".to_owned());
}

#[tokio::test]
async fn switches_are_programmed_over_mutual_tls() {
    let lab = lab().await;
    let shown = |raw: &mut RawConfig| {
        trusting(raw);
        raw.tls.cert = Some(file("controller.pem"));
        raw.tls.key = Some(file("controller.key.pem"));
    };
    let limits = config(shown).southbound;
    let controller = lab.control(shown).await;
    all_hold(&controller).await;
    let first = &SwitchTarget::all_in_fabric(&lab.fabric)[0];
    let client = SwitchClient::connect(&first.address, &limits).await.unwrap();
    let held = client.read_all_tables(ForwardingPipeline::embedded_fabric()).await.unwrap();
    assert_eq!(held, *controller.desired_tables().tables[&SwitchId(0)]);
    controller.shutdown().await;
}

#[tokio::test]
async fn connections_without_certificate_or_trust_fail() {
    let lab = lab().await;
    let strangers: [fn(&mut RawConfig); 2] = [trusting, |_| {}];
    for stranger in strangers {
        let controller = lab.control(stranger).await;
        let refused = |line: &SwitchStatus| line.failures > 1;
        let line = first_leaf(&controller, refused).await;
        assert_eq!(line.verified, None);
        controller.shutdown().await;
    }
}
