//! The names that the rest of the system prints for hosts, switches, ports and links.

use super::{Fabric, IntraHostLink, Link, LinkEndpoint};
use crate::ids::{FabricNode, LinkId};

impl Fabric {
    /// Name of a host or switch.
    pub fn node_name(&self, node: FabricNode) -> &str {
        match node {
            FabricNode::Host(host) => &self.host(host).name,
            FabricNode::Switch(switch) => &self.switch(switch).name,
        }
    }

    /// Names of the hosts and switches along a path, the sender first.
    pub fn path_node_names(&self, links: &[LinkId]) -> Vec<String> {
        let first = links.first().map(|link| self.link(*link).from.node);
        let ends = links.iter().map(|link| self.link(*link).to.node);
        let nodes = first.into_iter().chain(ends);
        nodes.map(|node| self.node_name(node).to_owned()).collect()
    }

    /// Name of an end of a cable, `leaf1:4`.
    pub fn endpoint_name(&self, endpoint: LinkEndpoint) -> String {
        format!("{}:{}", self.node_name(endpoint.node), endpoint.port)
    }

    /// Name of a directed link, `leaf1:4>spine1:1`, or `h1:gpu0>h1:pcie0` inside a host.
    pub fn link_name(&self, link: LinkId) -> String {
        if let Some(IntraHostLink { host, from, to, .. }) = self.intra_host_link(link) {
            let host = &self.host(*host).name;
            return format!("{host}:{from}>{host}:{to}");
        }
        let Link { from, to, .. } = *self.link(link);
        format!("{}>{}", self.endpoint_name(from), self.endpoint_name(to))
    }
}
