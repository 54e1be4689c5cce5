//! A job from the environment of Slurm's prolog, or from slurmrestd.
//!
//! `PrologSlurmctld` runs once for a job, `Prolog` on each of its hosts; both name the job and its
//! hosts (Slurm's page "Prolog and Epilog Guide"). What the controller cannot learn from Slurm, a
//! user writes in the comment of the job: `crux.profile=NAME`, `crux.flop=NUMBER`,
//! `crux.collective=KIND` and `crux.bytes=NUMBER`. Pure: variables are read by a function.

use planner::JobDocument;
use topology::host_list::{self, HostListError};

use crate::scheduler_hints::{self, HintError};

/// Why an environment is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmJobError {
    /// Not called by Slurm.
    #[error("SLURM_JOB_ID is not a number; call this from a prolog or an epilog of Slurm")]
    JobId,
    /// Slurm did not name the hosts.
    #[error("no hosts: neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set")]
    Hosts,
    /// The list of hosts cannot be read.
    #[error(transparent)]
    HostList(#[from] HostListError),
    /// Slurm did not say how many GPUs a host gives to the job.
    #[error("the number of GPUs is unknown: pass --gpus-per-host")]
    Gpus,
    /// A word of the comment cannot be read.
    #[error("invalid word in the comment of the job: crux.{}={}: {}", .0.key, .0.value, .0.problem)]
    Comment(#[from] HintError),
}

/// The name of a job, `slurm-NUMBER`, also in epilogs.
///
/// # Errors
/// There is no number of a job.
pub fn slurm_job_name(read: impl Fn(&str) -> Option<String>) -> Result<String, SlurmJobError> {
    let number = read("SLURM_JOB_ID").and_then(|text| text.parse::<u64>().ok());
    Ok(format!("slurm-{}", number.ok_or(SlurmJobError::JobId)?))
}

/// The job that is starting; none on a host that is not the job's first, which alone reports it.
///
/// # Errors
/// The environment is incomplete, or the comment cannot be read.
pub fn starting_slurm_job(
    read: impl Fn(&str) -> Option<String>,
    gpus_per_host: Option<u32>,
) -> Result<Option<JobDocument>, SlurmJobError> {
    let known = |name: &str| read(name).filter(|value| !value.is_empty() && value != "(null)");
    let id = slurm_job_name(known)?;
    let list = known("SLURM_JOB_NODELIST").or_else(|| known("SLURM_NODELIST"));
    let hosts = host_list::expand_host_list(&list.ok_or(SlurmJobError::Hosts)?)?;
    let first = hosts.first().ok_or(SlurmJobError::Hosts)?;
    if known("SLURMD_NODENAME").is_some_and(|own| own != *first) {
        return Ok(None);
    }
    let gpus = gpus_per_host.or_else(|| counted_gpus(known)).ok_or(SlurmJobError::Gpus)?;
    let mut job = JobDocument {
        id,
        tenant: known("SLURM_JOB_ACCOUNT").or_else(|| known("SLURM_JOB_USER")),
        gpus: hosts.iter().map(|host| (host.clone(), gpus)).collect(),
        ..JobDocument::default()
    };
    read_comment(&known("SLURM_JOB_COMMENT").unwrap_or_default(), &mut job)?;
    Ok(Some(job))
}

/// The number in the name of a job; none if another scheduler has named it.
pub fn slurm_job_number(id: &str) -> Option<u64> {
    id.strip_prefix("slurm-")?.parse().ok()
}

/// Those of the recorded jobs that Slurm does not run. Jobs of other schedulers are left alone.
pub fn vanished_slurm_jobs<'a>(
    recorded: impl IntoIterator<Item = &'a str>,
    is_running: impl Fn(u64) -> bool,
) -> Vec<&'a str> {
    let is_vanished = |id: &&str| slurm_job_number(id).is_some_and(|number| !is_running(number));
    recorded.into_iter().filter(is_vanished).collect()
}

/// A running job as slurmrestd lists it; texts as Slurm writes them, empty where there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedSlurmJob {
    /// The list of its hosts.
    pub hosts: String,
    /// Its account, if there is one.
    pub account: Option<String>,
    /// The name of its user.
    pub user: Option<String>,
    /// Its comment.
    pub comment: String,
    /// What it has of everything that Slurm counts, such as `cpu=64,gres/gpu=16,node=2`.
    pub resources: String,
}

/// The document of a listed job.
///
/// # Errors
/// Its hosts or its GPUs are unknown, or the comment cannot be read.
pub fn listed_slurm_job(
    number: u64,
    listed: &ListedSlurmJob,
    gpus_per_host: Option<u32>,
) -> Result<JobDocument, SlurmJobError> {
    let hosts = host_list::expand_host_list(&listed.hosts)?;
    let count = u32::try_from(hosts.len()).ok().filter(|count| *count > 0);
    let count = count.ok_or(SlurmJobError::Hosts)?;
    let counted = listed.resources.split(',').find_map(|part| part.strip_prefix("gres/gpu="));
    let counted = counted.and_then(|gpus| gpus.parse::<u32>().ok()).filter(|gpus| *gpus > 0);
    let gpus = gpus_per_host.or(counted.map(|gpus| gpus.div_ceil(count)));
    let gpus = gpus.ok_or(SlurmJobError::Gpus)?;
    let mut job = JobDocument {
        id: format!("slurm-{number}"),
        tenant: listed.account.clone().or_else(|| listed.user.clone()),
        gpus: hosts.into_iter().map(|host| (host, gpus)).collect(),
        ..JobDocument::default()
    };
    read_comment(&listed.comment, &mut job)?;
    Ok(job)
}

