//! Names and kinds of a program's things, as printers and messages read them.

use std::fmt::{self, Write};

use crate::expr::{Expr, SymbolId};
use crate::ids::{BarrierId, BarrierKind, ParamId, PipelineId, TensorId};
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
    /// A named barrier, or turns.
    fn barrier(&self, id: BarrierId) -> &str;
    /// The way in which roles come to a barrier.
    fn barrier_kind(&self, id: BarrierId) -> BarrierKind;
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
pub(super) struct Said<'a>(pub(super) &'a dyn Names);

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

    fn barrier(&self, id: BarrierId) -> &str {
        self.0.barrier(id)
    }

    fn barrier_kind(&self, id: BarrierId) -> BarrierKind {
        self.0.barrier_kind(id)
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
