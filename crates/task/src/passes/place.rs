//! Placement: which places of an object there are, and which copies between them. Needs: dependences and joining, by which two loops that share
//! a piece out alike use one replica. Keeps: the order of statements; the edges are those of the places that statements then use.
//!
//! A program is by reference, so a replica exists only where the mapping changes the memory: each link of a tensor's chain of memories that
//! differs from the one before is a class of uses. Which copies its replica needs is the solution of [`equations`], one system a place that
//! has replicas; nothing is rewritten, so no order of rules matters.

pub mod equations;

mod problem;

use std::collections::BTreeMap;

use tilewright_machine::{Feature, Memory, Processor};
use tilewright_tile::statement::StmtKind;
use tilewright_tile::{Code, Diagnostic, Diagnostics};

use super::depend::edges;
use super::join::shared_out;
use crate::graph::{
    Access, Direction, Graph, Item, Node, NodeId, Op, Replica, ReplicaId, Role, Spread, Verdict,
};
use crate::instantiate::{Argument, CallId, LoopId, ObjectId};
use crate::mapping::Placement;
use crate::piece::{Cover, Piece};
use crate::program::{LeafFormal, Program};
use problem::{Anchor, Use};

/// A link of a chain of memories: from here down the piece is in this memory.
#[derive(Clone, PartialEq, Debug)]
struct Link {
    memory: Memory,
    piece: Piece,
    /// The way in which processors share the piece.
    spread: Spread,
    /// The call and formal that says so; nothing of a statement that works on registers.
    by: Option<(CallId, usize)>,
}

/// Places the objects of a graph.
///
/// # Errors
///
/// `none`: a tensor of a body whose uses want it in different memories, with no memory of its own.
pub fn place(program: &Program, graph: &mut Graph) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    let mut placed = Placed { copies: Vec::new(), links: BTreeMap::new() };
    for id in 0..graph.objects.len() {
        if let Err(error) = object(program, graph, ObjectId(id as u32), &mut placed) {
            errors.push(error);
        }
    }
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    verdicts(graph, &placed);
    insert(graph, placed.copies);
    graph.edges = edges(graph);
    Ok(())
}

/// Copies and replicas that placement finds, before it is put into the graph.
struct Placed {
    copies: Vec<CopyAt>,
    /// The replica to which a call's formal changes.
    links: BTreeMap<(CallId, usize), ReplicaId>,
}

/// A copy and its place.
#[derive(Clone, Copy, PartialEq, Debug)]
struct CopyAt {
    direction: Direction,
    /// The replica; the other side is what it is a copy of.
    replica: ReplicaId,
    anchor: Anchor,
}

/// The uses of an object: the node, the number of its access, and the links below the object's own place.
fn uses(program: &Program, graph: &Graph, id: ObjectId) -> Result<(Memory, Vec<Use>), Diagnostic> {
    let mut found: Vec<(NodeId, usize, Vec<Link>)> = Vec::new();
    for node in graph.ordered() {
        for (at, access) in graph.node(node).accesses.iter().enumerate() {
            if access.object == id {
                found.push((node, at, chain(graph, node, access)));
            }
        }
    }
    let object = graph.object(id);
    let row = graph.tree.objects.get(id.index());
    let home = match row.map(|row| row.placement) {
        Some(Placement::In(memory)) => memory,
        _ => {
            // The memory that its uses give it first.
            let mut firsts: Vec<&Link> = Vec::new();
            for (.., links) in &found {
                let first = links.iter().find(|link| link.by.is_some());
                firsts.extend(first.filter(|first| firsts.iter().all(|f| f.memory != first.memory)));
            }
            if let [first, second, ..] = firsts[..] {
                return Err(disagree(program, graph, id, first, second));
            }
            firsts.first().map_or(Memory::Register, |first| first.memory)
        }
    };
    let own = Link { memory: home, piece: Piece::whole(&object.extents), spread: Spread::new(), by: None };
    let uses = found.into_iter().map(|(node, at, links)| {
        let mut chain: Vec<Link> = Vec::new();
        let access = &graph.node(node).accesses[at];
        // A statement works on registers, but for what it takes from shared memory.
        let last = links.last().map_or(home, |link| link.memory);
        let there = last == Memory::Shared && direct(program, graph, graph.node(node), access);
        let registers = (!there).then(|| {
            let (piece, spread) = (access.piece.clone(), access.spread.clone());
            Link { memory: Memory::Register, piece, spread, by: None }
        });
        for link in links.into_iter().chain(registers) {
            if chain.last().unwrap_or(&own).memory != link.memory {
                chain.push(link);
            }
        }
        Use { node, access: at, chain }
    });
    Ok((home, uses.collect()))
}

