//! What every command of `crux` reads and prints, whichever crate implements it.
//!
//! Documents and policy files come in through [`files`] and [`InputDocumentArgs`], tables and JSON
//! go out through [`output`] and [`html`], [`ControllerClient`] queries a running controller, and
//! [`CommandError`] is how a command fails. The decision: this crate implements no command, so that
//! the operator's commands (`crux`) and the laboratory (`lab`) share it without knowing each other.

mod client;
mod command_error;
pub mod files;
pub mod html;
mod input_documents;
pub mod interface_names;
pub mod output;

pub use client::{ClientCredentials, ControllerClient, EventFrame, FrameStream};
pub use command_error::{CommandError, error_chain};
pub use input_documents::{InputDocumentArgs, InputDocuments};
