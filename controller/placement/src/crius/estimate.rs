//! The estimate of a Cell (Crius): the iteration time of the most promising plan in it, without
//! running any plan.
//!
//! A Cell leaves two things open: the cuts of the model ([`partition`]), and the data and tensor
//! parallelism of each stage ([`StageParallelism`]). The most promising plan has the parallelism
//! with the least traffic on every stage. Its partition is the best balanced of those with nearly
//! the least total traffic. Only this plan is timed, layer by layer ([`kernel_seconds`]) and
//! collective by collective ([`GpuKind::ring_times`]).
//!
//! Experts are shared, not cut: each of the `tensor` GPUs of a copy computes its own samples and
//! holds its share of the experts, to which tokens are sent.

use super::CriusCell;
use super::gpu_kinds::{GpuKind, LinkPlace};
use super::kernels::kernel_seconds;
use super::layers::{LayeredModel, ModelFamily, ModelLayer};
use super::partition::{self, StagePartition};
use super::pipeline::{PassTimes, StageTimes, iteration_seconds};

/// Micro-batches of an iteration.
pub const MICRO_BATCHES: u32 = 16;

/// Partitions are kept that send up to so many times the least.
const NEAR_LEAST: f64 = 10.0;

/// What a stage of another shape than the one before it sends, in units of what it would send else.
const RESHAPED_FACTOR: f64 = 1.1;

/// A backward pass computes twice what the forward pass does, and that again, since activations are
/// recomputed instead of kept.
const BACKWARD_FACTOR: f64 = 3.0;

/// Gradients in units of parameters: those of half precision are reduced in single precision, and
/// those of convolutions are measured to take twice as long as their bytes say
/// (prof_log/estimate_all of sjtu-epcc/arena).
const GRADIENT_FACTOR: f64 = 2.0;

/// How the GPUs of a stage divide: `data * tensor` are all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageParallelism {
    /// Copies of the stage.
    pub data: u32,
    /// GPUs of each copy.
    pub tensor: u32,
}

/// A partition and a way for each of its stages.
#[derive(Clone, Debug, PartialEq)]
pub struct ParallelismPlan {
    /// Layers and GPUs of the stages.
    pub partition: StagePartition,
    /// How each stage divides.
    pub parallelism: Vec<StageParallelism>,
}

/// A model on the GPUs of a Cell.
#[derive(Clone, Debug)]
pub struct CellEstimator<'a> {
    /// Name of the model.
    pub model: &'a LayeredModel,
    /// The kind of GPU.
    pub gpu: &'a GpuKind,
    /// The Cell that is estimated.
    pub cell: CriusCell,
    /// How fast kernels are, in units of [`super::kernels`].
    pub kernel_speed: f64,
}

impl<'a> CellEstimator<'a> {
    /// Seconds of an iteration with the plan that looks best, and the plan; none if no plan fits
    /// into the memory.
    pub fn estimate_best_plan(&self) -> Option<(f64, ParallelismPlan)> {
        let mut planned: Vec<(f64, ParallelismPlan)> = self
            .model_partitions()
            .into_iter()
            .filter_map(|partition| {
                let plan = self.least_traffic_plan(partition)?;
                Some((self.plan_traffic(&plan), plan))
            })
            .collect();
        let least = planned.iter().map(|(traffic, _)| *traffic);
        let bound = NEAR_LEAST * least.fold(f64::INFINITY, f64::min);
        planned.retain(|(traffic, _)| *traffic <= bound);
        let balanced = planned.into_iter().map(|(_, plan)| plan).min_by(|a, b| {
            let (a, b) = (a.partition.imbalance, b.partition.imbalance);
            a.total_cmp(&b)
        });
        balanced.map(|plan| (self.plan_seconds(&plan), plan))
    }

    /// The partitions of the model into the stages of the Cell.
    pub fn model_partitions(&self) -> Vec<StagePartition> {
        let loads: Vec<f64> =
            self.model.layers.iter().map(|layer| self.layer_load(layer)).collect();
        let fractions = partition::gpu_fractions(&loads, self.cell.gpu_count());
        partition::balanced_partitions(&fractions, self.cell.stages as usize)
    }

