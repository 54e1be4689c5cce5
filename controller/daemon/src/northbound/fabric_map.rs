//! Fabric and loads for maps of them: positions instead of names, and only links that carry
//! something.
//!
//! Pure, from a [`ControllerView`]. The decision: what a map needs of a fabric of a thousand
//! switches must fit into a moment of a browser's time. The graph is read once; the loads, which
//! are read again and again, name a link by its number: cable `n` of the graph has the links `2n`,
//! from its first end, and `2n + 1`, back.

use std::collections::BTreeMap;

use planner::{FlowIdentity, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, FabricNode, LinkId};

use super::controller_view::ControllerView;

/// The fabric as a graph. Nodes are numbered: the switches first, then the hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricGraph {
    /// Its name.
    pub name: String,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// Tier of each switch: leaf, spine or core.
    pub tiers: Vec<String>,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// GPUs of each host.
    pub gpus: Vec<u32>,
    /// Cables: node and port at the first end, node and port at the second.
    pub cables: Vec<[u32; 4]>,
    /// Capacity of each cable, Gbit/s.
    pub gbps: Vec<f64>,
}

/// What the links carry. Lists of one level have one value for each of its links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkLoadTable {
    /// Nodes and cables of the graph; other numbers mean that the graph has changed.
    pub nodes: usize,
    /// As above.
    pub cables: usize,
    /// Generation of what is in force.
    pub generation: u64,
    /// Switches that the controller has sessions with.
    pub switches: usize,
    /// Those of them that are verified to hold the generation.
    pub verified: usize,
    /// Links with planned or measured load, ascending.
    pub links: Vec<u32>,
    /// Planned load of each of them, as a share of time.
    pub loads: Vec<f64>,
    /// Measured load of each of them, as a share of capacity.
    pub measured: Vec<Option<f64>>,
    /// Jobs on each of them, as positions in `jobs`.
    pub on: Vec<Vec<u32>>,
    /// Names of the jobs.
    pub jobs: Vec<String>,
    /// Planned load by level, from the highest.
    pub levels: Vec<LevelLinks>,
    /// Cables that are not up, for a reason of their own.
    pub cable_states: Vec<PartState>,
    /// Switches that are not up.
    pub switch_states: Vec<PartState>,
}

/// The links of one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelLinks {
    /// The level.
    pub level: u8,
    /// Links that carry it, ascending.
    pub links: Vec<u32>,
    /// Planned load of each of them.
    pub loads: Vec<f64>,
}

/// A part of the fabric that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartState {
    /// Its number in the graph: of a switch, or of a cable.
    pub part: u32,
    /// down, drained or returning.
    pub state: String,
}

/// A flow of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobFlowRow {
    /// The flow, as `h1>h3:50000`, or `h1>h3` where only its NICs are known.
    pub flow: String,
    /// How it is known.
    pub identity: FlowIdentity,
    /// Connections that its leaf has reported between its NICs.
    pub connections: usize,
    /// Whether switches have its path; if not, it is left to ECMP.
    pub pinned: bool,
    /// Hosts and switches on its path.
    pub path: Vec<String>,
    /// Numbers of the links of its path.
    pub links: Vec<u32>,
    /// Whether switches spread its packets over all its paths; it has none of its own then.
    #[serde(default)]
    pub sprayed: bool,
}

impl FabricGraph {
    /// The graph of a fabric.
    pub fn new(fabric: &Fabric) -> Self {
        let switches = fabric.switches();
        let end = |node| match node {
            FabricNode::Switch(switch) => number_of(switch.index()),
            FabricNode::Host(host) => number_of(switches.len() + host.index()),
        };
        let cables = fabric.cables().map(|cable| {
            let link = fabric.link(cable);
            [end(link.from.node), link.from.port, end(link.to.node), link.to.port]
        });
        Self {
            name: fabric.name().to_owned(),
            switches: switches.iter().map(|switch| switch.name.clone()).collect(),
            tiers: switches.iter().map(|switch| switch.tier.to_string()).collect(),
            hosts: fabric.hosts().iter().map(|host| host.name.clone()).collect(),
            gpus: fabric.hosts().iter().map(|host| host.gpus).collect(),
            cables: cables.collect(),
            gbps: fabric.cables().map(|cable| fabric.link(cable).bandwidth.gbps()).collect(),
        }
    }
}

