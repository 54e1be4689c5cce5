//! A job from the environment of Slurm's prolog, or from slurmrestd.
//!
//! `PrologSlurmctld` runs once for a job, `Prolog` on each of its hosts; both name the job and its
//! hosts (Slurm's page "Prolog and Epilog Guide"). What the controller cannot learn from Slurm, a
//! user writes in the comment of the job: `crux.profile=NAME`, `crux.model=NAME`,
//! `crux.flop=NUMBER`, `crux.collective=KIND` and `crux.bytes=SIZE`. Pure: variables are read by a
//! function.
//!
//! The components of a heterogeneous job are jobs of their own for Slurm, each with its number, its
//! hosts and its prolog, and share the number of the first one, which is also the job's
//! (`SLURM_HET_JOB_ID`, `het_job_id`). Here they are one job: each prolog adds its hosts to the
//! record, and each epilog takes them out. Slurm gives no host to two of them.

use planner::JobDocument;
use topology::host_list::{self, HostListError};

use crate::job_spool::JobRecord;
use crate::scheduler_hints;

/// Components of a heterogeneous job that an environment may name, as in Slurm.
const MAX_COMPONENTS: u32 = 128;

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
}

/// What a prolog says.
#[derive(Clone, Debug, PartialEq)]
pub enum SlurmStart {
    /// This job is to be recorded.
    Job(SlurmComponent),
    /// The first host of the job records it, which is another one.
    OnAnotherHost,
    /// Slurm gives no GPU to the job.
    WithoutGpus,
}

/// A job, or a component of a heterogeneous one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmComponent {
    /// The name of the job, that of its first component.
    pub job: String,
    /// Whether the job may have other components.
    is_heterogeneous: bool,
    tenant: Option<String>,
    /// GPUs on each host.
    gpus: Vec<(String, u32)>,
    comment: String,
}

/// What an epilog says: a job has ended, or a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmEnd {
    /// The name of the job.
    pub job: String,
    /// The hosts of the component, where others may go on.
    component: Option<Vec<String>>,
}

impl SlurmComponent {
    /// The record of the job, whose other components may be in `known`.
    pub fn record(&self, known: Option<&JobRecord>) -> JobRecord {
        let known = known.filter(|_| self.is_heterogeneous).cloned();
        let JobRecord { mut job, mut ignored } = known.unwrap_or_default();
        job.id.clone_from(&self.job);
        job.tenant = job.tenant.or_else(|| self.tenant.clone());
        job.gpus.extend(self.gpus.iter().cloned());
        for problem in read_comment(&self.comment, &mut job) {
            if !ignored.contains(&problem) {
                ignored.push(problem);
            }
        }
        JobRecord { job, ignored }
    }
}

impl SlurmEnd {
    /// What is left of a job: none, unless other components go on.
    pub fn remaining(&self, known: Option<&JobRecord>) -> Option<JobRecord> {
        let (mut record, ended) = (known?.clone(), self.component.as_ref()?);
        record.job.gpus.retain(|host, _| !ended.contains(host));
        (!record.job.gpus.is_empty()).then_some(record)
    }
}

/// The job that is starting.
///
/// # Errors
/// The environment is incomplete.
pub fn starting_slurm_job(
    read: impl Fn(&str) -> Option<String>,
    gpus_per_host: Option<u32>,
) -> Result<SlurmStart, SlurmJobError> {
    let known = known_variables(read);
    let number = job_number(&known)?;
    let leader = leader_number(&known);
    let hosts = listed_hosts(&known)?;
    let first = hosts.first().ok_or(SlurmJobError::Hosts)?;
    let own = known("SLURMD_NODENAME");
    if own.as_ref().is_some_and(|own| own != first) {
        return Ok(SlurmStart::OnAnotherHost);
    }
    let gpus = match counted_gpus(&known).or(gpus_per_host) {
        Some(gpus @ 1..) => gpus,
        Some(0) => return Ok(SlurmStart::WithoutGpus),
        // slurmd names the GPUs of a job that has some; slurmctld names none.
        None if own.is_some() => return Ok(SlurmStart::WithoutGpus),
        None => return Err(SlurmJobError::Gpus),
    };
    Ok(SlurmStart::Job(SlurmComponent {
        job: job_name(leader.unwrap_or(number)),
        is_heterogeneous: leader.is_some(),
        tenant: known("SLURM_JOB_ACCOUNT").or_else(|| known("SLURM_JOB_USER")),
        gpus: hosts.into_iter().map(|host| (host, gpus)).collect(),
        comment: known("SLURM_JOB_COMMENT").unwrap_or_default(),
    }))
}

