//! Decisions of an operator that the planner obeys: levels, methods, thresholds, drained parts,
//! overrides of single jobs (Crux §7.2), and the jobs of unannounced flows.
//!
//! A [`Policy`] is already valid; the only way to make it from a file is
//! [`PolicyDocument::to_policy`], where every error names the field. The planner does not validate
//! it again.

mod adoption_rules;
mod document;
mod edit;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{AvailabilityChange, Fabric, FabricNode, SwitchId};

pub use self::adoption_rules::{AdoptionRule, MAX_RULES};
pub use self::document::{AdoptionDocument, OverrideDocument, PolicyDocument};
pub use self::edit::{PolicyEdit, PolicyEditAction};
use crate::input::{Job, MeasuredSlowdown};
use crate::interrupt::Interrupt;
use crate::name_matching::{self, DocumentFieldError};

/// How priorities become levels (Crux §4.3 and the schedulers it compares with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CompressionMethod {
    /// The optimum, by one minimum cut.
    #[default]
    Exact,
    /// The paper's Algorithm 1: the best of ten sampled topological orders.
    Sampled,
    /// The first jobs alone in a level, the rest in the lowest, as Sincronia does.
    Sincronia,
    /// The sorted jobs split evenly, as Varys does.
    Balanced,
}

/// The reference that corrects the intensity of a job (Crux §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CorrectionReference {
    /// The one job with the most bytes in an iteration, as in the paper.
    #[default]
    MostTraffic,
    /// Every job that shares a link with it, weighted by bytes (Crux §7.1 admits the need).
    Contenders,
}

/// How flows get their paths (Crux §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathMethod {
    /// New flows take the least contended path, and jobs others where the fluid model finds them
    /// better.
    #[default]
    Improved,
    /// The paper's greedy pass alone; a running flow stays where it is while it can.
    Greedy,
}

/// How hosts share links, as far as forecasts go; plans do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransportModel {
    /// Max-min sharing, as in the fluid model.
    #[default]
    MaxMin,
    /// DCQCN, which approaches it: forecasts say how much longer iterations may take.
    Dcqcn,
}

/// An operator's decisions on the jobs whose id or tenant matches a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOverride {
    /// Glob over job ids and tenants: `*` is any text, `?` any one character. With `job:` or
    /// `tenant:` before it, over one of the two.
    pub pattern: String,
    /// Lowest level of the job, if bounded; a fixed level is both bounds.
    pub min_level: Option<u8>,
    /// Highest level of the job, if bounded.
    pub max_level: Option<u8>,
    /// Factor on the priority; finite, above zero.
    pub weight: f64,
    /// Not planned: flows by ECMP, in the lowest level that jobs may have.
    pub exempt: bool,
    /// The least throughput that plans give to the job, as a share of that alone; 0..=1. Where it
    /// was measured to be slower than forecast, they give as much more. Where nothing is compared,
    /// a job that was measured to have less is raised by one level.
    pub min_throughput: Option<f64>,
}

impl JobOverride {
    /// Whether this override is about `job`.
    pub fn matches_job(&self, job: &Job) -> bool {
        let id = Some(job.id.as_str());
        let tenant = job.tenant.as_deref();
        let (candidates, pattern) = match self.pattern.split_once(':') {
            Some(("job", pattern)) => ([id, None], pattern),
            Some(("tenant", pattern)) => ([tenant, None], pattern),
            _ => ([id, tenant], self.pattern.as_str()),
        };
        candidates.iter().flatten().any(|name| name_matching::glob_matches(pattern, name))
    }

    /// An override that fixes a level, if there is one to fix.
    pub fn fixing_level(pattern: &str, level: Option<u8>) -> Self {
        Self {
            pattern: pattern.to_owned(),
            min_level: level,
            max_level: level,
            weight: 1.0,
            exempt: false,
            min_throughput: None,
        }
    }

    /// Whether it bounds the level of the job; compression then does not choose it.
    pub(crate) fn bounds_level(&self) -> bool {
        self.exempt || self.min_level.is_some() || self.max_level.is_some()
    }
}

