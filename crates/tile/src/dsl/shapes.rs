//! Statements that give register tensors another shape, reduce them and gather from them.

use super::{KernelBuilder, Tensor};
use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::program::{ReduceOp, ShapeOp, StmtKind, TensorId, TensorKind};

/// Every statement here has two forms: one makes a new register tensor with a name, the other, which ends in `_to`, updates an
/// existing one.
///
/// ```
/// use tilewright_machine::DType::{F32, I32};
/// use tilewright_tile::{Constants, ReduceOp, dsl::KernelBuilder, parse, verify};
///
/// let mut k = KernelBuilder::new("shapes");
/// k.grid([1]);
/// k.threads(32);
/// let r = k.register_tensor("r", F32, [8, 4]);
/// let at = k.register_tensor("at", I32, [8, 16]);
/// let t = k.permute("t", &r, [1, 0]);
/// let flat = k.reshape("flat", &t, [32]);
/// let rows = k.reduce("rows", &r, ReduceOp::Max, 1);
/// let column = k.expand("column", &rows, 1);
/// let wide = k.broadcast("wide", &column, [8, 4]);
/// let pairs = k.join("pairs", &r, &wide);
/// let (x, y) = k.split("x", "y", &pairs);
/// let picked = k.gather("picked", &x, &at, 1);
/// let half = k.slice("half", &r, 1, 2, 2);
/// k.reshape_to(&r, &flat);
/// # let _ = (y, picked, half);
/// let program = k.finish()?;
///
/// let text = "kernel shapes() grid(1) threads(32) {
///         r = register_tensor(f32, [8, 4])
///         at = register_tensor(i32, [8, 16])
///         t = transpose(r)
///         flat = reshape(t, [32])
///         rows = reduce(r, max, 1)
///         column = expand(rows, 1)
///         wide = broadcast(column, [8, 4])
///         pairs = join(r, wide)
///         x, y = split(pairs)
///         picked = gather(x, at, 1)
///         half = slice(r, 1, 2, 2)
///         r = reshape(flat, [8, 4])
///     }";
/// assert_eq!(program, parse(text)?);
/// verify(&program, &Constants::new())?;
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
impl KernelBuilder {
    /// `name = transpose(src, order…)`: mode `i` of the result is mode `order[i]` of `src`. No order at all reverses them.
    #[track_caller]
    pub fn permute(&mut self, name: &str, src: &Tensor, order: impl IntoIterator<Item = u32>) -> Tensor {
        let op = self.transpose(src, order);
        self.shape(name, src, op)
    }

    /// `dst = transpose(src, order…)`.
    #[track_caller]
    pub fn permute_to(&mut self, dst: &Tensor, src: &Tensor, order: impl IntoIterator<Item = u32>) {
        let op = self.transpose(src, order);
        self.update([dst, src], |[dst, src]| StmtKind::Shape { dst, src, op });
    }

    fn transpose(&self, src: &Tensor, order: impl IntoIterator<Item = u32>) -> ShapeOp {
        let order: Vec<u32> = order.into_iter().collect();
        if order.is_empty() {
            return ShapeOp::Transpose((0..src.rank as u32).rev().collect());
        }
        ShapeOp::Transpose(order)
    }

    /// `name = reshape(src, [shape])`: the same elements in the same order, leftmost mode fastest.
    #[track_caller]
    pub fn reshape<E: Into<Expr>>(
        &mut self,
        name: &str,
        src: &Tensor,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.shape(name, src, ShapeOp::Reshape(shape.into_iter().map(Into::into).collect()))
    }

    /// `dst = reshape(src, …)` to the shape of an existing tensor.
    #[track_caller]
    pub fn reshape_to(&mut self, dst: &Tensor, src: &Tensor) {
        if let Some(shape) = self.shape_of(dst) {
            let op = ShapeOp::Reshape(shape);
            self.update([dst, src], |[dst, src]| StmtKind::Shape { dst, src, op });
        }
    }

