//! A fabric without a document: what is found becomes the fabric.
//!
//! The [`link_discovery`](super::link_discovery) asks every round. Sans-IO: what is seen and the
//! time are arguments, another fabric is the result. Three decisions. The fabric only grows: what
//! was found once and is not seen any more has failed, and comes back as what it was; only a port
//! that leads elsewhere now is taken at its word. What is new counts once nothing newer was found
//! for as long as silence takes to count, so that a fabric whose switches answer one by one is
//! learned at once. And a port at which a host was found leads to no switch: two hosts that relay
//! what they receive pass on probes, and LLDP as well, so only an operator can say otherwise.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use topology::spec::FabricDocument;
use topology::{AvailabilityChange, Fabric, Finding};

use super::link_discovery::{is_same_topology, link_ends};
use super::{
    DiscoveryDefaults, HostAttachment, ObservedTopology, SwitchPort, document_observed_fabric,
};

/// What is found of a fabric, until it counts.
#[derive(Debug)]
pub(super) struct TopologyLearner {
    defaults: DiscoveryDefaults,
    /// How long what is found must stay the same.
    settle_time: Duration,
    found: Option<(FabricDocument, Instant)>,
    /// Ports at which a host was ever found.
    host_ports: BTreeSet<SwitchPort>,
}

/// What a look says of the fabric.
#[derive(Debug, Default)]
pub(super) struct LearnedUpdate {
    /// The fabric from now on, if it is another.
    pub(super) fabric: Option<Fabric>,
    /// What of it is assumed, or why no fabric can be learned.
    pub(super) findings: Vec<Finding>,
}

impl TopologyLearner {
    pub(super) fn new(assumed: DiscoveryDefaults, settle_time: Duration) -> Self {
        Self { defaults: assumed, settle_time, found: None, host_ports: BTreeSet::new() }
    }

    /// Takes in what is seen of `fabric` at `now`.
    pub(super) fn learn_topology(
        &mut self,
        fabric: &Fabric,
        observed: &ObservedTopology,
        now: Instant,
    ) -> LearnedUpdate {
        self.host_ports.extend(host_ports(fabric));
        let (observed, relayed) = self.without_relayed(observed);
        let whole = merge_known_links(fabric, &observed);
        if whole.links.is_empty() && whole.hosts.is_empty() {
            return LearnedUpdate::default();
        }
        let relayed = relayed.into_iter().map(|(from, to)| relay_finding(fabric, from, to));
        let learned = document_observed_fabric(fabric, &whole, self.defaults);
        let since = match &self.found {
            Some((found, since)) if *found == learned.document => *since,
            _ => now,
        };
        let findings = learned.findings.into_iter().chain(relayed).collect();
        let mut lesson = LearnedUpdate { findings, fabric: None };
        match Fabric::try_from(&learned.document) {
            Err(error) => {
                let text = format!("the observed topology is no usable fabric: {error}");
                lesson.findings.push(Finding::error("fabric", text));
            }
            Ok(found) if is_same_topology(&found, fabric) => {}
            Ok(found) if now.duration_since(since) >= self.settle_time => {
                lesson.fabric = Some(carry_over_failures(&found, fabric));
            }
            Ok(_) => {}
        }
        // A fabric that the state does not adopt is returned again after another settle time.
        let since = lesson.fabric.as_ref().map_or(since, |_| now);
        self.found = Some((learned.document, since));
        lesson
    }

    /// What is seen without links of ports at which a host was found, and these links.
    fn without_relayed(
        &self,
        observed: &ObservedTopology,
    ) -> (ObservedTopology, Vec<(SwitchPort, SwitchPort)>) {
        let is_relayed = |from: &SwitchPort, to: &SwitchPort| {
            self.host_ports.contains(from) || self.host_ports.contains(to)
        };
        let mut honest = observed.clone();
        honest.links.retain(|from, to| !is_relayed(from, to));
        let cables = observed.cables().into_iter();
        (honest, cables.filter(|(from, to)| is_relayed(from, to)).collect())
    }
}

/// The ports of a fabric at which hosts are.
pub(super) fn host_ports(fabric: &Fabric) -> impl Iterator<Item = SwitchPort> + '_ {
    fabric.nics().iter().filter_map(|nic| SwitchPort::at_endpoint(fabric.link(nic.uplink).to))
}

