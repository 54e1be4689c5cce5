//! The explicit form of the Fabric document: every name, port and address written out.
//!
//! Reading resolves names to ids and refuses what cannot be a fabric, naming the field. A fabric
//! that can be but should not (an unreachable host, uneven tiers) is left to [`crate::check`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{
    FabricDocument, FieldError, HostDocument, LinkDocument, SwitchDocument, is_name, speed,
};
use crate::document::nearest;
use crate::draft::{Cable, Draft, DraftHost, MAX_CABLES};
use crate::fabric::{Endpoint, Fabric, Host, Link, Switch, Tier};
use crate::ids::Node;
use crate::units::Mac;

/// The document that describes `fabric` in full; reading it gives an equal fabric in which
/// everything works.
pub fn document(fabric: &Fabric) -> FabricDocument {
    FabricDocument {
        name: fabric.name().to_owned(),
        clos: None,
        switches: fabric.switches().iter().map(switch_document).collect(),
        hosts: fabric
            .hosts()
            .iter()
            .map(|host| host_document(fabric, host))
            .collect(),
        links: fabric
            .links()
            .iter()
            .step_by(2)
            .map(|link| link_document(fabric, link))
            .collect(),
    }
}

fn switch_document(switch: &Switch) -> SwitchDocument {
    SwitchDocument {
        name: switch.name.clone(),
        tier: switch.tier,
        device_id: switch.device_id,
        p4runtime: switch.p4runtime.clone(),
    }
}

fn host_document(fabric: &Fabric, host: &Host) -> HostDocument {
    let nics = || host.nics.iter().map(|&nic| fabric.nic(nic));
    HostDocument {
        name: host.name.clone(),
        gpus: host.gpus,
        ips: nics().map(|nic| nic.ip.to_string()).collect(),
        macs: nics().map(|nic| nic.mac.to_string()).collect(),
    }
}

fn link_document(fabric: &Fabric, link: &Link) -> LinkDocument {
    LinkDocument {
        a: fabric.endpoint_name(link.from),
        b: fabric.endpoint_name(link.to),
        gbps: link.bandwidth.gbps(),
    }
}

/// Whether the document lists nothing.
pub(super) fn is_empty(document: &FabricDocument) -> bool {
    document.switches.is_empty() && document.hosts.is_empty() && document.links.is_empty()
}

/// The fabric of an explicit document.
pub(super) fn build(document: &FabricDocument) -> Result<Fabric, FieldError> {
    if document.switches.is_empty() {
        let problem = "a fabric needs at least one switch; list them or generate a [clos]";
        return Err(FieldError::new("switches", problem));
    }
    if document.links.len() as u64 > MAX_CABLES {
        let problem = format!("{} links; at most {MAX_CABLES}", document.links.len());
        return Err(FieldError::new("links", problem));
    }
    let names = Names::of(document)?;
    let cables = cables(document, &names)?;
    let mut draft = Draft::named(&document.name);
    draft.switches = document.switches.iter().map(switch).collect();
    draft.hosts = hosts(document, &cables)?;
    draft.cables = cables;
    Ok(draft.finish())
}

fn switch(document: &SwitchDocument) -> Switch {
    Switch {
        name: document.name.clone(),
        tier: document.tier,
        device_id: document.device_id,
        p4runtime: document.p4runtime.clone(),
        ports: BTreeMap::new(),
    }
}

/// Hosts and switches by name, with the field that named each.
struct Names<'a> {
    document: &'a FabricDocument,
    nodes: BTreeMap<&'a str, (Node, String)>,
}

impl<'a> Names<'a> {
    fn of(document: &'a FabricDocument) -> Result<Self, FieldError> {
        let switches = document.switches.iter().enumerate().map(|(id, switch)| {
            (
                &*switch.name,
                Node::Switch(id.into()),
                format!("switches[{id}].name"),
            )
        });
        let hosts = document.hosts.iter().enumerate().map(|(id, host)| {
            (
                &*host.name,
                Node::Host(id.into()),
                format!("hosts[{id}].name"),
            )
        });
        let mut nodes = BTreeMap::new();
        for (name, node, field) in switches.chain(hosts) {
            if !is_name(name) {
                let problem = format!("{name:?} is no name; use letters, digits and -_.");
                return Err(FieldError::new(field, problem));
            }
            if let Some((_, first)) = nodes.insert(name, (node, field.clone())) {
                return Err(FieldError::new(
                    field,
                    format!("{name} is already named by {first}"),
                ));
            }
        }
        Ok(Self { document, nodes })
    }

    /// The end of a cable that `text` (`name:port`) says.
    fn endpoint(&self, text: &str) -> Result<Endpoint, String> {
        let form = || format!("{text:?} is no end of a link; write name:port, for example leaf1:4");
        let (name, port) = text.rsplit_once(':').ok_or_else(form)?;
        let port = port.parse().map_err(|_| form())?;
        let Some(&(node, _)) = self.nodes.get(name) else {
            let meant = nearest(name, self.nodes.keys().copied());
            let hint = meant
                .map(|meant| format!("; did you mean {meant}?"))
                .unwrap_or_default();
            return Err(format!("unknown host or switch {name}{hint}"));
        };
        if let Node::Host(host) = node {
            let nics = self.document.hosts[host.index()].ips.len();
            if port as usize >= nics {
                return Err(format!(
                    "{name} has {nics} NICs (its ips), counted from 0; found {port}"
                ));
            }
        }
        Ok(Endpoint { node, port })
    }
}

