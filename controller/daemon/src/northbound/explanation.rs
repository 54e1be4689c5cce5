//! Why a job has its level and its flows their paths.
//!
//! Pure, from a [`ControllerView`]. The decision: the words are those of the algorithm (intensity,
//! correction, contenders, candidates), with its numbers, so that a person can work out the same.

use std::collections::BTreeMap;

use planner::{
    ComparisonDocument, FlowIdentity, JobId, JobOverride, PlannedFlow, PlannedRuleDocument,
    StartShiftDocument,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{LinkId, paths_between_nics};

use super::controller_view::{ControllerView, job_names};
use crate::state::PlanRollout;

/// Why a job is treated as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainJobResponse {
    /// Its name.
    pub id: String,
    /// Its class, and of how many.
    pub level: u8,
    /// Classes of the switches.
    pub levels: u8,
    /// Its place in the order of priority; 1 is first.
    pub rank: u32,
    /// `I_j`, FLOP/s (Crux Eq. 2).
    pub intensity: f64,
    /// The link that takes longest, and for how many seconds.
    pub bottleneck: Option<String>,
    /// `t_j`, seconds.
    pub bottleneck_seconds: f64,
    /// `k_j` (Crux §4.2).
    pub correction: f64,
    /// The job that it was compared with; none where that is its contenders.
    pub reference: Option<String>,
    /// `P_j = k_j I_j`, with fairness and policy.
    pub priority: f64,
    /// Jobs that it shares a link with.
    pub contenders: Vec<String>,
    /// Those of higher priority that compression left in its class.
    pub merged_with: Vec<String>,
    /// The pattern of the override that counts for it.
    pub override_pattern: Option<String>,
    /// Whether it has the highest class because it is being profiled.
    pub profiled: bool,
    /// When it begins its iterations, if it waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_shift: Option<StartShiftDocument>,
    /// Its flows.
    pub flows: Vec<FlowExplanation>,
    /// Which other flows rules of the policy give it, as `h1, h2 > h3, to port 2049`.
    pub adopted_traffic: Vec<String>,
    /// What its plan was chosen from; none where nothing was compared.
    #[serde(default)]
    pub comparison: Option<ComparisonDocument>,
}

/// Why a flow takes its path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowExplanation {
    /// The flow, as `h1>h3:50000`.
    pub flow: String,
    /// How it is known.
    pub identity: FlowIdentity,
    /// Connections that its leaf has reported between its NICs and that its job has.
    pub connections: usize,
    /// Seconds of an iteration after which it may begin, where it does not begin with its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_after_seconds: Option<f64>,
    /// Whether switches have its path; if not, it is left to ECMP.
    pub pinned: bool,
    /// The switch that has no room for its path; only for a flow that is left to ECMP for that.
    #[serde(default)]
    pub no_room_at: Option<String>,
    /// Whether switches spread its packets over all candidates; none of them is chosen then.
    #[serde(default)]
    pub sprayed: bool,
    /// All equal-cost paths, the one it takes among them.
    pub candidates: Vec<PathCandidate>,
}

/// A path that a flow could take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathCandidate {
    /// Hosts and switches on it.
    pub path: Vec<String>,
    /// Whether it is the one.
    pub chosen: bool,
    /// The largest load of its links by the other flows, as a share of time.
    pub load: f64,
    /// Where that is.
    pub busiest: Option<String>,
    /// The largest load of its links by jobs of higher intensity alone, which chose before.
    #[serde(default)]
    pub earlier_load: f64,
}

impl ControllerView {
    /// Why the job of this name, or the one with this flow (`h1>h3:50000`, or `h1>h3` without a
    /// port), is treated as it is.
    /// None if there is neither.
    pub fn find_explanation(&self, name: &str) -> Option<ExplainJobResponse> {
        if let Some((position, _)) = self.rollout.plan.job(&JobId::from(name)) {
            return Some(self.explain_job(position, |_| true));
        }
        let flows = self.rollout.plan.flows.iter().enumerate();
        let (place, flow) = { flows }.find(|(place, _)| self.flow_name(*place) == name)?;
        Some(self.explain_job(flow.job, |other| other == place))
    }

    fn explain_job(&self, position: usize, is_asked: impl Fn(usize) -> bool) -> ExplainJobResponse {
        let plan = &self.rollout.plan;
        let (job, why) = (&plan.jobs[position], &self.rollout.report.rationales[position]);
        let own = (0..plan.flows.len()).filter(|place| plan.flows[*place].job == position);
        let loads = self.link_loads();
        let rates: BTreeMap<usize, f64> = self.flow_rates().into_iter().collect();
        let earlier = self.earlier_loads(job.intensity, &rates);
        let known = self.known_flows();
        let flows = own.filter(|place| is_asked(*place)).map(|place| {
            let rate = rates.get(&place).copied().unwrap_or(0.0);
            let begins_apart = |(job, flow): &&(&planner::Job, &planner::Flow)| {
                flow.overlap_from.is_some_and(|at| at != job.overlap_from)
            };
            let begins = known.get(&place).filter(begins_apart);
            let begins = begins.map(|(job, flow)| job.flow_start_seconds(flow));
            self.explain_flow(place, begins, rate, [&loads, &earlier])
        });
        ExplainJobResponse {
            id: job.id.to_string(),
            level: job.level,
            levels: plan.levels,
            rank: job.rank,
            intensity: job.intensity,
            bottleneck: why.bottleneck.map(|link| self.rollout.fabric.link_name(link)),
            bottleneck_seconds: job.bottleneck_seconds,
            correction: job.correction,
            reference: why.reference.map(|job| plan.jobs[job].id.to_string()),
            priority: job.priority,
            contenders: job_names(&self.rollout, &why.contenders),
            merged_with: job_names(&self.rollout, &why.tied_with),
            override_pattern: match self.adoption_rule(&job.id) {
                Some(adopted) => override_pattern(self.request.policy().override_for_rule(adopted)),
                None => why.rule.clone(),
            },
            profiled: self.reported_jobs.profiled.contains(&job.id),
            start_shift: job.start_shift.map(StartShiftDocument::from),
            flows: flows.collect(),
            adopted_traffic: self.adopted_traffic(position),
            comparison: self
                .rollout
                .report
                .comparison
                .regions
                .iter()
                .find(|region| region.jobs.contains(&position))
                .map(|region| ComparisonDocument::new(plan, region)),
        }
    }