fn relay_finding(fabric: &Fabric, from: SwitchPort, to: SwitchPort) -> Finding {
    let text = "probes pass where a host was found, and count for nothing: a host relays them, or a \
                cable is new there; if it is, write the cable into the document of --fabric and start \
                the controller again";
    Finding::error(format!("{}-{}", from.port_name(fabric), to.port_name(fabric)), text)
}

/// Links observed in both directions, and known ones at ports that do not lead elsewhere now.
fn merge_known_links(fabric: &Fabric, observed: &ObservedTopology) -> ObservedTopology {
    let mut links = observed.links.clone();
    links.retain(|from, to| observed.links.get(to) == Some(from));
    for link in fabric.link_ids() {
        if let Some((from, to)) = link_ends(fabric, link)
            && observed.links.get(&from).is_none_or(|seen| *seen == to)
            && observed.links.get(&to).is_none_or(|seen| *seen == from)
        {
            links.insert(from, to);
        }
    }
    let mut stations = observed.hosts.clone();
    for nic in fabric.nics() {
        if let Some(at) = SwitchPort::at_endpoint(fabric.link(nic.uplink).to)
            && !links.contains_key(&at)
        {
            let station = HostAttachment { at, mac: nic.mac };
            stations.entry(nic.ip).or_insert(station);
        }
    }
    ObservedTopology { links, hosts: stations }
}

