//! A process beside the one that is measured, which serves switches.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::Failed;

/// This benchmark again, with one argument. It writes the addresses that it serves to its standard
/// output, parted by commas, and ends with this value.
pub(crate) struct ServingProcess {
    pub(crate) addresses: Vec<String>,
    /// Its standard input.
    pub(crate) commands: ChildStdin,
    _process: Child,
}

impl ServingProcess {
    pub(crate) async fn start(argument: &str) -> Result<Self, Failed> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let commands = process.stdin.take().ok_or("no standard input")?;
        let output = process.stdout.take().ok_or("no standard output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let line = line.ok_or("the switches are not served")?;
        let addresses = line.split(',').map(str::to_owned).collect();
        Ok(Self { addresses, commands, _process: process })
    }
}
