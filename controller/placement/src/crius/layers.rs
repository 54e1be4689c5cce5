//! Models as sequences of layers: what each layer computes, stores and passes on (Crius).
//!
//! The three families of the evaluation are built from their architectures, with the dimensions of
//! sjtu-epcc/arena (branch ae-eurosys, runtime/crius_worker/jax/configs.py). Operators are gathered
//! into 16 layers as there, so that all cuts can be enumerated. A model name is an architecture and
//! a batch size, as in `moe-1.3B/256`.

/// Layers of about equal FLOP into which the operators of a transformer are gathered.
const TRANSFORMER_LAYERS: f64 = 16.0;

/// Tokens of a sample.
const SEQUENCE: f64 = 1024.0;

/// Tokens that are sent to experts as one group; what dispatch costs grows with it.
const EXPERT_GROUP: f64 = 2048.0;

/// A part of a model that is never cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelLayer {
    /// FLOP of the forward pass of one sample.
    pub flop: f64,
    /// How long its kernels take for a FLOP, in units of the other layers of its family.
    pub slowness: f64,
    /// Bytes of parameters.
    pub parameter_bytes: f64,
    /// Bytes of those parameters that belong to experts, which GPUs can share.
    pub expert_bytes: f64,
    /// Bytes that its operators put out for one sample: what tensor parallelism reduces.
    pub output_bytes: f64,
    /// In how many operations these are reduced.
    pub reductions: f64,
    /// Bytes that the next layer reads of one sample.
    pub boundary_bytes: f64,
}

/// What a model is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelFamily {
    /// Dense transformer blocks, half precision.
    Bert,
    /// Transformer blocks with experts, half precision.
    Experts,
    /// Convolutions, single precision.
    WideResnet,
}

/// A model and how many samples an iteration has.
#[derive(Clone, Debug, PartialEq)]
pub struct LayeredModel {
    /// What it is made of.
    pub family: ModelFamily,
    /// Its layers, from input to output.
    pub layers: Vec<ModelLayer>,
    /// Samples of an iteration, over all GPUs.
    pub batch: u32,
    /// What a GPU holds for each byte of its parameters.
    pub states: StateFactors,
}

/// What a GPU holds for each byte of its parameters: the parameter, its gradient and its optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateFactors {
    /// On every copy.
    pub copied: f64,
    /// Divided among the copies.
    pub divided: f64,
}

impl StateFactors {
    /// For each byte of parameters on one of so many copies.
    pub fn on_each(&self, copies: u32) -> f64 {
        self.copied + self.divided / f64::from(copies)
    }
}

/// What a family holds, from the measured memory of data parallelism on 2 to 16 GPUs
/// (`throughput/data_parallel.csv`), which is linear in the samples and in `1 / copies`. In half
/// precision parameter and gradient are 6 bytes for each 2, and the optimiser is divided.
fn state_factors(family: ModelFamily) -> StateFactors {
    let (copied, divided) = match family {
        ModelFamily::Bert => (3.0, 6.0),
        ModelFamily::Experts => (3.0, 1.8),
        ModelFamily::WideResnet => (3.1, 0.0),
    };
    StateFactors { copied, divided }
}

/// Dimensions of dense transformers: name, hidden size, blocks.
const BERT: [(&str, f64, u32); 5] = [
    ("760M", 1536.0, 24),
    ("1.3B", 2048.0, 24),
    ("2.6B", 2560.0, 32),
    ("6.7B", 4096.0, 32),
    ("15B", 5120.0, 48),
];

/// Dimensions of transformers with experts: name, hidden size, blocks, experts.
const EXPERTS: [(&str, f64, u32, f64); 5] = [
    ("690M", 768.0, 8, 16.0),
    ("1.3B", 768.0, 16, 16.0),
    ("2.4B", 1024.0, 16, 16.0),
    ("10B", 1536.0, 16, 32.0),
    ("27B", 2048.0, 16, 48.0),
];

