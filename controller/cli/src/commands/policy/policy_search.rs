//! The search of `crux policy suggest`: one field after the other, as long as it helps.
//!
//! Pure: the caller says what a policy is forecast to bring. The decision: coordinate ascent over a
//! few values of each field, since a preview plans the whole fabric and an operator must be able to
//! follow what was tried. A proposal is only made for a gain that is more than the noise of the
//! forecast.

use std::collections::BTreeMap;

use command_io::CommandError;
use planner::{Job, JobId, MeasuredSlowdown, OverrideDocument, PolicyDocument};

/// Passes over all fields.
const PASSES: usize = 2;
/// Gain in GPU utilisation that counts, as a share; less is noise of the forecast.
const UTILIZATION_GAIN: f64 = 1e-3;
/// Gain in the slowdown of the slowest job that counts.
const SLOWDOWN_GAIN: f64 = 1e-2;
/// How much slower a job must be than alone to get a floor.
const FLOOR_FROM: f64 = 1.05;
/// Floors that are tried, as shares of the throughput alone.
const FLOORS: [f64; 2] = [0.8, 0.9];
/// Values of fairness that are tried.
const FAIRNESS: [f64; 4] = [0.0, 0.2, 0.4, 0.6];
/// Factors on the budget of the planner's search that are tried.
const SEARCH_FACTORS: [u64; 2] = [2, 4];

/// What a proposal is to improve first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SuggestionGoal {
    /// The share of the jobs' GPU time in which they compute
    #[default]
    Utilization,
    /// The job that is slowed down most
    Slowest,
}

/// What a policy is forecast to bring.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PolicyScore {
    pub(super) gpu_utilization: f64,
    /// Iteration time over that alone, by job; infinite for one that completes none.
    pub(super) slowdowns: BTreeMap<String, f64>,
}

/// A policy that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TriedPolicy {
    /// What it changes of the best one before it.
    pub(super) change: String,
    pub(super) policy: PolicyDocument,
    pub(super) score: PolicyScore,
    /// Whether it was the best one then.
    pub(super) is_better: bool,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub(super) struct PolicySearch {
    /// The policy in force.
    pub(super) start: PolicyScore,
    pub(super) tried: Vec<TriedPolicy>,
}

impl PolicyScore {
    /// The job that is slowed down most, the first by name among equals.
    pub(super) fn slowest(&self) -> Option<(&str, f64)> {
        let slowdowns = self.slowdowns.iter().map(|(job, slowdown)| (job.as_str(), *slowdown));
        slowdowns.reduce(|worst, job| if job.1 > worst.1 { job } else { worst })
    }

    fn worst_slowdown(&self) -> f64 {
        self.slowest().map_or(1.0, |(_, slowdown)| slowdown)
    }
}

impl SuggestionGoal {
    /// Whether a score is better than another by more than noise; what is not the goal decides
    /// among those that reach it equally.
    fn prefers(self, one: &PolicyScore, other: &PolicyScore) -> bool {
        let utilization = one.gpu_utilization - other.gpu_utilization;
        let slowdown = other.worst_slowdown() - one.worst_slowdown();
        let by_utilization = gain(utilization, UTILIZATION_GAIN);
        let by_slowdown = gain(slowdown, SLOWDOWN_GAIN);
        match self {
            Self::Utilization => by_utilization.then(by_slowdown).is_gt(),
            Self::Slowest => by_slowdown.then(by_utilization).is_gt(),
        }
    }
}

/// Whether a difference is a gain, a loss, or noise. Of two infinite slowdowns none is better.
fn gain(difference: f64, least: f64) -> std::cmp::Ordering {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match difference {
        gain if gain > least => Greater,
        loss if loss < -least => Less,
        _ => Equal,
    }
}

impl PolicySearch {
    /// The best policy, if one is better than that in force.
    pub(super) fn best(&self) -> Option<&TriedPolicy> {
        self.tried.iter().rev().find(|tried| tried.is_better)
    }
}

