//! How fast a model trains on a number of GPUs of one kind: the table with which policies for
//! several kinds of GPU decide (Crius, Gavel, `ElasticFlow`).
//!
//! [`ThroughputTable::from_published`] has measurements, [`ThroughputTable::from_estimates`] the
//! estimates of the Cells of [`super::crius`]; policies do not distinguish them. The measured
//! figures in `published.csv` and `data_parallel.csv` are facts taken from the artefact of the
//! Arena paper, which is <https://github.com/sjtu-epcc/arena>, branch `ae-eurosys`, Apache-2.0. The
//! GPUs of a job are a power of two, evenly on its hosts ([`GpuShape`]). A job on more hosts than
//! necessary, in a shape that was never measured, is assumed to lose a tenth with every doubling of
//! its hosts, as in the simulator of sjtu-epcc/arena (macro/macro_def.py).

use std::collections::BTreeMap;

use super::crius::estimate::CellEstimator;
use super::crius::gpu_kinds::GpuKind;
use super::crius::layers::LayeredModel;
use super::crius::{CriusCell, calibration};
use super::{GpuCluster, GpusByHost, PlacementRequest};
use crate::ModelTable;

/// What is left of the speed when the hosts of a job double.
const SPREAD: f64 = 0.9;

/// An iteration that takes longer is no training; the length of a round.
const LONGEST_ITERATION_SECONDS: f64 = 300.0;

/// Iteration times of the best parallelism that Alpa found, by model, kind, hosts and GPUs of each
/// host: measurements published with Arena (sjtu-epcc/arena, branch ae-eurosys, Apache-2.0,
/// database/prof_database.pkl), without those that failed or took over 300 s. Beside them what the
/// authors estimate for the best uniform parallelism, where they publish it
/// (runtime/jaxpr/prof_log/estimate_all).
const PUBLISHED: &str = include_str!("throughput/published.csv");

/// Gigabytes that a GPU needs under data parallelism, by model and 1, 2, 4, 8 and 16 GPUs, empty
/// where it cannot be run so: published there too (database/dp_mem.json).
const DATA_PARALLEL: &str = include_str!("throughput/data_parallel.csv");

/// What data parallelism needs beyond its measured memory, as its schedulers reckon
/// (db_querier.py).
const MEMORY_MARGIN: f64 = 1.2;

/// GPUs of one kind, evenly on hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuShape {
    /// The kind; the position in [`GpuCluster::kinds`].
    pub kind: u32,
    /// Number of hosts used.
    pub hosts: u32,
    /// GPUs on each of them.
    pub gpus_per_host: u32,
}

impl GpuShape {
    /// How `gpus` of a kind lie; none without GPUs, or if not equally many on each host.
    pub fn from_gpus(kind: u32, gpus: &GpusByHost) -> Option<Self> {
        let gpus_per_host = *gpus.values().next()?;
        let even = gpus.values().all(|gpus| *gpus == gpus_per_host);
        even.then_some(Self { kind, hosts: gpus.len() as u32, gpus_per_host })
    }

    /// All of its GPUs.
    pub fn gpu_count(&self) -> u32 {
        self.hosts * self.gpus_per_host
    }

    /// These GPUs on twice the hosts; none if each host has one already.
    pub fn spread_out(&self) -> Option<Self> {
        (self.gpus_per_host.is_multiple_of(2)).then_some(Self {
            hosts: 2 * self.hosts,
            gpus_per_host: self.gpus_per_host / 2,
            ..*self
        })
    }
}

/// Speeds by model and shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThroughputTable {
    /// GPUs of a host, by kind.
    host_gpus: Vec<u32>,
    /// Samples per second.
    by_model: BTreeMap<String, BTreeMap<GpuShape, f64>>,
    /// Speeds of models without a row.
    profiles: Option<ModelProfiles>,
}

/// Models of which only one iteration on one GPU is known.
#[derive(Clone, Debug, PartialEq)]
struct ModelProfiles {
    models: ModelTable,
    nic_bytes_per_second: f64,
}

impl ModelProfiles {
    /// The speed of a job that keeps its batch on other GPUs than it asked for, in what one of
    /// those computes in an iteration: its GPUs share the computation and reduce the
    /// gradients in a ring, and what outlasts the computation is waited for. An unknown model
    /// computes for a second and sends nothing, as for [`super::sjf_bco`].
    fn profile_speed(&self, request: &PlacementRequest, shape: GpuShape) -> f64 {
        let model = request.model.as_deref().and_then(|name| self.models.by_name(name));
        let compute = model.map_or(1.0, |model| model.compute_seconds);
        let gradients = model.map_or(0.0, |model| model.gradient_bytes);
        let overlap_from = model.map_or(1.0, |model| model.overlap_from);
        let compute = compute * f64::from(request.gpus) / f64::from(shape.gpu_count());
        // GPUs of one host reduce among themselves.
        let ranks = if shape.hosts > 1 { f64::from(shape.gpu_count()) } else { 1.0 };
        let ring = 2.0 * (ranks - 1.0) / ranks * gradients / self.nic_bytes_per_second;
        let exposed = (ring - (1.0 - overlap_from) * compute).max(0.0);
        f64::from(request.gpus) / (compute + exposed)
    }
}