    /// The ways of a stage that fit into the memory and leave every copy a sample.
    pub fn stage_options(&self, partition: &StagePartition, stage: usize) -> Vec<StageParallelism> {
        let gpus = partition.gpus[stage];
        let copies = (0..u32::BITS).map(|power| 1 << power).take_while(|data| *data <= gpus);
        let ways = copies.map(|data| StageParallelism { data, tensor: gpus / data });
        ways.filter(|way| self.fits_memory(partition, stage, *way)).collect()
    }

    /// Bytes that a plan sends in a micro-batch: the most of any stage, all gradients, and more
    /// where the shape changes.
    pub fn plan_traffic(&self, plan: &ParallelismPlan) -> f64 {
        let (mut most, mut rest) = (0.0_f64, 0.0);
        for (stage, way) in plan.parallelism.iter().enumerate() {
            let (tensor, data) =
                self.stage_traffic(self.stage_layers(&plan.partition, stage), *way);
            most = most.max(tensor);
            rest += data;
            if stage > 0 && plan.parallelism[stage - 1] != *way {
                rest += (RESHAPED_FACTOR - 1.0) * tensor;
            }
        }
        most + rest
    }

    /// Seconds of an iteration with this plan.
    pub fn plan_seconds(&self, plan: &ParallelismPlan) -> f64 {
        let last = plan.parallelism.len() - 1;
        let stages: Vec<StageTimes> = plan
            .parallelism
            .iter()
            .enumerate()
            .map(|(stage, way)| {
                let layers = self.stage_layers(&plan.partition, stage);
                let mut times = self.stage_times(layers, *way);
                let crossing = |before| self.crossing_seconds(&plan.partition, before);
                times.forward.between_stages = if stage < last { crossing(stage) } else { 0.0 };
                times.backward.between_stages = stage.checked_sub(1).map_or(0.0, crossing);
                times
            })
            .collect();
        iteration_seconds(&stages, MICRO_BATCHES)
    }

