//! The Rust DSL: a [`KernelBuilder`] makes the same [`Program`] that [`parse`](crate::parse) reads, so Rust's own functions,
//! loops and generics do the metaprogramming. Mistakes never panic: [`KernelBuilder::finish`] reports them.
//!
//! ```
//! use tilewright_machine::DType::F32;
//! use tilewright_tile::dsl::{KernelBuilder, block_x, tile};
//!
//! let mut k = KernelBuilder::new("scale");
//! let n = k.size("n", 1000);
//! let t = k.constant("T", 256);
//! let x = k.tensor("x", F32, [&n]);
//! let alpha = k.scalar("alpha", 2.0);
//! k.grid([n.ceil_div(&t)]);
//! k.threads(128);
//! let gx = k.global_view("gx", x.from([block_x() * &t]), [tile(0, &t)]);
//! let r = k.register_tensor("r", F32, [&t]);
//! k.copy(&gx, &r);
//! let scaled = k.define("scaled", alpha * &r + r.tanh());
//! k.copy(&scaled, &gx);
//! let program = k.finish()?;
//!
//! let text = "size n = 1000
//!     const T = 256
//!     kernel scale(x: f32[n], alpha: f32 = 2.0) grid(ceil_div(n, T)) threads(128) {
//!         gx = global_view(x[block.x * T :], (T) : (e0))
//!         r = register_tensor(f32, [T])
//!         copy(gx, r)
//!         scaled = alpha * r + tanh(r)
//!         copy(scaled, gx)
//!     }";
//! assert_eq!(program, tilewright_tile::parse(text)?);
//! # Ok::<(), tilewright_tile::Diagnostics>(())
//! ```
//!
//! An expression stands where a register tensor is read. Its calls (`x.reduce_keep(…)`, `x.cast(…)`) become statements of their own, whose
//! results have no names; extents of 1 repeat:
//!
//! ```
//! use tilewright_machine::DType::{F16, F32};
//! use tilewright_tile::{ReduceOp, dsl::{KernelBuilder, tile}};
//!
//! let mut k = KernelBuilder::new("softmax");
//! let x = k.tensor("x", F16, [4, 128]);
//! k.grid([1]);
//! k.threads(128);
//! let gx = k.global_view("gx", &x, [tile(0, 4), tile(1, 128)]);
//! let r = k.register_tensor("r", F16, [4, 128]);
//! k.copy(&gx, &r);
//! let v = k.cast("v", &r, F32);
//! let p = k.define("p", (v - v.reduce_keep(ReduceOp::Max, 1)).exp());
//! k.copy((p / p.reduce_keep(ReduceOp::Sum, 1)).cast(F16), &gx);
//! let text = "kernel softmax(x: f16[4, 128]) grid(1) threads(128) {
//!         gx = global_view(x, (4, 128) : (e0, e1))
//!         r = register_tensor(f16, [4, 128])
//!         copy(gx, r)
//!         v = cast(r, f32)
//!         p = exp(v - reduce(v, max, 1, keep))
//!         copy(cast(p / reduce(p, sum, 1, keep), f16), gx)
//!     }";
//! assert_eq!(k.finish()?, tilewright_tile::parse(text)?);
//! # Ok::<(), tilewright_tile::Diagnostics>(())
//! ```

mod along;
mod call;
mod print;
mod roles;
mod shapes;
mod tensors;
mod value;

use std::sync::atomic::{AtomicU64, Ordering};

use tilewright_layout::Layout;
use tilewright_machine::{DType, Memory, Number};

use crate::build::{Builder, Head, check_name};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Axis, Expr, SymbolId};
use crate::parser::MAX_DEPTH;
use crate::program::Dimension;
use crate::program::{
    AsyncCopyAttrs, CopyAttrs, ElemExpr, IndexedMode, ParamId, ParamKind, Program, StmtKind, SymbolKind,
    SyncScope, TensorRef, ViewLeaf, ViewMode,
};

use call::{CALLS, Target};

