//! Crux, Figs. 19 and 20: jobs together on the testbed of 12 hosts, without and with Crux
//! (Crux §6.2).

use planner::{Flow, Job, PlanInput, Policy};
use simulator::{ScheduleSource, SimulationExperiment, SimulationOutcome};
use topology::Fabric;

use super::SeedOptions;
use super::crux_gain::{CruxGain, NamedGains, drawn_rows};
use super::parameter_set::ParameterSet;
use super::report::{MeasureRow, PaperReproduction, RangedMeasure};
use crate::demo::DemoScenario;
use crate::demo::scenario::{HostShare, LEFT, RIGHT, ScenarioJob, TrainedModel, WHOLE};
use command_io::CommandError;

/// Simulated time of one run.
const SECONDS: f64 = 300.0;

/// What the paper withholds.
const SET: ParameterSet = ParameterSet::CALIBRATED;

/// Connections of a ring for each NIC: the paper does not say how many.
pub(super) const CONNECTIONS: [u16; 4] = [1, 2, 4, 8];

/// The GPT of Fig. 19, one host on every leaf.
const GPT: ScenarioJob<'static> = ScenarioJob {
    id: "gpt",
    model: TrainedModel::Gpt,
    shares: &[("h1", 8, WHOLE), ("h4", 8, WHOLE), ("h7", 8, WHOLE), ("h10", 8, WHOLE)],
};

/// The BERT jobs of Fig. 19, each on halves of two hosts on different leaves.
const BERTS: [ScenarioJob<'static>; 8] = [
    bert_job("bert-1", &[("h2", 4, LEFT), ("h5", 4, LEFT)]),
    bert_job("bert-2", &[("h2", 4, RIGHT), ("h5", 4, RIGHT)]),
    bert_job("bert-3", &[("h8", 4, LEFT), ("h11", 4, LEFT)]),
    bert_job("bert-4", &[("h8", 4, RIGHT), ("h11", 4, RIGHT)]),
    bert_job("bert-5", &[("h3", 4, LEFT), ("h9", 4, LEFT)]),
    bert_job("bert-6", &[("h3", 4, RIGHT), ("h9", 4, RIGHT)]),
    bert_job("bert-7", &[("h6", 4, LEFT), ("h12", 4, LEFT)]),
    bert_job("bert-8", &[("h6", 4, RIGHT), ("h12", 4, RIGHT)]),
];

