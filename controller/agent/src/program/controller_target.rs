//! The controller that reports go to, from the options of a command.

use command_io::{ClientCredentials, CommandError, files};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::report_stream::ControllerTarget;

/// The controller at `address`, with what `credentials` show to it.
///
/// # Errors
/// A file cannot be read, or others can read a secret.
pub fn controller_target(
    credentials: &ClientCredentials,
    address: &str,
) -> Result<ControllerTarget, CommandError> {
    let target = ControllerTarget {
        token: credentials.read_token(address)?,
        ..ControllerTarget::from_address(address)
    };
    let Some(ca) = &credentials.ca else {
        return Ok(target);
    };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(files::read_text(ca)?));
    let tls = match (&credentials.cert, &credentials.key) {
        (Some(cert), Some(key)) => {
            tls.identity(Identity::from_pem(files::read_text(cert)?, files::read_secret(key)?))
        }
        _ => tls,
    };
    Ok(ControllerTarget { tls: Some(tls), ..target })
}
