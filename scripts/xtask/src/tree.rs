//! The project's tree: where it is, which files it has, and how programs are run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file that git tracks, with its text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// The root of the workspace: two folders above this crate.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths of all files that git tracks or would track, from the root, ascending.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<String>, String> {
    let listing =
        command_output(root, "git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let existing = listing.lines().filter(|path| root.join(path).is_file());
    let mut paths: Vec<String> = existing.map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// All Rust sources of the workspace.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<SourceFile>, String> {
    read_files(root, ".rs")
}

/// All files of the tree whose names end so.
pub(crate) fn read_files(root: &Path, ending: &str) -> Result<Vec<SourceFile>, String> {
    let paths = tracked_files(root)?.into_iter().filter(|path| path.ends_with(ending));
    paths
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path));
            let text = text.map_err(|error| format!("{path}: {error}"))?;
            Ok(SourceFile { path, text })
        })
        .collect()
}

/// What a program prints, or why it could not.
pub(crate) fn command_output(
    root: &Path,
    program: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stderr(Stdio::inherit());
    let run = command.output().map_err(|error| format!("{program}: {error}"))?;
    if !run.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), run.status));
    }
    String::from_utf8(run.stdout).map_err(|e| format!("{program} {}: {e}", arguments.join(" ")))
}

/// Runs a program with its output going to the terminal.
pub(crate) fn run_command(root: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(program).args(arguments).current_dir(root).status();
    match status.map_err(|e| format!("{program}: {e}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{program} {}: {status}", arguments.join(" "))),
    }
}
