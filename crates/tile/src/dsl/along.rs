//! Statements along a mode: scans, sorts, and the largest with its coordinate; and atomic operations with a value.

use tilewright_machine::{AtomicOp, DType};

use super::{Elem, KernelBuilder, Reference, Tensor};
use crate::diagnostic::{Code, Origin};
use crate::expr::Expr;
use crate::program::{
    ArgOp, Combination, CombineForm, CopyAttrs, ElemExpr, Fetch, ReduceOp, ScanOperands, StmtKind, TensorId,
    TensorKind, TensorRef,
};

/// Every statement here has two forms, as [those that reduce](KernelBuilder::reduce) have.
impl KernelBuilder {
    /// `name = scan(src, op, axis)`: every element put together with those before it along the mode; in `reverse`, with those behind it.
    #[track_caller]
    pub fn scan(&mut self, name: &str, src: &Tensor, op: ReduceOp, axis: u32, reverse: bool) -> Tensor {
        let rank = src.rank;
        let Some(src) = self.usable(src) else {
            return self.handle(None, rank);
        };
        let shape = self.build.result_shape(src);
        let operands = ScanOperands::One { src, op };
        self.derive(name, src, shape, |dst| StmtKind::Scan { dst, operands, axis, reverse })
    }

    /// `dst = scan(src, op, axis)`.
    #[track_caller]
    pub fn scan_to(&mut self, dst: &Tensor, src: &Tensor, op: ReduceOp, axis: u32, reverse: bool) {
        self.update([dst, src], |[dst, src]| {
            let operands = ScanOperands::One { src, op };
            StmtKind::Scan { dst, operands, axis, reverse }
        });
    }

    /// `name = scan(a, b, linear, axis, before)`: hₜ = aₜ·hₜ₋₁ + bₜ along the mode, from `before` or 0; in `reverse`, from the last
    /// element to the first.
    #[track_caller]
    pub fn scan_linear(
        &mut self,
        name: &str,
        [a, b]: [&Tensor; 2],
        axis: u32,
        before: Option<&Tensor>,
        reverse: bool,
    ) -> Tensor {
        let rank = a.rank;
        let before = before.map(|before| self.usable(before));
        let (Some(a), Some(b)) = (self.usable(a), self.usable(b)) else {
            return self.handle(None, rank);
        };
        if before == Some(None) {
            return self.handle(None, rank);
        }
        let shape = self.build.result_shape(a);
        let operands = ScanOperands::Linear { a, b, before: before.flatten() };
        self.derive(name, a, shape, |dst| StmtKind::Scan { dst, operands, axis, reverse })
    }

    /// `dst = scan(a, b, linear, axis, before)`.
    #[track_caller]
    pub fn scan_linear_to(
        &mut self,
        dst: &Tensor,
        [a, b]: [&Tensor; 2],
        axis: u32,
        before: Option<&Tensor>,
        reverse: bool,
    ) {
        let before = before.map(|before| self.usable(before));
        if before == Some(None) {
            return;
        }
        self.update([dst, a, b], |[dst, a, b]| {
            let operands = ScanOperands::Linear { a, b, before: before.flatten() };
            StmtKind::Scan { dst, operands, axis, reverse }
        });
    }

    /// `m, s = reduce((x, e), f, axis)`, `m, s = scan((x, e), f, axis)`: tuples put together along the mode by a function of the first tuple's
    /// elements and of the second's, which is associative. It has no calls of values in it.
    #[track_caller]
    pub fn combine(
        &mut self,
        names: &[&str],
        srcs: &[&Tensor],
        (axis, form): (u32, CombineForm),
        by: impl FnOnce(&[Elem], &[Elem]) -> Vec<Elem>,
    ) -> Vec<Tensor> {
        let count = srcs.len();
        let rank = srcs.first().map_or(1, |src| match form {
            CombineForm::Reduce => src.rank.saturating_sub(1).max(1),
            CombineForm::Scan { .. } => src.rank,
        });
        let by = self.function((count, names.len()), by);
        let srcs: Option<Vec<TensorId>> = srcs.iter().map(|src| self.usable(src)).collect();
        let (Some(by), Some(srcs)) = (by, srcs) else {
            return names.iter().map(|_| self.handle(None, rank)).collect();
        };
        let mut dsts = Vec::new();
        for (name, src) in names.iter().zip(&srcs) {
            let shape = match form {
                CombineForm::Reduce => self.build.reduced(*src, axis),
                CombineForm::Scan { .. } => self.build.result_shape(*src),
            };
            dsts.push(self.new_like(name, *src, shape));
        }
        let handles = dsts.iter().map(|dst| self.handle(*dst, rank)).collect();
        if let Some(dsts) = dsts.into_iter().collect::<Option<Vec<TensorId>>>() {
            self.build.emit(StmtKind::Combine { dsts, srcs, by, axis, form }, Origin::caller());
        }
        handles
    }

    /// `cluster_reduce((m, s), f)`: the tensors become what those of all blocks of the cluster come to, put together by a function of the elements
    /// of one block and of those of another behind it.
    #[track_caller]
    pub fn cluster_combine(&mut self, dsts: &[&Tensor], by: impl FnOnce(&[Elem], &[Elem]) -> Vec<Elem>) {
        let by = self.function((dsts.len(), dsts.len()), by);
        let dsts: Option<Vec<TensorId>> = dsts.iter().map(|dst| self.usable(dst)).collect();
        if let (Some(dsts), Some(by)) = (dsts, by) {
            self.build.emit(StmtKind::ClusterCombine { dsts, by }, Origin::caller());
        }
    }