fn disagree(program: &Program, graph: &Graph, id: ObjectId, first: &Link, second: &Link) -> Diagnostic {
    let object = graph.object(id);
    let said = |link: &Link| {
        let call = link.by.map(|(call, _)| graph.tree.call(call));
        let name = call.map(|call| format!("`{}`", program.task(call.task).variant_name(call.variant)));
        (
            call.map_or(object.span, |call| call.span),
            format!("{} in {}", name.unwrap_or_default(), link.memory),
        )
    };
    let ((a, first_text), (b, second_text)) = (said(first), said(second));
    let message = format!(
        "`{}` has no memory of its own, and two uses disagree: {first_text}, {second_text}",
        object.name
    );
    Diagnostic::new(Code::None, object.span, message)
        .related(a, first_text)
        .related(b, second_text)
        .help(format!("give it one in the row of its variant: `local({} = {})`", object.name, first.memory))
}

/// The links of an access: the memories that the calls give it.
fn chain(graph: &Graph, node: NodeId, access: &Access) -> Vec<Link> {
    let row = graph.node(node);
    let call = graph.tree.call(row.call);
    let mut vars = graph.tree.vars.clone();
    let mut links = Vec::new();
    if let Some(Argument::Tensor(tensor)) = access.formal.and_then(|formal| call.arguments.get(formal)) {
        for placed in &tensor.chain {
            if let Placement::In(memory) = placed.placement {
                let by = Some((placed.call, placed.formal));
                let (piece, spread) = shared_out(graph, &placed.piece, &mut vars);
                links.push(Link { memory, piece, spread, by });
            }
        }
    }
    links
}

/// True if the statement takes the operand from shared memory: factors of a product that whole warpgroups do (PTX ISA 9.7.15, `wgmma`). The
/// metadata of a sparse factor are in registers (`sp-meta` of `wgmma.mma_async.sp`).
fn direct(program: &Program, graph: &Graph, node: &Node, access: &Access) -> bool {
    let call = graph.tree.call(node.call);
    let Some(leaf) = program.task(call.task).variant(call.variant).leaf() else { return false };
    let Op::Statement { number, .. } = &node.op else { return false };
    let Some(StmtKind::Gemm { meta, scales: None, .. }) =
        leaf.fragment.body.get(*number).map(|stmt| &stmt.kind)
    else {
        return false;
    };
    let formal = access.formal.and_then(|formal| leaf.formals.get(formal));
    let metadata = meta.is_some_and(|meta| formal == Some(&LeafFormal::Tensor(meta)));
    !metadata && !access.writes && node.at <= Processor::Warpgroup && graph.tree.arch.has(Feature::Wgmma)
}

fn object(program: &Program, graph: &mut Graph, id: ObjectId, placed: &mut Placed) -> Result<(), Diagnostic> {
    let (memory, uses) = uses(program, graph, id)?;
    let object = graph.object(id);
    let (param, body) = (object.param, object.body);
    let piece = Piece::whole(&object.extents);
    let home = replica(
        graph,
        Replica {
            object: id,
            piece,
            memory: Some(memory),
            spread: Vec::new(),
            of: None,
            scope: body,
            stages: None,
        },
    );
    let written = uses.iter().any(|u| graph.node(u.node).accesses[u.access].writes);
    let wanted = param && written;
    below(graph, home, 0, &uses, None, wanted, placed);
    Ok(())
}

fn replica(graph: &mut Graph, replica: Replica) -> ReplicaId {
    graph.replicas.push(replica);
    ReplicaId(graph.replicas.len() as u32 - 1)
}

/// A memory, and a piece in it.
#[derive(Clone, PartialEq, Debug)]
struct Group {
    memory: Memory,
    piece: Piece,
    /// The way in which processors share it, in registers.
    spread: Spread,
    /// The loops around all of its uses.
    around: Vec<LoopId>,
}

impl Group {
    fn of(graph: &Graph, node: NodeId, link: &Link) -> Group {
        let around = graph.tree.around(graph.node(node).body);
        let spread = if link.memory == Memory::Register { link.spread.clone() } else { Spread::new() };
        Group { memory: link.memory, piece: link.piece.clone(), spread, around }
    }

