//! What help and documentation show is what the program takes: every command has an example, every
//! example is a command line that parses, and every endpoint has its place in a page.

use clap::{Command, CommandFactory};

use crate::CruxCli;

/// The pages that have command lines.
const PAGES: [(&str, &str); 10] = [
    ("README.md", include_str!("../../../README.md")),
    ("bring your jobs", include_str!("../../../docs/bring-your-jobs.md")),
    ("controller", include_str!("../../../docs/controller.md")),
    ("demo", include_str!("../../../docs/demo.md")),
    ("operations", include_str!("../../../docs/operations.md")),
    ("simulation", include_str!("../../../docs/simulation.md")),
    ("switch", include_str!("../../../docs/switch.md")),
    ("telemetry", include_str!("../../../docs/telemetry.md")),
    ("testbed", include_str!("../../../docs/testbed.md")),
    ("web", include_str!("../../../docs/web.md")),
];

/// The names of all commands that do something and whose help has no example, depth first.
fn leaf_commands(name: &str, command: &Command, found: &mut Vec<String>) {
    let mut below = command.get_subcommands().peekable();
    let lines = help_examples(command);
    let has_example = lines.iter().any(|line| format!("{line} ").starts_with(&format!("{name} ")));
    if below.peek().is_none() && !command.is_hide_set() && !has_example {
        found.push(name.to_owned());
    }
    for command in below {
        leaf_commands(&format!("{name} {}", command.get_name()), command, found);
    }
}

/// The command lines in a text, without pipes, redirections and comments.
fn command_lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let shown = joined
        .lines()
        .map(|line| line.trim_start_matches("Example:").trim())
        .filter(|line| line.starts_with("crux "));
    shown
        .map(|line| {
            let ends = [" #", " | ", " > ", " &"].into_iter().filter_map(|end| line.find(end));
            line[..ends.min().unwrap_or(line.len())].to_owned()
        })
        .collect()
}

/// All command lines that the pages show.
fn page_examples() -> Vec<String> {
    // Every other piece is a block of code; the first word of one is its language.
    let blocks = PAGES.iter().flat_map(|(_, page)| page.split("```").skip(1).step_by(2));
    let shell = blocks.filter_map(|block| block.strip_prefix("sh\n"));
    shell.flat_map(command_lines).collect()
}

/// All command lines that the help of a command and of those below it shows.
fn help_examples(command: &Command) -> Vec<String> {
    let help = { command.get_after_help() }.map_or_else(String::new, ToString::to_string);
    let below = command.get_subcommands().flat_map(help_examples);
    command_lines(&help).into_iter().chain(below).collect()
}

/// The words of a command line, as a shell makes them of plain and quoted text.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.trim().chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (' ', None) => words.push(String::new()),
            (letter, _) => words.last_mut().expect("never empty").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_example_parses_and_every_command_has_one() {
    let examples = [page_examples(), help_examples(&CruxCli::command())].concat();
    let mut complaints: Vec<String> = examples
        .iter()
        .filter_map(|line| {
            let error = CruxCli::command().try_get_matches_from(shell_words(line)).err()?;
            Some(format!("{line}\n{error}"))
        })
        .collect();
    let mut found = Vec::new();
    leaf_commands("crux", &CruxCli::command(), &mut found);
    complaints.extend(found.into_iter().map(|name| format!("{name}: no example in its help")));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_endpoint_is_in_a_page() {
    let document = controller::northbound::openapi::openapi_document();
    let paths = document["paths"].as_object().unwrap().keys();
    let missing: Vec<_> =
        paths.filter(|path| !PAGES.iter().any(|(_, page)| page.contains(path.as_str()))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
