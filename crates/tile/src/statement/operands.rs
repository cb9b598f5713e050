//! Operands of statements: the statements that are plain calls, and every use of a tensor, integer, counter, pipeline or body.

use super::{Asserted, PrintItem};
use super::{
    Dealer, Fetch, Flag, Form, ReduceOp, ScanOperands, ShapeOp, Side, Stmt, StmtKind, Surface, SyncScope,
    TensorRef, TileOrder,
};
use crate::elementwise::{Asm, ElemExpr};
use crate::expr::{Expr, SymbolId};
use crate::ids::{BarrierId, ParamId, PipelineId, TensorId};

/// A statement's use of a tensor, a counter or a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Use {
    /// It exists from here on: a tensor that holds anything yet, the counter of a loop in its body, a pipeline.
    Define,
    /// The result of `t = …`: overwritten, and it exists from here on, if it did not before.
    Assign,
    /// Overwritten.
    Write,
    /// Read and overwritten: an accumulator.
    Accumulate,
    /// Read.
    Read,
}

impl Use {
    /// True for what is overwritten.
    pub fn writes(self) -> bool {
        matches!(self, Use::Assign | Use::Write | Use::Accumulate)
    }

    /// True for what is read, also to add to it.
    pub fn reads(self) -> bool {
        matches!(self, Use::Read | Use::Accumulate)
    }
}

/// An argument of a plain statement: a place in the table, or a value there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Argument<Tensor, Int, Number> {
    Tensor(Tensor),
    Int(Int),
    Number(Number),
    Operation(ReduceOp),
}

/// An argument as the parser has read it.
pub(crate) type Parsed = Argument<TensorId, Expr, f64>;

/// A statement that is a plain call, as the parser reads it.
pub(crate) struct Plain {
    pub(crate) name: &'static str,
    /// The kinds of its arguments, of tensors with their use, each with a noun for messages.
    pub(crate) arguments: &'static [(Argument<Use, (), ()>, &'static str)],
    /// The statement with these arguments; `None` if they are of other kinds.
    pub(crate) make: fn(Vec<Parsed>) -> Option<StmtKind>,
}

macro_rules! argument_kind {
    (Int) => {
        Argument::Int(())
    };
    (Number) => {
        Argument::Number(())
    };
    (Operation) => {
        // Which one is read from the text.
        Argument::Operation(ReduceOp::Sum)
    };
    ($used:ident) => {
        Argument::Tensor(Use::$used)
    };
}

macro_rules! argument_value {
    (Int $value:expr) => {
        Argument::Int($value)
    };
    (Number $value:expr) => {
        Argument::Number(*$value)
    };
    (Operation $value:expr) => {
        Argument::Operation(*$value)
    };
    ($used:ident $value:expr) => {
        Argument::Tensor(*$value)
    };
}

macro_rules! argument_of {
    (Int $argument:expr) => {
        if let Some(Argument::Int(value)) = $argument { value } else { return None }
    };
    (Number $argument:expr) => {
        if let Some(Argument::Number(value)) = $argument { value } else { return None }
    };
    (Operation $argument:expr) => {
        if let Some(Argument::Operation(value)) = $argument { value } else { return None }
    };
    ($used:ident $argument:expr) => {
        if let Some(Argument::Tensor(value)) = $argument { value } else { return None }
    };
}

macro_rules! operand_of {
    ($Operand:ident Int $value:ident) => {
        Some($Operand::Constant($value))
    };
    ($Operand:ident Number $value:ident) => {{
        let _ = $value;
        None
    }};
    ($Operand:ident Operation $value:ident) => {{
        let _ = $value;
        None
    }};
    ($Operand:ident $used:ident $value:ident) => {
        Some($Operand::Tensor(Use::$used, $value))
    };
}

macro_rules! plain_statements {
    (() $($name:ident($($arg:ident: $shape:ident $noun:literal),*) { $($kind:tt)* })*) => {
        /// Every statement that is a plain call.
        pub(crate) const PLAIN: &[Plain] = &[$(Plain {
            name: stringify!($name),
            arguments: &[$((argument_kind!($shape), $noun)),*],
            #[allow(unused_mut, unused_variables)] // of statements without arguments
            make: |arguments| {
                let mut arguments = arguments.into_iter();
                $(let $arg = argument_of!($shape arguments.next());)*
                Some($($kind)*)
            },
        }),*];

        impl<F: Form> StmtKind<F> {
            /// The name and the arguments of a statement that is a plain call; `None` of any other.
            pub(crate) fn plain(&self) -> Option<(&'static str, Vec<Argument<TensorId, &F::Int, f64>>)> {
                match self {
                    $($($kind)* => Some((stringify!($name), vec![$(argument_value!($shape $arg)),*])),)*
                    _ => None,
                }
            }
        }
    };
}
with_plain_statements!(plain_statements!());

