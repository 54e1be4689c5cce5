//! Clos fabrics from a few numbers: two or three tiers, several NICs per host, dual-homed hosts.
//!
//! * Two tiers: in each pod, every leaf has `parallel_uplinks` cables to every spine.
//! * Three tiers: every spine has one cable to every core; with `planes`, spine s of each pod has
//!   one to each core of plane s only, the cores being divided evenly among the planes.
//! * A host has `host_links` NICs. They all lead to the host's own leaf, unless `rails` (NIC r of
//!   every host of a pod is on leaf r mod `leaves` of the pod) or `dual_homed` (leaves 1 and 2, 3
//!   and 4, ... of a pod are pairs; even NICs lead to the host's own leaf, odd ones to the other).
//! * With two `ports_per_nic`, leaves are pairs as well, and each NIC is a bond: its second port
//!   leads to the other leaf. With `rails`, NIC r is then on pair r mod `leaves` / 2 of the pod.
//!
//! Names count across pods: `h1`, `leaf1`, `spine1`, `core1`. The n-th NIC of leaf l has the
//! address 10.(l, two bytes).n, or fd00:0:0:l::n with `ipv6`; from the 255th on, the next 254 of
//! each leaf are in a further IPv4 subnet. Ports of a leaf are its NICs in that
//! order, then uplinks by spine; ports of a spine are leaves, then cores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::draft::{
    CABLE_PORTS, FabricDraft, MAX_CABLES, MAX_SUBNETS, MAX_SWITCHES_PER_TIER, subnet_count,
};
use crate::fabric::{Fabric, LinkScheduler, Tier};
use crate::ids::SwitchId;
use crate::spec::{self, FabricFieldError, checked_speed};
use crate::units::Bandwidth;

/// The numbers of a Clos; the `[clos]` of a Fabric document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosSpec {
    /// Leaf switches per pod.
    pub leaves: u32,
    /// Spine switches per pod.
    pub spines: u32,
    /// Hosts per leaf; with `rails`, hosts of a pod per leaf of the pod.
    pub hosts_per_leaf: u32,
    /// GPUs per host.
    pub gpus_per_host: u32,
    /// Each link of a host, in Gb/s.
    pub host_gbps: f64,
    /// Each link between leaf and spine, in Gb/s.
    pub uplink_gbps: f64,
    /// Pods, joined by cores.
    #[serde(default = "one")]
    pub pods: u32,
    /// Core switches of the whole fabric; 0 makes two tiers.
    #[serde(default)]
    pub cores: u32,
    /// Each link between spine and core, in Gb/s; `uplink_gbps` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_gbps: Option<f64>,
    /// Whether spine s of each pod connects only to the cores of plane s.
    #[serde(default)]
    pub planes: bool,
    /// Links between a leaf and each of its spines.
    #[serde(default = "one")]
    pub parallel_uplinks: u32,
    /// NICs of a host, each with one link to a leaf, or as many as `ports_per_nic`.
    #[serde(default = "one")]
    pub host_links: u32,
    /// Whether the NICs of a host are spread over the leaves of its pod.
    #[serde(default)]
    pub rails: bool,
    /// Whether the NICs of a host alternate between two leaves.
    #[serde(default)]
    pub dual_homed: bool,
    /// Ports of a NIC: 1, or 2 under one address (a bond), each with a link to one of two leaves
    /// (dual ToR).
    #[serde(default = "one")]
    pub ports_per_nic: u32,
    /// Whether NICs have IPv6 addresses.
    #[serde(default)]
    pub ipv6: bool,
    /// Which packets the NICs of hosts send first: `fifo`, or `host-strict` where an agent gives
    /// them the traffic classes of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_scheduler: Option<LinkScheduler>,
}

fn one() -> u32 {
    1
}

impl Default for ClosSpec {
    /// A small two-tier fabric: 4 leaves, 2 spines, 12 hosts of 8 GPUs with one NIC of 200 Gb/s,
    /// uplinks of 400 Gb/s.
    fn default() -> Self {
        Self {
            leaves: 4,
            spines: 2,
            hosts_per_leaf: 3,
            gpus_per_host: 8,
            host_gbps: 200.0,
            uplink_gbps: 400.0,
            pods: 1,
            cores: 0,
            core_gbps: None,
            planes: false,
            parallel_uplinks: 1,
            host_links: 1,
            rails: false,
            dual_homed: false,
            ports_per_nic: 1,
            ipv6: false,
            host_scheduler: None,
        }
    }
}

