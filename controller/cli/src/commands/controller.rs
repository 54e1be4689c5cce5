//! `crux controller`: the daemon as an operator runs it.
//!
//! The controller's library makes every decision; this module reads documents and signals. The
//! decision: an operator changes documents, and SIGHUP has them read again; one line is printed
//! when every switch is verified to hold the result.

mod carrier_monitor;
mod service_manager;
mod stall_watchdog;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::controller::config::OtherPrograms;
use ::controller::liveness::{FabricPart, PartHealth};
use ::controller::northbound::policy_commit::PolicyCommitter;
use ::controller::northbound::service::ServiceError;
use ::controller::northbound::{self, ApiServer, local_token};
use ::controller::policy_history::{RevisionMetadata, UnixMs};
use ::controller::southbound::write_permit::WritePermit;
use ::controller::{
    Config, Controller, ControllerError, ControllerHandle, FabricProposal, RawConfig, StateEvent,
};
use clap::ArgGroup;
use planner::{Job, Policy, PolicyDocument};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use topology::count_noun;
use topology::{Fabric, Finding, Severity, Switch};
use tracing::info;

use self::carrier_monitor::CarrierMonitor;
use crate::controller_files::read_configuration;
use crate::switch_inventory;
use command_io::CommandError;
use command_io::file_watch::FileWatch;
use command_io::{files, output};

/// Keep the switches of a fabric at the plan, until interrupted.
///
/// Plans for the jobs, programs every switch that the fabric document gives a P4Runtime address
/// for, reads back what it wrote and says when all of them hold it. SIGHUP has it read fabric, jobs
/// and policy again; if they are wrong, what is in force stays. Stopping it withdraws nothing:
/// switches keep forwarding.
///
/// Without a fabric document, with the switches named by --switch, it discovers cables by probes
/// and hosts by ARP. Tiers follow from where hosts are. Jobs of --jobs are planned for once their
/// hosts are found.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("inventory").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  crux controller --fabric lab.toml --listen 127.0.0.1:9300
  crux controller --config crux.toml --fabric lab.toml --jobs jobs.json --policy policy.toml
  crux controller --config crux.toml --fabric lab.toml --check
  crux --log info controller --fabric lab.toml --jobs jobs.json --listen 127.0.0.1:9300
  crux controller --listen 127.0.0.1:9300 --switch s1=10.0.0.1:9559/1 --switch s2=10.0.0.2:9559/2

Signals:  SIGHUP reads --fabric, --jobs and --policy again; SIGINT and SIGTERM end it")]
pub(crate) struct ControllerArgs {
    /// Configuration of the daemon (.toml, .yaml, .json); without one, the defaults
    #[arg(long)]
    config: Option<String>,
    /// Fabric document, with the P4Runtime address of every switch
    #[arg(long, group = "inventory")]
    fabric: Option<String>,
    /// A switch, its P4Runtime address and its device id, where there is no document
    #[arg(long, value_name = "NAME=HOST:PORT/ID", value_parser = switch_inventory::parse_switch)]
    #[arg(conflicts_with = "fabric", group = "inventory")]
    switch: Vec<Switch>,
    /// Serve commands, the page and jobs at this address (northbound.listen)
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Jobs document; without one, the jobs that are stored
    #[arg(long)]
    jobs: Option<String>,
    /// Policy document, for when none is stored yet; without one, the defaults
    #[arg(long)]
    policy: Option<String>,
    /// Read --fabric, --jobs and --policy again when they change; if they are wrong, what is in
    /// force stays
    #[arg(long)]
    watch: bool,
    /// Check the configuration and all documents, and exit
    #[arg(long)]
    check: bool,
    /// How long tables may take before the switches that miss them are named on standard error
    #[arg(long = "patience", default_value_t = 30, value_name = "SECONDS")]
    verify_timeout: u64,
    /// Where the fabric is emulated on this machine: take the carrier of its interfaces
    /// SWITCH-ethPORT for the state of cables
    #[arg(long, conflicts_with = "switch")]
    carriers: bool,
    /// Replace programs of another kind than the fabric document has for a switch
    /// (reconcile.other_programs); without it, such a switch is left to its controller
    #[arg(long)]
    replace_program: bool,
}

impl ControllerArgs {
    /// The documents that are read again when they change.
    fn watched_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = self.fabric.iter().chain(&self.jobs).chain(&self.policy);
        files.map(PathBuf::from).collect::<Vec<_>>().into_iter()
    }
}

