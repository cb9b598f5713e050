//! Program to text: the canonical form, which [`parse`](crate::parse) reads back to the same program. Names and constants
//! stay symbolic; parentheses stand only where the grammar needs them.

mod expr;
pub(crate) mod int;
pub(crate) mod names;
mod program;

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use crate::cluster::Multicast;
use crate::expr::{Expr, SymbolId};
use crate::program::{
    Asserted, BarrierKind, BinaryOp, CombineForm, CopyAttrs, Dealer, Fetch, Flag, Form, IndexedMode, Module,
    Param, ParamId, ParamKind, PrintItem, Program, ScanOperands, ShapeOp, Side, Stmt, StmtKind, Surface,
    Symbol, SymbolKind, SyncScope, TensorId, TensorRef, TileOrder, ViewLeaf, ViewMode,
};
use crate::statement::Argument;
use tilewright_machine::{DType, Number};

pub(crate) use expr::elementwise_text;
use expr::{combination, elementwise, number, outside, step};
pub use int::expr_text;
use int::{CONDITION, SUM, int};
pub(crate) use int::{ints, list, write_expr};
pub use names::Names;
use names::Said;

pub(crate) fn param(out: &mut dyn Write, program: &dyn Names, param: &Param) -> fmt::Result {
    if param.is_constant() {
        out.write_str("constant ")?;
    }
    write!(out, "{}: {}", param.name, param.dtype)?;
    match &param.kind {
        ParamKind::Tensor { shape, strides, array, .. } => {
            let (number, each) = shape.split_at(usize::from(*array).min(shape.len()));
            for extents in [number, each].into_iter().skip(usize::from(!array)) {
                out.write_str("[")?;
                ints(out, program, extents)?;
                out.write_str("]")?;
            }
            if let Some(strides) = strides {
                out.write_str(" : (")?;
                ints(out, program, strides)?;
                out.write_str(")")?;
            }
            Ok(())
        }
        ParamKind::Scalar { default } => {
            out.write_str(" = ")?;
            match default {
                Number::Integer(default) => write!(out, "{default}"),
                Number::Float(default) => number(out, *default),
            }
        }
    }
}

/// `register_tensor(f16, [64, 32])` or `shared_tensor(…)`, with its layout where one is pinned.
pub(crate) fn fragment(
    out: &mut dyn Write,
    program: &dyn Names,
    (memory, dtype): (&str, DType),
    shape: &[Expr],
    pinned: Option<&impl Display>,
) -> fmt::Result {
    write!(out, "{memory}_tensor({dtype}, [")?;
    ints(out, program, shape)?;
    out.write_str("]")?;
    if let Some(layout) = pinned {
        write!(out, ", layout = {layout}")?;
    }
    out.write_str(")")
}

/// `tensor_memory(f32, [128, 64])`.
pub(crate) fn tensor_memory(
    out: &mut dyn Write,
    program: &dyn Names,
    dtype: DType,
    shape: &[Expr],
) -> fmt::Result {
    write!(out, "tensor_memory({dtype}, [")?;
    ints(out, program, shape)?;
    out.write_str("])")
}

/// `pipeline(3, sa, sb)`.
pub(crate) fn pipeline(
    out: &mut dyn Write,
    program: &dyn Names,
    stages: &Expr,
    tensors: &[TensorId],
) -> fmt::Result {
    out.write_str("pipeline(")?;
    int(out, program, stages, SUM)?;
    tensors.iter().try_for_each(|id| write!(out, ", {}", program.tensor(*id)))?;
    out.write_str(")")
}

/// The text of a view's definition, without its name.
pub(crate) fn view_text(
    program: &dyn Names,
    param: ParamId,
    within: (&[Expr], &[Option<Expr>]),
    modes: (&[ViewMode], &[ViewLeaf]),
) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = view(&mut text, program, param, within, modes);
    text
}

