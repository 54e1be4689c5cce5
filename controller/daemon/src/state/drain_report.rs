//! What drains have come to: whether switches still send to the drained parts.
//!
//! Pure: how far the tables are, the fabric in force and what switches count come in. The decision:
//! a drain is complete when counters say so, not when the tables do. The last path of some NICs is
//! used although it is drained, and a part that is switched off must not be on it.

use std::collections::{BTreeMap, BTreeSet};

use planner::Policy;
use topology::{Fabric, Finding, LinkId, LostPaths};

use super::drain_progress::{DrainProgress, join_names};

/// Which links carry anything, by the counters of switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkUse {
    /// Links that the counters are meant to tell of.
    pub(crate) wanted: BTreeSet<LinkId>,
    /// Those of them whose switches have counters.
    pub(crate) countable: BTreeSet<LinkId>,
    /// Those of them of which the last seconds are known.
    pub(crate) counted: BTreeSet<LinkId>,
    /// Those of them that have carried something in the last seconds.
    pub(crate) busy: BTreeSet<LinkId>,
}

/// The drains of the policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainReport {
    /// How far the tables are.
    tables: DrainProgress,
    /// What has no path beside drained parts, if something has none.
    last_path: Option<String>,
    /// Drained parts on that path.
    kept: BTreeSet<String>,
    /// Parts that no table of a switch leads to, and that some switch still sends to.
    busy: BTreeSet<String>,
    /// Parts that no switch sends to any more; whether that was counted.
    pub(crate) complete: BTreeMap<String, bool>,
}

impl DrainReport {
    /// The report on drains as far as `tables` says, on the fabric in force.
    pub(crate) fn new(tables: DrainProgress, fabric: &Fabric, seen: &LinkUse) -> Self {
        let mut report = Self { tables, ..Self::default() };
        let drained = report.tables.all_parts();
        if drained.is_empty() {
            return report;
        }
        let undrained = fabric.without_drains();
        let lost = LostPaths::between(&undrained, &with_drains(&undrained, &drained));
        if !lost.is_empty() {
            report.last_path = Some(lost.describe(fabric));
        }
        for part in drained {
            let links = links_to(&undrained, &part);
            // A leaf carries what its own hosts send to each other, which no switch sends to it.
            let is_last_path =
                drained_links(&undrained, &part).any(|link| lost.links.contains(&link));
            let is_busy = links.iter().any(|link| seen.busy.contains(link));
            if is_last_path {
                report.kept.insert(part);
            } else if !report.tables.complete.contains(&part) {
                // Its tables are still written, of which `late_finding` tells.
            } else if is_busy {
                report.busy.insert(part);
            } else if links.iter().all(|link| seen.counted.contains(link)) {
                report.complete.insert(part, true);
            } else if links
                .iter()
                .all(|link| seen.wanted.contains(link) && !seen.countable.contains(link))
            {
                report.complete.insert(part, false);
            }
        }
        report
    }

    /// Whether anything is drained.
    pub(crate) fn has_drains(&self) -> bool {
        !self.tables.under_way.is_empty() || !self.tables.complete.is_empty()
    }

    /// What an operator has to know of drains that are not complete.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let kept = self.last_path.as_ref().filter(|_| !self.kept.is_empty()).map(|lost| {
            let text = format!(
                "drained and still in use, as the last path of {lost}: do not switch it off; \
                 undrain another part, or stop what sends there"
            );
            Finding::warning(format!("drain of {}", join_names(&self.kept)), text)
        });
        let is_busy = self.tables.is_settled && !self.busy.is_empty();
        let busy = is_busy.then(|| {
            let text = "drained and still carries traffic by the counters of the switches, although \
                        no table leads there";
            Finding::warning(format!("drain of {}", join_names(&self.busy)), text)
        });
        let late = self.tables.late_finding();
        [late, kept, busy].into_iter().flatten().collect()
    }
}

impl DrainProgress {
    /// All drained parts.
    fn all_parts(&self) -> BTreeSet<String> {
        self.under_way.union(&self.complete).cloned().collect()
    }

    /// The links by which switches would send to those to which no table leads.
    pub(crate) fn links_into(&self, fabric: &Fabric) -> BTreeSet<LinkId> {
        let undrained = fabric.without_drains();
        self.complete.iter().flat_map(|part| links_to(&undrained, part)).collect()
    }
}