/// When a reliable connection of RDMA gives up: after a transport timer of `4.096 us * 2^timeout`
/// (InfiniBand §9.7.6.1.3) has run out once more than it may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTimeout {
    /// The exponent of the timer, 1..=31 (`NCCL_IB_TIMEOUT`).
    pub ib_timeout: u8,
    /// How often it is retried, 0..=7 (`NCCL_IB_RETRY_CNT`).
    pub ib_retry_count: u8,
}

impl Default for ConnectionTimeout {
    /// Those of NCCL since 2.23: a timer of 4.3 s, and 7 retries.
    fn default() -> Self {
        Self { ib_timeout: 20, ib_retry_count: 7 }
    }
}

impl ConnectionTimeout {
    /// Seconds without an answer after which a connection has failed.
    pub fn timeout_seconds(self) -> f64 {
        let timer = 4.096e-6 * f64::from(self.ib_timeout).exp2();
        timer * f64::from(self.ib_retry_count + 1)
    }
}

/// How far a plan may slow the slowest job down. Where both limits are given, both hold; a job that
/// is slower than the limit allows is raised before anything is gained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowdownLimit {
    /// Times the slowdown of the slowest job under ECMP, 0.1 or more; no such limit if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecmp: Option<f64>,
    /// Times its iteration alone, 1 or more; no such limit if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
}

impl Default for SlowdownLimit {
    /// Twice as slow as the slowest under ECMP, with a margin because the draws that ECMP is
    /// expected from differ from the hash that a fabric has.
    fn default() -> Self {
        Self { ecmp: Some(1.9), alone: None }
    }
}

impl SlowdownLimit {
    /// The largest slowdown that is allowed where the slowest job under ECMP has `ecmp_worst`, if
    /// that is known; infinite without a limit.
    pub(crate) fn largest_slowdown(self, ecmp_worst: Option<f64>) -> f64 {
        let by_ecmp = self.ecmp.zip(ecmp_worst).map(|(factor, worst)| factor * worst);
        let limits = by_ecmp.into_iter().chain(self.alone);
        // No job is faster than alone.
        limits.fold(f64::INFINITY, f64::min).max(1.0)
    }
}

/// By how much iterations count as longer than forecast through a fault of the model: of 694 jobs
/// with levels, packets slow down one by more (docs/algorithms/fluid-model.md). The rest is the
/// job's own doing, or what it says.
const MAX_FORECAST_EXCESS: f64 = 0.25;

/// Part of a connection's timeout that a flow may wait for service.
const SERVICE_SHARE: f64 = 0.1;

/// An operator's decisions, valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `K`: levels of the switches, 1..=8. From three on, jobs do not have the highest.
    pub levels: u8,
    /// Further levels never given to jobs; at least one is left.
    pub reserved_levels: BTreeSet<u8>,
    /// How flows get their paths.
    pub paths: PathMethod,
    /// How priorities become levels.
    pub compression: CompressionMethod,
    /// The reference of the correction factor.
    pub reference: CorrectionReference,
    /// `f` in 0..=1: weight of recent slowdown against priority (Crux §7.2); 0 is the paper.
    pub fairness: f64,
    /// Flows of running jobs move only if the GPUs of these jobs gain this share of computation.
    pub move_gain_min: f64,
    /// Pins that one leaf may hold; the flows of the least intense jobs spill to ECMP.
    pub max_pins_per_switch: usize,
    /// Largest correction factor (Crux §4.2), for a job that loses while the reference does not.
    pub max_correction: f64,
    /// Cost of searches and climbs for a plan, in events of the fluid model; 0 is the phases of the
    /// paper alone, nothing compared.
    pub search_events: u64,
    /// Raised where the plan will not be used. No document has it.
    pub interrupt: Interrupt,
    /// How hosts share links.
    pub transport: TransportModel,
    /// When the connections of jobs give up.
    pub connection: ConnectionTimeout,
    /// The longest that a flow may wait for service, seconds; a tenth of the connection's timeout
    /// if not given.
    pub service_bound_seconds: Option<f64>,
    /// Switches by name, cables as `switch-switch`, that new traffic must avoid.
    pub drained: Vec<String>,
    /// How far the slowest job may be slowed down.
    pub slowdown_limit: SlowdownLimit,
    /// Overrides; the first that matches a job is the one that counts.
    pub overrides: Vec<JobOverride>,
    /// Jobs of the flows that no job has announced; the first rule that matches counts.
    pub adopt: Vec<AdoptionRule>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            levels: 8,
            reserved_levels: BTreeSet::new(),
            paths: PathMethod::Improved,
            compression: CompressionMethod::Exact,
            reference: CorrectionReference::MostTraffic,
            fairness: 0.0,
            move_gain_min: 0.02,
            max_pins_per_switch: 16_000,
            max_correction: 64.0,
            search_events: 400_000,
            interrupt: Interrupt::default(),
            transport: TransportModel::MaxMin,
            connection: ConnectionTimeout::default(),
            service_bound_seconds: None,
            drained: Vec::new(),
            slowdown_limit: SlowdownLimit::default(),
            overrides: Vec::new(),
            adopt: Vec::new(),
        }
    }
}

