//! Program to text: the canonical form, which [`parse`](crate::parse) reads back to the same program. Names and constants
//! stay symbolic; parentheses stand only where the grammar needs them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use crate::expr::{Axis, Expr, IntOp, SymbolId};
use crate::program::{
    BinaryOp, ElemExpr, Form, IndexedMode, Literal, Module, Notation, Param, ParamId, ParamKind, PipelineId,
    Program, ScanOperands, ShapeOp, Side, Stmt, StmtKind, Surface, Symbol, SymbolKind, TensorId, TensorKind,
    TensorRef, TileOrder, UnaryOp, ViewLeaf, ViewMode,
};
use crate::statement::Argument;
use tilewright_layout::Layout;
use tilewright_machine::DType;

/// The names and kinds of a program's things, and its definitions as text. Those of ids that it does not have are `?`.
pub trait Names {
    /// A size, a constant or a counter.
    fn symbol(&self, id: SymbolId) -> &str;
    /// A parameter.
    fn param(&self, id: ParamId) -> &str;
    /// A tensor.
    fn tensor(&self, id: TensorId) -> &str;
    /// A pipeline.
    fn pipeline(&self, id: PipelineId) -> &str;
    /// True if the symbol is a size.
    fn is_size(&self, id: SymbolId) -> bool;
    /// True if the counter is that of an `unroll for`.
    fn is_unrolled(&self, counter: SymbolId) -> bool;
    /// Number of iterations of an `unroll(n) for` that are written out at a time.
    fn unrolled_by(&self, counter: SymbolId) -> Option<&Expr>;
    /// The element type of a tensor.
    fn dtype(&self, id: TensorId) -> Option<DType>;
    /// Number of modes of a tensor.
    fn rank(&self, id: TensorId) -> usize;
    /// The pinned layout of a register tensor.
    fn pinned(&self, id: TensorId) -> Option<&Layout>;
    /// Writes what a tensor is defined as.
    fn write_tensor(&self, out: &mut dyn Write, id: TensorId) -> fmt::Result;
    /// Writes what a pipeline is defined as: its stages and its tensors.
    fn write_pipeline(&self, out: &mut dyn Write, id: PipelineId) -> fmt::Result;
    /// The text of the expression whose value a tensor holds, of a tensor that the author did not name.
    fn unnamed(&self, id: TensorId) -> Option<&str>;
}

/// The names of a program in messages: a tensor that the author did not name is the expression whose value it holds.
struct Said<'a>(&'a dyn Names);

impl Names for Said<'_> {
    fn symbol(&self, id: SymbolId) -> &str {
        self.0.symbol(id)
    }

    fn param(&self, id: ParamId) -> &str {
        self.0.param(id)
    }

    fn tensor(&self, id: TensorId) -> &str {
        self.0.unnamed(id).unwrap_or_else(|| self.0.tensor(id))
    }

    fn pipeline(&self, id: PipelineId) -> &str {
        self.0.pipeline(id)
    }

    fn is_size(&self, id: SymbolId) -> bool {
        self.0.is_size(id)
    }

    fn is_unrolled(&self, counter: SymbolId) -> bool {
        self.0.is_unrolled(counter)
    }

    fn unrolled_by(&self, counter: SymbolId) -> Option<&Expr> {
        self.0.unrolled_by(counter)
    }

    fn dtype(&self, id: TensorId) -> Option<DType> {
        self.0.dtype(id)
    }

    fn rank(&self, id: TensorId) -> usize {
        self.0.rank(id)
    }

    fn pinned(&self, id: TensorId) -> Option<&Layout> {
        self.0.pinned(id)
    }

    fn write_tensor(&self, out: &mut dyn Write, id: TensorId) -> fmt::Result {
        self.0.write_tensor(out, id)
    }

    fn write_pipeline(&self, out: &mut dyn Write, id: PipelineId) -> fmt::Result {
        self.0.write_pipeline(out, id)
    }

    fn unnamed(&self, id: TensorId) -> Option<&str> {
        self.0.unnamed(id)
    }
}

impl Names for Program {
    fn symbol(&self, id: SymbolId) -> &str {
        self.symbols.get(id.0 as usize).map_or("?", |s| &s.name)
    }