impl ThroughputTable {
    /// A table without rows, for the kinds of a cluster.
    pub fn new(cluster: &GpuCluster) -> Self {
        Self {
            host_gpus: (0..cluster.kinds.len() as u32)
                .map(|kind| {
                    let hosts = cluster.hosts.iter().filter(|host| host.kind == kind);
                    hosts.map(|host| host.gpus).max().unwrap_or(0)
                })
                .collect(),
            by_model: BTreeMap::new(),
            profiles: None,
        }
    }

    /// This, and models without a row computed from what they do on one GPU, equal on all kinds.
    pub fn with_models(mut self, models: ModelTable, nic_bytes_per_second: f64) -> Self {
        self.profiles = Some(ModelProfiles { models, nic_bytes_per_second });
        self
    }

    /// The published measurements of the kinds that a cluster has.
    pub fn from_published(cluster: &GpuCluster) -> Self {
        let mut table = Self::new(cluster);
        for row in published_measurements() {
            if let Some(kind) = cluster.kinds.iter().position(|kind| kind == row.kind) {
                let shape = GpuShape {
                    kind: kind as u32,
                    hosts: row.hosts,
                    gpus_per_host: row.gpus_per_host,
                };
                table.insert(row.model, shape, row.samples_per_second());
            }
        }
        table
    }

    /// What the best Cell of each of these models promises on up to `most_gpus` of each kind.
    pub fn from_estimates<'a>(
        cluster: &GpuCluster,
        models: impl IntoIterator<Item = &'a str>,
        most_gpus: u32,
    ) -> Self {
        let mut table = Self::new(cluster);
        for name in models {
            let Some(model) = LayeredModel::by_name(name) else {
                continue;
            };
            for shape in table.best_shapes(most_gpus) {
                let kind = &cluster.kinds[shape.kind as usize];
                let seconds =
                    GpuKind::by_name(kind).and_then(|gpu| best_cell_seconds(&model, gpu, shape));
                if let Some(seconds) = seconds {
                    table.insert(name, shape, f64::from(model.batch) / seconds);
                }
            }
        }
        table
    }

    /// The rows on which data parallelism alone fits into the memory: what schedulers see that know
    /// no other.
    pub fn data_parallel_only(mut self, cluster: &GpuCluster) -> Self {
        let needs = data_parallel_gigabytes();
        for (model, rows) in &mut self.by_model {
            rows.retain(|shape, _| {
                let power = shape.gpu_count().trailing_zeros() as usize;
                let needs = needs.get(model.as_str()).and_then(|needs| *needs.get(power)?);
                let gpu = GpuKind::by_name(&cluster.kinds[shape.kind as usize]);
                needs.zip(gpu).is_some_and(|(gigabytes, gpu)| {
                    MEMORY_MARGIN * gigabytes * 1e9 <= gpu.usable_bytes()
                })
            });
        }
        self
    }

    /// The rows of this table with the speeds of `others`; rows that `others` lacks are dropped.
    pub fn with_speeds_of(mut self, others: &Self) -> Self {
        for (model, rows) in &mut self.by_model {
            rows.retain(|shape, speed| {
                let assumed = others.samples_per_second(model, *shape);
                *speed = assumed.unwrap_or(*speed);
                assumed.is_some()
            });
        }
        self
    }

    /// Says how fast a model is.
    pub fn insert(&mut self, model: &str, shape: GpuShape, samples_per_second: f64) {
        let rows = self.by_model.entry(model.to_owned()).or_default();
        rows.insert(shape, samples_per_second);
    }

    /// How fast a model is; none if it cannot run so.
    pub fn samples_per_second(&self, model: &str, shape: GpuShape) -> Option<f64> {
        let rows = self.by_model.get(model)?;
        if let Some(measured) = rows.get(&shape) {
            return Some(*measured);
        }
        let best = self.best_shape(shape.kind, shape.gpu_count())?;
        let doublings = (best.gpus_per_host / shape.gpus_per_host.max(1)).checked_ilog2()?;
        Some(rows.get(&best)? * SPREAD.powi(doublings as i32))
    }

    /// How fast a job is, in samples per second, or in what one GPU computes in an iteration where
    /// its model has no row; none if it cannot run so.
    pub fn job_speed(&self, request: &PlacementRequest, shape: GpuShape) -> Option<f64> {
        match request.model.as_deref() {
            Some(model) if self.has_rows_for(request) => self.samples_per_second(model, shape),
            _ => Some(self.profiles.as_ref()?.profile_speed(request, shape)),
        }
    }

    /// What a job has to do for an iteration, in the unit of its speed.
    pub fn job_batch(&self, request: &PlacementRequest) -> f64 {
        match request.model.as_deref() {
            Some(model) if self.has_rows_for(request) => batch_size(model),
            _ => f64::from(request.gpus),
        }
    }

    /// Whether the model of a job has rows.
    pub fn has_rows_for(&self, request: &PlacementRequest) -> bool {
        let model = request.model.as_deref();
        model.is_some_and(|model| self.by_model.contains_key(model))
    }

    /// So many GPUs of a kind on as few hosts as hold them; none if they do not lie evenly.
    pub fn best_shape(&self, kind: u32, gpus: u32) -> Option<GpuShape> {
        let host_gpus = *self.host_gpus.get(kind as usize)?;
        let gpus_per_host = gpus.min(host_gpus);
        let even = gpus_per_host > 0 && gpus.is_multiple_of(gpus_per_host);
        even.then(|| GpuShape { kind, hosts: gpus / gpus_per_host, gpus_per_host })
    }

    /// How many kinds of GPU there are.
    pub fn kind_count(&self) -> u32 {
        self.host_gpus.len() as u32
    }

    /// The models with a row, by name.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.by_model.keys().map(String::as_str)
    }

    /// The best shapes of 1, 2, 4, .. GPUs of every kind.
    fn best_shapes(&self, most_gpus: u32) -> Vec<GpuShape> {
        let powers = (0..u32::BITS).map(|power| 1_u32 << power);
        let counts: Vec<u32> = powers.take_while(|gpus| *gpus <= most_gpus).collect();
        let kinds = 0..self.kind_count();
        kinds
            .flat_map(|kind| counts.iter().filter_map(move |gpus| self.best_shape(kind, *gpus)))
            .collect()
    }
}