/// `global_view(x[:, :], (64, 64) : (e0, e1))`.
pub(crate) fn view(
    out: &mut dyn Write,
    program: &dyn Names,
    param: ParamId,
    (offsets, ends): (&[Expr], &[Option<Expr>]),
    (modes, fold): (&[ViewMode], &[ViewLeaf]),
) -> fmt::Result {
    write!(out, "global_view({}[", program.param(param))?;
    let both: Vec<_> = offsets.iter().zip(ends).collect();
    list(out, &both, |out, (offset, end)| {
        if **offset != Expr::Int(0) {
            int(out, program, offset, SUM)?;
            out.write_str(" ")?;
        }
        out.write_str(":")?;
        end.as_ref().map_or(Ok(()), |end| {
            out.write_str(" ")?;
            int(out, program, end, SUM)
        })
    })?;
    out.write_str("], (")?;
    list(out, modes, |out, mode| match mode.leaves.as_slice() {
        [leaf] => int(out, program, &leaf.extent, SUM),
        leaves => {
            out.write_str("(")?;
            list(out, leaves, |out, leaf| int(out, program, &leaf.extent, SUM))?;
            out.write_str(")")
        }
    })?;
    out.write_str(") : (")?;
    list(out, modes, |out, mode| match mode.leaves.as_slice() {
        [leaf] => step(out, program, leaf),
        leaves => {
            out.write_str("(")?;
            list(out, leaves, |out, leaf| step(out, program, leaf))?;
            out.write_str(")")
        }
    })?;
    if !fold.is_empty() {
        out.write_str("), fold = (")?;
        list(out, fold, |out, leaf| int(out, program, &leaf.extent, SUM))?;
        out.write_str(") : (")?;
        list(out, fold, |out, leaf| step(out, program, leaf))?;
    }
    out.write_str("))")
}

/// `[:, :, ki]`.
fn entries<F: Form>(
    out: &mut dyn Write,
    program: &dyn Names,
    index: &[Option<F::Index>],
    indexed: Option<IndexedMode>,
) -> fmt::Result {
    out.write_str("[")?;
    let modes: Vec<(u32, &Option<F::Index>)> = (0..).zip(index).collect();
    list(out, &modes, |out, (mode, entry)| match (entry, indexed.filter(|by| by.mode == *mode)) {
        (None, Some(indexed)) => out.write_str(program.tensor(indexed.by)),
        (None, None) => out.write_str(":"),
        (Some(e), _) => F::write_index(out, program, e),
    })?;
    out.write_str("]")
}

/// The name of a part of a register tensor: `ra[:, :, kk % 2]`.
pub(crate) fn part_text(program: &dyn Names, of: TensorId, index: &[Option<Expr>]) -> String {
    let mut text = program.tensor(of).to_string();
    // Writing to a string cannot fail.
    let _ = entries::<Surface>(&mut text, program, index, None);
    text
}

/// `for ki in 0..ceil_div(k, 32)`, or `unroll for …`.
fn loop_head(out: &mut dyn Write, program: &dyn Names, id: SymbolId, lo: &Expr, hi: &Expr) -> fmt::Result {
    if program.is_unrolled(id) {
        out.write_str("unroll ")?;
    } else if let Some(factor) = program.unrolled_by(id) {
        out.write_str("unroll(")?;
        int(out, program, factor, SUM)?;
        out.write_str(") ")?;
    }
    write!(out, "for {} in ", program.symbol(id))?;
    int(out, program, lo, SUM)?;
    out.write_str("..")?;
    int(out, program, hi, SUM)
}

