//! Two weeks of a cluster, replayed: Crux, Figs. 23 and 25 (Crux §6.3 and §6.4), and beyond the
//! papers who gains from whom if job and communication schedulers are combined.
//!
//! The trace of the paper is not public: the jobs are composed from its published facts. How much
//! they send is withheld, and is what the results depend on most; so a sweep shows where the
//! paper's margins are reached.

use planner::Policy;
use simulator::Scheduler;
use simulator::placement::{Cluster, Placement};
use simulator::replay::{ReplayOutcome, Setup};
use simulator::trace::{Composition, compose};
use simulator::workload::Models;
use topology::document::Format;
use topology::{examples, spec};

use super::Options;
use super::report::{Reproduction, Row, change};
use crate::commands::replay::runs;
use crate::failure::Failure;

const CLOS: &str = "crux-clos-173x16";
const DOUBLE_SIDED: &str = "crux-double-sided";

/// Factor on every byte.
const VOLUME: f64 = 8.0;

/// That of Fig. 23, at which two weeks in the Clos show the paper's margins: see the sweep.
const VOLUME_OF_FIG_23: f64 = 16.0;

/// Factors of the sweep.
const SWEEP: [f64; 5] = [1.0, 4.0, 8.0, 16.0, 32.0];

/// Two days of the trace, for what two weeks would take too long.
const TWO_DAYS: (usize, u32) = (5_000 / 7, 48);
const TWO_WEEKS: (usize, u32) = (5_000, 14 * 24);

/// What is replayed, before placement and scheduler are chosen.
#[derive(Clone, Copy)]
struct World {
    fabric: &'static str,
    /// Jobs, and hours over which they come.
    length: (usize, u32),
    volume: f64,
    seed: u64,
}

impl World {
    fn new(fabric: &'static str, length: (usize, u32), options: Options) -> Self {
        Self {
            fabric,
            length,
            volume: VOLUME,
            seed: options.seed,
        }
    }

    fn setup(self, placement: Placement, scheduler: Scheduler) -> Result<Setup, Failure> {
        let text = examples::example(self.fabric).unwrap_or_default();
        let fabric = spec::parse(text, Format::Toml, self.fabric).map_err(Failure::document)?;
        let cluster = Cluster::of(&fabric);
        let (jobs, hours) = self.length;
        let lingjun = Composition::lingjun();
        let composition = Composition {
            jobs,
            hours,
            cluster_gpus: cluster.gpus().min(lingjun.cluster_gpus),
            ..lingjun
        };
        let composed = compose(&composition, self.seed).map_err(|error| Failure::work(&error))?;
        Ok(Setup {
            fabric,
            cluster,
            trace: composed.trace,
            models: Models::built_in(),
            volume: self.volume,
            policy: Policy {
                search_events: 0,
                ..Policy::default()
            },
            placement,
            scheduler,
            seed: self.seed,
        })
    }
}

/// Replays one world after the other, each under all of the pairs, at once.
fn replay(
    worlds: &[World],
    pairs: &[(Placement, Scheduler)],
) -> Result<Vec<Vec<ReplayOutcome>>, Failure> {
    let each = |world: &World| {
        let setups = pairs
            .iter()
            .map(|(placement, scheduler)| world.setup(*placement, *scheduler));
        runs::replay_all(&setups.collect::<Result<Vec<_>, _>>()?, None)
    };
    worlds.iter().map(each).collect()
}

fn per_cent(outcome: &ReplayOutcome) -> f64 {
    outcome.gpu_utilization * 100.0
}

/// The schedulers of Fig. 23, Crux last.
const SCHEDULERS: [Scheduler; 7] = [
    Scheduler::Ecmp,
    Scheduler::Sincronia,
    Scheduler::Taccl,
    Scheduler::Cassini,
    Scheduler::CruxPa,
    Scheduler::CruxPsPa,
    Scheduler::Crux,
];

/// Those that Crux is measured against.
const RIVALS: [Scheduler; 4] = [
    Scheduler::Ecmp,
    Scheduler::Sincronia,
    Scheduler::Taccl,
    Scheduler::Cassini,
];

