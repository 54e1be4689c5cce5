//! Plans a cluster of the size given, so that time and peak memory can be measured from outside:
//! `scale GPUS packed|scattered`.

use std::time::Instant;

use planner::{Policy, plan};

use crate::cluster::{Placement, cluster};

#[path = "../benches/cluster.rs"]
mod cluster;

fn main() {
    let mut args = std::env::args().skip(1);
    let gpus = args.next().and_then(|gpus| gpus.parse().ok());
    let placement = match args.next().as_deref() {
        Some("scattered") => Placement::Scattered,
        _ => Placement::Packed,
    };
    let input = cluster(gpus.unwrap_or(100_000), placement);
    let policy = Policy::default();
    for _ in 0..3 {
        let started = Instant::now();
        let (plan, report) = plan(&input, &policy, None);
        println!(
            "{} jobs, {} flows: {:.1} ms; largest load {:.3}, at least {:.3}",
            plan.jobs.len(),
            plan.flows.len(),
            started.elapsed().as_secs_f64() * 1e3,
            report.bounds.max_load,
            report.bounds.max_load_lower_bound,
        );
    }
}
