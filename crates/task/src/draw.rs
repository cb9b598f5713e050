//! A picture of an event graph, as SVG: a lane for each role, the statements from the top to the bottom in their order, loops as frames. Arrows say who waits
//! for whom; those of a later iteration are dashed. Rings are blue, with their stages; the circuits that decide how long an iteration
//! takes are red.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::critical::{Circuit, Estimate};
use crate::graph::{Edge, Graph, Item, NodeId, Role, Why};
use crate::mapping::Mapping;
use crate::program::Program;

/// The height of a row, and the width of a lane.
const ROW: usize = 28;
const LANE: usize = 420;
/// The space at the top, where the names of lanes stand, and beside the lanes.
const TOP: usize = 40;
const SIDE: usize = 48;
/// The most characters of a box; the whole text is its title.
const CHARACTERS: usize = 52;

/// The picture of a graph.
pub fn svg(program: &Program, mapping: &Mapping, graph: &Graph) -> String {
    let mut roles: Vec<Role> = graph.nodes.iter().map(|node| node.role).collect();
    roles.sort();
    roles.dedup();
    let circuits = Estimate::of(program, mapping, graph).circuits(&graph.edges);
    let mut picture =
        Picture { graph, roles, rows: 0, places: BTreeMap::new(), back: String::new(), front: String::new() };
    picture.items(&graph.order, 0);
    picture.edges(&circuits);
    picture.finish(&circuits)
}

struct Picture<'a> {
    graph: &'a Graph,
    /// The lanes, from the left to the right.
    roles: Vec<Role>,
    /// The rows so far.
    rows: usize,
    /// The left edge and the row of each node's box.
    places: BTreeMap<NodeId, (usize, usize)>,
    back: String,
    front: String,
}

/// A text in which nothing is markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The text as long as a box has room for.
fn short(text: &str) -> String {
    if text.chars().count() <= CHARACTERS {
        return text.to_string();
    }
    text.chars().take(CHARACTERS - 1).chain(['…']).collect()
}

