//! Rules about the inside of hosts.

use super::join_any;
use crate::fabric::{Fabric, Host};
use crate::finding::Finding;

/// Hosts whose NICs are faster than the PCIe links that they are on: jobs get the rate of the
/// slower one.
pub(super) fn narrow_pcie_links(fabric: &Fabric) -> Vec<Finding> {
    let narrow = fabric.hosts().iter().filter(|host| has_narrow_link(fabric, host));
    let names: Vec<&str> = narrow.map(|host| &*host.name).collect();
    let finding = |names| Finding::info(names, "PCIe links are slower than the NICs");
    join_any(&names).map(finding).into_iter().collect()
}

fn has_narrow_link(fabric: &Fabric, host: &Host) -> bool {
    host.nics.iter().any(|&nic| {
        let uplink: f64 = fabric.uplinks_of(nic).map(|link| link.bandwidth.gbps()).sum();
        let pcie = fabric.links_to_nic(None, nic);
        pcie.iter().any(|link| fabric.link_bandwidth(*link).gbps() < uplink)
    })
}

#[cfg(test)]
mod tests {
    use super::narrow_pcie_links;
    use crate::document::DocumentFormat;
    use crate::examples::example_text;
    use crate::spec::parse_fabric;

    #[test]
    fn a_pcie_link_below_the_rate_of_its_nic_is_reported() {
        let good = example_text("crux-testbed-hosts").unwrap();
        let found = |text: &str| {
            let fabric = parse_fabric(text, DocumentFormat::Toml, "f.toml").unwrap();
            narrow_pcie_links(&fabric).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(found(good).is_empty());
        let third_generation = good.replacen("gbps = 252.0", "gbps = 126.0", 1);
        let expected = "info: h1, h2 and 10 more: PCIe links are slower than the NICs";
        assert_eq!(found(&third_generation), [expected]);
    }
}
