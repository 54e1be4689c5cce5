//! The tuner (Crius): chooses the plan to run in a Cell.
//!
//! Plans differ in balance and in traffic. A plan that is worse in both than another is not tried.
//! At most [`MOST`] plans remain; they are timed with the estimated plan, and the best one is run.
//! [`tune_exhaustively`] times all plans, which shows the cost of the pruning.

use super::estimate::{CellEstimator, ParallelismPlan, StageParallelism};
use super::partition::StagePartition;

/// Plans that are tried at most beside the one that was estimated.
pub const MOST: usize = 32;

/// The plan that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedPlan {
    /// Seconds of an iteration.
    pub seconds: f64,
    /// The plan that was chosen.
    pub plan: ParallelismPlan,
    /// Plans that were timed for it.
    pub tried: usize,
}

/// The best of the plans that no other plan beats in both balance and traffic; none if none fits.
pub fn tune_cell(setting: &CellEstimator<'_>) -> Option<TunedPlan> {
    let mut front = ParetoFront::default();
    for partition in setting.model_partitions() {
        visit_plans(setting, &partition, &mut |plan| {
            front.admit_plan(PlanCandidate {
                imbalance: plan.partition.imbalance,
                traffic: setting.plan_traffic(plan),
                plan: plan.clone(),
            });
        });
    }
    let front = front.plans.into_iter().map(|candidate| candidate.plan);
    let mut plans: Vec<ParallelismPlan> = front.collect();
    let estimated = setting.estimate_best_plan().map(|(_, plan)| plan);
    plans.extend(estimated.filter(|plan| !plans.contains(plan)));
    let mut best = FastestPlan::default();
    for plan in &plans {
        best.try_plan(setting, plan);
    }
    best.into_tuned()
}

/// The best of all plans; none if none fits.
pub fn tune_exhaustively(setting: &CellEstimator<'_>) -> Option<TunedPlan> {
    let mut best = FastestPlan::default();
    for partition in setting.model_partitions() {
        visit_plans(setting, &partition, &mut |plan| {
            best.try_plan(setting, plan);
        });
    }
    best.into_tuned()
}

/// Shows every plan with this partition.
fn visit_plans(
    setting: &CellEstimator<'_>,
    partition: &StagePartition,
    show: &mut impl FnMut(&ParallelismPlan),
) {
    let stages = 0..partition.stages.len();
    let ways: Vec<Vec<StageParallelism>> =
        stages.map(|stage| setting.stage_options(partition, stage)).collect();
    if ways.iter().any(Vec::is_empty) {
        return;
    }
    let mut turns = vec![0; ways.len()];
    let mut plan = ParallelismPlan {
        partition: partition.clone(),
        parallelism: ways.iter().map(|ways| ways[0]).collect(),
    };
    loop {
        show(&plan);
        // Counts up, the last stage first.
        let Some(stage) =
            (0..turns.len()).rev().find(|stage| turns[*stage] + 1 < ways[*stage].len())
        else {
            return;
        };
        turns[stage] += 1;
        turns[stage + 1..].fill(0);
        for stage in stage..turns.len() {
            plan.parallelism[stage] = ways[stage][turns[stage]];
        }
    }
}

/// The fastest plan of those timed.
#[derive(Default)]
struct FastestPlan {
    found: Option<(f64, ParallelismPlan)>,
    tried: usize,
}

impl FastestPlan {
    fn try_plan(&mut self, setting: &CellEstimator<'_>, plan: &ParallelismPlan) {
        self.tried += 1;
        let seconds = setting.plan_seconds(plan);
        if self.found.as_ref().is_none_or(|(best, _)| seconds < *best) {
            self.found = Some((seconds, plan.clone()));
        }
    }

    fn into_tuned(self) -> Option<TunedPlan> {
        let tried = self.tried;
        self.found.map(|(seconds, plan)| TunedPlan { seconds, plan, tried })
    }
}

/// A plan by the two measures that prune.
struct PlanCandidate {
    imbalance: f64,
    traffic: f64,
    plan: ParallelismPlan,
}

impl PlanCandidate {
    /// Whether it is at least as good in both.
    fn dominates(&self, other: &Self) -> bool {
        self.imbalance <= other.imbalance && self.traffic <= other.traffic
    }

    /// Layers that lie in another stage there, and stages that divide otherwise.
    fn plan_distance(&self, other: &Self) -> usize {
        let layers = stages_of_layers(&self.plan).zip(stages_of_layers(&other.plan));
        let stages = self.plan.parallelism.iter().zip(&other.plan.parallelism);
        layers.filter(|(a, b)| a != b).count() + stages.filter(|(a, b)| a != b).count()
    }
}

/// The stage of every layer.
fn stages_of_layers(plan: &ParallelismPlan) -> impl Iterator<Item = usize> + '_ {
    let stages = plan.partition.stages.iter().enumerate();
    stages.flat_map(|(stage, layers)| layers.clone().map(move |_| stage))
}

/// Plans of which none dominates another.
#[derive(Default)]
struct ParetoFront {
    plans: Vec<PlanCandidate>,
}

impl ParetoFront {
    fn admit_plan(&mut self, candidate: PlanCandidate) {
        if self.plans.iter().any(|plan| plan.dominates(&candidate)) {
            return;
        }
        self.plans.retain(|plan| !candidate.dominates(plan));
        self.plans.push(candidate);
        if self.plans.len() > MOST {
            self.drop_most_similar();
        }
    }

    /// Drops the less balanced of the two most similar plans.
    fn drop_most_similar(&mut self) {
        let pairs = (0..self.plans.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let alike = pairs.min_by_key(|(a, b)| self.plans[*a].plan_distance(&self.plans[*b]));
        if let Some((a, b)) = alike {
            let worse = self.plans[a].imbalance >= self.plans[b].imbalance;
            self.plans.remove(if worse { a } else { b });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crius::CriusCell;
    use crate::crius::gpu_kinds::GpuKind;
    use crate::crius::layers::LayeredModel;

    fn check(
        name: &str,
        kind: &str,
        hosts: u32,
        gpus_per_host: u32,
        stages: u32,
    ) -> (TunedPlan, TunedPlan) {
        let model = LayeredModel::by_name(name).unwrap();
        let setting = CellEstimator {
            model: &model,
            gpu: GpuKind::by_name(kind).unwrap(),
            cell: CriusCell { hosts, gpus_per_host, stages },
            kernel_speed: 1.0,
        };
        let (estimate, _) = setting.estimate_best_plan().unwrap();
        let (tuned, all) = (tune_cell(&setting).unwrap(), tune_exhaustively(&setting).unwrap());
        assert!(all.seconds <= tuned.seconds && all.seconds <= estimate);
        assert!(tuned.seconds <= estimate && tuned.tried <= MOST + 1);
        (tuned, all)
    }

    #[test]
    fn pruning_tries_few_plans_and_loses_little() {
        let (tuned, all) = check("wide-resnet-1B/256", "A40", 4, 2, 4);
        assert!(tuned.tried * 4 < all.tried, "{} {}", tuned.tried, all.tried);
        assert!(tuned.seconds <= 1.25 * all.seconds, "{} {}", tuned.seconds, all.seconds);
    }

    #[test]
    fn a_single_stage_loses_nothing() {
        let (tuned, all) = check("moe-690M/256", "V100", 1, 4, 1);
        assert_eq!(tuned.seconds, all.seconds);
    }
}
