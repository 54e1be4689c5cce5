//! `crux agent`: reports the jobs of one host to a controller.
//!
//! The agent is a library ([`crate`]); here are its flags, its file and its signals. The decision:
//! flags override the file, and every setting has a default that works where the host's name is
//! that of the fabric document.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel_dscp::KernelDscp;
use crate::nic_observation::{self, NicObservation};
use crate::rdma_flows::{self, HostPaths};
use crate::report_stream::ControllerTarget;
use crate::reporter_lease::lease_file;
use crate::service::{HostAgent, ReportSink};
use crate::{AgentError, AgentSettings, ReportLimits, report_json};
use planner::{JobDocument, JobsDocument};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{controller_target, stop_signal};
use command_io::ClientCredentials;
use command_io::{CommandError, error_chain};
use command_io::{files, output};

/// Seconds of counter readings that are kept.
const MEMORY_SECONDS: f64 = 60.0;
/// Less than the ten seconds after which a controller removes silent jobs (telemetry.grace_ms).
const PRESENCE_SECONDS: f64 = 3.0;
/// As many as a controller accepts of one reporter (telemetry.jobs_per_reporter).
const DEFAULT_MAX_JOBS: u32 = 64;

/// Report the training jobs of this host to a controller.
///
/// Processes report themselves over a Unix socket, one line of JSON a message (the Python package
/// crux-telemetry does). Jobs of a document that report nothing are observed: the agent reads the
/// counters of NICs and GPUs and estimates the iteration time. The first host of such a job reports
/// it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux agent --controller 10.0.0.1:9300
  crux agent --config /etc/crux/agent.toml
  crux agent --controller 10.0.0.1:9300 --host h1 --jobs jobs.toml
  crux agent --controller 10.0.0.1:9300 --set-dscp
  crux agent --host h1 --jobs jobs.toml --dry-run
  crux agent --once --seconds 20
  crux agent --queue-pairs --gpu-jobs /run/dcgm-jobs

A configuration file:
  controller = \"10.0.0.1:9300\"
  token_file = \"/etc/crux/agent.token\"
  ca = \"/etc/crux/roots.pem\"
  host = \"h1\"
  socket = \"/run/crux/agent.sock\"
  spool = \"/run/crux/jobs\"
  jobs = \"/etc/crux/jobs.toml\"
  window_ms = 1000
  sample_ms = 10
  set_dscp = true
  [nics]
  gpt = [\"eth0\", \"eth1\"]")]
