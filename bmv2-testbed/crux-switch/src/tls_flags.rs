//! TLS on the command line, with the flags of simple_switch_grpc.

use std::path::{Path, PathBuf};

use switch_server::p4runtime::ServiceTls;

use command_io::CommandError;

/// Flags of a gRPC server's identity.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TlsFlags {
    /// Serve over TLS
    #[arg(long, requires = "grpc_server_cert", requires = "grpc_server_key")]
    grpc_server_ssl: bool,
    /// The switch's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "grpc_server_ssl")]
    grpc_server_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "grpc_server_ssl")]
    grpc_server_key: Option<PathBuf>,
    /// Roots of the certificates of controllers (PEM)
    #[arg(long, value_name = "FILE", requires = "grpc_server_with_client_auth")]
    grpc_server_cacert: Option<PathBuf>,
    /// Certificate revocation lists of those roots (PEM), read again when they change
    #[arg(long, value_name = "FILE", requires = "grpc_server_cacert")]
    grpc_server_crl: Option<PathBuf>,
    /// Controllers must show a certificate of those roots
    #[arg(long, requires = "grpc_server_cacert", requires = "grpc_server_ssl")]
    grpc_server_with_client_auth: bool,
}

impl TlsFlags {
    /// Whether controllers must show a certificate.
    pub(crate) fn requires_certificates(&self) -> bool {
        self.grpc_server_with_client_auth
    }

    /// The files with certificates and keys; none without `--grpc-server-ssl`.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [
            &self.grpc_server_cert,
            &self.grpc_server_key,
            &self.grpc_server_cacert,
            &self.grpc_server_crl,
        ];
        files.into_iter().flatten().cloned()
    }

    /// The files read; none without `--grpc-server-ssl`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn load_tls(&self) -> Result<Option<ServiceTls>, CommandError> {
        let (Some(certificate), Some(key)) = (&self.grpc_server_cert, &self.grpc_server_key) else {
            return Ok(None);
        };
        let roots = self.grpc_server_cacert.as_deref();
        let revoked = self.grpc_server_crl.as_deref();
        Ok(Some(ServiceTls {
            certificate: read_pem(certificate)?,
            key: read_pem(key)?,
            client_roots: roots.map(read_pem).transpose()?,
            revoked: revoked.map(read_pem).transpose()?,
        }))
    }
}

fn read_pem(file: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(file).map_err(|error| CommandError::input(file.display(), error))
}
