//! The folder with the identities of a fabric: an authority of its own, and the certificates that
//! it has issued.
//!
//! `crux init` creates it, and `crux cert` adds certificates and issues them anew. The decision:
//! which certificates there are, and for which names, stands in a document of the folder, so that
//! nothing has to be read out of certificates.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use api::private_file::{read_private, write_private_once};
use controller::certificates::{CertificateError, first_serial};
use controller::hexadecimal::{decode_hex, encode_hex};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use serde::{Deserialize, Serialize};
use topology::error_chain;

use super::local_time::date_of_day;

/// The certificate of the authority.
pub(super) const AUTHORITY: &str = "ca.pem";
/// Its private key.
pub(super) const AUTHORITY_KEY: &str = "ca.key.pem";
/// The document that lists the certificates.
const INVENTORY: &str = "certificates.json";
/// The certificates that are revoked.
const REVOCATIONS: &str = "revoked.json";
/// Their list, signed by the authority.
pub(super) const REVOCATION_LIST: &str = "revoked.pem";
/// What the files of switches begin with.
pub(super) const SWITCH_PREFIX: &str = "switch-";
/// Days that the authority is valid.
const AUTHORITY_DAYS: u64 = 3_650;

/// A certificate that the authority issues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssuedCertificate {
    /// The files are `FILE.pem` and `FILE.key.pem`.
    pub(super) file: String,
    /// DNS names and IP addresses that it is for; the first is also its common name.
    pub(super) names: Vec<String>,
}

/// A certificate that is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokedCertificate {
    /// The file that it was in.
    pub(super) file: String,
    /// Its serial number, in hexadecimal.
    pub(super) serial: String,
    /// Since when, seconds of Unix time.
    pub(super) since: u64,
}

