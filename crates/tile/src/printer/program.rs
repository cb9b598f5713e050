//! The names of a surface program.

use std::fmt::{self, Write};

use super::names::Names;
use super::{fragment, pipeline, tensor_memory, view};
use crate::expr::{Expr, SymbolId};
use crate::program::{
    BarrierId, BarrierKind, ParamId, PipelineId, Program, SymbolKind, TensorId, TensorKind,
};
use tilewright_layout::Layout;
use tilewright_machine::DType;

impl Names for Program {
    fn symbol(&self, id: SymbolId) -> &str {
        self.symbols.get(id.0 as usize).map_or("?", |s| &s.name)
    }

    fn param(&self, id: ParamId) -> &str {
        self.params.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn tensor(&self, id: TensorId) -> &str {
        self.tensors.get(id.0 as usize).map_or("?", |t| &t.name)
    }

    fn pipeline(&self, id: PipelineId) -> &str {
        self.pipelines.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn barrier(&self, id: BarrierId) -> &str {
        self.barriers.get(id.0 as usize).map_or("?", |b| &b.name)
    }

    fn barrier_kind(&self, id: BarrierId) -> BarrierKind {
        self.barriers.get(id.0 as usize).map_or(BarrierKind::Named, |b| b.kind)
    }

    fn is_size(&self, id: SymbolId) -> bool {
        self.symbols.get(id.0 as usize).is_some_and(|s| matches!(s.kind, SymbolKind::Size(_)))
    }

    fn is_unrolled(&self, counter: SymbolId) -> bool {
        self.symbols.get(counter.0 as usize).is_some_and(|s| s.kind == SymbolKind::Unrolled)
    }

    fn unrolled_by(&self, counter: SymbolId) -> Option<&Expr> {
        match self.symbols.get(counter.0 as usize).map(|s| &s.kind) {
            Some(SymbolKind::UnrolledBy(factor)) => Some(factor),
            _ => None,
        }
    }

    fn dtype(&self, id: TensorId) -> Option<DType> {
        self.tensors.get(id.0 as usize).map(|t| t.dtype)
    }

    fn rank(&self, id: TensorId) -> usize {
        self.tensors.get(id.0 as usize).map_or(0, |t| match &t.kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape }
            | TensorKind::Part { shape, .. } => shape.len(),
        })
    }

    fn pinned(&self, id: TensorId) -> Option<&Layout> {
        match self.tensors.get(id.0 as usize).map(|t| &t.kind) {
            Some(TensorKind::Register { pinned, .. }) => pinned.as_ref(),
            _ => None,
        }
    }

    fn write_tensor(&self, out: &mut dyn Write, id: TensorId) -> fmt::Result {
        let Some(row) = self.tensors.get(id.0 as usize) else { return out.write_str("?") };
        match &row.kind {
            TensorKind::Register { shape, pinned } => {
                fragment(out, self, ("register", row.dtype), shape, pinned.as_ref())
            }
            TensorKind::Shared { shape, pinned } => {
                fragment(out, self, ("shared", row.dtype), shape, pinned.as_ref())
            }
            TensorKind::Tensor { shape } => tensor_memory(out, self, row.dtype, shape),
            // Parts are never defined.
            TensorKind::Part { .. } => out.write_str("?"),
            TensorKind::View { param, offsets, ends, modes, fold } => {
                view(out, self, *param, (offsets, ends), (modes, fold))
            }
        }
    }

    fn write_pipeline(&self, out: &mut dyn Write, id: PipelineId) -> fmt::Result {
        let Some(row) = self.pipelines.get(id.0 as usize) else { return out.write_str("?") };
        pipeline(out, self, &row.stages, &row.tensors)
    }

    fn unnamed(&self, id: TensorId) -> Option<&str> {
        self.tensors.get(id.0 as usize)?.unnamed.text()
    }
}
