//! Order of an iteration, and waits for what is asynchronous. Needs: rings. Keeps: every edge, and the order of iterations.
//!
//! Asynchronous nodes are issued as early as edges within an iteration allow, those on the longest way to the end of the iteration first; all else
//! stays in the order of the program. Copies and products of one kind finish in the order in which they were issued, so that a wait says
//! how many may be left: the fewest that any path of the role has issued since the one that is needed.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Feature, Memory, Processor};
use tilewright_tile::{Code, Constants, Diagnostic, Diagnostics, StmtKind};

use super::depend::common;
use super::groups::{chain, groups};
use super::rings::asynchronous;
use crate::environment::Environment;
use crate::graph::{Edge, Graph, Group, Item, NodeId, Op, Role, Wait};
use crate::instantiate::LoopId;
use crate::mapping::{AttributeKind, Mapping};
use crate::program::Program;

/// Puts iterations into order, and finds the waits before each node.
///
/// The waits are those of iterations in which all of a loop runs. In the first and the last iterations of a loop in which something is late, some
/// of what they count has not been issued: there, nothing may be left.
///
/// # Errors
///
/// `bad-value`: more products in flight than a ring has stages for.
pub fn schedule(program: &Program, mapping: &Mapping, graph: &mut Graph) -> Result<(), Diagnostics> {
    let kinds = kinds(program, graph);
    let order = std::mem::take(&mut graph.order);
    graph.order = arranged(program, graph, &kinds, order);
    let mut lists = BTreeMap::new();
    list(None, &graph.order, &mut lists);
    let last = groups(graph, &kinds);
    let iterations = Iterations { graph, groups: &kinds, last: &last, lists: &lists };
    let waits: Vec<Vec<Wait>> =
        (0..graph.nodes.len() as u32).map(|id| iterations.waits(NodeId(id))).collect();
    let ends = graph.tree.loop_ids().filter_map(|head| {
        let end = iterations.end(program, mapping, head, &waits).transpose()?;
        Some(end.map(|wait| (head, vec![wait])))
    });
    let ends =
        ends.collect::<Result<BTreeMap<_, _>, Diagnostic>>().map_err(|error| Diagnostics(vec![error]))?;
    graph.ends = ends;
    graph.nodes.iter_mut().zip(waits).for_each(|(node, waits)| node.waits = waits);
    Ok(())
}

/// The kinds of all asynchronous nodes.
pub(crate) fn kinds(program: &Program, graph: &Graph) -> BTreeMap<NodeId, Group> {
    let ids = graph.node_ids();
    ids.filter_map(|id| Some((id, group(program, graph, id)?))).collect()
}

/// The kind of an asynchronous node: copies, and products of whole warpgroups with a right factor in shared memory (PTX ISA 9.7.15, `wgmma`).
pub(crate) fn group(program: &Program, graph: &Graph, id: NodeId) -> Option<Group> {
    let node = graph.node(id);
    match &node.op {
        Op::Copy(_, to) if asynchronous(graph, id) => Some(match graph.replica(*to).memory {
            Some(Memory::Global) => Group::CopiesOut,
            _ => Group::CopiesIn,
        }),
        Op::Copy(..) => None,
        Op::Statement { .. } => {
            let product = matches!(statement(program, graph, id), Some(StmtKind::Gemm { .. }));
            let shared = node.accesses.iter().any(|access| {
                let place = access.replica.map(|replica| graph.replica(replica).memory);
                access.reads && !access.writes && place == Some(Some(Memory::Shared))
            });
            let warpgroups = node.at <= Processor::Warpgroup && graph.tree.arch.has(Feature::Wgmma);
            (product && shared && warpgroups).then_some(Group::Products)
        }
    }
}

/// The statement of a node; nothing of a copy.
pub(crate) fn statement<'a>(program: &'a Program, graph: &Graph, id: NodeId) -> Option<&'a StmtKind> {
    let node = graph.node(id);
    let Op::Statement { number, .. } = node.op else { return None };
    let call = graph.tree.call(node.call);
    let leaf = program.task(call.task).variant(call.variant).leaf()?;
    leaf.fragment.body.get(number).map(|stmt| &stmt.kind)
}

