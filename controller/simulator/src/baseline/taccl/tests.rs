//! Paths and classes on small fabrics.

use crate::baseline::trial::Trial;

use super::*;

fn paths_of(input: &Input, sight: Sight) -> Vec<Vec<Vec<LinkId>>> {
    paths(input, &Routes::of(input), sight)
}

#[test]
fn flows_spread_over_the_least_congested_links() {
    let trial = Trial::lab()
        .job("a", &[("h1", "h4"), ("h2", "h5")])
        .job("b", &[("h3", "h6")]);
    let paths = paths_of(&trial.input(), Sight::Flows);
    assert_eq!(trial.vias(&paths[0]), ["spine1", "spine2"]);
    assert_eq!(trial.vias(&paths[1]), ["spine1"]);
}

#[test]
fn the_first_come_chooses_first() {
    let trial = Trial::lab()
        .job("b", &[("h1", "h4")])
        .job("a", &[("h2", "h5")]);
    let paths = paths_of(&trial.input(), Sight::Flows);
    assert_eq!(
        (trial.vias(&paths[0]), trial.vias(&paths[1])),
        (vec!["spine1"], vec!["spine2"])
    );
}

#[test]
fn the_longer_distance_is_served_first() {
    // h1 and h2 are on one leaf (2 links), h1 and h4 are not (4 links).
    let trial = Trial::lab()
        .job("near", &[("h1", "h2")])
        .job("far", &[("h1", "h4")])
        .job("far too", &[("h3", "h6")]);
    let paths = paths_of(&trial.input(), Sight::Flows);
    assert_eq!(order(&paths), [1, 2, 0]);
    let policy = Policy {
        levels: 2,
        ..Policy::default()
    };
    assert_eq!(classes(&order(&paths), &policy), [0, 1, 1]);
}

#[test]
fn flows_that_see_other_jobs_only_go_where_the_hash_says_on_an_idle_fabric() {
    let flows = [("h1", "h4"), ("h2", "h5"), ("h3", "h6")];
    let trial = Trial::lab().job("a", &flows).job("b", &[("h1", "h5")]);
    let input = trial.input();
    let vias = |paths: &[Vec<LinkId>]| trial.vias(paths).join(" ");
    // One flow after the other: two on one spine, one on the other, where the next job goes.
    let by_flow = paths_of(&input, Sight::Flows);
    assert_eq!(vias(&by_flow[0]), "spine1 spine2 spine1");
    assert_eq!(vias(&by_flow[1]), "spine2");
    let by_job = paths_of(&input, Sight::Jobs);
    assert_eq!(
        vias(&by_job[0]),
        vias(&ecmp::paths(&input, &Routes::of(&input))[0])
    );
    // The next job sees what that came to.
    let on_first = vias(&by_job[0]).matches("spine1").count();
    let emptier = if on_first >= 2 { "spine2" } else { "spine1" };
    assert_eq!(vias(&by_job[1]), emptier);
}