/// The fabric of that name and those numbers.
///
/// # Errors
/// A count is zero, a speed is not positive, the numbers contradict each other or ask for more than
/// can be named, addressed or held in memory.
pub fn build_clos(name: &str, spec: &ClosSpec) -> Result<Fabric, FabricFieldError> {
    spec.check_counts()?;
    spec.check_shape()?;
    spec.check_sizes()?;
    if spec.host_scheduler == Some(LinkScheduler::Strict) {
        let problem = "a NIC is fifo or host-strict, found strict";
        return Err(FabricFieldError::new("host_scheduler", problem));
    }
    let host_speed = checked_speed("host_gbps", spec.host_gbps)?;
    let uplink_speed = checked_speed("uplink_gbps", spec.uplink_gbps)?;
    let core_speed =
        spec.core_gbps.map_or(Ok(uplink_speed), |gbps| checked_speed("core_gbps", gbps))?;

    let mut draft = FabricDraft::with_name(name);
    draft.is_ipv6 = spec.ipv6;
    draft.host_scheduler = spec.host_scheduler;
    let leaves = draft.add_switches(Tier::Leaf, (spec.pods * spec.leaves) as usize);
    let spines = draft.add_switches(Tier::Spine, (spec.pods * spec.spines) as usize);
    let cores = draft.add_switches(Tier::Core, spec.cores as usize);
    let leaves_by_pod = || leaves.chunks(spec.leaves as usize);
    let spines_by_pod = || spines.chunks(spec.spines as usize);
    for pod in leaves_by_pod() {
        spec.add_hosts(&mut draft, pod, host_speed);
    }
    for (leaves, spines) in leaves_by_pod().zip(spines_by_pod()) {
        spec.connect_leaves(&mut draft, leaves, spines, uplink_speed);
    }
    for spines in spines_by_pod() {
        spec.connect_spines(&mut draft, spines, &cores, core_speed);
    }
    Ok(draft.into_fabric())
}

impl ClosSpec {
    fn add_hosts(&self, draft: &mut FabricDraft, leaves: &[SwitchId], bandwidth: Bandwidth) {
        for home in 0..leaves.len() {
            for _ in 0..self.hosts_per_leaf {
                let nics = (0..self.host_links as usize).map(|nic| {
                    let first = self.leaf_of_nic(home, nic);
                    let ports = 0..self.ports_per_nic as usize;
                    ports.map(|port| leaves[first ^ port]).collect()
                });
                let name = format!("h{}", draft.hosts.len() + 1);
                draft.add_host_with_ports(name, self.gpus_per_host, nics, bandwidth);
            }
        }
    }

    /// Whether leaves are pairs, each NIC with a port on both.
    fn has_bonds(&self) -> bool {
        self.ports_per_nic == 2
    }

    /// Position in the pod of the leaf that a NIC leads to, by its first port.
    fn leaf_of_nic(&self, home: usize, nic: usize) -> usize {
        if self.rails && self.has_bonds() {
            2 * (nic % (self.leaves as usize / 2))
        } else if self.rails {
            nic % self.leaves as usize
        } else if self.dual_homed {
            home ^ (nic % 2)
        } else {
            home
        }
    }

    fn connect_leaves(
        &self,
        draft: &mut FabricDraft,
        leaves: &[SwitchId],
        spines: &[SwitchId],
        bandwidth: Bandwidth,
    ) {
        for &leaf in leaves {
            for &spine in spines {
                for _ in 0..self.parallel_uplinks {
                    draft.connect_switches(leaf, spine, bandwidth);
                }
            }
        }
    }

    fn connect_spines(
        &self,
        draft: &mut FabricDraft,
        spines: &[SwitchId],
        cores: &[SwitchId],
        bandwidth: Bandwidth,
    ) {
        let per_plane = cores.len() / spines.len();
        for (plane, &spine) in spines.iter().enumerate() {
            let reached = match self.planes {
                true => &cores[plane * per_plane..(plane + 1) * per_plane],
                false => cores,
            };
            for &core in reached {
                draft.connect_switches(spine, core, bandwidth);
            }
        }
    }

