//! How connections are protected while something is measured: not at all, or as `crux init` has it,
//! with TLS everywhere, certificates of controllers, roles by name, and tokens of reporters.

use std::path::{Path, PathBuf};

use api::private_file::write_private_once;
use controller::RawConfig;
use controller::config::{AccessRole, RawToken, TlsFiles};
use controller::hexadecimal::encode_hex;
use sha2::{Digest, Sha256};
use switch_server::p4runtime::{AllowedRole, RoleRules, ServiceOptions, ServiceTls};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::Failed;

/// The name in the certificates of the switch's tests.
const NAME: &str = "localhost";
/// What reporters send.
pub(crate) const TOKEN: &str = "a token of these benchmarks";

/// The protection of every connection of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionSecurity {
    Clear,
    Secured,
}

impl ConnectionSecurity {
    /// How switches are served.
    pub(crate) fn service_options(self) -> Result<ServiceOptions, Failed> {
        if self == Self::Clear {
            return Ok(ServiceOptions::default());
        }
        let tls = ServiceTls {
            certificate: pem("switch.pem")?,
            key: pem("switch.key.pem")?,
            client_roots: Some(pem("roots.pem")?),
            revoked: None,
        };
        let client = Some(NAME.to_owned());
        let roles = RoleRules(vec![AllowedRole { role: String::new(), client }]);
        Ok(ServiceOptions { tls: Some(tls), roles, ..ServiceOptions::default() })
    }

    /// How a controller reaches switches.
    pub(crate) fn protect_southbound(self, raw: &mut RawConfig) -> Result<(), Failed> {
        if self == Self::Secured {
            raw.tls.ca = Some(private_copy("roots.pem")?);
            raw.tls.cert = Some(private_copy("controller.pem")?);
            raw.tls.key = Some(private_copy("controller.key.pem")?);
            raw.tls.domain = Some(NAME.to_owned());
        }
        Ok(())
    }

    /// How a controller is served to reporters.
    pub(crate) fn protect_northbound(self, raw: &mut RawConfig) -> Result<(), Failed> {
        if self == Self::Clear {
            raw.northbound.anyone = true;
            return Ok(());
        }
        raw.northbound.tls = Some(TlsFiles {
            certificate: private_copy("switch.pem")?,
            key: private_copy("switch.key.pem")?,
            client_roots: None,
            revoked: None,
        });
        raw.northbound.tokens = vec![RawToken {
            name: "reporters".to_owned(),
            role: AccessRole::Report,
            sha256: encode_hex(&Sha256::digest(TOKEN)),
            hosts: vec!["*".to_owned()],
            tenants: Vec::new(),
        }];
        Ok(())
    }

    /// A connection of a client: to a switch, or to the controller.
    pub(crate) async fn connect(self, server: &str) -> Result<Channel, Failed> {
        if self == Self::Clear {
            return Ok(Endpoint::try_from(format!("http://{server}"))?.connect().await?);
        }
        let identity = Identity::from_pem(pem("controller.pem")?, pem("controller.key.pem")?);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(pem("roots.pem")?))
            .identity(identity)
            .domain_name(NAME);
        Ok(Endpoint::try_from(format!("https://{server}"))?.tls_config(tls)?.connect().await?)
    }

    /// For the lines that are printed.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Clear => "",
            Self::Secured => " (TLS and roles)",
        }
    }
}

fn tree_file(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("../../bmv2-testbed/switch-server/tests/p4runtime/tls").join(name)
}

fn pem(name: &str) -> Result<Vec<u8>, Failed> {
    Ok(std::fs::read(tree_file(name))?)
}

/// A copy that its owner alone can read; a controller refuses other keys.
fn private_copy(name: &str) -> Result<PathBuf, Failed> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loopback").join(name);
    write_private_once(&own, &pem(name)?)?;
    Ok(own)
}
