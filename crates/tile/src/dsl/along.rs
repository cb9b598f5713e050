//! Statements along a mode: scans, sorts, and the largest with its coordinate.

use tilewright_machine::DType;

use super::{KernelBuilder, Tensor};
use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::program::{ArgOp, ReduceOp, ScanOperands, StmtKind, TensorId, TensorKind};

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
