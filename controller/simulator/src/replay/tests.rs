//! Replays of small traces: beside an engine that simulates every iteration, interrupted, and by
//! hand.

use std::collections::BTreeMap;

use fluid::{Engine, EngineOptions, JobIndex, MAX_SECONDS};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::clos::{self, ClosSpec};
use topology::document::DocumentFormat;
use topology::{LinkId, examples, spec};

use super::*;
use crate::schedule::ScheduledJob;
use crate::trace::{JobLength, TraceJob};
use placement::PlacementDecision;

/// Four leaves of three hosts, 8 GPUs and a NIC of 200 Gb/s each; two spines.
pub(super) fn setup(jobs: Vec<TraceJob>, scheduler: Scheduler) -> ReplaySetup {
    let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
    ReplaySetup {
        cluster: GpuCluster::from_fabric(&fabric),
        fabric,
        trace: JobTrace { jobs, ..JobTrace::default() },
        models: ModelTable::built_in(),
        volume: 8.0,
        connections: 1,
        policy: Policy { search_events: 0, ..Policy::default() },
        placement: PlacementAlgorithm::FirstFit,
        fragmentation: JobFragmentation::CALIBRATED,
        quotas: BTreeMap::new(),
        scheduler,
        alternatives: Vec::new(),
        interference: InterferenceModel::AllJobs,
        seed: 1,
    }
}

pub(super) fn job(number: usize, submitted_seconds: f64, gpus: u32, seconds: f64) -> TraceJob {
    TraceJob {
        id: format!("job{number}"),
        submitted_seconds,
        gpus,
        length: JobLength::Seconds(seconds),
        model: Some("bert-large-seq512/A100".to_owned()),
        tenant: None,
    }
}

/// Twenty jobs of different models, of which many share links.
pub(super) fn drawn(seed: u64) -> Vec<TraceJob> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let models = ["bert-large-seq512/A100", "gpt-24l/A100", "vit-large/A100"];
    let mut at = 0.0;
    let draw = |number| {
        at += random.random_range(0.0..120.0);
        let gpus = 4 * random.random_range(1..9);
        TraceJob {
            model: Some(models[random.random_range(0..models.len())].to_owned()),
            ..job(number, at, gpus, random.random_range(60.0..600.0))
        }
    };
    (0..20).map(draw).collect()
}

pub(super) fn replayed(setup: &ReplaySetup) -> ReplayOutcome {
    let mut replay = TraceReplay::new(setup).unwrap();
    while replay.step_event().unwrap() {}
    replay.to_outcome()
}

#[test]
fn jobs_alone_run_as_long_as_the_trace_says() {
    // The second finds no room until the first has ended.
    let jobs = vec![job(0, 0.0, 96, 600.0), job(1, 100.0, 8, 300.0)];
    let outcome = replayed(&setup(jobs, Scheduler::Crux));
    let ends: Vec<f64> = outcome.jobs.iter().filter_map(|job| job.ended_seconds).collect();
    // Whole iterations: a little more.
    assert!((600.0..602.0).contains(&ends[0]), "{ends:?}");
    assert!((ends[0] + 300.0..ends[0] + 302.0).contains(&ends[1]), "{ends:?}");
    assert_eq!((outcome.completed, outcome.not_completed), (2, 0));
    assert!((outcome.worst_slowdown - 1.0).abs() < 1e-6, "{outcome:?}");
    assert!((outcome.mean_wait_seconds * 2.0 - (ends[0] - 100.0)).abs() < 1e-6);
}

#[test]
fn less_interference_costs_less_and_none_costs_only_the_links() {
    // A ring for each of four NICs: flows of one job meet on the two uplinks of a leaf.
    let spec = ClosSpec { host_links: 4, ..ClosSpec::default() };
    let fabric = clos::build_clos("lab", &spec).unwrap();
    let slowdown = |interference| {
        let setup = ReplaySetup {
            cluster: GpuCluster::from_fabric(&fabric),
            fabric: fabric.clone(),
            interference,
            ..setup(drawn(3), Scheduler::Ecmp)
        };
        replayed(&setup).mean_slowdown
    };
    let [everyone, itself, nobody] =
        [InterferenceModel::AllJobs, InterferenceModel::OwnFlows, InterferenceModel::Disabled]
            .map(slowdown);
    assert!(everyone > 1.01 * itself, "{everyone} {itself}");
    assert!(itself > 1.01 * nobody, "{itself} {nobody}");
}

#[test]
fn a_job_larger_than_the_cluster_is_refused_and_reported() {
    let jobs = vec![job(0, 0.0, 97, 600.0), job(1, 1.0, 8, 60.0)];
    let outcome = replayed(&setup(jobs, Scheduler::Ecmp));
    assert_eq!((outcome.completed, outcome.not_completed), (1, 1));
    let reported = outcome.findings[0].to_string();
    assert!(reported.contains("1 jobs were refused"), "{reported}");
}

