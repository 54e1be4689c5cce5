//! The UDP source port of a RoCEv2 connection, from the numbers of its queue pairs.
//!
//! A host that sets no flow label, as NCCL does not, leaves the choice to its driver. Drivers of
//! real NICs (`mlx5`, `irdma`, `mana`, `ionic`) and Soft RoCE (`rdma_rxe`, since Linux 5.18) hash
//! the queue pair numbers of both ends (`rdma_calc_flow_label` and `rdma_flow_label_to_udp_sport`
//! of `include/rdma/ib_verbs.h` in Linux). The decision: a driver that is not among these has no
//! formula, because a wrong port is worse than none.

/// The lowest port of RoCEv2, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`; ports are 14 bits above it.
pub const MIN_SOURCE_PORT: u16 = 0xC000;
const PORT_BITS: u32 = 14;
const FLOW_LABEL_BITS: u32 = 20;
/// Whether a kernel driver derives the port from the queue pair numbers of both ends, by the name
/// that sysfs has for it (`ice` is the driver of the device behind `irdma`).
pub fn hashes_both_numbers(driver: &str) -> bool {
    matches!(driver, "mlx5_core" | "irdma" | "ice" | "mana" | "ionic" | "rdma_rxe")
}

/// The port that either end of a connection between two queue pairs sends from.
pub fn source_port(local: u32, remote: u32) -> u16 {
    port_of_flow_label(flow_label(local, remote))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computed apart, with integers of any size: `python3 -c` of the formulas in the module doc.
    #[test]
    fn ports_are_those_of_the_kernel_formulas() {
        assert_eq!(
            PORTS.map(|(one, other, _)| source_port(one, other)),
            PORTS.map(|(.., port)| port)
        );
    }

    const PORTS: [(u32, u32, u16); 5] = [
        (0, 0, 49152),
        (0x11, 0x12, 49458),
        (0x012a, 0x0357, 58185),
        (0xff_ffff, 0xff_ffff, 65313),
        (0x00_8c31, 0x00_a5f2, 57084),
    ];

    /// Captured from Soft RoCE of Linux 6.1 by `scripts/record-source-ports.py`: the numbers of
    /// both ends of 1,000 connections, and the port of their packets in each direction.
    #[test]
    fn ports_are_those_that_soft_roce_sends_from() {
        let recorded = include_str!("source_port/soft-roce-6.1.csv");
        let rows = recorded.lines().skip(1).map(|line| {
            let fields: Vec<u32> = line.split(',').map(|field| field.parse().unwrap()).collect();
            <[u32; 4]>::try_from(fields).unwrap()
        });
        let rows: Vec<[u32; 4]> = rows.collect();
        assert_eq!(rows.len(), 1_000);
        for [local, remote, sent, received] in rows {
            let port = u32::from(source_port(local, remote));
            assert_eq!([port; 2], [sent, received], "{local} and {remote}");
        }
    }

    #[test]
    fn only_drivers_with_a_known_formula_have_one() {
        assert!(hashes_both_numbers("mlx5_core") && hashes_both_numbers("rdma_rxe"));
        assert!(!hashes_both_numbers("siw"));
    }

    proptest! {
        /// Queue pair numbers have 24 bits; both ends of a connection send from one port, and no
        /// port is outside of the range that RoCEv2 reserves.
        #[test]
        fn ports_are_symmetric_and_in_range(a in 0_u32..1 << 24, b in 0_u32..1 << 24) {
            prop_assert_eq!(source_port(a, b), source_port(b, a));
            prop_assert!(source_port(a, b) >= MIN_SOURCE_PORT);
            prop_assert!(flow_label(a, b) < 1 << FLOW_LABEL_BITS);
        }
    }
}