/// Utilisation over two weeks by fabric and scheduler, and by how much jobs send.
pub(super) fn fig23(options: Options) -> Result<Reproduction, Failure> {
    let pairs = SCHEDULERS.map(|scheduler| (Placement::SameLeaf, scheduler));
    let fabrics = [CLOS, DOUBLE_SIDED];
    let worlds = fabrics.map(|fabric| World {
        volume: VOLUME_OF_FIG_23,
        ..World::new(fabric, TWO_WEEKS, options)
    });
    let mut rows = Vec::new();
    for (fabric, outcomes) in fabrics.iter().zip(replay(&worlds, &pairs)?) {
        rows.extend(of_fabric(fabric, &outcomes));
    }
    let swept = SWEEP.map(|volume| World {
        volume,
        ..World::new(CLOS, TWO_DAYS, options)
    });
    for (world, outcomes) in swept.iter().zip(replay(&swept, &pairs)?) {
        let about = format!("two days, volume x {}", world.volume);
        rows.extend(margins(&about, &outcomes));
    }
    let scattered = SCHEDULERS.map(|scheduler| (Placement::FirstFit, scheduler));
    let outcomes = replay(&[World::new(CLOS, TWO_DAYS, options)], &scattered)?;
    for outcomes in &outcomes {
        rows.extend(margins("two days, first-fit", outcomes));
    }
    Ok(Reproduction {
        about: "GPU utilisation of two weeks by communication scheduler, on two fabrics."
            .to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 23 and §6.3; single utilisations are from \
                 notes of the authors' talk."
            .to_owned(),
        rows,
        assumptions: assumptions(),
        ..Reproduction::default()
    })
}

/// Utilisation of the Clos in the paper, per cent.
fn paper_utilisation(fabric: &str, scheduler: &str) -> Option<f64> {
    match scheduler {
        _ if fabric != CLOS => None,
        "sincronia" => Some(39.0),
        "cassini" => Some(49.0),
        "crux-pa" => Some(51.0),
        "crux-ps-pa" | "crux" => Some(62.0),
        _ => None,
    }
}

fn of_fabric(fabric: &'static str, outcomes: &[ReplayOutcome]) -> Vec<Row> {
    let name = fabric.trim_start_matches("crux-");
    let utilisation = |outcome: &ReplayOutcome| {
        let paper = paper_utilisation(fabric, &outcome.scheduler);
        let measure = format!("GPU utilisation, {name}, {}", outcome.scheduler);
        Row::new(measure, "% of GPU time", paper, &[per_cent(outcome)])
    };
    let mut rows: Vec<Row> = outcomes.iter().map(utilisation).collect();
    // The paper: 13 to 23 points in the Clos, 4 to 7 double-sided; here the least of them.
    let least = if fabric == CLOS { 13.0 } else { 4.0 };
    let crux = of(outcomes, Scheduler::Crux);
    rows.extend(RIVALS.map(|rival| {
        let points = per_cent(crux) - per_cent(of(outcomes, rival));
        let paper = (rival != Scheduler::Ecmp).then_some(least);
        Row::new(
            format!("{name}, crux over {rival}"),
            "points",
            paper,
            &[points],
        )
    }));
    let compression = per_cent(crux) - per_cent(of(outcomes, Scheduler::CruxPsPa));
    rows.push(Row::new(
        format!("{name}, 8 levels"),
        "points",
        Some(0.0),
        &[compression],
    ));
    let worst = crux.worst_slowdown;
    rows.push(Row::new(
        format!("{name}, worst job under crux"),
        "times alone",
        None,
        &[worst],
    ));
    let open = crux.not_completed as f64;
    rows.push(Row::new(
        format!("{name}, jobs that starve"),
        "jobs",
        Some(0.0),
        &[open],
    ));
    rows
}

/// Utilisation under Crux, and by how much it is above others.
fn margins(about: &str, outcomes: &[ReplayOutcome]) -> Vec<Row> {
    let crux = of(outcomes, Scheduler::Crux);
    let utilisation = Row::new(
        format!("{about}, crux"),
        "% of GPU time",
        None,
        &[per_cent(crux)],
    );
    let margin = |rival: Scheduler| {
        let points = per_cent(crux) - per_cent(of(outcomes, rival));
        let measure = format!("{about}, crux over {rival}");
        Row::new(measure, "points", None, &[points])
    };
    std::iter::once(utilisation)
        .chain(RIVALS.map(margin))
        .collect()
}

/// The outcome of a scheduler, which was asked.
fn of(outcomes: &[ReplayOutcome], scheduler: Scheduler) -> &ReplayOutcome {
    let found = outcomes
        .iter()
        .find(|outcome| outcome.scheduler == scheduler.name());
    found.unwrap_or(&outcomes[0])
}

