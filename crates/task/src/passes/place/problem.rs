//! The equations' terms for a place in a graph: its uses as accesses, pieces as sets of atoms, and the answers as positions in the graph.

use std::collections::{BTreeMap, BTreeSet};

use super::Link;
use super::equations::{Atoms, Class, ClassIx, Problem, Stmt};
use crate::graph::{self, Graph, NodeId, ReplicaId};
use crate::instantiate::LoopId;
use crate::piece::{Cover, Meeting, Piece, Relation, Var};
use crate::program::LoopKind;
use tilewright_machine::Processor;

/// A use of an object: an access of a node, with the memories below the object's own place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Use {
    /// The node.
    pub node: NodeId,
    /// The number of the access.
    pub access: usize,
    /// The links.
    pub chain: Vec<Link>,
}

/// A position in the graph: before or behind this item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) enum Anchor {
    /// A node.
    Node(NodeId),
    /// A loop.
    Loop(LoopId),
}

/// An item of the program as one place sees it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Item {
    /// A node that uses it.
    Node(NodeId),
    /// A loop with such nodes.
    Loop(LoopId, Vec<Item>),
    /// A copy of all of it: from outside if it writes the place, else to outside.
    Copy {
        /// It writes the place.
        writes: bool,
    },
}

/// The answer for a class.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    /// The copies in stand before these.
    pub ins: Vec<Anchor>,
    /// The copies out stand behind these.
    pub outs: Vec<Anchor>,
    /// The innermost loop around all of them.
    pub scope: Option<LoopId>,
    /// The program as the class's replica sees it.
    pub items: Vec<Item>,
}

/// Elements that are told apart one by one.
const ELEMENTS: i64 = 1 << 12;

/// Solves the equations of a place for these classes below it. `class` says which each use is of; those of none use the place itself.
pub(super) fn solve(
    graph: &Graph,
    home: ReplicaId,
    classes: &[Piece],
    uses: &[Use],
    class: &[Option<usize>],
    around: Option<&[Item]>,
    wanted: bool,
) -> Vec<Found> {
    if classes.is_empty() {
        return Vec::new();
    }
    // Uses of the place itself are classes, too, one a piece.
    let mut pieces: Vec<Piece> = classes.to_vec();
    let mut of_use: BTreeMap<(NodeId, usize), ClassIx> = BTreeMap::new();
    for (u, class) in uses.iter().zip(class) {
        let piece = &graph.node(u.node).accesses[u.access].piece;
        let at = class.unwrap_or_else(|| {
            let known = pieces.iter().skip(classes.len()).position(|other| other.same(piece));
            known.map(|at| at + classes.len()).unwrap_or_else(|| {
                pieces.push(piece.clone());
                pieces.len() - 1
            })
        });
        of_use.insert((u.node, u.access), at);
    }
    pieces.push(graph.replica(home).piece.clone());
    let whole = pieces.len() - 1;
    let (atoms, exact) = atoms(&pieces, &graph.replica(home).piece);
    let table = pieces.iter().enumerate().map(|(at, piece)| Class {
        home: at >= classes.len(),
        atoms: atoms[at],
        exact: exact[at],
        depends: dependences(graph, piece),
    });
    let table: Vec<Class> = table.collect();
    let (mut apart, mut holds) = (Vec::new(), Vec::new());
    for a in 0..pieces.len() {
        for b in 0..pieces.len() {
            if a < b
                && pieces[a].meets(&pieces[b], &graph.tree.vars, |var| relation(graph, var)) == Meeting::Apart
            {
                apart.push((a, b));
            }
            if a != b && pieces[b].contained(&pieces[a], &graph.tree.vars) == Cover::Yes {
                holds.push((a, b));
            }
        }
    }
    let all: Vec<Item>;
    let items = match around {
        Some(items) => items,
        None => {
            let nodes: BTreeSet<NodeId> = uses.iter().map(|u| u.node).collect();
            all = seen(&graph.order, &nodes);
            &all
        }
    };
    // Inside another replica, what is below stays within its scope.
    let floor = around.map_or(0, |_| graph.tree.around(graph.replica(home).scope).len());
    let body = statements(graph, items, &Terms { of_use: &of_use, pieces: &pieces, whole, floor });
    let problem = Problem { classes: table, apart, holds, body, wanted };
    let solution = problem.solve();
    (0..classes.len())
        .map(|class| {
            let mut found = Found { ins: Vec::new(), outs: Vec::new(), scope: None, items: Vec::new() };
            positions(&solution, class, &mut found);
            let nodes: BTreeSet<NodeId> =
                of_use.iter().filter(|(_, of)| **of == class).map(|((node, _), _)| *node).collect();
            found.items = replica_items(&solution, class, &nodes);
            found.scope = scope(graph, &problem, class, &found, &nodes);
            found
        })
        .collect()
}

