//! Which updates of a batch a switch refused, and why.
//!
//! The answer to a Write with refused updates is one gRPC status whose details hold one
//! `p4.v1.Error` per update, those that succeeded included. The decision: anything else (details
//! missing, of another number or type) is a failure of the whole batch, after which the session
//! reads again rather than guess.

use p4runtime_proto::{rpc, v1 as p4rt};
use prost::Message;
use tonic::{Code, Status};

use crate::TableUpdate;

/// Why a batch was not written as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Some updates were refused; the others are written.
    #[error("{} updates refused, the first because: {}", .0.len(), first_reason(.0))]
    Refused(Vec<RefusedUpdate>),
    /// The switch answered for the batch as a whole: which updates it made is unknown.
    #[error("batch failed with {code:?}: {message}")]
    Batch {
        /// The code of the answer.
        code: Code,
        /// The text of the answer.
        message: String,
    },
}

/// An update that the switch refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedUpdate {
    /// Its place in the batch, from 0.
    pub position: usize,
    /// The update.
    pub update: TableUpdate,
    /// The reason as a code.
    pub code: Code,
    /// The reason as text from the switch.
    pub message: String,
}

/// Decodes `status`, the response to a Write of `updates`.
pub fn decode_write_error(status: &Status, updates: &[TableUpdate]) -> WriteError {
    let refusals = decode_update_errors(status)
        .filter(|errors| errors.len() == updates.len())
        .map(|errors| refused_updates(&errors, updates))
        .filter(|refusals| !refusals.is_empty());
    refusals.map_or_else(
        || WriteError::Batch { code: status.code(), message: status.message().to_owned() },
        WriteError::Refused,
    )
}

/// The errors of all updates of a batch, `OK` included; `None` if the status does not carry them.
pub(super) fn decode_update_errors(status: &Status) -> Option<Vec<p4rt::Error>> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    details
        .iter()
        .map(|any| {
            let is_error = any.type_url.rsplit('/').next() == Some("p4.v1.Error");
            is_error.then(|| p4rt::Error::decode(&any.value[..]).ok())?
        })
        .collect()
}

fn refused_updates(errors: &[p4rt::Error], updates: &[TableUpdate]) -> Vec<RefusedUpdate> {
    let pairs = errors.iter().zip(updates).enumerate();
    let refused = pairs.filter(|(_, (error, _))| error.canonical_code != Code::Ok as i32);
    refused
        .map(|(position, (error, update))| RefusedUpdate {
            position,
            update: update.clone(),
            code: Code::from(error.canonical_code),
            message: error.message.clone(),
        })
        .collect()
}

fn first_reason(refusals: &[RefusedUpdate]) -> String {
    refusals
        .first()
        .map(|refusal| format!("{:?}: {}", refusal.code, refusal.message))
        .unwrap_or_default()
}
