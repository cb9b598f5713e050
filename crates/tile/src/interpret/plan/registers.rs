//! Operations of statements on whole tensors of the block.

use super::{ElementTypes, Making, Stmt};
use crate::arith::rounded;
use crate::elementwise::ElemExpr;
use crate::interpret::error::InterpretError;
use crate::interpret::executable::Executable;
use crate::interpret::op::{Op, Repeats, Scanned};
use crate::interpret::round::round;
use crate::interpret::shapes::{self, Around};
use crate::program::{Form, ScanOperands, ShapeOp, StmtKind, TensorId};

impl<P: Executable> Making<'_, P> {
    /// An elementwise statement, or one that means an expression.
    fn elementwise(&self, stmt: &Stmt<P>, dst: TensorId, expr: &ElemExpr) -> Result<Op, InterpretError> {
        let dtype = self.dtype(dst);
        let tree = rounded(expr, dtype, &ElementTypes(self.program))
            .map_err(|_| InterpretError::TypeClash { statement: self.text(stmt) })?;
        let shape = self.program.shape(dst);
        let mut repeats = Repeats::new();
        for id in expr.tensors() {
            let from = self.program.shape(id);
            if from != shape {
                repeats.insert(id.0 as usize, shapes::repeated(&from, &shape));
            }
        }
        let shape = shape.into_iter().map(|extent| extent as usize).collect();
        Ok(Op::Elementwise { dst: dst.0 as usize, shape, tree, dtype, repeats })
    }

    /// The operation of a statement that works on whole tensors of the block, if it has one.
    ///
    /// # Errors
    ///
    /// An elementwise expression of types that do not go together.
    pub(super) fn of_registers(&self, stmt: &Stmt<P>) -> Result<Option<Op>, InterpretError> {
        let shape = |id: TensorId| self.program.shape(id);
        let len = |id: TensorId| self.program.elements(id);
        let dtype = |id: TensorId| self.dtype(id);
        Ok(Some(match &stmt.kind {
            // A view has no elements of its own.
            StmtKind::Define(id) if self.program.viewed(*id).is_some() => return Ok(None),
            StmtKind::Define(id) => Op::Define { tensor: id.0 as usize, len: len(*id) },
            StmtKind::Cast { dst, src } | StmtKind::Rearrange { dst, src } => {
                let through_f32 = crate::arith::through_f32(dtype(*src), dtype(*dst));
                // What is of the type already stays as it is: an infinity of `e5m2` does not saturate.
                let rounded = (dtype(*src) != dtype(*dst)).then(|| dtype(*dst));
                Op::Convert { dst: dst.0 as usize, src: src.0 as usize, dtype: rounded, through_f32 }
            }
            StmtKind::Fill { dst, value } => {
                let value = round(dtype(*dst), *value);
                Op::Fill { dst: dst.0 as usize, len: len(*dst), value, pair: None }
            }
            StmtKind::Elementwise { dst, expr } => self.elementwise(stmt, *dst, expr)?,
            StmtKind::Shape { dst, src, op } => self.shape(stmt, *dst, *src, op),
            StmtKind::Join { dst, a, b } => {
                Op::Join { dst: dst.0 as usize, a: a.0 as usize, b: b.0 as usize }
            }
            StmtKind::Split { lo, hi, src } => {
                Op::Split { lo: lo.0 as usize, hi: hi.0 as usize, src: src.0 as usize }
            }
            StmtKind::Reduce { dst, src, op, axis } => Op::Reduce {
                dst: dst.0 as usize,
                src: src.0 as usize,
                around: Around::new(&shape(*src), *axis),
                op: *op,
                dtype: dtype(*dst),
            },
            StmtKind::Scan { dst, operands, axis, reverse } => Op::Scan {
                dst: dst.0 as usize,
                operands: match operands {
                    ScanOperands::One { src, op } => Scanned::One { src: src.0 as usize, op: *op },
                    ScanOperands::Linear { a, b, before } => Scanned::Linear {
                        a: a.0 as usize,
                        b: b.0 as usize,
                        before: before.map(|before| before.0 as usize),
                    },
                },
                around: Around::new(&shape(*dst), *axis),
                dtype: dtype(*dst),
                reverse: *reverse,
            },
            StmtKind::Arg { value, index, src, op, axis } => Op::Arg {
                value: value.0 as usize,
                index: index.0 as usize,
                src: src.0 as usize,
                around: Around::new(&shape(*src), *axis),
                op: *op,
            },
            StmtKind::Sort { dst, src, carried, axis, descending } => Op::Sort {
                dst: dst.0 as usize,
                src: src.0 as usize,
                carried: carried.map(|ids| ids.map(|id| id.0 as usize)),
                around: Around::new(&shape(*src), *axis),
                descending: *descending,
            },
            StmtKind::Gather { dst, src, index, axis } => Op::Gather {
                dst: dst.0 as usize,
                src: src.0 as usize,
                around: Around::new(&shape(*src), *axis),
                index: index.0 as usize,
                along: Around::new(&shape(*index), *axis),
            },
            // `Making::roles` makes a plan of each role; the value of a name stands where it is used.
            StmtKind::Role { .. }
            | StmtKind::Let { .. }
            | StmtKind::Sync(_)
            | StmtKind::Arrive(_)
            | StmtKind::Barrier(_)
            | StmtKind::WaitDependencies
            | StmtKind::LaunchDependents
            | StmtKind::Pipeline(_) => return Ok(None),
            // `Making::operation` knows these.
            StmtKind::Copy { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::Commit
            | StmtKind::Wait(_)
            | StmtKind::Gemm { .. }
            | StmtKind::GemmAsync { .. }
            | StmtKind::Combine { .. }
            | StmtKind::CommitGemm
            | StmtKind::WaitGemm(_)
            | StmtKind::ClusterReduce { .. }
            | StmtKind::ClusterCombine { .. }
            | StmtKind::SyncGrid { .. }
            | StmtKind::Signal { .. }
            | StmtKind::Await { .. }
            | StmtKind::Ticket { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. }
            | StmtKind::Tiles { .. }
            | StmtKind::Drain { .. }
            | StmtKind::IfAny { .. }
            | StmtKind::Break { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Print { .. }
            | StmtKind::InTurn { .. }
            | StmtKind::Stage { .. } => return Ok(None),
        }))
    }
}

impl<P: Executable> Making<'_, P> {
    /// A shape statement.
    pub(super) fn shape(&self, stmt: &Stmt<P>, dst: TensorId, src: TensorId, op: &ShapeOp<P::Form>) -> Op {
        let (from, to) = (self.program.shape(src), self.program.shape(dst));
        let order = shapes::order(op, &from, &to);
        let ShapeOp::Slice { axis, start, .. } = op else {
            return Op::Pick { dst: dst.0 as usize, src: src.0 as usize, order };
        };
        let mode = *axis as usize;
        Op::Slice {
            dst: dst.0 as usize,
            src: src.0 as usize,
            order: order.unwrap_or_default(),
            start: P::Form::int(start),
            most: from[mode] - to[mode],
            stride: from[..mode].iter().product(),
            text: self.text(stmt),
        }
    }
}
