//! Intra-host links: PCIe and NVLink of the hosts whose document describes them, as links with a
//! capacity like any other.
//!
//! Their ids continue those of the fabric's own links, so that a table by link holds both and a
//! fabric without them is as small as ever. They always work, nobody drains them, and no path of a
//! plan contains them: they follow from the GPU and the NIC at the end of a flow
//! ([`Fabric::links_to_nic`]).

use std::fmt;
use std::sync::Arc;

use super::{Fabric, FabricParts, LinkScheduler};
use crate::ids::{HostId, LinkId, NicId};
use crate::interconnect::HostInterconnect;
use crate::paths::LinkPath;
use crate::units::Bandwidth;

/// What an intra-host link joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPart {
    /// A GPU.
    Gpu(u32),
    /// A NIC, by its index in the host.
    Nic(u32),
    /// A PCIe switch, by its place in the document.
    PcieSwitch(u32),
    /// The root complex that joins the PCIe switches.
    RootComplex,
    /// An NVLink domain, by its place in the document.
    NvlinkDomain(u32),
}

impl fmt::Display for HostPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(index) => write!(f, "gpu{index}"),
            Self::Nic(index) => write!(f, "nic{index}"),
            Self::PcieSwitch(index) => write!(f, "pcie{index}"),
            Self::RootComplex => f.write_str("root"),
            Self::NvlinkDomain(index) => write!(f, "nvlink{index}"),
        }
    }
}

/// One direction of a link inside a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntraHostLink {
    /// The host.
    pub host: HostId,
    /// Where traffic enters.
    pub from: HostPart,
    /// Where it comes out.
    pub to: HostPart,
    /// Its capacity.
    pub bandwidth: Bandwidth,
    /// Which traffic it sends first.
    pub scheduler: LinkScheduler,
}

/// The intra-host links of all hosts; empty tables where no host is described.
#[derive(Debug, Default)]
pub(super) struct IntraHostTable {
    /// By id, after the last link of the fabric.
    links: Vec<IntraHostLink>,
    /// By host: the place of its first link in `links`. Empty where no host is described.
    first: Vec<Option<u32>>,
}

impl IntraHostTable {
    pub(super) fn new(parts: &FabricParts) -> Self {
        let mut table = Self::default();
        if parts.hosts.iter().all(|host| host.interconnect.is_none()) {
            return table;
        }
        for (id, host) in parts.hosts.iter().enumerate() {
            let described = host.interconnect.as_deref();
            table.first.push(described.map(|_| table.links.len() as u32));
            if let Some(interconnect) = described {
                table.add_host(HostId::from(id), interconnect);
            }
        }
        table
    }

    /// Adds NICs, GPUs, root complex and NVLink in the order of the document, each link as towards
    /// the first part of [`links_of`] and then back.
    fn add_host(&mut self, host: HostId, interconnect: &HostInterconnect) {
        for (from, to, gbps) in links_of(interconnect) {
            let Some(bandwidth) = Bandwidth::from_gbps(gbps) else {
                continue;
            };
            let scheduler = interconnect.scheduler;
            let link = IntraHostLink { host, from, to, bandwidth, scheduler };
            self.links.extend([link, IntraHostLink { from: to, to: from, ..link }]);
        }
    }
}

/// Every link of a host once, in one direction, with its capacity in Gb/s.
fn links_of(interconnect: &HostInterconnect) -> impl Iterator<Item = (HostPart, HostPart, f64)> {
    let switches = (0..).zip(&interconnect.pcie_switches).flat_map(|(index, switch)| {
        let place = HostPart::PcieSwitch(index);
        let nics = switch.nics.iter().map(move |nic| (place, HostPart::Nic(*nic), switch.gbps));
        let gpus = switch.gpus.iter().map(move |gpu| (HostPart::Gpu(*gpu), place, switch.gbps));
        let root = (place, HostPart::RootComplex, switch.root_gbps.unwrap_or(switch.gbps));
        nics.chain(gpus).chain([root])
    });
    let domains = (0..).zip(&interconnect.nvlink_domains).flat_map(|(index, domain)| {
        let place = HostPart::NvlinkDomain(index);
        domain.gpus.iter().map(move |gpu| (HostPart::Gpu(*gpu), place, domain.gbps))
    });
    switches.chain(domains)
}

