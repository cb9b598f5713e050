//! Retiming: launches that a mapping has `late` move to later iterations of a loop. Needs: placement and roles. Keeps: what each node computes, of
//! which values; changed are the order of an iteration, the distances of edges, and where two iterations need a place at once, its stages.
//!
//! A node that is late by `r` iterations of a loop does in each iteration the work of `r` iterations before; the loop runs `r` iterations longer, the first without
//! what is late, the last with nothing else. So an edge u → v of distance d has the distance d + late(v) − late(u), and the move is legal iff no
//! distance turns negative (Leiserson, Saxe 1991). Edges within an iteration then lead from what is late to what is late as much or less: they make no circle.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;
use tilewright_tile::{Code, Diagnostic, Diagnostics, Origin};

use super::depend::{anew, common, dependences, reduced};
use super::join::implicit;
use super::rings::sides;
use crate::graph::{Edge, Graph, Item, Late, NodeId, Op, ReplicaId, Stages, Why};
use crate::instantiate::{CallId, LoopId};
use crate::mapping::{AttributeKind, Mapping};
use crate::program::{self, LoopKind, Program};

/// A move that a mapping asks for.
struct Move {
    label: String,
    span: Origin,
    head: LoopId,
    /// The loop beside the launch behind whose first iterations its own leave one by one.
    over: Option<LoopId>,
    /// The launch.
    call: CallId,
}

/// An edge with the place through which it is; nothing of objects without places.
type Dependence = (Edge, Option<ReplicaId>);

/// Moves what the mapping has late.
///
/// # Errors
///
/// `late`: a launch in no loop with later iterations, and one that something in the same iteration waits for.
pub fn retime(program: &Program, mapping: &Mapping, graph: &mut Graph) -> Result<(), Diagnostics> {
    let moves = moves(program, mapping, graph)?;
    if moves.is_empty() {
        return Ok(());
    }
    let places: BTreeMap<NodeId, usize> =
        graph.ordered().into_iter().enumerate().map(|(at, id)| (id, at)).collect();
    let mut all = dependences(graph);
    for late in &moves {
        mark(graph, late);
    }
    let heads: BTreeSet<LoopId> = moves.iter().map(|late| late.head).collect();
    for head in &heads {
        reuse(mapping, graph, *head, &mut all);
    }
    let retimed = Retiming { program, graph, moves: &moves, places: &places }.edges(&all)?;
    for (replica, stages) in &retimed.stages {
        graph.replicas[replica.index()].stages = Some(*stages);
        let versions = versions(graph, &places, *replica, stages.head);
        for (id, place) in &places {
            let behind = versions.map_or(0, |versions| versions.behind(*place));
            if graph.tree.around(graph.node(*id).body).contains(&stages.head) {
                let uses = graph.nodes[id.index()].accesses.iter_mut();
                uses.filter(|access| access.replica == Some(*replica))
                    .for_each(|access| access.behind = behind);
            }
        }
    }
    let mut order = std::mem::take(&mut graph.order);
    let sorted = sort(&mut order, &heads, &retimed.edges);
    graph.order = order;
    sorted?;
    graph.edges = reduced(graph, retimed.edges);
    for late in &moves {
        if let Some(over) = late.over {
            deal(program, graph, late, over).map_err(|error| Diagnostics(vec![error]))?;
        }
    }
    Ok(())
}