/// The loops on whose counters a piece depends.
pub(super) fn dependences(graph: &Graph, piece: &Piece) -> Vec<u32> {
    let loops = graph.tree.loops.iter().enumerate();
    let depends = |counters: &[Var]| counters.iter().any(|var| piece.depends(&graph.tree.vars, *var));
    loops.filter(|(_, row)| depends(&row.counters)).map(|(id, _)| id as u32).collect()
}

/// Iterations of a `prange` are apart as it is; two iterations of another loop may be compared.
fn relation(graph: &Graph, var: Var) -> Relation {
    let serial =
        |row: &&crate::instantiate::Loop| row.kind == LoopKind::Srange && row.counters.contains(&var);
    if graph.tree.loops.iter().any(|row| serial(&row)) { Relation::Any } else { Relation::Same }
}

/// The items of the graph's order that use the place.
fn seen(items: &[graph::Item], nodes: &BTreeSet<NodeId>) -> Vec<Item> {
    let mut out = Vec::new();
    for item in items {
        match item {
            graph::Item::Node(id) if nodes.contains(id) => out.push(Item::Node(*id)),
            graph::Item::Node(_) => {}
            graph::Item::Loop(id, items) => {
                let inner = seen(items, nodes);
                if !inner.is_empty() {
                    out.push(Item::Loop(*id, inner));
                }
            }
        }
    }
    out
}

/// A copy of the whole place, as an access.
const COPY: u32 = u32::MAX;

/// The terms of a problem that statements need.
struct Terms<'a> {
    /// The class of each use.
    of_use: &'a BTreeMap<(NodeId, usize), ClassIx>,
    /// The pieces of the classes.
    pieces: &'a [Piece],
    /// The class of the place itself.
    whole: ClassIx,
    /// The loops, from the outside, that replicas do not leave.
    floor: usize,
}

fn statements(graph: &Graph, items: &[Item], terms: &Terms<'_>) -> Vec<Stmt> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Loop(id, items) => out.push(Stmt::Loop {
                id: id.0,
                runs: graph.tree.runs(*id),
                body: statements(graph, items, terms),
            }),
            Item::Copy { writes } => out.push(Stmt::Access {
                id: COPY,
                class: terms.whole,
                reads: !writes,
                writes: *writes,
                whole: true,
                floor: terms.floor,
            }),
            Item::Node(id) => {
                // A statement reads before it writes.
                let accesses = graph.node(*id).accesses.iter().enumerate();
                let uses = accesses.filter_map(|(at, access)| Some((access, *terms.of_use.get(&(*id, at))?)));
                let uses: Vec<_> = uses.collect();
                let floor = terms.floor.max(outside(graph, graph.node(*id).body));
                let mut add = |access: &graph::Access, class: ClassIx, reads: bool, writes: bool| {
                    let whole = access.piece.same(&terms.pieces[class]);
                    // Who writes a part leaves the others as they were.
                    let reads = reads || (writes && !whole);
                    out.push(Stmt::Access { id: id.0, class, reads, writes, whole, floor });
                };
                if let [(access, class)] = uses[..] {
                    add(access, class, access.reads, access.writes);
                } else {
                    let reading = uses.iter().filter(|(access, _)| access.reads);
                    reading.for_each(|(access, class)| add(access, *class, true, false));
                    let writing = uses.iter().filter(|(access, _)| access.writes);
                    writing.for_each(|(access, class)| add(access, *class, false, true));
                }
            }
        }
    }
    out
}

/// The loops around a body that are above the block, where no replica lives: memories below the global one are of a block.
fn outside(graph: &Graph, body: Option<LoopId>) -> usize {
    let above = |id: &LoopId| graph.tree.call(graph.tree.loop_(*id).call).processor < Processor::Block;
    graph.tree.around(body).iter().take_while(|id| above(id)).count()
}

/// The positions of the copies of a class: in front of the next statement, behind the last.
fn positions(body: &[Stmt], class: ClassIx, found: &mut Found) {
    let anchor = |stmt: &Stmt| match stmt {
        Stmt::Access { id, .. } if *id != COPY => Some(Anchor::Node(NodeId(*id))),
        Stmt::Loop { id, .. } => Some(Anchor::Loop(LoopId(*id))),
        _ => None,
    };
    for (at, stmt) in body.iter().enumerate() {
        match stmt {
            Stmt::In(of) if *of == class => found.ins.extend(body[at..].iter().find_map(anchor)),
            Stmt::Out(of) if *of == class => found.outs.extend(body[..at].iter().rev().find_map(anchor)),
            Stmt::Loop { body, .. } => positions(body, class, found),
            _ => {}
        }
    }
}