/// Samples of an iteration of a model, which its name ends with; 1 if it does not.
fn batch_size(model: &str) -> f64 {
    let last = model.rsplit('/').next();
    last.and_then(|batch| batch.parse().ok()).unwrap_or(1.0)
}

/// Seconds of an iteration in the best Cell on these GPUs.
fn best_cell_seconds(model: &LayeredModel, gpu: &GpuKind, shape: GpuShape) -> Option<f64> {
    let cells = CriusCell::for_gpus(shape.hosts, shape.gpus_per_host).filter_map(|cell| {
        let setting = CellEstimator {
            model,
            gpu,
            cell,
            kernel_speed: calibration::kernel_speed(model.family, gpu),
        };
        setting.estimate_best_plan().map(|(seconds, _)| seconds)
    });
    let best = cells.min_by(f64::total_cmp);
    best.filter(|seconds| *seconds <= LONGEST_ITERATION_SECONDS)
}

/// A published iteration time of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedMeasurement {
    /// The model and its batch, as `moe-1.3B/256`.
    pub model: &'static str,
    /// The kind of GPU.
    pub kind: &'static str,
    /// Number of hosts used.
    pub hosts: u32,
    /// GPUs on each of them.
    pub gpus_per_host: u32,
    /// Seconds of an iteration.
    pub iteration_seconds: f64,
    /// What the authors of Crius estimate with their kernels, if they published it.
    pub estimated_seconds: Option<f64>,
}

impl PublishedMeasurement {
    /// All of its GPUs.
    pub fn gpu_count(&self) -> u32 {
        self.hosts * self.gpus_per_host
    }

    fn samples_per_second(&self) -> f64 {
        batch_size(self.model) / self.iteration_seconds
    }

    fn parse_line(line: &'static str) -> Option<Self> {
        let mut fields = line.split(',');
        Some(Self {
            model: fields.next()?,
            kind: fields.next()?,
            hosts: fields.next()?.parse().ok()?,
            gpus_per_host: fields.next()?.parse().ok()?,
            iteration_seconds: fields.next()?.parse().ok()?,
            estimated_seconds: fields.next()?.parse().ok(),
        })
    }
}

/// All published iteration times.
pub fn published_measurements() -> impl Iterator<Item = PublishedMeasurement> {
    PUBLISHED.lines().skip(1).filter_map(PublishedMeasurement::parse_line)
}