    /// The function of two tuples of so many elements, of which so many results are wanted.
    #[track_caller]
    fn function(
        &mut self,
        (count, wanted): (usize, usize),
        by: impl FnOnce(&[Elem], &[Elem]) -> Vec<Elem>,
    ) -> Option<Combination> {
        let operands: Vec<Elem> =
            (0..2 * count as u32).map(|i| Elem::leaf(ElemExpr::Operand(i), None)).collect();
        let results = by(&operands[..count], &operands[count..]);
        if count == 0 || wanted != count || !results.iter().all(Elem::is_of_operands) {
            let message = format!("a function of {count} tensors with {wanted} results");
            let help = "as many names as tensors, and operators and functions of its operands alone";
            self.misuse(Code::BadValue, message, help);
            return None;
        }
        Some(Combination { results: results.into_iter().map(|result| result.expr).collect() })
    }

    /// `value, index = argmax(src, axis)`, `argmin`: the largest or the smallest element along a mode, and its coordinate.
    #[track_caller]
    pub fn arg(&mut self, value: &str, index: &str, src: &Tensor, op: ArgOp, axis: u32) -> (Tensor, Tensor) {
        let rank = src.rank.saturating_sub(1).max(1);
        let Some(src) = self.usable(src) else {
            return (self.handle(None, rank), self.handle(None, rank));
        };
        let shape = self.build.reduced(src, axis);
        let kind = TensorKind::Register { shape: shape.clone(), pinned: None };
        let value = self.new_like(value, src, shape);
        let declared = self.build.declare_tensor(index, Origin::caller(), DType::I32, kind);
        let index = self.note(declared);
        if let (Some(value), Some(index)) = (value, index) {
            self.build.emit(StmtKind::Arg { value, index, src, op, axis }, Origin::caller());
        }
        (self.handle(value, rank), self.handle(index, rank))
    }

    /// `value, index = argmax(src, axis)`, `argmin`, into existing tensors.
    #[track_caller]
    pub fn arg_to(&mut self, value: &Tensor, index: &Tensor, src: &Tensor, op: ArgOp, axis: u32) {
        self.update([value, index, src], |[value, index, src]| StmtKind::Arg { value, index, src, op, axis });
    }

    /// `name = sort(src, axis)`: the elements along a mode in their order.
    #[track_caller]
    pub fn sort(&mut self, name: &str, src: &Tensor, axis: u32, descending: bool) -> Tensor {
        let rank = src.rank;
        let Some(src) = self.usable(src) else {
            return self.handle(None, rank);
        };
        let shape = self.build.result_shape(src);
        self.derive(name, src, shape, |dst| StmtKind::Sort { dst, src, carried: None, axis, descending })
    }

    /// `key, value = sort(keys, values, axis)`: the elements along a mode in their order, and those that go with them.
    #[track_caller]
    pub fn sort_with(
        &mut self,
        [key, value]: [&str; 2],
        [keys, values]: [&Tensor; 2],
        axis: u32,
        descending: bool,
    ) -> (Tensor, Tensor) {
        let rank = keys.rank;
        let (Some(src), Some(with)) = (self.usable(keys), self.usable(values)) else {
            return (self.handle(None, rank), self.handle(None, rank));
        };
        let shape = self.build.result_shape(src);
        let results = [self.new_like(key, src, shape.clone()), self.new_like(value, with, shape)];
        if let [Some(dst), Some(values)] = results {
            let kind = StmtKind::Sort { dst, src, carried: Some([values, with]), axis, descending };
            self.build.emit(kind, Origin::caller());
        }
        let [key, value] = results.map(|result| self.handle(result, rank));
        (key, value)
    }

    /// `dst = sort(src, axis)`.
    #[track_caller]
    pub fn sort_to(&mut self, dst: &Tensor, src: &Tensor, axis: u32, descending: bool) {
        self.update([dst, src], |[dst, src]| StmtKind::Sort { dst, src, carried: None, axis, descending });
    }

    /// `name = atomic_add(dst, src)` and the like: each element of memory is changed as one step, and what was there is the result.
    #[track_caller]
    pub fn atomic(&mut self, name: &str, op: AtomicOp, dst: impl Into<Reference>, src: &Tensor) -> Tensor {
        self.fetch(name, op, dst.into(), [src, src])
    }

    /// `name = atomic_cas(dst, expected, src)`: elements that have the bits of `expected` become those of `src`; the result is what was there.
    #[track_caller]
    pub fn atomic_cas(
        &mut self,
        name: &str,
        dst: impl Into<Reference>,
        expected: &Tensor,
        src: &Tensor,
    ) -> Tensor {
        self.fetch(name, AtomicOp::CompareAndSwap, dst.into(), [expected, src])
    }

    #[track_caller]
    fn fetch(&mut self, name: &str, op: AtomicOp, dst: Reference, [expected, src]: [&Tensor; 2]) -> Tensor {
        let rank = src.rank;
        let operands = (self.reference(dst), self.usable(expected), self.usable(src));
        let (Some(dst), Some(expected), Some(src)) = operands else { return self.handle(None, rank) };
        let shape = self.build.result_shape(src);
        let combine = if let AtomicOp::Combine(op) = op { Some(op) } else { None };
        let compare = (op == AtomicOp::CompareAndSwap).then_some(expected);
        self.derive(name, src, shape, |old| {
            let how = CopyAttrs { outside: None, combine, fetch: Some(Fetch { op, old, compare }) };
            StmtKind::Copy { src: TensorRef { span: Origin::caller(), ..TensorRef::whole(src) }, dst, how }
        })
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
