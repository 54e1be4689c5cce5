//! Refuses paths whose buffers would wait for each other in a cycle, which priority flow control
//! can turn into a deadlock.
//!
//! Paths that climb and then descend cannot make one (`docs/algorithms/deadlock.md`), and no phase
//! makes others. This module relies on none of them: it looks at the paths that a plan is about to
//! have. The decision: one byte for each link says whether it climbs, so a plan of such paths costs
//! one pass over its links; only for others the waits of all routes are collected, level by level,
//! as each level has buffers of its own.

use topology::{BufferCycle, BufferDependencyGraph, Fabric, Finding, LinkId, LinkPath, next_hops};

use crate::path_selection;
use crate::refine::Decisions;
use crate::traffic::IndexedTraffic;

/// Gives the flows that would close a cycle of waiting buffers the least congested equal-cost path,
/// and says which cycles were refused.
pub(crate) fn refuse_cycles(traffic: &IndexedTraffic<'_>, decided: &mut Decisions) -> Vec<Finding> {
    let slopes = traffic.tables.slopes();
    let paths = decided.paths.iter().enumerate();
    let suspects = paths.filter(|(_, path)| !slopes.is_valley_free(path));
    let mut suspects: Vec<usize> = suspects.map(|(flow, _)| flow).collect();
    if suspects.is_empty() {
        return Vec::new();
    }
    let routes = equal_cost_waits(traffic.fabric);
    let mut findings = Vec::new();
    while let Some(refused) = find_cycle(traffic, &routes, decided, &suspects) {
        suspects.retain(|flow| !refused.flows.contains(flow));
        for flow in &refused.flows {
            decided.paths[*flow] = LinkPath::EMPTY;
        }
        findings.push(refused.into_finding(traffic));
    }
    if !findings.is_empty() {
        decided.paths = path_selection::complete_paths(traffic, &decided.paths);
    }
    findings
}

/// A cycle, and the flows without which it would not be one.
struct RefusedCycle {
    cycle: BufferCycle,
    level: u8,
    flows: Vec<usize>,
}

impl RefusedCycle {
    fn into_finding(self, traffic: &IndexedTraffic<'_>) -> Finding {
        let first = &traffic.flows[self.flows[0]];
        let [src, dst] = [first.flow.src, first.flow.dst]
            .map(|nic| &traffic.fabric.host(traffic.fabric.nic(nic).host).name);
        let others = match self.flows.len() {
            1 => String::new(),
            count => format!(" and of {} more flows", count - 1),
        };
        let text = format!(
            "the path from {src} to {dst}{others} was refused: at level {} it closes a cycle of \
             buffers that wait for each other under priority flow control: {}",
            self.level,
            self.cycle.name_in(traffic.fabric)
        );
        Finding::warning(format!("job {}", traffic.jobs[first.job].id), text)
    }
}

/// The waits of packets without a pin, which may take every equal-cost path at every level.
fn equal_cost_waits(fabric: &Fabric) -> BufferDependencyGraph {
    let mut graph = BufferDependencyGraph::default();
    for destination in fabric.destinations() {
        graph.add_routes(fabric, &[&next_hops(fabric, *destination)]);
    }
    graph
}

/// A cycle of the lowest level that has one.
fn find_cycle(
    traffic: &IndexedTraffic<'_>,
    routes: &BufferDependencyGraph,
    decided: &Decisions,
    suspects: &[usize],
) -> Option<RefusedCycle> {
    let slopes = traffic.tables.slopes();
    let level_of = |flow: &usize| decided.levels[traffic.flows[*flow].job];
    let mut levels: Vec<u8> = suspects.iter().map(level_of).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.into_iter().find_map(|level| {
        let members = suspects.iter().copied().filter(|flow| level_of(flow) == level);
        let mut graph = routes.clone();
        members.clone().for_each(|flow| graph.add_path(&decided.paths[flow]));
        let cycle = graph.find_cycle()?;
        let closes = |turn: &[LinkId]| {
            slopes.is_valley(turn[0], turn[1]) && cycle.has_turn(turn[0], turn[1])
        };
        let flows = members.filter(|flow| decided.paths[*flow].windows(2).any(closes)).collect();
        Some(RefusedCycle { cycle, level, flows })
    })
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};
    use topology::{HostId, NicId};

    use super::*;
    use crate::input::{Flow, Job, PlanInput};
    use crate::link_slopes::LinkSlopes;

    fn job(name: &str, src: usize, dst: usize) -> Job {
        Job::for_test(
            name,
            (HostId::from(src), 1),
            vec![Flow {
                src: NicId::from(src),
                dst: NicId::from(dst),
                bytes: 1e9,
                udp_src_port: Some(50_000),
                gpus: crate::input::FlowGpus::default(),
                overlap_from: None,
            }],
        )
    }

    /// The path over these switches.
    fn path(fabric: &Fabric, flow: &Flow, switches: &[&str]) -> LinkPath {
        let cables = switches.windows(2).map(|pair| format!("{}-{}", pair[0], pair[1]));
        let between = cables.map(|cable| fabric.links_named(&cable)[0]);
        let start = LinkPath::EMPTY.with_link(fabric.nic(flow.src).uplink);
        let path = between.fold(start, LinkPath::with_link);
        path.with_link(fabric.nic(flow.dst).uplink.reverse())
    }

    /// What becomes of two flows from leaf1 to leaf3, each through a valley, at these levels.
    fn refused(levels: [u8; 2]) -> (Decisions, Vec<Finding>, PlanInput) {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let input = PlanInput { jobs: vec![job("a", 0, 6), job("b", 1, 7)], fabric };
        let traffic = IndexedTraffic::new(&input);
        let valleys = [
            ["leaf1", "spine1", "leaf2", "spine2", "leaf3"],
            ["leaf1", "spine2", "leaf4", "spine1", "leaf3"],
        ];
        let flows = traffic.flows.iter().zip(valleys);
        let paths = flows.map(|(flow, over)| path(&input.fabric, flow.flow, &over)).collect();
        let mut decided = Decisions::new(paths, levels.to_vec());
        let findings = refuse_cycles(&traffic, &mut decided);
        (decided, findings, input)
    }

    #[test]
    fn flows_that_close_a_cycle_go_elsewhere_and_the_cycle_is_named() {
        let (decided, findings, input) = refused([3, 3]);
        let slopes = LinkSlopes::new(&input.fabric);
        assert!(decided.paths.iter().all(|path| path.len() == 4 && slopes.is_valley_free(path)));
        let spines: Vec<String> = decided
            .paths
            .iter()
            .map(|path| input.fabric.path_node_names(path)[2].clone())
            .collect();
        assert_eq!(spines, ["spine1", "spine2"]);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(
            finding.to_string(),
            "warning: job a: the path from h1 to h7 and of 1 more flows was refused: at level 3 it \
             closes a cycle of buffers that wait for each other under priority flow control: \
             spine1:2>leaf2:4, leaf2:5>spine2:2, spine2:4>leaf4:5, leaf4:4>spine1:4, \
             spine1:2>leaf2:4"
        );
    }

    #[test]
    fn levels_have_buffers_of_their_own() {
        let (decided, findings, _) = refused([3, 4]);
        assert_eq!(findings, []);
        assert!(decided.paths.iter().all(|path| path.len() == 6));
    }
}
