//! Addresses of shared tensors.

use tilewright_simt::Operand;
use tilewright_tile::core::TensorRef;
use tilewright_tile::{Diagnostic, Origin};

use crate::context::{Lower, internal};
use crate::scalar::{self, add};

impl Lower<'_> {
    /// The beginning of a tile, from the base of shared memory on: a constant in bytes, and what is added at run time, in bytes
    /// or, `coarse`, in units of 16.
    pub(crate) fn begins(
        &mut self,
        reference: &TensorRef,
        coarse: bool,
        span: Origin,
    ) -> Result<(i64, Option<Operand>), Diagnostic> {
        let tile = self.verified.tile(reference);
        let (layout, _) = self
            .synthesis
            .shared(reference.tensor)
            .ok_or_else(|| internal(span, "a shared tensor without a layout"))?;
        let bytes = |elements: i64| elements * i64::from(tile.dtype.bits()) / 8;
        let unit = if coarse { 16 } else { 1 };
        let mut constant = i64::from(self.memory.offsets[reference.tensor.0 as usize]);
        let mut dynamic: Option<Operand> = None;
        for (mode, index) in &tile.fixed {
            let mode = layout.layout.mode(*mode).map_err(|_| internal(span, "a mode that is not there"))?;
            if let Some(index) = index.as_int() {
                constant += bytes(mode.eval(index));
                continue;
            }
            let scaled: Vec<(i64, i64)> =
                mode.leaves().into_iter().map(|(e, s)| (e, bytes(s) / unit)).collect();
            let scaled = tilewright_layout::Layout::from_leaves(&scaled)
                .map_err(|_| internal(span, "a stage that is too far away"))?;
            let index = self.coord(index, span)?;
            let term = scalar::layout(self.b, &scaled, index);
            dynamic = Some(match dynamic {
                Some(sum) => add(self.b, sum, term),
                None => term,
            });
        }
        Ok((constant, dynamic))
    }
}
