//! Learned connections: whose they are, their paths, and who goes without a pin.

use planner::{
    ConnectionOwner, LearnedConnection, NicOwners, Plan, Policy, place_learned_flows, plan,
};
use topology::{Fabric, LinkId, NicId};

use crate::scenario::{clos, input, ring};

/// Two jobs on two leaves: `a` on the first host of each, `b` on the second.
fn planned() -> (Fabric, Plan) {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 1e9), ring(&fabric, "b", &[1, 4], 1e9)];
    let plan = plan(&input(&fabric, &jobs), &Policy::default(), None).0;
    (fabric, plan)
}

fn connection(src: u32, dst: u32, ordinal: u32) -> LearnedConnection {
    let udp_src_port = Some(50_000 + ordinal as u16);
    LearnedConnection { src: NicId(src), dst: NicId(dst), udp_src_port, ordinal, job: None }
}

#[test]
fn a_connection_belongs_to_the_one_job_that_has_both_nics() {
    let (fabric, plan) = planned();
    let owners = NicOwners::new(&fabric, &plan);
    let owner = |src, dst| owners.find_owner(&fabric, NicId(src), NicId(dst));
    assert_eq!([owner(0, 3), owner(4, 1)], [ConnectionOwner::Job(0), ConnectionOwner::Job(1)]);
    // Of two jobs, or where no job has one of the NICs.
    for (src, dst) in [(0, 4), (1, 3), (0, 2), (5, 2)] {
        assert_eq!(owner(src, dst), ConnectionOwner::Unknown, "{src} > {dst}");
    }
    let jobs = [ring(&fabric, "a", &[0, 3], 1e9), ring(&fabric, "b", &[0, 3], 1e9)];
    let shared = planner::plan(&input(&fabric, &jobs), &Policy::default(), None).0;
    let owners = NicOwners::new(&fabric, &shared);
    let ambiguous = ConnectionOwner::Ambiguous(vec![0, 1]);
    assert_eq!(owners.find_owner(&fabric, NicId(0), NicId(3)), ambiguous);
    assert_eq!(place_learned_flows(&fabric, &shared, &[connection(0, 3, 0)], 100), []);
    // Unless its hosts say whose process has it; a job without these hosts cannot be meant.
    let stated = |job: &str| LearnedConnection { job: Some(job.into()), ..connection(0, 3, 0) };
    assert_eq!(place_learned_flows(&fabric, &shared, &[stated("b")], 100)[0].job, 1);
    assert_eq!(place_learned_flows(&fabric, &shared, &[stated("c")], 100), []);
    assert_eq!(place_learned_flows(&fabric, &plan, &[stated("b")], 100)[0].job, 0);
}

#[test]
fn a_connection_has_the_path_of_its_pair_and_pins_go_to_the_first() {
    let (fabric, plan) = planned();
    let all: Vec<_> = (0..4).map(|ordinal| connection(0, 3, ordinal)).collect();
    // The pins of both jobs take two places at each leaf.
    let placed = place_learned_flows(&fabric, &plan, &all, 4);
    assert_eq!(
        placed.iter().map(|flow| flow.pinned).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    let planned = plan.flows.iter().find(|flow| flow.src == NicId(0)).unwrap();
    assert!(placed.iter().all(|flow| flow.links == planned.links && flow.job == 0));
    // One that comes later moves none.
    let fewer = place_learned_flows(&fabric, &plan, &all[..1], 4);
    assert_eq!(fewer[0], placed[0]);
    // What the plan pins already is not learned.
    let known = LearnedConnection { udp_src_port: planned.udp_src_port, ..connection(0, 3, 9) };
    assert_eq!(place_learned_flows(&fabric, &plan, &[known], 100), []);
}

#[test]
fn a_pair_that_its_job_did_not_announce_has_a_whole_path() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 1, 3], 1e9)];
    let plan = plan(&input(&fabric, &jobs), &Policy::default(), None).0;
    // The ring sends from 1 to 3, and not from 0 to 3.
    let placed = place_learned_flows(&fabric, &plan, &[connection(0, 3, 1)], 100);
    let flow = &placed[0];
    assert!(flow.pinned && flow.links.len() == 4);
    let joined = |pair: &[LinkId]| fabric.link(pair[0]).to.node == fabric.link(pair[1]).from.node;
    assert!(flow.links.windows(2).all(joined));
    assert_eq!(flow.links.last(), Some(&fabric.nic(NicId(3)).uplink.reverse()));
}
