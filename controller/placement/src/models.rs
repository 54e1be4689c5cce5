//! Models: what one iteration computes and sends on one kind of GPU, built in or the user's own.
//!
//! The built-in table is the planner's profiles and `models.toml` beside this file, which says the
//! source of every figure. A user's table has the same fields and may replace built-in names. A
//! model becomes a job document; flows and their bytes are the planner's business.

use std::collections::BTreeMap;

use planner::{CollectiveDocument, CollectiveKind, JobDocument, builtin_profiles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Fabric;

use crate::GpusByHost;

/// How a model is divided over the hosts of its job.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ModelParallelism {
    /// Every host has all of it; gradients are reduced in a ring.
    #[default]
    Data,
    /// Hosts are stages in a row; activations go one way, their gradients back.
    Pipeline,
    /// Hosts have different experts; activations go from all to all.
    Experts,
}

/// One iteration of a model on one kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainingModel {
    /// Name, as `bert-large/A100`.
    pub name: String,
    /// The model, for people.
    pub model: String,
    /// FLOP of one iteration on one GPU.
    pub flop_per_gpu: f64,
    /// Seconds of computation in one iteration.
    pub compute_seconds: f64,
    /// Fraction of the computation after which communication may begin.
    pub overlap_from: f64,
    /// Bytes of gradients: the volume of a data-parallel all-reduce.
    pub gradient_bytes: f64,
    /// Bytes of activations between two layers, where it may be divided there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_bytes: Option<f64>,
    /// How it is divided over hosts.
    #[serde(default)]
    pub parallelism: ModelParallelism,
    /// Which figures are published, and where.
    pub published: String,
    /// Which figures are derived or assumed, and how.
    pub derived: String,
}

