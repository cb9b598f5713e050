//! Kernels: a host that launches several parallel loops of blocks launches a kernel for each, one after another. What one leaves for another lies in global
//! memory.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Processor;

use super::{Edge, Graph, Item, NodeId};
use crate::instantiate::CallId;
use crate::program::LoopKind;

impl Graph {
    /// The graph of each kernel, in the order in which they run: of each parallel loop of blocks, where the host has several and nothing beside them, else
    /// the whole.
    pub fn kernels(&self) -> Vec<Graph> {
        let blocks = |item: &Item| match item {
            Item::Node(_) => false,
            Item::Loop(id, _) => {
                let row = self.tree.loop_(*id);
                let host = self.tree.call(row.call).processor < Processor::Block;
                row.kind == LoopKind::Prange && host && row.processor == Processor::Block
            }
        };
        match &self.order[..] {
            [_, _, ..] if self.order.iter().all(blocks) => {
                self.order.iter().map(|item| self.only(std::slice::from_ref(item))).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// The graph of some items alone: its nodes are numbered anew, and it has the places that they use, and rings of these.
    fn only(&self, items: &[Item]) -> Graph {
        let mut kept = Item::all(items);
        kept.sort();
        let numbers: BTreeMap<NodeId, NodeId> =
            (0..).map(NodeId).zip(&kept).map(|(new, old)| (*old, new)).collect();
        let mut graph = self.clone();
        graph.nodes = kept.iter().map(|id| self.node(*id).clone()).collect();
        graph.order = items.iter().map(|item| renumbered(item, &numbers)).collect();
        let edge = |edge: &Edge| {
            let (from, to) = (*numbers.get(&edge.from)?, *numbers.get(&edge.to)?);
            Some(Edge { from, to, ..edge.clone() })
        };
        graph.edges = self.edges.iter().filter_map(edge).collect();
        let used: BTreeSet<_> = graph
            .nodes
            .iter()
            .flat_map(|node| node.accesses.iter().filter_map(|access| access.replica))
            .collect();
        graph.rings.retain(|ring| ring.places.iter().any(|place| used.contains(place)));
        graph
    }

    /// The calls that have nodes, and those that launch them.
    pub fn calls(&self) -> BTreeSet<CallId> {
        let up = |call: CallId| std::iter::successors(Some(call), |id| self.tree.call(*id).parent);
        self.nodes.iter().flat_map(|node| up(node.call)).collect()
    }
}

fn renumbered(item: &Item, numbers: &BTreeMap<NodeId, NodeId>) -> Item {
    match item {
        Item::Node(id) => Item::Node(numbers.get(id).copied().unwrap_or(*id)),
        Item::Loop(id, items) => {
            Item::Loop(*id, items.iter().map(|item| renumbered(item, numbers)).collect())
        }
    }
}