impl Fabric {
    /// Number of links with a capacity: those of the fabric, then those inside hosts. Tables by
    /// link have this length.
    #[inline]
    pub fn capacity_link_count(&self) -> usize {
        self.links().len() + self.structure.intra_host.links.len()
    }

    /// Whether the interconnect of some host is described.
    #[inline]
    pub fn describes_interconnects(&self) -> bool {
        !self.structure.intra_host.links.is_empty()
    }

    /// Ids of all links inside hosts, ascending.
    pub fn intra_host_link_ids(&self) -> impl Iterator<Item = LinkId> + Clone + use<> {
        (self.links().len()..self.capacity_link_count()).map(LinkId::from)
    }

    /// The link with this id, if it is one inside a host.
    #[inline]
    pub fn intra_host_link(&self, id: LinkId) -> Option<&IntraHostLink> {
        self.structure.intra_host.links.get(id.index().checked_sub(self.links().len())?)
    }

    /// Capacity of a link of the fabric or inside a host.
    #[inline]
    pub fn link_bandwidth(&self, id: LinkId) -> Bandwidth {
        self.intra_host_link(id).map_or_else(|| self.link(id).bandwidth, |link| link.bandwidth)
    }

    /// Scheduler of a link of the fabric or inside a host.
    #[inline]
    pub fn link_scheduler(&self, id: LinkId) -> LinkScheduler {
        self.intra_host_link(id).map_or_else(|| self.link(id).scheduler, |link| link.scheduler)
    }

    /// What the document of the fabric says about the inside of a host.
    pub fn interconnect_of(&self, host: HostId) -> Option<&HostInterconnect> {
        self.host(host).interconnect.as_deref()
    }

    /// The links inside the host from a GPU to a NIC, in order; none where the inside is not
    /// described.
    ///
    /// A GPU on the PCIe switch of the NIC crosses that switch. Another one goes over NVLink to a
    /// GPU on that switch, the first of its domain (NCCL's PXN), or else over the root complex.
    /// Where the GPU is not known, only the link from the PCIe switch to the NIC remains.
    pub fn links_to_nic(&self, gpu: Option<u32>, nic: NicId) -> LinkPath {
        let host = self.nic(nic).host;
        let nic = self.nic(nic).index;
        let Some(interconnect) = self.interconnect_of(host) else {
            return LinkPath::EMPTY;
        };
        let parts = interconnect.parts_to_nic(gpu, nic);
        let hops = parts.windows(2).filter_map(|ends| self.link_in_host(host, ends[0], ends[1]));
        hops.fold(LinkPath::EMPTY, LinkPath::with_link)
    }

    /// The links inside the host from a NIC to a GPU, in order: those of [`Self::links_to_nic`],
    /// back.
    pub fn links_from_nic(&self, nic: NicId, gpu: Option<u32>) -> LinkPath {
        let back = self.links_to_nic(gpu, nic);
        back.iter().rev().fold(LinkPath::EMPTY, |path, link| path.with_link(link.reverse()))
    }

    fn link_in_host(&self, host: HostId, from: HostPart, to: HostPart) -> Option<LinkId> {
        let table = &self.structure.intra_host;
        let first = (*table.first.get(host.index())?)? as usize;
        let of_host = table.links[first..].iter().take_while(|link| link.host == host);
        let place = of_host.into_iter().position(|link| (link.from, link.to) == (from, to))?;
        Some(LinkId::from(self.links().len() + first + place))
    }

    /// The fabric whose hosts have these insides, by host; those of the fabric where a host has no
    /// entry.
    #[must_use]
    pub fn with_interconnects(self, of: impl Fn(HostId) -> Option<Arc<HostInterconnect>>) -> Self {
        let mut parts = self.parts().clone();
        for (id, host) in parts.hosts.iter_mut().enumerate() {
            host.interconnect = of(id.into()).or(host.interconnect.take());
        }
        Self::new(parts).with_changes(self.availability_changes())
    }
}

impl HostInterconnect {
    /// The parts that traffic from a GPU to a NIC crosses, both included.
    fn parts_to_nic(&self, gpu: Option<u32>, nic: u32) -> Vec<HostPart> {
        let Some(near) = self.switch_of_nic(nic) else {
            return Vec::new();
        };
        let last = [HostPart::PcieSwitch(near as u32), HostPart::Nic(nic)];
        let Some((gpu, own)) = gpu.and_then(|gpu| Some((gpu, self.switch_of_gpu(gpu)?))) else {
            return last.to_vec();
        };
        let mut parts = vec![HostPart::Gpu(gpu)];
        if own != near {
            parts.extend(self.parts_between(gpu, own, near));
        }
        parts.extend(last);
        parts
    }