impl ControllerView {
    /// What all links carry.
    pub fn link_load_table(&self) -> LinkLoadTable {
        let fabric = &self.rollout.fabric;
        let planned: BTreeMap<LinkId, &planner::LinkLoad> =
            self.rollout.report.links.iter().map(|load| (load.link, load)).collect();
        let measured = self.measured_links().totals;
        let mut links: Vec<LinkId> = planned.keys().chain(measured.keys()).copied().collect();
        links.sort_unstable();
        links.dedup();
        let generation = self.rollout.generation;
        let holds = |generation| {
            move |line: &&crate::southbound::SwitchStatus| {
                line.verified.is_some_and(|seen| seen.generation == generation)
            }
        };
        let jobs_on = |link: &LinkId| {
            let jobs = planned.get(link).map_or(&[][..], |load| &load.jobs[..]);
            jobs.iter().map(|job| number_of(*job)).collect()
        };
        LinkLoadTable {
            nodes: fabric.switches().len() + fabric.hosts().len(),
            cables: fabric.cables().count(),
            generation,
            switches: self.switches.len(),
            verified: self.switches.values().filter(holds(generation)).count(),
            loads: links
                .iter()
                .map(|link| planned.get(link).map_or(0.0, |load| rounded(load.load)))
                .collect(),
            measured: links.iter().map(|link| measured.get(link).copied().map(rounded)).collect(),
            on: links.iter().map(jobs_on).collect(),
            jobs: self.rollout.plan.jobs.iter().map(|job| job.id.to_string()).collect(),
            levels: self.level_links(),
            cable_states: self.cable_states(),
            switch_states: self.switch_states(),
            links: links.into_iter().map(|link| link.0).collect(),
        }
    }

    fn level_links(&self) -> Vec<LevelLinks> {
        let mut levels: BTreeMap<u8, LevelLinks> = BTreeMap::new();
        for ((link, level), load) in self.level_loads() {
            let nothing = || LevelLinks { level, links: Vec::new(), loads: Vec::new() };
            let on_level = levels.entry(level).or_insert_with(nothing);
            on_level.links.push(link.0);
            on_level.loads.push(rounded(load));
        }
        levels.into_values().rev().collect()
    }

    fn cable_states(&self) -> Vec<PartState> {
        let cables = self.rollout.fabric.cables();
        let states = cables.zip(0..).map(|(cable, part)| PartState {
            part,
            state: self.rollout.cable_state(cable).to_owned(),
        });
        states.filter(|part| part.state != "up").collect()
    }

    fn switch_states(&self) -> Vec<PartState> {
        let switches = self.rollout.fabric.switch_ids();
        let states = switches.zip(0..).map(|(switch, part)| PartState {
            part,
            state: self.rollout.switch_state(switch).to_owned(),
        });
        states.filter(|part| part.state != "up").collect()
    }

    /// The flows of a job; none if there is no such job.
    pub fn job_flow_rows(&self, name: &str) -> Option<Vec<JobFlowRow>> {
        let fabric = &self.rollout.fabric;
        let (position, _) = self.rollout.plan.job(&JobId::from(name))?;
        let rows = self.rollout.plan.flows_of(position).map(|flow| {
            let (identity, connections) = self.flow_identity(flow);
            JobFlowRow {
                flow: flow.name_in(fabric),
                identity,
                connections,
                pinned: flow.pinned,
                path: fabric.path_node_names(&flow.links),
                links: flow.links.iter().map(|link| link.0).collect(),
                sprayed: self.rollout.plan.jobs[position].sprayed,
            }
        });
        Some(rows.collect())
    }
}

fn number_of(position: usize) -> u32 {
    u32::try_from(position).expect("ids of a fabric and positions of a plan are 32-bit numbers")
}

/// To four decimals, which halves the size of a table.
fn rounded(load: f64) -> f64 {
    (load * 1e4).round() / 1e4
}
