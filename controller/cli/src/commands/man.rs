//! `crux man`: the man pages and the page of all commands, from the definition of the command line.
//! `cargo xtask generate` writes them to target/generated.

use clap::{Arg, Command};

use super::command_reference::render_reference;
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

pub(crate) fn run_man(args: &ManArgs, programs: Vec<Command>) -> Result<(), CommandError> {
    let mut pages = man_pages(programs);
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
    output::print_line(render_page(command)?.trim_end())
}

/// The text of a page. Its synopsis is ours: that of the library names no values.
fn render_page(command: Command) -> Result<String, CommandError> {
    let synopsis = render_synopsis(&command);
    let mut page = Vec::new();
    clap_mangen::Man::new(command).date("").render(&mut page).map_err(CommandError::failed)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    let begin = page.find(".SH SYNOPSIS\n").map(|at| at + ".SH SYNOPSIS\n".len());
    let range = begin.and_then(|begin| Some(begin..begin + page[begin..].find("\n.SH ")?));
    Ok(match range {
        Some(range) => format!("{}{synopsis}{}", &page[..range.start], &page[range.end..]),
        None => page,
    })
}

/// How the command is typed, with the names of values.
fn render_synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let words = arguments.map(|arg| match arg.is_required_set() {
        true => argument_words(arg),
        false => format!("[{}]", argument_words(arg)),
    });
    let below = command.get_subcommands().any(|below| !below.is_hide_set());
    let below = below.then(|| "\\fICOMMAND\\fR".to_owned());
    let all = std::iter::once(bold(name)).chain(words).chain(below);
    all.collect::<Vec<_>>().join(" ")
}

/// An option with its value, a flag, or the name of a positional argument.
fn argument_words(arg: &Arg) -> String {
    let names: Vec<String> = match arg.get_value_names() {
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => vec![arg.get_id().to_string().to_uppercase()],
    };
    let more = if arg.get_num_args().is_some_and(|count| count.max_values() > names.len()) {
        "..."
    } else {
        ""
    };
    let value = format!("{}{more}", italic(&names.join(" ")));
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => bold(&format!("-{short}|--{long}")),
        (Some(short), None) => bold(&format!("-{short}")),
        (None, Some(long)) => bold(&format!("--{long}")),
        (None, None) => return value,
    };
    match arg.get_action().takes_values() {
        true => format!("{flag} {value}"),
        false => flag,
    }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", text.replace('-', "\\-"))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", text.replace('-', "\\-"))
}

/// A page for each program and one for every command that people see, depth first.
fn man_pages(programs: Vec<Command>) -> Vec<(String, Command)> {
    let mut pages = Vec::new();
    for program in programs {
        let mut program = program.disable_help_subcommand(true);
        program.build();
        let name = program.get_name().to_owned();
        collect_pages(&name, program, &mut pages);
    }
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

#[cfg(test)]
mod tests {
    use clap::Subcommand;

    use super::*;
    use crate::OperatorCommand;

    /// The pages of a program that has the commands of an operator.
    fn pages() -> Vec<(String, Command)> {
        man_pages(vec![OperatorCommand::augment_subcommands(Command::new("crux"))])
    }

    fn page(name: &str) -> String {
        let command = pages().into_iter().find(|(page, _)| page == name).unwrap().1;
        render_page(command).unwrap()
    }

    #[test]
    fn a_synopsis_names_values() {
        let report = page("crux-report");
        let synopsis = report.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).unwrap();
        assert!(synopsis.starts_with("\\fBcrux report\\fR "), "{synopsis}");
        assert!(synopsis.contains("[\\fB\\-\\-last\\fR \\fITIME\\fR]"), "{synopsis}");
        let explain = page("crux-explain");
        assert!(explain.contains("\n\\fBcrux explain\\fR \\fINAME\\fR "), "{explain}");
        assert!(page("crux-fabric").contains(" \\fICOMMAND\\fR\n"));
    }

    #[test]
    fn no_page_shows_an_empty_default() {
        for (name, command) in pages() {
            let page = render_page(command).unwrap();
            assert!(!page.contains("[default: ]"), "{name}");
        }
    }
}
