//! A picture of an event graph, as SVG: a lane for each role, the statements from the top to the bottom in their order, loops as frames. Arrows say who waits
//! for whom; those of a later iteration are dashed. Rings are blue, with their stages; the circuits that decide how long an iteration
//! takes are red.

use std::cmp::Ordering;
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
    let mut picture = Picture {
        graph,
        roles,
        rows: 0,
        places: BTreeMap::new(),
        critical: circuits.iter().flat_map(|circuit| circuit.nodes.iter().copied()).collect(),
        back: String::new(),
        front: String::new(),
    };
    picture.items(&graph.order, 0);
    picture.edges(&circuits);
    picture.finish(&circuits)
}

/// The box of a node.
#[derive(Clone, Copy)]
struct Place {
    /// The lane, from the left.
    lane: usize,
    left: usize,
    right: usize,
    /// Its middle, from the top.
    middle: usize,
}

struct Picture<'a> {
    graph: &'a Graph,
    /// The lanes, from the left to the right.
    roles: Vec<Role>,
    /// The rows so far.
    rows: usize,
    /// The box of each node.
    places: BTreeMap<NodeId, Place>,
    /// The nodes of critical circuits.
    critical: BTreeSet<NodeId>,
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

/// The lines of a text of words.
fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < characters => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("    {word}")),
            None => lines.push(word.to_string()),
        }
    }
    lines
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
        let class = if self.critical.contains(&id) { "node critical" } else { "node" };
        let _ = writeln!(
            self.front,
            "<g><title>{}</title><rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" rx=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{}</text></g>",
            escaped(&text),
            ROW - 8,
            x + 6,
            y + 14,
            escaped(&short(&text))
        );
        let middle = TOP + ROW * self.rows + ROW / 2;
        self.places.insert(id, Place { lane, left: x, right: x + width, middle });
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
                let (from, to) = (graph.node(edge.from), graph.node(edge.to));
                ring.places.iter().any(|place| match edge.why {
                    Why::True => from.writes(*place) && to.reads(*place),
                    Why::Reuse => from.reads(*place) && to.writes(*place),
                    _ => false,
                })
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
            let bend = 10 + from.middle.abs_diff(to.middle).min(8 * ROW) / 9;
            let (y1, y2) = (from.middle, to.middle);
            // From one lane to another an arrow goes straight. In a lane those within an iteration bend to the left, those to later ones to the right.
            let (x1, x2, path) = match (from.lane.cmp(&to.lane), later.is_empty()) {
                (Ordering::Less, _) => (from.right, to.left, format!("L{} {y2}", to.left)),
                (Ordering::Greater, _) => (from.left, to.right, format!("L{} {y2}", to.right)),
                (Ordering::Equal, true) => {
                    let (a, b) = (from.left.saturating_sub(bend), to.left.saturating_sub(bend));
                    (from.left, to.left, format!("C{a} {y1} {b} {y2} {} {y2}", to.left))
                }
                (Ordering::Equal, false) => {
                    let (a, b) = (from.right + bend, to.right + bend);
                    (from.right, to.right + 2 * bend, format!("C{a} {y1} {b} {y2} {} {y2}", to.right))
                }
            };
            let path = format!("M{x1} {y1} {path}");
            let title =
                format!("e{} waits for e{}{}", edge.to.0, edge.from.0, crate::graph::distance_text(edge));
            let _ = writeln!(
                self.front,
                "<path class=\"{class}{later}\" d=\"{path}\" marker-end=\"url(#tip)\"><title>{title}</title></path>"
            );
            if let (Some(ring), Why::Reuse) = (of_ring, edge.why) {
                let x = usize::midpoint(x1, x2);
                let _ = writeln!(
                    self.front,
                    "<text class=\"depth\" x=\"{x}\" y=\"{}\">{}</text>",
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
        let characters = (width - SIDE) / 7;
        let legend: Vec<String> =
            circuits.iter().flat_map(|circuit| wrapped(&graph.circuit_text(circuit), characters)).collect();
        let height = bottom + 18 * legend.len() + 10;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <style>\n\
             text {{ font: 11px monospace; fill: #222; white-space: pre; }}\n\
             .head {{ fill: #666; }} .lane {{ font-weight: bold; }} .depth {{ fill: #1f5fbf; font-weight: bold; }}\n\
             .loop {{ fill: #00000008; stroke: #bbb; }} .node {{ fill: #fff; stroke: #888; }} .node.critical {{ stroke: #c22; }}\n\
             path {{ fill: none; stroke: #bbb; }} path.ring {{ stroke: #1f5fbf; }} path.critical {{ stroke: #c22; stroke-width: 2; }}\n\
             path.later {{ stroke-dasharray: 5 3; }}\n\
             </style>\n\
             <defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
             <path d=\"M0 0 L6 3 L0 6 z\" style=\"fill: #888; stroke: none\"/></marker></defs>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        for (lane, role) in self.roles.iter().enumerate() {
            let x = SIDE + LANE * lane;
            let _ = writeln!(out, "<text class=\"lane\" x=\"{x}\" y=\"24\">who {}</text>", role.verb());
        }
        out += &self.back;
        out += &self.front;
        for (at, line) in legend.iter().enumerate() {
            let text = escaped(line);
            let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{text}</text>", SIDE / 2, bottom + 18 * at);
        }
        out + "</svg>\n"
    }
}
