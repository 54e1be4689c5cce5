//! `crux completions`: completion scripts for shells, from the definition of the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::CruxCli;
use command_io::CommandError;
use command_io::output;

/// Print the completion script of a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux completions bash > /etc/bash_completion.d/crux")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run_completions(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CruxCli::command(), "crux", &mut script);
    output::print_line(String::from_utf8_lossy(&script).trim_end())
}
