//! `crux completions`: completion scripts for shells, from the definition of the command line.

use clap::Command;
use clap_complete::Shell;

use command_io::CommandError;
use command_io::output;

/// Print the completion script of a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux completions bash > /etc/bash_completion.d/crux")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run_completions(
    args: &CompletionsArgs,
    programs: Vec<Command>,
) -> Result<(), CommandError> {
    let mut script = Vec::new();
    for mut program in programs {
        let name = program.get_name().to_owned();
        clap_complete::generate(args.shell, &mut program, name, &mut script);
    }
    output::print_line(String::from_utf8_lossy(&script).trim_end())
}
