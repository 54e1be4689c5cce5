//! The jobs of all clusters here.

use planner::{Flow, Job, JobId, MeasuredSlowdown};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use topology::{Fabric, HostId};

/// Rings over the hosts, one on each of their NICs.
pub(crate) fn ring_job(
    fabric: &Fabric,
    index: usize,
    hosts: &[HostId],
    random: &mut ChaCha8Rng,
) -> Job {
    let compute_seconds = random.random_range(0.1..2.0);
    let bytes = compute_seconds * random.random_range(2e9..1e10);
    let next = hosts.iter().cycle().skip(1);
    let flows = hosts.iter().zip(next).flat_map(|(src, dst)| {
        let nics = fabric.host(*src).nics.iter().zip(&fabric.host(*dst).nics);
        nics.map(|(src, dst)| Flow {
            src: *src,
            dst: *dst,
            bytes,
            udp_src_port: Some(0xC000 + u16::try_from(index).expect("few jobs")),
            gpus: planner::FlowGpus::default(),
            overlap_from: None,
        })
    });
    Job {
        id: JobId::from(format!("job{index:04}").as_str()),
        tenant: None,
        model: None,
        gpus: hosts.iter().map(|host| (*host, 8)).collect(),
        flop_per_iteration: 1.5e14 * compute_seconds * 8.0 * hosts.len() as f64,
        compute_seconds,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: flows.collect(),
    }
}