    /// `name = expand(src, axis)`: a new mode of extent 1, which is mode `axis` of the result.
    #[track_caller]
    pub fn expand(&mut self, name: &str, src: &Tensor, axis: u32) -> Tensor {
        self.shape(name, src, ShapeOp::Expand { axis })
    }

    /// `dst = expand(src, axis)`.
    #[track_caller]
    pub fn expand_to(&mut self, dst: &Tensor, src: &Tensor, axis: u32) {
        self.update([dst, src], |[dst, src]| StmtKind::Shape { dst, src, op: ShapeOp::Expand { axis } });
    }

    /// `name = slice(src, axis, start, extent)`: of mode `axis`, `extent` coordinates from `start` on.
    #[track_caller]
    pub fn slice(
        &mut self,
        name: &str,
        src: &Tensor,
        axis: u32,
        start: impl Into<Expr>,
        extent: impl Into<Expr>,
    ) -> Tensor {
        self.shape(name, src, ShapeOp::Slice { axis, start: start.into(), extent: extent.into() })
    }

    /// `dst = slice(src, axis, start, extent)`, with the extent of an existing tensor.
    #[track_caller]
    pub fn slice_to(&mut self, dst: &Tensor, src: &Tensor, axis: u32, start: impl Into<Expr>) {
        if let Some(shape) = self.shape_of(dst) {
            let extent = shape.get(axis as usize).cloned().unwrap_or(Expr::Int(1));
            let op = ShapeOp::Slice { axis, start: start.into(), extent };
            self.update([dst, src], |[dst, src]| StmtKind::Shape { dst, src, op });
        }
    }

    /// `name = broadcast(src, [shape])`: modes of extent 1 are repeated to these extents.
    #[track_caller]
    pub fn broadcast<E: Into<Expr>>(
        &mut self,
        name: &str,
        src: &Tensor,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.shape(name, src, ShapeOp::Broadcast(shape.into_iter().map(Into::into).collect()))
    }

    /// `dst = broadcast(src, …)` to the shape of an existing tensor.
    #[track_caller]
    pub fn broadcast_to(&mut self, dst: &Tensor, src: &Tensor) {
        if let Some(shape) = self.shape_of(dst) {
            let op = ShapeOp::Broadcast(shape);
            self.update([dst, src], |[dst, src]| StmtKind::Shape { dst, src, op });
        }
    }

    /// `name = join(a, b)`: side by side along a new last mode of extent 2.
    #[track_caller]
    pub fn join(&mut self, name: &str, a: &Tensor, b: &Tensor) -> Tensor {
        let rank = a.rank + 1;
        let (Some(a), Some(b)) = (self.usable(a), self.usable(b)) else {
            return self.handle(None, rank);
        };
        let shape = self.build.joined(a);
        self.derive(name, a, shape, |dst| StmtKind::Join { dst, a, b })
    }

    /// `dst = join(a, b)`.
    #[track_caller]
    pub fn join_to(&mut self, dst: &Tensor, a: &Tensor, b: &Tensor) {
        self.update([dst, a, b], |[dst, a, b]| StmtKind::Join { dst, a, b });
    }

    /// `lo, hi = split(src)`: what lies at 0 and at 1 of the last mode, whose extent is 2.
    #[track_caller]
    pub fn split(&mut self, lo: &str, hi: &str, src: &Tensor) -> (Tensor, Tensor) {
        let rank = src.rank.saturating_sub(1);
        let Some(src) = self.usable(src) else {
            return (self.handle(None, rank), self.handle(None, rank));
        };
        let shape = self.build.halved(src);
        let halves = [self.new_like(lo, src, shape.clone()), self.new_like(hi, src, shape)];
        if let [Some(lo), Some(hi)] = halves {
            self.build.emit(StmtKind::Split { lo, hi, src }, Origin::caller());
        }
        let [lo, hi] = halves.map(|half| self.handle(half, rank));
        (lo, hi)
    }

    /// `lo, hi = split(src)` into existing tensors.
    #[track_caller]
    pub fn split_to(&mut self, lo: &Tensor, hi: &Tensor, src: &Tensor) {
        self.update([lo, hi, src], |[lo, hi, src]| StmtKind::Split { lo, hi, src });
    }

