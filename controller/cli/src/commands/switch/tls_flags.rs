//! TLS on the command line, with the flags of simple_switch_grpc.

use std::path::{Path, PathBuf};

use switch::service::Tls;

use crate::failure::Failure;

/// Flags of a gRPC server's identity.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TlsFlags {
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
    /// Controllers must show a certificate of those roots
    #[arg(long, requires = "grpc_server_cacert", requires = "grpc_server_ssl")]
    grpc_server_with_client_auth: bool,
}

impl TlsFlags {
    /// The files read; none without `--grpc-server-ssl`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&self) -> Result<Option<Tls>, Failure> {
        let (Some(certificate), Some(key)) = (&self.grpc_server_cert, &self.grpc_server_key) else {
            return Ok(None);
        };
        let roots = self.grpc_server_cacert.as_deref();
        Ok(Some(Tls {
            certificate: pem(certificate)?,
            key: pem(key)?,
            client_roots: roots.map(pem).transpose()?,
        }))
    }
}

fn pem(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::input(file.display(), error))
}
