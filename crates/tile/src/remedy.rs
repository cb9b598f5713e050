//! Remedies in the program's names, for lints and for what a run shows: the grid that a kernel's views ask for, counters that are exchanged,
//! tensors that are new in each round.

use crate::diagnostic::Origin;
use crate::expr::{Axis, Expr, IntOp, SymbolId};
use crate::printer::{expr_text, reference, statement_text, view_text};
use crate::program::{ParamId, ParamKind, Stmt, StmtKind, TensorId, TensorKind, TensorRef, Use};
use crate::verified::{Verified, extent_of};

/// The value of an expression at the sizes in question.
pub(crate) type Value<'a> = &'a dyn Fn(&Expr) -> Option<i64>;

const AXES: [Axis; 3] = [Axis::X, Axis::Y, Axis::Z];

fn mentions(e: &Expr, wanted: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= e == wanted);
    found
}

/// The extents of a tensor parameter as they are written.
pub(crate) fn written_shape(v: &Verified, param: ParamId) -> &[Expr] {
    match &v.source.param(param).kind {
        ParamKind::Tensor { shape, .. } => shape,
        ParamKind::Scalar { .. } => &[],
    }
}

/// An expression as it is written with the values of constants.
pub(crate) fn known(v: &Verified, e: &Expr) -> Expr {
    e.substitute(&|id| v.constants().get(&v.source.symbol(id).name).copied().map(Expr::Int))
}

/// `step` of `block.x * step` and `step * block.x`.
fn step_of<'e>(e: &'e Expr, counts: &Expr) -> Option<&'e Expr> {
    const ONE: &Expr = &Expr::Int(1);
    match e {
        _ if e == counts => Some(ONE),
        Expr::Binary(IntOp::Mul, a, b) if **a == *counts && !mentions(b, counts) => Some(b),
        Expr::Binary(IntOp::Mul, a, b) if **b == *counts && !mentions(a, counts) => Some(a),
        _ => None,
    }
}

/// An extent of the grid that a view asks for.
enum Asked {
    Extent(Expr),
    Unknown,
}

/// The extents along an axis that views ask for: one of each mode of a buffer that the axis moves a view along.
fn asked(v: &Verified, axis: Axis) -> Vec<Asked> {
    let block = Expr::Block(axis);
    let mut all = Vec::new();
    for (tensor, folded) in v.source.tensors.iter().zip(&v.program().tensors) {
        let TensorKind::View { param, offsets, ends, .. } = &tensor.kind else { continue };
        let TensorKind::View { modes: folded, .. } = &folded.kind else { continue };
        for (dim, offset) in offsets.iter().enumerate().filter(|(_, offset)| mentions(offset, &block)) {
            let fixed = |e: &Expr| known(v, e).as_int();
            let step = step_of(offset, &block).filter(|_| ends.get(dim).is_none_or(Option::is_none));
            let (Some(step), Some(extent)) = (step, written_shape(v, *param).get(dim)) else {
                all.push(Asked::Unknown);
                continue;
            };
            // A mode of the view that steps over what other blocks do.
            let leaves = folded.iter().flat_map(|mode| &mode.leaves).filter(|leaf| leaf.dim as usize == dim);
            let far = |leaf: &crate::program::ViewLeaf| {
                leaf.extent != Expr::Int(1)
                    && leaf.scale.as_int().zip(fixed(step)).is_none_or(|(a, b)| a >= b)
            };
            all.push(match { leaves }.any(far) && fixed(step) != Some(1) {
                true => Asked::Unknown,
                false => Asked::Extent(Expr::binary(IntOp::CeilDiv, extent.clone(), step.clone())),
            });
        }
    }
    all
}

/// `grid(…)` as the views of a kernel ask for it; `None` where it is as it should be, or where they do not tell.
pub(crate) fn grid(v: &Verified, value: Value<'_>) -> Option<String> {
    let source = &*v.source;
    let (mut texts, mut differs) = (Vec::new(), false);
    for axis in AXES {
        let written = source.grid.get(axis.index());
        let mut extents = Vec::new();
        let mut unknown = false;
        for asked in asked(v, axis) {
            match asked {
                Asked::Extent(e) => extents.push((value(&known(v, &e))?, e)),
                Asked::Unknown => unknown = true,
            }
        }
        let first = extents.first().cloned();
        let agreed = first.filter(|(n, _)| !unknown && extents.iter().all(|(other, _)| other == n));
        // Grids of clusters are rounded up to whole ones.
        let rounded = axis == Axis::X && v.cluster() > 1;
        match (agreed, written) {
            (Some(_), Some(written)) if rounded => texts.push(expr_text(source, written)),
            (Some((n, _)), Some(written)) if value(&known(v, written)) == Some(n) => {
                texts.push(expr_text(source, written));
            }
            (Some((_, e)), _) => {
                texts.push(expr_text(source, &e));
                differs = true;
            }
            (None, Some(written)) => texts.push(expr_text(source, written)),
            (None, None) if unknown || !extents.is_empty() => return None,
            (None, None) => texts.push("1".to_string()),
        }
    }
    while texts.len() > source.grid.len().max(1) && texts.last().is_some_and(|text| text == "1") {
        texts.pop();
    }
    differs.then(|| format!("grid({})", texts.join(", ")))
}

