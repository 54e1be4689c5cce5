//! Where the token of this machine is: that of a controller without configured tokens, which serves
//! the user who runs it.

use std::path::PathBuf;

use crate::private_file::read_private;

/// Where a controller that runs as a service keeps it.
const SERVICE_FILE: &str = "/var/lib/crux/token";

/// The file of this user: `crux/token` in `XDG_STATE_HOME`, or in `~/.local/state`.
pub fn user_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")));
    Some(state?.join("crux/token"))
}

/// The token that a command may send to a controller on its own machine, if this user has one or
/// may read that of the service.
pub fn find_local_token() -> Option<String> {
    let files = user_file().into_iter().chain([PathBuf::from(SERVICE_FILE)]);
    let read = |file: PathBuf| {
        let content = read_private(&file).ok()?;
        Some(String::from_utf8_lossy(&content).trim().to_owned())
    };
    files.filter_map(read).find(|token| !token.is_empty())
}
