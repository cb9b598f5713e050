//! Rings: places in shared memory whose stages one side fills in turn and the other empties. Needs: roles and retiming. Keeps: the order of
//! statements, and every edge.
//!
//! A place that one role writes and another reads, or that an asynchronous copy writes or reads, has so many stages as `pipeline` says of the loop
//! of its writer, and one more for each iteration by which a reader is late. The edge from the writer to a reader is there; that back, from each
//! reader to the writer so many iterations later, is the paper's backward dependence (4.2.5): a stage is filled again when it has been read.

use std::collections::BTreeSet;

use tilewright_machine::{Feature, Memory};
use tilewright_tile::{Constants, Diagnostic, Diagnostics};

use super::depend::{common, reduced};
use super::groups::groups;
use super::join::implicit;
use super::retime::{by_round, persistent};
use super::schedule::kinds;
use crate::environment::Environment;
use crate::graph::{Edge, Graph, NodeId, Op, ReplicaId, Ring, Role, Stages, Why};
use crate::instantiate::LoopId;
use crate::mapping::{AttributeKind, Mapping};
use crate::program::{LoopKind, Program};

/// A place of a ring, with its two sides.
pub(super) struct Sides {
    /// The loop whose iterations take stages in turn; nothing where the place is filled once.
    pub(super) head: Option<LoopId>,
    pub(super) writer: NodeId,
    /// The readers, in the order of the program.
    pub(super) readers: Vec<NodeId>,
    from: Role,
    to: Role,
}

impl Sides {
    /// The fewest stages that a ring of the place can have: one, and one more for each iteration by which a reader is late.
    pub(super) fn needed(&self, graph: &Graph) -> i64 {
        let Some(head) = self.head else { return 1 };
        let late = |node: NodeId| graph.node(node).late_in(head);
        let most = self.readers.iter().map(|reader| late(*reader) - late(self.writer)).max();
        1 + most.unwrap_or(0)
    }
}

/// Finds the rings, and adds the edges from those who read a stage to who fills it again.
///
/// # Errors
///
/// A number of stages without a value.
pub fn rings(program: &Program, mapping: &Mapping, graph: &mut Graph) -> Result<(), Diagnostics> {
    let mut rings: Vec<(NodeId, Ring)> = Vec::new();
    let mut found: Vec<(ReplicaId, Sides)> = Vec::new();
    let last = groups(graph, &kinds(program, graph));
    for id in (0..graph.replicas.len() as u32).map(ReplicaId) {
        let Some(sides) = sides(mapping, graph, id) else { continue };
        let (least, depth) = match sides.head {
            Some(head) => {
                let (least, most) =
                    stages(program, mapping, graph, head).map_err(|error| Diagnostics(vec![error]))?;
                let needed = sides.needed(graph);
                (least.max(needed), most.max(needed))
            }
            None => (1, 1),
        };
        // Tiles that are first read together, by one node or by products of one group, are waited for together.
        let first = sides.readers[0];
        let first = last.get(&first).copied().unwrap_or(first);
        let (head, from, to) = (sides.head, sides.from, sides.to);
        let same = |(reader, ring): &&mut (NodeId, Ring)| {
            *reader == first && (ring.head, ring.from, ring.to) == (head, from, to)
        };
        match rings.iter_mut().find(same) {
            Some((_, ring)) => {
                ring.places.push(id);
                ring.depth = ring.depth.max(depth);
                ring.least = ring.least.max(least);
            }
            None => rings.push((first, Ring { places: vec![id], head, depth, least, from, to })),
        }
        found.push((id, sides));
    }
    let mut edges: BTreeSet<Edge> = graph.edges.iter().cloned().collect();
    for (id, sides) in found {
        let ring = rings.iter().find(|(_, ring)| ring.places.contains(&id));
        let (Some(head), Some((_, ring))) = (sides.head, ring) else { continue };
        if ring.depth > 1 {
            graph.replicas[id.index()].stages = Some(Stages { head, depth: ring.depth });
        }
        for reader in &sides.readers {
            let (from, to) = (*reader, sides.writer);
            let late = |node: NodeId| graph.node(node).late_in(head);
            let outside = common(graph, from, to).iter().take_while(|id| **id != head).count();
            let mut distance = vec![0; outside];
            distance.push(ring.depth + late(to) - late(from));
            edges.insert(Edge { from, to, distance, why: Why::Reuse, event: Vec::new() });
        }
    }
    edges.extend(reused(mapping, graph));
    // No other edge goes for one of these: their distances change with the number of stages.
    let reuse = reduced(graph, edges).into_iter().filter(|edge| edge.why == Why::Reuse);
    graph.edges.extend(reuse.collect::<Vec<_>>());
    graph.edges.sort();
    graph.rings = rings.into_iter().map(|(_, ring)| ring).collect();
    Ok(())
}

