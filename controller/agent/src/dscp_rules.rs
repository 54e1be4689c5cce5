//! Which packets of this host get which DSCP, from the levels of its jobs.
//!
//! Pure. The decision: as in switches, a connection whose port is known has the DSCP of its job,
//! and every other one between its two NICs that of the pair. A pair of which all known connections
//! have one DSCP is one rule, so a job that has its NICs for itself needs few. Where two jobs have
//! one pair and neither states ports, the higher level wins: they cannot be told apart.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use api::telemetry as proto;

/// Rules of one host; the kernel tries one after the other for each packet.
const MAX_RULES: usize = 4_096;
/// UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// The largest DSCP.
const MAX_DSCP: u32 = 63;

/// A sending and a receiving address.
pub type AddressPair = (IpAddr, IpAddr);

/// What a host sets in the packets that it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DscpRules {
    /// Of all connections between two addresses that have no rule of their own.
    pub pairs: BTreeMap<AddressPair, u8>,
    /// Of single connections, by UDP source port.
    pub connections: BTreeMap<(AddressPair, u16), u8>,
    /// Flows beyond what the controller sends or the kernel is given.
    pub left_out: usize,
}

impl DscpRules {
    /// The rules that follow from the levels of a host's jobs. Jobs whose level has no DSCP, and
    /// flows without two addresses of one family, have none.
    pub fn from_levels(levels: &proto::HostLevels) -> Self {
        let mut rules = Self { left_out: levels.flows_left_out as usize, ..Self::default() };
        for job in &levels.jobs {
            let known = job.dscp.filter(|dscp| *dscp <= MAX_DSCP);
            let Some(dscp) = known.and_then(|dscp| u8::try_from(dscp).ok()) else { continue };
            for flow in &job.flows {
                rules.add_flow(flow, dscp);
            }
        }
        rules.merge_connections();
        rules.keep_most(MAX_RULES);
        rules
    }

    /// How many rules there are.
    pub fn count(&self) -> usize {
        self.pairs.len() + self.connections.len()
    }

    /// Whether any rule is of this family.
    pub fn has_family(&self, is_ipv6: bool) -> bool {
        let pairs = self.pairs.keys().chain(self.connections.keys().map(|(pair, _)| pair));
        pairs.into_iter().any(|(src, _)| src.is_ipv6() == is_ipv6)
    }

    /// The rules of one family as lines of iptables-restore, in the chain `chain`. The target DSCP
    /// does not end the chain, so the last rule that matches counts: connections follow pairs.
    pub fn iptables_lines(&self, chain: &str, is_ipv6: bool) -> String {
        let mut lines = String::new();
        let pairs = self.pairs.iter().map(|(pair, dscp)| (pair, None, dscp));
        let connections = self.connections.iter();
        let connections = connections.map(|((pair, port), dscp)| (pair, Some(port), dscp));
        for ((src, dst), port, dscp) in pairs.chain(connections) {
            if src.is_ipv6() != is_ipv6 {
                continue;
            }
            let port = port.map(|port| format!("--sport {port} ")).unwrap_or_default();
            let written = writeln!(
                lines,
                "-A {chain} -s {src} -d {dst} -p udp -m udp {port}--dport {ROCE_PORT} -j DSCP \
                 --set-dscp {dscp}"
            );
            written.expect("a string takes all");
        }
        lines
    }

    /// The pairs that a device with these addresses sends, where it can set a DSCP by pair only,
    /// and how many of its pairs have connections of several levels, which stay as they are.
    pub fn device_pairs(&self, addresses: &[IpAddr]) -> (BTreeMap<AddressPair, u8>, usize) {
        let mut mixed: Vec<AddressPair> = self.connections.keys().map(|(pair, _)| *pair).collect();
        mixed.dedup();
        mixed.retain(|(src, _)| addresses.contains(src));
        let own = self.pairs.iter().filter(|(pair, _)| addresses.contains(&pair.0));
        let single = own.filter(|(pair, _)| !mixed.contains(pair));
        (single.map(|(pair, dscp)| (*pair, *dscp)).collect(), mixed.len())
    }

    fn add_flow(&mut self, flow: &proto::LevelFlow, dscp: u8) {
        let addresses = [&flow.src, &flow.dst].map(|address| address.parse::<IpAddr>());
        let [Ok(src), Ok(dst)] = addresses else { return };
        if src.is_ipv6() != dst.is_ipv6() {
            return;
        }
        let pair = (src, dst);
        let known = match flow.udp_src_port.map(u16::try_from) {
            None => self.pairs.entry(pair).or_insert(dscp),
            Some(Ok(port)) => self.connections.entry((pair, port)).or_insert(dscp),
            Some(Err(_)) => return,
        };
        *known = dscp.max(*known);
    }

