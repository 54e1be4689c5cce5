//! Why a query or a command has no answer.

use topology::{Finding, one_line};

use crate::access::ControllerError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request is invalid or refused, for these reasons.
    #[error("{}", one_line(.0))]
    Refused(Vec<Finding>),
    /// There is nothing of this name.
    #[error("{0}")]
    Unknown(String),
    /// The caller has too much of this in progress.
    #[error("more than {0} in progress; try again later")]
    TooMany(&'static str),
    /// All callers together have too much of this in progress.
    #[error("the controller is busy: {0} are in progress; try again later")]
    Overloaded(&'static str),
    /// The controller has no answer now.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}