/// Causes of standing findings.
const DOCUMENTS: &str = "operator's documents";
const FABRIC: &str = "fabric file refused";
const POLICY: &str = "policy file refused";
const JOBS: &str = "jobs file: ";

/// The documents that an operator may change while the controller runs.
struct OperatorDocuments {
    policy: Option<Policy>,
    jobs: Option<Vec<Job>>,
    /// About the jobs.
    findings: Vec<Finding>,
}

impl OperatorDocuments {
    fn read_documents(args: &ControllerArgs, fabric: &Fabric) -> Result<Self, CommandError> {
        let policy = args
            .policy
            .as_deref()
            .map(|file| {
                let levels = planner::PolicyDocument::default_levels(fabric);
                files::policy_with(Some(file), levels, |_| {})
            })
            .transpose()?;
        // Before discovery has found hosts, jobs and drained cables cannot be checked.
        let policy =
            policy.filter(|policy| !fabric.links().is_empty() || policy.check_on(fabric).is_ok());
        let file = args.jobs.as_deref().filter(|_| !fabric.hosts().is_empty());
        let read = file.map(|file| files::read_fitting_jobs(file, fabric)).transpose()?;
        let (jobs, findings) = read.unzip();
        Ok(Self { policy, jobs, findings: findings.unwrap_or_default() })
    }
}

/// Who changes the policy where a document does, and when.
fn document_signature(file: Option<&str>, now: UnixMs) -> RevisionMetadata {
    RevisionMetadata {
        author: file.unwrap_or("start").to_owned(),
        reason: "the document".to_owned(),
        at_ms: now,
    }
}

pub(crate) fn run_controller(args: &ControllerArgs) -> Result<(), CommandError> {
    let config = match &args.config {
        Some(file) => read_configuration(file)?,
        None => Config::default(),
    };
    let config = with_listener(config, args.listen)?;
    let config = with_other_programs(config, args.replace_program)?;
    let (config, fabric) = match &args.fabric {
        Some(file) => (config, files::read_fabric(file)?),
        None => (with_learning(&config)?, switch_inventory::undiscovered_fabric(&args.switch)),
    };
    let wanted = OperatorDocuments::read_documents(args, &fabric)?;
    if args.check {
        return check_documents(&fabric, &wanted);
    }
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    runtime.block_on(serve_controller(args, config, fabric, wanted))
}

/// Says what is wrong with documents that could be read; a store is not opened, as a controller
/// that runs has it.
fn check_documents(fabric: &Fabric, wanted: &OperatorDocuments) -> Result<(), CommandError> {
    let findings = topology::check_fabric(fabric);
    findings.iter().try_for_each(output::print_line)?;
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    if errors > 0 {
        let errors = count_noun(errors, "error");
        return Err(CommandError::Failed(format!("the fabric has {errors}")));
    }
    if let Some(policy) = &wanted.policy {
        policy.check_on(fabric).map_err(CommandError::document)?;
    }
    wanted.findings.iter().try_for_each(output::print_line)?;
    let unfit = wanted.findings.iter().filter(|finding| finding.severity == Severity::Error);
    match unfit.count() {
        0 => {}
        unfit => {
            let unfit = count_noun(unfit, "job");
            return Err(CommandError::Failed(format!("{unfit} would be left out")));
        }
    }
    let jobs = wanted.jobs.as_ref().map_or(0, Vec::len);
    output::print_line(format_args!("ok: {}, {}", fabric.name(), count_noun(jobs, "job")))
}

/// The configuration that listens at this address.
fn with_listener(config: Config, listen: Option<SocketAddr>) -> Result<Config, CommandError> {
    if listen.is_none() {
        return Ok(config);
    }
    with_change(&config, "--listen", |raw| raw.northbound.listen = listen)
}

/// The configuration that replaces the programs of others, if the command line says so.
fn with_other_programs(config: Config, replace_program: bool) -> Result<Config, CommandError> {
    if !replace_program {
        return Ok(config);
    }
    with_change(&config, "--replace-program", |raw| {
        raw.reconcile.other_programs = OtherPrograms::Replace;
    })
}

/// The configuration with discovery and learning enabled.
fn with_learning(config: &Config) -> Result<Config, CommandError> {
    with_change(config, "--switch", |raw| {
        (raw.discovery.enabled, raw.discovery.learn) = (true, true);
    })
}

/// The configuration as an option changes it.
fn with_change(
    config: &Config,
    option: &str,
    change: impl FnOnce(&mut RawConfig),
) -> Result<Config, CommandError> {
    let mut raw = config.effective_raw().clone();
    change(&mut raw);
    Config::try_from(raw).map_err(|error| CommandError::input(option, error))
}

