//! The Jobs document that people and other programs write, and its resolution to [`Job`]s of a
//! fabric.
//!
//! Resolution finds every mistake in a document; its result needs no more checks. A mistake is an
//! error that names the field. An oddity that can be planned is a finding.

mod collective;
mod flows;
mod gpu_assignment;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, Finding, HostId};

pub use self::collective::{CollectiveDocument, CollectiveKind, RankGroups, tree_edges};
pub use self::flows::MAX_CHANNELS;
use self::flows::{FlowDrafts, StatedPorts, build_flows};
pub use self::gpu_assignment::lowest_gpus;
use self::gpu_assignment::{GpuAssignment, JobGpus};
use crate::input::{Job, JobId, MeasuredSlowdown};
use crate::model_profiles::{ModelProfile, builtin_profiles};
use crate::name_matching::{self, DocumentFieldError};

/// The Jobs document: all jobs of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsDocument {
    /// The jobs; ids are unique.
    pub jobs: Vec<JobDocument>,
}

/// A job in the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    /// Unique name of the job.
    pub id: String,
    /// Tenant that owns the job, for policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Name of the trained model, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// GPUs used on each host, the hosts in the order of ranks.
    pub gpus: IndexMap<String, u32>,
    /// Which GPUs of a host they are, counted from 0. Of a host that is left out, the lowest that no
    /// job of the document has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_indices: BTreeMap<String, Vec<u32>>,
    /// Work of one iteration over all its GPUs, FLOP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_per_iteration: Option<f64>,
    /// Duration of the computation of one iteration, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_seconds: Option<f64>,
    /// Fraction of the computation after which communication may begin, 0..=1; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_from: Option<f64>,
    /// Whether it waits before an iteration when it is asked to, so that jobs of nearly equal periods
    /// take turns on a link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_wait: bool,
    /// How much slower than alone it ran lately, 0 = not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent_slowdown: Option<f64>,
    /// How much slower than its forecast it ran lately, 0 = not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_over_forecast: Option<f64>,
    /// A built-in profile, for the fields above that are not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Flows of every iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Vec<FlowDocument>>,
    /// Instead of `flows`: the collective operation from which they are derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveDocument>,
    /// Instead of `flows`: several collective operations of an iteration, which begin together but
    /// for those with an `overlap_from` of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<CollectiveDocument>,
    /// Instead of `flows`: what ranks send to each other, as libraries of collectives count it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rank_traffic: Vec<RankTraffic>,
    /// UIDs of its Kubernetes pods, by which the agents of hosts know its processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
}

/// A flow in the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowDocument {
    /// Host that sends the flow.
    pub src: String,
    /// Host that receives the flow.
    pub dst: String,
    /// NIC index in the sending host.
    #[serde(default)]
    pub src_nic: u32,
    /// NIC index in the receiving host.
    #[serde(default)]
    pub dst_nic: u32,
    /// GPU that sends, counted from 0 in its host; if not given, the first GPU of the job beside
    /// the NIC, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_gpu: Option<u32>,
    /// GPU that receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_gpu: Option<u32>,
    /// Bytes in one iteration.
    pub bytes: f64,
    /// UDP source port; if not given, the flow is known by its NICs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_src_port: Option<u16>,
    /// Fraction of the computation after which it may begin, 0..=1; that of the job if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_from: Option<f64>,
}

/// What one rank sends to another. Ranks are numbered from 0 over the GPUs of the job, the hosts in
/// the order of `gpus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RankTraffic {
    /// The rank that sends.
    pub src: u32,
    /// The rank that receives.
    pub dst: u32,
    /// Bytes in one iteration.
    pub bytes: f64,
    /// Fraction of the computation after which it may begin, 0..=1; that of the job if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_from: Option<f64>,
}

/// Jobs of a fabric, and what an operator should know about them.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedJobs {
    /// The jobs, as ordered in the document.
    pub jobs: Vec<Job>,
    /// Hosts with more GPUs in use than they have.
    pub findings: Vec<Finding>,
}

impl JobDocument {
    /// All collective operations of an iteration.
    pub fn all_collectives(&self) -> impl Iterator<Item = &CollectiveDocument> {
        self.collective.iter().chain(&self.collectives)
    }
}

impl JobsDocument {
    /// The jobs of the document in the ids of `fabric`.
    ///
    /// # Errors
    /// The first invalid field; `file` is the name of the document in the error.
    pub fn resolve_jobs(
        &self,
        fabric: &Fabric,
        file: &str,
    ) -> Result<ResolvedJobs, DocumentFieldError> {
        self.resolve_with(fabric, file, |_, error| Err(error))
    }

