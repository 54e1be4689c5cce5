//! How the hashes of switches are related, which decides whether tiers choose independently.
//!
//! The decision: one place has what every baseline on hashed paths uses. Switches have hashes of
//! their own; [`SwitchHash::Independent`] stands for any that spread evenly. The others polarise: the
//! flows that meet on a spine have all been given the same choice by their leaf.

use std::fmt;
use std::str::FromStr;

/// What every switch makes of the CRC of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchHash {
    /// Folds its device id in and finishes as MurmurHash3 does (`fmix64`).
    #[default]
    Independent,
    /// The CRC with a seed of its own. CRC is linear, so the seed only changes the same bits for
    /// every flow: where numbers of next hops are powers of two, tiers choose alike.
    SameFunction,
    /// The CRC itself.
    SameFunctionAndSeed,
}

impl SwitchHash {
    /// The one that collides least comes first.
    pub const ALL: [Self; 3] = [Self::Independent, Self::SameFunction, Self::SameFunctionAndSeed];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::SameFunction => "same-function",
            Self::SameFunctionAndSeed => "same-function-and-seed",
        }
    }

    /// Which of `count` next hops a switch takes for a flow.
    pub fn choose(self, flow_hash: u32, device_id: u64, count: usize) -> usize {
        let hash = match self {
            Self::Independent => mix_device_id(flow_hash, device_id),
            Self::SameFunction => {
                u64::from(flow_hash) ^ u64::from(crc32fast::hash(&device_id.to_be_bytes()))
            }
            Self::SameFunctionAndSeed => u64::from(flow_hash),
        };
        let spread = hash % (count.max(1) as u64);
        usize::try_from(spread).unwrap_or(0)
    }
}

fn mix_device_id(flow_hash: u32, device_id: u64) -> u64 {
    // The device id goes to the upper half and the CRC to the lower, so that they cannot cancel.
    let mut hash = (device_id << 32) ^ (device_id >> 32) ^ u64::from(flow_hash);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

impl fmt::Display for SwitchHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No hash has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown hash `{0}`: use one of independent, same-function, same-function-and-seed")]
pub struct UnknownSwitchHash(pub String);

impl FromStr for SwitchHash {
    type Err = UnknownSwitchHash;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownSwitchHash(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each pair of choices of two switches comes.
    fn joint_choices(hash: SwitchHash) -> [[u32; 2]; 2] {
        let mut joint = [[0_u32; 2]; 2];
        for flow in 0..4096_u32 {
            let flow = crc32fast::hash(&flow.to_be_bytes());
            joint[hash.choose(flow, 1, 2)][hash.choose(flow, 2, 2)] += 1;
        }
        joint
    }

    #[test]
    fn choices_spread_evenly_and_independent_switches_choose_independently() {
        let joint = joint_choices(SwitchHash::Independent);
        for count in joint.iter().flatten() {
            assert!((924..1124).contains(count), "{joint:?}");
        }
    }

    #[test]
    fn alike_hashes_polarise() {
        for hash in [SwitchHash::SameFunction, SwitchHash::SameFunctionAndSeed] {
            for choices in joint_choices(hash) {
                assert_eq!(choices.iter().min(), Some(&0), "{hash}");
                assert!((1848..2248).contains(choices.iter().max().unwrap()), "{hash}");
            }
        }
    }

    #[test]
    fn names_are_read_back_and_listed_in_the_error() {
        for hash in SwitchHash::ALL {
            assert_eq!(hash.name().parse(), Ok(hash));
            assert!(UnknownSwitchHash("x".to_owned()).to_string().contains(hash.name()));
        }
    }
}