/// Deals the iterations of a launch's loop to the first ones of another loop of the next iteration: each leaves behind one of them. Needs nothing that
/// these, or what is before them, wait for.
fn deal(program: &Program, graph: &mut Graph, late: &Move, over: LoopId) -> Result<(), Diagnostic> {
    let refused = |message: String| {
        let over = graph.tree.loop_text(over);
        Diagnostic::new(Code::Late, late.span, format!("`late({})` over `{over}`: {message}", late.label))
            .related(graph.tree.call(late.call).span, "the launch")
    };
    let items = body_of(&graph.order, late.head).cloned().unwrap_or_default();
    let launched = |item: &&Item| item.nodes().iter().all(|id| of_call(graph, *id, late.call));
    let loops: Vec<LoopId> = items
        .iter()
        .filter(launched)
        .filter_map(|item| match item {
            Item::Loop(id, _) => Some(*id),
            Item::Node(_) => None,
        })
        .collect();
    let [chunks] = loops[..] else {
        return Err(refused("the launch has not one loop whose iterations can leave one by one".to_string())
            .help(format!("`late({})` has it leave as a whole", late.label)));
    };
    let row = graph.tree.loop_(chunks);
    let known = match &row.ranges[..] {
        [(lo, hi)] => hi.plus(lo, -1).value().is_some(),
        _ => false,
    };
    if !known || row.kind != LoopKind::Srange {
        return Err(refused(
            "the iterations of the launch's loop are not counted when the kernel is compiled".to_string(),
        )
        .help("cut its tensor by `blocks` of known extents"));
    }
    let place = |id: LoopId| items.iter().position(|item| matches!(item, Item::Loop(of, _) if *of == id));
    let (Some(from), Some(to)) = (place(chunks), place(over)) else {
        return Err(refused("the loop has no statement".to_string()).help("name a loop that computes"));
    };
    // It moves in front of the loop: nothing between the two may wait for it, or it for that.
    let early = items[from].nodes();
    let others: Vec<NodeId> = match from < to {
        true => items[from + 1..to + 1].iter().flat_map(Item::nodes).collect(),
        false => items[to..from].iter().flat_map(Item::nodes).collect(),
    };
    let within = |edge: &&Edge| edge.distance.iter().all(|iterations| *iterations == 0);
    let mut edges = graph.edges.iter().filter(within);
    let waits = edges.find_map(|edge| {
        let (before, after) = if from < to { (&early, &others) } else { (&others, &early) };
        let waits = before.contains(&edge.from) && after.contains(&edge.to);
        waits.then_some(if from < to { edge.to } else { edge.from })
    });
    if let Some(other) = waits {
        let message = format!("{} waits for it, or it for that", name(program, graph, other));
        return Err(refused(message)
            .related(graph.node(other).span, "in the same iteration")
            .help("give the launch a tensor of its own to read"));
    }
    if let Some(items) = body_of_mut(&mut graph.order, late.head) {
        let moved = items.remove(from);
        items.insert(if from < to { to - 1 } else { to }, moved);
    }
    graph.dealt.insert(over, chunks);
    Ok(())
}

/// The items of a loop's iterations.
fn body_of(items: &[Item], head: LoopId) -> Option<&Vec<Item>> {
    items.iter().find_map(|item| match item {
        Item::Loop(id, body) if *id == head => Some(body),
        Item::Loop(_, body) => body_of(body, head),
        Item::Node(_) => None,
    })
}

fn body_of_mut(items: &mut [Item], head: LoopId) -> Option<&mut Vec<Item>> {
    items.iter_mut().find_map(|item| match item {
        Item::Loop(id, body) => {
            if *id == head {
                Some(body)
            } else {
                body_of_mut(body, head)
            }
        }
        Item::Node(_) => None,
    })
}

/// The launches that are late, with their loops.
fn moves(program: &Program, mapping: &Mapping, graph: &Graph) -> Result<Vec<Move>, Diagnostics> {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    for (at, call) in graph.tree.calls.iter().enumerate() {
        let Some(caller) = call.parent.map(|parent| graph.tree.call(parent)) else { continue };
        let attributes = caller.instance.map(|id| &mapping.instance(id).attributes);
        for attribute in attributes.into_iter().flatten() {
            let AttributeKind::Late { launch, head: named } = attribute.kind else { continue };
            if Some(launch) != call.launch {
                continue;
            }
            let inner = program.task(caller.task).variant(caller.variant).inner();
            let label = inner.and_then(|inner| inner.launch(launch).label.clone()).unwrap_or_default();
            let call = CallId(at as u32);
            match head_of(program, mapping, graph, call, named, &label) {
                Ok(head) => {
                    let over = named.and_then(|named| beside(graph, call, named));
                    out.push(Move { label, span: attribute.span, head, over, call });
                }
                Err((message, help)) => {
                    let error = Diagnostic::new(Code::Late, attribute.span, message)
                        .related(graph.tree.call(call).span, "the launch");
                    errors.push(error.help(help));
                }
            }
        }
    }
    if errors.is_empty() { Ok(out) } else { Err(Diagnostics(errors)) }
}

