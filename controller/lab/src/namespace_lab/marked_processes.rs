//! The processes of a lab, found by a mark in their environment.
//!
//! Process ids in a file would be of no use after a crash between start and write. The decision:
//! every program that a lab starts, and whatever that starts in turn, has the folder of the lab in
//! its environment, where the kernel shows it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use command_io::CommandError;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ip_tool;
use super::network_layout::NetworkLayout;

/// The variable with the folder.
const MARK: &str = "CRUX_LAB";
/// How long programs may take to end before they are killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of looks at processes that end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Marks a program, before it is started, as one of the lab in a folder.
pub(super) fn mark_program(command: &mut Command, folder: &Path) {
    command.env(MARK, folder);
}

/// Ends all processes of a lab and all that run in its namespaces; returns how many there were.
///
/// # Errors
/// One does not end, not even when it is killed.
pub(super) fn end_processes(folder: &Path, layout: &NetworkLayout) -> Result<usize, CommandError> {
    let found = find_processes(folder, layout)?;
    signal_all(&found, Signal::SIGTERM);
    let count = found.len();
    let mut left = await_end(folder, layout)?;
    if !left.is_empty() {
        signal_all(&left, Signal::SIGKILL);
        left = await_end(folder, layout)?;
    }
    match left.first() {
        None => Ok(count),
        Some(pid) => Err(CommandError::Failed(format!("process {pid} does not end"))),
    }
}

/// Waits until all have ended; those that have not in time.
fn await_end(folder: &Path, layout: &NetworkLayout) -> Result<BTreeSet<i32>, CommandError> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let left = find_processes(folder, layout)?;
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Processes with the mark and those in the namespaces, without this one and those that wait for
/// it: a lab may be removed from a shell in it.
fn find_processes(folder: &Path, layout: &NetworkLayout) -> Result<BTreeSet<i32>, CommandError> {
    let mut found: BTreeSet<i32> = marked_processes(folder).collect();
    for host in &layout.hosts {
        found.extend(ip_tool::namespace_processes(&host.namespace)?);
    }
    let mut own = i32::try_from(process::id()).ok();
    while let Some(pid) = own.filter(|pid| *pid > 1) {
        found.remove(&pid);
        own = parent_of(pid);
    }
    Ok(found)
}

fn marked_processes(folder: &Path) -> impl Iterator<Item = i32> {
    let mark = format!("{MARK}={}", folder.display()).into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // What has ended meanwhile has no environment.
        let environment = fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|one| one == mark).then_some(pid)
    })
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

fn signal_all(processes: &BTreeSet<i32>, signal: Signal) {
    for pid in processes {
        // One that has ended meanwhile is what was wanted.
        let _ended = kill(Pid::from_raw(*pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn marked_processes_end_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("60").stdout(Stdio::null());
            command
        };
        let mut marked = sleep();
        mark_program(&mut marked, folder.path());
        let (mut marked, mut other) = (marked.spawn().unwrap(), sleep().spawn().unwrap());
        let layout = NetworkLayout { hosts: Vec::new(), cables: Vec::new() };
        // Between fork and exec a process still has its parent's environment.
        let deadline = Instant::now() + END_TIMEOUT;
        while marked_processes(folder.path()).count() == 0 && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        assert_eq!(end_processes(folder.path(), &layout).unwrap(), 1);
        assert!(!marked.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(end_processes(folder.path(), &layout).unwrap(), 0);
    }
}
