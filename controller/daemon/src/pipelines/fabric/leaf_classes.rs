//! The leaves that a switch reaches alike, in the words of routers: its forwarding equivalence
//! classes.
//!
//! A leaf of a large fabric reaches nearly all others over the same links, so it has one group and
//! one set of paths for them, not one for each. The decision: the number of a class follows from
//! fabric and failures alone, and what fails changes few rows. Of leaves that are wired alike, most
//! are in the *common* class, whose rows change where they stand when a link of the switch itself
//! fails. A cable that fails at one of these leaves takes one link from the ways to it: *spare*
//! classes, one without each link, are there before, so that a single row moves the leaf. What is
//! in none of these is a class under a number of its own. Where leaves are no more than the links
//! to them, each has its own: sharing would save nothing, and cost writes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use topology::LinkId;

use super::numbering::LeafPeers;
use super::switch_context::SwitchContext;
use crate::pipelines::switch_routes::LeafLinks;

/// The classes of leaves at one switch.
#[derive(Debug, Default)]
pub(super) struct LeafClasses {
    /// The number of the class by the position of the leaf; 0 where there is no way.
    numbers: Vec<u16>,
    /// The links to each class; those of spare classes without a leaf among them.
    links: BTreeMap<u16, ClassLinks>,
}

/// The links to a class of leaves, as those of [`LeafLinks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassLinks {
    usable: Vec<LinkId>,
    spread: Vec<LinkId>,
    standing: Vec<LinkId>,
}

impl LeafClasses {
    /// The classes of the leaves that a switch reaches.
    pub(super) fn of_switch(site: &SwitchContext<'_>) -> Self {
        let wiring = site.shared.wiring;
        let LeafPeers { shared, single, has_spares } = wiring.peers(site.switch);
        let mut classes = Self { numbers: vec![0; wiring.leaves().len()], links: BTreeMap::new() };
        for &leaf in single {
            if let Some(links) = site.links_to(leaf) {
                classes.add_class(wiring.number(leaf), links.into(), &[leaf]);
            }
        }
        for leaves in shared {
            classes.add_peers(site, leaves, *has_spares);
        }
        classes
    }

    /// Adds the classes of leaves that are wired alike.
    fn add_peers(&mut self, site: &SwitchContext<'_>, leaves: &[usize], has_spares: bool) {
        let wiring = site.shared.wiring;
        let mut ways: BTreeMap<LeafLinks<'_>, Vec<usize>> = BTreeMap::new();
        for &leaf in leaves {
            if let Some(links) = site.links_to(leaf) {
                ways.entry(links).or_default().push(leaf);
            }
        }
        let largest = ways.iter().max_by_key(|(_, leaves)| (leaves.len(), Reverse(leaves[0])));
        let Some((&common, _)) = largest else {
            return;
        };
        let common = ClassLinks::from(common);
        let lost = wiring.choices(site.switch, leaves[0]).iter().filter(|_| has_spares);
        let spares = lost.map(|link| common.without(*link)).collect::<Vec<_>>();
        let all = std::iter::once(Some(common)).chain(spares);
        // There are more leaves than links, so each of these classes has the number of a leaf.
        for (leaf, links) in leaves.iter().zip(all) {
            if let Some(links) = links {
                self.add_class(wiring.number(*leaf), links, &[]);
            }
        }
        let numbers = leaves.iter().map(|leaf| wiring.number(*leaf));
        let known: Vec<u16> = numbers.filter(|number| self.links.contains_key(number)).collect();
        for (links, of_class) in ways {
            let same = known.iter().find(|number| self.links[number].view() == links);
            let number = same.copied().unwrap_or_else(|| wiring.other_number(of_class[0]));
            self.add_class(number, links.into(), &of_class);
        }
    }

    fn add_class(&mut self, number: u16, links: ClassLinks, leaves: &[usize]) {
        self.links.entry(number).or_insert(links);
        leaves.iter().for_each(|leaf| self.numbers[*leaf] = number);
    }

    /// The class of the leaf at a position; `None` where there is no way to it.
    pub(super) fn number(&self, leaf: usize) -> Option<u16> {
        self.numbers.get(leaf).copied().filter(|number| *number != 0)
    }

    /// The links to a class.
    pub(super) fn links(&self, number: u16) -> Option<LeafLinks<'_>> {
        self.links.get(&number).map(ClassLinks::view)
    }

    /// The leaves that are in another class than before, ascending.
    pub(super) fn moved_leaves(&self, before: &Self) -> impl Iterator<Item = usize> {
        (0..self.numbers.len()).filter(|leaf| self.number(*leaf) != before.number(*leaf))
    }

    /// The classes whose links are not the same as before, ascending.
    pub(super) fn changed_classes<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = u16> + 'a {
        let gone = before.links.keys().filter(|number| !self.links.contains_key(number));
        let others =
            self.links.iter().filter(|(number, links)| before.links.get(number) != Some(*links));
        gone.chain(others.map(|(number, _)| number)).copied()
    }
}

impl ClassLinks {
    fn view(&self) -> LeafLinks<'_> {
        LeafLinks { usable: &self.usable, spread: &self.spread, standing: &self.standing }
    }

    /// These links where one has failed elsewhere; `None` where no other is left.
    fn without(&self, failed: LinkId) -> Option<Self> {
        let left = |links: &[LinkId]| -> Vec<LinkId> {
            links.iter().copied().filter(|link| *link != failed).collect()
        };
        let [usable, spread, standing] =
            [&self.usable, &self.spread, &self.standing].map(|links| left(links));
        (!usable.is_empty() && !spread.is_empty()).then_some(Self { usable, spread, standing })
    }
}

impl From<LeafLinks<'_>> for ClassLinks {
    fn from(links: LeafLinks<'_>) -> Self {
        let [usable, spread, standing] =
            [links.usable, links.spread, links.standing].map(<[LinkId]>::to_vec);
        Self { usable, spread, standing }
    }
}
