//! Statements that give register tensors another shape, reduce them and gather from them.

use super::{Elem, KernelBuilder, Tensor};
use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::program::{ReduceOp, StmtKind, TensorId, TensorKind};

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
    pub fn permute(
        &mut self,
        name: &str,
        src: impl Into<Elem>,
        order: impl IntoIterator<Item = u32>,
    ) -> Tensor {
        self.define(name, src.into().permute(order))
    }

    /// `dst = transpose(src, order…)`.
    #[track_caller]
    pub fn permute_to(&mut self, dst: &Tensor, src: impl Into<Elem>, order: impl IntoIterator<Item = u32>) {
        self.assign(dst, src.into().permute(order));
    }

    /// `name = reshape(src, [shape])`: the same elements in the same order, leftmost mode fastest.
    #[track_caller]
    pub fn reshape<E: Into<Expr>>(
        &mut self,
        name: &str,
        src: impl Into<Elem>,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.define(name, src.into().reshape(shape))
    }

    /// `dst = reshape(src, …)` to the shape of an existing tensor.
    #[track_caller]
    pub fn reshape_to(&mut self, dst: &Tensor, src: impl Into<Elem>) {
        if let Some(shape) = self.shape_of(dst) {
            self.assign(dst, src.into().reshape(shape));
        }
    }

    /// `name = expand(src, axis)`: a new mode of extent 1, which is mode `axis` of the result.
    #[track_caller]
    pub fn expand(&mut self, name: &str, src: impl Into<Elem>, axis: u32) -> Tensor {
        self.define(name, src.into().expand(axis))
    }

    /// `dst = expand(src, axis)`.
    #[track_caller]
    pub fn expand_to(&mut self, dst: &Tensor, src: impl Into<Elem>, axis: u32) {
        self.assign(dst, src.into().expand(axis));
    }

    /// `name = slice(src, axis, start, extent)`: of mode `axis`, `extent` coordinates from `start` on.
    #[track_caller]
    pub fn slice(
        &mut self,
        name: &str,
        src: impl Into<Elem>,
        axis: u32,
        start: impl Into<Expr>,
        extent: impl Into<Expr>,
    ) -> Tensor {
        self.define(name, src.into().slice(axis, start, extent))
    }

    /// `dst = slice(src, axis, start, extent)`, with the extent of an existing tensor.
    #[track_caller]
    pub fn slice_to(&mut self, dst: &Tensor, src: impl Into<Elem>, axis: u32, start: impl Into<Expr>) {
        if let Some(shape) = self.shape_of(dst) {
            let extent = shape.get(axis as usize).cloned().unwrap_or(Expr::Int(1));
            self.assign(dst, src.into().slice(axis, start, extent));
        }
    }

    /// `name = broadcast(src, [shape])`: modes of extent 1 are repeated to these extents.
    #[track_caller]
    pub fn broadcast<E: Into<Expr>>(
        &mut self,
        name: &str,
        src: impl Into<Elem>,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.define(name, src.into().broadcast(shape))
    }

    /// `dst = broadcast(src, …)` to the shape of an existing tensor.
    #[track_caller]
    pub fn broadcast_to(&mut self, dst: &Tensor, src: impl Into<Elem>) {
        if let Some(shape) = self.shape_of(dst) {
            self.assign(dst, src.into().broadcast(shape));
        }
    }

    /// `name = join(a, b)`: side by side along a new last mode of extent 2.
    #[track_caller]
    pub fn join(&mut self, name: &str, a: impl Into<Elem>, b: impl Into<Elem>) -> Tensor {
        self.define(name, a.into().join(b))
    }

    /// `dst = join(a, b)`.
    #[track_caller]
    pub fn join_to(&mut self, dst: &Tensor, a: impl Into<Elem>, b: impl Into<Elem>) {
        self.assign(dst, a.into().join(b));
    }

    /// `lo, hi = split(src)`: what lies at 0 and at 1 of the last mode, whose extent is 2.
    #[track_caller]
    pub fn split(&mut self, lo: &str, hi: &str, src: impl Into<Elem>) -> (Tensor, Tensor) {
        let Some(src) = self.operand(src) else {
            return (self.handle(None, 0), self.handle(None, 0));
        };
        let shape = self.build.halved(src);
        let rank = shape.len();
        let halves = [self.new_like(lo, src, shape.clone()), self.new_like(hi, src, shape)];
        if let [Some(lo), Some(hi)] = halves {
            self.build.emit(StmtKind::Split { lo, hi, src }, Origin::caller());
        }
        let [lo, hi] = halves.map(|half| self.handle(half, rank));
        (lo, hi)
    }

    /// `lo, hi = split(src)` into existing tensors.
    #[track_caller]
    pub fn split_to(&mut self, lo: &Tensor, hi: &Tensor, src: impl Into<Elem>) {
        if let (Some(lo), Some(hi), Some(src)) = (self.usable(lo), self.usable(hi), self.operand(src)) {
            self.build.emit(StmtKind::Split { lo, hi, src }, Origin::caller());
        }
    }

    /// `name = reduce(src, op, axis)`: the elements along a mode become one.
    #[track_caller]
    pub fn reduce(&mut self, name: &str, src: impl Into<Elem>, op: ReduceOp, axis: u32) -> Tensor {
        self.define(name, src.into().reduce(op, axis))
    }

    /// `dst = reduce(src, op, axis)`.
    #[track_caller]
    pub fn reduce_to(&mut self, dst: &Tensor, src: impl Into<Elem>, op: ReduceOp, axis: u32) {
        self.assign(dst, src.into().reduce(op, axis));
    }

    /// `name = gather(src, index, axis)`: the elements of `src` that `index` names along a mode.
    #[track_caller]
    pub fn gather(&mut self, name: &str, src: impl Into<Elem>, index: impl Into<Elem>, axis: u32) -> Tensor {
        self.define(name, src.into().gather(index, axis))
    }

    /// `dst = gather(src, index, axis)`.
    #[track_caller]
    pub fn gather_to(&mut self, dst: &Tensor, src: impl Into<Elem>, index: impl Into<Elem>, axis: u32) {
        self.assign(dst, src.into().gather(index, axis));
    }

    /// The shape of a tensor that a statement updates.
    #[track_caller]
    fn shape_of(&mut self, dst: &Tensor) -> Option<Vec<Expr>> {
        self.usable(dst).map(|dst| self.build.result_shape(dst))
    }

    /// A new register tensor of the type of `like`.
    #[track_caller]
    pub(super) fn new_like(&mut self, name: &str, like: TensorId, shape: Vec<Expr>) -> Option<TensorId> {
        let dtype = self.build.program.tensor(like).dtype;
        let kind = TensorKind::Register { shape, pinned: None };
        let declared = self.build.declare_tensor(name, Origin::caller(), dtype, kind);
        self.note(declared)
    }
}
