//! The interconnects of hosts in the Fabric document: `host_interconnect` for all of them,
//! `interconnect` for one.

use std::sync::Arc;

use super::{FabricDocument, FabricFieldError};
use crate::fabric::{Fabric, Host};
use crate::ids::HostId;
use crate::interconnect::HostInterconnect;

/// `fabric` with the interconnects that its document describes.
pub(super) fn with_described_interconnects(
    fabric: Fabric,
    document: &FabricDocument,
) -> Result<Fabric, FabricFieldError> {
    let common = document.host_interconnect.clone().map(Arc::new);
    let mut described = Vec::with_capacity(fabric.hosts().len());
    for (index, host) in fabric.hosts().iter().enumerate() {
        let own = document.hosts.get(index).and_then(|host| host.interconnect.clone());
        let field = match own {
            Some(_) => format!("hosts[{index}].interconnect"),
            None => "host_interconnect".to_owned(),
        };
        let interconnect = own.map(Arc::new).or_else(|| common.clone());
        if let Some(interconnect) = &interconnect {
            check_interconnect(interconnect, host, &field)?;
        }
        described.push(interconnect);
    }
    match described.iter().any(Option::is_some) {
        true => Ok(fabric.with_interconnects(|host: HostId| described[host.index()].clone())),
        false => Ok(fabric),
    }
}

fn check_interconnect(
    interconnect: &HostInterconnect,
    host: &Host,
    place: &str,
) -> Result<(), FabricFieldError> {
    match interconnect.problem(host.gpus, host.nics.len() as u32) {
        None => Ok(()),
        Some((field, problem)) => Err(FabricFieldError::new(
            format!("{place}.{field}"),
            format!("{problem} ({})", host.name),
        )),
    }
}

/// The interconnect of all hosts, if they have the same.
pub(super) fn common_interconnect(fabric: &Fabric) -> Option<HostInterconnect> {
    let first = fabric.hosts().first()?.interconnect.as_deref()?;
    let is_common = fabric.hosts().iter().all(|host| host.interconnect.as_deref() == Some(first));
    is_common.then(|| first.clone())
}

/// The interconnect of a host, if it is not that of all.
pub(super) fn own_interconnect(host: &Host, is_common: bool) -> Option<HostInterconnect> {
    host.interconnect.as_deref().filter(|_| !is_common).cloned()
}

#[cfg(test)]
mod tests {
    use crate::document::{DocumentFormat, print_document};
    use crate::examples::example_text;
    use crate::fabric::Fabric;
    use crate::spec::{SpecError, explicit_document, parse_fabric};

    fn read(text: &str) -> Result<Fabric, SpecError> {
        parse_fabric(text, DocumentFormat::Toml, "f.toml")
    }

    /// What is replaced in the testbed of the paper, by what, and the error that follows.
    const MISTAKES: &str = r#"
gpus = [2, 3] => gpus = [2, 8] => pcie_switches[1].gpus: GPU 8 of a host with 8 GPUs, counted from 0
gpus = [2, 3] => gpus = [1, 3] => pcie_switches[1].gpus: GPU 1 is already in pcie_switches[0].gpus
gpus = [2, 3] => gpus = [2] => pcie_switches: GPU 3 is on no PCIe switch
nics = [3] => nics = [4] => pcie_switches[3].nics: NIC 4 of a host with 4 NICs, counted from 0
nics = [3] => nics = [] => pcie_switches: NIC 3 is on no PCIe switch
[1], gbps = 252.0 => [1], gbps = 0.0 => pcie_switches[1].gbps: must be a number above 0, found 0
252.0 => 9.0, root_gbps = -1.0 => pcie_switches[0].root_gbps: must be a number above 0, found -1
gbps = 2400.0 => gbps = nan => nvlink_domains[0].gbps: must be a number above 0, found NaN
5, 6, 7] => 5, 5] => nvlink_domains[0].gpus: GPU 5 is already in nvlink_domains[0].gpus
"#;

    #[test]
    fn a_mistake_is_named_by_its_field_and_the_first_host() {
        let good = example_text("crux-testbed-hosts").unwrap();
        for case in MISTAKES.lines().filter(|line| !line.is_empty()) {
            let [good_part, bad, expected] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}");
            };
            assert!(good.contains(good_part), "{good_part}");
            let found = read(&good.replacen(good_part, bad, 1)).unwrap_err().to_string();
            assert_eq!(found, format!("f.toml: host_interconnect.{expected} (h1)"));
        }
        let strict = good.replacen(
            "[host_interconnect]\nscheduler = \"host-strict\"",
            "[host_interconnect]\nscheduler = \"strict\"",
            1,
        );
        let found = read(&strict).unwrap_err().to_string();
        assert!(found.contains("host_interconnect.scheduler: links in a host are fifo or"));
    }

    #[test]
    fn interconnects_go_into_the_explicit_document_and_back() {
        let fabric = read(example_text("crux-testbed-hosts").unwrap()).unwrap();
        let mut document = explicit_document(&fabric);
        let again = |document: &_| {
            let text = print_document(document, DocumentFormat::Toml).unwrap();
            read(&text).unwrap()
        };
        assert_eq!(again(&document), fabric);
        // A host of its own kind: all hosts then have theirs.
        let mut own = document.host_interconnect.clone().unwrap();
        own.nvlink_domains.clear();
        document.hosts[3].interconnect = Some(own);
        let mixed = again(&document);
        assert_ne!(mixed, fabric);
        assert_eq!(again(&explicit_document(&mixed)), mixed);
    }
}