/// What can go wrong with the folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot issue a certificate for {names}: {source}")]
    Certificate {
        /// The names that it is for.
        names: String,
        /// Why.
        source: rcgen::Error,
    },
    /// There is a certificate of this name.
    #[error("{INVENTORY} has {0} already; crux cert renew issues it anew")]
    Known(String),
    /// A certificate cannot be read.
    #[error("{}: {}", file.display(), error_chain(source))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: CertificateError,
    },
    /// A list is broken.
    #[error("{name}: {source}")]
    List {
        /// The file.
        name: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// The folder.
#[derive(Debug)]
pub(super) struct IdentityFolder {
    path: PathBuf,
}

impl IdentityFolder {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Whether there is an authority already, whose certificates somebody may trust.
    pub(super) fn has_authority(&self) -> bool {
        self.path.join(AUTHORITY_KEY).exists()
    }

    /// The path of a file of the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the authority, and the list of what it issues.
    pub(super) fn create_authority(
        &self,
        certificates: &[IssuedCertificate],
    ) -> Result<(), IdentityError> {
        let key = KeyPair::generate().map_err(|source| issue_error("the authority", source))?;
        let certificate = authority_params(days_now())
            .and_then(|params| params.self_signed(&key))
            .map_err(|source| issue_error("the authority", source))?;
        self.write_secret(AUTHORITY_KEY, key.serialize_pem().as_bytes())?;
        self.write_file(AUTHORITY, certificate.pem().as_bytes())?;
        self.write_list(INVENTORY, certificates)?;
        self.write_revocations(&[])
    }

    /// The certificates that the authority issues.
    pub(super) fn read_inventory(&self) -> Result<Vec<IssuedCertificate>, IdentityError> {
        let path = self.path.join(INVENTORY);
        let text = fs::read(&path).map_err(|source| file_error(&path, source))?;
        serde_json::from_slice(&text).map_err(|source| list_error(INVENTORY, source))
    }

    /// The certificates that are revoked; none in a folder that has no list yet.
    pub(super) fn read_revocations(&self) -> Result<Vec<RevokedCertificate>, IdentityError> {
        let path = self.path.join(REVOCATIONS);
        match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|source| list_error(REVOCATIONS, source))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(file_error(&path, source)),
        }
    }

    /// Revokes the certificate that a file has now; what it was once renewed from is revoked only
    /// if that was asked for at its time. Whether it was not revoked before.
    pub(super) fn revoke_certificate(&self, file: &str) -> Result<bool, IdentityError> {
        let serial = self.serial_of(file)?;
        let mut revoked = self.read_revocations()?;
        let is_new = revoked.iter().all(|known| known.serial != serial);
        if is_new {
            revoked.push(RevokedCertificate {
                file: file.to_owned(),
                serial,
                since: seconds_now(),
            });
        }
        self.write_revocations(&revoked)?;
        Ok(is_new)
    }

    /// The serial number of the certificate in a file, in hexadecimal.
    pub(super) fn serial_of(&self, file: &str) -> Result<String, IdentityError> {
        let file = self.path.join(format!("{file}.pem"));
        match first_serial(&file) {
            Ok(serial) => Ok(encode_hex(&serial)),
            Err(source) => Err(IdentityError::Unreadable { file, source }),
        }
    }

    /// Writes the revoked certificates, and signs a list of them. The list is written last: it is
    /// what others read.
    fn write_revocations(&self, revoked: &[RevokedCertificate]) -> Result<(), IdentityError> {
        let authority = self.load_authority()?;
        let signed = revocation_params(revoked)
            .signed_by(&authority)
            .and_then(|list| list.pem())
            .map_err(|source| issue_error("the revocation list", source))?;
        self.write_list(REVOCATIONS, revoked)?;
        self.write_file(REVOCATION_LIST, signed.as_bytes())
    }

    fn write_list<T: Serialize>(
        &self,
        name: &'static str,
        rows: &[T],
    ) -> Result<(), IdentityError> {
        let text = serde_json::to_vec_pretty(rows).map_err(|source| list_error(name, source))?;
        self.write_file(name, &text)
    }

    /// Issues a certificate with a new key, in place of an earlier one. The key is replaced first:
    /// who reads both in between finds that they do not match, and keeps what it has.
    pub(super) fn issue_certificate(
        &self,
        certificate: &IssuedCertificate,
        days: u64,
    ) -> Result<(), IdentityError> {
        let names = certificate.names.join(", ");
        let authority = self.load_authority()?;
        let key = KeyPair::generate().map_err(|source| issue_error(&names, source))?;
        let signed = leaf_params(certificate, days_now(), days)
            .and_then(|params| params.signed_by(&key, &authority))
            .map_err(|source| issue_error(&names, source))?;
        let key_file = format!("{}.key.pem", certificate.file);
        self.replace_secret(&key_file, key.serialize_pem().as_bytes())?;
        self.write_file(&format!("{}.pem", certificate.file), signed.pem().as_bytes())
    }

    /// Issues a certificate that is not in the list yet, and adds it.
    pub(super) fn add_certificate(
        &self,
        certificate: &IssuedCertificate,
        days: u64,
    ) -> Result<(), IdentityError> {
        let mut inventory = self.read_inventory()?;
        if inventory.iter().any(|known| known.file == certificate.file) {
            return Err(IdentityError::Known(certificate.file.clone()));
        }
        // First the certificate: one that is listed can be renewed.
        self.issue_certificate(certificate, days)?;
        inventory.push(certificate.clone());
        self.write_list(INVENTORY, &inventory)
    }

    fn load_authority(&self) -> Result<Issuer<'static, KeyPair>, IdentityError> {
        let path = self.path.join(AUTHORITY_KEY);
        let text = read_private(&path).map_err(|source| file_error(&path, source))?;
        let key = KeyPair::from_pem(&String::from_utf8_lossy(&text))
            .map_err(|source| issue_error("the authority", source))?;
        // The name and the key decide what is signed; the dates of the authority do not.
        let params = authority_params(days_now());
        let params = params.map_err(|source| issue_error("the authority", source))?;
        Ok(Issuer::new(params, key))
    }

    /// Writes a file that only its owner can read; it must not exist.
    pub(super) fn write_secret(&self, name: &str, content: &[u8]) -> Result<(), IdentityError> {
        let path = self.path.join(name);
        let written = write_private_once(&path, content).and_then(|_| self.give_to_owner(&path));
        written.map_err(|source| file_error(&path, source))
    }

    fn replace_secret(&self, name: &str, content: &[u8]) -> Result<(), IdentityError> {
        let draft = format!("{name}.new");
        drop(fs::remove_file(self.path.join(&draft)));
        self.write_secret(&draft, content)?;
        let path = self.path.join(name);
        fs::rename(self.path.join(&draft), &path).map_err(|source| file_error(&path, source))
    }

    /// Writes a file as a whole.
    pub(super) fn write_file(&self, name: &str, content: &[u8]) -> Result<(), IdentityError> {
        let path = self.path.join(name);
        let draft = self.path.join(format!("{name}.new"));
        let written = fs::write(&draft, content)
            // Whatever the umask is: everybody reads it, and its owner alone changes it.
            .and_then(|()| fs::set_permissions(&draft, Permissions::from_mode(0o644)))
            .and_then(|()| self.give_to_owner(&draft))
            .and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| file_error(&path, source))
    }

    /// What root writes belongs to the owner of the folder, as a service without rights reads it.
    fn give_to_owner(&self, path: &Path) -> io::Result<()> {
        let (folder, file) = (fs::metadata(&self.path)?, fs::metadata(path)?);
        match (folder.uid(), file.uid()) {
            (owner, 0) if owner != 0 => chown(path, Some(owner), Some(folder.gid())),
            _ => Ok(()),
        }
    }
}