/// Why a table of models is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelTableError {
    /// It is no TOML, or has a field that models do not have.
    #[error("{file}: {problem}")]
    Syntax {
        /// How the table is called.
        file: String,
        /// What the parser says, with the line.
        problem: String,
    },
    /// A number makes no sense.
    #[error("{file}: model {name}: {field}: {problem}")]
    Field {
        /// How the table is called.
        file: String,
        /// Name of the model.
        name: String,
        /// Name of the invalid field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// The models of jobs, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTable {
    by_name: BTreeMap<String, TrainingModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsDocument {
    #[serde(default)]
    model: Vec<TrainingModel>,
}

impl ModelTable {
    /// The planner's profiles and the table beside this file.
    pub fn built_in() -> Self {
        let of_planner = builtin_profiles().iter().filter_map(|profile| {
            Some(TrainingModel {
                name: profile.name.clone(),
                model: profile.model.clone(),
                flop_per_gpu: profile.flop_per_gpu,
                compute_seconds: profile.compute_seconds,
                overlap_from: profile.overlap_from,
                gradient_bytes: profile.gradient_bytes?,
                activation_bytes: None,
                parallelism: ModelParallelism::Data,
                published: profile.published.clone(),
                derived: profile.derived.clone(),
            })
        });
        let by_name = of_planner.map(|model| (model.name.clone(), model)).collect();
        Self { by_name }
            .with_table(include_str!("models.toml"), "models.toml")
            .expect("the built-in table is valid; a test reads it")
    }

    /// These and those of a TOML table of `[[model]]`, which replace models of the same name.
    ///
    /// # Errors
    /// The table is no such TOML, or a number in it makes no sense; `file` is how errors call it.
    pub fn with_table(mut self, text: &str, file: &str) -> Result<Self, ModelTableError> {
        let table: ModelsDocument = toml::from_str(text).map_err(|error| {
            ModelTableError::Syntax { file: file.to_owned(), problem: error.to_string() }
        })?;
        for model in table.model {
            model.check_fields(file)?;
            self.by_name.insert(model.name.clone(), model);
        }
        Ok(self)
    }

    /// Adds a model, or replaces the one of its name.
    pub fn replace_model(&mut self, model: TrainingModel) {
        self.by_name.insert(model.name.clone(), model);
    }

    /// The model of that name.
    pub fn by_name(&self, name: &str) -> Option<&TrainingModel> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &TrainingModel> {
        self.by_name.values()
    }
}

/// Beyond this any figure of a model has a mistaken unit.
const MAX: f64 = 1e18;

impl TrainingModel {
    fn check_fields(&self, file: &str) -> Result<(), ModelTableError> {
        let fields = [
            ("flop_per_gpu", self.flop_per_gpu, MAX),
            ("compute_seconds", self.compute_seconds, 1e6),
            ("overlap_from", self.overlap_from, 1.0),
            ("gradient_bytes", self.gradient_bytes, MAX),
            ("activation_bytes", self.activation_bytes.unwrap_or(0.0), MAX),
        ];
        let error = |field, problem| ModelTableError::Field {
            file: file.to_owned(),
            name: self.name.clone(),
            field,
            problem,
        };
        for (field, value, highest) in fields {
            if !(0.0..=highest).contains(&value) {
                let problem = format!("{value} is not a number from 0 to {highest}");
                return Err(error(field, problem));
            }
        }
        if self.flop_per_gpu <= 0.0 {
            return Err(error("flop_per_gpu", "0 FLOP is no work".to_owned()));
        }
        if self.parallelism != ModelParallelism::Data && self.activation_bytes.is_none() {
            let problem = "missing, and the model is divided between layers".to_owned();
            return Err(error("activation_bytes", problem));
        }
        Ok(())
    }

    /// What its hosts exchange in one iteration, over so many channels.
    fn collective_document(&self, channels: u32) -> CollectiveDocument {
        let activations = self.activation_bytes.unwrap_or(0.0);
        let (kind, bytes) = match self.parallelism {
            ModelParallelism::Data => (CollectiveKind::RingAllReduce, self.gradient_bytes),
            ModelParallelism::Pipeline => (CollectiveKind::Pipeline, activations),
            ModelParallelism::Experts => (CollectiveKind::AllToAll, activations),
        };
        CollectiveDocument {
            bytes: Some(bytes),
            channels: Some(channels),
            ..CollectiveDocument::new(kind)
        }
    }

    /// A job `id` that trains this model on `gpus` of `fabric`, with a ring for each NIC of a host.
    pub fn job_document(&self, id: &str, gpus: &GpusByHost, fabric: &Fabric) -> JobDocument {
        let count = f64::from(gpus.values().sum::<u32>());
        let nics = gpus.keys().map(|host| fabric.host(*host).nics.len());
        let channels = u32::try_from(nics.min().unwrap_or(1)).unwrap_or(1).max(1);
        JobDocument {
            id: id.to_owned(),
            model: Some(self.model.clone()),
            gpus: gpus
                .iter()
                .map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus))
                .collect(),
            flop_per_iteration: Some(self.flop_per_gpu * count),
            compute_seconds: Some(self.compute_seconds),
            overlap_from: Some(self.overlap_from),
            collective: Some(self.collective_document(channels)),
            ..JobDocument::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use planner::JobsDocument;
    use topology::clos::{self, ClosSpec};

    use super::*;

    #[test]
    fn the_table_is_plausible_and_names_its_sources() {
        let models = ModelTable::built_in();
        assert!(models.iter().count() >= 18);
        for model in models.iter() {
            let rate = model.flop_per_gpu / model.compute_seconds;
            // A V100 has a peak of 125e12 FLOP/s with tensor cores, an A100 of 312e12.
            let peak = if model.name.ends_with("/V100") { 125e12 } else { 312e12 };
            assert!((1e12..peak).contains(&rate), "{}: {rate:e} FLOP/s", model.name);
            assert!(!model.published.is_empty() && !model.derived.is_empty());
        }
    }

    /// Bytes that the first of 16 hosts sends in an iteration with `gradient_bytes`.
    fn wire_bytes(gradient_bytes: f64) -> f64 {
        let spec = ClosSpec { hosts_per_leaf: 4, ..ClosSpec::default() };
        let fabric = clos::build_clos("lab", &spec).unwrap();
        let gpus: GpusByHost = (0..16).map(|host| (topology::HostId(host), 1)).collect();
        let model = TrainingModel {
            gradient_bytes,
            ..ModelTable::built_in().by_name("resnet50/A100").unwrap().clone()
        };
        let jobs = JobsDocument { jobs: vec![model.job_document("a", &gpus, &fabric)] };
        jobs.resolve_jobs(&fabric, "jobs").unwrap().jobs[0].flows[0].bytes
    }

    #[test]
    fn volumes_are_those_of_packet_captures() {
        // Bytes on the wire of one worker of 16 in one iteration, captured by Farhat et al., and
        // the gradients of the model at 4 bytes a parameter.
        let captures = [
            ("ResNet-50", 25.56e6, 191.887e6),
            ("VGG-19", 143.67e6, 1_077.557e6),
            ("DenseNet-121", 7.98e6, 59.869e6),
            ("Inception-v3", 23.83e6, 178.646e6),
            ("MobileNet", 4.23e6, 31.700e6),
        ];
        for (model, parameters, captured) in captures {
            let error = wire_bytes(4.0 * parameters) / captured - 1.0;
            assert!(error.abs() < 0.0013, "{model}: {error}");
        }
    }

    #[test]
    fn a_users_table_adds_replaces_and_is_checked() {
        let row = |more: &str| {
            format!(
                "[[model]]\nname = \"own/H100\"\nmodel = \"own\"\nflop_per_gpu = 1e14\n\
                 compute_seconds = 0.5\noverlap_from = 0.5\ngradient_bytes = 1e9\n\
                 published = \"us\"\nderived = \"none\"\n{more}"
            )
        };
        let models = ModelTable::built_in().with_table(&row(""), "own.toml").unwrap();
        assert_eq!(models.by_name("own/H100").unwrap().parallelism, ModelParallelism::Data);
        let refused = |more| {
            let error = ModelTable::built_in().with_table(&row(more), "own.toml");
            error.unwrap_err().to_string()
        };
        assert!(refused("volume = 1").starts_with("own.toml: TOML parse error at line 10"));
        let divided = "own.toml: model own/H100: activation_bytes: missing, and the model is \
            divided between layers";
        assert_eq!(refused("parallelism = \"pipeline\""), divided);
        assert!(refused("activation_bytes = -1").contains("-1 is not a number from 0 to"));
    }
}
