//! Invariants of every plan, checked independently: no code is shared with the phases that made the
//! plan.

use std::collections::{BTreeMap, BTreeSet};

use topology::{BufferDependencyGraph, Fabric, FabricNode, Finding, LinkId, NicId, SwitchId};

use crate::input::{Flow, Job, PlanInput};
use crate::plan::{Plan, PlannedFlow};
use crate::policy::{JobOverride, Policy};

/// Findings on `plan`, all errors; none on a plan that [`plan`](crate::plan()) made from `input`
/// under `policy`.
pub fn check_plan(input: &PlanInput, policy: &Policy, plan: &Plan) -> Vec<Finding> {
    let mut findings = check_completeness(input, plan);
    if findings.is_empty() {
        findings.extend(check_job_numbers(plan));
        findings.extend(check_levels(policy, plan));
        findings.extend(check_paths(&input.fabric, plan));
        findings.extend(check_order_on_links(input, policy, plan));
        findings.extend(check_pin_budget(&input.fabric, policy, plan));
        findings.extend(check_buffer_cycles(&input.fabric, plan));
    }
    findings
}

/// The plan contains exactly the jobs and flows of the input.
fn check_completeness(input: &PlanInput, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let planned: BTreeSet<_> = plan.jobs.iter().map(|job| &job.id).collect();
    for job in input.jobs.iter().filter(|job| !planned.contains(&job.id)) {
        findings.push(job_finding(job.id.as_str(), "is not planned"));
    }
    if plan.jobs.len() != input.jobs.len() {
        findings.push(Finding::error("plan", "has other jobs than the input"));
    }
    if plan.flows.iter().any(|flow| flow.job >= plan.jobs.len()) {
        findings.push(Finding::error("plan", "has a flow of no job"));
    }
    if plan.rules.iter().any(|rule| rule.job >= plan.jobs.len()) {
        findings.push(Finding::error("plan", "has a rule of no job"));
    }
    let mut flows: BTreeMap<&str, usize> = BTreeMap::new();
    let names = plan.flows.iter().filter_map(|flow| plan.jobs.get(flow.job));
    names.for_each(|job| *flows.entry(job.id.as_str()).or_default() += 1);
    for job in &input.jobs {
        if flows.get(job.id.as_str()).copied().unwrap_or(0) != job.flows.len() {
            findings
                .push(job_finding(job.id.as_str(), "has flows that are not planned, or too many"));
        }
    }
    findings
}

fn check_job_numbers(plan: &Plan) -> Vec<Finding> {
    let mut seen = BTreeSet::from([0]);
    let repeated = plan.jobs.iter().filter(|job| !seen.insert(job.number));
    repeated
        .map(|job| job_finding(job.id.as_str(), "has number 0 or that of another job"))
        .collect()
}

fn check_levels(policy: &Policy, plan: &Plan) -> Vec<Finding> {
    let job_levels = policy.job_levels();
    let outside = plan.jobs.iter().filter(|job| !job_levels.contains(&job.level));
    outside
        .map(|job| {
            job_finding(job.id.as_str(), &format!("has level {}, which no job may have", job.level))
        })
        .collect()
}

/// Every path leads over usable links without a gap from the sending NIC to the receiving one.
fn check_paths(fabric: &Fabric, plan: &Plan) -> Vec<Finding> {
    let findings = plan.flows.iter().filter_map(|flow| {
        let problem = path_problem(fabric, flow)?;
        let text = format!("the flow {} {problem}", flow.name_in(fabric));
        Some(job_finding(plan.jobs[flow.job].id.as_str(), &text))
    });
    findings.collect()
}

fn path_problem(fabric: &Fabric, flow: &PlannedFlow) -> Option<&'static str> {
    let (Some(first), Some(last)) = (flow.links.first(), flow.links.last()) else {
        return flow.pinned.then_some("is pinned to no path");
    };
    let from_src = *first == fabric.nic(flow.src).uplink;
    let to_dst = *last == fabric.nic(flow.dst).uplink.reverse();
    if !(from_src
        && to_dst
        && flow.links.windows(2).all(|pair| {
            let (before, after) = (fabric.link(pair[0]).to.node, fabric.link(pair[1]).from.node);
            before == after && matches!(before, FabricNode::Switch(_))
        }))
    {
        return Some("has a path with a gap");
    }
    let all_usable = flow.links.iter().all(|link| fabric.is_usable(*link));
    (!all_usable).then_some("takes a link that failed or is drained")
}