/// The `srange` of this name that stands beside a launch.
fn beside(graph: &Graph, id: CallId, named: program::LoopId) -> Option<LoopId> {
    let call = graph.tree.call(id);
    graph.tree.loop_ids().find(|id| {
        let row = graph.tree.loop_(*id);
        (Some(row.call), row.head, row.parent) == (call.parent, named, call.body)
            && row.kind == LoopKind::Srange
    })
}

/// The loop by which a launch moves: the innermost around it, which is the named one if one is named that is not beside it. Else a message and a
/// remedy.
fn head_of(
    program: &Program,
    mapping: &Mapping,
    graph: &Graph,
    id: CallId,
    named: Option<program::LoopId>,
    label: &str,
) -> Result<LoopId, (String, String)> {
    let call = graph.tree.call(id);
    let around = graph.tree.around(call.body);
    let innermost = around.into_iter().rfind(|id| !implicit(graph, *id));
    if let Some(named) = named
        && beside(graph, id, named).is_none()
        && innermost.is_none_or(|id| {
            let row = graph.tree.loop_(id);
            Some(row.call) != call.parent || row.head != named
        })
    {
        let inner = call.parent.and_then(|parent| {
            let parent = graph.tree.call(parent);
            program.task(parent.task).variant(parent.variant).inner()
        });
        let counters = inner.map(|inner| &inner.head(named).counters);
        let name =
            counters.and_then(|counters| counters.first()).map(|counter| &program.symbol(*counter).name);
        let name = name.map_or("?", String::as_str);
        return Err((
            format!(
                "`late({label}, {name})`: the innermost loop around the launch is another than that of `{name}`"
            ),
            format!("`late({label})` moves it by the loop around it"),
        ));
    }
    let Some(head) = innermost else {
        return Err((
            format!("`late({label})`: the launch is in no loop"),
            "a launch in a loop can be late".to_string(),
        ));
    };
    if graph.tree.loop_(head).kind == LoopKind::Prange && !persistent(mapping, graph, head) {
        return Err((
            format!(
                "`late({label})`: the iterations of `{}` are blocks of their own, so that none comes later",
                graph.tree.loop_text(head)
            ),
            "give the row of that loop `persistent(…)`, so that a next tile follows".to_string(),
        ));
    }
    Ok(head)
}

/// True of a `prange` whose iterations blocks take one after another.
pub(crate) fn persistent(mapping: &Mapping, graph: &Graph, head: LoopId) -> bool {
    let mut attributes = graph.attributes(mapping, head).iter();
    graph.tree.loop_(head).kind == LoopKind::Prange
        && attributes.any(|attribute| matches!(attribute.kind, AttributeKind::Persistent(_)))
}

/// True if the node belongs to the call.
fn of_call(graph: &Graph, id: NodeId, call: CallId) -> bool {
    let mut calls = std::iter::successors(Some(graph.node(id).call), |id| graph.tree.call(*id).parent);
    calls.any(|id| id == call)
}

