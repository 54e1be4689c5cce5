//! Adoption rules: they attribute flows that no job has announced to a job.
//!
//! Only the match of its flows is known of such a job: no work, no volume, no paths. It is planned
//! as a job that sends nothing, ranks last, and has the level that the policy gives it, or the
//! lowest. The decision: a rule attributes flows, and nothing else. Where it names an announced
//! job, the flows belong to that job and travel in its level.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, HostId, NicId, SwitchId};

use super::{JobOverride, Policy};
use crate::input::{Job, JobId, MeasuredSlowdown, PlanInput};
use crate::name_matching::{self, DocumentFieldError};
use crate::plan::PlannedRule;

/// Rules that a policy may have.
pub const MAX_RULES: usize = 64;

/// Rows of one leaf that rules may take, half of what the smallest switches have for ternary keys.
const MAX_ROWS: usize = 256;

/// Attributes unannounced flows to a job. The first rule that matches a flow counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionRule {
    /// The job of the flows.
    pub job: JobId,
    /// Tenant of the job, for overrides.
    pub tenant: Option<String>,
    /// Level of the job while it is unannounced; the lowest of jobs if none is given.
    pub level: Option<u8>,
    /// Globs over the names of sending hosts; none: any host.
    pub src: Vec<String>,
    /// Globs over the names of receiving hosts; none: any host.
    pub dst: Vec<String>,
    /// The sender's TCP or UDP port.
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port.
    pub dport: Option<u16>,
}

impl AdoptionRule {
    /// The job as it is planned while it is unannounced.
    fn unannounced_job(&self) -> Job {
        Job {
            id: self.job.clone(),
            tenant: self.tenant.clone(),
            model: None,
            gpus: BTreeMap::new(),
            // Must be above zero; without flows it gives no intensity.
            flop_per_iteration: f64::MIN_POSITIVE,
            compute_seconds: 0.0,
            overlap_from: 0.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: Vec::new(),
        }
    }

    /// The rule in the ids of `fabric`; `job` is the position of its job in the plan. None if no
    /// host matches one of its lists.
    fn planned_rule(&self, fabric: &Fabric, job: usize) -> Option<PlannedRule> {
        Some(PlannedRule {
            job,
            senders: nics_of_hosts(fabric, &self.src)?,
            receivers: nics_of_hosts(fabric, &self.dst)?,
            sport: self.sport,
            dport: self.dport,
        })
    }

