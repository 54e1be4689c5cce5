//! The curve of utilisation against the worst job's slowdown, by weight of fairness, over generated
//! cases: `cargo run --release -p simulator --example fairness -- CASES SEED`.

use simulator::decisions::{Fairness, case, fairness};

/// Weights on the curve.
const WEIGHTS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| {
        let given = arguments.next().and_then(|text| text.parse().ok());
        given.unwrap_or(otherwise)
    };
    let (cases, seed) = (number(100_u32), u64::from(number(1)));
    let outcomes: Vec<Vec<Fairness>> = (0..cases)
        .map(|number| fairness(&case(seed, number), &WEIGHTS))
        .collect();
    println!("{cases} cases of seed {seed}");
    println!("weight  utilisation %  worst job's slowdown: mean  largest");
    for (place, weight) in WEIGHTS.iter().enumerate() {
        let of = |value: fn(&Fairness) -> f64| outcomes.iter().map(move |case| value(&case[place]));
        let mean = |value| of(value).sum::<f64>() / f64::from(cases);
        let worst = of(|outcome| outcome.worst_slowdown).fold(1.0, f64::max);
        println!(
            "{weight:<6}  {:>13.2}  {:>26.3}  {worst:>7.3}",
            mean(|outcome| outcome.utilization) * 100.0,
            mean(|outcome| outcome.worst_slowdown),
        );
    }
}
