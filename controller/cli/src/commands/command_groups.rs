//! The commands by what they are for, as `crux --help` lists them.

use std::fmt::Write as _;

use clap::Command;

/// Commands by purpose.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Set up", &["init", "cert", "fabric", "plan", "config", "controller", "context"]),
    (
        "See what is",
        &["doctor", "jobs", "switches", "links", "flows", "explain", "events", "top", "report"],
    ),
    ("Change it", &["drain", "undrain", "policy", "cluster"]),
    ("Look back", &["audit", "state", "replay-incident"]),
    ("Others", &["schema", "completions", "help"]),
];

/// The program with its commands in groups in its help.
pub(crate) fn with_groups(command: Command) -> Command {
    let mut groups = String::new();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(groups, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP.to_owned(), ToString::to_string);
            let _ = writeln!(groups, "  {name:<15}  {about}");
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\
         {{after-help}}"
    ))
}

/// What clap's own command does.
const HELP: &str = "Print the help of a command";

#[cfg(test)]
mod tests {
    use clap::Subcommand;

    use super::*;
    use crate::OperatorCommand;

    #[test]
    fn every_command_is_in_one_group() {
        let command = OperatorCommand::augment_subcommands(Command::new("crux"));
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        shown.push("help");
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
        let help = with_groups(command).render_help().to_string();
        assert!(help.contains("Change it:\n  drain            Move traffic"), "{help}");
    }
}