    /// Makes one rule of all connections of a pair that have one DSCP.
    fn merge_connections(&mut self) {
        let mut found: BTreeMap<AddressPair, Option<u8>> = BTreeMap::new();
        for ((pair, _), dscp) in &self.connections {
            let common = found.entry(*pair).or_insert(Some(*dscp));
            *common = common.filter(|common| common == dscp);
        }
        for (pair, common) in found {
            if let Some(dscp) = common {
                self.pairs.entry(pair).or_insert(dscp);
            }
        }
        let pairs = &self.pairs;
        self.connections.retain(|(pair, _), dscp| pairs.get(pair) != Some(dscp));
    }

    fn keep_most(&mut self, most: usize) {
        while self.count() > most {
            if self.connections.pop_last().is_none() {
                self.pairs.pop_last();
            }
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, dst: &str, port: Option<u32>) -> proto::LevelFlow {
        proto::LevelFlow { src: src.to_owned(), dst: dst.to_owned(), udp_src_port: port }
    }

    fn levels(jobs: Vec<(u32, Vec<proto::LevelFlow>)>) -> proto::HostLevels {
        let job = |(dscp, flows)| proto::JobLevel {
            job: format!("job-{dscp}"),
            level: dscp >> 3,
            dscp: Some(dscp),
            flows,
        };
        proto::HostLevels {
            host: "h1".to_owned(),
            revision: 1,
            jobs: jobs.into_iter().map(job).collect(),
            flows_left_out: 0,
        }
    }

    const A: &str = "10.0.0.1";
    const B: &str = "10.0.0.2";
    const C: &str = "10.0.0.3";

    #[test]
    fn connections_of_one_level_are_one_rule_and_others_have_their_own() {
        let alone = (56, vec![flow(A, B, Some(50_000)), flow(A, B, Some(50_001))]);
        let rules = DscpRules::from_levels(&levels(vec![alone.clone()]));
        assert_eq!(
            rules.iptables_lines("X", false),
            "-A X -s 10.0.0.1 -d 10.0.0.2 -p udp -m udp --dport 4791 -j DSCP --set-dscp 56\n"
        );
        // Another job on the same NICs.
        let other = (8, vec![flow(A, B, Some(50_002)), flow(A, C, None)]);
        let rules = DscpRules::from_levels(&levels(vec![alone, other]));
        let lines = rules.iptables_lines("X", false);
        assert_eq!(lines.lines().count(), 4);
        assert!(lines.lines().next().unwrap().contains("-d 10.0.0.3 -p udp -m udp --dport"));
        assert!(lines.ends_with("--sport 50002 --dport 4791 -j DSCP --set-dscp 8\n"), "{lines}");
        assert!(rules.has_family(false) && !rules.has_family(true));
        // A device that sets one DSCP for a pair cannot tell them apart.
        let (pairs, mixed) = rules.device_pairs(&[A.parse().unwrap()]);
        assert_eq!((pairs.len(), mixed), (1, 1));
        assert_eq!(rules.device_pairs(&[B.parse().unwrap()]), (BTreeMap::new(), 0));
    }

    #[test]
    fn a_pair_has_the_level_of_its_job_and_known_connections_of_others_keep_theirs() {
        let pair = (24, vec![flow(A, B, None)]);
        let port = (48, vec![flow(A, B, Some(7)), flow(A, "fd00::1", None), flow("x", B, None)]);
        let rules = DscpRules::from_levels(&levels(vec![pair.clone(), port]));
        let ab = (A.parse().unwrap(), B.parse().unwrap());
        assert_eq!(rules.pairs, [(ab, 24)].into());
        assert_eq!(rules.connections, [((ab, 7), 48)].into());
        // Two jobs that cannot be told apart.
        let both = DscpRules::from_levels(&levels(vec![pair, (40, vec![flow(A, B, None)])]));
        assert_eq!(both.pairs, [(ab, 40)].into());
    }

    #[test]
    fn rules_are_bounded_and_what_is_left_out_is_counted() {
        let flows = |dscp, odd| {
            let ports = (0..5_000).filter(move |port| port % 2 == odd);
            (dscp, ports.map(|port| flow("fd00::1", "fd00::2", Some(port))).collect())
        };
        let mut wanted = levels(vec![flows(8, 0), flows(16, 1)]);
        wanted.flows_left_out = 3;
        let rules = DscpRules::from_levels(&wanted);
        assert_eq!(rules.count(), MAX_RULES);
        assert_eq!(rules.left_out, 3 + 5_000 - MAX_RULES);
        assert_eq!(rules.iptables_lines("X", false), "");
        assert!(rules.iptables_lines("X", true).starts_with("-A X -s fd00::1 -d fd00::2 -p udp"));
    }
}