/// The links by which switches send to a drained part.
fn links_to(fabric: &Fabric, part: &str) -> Vec<LinkId> {
    let drained = with_drains(fabric, &BTreeSet::from([part.to_owned()]));
    let is_sender = |link: LinkId| {
        let from = fabric.link(link).from.node.switch();
        from.is_some_and(|switch| !drained.is_switch_drained(switch))
    };
    drained_links(fabric, part).filter(|link| is_sender(*link)).collect()
}

/// All links that a part takes with it.
fn drained_links(fabric: &Fabric, part: &str) -> impl Iterator<Item = LinkId> + use<> {
    let drained = with_drains(fabric, &BTreeSet::from([part.to_owned()]));
    drained.link_ids().filter(move |link| drained.is_drained(*link))
}

fn with_drains(fabric: &Fabric, parts: &BTreeSet<String>) -> Fabric {
    let policy = Policy { drained: parts.iter().cloned().collect(), ..Policy::default() };
    policy.apply_drains(fabric).unwrap_or_else(|_| fabric.clone())
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::*;

    /// Tables that do not lead to these parts any more.
    fn written(parts: &[&str]) -> DrainProgress {
        let complete = parts.iter().map(|part| (*part).to_owned()).collect();
        DrainProgress { complete, is_settled: true, ..DrainProgress::default() }
    }

    fn lab() -> Fabric {
        clos::build_clos("lab", &ClosSpec::default()).unwrap()
    }

    #[test]
    fn a_drain_is_complete_when_counters_stand_still() {
        let fabric = lab();
        let mut seen = LinkUse { countable: fabric.link_ids().collect(), ..LinkUse::default() };
        let report = |seen: &LinkUse| DrainReport::new(written(&["spine1"]), &fabric, seen);
        assert!(report(&seen).complete.is_empty(), "nothing was counted yet");
        seen.counted = seen.countable.clone();
        let [into, out] = ["leaf2-spine1", "spine1-leaf2"].map(|name| fabric.links_named(name)[0]);
        seen.busy = BTreeSet::from([into]);
        let busy = report(&seen);
        assert!(busy.complete.is_empty());
        assert!(busy.findings()[0].text.contains("still carries traffic"), "{busy:?}");
        // What leaves the part was sent to it before.
        seen.busy = BTreeSet::from([out]);
        assert_eq!(report(&seen).complete, BTreeMap::from([("spine1".to_owned(), true)]));
        assert!(report(&seen).findings().is_empty());
    }

    #[test]
    fn without_counters_the_tables_decide() {
        let fabric = lab();
        let report = |seen: &LinkUse| DrainReport::new(written(&["leaf1-spine1"]), &fabric, seen);
        assert!(report(&LinkUse::default()).complete.is_empty(), "nobody has looked yet");
        let seen = LinkUse { wanted: fabric.link_ids().collect(), ..LinkUse::default() };
        assert_eq!(report(&seen).complete, BTreeMap::from([("leaf1-spine1".to_owned(), false)]));
    }

    /// Nothing is sent to a leaf from above, and its hosts still send to each other through it.
    #[test]
    fn a_leaf_with_hosts_is_never_complete() {
        let fabric = lab();
        let all: BTreeSet<LinkId> = fabric.link_ids().collect();
        let seen = LinkUse { countable: all.clone(), counted: all, ..LinkUse::default() };
        let report = DrainReport::new(written(&["leaf2"]), &fabric, &seen);
        assert!(report.complete.is_empty());
        assert!(report.findings()[0].text.contains("last path of 3 NICs (h4:0, "), "{report:?}");
    }

    #[test]
    fn what_is_the_last_path_is_never_complete() {
        let fabric = lab();
        let seen = LinkUse {
            countable: fabric.link_ids().collect(),
            counted: fabric.link_ids().collect(),
            ..LinkUse::default()
        };
        let cut = fabric.links_named("leaf1-spine2")[0];
        let failed = fabric.with_changes([topology::AvailabilityChange::LinkDown(cut)]);
        let drains = written(&["spine1", "leaf3-spine2"]);
        let report = DrainReport::new(drains.clone(), &fabric, &seen);
        assert_eq!(report.kept, BTreeSet::from(["spine1".to_owned(), "leaf3-spine2".to_owned()]));
        let report = DrainReport::new(written(&["spine1"]), &failed, &seen);
        let [finding] = &report.findings()[..] else { panic!("{report:?}") };
        assert_eq!(finding.about, "drain of spine1");
        assert!(finding.text.contains("3 pairs of leaves (leaf1 and leaf2, "), "{finding}");
        assert!(report.complete.is_empty() && report.has_drains());
    }
}
