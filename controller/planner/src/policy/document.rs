//! The Policy document that people write, and its validation to a [`Policy`].
//!
//! Every field has a default, so an empty document is the default policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AdoptionRule, CompressionMethod, ConnectionTimeout, CorrectionReference, JobOverride,
    MAX_RULES, PathMethod, Policy, SlowdownLimit, TransportModel, job_level_count,
};
use crate::input::JobId;
use crate::interrupt::Interrupt;
use crate::name_matching::DocumentFieldError;
use topology::Fabric;

/// Most levels that a DSCP field can distinguish in this data plane (`dscp = level << 3`).
const MAX_LEVELS: u8 = 8;

/// Largest search: minutes of a processor, after which nobody waits for a plan.
const MAX_SEARCH_EVENTS: u64 = 100_000_000;

/// The Policy document: decisions of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyDocument {
    /// Levels of the switches, 1..=8; the highest is served first. If not given, the least that
    /// the fabric document says of a switch, or 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Levels never given to jobs.
    pub reserved_levels: Vec<u8>,
    /// How flows get their paths.
    pub paths: PathMethod,
    /// How priorities become levels.
    pub compression: CompressionMethod,
    /// The reference of the correction factor.
    pub reference: CorrectionReference,
    /// Weight of recent slowdown against priority, 0..=1.
    pub fairness: f64,
    /// Gain, as a share of the computation of the jobs concerned, for which running flows move.
    pub move_gain_min: f64,
    /// Pins that one leaf may hold.
    pub max_pins_per_switch: usize,
    /// Upper bound of the correction factor.
    pub max_correction: f64,
    /// Cost of searches and climbs for a plan, in events of the fluid model; 0 is the phases of the
    /// paper alone, nothing compared.
    pub search_events: u64,
    /// How hosts share links; forecasts under `dcqcn` say how much longer iterations may take.
    pub transport: TransportModel,
    /// Exponent of the transport timer of connections, 1..=31, as `NCCL_IB_TIMEOUT`: it runs for
    /// 4.096 us * 2^`ib_timeout`.
    pub ib_timeout: u8,
    /// How often connections retry, 0..=7, as `NCCL_IB_RETRY_CNT`.
    pub ib_retry_count: u8,
    /// The longest that a flow may wait for service, seconds; if not given, a tenth of the time
    /// after which a connection gives up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_bound_seconds: Option<f64>,
    /// Switches by name, cables as `switch-switch`, that traffic must avoid. Of a running
    /// controller, drain and undrain alone change them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<String>,
    /// How far plans may slow the slowest job down, as `{ ecmp = 1.9 }` or `{ alone = 3.0 }`; `{}`
    /// for any.
    pub slowdown_limit: SlowdownLimit,
    /// Overrides by job id or tenant; the first that matches counts.
    #[serde(rename = "job")]
    pub jobs: Vec<OverrideDocument>,
    /// Jobs of the flows that no job has announced; the first rule that matches counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adopt: Vec<AdoptionDocument>,
}

/// An override in the Policy document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideDocument {
    /// Glob over job ids and tenants; `job:GLOB` or `tenant:GLOB` for one of the two.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Fixed level of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// Highest level of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_level: Option<u8>,
    /// Lowest level of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_level: Option<u8>,
    /// Factor on the priority, above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Not planned: ECMP and the lowest level.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exempt: bool,
    /// The least throughput that plans give to the job, as a share of that alone, 0..=1; more where
    /// it was measured to be slower than forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_throughput: Option<f64>,
}

/// An adoption rule in the Policy document; it has at least one of `src`, `dst`, `sport` and
/// `dport`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptionDocument {
    /// The job of such flows; it need not be announced.
    pub job: String,
    /// Tenant of the job, for overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Level of the job while it is unannounced; the lowest of jobs if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// Sending hosts, by name or glob; any if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub src: Vec<String>,
    /// Receiving hosts, by name or glob; any if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dst: Vec<String>,
    /// The sender's TCP or UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port; that of RoCEv2 is 4791.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
}

impl Default for PolicyDocument {
    fn default() -> Self {
        Self::from(&Policy::default())
    }
}