    fn stage_layers(&self, partition: &StagePartition, stage: usize) -> &'a [ModelLayer] {
        &self.model.layers[partition.stages[stage].clone()]
    }

    /// The way of each stage that sends least, given the way of the stage before it.
    fn least_traffic_plan(&self, partition: StagePartition) -> Option<ParallelismPlan> {
        let mut ways: Vec<StageParallelism> = Vec::new();
        for stage in 0..partition.stages.len() {
            let layers = self.stage_layers(&partition, stage);
            let sent = |way: &StageParallelism| {
                let (tensor, data) = self.stage_traffic(layers, *way);
                let reshaped = ways.last().is_some_and(|before| before != way);
                (tensor + data) * if reshaped { RESHAPED_FACTOR } else { 1.0 }
            };
            let possible = self.stage_options(&partition, stage).into_iter();
            ways.push(possible.min_by(|a, b| sent(a).total_cmp(&sent(b)))?);
        }
        Some(ParallelismPlan { partition, parallelism: ways })
    }

    /// Samples that one GPU of a stage computes in a micro-batch, or a part of.
    fn samples_per_gpu(&self, way: StageParallelism) -> f64 {
        let shares = match self.model.family {
            ModelFamily::Experts => way.data * way.tensor,
            ModelFamily::Bert | ModelFamily::WideResnet => way.data,
        };
        self.micro_batch() / f64::from(shares)
    }

    /// Samples of a micro-batch.
    fn micro_batch(&self) -> f64 {
        f64::from(self.model.batch) / f64::from(MICRO_BATCHES)
    }

    /// Bytes of outputs reduced in a micro-batch, and of parameters spread over all of them.
    fn stage_traffic(&self, layers: &[ModelLayer], way: StageParallelism) -> (f64, f64) {
        let tensor = self.samples_per_gpu(way) * output_bytes(layers) * ring_share(way.tensor);
        let data: f64 =
            self.parameter_rings(layers, way).iter().map(ParameterRing::sent_bytes).sum();
        (tensor, data / f64::from(MICRO_BATCHES))
    }

    /// The rings that reduce the gradients of a stage: one for each part that GPUs hold a copy of.
    fn parameter_rings(&self, layers: &[ModelLayer], way: StageParallelism) -> Vec<ParameterRing> {
        let all = parameter_bytes(layers);
        let sharing = way.tensor.min(self.cell.gpus_per_host);
        let cut = |bytes: f64| ParameterRing {
            bytes: bytes / f64::from(way.tensor),
            gpus: way.data,
            sharing,
        };
        match self.model.family {
            ModelFamily::Experts => {
                let experts: f64 = layers.iter().map(|layer| layer.expert_bytes).sum();
                let common =
                    ParameterRing { bytes: all - experts, gpus: way.data * way.tensor, sharing: 1 };
                vec![common, cut(experts)]
            }
            ModelFamily::Bert | ModelFamily::WideResnet => vec![cut(all)],
        }
    }

    /// Whether parameters, their optimiser and what micro-batches under way leave at the boundaries
    /// of layers fit, and every GPU has a sample. As many micro-batches are under way as there are
    /// stages from this one on.
    fn fits_memory(&self, partition: &StagePartition, stage: usize, way: StageParallelism) -> bool {
        let layers = self.stage_layers(partition, stage);
        let under_way = (partition.stages.len() - stage).min(MICRO_BATCHES as usize);
        let kept: f64 = layers.iter().map(|layer| layer.boundary_bytes).sum();
        let samples = self.samples_per_gpu(way);
        let bytes = self.state_bytes(layers, way)
            + under_way as f64 * samples * kept / f64::from(self.cutting_gpus(way));
        bytes <= self.gpu.usable_bytes() && samples >= 1.0
    }

    /// Bytes of the parameters of a stage on one GPU, their gradients and their optimiser.
    fn state_bytes(&self, layers: &[ModelLayer], way: StageParallelism) -> f64 {
        let held: f64 = self.parameter_rings(layers, way).iter().map(|ring| ring.bytes).sum();
        self.model.states.on_each(way.data) * held
    }

    /// GPUs among which each layer is cut.
    fn cutting_gpus(&self, way: StageParallelism) -> u32 {
        match self.model.family {
            ModelFamily::Experts => 1,
            ModelFamily::Bert | ModelFamily::WideResnet => way.tensor,
        }
    }

    /// What partitions balance: the FLOP of a micro-batch over the roofline.
    fn layer_load(&self, layer: &ModelLayer) -> f64 {
        let samples = self.micro_batch();
        let flop = samples * layer.flop;
        let bytes = layer.parameter_bytes + samples * layer.output_bytes;
        flop / self.gpu.roofline_flops(self.model.family, flop / bytes)
    }

    fn stage_times(&self, layers: &[ModelLayer], way: StageParallelism) -> StageTimes {
        let samples = self.samples_per_gpu(way);
        let kernels = layers.iter().map(|layer| {
            kernel_seconds(self.model.family, self.gpu, layer, samples, self.cutting_gpus(way))
        });
        let compute = kernels.sum::<f64>() / self.kernel_speed;
        let within = self.reduction_seconds(layers, way);
        StageTimes {
            forward: PassTimes { compute, inside_stage: within, between_stages: 0.0 },
            backward: PassTimes {
                compute: BACKWARD_FACTOR * compute,
                inside_stage: 2.0 * within,
                between_stages: 0.0,
            },
            synchronise: self.gradient_seconds(layers, way),
            // Applying gradients reads and writes all states.
            apply: 2.0 * self.state_bytes(layers, way) / self.gpu.memory_bandwidth(),
        }
    }

    /// Seconds in which the GPUs of a copy reduce outputs, or send tokens to experts and back, in a
    /// forward pass.
    fn reduction_seconds(&self, layers: &[ModelLayer], way: StageParallelism) -> f64 {
        let (tensor, _) = self.stage_traffic(layers, way);
        let operations: f64 = layers.iter().map(|layer| layer.reductions).sum();
        // Copies lie next to each other, so that a copy leaves a host last.
        let times = self.gpu.ring_times(self.place_of(way.tensor), way.tensor, 1);
        operations * times.transfer_seconds(2.0 * tensor / operations)
    }

    fn gradient_seconds(&self, layers: &[ModelLayer], way: StageParallelism) -> f64 {
        let place = self.place_of(way.data * way.tensor);
        let rings = self.parameter_rings(layers, way);
        let seconds = rings.iter().map(|ring| {
            let times = self.gpu.ring_times(place, ring.gpus, ring.sharing);
            times.transfer_seconds(2.0 * GRADIENT_FACTOR * ring.sent_bytes())
        });
        seconds.sum()
    }

    fn place_of(&self, gpus: u32) -> LinkPlace {
        if gpus > self.cell.gpus_per_host { LinkPlace::BetweenHosts } else { LinkPlace::InsideHost }
    }

    /// Seconds until the next stage has what it reads of a micro-batch.
    fn crossing_seconds(&self, partition: &StagePartition, stage: usize) -> f64 {
        let boundary =
            self.stage_layers(partition, stage).last().map_or(0.0, |layer| layer.boundary_bytes);
        let bytes = self.micro_batch() * boundary;
        let gpus_before: u32 = partition.gpus[..=stage].iter().sum();
        let place = if gpus_before.is_multiple_of(self.cell.gpus_per_host) {
            LinkPlace::BetweenHosts
        } else {
            LinkPlace::InsideHost
        };
        self.gpu.send_times(place).transfer_seconds(bytes)
    }
}