    fn param(&self, id: ParamId) -> &str {
        self.params.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn tensor(&self, id: TensorId) -> &str {
        self.tensors.get(id.0 as usize).map_or("?", |t| &t.name)
    }

    fn pipeline(&self, id: PipelineId) -> &str {
        self.pipelines.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn is_size(&self, id: SymbolId) -> bool {
        self.symbols.get(id.0 as usize).is_some_and(|s| matches!(s.kind, SymbolKind::Size(_)))
    }

    fn is_unrolled(&self, counter: SymbolId) -> bool {
        self.symbols.get(counter.0 as usize).is_some_and(|s| s.kind == SymbolKind::Unrolled)
    }

    fn unrolled_by(&self, counter: SymbolId) -> Option<&Expr> {
        match self.symbols.get(counter.0 as usize).map(|s| &s.kind) {
            Some(SymbolKind::UnrolledBy(factor)) => Some(factor),
            _ => None,
        }
    }

    fn dtype(&self, id: TensorId) -> Option<DType> {
        self.tensors.get(id.0 as usize).map(|t| t.dtype)
    }

    fn rank(&self, id: TensorId) -> usize {
        self.tensors.get(id.0 as usize).map_or(0, |t| match &t.kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Part { shape, .. } => shape.len(),
        })
    }

    fn pinned(&self, id: TensorId) -> Option<&Layout> {
        match self.tensors.get(id.0 as usize).map(|t| &t.kind) {
            Some(TensorKind::Register { pinned, .. }) => pinned.as_ref(),
            _ => None,
        }
    }

    fn write_tensor(&self, out: &mut dyn Write, id: TensorId) -> fmt::Result {
        let Some(row) = self.tensors.get(id.0 as usize) else { return out.write_str("?") };
        match &row.kind {
            TensorKind::Register { shape, pinned } => {
                fragment(out, self, ("register", row.dtype), shape, pinned.as_ref())
            }
            TensorKind::Shared { shape, pinned } => {
                fragment(out, self, ("shared", row.dtype), shape, pinned.as_ref())
            }
            // Parts are never defined.
            TensorKind::Part { .. } => out.write_str("?"),
            TensorKind::View { param, offsets, ends, modes } => {
                view(out, self, *param, (offsets, ends), modes)
            }
        }
    }

    fn write_pipeline(&self, out: &mut dyn Write, id: PipelineId) -> fmt::Result {
        let Some(row) = self.pipelines.get(id.0 as usize) else { return out.write_str("?") };
        pipeline(out, self, &row.stages, &row.tensors)
    }

    fn unnamed(&self, id: TensorId) -> Option<&str> {
        self.tensors.get(id.0 as usize)?.unnamed.text()
    }
}

/// The precedence of a place: an expression that binds less there needs parentheses.
const CONDITION: u8 = 0;
const CONJUNCTION: u8 = 1;
const COMPARISON: u8 = 2;
const SUM: u8 = 3;
const PRODUCT: u8 = 4;
const FACTOR: u8 = 5;

/// An integer expression in the program's names.
pub(crate) fn expr_text(program: &dyn Names, expr: &Expr) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = int(&mut text, program, expr, SUM);
    text
}

/// Writes an integer expression.
pub(crate) fn write_expr(out: &mut dyn Write, program: &dyn Names, expr: &Expr) -> fmt::Result {
    int(out, program, expr, SUM)
}

fn int(out: &mut dyn Write, program: &dyn Names, expr: &Expr, place: u8) -> fmt::Result {
    match expr {
        // The literal without its sign would not fit.
        Expr::Int(i64::MIN) => write!(out, "(-{} - 1)", i64::MAX),
        Expr::Int(value) => write!(out, "{value}"),
        Expr::Symbol(id) => out.write_str(program.symbol(*id)),
        Expr::Block(axis) => out.write_str(match axis {
            Axis::X => "block.x",
            Axis::Y => "block.y",
            Axis::Z => "block.z",
        }),
        Expr::Element(param, index) => {
            write!(out, "{}[", program.param(*param))?;
            ints(out, program, index)?;
            out.write_str("]")
        }
        Expr::Scalar(param) => out.write_str(program.param(*param)),
        Expr::Binary(op, a, b) => {
            let (sign, level) = match op {
                IntOp::Add => ("+", SUM),
                IntOp::Sub => ("-", SUM),
                IntOp::Mul => ("*", PRODUCT),
                IntOp::Div => ("/", PRODUCT),
                IntOp::Rem => ("%", PRODUCT),
                IntOp::Eq => ("==", COMPARISON),
                IntOp::Ne => ("!=", COMPARISON),
                IntOp::Lt => ("<", COMPARISON),
                IntOp::Le => ("<=", COMPARISON),
                IntOp::Gt => (">", COMPARISON),
                IntOp::Ge => (">=", COMPARISON),
                IntOp::And => ("and", CONJUNCTION),
                IntOp::Or => ("or", CONDITION),
                IntOp::CeilDiv => return call(out, program, "ceil_div", a, b),
                IntOp::Min => return call(out, program, "min", a, b),
                IntOp::Max => return call(out, program, "max", a, b),
            };
            let brackets = place > level;
            if brackets {
                out.write_str("(")?;
            }
            // A comparison does not follow another without parentheses.
            int(out, program, a, if level == COMPARISON { SUM } else { level })?;
            write!(out, " {sign} ")?;
            int(out, program, b, level + 1)?;
            if brackets {
                out.write_str(")")?;
            }
            Ok(())
        }
    }
}