    /// The rules that give flows to the job at a position of the plan.
    fn adopted_traffic(&self, position: usize) -> Vec<String> {
        let PlanRollout { fabric, plan, .. } = &self.rollout;
        let rules = plan.rules.iter().filter(|rule| rule.job == position);
        rules.map(|rule| rule_text(&PlannedRuleDocument::new(fabric, plan, rule))).collect()
    }

    fn explain_flow(
        &self,
        place: usize,
        begins_after_seconds: Option<f64>,
        rate: f64,
        [loads, earlier]: [&[f64]; 2],
    ) -> FlowExplanation {
        let fabric = &self.rollout.fabric;
        let flow = &self.rollout.plan.flows[place];
        // The load by others: its own share would make the path it takes look the busiest.
        let mut others = loads.to_vec();
        for link in flow.links.iter() {
            let load = &mut others[link.index()];
            *load = (*load - rate / fabric.link(*link).bandwidth.bytes_per_second()).max(0.0);
        }
        let all = paths_between_nics(fabric, flow.src, flow.dst);
        let candidates = all.into_iter().map(|path| {
            let by_load =
                |a: &&LinkId, b: &&LinkId| others[a.index()].total_cmp(&others[b.index()]);
            let busiest = path.iter().max_by(by_load);
            PathCandidate {
                path: fabric.path_node_names(&path),
                chosen: *flow.links == *path,
                load: busiest.map_or(0.0, |link| others[link.index()]),
                busiest: busiest.map(|link| fabric.link_name(*link)),
                earlier_load: path.iter().map(|link| earlier[link.index()]).fold(0.0, f64::max),
            }
        });
        let (identity, connections) = self.flow_identity(flow);
        let no_room = self.rollout.report.unpinned.get(&place).filter(|_| !flow.pinned);
        FlowExplanation {
            flow: self.flow_name(place),
            identity,
            connections,
            begins_after_seconds,
            pinned: flow.pinned,
            no_room_at: no_room.map(|switch| fabric.switch(*switch).name.clone()),
            sprayed: self.rollout.plan.jobs[flow.job].sprayed,
            candidates: candidates.collect(),
        }
    }

    /// How a flow is known, and how many connections its leaf has reported between its NICs.
    pub(super) fn flow_identity(&self, flow: &PlannedFlow) -> (FlowIdentity, usize) {
        let learned = self.rollout.learned.iter();
        let to = |port| self.rollout.fabric.first_port(port);
        let ends = (flow.job, flow.src, to(flow.dst));
        let connections = learned.filter(|seen| (seen.job, seen.src, to(seen.dst)) == ends).count();
        let identity = match (flow.identity(), connections) {
            (FlowIdentity::Pair, 1..) => FlowIdentity::Learned,
            (identity, _) => identity,
        };
        (identity, connections)
    }

    /// Load of every link by jobs above an intensity, by index.
    fn earlier_loads(&self, intensity: f64, rates: &BTreeMap<usize, f64>) -> Vec<f64> {
        let PlanRollout { fabric, plan, .. } = &self.rollout;
        let mut loads = vec![0.0; fabric.links().len()];
        for (place, rate) in rates {
            let flow = &plan.flows[*place];
            if plan.jobs[flow.job].intensity > intensity {
                for link in flow.links.iter() {
                    let capacity = fabric.link(*link).bandwidth.bytes_per_second();
                    loads[link.index()] += rate / capacity;
                }
            }
        }
        loads
    }

    /// Load of every link, by index.
    fn link_loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.rollout.fabric.capacity_link_count()];
        for load in &self.rollout.report.links {
            loads[load.link.index()] = load.load;
        }
        loads
    }

    fn flow_name(&self, place: usize) -> String {
        self.rollout.plan.flows[place].name_in(&self.rollout.fabric)
    }
}

fn override_pattern(rule: Option<&JobOverride>) -> Option<String> {
    rule.map(|rule| rule.pattern.clone())
}

/// A rule as text, `h1, h2 > any host, to port 2049`.
fn rule_text(rule: &PlannedRuleDocument) -> String {
    let [src, dst] = [&rule.src, &rule.dst]
        .map(|hosts| if hosts.is_empty() { "any host".to_owned() } else { hosts.join(", ") });
    let ports = [("from", rule.sport), ("to", rule.dport)].into_iter();
    let ports: String =
        ports.filter_map(|(word, port)| Some(format!(", {word} port {}", port?))).collect();
    format!("{src} > {dst}{ports}")
}
