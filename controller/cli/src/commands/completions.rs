//! `crux completions`: completion scripts for shells, from the definition of the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::{Cli, output};

/// Print the completion script of a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux completions bash > /etc/bash_completion.d/crux")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "crux", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end())
}