/// Writes the head of a loop, a `drain`, a role or a stage; nothing for any other statement.
fn head<F: Form>(out: &mut dyn Write, program: &dyn Names, kind: &StmtKind<F>) -> fmt::Result {
    match kind {
        StmtKind::For { counter, lo, hi, condition, .. } => {
            loop_head(out, program, *counter, lo, hi)?;
            let Some(condition) = condition else { return Ok(()) };
            out.write_str(" while ")?;
            int(out, program, condition, CONDITION)
        }
        StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, .. } => {
            write!(out, "for ({}, {})", program.symbol(*row), program.symbol(*col))?;
            if let Some([row, col]) = previous {
                write!(out, " previous ({}, {})", program.symbol(*row), program.symbol(*col))?;
            }
            out.write_str(" in tiles(")?;
            int(out, program, rows, SUM)?;
            out.write_str(", ")?;
            int(out, program, cols, SUM)?;
            match order {
                TileOrder::Grouped { rows: number, .. } | TileOrder::Hilbert { order: number } => {
                    let is_hilbert = matches!(order, TileOrder::Hilbert { .. });
                    out.write_str(if is_hilbert { ", hilbert(" } else { ", grouped(" })?;
                    int(out, program, &F::int(number), SUM)?;
                }
                TileOrder::Listed { table } => write!(out, ", listed({}", program.param(*table))?,
            }
            let serpentine = matches!(order, TileOrder::Grouped { serpentine: true, .. });
            out.write_str(if serpentine { ", serpentine)" } else { ")" })?;
            match dynamic {
                Some(Dealer::Counter(counter)) => write!(out, ", dynamic = {}", program.param(*counter))?,
                Some(Dealer::Launch) => out.write_str(", dynamic")?,
                None => {}
            }
            out.write_str(")")
        }
        StmtKind::Drain { .. } => out.write_str("drain"),
        StmtKind::If { otherwise: true, .. } => out.write_str("else"),
        StmtKind::If { condition, .. } => {
            out.write_str("if ")?;
            int(out, program, condition, CONDITION)
        }
        StmtKind::IfAny { condition, axis, .. } => {
            write!(out, "if any({}, {axis})", program.tensor(*condition))
        }
        StmtKind::Role { name, warpgroups, registers, .. } => {
            write!(out, "warpgroup {}(", F::role(name))?;
            int(out, program, &F::int(warpgroups), SUM)?;
            out.write_str(")")?;
            if let Some(registers) = registers {
                out.write_str(" registers(")?;
                int(out, program, &F::int(registers), SUM)?;
                out.write_str(")")?;
            }
            Ok(())
        }
        StmtKind::InTurn { turns, .. } => write!(out, "in_turn {}", program.barrier(*turns)),
        StmtKind::Stage { pipeline, side, .. } => {
            out.write_str(match side {
                Side::Produce => "produce ",
                Side::Consume => "consume ",
            })?;
            out.write_str(program.pipeline(*pipeline))
        }
        _ => Ok(()),
    }
}

/// `, warps = (2, 2)`.
fn shares<F: Form>(
    out: &mut dyn Write,
    program: &dyn Names,
    word: &str,
    shares: &Option<[F::Int; 2]>,
) -> fmt::Result {
    let Some([m, n]) = shares else { return Ok(()) };
    write!(out, ", {word} = (")?;
    int(out, program, &F::int(m), SUM)?;
    out.write_str(", ")?;
    int(out, program, &F::int(n), SUM)?;
    out.write_str(")")
}

/// A reference as it is written in a copy.
pub(crate) fn reference<F: Form>(out: &mut dyn Write, program: &dyn Names, r: &TensorRef<F>) -> fmt::Result {
    if r.transposed {
        out.write_str("transpose(")?;
    }
    out.write_str(program.tensor(r.tensor))?;
    if !r.index.is_empty() {
        entries::<F>(out, program, &r.index, r.indexed)?;
    }
    if r.transposed {
        out.write_str(")")?;
    }
    Ok(())
}