/// The program as the replica of a class sees it: its uses, and the copies in and out.
fn replica_items(body: &[Stmt], class: ClassIx, nodes: &BTreeSet<NodeId>) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::new();
    for stmt in body {
        match stmt {
            Stmt::In(of) if *of == class => out.push(Item::Copy { writes: true }),
            Stmt::Out(of) if *of == class => out.push(Item::Copy { writes: false }),
            // One node may use several classes: it is one item.
            Stmt::Access { id, .. }
                if nodes.contains(&NodeId(*id)) && out.last() != Some(&Item::Node(NodeId(*id))) =>
            {
                out.push(Item::Node(NodeId(*id)));
            }
            Stmt::Loop { id, body, .. } => {
                let inner = replica_items(body, class, nodes);
                if !inner.is_empty() {
                    out.push(Item::Loop(LoopId(*id), inner));
                }
            }
            _ => {}
        }
    }
    out
}

/// The innermost loop in which all copies and uses of the class are, once each use is moved out of the loops through which the replica stays.
fn scope(
    graph: &Graph,
    problem: &Problem,
    class: ClassIx,
    found: &Found,
    nodes: &BTreeSet<NodeId>,
) -> Option<LoopId> {
    let mut bodies: Vec<Vec<LoopId>> = Vec::new();
    for anchor in found.ins.iter().chain(&found.outs) {
        bodies.push(match anchor {
            Anchor::Node(node) => graph.tree.around(graph.node(*node).body),
            Anchor::Loop(id) => graph.tree.around(graph.tree.loop_(*id).parent),
        });
    }
    for node in nodes {
        let mut around = graph.tree.around(graph.node(*node).body);
        let floor = outside(graph, graph.node(*node).body);
        while let Some(last) = around.get(floor..).and_then(|inner| inner.last()) {
            let stays = loop_of(&problem.body, last.0)
                .is_some_and(|(runs, body)| problem.stays(class, last.0, runs, body));
            if !stays {
                break;
            }
            around.pop();
        }
        bodies.push(around);
    }
    let first = bodies.first()?.clone();
    let common = bodies.iter().fold(first, |common, body| {
        common.into_iter().zip(body).take_while(|(a, b)| a == *b).map(|(a, _)| a).collect()
    });
    common.last().copied()
}

fn loop_of(body: &[Stmt], id: u32) -> Option<(bool, &[Stmt])> {
    body.iter().find_map(|stmt| match stmt {
        Stmt::Loop { id: at, runs, body } if *at == id => Some((*runs, &body[..])),
        Stmt::Loop { body, .. } => loop_of(body, id),
        _ => None,
    })
}

/// The elements of each piece as bits, one for all elements that no piece tells apart, and which pieces have theirs always.
fn atoms(pieces: &[Piece], whole: &Piece) -> (Vec<Atoms>, Vec<bool>) {
    let is_whole: Vec<bool> = pieces.iter().map(|piece| piece.same(whole)).collect();
    let known = |piece: &Piece| {
        piece.vars().is_empty() && piece.guards().is_empty() && piece.size().is_some_and(|n| n <= ELEMENTS)
    };
    let elements: Vec<Option<BTreeSet<Vec<i64>>>> = pieces
        .iter()
        .zip(&is_whole)
        .map(|(piece, whole)| if *whole || !known(piece) { None } else { piece.elements() })
        .collect();
    // The pieces that have an element, for each that one tells apart.
    let mut told: BTreeMap<&Vec<i64>, Vec<usize>> = BTreeMap::new();
    for (at, elements) in elements.iter().enumerate() {
        elements.iter().flatten().for_each(|element| told.entry(element).or_default().push(at));
    }
    let kinds: BTreeSet<&Vec<usize>> = told.values().collect();
    // The first bit is for what no piece tells apart.
    if kinds.len() > 62 {
        return (vec![1; pieces.len()], is_whole);
    }
    let everything = (1u64 << (kinds.len() + 1)) - 1;
    let bits = |at: usize| {
        kinds
            .iter()
            .enumerate()
            .filter(|(_, kind)| kind.contains(&at))
            .fold(0, |bits, (k, _)| bits | 2u64 << k)
    };
    let atoms = elements.iter().enumerate().map(|(at, e)| if e.is_some() { bits(at) } else { everything });
    let exact = elements.iter().zip(&is_whole).map(|(elements, whole)| elements.is_some() || *whole);
    (atoms.collect(), exact.collect())
}