/// Defines an enum of operands, and the functions that list those of a statement. Twice: shared, and to change them.
macro_rules! operands {
    (
        ($Operand:ident, $operands:ident, $collect:ident, $doc:literal $(, $mut:tt)?)
        $($name:ident($($arg:ident: $shape:ident $noun:literal),*) { $($kind:tt)* })*
    ) => {
        #[doc = $doc]
        #[derive(Debug)]
        pub enum $Operand<'a, F: Form = Surface> {
            /// A whole tensor (or a [`TensorKind::Part`](crate::TensorKind::Part)).
            Tensor(Use, &'a $($mut)? TensorId),
            /// A tensor that may be indexed and transposed.
            Reference(Use, &'a $($mut)? TensorRef<F>),
            /// An integer over constants and counters of `unroll for`.
            Constant(&'a $($mut)? F::Int),
            /// An integer over sizes, block indices and the counters of the loops around.
            Expr(&'a $($mut)? Expr),
            /// A counter of a loop, the name of an integer or a ticket, defined; of a `drain`, read: the loop before defines it.
            Counter(Use, &'a $($mut)? SymbolId),
            /// A pipeline: defined, filled or read.
            Pipeline(Use, &'a $($mut)? PipelineId),
            /// A named barrier: defined, waited at (`Read`), or come to without waiting (`Write`); turns: taken (`Accumulate`).
            Barrier(Use, &'a $($mut)? BarrierId),
            /// A scalar parameter.
            Scalar(&'a $($mut)? ParamId),
            /// A tensor parameter that a statement reads or changes without a view.
            Param(Use, &'a $($mut)? ParamId),
            /// The statements inside.
            Body(&'a $($mut)? Vec<Stmt<F>>),
        }

        impl<F: Form> StmtKind<F> {
            #[doc = $doc]
            ///
            /// In the order of the text; but the counters that a loop defines follow its bounds, then comes its condition, and its body is last.
            pub fn $operands(&$($mut)? self) -> Vec<$Operand<'_, F>> {
                use $Operand::{Barrier, Body, Constant, Counter, Expr, Param, Pipeline, Reference, Tensor};
                let mut out = Vec::new();
                match self {
                    StmtKind::Define(id) => out.push(Tensor(Use::Define, id)),
                    StmtKind::Let { symbol, value } => {
                        out.extend([Expr(value), Counter(Use::Define, symbol)]);
                    }
                    StmtKind::Copy { src, dst, how } => {
                        out.extend([Reference(Use::Read, src), Reference(Use::Write, dst)]);
                        if let Some(Fetch { op: _, old, compare }) = &$($mut)? how.fetch {
                            if let Some(compare) = compare {
                                out.push(Tensor(Use::Read, compare));
                            }
                            out.push(Tensor(Use::Assign, old));
                        }
                    }
                    StmtKind::CopyAsync { src, dst, how: _ } => {
                        out.extend([Reference(Use::Read, src), Reference(Use::Write, dst)]);
                    }
                    StmtKind::Gemm { c, a, b, meta, scales, warps } => {
                        out.extend([Tensor(Use::Accumulate, c), Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                        if let Some(meta) = meta {
                            out.push(Tensor(Use::Read, meta));
                        }
                        if let Some([left, right]) = scales {
                            out.extend([Tensor(Use::Read, left), Tensor(Use::Read, right)]);
                        }
                        if let Some([m, n]) = warps {
                            out.extend([Constant(m), Constant(n)]);
                        }
                    }
                    StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups } => {
                        let factors = [Reference(Use::Read, a), Reference(Use::Read, b)];
                        out.push(Tensor(Use::Accumulate, c));
                        out.extend(factors);
                        if let Some(meta) = meta {
                            out.push(Tensor(Use::Read, meta));
                        }
                        if let Some([left, right]) = scales {
                            out.extend([Reference(Use::Read, left), Reference(Use::Read, right)]);
                        }
                        if let Some([m, n]) = warpgroups {
                            out.extend([Constant(m), Constant(n)]);
                        }
                    }
                    $($($kind)* => {
                        $(out.extend::<Option<$Operand<'_, F>>>(operand_of!($Operand $shape $arg));)*
                    })*
                    StmtKind::Pipeline(id) => out.push(Pipeline(Use::Define, id)),
                    StmtKind::SyncGrid { counter } => out.push(Param(Use::Accumulate, counter)),
                    StmtKind::Sync(SyncScope::All | SyncScope::Warpgroup) => {}
                    StmtKind::Sync(SyncScope::Barrier(id)) => out.push(Barrier(Use::Read, id)),
                    StmtKind::Arrive(id) => out.push(Barrier(Use::Write, id)),
                    StmtKind::Barrier(id) => out.push(Barrier(Use::Define, id)),
                    StmtKind::Signal { flag: Flag { param, index }, value, combine: _ } => {
                        out.push(Param(Use::Accumulate, param));
                        for entry in index {
                            out.push(Expr(entry));
                        }
                        out.push(Expr(value));
                    }
                    // Who waits touches the flag as those do who change it: it is no buffer that is only read.
                    StmtKind::Await { flag: Flag { param, index }, least } => {
                        out.push(Param(Use::Accumulate, param));
                        for entry in index {
                            out.push(Expr(entry));
                        }
                        out.push(Expr(least));
                    }
                    StmtKind::Ticket { symbol, flag: Flag { param, index }, count } => {
                        out.push(Param(Use::Accumulate, param));
                        for entry in index {
                            out.push(Expr(entry));
                        }
                        out.extend([Expr(count), Counter(Use::Define, symbol)]);
                    }
                    StmtKind::InTurn { turns, body } => {
                        out.push(Barrier(Use::Accumulate, turns));
                        out.push(Body(body));
                    }
                    StmtKind::Role { name: _, warpgroups, registers, body } => {
                        out.push(Constant(warpgroups));
                        if let Some(registers) = registers {
                            out.push(Constant(registers));
                        }
                        out.push(Body(body));
                    }
                    StmtKind::Stage { pipeline, side, body } => {
                        let side = match side {
                            Side::Produce => Use::Write,
                            Side::Consume => Use::Read,
                        };
                        out.push(Pipeline(side, pipeline));
                        out.push(Body(body));
                    }
                    StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body } => {
                        out.extend([Expr(rows), Expr(cols)]);
                        out.push(match order {
                            TileOrder::Grouped { rows, serpentine: _ } => Constant(rows),
                            TileOrder::Hilbert { order } => Constant(order),
                            TileOrder::Listed { table } => Param(Use::Read, table),
                        });
                        if let Some(Dealer::Counter(counter)) = dynamic {
                            out.push(Param(Use::Accumulate, counter));
                        }
                        out.extend([Counter(Use::Define, row), Counter(Use::Define, col)]);
                        if let Some([i, j]) = previous {
                            out.extend([Counter(Use::Define, i), Counter(Use::Define, j)]);
                        }
                        out.push(Body(body));
                    }
                    StmtKind::Drain { previous: [i, j], body } => {
                        out.extend([Counter(Use::Read, i), Counter(Use::Read, j), Body(body)]);
                    }
                    StmtKind::Cast { dst, src }
                    | StmtKind::Rearrange { dst, src }
                    | StmtKind::Reduce { dst, src, op: _, axis: _ } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src)]);
                    }
                    StmtKind::Elementwise { dst, expr } => {
                        out.push(Tensor(Use::Assign, dst));
                        expr.$collect(&mut out);
                    }
                    StmtKind::Scan { dst, operands, axis: _, reverse: _ } => {
                        out.push(Tensor(Use::Assign, dst));
                        match operands {
                            ScanOperands::One { src, op: _ } => out.push(Tensor(Use::Read, src)),
                            ScanOperands::Linear { a, b, before } => {
                                out.extend([Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                                if let Some(before) = before {
                                    out.push(Tensor(Use::Read, before));
                                }
                            }
                        }
                    }
                    StmtKind::Shape { dst, src, op } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src)]);
                        match op {
                            ShapeOp::Reshape(shape) | ShapeOp::Broadcast(shape) => {
                                for extent in shape {
                                    out.push(Constant(extent));
                                }
                            }
                            ShapeOp::Slice { axis: _, start, extent } => {
                                out.extend([Constant(start), Constant(extent)]);
                            }
                            ShapeOp::Transpose(_) | ShapeOp::Expand { axis: _ } => {}
                        }
                    }
                    StmtKind::Join { dst, a, b } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                    }
                    StmtKind::Split { lo, hi, src } => {
                        out.extend([Tensor(Use::Assign, lo), Tensor(Use::Assign, hi), Tensor(Use::Read, src)]);
                    }
                    StmtKind::Combine { dsts, srcs, by, axis: _, form: _ } => {
                        for dst in dsts {
                            out.push(Tensor(Use::Assign, dst));
                        }
                        for src in srcs {
                            out.push(Tensor(Use::Read, src));
                        }
                        for result in &$($mut)? by.results {
                            result.$collect(&mut out);
                        }
                    }
                    StmtKind::ClusterCombine { dsts, by } => {
                        for dst in dsts {
                            out.push(Tensor(Use::Accumulate, dst));
                        }
                        for result in &$($mut)? by.results {
                            result.$collect(&mut out);
                        }
                    }
                    StmtKind::Arg { value, index, src, op: _, axis: _ } => {
                        let results = [Tensor(Use::Assign, value), Tensor(Use::Assign, index)];
                        out.extend(results);
                        out.push(Tensor(Use::Read, src));
                    }
                    StmtKind::Sort { dst, src, carried, axis: _, descending: _ } => {
                        out.push(Tensor(Use::Assign, dst));
                        match carried {
                            Some([result, operand]) => {
                                let operands = [Tensor(Use::Read, src), Tensor(Use::Read, operand)];
                                out.push(Tensor(Use::Assign, result));
                                out.extend(operands);
                            }
                            None => out.push(Tensor(Use::Read, src)),
                        }
                    }
                    StmtKind::Gather { dst, src, index, axis: _ } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src), Tensor(Use::Read, index)]);
                    }
                    StmtKind::If { condition, otherwise: _, body } => {
                        out.extend([Expr(condition), Body(body)]);
                    }
                    StmtKind::Break { condition } => out.push(Expr(condition)),
                    StmtKind::Assert { condition, text: _ } => out.push(match condition {
                        Asserted::Integer(condition) => Expr(condition),
                        Asserted::All(tensor) => Tensor(Use::Read, tensor),
                    }),
                    StmtKind::Print { text: _, items, iteration } => {
                        for item in items {
                            out.push(match item {
                                PrintItem::Integer(value) => Expr(value),
                                PrintItem::Tensor { of, extents: _ } => Reference(Use::Read, of),
                            });
                        }
                        if let Some(iteration) = iteration {
                            for (_, value) in iteration {
                                out.push(Expr(value));
                            }
                        }
                    }
                    StmtKind::IfAny { condition, axis: _, body } => {
                        out.extend([Tensor(Use::Read, condition), Body(body)]);
                    }
                    StmtKind::For { counter, lo, hi, condition, body } => {
                        out.extend([Expr(lo), Expr(hi), Counter(Use::Define, counter)]);
                        if let Some(condition) = condition {
                            out.push(Expr(condition));
                        }
                        out.push(Body(body));
                    }
                }
                out
            }
        }

        impl ElemExpr {
            fn $collect<'a, F: Form>(&'a $($mut)? self, out: &mut Vec<$Operand<'a, F>>) {
                match self {
                    ElemExpr::Tensor(id) => out.push($Operand::Tensor(Use::Read, id)),
                    ElemExpr::Scalar(id) => out.push($Operand::Scalar(id)),
                    ElemExpr::Int(e) => out.push($Operand::Expr(e)),
                    ElemExpr::Unary(_, x) | ElemExpr::Bitcast(_, x) | ElemExpr::Packed(_, x) => x.$collect(out),
                    ElemExpr::Binary(_, x, y) => {
                        x.$collect(out);
                        y.$collect(out);
                    }
                    ElemExpr::Where(operands) => {
                        for x in &$($mut)? **operands {
                            x.$collect(out);
                        }
                    }
                    ElemExpr::Asm(asm) => {
                        let Asm { operands, means, .. } = &$($mut)? **asm;
                        for x in operands {
                            x.$collect(out);
                        }
                        means.$collect(out);
                    }
                    ElemExpr::Number(_) | ElemExpr::Index(_) | ElemExpr::Operand(_) => {}
                }
            }
        }
    };
}
with_plain_statements!(operands!(
    Operand,
    operands,
    collect,
    "The operands of a statement: each use of a tensor, integer, counter, pipeline or body."
));
with_plain_statements!(operands!(
    OperandMut,
    operands_mut,
    collect_mut,
    "The operands of a statement, to change them.",
    mut
));

impl ElemExpr {
    /// Calls `visit` for every use of a tensor.
    pub(crate) fn tensors_mut(&mut self, mut visit: impl FnMut(&mut TensorId)) {
        let mut operands: Vec<OperandMut<'_>> = Vec::new();
        self.collect_mut(&mut operands);
        for operand in operands {
            if let OperandMut::Tensor(_, id) = operand {
                visit(id);
            }
        }
    }
}
