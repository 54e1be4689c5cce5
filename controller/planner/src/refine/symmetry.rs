//! Flows and links that nothing tells apart.
//!
//! A partition of flows and links is equitable if all flows of a class cross equally many links of
//! each class, and all links of a class carry equally many flows of each class. Max-min fair rates
//! and strict levels are then equal inside a class: progressive filling only counts flows on links,
//! and finds the same counts on all links of a class. So a class is simulated as one link with the
//! capacity of all and one group with the flows of all. The coarsest equitable partition is what
//! colour refinement ends at (Grohe, Kersting, Mladenov and Selman, "Dimension reduction via colour
//! refinement", ESA 2014, which does the same to linear programs).

use std::collections::BTreeMap;

use crate::input_digest::{digest_list, mix_bits};

/// Flows and links with what tells them apart to begin with.
#[derive(Debug, Default)]
pub(super) struct SymmetryProblem {
    flow_colours: Vec<u64>,
    link_colours: Vec<u64>,
    /// Links of each flow.
    links: Vec<Vec<usize>>,
}

/// The coarsest equitable partition in which no flow crosses two links of a class.
#[derive(Debug)]
pub(super) struct SymmetryClasses {
    /// By flow.
    pub(super) flow_classes: Vec<usize>,
    pub(super) flow_counts: Vec<u32>,
    /// The class of each link that the flows of a class cross, in the order of a flow's links.
    pub(super) links_of_class: Vec<Vec<usize>>,
    pub(super) link_counts: Vec<u32>,
}

impl SymmetryProblem {
    /// A flow of a `colour` over these links, by number.
    pub(super) fn add_flow(&mut self, colour: &[u64], links: Vec<usize>) {
        self.flow_colours.push(digest_list(colour));
        self.links.push(links);
    }

    /// The link of the next number.
    pub(super) fn add_link(&mut self, colour: &[u64]) {
        self.link_colours.push(digest_list(colour));
    }

    pub(super) fn find_classes(mut self) -> SymmetryClasses {
        loop {
            let (flow_classes, flow_counts) = self.refine_colours();
            let (link_classes, link_counts) = number_classes(&self.link_colours);
            let mut links_of_class = vec![Vec::new(); flow_counts.len()];
            for (class, links) in flow_classes.iter().zip(&self.links) {
                if links_of_class[*class].is_empty() {
                    links_of_class[*class] = links.iter().map(|link| link_classes[*link]).collect();
                }
            }
            let repeated: Vec<usize> =
                links_of_class.iter().filter_map(|of| first_repeated(of)).collect();
            if repeated.is_empty() {
                return SymmetryClasses { flow_classes, flow_counts, links_of_class, link_counts };
            }
            // A run knows one link of a kind on a path, so these are told apart by their numbers.
            for (number, class) in link_classes.iter().enumerate() {
                if repeated.contains(class) {
                    self.link_colours[number] =
                        digest_list(&[self.link_colours[number], number as u64]);
                }
            }
        }
    }

    /// Refines the colours until no class is divided; the classes of the flows and their sizes.
    fn refine_colours(&mut self) -> (Vec<usize>, Vec<u32>) {
        let count = |colours: &[u64]| number_classes(colours).1.len();
        let mut before = (count(&self.flow_colours), count(&self.link_colours));
        loop {
            // Sums of colours are the same in any order.
            let mut on_links = vec![0_u64; self.link_colours.len()];
            for (colour, links) in self.flow_colours.iter().zip(&self.links) {
                links
                    .iter()
                    .for_each(|link| on_links[*link] = on_links[*link].wrapping_add(*colour));
            }
            for (colour, sum) in self.link_colours.iter_mut().zip(on_links) {
                *colour = mix_bits(*colour ^ mix_bits(sum));
            }
            for (colour, links) in self.flow_colours.iter_mut().zip(&self.links) {
                let sum = links
                    .iter()
                    .fold(0_u64, |sum, link| sum.wrapping_add(self.link_colours[*link]));
                *colour = mix_bits(*colour ^ mix_bits(sum));
            }
            let (classes, counts) = number_classes(&self.flow_colours);
            let now = (counts.len(), count(&self.link_colours));
            // Colours only ever split classes, so equal counts mean that nothing has changed.
            if std::mem::replace(&mut before, now) == now {
                return (classes, counts);
            }
        }
    }
}

/// The class of each colour, numbered in the order of first use, and the sizes.
fn number_classes(colours: &[u64]) -> (Vec<usize>, Vec<u32>) {
    let (mut numbers, mut counts) = (BTreeMap::new(), Vec::new());
    let classes = colours.iter().map(|colour| {
        let class = *numbers.entry(*colour).or_insert(counts.len());
        if class == counts.len() {
            counts.push(0);
        }
        counts[class] += 1;
        class
    });
    (classes.collect(), counts)
}

fn first_repeated(classes: &[usize]) -> Option<usize> {
    let mut places = classes.iter().enumerate();
    places.find_map(|(place, class)| classes[..place].contains(class).then_some(*class))
}
