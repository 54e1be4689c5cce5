//! The UDP source port of a RoCEv2 connection, from the numbers of its queue pairs.
//!
//! A host that sets no flow label, as NCCL does not, leaves the choice to its driver. Drivers of
//! real NICs hash both queue pair numbers (`rdma_calc_flow_label` and
//! `rdma_flow_label_to_udp_sport` of `include/rdma/ib_verbs.h` in Linux: `mlx5`, `irdma`, `mana`,
//! `ionic`); Soft RoCE hashes its own number only (`drivers/infiniband/sw/rxe/rxe_qp.c`, with
//! `hash_32` of `include/linux/hash.h`). The decision: a driver that neither list names has no
//! formula, because a wrong port is worse than none.

use serde::Serialize;

/// The lowest port of RoCEv2, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`; ports are 14 bits above it.
pub const MIN_SOURCE_PORT: u16 = 0xC000;
const PORT_BITS: u32 = 14;
const FLOW_LABEL_BITS: u32 = 20;
/// Multiplier of Linux' `hash_32`, 2^32 divided by the golden ratio.
const GOLDEN_RATIO_32: u32 = 0x61C8_8647;

/// How a driver derives the source port from queue pair numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourcePortFormula {
    /// From the flow label of both numbers.
    BothNumbers,
    /// From the sender's number alone (`rdma_rxe`).
    LocalNumber,
}

impl SourcePortFormula {
    /// The formula of a kernel driver, by the name that sysfs has for it (`ice` is the driver of
    /// the device behind `irdma`).
    pub fn of_driver(driver: &str) -> Option<Self> {
        match driver {
            "mlx5_core" | "irdma" | "ice" | "mana" | "ionic" => Some(Self::BothNumbers),
            "rdma_rxe" => Some(Self::LocalNumber),
            _ => None,
        }
    }

    /// The port that the owner of the queue pair `local` sends from.
    pub fn source_port(self, local: u32, remote: u32) -> u16 {
        match self {
            Self::BothNumbers => port_of_flow_label(flow_label(local, remote)),
            Self::LocalNumber => MIN_SOURCE_PORT | hash_32(local, PORT_BITS) as u16,
        }
    }
}

/// The IPv6 flow label of a connection between two queue pairs, 20 bits.
pub fn flow_label(local: u32, remote: u32) -> u32 {
    let product = u64::from(local) * u64::from(remote);
    let folded = product ^ (product >> 20);
    let folded = folded ^ (folded >> 40);
    folded as u32 & ((1 << FLOW_LABEL_BITS) - 1)
}

/// The port that stands for a flow label: its upper six bits are folded into the lower 14.
pub fn port_of_flow_label(label: u32) -> u16 {
    let low = label & ((1 << PORT_BITS) - 1);
    let high = (label >> PORT_BITS) & ((1 << (FLOW_LABEL_BITS - PORT_BITS)) - 1);
    MIN_SOURCE_PORT | (low ^ high) as u16
}

fn hash_32(value: u32, bits: u32) -> u32 {
    value.wrapping_mul(GOLDEN_RATIO_32) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computed apart, with integers of any size: `python3 -c` of the formulas in the module doc.
    #[test]
    fn ports_are_those_of_the_kernel_formulas() {
        let both = |local, remote| SourcePortFormula::BothNumbers.source_port(local, remote);
        let local = |number| SourcePortFormula::LocalNumber.source_port(number, 1);
        assert_eq!(BOTH.map(|(one, other, _)| both(one, other)), BOTH.map(|(.., port)| port));
        assert_eq!(LOCAL.map(|(number, _)| local(number)), LOCAL.map(|(_, port)| port));
    }

    const BOTH: [(u32, u32, u16); 5] = [
        (0, 0, 49152),
        (0x11, 0x12, 49458),
        (0x012a, 0x0357, 58185),
        (0xff_ffff, 0xff_ffff, 65313),
        (0x00_8c31, 0x00_a5f2, 57084),
    ];
    const LOCAL: [(u32, u16); 4] =
        [(0x11, 57236), (0x12, 63494), (0x2a3, 62702), (0xff_ffff, 63821)];

    #[test]
    fn only_drivers_with_a_known_formula_have_one() {
        assert_eq!(SourcePortFormula::of_driver("mlx5_core"), Some(SourcePortFormula::BothNumbers));
        assert_eq!(SourcePortFormula::of_driver("rdma_rxe"), Some(SourcePortFormula::LocalNumber));
        assert_eq!(SourcePortFormula::of_driver("siw"), None);
    }

    proptest! {
        /// Queue pair numbers have 24 bits; both ends of a connection send from one port, and no
        /// port is outside of the range that RoCEv2 reserves.
        #[test]
        fn ports_are_symmetric_and_in_range(a in 0_u32..1 << 24, b in 0_u32..1 << 24) {
            let formula = SourcePortFormula::BothNumbers;
            prop_assert_eq!(formula.source_port(a, b), formula.source_port(b, a));
            prop_assert!(formula.source_port(a, b) >= MIN_SOURCE_PORT);
            prop_assert!(SourcePortFormula::LocalNumber.source_port(a, b) >= MIN_SOURCE_PORT);
            prop_assert!(flow_label(a, b) < 1 << FLOW_LABEL_BITS);
            prop_assert_eq!(port_of_flow_label(flow_label(a, b)), formula.source_port(a, b));
        }

        /// Consecutive numbers of Soft RoCE spread over the range: what multiplication by the
        /// golden ratio is for.
        #[test]
        fn consecutive_local_numbers_do_not_collide(first in 0_u32..(1 << 24) - 64) {
            let ports: std::collections::BTreeSet<u16> = (first..first + 64)
                .map(|number| SourcePortFormula::LocalNumber.source_port(number, 0))
                .collect();
            prop_assert_eq!(ports.len(), 64);
        }
    }
}
