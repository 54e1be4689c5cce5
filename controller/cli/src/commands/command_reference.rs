//! The page of all commands in Markdown, from the definition of the command line, as the man pages
//! are. `cargo xtask generate` writes it to target/generated/commands.md.

use std::fmt::Write as _;

use clap::{Arg, Command};

const INTRODUCTION: &str = "\
# Commands

Every command of `crux`, with its options and examples. `crux COMMAND --help` prints the same, and
the Debian package has it as man pages. This page is generated from the program: `cargo xtask
generate`.

Exit status: 0 done, 1 failed, 2 usage or bad input. Every command has `--help`, `--log FILTER`
(error, warn, info, debug, trace, or a filter such as `controller=debug`) and `--log-format`
(`text` or `json`).
";

/// The page for these commands, by their full names.
pub(super) fn render_reference(commands: &mut [(String, Command)]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| command | what it does |\n|---|---|\n");
    for (name, command) in commands.iter().filter(|(_, command)| !has_commands(command)) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let name = command.get_bin_name().unwrap_or(name);
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| [{name}](#{}) | {} |", name.replace(' ', "-"), cell(&about));
    }
    for (name, command) in commands.iter_mut() {
        let name = command.get_bin_name().unwrap_or(name).to_owned();
        render_command(&mut page, &name, command);
    }
    page
}

fn has_commands(command: &Command) -> bool {
    command.get_subcommands().any(|below| !below.is_hide_set())
}

fn render_command(page: &mut String, name: &str, command: &mut Command) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let about = about.unwrap_or_default();
    let _ = write!(page, "\n## {name}\n\n{about}\n\n```text\n{usage}\n```\n");
    let shown = command.get_arguments().filter(|arg| !is_common(arg));
    let rows: Vec<String> = shown.map(render_argument).collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| argument | meaning |\n|---|---|\n{}", rows.concat());
    }
    if let Some(examples) = command.get_after_help() {
        let _ = write!(page, "\n```text\n{}\n```\n", examples.to_string().trim_end());
    }
}

/// Whether the introduction has it, or help hides it.
fn is_common(arg: &Arg) -> bool {
    let common = ["help", "version", "log", "log_format"];
    arg.is_hide_set() || common.contains(&arg.get_id().as_str())
}

fn render_argument(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = match arg.get_action().takes_values() {
        true => names.iter().map(|name| format!("<{name}>")).collect(),
        false => Vec::new(),
    };
    let flags = [arg.get_short().map(|flag| format!("-{flag}")), arg.get_long().map(long_flag)];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    let name = format!("{} {}", flags.join(", "), values.join(" "));
    format!("| `{}` | {} |\n", name.trim(), cell(&argument_meaning(arg)))
}

fn long_flag(name: &str) -> String {
    format!("--{name}")
}

/// Help, and what else is known: values, default, variable.
fn argument_meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
    let mut parts = vec![help.unwrap_or_default()];
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_possible_values();
    let values = values.iter().filter(|value| takes_value && !value.is_hide_set());
    let values: Vec<String> = values.map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        parts.push(format!("Values: {}.", values.join(", ")));
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults: Vec<_> = defaults.filter(|value| !value.is_empty()).collect();
    if takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        parts.push(format!("Default: `{}`.", defaults.join(",")));
    }
    if let Some(variable) = arg.get_env() {
        parts.push(format!("Variable: `{}`.", variable.to_string_lossy()));
    }
    parts.retain(|part| !part.is_empty());
    let ends: Vec<String> = parts.iter().map(|part| with_full_stop(part)).collect();
    ends.join(" ")
}

fn with_full_stop(text: &str) -> String {
    let is_ended = text.ends_with(['.', ':', '?']);
    if is_ended { text.to_owned() } else { format!("{text}.") }
}

/// Text for a cell of a table: one line, without the marks of a table or of HTML.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}
