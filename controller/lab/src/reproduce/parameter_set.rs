//! The one set of parameters for what the Crux paper withholds: how much jobs send, over how many
//! connections, how fast uplinks are, and how placement fragments.
//!
//! [`super::calibrate`] searches it against what the paper does publish of its cluster, Fig. 6 and
//! §2.2. All figures of the Crux paper but 7, 16, 21 and 22 use the set that was found
//! ([`ParameterSet::CALIBRATED`]).

use placement::queue::JobFragmentation;
use placement::{ModelTable, TrainingModel};
use topology::{Fabric, examples};

use crate::demo::CALIBRATED;
use crate::demo::scenario::{AllReduceVolumes, TrainedModel};
use command_io::CommandError;

/// What the paper withholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ParameterSet {
    /// Factor on the volumes that were fitted to §2.2 on the emulated network.
    pub(super) volume: f64,
    /// Speed of an uplink of the Clos in Gb/s, where NICs have 200.
    pub(super) uplink_gbps: f64,
    /// Connections of each ring on every NIC.
    pub(super) connections: u16,
    /// Which jobs placement scatters.
    pub(super) fragmentation: JobFragmentation,
}

impl ParameterSet {
    /// What `crux reproduce calibrate` finds.
    pub(super) const CALIBRATED: Self = Self {
        volume: 0.9,
        uplink_gbps: 400.0,
        connections: 8,
        fragmentation: JobFragmentation::CALIBRATED,
    };

    /// How rows are headed that have this set: by what differs from the calibrated one.
    pub(super) fn label(self) -> String {
        let known = Self::CALIBRATED;
        let mut differences = Vec::new();
        if (self.volume - known.volume).abs() > 0.0 {
            differences.push(format!("volume x {:.0}", self.volume / known.volume));
        }
        if (self.uplink_gbps - known.uplink_gbps).abs() > 0.0 {
            differences.push(format!("uplinks of {} Gb/s", self.uplink_gbps));
        }
        if self.connections != known.connections {
            differences.push(format!("{} connections", self.connections));
        }
        if self.fragmentation != known.fragmentation {
            let JobFragmentation { share, gpus_per_host } = self.fragmentation;
            differences.push(format!("{:.0} % scattered by {gpus_per_host}", share * 100.0));
        }
        match &differences[..] {
            [] => "calibrated".to_owned(),
            some => format!("calibrated but {}", some.join(", ")),
        }
    }

    /// Bytes of the all-reduces of the GPT and of the BERT.
    pub(super) fn volumes(self) -> AllReduceVolumes {
        CALIBRATED.scaled_by(self.volume)
    }

    /// The built-in models with the volumes of this set: the GPT's and the BERT's are fitted, all
    /// others send as many times their gradients as the BERT does.
    pub(super) fn model_table(self) -> Result<ModelTable, CommandError> {
        let mut models = ModelTable::built_in();
        let sent = |model: TrainedModel| {
            let gradients = model.find_profile()?.gradient_bytes.unwrap_or(1.0);
            Ok::<f64, CommandError>(self.volumes().volume_of(model)? / gradients)
        };
        let (gpt, others) = (sent(TrainedModel::Gpt)?, sent(TrainedModel::Bert)?);
        let scaled: Vec<TrainingModel> = models
            .iter()
            .map(|model| {
                let is_gpt = model.name == TrainedModel::Gpt.profile_name();
                let factor = if is_gpt { gpt } else { others };
                TrainingModel { gradient_bytes: model.gradient_bytes * factor, ..model.clone() }
            })
            .collect();
        scaled.into_iter().for_each(|model| models.replace_model(model));
        Ok(models)
    }

    /// An example fabric of two tiers with uplinks of this speed; links between switches of three
    /// tiers are faster by the same factor.
    pub(super) fn example_fabric(self, name: &str) -> Result<Fabric, CommandError> {
        let mut document = examples::example_document(name).map_err(CommandError::document)?;
        match document.clos.as_mut() {
            Some(clos) if clos.cores == 0 => clos.uplink_gbps = self.uplink_gbps,
            Some(clos) => {
                let factor = self.uplink_gbps / Self::CALIBRATED.uplink_gbps;
                clos.uplink_gbps *= factor;
                clos.core_gbps = clos.core_gbps.map(|gbps| gbps * factor);
            }
            None => {}
        }
        Fabric::try_from(&document).map_err(CommandError::document)
    }
}

#[cfg(test)]
mod tests {
    use topology::FabricNode;

    use super::*;

    #[test]
    fn links_between_switches_of_three_tiers_are_faster_by_the_factor_of_uplinks() {
        let total_gbps = |uplink_gbps| {
            let set = ParameterSet { uplink_gbps, ..ParameterSet::CALIBRATED };
            let fabric = set.example_fabric("crux-double-sided").unwrap();
            let between_switches = fabric.links().iter().filter(|link| {
                [link.from, link.to].iter().all(|end| matches!(end.node, FabricNode::Switch(_)))
            });
            between_switches.map(|link| link.bandwidth.gbps()).sum::<f64>()
        };
        let as_in_the_document = total_gbps(ParameterSet::CALIBRATED.uplink_gbps);
        assert!(as_in_the_document > 0.0);
        assert!((total_gbps(1_600.0) / as_in_the_document - 4.0).abs() < 1e-9);
    }
}