/// Gigabytes of each GPU under data parallelism, by model and the logarithm of the GPUs.
fn data_parallel_gigabytes() -> BTreeMap<&'static str, Vec<Option<f64>>> {
    let rows = DATA_PARALLEL.lines().skip(1);
    rows.filter_map(|line| {
        let (model, needs) = line.split_once(',')?;
        Some((model, needs.split(',').map(|need| need.parse().ok()).collect()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterHost;

    fn cluster() -> GpuCluster {
        let host = |kind| ClusterHost { gpus: 2, leaf: 0, kind };
        GpuCluster {
            hosts: [0, 0, 1, 1].map(host).to_vec(),
            kinds: vec!["A40".to_owned(), "A10".to_owned()],
        }
    }

    fn shape(kind: u32, hosts: u32, gpus_per_host: u32) -> GpuShape {
        GpuShape { kind, hosts, gpus_per_host }
    }

    #[test]
    fn every_published_row_is_read() {
        assert_eq!(published_measurements().count(), PUBLISHED.lines().count() - 1);
        assert_eq!(data_parallel_gigabytes().len(), DATA_PARALLEL.lines().count() - 1);
    }

    #[test]
    fn speeds_are_measured_or_a_tenth_less_with_every_doubling_of_hosts() {
        let table = ThroughputTable::from_published(&cluster());
        let speed = |shape| table.samples_per_second("moe-690M/256", shape);
        assert_eq!(speed(shape(0, 1, 2)), Some(256.0 / 4.6222));
        // Measured.
        assert_eq!(speed(shape(0, 2, 1)), Some(256.0 / 4.9200));
        // Not measured, but on one host.
        assert_eq!(speed(shape(1, 2, 1)), Some(0.9 * 256.0 / 5.9978));
        assert_eq!(speed(shape(0, 8, 2)), None);
        assert_eq!(speed(shape(2, 1, 1)), None);
        assert_eq!(table.best_shape(0, 8), Some(shape(0, 4, 2)));
        assert_eq!(table.best_shape(0, 3), None);
    }

    #[test]
    fn data_parallelism_alone_runs_less() {
        let all = ThroughputTable::from_published(&cluster());
        let some = all.clone().data_parallel_only(&cluster());
        let both = |model, shape| {
            let speed = |table: &ThroughputTable| table.samples_per_second(model, shape).is_some();
            (speed(&all), speed(&some))
        };
        // 12.955 GB, a fifth more, and four fifths of 24 GB.
        assert_eq!(both("moe-690M/256", shape(1, 1, 2)), (true, true));
        // 23.964 GB.
        assert_eq!(both("moe-690M/256", shape(1, 1, 1)), (true, false));
        assert_eq!(both("moe-10B/256", shape(0, 2, 2)), (true, false));
    }

    #[test]
    fn a_model_without_rows_keeps_its_batch() {
        let models = ModelTable::built_in();
        let name = "resnet50/A100";
        let model = models.by_name(name).unwrap().clone();
        let table = ThroughputTable::new(&cluster()).with_models(models, model.gradient_bytes);
        let mut request = crate::allocation::tests::request(1, 4, name);
        let iteration = |request: &PlacementRequest, shape| {
            table.job_batch(request) / table.job_speed(request, shape).unwrap()
        };
        // Half of the GPUs, twice as long; over two hosts a second for the ring, of which it
        // overlaps what overlaps.
        let twice = 2.0 * model.compute_seconds;
        assert_eq!(iteration(&request, shape(0, 1, 2)), twice);
        let hidden = (1.0 - model.overlap_from) * twice;
        let two_hosts = iteration(&request, shape(0, 2, 1));
        assert!((two_hosts - (twice + 1.0 - hidden)).abs() < 1e-9, "{two_hosts}");
        request.model = None;
        assert_eq!(iteration(&request, shape(0, 2, 2)), 1.0);
    }

    #[test]
    fn an_even_shape_is_seen_and_spread() {
        let gpus = |hosts: &[(u32, u32)]| -> GpusByHost {
            let hosts = hosts.iter();
            hosts.map(|(host, gpus)| (topology::HostId(*host), *gpus)).collect()
        };
        assert_eq!(GpuShape::from_gpus(1, &gpus(&[(0, 2), (3, 2)])), Some(shape(1, 2, 2)));
        assert_eq!(GpuShape::from_gpus(1, &gpus(&[(0, 2), (3, 1)])), None);
        assert_eq!(shape(1, 2, 2).spread_out(), Some(shape(1, 4, 1)));
        assert_eq!(shape(1, 4, 1).spread_out(), None);
    }
}
