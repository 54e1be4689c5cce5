//! What every command reads and prints, whichever program has it.
//!
//! Documents come in through [`files`] and [`InputDocumentArgs`], tables and JSON go out through
//! [`output`] and [`html`], [`ControllerClient`] queries a running controller, [`CommandError`] is
//! how a command fails, and [`program`] is what is around a command. The decision: this crate
//! implements no command and knows no controller, so that `crux`, `crux-agent`, `crux-switch` and
//! `crux-lab` share it without carrying each other.

mod client;
mod command_error;
pub mod file_watch;
pub mod files;
pub mod html;
mod input_documents;
pub mod interface_names;
pub mod output;
pub mod program;

pub use client::{ClientCredentials, ControllerClient, EventFrame, FrameStream};
pub use command_error::{CommandError, error_chain};
pub use input_documents::{InputDocumentArgs, InputDocuments};
