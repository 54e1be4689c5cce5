//! The inside of a host: PCIe switches with the GPUs and NICs on them, and NVLink domains.
//!
//! A [`HostInterconnect`] is what documents say and nothing else. Its links get ids and capacities
//! in `fabric/intra_host.rs`, where the way from a GPU to a NIC is defined too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fabric::LinkScheduler;

/// GPUs of a host at most: ids of GPUs are bytes where there are many.
const MOST_GPUS: u32 = 256;

/// PCIe switches and NVLink domains of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostInterconnect {
    /// The PCIe switches; every GPU and every NIC of the host is on one of them.
    pub pcie_switches: Vec<PcieSwitch>,
    /// GPUs that reach each other over NVLink; a GPU is in one domain at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlink_domains: Vec<NvlinkDomain>,
    /// Which traffic these links send first: `fifo` (all alike), or `host-strict` where the host
    /// holds back lower levels.
    #[serde(default = "fifo", skip_serializing_if = "is_fifo")]
    pub scheduler: LinkScheduler,
}

/// A PCIe switch with one link to each GPU, to each NIC and to the root complex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcieSwitch {
    /// GPUs on it, counted from 0 in the host.
    pub gpus: Vec<u32>,
    /// NICs on it, by NIC index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<u32>,
    /// Each direction of each of its links, in Gb/s.
    pub gbps: f64,
    /// Each direction of its link to the root complex, in Gb/s; `gbps` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_gbps: Option<f64>,
}

/// GPUs that reach each other over NVLink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvlinkDomain {
    /// Its GPUs, counted from 0 in the host.
    pub gpus: Vec<u32>,
    /// Each direction of the NVLinks of a GPU together, in Gb/s.
    pub gbps: f64,
}

fn fifo() -> LinkScheduler {
    LinkScheduler::Fifo
}

fn is_fifo(scheduler: &LinkScheduler) -> bool {
    *scheduler == LinkScheduler::Fifo
}

impl HostInterconnect {
    /// The PCIe switch that a GPU is on.
    pub fn switch_of_gpu(&self, gpu: u32) -> Option<usize> {
        self.pcie_switches.iter().position(|switch| switch.gpus.contains(&gpu))
    }

    /// The PCIe switch that a NIC is on.
    pub fn switch_of_nic(&self, nic: u32) -> Option<usize> {
        self.pcie_switches.iter().position(|switch| switch.nics.contains(&nic))
    }

    /// The NVLink domain that a GPU is in.
    pub fn domain_of_gpu(&self, gpu: u32) -> Option<usize> {
        self.nvlink_domains.iter().position(|domain| domain.gpus.contains(&gpu))
    }

    /// The NICs of a job that has these GPUs of the host: those on its PCIe switches, ascending;
    /// all `nics` of the host if these have no NIC.
    pub fn nics_of_gpus(&self, gpus: &[u32], nics: u32) -> Vec<u32> {
        let switches = self.pcie_switches.iter();
        let with_gpus = switches.filter(|switch| gpus.iter().any(|gpu| switch.gpus.contains(gpu)));
        let mut own: Vec<u32> = with_gpus.flat_map(|switch| switch.nics.clone()).collect();
        own.sort_unstable();
        if own.is_empty() { (0..nics).collect() } else { own }
    }

    /// The first field that makes no sense for a host with so many GPUs and NICs, and why.
    pub(crate) fn problem(&self, gpus: u32, nics: u32) -> Option<(String, String)> {
        if self.scheduler == LinkScheduler::Strict {
            let problem = "links in a host are fifo or host-strict, found strict";
            return Some(("scheduler".to_owned(), problem.to_owned()));
        }
        if gpus > MOST_GPUS {
            let problem = format!("{gpus} GPUs; a described host has at most {MOST_GPUS}");
            return Some(("pcie_switches".to_owned(), problem));
        }
        let of = |field: &str, list: fn(&PcieSwitch) -> &[u32]| -> Vec<(String, Vec<u32>)> {
            let switches = self.pcie_switches.iter().enumerate();
            let named = switches.map(|(index, switch)| {
                (format!("pcie_switches[{index}].{field}"), list(switch).to_vec())
            });
            named.collect()
        };
        let domains = self.nvlink_domains.iter().enumerate();
        let domains: Vec<_> = domains
            .map(|(index, domain)| (format!("nvlink_domains[{index}].gpus"), domain.gpus.clone()))
            .collect();
        let on_gpus = of("gpus", |switch| &switch.gpus);
        let on_nics = of("nics", |switch| &switch.nics);
        placement_problem("GPU", gpus, &on_gpus)
            .or_else(|| placement_problem("NIC", nics, &on_nics))
            .or_else(|| placement_problem("GPU", gpus, &domains))
            .or_else(|| missing_part("GPU", gpus, &on_gpus))
            .or_else(|| missing_part("NIC", nics, &on_nics))
            .or_else(|| self.speed_problem())
    }

    fn speed_problem(&self) -> Option<(String, String)> {
        let switches = self.pcie_switches.iter().enumerate().flat_map(|(index, switch)| {
            let place = format!("pcie_switches[{index}]");
            let root = switch.root_gbps.map(|gbps| (format!("{place}.root_gbps"), gbps));
            std::iter::once((format!("{place}.gbps"), switch.gbps)).chain(root)
        });
        let domains = self.nvlink_domains.iter().enumerate();
        let domains =
            domains.map(|(index, domain)| (format!("nvlink_domains[{index}].gbps"), domain.gbps));
        let (field, gbps) =
            switches.chain(domains).find(|(_, gbps)| !(gbps.is_finite() && *gbps > 0.0))?;
        Some((field, format!("must be a number above 0, found {gbps}")))
    }
}

/// A GPU or NIC (`what`) that the host lacks, or that stands in two of the lists.
fn placement_problem(
    what: &str,
    count: u32,
    lists: &[(String, Vec<u32>)],
) -> Option<(String, String)> {
    let mut places: Vec<Option<&str>> = vec![None; count as usize];
    for (field, parts) in lists {
        for part in parts {
            let Some(place) = places.get_mut(*part as usize) else {
                let problem =
                    format!("{what} {part} of a host with {count} {what}s, counted from 0");
                return Some((field.clone(), problem));
            };
            if let Some(first) = place.replace(field) {
                return Some((field.clone(), format!("{what} {part} is already in {first}")));
            }
        }
    }
    None
}

/// A GPU or NIC of the host that is on no PCIe switch.
fn missing_part(what: &str, count: u32, lists: &[(String, Vec<u32>)]) -> Option<(String, String)> {
    let is_listed = |part: &u32| lists.iter().any(|(_, parts)| parts.contains(part));
    let missing = (0..count).find(|part| !is_listed(part))?;
    Some(("pcie_switches".to_owned(), format!("{what} {missing} is on no PCIe switch")))
}