/// Two counters, each of which indexes modes that have the other's extent.
pub(crate) struct Exchanged<'a> {
    /// The loops: one over tiles, or two.
    pub(crate) loops: Vec<&'a Stmt>,
    pub(crate) counters: [SymbolId; 2],
    pub(crate) names: [String; 2],
    /// The heads that are meant.
    pub(crate) heads: String,
}

/// The extents of the modes of views that a counter indexes by itself.
fn indexed_by(v: &Verified, counter: SymbolId) -> Vec<Expr> {
    let mut extents = Vec::new();
    v.visit(&mut |stmt, _| {
        for (_, r) in stmt.kind.references() {
            let TensorKind::View { modes, .. } = &v.program().tensor(r.tensor).kind else { continue };
            let by = r.index.iter().zip(modes).filter(|(e, _)| **e == Some(Expr::Symbol(counter)));
            extents.extend(by.map(|(_, mode)| extent_of(mode)));
        }
    });
    extents
}

/// The pair of these counters, each with its number of iterations, if their names are exchanged.
fn exchange<'a>(
    v: &'a Verified,
    loops: Vec<&'a Stmt>,
    [a, b]: [(SymbolId, &Expr); 2],
) -> Option<Exchanged<'a>> {
    let all = |of: &[Expr], extent: &Expr| !of.is_empty() && of.iter().all(|other| other == extent);
    let crossed = all(&indexed_by(v, a.0), b.1) && all(&indexed_by(v, b.0), a.1);
    if a.1 == b.1 || !crossed {
        return None;
    }
    let names = [a, b].map(|(counter, _)| v.program().symbol(counter).name.clone());
    let head = |stmt: &&Stmt| {
        let mut head = v.as_written(stmt).clone();
        match &mut head.kind {
            StmtKind::Tiles { row, col, .. } => std::mem::swap(row, col),
            StmtKind::For { counter, .. } => *counter = if *counter == a.0 { b.0 } else { a.0 },
            _ => {}
        }
        // Row by row is what is done where nothing is said.
        format!("`{}`", statement_text(&*v.source, &head).replace(", grouped(1))", ")"))
    };
    let heads = loops.iter().map(head).collect::<Vec<_>>().join(" and ");
    Some(Exchanged { loops, counters: [a.0, b.0], names, heads })
}

/// Pairs of counters whose names are exchanged.
pub(crate) fn exchanged(v: &Verified) -> Vec<Exchanged<'_>> {
    let mut found = Vec::new();
    let mut around: Vec<(&Stmt, usize)> = Vec::new();
    v.visit(&mut |stmt, depth| {
        around.retain(|(_, outer)| *outer < depth);
        match &stmt.kind {
            StmtKind::Tiles { row, col, rows, cols, previous: None, .. } => {
                found.extend(exchange(v, vec![stmt], [(*row, rows), (*col, cols)]));
            }
            StmtKind::For { counter, lo: Expr::Int(0), hi, condition: None, .. } => {
                for (outer, _) in &around {
                    let StmtKind::For { counter: other, hi: end, .. } = &outer.kind else { continue };
                    found.extend(exchange(v, vec![*outer, stmt], [(*other, end), (*counter, hi)]));
                }
                around.push((stmt, depth));
            }
            _ => {}
        }
    });
    found
}

impl Exchanged<'_> {
    /// The mistake, to follow what it leads to.
    pub(crate) fn message(&self) -> String {
        let [a, b] = &self.names;
        format!("`{a}` and `{b}` are exchanged: each indexes modes of the extent that the other counts to")
    }

    /// The remedy.
    pub(crate) fn help(&self) -> String {
        format!("write {}", self.heads)
    }
}

