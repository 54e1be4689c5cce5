//! Rules by which flows that no job has announced are a job's.
//!
//! Of such a job nothing is known but what its flows match: no work, no volume, no paths. So it is
//! planned as a job that sends nothing, ranks last, and has the level that the policy gives it, the
//! lowest if it gives none. The decision: a rule says whose flows are, and nothing else. Where its
//! name is that of a job that is announced, they are that job's and travel in its level.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, HostId, NicId, SwitchId};

use super::{JobOverride, Policy};
use crate::input::{Job, JobId, PlanInput};
use crate::name_matching::{self, DocumentFieldError};
use crate::plan::PlannedRule;

/// Rules that a policy may have.
pub const MAX_RULES: usize = 64;

/// Rows of one leaf that rules may take, half of what the smallest switches have for ternary keys.
const MAX_ROWS: usize = 256;

/// Which flows that no job has announced are a job's. The first rule that matches a flow counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionRule {
    /// The job that they are.
    pub job: JobId,
    /// Whose it is, for overrides.
    pub tenant: Option<String>,
    /// Its level while nobody announces it; the lowest of jobs if none is given.
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
    /// The job as it is planned while nobody announces it.
    fn unannounced_job(&self) -> Job {
        Job {
            id: self.job.clone(),
            tenant: self.tenant.clone(),
            model: None,
            gpus: BTreeMap::new(),
            // No number is above zero and nothing; without flows it gives no intensity.
            flop_per_iteration: f64::MIN_POSITIVE,
            compute_seconds: 0.0,
            overlap_from: 0.0,
            recent_slowdown: 0.0,
            flows: Vec::new(),
        }
    }

    /// Its flows as the switches of `fabric` tell them, `job` being its place in the plan. None
    /// where no host has a name that the rule asks for.
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
            let unknown =
                |(_, pattern): &(usize, &String)| hosts_matching(fabric, pattern).next().is_none();
            if let Some((at, pattern)) = patterns.iter().enumerate().find(unknown) {
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
        let full = rows_per_leaf(fabric, rules).into_iter();
        let Some((leaf, rows)) = { full }.find(|(_, rows)| *rows > MAX_ROWS) else {
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

    /// What is planned: `input` with the jobs of rules that nobody announces, and this policy with
    /// their levels.
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

    /// The override that counts for the job of a rule while nobody announces it.
    pub fn override_for_rule(&self, adoption: &AdoptionRule) -> Option<&JobOverride> {
        self.override_for(&adoption.unannounced_job())
    }

    /// The level of a job that nobody announces: what its rule says, within what overrides allow.
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
        let place = |id: &JobId| jobs.binary_search_by(|job| job.id.cmp(id)).ok();
        let planned = self.adopt.iter();
        planned
            .filter_map(|adoption| adoption.planned_rule(fabric, place(&adoption.job)?))
            .collect()
    }
}

/// The NICs of the hosts that `patterns` name, ascending, and none where there are no patterns.
/// `None` where there are, and no host has such a name: that is not to match all hosts.
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
        for nic in &rule.senders {
            *rows.entry(fabric.leaf_of(*nic)).or_default() += of_sender;
        }
        for leaf in leaves.iter().filter(|_| rule.senders.is_empty()) {
            *rows.entry(*leaf).or_default() += of_sender;
        }
    }
    rows
}
