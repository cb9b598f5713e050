//! Joining: parallel iterations on warpgroups, warps and threads become one collective statement each (the paper's vectorisation, 4.2.2). Needs:
//! dependences, which say that iterations are apart. Keeps: the order of statements, and what each computes.
//!
//! From the inside out, a loop over the processors of a level goes, and the partition whose colour was its counter joins the *spread* of what
//! its statements use: how processors share the piece. A statement may be joined if it does the same to all of the piece as its iterations
//! do to their parts.

use tilewright_machine::Processor;
use tilewright_tile::elementwise::ElemExpr;
use tilewright_tile::statement::StmtKind;
use tilewright_tile::{Code, Diagnostic, Diagnostics, Expr, TensorId};

use super::depend::edges;
use crate::graph::{Access, Graph, Item, Node, NodeId, Op, Spread};
use crate::instantiate::LoopId;
use crate::partition::{Extent, Mode, Partition};
use crate::piece::{Affine, Piece, Step, Var, Vars};
use crate::program::{Leaf, LeafFormal, LoopKind, Program};

/// Joins the loops over processors below the block.
///
/// # Errors
///
/// `not-separable`: a statement that cannot be shared out in that way, with the mode that is cut.
pub fn join(program: &Program, graph: &mut Graph) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    let order = std::mem::take(&mut graph.order);
    graph.order = flatten(program, graph, order, &mut errors);
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    graph.edges = edges(graph);
    Ok(())
}

/// True of a loop that the hardware runs.
pub(super) fn implicit(graph: &Graph, id: LoopId) -> bool {
    let row = graph.tree.loop_(id);
    row.kind == LoopKind::Prange && row.processor > Processor::Block
}

fn flatten(
    program: &Program,
    graph: &mut Graph,
    items: Vec<Item>,
    errors: &mut Vec<Diagnostic>,
) -> Vec<Item> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Node(id) => out.push(Item::Node(id)),
            Item::Loop(id, items) => {
                let items = flatten(program, graph, items, errors);
                if !implicit(graph, id) {
                    out.push(Item::Loop(id, items));
                    continue;
                }
                for node in items.iter().flat_map(Item::nodes) {
                    if let Err(error) = node_joined(program, graph, id, node) {
                        errors.push(error);
                    }
                }
                let parent = graph.tree.loop_(id).parent;
                for item in &items {
                    match item {
                        Item::Node(node) => graph.nodes[node.index()].body = parent,
                        Item::Loop(inner, _) => graph.tree.loops[inner.index()].parent = parent,
                    }
                }
                out.extend(items);
            }
        }
    }
    out
}

/// Joins one statement over a loop: cuts the loop's partition off the pieces, and puts it in front of their spreads.
fn node_joined(program: &Program, graph: &mut Graph, id: LoopId, node: NodeId) -> Result<(), Diagnostic> {
    let row = graph.tree.loop_(id).clone();
    let mut joined = graph.node(node).clone();
    let at = graph.tree.call(row.call).processor;
    for access in &mut joined.accesses {
        cut(graph, &row.counters, row.processor, node, access)?;
    }
    separable(program, graph, &joined, row.processor)?;
    joined.at = at;
    graph.nodes[node.index()] = joined;
    Ok(())
}