/// On no link that knows levels is a job served before one of higher priority, unless policy says
/// so.
fn check_order_on_links(input: &PlanInput, policy: &Policy, plan: &Plan) -> Vec<Finding> {
    let is_free = free_jobs(input, policy, plan);
    let sending = sending_flows(input);
    let mut on_link: BTreeMap<LinkId, BTreeSet<(u32, usize)>> = BTreeMap::new();
    for flow in plan.flows.iter().filter(|flow| is_free[flow.job]) {
        let id = plan.jobs[flow.job].id.as_str();
        let sent = sending.get(&(id, flow.src, flow.dst, flow.udp_src_port));
        for sent in sent.into_iter().flatten() {
            let serves_levels =
                |link: &&LinkId| input.fabric.link_scheduler(**link).serves_levels();
            let links = match plan.jobs[flow.job].sprayed {
                true => links_of_all_paths(&input.fabric, flow),
                false => sent.crossed_links(&input.fabric, &flow.links).into_owned(),
            };
            for link in links.iter().filter(serves_levels) {
                on_link.entry(*link).or_default().insert((plan.jobs[flow.job].rank, flow.job));
            }
        }
    }
    let inverted = on_link.into_iter().filter(|(_, jobs)| {
        let jobs: Vec<usize> = jobs.iter().map(|(_, job)| *job).collect();
        jobs.windows(2).any(|pair| plan.jobs[pair[0]].level < plan.jobs[pair[1]].level)
    });
    let text = "serves a job before one of higher priority";
    inverted.map(|(link, _)| Finding::error(input.fabric.link_name(link), text)).collect()
}

/// The links between switches that packets of a sprayed flow may cross.
fn links_of_all_paths(fabric: &Fabric, flow: &PlannedFlow) -> Vec<LinkId> {
    let [from, to] = [flow.src, flow.dst].map(|nic| fabric.leaf_of(nic));
    topology::equal_cost_paths(fabric, from, to).concat()
}

/// A flow by its job, its ends and its port.
type FlowKey<'a> = (&'a str, NicId, NicId, Option<u16>);

/// The flows that send something; those without a port together.
fn sending_flows(input: &PlanInput) -> BTreeMap<FlowKey<'_>, Vec<&Flow>> {
    let mut flows: BTreeMap<FlowKey<'_>, Vec<&Flow>> = BTreeMap::new();
    for job in &input.jobs {
        for flow in job.flows.iter().filter(|flow| flow.bytes > 0.0) {
            let key = (job.id.as_str(), flow.src, flow.dst, flow.udp_src_port);
            flows.entry(key).or_default().push(flow);
        }
    }
    flows
}

/// Which jobs have levels that policy does not influence, by position in the plan.
fn free_jobs(input: &PlanInput, policy: &Policy, plan: &Plan) -> Vec<bool> {
    let jobs: BTreeMap<_, _> = input.jobs.iter().map(|job| (&job.id, job)).collect();
    plan.jobs
        .iter()
        .map(|job| {
            jobs.get(&job.id).is_some_and(|job: &&Job| {
                !policy.override_for(job).is_some_and(|rule: &JobOverride| {
                    rule.bounds_level() || rule.min_throughput.is_some()
                })
            })
        })
        .collect()
}

/// No leaf holds more pins than policy allows.
fn check_pin_budget(fabric: &Fabric, policy: &Policy, plan: &Plan) -> Vec<Finding> {
    let mut pins: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for flow in plan.flows.iter().filter(|flow| flow.pinned) {
        *pins.entry(fabric.leaf_of(flow.src)).or_default() += 1;
    }
    let over = pins.into_iter().filter(|(_, count)| *count > policy.max_pins_per_switch);
    over.map(|(leaf, count)| {
        Finding::error(&fabric.switch(leaf).name, format!("holds {count} pins"))
    })
    .collect()
}

/// At no level do buffers wait for each other in a cycle: of pins at that level, and of packets
/// without one, which may take every equal-cost path at any level.
fn check_buffer_cycles(fabric: &Fabric, plan: &Plan) -> Vec<Finding> {
    if plan.flows.iter().all(|flow| topology::is_valley_free(fabric, &flow.links)) {
        return Vec::new();
    }
    let mut routes = BufferDependencyGraph::default();
    for destination in fabric.destinations() {
        routes.add_routes(fabric, &[&topology::next_hops(fabric, *destination)]);
    }
    let levels: BTreeSet<u8> = plan.jobs.iter().map(|job| job.level).collect();
    let cycles = levels.into_iter().filter_map(|level| {
        let mut graph = routes.clone();
        let of_level = plan.flows.iter().filter(|flow| plan.jobs[flow.job].level == level);
        of_level.for_each(|flow| graph.add_path(&flow.links));
        let cycle = graph.find_cycle()?.name_in(fabric);
        Some(Finding::error("plan", format!("at level {level}, buffers wait in a cycle: {cycle}")))
    });
    cycles.collect()
}

fn job_finding(id: &str, text: &str) -> Finding {
    Finding::error(format!("job {id}"), text)
}
