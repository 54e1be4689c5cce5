//! `crux jobs slurm`: jobs of Slurm, from its prolog and epilog and from what it lists.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::job_spool::{JobRecord, JobSpool};
use crate::rest_client::{RestClient, RestError, TlsIdentity};
use crate::slurm_job::{self, SlurmStart};
use crate::slurm_rest::{SlurmRest, SlurmSync, SlurmUser};
use clap::Subcommand;
use topology::count_noun;
use tracing::warn;

use super::{SpoolArg, stop_signal};
use command_io::{CommandError, files, output};

/// Jobs that have their hosts.
const SQUEUE_ARGUMENTS: [&str; 3] =
    ["--noheader", "--format=%A %i", "--states=CONFIGURING,RUNNING,SUSPENDED,STOPPED,RESIZING"];

/// Record a job of Slurm, from its prolog and epilog.
#[derive(Subcommand)]
pub(super) enum SlurmCommand {
    Start(SlurmStartArgs),
    End(SlurmEndArgs),
    Sync(SlurmSyncArgs),
}

/// Record the job that is starting, for an agent to announce (crux agent --spool).
///
/// Reads the environment of Slurm's Prolog or PrologSlurmctld. The comment of a job may say what
/// Slurm does not know: crux.profile=NAME, crux.model=NAME, crux.flop=NUMBER, crux.collective=KIND,
/// crux.bytes=SIZE, such as 6.5GB. A word that cannot be read is ignored with a warning, which the
/// agent repeats. In Prolog, only the first host of the job records it. Components of a
/// heterogeneous job are recorded as one job.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux jobs slurm start
  crux jobs slurm start --spool /run/crux/jobs --gpus-per-host 8")]
pub(super) struct SlurmStartArgs {
    #[command(flatten)]
    spool: SpoolArg,
    /// GPUs that each host gives to the job, where Slurm does not say how many this host gives
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    gpus_per_host: Option<u32>,
}

/// Remove the record of the job that has ended.
///
/// Reads the environment of Slurm's Epilog or EpilogSlurmctld. The end of a component of a
/// heterogeneous job takes its hosts out of the record.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux jobs slurm end")]
pub(super) struct SlurmEndArgs {
    #[command(flatten)]
    spool: SpoolArg,
}

/// Correct the records by what Slurm says: remove ended jobs, add those that no prolog recorded.
///
/// A slurmctld that crashes in an epilog does not run it again. Call this after every start of
/// slurmctld, from a timer, or with --every. With --rest, slurmrestd lists the jobs; without it
/// squeue does, and only ended jobs are removed. Jobs to which Slurm gives no GPU are left out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux jobs slurm sync
  crux jobs slurm sync --rest unix:/run/slurmrestd/slurmrestd.sock --every 0.5
  crux jobs slurm sync --rest http://10.0.0.2:6820 --user crux --token-file /etc/crux/slurm.token")]
pub(super) struct SlurmSyncArgs {
    #[command(flatten)]
    spool: SpoolArg,
    /// The program that lists jobs
    #[arg(long, value_name = "PROGRAM", default_value = "squeue", conflicts_with = "rest")]
    squeue: PathBuf,
    /// Where slurmrestd listens: http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    rest: Option<String>,
    /// File with a token of rest_auth/jwt, as scontrol token prints it
    #[arg(long, value_name = "FILE", requires_all = ["rest", "user"])]
    token_file: Option<PathBuf>,
    /// User of the token
    #[arg(long, value_name = "NAME", requires = "token_file")]
    user: Option<String>,
    /// Authorities of an https address (PEM)
    #[arg(long, value_name = "FILE", requires = "rest")]
    ca: Option<String>,
    /// GPUs that each host gives to a job for which Slurm counts none, as on a cluster without GPUs
    /// in its GresTypes
    #[arg(long, value_name = "NUMBER", requires = "rest")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    gpus_per_host: Option<u32>,
    /// Do so again and again, with so many seconds in between
    #[arg(long, value_name = "SECONDS", requires = "rest", value_parser = parse_interval)]
    every: Option<Duration>,
}

pub(super) fn run_slurm(command: &SlurmCommand) -> Result<(), CommandError> {
    match command {
        SlurmCommand::Start(args) => start_slurm_job(args),
        SlurmCommand::End(args) => end_slurm_job(args),
        SlurmCommand::Sync(args) => sync_slurm_jobs(args),
    }
}

