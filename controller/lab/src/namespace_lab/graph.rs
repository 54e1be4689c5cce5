//! A fabric as a drawing: DOT for Graphviz, or SVG without it.
//!
//! Pure. Tiers are rows, hosts at the bottom; cables that do not work are dashed.

use std::collections::BTreeSet;
use std::fmt::Write;

use command_io::html::escape_html;
use topology::{Fabric, FabricNode, HostId, LinkId, Tier};

/// The distance of two nodes of a row and of two rows, in pixels.
const STEP: (usize, usize) = (96, 120);
/// The size of a node, in pixels.
const NODE: (usize, usize) = (80, 28);

const STYLE: &str = "text{font:12px sans-serif;text-anchor:middle;fill:#1b1f24}\
    rect{fill:#fff;stroke:#57606a}line{stroke:#8c959f}\
    line.failed{stroke:#cf222e;stroke-width:2;stroke-dasharray:6 4}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#8b949e}\
    line{stroke:#6e7681}line.failed{stroke:#ff7b72}}";

/// The fabric in Graphviz' language.
pub(super) fn draw_dot(fabric: &Fabric, failed: &[LinkId]) -> String {
    let mut text = format!("graph {:?} {{\n  rankdir=TB;\n  node [shape=box];\n", fabric.name());
    for row in rows(fabric) {
        let names = row.iter().map(|node| format!("{:?};", fabric.node_name(*node)));
        let _ = writeln!(text, "  {{ rank=same; {} }}", names.collect::<Vec<_>>().join(" "));
    }
    for cable in cables_downwards(fabric) {
        let [upper, lower] = cable.ends.map(|node| fabric.node_name(node));
        let style = if failed.contains(&cable.link) { " [style=dashed, color=red]" } else { "" };
        let _ = writeln!(text, "  {upper:?} -- {lower:?}{style};");
    }
    text + "}\n"
}

/// The fabric as an SVG image.
pub(super) fn draw_svg(fabric: &Fabric, failed: &[LinkId]) -> String {
    let rows = rows(fabric);
    let widest = rows.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let (width, height) = (widest * STEP.0, rows.len() * STEP.1);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<style>{STYLE}</style>\n"
    );
    let place = |node: FabricNode| node_place(&rows, widest, node);
    for cable in cables_downwards(fabric) {
        let [(x1, y1), (x2, y2)] = cable.ends.map(place);
        let class = if failed.contains(&cable.link) { " class=\"failed\"" } else { "" };
        let name = escape_html(&fabric.link_name(cable.link));
        let _ = writeln!(
            text,
            "<line{class} x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"><title>{name}</title>\
             </line>"
        );
    }
    for node in rows.iter().flatten() {
        let (x, y) = place(*node);
        let (left, top) = (x - NODE.0 / 2, y - NODE.1 / 2);
        let (w, h) = NODE;
        let name = escape_html(fabric.node_name(*node));
        let _ = writeln!(
            text,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{w}\" height=\"{h}\" rx=\"5\"/>\
             <text x=\"{x}\" y=\"{}\">{name}</text>",
            y + 4
        );
    }
    text + "</svg>\n"
}

/// A cable with its upper end first.
struct DrawnCable {
    link: LinkId,
    ends: [FabricNode; 2],
}

fn cables_downwards(fabric: &Fabric) -> impl Iterator<Item = DrawnCable> + '_ {
    fabric.cables().map(|link| {
        let mut ends = [fabric.link(link).from.node, fabric.link(link).to.node];
        ends.sort_by_key(|node| row_number(fabric, *node));
        DrawnCable { link, ends }
    })
}

/// Nodes by row, from the top; rows without nodes are left out.
fn rows(fabric: &Fabric) -> Vec<Vec<FabricNode>> {
    let hosts = (0..fabric.hosts().len()).map(|host| FabricNode::Host(HostId::from(host)));
    let nodes: Vec<_> = fabric.switch_ids().map(FabricNode::Switch).chain(hosts).collect();
    let numbers: BTreeSet<_> = nodes.iter().map(|node| row_number(fabric, *node)).collect();
    let row = |number| nodes.iter().copied().filter(move |n| row_number(fabric, *n) == number);
    numbers.into_iter().map(|number| row(number).collect()).collect()
}

fn row_number(fabric: &Fabric, node: FabricNode) -> u8 {
    match node {
        FabricNode::Host(_) => 3,
        FabricNode::Switch(switch) => match fabric.switch(switch).tier {
            Tier::Core => 0,
            Tier::Spine => 1,
            Tier::Leaf => 2,
        },
    }
}

/// The middle of a node: each row stands in the middle of the drawing.
fn node_place(rows: &[Vec<FabricNode>], widest: usize, node: FabricNode) -> (usize, usize) {
    let found = rows.iter().enumerate().find_map(|(row, nodes)| {
        let column = nodes.iter().position(|other| *other == node)?;
        Some((row, column, nodes.len()))
    });
    let (row, column, count) = found.unwrap_or((0, 0, 1));
    let x = (2 * column + 1) * widest * STEP.0 / (2 * count);
    (x, row * STEP.1 + STEP.1 / 2)
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;

    #[test]
    fn every_node_and_cable_is_drawn_and_failed_ones_are_dashed() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let failed = fabric.links_named("leaf1-spine1");
        let cables = fabric.cables().count();
        let nodes = fabric.switches().len() + fabric.hosts().len();
        let failed: Vec<LinkId> =
            fabric.cables().filter(|c| failed.iter().any(|f| f.min(&f.reverse()) == c)).collect();
        assert_eq!(failed.len(), 1);

        let svg = draw_svg(&fabric, &failed);
        assert_eq!(svg.matches("<line").count(), cables);
        assert_eq!(svg.matches("<rect").count(), nodes);
        assert_eq!(svg.matches("class=\"failed\"").count(), 1);

        let dot = draw_dot(&fabric, &failed);
        assert_eq!(dot.matches(" -- ").count(), cables);
        assert!(dot.contains("\"spine1\" -- \"leaf1\" [style=dashed, color=red];"), "{dot}");
    }

    #[test]
    fn nodes_do_not_overlap() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let rows = rows(&fabric);
        let widest = rows.iter().map(Vec::len).max().unwrap();
        for row in &rows {
            let mut xs: Vec<_> =
                row.iter().map(|node| node_place(&rows, widest, *node).0).collect();
            xs.sort_unstable();
            assert!(xs.windows(2).all(|pair| pair[1] - pair[0] >= NODE.0), "{xs:?}");
        }
    }
}