async fn serve_controller(
    args: &ControllerArgs,
    config: Config,
    mut fabric: Fabric,
    mut wanted: OperatorDocuments,
) -> Result<(), CommandError> {
    let mut fabric_file = args.fabric.is_some().then(|| fabric.clone());
    let carriers = args.carriers.then(|| CarrierMonitor::start_monitor(&fabric)).transpose();
    let mut senses = EventSources {
        signals: DaemonSignals::new().map_err(CommandError::failed)?,
        carriers: carriers.map_err(CommandError::failed)?,
        watch: args.watch.then(|| FileWatch::new(args.watched_files())),
    };
    let first = wanted.policy.take().unwrap_or_default();
    let started = Controller::start(config.clone(), fabric.clone(), first).await;
    let controller = started.map_err(CommandError::failed)?;
    stall_watchdog::start_watchdog(controller.access().clone(), Handle::current())
        .map_err(CommandError::failed)?;
    let northbound = start_northbound(&controller, &config).await?;
    service_manager::announce_ready();
    let leader = await_leader(&controller, &config, args).await?;
    let documents = DocumentSubmitter {
        controller: &controller,
        committer: PolicyCommitter::new(controller.access().clone(), &config),
        args,
    };
    let submitted = documents.submit_documents(wanted).await?;
    let mut awaited = Some(submitted).filter(|_| leader == LeadingController::This);
    loop {
        let wish = match awaited {
            None => senses.next_event(&controller, &fabric).await?,
            Some(generation) => tokio::select! {
                verified = print_verified(&controller, generation, args) => {
                    verified?;
                    awaited = None;
                    continue;
                }
                wish = senses.next_event(&controller, &fabric) => wish?,
            },
        };
        match wish {
            DaemonEvent::Stop => break,
            DaemonEvent::Observe(part, health) => {
                controller.report_health(part, health).await.map_err(CommandError::failed)?;
            }
            DaemonEvent::Adopt(found) => {
                print_size(if args.fabric.is_some() { "now" } else { "found" }, &found)?;
                fabric = found;
                if args.carriers {
                    // The monitor names cables by their ids, which are of one fabric.
                    let carriers = CarrierMonitor::start_monitor(&fabric);
                    senses.carriers = Some(carriers.map_err(CommandError::failed)?);
                }
                let reread = match args.fabric {
                    // Jobs whose hosts have come are in the file already; the policy has not
                    // changed.
                    Some(_) => documents.reload_jobs(&fabric).await?,
                    None => documents.reload_documents(&fabric).await?,
                };
                awaited = reread.or(awaited);
            }
            DaemonEvent::Reload => {
                documents.reload_fabric(&mut fabric_file).await?;
                awaited = documents.reload_documents(&fabric).await?.or(awaited);
            }
        }
    }
    service_manager::announce_end();
    if let Some(northbound) = northbound {
        northbound.shutdown().await;
    }
    controller.shutdown().await;
    Ok(())
}

/// Gives the controller what the operator's documents say.
struct DocumentSubmitter<'a> {
    controller: &'a ControllerHandle,
    committer: PolicyCommitter,
    args: &'a ControllerArgs,
}