pub(super) struct AgentArgs {
    /// Configuration file; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Where the controller listens (northbound.listen of its configuration)
    #[arg(long, value_name = "HOST:PORT")]
    controller: Option<String>,
    #[command(flatten)]
    credentials: ClientCredentials,
    /// Name of this host in the fabric document [default: the host name of the machine]
    #[arg(long)]
    host: Option<String>,
    /// Unix socket on which processes report their jobs
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Folder of the jobs that a scheduler has started (crux jobs slurm start), each announced
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Jobs document with jobs that do not report themselves
    #[arg(long, value_name = "FILE")]
    jobs: Option<String>,
    /// Jobs that are reported at a time [default: 64]; the controller accepts as many of one agent
    /// as its telemetry.jobs_per_reporter says
    #[arg(long, value_name = "NUMBER")]
    max_jobs: Option<u32>,
    /// Shortest time between two reports of a job [default: 1000]
    #[arg(long, value_name = "MS")]
    window_ms: Option<u32>,
    /// Time between two readings of counters; an iteration needs about ten [default: 10]
    #[arg(long, value_name = "MS")]
    sample_ms: Option<u32>,
    /// Set the DSCP of each job's level in what this host sends, as the controller says; needs root
    /// (CAP_NET_ADMIN) and iptables, and takes it back at the end
    #[arg(long, conflicts_with_all = ["dry_run", "once", "queue_pairs"])]
    set_dscp: bool,
    /// Print each report as a line of JSON instead of sending it
    #[arg(long)]
    dry_run: bool,
    /// Read the counters for some seconds, print their period as JSON, and exit
    #[arg(long, conflicts_with = "dry_run")]
    once: bool,
    /// Do not report the RoCEv2 connections of this host
    #[arg(long)]
    no_queue_pairs: bool,
    /// Print the RoCEv2 connections of this host as JSON, with UDP source ports and jobs, and exit
    #[arg(long, conflicts_with_all = ["dry_run", "once"])]
    queue_pairs: bool,
    /// Folder with a file for each GPU that contains the ids of its jobs, as dcgm-exporter reads it
    #[arg(long, value_name = "DIR", requires = "queue_pairs")]
    gpu_jobs: Option<PathBuf>,
    /// How long --once reads counters
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgentDocument {
    controller: Option<String>,
    token_file: Option<String>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    host: Option<String>,
    socket: Option<PathBuf>,
    spool: Option<PathBuf>,
    jobs: Option<String>,
    max_jobs: Option<u32>,
    window_ms: Option<u32>,
    sample_ms: Option<u32>,
    set_dscp: bool,
    nics: BTreeMap<String, Vec<String>>,
}

/// What an agent does beside reporting jobs.
#[derive(Clone, Copy)]
struct AgentTasks {
    /// Reports queue pairs.
    queue_pairs: bool,
    /// Sets the DSCP of levels.
    dscp: bool,
}

/// What `--once` prints.
#[derive(Serialize)]
struct HostCounters {
    host: String,
    seconds: u32,
    nics: Vec<NicObservation>,
    /// How many GPUs NVML reads, or why none.
    gpus: GpuCounterReport,
}

#[derive(Serialize)]
#[serde(untagged)]
enum GpuCounterReport {
    Counted { count: u32, busy: Option<f64> },
    Absent { why: String },
}

pub(super) fn run_agent(args: &AgentArgs) -> Result<(), CommandError> {
    if args.queue_pairs {
        return print_queue_pairs(args.gpu_jobs.clone());
    }
    let mut document: AgentDocument = match &args.config {
        Some(file) => files::parse_document(file)?,
        None => AgentDocument::default(),
    };
    let controller = args.controller.clone().or(document.controller.take());
    let written = ClientCredentials {
        token_file: document.token_file.take(),
        ca: document.ca.take(),
        cert: document.cert.take(),
        key: document.key.take(),
    };
    let credentials = args.credentials.clone().with_fallback(written);
    let tasks = AgentTasks {
        queue_pairs: !args.no_queue_pairs,
        dscp: args.set_dscp || document.set_dscp && !args.dry_run,
    };
    let settings = resolve_settings(args, document)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed)?;
    runtime.block_on(async {
        match (args.once, args.dry_run) {
            (true, _) => print_counters(&settings, args.seconds).await,
            (_, true) => print_reports(settings, tasks).await,
            _ => report_to_controller(settings, controller, &credentials, tasks).await,
        }
    })
}

fn resolve_settings(
    args: &AgentArgs,
    document: AgentDocument,
) -> Result<AgentSettings, CommandError> {
    let jobs: Option<JobsDocument> =
        args.jobs.clone().or(document.jobs).map(|file| files::parse_document(&file)).transpose()?;
    let jobs: Vec<JobDocument> = jobs.map_or_else(Vec::new, |document| document.jobs);
    if let Some(job) = document.nics.keys().find(|job| !jobs.iter().any(|known| known.id == **job))
    {
        let text = format_args!("no job {job} in the jobs document");
        return Err(CommandError::input("nics", text));
    }
    let milliseconds =
        |name: &str, flag: Option<u32>, written: Option<u32>, default: u32| match flag
            .or(written)
            .unwrap_or(default)
        {
            0 => Err(CommandError::input(name, "0; it must be at least 1")),
            value => Ok(f64::from(value) / 1e3),
        };
    let limits = ReportLimits {
        window_seconds: milliseconds("window_ms", args.window_ms, document.window_ms, 1000)?,
        sample_seconds: milliseconds("sample_ms", args.sample_ms, document.sample_ms, 10)?,
        presence_seconds: PRESENCE_SECONDS,
        memory_seconds: MEMORY_SECONDS,
        jobs: args.max_jobs.or(document.max_jobs).unwrap_or(DEFAULT_MAX_JOBS) as usize,
    };
    Ok(AgentSettings {
        host: args.host.clone().or(document.host).map_or_else(own_name, Ok)?,
        socket: args.socket.clone().or(document.socket),
        spool: args.spool.clone().or(document.spool),
        jobs,
        nics: document.nics,
        sys: PathBuf::from("/sys"),
        limits,
    })
}