    fn check_counts(&self) -> Result<(), FabricFieldError> {
        spec::check_minimum_counts(&[
            ("leaves", self.leaves),
            ("spines", self.spines),
            ("hosts_per_leaf", self.hosts_per_leaf),
            ("gpus_per_host", self.gpus_per_host),
            ("pods", self.pods),
            ("parallel_uplinks", self.parallel_uplinks),
            ("host_links", self.host_links),
            ("ports_per_nic", self.ports_per_nic),
        ])
    }

    fn check_shape(&self) -> Result<(), FabricFieldError> {
        let contradictions = [
            (self.pods > 1 && self.cores == 0, "cores", "several pods need cores to join them"),
            (self.core_gbps.is_some() && self.cores == 0, "core_gbps", "there are no cores"),
            (self.planes && self.cores == 0, "planes", "there are no cores"),
            (
                self.planes && !self.cores.is_multiple_of(self.spines),
                "cores",
                "planes need a multiple of the spines of a pod",
            ),
            (self.rails && self.dual_homed, "rails", "a host has either rails or two leaves"),
            (self.ports_per_nic > 2, "ports_per_nic", "a NIC has 1 port, or 2 under one address"),
            (
                self.has_bonds() && self.dual_homed,
                "dual_homed",
                "a NIC with 2 ports leads to two leaves already",
            ),
            (
                self.has_bonds() && !self.leaves.is_multiple_of(2),
                "leaves",
                "NICs with 2 ports need an even number of leaves in a pod",
            ),
            (self.rails && self.host_links < 2, "host_links", "rails need at least 2 NICs"),
            (
                self.dual_homed && !self.host_links.is_multiple_of(2),
                "host_links",
                "a dual-homed host needs an even number of NICs",
            ),
            (
                self.dual_homed && !self.leaves.is_multiple_of(2),
                "leaves",
                "dual-homed hosts need an even number of leaves in a pod",
            ),
        ];
        match contradictions.into_iter().find(|&(holds, ..)| holds) {
            Some((_, field, problem)) => Err(FabricFieldError::new(field, problem)),
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), FabricFieldError> {
        let cores = u64::from(self.cores);
        let leaves = saturating_product([self.pods, self.leaves]);
        let subnets = subnet_count(leaves, self.nics_per_leaf());
        spec::check_limits(&[
            ("leaves", "leaves", leaves, MAX_SWITCHES_PER_TIER),
            (
                "spines",
                "spines",
                saturating_product([self.pods, self.spines]),
                MAX_SWITCHES_PER_TIER,
            ),
            ("cores", "cores", cores, MAX_SWITCHES_PER_TIER),
            ("hosts_per_leaf", "NICs on one leaf", self.nics_per_leaf(), CABLE_PORTS),
            ("hosts_per_leaf", "subnets", subnets, MAX_SUBNETS),
            ("leaves", "links", self.cable_count(), MAX_CABLES),
        ])
    }

    /// NICs on the leaf that has most, of bonds one port each.
    fn nics_per_leaf(&self) -> u64 {
        let ports = self.ports_per_nic;
        match self.rails {
            false => saturating_product([self.hosts_per_leaf, self.host_links, ports]),
            true => {
                let nics_of_a_host = self.host_links.div_ceil(self.leaves / ports);
                saturating_product([self.leaves, self.hosts_per_leaf, nics_of_a_host])
            }
        }
    }

    fn cable_count(&self) -> u64 {
        let cores_of_a_spine = if self.planes { self.cores / self.spines } else { self.cores };
        [
            saturating_product([
                self.pods,
                self.leaves,
                self.hosts_per_leaf,
                self.host_links,
                self.ports_per_nic,
            ]),
            saturating_product([self.pods, self.leaves, self.spines, self.parallel_uplinks]),
            saturating_product([self.pods, self.spines, cores_of_a_spine]),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// The product, or the largest number there is.
fn saturating_product<const N: usize>(factors: [u32; N]) -> u64 {
    factors.into_iter().fold(1, |product, factor| product.saturating_mul(u64::from(factor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(spec: &ClosSpec) -> Fabric {
        build_clos("test", spec).unwrap()
    }

    /// Names of the leaves that the NICs of a host lead to.
    fn leaves_of(fabric: &Fabric, host: &str) -> Vec<String> {
        let host = fabric.host(fabric.host_named(host).unwrap());
        let leaves = host.nics.iter().map(|&nic| fabric.leaf_of(nic));
        leaves.map(|leaf| fabric.switch(leaf).name.clone()).collect()
    }

    #[test]
    fn the_lab_is_named_addressed_and_wired_as_documented() {
        let lab = built(&ClosSpec::default());
        let h5 = lab.nic(lab.nic_with_ip("10.0.2.2".parse().unwrap()).unwrap());
        assert_eq!(lab.host(h5.host).name, "h5");
        assert_eq!(h5.mac.to_string(), "02:00:0a:00:02:02");
        assert_eq!(lab.link_name(h5.uplink), "h5:0>leaf2:2");
        for link in ["leaf1:4>spine1:1", "leaf1:5>spine2:1", "leaf4:5>spine2:4"] {
            assert!(lab.link_named(link).is_some(), "{link}");
        }
        let devices: Vec<u64> = lab.switches().iter().map(|switch| switch.device_id).collect();
        assert_eq!(devices, [1, 2, 3, 4, 11, 12]);
        assert_eq!(lab.switches()[4].p4runtime.as_deref(), Some("127.0.0.1:20011"));
    }

    #[test]
    fn nics_stay_on_the_leaf_or_spread_over_rails_or_alternate_between_two() {
        let four = ClosSpec { host_links: 4, ..ClosSpec::default() };
        assert_eq!(leaves_of(&built(&four), "h4"), ["leaf2"; 4]);
        let rails = ClosSpec { rails: true, host_links: 5, ..four.clone() };
        assert_eq!(leaves_of(&built(&rails), "h4"), ["leaf1", "leaf2", "leaf3", "leaf4", "leaf1"]);
        let dual = ClosSpec { dual_homed: true, ..four };
        assert_eq!(leaves_of(&built(&dual), "h1"), ["leaf1", "leaf2", "leaf1", "leaf2"]);
        assert_eq!(leaves_of(&built(&dual), "h4"), ["leaf2", "leaf1", "leaf2", "leaf1"]);
    }

    #[test]
    fn nics_with_two_ports_lead_to_both_leaves_of_a_pair() {
        let ports_of = |fabric: &Fabric, host: &str| -> Vec<String> {
            let links = fabric.links_from(fabric.node_named(host).unwrap());
            let leaf = |link: &crate::ids::LinkId| fabric.switch_after(*link).unwrap();
            links.iter().map(|link| fabric.switch(leaf(link)).name.clone()).collect()
        };
        let two = ClosSpec { ports_per_nic: 2, host_links: 2, ..ClosSpec::default() };
        let fabric = built(&two);
        assert_eq!(ports_of(&fabric, "h4"), ["leaf2", "leaf1", "leaf2", "leaf1"]);
        assert_eq!(fabric.host(fabric.host_named("h4").unwrap()).nics.len(), 2);
        let rails = built(&ClosSpec { rails: true, ..two });
        assert_eq!(ports_of(&rails, "h4"), ["leaf1", "leaf2", "leaf3", "leaf4"]);
        assert_eq!(rails.nics_on(SwitchId(0)).count(), 12);
    }

    #[test]
    fn three_tiers_join_spines_to_all_cores_or_to_their_plane() {
        let mesh = ClosSpec { pods: 2, cores: 4, ..ClosSpec::default() };
        let ways = |fabric: &Fabric, name| fabric.links_named(name).len();
        let fabric = built(&mesh);
        assert_eq!((ways(&fabric, "spine4-core1"), ways(&fabric, "spine4-core4")), (1, 1));
        let fabric = built(&ClosSpec { planes: true, ..mesh });
        assert_eq!((ways(&fabric, "spine4-core1"), ways(&fabric, "spine4-core4")), (0, 1));
        assert_eq!(fabric.host(fabric.host_named("h13").unwrap()).nics.len(), 1);
        assert_eq!(leaves_of(&fabric, "h13"), ["leaf5"]);
    }

    #[test]
    fn ports_leave_out_the_one_of_the_controller() {
        let wide = built(&ClosSpec { leaves: 300, spines: 1, ..ClosSpec::default() });
        let ports = &wide.switch(wide.switch_named("spine1").unwrap()).ports;
        assert_eq!(ports.len(), 300);
        assert_eq!(ports.keys().skip(253).take(2).collect::<Vec<_>>(), [&254, &256]);
    }

    #[test]
    fn a_leaf_with_more_nics_than_a_subnet_holds_has_a_further_one() {
        let spec = ClosSpec { leaves: 2, hosts_per_leaf: 64, host_links: 4, ..ClosSpec::default() };
        let fabric = built(&spec);
        let ips: Vec<String> = fabric.nics().iter().map(|nic| nic.ip.to_string()).collect();
        assert_eq!(ips[253..257], ["10.0.1.254", "10.0.3.1", "10.0.3.2", "10.0.2.1"]);
        let prefixes = |leaf: &str| {
            let prefixes =
                fabric.prefixes_of(fabric.switch_named(leaf).unwrap().into()).into_iter();
            prefixes.map(|prefix| prefix.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(prefixes("leaf1"), ["10.0.1.0/24", "10.0.3.0/24"]);
        assert_eq!(prefixes("leaf2"), ["10.0.2.0/24", "10.0.4.0/24"]);
        assert_eq!(Fabric::try_from(&spec::explicit_document(&fabric)).unwrap(), fabric);
        let ipv6 = built(&ClosSpec { ipv6: true, ..spec });
        assert_eq!(ipv6.nics()[255].ip.to_string(), "fd00:0:0:1::100");
        assert_eq!(ipv6.prefixes_of(SwitchId(0).into()).len(), 1);
    }

    /// What is written over the lab's numbers, and the error that follows.
    const MISTAKES: &str = "
        leaves = 0 => leaves: must be at least 1, found 0
        host_gbps = -1.0 => host_gbps: must be a number above 0, found -1
        uplink_gbps = nan => uplink_gbps: must be a number above 0, found NaN
        pods = 2 => cores: several pods need cores to join them
        core_gbps = 1.0 => core_gbps: there are no cores
        planes = true => planes: there are no cores
        cores = 3, planes = true => cores: planes need a multiple of the spines of a pod
        rails = true => host_links: rails need at least 2 NICs
        dual_homed = true => host_links: a dual-homed host needs an even number of NICs
        dual_homed = true, host_links = 2, leaves = 3 => \
            leaves: dual-homed hosts need an even number of leaves in a pod
        rails = true, dual_homed = true => rails: a host has either rails or two leaves
        ports_per_nic = 3 => ports_per_nic: a NIC has 1 port, or 2 under one address
        ports_per_nic = 2, dual_homed = true => \
            dual_homed: a NIC with 2 ports leads to two leaves already
        ports_per_nic = 2, leaves = 3 => \
            leaves: NICs with 2 ports need an even number of leaves in a pod
        ports_per_nic = 2, hosts_per_leaf = 255 => \
            hosts_per_leaf: makes 510 NICs on one leaf; at most 509
        hosts_per_leaf = 128, host_links = 4 => \
            hosts_per_leaf: makes 512 NICs on one leaf; at most 509
        leaves = 33000, hosts_per_leaf = 255 => hosts_per_leaf: makes 66000 subnets; at most 65535
        leaves = 65535, spines = 60000 => leaves: makes 3932296605 links; at most 2000000
        leaves = 4294967295, pods = 4294967295, cores = 1 => \
            leaves: makes 18446744065119617025 leaves; at most 65535";

    #[test]
    fn numbers_that_make_no_fabric_are_refused_by_field() {
        for case in MISTAKES.lines().filter(|line| !line.trim().is_empty()) {
            let (changes, expected) = case.split_once(" => ").unwrap();
            let lab = toml::Table::try_from(ClosSpec::default()).unwrap();
            let changes: toml::Table = changes.replace(", ", "\n").parse().unwrap();
            let spec: ClosSpec =
                lab.into_iter().chain(changes).collect::<toml::Table>().try_into().unwrap();
            assert_eq!(build_clos("test", &spec).unwrap_err().to_string(), expected.trim_start());
        }
    }
}