impl Policy {
    /// The levels that jobs may have, ascending; never empty.
    pub fn job_levels(&self) -> Vec<u8> {
        let levels = job_level_count(self.levels);
        (0..levels).filter(|level| !self.reserved_levels.contains(level)).collect()
    }

    /// The longest that a flow may wait for service, seconds.
    pub fn service_bound(&self) -> f64 {
        let default = || SERVICE_SHARE * self.connection.timeout_seconds();
        self.service_bound_seconds.unwrap_or_else(default)
    }

    /// The override that counts for `job`.
    pub fn override_for(&self, job: &Job) -> Option<&JobOverride> {
        self.overrides.iter().find(|rule| rule.matches_job(job))
    }

    /// Whether the level of `job` is bounded, so that it is not the planner's to choose.
    pub(crate) fn bounds_level(&self, job: &Job) -> bool {
        self.override_for(job).is_some_and(JobOverride::bounds_level)
    }

    /// Value of all GPUs of a job computing: their number, or for a fair policy its slowdown too,
    /// weighted like its priority (Crux §7.2).
    pub(crate) fn job_worth(&self, job: &Job) -> f64 {
        let weight = self.override_for(job).map_or(1.0, |rule| rule.weight);
        let fair = (1.0 - self.fairness) + self.fairness * job.measured.over_alone;
        f64::from(job.gpu_count()) * weight * fair
    }

    /// Throughput that the forecast is to have for `job`, so that it gets what policy guarantees to
    /// it: as a share of that alone; 0 for nothing. A job that is slower than its forecast is to
    /// have as much more there, as far as the model can be wrong.
    pub(crate) fn guaranteed_throughput(&self, job: &Job) -> f64 {
        let granted = self.override_for(job).and_then(|rule| rule.min_throughput).unwrap_or(0.0);
        let excess = job.measured.over_forecast.min(MAX_FORECAST_EXCESS);
        (granted * (1.0 + excess)).min(1.0)
    }

    /// What a plan depends on of the measured slowdown of `job`; the rest is 0.
    pub fn used_slowdown(&self, job: &Job) -> MeasuredSlowdown {
        let is_guaranteed =
            self.override_for(job).is_some_and(|rule| rule.min_throughput.is_some());
        let MeasuredSlowdown { over_alone, over_forecast } = job.measured;
        let used = |number, is_used: bool| if is_used { number } else { 0.0 };
        MeasuredSlowdown {
            over_alone: used(over_alone, is_guaranteed || self.fairness > 0.0),
            over_forecast: used(over_forecast, is_guaranteed),
        }
    }

    /// Levels that the policy lets the job have, as indices into `job_levels`; if every level
    /// between its bounds is reserved, the nearest one outside.
    pub(crate) fn allowed_levels(&self, job: &Job, job_levels: &[u8]) -> RangeInclusive<u8> {
        let highest = to_level(job_levels.len() - 1);
        let Some(rule) = self.override_for(job) else {
            return 0..=highest;
        };
        if rule.exempt {
            return 0..=0;
        }
        let least = rule.min_level.unwrap_or(0);
        let most = rule.max_level.unwrap_or(u8::MAX);
        let low = job_levels.partition_point(|level| *level < least);
        let above = job_levels.partition_point(|level| *level <= most);
        if low < above {
            return to_level(low)..=to_level(above - 1);
        }
        let wanted = rule.min_level.or(rule.max_level).unwrap_or(0);
        let nearest = (0..job_levels.len()).min_by_key(|index| job_levels[*index].abs_diff(wanted));
        let nearest = to_level(nearest.unwrap_or(0));
        nearest..=nearest
    }

