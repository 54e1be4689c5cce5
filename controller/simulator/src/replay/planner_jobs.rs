//! Converts a job of the trace, with its GPUs and its pace, into a job for the planner.
//!
//! An iteration is the same work on any GPUs. A trace that counts in seconds means seconds of the
//! job alone on an idle fabric, so the remaining work of a job is counted in iterations.

use std::collections::BTreeMap;

use planner::{
    DocumentFieldError, Job, JobDocument, JobsDocument, choose_source_ports, spread_over_ports,
};
use topology::Fabric;

use super::{ReplaySetup, TraceReplayError};
use crate::demand::LinkDemand;
use crate::simulation::alone_seconds;
use crate::trace::{JobLength, TraceJob};
use placement::queue::{GpuChoice, SameLeaf};
use placement::{FreeGpus, GpusByHost, IterationPace, RunningJob};

/// A job on its GPUs.
#[derive(Clone, Debug)]
pub(super) struct PlannerJob {
    /// The job for the planner; its flows are empty on one host.
    pub(super) job: Job,
    /// GPU seconds of computation in one iteration, as if the GPUs were not shared.
    pub(super) busy_gpu_seconds: f64,
}

/// Makes jobs for a fabric.
#[derive(Debug)]
pub(super) struct PlannerJobBuilder<'a> {
    setup: &'a ReplaySetup,
    names: Vec<String>,
    /// Seconds of an iteration alone, by model and GPUs.
    alone: BTreeMap<(Option<&'a str>, u32), f64>,
}

/// Iterations of a job whose iteration alone takes so long.
pub(super) fn total_iterations(job: &TraceJob, alone_seconds: f64) -> f64 {
    match job.length {
        JobLength::Iterations(iterations) => iterations as f64,
        JobLength::Seconds(seconds) => (seconds / alone_seconds).ceil().max(1.0),
    }
}

/// What a job of an unknown model computes in an iteration; it sends nothing.
const UNKNOWN_SECONDS: f64 = 1.0;
const UNKNOWN_FLOP: f64 = 1e12;

impl<'a> PlannerJobBuilder<'a> {
    pub(super) fn new(setup: &'a ReplaySetup) -> Self {
        Self { setup, names: unique_names(&setup.trace.jobs), alone: BTreeMap::new() }
    }

