//! Dependence analysis: nodes of the statements of leaves, and an edge between two that touch a common element of which one writes it.
//! Needs: an instantiated tree. Keeps: the order of the program, as the order of the nodes.
//!
//! Two statements depend on each other unless their pieces are apart in the iterations in question; that question is one linear system
//! ([`Piece::meets`](crate::piece::Piece::meets)), asked for the same iteration and for a later iteration of each loop around both. The same
//! question, for different iterations of a `prange`, decides if it may be parallel.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_tile::statement::{Operand, StmtKind};
use tilewright_tile::{Code, Diagnostic, Diagnostics, Stmt, TensorId, TensorKind, named_statement_text};

use crate::graph::{
    Access, Candidate, Direction, Edge, Graph, Item, Node, NodeId, Object, Op, ReplicaId, Role, Verdict, Why,
};
use crate::instantiate::{self, Argument, CallId, LoopId, ObjectId, Tree};
use crate::leaf::transposed;
use crate::partition::Extent;
use crate::piece::{Affine, Meeting, Piece, Relation, Var, Witness};
use crate::program::{Leaf, LeafFormal, LoopKind, Program};

/// Iterations of a loop that are asked for one by one for the distance of a dependence; what is further apart waits for the iteration before.
const ROUNDS: i64 = 4;

/// The event graph of a tree.
///
/// # Errors
///
/// `parallel-writes`: iterations of a `prange` that may touch one element, of which one writes it. `not-written`: a tensor of the kernel's own that is read, and that no statement before writes.
pub fn depend(program: &Program, tree: Tree) -> Result<Graph, Diagnostics> {
    let objects = tree.objects.iter().map(|object| Object {
        name: object.name.clone(),
        param: object.param.is_some(),
        dtype: object.dtype,
        extents: object.extents.clone(),
        body: object.body,
        span: object.span,
    });
    let mut graph = Graph {
        objects: objects.collect(),
        replicas: Vec::new(),
        nodes: Vec::new(),
        order: Vec::new(),
        edges: Vec::new(),
        rings: Vec::new(),
        ends: BTreeMap::new(),
        dealt: BTreeMap::new(),
        shared: Vec::new(),
        fragments: Vec::new(),
        candidates: Vec::new(),
        tree,
    };
    let root = graph.tree.root.clone();
    graph.order = items(program, &mut graph, &[root]).map_err(|error| Diagnostics(vec![error]))?;
    candidates(&mut graph);
    let mut errors = unwritten(program, &graph);
    errors.extend(parallel_writes(program, &graph));
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    graph.edges = edges(&graph);
    Ok(graph)
}

fn items(program: &Program, graph: &mut Graph, list: &[instantiate::Item]) -> Result<Vec<Item>, Diagnostic> {
    let mut out = Vec::new();
    for item in list {
        match item {
            instantiate::Item::Loop(id, body) => out.push(Item::Loop(*id, items(program, graph, body)?)),
            instantiate::Item::Call(_, body) => out.extend(items(program, graph, body)?),
            instantiate::Item::Leaf(id) => out.extend(leaf(program, graph, *id)?),
        }
    }
    Ok(out)
}

