//! Waits and barriers of a role: before which nodes and loops it waits for groups, and before which nodes its threads meet.
//!
//! The graph says how many groups may be left before a node. Where nothing in a loop issues one of the kind, the wait stands in front of the
//! loop. Threads meet between two uses of one place in memory of which one writes: which thread holds which element is decided later.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;

use super::ahead::{Ahead, ahead};
use crate::graph::{Edge, Graph, Group, Item, NodeId, ReplicaId, Role, Wait, Why};
use crate::instantiate::LoopId;
use crate::passes::depend::dependences;

/// The waits and barriers of a role.
#[derive(Default, Debug)]
pub(super) struct Order {
    /// The waits before a node.
    pub(super) before: BTreeMap<NodeId, Vec<Wait>>,
    /// The waits in front of a loop.
    pub(super) loops: BTreeMap<LoopId, Vec<Wait>>,
    /// Loops behind which every copy out is waited for: their iterations are no multiple of the stages that they take in turn.
    pub(super) behind: BTreeSet<LoopId>,
    /// The nodes before which threads meet.
    pub(super) meet: BTreeSet<NodeId>,
    /// The loops whose copies run ahead: they wait and meet by themselves.
    pub(super) ahead: BTreeMap<LoopId, Ahead>,
}

/// The nodes that some threads may not know to be done.
#[derive(Clone, Default, PartialEq)]
struct State {
    /// Asynchronous nodes that are in flight.
    flight: BTreeSet<NodeId>,
    /// Nodes that are done, for the threads that did them.
    done: BTreeSet<NodeId>,
}

/// Finds the waits and barriers of a role's items.
pub(super) fn order(graph: &Graph, groups: &BTreeMap<NodeId, Group>, role: Role, items: &[Item]) -> Order {
    let mut order = Order { ahead: ahead(graph, groups, role, items), ..Order::default() };
    hoist(graph, groups, items, &mut Vec::new(), &mut order);
    let mut pairs = pairs(graph, role);
    let copies: BTreeSet<NodeId> = order.ahead.values().flat_map(|ahead| &ahead.copies).copied().collect();
    pairs.retain(|(a, b)| !copies.contains(a) && !copies.contains(b));
    let peeled = graph.nodes.iter().flat_map(|node| &node.late).map(|late| late.head).collect();
    let mut walk = Walk { graph, groups, pairs: &pairs, peeled, order };
    let mut state = State::default();
    walk.items(items, &mut state);
    walk.order
}

/// Puts each wait before its node, or in front of the outermost loop that issues nothing of the kind.
fn hoist(
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    items: &[Item],
    around: &mut Vec<(LoopId, BTreeSet<Group>)>,
    order: &mut Order,
) {
    for item in items {
        match item {
            Item::Node(id) => {
                let brought = around.iter().any(|(head, _)| order.ahead.contains_key(head));
                for wait in &graph.node(*id).waits {
                    if brought && wait.group == Group::CopiesIn {
                        continue;
                    }
                    let idle = around.iter().rposition(|(_, issued)| issued.contains(&wait.group));
                    let list = match around.get(idle.map_or(0, |at| at + 1)) {
                        Some((head, _)) => order.loops.entry(*head).or_default(),
                        None => order.before.entry(*id).or_default(),
                    };
                    match list.iter_mut().find(|other| other.group == wait.group) {
                        Some(other) => other.left = other.left.min(wait.left),
                        None => list.push(*wait),
                    }
                }
            }
            Item::Loop(id, items) => {
                let nodes = Item::all(items);
                let issued = nodes.iter().filter_map(|node| groups.get(node).copied()).collect();
                around.push((*id, issued));
                hoist(graph, groups, items, around, order);
                around.pop();
                if !order.ahead.contains_key(id)
                    && uneven(graph, &nodes, *id)
                    && around.iter().any(|(head, _)| repeats(graph, *head))
                {
                    order.behind.insert(*id);
                }
            }
        }
    }
}

/// True if a loop may have more than one iteration.
fn repeats(graph: &Graph, id: LoopId) -> bool {
    graph.tree.loop_(id).ranges.iter().any(|(lo, hi)| hi.plus(lo, -1).value() != Some(1))
}