impl PolicyDocument {
    /// What `after` takes back of what this policy promises to jobs, a sentence each: overrides that
    /// it has no more, and floors that it lowers.
    pub fn promises_lost(&self, after: &Self) -> Vec<String> {
        let mut lost = Vec::new();
        for rule in &self.jobs {
            let pattern = &rule.pattern;
            let Some(kept) = after.jobs.iter().find(|other| other.pattern == *pattern) else {
                lost.push(format!("drops the override for `{pattern}`"));
                continue;
            };
            let [had, has] = [rule, kept].map(|rule| rule.min_throughput.unwrap_or(0.0));
            if has < had {
                lost.push(format!("lowers min_throughput of `{pattern}` from {had} to {has}"));
            }
        }
        let limits =
            |of: fn(&SlowdownLimit) -> Option<f64>| [self, after].map(|d| of(&d.slowdown_limit));
        for (name, [had, has]) in
            [("ecmp", limits(|limit| limit.ecmp)), ("alone", limits(|limit| limit.alone))]
        {
            let Some(had) = had else { continue };
            match has {
                None => lost.push(format!("removes slowdown_limit.{name}, which is {had}")),
                Some(has) if has > had => {
                    lost.push(format!("raises slowdown_limit.{name} from {had} to {has}"));
                }
                Some(_) => {}
            }
        }
        lost
    }
}

impl From<&Policy> for PolicyDocument {
    /// The document that states this policy.
    fn from(policy: &Policy) -> Self {
        Self {
            levels: (policy.levels != MAX_LEVELS).then_some(policy.levels),
            reserved_levels: policy.reserved_levels.iter().copied().collect(),
            paths: policy.paths,
            compression: policy.compression,
            reference: policy.reference,
            fairness: policy.fairness,
            move_gain_min: policy.move_gain_min,
            max_pins_per_switch: policy.max_pins_per_switch,
            max_correction: policy.max_correction,
            search_events: policy.search_events,
            transport: policy.transport,
            ib_timeout: policy.connection.ib_timeout,
            ib_retry_count: policy.connection.ib_retry_count,
            service_bound_seconds: policy.service_bound_seconds,
            drained: policy.drained.clone(),
            slowdown_limit: policy.slowdown_limit,
            jobs: policy.overrides.iter().map(OverrideDocument::from).collect(),
            adopt: policy.adopt.iter().map(AdoptionDocument::from).collect(),
        }
    }
}

impl From<&JobOverride> for OverrideDocument {
    fn from(rule: &JobOverride) -> Self {
        Self {
            pattern: rule.pattern.clone(),
            level: None,
            max_level: rule.max_level,
            min_level: rule.min_level,
            weight: Some(rule.weight),
            exempt: rule.exempt,
            min_throughput: rule.min_throughput,
        }
    }
}

impl From<&AdoptionRule> for AdoptionDocument {
    fn from(rule: &AdoptionRule) -> Self {
        Self {
            job: rule.job.to_string(),
            tenant: rule.tenant.clone(),
            level: rule.level,
            src: rule.src.clone(),
            dst: rule.dst.clone(),
            sport: rule.sport,
            dport: rule.dport,
        }
    }
}

impl PolicyDocument {
    /// Levels where the document states none: so many as `fabric` says, or 8.
    pub fn default_levels(fabric: &Fabric) -> u8 {
        fabric.job_levels().unwrap_or(MAX_LEVELS)
    }

    /// The document, with so many levels if it states none.
    #[must_use]
    pub fn with_default_levels(self, levels: u8) -> Self {
        let stated = self.levels.or((levels != MAX_LEVELS).then_some(levels));
        Self { levels: stated, ..self }
    }

    /// The policy that the document states; one that states no levels has 8.
    ///
    /// # Errors
    /// The first invalid field; `file` is the name of the document in the error.
    pub fn to_policy(&self, file: &str) -> Result<Policy, DocumentFieldError> {
        let fields = PolicyFields { file, policy: self };
        fields.check_levels()?;
        fields.check_range("fairness", self.fairness, 0.0, 1.0)?;
        fields.check_range("move_gain_min", self.move_gain_min, 0.0, f64::MAX)?;
        fields.check_range("max_correction", self.max_correction, 1.0, f64::MAX)?;
        if self.search_events > MAX_SEARCH_EVENTS {
            let problem = format!("at most {MAX_SEARCH_EVENTS}, found {}", self.search_events);
            return Err(fields.field_error("search_events", problem));
        }
        fields.check_connection()?;
        fields.check_slowdown_limit()?;
        let overrides =
            self.jobs.iter().enumerate().map(|(index, rule)| fields.resolve_override(index, rule));
        if self.adopt.len() > MAX_RULES {
            let problem = format!("{} rules, and there may be {MAX_RULES}", self.adopt.len());
            return Err(fields.field_error("adopt", problem));
        }
        let adopt =
            self.adopt.iter().enumerate().map(|(index, rule)| fields.resolve_adoption(index, rule));
        Ok(Policy {
            levels: self.levels.unwrap_or(MAX_LEVELS),
            reserved_levels: self.reserved_levels.iter().copied().collect(),
            paths: self.paths,
            compression: self.compression,
            reference: self.reference,
            fairness: self.fairness,
            move_gain_min: self.move_gain_min,
            max_pins_per_switch: self.max_pins_per_switch,
            max_correction: self.max_correction,
            search_events: self.search_events,
            interrupt: Interrupt::default(),
            transport: self.transport,
            connection: ConnectionTimeout {
                ib_timeout: self.ib_timeout,
                ib_retry_count: self.ib_retry_count,
            },
            service_bound_seconds: self.service_bound_seconds,
            drained: self.drained.clone(),
            slowdown_limit: self.slowdown_limit,
            overrides: overrides.collect::<Result<_, _>>()?,
            adopt: adopt.collect::<Result<_, _>>()?,
        })
    }
}

