//! Why an agent cannot run.

use std::path::PathBuf;

/// What an agent needs and does not have.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A NIC does not exist, or sysfs is not mounted.
    #[error("cannot read the NIC counters of {nic}; {} lists the interfaces", sys.display())]
    Nic {
        /// Its name.
        nic: String,
        /// The folder that was searched.
        sys: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The socket cannot be opened.
    #[error("cannot listen on {}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Two observed jobs share a NIC, so that their traffic cannot be separated.
    #[error("jobs {0} and {1} are observed on the same NICs; list separate NICs in `nics`")]
    SharedNics(String, String),
    /// A job cannot be observed.
    #[error("cannot observe job {job}")]
    Job {
        /// Which.
        job: String,
        /// Why.
        #[source]
        source: crate::job_monitor::ReportRefusal,
    },
    /// The address of the controller is invalid.
    #[error("invalid controller address `{0}`: expected HOST:PORT")]
    Address(String),
    /// The token is not a valid header value.
    #[error("invalid token: it contains characters that are not allowed in a header")]
    Token,
    /// The TLS settings are invalid.
    #[error("invalid TLS settings: check CA, certificate and key")]
    Tls(#[source] tonic::transport::Error),
}