#[test]
fn jobs_that_share_gpus_take_turns() {
    let mut setup = setup(Vec::new(), Scheduler::Crux);
    setup.placement = PlacementAlgorithm::Muri;
    setup.trace.jobs = (0..6).map(|number| job(number, 0.0, 96, 600.0)).collect();
    let outcome = replayed(&setup);
    assert_eq!(outcome.completed, 6);
    // Rounds begin after 360 s; sharing takes longer than each alone, and less than all in turn.
    assert!(outcome.mean_slowdown > 1.05, "{}", outcome.mean_slowdown);
    assert!(outcome.seconds < 360.0 + 6.0 * 600.0 * 1.6, "{}", outcome.seconds);
}

/// A setup on a fabric of the catalogue.
fn setup_on(example: &str, jobs: Vec<TraceJob>) -> ReplaySetup {
    let text = examples::example_text(example).unwrap();
    let fabric = spec::parse_fabric(text, DocumentFormat::Toml, example).unwrap();
    let cluster = GpuCluster::from_fabric(&fabric);
    ReplaySetup { fabric, cluster, ..setup(jobs, Scheduler::Crux) }
}

#[test]
fn jobs_on_parts_of_a_host_have_gpus_and_nics_of_their_own() {
    // Each has a whole host, and both have half of the host between.
    let jobs = vec![job(0, 0.0, 12, 600.0), job(1, 0.0, 12, 600.0)];
    let worst = |example: &str| {
        let setup = ReplaySetup { volume: 40.0, ..setup_on(example, jobs.clone()) };
        replayed(&setup).worst_slowdown
    };
    let (shared, own) = (worst("crux-testbed"), worst("crux-testbed-hosts"));
    assert!(shared > 1.05, "NICs that both use: {shared}");
    assert!((own - 1.0).abs() < 1e-6, "NICs of their own: {own}");
}

#[test]
fn a_resumed_replay_keeps_the_gpus_of_its_jobs() {
    let setup = setup_on("crux-testbed-hosts", drawn(2));
    let whole = replayed(&setup);
    let mut replay = TraceReplay::new(&setup).unwrap();
    let gpus_of = |replay: &TraceReplay<'_>| -> Vec<_> {
        let running = replay.cluster_jobs.state_at(0.0).running.iter();
        running.map(|job| job.gpu_indices.clone()).collect()
    };
    let mut shared_hosts = 0;
    while replay.step_event().unwrap() {
        let resumed = TraceReplay::resume_from(&setup, &replay.save_checkpoint()).unwrap();
        let gpus = gpus_of(&replay);
        assert_eq!(gpus_of(&resumed), gpus);
        let mut hosts: Vec<_> = gpus.iter().flat_map(|of| of.keys()).collect();
        hosts.sort();
        shared_hosts += hosts.windows(2).filter(|pair| pair[0] == pair[1]).count();
        replay = resumed;
    }
    assert!(shared_hosts > 0, "no host had two jobs");
    assert_eq!(replay.to_outcome(), whole);
}

#[test]
fn jumps_change_the_result_within_the_documented_error() {
    // Of 240 jobs: where periods are nearly equal, what a jump skips is not what it repeats.
    let mut beyond = 0;
    for scheduler in [Scheduler::Ecmp, Scheduler::Sincronia, Scheduler::Crux] {
        let mut means = [0.0; 2];
        for seed in 1..=4 {
            let setup = setup(drawn(seed), scheduler);
            let outcome = replayed(&setup);
            let exact = exact(&setup);
            for (job, exact) in outcome.jobs.iter().zip(&exact) {
                let jumped = job.ended_seconds.unwrap() - job.submitted_seconds;
                let exact = exact - job.submitted_seconds;
                let error = (jumped / exact - 1.0).abs();
                assert!(error < 0.15, "{scheduler} {seed} {}: {jumped} {exact}", job.id);
                beyond += usize::from(error > 0.05);
                means[0] += jumped;
                means[1] += exact;
            }
        }
        let error = means[0] / means[1] - 1.0;
        assert!(error.abs() < 0.01, "{scheduler}: {error}");
    }
    assert!(beyond <= 2, "{beyond}");
}

#[test]
fn an_interrupted_replay_ends_as_if_it_had_not_been() {
    for placement in PlacementAlgorithm::ALL {
        for scheduler in [Scheduler::Cassini, Scheduler::Crux] {
            let setup = ReplaySetup { placement, ..setup(drawn(7), scheduler) };
            let whole = replayed(&setup);
            let mut replay = TraceReplay::new(&setup).unwrap();
            for step in 0.. {
                if step % 7 == 3 {
                    let text = serde_json::to_string(&replay.save_checkpoint()).unwrap();
                    let checkpoint: ReplayCheckpoint = serde_json::from_str(&text).unwrap();
                    replay = TraceReplay::resume_from(&setup, &checkpoint).unwrap();
                }
                if !replay.step_event().unwrap() {
                    break;
                }
            }
            assert_eq!(replay.to_outcome(), whole, "{placement} {scheduler}");
        }
    }
}

