//! The estimate of a Cell (Crius): how long an iteration takes if the plan inside it that
//! looks best is run, without running any.
//!
//! Within a Cell two things are open: where the model is cut ([`partition`]), and how the GPUs of
//! each stage divide into data and tensor parallelism ([`Way`]). The plan that looks best has on
//! every stage the way that sends least, is among the partitions that send least overall, and of
//! those the best balanced. It alone is timed, layer by layer on the roofline and collective by
//! collective from the tables.

use super::Cell;
use super::gpus::Gpu;
use super::layers::{Layer, LayeredModel};
use super::partition::{self, Partition};
use super::pipeline::{Pass, StageTimes, iteration_seconds};

/// Micro-batches of an iteration.
pub const MICRO_BATCHES: u32 = 16;

/// Partitions are kept that send up to so many times the least.
const NEAR_LEAST: f64 = 10.0;

/// What a stage of another shape than the one before it sends, in units of what it would send else.
const RESHAPED: f64 = 1.1;

/// A backward pass computes twice what the forward pass does, and that again, since activations are
/// recomputed instead of kept.
const BACKWARD: f64 = 3.0;

/// How the GPUs of a stage divide: `data * tensor` are all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Copies of the stage.
    pub data: u32,
    /// GPUs of each copy.
    pub tensor: u32,
}

/// A partition and a way for each of its stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The stages.
    pub partition: Partition,
    /// How each stage divides.
    pub ways: Vec<Way>,
}

/// A model on the GPUs of a Cell.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The model.
    pub model: &'a LayeredModel,
    /// The kind of GPU.
    pub gpu: &'a Gpu,
    /// The Cell.
    pub cell: Cell,
    /// What is attained of the roofline, from 0 to 1.
    pub efficiency: f64,
}

impl<'a> Setting<'a> {
    /// Seconds of an iteration with the plan that looks best, and the plan; none if no plan fits
    /// into the memory.
    pub fn estimate(&self) -> Option<(f64, Plan)> {
        let planned = self.partitions().into_iter().filter_map(|partition| {
            let plan = self.least_traffic(partition)?;
            Some((self.traffic(&plan), plan))
        });
        let mut planned: Vec<(f64, Plan)> = planned.collect();
        let least = planned.iter().map(|(traffic, _)| *traffic);
        let bound = NEAR_LEAST * least.fold(f64::INFINITY, f64::min);
        planned.retain(|(traffic, _)| *traffic <= bound);
        let balanced = planned.into_iter().map(|(_, plan)| plan).min_by(|a, b| {
            let (a, b) = (a.partition.imbalance, b.partition.imbalance);
            a.total_cmp(&b)
        });
        balanced.map(|plan| (self.seconds(&plan), plan))
    }

    /// The partitions of the model into the stages of the Cell.
    pub fn partitions(&self) -> Vec<Partition> {
        let load = |layer: &Layer| self.compute_seconds(layer, 1.0);
        let loads: Vec<f64> = self.model.layers.iter().map(load).collect();
        let fractions = partition::fractions(&loads, self.cell.gpus());
        partition::partitions(&fractions, self.cell.stages as usize)
    }

    /// The ways of a stage that fit into the memory and leave every copy a sample.
    pub fn ways(&self, partition: &Partition, stage: usize) -> Vec<Way> {
        let gpus = partition.gpus[stage];
        let copies = (0..u32::BITS).map(|power| 1 << power);
        let copies = copies.take_while(|data| *data <= gpus);
        let ways = copies.map(|data| Way {
            data,
            tensor: gpus / data,
        });
        ways.filter(|way| self.fits(self.layers(partition, stage), *way))
            .collect()
    }