pub use print::Item;
pub use roles::{Pipeline, Walk, dynamic, grouped, hilbert, launched, listed, serpentine};
pub use value::{Buffer, BufferAt, Elem, Reference, Source, Tensor, asm, float, index, where_};

/// `block.x`.
pub fn block_x() -> Expr {
    Expr::Block(Axis::X)
}

/// `block.y`.
pub fn block_y() -> Expr {
    Expr::Block(Axis::Y)
}

/// `block.z`.
pub fn block_z() -> Expr {
    Expr::Block(Axis::Z)
}

/// A mode of a view that walks mode `dim` of the buffer element by element: `extent : e_dim`.
pub fn tile(dim: u32, extent: impl Into<Expr>) -> ViewMode {
    steps(dim, extent, 1)
}

/// A mode of a view that takes `extent` steps of `scale` along mode `dim` of the buffer: `extent : scale * e_dim`.
pub fn steps(dim: u32, extent: impl Into<Expr>, scale: impl Into<Expr>) -> ViewMode {
    ViewMode { leaves: vec![ViewLeaf { extent: extent.into(), dim, scale: scale.into() }] }
}

/// One mode made of several, leftmost fastest: `(8, 4) : (e0, e1)`.
pub fn nested(modes: impl IntoIterator<Item = ViewMode>) -> ViewMode {
    ViewMode { leaves: modes.into_iter().flat_map(|m| m.leaves).collect() }
}

/// A kernel under construction. Handles ([`Buffer`], [`Tensor`], [`Elem`], [`Pipeline`]) belong to the builder that made them.
pub struct KernelBuilder {
    build: Builder,
    owner: u64,
    errors: Vec<Diagnostic>,
}

/// The id of a handle that could not be made: statements that use it are dropped, for a mistake is already recorded.
const POISONED: u32 = u32::MAX;

