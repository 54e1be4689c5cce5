//! How a command fails: a message and an exit status.

use std::fmt::Display;
use std::process::ExitCode;

pub use topology::error_chain;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The user's input is wrong; exit status 2.
    #[error("{about}: {what}")]
    Input {
        /// The file or option at fault.
        about: String,
        /// What is wrong with it and what would be right.
        what: String,
    },
    /// A document is wrong; exit status 2. The message begins with its name.
    #[error("{0}")]
    Document(String),
    /// The work was done and its result is bad, or it could not be done; exit status 1.
    #[error("{0}")]
    Failed(String),
}

impl CommandError {
    /// Wrong input: `about` is the file or option.
    pub fn input(about: impl Display, what: impl Display) -> Self {
        Self::Input { about: about.to_string(), what: what.to_string() }
    }

    /// An invalid document; the error's message begins with its name.
    pub fn document(error: impl Display) -> Self {
        Self::Document(error.to_string())
    }

    /// A failed operation, with the whole chain of causes.
    pub fn failed(error: impl std::error::Error) -> Self {
        Self::Failed(error_chain(&error))
    }

    /// Prints the message and returns the exit status.
    pub fn report(self) -> ExitCode {
        eprintln!("crux: {self}");
        match self {
            Self::Input { .. } | Self::Document(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}
