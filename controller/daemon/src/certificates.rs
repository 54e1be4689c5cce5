//! Until when the certificates of the configuration are valid: a finding from thirty days before
//! their end, and a metric.
//!
//! The decision: files are read again every hour, so that one that was renewed clears its finding,
//! and one that ends is reported while the controller runs. Certificates of switches are read where
//! they are issued (`crux cert list`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_util::sync::CancellationToken;
use topology::Finding;
use webpki::EndEntityCert;
use yasna::models::{GeneralizedTime, UTCTime};
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Error, ASN1Result, BERReader, Tag};

use crate::clock::{Clock, timestamp_from_unix};
use crate::config::RawConfig;
use crate::standing_findings::StandingFindings;

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long before its end a certificate is reported.
const WARN_BEFORE_MS: u64 = 30 * DAY_MS;
const DAY_MS: u64 = 86_400_000;
/// The causes of the findings begin so.
const CAUSE: &str = "certificate ";

/// When the certificates of each file end, milliseconds of Unix time, by the field of the
/// configuration.
pub type CertificateEnds = BTreeMap<&'static str, u64>;

/// A file of certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// There is no certificate in PEM.
    #[error("no certificate in PEM can be read")]
    Pem(#[source] pem::Error),
    /// A certificate is no X.509 certificate.
    #[error("a certificate is not in the form of X.509")]
    Form(#[source] ASN1Error),
    /// A certificate is no X.509 certificate that can be verified.
    #[error("a certificate cannot be used")]
    Certificate(#[source] webpki::Error),
}

/// The task that looks at the files.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    files: Vec<(&'static str, PathBuf)>,
    ends: watch::Sender<Arc<CertificateEnds>>,
}

impl CertificateWatch {
    /// A watch of the files that the configuration names.
    pub(crate) fn new(raw: &RawConfig) -> Self {
        let served = raw.northbound.tls.as_ref();
        let [etcd, traces] = [raw.etcd.tls.clone(), raw.traces.tls.clone()];
        let files = [
            ("northbound.tls.certificate", served.map(|tls| tls.certificate.clone())),
            ("northbound.tls.client_roots", served.and_then(|tls| tls.client_roots.clone())),
            ("tls.ca", raw.tls.ca.clone()),
            ("tls.cert", raw.tls.cert.clone()),
            ("etcd.tls.ca", etcd.ca),
            ("etcd.tls.cert", etcd.cert),
            ("traces.tls.ca", traces.ca),
            ("traces.tls.cert", traces.cert),
        ];
        let files = files.into_iter().filter_map(|(field, file)| Some((field, file?)));
        Self { files: files.collect(), ends: watch::Sender::default() }
    }

    pub(crate) fn watch_ends(&self) -> watch::Receiver<Arc<CertificateEnds>> {
        self.ends.subscribe()
    }

    /// Looks at the files until `stop`.
    pub(crate) async fn run(
        self,
        clock: Clock,
        findings: StandingFindings,
        stop: CancellationToken,
    ) {
        if self.files.is_empty() {
            return;
        }
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            loop {
                ticks.tick().await;
                self.read_files(clock.unix_now(), &findings);
            }
        };
        stop.run_until_cancelled(looking).await;
    }

    /// Reads the files at `now`. They are small, and few.
    fn read_files(&self, now: u64, findings: &StandingFindings) {
        let mut ends = CertificateEnds::new();
        for (field, file) in &self.files {
            let cause = format!("{CAUSE}{field}");
            let finding = match first_end(file) {
                Ok(end) => {
                    ends.insert(field, end);
                    expiry_finding(field, file, end, now)
                }
                Err(error) => {
                    let text = format!("{field}: {}: {error}", file.display());
                    Some(Finding::warning("certificate", text))
                }
            };
            match finding {
                Some(finding) => findings.report_finding(cause, finding),
                None => findings.clear_finding(&cause),
            }
        }
        self.ends.send_replace(Arc::new(ends));
    }
}

/// The finding about a certificate that has ended or soon will.
fn expiry_finding(field: &str, file: &Path, end: u64, now: u64) -> Option<Finding> {
    let file = file.display();
    let date = timestamp_from_unix(end).map(|at| at.strftime("%Y-%m-%d").to_string());
    let date = date.unwrap_or_default();
    if end <= now {
        let text = format!("{field}: {file} ended on {date}; renew it (crux cert renew)");
        return Some(Finding::error("certificate", text));
    }
    let days = (end - now) / DAY_MS;
    let text =
        format!("{field}: {file} ends in {days} days, on {date}; renew it (crux cert renew)");
    (end - now <= WARN_BEFORE_MS).then(|| Finding::warning("certificate", text))
}