/// True of an edge within an iteration.
fn within(edge: &Edge) -> bool {
    edge.distance.iter().all(|iterations| *iterations == 0)
}

/// The items of a body in their new order, and those of the loops in it.
fn arranged(
    program: &Program,
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    items: Vec<Item>,
) -> Vec<Item> {
    let mut at: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        at.extend(item.nodes().into_iter().map(|id| (id, index)));
    }
    let edges: BTreeSet<(usize, usize)> = graph
        .edges
        .iter()
        .filter(|edge| within(edge))
        .filter_map(|edge| Some((*at.get(&edge.from)?, *at.get(&edge.to)?)))
        .filter(|(from, to)| from != to)
        .collect();
    let mut way = vec![1; items.len()];
    for from in (0..items.len()).rev() {
        let next = edges.iter().filter(|(of, _)| *of == from).map(|(_, to)| way[*to]);
        way[from] = 1 + next.max().unwrap_or(0);
    }
    // A fill that products alone wait for is a part of their issue: the first overwrites.
    let issues = |index: usize| match &items[index] {
        Item::Loop(..) => false,
        Item::Node(id) if groups.contains_key(id) => true,
        Item::Node(id) => {
            let fill = matches!(statement(program, graph, *id), Some(StmtKind::Fill { .. }));
            let mut next = graph.edges.iter().filter(|edge| edge.from == *id && within(edge)).peekable();
            fill && next.peek().is_some()
                && next.all(|edge| {
                    groups.get(&edge.to) == Some(&Group::Products)
                        && graph.node(edge.to).body == graph.node(*id).body
                })
        }
    };
    let mut left: BTreeSet<usize> = (0..items.len()).collect();
    let mut order: Vec<usize> = Vec::new();
    while !left.is_empty() {
        let ready: Vec<usize> = left
            .iter()
            .copied()
            .filter(|to| !edges.iter().any(|(from, of)| of == to && left.contains(from)))
            .collect();
        let issue = ready.iter().copied().filter(|index| issues(*index));
        let longest = issue.max_by_key(|index| (way[*index], std::cmp::Reverse(*index)));
        // Edges within an iteration lead forward in the order of before, so that the first that is left is ready.
        let Some(next) = longest.or(ready.first().copied()).or(left.first().copied()) else { break };
        left.remove(&next);
        order.push(next);
    }
    let mut taken: Vec<Option<Item>> = items.into_iter().map(Some).collect();
    let items = order.into_iter().filter_map(|index| taken[index].take());
    items
        .map(|item| match item {
            Item::Node(id) => Item::Node(id),
            Item::Loop(id, body) => Item::Loop(id, arranged(program, graph, groups, body)),
        })
        .collect()
}

/// An item of a body without what is in it.
#[derive(Clone, Copy, PartialEq)]
enum Flat {
    Node(NodeId),
    Loop(LoopId),
}

fn list(body: Option<LoopId>, items: &[Item], lists: &mut BTreeMap<Option<LoopId>, Vec<Flat>>) {
    let flat = items.iter().map(|item| match item {
        Item::Node(id) => Flat::Node(*id),
        Item::Loop(id, _) => Flat::Loop(*id),
    });
    lists.insert(body, flat.collect());
    for item in items {
        if let Item::Loop(id, items) = item {
            list(Some(*id), items, lists);
        }
    }
}

/// The issues of a graph, iteration by iteration.
struct Iterations<'a> {
    graph: &'a Graph,
    groups: &'a BTreeMap<NodeId, Group>,
    /// The last product of the group of each product.
    last: &'a BTreeMap<NodeId, NodeId>,
    lists: &'a BTreeMap<Option<LoopId>, Vec<Flat>>,
}