/// Dimensions of wide residual networks of 50 layers: name, channels, width.
const WIDE_RESNET: [(&str, f64, f64); 5] = [
    ("500M", 224.0, 2.0),
    ("1B", 320.0, 2.0),
    ("2B", 448.0, 2.0),
    ("4B", 640.0, 2.0),
    ("6.8B", 320.0, 16.0),
];

impl LayeredModel {
    /// The model of that name; none if there is no such architecture or the batch is not a number.
    pub fn by_name(name: &str) -> Option<Self> {
        let (architecture, batch) = name.split_once('/')?;
        let (family, size) = architecture.rsplit_once('-')?;
        let batch: u32 = batch.parse().ok().filter(|batch| *batch > 0)?;
        let (family, layers) = match family {
            "bert" => {
                let (_, hidden, blocks) = BERT.into_iter().find(|(name, ..)| *name == size)?;
                (ModelFamily::Bert, transformer_layers(hidden, blocks, dense_block(hidden)))
            }
            "moe" => {
                let mut sizes = EXPERTS.into_iter();
                let (_, hidden, blocks, count) = sizes.find(|(name, ..)| *name == size)?;
                let block = expert_block(hidden, count);
                (ModelFamily::Experts, transformer_layers(hidden, blocks, block))
            }
            "wide-resnet" => {
                let mut sizes = WIDE_RESNET.into_iter();
                let (_, channels, width) = sizes.find(|(name, ..)| *name == size)?;
                (ModelFamily::WideResnet, wide_resnet_layers(channels, width))
            }
            _ => return None,
        };
        Some(Self { family, layers, batch, states: state_factors(family) })
    }
}

/// Values of 2 bytes: half precision.
const HALF_BYTES: f64 = 2.0;

/// Values of 4 bytes: single precision.
const SINGLE_BYTES: f64 = 4.0;

/// A block of attention and a dense feed-forward net: `12 h^2` parameters, each used by every token
/// for a multiplication and an addition, and `4 s^2 h` FLOP of attention. Attention and net each
/// put out `s h` values that tensor parallelism must reduce.
fn dense_block(hidden: f64) -> ModelLayer {
    let parameters = 12.0 * hidden * hidden;
    ModelLayer {
        flop: 2.0 * SEQUENCE * parameters + 4.0 * SEQUENCE * SEQUENCE * hidden,
        slowness: 1.0,
        parameter_bytes: HALF_BYTES * parameters,
        expert_bytes: 0.0,
        output_bytes: HALF_BYTES * 2.0 * SEQUENCE * hidden,
        reductions: 2.0,
        boundary_bytes: HALF_BYTES * SEQUENCE * hidden,
    }
}

/// A block whose net is one of many: `4 h^2` parameters of attention and `8 h^2` of each expert, of
/// which every token visits two. Dispatch and combination multiply every token with a mask of
/// its group.
fn expert_block(hidden: f64, experts: f64) -> ModelLayer {
    let (attention, expert) = (4.0 * hidden * hidden, 8.0 * hidden * hidden);
    let visited = attention + 2.0 * expert;
    let masks = 2.0 * 2.0 * 2.0 * EXPERT_GROUP * hidden;
    ModelLayer {
        flop: SEQUENCE * (2.0 * visited + masks) + 4.0 * SEQUENCE * SEQUENCE * hidden,
        parameter_bytes: HALF_BYTES * (attention + experts * expert),
        expert_bytes: HALF_BYTES * experts * expert,
        ..dense_block(hidden)
    }
}

