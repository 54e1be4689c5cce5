//! What help and documentation show is what the program takes: every command has an example, every
//! example is a command line that parses, and every endpoint has its place in a page.

use std::path::Path;

use clap::Command;

use crate::programs;

/// All pages of the documentation, in no order.
fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    let mut waiting = vec![root.join("README.md"), root.join("SECURITY.md"), root.join("docs")];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("docs can be listed");
            waiting.extend(entries.map(|entry| entry.expect("docs can be listed").path()));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            texts.push(std::fs::read_to_string(path).expect("a page is text"));
        }
    }
    texts
}

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

/// All command lines in the shell blocks of the pages, and after the prompts of their consoles.
fn page_examples() -> Vec<String> {
    let mut lines = Vec::new();
    for page in pages() {
        // Every other piece is a block of code; the first word of one is its language.
        for block in page.split("```").skip(1).step_by(2) {
            if let Some(shell) = block.strip_prefix("sh\n") {
                lines.extend(command_lines(shell));
            } else if let Some(console) = block.strip_prefix("console\n") {
                let joined = console.replace("\\\n", " ");
                let typed = joined.lines().filter_map(|line| line.strip_prefix("$ "));
                lines.extend(typed.flat_map(command_lines));
            }
        }
    }
    lines
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

/// Parses a command line as the program does that has the command.
fn parse_example(line: &str) -> Result<(), clap::Error> {
    let words = shell_words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [own, agent, switch] = programs();
    // Options of logs may come before the command.
    let command = words.iter().position(|word| ["agent", "switch", "jobs"].contains(word));
    let (program, words) = match &words[command.unwrap_or(0)..] {
        ["agent", rest @ ..] if command <= Some(3) => (agent, rest),
        ["switch", rest @ ..] if command <= Some(3) => (switch, rest),
        ["jobs", "slurm" | "kubernetes", ..] => (agent, &words[command.unwrap_or(0) + 1..]),
        _ => (own, &words[1..]),
    };
    program.try_get_matches_from(std::iter::once(&"crux").chain(words)).map(drop)
}

#[test]
fn every_example_parses_and_every_command_has_one() {
    let programs = programs();
    let helped = programs.iter().flat_map(help_examples).collect();
    let examples = [page_examples(), helped].concat();
    let mut complaints: Vec<String> = examples
        .iter()
        .filter_map(|line| {
            let error = parse_example(line).err()?;
            // Help and version are errors of the parser, and end well.
            (error.exit_code() != 0).then(|| format!("{line}\n{error}"))
        })
        .collect();
    let mut found = Vec::new();
    let [own, agent, switch] = &programs;
    leaf_commands("crux", own, &mut found);
    leaf_commands("crux switch", switch, &mut found);
    // What the agent records for schedulers is `crux jobs SCHEDULER`.
    leaf_commands("crux jobs", agent, &mut found);
    complaints.extend(found.into_iter().map(|name| format!("{name}: no example in its help")));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_endpoint_is_in_a_page() {
    let document = controller::northbound::openapi::openapi_document();
    let paths = document["paths"].as_object().unwrap().keys();
    let pages = pages();
    let missing: Vec<_> =
        paths.filter(|path| !pages.iter().any(|page| page.contains(path.as_str()))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A command in a block without a language would be neither parsed nor run.
#[test]
fn blocks_with_commands_say_that_they_are_shell() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|page| page.split("```").skip(1).step_by(2));
    let plain = blocks.filter_map(|block| block.strip_prefix('\n'));
    let is_command = |line: &&str| ["crux ", "cargo ", "$ "].iter().any(|c| line.starts_with(c));
    let commands: Vec<&str> = plain.flat_map(str::lines).filter(is_command).collect();
    assert!(commands.is_empty(), "{commands:#?}");
}