pub(crate) struct Printer<'a> {
    program: &'a dyn Names,
    /// Tensors whose definition has been printed: a layout is given only there.
    defined: BTreeSet<TensorId>,
    /// True if the text declares every tensor before the statements: what these say of it need not be repeated, and all else that a
    /// core program holds is said.
    declared: bool,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(program: &'a dyn Names) -> Self {
        Printer { program, defined: BTreeSet::new(), declared: false }
    }

    /// A printer of statements behind declarations, as core programs have them.
    pub(crate) fn declared(program: &'a dyn Names) -> Self {
        Printer { declared: true, ..Printer::new(program) }
    }

    pub(crate) fn block<F: Form>(
        &mut self,
        out: &mut dyn Write,
        body: &[Stmt<F>],
        depth: usize,
    ) -> fmt::Result {
        for (i, stmt) in body.iter().enumerate() {
            // A `drain` stands behind the brace that ends its loop, an `else` behind that of its `if`.
            match stmt.kind {
                StmtKind::Drain { .. } | StmtKind::If { otherwise: true, .. } if i > 0 => {
                    out.write_str(" ")?
                }
                _ if i > 0 => write!(out, "\n{:width$}", "", width = 4 * depth)?,
                _ => write!(out, "{:width$}", "", width = 4 * depth)?,
            }
            self.statement(out, &stmt.kind, depth)?;
        }
        if !body.is_empty() {
            out.write_str("\n")?;
        }
        Ok(())
    }

    /// True if the order is that of `transpose(r)`: all modes of `r` in reverse.
    fn reverses(&self, order: &[u32], src: TensorId) -> bool {
        let rank = self.program.rank(src);
        order.len() == rank && order.iter().rev().enumerate().all(|(i, mode)| i == *mode as usize)
    }

    fn statement<F: Form>(&mut self, out: &mut dyn Write, kind: &StmtKind<F>, depth: usize) -> fmt::Result {
        let program = self.program;
        let name = |id: &TensorId| program.tensor(*id);
        match kind {
            StmtKind::Define(id) if self.declared => write!(out, "define {}", name(id)),
            StmtKind::Pipeline(id) if self.declared => write!(out, "define {}", program.pipeline(*id)),
            StmtKind::Define(id) => {
                self.defined.insert(*id);
                write!(out, "{} = ", name(id))?;
                program.write_tensor(out, *id)
            }
            StmtKind::Let { symbol, value } => {
                write!(out, "let {} = ", program.symbol(*symbol))?;
                int(out, program, value, CONDITION)
            }
            StmtKind::Sync(SyncScope::All) => out.write_str("syncthreads()"),
            StmtKind::Sync(SyncScope::Warpgroup) => out.write_str("syncthreads(warpgroup)"),
            StmtKind::Sync(SyncScope::Barrier(id)) => write!(out, "syncthreads({})", program.barrier(*id)),
            StmtKind::Arrive(id) => write!(out, "arrive({})", program.barrier(*id)),
            StmtKind::Barrier(id) if self.declared => write!(out, "define {}", program.barrier(*id)),
            StmtKind::Barrier(id) => {
                let kind = match program.barrier_kind(*id) {
                    BarrierKind::Named => "named_barrier",
                    BarrierKind::Turns => "turns",
                };
                write!(out, "{} = {kind}()", program.barrier(*id))
            }
            StmtKind::SyncGrid { counter } => write!(out, "syncgrid({})", program.param(*counter)),
            StmtKind::Signal { flag, value, combine } => {
                out.write_str("signal(")?;
                write_flag(out, program, flag)?;
                out.write_str(", ")?;
                int(out, program, value, SUM)?;
                write!(out, "{})", combine.map_or(String::new(), |op| format!(", {}", op.name())))
            }
            StmtKind::Await { flag, least } => {
                out.write_str("wait(")?;
                write_flag(out, program, flag)?;
                out.write_str(" >= ")?;
                int(out, program, least, SUM)?;
                out.write_str(")")
            }
            StmtKind::Ticket { symbol, flag, count } => {
                write!(out, "let {} = ticket(", program.symbol(*symbol))?;
                write_flag(out, program, flag)?;
                out.write_str(", ")?;
                int(out, program, count, SUM)?;
                out.write_str(")")
            }
            StmtKind::Copy { src, dst, how: CopyAttrs { fetch: Some(Fetch { op, old, compare }), .. } } => {
                write!(out, "{} = {}(", name(old), op.word().unwrap_or_default())?;
                reference(out, program, dst)?;
                if let Some(compare) = compare {
                    write!(out, ", {}", name(compare))?;
                }
                write!(out, ", {})", name(&src.tensor))
            }
            StmtKind::Copy { src, dst, how } => {
                out.write_str("copy(")?;
                reference(out, program, src)?;
                out.write_str(", ")?;
                reference(out, program, dst)?;
                if let Some(op) = how.combine {
                    write!(out, ", {}", op.name())?;
                }
                outside(out, how.outside)?;
                out.write_str(")")
            }
            StmtKind::CopyAsync { src, dst, how } => {
                out.write_str("copy.async(")?;
                reference(out, program, src)?;
                out.write_str(", ")?;
                reference(out, program, dst)?;
                let tma = (self.declared && how.tensor).then_some("tma");
                match how.multicast {
                    Some(Multicast::All) => out.write_str(", multicast")?,
                    Some(Multicast::Along(mode)) => write!(out, ", multicast({mode})")?,
                    Some(Multicast::Pair) => out.write_str(", pair")?,
                    Some(Multicast::Pairs(mode)) => write!(out, ", pair, multicast({mode})")?,
                    None => {}
                }
                let add = how.add.then_some("add");
                let by = [how.hint.map(|hint| hint.name()), how.threads.then_some("threads"), tma];
                for word in add.into_iter().chain(by.into_iter().flatten()) {
                    write!(out, ", {word}")?;
                }
                outside(out, how.outside)?;
                out.write_str(")")
            }
            StmtKind::Gemm { c, a, b, meta, scales, warps } => {
                write!(out, "gemm({}, {}, {}", name(c), name(a), name(b))?;
                if let Some(meta) = meta {
                    write!(out, ", {}", name(meta))?;
                }
                if let Some([left, right]) = scales {
                    write!(out, ", scales = ({}, {})", name(left), name(right))?;
                }
                shares::<F>(out, program, "warps", warps)?;
                out.write_str(")")
            }
            StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups } => {
                write!(out, "gemm.async({}, ", name(c))?;
                reference(out, program, a)?;
                out.write_str(", ")?;
                reference(out, program, b)?;
                if let Some(meta) = meta {
                    write!(out, ", {}", name(meta))?;
                }
                if let Some([left, right]) = scales {
                    out.write_str(", scales = (")?;
                    reference(out, program, left)?;
                    out.write_str(", ")?;
                    reference(out, program, right)?;
                    out.write_str(")")?;
                }
                shares::<F>(out, program, "warpgroups", warpgroups)?;
                out.write_str(")")
            }
            StmtKind::Assert { condition, text } => {
                out.write_str("assert(")?;
                match condition {
                    Asserted::Integer(condition) => int(out, program, condition, CONDITION)?,
                    Asserted::All(tensor) => write!(out, "all({})", name(tensor))?,
                }
                write!(out, ", \"{text}\")")
            }
            StmtKind::Print { text, items, iteration } => {
                write!(out, "print(\"{text}\"")?;
                for item in items {
                    out.write_str(", ")?;
                    match item {
                        PrintItem::Integer(value) => int(out, program, value, CONDITION)?,
                        PrintItem::Tensor { of, extents } => {
                            reference(out, program, of)?;
                            if let Some(extents) = extents {
                                write!(out, " : {extents:?}")?;
                            }
                        }
                    }
                }
                if let Some(iteration) = iteration.as_ref().filter(|all| self.declared && !all.is_empty()) {
                    out.write_str(", for (")?;
                    for (i, (name, value)) in iteration.iter().enumerate() {
                        write!(out, "{}{name} = ", if i > 0 { ", " } else { "" })?;
                        write_expr(out, program, value)?;
                    }
                    out.write_str(")")?;
                }
                out.write_str(")")
            }
            StmtKind::Break { condition } => {
                out.write_str("break")?;
                if condition.as_int() == Some(1) {
                    return Ok(());
                }
                out.write_str(" if ")?;
                int(out, program, condition, CONDITION)
            }
            StmtKind::Pipeline(id) => {
                write!(out, "{} = ", program.pipeline(*id))?;
                program.write_pipeline(out, *id)
            }
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::IfAny { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. }
            | StmtKind::InTurn { body, .. } => {
                head(out, program, kind)?;
                if let StmtKind::Drain { previous: [i, j], .. } = kind
                    && self.declared
                {
                    write!(out, "({}, {})", program.symbol(*i), program.symbol(*j))?;
                }
                out.write_str(" {\n")?;
                self.block(out, body, depth + 1)?;
                write!(out, "{:width$}}}", "", width = 4 * depth)
            }
            kind => self.result(out, kind),
        }
    }

    /// The operands of a shape statement behind the tensor.
    fn operands_of_shape<F: Form>(&self, out: &mut dyn Write, op: &ShapeOp<F>, src: TensorId) -> fmt::Result {
        let program = self.program;
        match op {
            // In reverse order, which is not written.
            ShapeOp::Transpose(order) if self.reverses(order, src) => Ok(()),
            ShapeOp::Transpose(order) => order.iter().try_for_each(|mode| write!(out, ", {mode}")),
            ShapeOp::Reshape(shape) | ShapeOp::Broadcast(shape) => {
                out.write_str(", [")?;
                list(out, shape, |out, extent| int(out, program, &F::int(extent), SUM))?;
                out.write_str("]")
            }
            ShapeOp::Expand { axis } => write!(out, ", {axis}"),
            ShapeOp::Slice { axis, start, extent } => {
                write!(out, ", {axis}, ")?;
                int(out, program, &F::int(start), SUM)?;
                out.write_str(", ")?;
                int(out, program, &F::int(extent), SUM)
            }
        }
    }

    /// A statement `t = …`, or one that is a plain call.
    fn result<F: Form>(&mut self, out: &mut dyn Write, kind: &StmtKind<F>) -> fmt::Result {
        let program = self.program;
        let name = |id: &TensorId| program.tensor(*id);
        match kind {
            StmtKind::Cast { dst, src } => {
                self.defined.insert(*dst);
                let dtype = program.dtype(*dst).map_or("?", |dtype| dtype.name());
                write!(out, "{} = cast({}, {dtype})", name(dst), name(src))
            }
            StmtKind::Rearrange { dst, src } => {
                write!(out, "{} = rearrange({}", name(dst), name(src))?;
                if self.defined.insert(*dst)
                    && !self.declared
                    && let Some(layout) = program.pinned(*dst)
                {
                    write!(out, ", layout = {layout}")?;
                }
                out.write_str(")")
            }
            StmtKind::Elementwise { dst, expr } => {
                self.defined.insert(*dst);
                write!(out, "{} = ", name(dst))?;
                elementwise(out, program, expr, BinaryOp::OR)
            }
            StmtKind::Shape { dst, src, op } => {
                self.defined.insert(*dst);
                write!(out, "{} = {}({}", name(dst), op.name(), name(src))?;
                self.operands_of_shape(out, op, *src)?;
                out.write_str(")")
            }
            StmtKind::Join { dst, a, b } => {
                self.defined.insert(*dst);
                write!(out, "{} = join({}, {})", name(dst), name(a), name(b))
            }
            StmtKind::Split { lo, hi, src } => {
                self.defined.extend([*lo, *hi]);
                write!(out, "{}, {} = split({})", name(lo), name(hi), name(src))
            }
            StmtKind::Reduce { dst, src, op, axis } => {
                self.defined.insert(*dst);
                write!(out, "{} = reduce({}, {}, {axis})", name(dst), name(src), op.name())
            }
            StmtKind::Scan { dst, operands, axis, reverse } => {
                self.defined.insert(*dst);
                write!(out, "{} = scan(", name(dst))?;
                match operands {
                    ScanOperands::One { src, op } => write!(out, "{}, {}, {axis}", name(src), op.name())?,
                    ScanOperands::Linear { a, b, before } => {
                        write!(out, "{}, {}, linear, {axis}", name(a), name(b))?;
                        before.iter().try_for_each(|before| write!(out, ", {}", name(before)))?;
                    }
                }
                out.write_str(if *reverse { ", reverse)" } else { ")" })
            }
            StmtKind::Combine { dsts, srcs, by, axis, form } => {
                self.defined.extend(dsts.iter().copied());
                list(out, dsts, |out, dst| out.write_str(name(dst)))?;
                write!(out, " = {}(", form.name())?;
                out.write_str(if srcs.len() > 1 { "(" } else { "" })?;
                list(out, srcs, |out, src| out.write_str(name(src)))?;
                out.write_str(if srcs.len() > 1 { "), " } else { ", " })?;
                combination(out, program, by)?;
                let reverse = matches!(form, CombineForm::Scan { reverse: true });
                write!(out, ", {axis}{})", if reverse { ", reverse" } else { "" })
            }
            StmtKind::ClusterCombine { dsts, by } => {
                out.write_str("cluster_reduce(")?;
                out.write_str(if dsts.len() > 1 { "(" } else { "" })?;
                list(out, dsts, |out, dst| out.write_str(name(dst)))?;
                out.write_str(if dsts.len() > 1 { "), " } else { ", " })?;
                combination(out, program, by)?;
                out.write_str(")")
            }
            StmtKind::Arg { value, index, src, op, axis } => {
                self.defined.extend([*value, *index]);
                write!(out, "{}, {} = {}({}, {axis})", name(value), name(index), op.name(), name(src))
            }
            StmtKind::Sort { dst, src, carried, axis, descending } => {
                self.defined.insert(*dst);
                write!(out, "{}", name(dst))?;
                if let Some([values, _]) = carried {
                    self.defined.insert(*values);
                    write!(out, ", {}", name(values))?;
                }
                write!(out, " = sort({}", name(src))?;
                if let Some([_, with]) = carried {
                    write!(out, ", {}", name(with))?;
                }
                write!(out, ", {axis}{})", if *descending { ", descending" } else { "" })
            }
            StmtKind::Gather { dst, src, index, axis } => {
                self.defined.insert(*dst);
                write!(out, "{} = gather({}, {}, {axis})", name(dst), name(src), name(index))
            }
            plain => {
                let Some((word, arguments)) = plain.plain() else { return out.write_str("?") };
                write!(out, "{word}(")?;
                list(out, &arguments, |out, argument| match argument {
                    Argument::Tensor(id) => out.write_str(name(id)),
                    Argument::Int(e) => int(out, program, &F::int(e), SUM),
                    Argument::Number(value) => number(out, *value),
                    Argument::Operation(op) => out.write_str(op.name()),
                })?;
                out.write_str(")")
            }
        }
    }
}

