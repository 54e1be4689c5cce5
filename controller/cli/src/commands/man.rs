//! `crux man`: the man pages, from the definition of the command line. `cargo xtask generate`
//! writes them to docs/man.

use clap::{Command, CommandFactory};

use crate::failure::Failure;
use crate::{Cli, output};

/// Print a man page.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux man crux-plan | man -l -")]
pub(crate) struct Args {
    /// The page, for example crux-plan
    #[arg(required_unless_present = "list")]
    page: Option<String>,
    /// Print the names of all pages
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let pages = pages();
    let Some(wanted) = &args.page else {
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        return output::print(names.join("\n"));
    };
    let (_, command) = pages
        .into_iter()
        .find(|(name, _)| name == wanted)
        .ok_or_else(|| Failure::input(wanted, "no such page; crux man --list names all"))?;
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).date("").render(&mut page);
    rendered.map_err(|error| Failure::work(&error))?;
    output::print(String::from_utf8_lossy(&page).trim_end())
}

/// A page for `crux` and one for every command that people see, depth first.
fn pages() -> Vec<(String, Command)> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect("crux", root, &mut pages);
    pages
}

fn collect(name: &str, command: Command, pages: &mut Vec<(String, Command)>) {
    let shown = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned();
    let below: Vec<Command> = shown.collect();
    pages.push((name.to_owned(), command));
    for command in below {
        collect(&format!("{name}-{}", command.get_name()), command, pages);
    }
}