/// The job that is ending, or its component. An epilog that does not name the hosts of a component
/// ends the job with its first component, and nothing with another.
///
/// # Errors
/// There is no number of a job.
pub fn ending_slurm_job(read: impl Fn(&str) -> Option<String>) -> Result<SlurmEnd, SlurmJobError> {
    let known = known_variables(read);
    let number = job_number(&known)?;
    let leader = leader_number(&known);
    let component = leader.and_then(|leader| match listed_hosts(&known) {
        Ok(hosts) => Some(hosts),
        Err(_) => (number != leader).then(Vec::new),
    });
    Ok(SlurmEnd { job: job_name(leader.unwrap_or(number)), component })
}

fn job_name(number: u64) -> String {
    format!("slurm-{number}")
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

/// The number of a job in a line of `squeue --format="%A %i"`: `7 7`, `9 8_1` for a task of an
/// array, and `22 21+1` for a component of job 21.
pub fn squeue_job_number(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let leader = words.next().and_then(|id| id.split_once('+')?.0.parse().ok());
    Some(leader.unwrap_or(number))
}

/// A running job as slurmrestd lists it, or a component of one; texts as Slurm writes them, empty
/// where there is nothing.
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
    /// What it has of other resources on each host, such as `gpu:h100:8(IDX:0-7)`.
    pub details: Vec<String>,
}

/// The record of a listed job; none if Slurm gives it no GPU. A host without GPUs is no part of it.
///
/// # Errors
/// The hosts of a component cannot be read.
pub fn listed_slurm_job(
    number: u64,
    components: &[ListedSlurmJob],
    gpus_per_host: Option<u32>,
) -> Result<Option<JobRecord>, SlurmJobError> {
    let mut record = None;
    for listed in components {
        let details: Vec<u32> = listed.details.iter().map(|text| gpus_in_detail(text)).collect();
        let detailed = details.iter().copied().fold(0, u32::saturating_add);
        let counted = if detailed > 0 { detailed } else { gpus_in_total(&listed.resources) };
        if counted == 0 && gpus_per_host.is_none() {
            continue;
        }
        let hosts = host_list::expand_host_list(&listed.hosts)?;
        let count = u32::try_from(hosts.len()).ok().filter(|count| *count > 0);
        let count = count.ok_or(SlurmJobError::Hosts)?;
        let gpus = match gpus_per_host.filter(|_| counted == 0) {
            Some(gpus) => vec![gpus; hosts.len()],
            None if detailed > 0 && details.len() == hosts.len() => details,
            None => vec![counted.div_ceil(count); hosts.len()],
        };
        let component = SlurmComponent {
            job: job_name(number),
            is_heterogeneous: true,
            tenant: listed.account.clone().or_else(|| listed.user.clone()),
            gpus: hosts.into_iter().zip(gpus).filter(|(_, gpus)| *gpus > 0).collect(),
            comment: listed.comment.clone(),
        };
        record = Some(component.record(record.as_ref()));
    }
    Ok(record)
}