impl KernelBuilder {
    /// A kernel of this name, with no parameters, an empty grid and an empty body.
    pub fn new(name: &str) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        let mut build = Builder::new();
        build.program.name = name.to_string();
        KernelBuilder { build, owner: OWNERS.fetch_add(1, Ordering::Relaxed), errors: Vec::new() }
    }

    fn note<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    #[track_caller]
    fn misuse(&mut self, code: Code, message: String, help: &str) {
        self.errors.push(Diagnostic::new(code, Origin::caller(), message).help(help));
    }

    // Declarations.

    /// `size name = default`: a run-time size.
    #[track_caller]
    pub fn size(&mut self, name: &str, default: i64) -> Expr {
        self.symbol(name, SymbolKind::Size(default))
    }

    /// `const name = default`: a tile constant; the default is an expression over earlier constants.
    #[track_caller]
    pub fn constant(&mut self, name: &str, default: impl Into<Expr>) -> Expr {
        self.symbol(name, SymbolKind::Constant(default.into()))
    }

    /// `space { constant = values }`: values of a tile constant that a tuner may choose. Of something else than a constant nothing is kept.
    #[track_caller]
    pub fn space(&mut self, constant: &Expr, values: impl IntoIterator<Item = i64>) {
        if let Expr::Symbol(constant) = constant {
            let values = values.into_iter().collect();
            let dimension = Dimension { constant: *constant, values, span: Origin::caller() };
            self.build.program.space.push(dimension);
        }
    }

    #[track_caller]
    fn symbol(&mut self, name: &str, kind: SymbolKind) -> Expr {
        let declared = self.build.declare_symbol(name, Origin::caller(), kind);
        self.note(declared).map_or(Expr::Int(1), Expr::Symbol)
    }

    /// `name: dtype[shape]`: a row-major tensor parameter.
    #[track_caller]
    pub fn tensor<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
    ) -> Buffer {
        let shape = shape.into_iter().map(Into::into).collect();
        self.param(name, dtype, ParamKind::Tensor { shape, strides: None, array: false, constant: false })
    }

    /// `name: dtype[shape] : (strides)`: a tensor parameter with strides in elements.
    #[track_caller]
    pub fn strided_tensor<E: Into<Expr>, S: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
        strides: impl IntoIterator<Item = S>,
    ) -> Buffer {
        let shape = shape.into_iter().map(Into::into).collect();
        let strides = Some(strides.into_iter().map(Into::into).collect());
        self.param(name, dtype, ParamKind::Tensor { shape, strides, array: false, constant: false })
    }

    /// `name: dtype[number][shape] : (strides)`: an array of tensors, which lie anywhere in memory, each of this shape. A view of it has one mode
    /// more in front, which counts them.
    #[track_caller]
    pub fn tensors<E: Into<Expr>, S: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        number: impl Into<Expr>,
        shape: impl IntoIterator<Item = E>,
        strides: impl IntoIterator<Item = S>,
    ) -> Buffer {
        let shape = [number.into()].into_iter().chain(shape.into_iter().map(Into::into)).collect();
        let strides = Some(strides.into_iter().map(Into::into).collect());
        self.param(name, dtype, ParamKind::Tensor { shape, strides, array: true, constant: false })
    }

    /// `constant name: …`: no launch of a sequence of launches that overlap writes the tensor, so that it may be read before
    /// [`wait_dependencies`](Self::wait_dependencies).
    #[track_caller]
    pub fn mark_constant(&mut self, buffer: &Buffer) {
        if self.owned(Some(buffer.owner), buffer.param.0)
            && let Some(row) = self.build.program.params.get_mut(buffer.param.0 as usize)
            && let ParamKind::Tensor { constant, .. } = &mut row.kind
        {
            *constant = true;
        }
    }

    #[track_caller]
    fn param(&mut self, name: &str, dtype: DType, kind: ParamKind) -> Buffer {
        let declared = self.build.declare_param(name, Origin::caller(), dtype, kind);
        Buffer { param: self.note(declared).unwrap_or(ParamId(POISONED)), owner: self.owner }
    }

    /// `name: f32 = default`: a number.
    #[track_caller]
    pub fn scalar(&mut self, name: &str, default: f64) -> Elem {
        if default.is_nan() {
            self.misuse(Code::BadValue, format!("the default of `{name}` is not a number"), "pass a number");
        }
        let buffer = self.param(name, DType::F32, ParamKind::Scalar { default: default.into() });
        Elem::leaf(ElemExpr::Scalar(buffer.param), Some(self.owner))
    }

    /// `name: dtype = default`: a number of type `f32`, `f64`, `i32`, `u32`, `i64` or `u64`, for elementwise expressions.
    #[track_caller]
    pub fn number(&mut self, name: &str, dtype: DType, default: impl Into<Number>) -> Elem {
        let buffer = self.param(name, dtype, ParamKind::Scalar { default: default.into() });
        let leaf = match dtype {
            DType::I32 if buffer.param.0 != POISONED => ElemExpr::Int(Expr::Scalar(buffer.param)),
            _ => ElemExpr::Scalar(buffer.param),
        };
        Elem::leaf(leaf, Some(self.owner))
    }

    /// `name: i32 = default`: an integer that a launch passes. It stands where counters may: in indices, offsets and bounds of loops.
    #[track_caller]
    pub fn integer(&mut self, name: &str, dtype: DType, default: i64) -> Expr {
        let buffer = self.param(name, dtype, ParamKind::Scalar { default: default.into() });
        if buffer.param.0 == POISONED { Expr::Int(1) } else { Expr::Scalar(buffer.param) }
    }

    /// The number of blocks along x, y and z: one to three.
    #[track_caller]
    pub fn grid<E: Into<Expr>>(&mut self, extents: impl IntoIterator<Item = E>) {
        self.build.program.grid = extents.into_iter().map(Into::into).collect();
        self.build.program.grid_span = Origin::caller();
    }

    /// The number of threads of a block.
    #[track_caller]
    pub fn threads(&mut self, threads: impl Into<Expr>) {
        self.build.program.threads = threads.into();
        self.build.program.threads_span = Origin::caller();
    }

    /// The number of blocks that one multiprocessor has registers for, at least: a thread has as many fewer.
    pub fn resident(&mut self, blocks: impl Into<Expr>) {
        self.build.program.resident = blocks.into();
    }

    // Definitions.

    // Statements.

    /// `copy(src, dst)`, of a tensor or of an expression.
    #[track_caller]
    pub fn copy(&mut self, src: impl Into<Source>, dst: impl Into<Reference>) {
        self.copy_with(src, dst, CopyAttrs::default());
    }

    /// `copy(src, dst, outside = -inf)`, `copy(src, dst, add)`: [`copy`](Self::copy), and what else it does.
    #[track_caller]
    pub fn copy_with(&mut self, src: impl Into<Source>, dst: impl Into<Reference>, how: CopyAttrs) {
        let (src, dst) = (self.source(src.into()), dst.into());
        if let (Some(src), Some(dst)) = (src, self.reference(dst)) {
            self.build.emit(StmtKind::Copy { src, dst, how }, Origin::caller());
        }
    }

    /// `copy.async(src, dst)`: between a global view and a shared tensor, complete at a later [`wait_group`](Self::wait_group); in a
    /// [`produce`](Self::produce), at its end.
    #[track_caller]
    pub fn copy_async(&mut self, src: impl Into<Reference>, dst: impl Into<Reference>) {
        self.copy_async_with(src, dst, AsyncCopyAttrs::default());
    }

    /// `commit_group()`.
    #[track_caller]
    pub fn commit_group(&mut self) {
        self.build.emit(StmtKind::Commit, Origin::caller());
    }

    /// `wait_group(groups)`.
    #[track_caller]
    pub fn wait_group(&mut self, groups: impl Into<Expr>) {
        self.build.emit(StmtKind::Wait(groups.into()), Origin::caller());
    }

    /// A reference whose tensor may be used here. That to a part of a register tensor is to a tensor of its own.
    #[track_caller]
    fn reference(&mut self, mut r: Reference) -> Option<TensorRef> {
        let mut tensor = self.usable(&r.tensor)?;
        let indexed = match r.indexed.take() {
            Some((mode, by)) => Some(IndexedMode { mode, by: self.operand(by)? }),
            None => None,
        };
        let registers = self.build.program.tensor(tensor).memory() == Memory::Register;
        if registers && !r.index.is_empty() && indexed.is_none() {
            tensor = self.build.part(tensor, std::mem::take(&mut r.index), Origin::caller());
        }
        let (index, transposed) = (r.index, r.transposed);
        Some(TensorRef { tensor, index, indexed, transposed, span: Origin::caller() })
    }

    #[track_caller]
    fn copies(
        &mut self,
        src: Reference,
        dst: Reference,
        kind: impl FnOnce(TensorRef, TensorRef) -> StmtKind,
    ) {
        if let (Some(src), Some(dst)) = (self.reference(src), self.reference(dst)) {
            self.build.emit(kind(src, dst), Origin::caller());
        }
    }

    /// `gemm(c, a, b)`: `c += a · bᵀ`.
    #[track_caller]
    pub fn gemm(&mut self, c: &Tensor, a: impl Into<Elem>, b: impl Into<Elem>) {
        if let (Some(c), Some(a), Some(b)) = (self.usable(c), self.operand(a), self.operand(b)) {
            self.build
                .emit(StmtKind::Gemm { c, a, b, meta: None, scales: None, warps: None }, Origin::caller());
        }
    }

    /// `gemm(c, a, b, meta)`: with a sparse left factor, and the places of its elements.
    #[track_caller]
    pub fn gemm_sparse(
        &mut self,
        c: &Tensor,
        a: impl Into<Elem>,
        b: impl Into<Elem>,
        meta: impl Into<Elem>,
        warps: Option<[Expr; 2]>,
    ) {
        let operands = (self.usable(c), self.operand(a), self.operand(b), self.operand(meta));
        if let (Some(c), Some(a), Some(b), Some(meta)) = operands {
            self.build
                .emit(StmtKind::Gemm { c, a, b, meta: Some(meta), scales: None, warps }, Origin::caller());
        }
    }

    /// `gemm(c, a, b, scales = (sa, sb))`: with scales of blocks of both factors.
    #[track_caller]
    pub fn gemm_scaled(
        &mut self,
        c: &Tensor,
        (a, left): (impl Into<Elem>, impl Into<Elem>),
        (b, right): (impl Into<Elem>, impl Into<Elem>),
        warps: Option<[Expr; 2]>,
    ) {
        let factors = (self.usable(c), self.operand(a), self.operand(b));
        let scales = (self.operand(left), self.operand(right));
        if let ((Some(c), Some(a), Some(b)), (Some(left), Some(right))) = (factors, scales) {
            let kind = StmtKind::Gemm { c, a, b, meta: None, scales: Some([left, right]), warps };
            self.build.emit(kind, Origin::caller());
        }
    }

    /// `gemm(c, a, b, warps = (m, n))`: with the warps of the block along M and along N.
    #[track_caller]
    pub fn gemm_over(&mut self, c: &Tensor, a: impl Into<Elem>, b: impl Into<Elem>, warps: [Expr; 2]) {
        if let (Some(c), Some(a), Some(b)) = (self.usable(c), self.operand(a), self.operand(b)) {
            let kind = StmtKind::Gemm { c, a, b, meta: None, scales: None, warps: Some(warps) };
            self.build.emit(kind, Origin::caller());
        }
    }

    /// `fill(dst, value)`.
    #[track_caller]
    pub fn fill(&mut self, dst: &Tensor, value: f64) {
        if value.is_nan() {
            self.misuse(
                Code::BadValue,
                "a tensor is filled with what is not a number".to_string(),
                "pass a number",
            );
        }
        if let Some(dst) = self.usable(dst) {
            self.build.emit(StmtKind::Fill { dst, value }, Origin::caller());
        }
    }

    /// `syncthreads()`.
    #[track_caller]
    pub fn syncthreads(&mut self) {
        self.build.emit(StmtKind::Sync(SyncScope::All), Origin::caller());
    }

    /// `name = cast(src, dtype)`.
    #[track_caller]
    pub fn cast(&mut self, name: &str, src: impl Into<Elem>, dtype: DType) -> Tensor {
        self.define(name, src.into().cast(dtype))
    }

    /// `dst = cast(src, …)` to the element type of an existing tensor.
    #[track_caller]
    pub fn cast_to(&mut self, dst: &Tensor, src: impl Into<Elem>) {
        if let (Some(src), Some(dst)) = (self.operand(src), self.usable(dst)) {
            self.write(dst, |dst| StmtKind::Cast { dst, src });
        }
    }

    /// `name = rearrange(src)`, with `layout = …` where one is given.
    #[track_caller]
    pub fn rearrange(&mut self, name: &str, src: impl Into<Elem>, layout: Option<Layout>) -> Tensor {
        self.define(name, src.into().rearrange(layout))
    }

    /// `dst = rearrange(src)` into an existing tensor.
    #[track_caller]
    pub fn rearrange_to(&mut self, dst: &Tensor, src: impl Into<Elem>) {
        self.assign(dst, src.into().rearrange(None));
    }

    /// The expression, if everything in it may be used here.
    #[track_caller]
    fn elementwise(&mut self, elem: Elem) -> Option<ElemExpr> {
        if elem.mixed {
            self.owned(Some(self.owner.wrapping_add(1)), 0);
            return None;
        }
        if elem.height > MAX_DEPTH {
            let message = format!("an elementwise expression is deeper than {MAX_DEPTH} levels");
            self.misuse(Code::Syntax, message, "name a part of it with `define`");
            return None;
        }
        if elem.nan {
            let message = "a number of an elementwise expression is not a number".to_string();
            self.misuse(Code::BadValue, message, "pass a number");
            return None;
        }
        if elem.poisoned || !self.owned(elem.owner, 0) {
            return None;
        }
        for id in elem.expr.tensors().into_iter().filter(|id| id.0 < CALLS) {
            let visible = self.build.visible(id, Origin::caller());
            self.note(visible)?;
        }
        let mut made = Vec::new();
        for call in elem.calls {
            made.push(self.call(call, Target::Operand)?);
        }
        let mut expr = elem.expr;
        expr.tensors_mut(|id| *id = id.0.checked_sub(CALLS).map_or(*id, |call| made[call as usize]));
        Some(expr)
    }

    /// `name = expression`: a new register tensor.
    #[track_caller]
    pub fn define(&mut self, name: &str, value: impl Into<Elem>) -> Tensor {
        let mut value = value.into();
        let id = match value.take_call() {
            Some(call) => self.call(call, Target::New(name)),
            None => self.expression(value, Target::New(name)),
        };
        let rank = id.map_or(0, |id| self.build.result_shape(id).len());
        self.handle(id, rank)
    }

    /// `dst = expression`: an update of an existing register tensor, or of a part of one.
    #[track_caller]
    pub fn assign(&mut self, dst: &Tensor, value: impl Into<Elem>) {
        let mut value = value.into();
        let Some(dst) = self.usable(dst) else { return };
        match value.take_call() {
            Some(call) => self.call(call, Target::Existing(dst)),
            None => self.expression(value, Target::Existing(dst)),
        };
    }

    /// `let name = value`: a name for an integer, to the end of the block around.
    #[track_caller]
    pub fn let_integer(&mut self, name: &str, value: impl Into<Expr>) -> Expr {
        let at = Origin::caller();
        let declared = self.build.declare_symbol(name, at, SymbolKind::Let);
        let Some(symbol) = self.note(declared) else { return Expr::Int(1) };
        self.build.emit(StmtKind::Let { symbol, value: value.into() }, at);
        Expr::Symbol(symbol)
    }

    /// `if condition { body }`: the body is done where the integer is not 0, a comparison such as [`Expr::less`]. Tensors made in the body exist
    /// only there.
    #[track_caller]
    pub fn if_then(&mut self, condition: impl Into<Expr>, body: impl FnOnce(&mut Self)) {
        self.side(condition.into(), false, body);
    }

    /// `if condition { body } else { other }`.
    #[track_caller]
    pub fn if_else(
        &mut self,
        condition: impl Into<Expr>,
        body: impl FnOnce(&mut Self),
        other: impl FnOnce(&mut Self),
    ) {
        let condition = condition.into();
        let opposite = condition.negated();
        self.side(condition, false, body);
        self.side(opposite, true, other);
    }

    #[track_caller]
    fn side(&mut self, condition: Expr, otherwise: bool, body: impl FnOnce(&mut Self)) {
        if self.too_deep() {
            return;
        }
        self.build.begin(Head::If { condition, otherwise });
        body(self);
        self.build.end(Origin::caller());
    }

    /// `break if condition`: the loop around ends here where the integer is not 0.
    #[track_caller]
    pub fn break_if(&mut self, condition: impl Into<Expr>) {
        self.build.emit(StmtKind::Break { condition: condition.into() }, Origin::caller());
    }

    /// `if any(condition, axis) { body }`: the body is done at least for the rows in which an element of the condition is true, and the
    /// program must be right if it is done for others. Tensors made in the body exist only there.
    #[track_caller]
    pub fn if_any(&mut self, condition: impl Into<Elem>, axis: u32, body: impl FnOnce(&mut Self)) {
        if self.too_deep() {
            return;
        }
        let condition = self.operand(condition);
        self.build.begin(Head::IfAny { condition, axis });
        body(self);
        self.build.end(Origin::caller());
    }

    /// `for name in lo..hi { body }`. Tensors made in the body exist only there.
    #[track_caller]
    pub fn for_range(
        &mut self,
        name: &str,
        lo: impl Into<Expr>,
        hi: impl Into<Expr>,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        self.repeat(name, (lo.into(), hi.into()), SymbolKind::Counter, body);
    }

    /// `for name in lo..hi while condition(name) { body }`: up to the first iteration at whose beginning the condition is 0.
    #[track_caller]
    pub fn for_while(
        &mut self,
        name: &str,
        lo: impl Into<Expr>,
        hi: impl Into<Expr>,
        condition: impl FnOnce(&Expr) -> Expr,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        self.repeat(name, (lo.into(), hi.into()), SymbolKind::Counter, |k, counter| {
            k.build.only_while(condition(&counter));
            body(k, counter);
        });
    }

    /// `unroll for name in lo..hi { body }`: the bounds are constants, and the counter may index register tensors.
    #[track_caller]
    pub fn unroll_for(
        &mut self,
        name: &str,
        lo: impl Into<Expr>,
        hi: impl Into<Expr>,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        self.repeat(name, (lo.into(), hi.into()), SymbolKind::Unrolled, body);
    }

    /// `unroll(factor) for name in lo..hi { body }`: a loop of any bounds, so many iterations of which are written out at a time; what is left
    /// over is a loop of its own. The factor is over constants.
    #[track_caller]
    pub fn unroll_for_by(
        &mut self,
        name: &str,
        factor: impl Into<Expr>,
        lo: impl Into<Expr>,
        hi: impl Into<Expr>,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        self.repeat(name, (lo.into(), hi.into()), SymbolKind::UnrolledBy(factor.into()), body);
    }

    #[track_caller]
    fn repeat(
        &mut self,
        name: &str,
        bounds: (Expr, Expr),
        kind: SymbolKind,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        if self.too_deep() {
            return;
        }
        let counter = self.build.begin_for(name, Origin::caller(), bounds, kind);
        let counter = self.note(counter).map_or(Expr::Int(0), Expr::Symbol);
        body(self, counter);
        self.build.end(Origin::caller());
    }

    /// The program, or every mistake made while building it. What depends on the constants' values is checked later, by
    /// [`verify`](crate::verify()).
    #[track_caller]
    pub fn finish(mut self) -> Result<Program, Diagnostics> {
        let name = self.build.program.name.clone();
        if let Err(error) = check_name(&name, Origin::caller())
            && error.code == Code::Syntax
        {
            self.errors.push(error);
        }
        let program = self.build.finish(Origin::caller());
        if self.errors.is_empty() {
            self.errors.extend(foreign_symbols(&program));
        }
        if self.errors.is_empty() { Ok(program) } else { Err(Diagnostics(self.errors)) }
    }
}

