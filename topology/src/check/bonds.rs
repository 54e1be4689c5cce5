//! Rules about NICs with two ports under one address.

use crate::fabric::Fabric;
use crate::finding::{Finding, count_noun, list_names};
use crate::ids::NicId;

/// How many there are, and how many pairs of leaves they lead to.
pub(super) fn bonded_nics(fabric: &Fabric) -> Vec<Finding> {
    let pairs = fabric.destinations().iter().filter(|to| to.only_leaf().is_none()).count();
    let nics = bonds(fabric).count();
    if pairs == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} of two ports under one address, at {} of leaves: the hash of the host chooses the port \
         up, switches the port down",
        count_noun(nics as u64, "NIC"),
        count_noun(pairs as u64, "pair")
    );
    vec![Finding::info(fabric.name(), text)]
}

/// A leaf has one row for an address, so it sends by one of two ports.
pub(super) fn single_leaf_bonds(fabric: &Fabric) -> Vec<Finding> {
    let single = bonds(fabric).filter(|[nic, _]| fabric.leaves_of(*nic).only_leaf().is_some());
    let text = "both ports lead to one leaf, which sends by the first that works";
    warn_of(fabric, single, text)
}

/// Hosts spread connections evenly over the ports of a NIC.
pub(super) fn uneven_bonds(fabric: &Fabric) -> Vec<Finding> {
    let gbps = |port: NicId| fabric.link(fabric.nic(port).uplink).bandwidth.gbps();
    let uneven = bonds(fabric).filter(|[one, other]| gbps(*one) != gbps(*other));
    warn_of(
        fabric,
        uneven,
        "its ports have different speeds, and its host spreads over both evenly",
    )
}

/// Both ports of each NIC with two.
fn bonds(fabric: &Fabric) -> impl Iterator<Item = [NicId; 2]> + '_ {
    fabric.host_nics().filter_map(|nic| Some([nic, fabric.nic(nic).bond?]))
}

/// One warning that names all of these NICs.
fn warn_of(fabric: &Fabric, bonds: impl Iterator<Item = [NicId; 2]>, text: &str) -> Vec<Finding> {
    let ends = bonds.map(|[nic, _]| fabric.link(fabric.nic(nic).uplink).from);
    let names: Vec<String> = ends.map(|end| fabric.endpoint_name(end)).collect();
    let warning = || Finding::warning(list_names(&names), text);
    (!names.is_empty()).then(warning).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_fabric;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::AvailabilityChange;
    use crate::spec::{self, FabricDocument};

    fn reported(fabric: &Fabric) -> Vec<String> {
        let findings = check_fabric(fabric);
        let about_bonds = findings.iter().map(ToString::to_string);
        about_bonds.filter(|text| text.contains("port") && !text.contains("one way")).collect()
    }

    fn dual() -> Fabric {
        let spec = ClosSpec { ports_per_nic: 2, ..ClosSpec::default() };
        clos::build_clos("dual", &spec).unwrap()
    }

    fn changed(change: impl FnOnce(&mut FabricDocument)) -> Vec<String> {
        let mut document = spec::explicit_document(&dual());
        change(&mut document);
        reported(&Fabric::try_from(&document).unwrap())
    }

    const COUNT: &str = "info: dual: 12 NICs of two ports under one address, at 2 pairs of leaves: \
                         the hash of the host chooses the port up, switches the port down";

    #[test]
    fn bonds_are_counted_and_what_they_lose_is_a_warning() {
        assert_eq!(changed(|_| {}), [COUNT]);
        let uneven = changed(|document| document.links[1].gbps = 100.0);
        let text = "warning: h1:0: its ports have different speeds, and its host spreads over both \
                    evenly";
        assert_eq!(uneven, [text, COUNT]);
        let single = changed(|document| document.links[1].b = "leaf1:99".to_owned());
        let text =
            "warning: h1:0: both ports lead to one leaf, which sends by the first that works";
        assert_eq!(single, [text, COUNT]);
    }

    #[test]
    fn a_port_that_fails_is_a_warning_and_both_are_an_error() {
        let fabric = dual();
        let down = |names: &[&str]| {
            let links = names.iter().map(|name| fabric.links_named(name)[0]);
            reported(&fabric.with_changes(links.map(AvailabilityChange::LinkDown)))
        };
        let one = down(&["h1-leaf2"]);
        assert_eq!(one, ["warning: h1: NIC 0 has one port left: h1:0>leaf2:1 is down", COUNT]);
        let both = check_fabric(
            &fabric.with_changes(
                ["h1-leaf1", "h1-leaf2"]
                    .map(|n| AvailabilityChange::LinkDown(fabric.links_named(n)[0])),
            ),
        );
        let text = "error: h1: NIC 0 is cut off: h1:0>leaf1:1 is down and h1:0>leaf2:1 is down";
        assert_eq!(both[0].to_string(), text);
    }
}