/// A view whose offsets take the quotient of a block's number for the remainder, and the remainder for the quotient.
pub(crate) struct Turned {
    pub(crate) view: TensorId,
    pub(crate) param: ParamId,
    /// The mode that has the remainder for its coordinate, and is of the quotient's extent.
    pub(crate) mode: usize,
    /// `block.x % C` and `block.x / C`.
    pub(crate) parts: [String; 2],
    /// The numbers of each, at the sample of this number.
    pub(crate) counts: [i64; 2],
    pub(crate) sample: usize,
    /// The view as it is meant.
    pub(crate) meant: String,
}

impl Turned {
    /// The mistake.
    pub(crate) fn message(&self, v: &Verified) -> String {
        let ([rem, quo], [few, many]) = (&self.parts, self.counts);
        let name = &v.program().param(self.param).name;
        format!(
            "`{rem}` and `{quo}` are exchanged: `{rem}` has {few} values, and `{quo}` has {many}, as many as `{name}` has tiles along mode {}",
            self.mode
        )
    }

    /// The remedy.
    pub(crate) fn help(&self) -> String {
        format!("write `{}`", self.meant)
    }
}

/// The quotients and remainders of blocks in an offset that is a product of one of them: the axis, the divisor, and the step.
fn part_of_block(e: &Expr, op: IntOp) -> Option<(Axis, &Expr, &Expr, Expr)> {
    let mut found = None;
    e.visit(&mut |part| {
        if let Expr::Binary(of, a, _) = part
            && *of == op
            && matches!(**a, Expr::Block(_))
        {
            found = Some(part.clone());
        }
    });
    let part = found?;
    let step = step_of(e, &part)?;
    let whole = find(e, &part)?;
    let Expr::Binary(_, a, b) = whole else { return None };
    let Expr::Block(axis) = **a else { return None };
    Some((axis, b, step, part))
}

fn find<'e>(e: &'e Expr, wanted: &Expr) -> Option<&'e Expr> {
    match e {
        _ if e == wanted => Some(e),
        Expr::Binary(_, a, b) => find(a, wanted).or_else(|| find(b, wanted)),
        _ => None,
    }
}

fn replaced(e: &Expr, old: &Expr, new: &Expr) -> Expr {
    match e {
        _ if e == old => new.clone(),
        Expr::Binary(op, a, b) => Expr::binary(*op, replaced(a, old, new), replaced(b, old, new)),
        _ => e.clone(),
    }
}

/// Views that have quotient and remainder exchanged at these sizes, each a sample: the mode that has the remainder is as long as there are
/// quotients, at one of them at least longer than there are remainders, and the other way round.
pub(crate) fn turned(v: &Verified, samples: &[Value<'_>]) -> Vec<Turned> {
    let mut found = Vec::new();
    for (i, tensor) in v.source.tensors.iter().enumerate() {
        let TensorKind::View { param, offsets, ends, modes, fold } = &tensor.kind else { continue };
        let shape = written_shape(v, *param);
        let of = |op| {
            let parts = offsets.iter().enumerate();
            parts.filter_map(move |(dim, e)| Some((dim, part_of_block(e, op)?))).next()
        };
        let (Some((rows, rem)), Some((cols, quo))) = (of(IntOp::Rem), of(IntOp::Div)) else { continue };
        let (axis, divisor) = (rem.0, rem.1);
        let Some(grid) = v.source.grid.get(axis.index()) else { continue };
        if rows == cols || quo.0 != axis || quo.1 != divisor {
            continue;
        }
        let (Some(long), Some(wide)) = (shape.get(rows), shape.get(cols)) else { continue };
        let at = |value: Value<'_>| {
            let number =
                |a: &Expr, b: &Expr| value(&known(v, &Expr::binary(IntOp::CeilDiv, a.clone(), b.clone())));
            let counts = [value(&known(v, divisor))?, number(grid, divisor)?];
            Some((counts, [number(long, rem.2)?, number(wide, quo.2)?]))
        };
        let all: Vec<_> =
            samples.iter().enumerate().filter_map(|(i, value)| Some((i, at(*value)?))).collect();
        let turned = |(_, (counts, need)): &(usize, ([i64; 2], [i64; 2]))| {
            need[0] == counts[1] && need[1] <= counts[0]
        };
        let more = |(_, (counts, need)): &&(usize, ([i64; 2], [i64; 2]))| need[0] > counts[0];
        let Some((sample, (counts, _))) = all.iter().find(more) else { continue };
        if !all.iter().all(turned) {
            continue;
        }
        let mut meant = offsets.clone();
        meant[rows] = replaced(&offsets[rows], &rem.3, &quo.3);
        meant[cols] = replaced(&offsets[cols], &quo.3, &rem.3);
        let text = view_text(&*v.source, *param, (&meant, ends), (modes, fold));
        let parts = [&rem.3, &quo.3].map(|part| expr_text(&*v.source, part));
        let (view, param) = (TensorId(i as u32), *param);
        found.push(Turned { view, param, mode: rows, parts, counts: *counts, sample: *sample, meant: text });
    }
    found
}