/// The edges from what is asynchronous to what overwrites its place in the next iteration, of places that are no rings: they have one stage, and the order of
/// iterations does not tell when a copy has read them.
fn reused(mapping: &Mapping, graph: &Graph) -> Vec<Edge> {
    let mut edges = Vec::new();
    let nodes = graph.ordered();
    for id in (0..graph.replicas.len() as u32).map(ReplicaId) {
        if graph.replica(id).memory != Some(Memory::Shared)
            || graph.replica(id).stages.is_some()
            || sides(mapping, graph, id).is_some()
        {
            continue;
        }
        let users = |writes: bool| {
            let uses = move |node: &&NodeId| {
                let node = graph.node(**node);
                node.writes(id) || (!writes && node.reads(id))
            };
            nodes.iter().filter(uses).copied()
        };
        for from in users(false).filter(|from| asynchronous(graph, *from)) {
            for to in users(true).filter(|to| graph.node(*to).role == graph.node(from).role) {
                let loops = common(graph, from, to);
                let takes = |head: &LoopId| {
                    let row = graph.tree.loop_(*head);
                    !implicit(graph, *head)
                        && (row.kind == LoopKind::Srange || persistent(mapping, graph, *head))
                        && by_round(graph, id, *head)
                };
                let Some(at) = loops.iter().rposition(takes) else { continue };
                let late = |node: NodeId| graph.node(node).late_in(loops[at]);
                let iterations = 1 + late(to) - late(from);
                if iterations > 0 {
                    let mut distance = vec![0; at];
                    distance.push(iterations);
                    edges.push(Edge { from, to, distance, why: Why::Reuse, event: Vec::new() });
                }
            }
        }
    }
    edges
}

/// The sides of a place, if it is one of a ring.
pub(super) fn sides(mapping: &Mapping, graph: &Graph, id: ReplicaId) -> Option<Sides> {
    if graph.replica(id).memory != Some(Memory::Shared) {
        return None;
    }
    let nodes = graph.ordered();
    let writers: Vec<NodeId> = nodes.iter().copied().filter(|node| graph.node(*node).writes(id)).collect();
    let readers: Vec<NodeId> = nodes.into_iter().filter(|node| graph.node(*node).reads(id)).collect();
    let [writer] = writers[..] else { return None };
    let (from, to) = (graph.node(writer).role, graph.node(*readers.first()?).role);
    let one_side = readers.iter().all(|reader| *reader != writer && graph.node(*reader).role == to);
    let apart = from != to
        || asynchronous(graph, writer)
        || readers.iter().all(|reader| asynchronous(graph, *reader));
    if !one_side || !apart {
        return None;
    }
    let around = graph.tree.around(graph.node(writer).body);
    let head = around
        .into_iter()
        .rfind(|id| !implicit(graph, *id))
        .filter(|id| graph.tree.loop_(*id).kind == LoopKind::Srange || persistent(mapping, graph, *id));
    if let Some(head) = head {
        let inside = |node: &NodeId| graph.tree.around(graph.node(*node).body).contains(&head);
        if !by_round(graph, id, head) || !readers.iter().all(inside) {
            return None;
        }
    }
    Some(Sides { head, writer, readers, from, to })
}

/// True of copies that go on while their threads do something else: from global to shared memory (PTX ISA 9.7.9.25, `cp.async`), and back by bulk copies.
pub(super) fn asynchronous(graph: &Graph, id: NodeId) -> bool {
    let Op::Copy(from, to) = graph.node(id).op else { return false };
    let feature = match (graph.replica(from).memory, graph.replica(to).memory) {
        (Some(Memory::Global), Some(Memory::Shared)) => Feature::CpAsync,
        (Some(Memory::Shared), Some(Memory::Global)) => Feature::Tma,
        _ => return false,
    };
    graph.tree.arch.has(feature)
}

/// The fewest and the most stages that a mapping gives what a loop brings: 1 without.
fn stages(
    program: &Program,
    mapping: &Mapping,
    graph: &Graph,
    head: LoopId,
) -> Result<(i64, i64), Diagnostic> {
    let row = graph.tree.loop_(head);
    let mut all = None;
    for attribute in graph.attributes(mapping, head) {
        match &attribute.kind {
            AttributeKind::Pipeline { head: Some(named), least, most } if *named == row.head => {
                all = Some((least, most, attribute.span));
                break;
            }
            AttributeKind::Pipeline { head: None, least, most } => all = Some((least, most, attribute.span)),
            _ => {}
        }
    }
    let Some((least, most, span)) = all else { return Ok((1, 1)) };
    let values = Environment::of(program, &Constants::default())?;
    Ok((values.value(program, least, span)?, values.value(program, most, span)?))
}
