//! Compression against the paper's figures, and the exact method against enumeration.

use planner::compression::{CompressionProblem, balanced, compress_priorities, sampled, sincronia};
use planner::{CompressionMethod, ContentionDag, ContentionEdge};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn dag(nodes: usize, edges: &[(usize, usize, f64)]) -> ContentionDag {
    let edges = edges.iter().map(|&(above, below, weight)| ContentionEdge { above, below, weight });
    ContentionDag { nodes, edges: edges.collect() }
}

fn exact(dag: &ContentionDag, levels: u8) -> Vec<u8> {
    let problem =
        CompressionProblem { dag, level_count: levels, current_levels: vec![None; dag.nodes] };
    compress_priorities(&problem, CompressionMethod::Exact)
}

/// Crux Fig. 13: four jobs of falling priority, K = 2, links shared by (1,2) and (3,4).
#[test]
fn figure_13() {
    let dag = dag(4, &[(0, 1, 4.0), (2, 3, 2.0)]);
    assert_eq!(exact(&dag, 2), [1, 0, 1, 0]);
    assert_eq!(sampled::sampled_levels(&dag, 2, 1), [1, 0, 1, 0]);
    assert_eq!(sincronia::sincronia_levels(4, 2), [1, 0, 0, 0]);
    assert_eq!(balanced::balanced_levels(4, 2), [1, 1, 0, 0]);
    assert_eq!(dag.cut_weight(&[1, 0, 1, 0]), 6.0);
    assert_eq!(dag.cut_weight(&[1, 0, 0, 0]), 4.0);
    assert_eq!(dag.cut_weight(&[1, 1, 0, 0]), 0.0);
}

/// Crux Fig. 14: five jobs, K = 3, optimum {1}, {2, 5}, {3, 4}, which cuts every edge.
#[test]
fn figure_14() {
    let dag = dag(5, &[(0, 1, 5.0), (0, 2, 5.0), (0, 4, 5.0), (1, 2, 4.0), (1, 3, 4.0)]);
    let optimum = [2, 1, 0, 0, 1];
    assert_eq!(dag.cut_weight(&optimum), dag.total_weight());
    assert_eq!(exact(&dag, 3), optimum);
    let sampled = sampled::sampled_levels(&dag, 3, 1);
    assert_eq!(dag.cut_weight(&sampled), dag.total_weight());
}

#[test]
fn few_nodes_and_few_levels() {
    assert!(exact(&dag(0, &[]), 8).is_empty());
    assert_eq!(exact(&dag(1, &[]), 1), [0]);
    assert_eq!(exact(&dag(2, &[(0, 1, 1.0)]), 1), [0, 0]);
    assert!(sampled::sampled_levels(&dag(0, &[]), 8, 1).is_empty());
    assert_eq!(sampled::sampled_levels(&dag(2, &[(0, 1, 1.0)]), 1, 1), [0, 0]);
}

/// Weights of very different size: the smallest edge still counts.
#[test]
fn a_small_weight_beside_a_large_one_is_not_lost() {
    let dag = dag(3, &[(0, 1, 1e17), (1, 2, 1e6)]);
    assert_eq!(exact(&dag, 3), [2, 1, 0]);
}

/// Found by the property below: 25 is no power of two, so scaling weights by 2^48 / 25 rounded them
/// apart and hid that cuts were equal.
#[test]
fn cuts_of_equal_weight_are_recognised() {
    let dag = dag(
        6,
        &[
            (0, 1, 3.0),
            (0, 2, 1.0),
            (0, 3, 5.0),
            (0, 4, 3.0),
            (1, 2, 4.0),
            (1, 4, 4.0),
            (1, 5, 2.0),
            (2, 5, 2.0),
            (4, 5, 1.0),
        ],
    );
    let found = exact(&dag, 3);
    let higher = assignments(&dag, 3).into_iter().filter(|other| {
        dag.cut_weight(other) == dag.cut_weight(&found)
            && other.iter().zip(&found).any(|(other, found)| other > found)
    });
    assert_eq!(higher.collect::<Vec<_>>(), Vec::<Vec<u8>>::new());
}

