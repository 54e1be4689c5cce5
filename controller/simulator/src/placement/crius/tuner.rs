//! The tuner (Crius): once a Cell is chosen, which of the plans inside it to run.
//!
//! Plans differ in balance and in what they send. One that is worse in both than another need not
//! be tried; what remains, at most [`MOST`] plans, is timed with the plan that was estimated, and
//! the best is run. [`exhaustive`] times all instead, which says what the pruning costs.

use super::estimate::{Plan, Setting, Way};
use super::partition::Partition;

/// Plans that are tried at most beside the one that was estimated.
pub const MOST: usize = 32;

/// The plan that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Seconds of an iteration.
    pub seconds: f64,
    /// The plan.
    pub plan: Plan,
    /// Plans that were timed for it.
    pub tried: usize,
}

/// The best of the plans that no other plan beats in both balance and traffic; none if none fits.
pub fn tune(setting: &Setting<'_>) -> Option<Tuned> {
    let mut front = Front::default();
    for partition in setting.partitions() {
        every_plan(setting, &partition, &mut |plan| {
            front.admit(Candidate {
                imbalance: plan.partition.imbalance,
                traffic: setting.traffic(plan),
                plan: plan.clone(),
            });
        });
    }
    let front = front.plans.into_iter().map(|candidate| candidate.plan);
    let mut plans: Vec<Plan> = front.collect();
    let estimated = setting.estimate().map(|(_, plan)| plan);
    plans.extend(estimated.filter(|plan| !plans.contains(plan)));
    let mut best = Best::default();
    for plan in &plans {
        best.try_plan(setting, plan);
    }
    best.tuned()
}

/// The best of all plans; none if none fits.
pub fn exhaustive(setting: &Setting<'_>) -> Option<Tuned> {
    let mut best = Best::default();
    for partition in setting.partitions() {
        every_plan(setting, &partition, &mut |plan| {
            best.try_plan(setting, plan);
        });
    }
    best.tuned()
}

/// Shows every plan with this partition.
fn every_plan(setting: &Setting<'_>, partition: &Partition, show: &mut impl FnMut(&Plan)) {
    let stages = 0..partition.stages.len();
    let ways: Vec<Vec<Way>> = stages.map(|stage| setting.ways(partition, stage)).collect();
    if ways.iter().any(Vec::is_empty) {
        return;
    }
    let mut turns = vec![0; ways.len()];
    let mut plan = Plan {
        partition: partition.clone(),
        ways: ways.iter().map(|ways| ways[0]).collect(),
    };
    loop {
        show(&plan);
        // Counts up, the last stage first.
        let Some(stage) = (0..turns.len())
            .rev()
            .find(|stage| turns[*stage] + 1 < ways[*stage].len())
        else {
            return;
        };
        turns[stage] += 1;
        turns[stage + 1..].fill(0);
        for stage in stage..turns.len() {
            plan.ways[stage] = ways[stage][turns[stage]];
        }
    }
}

/// The fastest plan of those timed.
#[derive(Default)]
struct Best {
    found: Option<(f64, Plan)>,
    tried: usize,
}

impl Best {
    fn try_plan(&mut self, setting: &Setting<'_>, plan: &Plan) {
        self.tried += 1;
        let seconds = setting.seconds(plan);
        if self.found.as_ref().is_none_or(|(best, _)| seconds < *best) {
            self.found = Some((seconds, plan.clone()));
        }
    }

    fn tuned(self) -> Option<Tuned> {
        let tried = self.tried;
        self.found.map(|(seconds, plan)| Tuned {
            seconds,
            plan,
            tried,
        })
    }
}

/// A plan by the two measures that prune.
struct Candidate {
    imbalance: f64,
    traffic: f64,
    plan: Plan,
}

impl Candidate {
    /// Whether it is at least as good in both.
    fn dominates(&self, other: &Self) -> bool {
        self.imbalance <= other.imbalance && self.traffic <= other.traffic
    }

    /// Layers that lie in another stage there, and stages that divide otherwise.
    fn distance(&self, other: &Self) -> usize {
        let place = |plan: &Plan| -> Vec<usize> {
            let stages = plan.partition.stages.iter().enumerate();
            stages
                .flat_map(|(stage, layers)| layers.clone().map(move |_| stage))
                .collect()
        };
        let differ =
            |a: Vec<usize>, b: Vec<usize>| a.iter().zip(&b).filter(|(a, b)| a != b).count();
        let ways = self.plan.ways.iter().zip(&other.plan.ways);
        differ(place(&self.plan), place(&other.plan)) + ways.filter(|(a, b)| a != b).count()
    }
}

/// Plans of which none dominates another.
#[derive(Default)]
struct Front {
    plans: Vec<Candidate>,
}

impl Front {
    fn admit(&mut self, candidate: Candidate) {
        if self.plans.iter().any(|plan| plan.dominates(&candidate)) {
            return;
        }
        self.plans.retain(|plan| !candidate.dominates(plan));
        self.plans.push(candidate);
        if self.plans.len() > MOST {
            self.drop_one();
        }
    }

    /// Of the two plans that are most alike, drops the one that is less balanced.
    fn drop_one(&mut self) {
        let pairs = (0..self.plans.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let alike = pairs.min_by_key(|(a, b)| self.plans[*a].distance(&self.plans[*b]));
        if let Some((a, b)) = alike {
            let worse = self.plans[a].imbalance >= self.plans[b].imbalance;
            self.plans.remove(if worse { a } else { b });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::crius::Cell;
    use crate::placement::crius::gpus::Gpu;
    use crate::placement::crius::layers::LayeredModel;

    fn check(
        name: &str,
        kind: &str,
        hosts: u32,
        gpus_per_host: u32,
        stages: u32,
    ) -> (Tuned, Tuned) {
        let model = LayeredModel::named(name).unwrap();
        let setting = Setting {
            model: &model,
            gpu: Gpu::named(kind).unwrap(),
            cell: Cell {
                hosts,
                gpus_per_host,
                stages,
            },
            efficiency: 0.5,
        };
        let (estimate, _) = setting.estimate().unwrap();
        let (tuned, all) = (tune(&setting).unwrap(), exhaustive(&setting).unwrap());
        assert!(all.seconds <= tuned.seconds && all.seconds <= estimate);
        assert!(tuned.seconds <= estimate && tuned.tried <= MOST + 1);
        (tuned, all)
    }

    #[test]
    fn pruning_tries_few_plans_and_loses_little() {
        let (tuned, all) = check("wide-resnet-1B/256", "A40", 4, 2, 4);
        assert!(tuned.tried * 4 < all.tried, "{} {}", tuned.tried, all.tried);
        assert!(
            tuned.seconds <= 1.25 * all.seconds,
            "{} {}",
            tuned.seconds,
            all.seconds
        );
    }

    #[test]
    fn a_single_stage_loses_nothing() {
        let (tuned, all) = check("moe-690M/256", "V100", 1, 4, 1);
        assert_eq!(tuned.seconds, all.seconds);
    }
}