    /// `name = reduce(src, op, axis)`: the elements along a mode become one.
    #[track_caller]
    pub fn reduce(&mut self, name: &str, src: &Tensor, op: ReduceOp, axis: u32) -> Tensor {
        let rank = src.rank.saturating_sub(1).max(1);
        let Some(src) = self.usable(src) else {
            return self.handle(None, rank);
        };
        let shape = self.build.reduced(src, axis);
        self.derive(name, src, shape, |dst| StmtKind::Reduce { dst, src, op, axis })
    }

    /// `dst = reduce(src, op, axis)`.
    #[track_caller]
    pub fn reduce_to(&mut self, dst: &Tensor, src: &Tensor, op: ReduceOp, axis: u32) {
        self.update([dst, src], |[dst, src]| StmtKind::Reduce { dst, src, op, axis });
    }

    /// `name = gather(src, index, axis)`: the elements of `src` that `index` names along a mode.
    #[track_caller]
    pub fn gather(&mut self, name: &str, src: &Tensor, index: &Tensor, axis: u32) -> Tensor {
        let rank = index.rank;
        let (Some(src), Some(index)) = (self.usable(src), self.usable(index)) else {
            return self.handle(None, rank);
        };
        let shape = self.build.result_shape(index);
        self.derive(name, src, shape, |dst| StmtKind::Gather { dst, src, index, axis })
    }

    /// `dst = gather(src, index, axis)`.
    #[track_caller]
    pub fn gather_to(&mut self, dst: &Tensor, src: &Tensor, index: &Tensor, axis: u32) {
        self.update([dst, src, index], |[dst, src, index]| StmtKind::Gather { dst, src, index, axis });
    }

    #[track_caller]
    fn shape(&mut self, name: &str, src: &Tensor, op: ShapeOp) -> Tensor {
        let rank = match &op {
            ShapeOp::Transpose(_) | ShapeOp::Slice { .. } => src.rank,
            ShapeOp::Expand { .. } => src.rank + 1,
            ShapeOp::Reshape(shape) | ShapeOp::Broadcast(shape) => shape.len(),
        };
        let Some(src) = self.usable(src) else {
            return self.handle(None, rank);
        };
        let shape = self.build.reshaped(src, &op);
        self.derive(name, src, shape, |dst| StmtKind::Shape { dst, src, op })
    }

    /// The shape of a tensor that a statement updates.
    #[track_caller]
    fn shape_of(&mut self, dst: &Tensor) -> Option<Vec<Expr>> {
        self.usable(dst).map(|dst| self.build.result_shape(dst))
    }

    /// A new register tensor of the type of `like`.
    #[track_caller]
    fn new_like(&mut self, name: &str, like: TensorId, shape: Vec<Expr>) -> Option<TensorId> {
        let dtype = self.build.program.tensor(like).dtype;
        let kind = TensorKind::Register { shape, pinned: None };
        let declared = self.build.declare_tensor(name, Origin::caller(), dtype, kind);
        self.note(declared)
    }

    /// Emits a statement that makes a new register tensor of the type of `like`.
    #[track_caller]
    fn derive(
        &mut self,
        name: &str,
        like: TensorId,
        shape: Vec<Expr>,
        kind: impl FnOnce(TensorId) -> StmtKind,
    ) -> Tensor {
        let rank = shape.len();
        let dst = self.new_like(name, like, shape);
        if let Some(dst) = dst {
            self.build.emit(kind(dst), Origin::caller());
        }
        self.handle(dst, rank)
    }

    /// Emits a statement over tensors that all exist.
    #[track_caller]
    fn update<const N: usize>(
        &mut self,
        tensors: [&Tensor; N],
        kind: impl FnOnce([TensorId; N]) -> StmtKind,
    ) {
        let mut ids = Vec::new();
        for tensor in tensors {
            ids.extend(self.usable(tensor));
        }
        if let Ok(ids) = <[TensorId; N]>::try_from(ids) {
            self.build.emit(kind(ids), Origin::caller());
        }
    }
}