/// Marks the nodes of a launch as late, the copies that only they read, and those of what only they write.
fn mark(graph: &mut Graph, late: &Move) {
    let inside: Vec<NodeId> = graph
        .ordered()
        .into_iter()
        .filter(|id| graph.tree.around(graph.node(*id).body).contains(&late.head))
        .collect();
    let mut moved: BTreeSet<NodeId> =
        inside.iter().copied().filter(|id| of_call(graph, *id, late.call)).collect();
    loop {
        // True if what touches a place in this way moves.
        let only_moved = |replica: ReplicaId, reads: bool| {
            let touches = |id: &&NodeId| {
                let node = graph.node(**id);
                if reads { node.reads(replica) } else { node.writes(replica) }
            };
            let mut users = inside.iter().filter(touches).peekable();
            users.peek().is_some() && users.all(|id| moved.contains(id))
        };
        let follows = inside.iter().copied().find(|id| {
            let node = graph.node(*id);
            match node.op {
                Op::Copy(from, to) if node.body == Some(late.head) && !moved.contains(id) => {
                    only_moved(to, true) || only_moved(from, false)
                }
                _ => false,
            }
        });
        match follows {
            Some(id) => moved.insert(id),
            None => break,
        };
    }
    for id in moved {
        let node = &mut graph.nodes[id.index()];
        match node.late.iter_mut().find(|row| row.head == late.head) {
            // Two launches are late, of which one launches the other.
            Some(row) => row.iterations += 1,
            None => node.late.push(Late { head: late.head, iterations: 1 }),
        }
    }
}

/// True if each iteration of the loop has contents of its own in the place.
pub(super) fn by_round(graph: &Graph, id: ReplicaId, head: LoopId) -> bool {
    let row = graph.replica(id);
    let counters = &graph.tree.loop_(head).counters;
    anew(graph, row.object, head)
        || graph.tree.around(row.scope).contains(&head)
        || (row.of.is_some() && counters.iter().any(|var| row.piece.depends(&graph.tree.vars, *var)))
}

/// Adds the edges that there are because the iterations of a loop have one buffer for what is each one's own: as long as nothing moves, the order of
/// iterations implies them. A ring has stages, and edges of its own.
fn reuse(mapping: &Mapping, graph: &Graph, head: LoopId, all: &mut BTreeSet<Dependence>) {
    let uses =
        |node: NodeId| graph.node(node).accesses.iter().filter_map(|access| Some((access, access.replica?)));
    let inside: Vec<NodeId> = graph
        .ordered()
        .into_iter()
        .filter(|id| graph.tree.around(graph.node(*id).body).contains(&head))
        .collect();
    for from in &inside {
        for to in inside.iter().filter(|to| graph.node(**to).late_in(head) < graph.node(*from).late_in(head))
        {
            for (before, replica) in uses(*from) {
                let on_chip =
                    matches!(graph.replica(replica).memory, Some(Memory::Shared | Memory::Register));
                let ring = sides(mapping, graph, replica).is_some_and(|ring| ring.head == Some(head));
                if !on_chip || ring || !by_round(graph, replica, head) {
                    continue;
                }
                let why = if before.reads { Why::Anti } else { Why::Output };
                if uses(*to).any(|(access, of)| of == replica && access.writes) {
                    let index = common(graph, *from, *to).iter().position(|id| *id == head).unwrap_or(0);
                    let mut distance = vec![0; index];
                    distance.push(1);
                    let edge = Edge { from: *from, to: *to, distance, why, event: Vec::new() };
                    all.insert((edge, Some(replica)));
                }
            }
        }
    }
}

/// The contents of a place, counted by the iterations of a loop.
#[derive(Clone, Copy)]
enum Versions {
    /// Each iteration has its own.
    Round,
    /// A statement at this place in the order, in every iteration, writes all of it without reading.
    From(usize),
}

impl Versions {
    /// The number of iterations before its own whose contents a node at this place in the order of the program uses.
    fn behind(self, place: usize) -> i64 {
        match self {
            Versions::From(first) if place < first => 1,
            _ => 0,
        }
    }
}

/// The versions of a place in a loop, where they can be told apart: stages make room for them.
fn versions(
    graph: &Graph,
    places: &BTreeMap<NodeId, usize>,
    id: ReplicaId,
    head: LoopId,
) -> Option<Versions> {
    let row = graph.replica(id);
    if !matches!(row.memory, Some(Memory::Shared | Memory::Register)) {
        return None;
    }
    if by_round(graph, id, head) {
        return Some(Versions::Round);
    }
    let overwrites = |node: &NodeId| {
        let node = graph.node(*node);
        let mut of = node.accesses.iter().filter(|access| access.replica == Some(id));
        node.body == Some(head)
            && of.next().is_some_and(|access| access.writes && !access.reads && access.piece.same(&row.piece))
            && of.next().is_none()
    };
    let mut first = places.iter().filter(|(node, _)| overwrites(node));
    match (first.next(), first.next()) {
        (Some((_, place)), None) => Some(Versions::From(*place)),
        _ => None,
    }
}