/// The document under validation, and its name in errors.
struct PolicyFields<'a> {
    file: &'a str,
    policy: &'a PolicyDocument,
}

impl PolicyFields<'_> {
    fn field_error(&self, field: &str, problem: String) -> DocumentFieldError {
        DocumentFieldError { file: self.file.to_owned(), field: field.to_owned(), problem }
    }

    /// `value` is a number from `low` to `high`.
    fn check_range(
        &self,
        field: &str,
        value: f64,
        low: f64,
        high: f64,
    ) -> Result<(), DocumentFieldError> {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        let range = if high == f64::MAX {
            format!("{low} or more")
        } else {
            format!("a number from {low} to {high}")
        };
        Err(self.field_error(field, format!("{value} is not {range}")))
    }

    fn check_connection(&self) -> Result<(), DocumentFieldError> {
        let PolicyDocument { ib_timeout, ib_retry_count, service_bound_seconds, .. } = self.policy;
        self.check_range("ib_timeout", f64::from(*ib_timeout), 1.0, 31.0)?;
        self.check_range("ib_retry_count", f64::from(*ib_retry_count), 0.0, 7.0)?;
        let bound = service_bound_seconds.unwrap_or(1.0);
        self.check_range("service_bound_seconds", bound, 1e-6, f64::MAX)
    }

    fn check_slowdown_limit(&self) -> Result<(), DocumentFieldError> {
        let SlowdownLimit { ecmp, alone } = self.policy.slowdown_limit;
        // A plan as good as ECMP for the slowest job is often possible, a tenth of that never.
        self.check_range("slowdown_limit.ecmp", ecmp.unwrap_or(1.0), 0.1, f64::MAX)?;
        self.check_range("slowdown_limit.alone", alone.unwrap_or(1.0), 1.0, f64::MAX)
    }

    fn check_levels(&self) -> Result<(), DocumentFieldError> {
        let PolicyDocument { levels, reserved_levels, .. } = self.policy;
        let levels = levels.unwrap_or(MAX_LEVELS);
        if !(1..=MAX_LEVELS).contains(&levels) {
            let problem = format!("{levels} is not a number of levels from 1 to {MAX_LEVELS}");
            return Err(self.field_error("levels", problem));
        }
        for (index, level) in reserved_levels.iter().enumerate() {
            self.check_level(&format!("reserved_levels[{index}]"), *level)?;
        }
        if (0..job_level_count(levels)).all(|level| reserved_levels.contains(&level)) {
            let problem = "every level of jobs is reserved; they need at least one".to_owned();
            return Err(self.field_error("reserved_levels", problem));
        }
        Ok(())
    }

    fn check_level(&self, field: &str, level: u8) -> Result<(), DocumentFieldError> {
        let levels = self.policy.levels.unwrap_or(MAX_LEVELS);
        if level < levels {
            return Ok(());
        }
        Err(self.field_error(field, format!("{level} is not a level from 0 to {}", levels - 1)))
    }

    fn resolve_override(
        &self,
        index: usize,
        rule: &OverrideDocument,
    ) -> Result<JobOverride, DocumentFieldError> {
        let field = |name: &str| format!("job[{index}].{name}");
        if rule.pattern.is_empty() {
            return Err(
                self.field_error(&field("match"), "empty; it would match no job".to_owned())
            );
        }
        let bounds =
            [("level", rule.level), ("min_level", rule.min_level), ("max_level", rule.max_level)];
        for (name, level) in bounds {
            self.check_job_level(&field(name), level)?;
        }
        self.check_bounds_agree(&field("level"), rule)?;
        let weight = rule.weight.unwrap_or(1.0);
        if !(weight.is_finite() && weight > 0.0) {
            return Err(self.field_error(&field("weight"), format!("{weight} is not above 0")));
        }
        let min_throughput = rule.min_throughput;
        self.check_range(&field("min_throughput"), min_throughput.unwrap_or(0.0), 0.0, 1.0)?;
        Ok(JobOverride {
            pattern: rule.pattern.clone(),
            min_level: rule.level.or(rule.min_level),
            max_level: rule.level.or(rule.max_level),
            weight,
            exempt: rule.exempt,
            min_throughput,
        })
    }

    fn resolve_adoption(
        &self,
        index: usize,
        rule: &AdoptionDocument,
    ) -> Result<AdoptionRule, DocumentFieldError> {
        let error = |field: &str, problem: &str| {
            let problem = problem.to_owned();
            Err(self.field_error(&format!("adopt[{index}].{field}"), problem))
        };
        if rule.job.is_empty() {
            return error("job", "empty; a job needs a name");
        }
        if rule.job.contains(['*', '?']) {
            return error("job", "`*` and `?` stand for other names; a job needs one");
        }
        let has_port = rule.sport.is_some() || rule.dport.is_some();
        if rule.src.is_empty() && rule.dst.is_empty() && !has_port {
            return error("job", "nothing to match; give src, dst, sport or dport");
        }
        self.check_job_level(&format!("adopt[{index}].level"), rule.level)?;
        let mut earlier = self.policy.adopt[..index].iter();
        if let Some(first) = earlier.find(|other| other.job == rule.job) {
            if first.tenant != rule.tenant {
                return error("tenant", "an earlier rule of this job says otherwise");
            }
            if first.level != rule.level {
                return error("level", "an earlier rule of this job says otherwise");
            }
        }
        Ok(AdoptionRule {
            job: JobId::from(rule.job.as_str()),
            tenant: rule.tenant.clone(),
            level: rule.level,
            src: rule.src.clone(),
            dst: rule.dst.clone(),
            sport: rule.sport,
            dport: rule.dport,
        })
    }

    fn check_job_level(&self, field: &str, level: Option<u8>) -> Result<(), DocumentFieldError> {
        let Some(level) = level else { return Ok(()) };
        self.check_level(field, level)?;
        if self.policy.reserved_levels.contains(&level) {
            return Err(self.field_error(field, format!("level {level} is reserved")));
        }
        Ok(())
    }

    /// `level` stands alone, and `min_level` is not above `max_level`.
    fn check_bounds_agree(
        &self,
        field: &str,
        rule: &OverrideDocument,
    ) -> Result<(), DocumentFieldError> {
        match (rule.level, rule.min_level, rule.max_level) {
            (Some(_), None, None) | (None, None, _) | (None, _, None) => Ok(()),
            (None, Some(low), Some(high)) if low <= high => Ok(()),
            (None, Some(low), Some(high)) => {
                let problem = format!("min_level {low} is above max_level {high}");
                Err(self.field_error(field, problem))
            }
            (Some(_), ..) => {
                let problem = "a fixed level leaves nothing for min_level and max_level";
                Err(self.field_error(field, problem.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_that_a_change_takes_back_are_named() {
        let rule = |pattern: &str, min_throughput| OverrideDocument {
            pattern: pattern.to_owned(),
            min_throughput,
            ..OverrideDocument::default()
        };
        let had = PolicyDocument {
            jobs: vec![rule("gpt*", Some(0.8)), rule("bert", None)],
            slowdown_limit: SlowdownLimit { ecmp: Some(1.9), alone: Some(3.0) },
            ..PolicyDocument::default()
        };
        assert!(had.promises_lost(&had).is_empty());
        let has = PolicyDocument {
            jobs: vec![rule("gpt*", Some(0.5)), rule("new", None)],
            slowdown_limit: SlowdownLimit { ecmp: Some(2.5), alone: None },
            ..PolicyDocument::default()
        };
        assert_eq!(
            had.promises_lost(&has),
            [
                "lowers min_throughput of `gpt*` from 0.8 to 0.5",
                "drops the override for `bert`",
                "raises slowdown_limit.ecmp from 1.9 to 2.5",
                "removes slowdown_limit.alone, which is 3",
            ]
        );
        assert!(PolicyDocument::default().promises_lost(&had).is_empty());
    }
}
