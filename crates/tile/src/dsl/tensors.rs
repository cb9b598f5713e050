//! Tensors of a program: views, and those in registers, in shared memory and in tensor memory.

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::DType;

use super::value::{BufferAt, Reference, Tensor};
use super::{KernelBuilder, POISONED};
use crate::diagnostic::{Code, Origin};
use crate::expr::Expr;
use crate::program::{ParamKind, StmtKind, TensorId, TensorKind, ViewMode};

impl KernelBuilder {
    #[track_caller]
    fn new_tensor(&mut self, name: &str, dtype: DType, kind: TensorKind, rank: usize) -> Tensor {
        let declared = self.build.declare_tensor(name, Origin::caller(), dtype, kind);
        let id = self.note(declared);
        if let Some(id) = id {
            self.build.emit(StmtKind::Define(id), Origin::caller());
        }
        self.handle(id, rank)
    }

    pub(super) fn handle(&self, id: Option<TensorId>, rank: usize) -> Tensor {
        Tensor { id: id.unwrap_or(TensorId(POISONED)), rank, owner: self.owner }
    }

    /// `name = global_view(…)`: a view that starts at an offset of a buffer (see [`Buffer::from`](super::Buffer::from)), with the modes that
    /// [`tile`](super::tile), [`steps`](super::steps) and [`nested`](super::nested) make.
    #[track_caller]
    pub fn global_view(
        &mut self,
        name: &str,
        at: impl Into<BufferAt>,
        modes: impl IntoIterator<Item = ViewMode>,
    ) -> Tensor {
        self.folding_view(name, at, modes, [])
    }

    /// `name = global_view(…, fold = …)`: a view of a buffer with one more mode behind the others, which folds some of them: `fold`, leftmost
    /// fastest.
    #[track_caller]
    pub fn folding_view(
        &mut self,
        name: &str,
        at: impl Into<BufferAt>,
        modes: impl IntoIterator<Item = ViewMode>,
        fold: impl IntoIterator<Item = ViewMode>,
    ) -> Tensor {
        let at = at.into();
        let fold = fold.into_iter().flat_map(|mode| mode.leaves).collect();
        let modes: Vec<ViewMode> = modes.into_iter().collect();
        let rank = modes.len();
        let known = self.owned(Some(at.buffer.owner), at.buffer.param.0);
        let row = self.build.program.params.get(at.buffer.param.0 as usize).filter(|_| known);
        let Some(row) = row else {
            return self.handle(None, rank);
        };
        let ParamKind::Tensor { shape, .. } = &row.kind else {
            return self.handle(None, rank);
        };
        let offsets = at.offsets.unwrap_or_else(|| vec![Expr::Int(0); shape.len()]);
        let mut ends = vec![None; shape.len()];
        let (dtype, of) = (row.dtype, row.name.clone());
        for (mode, end) in at.ends {
            match ends.get_mut(mode) {
                Some(slot) => *slot = Some(end),
                None => {
                    let message = format!(
                        "the view `{name}` ends along mode {mode} of `{of}`, which has {}",
                        ends.len()
                    );
                    self.misuse(Code::WrongRank, message, "modes count from 0");
                }
            }
        }
        let kind = TensorKind::View { param: at.buffer.param, offsets, ends, modes, fold };
        self.new_tensor(name, dtype, kind, rank)
    }

    /// `name = register_tensor(dtype, [shape])`.
    #[track_caller]
    pub fn register_tensor<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.registers(name, dtype, shape.into_iter().map(Into::into).collect(), None)
    }

    /// `name = register_tensor(dtype, [shape], layout = …)`: (thread, value) → linear coordinate in the tile.
    #[track_caller]
    pub fn register_tensor_with<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
        layout: Layout,
    ) -> Tensor {
        self.registers(name, dtype, shape.into_iter().map(Into::into).collect(), Some(layout))
    }

    #[track_caller]
    pub(super) fn registers(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Expr>,
        pinned: Option<Layout>,
    ) -> Tensor {
        let rank = shape.len();
        self.new_tensor(name, dtype, TensorKind::Register { shape, pinned }, rank)
    }

    /// `name = shared_tensor(dtype, [shape])`.
    #[track_caller]
    pub fn shared_tensor<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        self.shared(name, dtype, shape.into_iter().map(Into::into).collect(), None)
    }

    /// `name = tensor_memory(dtype, [shape])`.
    #[track_caller]
    pub fn tensor_memory<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
    ) -> Tensor {
        let shape: Vec<Expr> = shape.into_iter().map(Into::into).collect();
        let rank = shape.len();
        self.new_tensor(name, dtype, TensorKind::Tensor { shape }, rank)
    }

    /// `name = shared_tensor(dtype, [shape], layout = …)`: tile coordinate → offset in elements.
    #[track_caller]
    pub fn shared_tensor_with<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
        layout: impl Into<SwizzledLayout>,
    ) -> Tensor {
        self.shared(name, dtype, shape.into_iter().map(Into::into).collect(), Some(layout.into()))
    }

    #[track_caller]
    fn shared(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Expr>,
        pinned: Option<SwizzledLayout>,
    ) -> Tensor {
        let rank = shape.len();
        self.new_tensor(name, dtype, TensorKind::Shared { shape, pinned }, rank)
    }
}

impl KernelBuilder {
    /// True if a handle is of this builder and was made without a mistake.
    #[track_caller]
    pub(super) fn owned(&mut self, owner: Option<u64>, id: u32) -> bool {
        if owner.is_some_and(|owner| owner != self.owner) {
            self.misuse(
                Code::UnknownName,
                "a handle of another kernel is used".to_string(),
                "use handles only in the kernel they were made for",
            );
            return false;
        }
        id != POISONED
    }

    /// The tensor of a handle, if it may be used here.
    #[track_caller]
    pub(super) fn usable(&mut self, tensor: &Tensor) -> Option<TensorId> {
        if !self.owned(Some(tensor.owner), tensor.id.0) {
            return None;
        }
        let visible = self.build.visible(tensor.id, Origin::caller());
        self.note(visible).map(|()| tensor.id)
    }

    /// `ra[:, :, kk % 2]`: a part of a register tensor, as an operand of a statement.
    #[track_caller]
    pub fn part(&mut self, reference: impl Into<Reference>) -> Tensor {
        let reference = reference.into();
        let rank = reference.index.iter().filter(|entry| entry.is_none()).count();
        if reference.transposed {
            let help = "make a transposed tensor with `transpose`";
            self.misuse(Code::WrongMemory, "a part of a register tensor is transposed".to_string(), help);
            return self.handle(None, rank);
        }
        let of = self.usable(&reference.tensor);
        let at = Origin::caller();
        let id = of.map(|of| self.build.part(of, reference.index, at));
        self.handle(id, rank)
    }
}