fn own_name() -> Result<String, CommandError> {
    let name = files::read_text("/proc/sys/kernel/hostname")?;
    Ok(name.trim().to_owned())
}

async fn report_to_controller(
    settings: AgentSettings,
    controller: Option<String>,
    credentials: &ClientCredentials,
    tasks: AgentTasks,
) -> Result<(), CommandError> {
    let controller = controller.ok_or_else(|| {
        CommandError::input("--controller", "missing; give the address of the controller")
    })?;
    let lease_file = lease_file(settings.socket.as_deref(), settings.spool.as_deref());
    let contact = ControllerTarget { lease_file, ..controller_target(credentials, &controller)? };
    let outlet = ReportSink::for_controller(&contact).map_err(|error| agent_error(&error))?;
    let agent = open_agent(settings, outlet, tasks)?;
    agent.run_until(stop_signal()?).await;
    Ok(())
}

/// Prints what would be sent.
async fn print_reports(settings: AgentSettings, tasks: AgentTasks) -> Result<(), CommandError> {
    let (to_printer, mut reports) = mpsc::unbounded_channel();
    let agent = open_agent(settings, ReportSink::Local(to_printer), tasks)?;
    let printing = async {
        while let Some(report) = reports.recv().await {
            output::print_line(report_json::report_to_json(&report))?;
        }
        Ok(())
    };
    let ((), printed) = tokio::join!(agent.run_until(stop_signal()?), printing);
    printed
}

async fn print_counters(settings: &AgentSettings, seconds: u32) -> Result<(), CommandError> {
    let time = Duration::from_secs(seconds.into());
    let nics = nic_observation::observe_nics(&settings.sys, &settings.limits, time).await;
    let gpus = match crate::gpu_counters::GpuCounters::open() {
        Ok(gpus) => GpuCounterReport::Counted { count: gpus.count(), busy: gpus.busy_share() },
        Err(why) => GpuCounterReport::Absent { why: why.to_string() },
    };
    output::print_json(&HostCounters {
        host: settings.host.clone(),
        seconds,
        nics: nics.map_err(|error| agent_error(&error))?,
        gpus,
    })
}

fn open_agent(
    settings: AgentSettings,
    sink: ReportSink,
    tasks: AgentTasks,
) -> Result<HostAgent, CommandError> {
    let setter = tasks.dscp.then(|| Arc::new(KernelDscp::new(&settings.sys)));
    let mut agent = HostAgent::open(settings, sink).map_err(|error| agent_error(&error))?;
    if tasks.queue_pairs {
        let read = || rdma_flows::read_rdma_flows(&own_paths(None));
        agent = agent.with_queue_pairs(Arc::new(read));
    }
    Ok(match setter {
        Some(setter) => agent.with_dscp(setter),
        None => agent,
    })
}

fn own_paths(gpu_jobs: Option<PathBuf>) -> HostPaths {
    HostPaths { sys: PathBuf::from("/sys"), proc: PathBuf::from("/proc"), gpu_jobs }
}

fn print_queue_pairs(gpu_jobs: Option<PathBuf>) -> Result<(), CommandError> {
    let flows = rdma_flows::read_rdma_flows(&own_paths(gpu_jobs));
    output::print_json(&flows.map_err(|error| CommandError::Failed(error_chain(&error)))?)
}

fn agent_error(error: &AgentError) -> CommandError {
    match error {
        AgentError::Address(_) => CommandError::input("--controller", error),
        AgentError::Token => CommandError::input("--token-file", error),
        AgentError::Tls(_) => CommandError::input("--ca", error_chain(error)),
        AgentError::SharedNics(..) | AgentError::Job { .. } => CommandError::input("--jobs", error),
        AgentError::Nic { .. } | AgentError::Socket { .. } => CommandError::failed(error),
    }
}
