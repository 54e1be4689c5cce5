//! The Plan document: a plan and its report by names, for people, programs and the next plan.
//!
//! A restored document is the `previous` of the next plan. Names that the fabric no longer has are
//! not errors then: their flows are planned again, and a finding reports them.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, Finding, HostId, LinkId, LinkPath, NicId};

use crate::input::JobId;
use crate::input_digest::ComparedInputs;
use crate::plan::{Plan, PlannedFlow, PlannedJob, PlannedRule, StartShift};
use crate::policy::CompressionMethod;
use crate::refine::{CandidateOutcome, RegionComparison};
use crate::report::PlanReport;

/// The Plan document: a plan and its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// Rises by one with every plan that differs from the one before it.
    pub generation: u64,
    /// Jobs in the order of their ids.
    pub jobs: Vec<PlannedJobDocument>,
    /// Flows in the order of their jobs.
    pub flows: Vec<PlannedFlowDocument>,
    /// Jobs of all other flows; the first rule that matches counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PlannedRuleDocument>,
    /// Links that carry planned traffic.
    pub links: Vec<PlannedLink>,
    /// How priorities became levels.
    pub compression: PlannedCompression,
    /// Load of the busiest link and its lower bound.
    pub bounds: PlannedBounds,
    /// What the plan was chosen from, for each set of jobs that were decided together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonDocument>,
    /// What an operator should know.
    pub findings: Vec<Finding>,
}

/// Candidates for some jobs that were decided together, and what each was worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonDocument {
    /// Names of the jobs.
    pub jobs: Vec<String>,
    /// What was compared, the adopted one first.
    pub candidates: Vec<CandidateDocument>,
    /// GPU utilisation under ECMP, the mean over draws of its hash; none if it was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecmp_utilization: Option<f64>,
    /// How many times slower than alone a job may be at most; none if no job came near it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_limit: Option<f64>,
    /// Share of the jobs' GPUs that the adopted candidate gives up so that no flow waits longer for
    /// service than policy allows; none if that excluded nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_cost: Option<f64>,
}

/// Where the decisions of a candidate come from, and what they are worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CandidateDocument {
    /// Where its paths come from: `in-force`, `selected`, `greedy`, `least-congested`, `searched`,
    /// `sprayed`.
    pub paths: String,
    /// Where its levels come from: `in-force`, `searched`, `one-level`, `N-levels`,
    /// `first-N`, `by-distance`, `raised`, `climbed`; several if contention groups
    /// differ.
    pub levels: Vec<String>,
    /// Forecast share of the jobs' GPUs, weighted as the policy does, that computes.
    pub gpu_utilization: f64,
    /// Forecast of how many times slower than alone the worst job is.
    pub worst_slowdown: f64,
    /// Forecast of the longest that a flow waits for service, seconds.
    #[serde(default)]
    pub worst_wait_seconds: f64,
}

impl ComparisonDocument {
    /// The comparison of a region in the names of `plan`.
    pub fn new(plan: &Plan, region: &RegionComparison) -> Self {
        let candidate = |of: &CandidateOutcome| CandidateDocument {
            paths: of.paths.to_string(),
            levels: of.levels.iter().map(ToString::to_string).collect(),
            gpu_utilization: of.gpu_utilization,
            worst_slowdown: of.worst_slowdown,
            worst_wait_seconds: of.worst_wait_seconds,
        };
        Self {
            jobs: region.jobs.iter().map(|job| plan.jobs[*job].id.to_string()).collect(),
            candidates: region.candidates.iter().map(candidate).collect(),
            ecmp_utilization: region.ecmp_utilization,
            slowdown_limit: region.slowdown_limit,
            bound_cost: region.bound_cost,
        }
    }
}