/// Searches from the policy in force, with at most `previews` evaluations besides that of itself.
///
/// # Errors
/// The policy in force cannot be evaluated. A candidate that cannot be is left out.
pub(super) fn search_policies(
    start: &PolicyDocument,
    tenants: &BTreeMap<String, Option<String>>,
    goal: SuggestionGoal,
    previews: usize,
    mut evaluate: impl FnMut(&PolicyDocument) -> Result<PolicyScore, CommandError>,
) -> Result<PolicySearch, CommandError> {
    let first = evaluate(start)?;
    let mut search = PolicySearch { start: first.clone(), tried: Vec::new() };
    let mut best = (start.clone(), first);
    for _ in 0..PASSES {
        let before = search.tried.iter().filter(|tried| tried.is_better).count();
        for dimension in DIMENSIONS {
            for (change, policy) in dimension(&best.0, &best.1, tenants) {
                let is_known = |tried: &TriedPolicy| tried.policy == policy;
                if search.tried.len() >= previews || search.tried.iter().any(is_known) {
                    continue;
                }
                let Ok(score) = evaluate(&policy) else { continue };
                let is_better = goal.prefers(&score, &best.1);
                if is_better {
                    best = (policy.clone(), score.clone());
                }
                search.tried.push(TriedPolicy { change, policy, score, is_better });
            }
        }
        if search.tried.iter().filter(|tried| tried.is_better).count() == before {
            break;
        }
    }
    Ok(search)
}

/// Policies that differ from one in a single field, with what changes.
type PolicyDimension =
    fn(&PolicyDocument, &PolicyScore, &BTreeMap<String, Option<String>>) -> Vec<PolicyCandidate>;
type PolicyCandidate = (String, PolicyDocument);

const DIMENSIONS: [PolicyDimension; 4] = [fairness_values, level_counts, search_budgets, floors];

fn fairness_values(
    policy: &PolicyDocument,
    _: &PolicyScore,
    _: &BTreeMap<String, Option<String>>,
) -> Vec<PolicyCandidate> {
    let others = FAIRNESS.into_iter().filter(|value| value.total_cmp(&policy.fairness).is_ne());
    let change =
        |fairness| (format!("fairness={fairness}"), PolicyDocument { fairness, ..policy.clone() });
    others.map(change).collect()
}

/// Fewer levels than in force; a switch may not have more.
fn level_counts(
    policy: &PolicyDocument,
    _: &PolicyScore,
    _: &BTreeMap<String, Option<String>>,
) -> Vec<PolicyCandidate> {
    let is_possible = |levels: &u8| {
        policy.levels.is_none_or(|present| *levels < present)
            && policy.reserved_levels.iter().all(|level| level < levels)
    };
    let fewer = [4, 2].into_iter().filter(is_possible);
    let change = |levels| {
        let changed = PolicyDocument { levels: Some(levels), ..policy.clone() };
        (format!("levels={levels}"), changed)
    };
    fewer.map(change).collect()
}

fn search_budgets(
    policy: &PolicyDocument,
    _: &PolicyScore,
    _: &BTreeMap<String, Option<String>>,
) -> Vec<PolicyCandidate> {
    let larger = SEARCH_FACTORS.into_iter().filter_map(|factor| {
        let search_events =
            policy.search_events.checked_mul(factor).filter(|events| *events > 0)?;
        let changed = PolicyDocument { search_events, ..policy.clone() };
        Some((format!("search_events={search_events}"), changed))
    });
    larger.collect()
}

/// A floor for the slowest job. The first rule that matches a job counts, so the new rule is a copy
/// of the one that does today.
fn floors(
    policy: &PolicyDocument,
    score: &PolicyScore,
    tenants: &BTreeMap<String, Option<String>>,
) -> Vec<PolicyCandidate> {
    let Some((job, _)) = score.slowest().filter(|(_, slowdown)| *slowdown > FLOOR_FROM) else {
        return Vec::new();
    };
    let pattern = format!("job:{job}");
    let tenant = tenants.get(job).cloned().flatten();
    let rules = &policy.jobs;
    let matching = rules.iter().position(|rule| is_matched(rule, job, tenant.as_deref()));
    let base = matching.map_or_else(OverrideDocument::default, |index| rules[index].clone());
    let has_own = base.pattern == pattern;
    let candidates = FLOORS.into_iter().map(|floor| {
        let rule = OverrideDocument {
            pattern: pattern.clone(),
            min_throughput: Some(floor),
            ..base.clone()
        };
        let mut changed = policy.clone();
        match matching.filter(|_| has_own) {
            Some(index) => changed.jobs[index] = rule,
            None => changed.jobs.insert(0, rule),
        }
        (format!("min_throughput={floor} for {job}"), changed)
    });
    candidates.collect()
}

