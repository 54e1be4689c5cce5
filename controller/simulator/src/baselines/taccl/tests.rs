//! Paths and levels on small fabrics.

use topology::document::DocumentFormat;
use topology::{NicId, equal_cost_paths, examples, spec};

use crate::baselines::test_input::TestInput;

use super::*;

fn paths_of(input: &PlanInput, visibility: LoadVisibility) -> Vec<Vec<Vec<LinkId>>> {
    choose_paths(input, &EqualCostRoutes::for_input(input), visibility)
}

#[test]
fn flows_spread_over_the_least_congested_links() {
    let test_input = TestInput::on_lab_fabric()
        .with_job("a", &[("h1", "h4"), ("h2", "h5")])
        .with_job("b", &[("h3", "h6")]);
    let paths = paths_of(&test_input.to_input(), LoadVisibility::AllFlows);
    assert_eq!(test_input.spine_names(&paths[0]), ["spine1", "spine2"]);
    assert_eq!(test_input.spine_names(&paths[1]), ["spine1"]);
}

#[test]
fn the_first_come_chooses_first() {
    let test_input =
        TestInput::on_lab_fabric().with_job("b", &[("h1", "h4")]).with_job("a", &[("h2", "h5")]);
    let paths = paths_of(&test_input.to_input(), LoadVisibility::AllFlows);
    assert_eq!(
        (test_input.spine_names(&paths[0]), test_input.spine_names(&paths[1])),
        (vec!["spine1"], vec!["spine2"])
    );
}

#[test]
fn the_longer_distance_is_served_first() {
    // h1 and h2 are on one leaf (2 links), h1 and h4 are not (4 links).
    let test_input = TestInput::on_lab_fabric()
        .with_job("near", &[("h1", "h2")])
        .with_job("far", &[("h1", "h4")])
        .with_job("far too", &[("h3", "h6")]);
    let paths = paths_of(&test_input.to_input(), LoadVisibility::AllFlows);
    assert_eq!(order_jobs(&paths), [1, 2, 0]);
    let policy = Policy { levels: 2, ..Policy::default() };
    assert_eq!(assign_levels(&order_jobs(&paths), &policy), [0, 1, 1]);
}

#[test]
fn flows_that_see_other_jobs_only_follow_the_hash_on_an_idle_fabric() {
    let flows = [("h1", "h4"), ("h2", "h5"), ("h3", "h6")];
    let test_input =
        TestInput::on_lab_fabric().with_job("a", &flows).with_job("b", &[("h1", "h5")]);
    let input = test_input.to_input();
    let vias = |paths: &[Vec<LinkId>]| test_input.spine_names(paths).join(" ");
    // One flow after the other: two on one spine, one on the other, where the next job goes.
    let by_flow = paths_of(&input, LoadVisibility::AllFlows);
    assert_eq!(vias(&by_flow[0]), "spine1 spine2 spine1");
    assert_eq!(vias(&by_flow[1]), "spine2");
    let by_job = paths_of(&input, LoadVisibility::OtherJobs);
    assert_eq!(
        vias(&by_job[0]),
        vias(&ecmp::hash_paths(&input, &EqualCostRoutes::for_input(&input))[0])
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
    let text = examples::example_text("crux-double-sided").unwrap();
    let fabric = spec::parse_fabric(text, DocumentFormat::Toml, "crux-double-sided").unwrap();
    let nics = fabric.nics().len() as u32;
    let flow = |index: u32| Flow {
        src: NicId(index * 7919 % nics),
        dst: NicId((index * 104_729 + nics / 2) % nics),
        bytes: f64::from(1 + index % 3) * 1e9,
        udp_src_port: Some(50_000 + index as u16),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    };
    let mut job = TestInput::on_lab_fabric().with_job("a", &[("h1", "h2")]).jobs.remove(0);
    job.flows = (0..60).map(flow).collect();
    let mut routes = EqualCostRoutes::new(&fabric);
    routes.add_job(&job);
    for visibility in [LoadVisibility::AllFlows, LoadVisibility::OtherJobs] {
        let mut loads = LinkLoads { fabric: &fabric, busy: vec![0; fabric.links().len()] };
        let mut most = 0;
        for flow in &job.flows {
            let found = loads.least_congested_path(flow, flow.bytes, &routes, visibility);
            let (of_a_list, count) = listed(&loads, flow, visibility);
            assert_eq!(found[1..found.len() - 1], of_a_list);
            loads.add_path(&found, flow.bytes);
            most = most.max(count);
        }
        assert_eq!(most, 2048);
    }
}

/// The segment that a list of all paths gives, and how many there are.
fn listed(loads: &LinkLoads<'_>, flow: &Flow, visibility: LoadVisibility) -> (Vec<LinkId>, usize) {
    let fabric = loads.fabric;
    let (from, to) = (fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
    let all = equal_cost_paths(fabric, from, to);
    let count = all.len();
    let congestion = |segment: &Vec<LinkId>| {
        let loads = segment.iter().map(|link| loads.load_with(*link, flow.bytes));
        (loads.clone().max(), loads.sum::<u64>())
    };
    let least = all.iter().map(congestion).min().unwrap();
    let mut best: Vec<Vec<LinkId>> = all;
    best.retain(|segment| congestion(segment) == least);
    let chosen = match visibility {
        LoadVisibility::AllFlows => 0,
        LoadVisibility::OtherJobs => ecmp::choose_at_leaf(fabric, flow, best.len()),
    };
    (best.swap_remove(chosen), count)
}
