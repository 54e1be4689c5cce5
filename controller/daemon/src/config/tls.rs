//! TLS towards switches, etcd and a collector of traces: the roots of their certificates, those that
//! are revoked, and the certificate of the controller.
//!
//! The decision: the files are read with the configuration. A missing or unreadable file is an
//! error of the configuration, and not a switch that cannot be reached.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, UnixTime,
};
use tokio_rustls::rustls::{DigitallySignedStruct, Error as RustlsError, RootCertStore};
use tokio_rustls::rustls::{SignatureScheme, server::VerifierBuilderError};
use tonic::transport::{ClientTlsConfig, Endpoint, Error, Identity};

use super::{ConfigError, check_field};
use api::private_file::read_private;

/// Between two looks at the files for the sake of what is open.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// TLS of a client. Without `ca`, connections are not secured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTls {
    /// Roots of the servers' certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Certificate revocation lists of the servers' authorities, in PEM, read again for every
    /// connection. With it, the issuer of every server's certificate needs a list here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
    /// The controller's certificate for servers that require one, in PEM. Requires `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Private key of `cert`, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name in the servers' certificates, where it differs from their addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// Roots and identity of a TLS client.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The roots of the servers' certificates, in PEM.
    pub roots: Vec<u8>,
    /// Revocation lists, in PEM.
    pub revoked: Option<Vec<u8>>,
    /// The controller's certificate and its key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the servers' certificates.
    pub domain: Option<String>,
    /// Where they were read from.
    files: RawTls,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl TlsConfig {
    /// Reads the files again; where they cannot be used, what was read before stays.
    fn reload_files(&self) -> Self {
        let read = self.files.load_files(&SWITCHES);
        read.ok().flatten().unwrap_or_else(|| self.clone())
    }

    /// The URI of a server, `host:port`: `https` with TLS, else `http`.
    pub(crate) fn server_uri(tls: Option<&Self>, server: &str) -> String {
        let scheme = tls.map_or("http", |_| "https");
        format!("{scheme}://{server}")
    }

    /// The endpoint with TLS, if it is configured, with certificates as they are now: they are
    /// renewed while the controller runs. What its server shows is in the second part.
    pub(crate) fn secure_endpoint(
        tls: Option<&Self>,
        server: Endpoint,
    ) -> Result<(Endpoint, Option<ServerCertificate>), Error> {
        let Some(tls) = tls else {
            return Ok((server, None));
        };
        let tls = tls.reload_files();
        let config = tls.client_config();
        let certificate = ServerCertificate(Arc::new(ShownCertificate::new(tls)));
        let verifier = Arc::clone(&certificate.0);
        Ok((server.tls_config_with_verifier(config, verifier)?, Some(certificate)))
    }

    fn client_config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain);
        }
        config
    }

    /// What decides whether a server's certificate is accepted.
    fn server_verifier(&self) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&self.roots).flatten());
        let provider = Arc::new(default_provider());
        let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        match &self.revoked {
            Some(lists) => builder
                .with_crls(CertificateRevocationListDer::pem_slice_iter(lists).flatten())
                .only_check_end_entity_revocation()
                .build(),
            None => builder.build(),
        }
    }
}

/// The certificate that the server of one connection has shown.
#[derive(Clone, Debug)]
pub(crate) struct ServerCertificate(Arc<ShownCertificate>);

impl ServerCertificate {
    /// Waits until the certificate is revoked; for ever if there are no lists. That it ends, or that
    /// its root is replaced, is of interest when the next connection is made.
    pub(crate) async fn until_revoked(self) {
        if self.0.tls.revoked.is_none() {
            return std::future::pending().await;
        }
        let mut known = self.0.tls.clone();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let read = known.reload_files();
            if read.revoked != known.revoked && self.0.verify_with(&read).is_err() {
                return;
            }
            known = read;
        }
    }
}

/// What a server showed, and when.
#[derive(Debug)]
struct ShownChain {
    own: CertificateDer<'static>,
    others: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    at: UnixTime,
}

/// A verifier that keeps what it was shown.
#[derive(Debug)]
struct ShownCertificate {
    tls: TlsConfig,
    verifier: Arc<WebPkiServerVerifier>,
    shown: Mutex<Option<ShownChain>>,
}

impl ShownCertificate {
    fn new(tls: TlsConfig) -> Self {
        let valid = "files that make no verifier are refused when they are read";
        let verifier = tls.server_verifier().expect(valid);
        Self { tls, verifier, shown: Mutex::new(None) }
    }

    /// Verifies what was shown with the revocation lists of `read`, as of the handshake.
    fn verify_with(&self, read: &TlsConfig) -> Result<(), RustlsError> {
        let lists = TlsConfig { revoked: read.revoked.clone(), ..self.tls.clone() };
        let (Ok(verifier), Some(shown)) =
            (lists.server_verifier(), &*self.shown.lock().unwrap_or_else(PoisonError::into_inner))
        else {
            return Ok(());
        };
        let ShownChain { own, others, name, at } = shown;
        verifier.verify_server_cert(own, others, name, &[], *at).map(drop)
    }
}