/// GPUs of this host: a number, or the list of their indices (`0,1` or `0-3`).
fn counted_gpus(known: impl Fn(&str) -> Option<String>) -> Option<u32> {
    if let Some(count) = known("SLURM_GPUS_ON_NODE") {
        return count.parse().ok().filter(|count| *count > 0);
    }
    let list = known("SLURM_JOB_GPUS")?;
    let gpus = host_list::expand_host_list(&format!("gpu[{list}]")).ok()?;
    u32::try_from(gpus.len()).ok()
}

/// Words such as `crux.profile=gpt-24l`; other words are not ours.
fn read_comment(comment: &str, job: &mut JobDocument) -> Result<(), HintError> {
    let words = comment.split_whitespace().filter_map(|word| word.strip_prefix("crux."));
    scheduler_hints::apply_hints(words.filter_map(|word| word.split_once('=')), job)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use planner::CollectiveKind;

    use super::*;

    /// What `PrologSlurmctld` and `Prolog` of Slurm 22.05 were given.
    const CONTROLLER: &str = "SLURM_JOB_ACCOUNT=(null) SLURM_JOB_ID=7 SLURM_JOB_NODELIST=h[1-2] \
        SLURM_JOB_USER=ada SLURM_SCRIPT_CONTEXT=prolog_slurmctld";
    const HOST: &str = "SLURMD_NODENAME=h1 SLURM_JOB_ID=7 SLURM_NODELIST=h[1-2] \
        SLURM_JOB_GPUS=0-3 SLURM_SCRIPT_CONTEXT=prolog_slurmd";

    fn starting(
        variables: &str,
        comment: &str,
        gpus: Option<u32>,
    ) -> Result<Option<JobDocument>, SlurmJobError> {
        let words = variables.split_whitespace().filter_map(|word| word.split_once('='));
        let mut known: BTreeMap<&str, &str> = words.collect();
        known.insert("SLURM_JOB_COMMENT", comment);
        starting_slurm_job(|name| known.get(name).map(|value| (*value).to_owned()), gpus)
    }

    #[test]
    fn both_prologs_name_the_job() {
        let of_controller = starting(CONTROLLER, "", Some(8)).unwrap().unwrap();
        assert_eq!(
            (of_controller.id.as_str(), of_controller.tenant.as_deref()),
            ("slurm-7", Some("ada"))
        );
        assert_eq!(of_controller.gpus, [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into());
        let of_host = starting(HOST, "", None).unwrap().unwrap();
        assert_eq!(of_host.gpus, [("h1".to_owned(), 4), ("h2".to_owned(), 4)].into());
        assert_eq!(starting(&HOST.replace("NODENAME=h1", "NODENAME=h2"), "", None), Ok(None));
    }

    #[test]
    fn the_comment_says_what_slurm_cannot() {
        let comment = "a run crux.profile=gpt-24l crux.flop=1.2e15 crux.collective=all_gather \
            crux.bytes=6e9";
        let job = starting(CONTROLLER, comment, Some(8)).unwrap().unwrap();
        assert_eq!(
            (job.profile.as_deref(), job.flop_per_iteration),
            (Some("gpt-24l"), Some(1.2e15))
        );
        let collective = job.collective.unwrap();
        assert_eq!((collective.kind, collective.bytes), (CollectiveKind::AllGather, Some(6e9)));
    }

    #[test]
    fn records_of_jobs_that_slurm_does_not_run_have_vanished() {
        let recorded = ["slurm-7", "slurm-8", "gpt", "slurm-70"];
        assert_eq!(vanished_slurm_jobs(recorded, |number| number != 7), ["slurm-7"]);
        assert_eq!(vanished_slurm_jobs(recorded, |_| false), ["slurm-7", "slurm-8", "slurm-70"]);
    }

    #[test]
    fn gpus_of_a_listed_job_are_those_that_slurm_counts() {
        let gpus = |resources: &str, gpus_per_host| {
            let (hosts, resources) = ("h[1-2]".to_owned(), resources.to_owned());
            let listed = ListedSlurmJob { hosts, resources, ..ListedSlurmJob::default() };
            listed_slurm_job(7, &listed, gpus_per_host).map(|job| job.gpus["h2"])
        };
        assert_eq!(gpus("cpu=4,gres/gpu=16,gres/gpu:a100=16,node=2", None), Ok(8));
        assert_eq!(gpus("cpu=4,gres/gpu=16", Some(4)), Ok(4));
        assert_eq!(gpus("cpu=4,node=2", None), Err(SlurmJobError::Gpus));
        let nowhere = ListedSlurmJob::default();
        assert_eq!(listed_slurm_job(7, &nowhere, Some(8)), Err(SlurmJobError::Hosts));
    }

    #[test]
    fn errors_say_what_is_missing() {
        let error = |variables: &str, comment: &str| {
            starting(variables, comment, None).unwrap_err().to_string()
        };
        assert!(error("SLURM_JOB_NODELIST=h1", "").contains("SLURM_JOB_ID"));
        assert!(error("SLURM_JOB_ID=x SLURM_JOB_NODELIST=h1", "").contains("not a number"));
        assert!(error("SLURM_JOB_ID=1", "").contains("SLURM_NODELIST"));
        assert!(error("SLURM_JOB_ID=1 SLURM_NODELIST=h[2-1]", "").contains("invalid range"));
        assert!(error(CONTROLLER, "").contains("--gpus-per-host"));
        assert!(error(HOST, "crux.flop=-1").contains("crux.flop=-1"));
        assert!(error(HOST, "crux.flops=1").contains("expected profile"));
        assert!(error(HOST, "crux.collective=gossip").contains("no such collective"));
    }
}
