//! The invariants of an event graph, which every pass keeps.

use std::collections::BTreeMap;

use tilewright_machine::Memory;

use super::{Graph, Index, NodeId, Op, ReplicaId, Role};

/// The invariants that do not hold, one sentence each: nodes are in the order once, in their loops; edges go forward, in one iteration by the
/// order of the program, or to a later iteration; an event is of each processor's own up to some level and of all below it; a place that is
/// read has been written; a node is late in loops around it; a use is of a stage that there is; one side
/// of a ring writes its places, in shared memory, and the other reads them; shared places are within their bound; roles that load or store only copy.
pub fn verify_graph(graph: &Graph) -> Vec<String> {
    let mut broken = Vec::new();
    let order = graph.ordered();
    let mut place: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (at, node) in order.iter().enumerate() {
        if place.insert(*node, at).is_some() {
            broken.push(format!("node {} is in the order twice", node.0));
        }
    }
    if place.len() != graph.nodes.len() {
        broken.push(format!("{} nodes, of which {} are in the order", graph.nodes.len(), place.len()));
        return broken;
    }
    loops(graph, &graph.order, None, &mut broken);
    for edge in &graph.edges {
        let ends = format!("the edge {} -> {}", edge.from.0, edge.to.0);
        let around = |id: NodeId| graph.tree.around(graph.node(id).body);
        let (from, to) = (around(edge.from), around(edge.to));
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if edge.distance.len() > common {
            broken.push(format!("{ends} has {} distances in {common} loops", edge.distance.len()));
        }
        match edge.distance.iter().find(|distance| **distance != 0) {
            Some(first) if *first < 0 => broken.push(format!("{ends} leads to an earlier iteration")),
            Some(_) => {}
            None if place[&edge.from] >= place[&edge.to] => {
                broken.push(format!("{ends} leads backwards within an iteration"));
            }
            None => {}
        }
        if edge.event.windows(2).any(|pair| pair == [Index::All, Index::Own]) {
            broken.push(format!("{ends} waits for each processor's own below one that waits for all"));
        }
    }
    for (at, ring) in graph.rings.iter().enumerate() {
        for place in &ring.places {
            let strange = graph.nodes.iter().any(|node| {
                node.accesses.iter().filter(|access| access.replica == Some(*place)).any(|access| {
                    (access.writes && node.role != ring.from) || (access.reads && node.role != ring.to)
                })
            });
            if strange || ring.depth < 1 || graph.replica(*place).memory != Some(Memory::Shared) {
                broken.push(format!("place {} is none of ring {at}", place.0));
            }
        }
    }
    for memory in &graph.shared {
        if memory.bytes > memory.bound {
            broken.push(format!("places take {} bytes of {}", memory.bytes, memory.bound));
        }
    }
    let mut written = vec![false; graph.replicas.len()];
    for (id, replica) in graph.replicas.iter().enumerate() {
        // What a parameter holds was written before the kernel began.
        written[id] = replica.of.is_none() && graph.object(replica.object).param;
    }
    for id in order {
        let node = graph.node(id);
        for access in node.accesses.iter().filter(|access| access.reads) {
            if let Some(replica) = access.replica
                && !written[replica.index()]
                && !node.accesses.iter().any(|other| other.writes && other.replica == Some(replica))
                && !before(graph, id, replica)
            {
                broken.push(format!("node {} reads place {}, which nobody has written", id.0, replica.0));
            }
        }
        for replica in node.accesses.iter().filter(|access| access.writes).filter_map(|access| access.replica)
        {
            written[replica.index()] = true;
        }
        let around = graph.tree.around(node.body);
        if node.late.iter().any(|late| late.iterations < 1 || !around.contains(&late.head)) {
            broken.push(format!("node {} is late in a loop that is not around it", id.0));
        }
        for access in node.accesses.iter().filter(|access| access.behind != 0) {
            let stages = access.replica.and_then(|replica| graph.replica(replica).stages);
            if stages.is_none_or(|stages| !(0..stages.depth).contains(&access.behind)) {
                broken.push(format!("node {} uses a stage that there is not", id.0));
            }
        }
        if node.role != Role::Compute && !matches!(node.op, Op::Copy(..)) {
            broken.push(format!("node {} computes in a role that copies", id.0));
        }
        if let Op::Copy(from, to) = &node.op
            && graph.replica(*from).object != graph.replica(*to).object
        {
            broken.push(format!("node {} copies between two objects", id.0));
        }
    }
    broken
}

/// True if a node that is late reads what an earlier iteration has written, in an iteration of that loop in which it comes later.
fn before(graph: &Graph, id: NodeId, replica: ReplicaId) -> bool {
    graph.node(id).late.iter().any(|late| {
        graph.nodes.iter().any(|other| {
            graph.tree.around(other.body).contains(&late.head)
                && other.late_in(late.head) < late.iterations
                && other.accesses.iter().any(|access| access.writes && access.replica == Some(replica))
        })
    })
}

fn loops(
    graph: &Graph,
    items: &[super::Item],
    body: Option<crate::instantiate::LoopId>,
    broken: &mut Vec<String>,
) {
    for item in items {
        match item {
            super::Item::Node(id) if graph.node(*id).body != body => {
                broken.push(format!("node {} is in a loop that is not its own", id.0));
            }
            super::Item::Node(_) => {}
            super::Item::Loop(id, items) => {
                if graph.tree.loop_(*id).parent != body {
                    broken.push(format!("loop {} is in a loop that is not its parent", id.0));
                }
                loops(graph, items, Some(*id), broken);
            }
        }
    }
}