    /// Bytes that a plan sends in a micro-batch: the most of any stage, all gradients, and more
    /// where the shape changes.
    pub fn traffic(&self, plan: &Plan) -> f64 {
        let (mut most, mut rest) = (0.0_f64, 0.0);
        for (stage, way) in plan.ways.iter().enumerate() {
            let (tensor, data) = self.stage_traffic(self.layers(&plan.partition, stage), *way);
            most = most.max(tensor);
            rest += data;
            if stage > 0 && plan.ways[stage - 1] != *way {
                rest += (RESHAPED - 1.0) * tensor;
            }
        }
        most + rest
    }

    /// Seconds of an iteration with this plan.
    pub fn seconds(&self, plan: &Plan) -> f64 {
        let last = plan.ways.len() - 1;
        let times = |(stage, way): (usize, &Way)| {
            let layers = self.layers(&plan.partition, stage);
            let mut times = self.stage_times(layers, *way);
            let crossing = self.crossing_seconds(layers, *way);
            times.forward.across = if stage < last { crossing } else { 0.0 };
            times.backward.across = if stage > 0 { crossing } else { 0.0 };
            times
        };
        let stages: Vec<StageTimes> = plan.ways.iter().enumerate().map(times).collect();
        iteration_seconds(&stages, MICRO_BATCHES)
    }

    fn layers(&self, partition: &Partition, stage: usize) -> &'a [Layer] {
        &self.model.layers[partition.stages[stage].clone()]
    }

    /// The way of each stage that sends least, given the way of the stage before it.
    fn least_traffic(&self, partition: Partition) -> Option<Plan> {
        let mut ways: Vec<Way> = Vec::new();
        for stage in 0..partition.stages.len() {
            let layers = self.layers(&partition, stage);
            let sent = |way: &Way| {
                let (tensor, data) = self.stage_traffic(layers, *way);
                let reshaped = ways.last().is_some_and(|before| before != way);
                (tensor + data) * if reshaped { RESHAPED } else { 1.0 }
            };
            let possible = self.ways(&partition, stage).into_iter();
            ways.push(possible.min_by(|a, b| sent(a).total_cmp(&sent(b)))?);
        }
        Some(Plan { partition, ways })
    }

    /// Samples that one copy of a stage computes in a micro-batch.
    fn samples(&self, way: Way) -> f64 {
        f64::from(self.model.batch) / f64::from(MICRO_BATCHES * way.data)
    }

    /// Bytes of outputs reduced in a micro-batch, and of gradients spread over all of them.
    fn stage_traffic(&self, layers: &[Layer], way: Way) -> (f64, f64) {
        let tensor = self.samples(way) * outputs(layers) * others(way.tensor);
        let data = parameters(layers) / f64::from(way.tensor) * others(way.data);
        (tensor, data / f64::from(MICRO_BATCHES))
    }

    /// Whether parameters, their optimiser and what micro-batches leave at the boundaries of layers
    /// fit, and every copy has a sample.
    fn fits(&self, layers: &[Layer], way: Way) -> bool {
        let kept: f64 = layers.iter().map(|layer| layer.boundary_bytes).sum();
        let states = self.model.state_factor * parameters(layers);
        let samples = self.samples(way) * f64::from(MICRO_BATCHES);
        let bytes = (states + samples * kept) / f64::from(way.tensor);
        bytes <= self.gpu.usable_bytes() && self.samples(way) >= 1.0
    }

    /// Seconds in which one GPU computes a layer forward for `samples`.
    fn compute_seconds(&self, layer: &Layer, samples: f64) -> f64 {
        let flop = samples * layer.flop;
        let bytes = layer.parameter_bytes + samples * layer.output_bytes;
        flop / (self.efficiency * self.gpu.attained(self.model.family, flop / bytes))
    }

    fn stage_times(&self, layers: &[Layer], way: Way) -> StageTimes {
        let samples = self.samples(way);
        let compute = layers
            .iter()
            .map(|layer| self.compute_seconds(layer, samples));
        let compute = compute.sum::<f64>() / f64::from(way.tensor);
        let (tensor, data) = self.stage_traffic(layers, way);
        let within = self.tensor_table(way).seconds(2.0 * tensor);
        let held = parameters(layers) / f64::from(way.tensor);
        StageTimes {
            forward: Pass {
                compute,
                within,
                across: 0.0,
            },
            backward: Pass {
                compute: BACKWARD * compute,
                within: 2.0 * within,
                across: 0.0,
            },
            synchronise: self
                .data_table(way)
                .seconds(2.0 * data * f64::from(MICRO_BATCHES)),
            // Applying gradients reads and writes all states.
            apply: 2.0 * self.model.state_factor * held / self.gpu.memory_speed(),
        }
    }

    /// Seconds until the next stage has what it reads of a micro-batch.
    fn crossing_seconds(&self, layers: &[Layer], way: Way) -> f64 {
        let boundary = layers.last().map_or(0.0, |layer| layer.boundary_bytes);
        let bytes = self.samples(way) * boundary / f64::from(way.tensor);
        let sharing = (way.data * way.tensor).min(self.cell.gpus_per_host);
        let between_hosts = self.cell.hosts > 1;
        self.gpu.table(between_hosts, sharing).seconds(bytes)
    }

    /// Copies lie next to each other, so that tensor parallelism leaves a host last.
    fn tensor_table(&self, way: Way) -> super::collectives::Table {
        self.gpu.table(way.tensor > self.cell.gpus_per_host, 1)
    }

    /// As many rings leave a host as a copy has GPUs in it.
    fn data_table(&self, way: Way) -> super::collectives::Table {
        let in_host = self.cell.gpus_per_host;
        let gpus = way.data * way.tensor;
        self.gpu.table(gpus > in_host, way.tensor.min(in_host))
    }
}