/// GPUs in a list such as `cpu=8,gres/gpu=16,gres/gpu:h100=16`. Not every cluster counts them of any
/// type together; then those of each type are added up.
fn gpus_in_total(resources: &str) -> u32 {
    let (mut any, mut typed) = (0, 0_u32);
    for (name, count) in resources.split(',').filter_map(|part| part.split_once('=')) {
        let count = count.trim().parse().unwrap_or(0);
        match name.trim() {
            "gres/gpu" => any = count,
            name if name.starts_with("gres/gpu:") => typed = typed.saturating_add(count),
            _ => {}
        }
    }
    any.max(typed)
}

/// GPUs in the resources of one host, such as `gpu:a100:2(IDX:0,3),gpu(IDX:4-5),nic:1(IDX:0)`.
fn gpus_in_detail(text: &str) -> u32 {
    let mut gpus = 0_u32;
    for part in text.split(')') {
        let (names, indices) = part.split_once('(').unwrap_or((part, ""));
        for name in names.split(',') {
            let mut fields = name.trim().split(':');
            if fields.next() != Some("gpu") {
                continue;
            }
            let count = fields.next_back().and_then(|count| count.parse().ok());
            let listed = || count_indices(indices.strip_prefix("IDX:")?);
            gpus = gpus.saturating_add(count.or_else(listed).unwrap_or(0));
        }
    }
    gpus
}

/// How many there are in `0,1` or `0-3`.
fn count_indices(list: &str) -> Option<u32> {
    let indices = host_list::expand_host_list(&format!("gpu[{list}]")).ok()?;
    u32::try_from(indices.len()).ok()
}

/// Slurm writes `(null)` for what is not there.
fn known_variables(read: impl Fn(&str) -> Option<String>) -> impl Fn(&str) -> Option<String> {
    move |name| read(name).filter(|value| !value.is_empty() && value != "(null)")
}

fn job_number(known: impl Fn(&str) -> Option<String>) -> Result<u64, SlurmJobError> {
    known("SLURM_JOB_ID").and_then(|text| text.parse().ok()).ok_or(SlurmJobError::JobId)
}

/// The number of the first component, if the job is heterogeneous.
fn leader_number(known: impl Fn(&str) -> Option<String>) -> Option<u64> {
    known("SLURM_HET_JOB_ID")?.parse().ok().filter(|number| *number > 0)
}