    /// The level nearest to `level` from below that the policy lets the job have.
    pub(crate) fn nearest_level(&self, job: &Job, level: u8, job_levels: &[u8]) -> u8 {
        let allowed = self.allowed_levels(job, job_levels);
        let index = to_level(job_levels.partition_point(|given| *given < level));
        job_levels[usize::from(index.clamp(*allowed.start(), *allowed.end()))]
    }

    /// `fabric` with the parts in [`Policy::drained`] drained; a part not named there is as it was.
    ///
    /// # Errors
    /// A name that is neither a switch nor two nodes with a cable between them.
    pub fn apply_drains(&self, fabric: &Fabric) -> Result<Fabric, DocumentFieldError> {
        let mut changes = Vec::new();
        for (index, name) in self.drained.iter().enumerate() {
            let found = drains_of(fabric, name);
            if found.is_empty() {
                return Err(unknown_part(fabric, index, name));
            }
            changes.extend(found);
        }
        Ok(fabric.with_changes(changes))
    }
}

/// How many of the lowest of so many levels are for jobs: the highest is that of RoCEv2's answers.
/// Behind the data of a job on their level they make the senders of that level stop and start in
/// step. Two levels for jobs are worth more than that.
pub(crate) fn job_level_count(levels: u8) -> u8 {
    if levels > 2 { levels - 1 } else { levels }
}

/// The index of a level as a level is stored.
pub(crate) fn to_level(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn unknown_part(fabric: &Fabric, index: usize, name: &str) -> DocumentFieldError {
    let hint = name_matching::suggestion(
        name,
        fabric.switches().iter().map(|switch| switch.name.as_str()),
    );
    let problem = format!("the fabric has no switch or cable `{name}`{hint}");
    DocumentFieldError { file: "policy".to_owned(), field: format!("drained[{index}]"), problem }
}

/// The drains that a name means: one for a switch, one for each cable between two named nodes.
fn drains_of(fabric: &Fabric, name: &str) -> Vec<AvailabilityChange> {
    if let Some(switch) = fabric.switch_named(name) {
        return vec![AvailabilityChange::DrainSwitch(switch)];
    }
    // Names may hold dashes themselves, so every dash is tried as the one between the two.
    let dashes = name.match_indices('-').map(|(at, _)| at);
    let halves = dashes.map(|at| (&name[..at], &name[at + 1..]));
    let mut ends =
        halves.filter_map(|(a, b)| Some((find_node(fabric, a)?, fabric.switch_named(b)?)));
    ends.next().map_or_else(Vec::new, |(a, b)| cables_between(fabric, a, b))
}

fn find_node(fabric: &Fabric, name: &str) -> Option<FabricNode> {
    let switch = fabric.switch_named(name).map(FabricNode::Switch);
    switch.or_else(|| fabric.host_named(name).map(FabricNode::Host))
}

fn cables_between(fabric: &Fabric, a: FabricNode, b: SwitchId) -> Vec<AvailabilityChange> {
    let ports = fabric.switch(b).ports.values();
    let to_a = ports.filter(|link| fabric.link(**link).to.node == a);
    to_a.map(|link| AvailabilityChange::DrainLink(*link)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_limits_of_the_slowdown_the_smaller_counts() {
        let largest = |ecmp, alone, worst| SlowdownLimit { ecmp, alone }.largest_slowdown(worst);
        assert_eq!(largest(Some(1.5), None, Some(4.0)), 6.0);
        assert_eq!(largest(Some(1.5), Some(3.0), Some(4.0)), 3.0);
        assert_eq!(largest(Some(1.5), Some(9.0), Some(4.0)), 6.0);
        assert_eq!(largest(Some(0.2), None, Some(4.0)), 1.0, "no job is faster than alone");
        assert_eq!(largest(Some(1.5), None, None), f64::INFINITY, "ECMP is not known");
        assert_eq!(largest(None, None, Some(4.0)), f64::INFINITY);
    }
}
