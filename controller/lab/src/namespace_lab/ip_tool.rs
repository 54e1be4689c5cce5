//! The program `ip` of iproute2, which makes and removes interfaces and namespaces.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use command_io::CommandError;

/// Runs lines of `ip` commands; `options` stand before `-batch`.
///
/// # Errors
/// The first line that fails.
pub(super) fn run_batch(options: &[&str], lines: &str) -> Result<(), CommandError> {
    let done = feed_lines(options, lines)?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&done.stderr);
            Err(CommandError::Failed(format!("ip -batch: {}", text.trim())))
        }
    }
}

/// Runs lines of `ip` commands, and goes on after those that fail.
///
/// # Errors
/// There is no `ip`.
pub(super) fn run_all_lines(lines: &str) -> Result<(), CommandError> {
    feed_lines(&["-force"], lines).map(drop)
}

/// Process ids in a namespace; none where there is no such namespace.
///
/// # Errors
/// There is no `ip`.
pub(super) fn namespace_processes(namespace: &str) -> Result<Vec<i32>, CommandError> {
    let done =
        ip().args(["netns", "pids", namespace]).output().map_err(|error| start_error(&error))?;
    let text = String::from_utf8_lossy(&done.stdout);
    Ok(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// `ip netns exec NAMESPACE`, to which a program and its arguments are added.
pub(super) fn in_namespace(namespace: &str) -> Command {
    let mut command = ip();
    command.args(["netns", "exec", namespace]);
    command
}

fn ip() -> Command {
    Command::new("ip")
}

fn feed_lines(options: &[&str], lines: &str) -> Result<Output, CommandError> {
    let mut child = ip()
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| start_error(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // A child that stops at a wrong line says so itself.
        let _closed = input.write_all(lines.as_bytes());
    }
    child.wait_with_output().map_err(CommandError::failed)
}

fn start_error(error: &std::io::Error) -> CommandError {
    CommandError::input("ip", format_args!("{error}; install iproute2"))
}