/// The hosts of the job, or of this component. The slurmctld of the first component knows those of
/// all; in a script of the user, the components are numbered.
fn listed_hosts(known: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, SlurmJobError> {
    let components = known("SLURM_HET_SIZE").and_then(|size| size.parse().ok()).unwrap_or(0);
    let components = 0..components.min(MAX_COMPONENTS);
    let numbered: Vec<String> = components
        .filter_map(|number| known(&format!("SLURM_JOB_NODELIST_HET_GROUP_{number}")))
        .collect();
    let list = known("SLURM_HET_JOB_NODELIST")
        .or_else(|| (!numbered.is_empty()).then(|| numbered.join(",")))
        .or_else(|| known("SLURM_JOB_NODELIST"))
        .or_else(|| known("SLURM_NODELIST"));
    Ok(host_list::expand_host_list(&list.ok_or(SlurmJobError::Hosts)?)?)
}

/// GPUs of this host: a number, or the list of their indices (`0,1` or `0-3`).
fn counted_gpus(known: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = known("SLURM_GPUS_ON_NODE").and_then(|count| count.parse().ok());
    number.or_else(|| count_indices(&known("SLURM_JOB_GPUS")?))
}

/// Words such as `crux.profile=gpt-24l/A100`; other words are not ours. Returns those of ours that
/// cannot be read, with the reason.
fn read_comment(comment: &str, job: &mut JobDocument) -> Vec<String> {
    let words = comment.split_whitespace().filter_map(|word| word.strip_prefix("crux."));
    let hints = words.map(|word| word.split_once('=').unwrap_or((word, "")));
    let problems = scheduler_hints::apply_hints(hints, job);
    problems.iter().map(|problem| format!("crux.{problem}")).collect()
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

    fn variables<'a>(text: &'a str, comment: &'a str) -> impl Fn(&str) -> Option<String> + 'a {
        let words = text.split_whitespace().filter_map(|word| word.split_once('='));
        let mut known: BTreeMap<&str, &str> = words.collect();
        known.insert("SLURM_JOB_COMMENT", comment);
        move |name| known.get(name).map(|value| (*value).to_owned())
    }

    fn starting(text: &str, gpus: Option<u32>) -> Result<SlurmStart, SlurmJobError> {
        starting_slurm_job(variables(text, ""), gpus)
    }

    fn started(text: &str, comment: &str, gpus: Option<u32>) -> SlurmComponent {
        match starting_slurm_job(variables(text, comment), gpus) {
            Ok(SlurmStart::Job(component)) => component,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn gpus(record: &JobRecord) -> String {
        let gpus = record.job.gpus.iter().map(|(host, gpus)| format!("{host}:{gpus}"));
        gpus.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn both_prologs_name_the_job() {
        let of_controller = started(CONTROLLER, "", Some(8)).record(None);
        assert_eq!(of_controller.job.id, "slurm-7");
        assert_eq!(of_controller.job.tenant.as_deref(), Some("ada"));
        assert_eq!(gpus(&of_controller), "h1:8 h2:8");
        assert_eq!(gpus(&started(HOST, "", None).record(None)), "h1:4 h2:4");
        let other = HOST.replace("NODENAME=h1", "NODENAME=h2");
        assert_eq!(starting(&other, None), Ok(SlurmStart::OnAnotherHost));
    }

    #[test]
    fn what_slurm_counts_is_before_the_default() {
        let gpus = |more: &str, default| {
            let text = format!("SLURM_JOB_ID=7 SLURM_JOB_NODELIST=h1 {more}");
            match starting(&text, default) {
                Ok(SlurmStart::Job(job)) => Ok(job.gpus[0].1),
                Ok(SlurmStart::WithoutGpus) => Ok(0),
                other => Err(other),
            }
        };
        assert_eq!(gpus("SLURM_JOB_GPUS=0,5", Some(8)), Ok(2));
        assert_eq!(gpus("SLURM_GPUS_ON_NODE=3", Some(8)), Ok(3));
        assert_eq!(gpus("SLURM_GPUS_ON_NODE=0", Some(8)), Ok(0));
        assert_eq!(gpus("", Some(8)), Ok(8));
        assert_eq!(gpus("SLURMD_NODENAME=h1", Some(8)), Ok(8));
        assert_eq!(gpus("SLURMD_NODENAME=h1", None), Ok(0), "slurmd would name GPUs");
        assert_eq!(gpus("", None), Err(Err(SlurmJobError::Gpus)));
    }

    #[test]
    fn the_comment_says_what_slurm_cannot() {
        let comment = "a run crux.profile=gpt-24l/A100 crux.flop=1.2e15 crux.model=gpt \
            crux.collective=all_gather crux.bytes=6GB";
        let JobRecord { job, ignored } = started(CONTROLLER, comment, Some(8)).record(None);
        assert!(ignored.is_empty(), "{ignored:?}");
        assert_eq!(
            (job.profile.as_deref(), job.flop_per_iteration, job.model.as_deref()),
            (Some("gpt-24l/A100"), Some(1.2e15), Some("gpt"))
        );
        let collective = job.collective.unwrap();
        assert_eq!((collective.kind, collective.bytes), (CollectiveKind::AllGather, Some(6e9)));
    }

    #[test]
    fn a_wrong_word_of_a_comment_costs_no_job() {
        let comment = "crux.flop=2e15 crux.bytes=6.5Gb crux.model {\"tool\": 1} crux.levels=9";
        let record = started(HOST, comment, None).record(None);
        assert_eq!((record.job.flop_per_iteration, record.job.gpus.len()), (Some(2e15), 2));
        let words: Vec<&str> =
            record.ignored.iter().filter_map(|text| text.split(':').next()).collect();
        assert_eq!(words, ["crux.bytes=6.5Gb", "crux.model=", "crux.levels=9"]);
    }

    #[test]
    fn records_of_jobs_that_slurm_does_not_run_have_vanished() {
        let recorded = ["slurm-7", "slurm-8", "gpt", "slurm-70"];
        assert_eq!(vanished_slurm_jobs(recorded, |number| number != 7), ["slurm-7"]);
        assert_eq!(vanished_slurm_jobs(recorded, |_| false), ["slurm-7", "slurm-8", "slurm-70"]);
        let numbers = ["7 7", "9 8_1", "22 21+1", "5", "", "x 7"].map(squeue_job_number);
        assert_eq!(numbers, [Some(7), Some(9), Some(21), Some(5), None, None]);
    }

    #[test]
    fn components_of_a_heterogeneous_job_come_and_go_in_one_record() {
        let component = |number: u32, host: &str, more: &str| {
            format!(
                "SLURM_JOB_ID={number} SLURM_HET_JOB_ID=40 SLURM_JOB_NODELIST={host} \
                 SLURM_JOB_USER=ada {more}"
            )
        };
        let (first, second) = (component(40, "a[1-2]", ""), component(41, "b7", ""));
        let of_second = started(&second, "crux.flop=5e14 crux.x=1", Some(4)).record(None);
        let both = started(&first, "crux.profile=vit-large/A100", Some(8)).record(Some(&of_second));
        assert_eq!((both.job.id.as_str(), gpus(&both).as_str()), ("slurm-40", "b7:4 a1:8 a2:8"));
        assert_eq!(both.job.flop_per_iteration, Some(5e14));
        assert_eq!(both.job.profile.as_deref(), Some("vit-large/A100"));
        assert_eq!(both.ignored.len(), 1);
        // A prolog that is repeated changes nothing.
        assert_eq!(gpus(&started(&second, "", Some(4)).record(Some(&both))), gpus(&both));
        let end = |text: &str, known: &JobRecord| {
            let end = ending_slurm_job(variables(text, "")).unwrap();
            assert_eq!(end.job, "slurm-40");
            end.remaining(Some(known))
        };
        let left = end(&second, &both).unwrap();
        assert_eq!(gpus(&left), "a1:8 a2:8");
        assert_eq!(end(&first, &left), None);
        // The slurmctld of the first component names the hosts of all.
        let of_all = component(40, "a[1-2]", "SLURM_HET_JOB_NODELIST=a[1-2],b7");
        assert_eq!(gpus(&started(&of_all, "", Some(8)).record(None)), "a1:8 a2:8 b7:8");
        assert_eq!(end(&of_all, &both), None);
        // Without hosts, only the end of the first component is that of the job.
        assert_eq!(end("SLURM_JOB_ID=41 SLURM_HET_JOB_ID=40", &both), Some(both.clone()));
        assert_eq!(end("SLURM_JOB_ID=40 SLURM_HET_JOB_ID=40", &both), None);
    }

    #[test]
    fn a_script_of_a_heterogeneous_job_knows_its_components_by_number() {
        let script = "SLURM_JOB_ID=40 SLURM_HET_SIZE=2 SLURM_JOB_NODELIST=a1 SLURM_GPUS_ON_NODE=8 \
            SLURM_JOB_NODELIST_HET_GROUP_0=a1 SLURM_JOB_NODELIST_HET_GROUP_1=r[1-2]s[5-6]";
        let record = started(script, "", None).record(None);
        assert_eq!(gpus(&record), "a1:8 r1s5:8 r1s6:8 r2s5:8 r2s6:8");
        // No other job is added to.
        let earlier = started(CONTROLLER, "", Some(8)).record(None);
        let replaced = started(HOST, "", None).record(Some(&earlier));
        assert_eq!(gpus(&replaced), "h1:4 h2:4");
    }

    fn listed(hosts: &str, resources: &str, details: &[&str]) -> ListedSlurmJob {
        ListedSlurmJob {
            hosts: hosts.to_owned(),
            resources: resources.to_owned(),
            details: details.iter().map(|text| (*text).to_owned()).collect(),
            ..ListedSlurmJob::default()
        }
    }

    #[test]
    fn gpus_of_a_listed_job_are_those_that_slurm_counts() {
        let cases: [(&str, &[&str], &str); 9] = [
            ("cpu=4,gres/gpu=16,gres/gpu:a100=16,node=2", &[], "h1:8 h2:8"),
            ("cpu=4,gres/gpu:h200=12", &[], "h1:6 h2:6"),
            ("gres/gpu:a100=8,gres/gpu:h100=4,gres/gpumem=80G", &[], "h1:6 h2:6"),
            ("cpu=4", &["gpu:h100:4(IDX:0-3)", "gpu:h100:2(IDX:6-7)"], "h1:4 h2:2"),
            ("cpu=4", &["gpu:a:1(IDX:5),gpu:b:2(IDX:0,2)", "gpu(IDX:0-2,7)"], "h1:3 h2:4"),
            ("gres/gpu=6", &["nic:1(IDX:0),gpu:6(CNT:6)", ""], "h1:6"),
            ("gres/gpu=6", &["gpu:6(IDX:0-5)"], "h1:3 h2:3"),
            ("cpu=4,gres/gpu=0", &["", "shard:4(IDX:0)"], ""),
            ("", &[], ""),
        ];
        for (resources, details, expect) in cases {
            let job = listed_slurm_job(7, &[listed("h[1-2]", resources, details)], None).unwrap();
            assert_eq!(job.as_ref().map(gpus).unwrap_or_default(), expect, "{resources}");
            assert_eq!(job.is_none(), expect.is_empty());
        }
        let with_default = |resources| {
            let job = listed_slurm_job(7, &[listed("h1", resources, &[])], Some(4)).unwrap();
            gpus(&job.unwrap())
        };
        assert_eq!(with_default("gres/gpu=2"), "h1:2");
        assert_eq!(with_default("cpu=2"), "h1:4");
    }

    #[test]
    fn listed_components_are_one_job() {
        let components = [
            listed("login", "cpu=4", &[]),
            ListedSlurmJob {
                comment: "crux.flop=1e15".to_owned(),
                ..listed("a1", "gres/gpu=8", &[])
            },
            ListedSlurmJob {
                account: Some("ml".to_owned()),
                ..listed("b[1-2]", "gres/gpu:x=4", &[])
            },
        ];
        let record = listed_slurm_job(40, &components, None).unwrap().unwrap();
        assert_eq!(
            (record.job.id.as_str(), gpus(&record).as_str()),
            ("slurm-40", "a1:8 b1:2 b2:2")
        );
        assert_eq!(record.job.flop_per_iteration, Some(1e15));
        assert_eq!(record.job.tenant.as_deref(), Some("ml"));
    }

    #[test]
    fn errors_say_what_is_missing() {
        let error = |text: &str| starting(text, None).unwrap_err().to_string();
        assert!(error("SLURM_JOB_NODELIST=h1").contains("SLURM_JOB_ID"));
        assert!(error("SLURM_JOB_ID=x SLURM_JOB_NODELIST=h1").contains("not a number"));
        assert!(error("SLURM_JOB_ID=1").contains("SLURM_NODELIST"));
        assert!(error("SLURM_JOB_ID=1 SLURM_NODELIST=h[2-1]").contains("invalid range"));
        assert!(error(CONTROLLER).contains("--gpus-per-host"));
        let nowhere = listed("", "gres/gpu=8", &[]);
        assert_eq!(listed_slurm_job(7, &[nowhere], None), Err(SlurmJobError::Hosts));
        assert_eq!(listed_slurm_job(7, &[listed("", "cpu=8", &[])], None), Ok(None));
    }
}