    /// From a GPU on the PCIe switch `own` to the switch `near`, both ends excluded.
    fn parts_between(&self, gpu: u32, own: usize, near: usize) -> Vec<HostPart> {
        let domain = self.domain_of_gpu(gpu);
        let relay = domain.and_then(|domain| {
            let peers = self.nvlink_domains[domain].gpus.iter().copied();
            let near = peers.filter(|peer| self.switch_of_gpu(*peer) == Some(near)).min()?;
            Some([HostPart::NvlinkDomain(domain as u32), HostPart::Gpu(near)])
        });
        relay.map_or_else(
            || vec![HostPart::PcieSwitch(own as u32), HostPart::RootComplex],
            |over_nvlink| over_nvlink.to_vec(),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::document::DocumentFormat;
    use crate::spec::parse_fabric;

    /// Two hosts with two PCIe switches each, of two GPUs and a NIC.
    const HOSTS: &str = r#"
        name = "insides"
        [clos]
        leaves = 1
        spines = 1
        hosts_per_leaf = 2
        gpus_per_host = 4
        host_links = 2
        host_gbps = 200.0
        uplink_gbps = 400.0
        [host_interconnect]
        pcie_switches = [
            { gpus = [0, 1], nics = [0], gbps = 252.0 },
            { gpus = [2, 3], nics = [1], gbps = 252.0, root_gbps = 100.0 },
        ]
    "#;
    const NVLINK: &str = "nvlink_domains = [{ gpus = [0, 1, 2, 3], gbps = 2400.0 }]\n";

    fn names(text: &str, gpu: Option<u32>, nic: u32) -> Vec<String> {
        let fabric = parse_fabric(text, DocumentFormat::Toml, "f.toml").unwrap();
        let nic = fabric.nic_of(crate::HostId(1), nic).unwrap();
        let out = fabric.links_to_nic(gpu, nic);
        let back = fabric.links_from_nic(nic, gpu);
        assert!(out.iter().rev().map(|link| link.reverse()).eq(back.iter().copied()));
        out.iter().map(|link| fabric.link_name(*link)).collect()
    }

    #[test]
    fn the_way_from_a_gpu_to_a_nic_takes_the_nearest_links() {
        assert_eq!(names(HOSTS, Some(1), 0), ["h2:gpu1>h2:pcie0", "h2:pcie0>h2:nic0"]);
        let over_root =
            ["h2:gpu1>h2:pcie0", "h2:pcie0>h2:root", "h2:root>h2:pcie1", "h2:pcie1>h2:nic1"];
        assert_eq!(names(HOSTS, Some(1), 1), over_root);
        let over_nvlink =
            ["h2:gpu1>h2:nvlink0", "h2:nvlink0>h2:gpu2", "h2:gpu2>h2:pcie1", "h2:pcie1>h2:nic1"];
        assert_eq!(names(&format!("{HOSTS}{NVLINK}"), Some(1), 1), over_nvlink);
        assert_eq!(names(HOSTS, None, 1), ["h2:pcie1>h2:nic1"]);
    }

    #[test]
    fn ids_continue_those_of_the_fabric_and_undescribed_hosts_have_none() {
        let described = parse_fabric(HOSTS, DocumentFormat::Toml, "f.toml").unwrap();
        // Two NICs, four GPUs and two root links in each of two hosts, both ways.
        assert_eq!(described.intra_host_link_ids().count(), 2 * 2 * (2 + 4 + 2));
        for link in described.intra_host_link_ids() {
            let [there, back] =
                [link, link.reverse()].map(|link| *described.intra_host_link(link).unwrap());
            assert_eq!((there.from, there.to), (back.to, back.from));
        }
        let root = described
            .intra_host_link_ids()
            .find(|link| described.link_name(*link) == "h1:root>h1:pcie1");
        assert_eq!(described.link_bandwidth(root.unwrap()).gbps(), 100.0);
        let plain = HOSTS.split("[host_interconnect]").next().unwrap();
        let plain = parse_fabric(plain, DocumentFormat::Toml, "f.toml").unwrap();
        assert_eq!(plain.capacity_link_count(), plain.links().len());
        assert!(plain.links_to_nic(Some(0), crate::NicId(0)).is_empty());
    }
}