/// True if a loop takes stages of places in turn within a role, so many that its last iteration need not end with the last stage.
fn uneven(graph: &Graph, nodes: &[NodeId], id: LoopId) -> bool {
    let staged = |replica: ReplicaId| {
        let between = graph.rings.iter().any(|ring| ring.places.contains(&replica) && ring.from != ring.to);
        graph.replica(replica).stages.filter(|stages| stages.head == id && stages.depth > 1 && !between)
    };
    let row = graph.tree.loop_(id);
    let rounds = match &row.ranges[..] {
        [(lo, hi)] => hi.plus(lo, -1).value(),
        _ => None,
    };
    nodes
        .iter()
        .flat_map(|node| &graph.node(*node).accesses)
        .filter_map(|access| staged(access.replica?))
        .any(|stages| rounds.is_none_or(|rounds| rounds % stages.depth != 0))
}

/// The pairs of nodes of a role that may touch one element of memory, of which one writes it. In shared memory, whose places later iterations
/// use again, in both directions.
fn pairs(graph: &Graph, role: Role) -> BTreeSet<(NodeId, NodeId)> {
    let memory = |replica: Option<ReplicaId>| replica.and_then(|replica| graph.replica(replica).memory);
    let handed = |replica: Option<ReplicaId>| {
        graph
            .rings
            .iter()
            .any(|ring| replica.is_some_and(|replica| ring.places.contains(&replica)) && ring.from != ring.to)
    };
    let ours = |edge: &Edge| graph.node(edge.from).role == role && graph.node(edge.to).role == role;
    let mut pairs = BTreeSet::new();
    for (edge, replica) in dependences(graph).iter().filter(|(edge, _)| ours(edge)) {
        match memory(*replica) {
            Some(Memory::Global) => {
                pairs.insert((edge.from, edge.to));
            }
            Some(Memory::Shared) if !handed(*replica) => {
                pairs.extend([(edge.from, edge.to), (edge.to, edge.from)]);
            }
            _ => {}
        }
    }
    let reuse = graph.edges.iter().filter(|edge| edge.why == Why::Reuse && ours(edge));
    pairs.extend(reuse.map(|edge| (edge.from, edge.to)));
    pairs
}

struct Walk<'a> {
    graph: &'a Graph,
    groups: &'a BTreeMap<NodeId, Group>,
    pairs: &'a BTreeSet<(NodeId, NodeId)>,
    /// The loops in which something is late.
    peeled: BTreeSet<LoopId>,
    order: Order,
}

impl Walk<'_> {
    fn items(&mut self, items: &[Item], state: &mut State) {
        for item in items {
            match item {
                Item::Node(id) => self.node(*id, state),
                Item::Loop(id, body) => {
                    let waits = self.order.loops.get(id).cloned().unwrap_or_default();
                    self.wait(&waits, state);
                    // What later iterations find is what earlier ones leave: twice is enough, since states only grow.
                    let ends = self.graph.ends.get(id).cloned().unwrap_or_default();
                    for _ in 0..2 {
                        let before = state.clone();
                        if self.order.ahead.contains_key(id) {
                            state.done.clear();
                        }
                        self.items(body, state);
                        self.wait(&ends, state);
                        state.flight.extend(before.flight);
                        state.done.extend(before.done);
                    }
                    if self.order.ahead.contains_key(id) {
                        state.done.clear();
                    }
                    if self.order.behind.contains(id) {
                        self.wait(&[Wait { group: Group::CopiesOut, left: 0 }], state);
                    }
                }
            }
        }
    }

    fn node(&mut self, id: NodeId, state: &mut State) {
        if self.order.ahead.values().any(|ahead| ahead.copies.contains(&id)) {
            return;
        }
        let before = state.clone();
        let waits = self.order.before.get(&id).cloned().unwrap_or_default();
        self.wait(&waits, state);
        if state.done.iter().any(|other| self.pairs.contains(&(*other, id))) {
            self.order.meet.insert(id);
            state.done.clear();
        }
        if self.groups.contains_key(&id) { &mut state.flight } else { &mut state.done }.insert(id);
        // Where something is late, the first iterations leave that out, and the last ones all else. What nobody needs is left out.
        let around = self.graph.tree.around(self.graph.node(id).body);
        if around.iter().any(|head| self.peeled.contains(head)) || !self.graph.node(id).when.is_empty() {
            state.flight.extend(before.flight);
            state.done.extend(before.done);
        }
    }

    /// Nodes in flight that a wait may cover are done.
    fn wait(&self, waits: &[Wait], state: &mut State) {
        for wait in waits {
            let covered: Vec<NodeId> =
                state.flight.iter().copied().filter(|id| self.groups.get(id) == Some(&wait.group)).collect();
            for id in covered {
                state.done.insert(id);
                if wait.left == 0 {
                    state.flight.remove(&id);
                }
            }
        }
    }
}