/// What the authority is; the same whenever it is built.
fn authority_params(today: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = common_name("Crux authority of a fabric");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, today, AUTHORITY_DAYS);
    Ok(params)
}

/// A certificate as a server, and as a client unless it is a switch's: nobody lets a switch in, and
/// who steals its key must not read the tables of all others.
fn leaf_params(
    certificate: &IssuedCertificate,
    today: u64,
    days: u64,
) -> Result<CertificateParams, rcgen::Error> {
    let names = &certificate.names;
    let mut params = CertificateParams::new(names.clone())?;
    params.distinguished_name = common_name(names.first().map_or("", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    if !certificate.file.starts_with(SWITCH_PREFIX) {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, today, days);
    Ok(params)
}

/// A list of revoked certificates. Its number rises with its length, and it is valid as long as the
/// authority: what is revoked stays so.
fn revocation_params(revoked: &[RevokedCertificate]) -> CertificateRevocationListParams {
    let time = |seconds: u64| {
        let date = date_of_day(seconds / 86_400);
        date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    let now = seconds_now();
    let rows = revoked.iter().map(|one| RevokedCertParams {
        serial_number: SerialNumber::from(decode_hex(&one.serial).unwrap_or_default()),
        revocation_time: time(one.since),
        reason_code: None,
        invalidity_date: None,
    });
    CertificateRevocationListParams {
        this_update: time(now),
        next_update: time(now + AUTHORITY_DAYS * 86_400),
        crl_number: SerialNumber::from(1 + revoked.len() as u64),
        issuing_distribution_point: None,
        revoked_certs: rows.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Valid from yesterday, since clocks differ.
fn set_validity(params: &mut CertificateParams, today: u64, days: u64) {
    let date = |day| {
        let date = date_of_day(day);
        date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    params.not_before = date(today.saturating_sub(1));
    params.not_after = date(today + days);
}

/// Seconds since 1970-01-01.
pub(super) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Days since 1970-01-01.
fn days_now() -> u64 {
    seconds_now() / 86_400
}

fn file_error(file: &Path, source: io::Error) -> IdentityError {
    IdentityError::File { file: file.to_owned(), source }
}

fn list_error(name: &'static str, source: serde_json::Error) -> IdentityError {
    IdentityError::List { name, source }
}

fn issue_error(names: &str, source: rcgen::Error) -> IdentityError {
    IdentityError::Certificate { names: names.to_owned(), source }
}
