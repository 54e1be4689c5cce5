//! How long an iteration keeps each resource busy: what Muri groups jobs by.

use std::collections::BTreeMap;

use crate::ModelTable;

/// Resources that jobs take turns on: storage, CPU, GPU, network.
pub const RESOURCES: usize = 4;

/// Seconds of one iteration on storage, CPU, GPU and network.
pub type StageSeconds = [f64; RESOURCES];

/// GPU counts of the published profiles.
const PROFILED_GPUS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// A row of stage times for each of `GPUS`.
type PublishedStages = [(f64, f64, f64); PROFILED_GPUS.len()];

/// Published stage times in milliseconds, (CPU and storage, GPU, network) for 1, 2, 4, 8, 16 and 32
/// V100 GPUs: the trace data of Muri (Rivendile/Muri, simulator/trace-data, Apache-2.0). Storage
/// and CPU are one figure there, which counts as CPU here.
#[rustfmt::skip]
const PUBLISHED: [(&str, PublishedStages); 8] = [
    ("a2c", [
        (514.0, 14.0, 0.0), (504.0, 14.0, 0.5), (502.0, 10.0, 0.3),
        (502.0, 14.0, 0.4), (514.0, 14.0, 1.2), (507.0, 14.0, 2.0),
    ]),
    ("bert", [
        (0.5, 160.0, 0.0), (0.5, 163.0, 18.0), (0.5, 163.0, 18.0),
        (0.5, 167.0, 59.0), (0.5, 166.0, 86.0), (0.5, 166.0, 133.0),
    ]),
    ("dqn", [
        (446.0, 8.0, 0.0), (441.0, 8.0, 0.6), (440.0, 8.0, 0.4),
        (435.0, 8.0, 0.5), (438.0, 8.0, 1.2), (437.0, 8.0, 1.6),
    ]),
    ("gpt2", [
        (0.6, 410.0, 0.0), (0.7, 416.0, 40.0), (0.6, 413.0, 20.0),
        (0.6, 419.0, 49.0), (0.6, 415.0, 137.0), (0.7, 414.0, 216.0),
    ]),
    ("resnet18", [
        (711.0, 110.0, 0.0), (687.0, 110.0, 95.0), (723.0, 113.0, 73.0),
        (784.0, 117.0, 77.0), (736.0, 108.0, 93.0), (712.0, 111.0, 93.0),
    ]),
    ("shufflenet_v2_x1_0", [
        (706.0, 59.0, 0.0), (747.0, 58.0, 18.0), (703.0, 62.0, 17.0),
        (769.0, 57.0, 10.0), (776.0, 57.0, 21.0), (799.0, 56.0, 24.0),
    ]),
    ("vgg16", [
        (117.0, 68.0, 0.0), (114.0, 72.0, 40.0), (82.0, 72.0, 67.0),
        (82.0, 75.0, 66.0), (83.0, 68.0, 110.0), (87.0, 67.0, 131.0),
    ]),
    ("vgg19", [
        (114.0, 80.0, 0.0), (115.0, 83.0, 41.0), (84.0, 85.0, 73.0),
        (82.0, 88.0, 60.0), (102.0, 78.0, 123.0), (89.0, 79.0, 141.0),
    ]),
];

/// Stage times by model and number of GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageTable {
    by_model: BTreeMap<String, BTreeMap<u32, StageSeconds>>,
}

impl StageTable {
    /// The published profiles, under the names of Muri's traces.
    pub fn from_published() -> Self {
        let mut table = Self::default();
        for (model, rows) in PUBLISHED {
            for (gpus, (cpu, gpu, network)) in PROFILED_GPUS.into_iter().zip(rows) {
                table.insert(model, gpus, [0.0, cpu / 1e3, gpu / 1e3, network / 1e3]);
            }
        }
        table
    }

    /// These and `models`: their computation on the GPU, and twice their gradients (a ring
    /// all-reduce over many hosts) at `bytes_per_second` on the network.
    pub fn with_models(mut self, models: &ModelTable, bytes_per_second: f64) -> Self {
        for model in models.iter() {
            let network = 2.0 * model.gradient_bytes / bytes_per_second;
            self.insert(&model.name, 1, [0.0, 0.0, model.compute_seconds, 0.0]);
            self.insert(&model.name, 2, [0.0, 0.0, model.compute_seconds, network]);
        }
        self
    }

    /// Says the stages of a model on that many GPUs.
    pub fn insert(&mut self, model: &str, gpus: u32, stages: StageSeconds) {
        let rows = self.by_model.entry(model.to_owned()).or_default();
        rows.insert(gpus, stages);
    }

    /// The stages of a model on `gpus` GPUs or the next smaller number known; an unknown
    /// knows keeps its GPUs busy all the time.
    pub fn stage_seconds(&self, model: Option<&str>, gpus: u32) -> StageSeconds {
        let rows = model.and_then(|model| self.by_model.get(model));
        let row = rows.and_then(|rows| rows.range(..=gpus).next_back());
        row.map_or([0.0, 0.0, 1.0, 0.0], |(_, stages)| *stages)
    }
}