#[test]
fn a_checkpoint_of_another_replay_is_refused() {
    let one = setup(drawn(1), Scheduler::Ecmp);
    let other = setup(drawn(1), Scheduler::Crux);
    let checkpoint = TraceReplay::new(&one).unwrap().save_checkpoint();
    assert!(TraceReplay::resume_from(&one, &checkpoint).is_ok());
    let refused = TraceReplay::resume_from(&other, &checkpoint);
    assert!(matches!(refused.err(), Some(TraceReplayError::Checkpoint(_))));
}

/// When the jobs of a setup end if one engine simulates every iteration, seconds.
fn exact(setup: &ReplaySetup) -> Vec<f64> {
    let mut world = Exact::new(setup);
    while world.step() {}
    world.ends
}

/// The reference: the same placement and scheduling, with every iteration simulated.
struct Exact<'a> {
    setup: &'a ReplaySetup,
    replay: TraceReplay<'a>,
    engine: Engine,
    places: BTreeMap<u32, JobIndex>,
    arrived: usize,
    ends: Vec<f64>,
}

impl<'a> Exact<'a> {
    fn new(setup: &'a ReplaySetup) -> Self {
        let network = planner::fluid_network(&setup.fabric).unwrap();
        Self {
            setup,
            replay: TraceReplay::new(setup).unwrap(),
            engine: Engine::new(&network, EngineOptions::default()).unwrap(),
            places: BTreeMap::new(),
            arrived: 0,
            ends: vec![0.0; setup.trace.jobs.len()],
        }
    }

    fn step(&mut self) -> bool {
        let arrival = self.setup.trace.jobs.get(self.arrived);
        if arrival.is_none() && self.places.is_empty() {
            return false;
        }
        let until = arrival.map_or(MAX_SECONDS, |job| job.submitted_seconds);
        let ended = self.run(until);
        for number in &ended {
            let place = self.places.remove(number).unwrap();
            self.engine.remove_job(place).unwrap();
            self.ends[*number as usize] = self.engine.now_seconds();
            self.replay.cluster_jobs.finish_job(*number).unwrap();
            self.replay.dispatcher.remove_job(*number).unwrap();
        }
        if ended.is_empty() {
            let request = self.replay.placement_request(self.arrived as u32);
            self.replay.cluster_jobs.submit_job(request).unwrap();
            self.arrived += 1;
        }
        self.place();
        true
    }

    /// Runs until jobs end, or to the next arrival.
    fn run(&mut self, until: f64) -> Vec<u32> {
        while self.engine.step_until(until).unwrap() {
            let mut ended = Vec::new();
            while let Some(place) = self.engine.take_finished() {
                let number = self.places.iter().find(|(_, other)| **other == place);
                ended.push(*number.unwrap().0);
            }
            if !ended.is_empty() {
                return ended;
            }
        }
        self.engine.run_until(until).unwrap();
        Vec::new()
    }

    fn place(&mut self) {
        let now = self.engine.now_seconds();
        let decisions = self.replay.policy.make_decisions(&self.replay.cluster_jobs.state_at(now));
        let mut started = Vec::new();
        for decision in &decisions {
            self.replay.cluster_jobs.apply_decision(decision).unwrap();
            if let PlacementDecision::Start(start) = decision {
                let active = self.replay.activate_job(start.job, now).unwrap();
                started.push(start.job);
                self.replay.dispatcher.add_job(start.job, active.training.job).unwrap();
            }
        }
        let schedule = self.replay.dispatcher.current_schedule();
        let numbers: Vec<u32> = self.replay.dispatcher.jobs().map(|(number, _)| number).collect();
        for (number, decided) in numbers.into_iter().zip(&schedule.jobs) {
            match self.places.get(&number) {
                Some(place) => follow(&mut self.engine, *place, decided),
                None => self.add(number, decided),
            }
        }
    }

    fn add(&mut self, number: u32, decided: &ScheduledJob) {
        let job = self.replay.dispatcher.jobs().find(|(other, _)| *other == number).unwrap().1;
        let flows = job.flows.iter().zip(&decided.paths);
        let flow = |(flow, path): (&planner::Flow, &Vec<LinkId>)| fluid::FluidFlow {
            path: path.iter().map(|link| link.0).collect(),
            bytes: flow.bytes,
            overlap_from: flow.overlap_from,
        };
        let fluid = fluid::FluidJob {
            compute_seconds: job.compute_seconds,
            overlap_from: job.overlap_from,
            level: decided.level,
            start: self.engine.now_seconds(),
            grid: decided.grid,
            iterations: Some(self.replay.progress.records[number as usize].left as u64),
            flows: flows.map(flow).collect(),
        };
        self.places.insert(number, self.engine.add_job(&fluid).unwrap());
    }
}

fn follow(engine: &mut Engine, place: JobIndex, decided: &ScheduledJob) {
    engine.set_level(place, decided.level).unwrap();
    for (flow, path) in (0..).zip(&decided.paths) {
        let links: Vec<u32> = path.iter().map(|link| link.0).collect();
        engine.set_path(place, flow, &links).unwrap();
    }
}
