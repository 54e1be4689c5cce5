//! `crux jobs kubernetes`: jobs of Kubernetes, from a watch of their pods.

use std::path::PathBuf;
use std::time::Duration;

use crate::job_spool::JobSpool;
use crate::kubernetes::{ApiAccess, ApiAccessError, PodNaming, PodWatchSettings, PodWatcher};
use crate::rest_client::RestError;
use clap::Subcommand;

use super::{SpoolArg, stop_signal};
use command_io::{CommandError, error_chain};

/// Record jobs of Kubernetes.
#[derive(Subcommand)]
pub(super) enum KubernetesCommand {
    Watch(KubernetesWatchArgs),
}

/// Watch pods, and record the jobs that they are, for an agent to announce (crux agent --spool).
///
/// A job begins when the first of its pods has a node and ends with the last one. Pods with one
/// value of a label are one job: that of --job-label, else crux.fabric/job, the name of the JobSet,
/// of a job of Kubeflow, Ray or Volcano, of the pod group of Kueue or the coscheduling plugin, of a
/// job of Kubernetes, else the owner of the pod. The annotations crux.fabric/profile, model, flop,
/// collective and bytes of a pod say what Kubernetes does not know; one that cannot be read is
/// ignored with a warning. Jobs that ended while nothing watched are removed at the start.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux jobs kubernetes watch
  crux jobs kubernetes watch --kubeconfig ~/.kube/config --namespace training
  crux jobs kubernetes watch --selector 'team in (vision, speech)' --node-domain example.org")]
pub(super) struct KubernetesWatchArgs {
    #[command(flatten)]
    spool: SpoolArg,
    /// Kubeconfig [default: the service account of this pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Namespace of the pods [default: all namespaces]
    #[arg(long, value_name = "NAME", value_parser = parse_label)]
    namespace: Option<String>,
    /// Label selector of the pods
    #[arg(long, value_name = "SELECTOR", default_value = "crux.fabric/announce=true")]
    selector: String,
    /// What the names of jobs begin with; watchers of several clusters that share a folder differ
    #[arg(long, value_name = "NAME", default_value = "k8s", value_parser = parse_label)]
    cluster: String,
    /// Label whose value names the job of a pod
    #[arg(long, value_name = "LABEL")]
    job_label: Option<String>,
    /// Domain that is cut off the names of nodes to get the names of hosts in the fabric document
    #[arg(long, value_name = "DOMAIN")]
    node_domain: Option<String>,
    /// Resource that counts the GPUs of a pod
    #[arg(long, value_name = "RESOURCE", default_value = "nvidia.com/gpu")]
    gpu_resource: String,
    /// GPUs of a pod that has no limit of this resource; with 0 it is no part of the job
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1024))]
    gpus_per_pod: u32,
    /// Length of one watch; a connection that is lost without notice is noticed after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    watch_seconds: u32,
}

pub(super) fn run_kubernetes(command: &KubernetesCommand) -> Result<(), CommandError> {
    let KubernetesCommand::Watch(args) = command;
    let access = match &args.kubeconfig {
        Some(path) => ApiAccess::from_kubeconfig(path, args.context.as_deref()),
        None => ApiAccess::in_cluster(|name| std::env::var(name).ok()),
    };
    let settings = PodWatchSettings {
        access: access.map_err(|error| access_error(&error))?,
        namespace: args.namespace.clone(),
        selector: args.selector.clone(),
        naming: PodNaming {
            cluster: args.cluster.clone(),
            job_label: args.job_label.clone(),
            node_domain: args.node_domain.clone(),
            gpu_resource: args.gpu_resource.clone(),
            gpus_per_pod: args.gpus_per_pod,
        },
        watch_time: Duration::from_secs(args.watch_seconds.into()),
    };
    let watcher = PodWatcher::new(settings, JobSpool::new(&args.spool.spool));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed)?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::select! {
            () = watcher.run() => {}
            () = stop => {}
        }
        Ok(())
    })
}

fn access_error(error: &ApiAccessError) -> CommandError {
    match error {
        ApiAccessError::NoCluster => CommandError::input("--kubeconfig", error),
        ApiAccessError::Rest(RestError::Address(_)) => CommandError::input("server", error),
        _ => CommandError::Document(error_chain(error)),
    }
}

/// Lower-case letters, digits and dashes, as of namespaces; a name without `.` keeps the names of
/// jobs apart.
fn parse_label(text: &str) -> Result<String, String> {
    let is_label = !text.is_empty()
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    match is_label {
        true => Ok(text.to_owned()),
        false => Err("expected up to 63 lower-case letters, digits and dashes".to_owned()),
    }
}