/// Declarations of one kind that follow each other share a line.
/// The sizes and constants of programs, those of one name once, and the values of constants for a tuner.
fn declarations(out: &mut dyn Write, programs: &[&Program]) -> fmt::Result {
    let keyword = |s: &Symbol| match s.kind {
        SymbolKind::Size(_) => Some("size"),
        SymbolKind::Constant(_) => Some("const"),
        SymbolKind::Let
        | SymbolKind::Ticket
        | SymbolKind::Counter
        | SymbolKind::UnrolledBy(_)
        | SymbolKind::Unrolled => None,
    };
    let mut line = None;
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (program, row) in programs.iter().flat_map(|p| p.symbols.iter().map(move |row| (*p, row))) {
        let Some(word) = keyword(row) else { continue };
        if !seen.insert(&row.name) {
            continue;
        }
        if line == Some(word) {
            out.write_str(", ")?;
        } else {
            write!(out, "{}{word} ", if line.is_some() { "\n" } else { "" })?;
        }
        line = Some(word);
        write!(out, "{} = ", row.name)?;
        match &row.kind {
            SymbolKind::Size(default) => int(out, program, &Expr::Int(*default), SUM)?,
            SymbolKind::Constant(default) => int(out, program, default, SUM)?,
            SymbolKind::Let
            | SymbolKind::Ticket
            | SymbolKind::Counter
            | SymbolKind::UnrolledBy(_)
            | SymbolKind::Unrolled => {}
        }
    }
    if line.is_some() {
        out.write_str("\n\n")?;
    }
    let mut dimensions: BTreeSet<&str> = BTreeSet::new();
    for (program, dimension) in programs.iter().flat_map(|p| p.space.iter().map(move |d| (*p, d))) {
        let name = Names::symbol(program, dimension.constant);
        let values: Vec<String> = dimension.values.iter().map(i64::to_string).collect();
        if dimensions.contains(name) {
            continue;
        }
        let before = if dimensions.is_empty() { "space { " } else { ", " };
        write!(out, "{before}{name} = {}", values.join(" | "))?;
        dimensions.insert(name);
    }
    if dimensions.is_empty() { Ok(()) } else { out.write_str(" }\n\n") }
}