fn call(out: &mut dyn Write, program: &dyn Names, name: &str, a: &Expr, b: &Expr) -> fmt::Result {
    write!(out, "{name}(")?;
    int(out, program, a, SUM)?;
    out.write_str(", ")?;
    int(out, program, b, SUM)?;
    out.write_str(")")
}

fn number(out: &mut dyn Write, value: f64) -> fmt::Result {
    // The shortest text that reads back; always with a point or an exponent.
    write!(out, "{value:?}")
}

/// The text of an elementwise expression.
pub(crate) fn elementwise_text(program: &dyn Names, expr: &ElemExpr) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = elementwise(&mut text, program, expr, BinaryOp::OR);
    text
}

/// `, outside = -inf`, if a copy says so.
fn outside(out: &mut dyn Write, value: Option<Literal>) -> fmt::Result {
    let Some(value) = value.map(Literal::value) else { return Ok(()) };
    out.write_str(", outside = ")?;
    if value.is_nan() { out.write_str("nan") } else { number(out, value) }
}

/// Writes an operand of an operator of level `place`, in parentheses where it binds less tightly.
fn elementwise(out: &mut dyn Write, program: &dyn Names, expr: &ElemExpr, place: u8) -> fmt::Result {
    let call = |out: &mut dyn Write, name: &str, operands: &[&ElemExpr]| {
        write!(out, "{name}(")?;
        for (i, x) in operands.iter().enumerate() {
            out.write_str(if i > 0 { ", " } else { "" })?;
            elementwise(out, program, x, BinaryOp::OR)?;
        }
        out.write_str(")")
    };
    match expr {
        ElemExpr::Tensor(id) => out.write_str(program.tensor(*id)),
        ElemExpr::Number(value) => number(out, *value),
        ElemExpr::Scalar(id) => out.write_str(program.param(*id)),
        // A literal alone is a number of any type.
        ElemExpr::Int(Expr::Int(value)) => write!(out, "int({value})"),
        ElemExpr::Int(value) => {
            let level = match place {
                BinaryOp::OR => CONDITION,
                BinaryOp::AND => CONJUNCTION,
                BinaryOp::NOT..=BinaryOp::COMPARISON => COMPARISON,
                4..=BinaryOp::SUM => SUM,
                BinaryOp::PRODUCT => PRODUCT,
                _ => FACTOR,
            };
            int(out, program, value, level)
        }
        ElemExpr::Index(axis) => write!(out, "index({axis})"),
        ElemExpr::Unary(UnaryOp::Float, x) if matches!(**x, ElemExpr::Int(Expr::Int(_))) => {
            out.write_str("float(")?;
            if let ElemExpr::Int(value) = &**x {
                int(out, program, value, SUM)?;
            }
            out.write_str(")")
        }
        ElemExpr::Unary(UnaryOp::Neg, x) => {
            out.write_str("-")?;
            elementwise(out, program, x, BinaryOp::FACTOR)
        }
        ElemExpr::Unary(UnaryOp::Not, x) => {
            let brackets = place > BinaryOp::NOT;
            out.write_str(if brackets { "(not " } else { "not " })?;
            elementwise(out, program, x, BinaryOp::NOT)?;
            out.write_str(if brackets { ")" } else { "" })
        }
        ElemExpr::Unary(op, x) => call(out, op.name(), &[x]),
        ElemExpr::Where(operands) => call(out, "where", &operands.each_ref()),
        ElemExpr::Bitcast(dtype, x) => {
            out.write_str("bitcast(")?;
            elementwise(out, program, x, BinaryOp::OR)?;
            write!(out, ", {dtype})")
        }
        ElemExpr::Binary(op, a, b) => {
            let Notation::Infix(level) = op.notation() else { return call(out, op.name(), &[a, b]) };
            let brackets = place > level;
            if brackets {
                out.write_str("(")?;
            }
            // Comparisons do not chain.
            elementwise(out, program, a, if op.compares() { level + 1 } else { level })?;
            write!(out, " {} ", op.name())?;
            elementwise(out, program, b, level + 1)?;
            if brackets {
                out.write_str(")")?;
            }
            Ok(())
        }
    }
}

/// `BK * e1`: the factors of the scale, each in parentheses where it is no atom, then the basis element.
fn step(out: &mut dyn Write, program: &dyn Names, leaf: &ViewLeaf) -> fmt::Result {
    fn factors(out: &mut dyn Write, program: &dyn Names, scale: &Expr) -> fmt::Result {
        match scale {
            Expr::Binary(IntOp::Mul, a, b) => {
                factors(out, program, a)?;
                int(out, program, b, FACTOR)?;
            }
            _ => int(out, program, scale, FACTOR)?,
        }
        out.write_str(" * ")
    }
    if leaf.scale != Expr::Int(1) {
        factors(out, program, &leaf.scale)?;
    }
    write!(out, "e{}", leaf.dim)
}