/// Whether a rule is for a job, as the planner sees it.
fn is_matched(rule: &OverrideDocument, job: &str, tenant: Option<&str>) -> bool {
    let alone = PolicyDocument { jobs: vec![rule.clone()], ..PolicyDocument::default() };
    let job = Job {
        id: JobId::from(job),
        tenant: tenant.map(str::to_owned),
        model: None,
        flop_per_iteration: 1.0,
        compute_seconds: 0.0,
        overlap_from: 1.0,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        gpus: BTreeMap::new(),
        flows: Vec::new(),
    };
    alone.to_policy("policy").is_ok_and(|policy| policy.override_for(&job).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(gpu_utilization: f64, slowdowns: [f64; 2]) -> PolicyScore {
        let names = ["large", "small"].map(str::to_owned);
        PolicyScore { gpu_utilization, slowdowns: names.into_iter().zip(slowdowns).collect() }
    }

    fn search(
        goal: SuggestionGoal,
        evaluate: impl Fn(&PolicyDocument) -> PolicyScore,
    ) -> PolicySearch {
        let start = PolicyDocument::default();
        search_policies(&start, &BTreeMap::new(), goal, 40, |policy| Ok(evaluate(policy))).unwrap()
    }

    /// Fairness helps the slow job and costs utilisation; a floor does the same for less.
    fn model(policy: &PolicyDocument) -> PolicyScore {
        let floor = policy.jobs.first().and_then(|rule| rule.min_throughput).unwrap_or(0.5);
        let slow = (1.0 / floor).min(2.0 - policy.fairness);
        score(0.9 - 0.1 * policy.fairness - 0.01 * (floor - 0.5), [1.0, slow])
    }

    #[test]
    fn the_goal_decides_what_is_proposed() {
        let found = search(SuggestionGoal::Slowest, model);
        let best = found.best().unwrap();
        assert_eq!(best.policy.jobs[0].pattern, "job:small");
        assert_eq!(best.policy.jobs[0].min_throughput, Some(0.9));
        assert!(best.score.slowest().unwrap().1 < 1.2);

        let found = search(SuggestionGoal::Utilization, model);
        assert!(found.best().is_none(), "{:?}", found.best());
        assert!(!found.tried.is_empty());
    }

    #[test]
    fn noise_is_no_gain_and_no_policy_is_tried_twice() {
        let found = search(SuggestionGoal::Utilization, |policy| {
            score(0.9 + 1e-4 * policy.fairness, [1.0, 1.0])
        });
        assert!(found.best().is_none());
        for (index, tried) in found.tried.iter().enumerate() {
            assert!(found.tried[..index].iter().all(|other| other.policy != tried.policy));
        }
    }

    #[test]
    fn a_floor_keeps_what_another_rule_says_of_the_job() {
        let rule = OverrideDocument {
            pattern: "tenant:research".to_owned(),
            max_level: Some(5),
            ..OverrideDocument::default()
        };
        let policy = PolicyDocument { jobs: vec![rule], ..PolicyDocument::default() };
        let tenants = BTreeMap::from([("small".to_owned(), Some("research".to_owned()))]);
        let found = floors(&policy, &score(0.9, [1.0, 1.5]), &tenants);
        let first = &found[0].1.jobs[0];
        assert_eq!((first.pattern.as_str(), first.max_level), ("job:small", Some(5)));
        assert_eq!(found[0].1.jobs.len(), 2);
        let again = floors(&found[0].1, &score(0.9, [1.0, 1.5]), &tenants);
        assert_eq!(again[1].1.jobs.len(), 2, "its own rule is changed");
    }

    #[test]
    fn the_number_of_previews_is_kept() {
        let start = PolicyDocument::default();
        let mut count = 0;
        let goal = SuggestionGoal::Utilization;
        let found = search_policies(&start, &BTreeMap::new(), goal, 3, |policy| {
            count += 1;
            Ok(model(policy))
        });
        assert_eq!((found.unwrap().tried.len(), count), (3, 4));
    }
}
