//! `crux controller`: the daemon as an operator runs it.
//!
//! Everything that decides is in the library of that name; this reads documents and signals. The
//! decision: what an operator changes is a document, and SIGHUP says that one has changed; what is
//! in force is then told as a line when every switch was seen to hold it.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::controller::{Config, ConfigError, Controller, ControllerError, ControllerHandle, Event};
use planner::{Job, JobsDocument, Policy, PolicyDocument};
use tokio::signal::unix::{Signal, SignalKind, signal};
use topology::{Fabric, Severity};

use crate::failure::Failure;
use crate::{files, output};

/// Keep the switches of a fabric at the plan, until interrupted.
///
/// Plans for the jobs, programs every switch that the fabric document gives a P4Runtime address
/// for, reads back what it wrote and says when all of them hold it. SIGHUP has it read jobs and
/// policy again; if they are wrong, what is in force stays. Stopping it withdraws nothing: switches
/// keep forwarding.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux controller --fabric lab.toml
  crux controller --config crux.toml --fabric lab.toml --jobs jobs.json --policy policy.toml
  crux --log info controller --fabric lab.toml --jobs jobs.json

Signals:  SIGHUP reads --jobs and --policy again; SIGINT and SIGTERM end it")]
pub(crate) struct Args {
    /// Configuration of the daemon (.toml, .yaml, .json); without one, the defaults
    #[arg(long)]
    config: Option<PathBuf>,
    /// Fabric document, with the P4Runtime address of every switch
    #[arg(long)]
    fabric: String,
    /// Jobs document; without one, no jobs: every flow goes by ECMP
    #[arg(long)]
    jobs: Option<String>,
    /// Policy document; without one, the defaults
    #[arg(long)]
    policy: Option<String>,
    /// How long tables may take before the switches that miss them are named on standard error
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    patience: u64,
}

/// What an operator can change while it runs.
struct Wanted {
    policy: Policy,
    jobs: Vec<Job>,
}

impl Wanted {
    fn read(args: &Args, fabric: &Fabric) -> Result<Self, Failure> {
        let policy = args.policy.as_deref().map(policy).transpose()?;
        let jobs = args
            .jobs
            .as_deref()
            .map(|file| jobs(file, fabric))
            .transpose()?;
        Ok(Self {
            policy: policy.unwrap_or_default(),
            jobs: jobs.unwrap_or_default(),
        })
    }
}

fn policy(file: &str) -> Result<Policy, Failure> {
    let document: PolicyDocument = files::parse(file)?;
    document.validate(file).map_err(Failure::document)
}

fn jobs(file: &str, fabric: &Fabric) -> Result<Vec<Job>, Failure> {
    let document: JobsDocument = files::parse(file)?;
    let resolved = document.resolve(fabric, file).map_err(Failure::document)?;
    resolved
        .findings
        .iter()
        .for_each(|finding| eprintln!("{finding}"));
    Ok(resolved.jobs)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = match &args.config {
        Some(file) => Config::load(file).map_err(|error| unusable(file, &error))?,
        None => Config::default(),
    };
    let fabric = files::fabric(&args.fabric)?;
    let wanted = Wanted::read(args, &fabric)?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::work(&error))?;
    runtime.block_on(serve(args, config, fabric, wanted))
}

/// A configuration that cannot be used, with all that is known of why.
fn unusable(file: &Path, error: &ConfigError) -> Failure {
    let why = error.source().map(|why| format!(": {why}"));
    let why = why.unwrap_or_default();
    Failure::input(file.display(), format_args!("{error}{why}"))
}

async fn serve(args: &Args, config: Config, fabric: Fabric, wanted: Wanted) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(|error| Failure::work(&error))?;
    let started = Controller::start(config, fabric.clone(), wanted.policy).await;
    let controller = started.map_err(|error| Failure::work(&error))?;
    let mut awaited = Some(submit(&controller, Event::JobsChanged(wanted.jobs)).await?);
    loop {
        let wish = match awaited {
            None => signals.next().await,
            Some(generation) => tokio::select! {
                told = tell_verified(&controller, generation, args) => {
                    told?;
                    awaited = None;
                    continue;
                }
                wish = signals.next() => wish,
            },
        };
        match wish {
            Wish::Stop => break,
            Wish::Reload => match Wanted::read(args, &fabric) {
                Ok(wanted) => {
                    submit(&controller, Event::PolicyChanged(wanted.policy)).await?;
                    awaited = Some(submit(&controller, Event::JobsChanged(wanted.jobs)).await?);
                }
                Err(failure) => eprintln!("crux: {failure}; nothing is changed"),
            },
        }
    }
    controller.shutdown().await;
    Ok(())
}

/// Has the controller plan for an event; the generation that takes it into account.
async fn submit(controller: &ControllerHandle, event: Event) -> Result<u64, Failure> {
    let receipt = controller.submit(event).await;
    let receipt = receipt.map_err(|error| Failure::work(&error))?;
    let said = receipt.findings.iter();
    let said = said.filter(|finding| finding.severity == Severity::Error);
    said.for_each(|finding| eprintln!("{finding}"));
    Ok(receipt.generation)
}

/// Says when every switch holds a generation, or which do not.
async fn tell_verified(
    controller: &ControllerHandle,
    generation: u64,
    args: &Args,
) -> Result<(), Failure> {
    let patience = Duration::from_secs(args.patience);
    match controller.await_verified(generation, patience).await {
        Ok(timing) => output::print(format_args!(
            "generation {} verified on {} switches, {:.1} ms after the change",
            timing.generation,
            controller.board().all().len(),
            timing.total().as_secs_f64() * 1e3,
        )),
        Err(error @ ControllerError::NotVerified { .. }) => {
            eprintln!("crux: generation {generation}: {error}");
            Ok(())
        }
        Err(error) => Err(Failure::work(&error)),
    }
}

/// What an operator wants, by signal.
enum Wish {
    Reload,
    Stop,
}

/// The signals that mean something to the daemon.
struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.terminate.recv() => Wish::Stop,
        }
    }
}
