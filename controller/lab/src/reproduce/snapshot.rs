//! Crux, Fig. 24: whose traffic is on the wire under each scheduler (Crux §6.3), on a snapshot of
//! the cluster.
//!
//! The paper shows two weeks of its trace. Here the jobs of one moment stay: what it reads off the
//! figure concerns how jobs that are there share the wire.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulator::{Scheduler, SimulationOutcome};
use topology::document::DocumentFormat;
use topology::{Fabric, examples, spec};

use super::report::{MeasureRow, PaperReproduction, percent_change};
use super::{SeedOptions, testbed};
use crate::compare::{self, ComparedRuns};
use crate::demo::scenario::{HostShare, ScenarioJob, TrainedModel, WHOLE};
use crate::demo::{CALIBRATED, DemoScenario};
use command_io::CommandError;

/// Simulated time of one run.
const SECONDS: f64 = 60.0;

/// Snapshots that are drawn at most: one takes as long as many runs of the testbed.
const SNAPSHOTS: usize = 3;

/// GPUs in use, as many as the cluster of the trace has.
const GPUS: u32 = 2_000;

/// Hosts of a job with weights: the sizes of the trace (Crux §2.2) from two hosts on.
const SIZES: [(usize, u32); 6] = [(2, 30), (4, 24), (8, 18), (16, 14), (32, 7), (64, 3)];

/// From so many hosts on, a job trains a language model.
const LARGE: usize = 8;

/// Utilisation and traffic by scheduler.
pub(super) fn reproduce_fig24(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let fabric = clos_fabric()?;
    let mut seen = Vec::new();
    for seed in options.all_seeds().take(SNAPSHOTS) {
        let scenario = draw_snapshot(&fabric, seed)?;
        let experiment = testbed::default_experiment(scenario.fabric, scenario.jobs, SECONDS);
        let compared = compare::compare_schedulers(experiment, &Scheduler::ALL, Vec::new());
        seen.push(compared.map_err(CommandError::failed)?);
    }
    let figures = seen.first().map_or_else(String::new, compare::page::render_wires);
    Ok(PaperReproduction {
        about: "Whose traffic is on the wire, and what it is worth.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 24 and §6.3; utilisations of two weeks are \
                 from notes of the authors' talk."
            .to_owned(),
        rows: comparison_rows(&seen),
        assumptions: list_assumptions(),
        figures,
        ..PaperReproduction::default()
    })
}

/// What the paper says of the utilisation under each scheduler over two weeks.
fn paper_utilisation(scheduler: Scheduler) -> Option<f64> {
    match scheduler {
        Scheduler::Sincronia => Some(39.0),
        Scheduler::Cassini => Some(49.0),
        Scheduler::CruxPa => Some(51.0),
        Scheduler::CruxPsPa | Scheduler::Crux => Some(62.0),
        Scheduler::Ecmp | Scheduler::Varys | Scheduler::Taccl | Scheduler::TacclJob => None,
    }
}

fn comparison_rows(seen: &[ComparedRuns]) -> Vec<MeasureRow> {
    let of = |value: &dyn Fn(&ComparedRuns) -> f64| seen.iter().map(value).collect::<Vec<f64>>();
    let utilisation = |scheduler: Scheduler| {
        let ours = of(&|one| scheduler_outcome(one, scheduler).gpu_utilization * 100.0);
        let measure = format!("GPU utilisation, {scheduler}");
        MeasureRow::new(measure, "% of GPU time", paper_utilisation(scheduler), &ours)
    };
    let mut rows: Vec<MeasureRow> = Scheduler::ALL.into_iter().map(utilisation).collect();
    let compared = [
        (Scheduler::Sincronia, Scheduler::CruxPa, 26.0),
        (Scheduler::Taccl, Scheduler::CruxPa, 14.0),
        (Scheduler::Cassini, Scheduler::CruxPa, 5.0),
        (Scheduler::CruxPsPa, Scheduler::Crux, 0.0),
    ];
    rows.extend(compared.map(|(before, now, paper)| {
        let utilisation = |one: &ComparedRuns, of| scheduler_outcome(one, of).gpu_utilization;
        let ours = of(&|one| percent_change(utilisation(one, before), utilisation(one, now)));
        MeasureRow::new(format!("GPU utilisation, {now} over {before}"), "%", Some(paper), &ours)
    }));
    let ours = of(&|one| {
        let [before, now] =
            [Scheduler::CruxPa, Scheduler::CruxPsPa].map(|of| carried_traffic(one, of));
        percent_change(before, now)
    });
    rows.push(MeasureRow::new("traffic, crux-ps-pa over crux-pa", "%", Some(97.0), &ours));
    rows
}

