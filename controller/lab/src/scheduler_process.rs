//! A scheduler that is a program of its own: `--scheduler-command`.
//!
//! The program reads one JSON object a line and writes one a line
//! ([`simulator::SchedulerRequest`], [`simulator::SchedulerReply`]). It is started for each
//! simulation and ends with it. The decision: whatever it does (end, hang, write without end) is an
//! error of this run within the deadline, and costs a bounded amount of memory.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use planner::{PlanInput, Policy};
use simulator::{
    HashedScheduler, Schedule, ScheduleFailure, ScheduleSource, Scheduler, SchedulerCall,
    SwitchHash,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use topology::Fabric;

use command_io::CommandError;

/// A reply that is longer is no reply: this has room for a million flows.
const REPLY_MAX: u64 = 16 << 20;

/// The longest deadline.
const MOST_SECONDS: f64 = 3_600.0;

/// A program that schedules.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProgramArgs {
    /// A program that schedules, as a line for the shell; it reads and writes one JSON object a
    /// line (crux schema scheduler-request, scheduler-reply). Its name in tables is `command`
    #[arg(long = "scheduler-command", value_name = "CMD")]
    pub(crate) command: Option<String>,
    /// Time that the program may take for a reply
    #[arg(long = "scheduler-deadline", value_name = "SECONDS", default_value_t = 10.0)]
    deadline: f64,
}

/// What schedules, beside the names of schedulers.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SchedulerArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// How switches hash where a scheduler leaves paths to ECMP: independent, same-function or
    /// same-function-and-seed, which polarise
    #[arg(long, value_name = "HASH", default_value_t)]
    switch_hash: SwitchHash,
}

impl SchedulerArgs {
    /// A scheduler by its name, on switches as the arguments say.
    pub(crate) fn named(&self, scheduler: Scheduler) -> AnyScheduler {
        AnyScheduler::Named(HashedScheduler { scheduler, hash: self.switch_hash })
    }
}

impl ProgramArgs {
    /// The program, if there is one.
    pub(crate) fn scheduler(&self) -> Result<Option<AnyScheduler>, CommandError> {
        if !(self.deadline > 0.0 && self.deadline <= MOST_SECONDS) {
            let what = format!("{} must be above 0 and at most {MOST_SECONDS}", self.deadline);
            return Err(CommandError::input("--scheduler-deadline", what));
        }
        let deadline = Duration::from_secs_f64(self.deadline);
        let command = self.command.clone();
        Ok(command.map(|command| AnyScheduler::Command { command, deadline }))
    }
}

/// A scheduler by its name, or a program.
#[derive(Clone, Debug)]
pub(crate) enum AnyScheduler {
    Named(HashedScheduler),
    Command { command: String, deadline: Duration },
}

impl AnyScheduler {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Named(hashed) => Scheduler::name(hashed.scheduler),
            Self::Command { .. } => COMMAND,
        }
    }

    /// What decides in one simulation.
    pub(crate) fn start(&self) -> Result<Box<dyn ScheduleSource>, ScheduleFailure> {
        Ok(match self {
            Self::Named(hashed) => Box::new(*hashed),
            Self::Command { command, deadline } => {
                Box::new(SchedulerProcess::start(command, *deadline)?)
            }
        })
    }
}

/// The name of a program in outcomes.
const COMMAND: &str = "command";

/// A running program.
struct SchedulerProcess {
    command: String,
    deadline: Duration,
    runtime: Runtime,
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    calls: u64,
    /// What the program knows of the fabric.
    fabric: Option<Fabric>,
}

/// Why there is no reply.
enum NoReply {
    Ended(Option<ExitStatus>),
    TooLong,
    Other(io::Error),
}

impl SchedulerProcess {
    fn start(command: &str, deadline: Duration) -> Result<Self, ScheduleFailure> {
        let failed = |error: io::Error| failure(command, format!("cannot start: {error}"));
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(failed)?;
        let context = runtime.enter();
        // What it writes to standard error is for its author.
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let requests = child.stdin.take().expect("standard input is a pipe");
        let replies = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let command = command.to_owned();
        drop(context);
        Ok(Self { command, deadline, runtime, child, requests, replies, calls: 0, fabric: None })
    }

    /// The line that it writes for a line.
    fn exchange(&mut self, request: &str) -> Result<String, String> {
        let Self { requests, replies, child, .. } = self;
        let exchange = async {
            let write = async {
                requests.write_all(request.as_bytes()).await?;
                requests.write_all(b"\n").await?;
                requests.flush().await
            };
            // A program may begin its reply before it has read all, so both go on together. One
            // that reads no more may still reply; what it lacks shows in the reply.
            let (_written, reply) = tokio::join!(write, read_line(replies));
            match reply {
                Err(NoReply::Ended(_)) => Err(NoReply::Ended(child.wait().await.ok())),
                reply => reply,
            }
        };
        let seconds = self.deadline.as_secs_f64();
        // The timer needs the context of the runtime when it is made.
        match self.runtime.block_on(async { timeout(self.deadline, exchange).await }) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(NoReply::Ended(status))) => Err(format!(
                "it ended without a reply ({}); reply to every line of standard input, and end \
                 when there is none",
                status.map_or_else(|| "no status".to_owned(), |status| status.to_string())
            )),
            Ok(Err(NoReply::TooLong)) => Err(format!(
                "the reply has more than {REPLY_MAX} bytes without a line end; write one JSON \
                 object on one line"
            )),
            Ok(Err(NoReply::Other(error))) => Err(format!("no reply: {error}")),
            Err(_) => Err(format!(
                "no reply within {seconds} s; write a line and flush it, or give \
                 --scheduler-deadline"
            )),
        }
    }
}

async fn read_line(replies: &mut BufReader<ChildStdout>) -> Result<String, NoReply> {
    let mut line = Vec::new();
    let read = replies.take(REPLY_MAX).read_until(b'\n', &mut line).await;
    read.map_err(NoReply::Other)?;
    match line.pop() {
        Some(b'\n') => {}
        Some(_) if line.len() as u64 + 1 >= REPLY_MAX => return Err(NoReply::TooLong),
        _ => return Err(NoReply::Ended(None)),
    }
    String::from_utf8(line)
        .map_err(|error| NoReply::Other(io::Error::new(io::ErrorKind::InvalidData, error)))
}

impl ScheduleSource for SchedulerProcess {
    fn name(&self) -> &str {
        COMMAND
    }

    fn schedule_jobs(
        &mut self,
        input: &PlanInput,
        policy: &Policy,
        _previous: Option<&Schedule>,
    ) -> Result<Schedule, ScheduleFailure> {
        self.calls += 1;
        let call = SchedulerCall::new(self.calls, input, policy, self.fabric.as_ref());
        let request = serde_json::to_string(&call.request())
            .map_err(|error| failure(&self.command, error.to_string()))?;
        let reply = self.exchange(&request).map_err(|problem| failure(&self.command, problem))?;
        self.fabric = Some(input.fabric.clone());
        call.read_reply(&reply).map_err(|error| failure(&self.command, error.to_string()))
    }
}

impl Drop for SchedulerProcess {
    fn drop(&mut self) {
        // The shell may have started others. A group that has ended is not there any more.
        if let Some(group) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _gone = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

fn failure(command: &str, problem: String) -> ScheduleFailure {
    ScheduleFailure { scheduler: format!("--scheduler-command `{command}`"), problem }
}