// Writing to a string does not fail: its results are dropped.
impl Picture<'_> {
    fn width(&self) -> usize {
        2 * SIDE + LANE * self.roles.len()
    }

    fn items(&mut self, items: &[Item], depth: usize) {
        for item in items {
            match item {
                Item::Node(id) => self.node(*id, depth),
                Item::Loop(id, items) => {
                    let first = self.rows;
                    self.rows += 1;
                    self.items(items, depth + 1);
                    let inset = 8 * depth;
                    let (x, y) = (SIDE / 2 + inset, TOP + ROW * first + 2);
                    let (width, height) = (self.width() - SIDE - 2 * inset, ROW * (self.rows - first) - 4);
                    let text = escaped(&self.graph.tree.loop_text(*id));
                    // Frames inside are drawn above those around, of which they come first.
                    let frame = format!(
                        "<rect class=\"loop\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>\n\
                         <text class=\"head\" x=\"{}\" y=\"{}\">{text}</text>\n",
                        x + 8,
                        y + 17
                    );
                    self.back.insert_str(0, &frame);
                }
            }
        }
    }

    fn node(&mut self, id: NodeId, depth: usize) {
        let lane = self.roles.iter().position(|role| *role == self.graph.node(id).role).unwrap_or(0);
        let (x, y) = (SIDE + LANE * lane + 8 * depth, TOP + ROW * self.rows + 4);
        let text = format!("e{} = {}", id.0, self.graph.node_text(id));
        let width = LANE - 24 - 16 * depth.min(8);
        let _ = write!(
            self.front,
            "<g><title>{}</title><rect class=\"node\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" rx=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{}</text></g>\n",
            escaped(&text),
            ROW - 8,
            x + 6,
            y + 14,
            escaped(&short(&text))
        );
        self.places.insert(id, (x, self.rows));
        self.rows += 1;
    }

    fn edges(&mut self, circuits: &[Circuit]) {
        let graph = self.graph;
        let critical: BTreeSet<(NodeId, NodeId)> = circuits
            .iter()
            .flat_map(|circuit| {
                let next = circuit.nodes.iter().cycle().skip(1);
                circuit.nodes.iter().zip(next).map(|(from, to)| (*from, *to))
            })
            .collect();
        let ring = |edge: &Edge| {
            graph.rings.iter().find(|ring| {
                let uses = |id: NodeId, writes: bool| {
                    let mut of =
                        graph.node(id).accesses.iter().filter(|a| if writes { a.writes } else { a.reads });
                    of.any(|access| access.replica.is_some_and(|place| ring.places.contains(&place)))
                };
                match edge.why {
                    Why::True => uses(edge.from, true) && uses(edge.to, false),
                    Why::Reuse => uses(edge.from, false) && uses(edge.to, true),
                    _ => false,
                }
            })
        };
        for edge in &graph.edges {
            let of_ring = ring(edge);
            let class = match of_ring {
                _ if critical.contains(&(edge.from, edge.to)) => "critical",
                Some(_) => "ring",
                None => "edge",
            };
            let later = if edge.distance.iter().any(|distance| *distance != 0) { " later" } else { "" };
            let (Some(from), Some(to)) = (self.places.get(&edge.from), self.places.get(&edge.to)) else {
                continue;
            };
            let middle = |row: usize| TOP + ROW * row + ROW / 2;
            let (y1, y2) = (middle(from.1), middle(to.1));
            // Arrows forward bend to the left of the boxes of their lane, those to later iterations to the right.
            let bend = 10 + 3 * from.1.abs_diff(to.1).min(8);
            let (x1, x2) = (from.0, to.0);
            let path = if later.is_empty() {
                format!(
                    "M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}",
                    x1.saturating_sub(bend),
                    x2.saturating_sub(bend)
                )
            } else {
                let (x1, x2) = (x1 + LANE - 40, x2 + LANE - 40);
                format!("M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2 + bend)
            };
            let title =
                format!("e{} waits for e{}{}", edge.to.0, edge.from.0, crate::graph::distance_text(edge));
            let _ = write!(
                self.front,
                "<path class=\"{class}{later}\" d=\"{path}\" marker-end=\"url(#tip)\"><title>{title}</title></path>\n"
            );
            if let (Some(ring), Why::Reuse) = (of_ring, edge.why) {
                let x = x1.max(x2) + LANE - 40 + bend / 2;
                let _ = write!(
                    self.front,
                    "<text class=\"depth\" x=\"{x}\" y=\"{}\">{}</text>\n",
                    usize::midpoint(y1, y2) + 4,
                    ring.depth
                );
            }
        }
    }

    fn finish(self, circuits: &[Circuit]) -> String {
        let graph = self.graph;
        let width = self.width();
        let bottom = TOP + ROW * self.rows + 20;
        let height = bottom + 18 * circuits.len() + 10;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <style>\n\
             text {{ font: 11px monospace; fill: #222; }}\n\
             .head {{ fill: #666; }} .lane {{ font-weight: bold; }} .depth {{ fill: #1f5fbf; font-weight: bold; }}\n\
             .loop {{ fill: #00000008; stroke: #bbb; }} .node {{ fill: #fff; stroke: #888; }}\n\
             path {{ fill: none; stroke: #bbb; }} path.ring {{ stroke: #1f5fbf; }} path.critical {{ stroke: #c22; stroke-width: 2; }}\n\
             path.later {{ stroke-dasharray: 5 3; }}\n\
             </style>\n\
             <defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
             <path d=\"M0 0 L6 3 L0 6 z\" style=\"fill: #888; stroke: none\"/></marker></defs>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        for (lane, role) in self.roles.iter().enumerate() {
            let x = SIDE + LANE * lane;
            let _ = write!(out, "<text class=\"lane\" x=\"{x}\" y=\"24\">who {}</text>\n", role.verb());
        }
        out += &self.back;
        out += &self.front;
        for (at, circuit) in circuits.iter().enumerate() {
            let text = escaped(&graph.circuit_text(circuit));
            let _ = write!(out, "<text x=\"{}\" y=\"{}\">{text}</text>\n", SIDE / 2, bottom + 18 * at);
        }
        out + "</svg>\n"
    }
}
