//! A folder of documents, and the program run in it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A process that ends with the test.
pub(crate) struct RunningProcess(pub(crate) Child);

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// The files of one case; they go with it.
pub(crate) struct Files(TempDir);

impl Files {
    /// A folder with these files, by name and content.
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            // Some of them are secrets.
            std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs `crux` here.
    pub(crate) fn crux(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `crux`, to be run here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut program = self.program(env!("CARGO_BIN_EXE_crux-lab"));
        program.args(arguments);
        program
    }

    /// A line for a shell, to be run here.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let mut shell = self.program("bash");
        shell.args(["-c", line]).env("HOME", self.0.path());
        shell
    }

    /// A program that finds nothing of what the machine has that runs the tests.
    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(name);
        program.current_dir(self.0.path()).env("XDG_STATE_HOME", self.0.path());
        program.env("XDG_CONFIG_HOME", self.0.path());
        for variable in ["CONTEXT", "CONTROLLER", "CA", "CERT", "KEY", "TOKEN_FILE"] {
            program.env_remove(format!("CRUX_{variable}"));
        }
        program
    }
}

/// What a command that went well has printed.
pub(crate) fn printed(output: &Output) -> &str {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    std::str::from_utf8(&output.stdout).unwrap()
}

/// The same as JSON.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_str(printed(output)).unwrap()
}

/// A fabric document: two leaves, two spines, one NIC for each host.
pub(crate) fn lab(hosts_per_leaf: u32, host_gbps: f64, uplink_gbps: f64) -> String {
    format!(
        "name = \"lab\"\n[clos]\nleaves = 2\nspines = 2\nhosts_per_leaf = {hosts_per_leaf}\n\
         gpus_per_host = 8\nhost_gbps = {host_gbps:?}\nuplink_gbps = {uplink_gbps:?}\n"
    )
}

/// The command must have failed with status 2 and said every one of `expect`.
pub(crate) fn refused(output: &Output, expect: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    for part in expect {
        assert!(errors.contains(part), "no {part:?} in: {errors}");
    }
}
