//! The topology of the Alibaba Lingjun data set of 2023 (`topo.csv`: `ip,DSW,PSW,ASW`).
//!
//! The data names the groups that a host's switches belong to: an ASW is the host's leaf, a PSW
//! group the spines of its pod, a DSW group the cores. An ASW label is unique only together with
//! its PSW and DSW, so leaves are named after all three (`G6.P10.S14`). Each PSW group is given
//! `spines` spines, joined to all leaves of the group; each DSW group `cores` cores, joined to all
//! spines of its PSW groups. With rails, an ASW is a group of leaves, one for each NIC of a host.
//! Parts in the data keep their names; assumed parts have generated ones.

use std::collections::{BTreeMap, BTreeSet};

use super::left_out::ImportNotes;
use super::tier_assumptions::{DataCounts, LinkSpeeds, TierAssumptions};
use super::{ImportError, ImportedFabric};
use crate::draft::FabricDraft;
use crate::fabric::{Fabric, Tier};
use crate::ids::SwitchId;
use crate::spec;
use crate::units::Bandwidth;

const COLUMNS: &str = "ip,DSW,PSW,ASW";
/// Characters of a host's hashed address that are kept as its name, where they tell hosts apart.
const NAME_LENGTH: usize = 12;

/// The fabric of a `topo.csv`.
///
/// # Errors
/// The text has not the columns of `topo.csv` or no good row, or `options` makes no fabric.
pub fn import_lingjun(csv: &str, options: &TierAssumptions) -> Result<ImportedFabric, ImportError> {
    let speeds = options.link_speeds()?;
    let mut rows = TopologyRows::parse_rows(csv)?;
    rows.drop_hosts_without_ports(options)?;
    let groups = SwitchGroups::from_rows(&rows);
    options.check_counts(DataCounts {
        hosts: rows.host_count(),
        hosts_per_leaf: rows.leaves.values().map(Vec::len).max().unwrap_or(0),
        leaves: rows.leaves.len(),
        pods: groups.pods.len(),
        tops: groups.cores.len(),
    })?;
    let fabric = options.build_fabric(&rows, &groups, speeds);
    // A name of the data that is also a generated one is found like in any document.
    Fabric::try_from(&spec::explicit_document(&fabric))?;
    let (left_out, _) = rows.notes.into_parts();
    Ok(ImportedFabric { fabric, left_out, assumptions: options.list_assumptions() })
}

/// A leaf as the data names it: DSW group, PSW group, ASW.
type LeafKey<'a> = (&'a str, &'a str, &'a str);

/// The good rows, and how many were not.
#[derive(Default)]
struct TopologyRows<'a> {
    /// Hosts by leaf, in the order of the file.
    leaves: BTreeMap<LeafKey<'a>, Vec<&'a str>>,
    seen: BTreeSet<&'a str>,
    skipped: usize,
    notes: ImportNotes,
}

impl<'a> TopologyRows<'a> {
    fn parse_rows(csv: &'a str) -> Result<Self, ImportError> {
        let csv = csv.strip_prefix('\u{feff}').unwrap_or(csv);
        let lines = (1..).zip(csv.lines());
        let mut lines = lines.filter(|(_, line): &(u64, &str)| !line.trim().is_empty());
        let (_, header) = lines.next().unwrap_or_default();
        if split_columns(header).join(",") != COLUMNS {
            let found = header.chars().take(80).collect();
            return Err(ImportError::Header { expected: COLUMNS, found });
        }
        let mut rows = Self::default();
        for (number, line) in lines {
            if let Err(reason) = rows.add_row(line) {
                rows.skipped += 1;
                rows.notes.leave_out("row", reason, format!("line {number}"));
            }
        }
        Ok(rows)
    }

