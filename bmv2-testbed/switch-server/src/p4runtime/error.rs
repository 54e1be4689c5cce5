//! Errors of requests: a canonical code and a sentence, and their form in a gRPC status.
//!
//! One update or one read filter fails with a [`RequestFailure`]; a batch of them becomes one
//! status whose details hold a `p4.v1.Error` per item, those that succeeded included.

use p4runtime_proto::{rpc, v1 as p4rt};
use prost::Message;
use tonic::{Code, Status};

use crate::p4runtime::election::{ArbitrationError, AuthorizationError};
use crate::p4runtime::p4info::{PipelineSchema, SchemaError};
use switch::ControlError;

/// The type of the messages packed into `google.rpc.Status.details`.
const ERROR_TYPE_URL: &str = "type.googleapis.com/p4.v1.Error";

/// Why one thing was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestFailure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl RequestFailure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// A feature of the protocol that this switch does not have.
    pub(crate) fn unimplemented(feature: &str) -> Self {
        Self::new(Code::Unimplemented, format!("{feature} is not supported by this switch"))
    }

    /// Puts the place of the failure before its message.
    pub(crate) fn in_context(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }
}

impl From<ControlError> for RequestFailure {
    fn from(error: ControlError) -> Self {
        let code = match &error {
            ControlError::NoProgram | ControlError::InUse(_) => Code::FailedPrecondition,
            ControlError::NoSuchObject { .. }
            | ControlError::KeyLength { .. }
            | ControlError::KeyField { .. }
            | ControlError::Priority(_)
            | ControlError::ForeignAction { .. }
            | ControlError::ArgumentCount { .. }
            | ControlError::TargetKind(_)
            | ControlError::BadGroup(_)
            | ControlError::NoDirectCounter
            | ControlError::NoDirectMeter
            | ControlError::NoIdleTimeout
            | ControlError::PeakBelowCommitted
            | ControlError::RepeatedReplica(_) => Code::InvalidArgument,
            ControlError::ArgumentWidth { .. }
            | ControlError::NoSuchCell { .. }
            | ControlError::RegisterWidth(_) => Code::OutOfRange,
            ControlError::AlreadyExists => Code::AlreadyExists,
            ControlError::NotFound
            | ControlError::NoSuchMember(_)
            | ControlError::NoSuchGroup(_) => Code::NotFound,
            ControlError::Full { .. } => Code::ResourceExhausted,
            ControlError::Constant(_) => Code::PermissionDenied,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SchemaError> for RequestFailure {
    fn from(error: SchemaError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

impl PipelineSchema {
    /// Why there is no object with this id.
    pub(crate) fn unknown_id(&self, what: &str, id: u32) -> RequestFailure {
        match self.unusable.get(&id) {
            Some(why) => why.clone().into(),
            None => RequestFailure::invalid_argument(format!("there is no {what} {id}")),
        }
    }
}

impl From<ArbitrationError> for RequestFailure {
    fn from(refusal: ArbitrationError) -> Self {
        let code = match &refusal {
            ArbitrationError::UnknownDevice { .. } => Code::NotFound,
            ArbitrationError::NoDeviceId
            | ArbitrationError::DeviceChanged { .. }
            | ArbitrationError::RoleChanged { .. } => Code::FailedPrecondition,
            ArbitrationError::ElectionIdInUse(_) => Code::InvalidArgument,
            ArbitrationError::TooManySessions(_)
            | ArbitrationError::NoClaim
            | ArbitrationError::TooManyRoles => Code::ResourceExhausted,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<AuthorizationError> for RequestFailure {
    fn from(denial: AuthorizationError) -> Self {
        let code = match denial {
            AuthorizationError::UnknownRole => Code::NotFound,
            AuthorizationError::NotPrimary => Code::PermissionDenied,
        };
        Self::new(code, denial.to_string())
    }
}

impl From<RequestFailure> for Status {
    fn from(failure: RequestFailure) -> Self {
        Self::new(failure.code, failure.message)
    }
}

/// One status for a whole batch: nothing if every item succeeded.
pub(crate) fn batch_status(
    what: &str,
    results: &[Result<(), RequestFailure>],
) -> Result<(), Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} {what} failed", results.len());
    let details = results.iter().map(pack_error).collect();
    let status = rpc::Status { code: Code::Unknown as i32, message: message.clone(), details };
    Err(Status::with_details(Code::Unknown, message, status.encode_to_vec().into()))
}

fn pack_error(result: &Result<(), RequestFailure>) -> prost_types::Any {
    let error = match result {
        Ok(()) => p4rt::Error::default(),
        Err(failure) => p4rt::Error {
            canonical_code: failure.code as i32,
            message: failure.message.clone(),
            ..p4rt::Error::default()
        },
    };
    prost_types::Any { type_url: ERROR_TYPE_URL.to_owned(), value: error.encode_to_vec() }
}