const fn bert_job(id: &'static str, shares: &'static [HostShare<'static>]) -> ScenarioJob<'static> {
    ScenarioJob { id, model: TrainedModel::Bert, shares }
}

/// How many of them run together.
const COUNTS: [usize; 4] = [2, 4, 6, 8];

/// A 32-GPU GPT with more and more 8-GPU BERT jobs.
pub(super) fn reproduce_fig19(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let (mut rows, mut drawn) = (Vec::new(), Vec::new());
    for connections in [SET.connections, 1, 2] {
        let mut by_count: Vec<NamedGains> = Vec::new();
        for count in COUNTS {
            let gpt = std::iter::once(GPT);
            let all: Vec<ScenarioJob<'_>> = gpt.chain(BERTS[..count].iter().copied()).collect();
            let gains = measure_gains(options, connections, |seed| {
                with_uplinks(DemoScenario::on_testbed(&all, SET.volumes(), seed)?)
            })?;
            by_count.push((format!("{count} BERT"), gains));
        }
        rows.extend(fig19_rows(connections, &by_count));
        drawn.extend(drawn_rows(&drawn_part(connections), &by_count, &["GPT", "BERT"]));
    }
    rows.extend(drawn);
    let mut assumptions = list_assumptions();
    assumptions.push(
        "Paper: the ranges that it prints over numbers of BERT jobs, the mild end beside 2 of them \
         here, the strong end beside 8. GPT has one host on every leaf, every BERT half a host on \
         two leaves; a ring opens 8 connections a NIC, as calibrated, and then 1 or 2."
            .to_owned(),
    );
    Ok(PaperReproduction {
        about: "A 32-GPU GPT with n 8-GPU BERT jobs: Crux against ECMP.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 19 and §6.2.".to_owned(),
        rows,
        assumptions,
        ..PaperReproduction::default()
    })
}

/// The heading over the rows of a figure like the paper's.
fn drawn_part(connections: u16) -> String {
    format!("as the paper draws it, {connections} conn.")
}

/// `by_count` has the gains of every seed for each of [`COUNTS`].
fn fig19_rows(connections: u16, by_count: &[NamedGains]) -> Vec<MeasureRow> {
    let measures: [RangedMeasure<CruxGain>; 3] = [
        ("GPU utilisation", CruxGain::utilisation_change, [8.3, 12.9]),
        ("completion of GPT", |gain| gain.mean_change("gpt"), [-11.0, -25.0]),
        ("completion of BERT", |gain| gain.mean_change("bert"), [0.0, 3.0]),
    ];
    let mut rows = Vec::new();
    for (name, value, [mild, strong]) in measures {
        for (count, (case, gains)) in COUNTS.iter().zip(by_count) {
            let paper = match *count {
                2 => Some(mild),
                8 => Some(strong),
                _ => None,
            };
            let measure = format!("{name}, {case}, {connections} conn.");
            rows.push(MeasureRow::of_runs(measure, "%", paper, (gains, value)));
        }
    }
    rows
}

/// A 48-GPU GPT with two BERT and two ResNet jobs.
pub(super) fn reproduce_fig20(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let testbed = |seed| with_uplinks(DemoScenario::paper_testbed(SET.volumes(), seed)?);
    let measured = measure_gains(options, SET.connections, testbed)?;
    let of = |value: fn(&CruxGain) -> f64| measured.iter().map(value).collect::<Vec<f64>>();
    let mut rows = vec![
        MeasureRow::new("GPU utilisation", "%", Some(13.9), &of(CruxGain::utilisation_change)),
        MeasureRow::new("completion of GPT", "%", Some(-18.0), &of(|gain| gain.mean_change("gpt"))),
        MeasureRow::new(
            "completion of BERT",
            "%",
            Some(-15.0),
            &of(|gain| gain.mean_change("bert")),
        ),
        MeasureRow::new(
            "completion of ResNet",
            "%",
            Some(2.0),
            &of(|gain| gain.mean_change("resnet")),
        ),
    ];
    let mut drawn = Vec::new();
    for connections in CONNECTIONS {
        let gains = measure_gains(options, connections, testbed)?;
        let measure = format!("GPU utilisation, {connections} conn.");
        let value = CruxGain::utilisation_change;
        rows.push(MeasureRow::of_runs(measure, "%", Some(13.9), (&gains, value)));
        let case = [("five jobs".to_owned(), gains)];
        drawn.extend(drawn_rows(&drawn_part(connections), &case, &["GPT", "BERT", "ResNet"]));
    }
    rows.extend(drawn);
    let mut assumptions = list_assumptions();
    assumptions.push(
        "Placement, which the paper does not print: that of docs/demo.md. How many connections a \
         ring opens for each NIC is not printed either: 8 above, as calibrated, and a sweep."
            .to_owned(),
    );
    Ok(PaperReproduction {
        about: "A 48-GPU GPT with two 16-GPU BERT and two 8-GPU ResNet jobs: Crux against ECMP."
            .to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 20 and §6.2.".to_owned(),
        rows,
        assumptions,
        ..PaperReproduction::default()
    })
}

/// A scenario of the testbed with the uplinks of the set.
fn with_uplinks(scenario: DemoScenario) -> Result<DemoScenario, CommandError> {
    Ok(DemoScenario { fabric: SET.example_fabric("crux-testbed")?, ..scenario })
}

/// By seed, with so many connections for each flow of the scenario.
pub(super) fn measure_gains(
    options: SeedOptions,
    connections: u16,
    scenario: impl Fn(u64) -> Result<DemoScenario, CommandError>,
) -> Result<Vec<CruxGain>, CommandError> {
    options
        .all_seeds()
        .map(|seed| {
            let DemoScenario { fabric, jobs, .. } = scenario(seed)?;
            let jobs = jobs.into_iter().map(|job| split_flows(job, connections)).collect();
            CruxGain::measure(&default_experiment(fabric, jobs, SECONDS))
        })
        .collect()
}

/// The job with each flow split over so many connections, on UDP ports from that of the flow on.
pub(super) fn split_flows(job: Job, connections: u16) -> Job {
    Job {
        flows: job
            .flows
            .iter()
            .flat_map(|flow| {
                let flow = flow.clone();
                (0..connections).map(move |connection| Flow {
                    bytes: flow.bytes / f64::from(connections),
                    udp_src_port: flow
                        .udp_src_port
                        .map(|port| 0xC000 | port.wrapping_add(connection.wrapping_mul(1_009))),
                    ..flow.clone()
                })
            })
            .collect(),
        ..job
    }
}

/// An experiment without failures under the default policy.
pub(super) fn default_experiment(
    fabric: Fabric,
    jobs: Vec<Job>,
    seconds: f64,
) -> SimulationExperiment {
    SimulationExperiment {
        input: PlanInput { fabric, jobs },
        policy: Policy::default(),
        seconds,
        faults: Vec::new(),
        views: Vec::new(),
    }
}

pub(super) fn simulate_outcome(
    experiment: &SimulationExperiment,
    scheduler: impl ScheduleSource,
) -> Result<SimulationOutcome, CommandError> {
    let simulated = simulator::simulate_experiment(experiment, scheduler, &mut |_| {})
        .map_err(CommandError::failed)?;
    Ok(simulated.outcome)
}

fn list_assumptions() -> Vec<String> {
    [
        "Volumes as crux reproduce calibrate finds them, 0.9 times those of crux-fig7; ResNet's as \
         many times its gradients as BERT's. Fabric: 4 leaves of 3 hosts, 4 spines, uplinks of \
         400 Gb/s.",
        "Without Crux: ECMP with one level, UDP ports drawn from the seed. The fluid model; all \
         jobs begin together.",
        "Completion is the mean iteration time.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SeedOptions = SeedOptions { seed: 2, seeds: 1 };

    #[test]
    fn crux_gains_on_the_testbed() {
        let found = reproduce_fig20(ONE).unwrap();
        let ours = |measure: &str| {
            let row = found.rows.iter().find(|row| row.measure == measure);
            row.unwrap().ours
        };
        assert!(ours("GPU utilisation, 1 conn.") > 8.0);
        assert!(ours("completion of GPT") < 0.1);
        assert!(ours("completion of ResNet").abs() < 5.0);
        // More and smaller flows collide less.
        assert!(ours("GPU utilisation, 8 conn.") < ours("GPU utilisation, 1 conn."));
        assert_eq!(ours("GPU utilisation, 8 conn."), ours("GPU utilisation"));
    }

    #[test]
    fn split_flows_carry_what_the_flow_did() {
        let job = DemoScenario::paper_testbed(SET.volumes(), 1).unwrap().jobs[0].clone();
        let bytes = |job: &Job| job.flows.iter().map(|flow| flow.bytes).sum::<f64>();
        let split = split_flows(job.clone(), 4);
        assert_eq!(split.flows.len(), 4 * job.flows.len());
        assert!((bytes(&split) / bytes(&job) - 1.0).abs() < 1e-12);
    }
}
