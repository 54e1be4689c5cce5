//! Small inputs for tests: jobs on the lab's fabric, by the names of hosts.

use planner::{Flow, Job, JobId, MeasuredSlowdown, PlanInput};
use topology::document::DocumentFormat;
use topology::{Fabric, LinkId, NicId, examples, spec};

/// A fabric and jobs that are added one by one.
#[derive(Clone, Debug)]
pub(crate) struct TestInput {
    pub(crate) fabric: Fabric,
    pub(crate) jobs: Vec<Job>,
}

impl TestInput {
    /// Four leaves of three hosts at 200 Gb/s, two spines at 400 Gb/s.
    pub(crate) fn on_lab_fabric() -> Self {
        let text = examples::example_text("lab").unwrap();
        Self {
            fabric: spec::parse_fabric(text, DocumentFormat::Toml, "lab").unwrap(),
            jobs: Vec::new(),
        }
    }

    /// With a job of 8 GPUs on each host it uses, that computes 1 s and then sends 12.5 GB from the
    /// first to the second of each pair of hosts: 0.5 s at 200 Gb/s.
    pub(crate) fn with_job(mut self, id: &str, flows: &[(&str, &str)]) -> Self {
        let nic = |host: &str| -> NicId {
            let host = self.fabric.host_named(host).unwrap();
            self.fabric.nic_of(host, 0).unwrap()
        };
        let hosts = flows.iter().flat_map(|(src, dst)| [*src, *dst]);
        let job = Job {
            id: JobId::from(id),
            tenant: None,
            model: None,
            gpus: hosts.map(|host| (self.fabric.host_named(host).unwrap(), 8)).collect(),
            flop_per_iteration: 1e15,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: flows
                .iter()
                .enumerate()
                .map(|(index, (src, dst))| Flow {
                    src: nic(src),
                    dst: nic(dst),
                    bytes: 12.5e9,
                    udp_src_port: Some(50_000 + (self.jobs.len() * 16 + index) as u16),
                    gpus: planner::FlowGpus::default(),
                    overlap_from: None,
                })
                .collect(),
        };
        self.jobs.push(job);
        self
    }

    pub(crate) fn to_input(&self) -> PlanInput {
        PlanInput { fabric: self.fabric.clone(), jobs: self.jobs.clone() }
    }

    /// The spine that each path passes, `-` where it passes none.
    pub(crate) fn spine_names(&self, paths: &[Vec<LinkId>]) -> Vec<&str> {
        paths
            .iter()
            .map(|path| {
                let switch = path
                    .get(1)
                    .and_then(|link| self.fabric.switch_after(*link))
                    .filter(|_| path.len() > 2);
                switch.map_or("-", |switch| self.fabric.switch(switch).name.as_str())
            })
            .collect()
    }
}
