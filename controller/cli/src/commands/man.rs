//! `crux man`: the man pages and the page of all commands, from the definition of the command line.
//! `cargo xtask generate` writes them to docs/man and docs/commands.md.

use clap::{Command, CommandFactory};

use super::command_reference::render_reference;
use crate::CruxCli;
use command_io::CommandError;
use command_io::output;

/// Print a man page.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux man crux-plan | man -l -")]
pub(crate) struct ManArgs {
    /// The page, for example crux-plan
    #[arg(required_unless_present_any = ["list", "markdown"])]
    page: Option<String>,
    /// Print the names of all pages
    #[arg(long)]
    list: bool,
    /// Print all commands as one page in Markdown
    #[arg(long, conflicts_with_all = ["page", "list"])]
    markdown: bool,
}

pub(crate) fn run_man(args: &ManArgs) -> Result<(), CommandError> {
    let mut pages = man_pages();
    if args.markdown {
        return output::print_line(render_reference(&mut pages).trim_end());
    }
    let Some(wanted) = &args.page else {
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        return output::print_line(names.join("\n"));
    };
    let (_, command) = pages
        .into_iter()
        .find(|(name, _)| name == wanted)
        .ok_or_else(|| CommandError::input(wanted, "no such page; crux man --list names all"))?;
    let mut page = Vec::new();
    clap_mangen::Man::new(command).date("").render(&mut page).map_err(CommandError::failed)?;
    output::print_line(String::from_utf8_lossy(&page).trim_end())
}

/// A page for `crux` and one for every command that people see, depth first.
fn man_pages() -> Vec<(String, Command)> {
    let mut root = CruxCli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect_pages("crux", root, &mut pages);
    pages
}

fn collect_pages(name: &str, command: Command, pages: &mut Vec<(String, Command)>) {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let below: Vec<Command> = shown.collect();
    pages.push((name.to_owned(), command));
    for command in below {
        collect_pages(&format!("{name}-{}", command.get_name()), command, pages);
    }
}