/// When the first of the certificates in a PEM file ends, milliseconds of Unix time.
///
/// # Errors
/// A certificate is missing or in another form.
pub fn first_end(file: &Path) -> Result<u64, CertificateError> {
    let certificates = read_certificates(file).map_err(CertificateError::Pem)?;
    let ends = certificates.iter().map(|certificate| read_end(certificate));
    let ends: Vec<u64> = ends.collect::<Result<_, _>>().map_err(CertificateError::Form)?;
    ends.into_iter().min().ok_or(CertificateError::Pem(pem::Error::NoItemsFound))
}

/// The certificates of a PEM file, at least one.
/// The serial number of the first certificate in a PEM file.
///
/// # Errors
/// The certificate is missing or in another form.
pub fn first_serial(file: &Path) -> Result<Vec<u8>, CertificateError> {
    let certificates = read_certificates(file).map_err(CertificateError::Pem)?;
    let first = certificates.first().ok_or(CertificateError::Pem(pem::Error::NoItemsFound))?;
    let parsed = EndEntityCert::try_from(first);
    Ok(parsed.map_err(CertificateError::Certificate)?.serial().to_vec())
}

pub(crate) fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let read = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    if read.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(read) }
}

/// `notAfter` of a certificate (RFC 5280, 4.1), milliseconds of Unix time.
fn read_end(certificate: &[u8]) -> ASN1Result<u64> {
    yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|signed| {
            let end = signed.next().read_sequence(|fields| {
                // The version, which the first one leaves out.
                fields.read_optional(|field| {
                    field.read_tagged(Tag::context(0), |version| version.read_i64())
                })?;
                // Serial number, algorithm and issuer.
                for _ in 0..3 {
                    fields.next().read_der()?;
                }
                let end = fields.next().read_sequence(|validity| {
                    validity.next().read_der()?;
                    read_time(validity.next())
                })?;
                while fields.read_optional(|field| field.read_der())?.is_some() {}
                Ok(end)
            })?;
            while signed.read_optional(|field| field.read_der())?.is_some() {}
            Ok(end)
        })
    })
}

/// A time before or after 2050; one before 1970 has passed.
fn read_time(reader: BERReader<'_, '_>) -> ASN1Result<u64> {
    let seconds = if reader.lookahead_tag()? == TAG_UTCTIME {
        reader.read_utctime().map(|time: UTCTime| time.datetime().unix_timestamp())?
    } else {
        let time: GeneralizedTime = reader.read_generalized_time()?;
        time.datetime().unix_timestamp()
    };
    Ok(seconds.max(0).cast_unsigned().saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn watch(file: &Path) -> CertificateWatch {
        let mut raw = RawConfig::default();
        raw.tls.cert = Some(file.to_owned());
        CertificateWatch::new(&raw)
    }

    fn tests_certificate(name: &str) -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        tests.join("../../bmv2-testbed/switch-server/tests/p4runtime/tls").join(name)
    }

    #[test]
    fn a_certificate_is_reported_for_thirty_days_and_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.pem");
        fs::copy(tests_certificate("controller.pem"), &file).unwrap();
        let end = first_end(&file).unwrap();
        let (watch, findings) = (watch(&file), StandingFindings::default());
        let at = |now| {
            watch.read_files(now, &findings);
            findings.list_findings()
        };
        assert_eq!(at(end - WARN_BEFORE_MS - 1), []);
        let soon = at(end - 25 * DAY_MS);
        assert!(soon[0].text.contains("tls.cert") && soon[0].text.contains("25 days"), "{soon:?}");
        let over = at(end);
        assert_eq!(over[0].severity, topology::Severity::Error);
        assert_eq!(**watch.watch_ends().borrow(), CertificateEnds::from([("tls.cert", end)]));
        fs::write(&file, "no certificate").unwrap();
        assert!(at(0)[0].text.contains("no certificate in PEM"));
    }

    #[test]
    fn the_end_is_read_as_openssl_does() {
        // openssl x509 -enddate -noout: Oct 28 17:54:49 2126 GMT.
        let end = first_end(&tests_certificate("controller.pem")).unwrap();
        let end = timestamp_from_unix(end).unwrap();
        assert_eq!(end.strftime("%Y-%m-%d %H:%M:%S").to_string(), "2126-10-28 17:54:49");
    }
}