/// A kernel, without declarations.
fn kernel(f: &mut fmt::Formatter<'_>, program: &Program) -> fmt::Result {
    write!(f, "kernel {}(", program.name)?;
    list(f, &program.params, |out, p| param(out, program, p))?;
    f.write_str(")\n    grid(")?;
    ints(f, program, &program.grid)?;
    f.write_str(") threads(")?;
    int(f, program, &program.threads, SUM)?;
    if program.resident != Expr::Int(1) {
        f.write_str(", ")?;
        int(f, program, &program.resident, SUM)?;
    }
    if program.cluster != [Expr::Int(1)] {
        f.write_str(") cluster(")?;
        ints(f, program, &program.cluster)?;
    }
    f.write_str(")\n{\n")?;
    Printer::new(program).block(f, &program.body, 1)?;
    f.write_str("}\n")
}

/// The canonical text form.
impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        declarations(f, &[self])?;
        kernel(f, self)
    }
}

/// The canonical text form: declarations, then the kernels.
impl Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        declarations(f, &self.programs.iter().collect::<Vec<_>>())?;
        for (i, program) in self.programs.iter().enumerate() {
            f.write_str(if i > 0 { "\n" } else { "" })?;
            kernel(f, program)?;
        }
        Ok(())
    }
}

/// Statements as text, a line each and `depth` levels deep, with those inside; nothing for none.
pub fn body_text(program: &dyn Names, body: &[Stmt], depth: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = Printer::new(program).block(&mut text, body, depth);
    text
}