    /// The jobs of the document that fit `fabric`, and why each of the others does not.
    pub fn resolve_fitting_jobs(
        &self,
        fabric: &Fabric,
        file: &str,
    ) -> (ResolvedJobs, Vec<(JobId, DocumentFieldError)>) {
        let mut unfit = Vec::new();
        let resolved = self.resolve_with(fabric, file, |job, error| {
            unfit.push((JobId::from(job.id.as_str()), error));
            Ok::<(), Infallible>(())
        });
        (resolved.unwrap_or_else(|never| match never {}), unfit)
    }

    /// The jobs in the ids of `fabric`, without those whose error `judge_error` accepts.
    fn resolve_with<E>(
        &self,
        fabric: &Fabric,
        file: &str,
        mut judge_error: impl FnMut(&JobDocument, DocumentFieldError) -> Result<(), E>,
    ) -> Result<ResolvedJobs, E> {
        let mut ids = BTreeSet::new();
        let mut ports = StatedPorts::default();
        let mut assignment = GpuAssignment::new(fabric, &self.jobs);
        let mut drafts = Vec::new();
        for (index, job) in self.jobs.iter().enumerate() {
            let fields = JobFields { fabric, file, path: format!("jobs[{index}]") };
            if !ids.insert(&job.id) {
                let error = fields.field_error("id", format!("`{}` names two jobs", job.id));
                judge_error(job, error)?;
                continue;
            }
            let resolved = fields.resolve_job(job, &mut assignment);
            let claimed = resolved.and_then(|(resolved, flows)| {
                ports.claim_stated_ports(&fields, &flows)?;
                Ok((resolved, flows))
            });
            match claimed {
                Ok(draft) => drafts.push(draft),
                Err(error) => judge_error(job, error)?,
            }
        }
        let jobs: Vec<Job> = drafts
            .into_iter()
            .map(|(job, flows)| Job { flows: build_flows(flows), ..job })
            .collect();
        Ok(ResolvedJobs { findings: oversubscription_findings(fabric, &jobs), jobs })
    }
}

/// A finding for each host whose jobs use more GPUs together than it has.
fn oversubscription_findings(fabric: &Fabric, jobs: &[Job]) -> Vec<Finding> {
    let mut used: BTreeMap<HostId, (u32, Vec<&str>)> = BTreeMap::new();
    for job in jobs {
        for (host, gpus) in &job.gpus {
            let (count, names) = used.entry(*host).or_default();
            *count = count.saturating_add(*gpus);
            names.push(job.id.as_str());
        }
    }
    let over = used.into_iter().filter(|(host, (count, _))| *count > fabric.host(*host).gpus);
    over.map(|(host, (count, names))| {
        let host = fabric.host(host);
        let (has, names) = (host.gpus, names.join(", "));
        Finding::warning(&host.name, format!("{count} GPUs in use of {has}, by {names}"))
    })
    .collect()
}

/// A job of the document under validation, with its position for errors.
struct JobFields<'a> {
    fabric: &'a Fabric,
    file: &'a str,
    path: String,
}