/// `(n - 1) / n`: what a collective moves of what it is about.
fn others(gpus: u32) -> f64 {
    f64::from(gpus - 1) / f64::from(gpus)
}

fn outputs(layers: &[Layer]) -> f64 {
    layers.iter().map(|layer| layer.output_bytes).sum()
}

fn parameters(layers: &[Layer]) -> f64 {
    layers.iter().map(|layer| layer.parameter_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting<'a>(model: &'a LayeredModel, kind: &str, cell: Cell) -> Setting<'a> {
        Setting {
            model,
            gpu: Gpu::named(kind).unwrap(),
            cell,
            efficiency: 0.5,
        }
    }

    fn cell(hosts: u32, gpus_per_host: u32, stages: u32) -> Cell {
        Cell {
            hosts,
            gpus_per_host,
            stages,
        }
    }

    #[test]
    fn more_gpus_are_faster_but_not_by_their_number() {
        let model = LayeredModel::named("bert-760M/256").unwrap();
        let seconds = |gpus| {
            let (seconds, _) = setting(&model, "A100", cell(1, gpus, 1))
                .estimate()
                .unwrap();
            seconds
        };
        let (two, four) = (seconds(2), seconds(4));
        assert!(four < two && four > two / 2.0, "{two} {four}");
    }

    #[test]
    fn what_does_not_fit_into_memory_has_no_plan() {
        // 6.7e9 parameters with their states are 107 GB, and a GPU has 24.
        let model = LayeredModel::named("bert-6.7B/256").unwrap();
        assert!(setting(&model, "A10", cell(1, 2, 1)).estimate().is_none());
        // In eight stages of one GPU each these are 13 GB, to which what 256 samples leave is
        // added.
        let deep = setting(&model, "A40", cell(4, 2, 8)).estimate();
        assert!(deep.is_some());
    }

    #[test]
    fn a_model_that_fits_twice_is_copied_rather_than_cut() {
        let model = LayeredModel::named("wide-resnet-500M/256").unwrap();
        let (_, plan) = setting(&model, "A40", cell(1, 2, 1)).estimate().unwrap();
        assert_eq!(plan.ways, [Way { data: 2, tensor: 1 }]);
    }
}
