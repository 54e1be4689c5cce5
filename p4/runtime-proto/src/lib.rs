//! P4Runtime v1.5 and gNMI 0.8 for prost and tonic: messages, clients and servers.
//!
//! The controller's side (`p4`, `controller`) and the embedded switch both speak through these
//! types and share nothing else, so that each can be a witness of the other. The decision behind
//! it: the `.proto` files are compiled by protox at build time, so a Rust toolchain suffices, and
//! their descriptors stay embedded for what needs reflection, such as P4Info's text format.
//!
//! ```
//! use p4runtime_proto::v1 as p4rt;
//!
//! let election = p4rt::Uint128 { high: 1, low: 7 };
//! assert!(election.high > 0);
//! ```

mod text;

pub use generated::gnmi;
pub use generated::gnmi_ext;
pub use generated::google::rpc;
pub use generated::p4::config::v1 as config_v1;
pub use generated::p4::v1;
/// `google.protobuf.Any`, which wraps the details of a status.
pub use prost_types::Any;
pub use text::TextError;

/// The serialized `google.protobuf.FileDescriptorSet` of every file here, imports included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The tree of protobuf packages, as the generated code refers to it.
#[allow(missing_docs, deprecated, unreachable_pub, rust_2018_idioms, clippy::all, clippy::pedantic)]
mod generated {
    pub mod gnmi {
        tonic::include_proto!("gnmi");
    }
    pub mod gnmi_ext {
        tonic::include_proto!("gnmi_ext");
    }
    pub mod google {
        pub mod rpc {
            tonic::include_proto!("google.rpc");
        }
    }
    pub mod p4 {
        pub mod config {
            pub mod v1 {
                tonic::include_proto!("p4.config.v1");
            }
        }
        pub mod v1 {
            tonic::include_proto!("p4.v1");
        }
    }
}