/// A number as it is written in a program.
pub fn number_text(value: f64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = number(&mut text, value);
    text
}

/// `flag[i, j]`.
fn write_flag(out: &mut dyn Write, program: &dyn Names, flag: &Flag) -> fmt::Result {
    write!(out, "{}[", program.param(flag.param))?;
    int::ints(out, program, &flag.index)?;
    out.write_str("]")
}

/// One statement of a program as text, without what a loop, a role or a stage holds: `for ki in 0..ceil_div(k, 32)`. Expressions stand
/// for tensors that the author did not name.
pub fn statement_text<F: Form>(program: &dyn Names, stmt: &Stmt<F>) -> String {
    let text = named_statement_text(&Said(program), stmt);
    let unnamed = stmt.kind.assigned().first().and_then(|id| program.unnamed(*id));
    let value = unnamed.and_then(|name| text.strip_prefix(name)?.strip_prefix(" = "));
    value.map(str::to_string).unwrap_or(text)
}

/// [`statement_text`] with the names that the text form has for all tensors.
pub fn named_statement_text<F: Form>(program: &dyn Names, stmt: &Stmt<F>) -> String {
    let mut text = String::new();
    // As if every tensor had been defined: no layout is given.
    let mut printer =
        Printer { program, defined: stmt.kind.assigned().into_iter().collect(), declared: false };
    let written = match &stmt.kind {
        kind @ (StmtKind::For { .. }
        | StmtKind::If { .. }
        | StmtKind::IfAny { .. }
        | StmtKind::Tiles { .. }
        | StmtKind::Drain { .. }
        | StmtKind::Role { .. }
        | StmtKind::Stage { .. }
        | StmtKind::InTurn { .. }) => head(&mut text, program, kind),
        kind => printer.statement(&mut text, kind, 0),
    };
    // Writing to a `String` cannot fail.
    debug_assert!(written.is_ok());
    text
}