/// The statements of a leaf as nodes. Its own tensors become objects.
fn leaf(program: &Program, graph: &mut Graph, id: CallId) -> Result<Vec<Item>, Diagnostic> {
    let call = graph.tree.call(id).clone();
    let variant = program.task(call.task).variant(call.variant);
    let Some(leaf) = variant.leaf() else {
        return Err(Diagnostic::internal(call.span, "a leaf is no leaf"));
    };
    // What each tensor of the fragment stands for.
    let mut bound: Vec<Option<(ObjectId, Piece, Option<usize>)>> = vec![None; leaf.fragment.tensors.len()];
    for (formal, (meaning, argument)) in leaf.formals.iter().zip(&call.arguments).enumerate() {
        if let (LeafFormal::Tensor(tensor), Argument::Tensor(given)) = (meaning, argument) {
            bound[tensor.0 as usize] = Some((given.object, given.piece.clone(), Some(formal)));
        }
    }
    let views = transposed(leaf);
    let mut out = Vec::new();
    for (number, stmt) in leaf.fragment.body.iter().enumerate() {
        if let StmtKind::Shape { dst, src, .. } = &stmt.kind
            && views.get(dst) == Some(src)
        {
            bound[dst.0 as usize] = bound[src.0 as usize].clone();
            continue;
        }
        let mut used: Vec<(TensorId, bool, bool)> = Vec::new();
        operands(stmt, false, &mut used);
        let mut accesses: Vec<Access> = Vec::new();
        for (tensor, reads, writes) in used {
            let tensor = whole(leaf, tensor);
            let (object, piece, formal) = match bound[tensor.0 as usize].clone() {
                Some(meaning) => meaning,
                None => {
                    let meaning = own(leaf, tensor, graph, call.body);
                    bound[tensor.0 as usize] = Some(meaning.clone());
                    meaning
                }
            };
            match accesses.iter_mut().find(|access| access.object == object && access.formal == formal) {
                Some(access) => {
                    access.reads |= reads;
                    access.writes |= writes;
                }
                None => accesses.push(Access {
                    object,
                    piece,
                    formal,
                    own: formal.is_none().then_some(tensor),
                    reads,
                    writes,
                    replica: None,
                    behind: 0,
                    spread: Vec::new(),
                }),
            }
        }
        if accesses.is_empty() {
            continue;
        }
        let text = named_statement_text(&leaf.fragment, stmt);
        graph.nodes.push(Node {
            op: Op::Statement { number, text },
            at: call.processor,
            role: Role::Compute,
            body: call.body,
            late: Vec::new(),
            when: Vec::new(),
            waits: Vec::new(),
            accesses,
            call: id,
            span: stmt.span.or(call.span),
        });
        out.push(Item::Node(NodeId(graph.nodes.len() as u32 - 1)));
    }
    Ok(out)
}

/// The register tensor that a part is of.
fn whole(leaf: &Leaf, tensor: TensorId) -> TensorId {
    match &leaf.fragment.tensors[tensor.0 as usize].kind {
        TensorKind::Part { of, .. } => *of,
        _ => tensor,
    }
}

/// A leaf's own tensor as an object. Its statements use it as a whole, so that its extents do not matter.
fn own(
    leaf: &Leaf,
    tensor: TensorId,
    graph: &mut Graph,
    body: Option<LoopId>,
) -> (ObjectId, Piece, Option<usize>) {
    let row = &leaf.fragment.tensors[tensor.0 as usize];
    let rank = match &row.kind {
        TensorKind::Register { shape, .. } => shape.len(),
        _ => 0,
    };
    let extents: Vec<Extent> = vec![None; rank];
    graph.objects.push(Object {
        name: row.name.clone(),
        param: false,
        dtype: row.dtype,
        extents: extents.clone(),
        body,
        span: row.span,
    });
    (ObjectId(graph.objects.len() as u32 - 1), Piece::whole(&extents), None)
}

/// The tensors that a statement uses: (tensor, read, written). It reads before it writes; what a statement in a body writes may stay as it was,
/// so that it counts as read, too. Definitions use nothing.
pub(crate) fn operands(stmt: &Stmt, inside: bool, out: &mut Vec<(TensorId, bool, bool)>) {
    for operand in stmt.kind.operands() {
        let (used, tensor) = match operand {
            Operand::Tensor(used, tensor) => (used, *tensor),
            Operand::Reference(used, reference) => (used, reference.tensor),
            Operand::Body(body) => {
                body.iter().for_each(|stmt| operands(stmt, true, out));
                continue;
            }
            _ => continue,
        };
        let (reads, writes) = (used.reads() || (inside && used.writes()), used.writes());
        if reads || writes {
            out.push((tensor, reads, writes));
        }
    }
}

/// The copies that the copy-in/copy-out discipline makes: one in for each formal that is read, one out for each that is written.
fn candidates(graph: &mut Graph) {
    for (at, call) in graph.tree.calls.iter().enumerate().skip(1) {
        let tensors = call.arguments.iter().enumerate().filter_map(|(formal, argument)| match argument {
            Argument::Tensor(tensor) => Some((formal, tensor.privilege)),
            _ => None,
        });
        for (formal, privilege) in tensors {
            let mut add = |direction| {
                let call = CallId(at as u32);
                graph.candidates.push(Candidate { call, formal, direction, verdict: Verdict::Open });
            };
            if privilege.reads() {
                add(Direction::In);
            }
            if privilege.writes() {
                add(Direction::Out);
            }
        }
    }
}