fn cables(document: &FabricDocument, names: &Names<'_>) -> Result<Vec<Cable>, FieldError> {
    let mut cables = Vec::with_capacity(document.links.len());
    let mut used: BTreeMap<Endpoint, String> = BTreeMap::new();
    for (index, link) in document.links.iter().enumerate() {
        let mut end = |text: &str, side: &str| {
            let field = format!("links[{index}].{side}");
            let endpoint = names
                .endpoint(text)
                .map_err(|problem| FieldError::new(&*field, problem))?;
            match used.insert(endpoint, field.clone()) {
                Some(first) => Err(FieldError::new(
                    field,
                    format!("{text} is already used by {first}"),
                )),
                None => Ok(endpoint),
            }
        };
        let (a, b) = (end(&link.a, "a")?, end(&link.b, "b")?);
        let nodes = may_connect(document, a.node, b.node);
        nodes.map_err(|problem| FieldError::new(format!("links[{index}].b"), problem))?;
        let bandwidth = speed(&format!("links[{index}].gbps"), link.gbps)?;
        cables.push(Cable { a, b, bandwidth });
    }
    Ok(cables)
}

/// Hosts connect to leaves, and nothing to itself.
fn may_connect(document: &FabricDocument, a: Node, b: Node) -> Result<(), String> {
    match (a, b) {
        (Node::Host(_), Node::Host(_)) => {
            Err("connects two hosts; hosts connect to leaves".to_owned())
        }
        (Node::Host(_), Node::Switch(switch)) | (Node::Switch(switch), Node::Host(_)) => {
            let SwitchDocument { name, tier, .. } = &document.switches[switch.index()];
            match tier {
                Tier::Leaf => Ok(()),
                _ => Err(format!(
                    "connects a host to {name}, a {tier}; hosts connect to leaves"
                )),
            }
        }
        _ if a == b => Err("connects a switch to itself".to_owned()),
        _ => Ok(()),
    }
}

fn hosts(document: &FabricDocument, cables: &[Cable]) -> Result<Vec<DraftHost>, FieldError> {
    let mut seen = Addresses::default();
    let hosts = document.hosts.iter().enumerate();
    let hosts = hosts.map(|(index, host)| {
        let addresses = seen.of_host(index, host)?;
        Ok(DraftHost {
            name: host.name.clone(),
            gpus: host.gpus,
            addresses,
        })
    });
    let hosts: Vec<DraftHost> = hosts.collect::<Result<_, FieldError>>()?;
    every_nic_has_a_cable(&hosts, cables)?;
    Ok(hosts)
}

/// Addresses used so far, with the field that used each.
#[derive(Default)]
struct Addresses {
    ips: BTreeMap<Ipv4Addr, String>,
    macs: BTreeMap<Mac, String>,
}

impl Addresses {
    fn of_host(
        &mut self,
        index: usize,
        host: &HostDocument,
    ) -> Result<Vec<(Ipv4Addr, Mac)>, FieldError> {
        let (ips, macs) = (host.ips.len(), host.macs.len());
        if macs != 0 && macs != ips {
            let problem = format!("{macs} for {ips} ips; give one for each or none");
            return Err(FieldError::new(format!("hosts[{index}].macs"), problem));
        }
        let address = |nic: usize| -> Result<(Ipv4Addr, Mac), FieldError> {
            let field = format!("hosts[{index}].ips[{nic}]");
            let ip = parsed(
                &host.ips[nic],
                &field,
                "not an IPv4 address such as 10.0.1.1",
            )?;
            claim(&mut self.ips, ip, field)?;
            let field = format!("hosts[{index}].macs[{nic}]");
            let mac = match host.macs.get(nic) {
                Some(mac) => parsed(
                    mac,
                    &field,
                    "not an Ethernet address like 02:00:0a:00:01:01",
                )?,
                None => Mac::of_ip(ip),
            };
            claim(&mut self.macs, mac, field)?;
            Ok((ip, mac))
        };
        (0..ips).map(address).collect()
    }
}

fn parsed<T: std::str::FromStr>(text: &str, field: &str, problem: &str) -> Result<T, FieldError> {
    text.parse()
        .map_err(|_| FieldError::new(field, format!("{text:?} is {problem}")))
}

/// Notes that `field` uses `address`, unless another does.
fn claim<T: Ord + Copy + ToString>(
    used: &mut BTreeMap<T, String>,
    address: T,
    field: String,
) -> Result<(), FieldError> {
    match used.get(&address) {
        Some(first) => {
            let problem = format!("{} is already used by {first}", address.to_string());
            Err(FieldError::new(field, problem))
        }
        None => {
            used.insert(address, field);
            Ok(())
        }
    }
}

fn every_nic_has_a_cable(hosts: &[DraftHost], cables: &[Cable]) -> Result<(), FieldError> {
    let mut cabled: Vec<Vec<bool>> = hosts
        .iter()
        .map(|host| vec![false; host.addresses.len()])
        .collect();
    for end in cables.iter().flat_map(|cable| [cable.a, cable.b]) {
        if let Node::Host(host) = end.node {
            cabled[host.index()][end.port as usize] = true;
        }
    }
    for (index, nics) in cabled.iter().enumerate() {
        if let Some(nic) = nics.iter().position(|&cabled| !cabled) {
            let problem = format!("no link leads to {}:{nic}", hosts[index].name);
            return Err(FieldError::new(
                format!("hosts[{index}].ips[{nic}]"),
                problem,
            ));
        }
    }
    Ok(())
}