    fn trace_job(&self, number: u32) -> &'a TraceJob {
        &self.setup.trace.jobs[number as usize]
    }

    /// Seconds of an iteration of a job by itself on the idle fabric, on as few hosts and leaves as
    /// it can have.
    ///
    /// # Errors
    /// Its model makes no job, or one that cannot be simulated.
    pub(super) fn alone_seconds(&mut self, number: u32) -> Result<f64, TraceReplayError> {
        let traced = self.trace_job(number);
        let key = (traced.model.as_deref(), traced.gpus);
        if let Some(seconds) = self.alone.get(&key) {
            return Ok(*seconds);
        }
        let cluster = &self.setup.cluster;
        let gpus = SameLeaf.choose_gpus(number, traced.gpus, cluster, &FreeGpus::all_free(cluster));
        let seconds = match gpus {
            Some(gpus) => {
                let job = self.resolve_document(self.job_document(number, &gpus))?;
                let seconds = alone_seconds(&self.setup.fabric, &job, &self.setup.policy)?;
                seconds.unwrap_or(UNKNOWN_SECONDS)
            }
            // It is refused as soon as it comes.
            None => UNKNOWN_SECONDS,
        };
        self.alone.insert(key, seconds);
        Ok(seconds)
    }

    /// The job that runs so.
    ///
    /// # Errors
    /// Its model or the policy's plan makes no job.
    pub(super) fn build_job(&self, running: &RunningJob) -> Result<PlannerJob, DocumentFieldError> {
        let number = running.request.job;
        let given: u32 = running.gpus.values().sum();
        let mut document = self.job_document(number, &running.gpus);
        let hosts = running.gpu_indices.iter();
        let named = |host| self.setup.fabric.host(host).name.clone();
        document.gpu_indices =
            hosts.map(|(host, indices)| (named(*host), indices.clone())).collect();
        // The global batch stays.
        let share = f64::from(running.request.gpus) / f64::from(given.max(1));
        scale_if_set(&mut document.compute_seconds, share);
        scale_if_set(&mut document.flop_per_iteration, share);
        if let IterationPace::Planned(iteration) = &running.pace {
            document.compute_seconds = Some(iteration.compute_seconds);
            document.overlap_from = Some(iteration.overlap_from);
            document.collective = Some(iteration.collective.clone());
            self.scale_traffic(&mut document);
        }
        let mut job = self.resolve_document(document)?;
        let busy = job.compute_seconds * f64::from(given);
        if let IterationPace::Shared(factor) = running.pace {
            let sending = nic_seconds(&self.setup.fabric, &job);
            stretch_iteration(&mut job, factor, sending);
        }
        self.setup.scheduler.adapt_jobs(&self.setup.fabric, std::slice::from_mut(&mut job));
        Ok(PlannerJob { job, busy_gpu_seconds: busy })
    }

    /// The document of a job that iterates as its model says.
    fn job_document(&self, number: u32, gpus: &GpusByHost) -> JobDocument {
        let (traced, fabric) = (self.trace_job(number), &self.setup.fabric);
        let name = &self.names[number as usize];
        let model = traced.model.as_deref().and_then(|name| self.setup.models.by_name(name));
        let mut document = match model {
            Some(model) => model.job_document(name, gpus, fabric),
            None => unknown_model_document(name, gpus, fabric),
        };
        document.tenant.clone_from(&traced.tenant);
        self.scale_traffic(&mut document);
        document
    }

    /// The volume and the number of connections of this replay.
    fn scale_traffic(&self, document: &mut JobDocument) {
        if let Some(collective) = &mut document.collective {
            scale_if_set(&mut collective.bytes, self.setup.volume);
            collective.channels = collective.channels.map(|own| own * self.setup.connections);
        }
    }

    fn resolve_document(&self, document: JobDocument) -> Result<Job, DocumentFieldError> {
        let id = document.id.clone();
        let jobs = vec![document];
        let mut resolved = JobsDocument { jobs }.resolve_jobs(&self.setup.fabric, "trace")?;
        choose_source_ports(&mut resolved.jobs);
        let jobs = spread_over_ports(&self.setup.fabric, resolved.jobs);
        jobs.into_iter().next().ok_or_else(|| DocumentFieldError {
            file: "trace".to_owned(),
            field: id,
            problem: "makes no job".to_owned(),
        })
    }
}

fn scale_if_set(value: &mut Option<f64>, factor: f64) {
    if let Some(value) = value {
        *value *= factor;
    }
}

fn unknown_model_document(name: &str, gpus: &GpusByHost, fabric: &Fabric) -> JobDocument {
    JobDocument {
        id: name.to_owned(),
        gpus: gpus.iter().map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus)).collect(),
        flop_per_iteration: Some(UNKNOWN_FLOP),
        compute_seconds: Some(UNKNOWN_SECONDS),
        flows: Some(Vec::new()),
        ..JobDocument::default()
    }
}

/// Seconds that an iteration takes the busiest NIC of a job.
fn nic_seconds(fabric: &Fabric, job: &Job) -> f64 {
    let uplinks = job.flows.iter().map(|flow| vec![fabric.nic(flow.src).uplink]);
    LinkDemand::new(fabric, job, &uplinks.collect::<Vec<_>>()).bottleneck_seconds()
}

/// Makes an iteration so many times as long as it would be alone, by longer computation.
fn stretch_iteration(job: &mut Job, factor: f64, sending: f64) {
    let begins = factor * (job.overlap_from * job.compute_seconds + sending) - sending;
    job.compute_seconds = (job.compute_seconds * factor).max(begins);
    job.overlap_from = (begins / job.compute_seconds).clamp(0.0, 1.0);
}

/// The names of the trace; of equal ones the later get their number.
fn unique_names(jobs: &[TraceJob]) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let jobs = jobs.iter().enumerate();
    jobs.map(|(number, job)| {
        if seen.insert(job.id.as_str()) { job.id.clone() } else { format!("{}#{number}", job.id) }
    })
    .collect()
}
