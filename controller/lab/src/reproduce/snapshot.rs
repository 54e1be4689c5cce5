//! Crux, Fig. 24: whose traffic is on the wire under each scheduler (Crux §6.3), on a snapshot of
//! the cluster.
//!
//! The paper shows two weeks of its trace. Here the jobs of one moment stay: what it reads off the
//! figure concerns how jobs that are there share the wire. What else the paper withholds is as
//! calibrated, or as it was before: whole hosts at random, uplinks of 100 Gb/s, one connection.

use placement::queue::{FragmentedHosts, GpuChoice, JobFragmentation};
use placement::{FreeGpus, GpuCluster};
use planner::Job;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulator::{HashedScheduler, Scheduler, SimulationOutcome, SwitchHash};
use topology::Fabric;

use super::cluster::paper_utilisation;
use super::parameter_set::ParameterSet;
use super::report::{MeasureRow, PaperReproduction, percent_change};
use super::{SeedOptions, testbed};
use crate::compare::{self, ComparedRuns};
use crate::demo::DemoScenario;
use crate::demo::scenario::{HostShare, ScenarioJob, TrainedModel, WHOLE};
use crate::scheduler_process::AnyScheduler;
use command_io::CommandError;

const CLOS: &str = "crux-clos-173x16";

/// Simulated time of one run.
const SECONDS: f64 = 60.0;

/// GPUs in use, as many as the cluster of the trace has.
const GPUS: u32 = 2_000;

/// Hosts of a job with weights: the sizes of the trace (Crux §2.2) from two hosts on.
const SIZES: [(u32, u32); 6] = [(2, 30), (4, 24), (8, 18), (16, 14), (32, 7), (64, 3)];

/// From so many hosts on, a job trains a language model.
const LARGE: u32 = 8;

/// What the paper withholds, as it was before the calibration: every job on whole random hosts.
const WHOLE_HOSTS: ParameterSet = ParameterSet {
    volume: 1.0,
    uplink_gbps: 100.0,
    connections: 1,
    fragmentation: JobFragmentation { share: 1.0, gpus_per_host: HOST_GPUS },
};

const HOST_GPUS: u32 = 8;

/// Utilisation and traffic by scheduler with the calibrated set.
pub(super) fn reproduce_fig24(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let facts = "What the paper withholds is as crux reproduce calibrate finds it: uplinks of \
                 400 Gb/s, eight connections, 0.9 times the volumes of crux-fig7; 30 % of the jobs \
                 are scattered over random hosts by twos and share hosts, the others packed.";
    reproduce_snapshot(ParameterSet::CALIBRATED, facts, options)
}

/// Fig. 24 with jobs on whole random hosts, one connection on a NIC, and slow uplinks.
pub(super) fn reproduce_fig24_profiles(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let facts = "Uplinks of 100 Gb/s are chosen here, which halves the rate of a NIC towards other \
                 leaves; one connection on a NIC, volumes as in crux-fig7, hosts drawn at random.";
    reproduce_snapshot(WHOLE_HOSTS, facts, options)
}

fn reproduce_snapshot(
    set: ParameterSet,
    facts: &str,
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let fabric = set.example_fabric(CLOS)?;
    let mut seen = Vec::new();
    for seed in options.all_seeds() {
        let jobs = draw_snapshot(&fabric, set, seed)?;
        let experiment = testbed::default_experiment(fabric.clone(), jobs, SECONDS);
        let all = Scheduler::ALL.map(|scheduler| {
            AnyScheduler::Named(HashedScheduler { scheduler, hash: SwitchHash::Independent })
        });
        let compared = compare::compare_schedulers(experiment, &all, Vec::new());
        seen.push(compared.map_err(CommandError::failed)?);
    }
    let figures = seen.first().map_or_else(String::new, compare::page::render_wires);
    Ok(PaperReproduction {
        about: "Whose traffic is on the wire, and what it is worth.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 24 and §6.3; utilisations of two weeks are \
                 from notes of the authors' talk."
            .to_owned(),
        rows: comparison_rows(&seen),
        assumptions: list_assumptions(facts),
        figures,
        ..PaperReproduction::default()
    })
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

/// Jobs with the placement and the connections of the set, until [`GPUS`] are in use.
fn draw_snapshot(fabric: &Fabric, set: ParameterSet, seed: u64) -> Result<Vec<Job>, CommandError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let cluster = GpuCluster::from_fabric(fabric);
    let mut free = FreeGpus::all_free(&cluster);
    let choice = FragmentedHosts { fragmentation: set.fragmentation, seed };
    let mut left = GPUS / HOST_GPUS;
    let mut jobs: Vec<(String, TrainedModel, Vec<HostShare<'_>>)> = Vec::new();
    while left >= SIZES[0].0 {
        let hosts = draw_size(&mut random).min(left);
        let number = jobs.len() as u32 + 1;
        let chosen = choice.choose_gpus(number, hosts * HOST_GPUS, &cluster, &free);
        let gpus = chosen.ok_or_else(|| CommandError::Failed("the fabric is full".to_owned()))?;
        free.take_gpus(&gpus);
        let shares = gpus.iter().map(|(host, gpus)| (&*fabric.host(*host).name, *gpus, WHOLE));
        let model = draw_model(hosts, &mut random);
        jobs.push((format!("job{number:02}"), model, shares.collect()));
        left -= hosts;
    }
    let placed = jobs.iter().map(|(id, model, shares)| ScenarioJob { id, model: *model, shares });
    let placed = placed.collect::<Vec<_>>();
    let scenario = DemoScenario::place_jobs(fabric.clone(), &placed, set.volumes(), seed)?;
    let jobs = scenario.jobs.into_iter();
    Ok(jobs.map(|job| testbed::split_flows(job, set.connections)).collect())
}

fn draw_size(random: &mut ChaCha8Rng) -> u32 {
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

fn draw_model(hosts: u32, random: &mut ChaCha8Rng) -> TrainedModel {
    if hosts >= LARGE {
        TrainedModel::Gpt
    } else if random.random_bool(0.5) {
        TrainedModel::Bert
    } else {
        TrainedModel::ResNet
    }
}

fn list_assumptions(facts: &str) -> Vec<String> {
    [
        "A snapshot instead of the trace: 2,000 of 2,768 GPUs in use, sizes 16 to 512 with weights \
         as in the trace. Up to three are drawn. The planner of Crux searches, as by default.",
        "Jobs of 64 GPUs or more train the GPT, smaller ones BERT or ResNet. The paper's mix of 11 \
         models is not published.",
        facts,
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
    fn a_snapshot_is_as_large_as_the_cluster_and_scattered_jobs_share_hosts() {
        for (set, shares_hosts) in [(WHOLE_HOSTS, false), (ParameterSet::CALIBRATED, true)] {
            let fabric = set.example_fabric(CLOS).unwrap();
            let draw = |seed| draw_snapshot(&fabric, set, seed).unwrap();
            let jobs = draw(1);
            let gpus: u32 = jobs.iter().map(Job::gpu_count).sum();
            assert_eq!(gpus, GPUS);
            let mut hosts: Vec<_> = jobs.iter().flat_map(|job| job.gpus.keys()).collect();
            let all = hosts.len();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts.len() < all, shares_hosts);
            assert_eq!(jobs, draw(1));
            assert_ne!(jobs, draw(2));
        }
    }
}
