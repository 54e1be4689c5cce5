//! Paths and classes on small fabrics.

use topology::document::Format;
use topology::{NicId, equal_cost_paths, examples, spec};

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

/// Three tiers with parallel links and thousands of equal paths between two leaves: the path is the
/// one that a list of them all gives, whatever was placed before.
#[test]
fn paths_that_are_counted_are_those_of_a_list() {
    let text = examples::example("crux-double-sided").unwrap();
    let fabric = spec::parse(text, Format::Toml, "crux-double-sided").unwrap();
    let nics = fabric.nics().len() as u32;
    let flow = |index: u32| Flow {
        src: NicId(index * 7919 % nics),
        dst: NicId((index * 104_729 + nics / 2) % nics),
        bytes: f64::from(1 + index % 3) * 1e9,
        udp_src_port: 50_000 + index as u16,
    };
    let mut job = Trial::lab().job("a", &[("h1", "h2")]).jobs.remove(0);
    job.flows = (0..60).map(flow).collect();
    let mut routes = Routes::new(&fabric);
    routes.learn(&job);
    for sight in [Sight::Flows, Sight::Jobs] {
        let mut loads = Loads {
            fabric: &fabric,
            busy: vec![0; fabric.links().len()],
        };
        let mut most = 0;
        for flow in &job.flows {
            let found = loads.least_congested(flow, flow.bytes, &routes, sight);
            let (of_a_list, count) = listed(&loads, flow, sight);
            assert_eq!(found[1..found.len() - 1], of_a_list);
            loads.add(&found, flow.bytes);
            most = most.max(count);
        }
        assert_eq!(most, 2048);
    }
}

/// The segment that a list of all paths gives, and how many there are.
fn listed(loads: &Loads<'_>, flow: &Flow, sight: Sight) -> (Vec<LinkId>, usize) {
    let fabric = loads.fabric;
    let (from, to) = (fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
    let all = equal_cost_paths(fabric, from, to);
    let count = all.len();
    let congestion = |segment: &Vec<LinkId>| {
        let loads = segment.iter().map(|link| loads.with(*link, flow.bytes));
        (loads.clone().max(), loads.sum::<u64>())
    };
    let least = all.iter().map(congestion).min().unwrap();
    let mut best: Vec<Vec<LinkId>> = all;
    best.retain(|segment| congestion(segment) == least);
    let chosen = match sight {
        Sight::Flows => 0,
        Sight::Jobs => ecmp::among(fabric, flow, best.len()),
    };
    (best.swap_remove(chosen), count)
}