fn scheduler_outcome(compared: &ComparedRuns, scheduler: Scheduler) -> &SimulationOutcome {
    let place = Scheduler::ALL.iter().position(|other| *other == scheduler);
    // Every scheduler was asked, in this order.
    &compared.comparison.outcomes[place.unwrap_or_default()]
}

/// Busy share of all links that carried something, summed.
fn carried_traffic(compared: &ComparedRuns, scheduler: Scheduler) -> f64 {
    let links = scheduler_outcome(compared, scheduler).links.iter();
    links.map(|link| link.busy_fraction).sum()
}

fn clos_fabric() -> Result<Fabric, CommandError> {
    let name = "crux-clos-173x16";
    let text = examples::example_text(name).unwrap_or_default();
    spec::parse_fabric(text, DocumentFormat::Toml, name).map_err(CommandError::document)
}

/// Jobs on hosts drawn at random, until [`GPUS`] are in use.
fn draw_snapshot(fabric: &Fabric, seed: u64) -> Result<DemoScenario, CommandError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut hosts: Vec<(usize, &str)> = Vec::new();
    hosts.extend(fabric.hosts().iter().map(|host| host.name.as_str()).enumerate());
    hosts.shuffle(&mut random);
    let mut used = GPUS as usize / 8;
    let mut jobs: Vec<(String, TrainedModel, Vec<HostShare<'_>>)> = Vec::new();
    while used >= SIZES[0].0 {
        let count = draw_size(&mut random).min(used);
        let (taken, left) = hosts.split_at(count.min(hosts.len()));
        let mut taken = taken.to_vec();
        taken.sort_unstable();
        let shares = taken.into_iter().map(|(_, name)| (name, 8, WHOLE)).collect();
        jobs.push((format!("job{:02}", jobs.len() + 1), draw_model(count, &mut random), shares));
        hosts = left.to_vec();
        used -= count;
    }
    let placed = jobs.iter().map(|(id, model, shares)| ScenarioJob { id, model: *model, shares });
    DemoScenario::place_jobs(fabric.clone(), &placed.collect::<Vec<_>>(), CALIBRATED, seed)
}

fn draw_size(random: &mut ChaCha8Rng) -> usize {
    let all: u32 = SIZES.iter().map(|(_, weight)| weight).sum();
    let mut ticket = random.random_range(0..all);
    for (hosts, weight) in SIZES {
        if ticket < weight {
            return hosts;
        }
        ticket -= weight;
    }
    SIZES[0].0
}

fn draw_model(hosts: usize, random: &mut ChaCha8Rng) -> TrainedModel {
    if hosts >= LARGE {
        TrainedModel::Gpt
    } else if random.random_bool(0.5) {
        TrainedModel::Bert
    } else {
        TrainedModel::ResNet
    }
}

fn list_assumptions() -> Vec<String> {
    [
        "A snapshot instead of the trace: 2,000 of 2,768 GPUs in use, sizes 16 to 512 with weights \
         as in the trace, hosts drawn at random, so that jobs share leaves. Up to three are drawn.",
        "Jobs of 64 GPUs or more train the GPT, smaller ones BERT or ResNet; volumes as in \
         crux-fig7. The paper's mix of 11 models is not published.",
        "Clos of 173 leaves and 16 spines; 2 hosts a leaf and uplinks of 100 Gb/s are chosen here, \
         which halves the rate of a NIC towards other leaves.",
        "TACCL* chooses a path for every flow. The paper's chooses \"the least congested link for \
         each job\", which may mean one for all flows of a job.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_as_large_as_the_cluster_and_no_host_has_two_jobs() {
        let fabric = clos_fabric().unwrap();
        let jobs = draw_snapshot(&fabric, 1).unwrap().jobs;
        let gpus: u32 = jobs.iter().map(planner::Job::gpu_count).sum();
        assert_eq!(gpus, GPUS);
        let mut hosts: Vec<_> = jobs.iter().flat_map(|job| job.gpus.keys()).collect();
        let all = hosts.len();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), all);
        assert_eq!(jobs, draw_snapshot(&fabric, 1).unwrap().jobs);
        assert_ne!(jobs, draw_snapshot(&fabric, 2).unwrap().jobs);
    }
}