fn start_slurm_job(args: &SlurmStartArgs) -> Result<(), CommandError> {
    let start = slurm_job::starting_slurm_job(variable, args.gpus_per_host)
        .map_err(|error| CommandError::input("the environment", error))?;
    let component = match start {
        SlurmStart::Job(component) => component,
        SlurmStart::OnAnotherHost => return output::print_line("another host records this job"),
        SlurmStart::WithoutGpus => return output::print_line("not recorded: a job without GPUs"),
    };
    let mut recorded = JobRecord::default();
    change_record(&args.spool, &component.job, |known| {
        recorded = component.record(known);
        Some(recorded.clone())
    })?;
    let JobRecord { job, ignored } = recorded;
    for hint in ignored {
        warn!("{}: ignored {hint}", job.id);
    }
    output::print_line(format_args!("{} on {}", job.id, count_noun(job.gpus.len(), "host")))
}

fn end_slurm_job(args: &SlurmEndArgs) -> Result<(), CommandError> {
    let end = slurm_job::ending_slurm_job(variable)
        .map_err(|error| CommandError::input("the environment", error))?;
    let mut hosts = 0;
    let known = change_record(&args.spool, &end.job, |known| {
        let remaining = end.remaining(known)?;
        hosts = remaining.job.gpus.len();
        Some(remaining)
    })?;
    let job = end.job;
    match (known, hosts) {
        (None, _) => output::print_line(format_args!("{job} was not recorded here")),
        (Some(_), 0) => output::print_line(format_args!("{job} has ended")),
        _ => output::print_line(format_args!("{job} goes on, on {}", count_noun(hosts, "host"))),
    }
}

fn change_record(
    SpoolArg { spool }: &SpoolArg,
    job: &str,
    change: impl FnOnce(Option<&JobRecord>) -> Option<JobRecord>,
) -> Result<Option<JobRecord>, CommandError> {
    let changed = JobSpool::new(spool).change_job(job, change);
    changed.map_err(|error| CommandError::Failed(format!("{}: {error}", spool.display())))
}

fn sync_slurm_jobs(args: &SlurmSyncArgs) -> Result<(), CommandError> {
    match &args.rest {
        Some(address) => sync_by_rest(args, address),
        None => sync_by_squeue(args),
    }
}

fn sync_by_squeue(args: &SlurmSyncArgs) -> Result<(), CommandError> {
    let failed = |problem: &dyn std::fmt::Display| {
        CommandError::Failed(format!("{}: {problem}", args.squeue.display()))
    };
    // Read before Slurm is asked: a job that starts in between is not taken for a vanished one.
    let spool = JobSpool::new(&args.spool.spool);
    let spooled = spool.read_jobs().map_err(CommandError::failed)?;
    let output = Command::new(&args.squeue)
        .args(SQUEUE_ARGUMENTS)
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    let running: BTreeSet<u64> = listed.lines().filter_map(slurm_job::squeue_job_number).collect();
    let recorded = spooled.jobs.iter().map(|job| job.id.as_str());
    for id in slurm_job::vanished_slurm_jobs(recorded, |number| running.contains(&number)) {
        spool.remove_job(id).map_err(CommandError::failed)?;
        output::print_line(format_args!("{id} does not run any more"))?;
    }
    Ok(())
}

fn sync_by_rest(args: &SlurmSyncArgs, address: &str) -> Result<(), CommandError> {
    let authorities = args.ca.as_deref().map(files::read_text).transpose()?.unwrap_or_default();
    let tls = TlsIdentity { authorities, client: None };
    let client = RestClient::new(address, &tls).map_err(|error| match error {
        RestError::Tls(_) => CommandError::input("--ca", error),
        _ => CommandError::input("--rest", error),
    })?;
    let user = args.user.clone().zip(args.token_file.clone());
    let user = user.map(|(name, token_file)| SlurmUser { name, token_file });
    let mut rest = SlurmRest::new(client, user, args.gpus_per_host);
    let spool = JobSpool::new(&args.spool.spool);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed)?;
    let Some(interval) = args.every else {
        let synced = runtime.block_on(rest.sync_spool(&spool));
        return print_sync(&synced.map_err(CommandError::failed)?);
    };
    runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::select! {
            ended = sync_again_and_again(rest, &spool, interval) => ended,
            () = stop => Ok(()),
        }
    })
}

/// A slurmrestd that does not answer ends no job: it may be back in a moment.
async fn sync_again_and_again(
    mut rest: SlurmRest,
    spool: &JobSpool,
    interval: Duration,
) -> Result<(), CommandError> {
    loop {
        match rest.sync_spool(spool).await {
            Ok(sync) => print_sync(&sync)?,
            Err(error) => warn!(%error, "jobs of Slurm are not known now"),
        }
        tokio::time::sleep(interval).await;
    }
}

fn print_sync(sync: &SlurmSync) -> Result<(), CommandError> {
    for id in &sync.change.removed {
        output::print_line(format_args!("{id} does not run any more"))?;
    }
    for id in &sync.change.added {
        output::print_line(format_args!("{id} is now recorded"))?;
    }
    for problem in &sync.problems {
        warn!("{problem}");
    }
    Ok(())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 3600 seconds".to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
