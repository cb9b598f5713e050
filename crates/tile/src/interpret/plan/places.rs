//! Places of the operands of statements in tensors of the block and in global memory.

use tilewright_machine::Memory;

use super::{Making, TensorRef};
use crate::core::Coord;
use crate::expr::Expr;
use crate::interpret::error::InterpretError;
use crate::interpret::executable::Executable;
use crate::interpret::launch::tensor_strides;
use crate::interpret::op::{Access, Fixed, IndexedSteps, Indices, PartOf, Side, Tile};
use crate::interpret::shapes::table;
use crate::program::{IndexedMode, TensorId};

impl<P: Executable> Making<'_, P> {
    /// A part of a register tensor; `None` for a whole tensor.
    pub(super) fn part(&self, id: TensorId) -> Option<PartOf> {
        let tile = self.program.part(id).map(|_| self.place(id))?;
        Some(PartOf { part: id.0 as usize, tile })
    }

    /// The place of a register tensor, or of a part of one.
    pub(super) fn place(&self, id: TensorId) -> Tile {
        let Some((of, index)) = self.program.part(id) else { return self.tile_of(id, (&[], None), false) };
        let index: Vec<Option<Coord>> = index.iter().map(|e| e.clone().map(Coord::Expr)).collect();
        self.tile_of(of, (&index, None), false)
    }

    /// The place of an operand of a product.
    pub(super) fn factor(&self, r: &TensorRef<P>) -> Tile {
        match self.program.tensor(r.tensor).0 {
            Memory::Register => self.place(r.tensor),
            _ => self.referenced(r),
        }
    }

    /// The place of a reference to a tensor of the block.
    pub(super) fn referenced(&self, r: &TensorRef<P>) -> Tile {
        let index: Vec<Option<Coord>> = r.index.iter().map(|entry| entry.as_ref().map(P::coord)).collect();
        self.tile_of(r.tensor, (&index, r.indexed), r.transposed)
    }

    /// The tile of a tensor of the block at an index.
    fn tile_of(
        &self,
        id: TensorId,
        (index, by): (&[Option<Coord>], Option<IndexedMode>),
        transposed: bool,
    ) -> Tile {
        let (mut kept, mut fixed, mut indexed) = (Vec::new(), Vec::new(), None);
        let mut stride = 1;
        for (mode, extent) in self.program.shape(id).into_iter().enumerate() {
            match index.get(mode) {
                Some(Some(index)) => fixed.push(Fixed { mode, index: index.clone(), extent, stride }),
                _ if by.is_some_and(|by| by.mode as usize == mode) => {
                    let by = by.map_or(id, |by| by.by);
                    indexed = Some((by, kept.len(), extent, stride));
                    kept.push((self.program.shape(by)[0], 0));
                }
                _ => kept.push((extent, stride)),
            }
            stride *= extent;
        }
        // Seen in reverse, the tensor's last mode counts fastest.
        if transposed {
            kept.reverse();
        }
        let indexed = indexed.map(|(by, at, extent, stride)| {
            let at = if transposed { kept.len() - 1 - at } else { at };
            (indices(by, at, kept.iter().map(|(extent, _)| *extent)), extent, stride)
        });
        let order = (transposed || !fixed.is_empty() || indexed.is_some())
            .then(|| table(kept.into_iter()).into_iter().map(|o| o as u32).collect());
        let name = self.program.names().tensor(id).to_string();
        Tile { tensor: id.0 as usize, name, order, fixed, indexed }
    }

    /// One side of a copy.
    pub(super) fn side(&self, r: &TensorRef<P>) -> Result<Side, InterpretError> {
        let tile = self.program.tile(r);
        let Some(global) = tile.global else { return Ok(Side::Tile(self.referenced(r))) };
        let indexed = tile.indexed.zip(global.indexed).map(|(indexed, (dim, scale))| IndexedSteps {
            indices: indices(indexed.by, indexed.at, tile.shape.iter().copied()),
            extent: indexed.extent,
            dim: dim as usize,
            scale,
        });
        let mut strides = tensor_strides(self.program, global.param, self.sizes)?;
        // A step along a folded mode is no distance in memory: its digits are.
        strides.extend(global.folded.iter().map(|_| 0));
        let (folded, within) = global.folded.map_or_else(Default::default, |folded| {
            let leaf = |(extent, dim, step): (Expr, u32, i64)| (extent, dim as usize, step);
            (folded.leaves.into_iter().map(leaf).collect(), folded.within)
        });
        let leaves: Vec<(i64, usize, i64)> =
            global.modes.iter().flatten().map(|(n, dim, scale)| (*n, *dim as usize, *scale)).collect();
        let mut reach = Some(vec![0i64; strides.len()]);
        for (n, dim, scale) in &leaves {
            reach = reach.and_then(|mut reach| {
                reach[*dim] = reach[*dim].checked_add((n - 1).checked_mul(*scale)?)?;
                Some(reach)
            });
        }
        let offsets = table(leaves.iter().map(|(n, dim, scale)| (*n, scale.wrapping_mul(strides[*dim]))));
        Ok(Side::Global(Box::new(Access {
            param: global.param.0 as usize,
            name: self.program.names().tensor(r.tensor).to_string(),
            base: global.base,
            shape: global.shape,
            strides,
            reach,
            offsets,
            leaves,
            indexed,
            folded,
            within,
            span: r.span,
        })))
    }
}

/// The indices of mode `at` of a tile of these extents.
fn indices(by: TensorId, at: usize, extents: impl Iterator<Item = i64>) -> Indices {
    let of = table(extents.enumerate().map(|(mode, extent)| (extent, i64::from(mode == at))));
    Indices { by: by.0 as usize, of: of.into_iter().map(|i| i as u32).collect() }
}