impl ServerCertVerifier for ShownCertificate {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        let verified = self.verifier.verify_server_cert(own, others, name, ocsp, now)?;
        let chain = ShownChain {
            own: own.clone().into_owned(),
            others: others.iter().map(|other| other.clone().into_owned()).collect(),
            name: name.to_owned(),
            at: now,
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(chain);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Names of the fields that have the files, for errors.
pub(super) struct TlsFields {
    ca: &'static str,
    revoked: &'static str,
    cert: &'static str,
    key: &'static str,
}

/// The fields of TLS towards switches.
pub(super) const SWITCHES: TlsFields =
    TlsFields { ca: "tls.ca", revoked: "tls.revoked", cert: "tls.cert", key: "tls.key" };

/// The fields of TLS towards etcd.
pub(super) const ETCD: TlsFields = TlsFields {
    ca: "etcd.tls.ca",
    revoked: "etcd.tls.revoked",
    cert: "etcd.tls.cert",
    key: "etcd.tls.key",
};

/// The fields of TLS towards the collector of traces.
pub(super) const TRACES: TlsFields = TlsFields {
    ca: "traces.tls.ca",
    revoked: "traces.tls.revoked",
    cert: "traces.tls.cert",
    key: "traces.tls.key",
};

impl RawTls {
    /// Reads the files; none without roots.
    pub(super) fn load_files(&self, fields: &TlsFields) -> Result<Option<TlsConfig>, ConfigError> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some((read_file(fields.cert, cert)?, read_secret(fields.key, key)?))
            }
            (None, None) => None,
            (Some(_), None) => return Err(missing_partner(fields.cert, fields.key)),
            (None, Some(_)) => return Err(missing_partner(fields.key, fields.cert)),
        };
        let Some(ca) = &self.ca else {
            let alone = [(&self.cert, fields.cert), (&self.revoked, fields.revoked)];
            let alone = alone.iter().find(|(file, _)| file.is_some());
            return alone.map_or(Ok(None), |(_, field)| Err(missing_partner(field, fields.ca)));
        };
        let revoked = self.revoked.as_deref().map(|file| read_file(fields.revoked, file));
        let revoked = revoked.transpose()?;
        let is_list = |lists: &Vec<u8>| CertificateRevocationListDer::from_pem_slice(lists).is_ok();
        if !revoked.as_ref().is_none_or(is_list) {
            // Without a list nothing would be refused.
            return Err(unusable_file(fields.revoked, self.revoked.as_deref().unwrap_or(ca)));
        }
        let tls = TlsConfig {
            roots: read_file(fields.ca, ca)?,
            revoked,
            identity,
            domain: self.domain.clone(),
            files: self.clone(),
        };
        match tls.server_verifier() {
            Ok(_) => Ok(Some(tls)),
            Err(VerifierBuilderError::InvalidCrl(_)) => {
                Err(unusable_file(fields.revoked, self.revoked.as_deref().unwrap_or(ca)))
            }
            Err(_) => Err(unusable_file(fields.ca, ca)),
        }
    }
}

/// The content of a file that a field names.
pub(super) fn read_file(field: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The text of a file that a field names.
pub(super) fn read_text(field: &'static str, path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path);
    text.map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The content of a secret file that a field names; others must not be able to read it.
pub(super) fn read_secret(field: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    read_private(path).map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The first line of a secret file that a field names, not blank; `wanted` says what it has to be.
pub(super) fn read_secret_line(
    field: &'static str,
    path: &Path,
    wanted: &'static str,
) -> Result<String, ConfigError> {
    let text = String::from_utf8_lossy(&read_secret(field, path)?).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    check_field(field, &path.display(), wanted, !line.trim().is_empty())?;
    Ok(line)
}

/// The error that a file has nothing of what its field is for.
fn unusable_file(field: &'static str, path: &Path) -> ConfigError {
    let wanted = "a file with certificates, or with revocation lists, in PEM";
    ConfigError::Invalid { field, found: path.display().to_string(), wanted }
}

/// The error that a field requires another one.
pub(super) fn missing_partner(field: &'static str, other: &'static str) -> ConfigError {
    ConfigError::MissingPartner { field, other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_again_for_every_connection_and_missing_ones_are_not_missed() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tests = tests.join("../../bmv2-testbed/switch-server/tests/p4runtime/tls");
        let [first, second] =
            ["roots.pem", "switch.pem"].map(|name| std::fs::read(tests.join(name)).unwrap());
        std::fs::write(&ca, &first).unwrap();
        let raw = RawTls { ca: Some(ca.clone()), ..RawTls::default() };
        let tls = raw.load_files(&ETCD).unwrap().unwrap();
        std::fs::write(&ca, &second).unwrap();
        assert_eq!(tls.reload_files().roots, second);
        std::fs::remove_file(&ca).unwrap();
        assert_eq!(tls.reload_files().roots, first, "what was read before stays");
        std::fs::write(&ca, "no certificate").unwrap();
        assert_eq!(tls.reload_files().roots, first);
        let error = raw.load_files(&ETCD).unwrap_err().to_string();
        assert!(error.starts_with("etcd.tls.ca: "), "{error}");
        // A file without a list would refuse nothing.
        std::fs::write(&ca, &first).unwrap();
        let revoked = folder.path().join("revoked.pem");
        std::fs::write(&revoked, "").unwrap();
        let raw = RawTls { revoked: Some(revoked), ..raw };
        let error = raw.load_files(&ETCD).unwrap_err().to_string();
        assert!(error.starts_with("etcd.tls.revoked: "), "{error}");
    }
}