    /// Whether every name is that of a host; `index` is the rule's place in the policy.
    fn check_hosts(&self, fabric: &Fabric, index: usize) -> Result<(), DocumentFieldError> {
        for (field, patterns) in [("src", &self.src), ("dst", &self.dst)] {
            let mut patterns = patterns.iter().enumerate();
            if let Some((at, pattern)) =
                patterns.find(|(_, pattern)| hosts_matching(fabric, pattern).next().is_none())
            {
                let known = fabric.hosts().iter().map(|host| host.name.as_str());
                let hint = name_matching::suggestion(pattern, known);
                return Err(DocumentFieldError {
                    file: "policy".to_owned(),
                    field: format!("adopt[{index}].{field}[{at}]"),
                    problem: format!("the fabric has no host `{pattern}`{hint}"),
                });
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Whether everything that the policy names is in `fabric`, and its rules of adoption fit the
    /// tables of the leaves.
    ///
    /// # Errors
    /// The first name that is not there, or a leaf with too many rows.
    pub fn check_on(&self, fabric: &Fabric) -> Result<(), DocumentFieldError> {
        self.apply_drains(fabric)?;
        for (index, adoption) in self.adopt.iter().enumerate() {
            adoption.check_hosts(fabric, index)?;
        }
        let rules = self.adopt.iter().filter_map(|rule| rule.planned_rule(fabric, 0));
        let mut rows_of_leaves = rows_per_leaf(fabric, rules).into_iter();
        let Some((leaf, rows)) = rows_of_leaves.find(|(_, rows)| *rows > MAX_ROWS) else {
            return Ok(());
        };
        let leaf = &fabric.switch(leaf).name;
        Err(DocumentFieldError {
            file: "policy".to_owned(),
            field: "adopt".to_owned(),
            problem: format!(
                "the rules take {rows} rows at {leaf}, one for each pair of NICs, and may take \
                 {MAX_ROWS}; leave out src or dst"
            ),
        })
    }

    /// The input of a plan: `input` with the unannounced jobs of rules, and this policy with their
    /// levels.
    #[must_use]
    pub fn with_adopted_jobs(&self, mut input: PlanInput) -> (PlanInput, Self) {
        let mut known: BTreeSet<JobId> = input.jobs.iter().map(|job| job.id.clone()).collect();
        let new: Vec<&AdoptionRule> =
            self.adopt.iter().filter(|rule| known.insert(rule.job.clone())).collect();
        let levels = new.iter().map(|rule| {
            let level = self.level_for_rule(rule);
            JobOverride::fixing_level(&format!("job:{}", rule.job), Some(level))
        });
        let overrides = levels.chain(self.overrides.iter().cloned()).collect();
        input.jobs.extend(new.iter().map(|rule| rule.unannounced_job()));
        let policy = Self { overrides, ..self.clone() };
        (input, policy)
    }

    /// The override that counts for the job of a rule while it is unannounced.
    pub fn override_for_rule(&self, adoption: &AdoptionRule) -> Option<&JobOverride> {
        self.override_for(&adoption.unannounced_job())
    }

    /// The level of an unannounced job: that of its rule, within the bounds of overrides.
    fn level_for_rule(&self, adoption: &AdoptionRule) -> u8 {
        let wanted = adoption.level.unwrap_or(0);
        match self.override_for_rule(adoption) {
            Some(rule) if rule.exempt => 0,
            Some(rule) => {
                let highest = rule.max_level.unwrap_or(u8::MAX);
                wanted.min(highest).max(rule.min_level.unwrap_or(0))
            }
            None => wanted,
        }
    }

    /// The rules of those jobs that are planned, by their place in the order of their ids.
    pub(crate) fn planned_rules(&self, fabric: &Fabric, jobs: &[&Job]) -> Vec<PlannedRule> {
        self.adopt
            .iter()
            .filter_map(|rule| {
                let position = jobs.binary_search_by(|job| job.id.cmp(&rule.job)).ok()?;
                rule.planned_rule(fabric, position)
            })
            .collect()
    }
}

/// The NICs of the hosts that match `patterns`, ascending; empty without patterns, which means any.
/// `None` if there are patterns and no host matches: an empty list would match all hosts.
fn nics_of_hosts(fabric: &Fabric, patterns: &[String]) -> Option<Vec<NicId>> {
    let named: BTreeSet<HostId> =
        patterns.iter().flat_map(|pattern| hosts_matching(fabric, pattern)).collect();
    let nics: BTreeSet<NicId> =
        named.iter().flat_map(|host| &fabric.host(*host).nics).copied().collect();
    (patterns.is_empty() || !nics.is_empty()).then(|| nics.into_iter().collect())
}

fn hosts_matching(fabric: &Fabric, pattern: &str) -> impl Iterator<Item = HostId> {
    let hosts = fabric.hosts().iter().enumerate();
    hosts
        .filter(move |(_, host)| name_matching::glob_matches(pattern, &host.name))
        .map(|(index, _)| HostId::from(index))
}

/// Rows that `rules` take at each leaf.
fn rows_per_leaf(
    fabric: &Fabric,
    rules: impl Iterator<Item = PlannedRule>,
) -> BTreeMap<SwitchId, usize> {
    let all = fabric.nic_ids();
    let leaves: BTreeSet<SwitchId> = all.map(|nic| fabric.leaf_of(nic)).collect();
    let mut rows: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for rule in rules {
        let of_sender = rule.receivers.len().max(1);
        for port in rule.senders.iter().flat_map(|nic| fabric.ports_of(*nic)) {
            *rows.entry(fabric.leaf_of(port)).or_default() += of_sender;
        }
        for leaf in leaves.iter().filter(|_| rule.senders.is_empty()) {
            *rows.entry(*leaf).or_default() += of_sender;
        }
    }
    rows
}