/// Random DAGs of at most 7 nodes with weights that are small integers, so that optima tie often.
fn small_dag() -> impl Strategy<Value = ContentionDag> {
    (1_usize..=7).prop_flat_map(|nodes| {
        let pairs = nodes * (nodes - 1) / 2;
        let weights = prop::collection::vec(prop::option::of(1_u32..6), pairs);
        weights.prop_map(move |weights| {
            let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
            let edges = pairs.zip(weights).filter_map(|((above, below), weight)| {
                Some(ContentionEdge { above, below, weight: f64::from(weight?) })
            });
            ContentionDag { nodes, edges: edges.collect() }
        })
    })
}

/// Every assignment of levels that no edge forbids.
fn assignments(dag: &ContentionDag, levels: u8) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for node in 0..dag.nodes {
        let above: Vec<usize> =
            dag.edges.iter().filter(|edge| edge.below == node).map(|edge| edge.above).collect();
        let longer = |one: Vec<u8>| {
            let highest = above.iter().map(|above| one[*above]).min().unwrap_or(levels - 1);
            (0..=highest).map(move |level| [&one[..], &[level]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// The claim of the essay, at its full number: 10,000 random DAGs of up to 7 nodes, 1 to 4 levels.
#[test]
fn exact_is_brute_force_on_ten_thousand_dags() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for case in 0..10_000 {
        let nodes = random.random_range(1..=7);
        let density = random.random_range(0.1..1.0);
        let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
        let edges: Vec<(usize, usize)> = pairs.filter(|_| random.random_bool(density)).collect();
        let weight = |(above, below)| (above, below, f64::from(random.random_range(1_u32..1000)));
        let edges: Vec<(usize, usize, f64)> = edges.into_iter().map(weight).collect();
        let (dag, levels) = (dag(nodes, &edges), random.random_range(1..=4));
        let all = assignments(&dag, levels);
        let heaviest = all.iter().map(|one| dag.cut_weight(one)).fold(0.0, f64::max);
        assert_eq!(dag.cut_weight(&exact(&dag, levels)), heaviest, "case {case}: {dag:?}");
    }
}

fn moves(levels: &[u8], present: &[Option<u8>]) -> usize {
    let pairs = levels.iter().zip(present);
    pairs.filter(|(level, present)| present.is_some_and(|present| present != **level)).count()
}

proptest! {
    /// The exact method cuts the most weight possible; of those cuts it moves the fewest jobs; of
    /// those, no job could be in a higher level.
    #[test]
    fn exact_is_optimal(
        dag in small_dag(),
        levels in 1_u8..=4,
        wishes in prop::collection::vec(prop::option::of(0_u8..4), 7),
    ) {
        let present: Vec<Option<u8>> = wishes[..dag.nodes].to_vec();
        let current_levels = present.clone();
        let problem = CompressionProblem { dag: &dag, level_count: levels, current_levels };
        let found = compress_priorities(&problem, CompressionMethod::Exact);
        prop_assert!(dag.allows_levels(&found));
        let all = assignments(&dag, levels);
        let heaviest = all.iter().map(|one| dag.cut_weight(one)).fold(0.0, f64::max);
        prop_assert_eq!(dag.cut_weight(&found), heaviest);
        let optimal: Vec<_> =
            all.into_iter().filter(|one| dag.cut_weight(one) == heaviest).collect();
        let fewest = optimal.iter().map(|one| moves(one, &present)).min().unwrap();
        prop_assert_eq!(moves(&found, &present), fewest);
        for other in optimal.iter().filter(|one| moves(one, &present) == fewest) {
            prop_assert!(other.iter().zip(&found).all(|(other, found)| other <= found));
        }
    }

    /// Every method gives levels in range that no edge forbids, and none beats the exact one.
    #[test]
    fn no_method_beats_the_exact_one(dag in small_dag(), levels in 1_u8..=4, seed: u64) {
        let best = dag.cut_weight(&exact(&dag, levels));
        let others = [
            sampled::sampled_levels(&dag, levels, seed),
            sincronia::sincronia_levels(dag.nodes, levels),
            balanced::balanced_levels(dag.nodes, levels),
        ];
        for other in others {
            prop_assert_eq!(other.len(), dag.nodes);
            prop_assert!(other.iter().all(|level| *level < levels));
            prop_assert!(dag.allows_levels(&other));
            prop_assert!(dag.cut_weight(&other) <= best);
        }
    }
}
