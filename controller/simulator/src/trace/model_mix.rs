//! A mix of models, by the size of the job.

use rand::Rng;

/// The assumed mix: small jobs train image models, middle ones anything, large ones language
/// models, as Crux §6.3 describes the cluster (no shares are published).
/// From so many GPUs on, these models with these weights.
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

/// A model for a job of `gpus` GPUs, by the assumed mix.
pub fn draw_model(gpus: u32, random: &mut impl Rng) -> String {
    let band = BY_SIZE.partition_point(|(from, _)| *from <= gpus).saturating_sub(1);
    let (_, models) = BY_SIZE[band];
    let sum: f64 = models.iter().map(|(_, weight)| weight).sum();
    let mut ticket = random.random_range(0.0..1.0) * sum;
    let drawn = models.iter().find(|(_, weight)| {
        ticket -= weight;
        ticket < 0.0
    });
    // Rounding may leave a ticket just above the last weight.
    drawn.unwrap_or(&models[models.len() - 1]).0.to_owned()
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
        let drawn: Vec<_> = (0..10_000).map(|_| draw_model(128, &mut random)).collect();
        let gpt = drawn.iter().filter(|name| *name == "gpt-24l/A100").count();
        assert!((5_800..6_200).contains(&gpt), "{gpt}");
    }

    #[test]
    fn every_model_of_the_mix_is_known() {
        let models = ModelTable::built_in();
        for (name, _) in BY_SIZE.iter().flat_map(|(_, band)| *band) {
            assert!(models.by_name(name).is_some(), "{name}");
        }
    }
}
