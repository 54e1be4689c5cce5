//! What the controller and its clients share: the gRPC services, compiled from `proto/`, the body of
//! a refused request, and where the token of this machine is.
//!
//! The daemon serves it, agents and `crux job` speak it. The decision: messages carry names, never
//! ids, and nothing here knows what they mean; the daemon's `telemetry` and `northbound` turn them
//! into the types that the rest of the program has.

pub mod local_token;
pub mod private_file;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Finding;

/// Why a request over HTTP was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// All of `proto/` as a `google.protobuf.FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Job telemetry: agents and training processes report jobs.
pub mod telemetry {
    #[allow(unreachable_pub, rust_2018_idioms, clippy::all, clippy::pedantic)]
    #[allow(missing_docs)] // what tonic has generated
    mod generated {
        tonic::include_proto!("crux.telemetry.v1");
    }
    pub use generated::*;
}

/// Northbound API: operators query and command the controller.
pub mod northbound {
    #[allow(unreachable_pub, rust_2018_idioms, clippy::all, clippy::pedantic)]
    #[allow(missing_docs)] // what tonic has generated
    mod generated {
        tonic::include_proto!("crux.northbound.v1");
    }
    pub use generated::*;
}