/// Takes the step whose colour is the loop's counter off a piece and puts it in front of the spread.
fn cut(
    graph: &mut Graph,
    counters: &[Var],
    level: Processor,
    node: NodeId,
    access: &mut Access,
) -> Result<(), Diagnostic> {
    // A colour that does not move the piece is a step of it all the same.
    let of_step = access.piece.steps().last().into_iter().flat_map(|step| &step.colours);
    let named = of_step.flat_map(|colour| colour.vars()).any(|var| counters.contains(&var));
    let depends = |piece: &Piece, vars: &Vars| counters.iter().any(|var| piece.depends(vars, *var));
    if !named && !depends(&access.piece, &graph.tree.vars) {
        return Ok(());
    }
    let name = graph.object(access.object).name.clone();
    let span = graph.node(node).span;
    let refused = |why: &str| {
        let message = format!("`{name}` cannot be shared out over the level `{level}`: {why}");
        Diagnostic::new(Code::NotSeparable, span, message)
            .help("an iteration on a processor takes the piece of one partition whose colour is the counter")
    };
    let last = last_step(&access.piece, counters).cloned();
    let Some(last) = last else {
        return Err(refused("the colour of its last partition is not the counter alone"));
    };
    let depth = access.piece.steps().len() - 1;
    let prefix = access.piece.prefix(depth, &mut graph.tree.vars);
    match prefix {
        Ok(prefix) if !depends(&prefix, &graph.tree.vars) => access.piece = prefix,
        Ok(_) => return Err(refused("the counter cuts it twice, or is in its condition")),
        Err(error) => {
            return Err(Diagnostic::internal(span, format!("a piece without its last step: {error}")));
        }
    }
    access.spread.insert(0, (level, last.partition));
    Ok(())
}

/// The last step of a piece, if one of its colours is a counter of these and the others are 0.
fn last_step<'a>(piece: &'a Piece, counters: &[Var]) -> Option<&'a Step> {
    let last = piece.steps().last()?;
    let counter = |colour: &&Affine| colour.as_var().is_some_and(|var| counters.contains(&var));
    let by_counter = last.colours.iter().filter(counter).count();
    let others = last.colours.iter().filter(|colour| colour.value() != Some(0)).count();
    (counters.len() == 1 && by_counter == 1 && others == 1).then_some(last)
}

/// A piece that calls below the block cut further: what it is a part of, and how the processors of the joined loops share that.
pub(crate) fn shared_out(graph: &Graph, piece: &Piece, vars: &mut Vars) -> (Piece, Spread) {
    let mut spread = Spread::new();
    let mut depth = piece.steps().len();
    let implicit = |step: &Step| {
        let of = step.colours.iter().find_map(Affine::as_var)?;
        let row = graph.tree.loops.iter().find(|row| row.counters.contains(&of))?;
        (row.kind == LoopKind::Prange && row.processor > Processor::Block).then_some(row.processor)
    };
    while let Some(step) = depth.checked_sub(1).and_then(|last| piece.steps().get(last))
        && let Some(level) = implicit(step)
    {
        spread.insert(0, (level, step.partition.clone()));
        depth -= 1;
    }
    match piece.prefix(depth, vars) {
        Ok(prefix) => (prefix, spread),
        Err(_) => (piece.clone(), Spread::new()),
    }
}

/// The outermost partition of an access at this level.
fn at_level(access: &Access, level: Processor) -> Option<&Partition> {
    access.spread.first().filter(|(of, _)| *of == level).map(|(_, partition)| partition)
}

/// Counts of modes along one mode of a tensor: the (extent, stride) pairs of the leaves of each.
type Along = Vec<Vec<(Extent, i64)>>;

/// The coordinates along one mode that colours and points count: the part of a partition that two operands share.
fn along(partition: &Partition, mode: usize) -> (Along, Along) {
    let of = |modes: &[Mode]| -> Along {
        modes
            .iter()
            .map(|m| {
                m.leaves().into_iter().map(|(extent, stride)| (extent, stride.component(mode))).collect()
            })
            .collect()
    };
    let points = of(partition.point_modes());
    let points = points.into_iter().filter(|leaves| leaves.iter().any(|(_, stride)| *stride != 0)).collect();
    (of(partition.colour_modes()), points)
}

/// True if colours move along the mode.
fn cuts(partition: &Partition, mode: usize) -> bool {
    along(partition, mode).0.iter().flatten().any(|(extent, stride)| *stride != 0 && *extent != Some(1))
}

