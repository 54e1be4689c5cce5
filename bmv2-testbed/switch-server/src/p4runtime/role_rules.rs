//! Which roles may use this switch, and with whose certificates.
//!
//! P4Runtime lets every client name its own role, and a client that learns the election id of a
//! primary can write with it. The decision: a list of roles, each with the name that a client
//! certificate must be for, is checked at every call that changes something and at every bid;
//! without a list, as the specification says, every role is admitted.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tonic::Status;
use tonic::transport::CertificateDer;
use webpki::EndEntityCert;

/// The certificates that a client has shown; none without TLS.
pub(super) type PeerCertificates = Option<Arc<Vec<CertificateDer<'static>>>>;

/// A role that may use the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRole {
    /// Its name; the empty one is the role of full access.
    pub role: String,
    /// The DNS name that the client's certificate must be for; none admits every client.
    pub client: Option<String>,
}

/// The roles that may use a switch; an empty list admits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleRules(pub Vec<AllowedRole>);

impl RoleRules {
    /// Whether a client with these certificates may act in a role.
    pub(super) fn check_role(&self, role: &str, shown: &PeerCertificates) -> Result<(), Status> {
        let mut rules = self.0.iter().filter(|rule| rule.role == role);
        if self.0.is_empty() || rules.any(|rule| rule.admits_client(shown)) {
            return Ok(());
        }
        let text = format!("role `{role}` is not allowed for this client (--allow-role)");
        Err(Status::permission_denied(text))
    }
}

impl AllowedRole {
    fn admits_client(&self, shown: &PeerCertificates) -> bool {
        let Some(client) = &self.client else {
            return true;
        };
        // The transport has verified the certificate; here only its name counts.
        let first = shown.as_ref().and_then(|certificates| certificates.first());
        let is_for_name = |certificate: &CertificateDer<'static>| {
            let certificate = EndEntityCert::try_from(certificate).ok()?;
            let name = ServerName::try_from(client.as_str()).ok()?;
            certificate.verify_is_valid_for_subject_name(&name).ok()
        };
        first.and_then(is_for_name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_roles_are_admitted() {
        let rule = |role: &str, client: Option<&str>| AllowedRole {
            role: role.to_owned(),
            client: client.map(str::to_owned),
        };
        assert!(RoleRules::default().check_role("anybody", &None).is_ok());
        let rules = RoleRules(vec![rule("", Some("controller.crux")), rule("tests", None)]);
        assert!(rules.check_role("tests", &None).is_ok());
        assert!(rules.check_role("", &None).is_err(), "it needs a certificate");
        assert!(rules.check_role("other", &None).is_err());
        let broken = Some(Arc::new(vec![CertificateDer::from(vec![1, 2, 3])]));
        assert!(rules.check_role("", &broken).is_err());
    }
}
