//! A mix of models, by the size of the job.

use rand::Rng;

use crate::trace::TraceJob;

/// Which models jobs train, with weights, by size.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelMix {
    /// From this many GPUs on, these models with these weights; ascending, the first from 1.
    size_bands: Vec<(u32, Vec<(String, f64)>)>,
}

/// The assumed mix: small jobs train image models, middle ones anything, large ones language
/// models, as Crux §6.3 describes the cluster (no shares are published).
const BY_SIZE: [(u32, &[(&str, f64)]); 3] = [
    (1, &[("resnet50/A100", 0.5), ("vit-large/A100", 0.2), ("roberta-large/A100", 0.3)]),
    (
        8,
        &[
            ("resnet50/A100", 0.25),
            ("vit-large/A100", 0.15),
            ("bert-large-seq512/A100", 0.35),
            ("roberta-large/A100", 0.25),
        ],
    ),
    (64, &[("gpt-24l/A100", 0.6), ("bert-large-seq512/A100", 0.25), ("vit-large/A100", 0.15)]),
];

impl ModelMix {
    /// The assumed mix: models by the size of jobs.
    pub fn by_size() -> Self {
        Self {
            size_bands: BY_SIZE
                .iter()
                .map(|(from, models)| {
                    (
                        *from,
                        models.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
                    )
                })
                .collect(),
        }
    }

    /// Models with equal weights for every size; none if there are no names.
    pub fn with_equal_weights<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let models = names.into_iter().map(|name| (name.to_owned(), 1.0));
        Self { size_bands: vec![(1, models.collect())] }
    }

    /// A model for a job of `gpus` GPUs.
    pub fn draw_model(&self, gpus: u32, random: &mut impl Rng) -> Option<String> {
        let class = self.size_bands.partition_point(|(from, _)| *from <= gpus);
        let (_, models) = self.size_bands.get(class.saturating_sub(1))?;
        let sum: f64 = models.iter().map(|(_, weight)| weight).sum();
        let mut ticket = random.random_range(0.0..1.0) * sum;
        let drawn = models.iter().find(|(_, weight)| {
            ticket -= weight;
            ticket < 0.0
        });
        // Rounding may leave a ticket just above the last weight.
        drawn.or(models.last()).map(|(name, _)| name.clone())
    }

    /// Draws the models of all jobs again, as is due where their names were random.
    pub fn redraw_models(&self, jobs: &mut [TraceJob], random: &mut impl Rng) {
        for job in jobs {
            job.model = self.draw_model(job.gpus, random);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use placement::ModelTable;

    #[test]
    fn shares_are_the_weights_of_the_size() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mix = ModelMix::by_size();
        let drawn: Vec<_> =
            (0..10_000).map(|_| mix.draw_model(128, &mut random).unwrap()).collect();
        let gpt = drawn.iter().filter(|name| *name == "gpt-24l/A100").count();
        assert!((5_800..6_200).contains(&gpt), "{gpt}");
        assert_eq!(ModelMix::with_equal_weights([]).draw_model(8, &mut random), None);
    }

    #[test]
    fn every_model_of_the_mix_is_known() {
        let models = ModelTable::built_in();
        for (_, class) in ModelMix::by_size().size_bands {
            for (name, _) in class {
                assert!(models.by_name(&name).is_some(), "{name}");
            }
        }
    }
}