/// The relation of counters where one loop's counter `at` differs and those outside of it do not.
fn relation(
    tree: &Tree,
    around: &[LoopId],
    level: usize,
    at: usize,
    differs: Relation,
) -> impl Fn(Var) -> Relation {
    let counters = |id: &LoopId| tree.loop_(*id).counters.clone();
    let mut same: BTreeSet<Var> = around[..level].iter().flat_map(counters).collect();
    let these = around.get(level).map(counters).unwrap_or_default();
    same.extend(&these[..at.min(these.len())]);
    let differing = these.get(at).copied();
    let free: BTreeSet<Var> =
        these.iter().skip(at + 1).copied().chain(around.iter().skip(level + 1).flat_map(counters)).collect();
    move |var| {
        if Some(var) == differing {
            differs
        } else if free.contains(&var) {
            Relation::Any
        } else {
            // Counters outside, and integers that every iteration has alike.
            Relation::Same
        }
    }
}

/// The loops around both nodes, outermost first.
pub(super) fn common(graph: &Graph, a: NodeId, b: NodeId) -> Vec<LoopId> {
    let around = |id: NodeId| graph.tree.around(graph.node(id).body);
    let (a, b) = (around(a), around(b));
    a.into_iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

/// True if each iteration of the loop has the object anew.
pub(super) fn anew(graph: &Graph, object: ObjectId, id: LoopId) -> bool {
    graph.tree.around(graph.object(object).body).contains(&id)
}

/// Uses of one object by two nodes, of which one writes.
fn conflicts(a: &Node, b: &Node) -> Vec<(Access, Access)> {
    let mut out = Vec::new();
    for x in &a.accesses {
        for y in b.accesses.iter().filter(|y| y.object == x.object && (x.writes || y.writes)) {
            out.push((x.clone(), y.clone()));
        }
    }
    out
}

/// Tensors of the kernel's own that are read, and that no statement before writes.
fn unwritten(program: &Program, graph: &Graph) -> Vec<Diagnostic> {
    let mut errors: Vec<Diagnostic> = Vec::new();
    let mut known: BTreeSet<ObjectId> = BTreeSet::new();
    for id in graph.ordered() {
        let node = graph.node(id);
        // What a statement changes in place, the interpreter follows element by element.
        known.extend(node.accesses.iter().filter(|access| access.writes).map(|access| access.object));
        for access in node.accesses.iter().filter(|access| access.reads) {
            let object = graph.object(access.object);
            // Each is said once.
            if object.param || !known.insert(access.object) {
                continue;
            }
            let call = graph.tree.call(node.call);
            let message = format!(
                "`launch {}` reads `{}`, which no statement before it writes",
                program.task(call.task).name,
                object.name
            );
            errors.push(
                Diagnostic::new(Code::NotWritten, call.span, message)
                    .related(object.span, "declared here")
                    .note(format!("in `{}`", program.task(call.task).variant_name(call.variant)))
                    .help("launch what writes it first, or declare it with a value, as in `acc = tensor(f32, [M, N], 0.0)`"),
            );
        }
    }
    errors
}

/// Iterations of a `prange` that may touch one element, of which one writes it.
fn parallel_writes(program: &Program, graph: &Graph) -> Vec<Diagnostic> {
    let order = graph.ordered();
    let mut errors: Vec<Diagnostic> = Vec::new();
    let mut said: BTreeSet<(LoopId, ObjectId)> = BTreeSet::new();
    for (i, a) in order.iter().enumerate() {
        for b in &order[i..] {
            let around = common(graph, *a, *b);
            for (level, id) in around.iter().enumerate() {
                let row = graph.tree.loop_(*id);
                if row.kind != LoopKind::Prange {
                    continue;
                }
                for (x, y) in conflicts(graph.node(*a), graph.node(*b)) {
                    if anew(graph, x.object, *id)
                        || said.contains(&(*id, x.object))
                        || adds(graph, *a, *b, &x, &y)
                    {
                        continue;
                    }
                    for (at, counter) in row.counters.iter().enumerate() {
                        if !apart_by(graph, *counter, 1) {
                            continue;
                        }
                        // Either of the two may be in the later iteration.
                        let related = relation(&graph.tree, &around, level, at, Relation::Later);
                        let forth = x.piece.meets(&y.piece, &graph.tree.vars, &related);
                        let back = y.piece.meets(&x.piece, &graph.tree.vars, &related);
                        let found = if forth != Meeting::Apart { forth } else { back };
                        if found != Meeting::Apart {
                            said.insert((*id, x.object));
                            errors.push(parallel_write(program, graph, *id, at, x.object, &found));
                            break;
                        }
                    }
                }
            }
        }
    }
    errors
}

/// True if the counter may have two values so far apart.
fn apart_by(graph: &Graph, counter: Var, by: i64) -> bool {
    let row = graph.tree.vars.row(counter);
    row.least.zip(row.most).is_none_or(|(least, most)| most - least >= by)
}

/// True if both calls have the object only to add to it: parallel iterations may.
fn adds(graph: &Graph, a: NodeId, b: NodeId, x: &Access, y: &Access) -> bool {
    let adds = |node: NodeId, access: &Access| {
        let call = graph.tree.call(graph.node(node).call);
        matches!(
            access.formal.and_then(|formal| call.arguments.get(formal)),
            Some(Argument::Tensor(tensor)) if tensor.privilege == crate::program::Privilege::Add
        )
    };
    adds(a, x) && adds(b, y)
}

fn parallel_write(
    program: &Program,
    graph: &Graph,
    id: LoopId,
    differs: usize,
    object: ObjectId,
    found: &Meeting,
) -> Diagnostic {
    let row = graph.tree.loop_(id);
    let vars = &graph.tree.vars;
    let name = &graph.object(object).name;
    let counters: Vec<String> = row.counters.iter().map(|var| vars.text(&Affine::var(*var))).collect();
    let counters = counters.join(", ");
    let message = match found {
        Meeting::At(Witness { first, second, element }) => {
            // Counters that the pieces do not name are free, but for the one that differs.
            let values = |side: &[(Var, i64)], later: i64| {
                let value = |(at, var): (usize, &Var)| {
                    let named = side.iter().find(|(v, _)| v == var).map(|(_, value)| *value);
                    let free = vars.row(*var).least.unwrap_or(0) + if at == differs { later } else { 0 };
                    named.unwrap_or(free).to_string()
                };
                row.counters.iter().enumerate().map(value).collect::<Vec<_>>().join(", ")
            };
            format!(
                "iterations ({counters}) = ({}) and ({}) of `prange` touch element {element:?} of `{name}`, and one of them writes it",
                values(first, 0),
                values(second, 1)
            )
        }
        _ => format!(
            "iterations ({counters}) of `prange` may touch one element of `{name}`, and one of them writes it"
        ),
    };
    let call = graph.tree.call(row.call);
    Diagnostic::new(Code::ParallelWrites, row.span, message)
        .related(graph.object(object).span, format!("`{name}`"))
        .note(format!("in `{}`", program.task(call.task).variant_name(call.variant)))
        .help("give each iteration its own part, or leave the argument out of all but one with `when`")
}

/// The edges, without those that others imply.
pub(crate) fn edges(graph: &Graph) -> Vec<Edge> {
    reduced(graph, dependences(graph).into_iter().map(|(edge, _)| edge).collect())
}

/// All edges, each with the place through which it is.
pub(crate) fn dependences(graph: &Graph) -> BTreeSet<(Edge, Option<ReplicaId>)> {
    let order = graph.ordered();
    let mut all: BTreeSet<(Edge, Option<ReplicaId>)> = BTreeSet::new();
    for (i, a) in order.iter().enumerate() {
        for (j, b) in order.iter().enumerate() {
            for (x, y) in conflicts(graph.node(*a), graph.node(*b)) {
                if let (Some(p), Some(q)) = (x.replica, y.replica)
                    && p != q
                {
                    continue;
                }
                let why = match (x.writes, y.reads, y.writes) {
                    (true, true, _) => Why::True,
                    (true, _, _) => Why::Output,
                    _ => Why::Anti,
                };
                let around = common(graph, *a, *b);
                if i < j {
                    let related = relation(&graph.tree, &around, around.len(), 0, Relation::Same);
                    if x.piece.meets(&y.piece, &graph.tree.vars, related) != Meeting::Apart {
                        let event = Vec::new();
                        all.insert((Edge { from: *a, to: *b, distance: Vec::new(), why, event }, x.replica));
                    }
                }
                for (level, id) in around.iter().enumerate() {
                    let row = graph.tree.loop_(*id);
                    let carried = row.kind == LoopKind::Srange && !anew(graph, x.object, *id);
                    if let Some(iterations) =
                        carried.then(|| iterations(graph, &around, level, &x, &y)).flatten()
                    {
                        let mut distance = vec![0; level];
                        distance.push(iterations);
                        let event = Vec::new();
                        all.insert((Edge { from: *a, to: *b, distance, why, event }, x.replica));
                    }
                }
            }
        }
    }
    all
}

/// The least number of iterations of the loop after which the second access meets the first; nothing where it never does.
fn iterations(graph: &Graph, around: &[LoopId], level: usize, x: &Access, y: &Access) -> Option<i64> {
    let meets = |differs: Relation| {
        let counters = &graph.tree.loop_(around[level]).counters;
        let by = if let Relation::By(by) = differs { by } else { 1 };
        counters.iter().enumerate().filter(|(_, counter)| apart_by(graph, **counter, by)).any(|(at, _)| {
            let related = relation(&graph.tree, around, level, at, differs);
            x.piece.meets(&y.piece, &graph.tree.vars, related) != Meeting::Apart
        })
    };
    if !meets(Relation::Later) {
        return None;
    }
    // A loop of several counters has no number of iterations between two of its values.
    if graph.tree.loop_(around[level]).counters.len() > 1 {
        return Some(1);
    }
    Some((1..=ROUNDS).find(|by| meets(Relation::By(*by))).unwrap_or(1))
}

/// True if a node runs whenever both ends of the edge do, in a loop that it shares with one of them in the same iterations: only then the second
/// end waits by way of it for the first. A loop of its own may run no iteration.
fn beside(graph: &Graph, edge: &Edge, via: NodeId) -> bool {
    let shared = common(graph, edge.from, edge.to).len();
    let with = [edge.from, edge.to].map(|end| (end, common(graph, end, via)));
    let in_step = with.iter().all(|(end, loops)| {
        let mut apart = loops.iter().skip(shared);
        apart.all(|head| graph.node(*end).late_in(*head) == graph.node(via).late_in(*head))
    });
    let around = graph.tree.around(graph.node(via).body);
    let mut own = around.into_iter().filter(|head| with.iter().all(|(_, loops)| !loops.contains(head)));
    in_step && own.all(|head| graph.tree.runs(head))
}

/// The edges without those that two others imply whose iterations are as many. Of several reasons for one edge the first is kept.
pub(super) fn reduced(graph: &Graph, all: BTreeSet<Edge>) -> Vec<Edge> {
    let mut first: Vec<Edge> = Vec::new();
    for edge in all {
        match first.last() {
            Some(last) if (last.from, last.to, &last.distance) == (edge.from, edge.to, &edge.distance) => {}
            _ => first.push(edge),
        }
    }
    let has: BTreeSet<(NodeId, NodeId, &[i64])> =
        first.iter().map(|edge| (edge.from, edge.to, &edge.distance[..])).collect();
    let nodes: BTreeSet<NodeId> = first.iter().flat_map(|edge| [edge.from, edge.to]).collect();
    let implied = |edge: &Edge| {
        // Both parts are shorter than the edge, in iterations and then in the order of the program: none is implied by way of itself.
        nodes.iter().any(|via| {
            let now: &[i64] = &[];
            let leads = |a: &[i64], b: &[i64]| {
                has.contains(&(edge.from, *via, a))
                    && has.contains(&(*via, edge.to, b))
                    && beside(graph, edge, *via)
            };
            let split = |(outer, iterations): (&[i64], i64)| {
                let part = |iterations: i64| [outer, &[iterations]].concat();
                (1..iterations).any(|first| leads(&part(first), &part(iterations - first)))
            };
            leads(now, &edge.distance)
                || (!edge.distance.is_empty() && leads(&edge.distance, now))
                || edge.distance.split_last().is_some_and(|(last, outer)| split((outer, *last)))
        })
    };
    first.iter().filter(|edge| !implied(edge)).cloned().collect()
}