    /// The reason if it is no host.
    fn add_row(&mut self, line: &'a str) -> Result<(), &'static str> {
        let [ip, dsw, psw, asw] = split_columns(line)[..] else {
            return Err("another number of columns than the header");
        };
        if ![ip, dsw, psw, asw].into_iter().all(spec::is_valid_name) {
            return Err("a value that is empty or no name");
        }
        if !self.seen.insert(ip) {
            return Err("a host that was in an earlier row");
        }
        self.leaves.entry((dsw, psw, asw)).or_default().push(ip);
        Ok(())
    }

    /// Leaves out hosts for whose NICs a leaf has no ports.
    fn drop_hosts_without_ports(&mut self, options: &TierAssumptions) -> Result<(), ImportError> {
        let hosts_per_leaf = options.max_hosts_per_leaf() as usize;
        for hosts in self.leaves.values_mut() {
            let reason = "a leaf with no port left (--rails: a leaf for each NIC)";
            for host in hosts.drain(hosts_per_leaf.min(hosts.len())..) {
                self.skipped += 1;
                self.notes.leave_out("row", reason, host);
            }
        }
        match self.host_count() {
            0 => Err(ImportError::NoHosts { skipped: self.skipped }),
            _ => Ok(()),
        }
    }

    fn host_count(&self) -> usize {
        self.leaves.values().map(Vec::len).sum()
    }

    /// Whether the first characters of the hosts' addresses are unique.
    fn has_unique_short_names(&self) -> bool {
        let hosts = self.leaves.values().flatten();
        let short: BTreeSet<&str> = hosts.map(|ip| shorten_address(ip)).collect();
        short.len() == self.host_count()
    }
}

fn split_columns(line: &str) -> Vec<&str> {
    line.split(',').map(|value| value.trim().trim_matches('"')).collect()
}

/// The first characters of a hashed address; one that is short is not hashed and stays.
fn shorten_address(ip: &str) -> &str {
    if ip.len() <= 2 * NAME_LENGTH { ip } else { &ip[..NAME_LENGTH] }
}

impl TierAssumptions {
    fn build_fabric(
        &self,
        rows: &TopologyRows<'_>,
        groups: &SwitchGroups<'_>,
        speeds: LinkSpeeds,
    ) -> Fabric {
        let mut draft = FabricDraft::with_name("lingjun");
        let rails = self.leaves_per_leaf();
        let leaves = draft.add_switches(Tier::Leaf, rows.leaves.len() * rails);
        let spines = draft.add_switches(Tier::Spine, groups.pods.len() * self.spines as usize);
        let cores = draft.add_switches(Tier::Core, groups.cores.len() * self.cores as usize);
        draft.rename_switches(
            &leaves,
            rows.leaves
                .keys()
                .flat_map(|(dsw, psw, asw)| self.leaf_names(&format!("{dsw}.{psw}.{asw}"))),
        );
        self.add_hosts(&mut draft, rows, &leaves, speeds.host);
        for (&(dsw, psw, _), leaves) in rows.leaves.keys().zip(leaves.chunks(rails)) {
            for &leaf in leaves {
                for &spine in group_switches(&spines, self.spines, groups.pods[&(dsw, psw)]) {
                    draft.connect_switches(leaf, spine, speeds.uplink);
                }
            }
        }
        for (&(dsw, _), &pod) in &groups.pods {
            for &spine in group_switches(&spines, self.spines, pod) {
                for &core in group_switches(&cores, self.cores, groups.cores[dsw]) {
                    draft.connect_switches(spine, core, speeds.core);
                }
            }
        }
        draft.into_fabric()
    }

    fn add_hosts(
        &self,
        draft: &mut FabricDraft,
        rows: &TopologyRows<'_>,
        leaves: &[SwitchId],
        speed: Bandwidth,
    ) {
        let name: fn(&str) -> &str =
            if rows.has_unique_short_names() { shorten_address } else { |ip| ip };
        for (hosts, leaves) in rows.leaves.values().zip(leaves.chunks(self.leaves_per_leaf())) {
            let nics = self.leaves_of_nics(leaves);
            for ip in hosts {
                draft.add_host(name(ip).to_owned(), self.gpus_per_host, &nics, speed);
            }
        }
    }

    fn list_assumptions(&self) -> Vec<String> {
        vec![
            format!("{} GPUs per host", self.gpus_per_host),
            format!(
                "{} NICs of {} Gb/s per host, {}",
                self.host_links,
                self.host_gbps,
                self.describe_leaves()
            ),
            format!(
                "{} spines per PSW group, one link of {} Gb/s from each of its leaves to each",
                self.spines, self.uplink_gbps
            ),
            format!(
                "{} cores per DSW group, one link of {} Gb/s from each of its spines to each",
                self.cores, self.core_gbps
            ),
            "addresses 10.LEAF.LEAF.PLACE, Ethernet addresses and P4Runtime servers as of generated \
             fabrics, and the name lingjun"
                .to_owned(),
        ]
    }
}

/// Positions of the PSW groups (with their DSW group) and of the DSW groups, by name.
struct SwitchGroups<'a> {
    pods: BTreeMap<(&'a str, &'a str), usize>,
    cores: BTreeMap<&'a str, usize>,
}

impl<'a> SwitchGroups<'a> {
    fn from_rows(rows: &TopologyRows<'a>) -> Self {
        let pods: BTreeSet<_> = rows.leaves.keys().map(|&(dsw, psw, _)| (dsw, psw)).collect();
        let cores: BTreeSet<_> = rows.leaves.keys().map(|&(dsw, ..)| dsw).collect();
        Self {
            pods: pods.into_iter().zip(0..).collect(),
            cores: cores.into_iter().zip(0..).collect(),
        }
    }
}