impl JobFields<'_> {
    fn field_error(&self, field: &str, problem: String) -> DocumentFieldError {
        DocumentFieldError {
            file: self.file.to_owned(),
            field: format!("{}.{field}", self.path),
            problem,
        }
    }

    /// The job without its flows, and drafts of those.
    fn resolve_job(
        &self,
        document: &JobDocument,
        assignment: &mut GpuAssignment,
    ) -> Result<(Job, FlowDrafts), DocumentFieldError> {
        if document.id.is_empty() {
            return Err(self.field_error("id", "empty; a job needs a name".to_owned()));
        }
        let profile = self.resolve_profile(document)?;
        let ranks = self.resolve_gpus(document)?;
        let gpus: BTreeMap<HostId, u32> = ranks.iter().copied().collect();
        let count = f64::from(gpus.values().sum::<u32>());
        let flop = document.flop_per_iteration.or(profile.map(|p| p.flop_per_gpu * count));
        let compute = document.compute_seconds.or(profile.map(|p| p.compute_seconds));
        let overlap = document.overlap_from.or(profile.map(|p| p.overlap_from));
        let slowdown =
            |field, given: Option<f64>| self.check_range(field, given.unwrap_or(0.0), MAX_SLOWDOWN);
        let measured = MeasuredSlowdown {
            over_alone: slowdown("recent_slowdown", document.recent_slowdown)?,
            over_forecast: slowdown("slowdown_over_forecast", document.slowdown_over_forecast)?,
        };
        let job = Job {
            id: JobId::from(document.id.as_str()),
            tenant: document.tenant.clone(),
            model: document.model.clone().or_else(|| profile.map(|p| p.model.clone())),
            flop_per_iteration: self.require_number("flop_per_iteration", flop, MAX_FLOP)?,
            compute_seconds: self.require_number("compute_seconds", compute, MAX_SECONDS)?,
            overlap_from: self.check_range("overlap_from", overlap.unwrap_or(1.0), 1.0)?,
            can_wait: document.can_wait,
            measured,
            gpus,
            flows: Vec::new(),
        };
        if job.flop_per_iteration <= 0.0 {
            return Err(self.field_error("flop_per_iteration", "0 FLOP is no work".to_owned()));
        }
        let job_gpus = self.resolve_gpu_indices(document, &job, assignment)?;
        let hosts = ranks.iter().filter(|(_, gpus)| *gpus > 0).map(|(host, _)| *host);
        let hosts: Vec<HostId> = hosts.collect();
        let flows = self.resolve_flows(document, &hosts, &job_gpus, profile)?;
        Ok((job, flows))
    }

    fn resolve_profile(
        &self,
        document: &JobDocument,
    ) -> Result<Option<&'static ModelProfile>, DocumentFieldError> {
        let Some(name) = &document.profile else {
            return Ok(None);
        };
        let found = builtin_profiles().iter().find(|profile| profile.name == *name);
        found.map(Some).ok_or_else(|| {
            let known: Vec<&str> = builtin_profiles().iter().map(|it| it.name.as_str()).collect();
            let hint = name_matching::suggestion(name, known.iter().copied());
            let known = known.join(", ");
            let problem = format!("no profile is called `{name}`; there are {known}{hint}");
            self.field_error("profile", problem)
        })
    }

    /// GPUs by host, in the order of ranks.
    fn resolve_gpus(
        &self,
        document: &JobDocument,
    ) -> Result<Vec<(HostId, u32)>, DocumentFieldError> {
        let gpus: Vec<(HostId, u32)> = document
            .gpus
            .iter()
            .map(|(name, gpus)| {
                let field = format!("gpus.{name}");
                let host = self.resolve_host(&field, name)?;
                let has = self.fabric.host(host).gpus;
                if *gpus > has {
                    return Err(
                        self.field_error(&field, format!("{gpus} GPUs on a host that has {has}"))
                    );
                }
                Ok((host, *gpus))
            })
            .collect::<Result<_, _>>()?;
        if gpus.iter().all(|(_, count)| *count == 0) {
            return Err(self.field_error("gpus", "no GPU on any host".to_owned()));
        }
        Ok(gpus)
    }

    fn resolve_host(&self, field: &str, name: &str) -> Result<HostId, DocumentFieldError> {
        self.fabric.host_named(name).ok_or_else(|| {
            let hint = name_matching::suggestion(
                name,
                self.fabric.hosts().iter().map(|host| host.name.as_str()),
            );
            self.field_error(field, format!("the fabric has no host `{name}`{hint}"))
        })
    }

    /// A number that the job or its profile must give.
    fn require_number(
        &self,
        field: &str,
        value: Option<f64>,
        highest: f64,
    ) -> Result<f64, DocumentFieldError> {
        self.check_range(
            field,
            value.ok_or_else(|| {
                self.field_error(field, "missing, and no profile provides it".to_owned())
            })?,
            highest,
        )
    }

    /// A number from 0 to `highest`.
    fn check_range(
        &self,
        field: &str,
        value: f64,
        highest: f64,
    ) -> Result<f64, DocumentFieldError> {
        if (0.0..=highest).contains(&value) {
            return Ok(value);
        }
        Err(self.field_error(field, format!("{value} is not a number from 0 to {highest}")))
    }
}

/// Beyond this work of an iteration (10^30 FLOP) a unit was mistaken.
const MAX_FLOP: f64 = 1e30;

/// Beyond this duration of an iteration (31 years) a unit was mistaken.
const MAX_SECONDS: f64 = 1e9;

/// Beyond this volume of an iteration (10^18 bytes) a unit was mistaken.
const MAX_BYTES: f64 = 1e18;

/// A job slower than this no longer runs.
const MAX_SLOWDOWN: f64 = 1e6;