/// A mistake for an expression that refers to a symbol of another kernel, as far as its number shows it. Those of statements are
/// left to the verifier.
fn foreign_symbols(program: &Program) -> Option<Diagnostic> {
    fn legal(expr: &Expr, program: &Program) -> bool {
        match expr {
            Expr::Symbol(SymbolId(id)) => (*id as usize) < program.symbols.len(),
            Expr::Binary(_, a, b) => legal(a, program) && legal(b, program),
            Expr::Element(param, index) => {
                (param.0 as usize) < program.params.len() && index.iter().all(|e| legal(e, program))
            }
            Expr::Scalar(param) => (param.0 as usize) < program.params.len(),
            Expr::Int(_) | Expr::Block(_) => true,
        }
    }
    let header = program.grid.iter().map(|extent| (extent, program.grid_span));
    let header =
        header.chain([(&program.threads, program.threads_span), (&program.resident, program.threads_span)]);
    let header = header.chain(program.cluster.iter().map(|extent| (extent, program.cluster_span)));
    let pipelines = program.pipelines.iter().map(|pipeline| (&pipeline.stages, pipeline.span));
    let foreign = header.chain(pipelines).find(|(e, _)| !legal(e, program)).map(|(_, span)| span);
    let tensor = |tensor: &&crate::program::Tensor| {
        let mut foreign = false;
        tensor.kind.clone().exprs_mut(&mut |e| foreign |= !legal(e, program));
        foreign
    };
    let span = foreign.or_else(|| program.tensors.iter().find(tensor).map(|tensor| tensor.span))?;
    Some(
        Diagnostic::new(Code::UnknownName, span, "an expression of another kernel is used")
            .help("use sizes and constants only in the kernel they were made for"),
    )
}
