//! Loops of a role whose copies run ahead: their tiles have several stages within the role, and nothing in the loop makes what is copied.

use std::collections::BTreeMap;

use crate::graph::{Graph, Group, Item, NodeId, Role, Why};
use crate::instantiate::LoopId;
use crate::program::LoopKind;

/// The copies of a loop that run ahead.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    pub(super) copies: Vec<NodeId>,
    /// The stages of the ring with the fewest.
    pub(super) depth: i64,
}

/// The loops of a role whose copies run ahead.
pub(super) fn ahead(
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    role: Role,
    items: &[Item],
) -> BTreeMap<LoopId, Ahead> {
    let mut found = BTreeMap::new();
    // A role that only copies has pipelines.
    if role == Role::Compute {
        within(graph, groups, items, &mut found);
    }
    found
}

fn within(
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    items: &[Item],
    found: &mut BTreeMap<LoopId, Ahead>,
) {
    for item in items {
        let Item::Loop(id, body) = item else { continue };
        within(graph, groups, body, found);
        if let Some(ahead) = of_loop(graph, groups, *id, body) {
            found.insert(*id, ahead);
        }
    }
}

fn of_loop(graph: &Graph, groups: &BTreeMap<NodeId, Group>, id: LoopId, body: &[Item]) -> Option<Ahead> {
    let row = graph.tree.loop_(id);
    if row.kind != LoopKind::Srange || row.counters.len() != 1 {
        return None;
    }
    let nodes = body.iter().filter_map(|item| match item {
        Item::Node(node) => Some(*node),
        Item::Loop(..) => None,
    });
    let copies: Vec<NodeId> = nodes.filter(|node| groups.get(node) == Some(&Group::CopiesIn)).collect();
    let ring = |node: &NodeId| {
        let written = graph.node(*node).accesses.iter().find(|access| access.writes)?.replica?;
        let ring = graph.rings.iter().find(|ring| ring.places.contains(&written))?;
        (ring.from == ring.to && ring.head == Some(id)).then_some(ring.depth)
    };
    let depths: Option<Vec<i64>> = copies.iter().map(ring).collect();
    let depth = depths?.into_iter().min().filter(|depth| *depth > 1)?;
    let inside = |node: NodeId| graph.tree.around(graph.node(node).body).contains(&id);
    let late = graph.nodes.iter().any(|node| node.late_in(id) != 0);
    // What the loop itself makes cannot be copied before.
    let made = graph.edges.iter().any(|edge| {
        copies.contains(&edge.to)
            && edge.why != Why::Reuse
            && inside(edge.from)
            && !copies.contains(&edge.from)
    });
    (!late && !made).then_some(Ahead { copies, depth })
}
