//! BSSI by hand, its guarantee against enumeration, and the levels of Crux Fig. 13.

use proptest::prelude::*;
use topology::LinkId;

use super::*;

/// Demands in seconds, by coflow, then by link.
fn demands(table: &[Vec<f64>]) -> Vec<LinkDemand> {
    let demand = |row: &Vec<f64>| LinkDemand {
        links: (0..).map(LinkId).zip(row.iter().copied()).filter(|(_, s)| *s > 0.0).collect(),
    };
    table.iter().map(demand).collect()
}

fn check(table: &[Vec<f64>], expect: &[usize]) {
    assert_eq!(order_coflows(&demands(table)), expect);
}

#[test]
fn one_link_is_shortest_first() {
    check(&[vec![3.0], vec![1.0], vec![2.0]], &[1, 2, 0]);
    check(&[vec![1.0], vec![1.0]], &[0, 1]);
}

#[test]
fn weights_are_scaled_at_the_bottleneck() {
    // Sums: link 0 has 5, link 1 has 4. On link 0, 1/3 < 1/2: coflow 0 goes last, and coflow 1 is
    // charged 1/3 * 2. Left are w = (-, 1/3, 1) with link 1 the bottleneck (1 + 3): ratios 1/3 and
    // 1/3 tie, so the later one goes last.
    check(&[vec![3.0, 0.0], vec![2.0, 1.0], vec![0.0, 3.0]], &[1, 2, 0]);
    // With 4.5 instead of 3 on link 1 that link is the first bottleneck: coflow 2 goes last.
    check(&[vec![3.0, 0.0], vec![2.0, 1.0], vec![0.0, 4.5]], &[1, 0, 2]);
}

#[test]
fn coflows_without_demand_come_first() {
    check(&[vec![1.0], vec![0.0], vec![2.0]], &[1, 0, 2]);
    check(&[], &[]);
}

#[test]
fn four_jobs_in_two_classes_are_one_and_three() {
    let policy = Policy { levels: 2, ..Policy::default() };
    assert_eq!(assign_levels(&[0, 1, 2, 3], &policy), [1, 0, 0, 0]);
}

/// Mean completion if every link serves the coflows in `order`, each link by itself (concurrent
/// open shop): no schedule of the coflows, whose flows hold several links at once, is faster.
fn open_shop(table: &[Vec<f64>], order: &[usize]) -> f64 {
    let mut done = vec![0.0; table[0].len()];
    let mut sum = 0.0;
    for coflow in order {
        let mut end = 0.0_f64;
        for (link, seconds) in table[*coflow].iter().enumerate() {
            done[link] += seconds;
            if *seconds > 0.0 {
                end = end.max(done[link]);
            }
        }
        sum += end;
    }
    sum / order.len() as f64
}

fn permutations(items: Vec<usize>) -> Vec<Vec<usize>> {
    if items.len() < 2 {
        return vec![items];
    }
    let with_first = |at: usize| {
        let mut rest = items.clone();
        let first = rest.remove(at);
        permutations(rest).into_iter().map(move |tail| [vec![first], tail].concat())
    };
    (0..items.len()).flat_map(with_first).collect()
}

/// A big switch with three ports each way: bytes of every coflow by input and output port.
fn coflows() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let coflow = proptest::collection::vec(0..4_u8, 9)
        .prop_filter("sends", |flows| flows.iter().any(|bytes| *bytes > 0));
    proptest::collection::vec(coflow, 2..=5)
}

/// Seconds on the six ports, of unit capacity.
fn ports(coflow: &[u8]) -> Vec<f64> {
    let flow = |input: usize, output: usize| f64::from(coflow[input * 3 + output]);
    let inputs = (0..3).map(|input| (0..3).map(|output| flow(input, output)).sum());
    let outputs = (0..3).map(|output| (0..3).map(|input| flow(input, output)).sum());
    inputs.chain(outputs).collect()
}

/// Mean completion in the fluid engine, a level for each coflow in the order given.
fn fluid_mean(coflows: &[Vec<u8>], order: &[usize]) -> f64 {
    let mut engine = fluid_engine(coflows, order);
    engine.run_until(1e3).unwrap();
    let tallies = engine.tallies();
    let seconds = tallies.jobs.iter().map(|job| job.iteration_seconds);
    seconds.sum::<f64>() / coflows.len() as f64
}

fn fluid_engine(coflows: &[Vec<u8>], order: &[usize]) -> fluid::Engine {
    let network = fluid::FluidNetwork::new(vec![1.0; 6]).unwrap();
    let mut engine = fluid::Engine::new(&network, fluid::EngineOptions::default()).unwrap();
    for (coflow, bytes) in coflows.iter().enumerate() {
        let rank = order.iter().position(|other| *other == coflow).unwrap();
        let flow = |(cell, bytes): (usize, &u8)| {
            let path = vec![(cell / 3) as u32, (3 + cell % 3) as u32];
            fluid::FluidFlow::new(path, f64::from(*bytes))
        };
        let sent = bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        let job = fluid::FluidJob {
            compute_seconds: 0.0,
            level: (order.len() - rank) as u32,
            iterations: Some(1),
            flows: sent.map(flow).collect(),
            ..fluid::FluidJob::default()
        };
        engine.add_job(&job).unwrap();
    }
    engine
}

proptest! {
    /// Twice the optimum of the open shop (the paper's Lemma on BSSI), and with any work-conserving
    /// rates that keep the order four times the optimum, of which the open shop's is a lower bound.
    #[test]
    fn within_the_guarantee_of_the_paper(coflows in coflows()) {
        let table: Vec<Vec<f64>> = coflows.iter().map(|coflow| ports(coflow)).collect();
        let all = permutations((0..coflows.len()).collect());
        let best = all.iter().map(|order| open_shop(&table, order)).fold(f64::INFINITY, f64::min);
        let ours = order_coflows(&demands(&table));
        prop_assert!(open_shop(&table, &ours) <= 2.0 * best + 1e-9);
        let mean = fluid_mean(&coflows, &ours);
        prop_assert!(mean <= 4.0 * best + 1e-9, "{mean} against {best}");
    }
}