/// So many equal blocks, and the prediction of a token of the vocabulary, in equal layers:
/// operators are fine enough that cuts fall within blocks.
fn transformer_layers(hidden: f64, blocks: u32, block: ModelLayer) -> Vec<ModelLayer> {
    let each = f64::from(blocks) / TRANSFORMER_LAYERS;
    let prediction = VOCABULARY * hidden / TRANSFORMER_LAYERS;
    let layer = ModelLayer {
        flop: each * block.flop + 2.0 * SEQUENCE * prediction,
        parameter_bytes: each * block.parameter_bytes + HALF_BYTES * prediction,
        expert_bytes: each * block.expert_bytes,
        output_bytes: each * block.output_bytes,
        reductions: each * block.reductions,
        ..block
    };
    vec![layer; TRANSFORMER_LAYERS as usize]
}

/// Words of the vocabulary.
const VOCABULARY: f64 = 51_200.0;

/// Resolutions of a residual network of 50 layers: its blocks, the side of its images, and the
/// slowness of its kernels. The published timings of pipelines of 2, 4, 8 and 16 stages on one GPU
/// have 61, 40, 20 and 11 % of the time in their first stages, which have an equal share of the
/// FLOP.
const RESOLUTIONS: [(u32, f64, f64); 4] =
    [(3, 56.0, 2.15), (4, 28.0, 1.0), (6, 14.0, 1.0), (3, 7.0, 1.0)];

/// The sixteen bottleneck blocks; stem and classifier are a hundredth of them and left out.
fn wide_resnet_layers(channels: f64, width: f64) -> Vec<ModelLayer> {
    let mut layers = Vec::new();
    let mut inside = channels;
    for (number, (blocks, side, slowness)) in RESOLUTIONS.into_iter().enumerate() {
        let filters = channels * f64::from(1_u32 << number);
        for _ in 0..blocks {
            let block = bottleneck_block(inside, filters, width, side);
            layers.push(ModelLayer { slowness, ..block });
            inside = 4.0 * filters;
        }
    }
    layers
}

/// Convolutions 1x1, 3x3 (the wide one) and 1x1, on images of `side` by `side`; one that changes
/// the number of channels projects its input as well.
fn bottleneck_block(inside: f64, filters: f64, width: f64, side: f64) -> ModelLayer {
    let (wide, outside) = (filters * width, 4.0 * filters);
    let projection = if inside == outside { 0.0 } else { inside * outside };
    let parameters = inside * filters + 9.0 * filters * wide + wide * outside + projection;
    let pixels = side * side;
    ModelLayer {
        flop: 2.0 * pixels * parameters,
        slowness: 1.0,
        parameter_bytes: SINGLE_BYTES * parameters,
        expert_bytes: 0.0,
        output_bytes: SINGLE_BYTES * pixels * (filters + wide + outside),
        reductions: 3.0,
        boundary_bytes: SINGLE_BYTES * pixels * outside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters as the name says them, within a tenth.
    #[test]
    fn models_have_the_parameters_of_their_names() {
        for (name, parameters) in [
            ("bert-760M/128", 760e6),
            ("bert-2.6B/128", 2.6e9),
            ("bert-6.7B/128", 6.7e9),
            ("moe-690M/256", 690e6),
            ("moe-2.4B/256", 2.4e9),
            ("moe-10B/256", 10e9),
            ("wide-resnet-500M/256", 500e6),
            ("wide-resnet-4B/256", 4e9),
            ("wide-resnet-6.8B/256", 6.8e9),
        ] {
            let model = LayeredModel::by_name(name).unwrap();
            let value =
                if model.family == ModelFamily::WideResnet { SINGLE_BYTES } else { HALF_BYTES };
            let bytes: f64 = model.layers.iter().map(|layer| layer.parameter_bytes).sum();
            let error = bytes / value / parameters - 1.0;
            assert!(error.abs() < 0.1, "{name}: {error}");
        }
    }

    #[test]
    fn other_names_are_no_models() {
        for name in ["bert", "bert-760M", "bert-760M/0", "bert-1B/128", "gpt-1B/128"] {
            assert_eq!(LayeredModel::by_name(name), None, "{name}");
        }
    }
}