/// Decisions on one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedJobDocument {
    /// Unique name of the job.
    pub id: String,
    /// Its number in switch tables.
    pub number: u32,
    /// FLOP/s that one second of its tightest link unblocks.
    pub intensity: f64,
    /// Seconds that an iteration takes its tightest link.
    pub bottleneck_seconds: f64,
    /// Correction factor of the intensity.
    pub correction: f64,
    /// Priority after fairness and policy, FLOP/s.
    pub priority: f64,
    /// Place in the order of priority; 1 is first.
    pub rank: u32,
    /// Level; the highest is served first.
    pub level: u8,
    /// When it begins its iterations, if that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_shift: Option<StartShiftDocument>,
    /// Whether switches spread its packets over all paths; its flows have no path of their own
    /// then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sprayed: bool,
}

/// When a job begins its iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartShiftDocument {
    /// Seconds after the instant that its contention group has in common.
    pub seconds: f64,
    /// Seconds between two iterations.
    pub period_seconds: f64,
    /// Seconds that it waits for its slot in an iteration at most.
    pub most_wait_seconds: f64,
}

/// Decisions on one flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedFlowDocument {
    /// Name of the job of the flow.
    pub job: String,
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
    /// Which port of the sending NIC, where it has two: 0 or 1. The hash of the host chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u32>,
    /// Which port of the receiving NIC, where it has two: 0 or 1. Switches choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u32>,
    /// UDP source port of the flow; absent where only its NICs are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_src_port: Option<u16>,
    /// Hosts and switches that it passes; empty if its job is sprayed, and without a path.
    pub path: Vec<String>,
    /// Directed links that it takes.
    pub links: Vec<String>,
    /// Whether switches have an entry for its path; if not, it is left to ECMP.
    #[serde(default)]
    pub pinned: bool,
    /// Whether the previous plan had it on another path.
    pub moved: bool,
}

/// Flows of a job that it has not announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedRuleDocument {
    /// Name of the job of the flows.
    pub job: String,
    /// Sending hosts; an empty list matches any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub src: Vec<String>,
    /// Receiving hosts; an empty list matches any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dst: Vec<String>,
    /// The sender's TCP or UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
}

/// Planned load of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedLink {
    /// Name of the directed link.
    pub link: String,
    /// Share of time that it is busy.
    pub load: f64,
    /// Names of the jobs on the link.
    pub jobs: Vec<String>,
}

/// The cut that compression made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedCompression {
    /// Method of the compression.
    pub method: CompressionMethod,
    /// Levels of the switches.
    pub levels: u8,
    /// Weight of the edges between different levels, FLOP/s.
    pub cut_weight: f64,
    /// Weight of all edges, FLOP/s.
    pub total_weight: f64,
}

/// Load of the busiest link and its lower bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedBounds {
    /// Largest load of a link.
    pub max_load: f64,
    /// No choice of paths has a largest load below this.
    pub max_load_lower_bound: f64,
}

impl PlanDocument {
    /// `plan` and its `report` in the names of `fabric`.
    pub fn new(fabric: &Fabric, plan: &Plan, report: &PlanReport) -> Self {
        let mut document = Self::from_decisions(fabric, plan);
        report.moved.iter().for_each(|flow| document.flows[*flow].moved = true);
        let links = report.links.iter().map(|load| PlannedLink {
            link: fabric.link_name(load.link),
            load: load.load,
            jobs: load.jobs.iter().map(|job| plan.jobs[*job].id.to_string()).collect(),
        });
        let regions = report.comparison.regions.iter();
        Self {
            links: links.collect(),
            compression: PlannedCompression {
                method: report.compression.method,
                levels: report.compression.levels,
                cut_weight: report.compression.cut_weight,
                total_weight: report.compression.total_weight,
            },
            bounds: PlannedBounds {
                max_load: report.bounds.max_load,
                max_load_lower_bound: report.bounds.max_load_lower_bound,
            },
            comparisons: regions.map(|region| ComparisonDocument::new(plan, region)).collect(),
            findings: report.findings.clone(),
            ..document
        }
    }

