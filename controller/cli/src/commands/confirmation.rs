//! Questions to the operator before something is changed.

use std::io::IsTerminal;

use command_io::CommandError;

/// Asks whether to go on, after `text` has said what follows.
///
/// # Errors
/// The answer is no, or nobody can answer: then `--yes` says so beforehand.
pub(super) fn ask(text: &str, question: &str) -> Result<(), CommandError> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::document(format!("{text}; --yes applies it")));
    }
    eprint!("{text}. {question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CommandError::failed)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CommandError::Failed("nothing is changed".to_owned())),
    }
}