/// Parameters that some GPUs hold alike.
#[derive(Clone, Copy, Debug)]
struct ParameterRing {
    /// On each of them.
    bytes: f64,
    /// The GPUs.
    gpus: u32,
    /// As many rings leave a host.
    sharing: u32,
}

impl ParameterRing {
    /// What a reduction of values of the size of the parameters sends in one of its two rounds.
    fn sent_bytes(&self) -> f64 {
        self.bytes * ring_share(self.gpus)
    }
}

/// `(n - 1) / n`: what a collective moves of what it is about.
fn ring_share(gpus: u32) -> f64 {
    f64::from(gpus - 1) / f64::from(gpus)
}

fn output_bytes(layers: &[ModelLayer]) -> f64 {
    layers.iter().map(|layer| layer.output_bytes).sum()
}

fn parameter_bytes(layers: &[ModelLayer]) -> f64 {
    layers.iter().map(|layer| layer.parameter_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting<'a>(model: &'a LayeredModel, kind: &str, cell: CriusCell) -> CellEstimator<'a> {
        CellEstimator { model, gpu: GpuKind::by_name(kind).unwrap(), cell, kernel_speed: 1.0 }
    }

    fn cell(hosts: u32, gpus_per_host: u32, stages: u32) -> CriusCell {
        CriusCell { hosts, gpus_per_host, stages }
    }

    #[test]
    fn more_gpus_are_faster_but_not_by_their_number() {
        let model = LayeredModel::by_name("bert-760M/256").unwrap();
        let seconds = |gpus| {
            let (seconds, _) =
                setting(&model, "A100", cell(1, gpus, 1)).estimate_best_plan().unwrap();
            seconds
        };
        let (two, four) = (seconds(2), seconds(4));
        assert!(four < two && four > two / 2.0, "{two} {four}");
    }

    #[test]
    fn a_model_beyond_the_memory_has_no_plan() {
        // 6.7e9 parameters with their states are 107 GB, and a GPU has 24.
        let model = LayeredModel::by_name("bert-6.7B/256").unwrap();
        assert!(setting(&model, "A10", cell(1, 2, 1)).estimate_best_plan().is_none());
        // In eight stages of one GPU each these are 13 GB, to which what 256 samples leave is
        // added.
        let deep = setting(&model, "A40", cell(4, 2, 8)).estimate_best_plan();
        assert!(deep.is_some());
    }

    #[test]
    fn a_model_that_fits_twice_is_copied_rather_than_cut() {
        let model = LayeredModel::by_name("wide-resnet-500M/256").unwrap();
        let (_, plan) = setting(&model, "A40", cell(1, 2, 1)).estimate_best_plan().unwrap();
        assert_eq!(plan.parallelism, [StageParallelism { data: 2, tensor: 1 }]);
    }
}