    /// True if uses of this one may use the place of another: it has every element, and does not depend on counters that they are not in.
    fn within(&self, outer: &Group, graph: &Graph) -> bool {
        self.fits(outer)
            && self.piece.contained(&outer.piece, &graph.tree.vars) == Cover::Yes
            && problem::dependences(graph, &outer.piece).iter().all(|id| self.around.contains(&LoopId(*id)))
    }

    /// True if both may be in one place, as far as memory and spread go.
    fn fits(&self, other: &Group) -> bool {
        let open = self.spread.is_empty() || other.spread.is_empty();
        self.memory == other.memory && (open || self.spread == other.spread)
    }
}

/// Places what is below a place: uses whose chains are `depth` links long use it itself, the others have a class for the next link.
fn below(
    graph: &mut Graph,
    home: ReplicaId,
    depth: usize,
    uses: &[Use],
    around: Option<&[problem::Item]>,
    wanted: bool,
    placed: &mut Placed,
) {
    // Pieces in one memory: the largest of those that contain each other stands for all. Registers are of threads, so that a spread is part of
    // the place; one that synthesis decides is whichever another use has.
    let mut groups: Vec<Group> = Vec::new();
    for (u, link) in uses.iter().filter_map(|u| Some((u, u.chain.get(depth)?))) {
        let group = Group::of(graph, u.node, link);
        match groups.iter_mut().find(|other| other.fits(&group) && other.piece.same(&group.piece)) {
            Some(other) => {
                other.around.retain(|id| group.around.contains(id));
                if other.spread.is_empty() {
                    other.spread = group.spread;
                }
            }
            None => groups.push(group),
        }
    }
    let largest: Vec<usize> = (0..groups.len())
        .filter(|at| {
            let beyond = |other: usize| {
                other != *at
                    && groups[*at].within(&groups[other], graph)
                    && (other < *at || !groups[other].within(&groups[*at], graph))
            };
            !(0..groups.len()).any(beyond)
        })
        .collect();
    let classes: Vec<Group> = largest.iter().map(|at| groups[*at].clone()).collect();
    let class_of = |u: &Use| {
        let group = Group::of(graph, u.node, u.chain.get(depth)?);
        let same = |class: &Group| class.fits(&group) && class.piece.same(&group.piece);
        let contains = |class: &Group| group.within(class, graph);
        classes.iter().position(same).or_else(|| classes.iter().position(contains))
    };
    let class: Vec<Option<usize>> = uses.iter().map(class_of).collect();
    let pieces: Vec<Piece> = classes.iter().map(|class| class.piece.clone()).collect();
    let solved = problem::solve(graph, home, &pieces, uses, &class, around, wanted);

    let ids: Vec<ReplicaId> = classes
        .iter()
        .zip(&solved)
        .map(|(class, found)| {
            let Group { memory, piece, spread, .. } = class.clone();
            let object = graph.replica(home).object;
            let of = Some(home);
            let (memory, scope) = (Some(memory), found.scope);
            replica(graph, Replica { object, piece, memory, spread, of, scope, stages: None })
        })
        .collect();
    for (found, id) in solved.iter().zip(&ids) {
        placed.copies.extend(found.ins.iter().map(|at| CopyAt {
            direction: Direction::In,
            replica: *id,
            anchor: *at,
        }));
        placed.copies.extend(found.outs.iter().map(|at| CopyAt {
            direction: Direction::Out,
            replica: *id,
            anchor: *at,
        }));
    }
    for (u, class) in uses.iter().zip(&class) {
        let id = class.map_or(home, |class| ids[class]);
        graph.nodes[u.node.index()].accesses[u.access].replica = Some(id);
        if let (Some(class), Some(by)) = (class, u.chain.get(depth).and_then(|link| link.by)) {
            placed.links.insert(by, ids[*class]);
        }
    }
    for (at, (found, id)) in solved.into_iter().zip(ids).enumerate() {
        let inner: Vec<Use> = uses
            .iter()
            .zip(&class)
            .filter(|(_, class)| **class == Some(at))
            .map(|(u, _)| u.clone())
            .collect();
        if inner.iter().any(|u| u.chain.len() > depth + 1) {
            below(graph, id, depth + 1, &inner, Some(&found.items), false, placed);
        }
    }
}