/// What Crux adds to job schedulers.
pub(super) fn fig25(options: Options) -> Result<Reproduction, Failure> {
    let placements = [Placement::FirstFit, Placement::Muri, Placement::Hived];
    let pairs: Vec<_> = (placements.iter())
        .flat_map(|placement| [(*placement, Scheduler::Ecmp), (*placement, Scheduler::Crux)])
        .collect();
    let world = World::new(CLOS, TWO_DAYS, options);
    let outcomes = replay(&[world], &pairs)?.remove(0);
    let [none, none_crux, muri, muri_crux, hived, hived_crux] = &outcomes[..] else {
        return Err(Failure::Work("a replay for each pair".to_owned()));
    };
    let utilisation = |outcome: &ReplayOutcome| {
        let measure = format!(
            "GPU utilisation, {} with {}",
            outcome.placement, outcome.scheduler
        );
        Row::new(measure, "% of GPU time", None, &[per_cent(outcome)])
    };
    let mut rows: Vec<Row> = outcomes.iter().map(utilisation).collect();
    let gains = [
        ("muri over first-fit", none, muri, Some(20.0)),
        ("hived over first-fit", none, hived, Some(25.0)),
        ("crux over ecmp, with first-fit", none, none_crux, None),
        ("crux over ecmp, with muri", muri, muri_crux, Some(14.0)),
        ("crux over ecmp, with hived", hived, hived_crux, Some(11.0)),
    ];
    rows.extend(gains.map(|(measure, before, now, paper)| {
        Row::new(
            measure,
            "%",
            paper,
            &[change(per_cent(before), per_cent(now))],
        )
    }));
    let mut assumptions = assumptions();
    assumptions.push(
        "Without a job scheduler: the first free GPUs, in order of arrival. Two days.".to_owned(),
    );
    Ok(Reproduction {
        about: "What Crux adds to schedulers of jobs.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 25 and §6.4.".to_owned(),
        rows,
        assumptions,
        ..Reproduction::default()
    })
}

/// Job schedulers above communication schedulers: every pair.
pub(super) fn pairs(options: Options) -> Result<Reproduction, Failure> {
    let placements = [
        Placement::SameLeaf,
        Placement::Hived,
        Placement::Muri,
        Placement::SjfBco,
    ];
    let schedulers = [Scheduler::Ecmp, Scheduler::Cassini, Scheduler::Crux];
    let pairs: Vec<_> = (placements.iter())
        .flat_map(|placement| schedulers.map(|scheduler| (*placement, scheduler)))
        .collect();
    let world = World::new(CLOS, TWO_DAYS, options);
    let outcomes = replay(&[world], &pairs)?.remove(0);
    let rows = outcomes.iter().flat_map(|outcome| {
        let pair = format!("{} with {}", outcome.placement, outcome.scheduler);
        let hours = outcome.mean_completion_seconds / 3600.0;
        [
            Row::new(pair.clone(), "% of GPU time", None, &[per_cent(outcome)]),
            Row::new(pair.clone(), "hours to completion", None, &[hours]),
            Row::new(pair, "times alone, mean", None, &[outcome.mean_slowdown]),
        ]
    });
    let mut assumptions = assumptions();
    assumptions.push("Two days instead of two weeks.".to_owned());
    Ok(Reproduction {
        about: "Job schedulers above communication schedulers: who gains from whom.".to_owned(),
        source: "Beyond the papers.".to_owned(),
        rows: rows.collect(),
        assumptions,
        ..Reproduction::default()
    })
}

fn assumptions() -> Vec<String> {
    [
        "The jobs are synthetic: composed from what is published of the Lingjun trace (5,000 jobs \
         in two weeks, 12 % on 128 GPUs or more, at most 512), one seed.",
        "Models by size of the job, from built-in profiles; a ring for each NIC. Every byte counts \
         8 times, over two weeks of Fig. 23 16 times: profiles are of fast networks, and the paper \
         withholds volumes.",
        "Jobs are placed in order of arrival, in one host, one leaf, or as few leaves as need be, \
         where no other placement is named.",
        "Utilisation is of the GPU time that jobs hold; a job runs the iterations that take it as \
         long as the trace says when alone.",
        "TACCL* chooses a path for each flow; docs/reproduction.md says what that means.",
    ]
    .map(str::to_owned)
    .to_vec()
}