/// The edges after the moves, and the stages that they need.
struct Retimed {
    edges: BTreeSet<Edge>,
    stages: BTreeMap<ReplicaId, Stages>,
}

/// An edge within an iteration of the loops outside of one, as that loop has it.
struct InLoop {
    head: LoopId,
    /// The number of loops outside of it.
    index: usize,
    /// Iterations between the ends.
    iterations: i64,
    /// The iterations by which the second is late more than the first.
    shift: i64,
    /// The iterations of contents that its second end is ahead of the first beyond `iterations`, where they can be told apart.
    ahead: Option<i64>,
}

struct Retiming<'a> {
    program: &'a Program,
    graph: &'a Graph,
    moves: &'a [Move],
    places: &'a BTreeMap<NodeId, usize>,
}

impl Retiming<'_> {
    fn edges(&self, all: &BTreeSet<Dependence>) -> Result<Retimed, Diagnostics> {
        let mut stages: BTreeMap<ReplicaId, Stages> = BTreeMap::new();
        let mut errors: Vec<Diagnostic> = Vec::new();
        for (edge, replica) in all {
            let Some(of) = self.in_loop(edge, *replica) else { continue };
            if of.iterations + of.shift >= 0 {
                continue;
            }
            // The second end has other contents: with more stages both are there.
            let apart = of.ahead.filter(|ahead| of.iterations + ahead >= 1).zip(*replica);
            if let Some((ahead, replica)) = apart {
                let row = stages.entry(replica).or_insert(Stages { head: of.head, depth: 1 });
                if row.head == of.head {
                    row.depth = row.depth.max(ahead - of.shift);
                    continue;
                }
            }
            let error = self.negative(edge, *replica, &of);
            if errors.iter().all(|other| (&other.message, other.span) != (&error.message, error.span)) {
                errors.push(error);
            }
        }
        if !errors.is_empty() {
            return Err(Diagnostics(errors));
        }
        let edges = all.iter().map(|(edge, replica)| {
            let Some(of) = self.in_loop(edge, *replica) else { return edge.clone() };
            let depth = replica.and_then(|replica| stages.get(&replica)).filter(|row| row.head == of.head);
            let (mut iterations, mut why) = (of.iterations, edge.why);
            if let (Some(depth), Some(ahead)) = (depth, of.ahead)
                && iterations + ahead >= 1
            {
                iterations = iterations.max(depth.depth - ahead);
                why = if why == Why::True { Why::Output } else { why };
            }
            if (iterations, of.shift) == (of.iterations, 0) {
                return Edge { why, ..edge.clone() };
            }
            let mut distance = vec![0; of.index];
            distance.push(iterations + of.shift);
            if distance.iter().all(|iterations| *iterations == 0) {
                distance.clear();
            }
            Edge { distance, why, ..edge.clone() }
        });
        Ok(Retimed { edges: edges.collect(), stages })
    }

    /// An edge as the loop has it that moves its ends apart; without, as each loop of a move has it that carries it or is around its ends.
    fn in_loop(&self, edge: &Edge, replica: Option<ReplicaId>) -> Option<InLoop> {
        let loops = common(self.graph, edge.from, edge.to);
        let late = |id: NodeId, head: LoopId| self.graph.node(id).late_in(head);
        let shift = |head: LoopId| late(edge.to, head) - late(edge.from, head);
        let of_move = |head: &LoopId| self.moves.iter().any(|late| late.head == *head);
        let apart = loops.iter().position(|head| shift(*head) != 0);
        // An edge carried by an outer loop stays; one that an inner loop carries is within an iteration of this one.
        let carries = edge.distance.iter().position(|iterations| *iterations != 0);
        let index = match apart {
            Some(index) => index,
            None => carries.filter(|at| of_move(&loops[*at])).or(loops.iter().rposition(of_move))?,
        };
        if carries.is_some_and(|at| at != index) {
            return None;
        }
        let head = loops[index];
        let iterations = edge.distance.get(index).copied().unwrap_or(0);
        let ahead =
            replica.and_then(|replica| versions(self.graph, self.places, replica, head)).map(|versions| {
                versions.behind(self.places[&edge.from]) - versions.behind(self.places[&edge.to])
            });
        Some(InLoop { head, index, iterations, shift: shift(head), ahead })
    }

    /// The message on an edge that would lead to an earlier iteration.
    fn negative(&self, edge: &Edge, replica: Option<ReplicaId>, of: &InLoop) -> Diagnostic {
        let graph = self.graph;
        let late = self
            .moves
            .iter()
            .filter(|late| late.head == of.head)
            .find(|late| of_call(graph, edge.from, late.call))
            .or(self.moves.iter().find(|late| late.head == of.head));
        let (label, span) = late.map_or(("?", Origin::Unknown), |late| (&late.label, late.span));
        let other = name(self.program, graph, edge.to);
        let why = match (edge.why, replica) {
            (Why::True, _) | (_, None) => format!("{other} in the same iteration needs its result"),
            (_, Some(replica)) => format!(
                "{other} in the same iteration overwrites a part of `{}`, which it uses",
                graph.object(graph.replica(replica).object).name
            ),
        };
        let message = format!(
            "`late({label})`: {why} (distance {} would become {})",
            of.iterations,
            of.iterations + of.shift
        );
        let help = match edge.why {
            Why::True => "only what nothing else in the iteration waits for can be late",
            _ => "give one of the two a tensor of its own",
        };
        Diagnostic::new(Code::Late, span, message)
            .related(graph.node(edge.from).span, "late")
            .related(graph.node(edge.to).span, "in the same iteration")
            .help(help)
    }
}

