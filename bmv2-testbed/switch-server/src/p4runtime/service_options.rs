//! How a switch is served: protection, bounds, and what goes wrong on purpose.

use std::time::Duration;

use tonic::service::Routes;

use super::election::SwitchDialect;
use super::pins::PortNames;
use super::role_rules::RoleRules;
use crate::testing::faults::FaultScript;

/// Behaviour of the server.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Whose P4Runtime server the switch behaves like.
    pub dialect: SwitchDialect,
    /// How ports are called by controllers of a PINS switch; other dialects number them.
    pub port_names: PortNames,
    /// Streams open at once.
    pub max_sessions: usize,
    /// How long a stream may be open without an arbitration request.
    pub arbitration_deadline: Duration,
    /// Which roles may use the switch.
    pub roles: RoleRules,
    /// What goes wrong on purpose.
    pub faults: FaultScript,
    /// How connections are protected; none means in the clear.
    pub tls: Option<ServiceTls>,
    /// What else is served on the same port, such as gNMI.
    pub beside: Routes,
}

/// The switch's identity, and whose it trusts; everything is PEM.
#[derive(Clone, Debug)]
pub struct ServiceTls {
    /// The switch's certificate, with those up to its root if there are any.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// The roots of the certificates that controllers must show; without it controllers need no
    /// certificate.
    pub client_roots: Option<Vec<u8>>,
    /// Certificate revocation lists of those roots.
    pub revoked: Option<Vec<u8>>,
}

impl Default for ServiceOptions {
    /// As the specification says, 16 streams as BMv2 has, 10 s for arbitration, every role,
    /// no faults, in the clear, P4Runtime alone.
    fn default() -> Self {
        Self {
            dialect: SwitchDialect::default(),
            port_names: PortNames::default(),
            max_sessions: 16,
            arbitration_deadline: Duration::from_secs(10),
            roles: RoleRules::default(),
            faults: FaultScript::default(),
            tls: None,
            beside: Routes::default(),
        }
    }
}