/// Decides if a statement may be joined over a level, given how its operands are cut.
fn separable(program: &Program, graph: &Graph, node: &Node, level: Processor) -> Result<(), Diagnostic> {
    let Op::Statement { number, text } = &node.op else { return Ok(()) };
    let call = graph.tree.call(node.call);
    let leaf = program.task(call.task).variant(call.variant).leaf();
    let Some((leaf, stmt)) = leaf.and_then(|leaf| Some((leaf, leaf.fragment.body.get(*number)?))) else {
        return Err(Diagnostic::internal(node.span, "a statement of no leaf"));
    };
    let refused = |why: String| {
        let message = format!("`{text}` at the level `{level}`: {why}");
        Err(Diagnostic::new(Code::NotSeparable, node.span, message)
            .related(call.span, "launched here")
            .help("make it a leaf of the level above, or cut other modes"))
    };
    let of = |tensor: TensorId| access_of(leaf, node, tensor).and_then(|access| at_level(access, level));
    match &stmt.kind {
        StmtKind::Fill { .. } => Ok(()),
        StmtKind::Gemm { c, a, b, meta, scales, .. } => {
            // The metadata of a sparse factor, and scales, are cut as the factor is.
            let left = [Some((*a, "a", 0)), meta.map(|meta| (meta, "meta", 0))];
            let of_blocks = scales.map(|[left, right]| [(left, "sa", 0), (right, "sb", 1)]);
            let factors =
                || left.into_iter().flatten().chain([(*b, "b", 1)]).chain(of_blocks.into_iter().flatten());
            for (factor, letter, _) in factors() {
                if of(factor).is_some_and(|partition| cuts(partition, 1)) {
                    return refused(format!(
                        "mode 1 of the factor `{letter}`, along which is summed, is cut"
                    ));
                }
            }
            // Rows of c and a are cut alike, and columns of c and rows of b.
            for (factor, letter, mode) in factors() {
                let alike = match (of(*c), of(factor)) {
                    (Some(sum), Some(factor)) => along(sum, mode) == along(factor, 0),
                    (Some(sum), None) => !cuts(sum, mode),
                    (None, Some(factor)) => !cuts(factor, 0),
                    (None, None) => true,
                };
                if !alike {
                    return refused(format!(
                        "mode {mode} of the sum and mode 0 of the factor `{letter}` are cut differently"
                    ));
                }
            }
            Ok(())
        }
        StmtKind::Reduce { src, axis, .. } => match of(*src) {
            Some(partition) if cuts(partition, *axis as usize) => {
                refused(format!("mode {axis}, which is reduced, is cut"))
            }
            _ => Ok(()),
        },
        StmtKind::Cast { .. } | StmtKind::Rearrange { .. } => alike(node, level).or_else(refused),
        StmtKind::Elementwise { expr, .. } => {
            if positional(expr) {
                return refused("it depends on the place or on the number of elements of a part".to_string());
            }
            alike(node, level).or_else(refused)
        }
        _ if node.accesses.iter().all(|access| at_level(access, level).is_none()) => Ok(()),
        _ => refused("it is not known to do to a whole what it does to the parts".to_string()),
    }
}

/// Succeeds if all operands that are cut are cut alike.
fn alike(node: &Node, level: Processor) -> Result<(), String> {
    let mut cut = node.accesses.iter().filter_map(|access| at_level(access, level));
    match cut.next() {
        Some(first) if !cut.all(|other| other == first) => {
            Err("its operands are cut differently".to_string())
        }
        _ => Ok(()),
    }
}

/// True if the expression has the coordinate of an element, or an integer of the leaf, which may be an extent.
fn positional(expr: &ElemExpr) -> bool {
    let mut found = false;
    expr.visit(&mut |expr| match expr {
        ElemExpr::Index(_) => found = true,
        ElemExpr::Int(value) => value.visit(&mut |value| found |= matches!(value, Expr::Symbol(_))),
        _ => {}
    });
    found
}

/// The access that a tensor of a leaf's fragment is.
fn access_of<'a>(leaf: &Leaf, node: &'a Node, tensor: TensorId) -> Option<&'a Access> {
    let formal = leaf.formals.iter().position(|formal| *formal == LeafFormal::Tensor(tensor))?;
    node.accesses.iter().find(|access| access.formal == Some(formal))
}