/// A node, in messages.
fn name(program: &Program, graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match &node.op {
        Op::Copy(from, _) => format!("a copy of `{}`", graph.object(graph.replica(*from).object).name),
        Op::Statement { .. } => {
            let call = graph.tree.call(node.call);
            format!("`{}`", program.task(call.task).variant_name(call.variant))
        }
    }
}

/// Puts the items of the bodies of these loops into an order that edges within an iteration allow, and else that of before.
fn sort(items: &mut [Item], heads: &BTreeSet<LoopId>, edges: &BTreeSet<Edge>) -> Result<(), Diagnostic> {
    for item in items.iter_mut() {
        let Item::Loop(id, body) = item else { continue };
        sort(body, heads, edges)?;
        if !heads.contains(id) {
            continue;
        }
        let at: BTreeMap<NodeId, usize> = body
            .iter()
            .enumerate()
            .flat_map(|(at, item)| item.nodes().into_iter().map(move |id| (id, at)))
            .collect();
        let waits: BTreeSet<(usize, usize)> = edges
            .iter()
            .filter(|edge| edge.distance.iter().all(|iterations| *iterations == 0))
            .filter_map(|edge| Some((*at.get(&edge.from)?, *at.get(&edge.to)?)))
            .filter(|(from, to)| from != to)
            .collect();
        let mut left: BTreeSet<usize> = (0..body.len()).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let ready = |to: &usize| !waits.iter().any(|(from, of)| of == to && left.contains(from));
            let Some(next) = left.iter().copied().find(ready) else {
                return Err(Diagnostic::internal(
                    Origin::Unknown,
                    "items of an iteration wait for each other",
                ));
            };
            left.remove(&next);
            order.push(next);
        }
        let mut taken: Vec<Option<Item>> = std::mem::take(body).into_iter().map(Some).collect();
        body.extend(order.into_iter().filter_map(|at| taken[at].take()));
    }
    Ok(())
}
