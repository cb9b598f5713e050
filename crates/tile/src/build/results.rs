//! Types and shapes of the results of statements.

use super::{Builder, is_permutation};
use tilewright_machine::DType;

use crate::arith::value_type;
use crate::diagnostic::Origin;
use crate::expr::{Expr, IntOp};
use crate::program::{ElemExpr, ShapeOp, Tensor, TensorId, TensorKind, Unnamed};

impl Builder {
    /// The element type of a new tensor that an elementwise expression makes. Where types clash, that of the first tensor: the verifier says so.
    pub(crate) fn result_type(&self, expr: &ElemExpr) -> DType {
        let first = || expr.tensors().first().map_or(DType::F32, |id| self.program.tensor(*id).dtype);
        value_type(expr, &self.program).map_or_else(|_| first(), |found| found.dtype())
    }

    /// The shape that a register tensor computed from `tensor` has.
    pub(crate) fn result_shape(&self, tensor: TensorId) -> Vec<Expr> {
        match &self.program.tensor(tensor).kind {
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape }
            | TensorKind::Part { shape, .. } => shape.clone(),
            TensorKind::View { modes, .. } => modes
                .iter()
                .map(|mode| mode.leaves.iter().fold(Expr::Int(1), |product, leaf| product * &leaf.extent))
                .collect(),
        }
    }

    /// The shape of an elementwise expression over these tensors: of each mode the largest extent, for an extent of 1 repeats. Whether the
    /// extents fit, the verifier checks.
    pub(crate) fn elementwise_shape(&self, tensors: &[TensorId]) -> Option<Vec<Expr>> {
        let mut shapes = tensors.iter().map(|tensor| self.result_shape(*tensor));
        let mut shape = shapes.next()?;
        let rank = shape.len();
        for other in shapes.filter(|other| other.len() == rank) {
            for (extent, other) in shape.iter_mut().zip(other) {
                if *extent == Expr::Int(1) {
                    *extent = other;
                } else if other != Expr::Int(1) && other != *extent {
                    *extent = Expr::binary(IntOp::Max, extent.clone(), other);
                }
            }
        }
        Some(shape)
    }

    /// The part of a tensor at an index: the one that an earlier statement named, or a new one. Whether there is such a part,
    /// the verifier checks.
    pub(crate) fn part(
        &mut self,
        of: TensorId,
        index: Vec<Option<Expr>>,
        span: impl Into<Origin>,
    ) -> TensorId {
        let span = span.into();
        let known = self.program.tensors.iter().position(
            |t| matches!(&t.kind, TensorKind::Part { of: o, index: i, .. } if *o == of && *i == index),
        );
        if let Some(known) = known {
            return TensorId(known as u32);
        }
        let shape = self.part_shape(of, &index);
        let name = crate::printer::part_text(&self.program, of, &index);
        let dtype = self.program.tensor(of).dtype;
        let id = TensorId(self.program.tensors.len() as u32);
        let (kind, unnamed) = (TensorKind::Part { of, index, shape }, Unnamed::default());
        self.program.tensors.push(Tensor { name, dtype, kind, span, unnamed });
        id
    }

    /// The shape of the part of a tensor at an index.
    pub(crate) fn part_shape(&self, of: TensorId, index: &[Option<Expr>]) -> Vec<Expr> {
        let shape = self.result_shape(of).into_iter().enumerate();
        shape.filter(|(i, _)| !matches!(index.get(*i), Some(Some(_)))).map(|(_, extent)| extent).collect()
    }

    /// The shape of `src` after a shape statement. An illegal one, which the verifier refuses, gives some shape.
    pub(crate) fn reshaped(&self, src: TensorId, op: &ShapeOp) -> Vec<Expr> {
        let mut shape = self.result_shape(src);
        match op {
            ShapeOp::Transpose(order) if is_permutation(order, shape.len()) => {
                order.iter().filter_map(|&mode| shape.get(mode as usize).cloned()).collect()
            }
            ShapeOp::Transpose(_) => shape,
            ShapeOp::Reshape(shape) | ShapeOp::Broadcast(shape) => shape.clone(),
            ShapeOp::Expand { axis } => {
                shape.insert(shape.len().min(*axis as usize), Expr::Int(1));
                shape
            }
            ShapeOp::Slice { axis, extent, .. } => {
                if let Some(slot) = shape.get_mut(*axis as usize) {
                    *slot = extent.clone();
                }
                shape
            }
        }
    }

    /// The shape of the join of two tensors like this one.
    pub(crate) fn joined(&self, a: TensorId) -> Vec<Expr> {
        let mut shape = self.result_shape(a);
        shape.push(Expr::Int(2));
        shape
    }

    /// The shape of either half of a split.
    pub(crate) fn halved(&self, src: TensorId) -> Vec<Expr> {
        let mut shape = self.result_shape(src);
        shape.pop();
        shape
    }

    /// The shape of a tensor reduced along a mode.
    pub(crate) fn reduced(&self, src: TensorId, axis: u32) -> Vec<Expr> {
        let mut shape = self.result_shape(src);
        if (axis as usize) < shape.len() {
            shape.remove(axis as usize);
        }
        if shape.is_empty() {
            shape.push(Expr::Int(1));
        }
        shape
    }
}