pub(crate) fn list<T>(
    out: &mut dyn Write,
    items: &[T],
    mut item: impl FnMut(&mut dyn Write, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, value) in items.iter().enumerate() {
        let mut text = String::new();
        item(&mut text, value)?;
        write!(out, "{}{text}", if i > 0 { ", " } else { "" })?;
    }
    Ok(())
}

pub(crate) fn ints(out: &mut dyn Write, program: &dyn Names, items: &[Expr]) -> fmt::Result {
    list(out, items, |out, e| int(out, program, e, SUM))
}

pub(crate) fn param(out: &mut dyn Write, program: &dyn Names, param: &Param) -> fmt::Result {
    if param.is_constant() {
        out.write_str("constant ")?;
    }
    write!(out, "{}: {}", param.name, param.dtype)?;
    match &param.kind {
        ParamKind::Tensor { shape, strides, .. } => {
            out.write_str("[")?;
            ints(out, program, shape)?;
            out.write_str("]")?;
            if let Some(strides) = strides {
                out.write_str(" : (")?;
                ints(out, program, strides)?;
                out.write_str(")")?;
            }
            Ok(())
        }
        ParamKind::Scalar { default } => {
            out.write_str(" = ")?;
            match param.integer() {
                Some(default) => write!(out, "{default}"),
                None => number(out, *default),
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

/// `global_view(x[:, :], (64, 64) : (e0, e1))`.
pub(crate) fn view(
    out: &mut dyn Write,
    program: &dyn Names,
    param: ParamId,
    (offsets, ends): (&[Expr], &[Option<Expr>]),
    modes: &[ViewMode],
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
        StmtKind::Tiles { row, col, previous, rows, cols, order, .. } => {
            write!(out, "for ({}, {})", program.symbol(*row), program.symbol(*col))?;
            if let Some([row, col]) = previous {
                write!(out, " previous ({}, {})", program.symbol(*row), program.symbol(*col))?;
            }
            out.write_str(" in tiles(")?;
            int(out, program, rows, SUM)?;
            out.write_str(", ")?;
            int(out, program, cols, SUM)?;
            let (word, number, serpentine) = match order {
                TileOrder::Grouped { rows, serpentine } => ("grouped", rows, *serpentine),
                TileOrder::Hilbert { order } => ("hilbert", order, false),
            };
            write!(out, ", {word}(")?;
            int(out, program, &F::int(number), SUM)?;
            out.write_str(if serpentine { ", serpentine))" } else { "))" })
        }
        StmtKind::Drain { .. } => out.write_str("drain"),
        StmtKind::If { otherwise: true, .. } => out.write_str("else"),
        StmtKind::If { condition, .. } => {
            out.write_str("if ")?;
            int(out, program, condition, CONDITION)
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
                let words = [how.multicast.then_some("multicast"), how.add.then_some("add")];
                let by = [how.hint.map(|hint| hint.name()), how.threads.then_some("threads"), tma];
                for word in words.into_iter().chain(by).flatten() {
                    write!(out, ", {word}")?;
                }
                outside(out, how.outside)?;
                out.write_str(")")
            }
            StmtKind::Gemm { c, a, b, warps } => {
                write!(out, "gemm({}, {}, {}", name(c), name(a), name(b))?;
                shares::<F>(out, program, "warps", warps)?;
                out.write_str(")")
            }
            StmtKind::GemmAsync { c, a, b, warpgroups } => {
                write!(out, "gemm.async({}, ", name(c))?;
                reference(out, program, a)?;
                out.write_str(", ")?;
                reference(out, program, b)?;
                shares::<F>(out, program, "warpgroups", warpgroups)?;
                out.write_str(")")
            }
            StmtKind::Pipeline(id) => {
                write!(out, "{} = ", program.pipeline(*id))?;
                program.write_pipeline(out, *id)
            }
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. } => {
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
        SymbolKind::Let | SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled => None,
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
            SymbolKind::Let | SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled => {}
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
    if program.cluster != Expr::Int(1) {
        f.write_str(") cluster(")?;
        int(f, program, &program.cluster, SUM)?;
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
        | StmtKind::Tiles { .. }
        | StmtKind::Drain { .. }
        | StmtKind::Role { .. }
        | StmtKind::Stage { .. }) => head(&mut text, program, kind),
        kind => printer.statement(&mut text, kind, 0),
    };
    // Writing to a `String` cannot fail.
    debug_assert!(written.is_ok());
    text
}