    /// The decisions of `plan` in the names of `fabric`, without the reasons that a report has.
    pub fn from_decisions(fabric: &Fabric, plan: &Plan) -> Self {
        let rules = plan.rules.iter();
        Self {
            generation: plan.generation,
            jobs: plan.jobs.iter().map(job_document).collect(),
            flows: plan.flows.iter().map(|flow| flow_document(fabric, plan, flow)).collect(),
            rules: rules.map(|rule| PlannedRuleDocument::new(fabric, plan, rule)).collect(),
            links: Vec::new(),
            compression: PlannedCompression {
                method: CompressionMethod::default(),
                levels: plan.levels,
                cut_weight: 0.0,
                total_weight: 0.0,
            },
            bounds: PlannedBounds { max_load: 0.0, max_load_lower_bound: 0.0 },
            comparisons: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The plan in the ids of `fabric`, to plan on from, and a finding for every job some of whose
    /// flows or paths the fabric no longer has.
    pub fn restore_plan(&self, fabric: &Fabric) -> (Plan, Vec<Finding>) {
        let mut jobs: Vec<PlannedJob> = self.jobs.iter().map(planned_job).collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let known = KnownNames::new(fabric, &jobs);
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        let mut flows = Vec::with_capacity(self.flows.len());
        for document in &self.flows {
            match known.resolve_flow(document) {
                Some(flow) => flows.push(flow),
                None => *lost.entry(&document.job).or_default() += 1,
            }
        }
        let rules = self.rules.iter().filter_map(|rule| known.resolve_rule(rule)).collect();
        let findings = lost
            .into_iter()
            .map(|(job, count)| {
                let text = format!("{count} flows of the previous plan are not of this fabric");
                Finding::warning(format!("job {job}"), text)
            })
            .collect();
        let levels = self.compression.levels;
        // The file of a restored plan may have been edited, so the plan is compared again.
        let compared_inputs = ComparedInputs::default();
        let generation = self.generation;
        let counted_pairs = Vec::new();
        (Plan { generation, levels, jobs, flows, rules, compared_inputs, counted_pairs }, findings)
    }
}

impl PlannedRuleDocument {
    /// A rule of `plan` in the names of `fabric`.
    pub fn new(fabric: &Fabric, plan: &Plan, rule: &PlannedRule) -> Self {
        Self {
            job: plan.jobs[rule.job].id.to_string(),
            src: host_names(fabric, &rule.senders),
            dst: host_names(fabric, &rule.receivers),
            sport: rule.sport,
            dport: rule.dport,
        }
    }
}

/// Names of the hosts of `nics`, each once.
fn host_names(fabric: &Fabric, nics: &[NicId]) -> Vec<String> {
    let hosts: BTreeSet<HostId> = nics.iter().map(|nic| fabric.nic(*nic).host).collect();
    hosts.iter().map(|host| fabric.host(*host).name.clone()).collect()
}

fn job_document(job: &PlannedJob) -> PlannedJobDocument {
    PlannedJobDocument {
        id: job.id.to_string(),
        number: job.number,
        intensity: job.intensity,
        bottleneck_seconds: job.bottleneck_seconds,
        correction: job.correction,
        priority: job.priority,
        rank: job.rank,
        level: job.level,
        start_shift: job.start_shift.map(StartShiftDocument::from),
        sprayed: job.sprayed,
    }
}

impl From<StartShift> for StartShiftDocument {
    fn from(shift: StartShift) -> Self {
        let StartShift { seconds, period_seconds, most_wait_seconds } = shift;
        Self { seconds, period_seconds, most_wait_seconds }
    }
}

impl From<StartShiftDocument> for StartShift {
    fn from(shift: StartShiftDocument) -> Self {
        let StartShiftDocument { seconds, period_seconds, most_wait_seconds } = shift;
        Self { seconds, period_seconds, most_wait_seconds }
    }
}

fn planned_job(job: &PlannedJobDocument) -> PlannedJob {
    PlannedJob {
        id: JobId::from(job.id.as_str()),
        number: job.number,
        intensity: job.intensity,
        bottleneck_seconds: job.bottleneck_seconds,
        correction: job.correction,
        priority: job.priority,
        rank: job.rank,
        level: job.level,
        start_shift: job.start_shift.map(StartShift::from),
        sprayed: job.sprayed,
    }
}

fn flow_document(fabric: &Fabric, plan: &Plan, flow: &PlannedFlow) -> PlannedFlowDocument {
    let first = flow.links.first().map(|link| fabric.link(*link).from.node);
    let nodes = first.into_iter().chain(flow.links.iter().map(|link| fabric.link(*link).to.node));
    PlannedFlowDocument {
        job: plan.jobs[flow.job].id.to_string(),
        src: fabric.host(fabric.nic(flow.src).host).name.clone(),
        dst: fabric.host(fabric.nic(flow.dst).host).name.clone(),
        src_nic: fabric.nic(flow.src).index,
        dst_nic: fabric.nic(flow.dst).index,
        src_port: port_place(fabric, flow.src),
        dst_port: port_place(fabric, flow.dst),
        udp_src_port: flow.udp_src_port,
        path: nodes.map(|node| fabric.node_name(node).to_owned()).collect(),
        links: flow.links.iter().map(|link| fabric.link_name(*link)).collect(),
        pinned: flow.pinned,
        moved: false,
    }
}

/// The place of a port among those of its NIC, where that has two.
fn port_place(fabric: &Fabric, port: NicId) -> Option<u32> {
    let has_two = fabric.nic(port).bond.is_some();
    has_two.then(|| u32::from(port != fabric.first_port(port)))
}

/// Names to ids, made once per document.
struct KnownNames<'a> {
    fabric: &'a Fabric,
    jobs: BTreeMap<&'a str, usize>,
    links: BTreeMap<String, LinkId>,
}

impl<'a> KnownNames<'a> {
    fn new(fabric: &'a Fabric, jobs: &'a [PlannedJob]) -> Self {
        let links = fabric.link_ids();
        let jobs = jobs.iter().enumerate();
        Self {
            fabric,
            jobs: jobs.map(|(position, job)| (job.id.as_str(), position)).collect(),
            links: links.map(|link| (fabric.link_name(link), link)).collect(),
        }
    }

