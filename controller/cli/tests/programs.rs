//! `crux NAME` is `crux-NAME`, or a command of `crux-lab`, where these are beside `crux`.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// Held over a test. A program that one thread writes while another starts a process is open for
/// writing in the child until that has begun its own program, and cannot be run ("text file busy").
static PROCESSES: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder with `crux` and programs beside it that print their name and arguments, and end with
/// status 7.
fn installed(programs: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(env!("CARGO_BIN_EXE_crux"), folder.path().join("crux")).unwrap();
    for program in programs {
        let path = folder.path().join(program);
        fs::write(&path, "#!/bin/sh\necho \"${0##*/} $*\"\nexit 7\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn run(folder: &Path, words: &[&str]) -> Output {
    // Beside it is the folder of the file, whichever way it was found.
    Command::new("./crux").current_dir(folder).args(words).output().unwrap()
}

#[test]
fn commands_of_other_programs_run_there() {
    let _alone = alone();
    let folder = installed(&["crux-agent", "crux-switch", "crux-lab", "crux-own"]);
    let cases: [(&[&str], &str); 8] = [
        (&["demo", "--seeds", "10"], "crux-lab demo --seeds 10"),
        (&["lab", "up"], "crux-lab lab up"),
        (&["switch", "--no-p4", "--", "--cpu-port", "9"], "crux-switch --no-p4 -- --cpu-port 9"),
        (&["--log", "info", "agent", "--once"], "crux-agent --log info --once"),
        (&["jobs", "slurm", "end", "--spool", "a b"], "crux-agent slurm end --spool a b"),
        (&["jobs", "kubernetes", "watch", "--help"], "crux-agent kubernetes watch --help"),
        (&["schema", "outcome"], "crux-lab schema outcome"),
        (&["own", "x"], "crux-own x"),
    ];
    for (words, expect) in cases {
        let output = run(folder.path(), words);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expect, "{output:?}");
        assert_eq!(output.status.code(), Some(7), "the status is that of the program");
    }
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    let _alone = alone();
    let folder = installed(&[]);
    let cases: [(&[&str], &str); 5] = [
        (&["demo"], "crux-lab: not beside this program; install"),
        (&["switch"], "crux-switch: not beside"),
        (&["jobs", "slurm", "start"], "crux-agent: not beside"),
        (&["schema", "replay"], "crux-lab: not beside"),
        (&["docter"], "'doctor'"),
    ];
    for (words, expect) in cases {
        let output = run(folder.path(), words);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains(expect), "{complaint}");
        assert_eq!(output.status.code(), Some(2));
    }
}
