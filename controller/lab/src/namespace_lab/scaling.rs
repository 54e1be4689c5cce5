//! How much a fabric and its jobs are slowed down, so that namespaces on a few cores carry them.
//!
//! Pure. Rates and sizes are divided by one factor and times multiplied by another: jobs share
//! links in the same proportions, and an iteration lasts `slower` times as long. Controller,
//! switches and hosts read the scaled documents. The decision: the factors follow from the fabric
//! and the processors, so that a document needs no change to be tried here.

use planner::Job;
use serde::{Deserialize, Serialize};
use topology::Fabric;
use topology::spec::FabricDocument;

/// Bits per second of all NICs together that a core forwards with time to spare: 8,000 packets of
/// 4,096 bytes cross two or three programs each.
const BITS_PER_CORE: f64 = 80e6;
/// The fastest link is never emulated faster than this, bits per second.
const FASTEST_LINK: f64 = 10e6;
/// Times are multiplied by this for links of [`FASTEST_LINK`], so that an iteration lasts hundreds
/// of times as long as a process waits for a core; and by more where links are slower.
const LEAST_SLOWER: f64 = 4.0;

/// Factors between documents and their emulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LabScale {
    /// Divides rates and sizes.
    pub(super) rate: f64,
    /// Multiplies times.
    pub(super) slower: f64,
}

impl LabScale {
    /// The factors for a fabric on a machine with so many cores.
    pub(super) fn for_machine(fabric: &Fabric, cores: usize) -> Self {
        let bits = |gbps: f64| gbps * 1e9;
        let fastest = fabric.links().iter().map(|link| bits(link.bandwidth.gbps()));
        let fastest = fastest.fold(0.0, f64::max);
        let nics = fabric.nics().iter().map(|nic| bits(fabric.link(nic.uplink).bandwidth.gbps()));
        let budget = BITS_PER_CORE * cores as f64;
        let rate = (fastest / FASTEST_LINK).max(nics.sum::<f64>() / budget).max(1.0);
        Self { rate, slower: (LEAST_SLOWER * rate * FASTEST_LINK / fastest).max(1.0) }
    }

    /// Scales the rates of links.
    pub(super) fn scale_fabric(self, document: &mut FabricDocument) {
        document.links.iter_mut().for_each(|link| link.gbps /= self.rate);
    }

    /// Scales computation and messages.
    pub(super) fn scale_jobs(self, jobs: &mut [Job]) {
        for job in jobs {
            job.compute_seconds *= self.slower;
            for flow in &mut job.flows {
                flow.bytes = (flow.bytes * self.slower / self.rate).round().max(1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;

    #[test]
    fn a_link_is_busy_for_the_same_share_of_an_iteration() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let scale = LabScale::for_machine(&fabric, 2);
        let link = fabric.links()[0].bandwidth.gbps() * 1e9;
        let bytes = 1e9;
        let share = |bytes: f64, rate: f64, seconds: f64| bytes * 8.0 / rate / seconds;
        let before = share(bytes, link, 1.0);
        let after = share(bytes * scale.slower / scale.rate, link / scale.rate, scale.slower);
        assert!((before - after).abs() < 1e-9 * before);
    }

    #[test]
    fn few_cores_make_links_slower_and_iterations_longer() {
        let many = ClosSpec { hosts_per_leaf: 40, ..ClosSpec::default() };
        let fabric = build_clos("many", &many).unwrap();
        let [one, eight] = [1, 8].map(|cores| LabScale::for_machine(&fabric, cores));
        assert!(one.rate > eight.rate && one.slower > eight.slower);
        let packets = |scale: LabScale| scale.slower / scale.rate;
        assert!((packets(one) / packets(eight) - 1.0).abs() < 1e-9);
    }
}