/// The head of a loop whose end depends on the block, with an end that is later by so many; `None` of other loops.
pub(crate) fn later_end(v: &Verified, stmt: &Stmt, by: i64) -> Option<String> {
    let mut head = v.as_written(stmt).clone();
    let StmtKind::For { hi, .. } = &mut head.kind else { return None };
    let mut by_block = false;
    hi.visit(&mut |e| by_block |= matches!(e, Expr::Block(_)));
    *hi = hi.clone() + Expr::Int(by);
    by_block.then(|| statement_text(&*v.source, &head))
}

/// True if a round of a loop reads the tensor in a statement before this one: what this one writes is for the next round.
pub(crate) fn is_read_before(round: &Stmt, wanted: &Stmt, tensor: TensorId) -> bool {
    let (mut read, mut found) = (false, None);
    crate::statement::visit(round.kind.body(), 0, &mut |stmt, _| {
        if stmt.id == wanted.id {
            found = Some(read);
        }
        read |= stmt.kind.tensors().iter().any(|(how, id)| *id == tensor && how.reads());
    });
    found.unwrap_or(false)
}

/// A register tensor that a loop defines anew in each round, and that a statement there reads before the one that writes it.
pub struct NewEachRound {
    /// The place of its definition.
    pub place: Origin,
    /// The name of the loop's counter.
    pub counter: String,
    /// The remedy.
    pub help: String,
}

/// The reason why a tensor holds nothing at the beginning of a round, if it is that it is defined in the loop.
pub fn new_each_round(v: &Verified, tensor: TensorId) -> Option<NewEachRound> {
    let mut found = None;
    v.visit(&mut |stmt, _| {
        let StmtKind::For { counter, lo, body, .. } = &stmt.kind else { return };
        let uses = |stmt: &Stmt, reads: bool| {
            let mut any = false;
            crate::statement::visit(std::slice::from_ref(stmt), 0, &mut |stmt, _| {
                let used = stmt.kind.tensors().into_iter().filter(|(_, id)| *id == tensor);
                any |= used
                    .filter(|(how, _)| *how != Use::Define)
                    .any(|(how, _)| if reads { how.reads() } else { how.writes() });
            });
            any
        };
        let defined = body.iter().any(|stmt| stmt.kind == StmtKind::Define(tensor));
        let [read, written] = [true, false].map(|reads| body.iter().position(|stmt| uses(stmt, reads)));
        let (true, Some(read), Some(written)) = (defined, read, written) else { return };
        if read < written {
            found = Some((*counter, lo.as_int(), &body[written]));
        }
    });
    let (counter, lo, write) = found?;
    let program = &*v.source;
    let row = program.tensor(tensor);
    // The statement as it would have been in the round before the first.
    let mut first = v.as_written(write).clone();
    let (mut inside, mut moves) = (lo.is_some(), false);
    first.kind.exprs_mut(&mut |e| {
        let before = |id: SymbolId| (id == counter).then_some(Expr::Int(lo.unwrap_or(0) - 1));
        let at = e.substitute(&before);
        moves |= at != *e;
        inside &= at.as_int().is_none_or(|at| at >= 0);
        *e = at;
    });
    let name = &row.name;
    let counter = program.symbol(counter).name.clone();
    let fill = if inside && moves {
        format!(
            "define it before the loop, and fill it there for the first: `{}`",
            statement_text(program, &first)
        )
    } else {
        format!("write it before it is read: move `{}` up", statement_text(program, v.as_written(write)))
    };
    let help =
        format!("`{name}` is defined in the loop, so that each round of `{counter}` has a new one: {fill}");
    Some(NewEachRound { place: row.span, counter, help })
}

/// The text of a reference with another index of a mode.
pub(crate) fn at_index(v: &Verified, r: &TensorRef, mode: usize, index: Expr) -> String {
    let mut other = r.clone();
    if let Some(slot) = other.index.get_mut(mode) {
        *slot = Some(index);
    }
    text_of(v, &other)
}

/// The text of a reference, as it is without a transposition.
pub(crate) fn text_of(v: &Verified, r: &TensorRef) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = reference(&mut text, &*v.source, &TensorRef { transposed: false, ..r.clone() });
    text
}