impl Iterations<'_> {
    /// The waits before a node, without those that hold already.
    fn waits(&self, id: NodeId) -> Vec<Wait> {
        Group::ALL
            .into_iter()
            .filter_map(|group| {
                let left = self.needed(id, group)?;
                (!self.holds(id, group, left)).then_some(Wait { group, left })
            })
            .collect()
    }

    /// The wait at the end of each iteration of a loop: until so many products are left as the mapping has in flight, or none where nothing up
    /// to the next of them waits for one that holds a stage.
    fn end(
        &self,
        program: &Program,
        mapping: &Mapping,
        head: LoopId,
        waits: &[Vec<Wait>],
    ) -> Result<Option<Wait>, Diagnostic> {
        let graph = self.graph;
        let Some(items) = self.lists.get(&Some(head)) else { return Ok(None) };
        let products: Vec<NodeId> =
            items.iter().filter_map(|item| self.of_kind(item, Group::Products, Role::Compute)).collect();
        // The fewest stages of a ring that a product reads.
        let stages = |id: &NodeId| {
            let places = graph.node(*id).accesses.iter().filter_map(|access| access.replica);
            places
                .flat_map(|place| graph.rings.iter().filter(move |ring| ring.places.contains(&place)))
                .filter(|ring| ring.head == Some(head))
                .map(|ring| ring.depth)
                .min()
        };
        let Some(fewest) = products.iter().filter_map(stages).min() else { return Ok(None) };
        let row = graph.tree.loop_(head);
        let said = graph.attributes(mapping, head).iter().find_map(|attribute| match &attribute.kind {
            AttributeKind::InFlight(groups) => Some((groups, attribute.span)),
            _ => None,
        });
        if let Some((groups, span)) = said {
            let left = Environment::of(program, &Constants::default())?.value(program, groups, span)?;
            let issued = products.iter().filter(|id| self.last_of(**id) == **id).count() as i64;
            let held = (left + issued - 1) / issued;
            if held >= fewest {
                let message = format!(
                    "`in_flight({left})`: products of {held} iterations hold {held} stages, and a ring has {fewest}"
                );
                return Err(Diagnostic::new(Code::BadValue, span, message)
                    .related(row.span, "the loop")
                    .help("have fewer in flight, or more stages by `pipeline`"));
            }
            return Ok(Some(Wait { group: Group::Products, left }));
        }
        let open = products.iter().filter(|id| stages(id).is_some()).any(|id| {
            let at = self.index(Some(head), *id);
            // With a stage more, the iteration behind this one may be the one that waits.
            let next = if fewest > 1 { &items[..at] } else { &[] };
            let behind = items[at + 1..].iter().chain(next);
            let mut issued = 0;
            !behind.into_iter().any(|item| {
                let Flat::Node(other) = item else { return false };
                let mut waits = waits[other.index()].iter().filter(|wait| wait.group == Group::Products);
                let waited = waits.any(|wait| wait.left <= issued);
                issued += i64::from(self.issue(item, Group::Products, Role::Compute).is_some());
                waited
            })
        });
        Ok(open.then_some(Wait { group: Group::Products, left: 0 }))
    }

    /// The most issues of a kind that may be left when the node begins; nothing where it needs none.
    fn needed(&self, id: NodeId, group: Group) -> Option<i64> {
        let graph = self.graph;
        let role = graph.node(id).role;
        let edges = graph.edges.iter().filter(|edge| {
            edge.to == id
                && self.groups.get(&edge.from) == Some(&group)
                && graph.node(edge.from).role == role
                // Who loads signals a barrier of the ring: nobody waits for groups.
                && (group != Group::CopiesIn || role == Role::Compute)
                && !chain(graph, self.groups, edge)
        });
        edges.map(|edge| self.since(edge, group)).min()
    }

    /// The node of an item that issues one of the kind in the role: of products, the last of a group.
    fn issue(&self, item: &Flat, group: Group, role: Role) -> Option<NodeId> {
        let id = self.of_kind(item, group, role)?;
        (self.last_of(id) == id).then_some(id)
    }

    /// The node of an item, if it is of the kind and the role.
    fn of_kind(&self, item: &Flat, group: Group, role: Role) -> Option<NodeId> {
        match item {
            Flat::Node(id) if self.groups.get(id) == Some(&group) && self.graph.node(*id).role == role => {
                Some(*id)
            }
            _ => None,
        }
    }

    /// The node with which a node is issued: of products, the last of the group.
    fn last_of(&self, id: NodeId) -> NodeId {
        self.last.get(&id).copied().unwrap_or(id)
    }

    /// The index in a body's list of the item that has the node, or is it.
    fn index(&self, body: Option<LoopId>, id: NodeId) -> usize {
        let around = self.graph.tree.around(self.graph.node(id).body);
        let inner = around
            .iter()
            .find(|inner| self.lists.get(&body).is_some_and(|items| items.contains(&Flat::Loop(**inner))));
        let item = match inner {
            Some(inner) if Some(*inner) != body => Flat::Loop(*inner),
            _ => Flat::Node(id),
        };
        self.lists.get(&body).and_then(|items| items.iter().position(|other| *other == item)).unwrap_or(0)
    }

    /// The fewest issues of a kind between the ends of an edge.
    fn since(&self, edge: &Edge, group: Group) -> i64 {
        let issued = self.last_of(edge.from);
        let role = self.graph.node(issued).role;
        let loops = common(self.graph, issued, edge.to);
        let carries = edge.distance.iter().position(|iterations| *iterations != 0);
        let body = match carries {
            Some(at) => Some(loops[at]),
            None => loops.last().copied(),
        };
        let empty = Vec::new();
        let items = self.lists.get(&body).unwrap_or(&empty);
        let (from, to) = (self.index(body, issued), self.index(body, edge.to));
        let issues = |items: &[Flat]| -> Vec<NodeId> {
            items.iter().filter_map(|item| self.issue(item, group, role)).collect()
        };
        let here = match (carries, body) {
            (Some(at), Some(head)) => {
                // In earlier iterations there is for certain what is late by no more than the first end.
                let late = self.graph.node(issued).late_in(head);
                let certain = |ids: Vec<NodeId>| {
                    ids.into_iter().filter(|id| self.graph.node(*id).late_in(head) <= late).count() as i64
                };
                certain(issues(&items[from + 1..]))
                    + (edge.distance[at] - 1) * certain(issues(items))
                    + issues(&items[..to]).len() as i64
            }
            _ => issues(items.get(from + 1..to).unwrap_or_default()).len() as i64,
        };
        here + self.beside(body, issued, group, false) + self.beside(body, edge.to, group, true)
    }

    /// The issues of a kind before or behind a node in the loops that are around it inside of a body: in the first and in the last iteration.
    fn beside(&self, body: Option<LoopId>, id: NodeId, group: Group, before: bool) -> i64 {
        let node = self.graph.node(id);
        let around = self.graph.tree.around(node.body);
        let outside = body.map_or(0, |body| 1 + around.iter().position(|id| *id == body).unwrap_or(0));
        let mut count = 0;
        for head in around.iter().skip(outside) {
            let Some(items) = self.lists.get(&Some(*head)) else { continue };
            let at = self.index(Some(*head), id);
            let part = if before { &items[..at] } else { &items[at + 1..] };
            let same = |id: &NodeId| self.graph.node(*id).late_in(*head) == node.late_in(*head);
            count += part.iter().filter_map(|item| self.issue(item, group, node.role)).filter(same).count();
        }
        count as i64
    }

    /// True if a node before in the same body has waited for as much, and not more than `left` have been issued since.
    fn holds(&self, id: NodeId, group: Group, left: i64) -> bool {
        let node = self.graph.node(id);
        let Some(items) = self.lists.get(&node.body) else { return false };
        let at = self.index(node.body, id);
        let mut issued = 0;
        for item in items[..at].iter().rev() {
            let Flat::Node(other) = item else { return false };
            issued += i64::from(self.issue(item, group, node.role).is_some());
            let with = self.graph.node(*other);
            if (with.role, &with.late) == (node.role, &node.late)
                && self.needed(*other, group).is_some_and(|before| before + issued <= left)
            {
                return true;
            }
        }
        false
    }
}