    /// The rule, if its job and all its hosts are known.
    fn resolve_rule(&self, document: &PlannedRuleDocument) -> Option<PlannedRule> {
        Some(PlannedRule {
            job: *self.jobs.get(document.job.as_str())?,
            senders: self.nics_of(&document.src)?,
            receivers: self.nics_of(&document.dst)?,
            sport: document.sport,
            dport: document.dport,
        })
    }

    /// The NICs of the named hosts, ascending; none if a host is unknown.
    fn nics_of(&self, names: &[String]) -> Option<Vec<NicId>> {
        let mut nics = BTreeSet::new();
        for name in names {
            nics.extend(&self.fabric.host(self.fabric.host_named(name)?).nics);
        }
        Some(nics.into_iter().collect())
    }

    /// NIC `index` of the named host, or a port of it; the first where the document names none.
    fn nic_of(&self, host: &str, index: u32, port: Option<u32>) -> Option<NicId> {
        let nic = self.fabric.nic_of(self.fabric.host_named(host)?, index)?;
        self.fabric.ports_of(nic).nth(port.unwrap_or(0) as usize)
    }

    /// The flow, if its job, its NICs and all its links are known.
    fn resolve_flow(&self, document: &PlannedFlowDocument) -> Option<PlannedFlow> {
        let links = document.links.iter().map(|name| self.links.get(name).copied());
        Some(PlannedFlow {
            job: *self.jobs.get(document.job.as_str())?,
            src: self.nic_of(&document.src, document.src_nic, document.src_port)?,
            dst: self.nic_of(&document.dst, document.dst_nic, document.dst_port)?,
            udp_src_port: document.udp_src_port,
            links: LinkPath::new(&links.collect::<Option<Vec<_>>>()?)?,
            pinned: document.pinned,
        })
    }
}