impl DocumentSubmitter<'_> {
    /// Reads the jobs again, after a change of the fabric; the generation that reflects them.
    async fn reload_jobs(&self, fabric: &Fabric) -> Result<Option<u64>, CommandError> {
        match OperatorDocuments::read_documents(self.args, fabric) {
            Ok(wanted) if wanted.jobs.is_some() => {
                let wanted = OperatorDocuments { policy: None, ..wanted };
                self.submit_documents(wanted).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Reads the documents again; the generation that reflects them, or none if they are invalid.
    async fn reload_documents(&self, fabric: &Fabric) -> Result<Option<u64>, CommandError> {
        match OperatorDocuments::read_documents(self.args, fabric) {
            Ok(wanted) => {
                self.report_refused(DOCUMENTS, None);
                self.submit_documents(wanted).await.map(Some)
            }
            Err(failure) => {
                let finding =
                    Finding::error("documents", format!("{failure}; nothing was changed"));
                self.report_refused(DOCUMENTS, Some(finding));
                Ok(None)
            }
        }
    }

    /// Reports why a document was refused, in doctor too until it is mended.
    fn report_refused(&self, cause: &str, refusal: Option<Finding>) {
        let standing = self.controller.access().standing_findings();
        match refusal {
            Some(finding) => {
                eprintln!("{finding}");
                standing.report_finding(cause, finding);
            }
            None => standing.clear_finding(cause),
        }
    }

    /// Reads the fabric file again, and has it in force if it was edited since it was last read.
    async fn reload_fabric(&self, known: &mut Option<Fabric>) -> Result<(), CommandError> {
        let Some(file) = &self.args.fabric else { return Ok(()) };
        let fabric = match files::read_fabric(file) {
            Ok(fabric) => fabric,
            Err(failure) => {
                let text = format!("{failure}; the fabric was not changed");
                self.report_refused(FABRIC, Some(Finding::error("fabric", text)));
                return Ok(());
            }
        };
        if known.as_ref() == Some(&fabric) {
            return Ok(());
        }
        let access = self.controller.access();
        *known = Some(fabric.clone());
        let fabric = match access.fabric_history().prepare(&fabric) {
            Ok(fabric) => fabric,
            Err(finding) => {
                self.report_refused(FABRIC, Some(finding));
                return Ok(());
            }
        };
        let at = self.controller.clock().unix_now();
        let signature = document_signature(Some(file), at);
        let proposal = FabricProposal { fabric, signature, is_of_file: true, force: false };
        let receipt = access.apply_fabric(proposal).await.map_err(CommandError::failed)?;
        self.report_refused(FABRIC, receipt.refusal);
        Ok(())
    }

    /// Submits the documents; the generation that reflects them.
    async fn submit_documents(&self, wanted: OperatorDocuments) -> Result<u64, CommandError> {
        if let Some(policy) = wanted.policy {
            self.propose_policy(&policy).await?;
        }
        wanted.findings.iter().for_each(|finding| eprintln!("{finding}"));
        if let Some(jobs) = wanted.jobs {
            let standing = self.controller.access().standing_findings();
            standing.clear_causes(JOBS);
            for finding in wanted.findings {
                standing.report_finding(format!("{JOBS}{}", finding.about), finding);
            }
            let submitted = self.controller.submit_event(StateEvent::JobsChanged(jobs)).await;
            let receipt = submitted.map_err(CommandError::failed)?;
            print_errors(&receipt.findings);
        }
        Ok(self.controller.desired_tables().generation)
    }

    /// Proposes a policy as an operator's command does: on trial until the switches hold it, which
    /// is awaited and printed beside the loop of events.
    async fn propose_policy(&self, policy: &Policy) -> Result<(), CommandError> {
        let now = self.controller.clock().unix_now();
        let signature = document_signature(self.args.policy.as_deref(), now);
        let policy = PolicyDocument::from(policy);
        let proposed = match self.committer.propose_file(policy, signature).await {
            Ok(proposed) => proposed,
            Err(ServiceError::Refused(findings)) => {
                self.report_refused(POLICY, findings.into_iter().next());
                return Ok(());
            }
            Err(error) => return Err(CommandError::failed(&error)),
        };
        self.report_refused(POLICY, None);
        let committer = self.committer.clone();
        tokio::spawn(async move {
            match committer.settle_proposal(proposed).await {
                Ok(done) => done.findings.iter().for_each(|finding| eprintln!("{finding}")),
                Err(error) => eprintln!("crux: {error}"),
            }
        });
        Ok(())
    }
}

fn print_errors(findings: &[Finding]) {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.for_each(|finding| eprintln!("{finding}"));
}

/// Prints the size of a fabric that was discovered or applied.
fn print_size(verb: &str, fabric: &Fabric) -> Result<(), CommandError> {
    let switches = count_noun(fabric.switches().len(), "switch");
    let hosts = count_noun(fabric.hosts().len(), "host");
    let cables = count_noun(fabric.links().len() / 2, "cable");
    output::print_line(format_args!("{verb} {switches}, {hosts} and {cables}"))
}

/// Starts the northbound server, if the configuration has an address for it.
async fn start_northbound(
    controller: &ControllerHandle,
    config: &Config,
) -> Result<Option<ApiServer>, CommandError> {
    let Some(listen) = config.northbound.listen else {
        eprintln!("crux: no command, page or job can reach this controller without --listen");
        return Ok(None);
    };
    let config = with_local_token(config)?;
    let listener =
        TcpListener::bind(listen).await.map_err(|error| CommandError::input(listen, error))?;
    let server = northbound::start_server(listener, controller.access(), &config)
        .map_err(CommandError::failed)?;
    output::print_line(format_args!("serving on {}", server.local_addr()))?;
    Ok(Some(server))
}

/// The configuration with the token of this machine, where it says of nobody what they may do.
fn with_local_token(config: &Config) -> Result<Config, CommandError> {
    let mut config = config.clone();
    if config.northbound.has_access_rules() {
        return Ok(config);
    }
    let file = config.northbound.token_file.clone().or_else(api::local_token::user_file);
    let file = file.ok_or_else(|| {
        let what = "set it, or northbound.tokens: this user has no folder for a token (HOME)";
        CommandError::input("northbound.token_file", what)
    })?;
    local_token::admit_file_owner(&mut config.northbound, &file)
        .map_err(|error| CommandError::input(file.display(), error))?;
    info!("callers need the token in {}, which crux on this machine sends", file.display());
    Ok(config)
}

/// Which controller writes to the switches.
#[derive(PartialEq)]
enum LeadingController {
    This,
    Another,
}

/// Waits until the leader is known, and prints it if it is another controller.
async fn await_leader(
    controller: &ControllerHandle,
    config: &Config,
    args: &ControllerArgs,
) -> Result<LeadingController, CommandError> {
    if config.is_standby {
        output::print_line("standing by: leads when told to (crux cluster lead)")?;
        return Ok(LeadingController::Another);
    }
    let limit = Duration::from_secs(args.verify_timeout);
    let Ok(permit) = timeout(limit, controller.await_leader()).await else {
        eprintln!("crux: no leader is known yet");
        return Ok(LeadingController::Another);
    };
    match permit.map_err(CommandError::failed)? {
        WritePermit::Standby { leader: Some(number), .. } => {
            output::print_line(format_args!("standing by: controller {number} leads"))?;
            Ok(LeadingController::Another)
        }
        _ => Ok(LeadingController::This),
    }
}

/// Prints when every switch is verified to hold a generation, or which are not.
async fn print_verified(
    controller: &ControllerHandle,
    generation: u64,
    args: &ControllerArgs,
) -> Result<(), CommandError> {
    let limit = Duration::from_secs(args.verify_timeout);
    match controller.await_verified(generation, limit).await {
        Ok(timing) => output::print_line(format_args!(
            "generation {} verified on {}, {:.1} ms after the change",
            timing.generation,
            count_noun(controller.status_board().all_statuses().len(), "switch"),
            timing.total_duration().as_secs_f64() * 1e3,
        )),
        Err(error @ ControllerError::NotVerified { .. }) => {
            eprintln!("crux: generation {generation}: {error}");
            Ok(())
        }
        Err(error) => Err(CommandError::failed(&error)),
    }
}

/// An input of the daemon: a signal, a changed document, a discovered fabric or a cable's state.
enum DaemonEvent {
    Reload,
    /// Another fabric is in force: discovery has found more of it, or an operator gave it.
    Adopt(Fabric),
    Observe(FabricPart, PartHealth),
    Stop,
}

/// The sources of the daemon's events.
struct EventSources {
    signals: DaemonSignals,
    carriers: Option<CarrierMonitor>,
    watch: Option<FileWatch>,
}

/// Whether another fabric is in force, whatever has failed in it.
fn is_another(found: &Fabric, known: &Fabric) -> bool {
    found.switches() != known.switches()
        || found.hosts() != known.hosts()
        || found.nics() != known.nics()
        || found.links() != known.links()
}

impl EventSources {
    /// The next event, given the fabric that is known.
    async fn next_event(
        &mut self,
        controller: &ControllerHandle,
        fabric: &Fabric,
    ) -> Result<DaemonEvent, CommandError> {
        let (carriers, watch) = (&mut self.carriers, &mut self.watch);
        let seen = async {
            match carriers {
                Some(carriers) => carriers.next().await,
                None => std::future::pending().await,
            }
        };
        let changed = async {
            match watch {
                Some(watch) => watch.wait_for_change().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            wish = self.signals.next() => Ok(wish),
            () = changed => Ok(DaemonEvent::Reload),
            adopted = controller.await_rollout(|rollout| is_another(&rollout.fabric, fabric)) => {
                let adopted = adopted.map_err(CommandError::failed)?;
                Ok(DaemonEvent::Adopt(adopted.fabric))
            }
            seen = seen => {
                let (part, health) = seen.map_err(CommandError::failed)?;
                Ok(DaemonEvent::Observe(part, health))
            }
        }
    }
}

/// The signals that the daemon handles.
struct DaemonSignals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl DaemonSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> DaemonEvent {
        tokio::select! {
            _ = self.hangup.recv() => DaemonEvent::Reload,
            _ = self.interrupt.recv() => DaemonEvent::Stop,
            _ = self.terminate.recv() => DaemonEvent::Stop,
        }
    }
}
