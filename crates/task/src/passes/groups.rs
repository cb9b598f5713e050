//! Groups of products: products of one leaf that are issued one right after the other and needed together only are committed, and so waited for, as
//! one group (PTX ISA 9.7.15, `wgmma.commit_group`), and their tiles have one ring. Those of several leaves have a group and a ring each: their stages are
//! given back one by one, and the program says which of both it means.

use std::collections::BTreeMap;

use super::depend::common;
use crate::graph::{Edge, Graph, Group, Item, NodeId, Role};

/// The last product of the group of each product.
pub(crate) fn groups(graph: &Graph, kinds: &BTreeMap<NodeId, Group>) -> BTreeMap<NodeId, NodeId> {
    let mut last = BTreeMap::new();
    within(graph, kinds, &graph.order, &mut last);
    last
}

fn within(
    graph: &Graph,
    kinds: &BTreeMap<NodeId, Group>,
    items: &[Item],
    last: &mut BTreeMap<NodeId, NodeId>,
) {
    let computes = |item: &&Item| item.nodes().iter().any(|id| graph.node(*id).role == Role::Compute);
    let mut group: Vec<NodeId> = Vec::new();
    for item in items.iter().filter(computes) {
        match item {
            Item::Node(id) if kinds.get(id) == Some(&Group::Products) => {
                if group.last().is_some_and(|before| !together(graph, kinds, *before, *id)) {
                    group.clear();
                }
                group.push(*id);
                last.extend(group.iter().map(|product| (*product, *id)));
            }
            Item::Node(_) => group.clear(),
            Item::Loop(_, items) => {
                group.clear();
                within(graph, kinds, items, last);
            }
        }
    }
}

/// True if a product and the next, of the same leaf, are one group: nothing in an iteration needs the first, and the next waits for nothing that is asynchronous.
fn together(graph: &Graph, kinds: &BTreeMap<NodeId, Group>, first: NodeId, next: NodeId) -> bool {
    let body = graph.node(first).body;
    let inside = |other: NodeId| match body {
        Some(head) => graph.tree.around(graph.node(other).body).contains(&head),
        None => true,
    };
    let ours = |edge: &&Edge| {
        let computes = |id: NodeId| graph.node(id).role == Role::Compute;
        computes(edge.from) && computes(edge.to) && !chain(graph, kinds, edge)
    };
    let mut edges = graph.edges.iter().filter(ours);
    graph.node(first).call == graph.node(next).call
        && graph.node(first).late == graph.node(next).late
        && !edges.any(|edge| {
            (edge.from == first && inside(edge.to))
                || (edge.to == next
                    && kinds.contains_key(&edge.from)
                    && common(graph, edge.from, next).last().copied() == body)
        })
}

/// True of two products that add to one sum: they are in order without a wait (PTX ISA 9.7.15, `wgmma.fence`).
pub(super) fn chain(graph: &Graph, kinds: &BTreeMap<NodeId, Group>, edge: &Edge) -> bool {
    let product = |id: NodeId| kinds.get(&id) == Some(&Group::Products);
    let sum = |id: NodeId| {
        let mut accesses = graph.node(id).accesses.iter();
        accesses.find(|access| access.writes).map(|access| access.replica)
    };
    product(edge.from) && product(edge.to) && sum(edge.from) == sum(edge.to)
}