/// The switches of one group.
fn group_switches(switches: &[SwitchId], size: u32, group: usize) -> &[SwitchId] {
    let size = size as usize;
    &switches[group * size..(group + 1) * size]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Severity, check_fabric};

    const TOPO: &str = "ip,DSW,PSW,ASW\n\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,G6,P10,S14\n\
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,G6,P12,S14\r\n\
        cccccccccccccccccccccccccccccccccccc,G6,P10,S2\n\
        \n\
        dddddddddddddddddddddddddddddddddddd,G6,P10,S2\n\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,G6,P10,S2\n\
        eeee,G6,P10\n\
        ffff,G6,,S2\n\
        ffff,G6,P 1,S2\n";

    #[test]
    fn groups_become_tiers_and_bad_rows_are_counted() {
        let imported = import_lingjun(TOPO, &TierAssumptions::default()).unwrap();
        let fabric = &imported.fabric;
        let leaves: Vec<&str> =
            fabric.switches_of_tier(Tier::Leaf).map(|leaf| &*fabric.switch(leaf).name).collect();
        assert_eq!(leaves, ["G6.P10.S14", "G6.P10.S2", "G6.P12.S14"]);
        assert_eq!(fabric.switches_of_tier(Tier::Spine).count(), 32);
        assert_eq!(fabric.switches_of_tier(Tier::Core).count(), 16);
        let hosts: Vec<&str> = fabric.hosts().iter().map(|host| &*host.name).collect();
        assert_eq!(hosts, ["aaaaaaaaaaaa", "cccccccccccc", "dddddddddddd", "bbbbbbbbbbbb"]);
        let left_out: Vec<String> = imported.left_out.iter().map(ToString::to_string).collect();
        let expected = [
            "1 row (a host that was in an earlier row): line 7",
            "1 row (another number of columns than the header): line 8",
            "2 rows (a value that is empty or no name): line 9, line 10",
        ];
        assert_eq!(left_out, expected);
        assert_eq!(imported.assumptions.len(), 5);
        assert!(check_fabric(fabric).iter().all(|finding| finding.severity == Severity::Info));
    }

    #[test]
    fn long_names_stay_where_short_ones_would_be_equal() {
        let alike = "ip,DSW,PSW,ASW\n\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1,G,P,S\n\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2,G,P,S\n";
        let imported = import_lingjun(alike, &TierAssumptions::default()).unwrap();
        assert_eq!(imported.fabric.hosts()[1].name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2");
    }

    #[test]
    fn hosts_for_which_a_leaf_has_no_ports_are_left_out() {
        let rows: String = (0..140).map(|host| format!("10.1.1.{host},G,P,S\n")).collect();
        let read = |rails| {
            let options = TierAssumptions { rails, ..TierAssumptions::default() };
            import_lingjun(&format!("{COLUMNS}\n{rows}"), &options).unwrap()
        };
        let full = read(false);
        assert_eq!(full.fabric.hosts().len(), 123);
        assert_eq!(full.left_out[0].names.len(), 17);
        let rails = read(true);
        assert_eq!((rails.fabric.hosts().len(), rails.left_out.len()), (140, 0));
        let last = rails.fabric.hosts()[139].nics.iter().map(|nic| rails.fabric.leaf_of(*nic));
        let last: Vec<&str> = last.map(|leaf| &*rails.fabric.switch(leaf).name).collect();
        assert_eq!(last, ["G.P.S-rail0", "G.P.S-rail1", "G.P.S-rail2", "G.P.S-rail3"]);
    }

    #[test]
    fn an_invalid_topology_is_refused() {
        let refused = |csv: &str, options| import_lingjun(csv, &options).unwrap_err().to_string();
        let options = TierAssumptions::default;
        let header = "the first line must have the columns ip,DSW,PSW,ASW, found \"a,b\"";
        assert_eq!(refused("a,b\n1,2\n", options()), header);
        assert!(refused("", options()).starts_with("the first line must have"));
        let no_hosts = "no host in the file; 1 rows were skipped";
        assert_eq!(refused("ip,DSW,PSW,ASW\nx\n", options()), no_hosts);
        let none = TierAssumptions { spines: 0, ..options() };
        assert_eq!(refused(TOPO, none), "spines: must be at least 1, found 0");
        let slow = TierAssumptions { core_gbps: f64::NAN, ..options() };
        assert_eq!(refused(TOPO, slow), "core_gbps: must be a number above 0, found NaN");
        let many = TierAssumptions { spines: 509, ..options() };
        assert_eq!(refused(TOPO, many), "spines: makes 509 uplinks of a leaf; at most 508");
        let many = TierAssumptions { cores: u32::MAX, ..options() };
        assert_eq!(refused(TOPO, many), "cores: makes 4294967295 cores; at most 65535");
        let clash = "ip,DSW,PSW,ASW\nspine1,G,P,S\n";
        assert!(refused(clash, options()).contains("spine1 is already named by"));
    }
}