/// The fabric that was found, in which what had failed before still has.
fn carry_over_failures(found: &Fabric, before: &Fabric) -> Fabric {
    // Names are stable from one fabric to the next, and ids of links are not.
    let cables = before
        .cables()
        .filter(|link| !before.is_cable_up(*link))
        .filter_map(|link| found.link_named(&before.link_name(link)))
        .map(AvailabilityChange::LinkDown);
    let switches = before
        .switch_ids()
        .filter(|switch| !before.is_switch_up(*switch))
        .map(AvailabilityChange::SwitchDown);
    found.with_changes(cables.chain(switches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::clos::{self, ClosSpec};
    use topology::{FabricParts, Tier};

    const SETTLE_TIME: Duration = Duration::from_millis(700);

    fn lab() -> Fabric {
        clos::build_clos("lab", &ClosSpec::default()).unwrap()
    }

    /// The switches of the lab and nothing else of it.
    fn inventory() -> Fabric {
        let mut switches = lab().switches().to_vec();
        for switch in &mut switches {
            switch.tier = Tier::Leaf;
            switch.ports.clear();
        }
        Fabric::new(FabricParts { name: "found".to_owned(), switches, ..FabricParts::default() })
    }

    /// All that is seen where everything works and these hosts have spoken.
    fn observed(hosts: usize) -> ObservedTopology {
        let lab = lab();
        let links = lab.link_ids();
        let station = |nic: &topology::Nic| {
            let at = SwitchPort::at_endpoint(lab.link(nic.uplink).to).unwrap();
            (nic.ip, HostAttachment { at, mac: nic.mac })
        };
        ObservedTopology {
            links: links.filter_map(|link| link_ends(&lab, link)).collect(),
            hosts: lab.nics().iter().take(hosts).map(station).collect(),
        }
    }

    fn learner() -> TopologyLearner {
        let assumed = DiscoveryDefaults { gbps: 100.0, gpus: 8 };
        TopologyLearner::new(assumed, SETTLE_TIME)
    }

    /// What is learned of `fabric` once that is seen long enough.
    fn learn(fabric: &Fabric, observed: &ObservedTopology) -> Option<Fabric> {
        let (mut learner, now) = (learner(), Instant::now());
        assert!(learner.learn_topology(fabric, observed, now).fabric.is_none());
        learner.learn_topology(fabric, observed, now + SETTLE_TIME).fabric
    }

    #[test]
    fn a_topology_is_learned_once_it_is_stable() {
        let (mut learner, now) = (learner(), Instant::now());
        let observations = [(0, 1), (400, 1), (600, 2), (1_200, 2), (1_300, 2)];
        let learned = observations.map(|(ms, hosts)| {
            let now = now + Duration::from_millis(ms);
            learner.learn_topology(&inventory(), &observed(hosts), now).fabric
        });
        let hosts = learned.map(|fabric| fabric.map(|fabric| fabric.hosts().len()));
        assert_eq!(hosts, [None, None, None, None, Some(2)]);
    }

    #[test]
    fn the_whole_fabric_is_learned_once() {
        let found = learn(&inventory(), &observed(usize::MAX)).unwrap();
        let shape = |fabric: &Fabric| {
            let links = fabric.link_ids();
            let within = links.filter(|link| link_ends(fabric, *link).is_some());
            let mut names: Vec<String> = within.map(|link| fabric.link_name(link)).collect();
            names.sort_unstable();
            let tiers: Vec<Tier> = fabric.switches().iter().map(|switch| switch.tier).collect();
            (names, tiers, fabric.nics().len())
        };
        assert_eq!(shape(&found), shape(&lab()));
        assert!(learn(&found, &observed(usize::MAX)).is_none());
        // Nothing is forgotten because it is silent.
        assert!(learn(&found, &ObservedTopology::default()).is_none());
        assert!(learn(&inventory(), &ObservedTopology::default()).is_none());
    }

    #[test]
    fn failures_survive_the_growth_of_the_fabric() {
        let found = learn(&inventory(), &observed(2)).unwrap();
        let cable = found.links_named("leaf1-spine1")[0];
        let failed = found.with_changes([AvailabilityChange::LinkDown(cable)]);
        let mut seen = observed(3);
        let (a, b) = link_ends(&found, cable).unwrap();
        seen.links.retain(|from, _| *from != a && *from != b);
        let grown = learn(&failed, &seen).unwrap();
        assert_eq!(grown.hosts().len(), 3);
        let cable = grown.links_named("leaf1-spine1")[0];
        assert!(!grown.is_cable_up(cable));
        let others = grown.link_ids();
        let down = others.filter(|link| !grown.is_up(*link)).count();
        assert_eq!(down, 2);
    }

    /// Found by attack: two hosts that relayed 32 probes made a cable, on which every source and
    /// DSCP is trusted, and vanished themselves.
    #[test]
    fn hosts_that_relay_probes_make_no_cable() {
        let found = learn(&inventory(), &observed(usize::MAX)).unwrap();
        let ports: Vec<SwitchPort> = host_ports(&found).collect();
        let free = SwitchPort { port: 60, ..ports[3] };
        for (a, b) in [(ports[0], ports[2]), (ports[0], free), (free, ports[0])] {
            let (mut learner, now) = (learner(), Instant::now());
            let mut seen = observed(usize::MAX);
            seen.links.extend([(a, b), (b, a)]);
            seen.hosts.retain(|_, host| ![a, b].contains(&host.at));
            for later in 0..4 {
                let lesson = learner.learn_topology(&found, &seen, now + later * SETTLE_TIME);
                assert!(lesson.fabric.is_none(), "{a:?} {b:?}");
                let relayed = |finding: &&Finding| finding.text.contains("a host relays them");
                assert_eq!(lesson.findings.iter().filter(relayed).count(), 1);
            }
        }
        // Nor does it where the host has moved meanwhile.
        let (mut learner, now) = (learner(), Instant::now());
        learner.learn_topology(&found, &observed(usize::MAX), now);
        let mut seen = observed(usize::MAX);
        let moved = seen.hosts.values_mut().find(|host| host.at == ports[0]).unwrap();
        moved.at = free;
        learner.learn_topology(&found, &seen, now);
        let moved = learner.learn_topology(&found, &seen, now + SETTLE_TIME).fabric.unwrap();
        seen.links.extend([(ports[0], ports[2]), (ports[2], ports[0])]);
        learner.learn_topology(&moved, &seen, now + 2 * SETTLE_TIME);
        assert!(learner.learn_topology(&moved, &seen, now + 3 * SETTLE_TIME).fabric.is_none());
    }

    #[test]
    fn a_moved_cable_leads_to_its_new_port() {
        let found = learn(&inventory(), &observed(usize::MAX)).unwrap();
        let (a, b) = link_ends(&found, found.links_named("leaf1-spine1")[0]).unwrap();
        let free = SwitchPort { port: 60, ..b };
        let mut seen = observed(usize::MAX);
        seen.links.remove(&b);
        seen.links.extend([(a, free), (free, a)]);
        let grown = learn(&found, &seen).unwrap();
        let cable = grown.links_named("leaf1-spine1")[0];
        assert_eq!(link_ends(&grown, cable), Some((a, free)));
        assert_eq!(grown.links().len(), found.links().len());
    }
}