/// The verdict on each candidate: whether its link is a change of place, and where the copy for it is, if there is one.
fn verdicts(graph: &mut Graph, placed: &Placed) {
    let mut candidates = std::mem::take(&mut graph.candidates);
    for candidate in &mut candidates {
        candidate.verdict = match placed.links.get(&(candidate.call, candidate.formal)) {
            None => Verdict::ByReference,
            Some(replica) => verdict(graph, placed, candidate.call, *replica, candidate.direction),
        };
    }
    graph.candidates = candidates;
}

fn verdict(
    graph: &Graph,
    placed: &Placed,
    call: CallId,
    replica: ReplicaId,
    direction: Direction,
) -> Verdict {
    let row = graph.replica(replica);
    let from = row.of.and_then(|of| graph.replica(of).memory);
    let (Some(from), Some(to)) = (from, row.memory) else { return Verdict::ByReference };
    let around = graph.tree.around(graph.tree.call(call).body);
    let inside =
        |of: CallId| std::iter::successors(Some(of), |id| graph.tree.call(*id).parent).any(|id| id == call);
    let mut found = match direction {
        Direction::In => Verdict::AlreadyThere,
        Direction::Out => Verdict::NobodyReads,
    };
    for copy in placed.copies.iter().filter(|copy| copy.replica == replica && copy.direction == direction) {
        let here = match copy.anchor {
            Anchor::Node(node) => inside(graph.node(node).call),
            Anchor::Loop(id) => inside(graph.tree.loop_(id).call) && !around.contains(&id),
        };
        if here {
            return match direction {
                Direction::In => Verdict::Kept(from, to),
                Direction::Out => Verdict::Kept(to, from),
            };
        }
        if let Anchor::Loop(id) = copy.anchor
            && around.contains(&id)
        {
            found = Verdict::Outside(id);
        }
    }
    found
}

/// Puts the copies into the graph, each at its place.
fn insert(graph: &mut Graph, copies: Vec<CopyAt>) {
    let mut before: BTreeMap<Anchor, Vec<NodeId>> = BTreeMap::new();
    let mut behind: BTreeMap<Anchor, Vec<NodeId>> = BTreeMap::new();
    for copy in copies {
        let row = graph.replica(copy.replica).clone();
        let Some(of) = row.of else { continue };
        let (from, to) = match copy.direction {
            Direction::In => (of, copy.replica),
            Direction::Out => (copy.replica, of),
        };
        let (call, body) = match copy.anchor {
            Anchor::Node(node) => (graph.node(node).call, graph.node(node).body),
            Anchor::Loop(id) => (graph.tree.loop_(id).call, graph.tree.loop_(id).parent),
        };
        // Registers are read and written by those who hold them.
        let spread = row.spread.clone();
        let access = |replica: ReplicaId, reads: bool| Access {
            object: row.object,
            piece: row.piece.clone(),
            formal: None,
            own: None,
            reads,
            writes: !reads,
            replica: Some(replica),
            behind: 0,
            spread: spread.clone(),
        };
        let row_of_call = graph.tree.call(call);
        graph.nodes.push(Node {
            op: Op::Copy(from, to),
            at: row_of_call.processor,
            role: Role::Compute,
            body,
            late: Vec::new(),
            when: Vec::new(),
            waits: Vec::new(),
            accesses: vec![access(from, true), access(to, false)],
            call,
            span: row_of_call.span,
        });
        let id = NodeId(graph.nodes.len() as u32 - 1);
        // Outer places come first into inner ones, and last out of them.
        match copy.direction {
            Direction::In => before.entry(copy.anchor).or_default().push(id),
            Direction::Out => behind.entry(copy.anchor).or_default().insert(0, id),
        }
    }
    let order = std::mem::take(&mut graph.order);
    graph.order = with_copies(order, &before, &behind);
}

fn with_copies(
    items: Vec<Item>,
    before: &BTreeMap<Anchor, Vec<NodeId>>,
    behind: &BTreeMap<Anchor, Vec<NodeId>>,
) -> Vec<Item> {
    let mut out = Vec::new();
    for item in items {
        let (anchor, item) = match item {
            Item::Node(id) => (Anchor::Node(id), Item::Node(id)),
            Item::Loop(id, items) => (Anchor::Loop(id), Item::Loop(id, with_copies(items, before, behind))),
        };
        let copies = |map: &BTreeMap<Anchor, Vec<NodeId>>| -> Vec<Item> {
            map.get(&anchor).into_iter().flatten().map(|id| Item::Node(*id)).collect()
        };
        let (first, last) = (copies(before), copies(behind));
        out.extend(first);
        out.push(item);
        out.extend(last);
    }
    out
}
