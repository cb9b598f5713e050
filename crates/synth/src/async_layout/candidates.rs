//! Layouts that could serve all uses of a tensor.

use tilewright_layout::{HTuple, Layout, SwizzledLayout, coalesce_by};
use tilewright_machine::{SECTOR_BYTES, SwizzleMode};
use tilewright_tile::TensorId;
use tilewright_tile::core::TensorKind;

use super::descriptor::swizzle_atom_layout;
use super::halves::doubled;
use super::{AsyncAssignment, Product, Use, with_stages};
use crate::copies::own_layout;
use crate::shared::stage_modes;

impl AsyncAssignment<'_> {
    /// The stages of a tensor.
    pub(super) fn stages(&self, id: TensorId, uses: &[Use]) -> Vec<usize> {
        let references = uses.iter().map(|u| match u {
            Use::Product { reference, .. } | Use::Scales { reference, .. } | Use::Copy { reference, .. } => {
                reference
            }
        });
        stage_modes(self.v.shape(id).len(), references.chain(self.others.get(&id).into_iter().flatten()))
    }

    /// The layouts that a tensor may have, the best first.
    pub(super) fn candidates(
        &self,
        id: TensorId,
        uses: &[Use],
    ) -> Vec<(SwizzledLayout, Option<SwizzleMode>)> {
        let tensor = self.v.tensor(id);
        if let TensorKind::Shared { pinned: Some(pinned), .. } = &tensor.kind {
            return vec![(pinned.clone(), None)];
        }
        let shape = self.v.shape(id);
        let stages = self.stages(id, uses);
        let inner: Vec<i64> = (0..shape.len()).filter(|k| !stages.contains(k)).map(|k| shape[k]).collect();
        // The copies to tensor memory read one layout.
        if let Some(tile) = uses.iter().find_map(Use::scales_layout) {
            let layout = with_stages(&tile, &shape, &stages, SwizzleMode::None, tensor.dtype.bits());
            return layout.map(|layout| (layout, Some(SwizzleMode::None))).into_iter().collect();
        }
        // The tile of a half, where the blocks of a pair have one each.
        let halves = self.halves(uses, inner.len());
        let mut part = inner.clone();
        if let Some(mode) = halves {
            if part[mode] % 2 != 0 {
                return Vec::new();
            }
            part[mode] /= 2;
        }
        // A tile of one row has nothing that could conflict.
        let flat = inner.iter().filter(|extent| **extent > 1).count() <= 1;
        let mut found = Vec::new();
        let modes = SwizzleMode::ALL.into_iter().filter(|mode| !flat || *mode == SwizzleMode::None);
        // Factors of 32 bits along M or N have one of their own.
        let atoms = uses.iter().any(|one| {
            matches!(one, Use::Product { product: Product::Sums(sums), .. } if sums.row.takes_mn_swizzle(SwizzleMode::B128Atom32))
        });
        for mode in modes.chain(atoms.then_some(SwizzleMode::B128Atom32)) {
            for along in (0..inner.len()).rev() {
                let tile = swizzle_atom_layout(&part, along, mode, tensor.dtype.bits());
                let tile = match halves {
                    Some(mode) => tile.and_then(|half| doubled(&half, mode)),
                    None => tile,
                };
                let Some(tile) = tile else { continue };
                if let Some(layout) = with_stages(&tile, &shape, &stages, mode, tensor.dtype.bits()) {
                    found.push((layout, Some(mode)));
                }
            }
        }
        if halves.is_some() {
            return found;
        }
        let bits = tensor.dtype.bits();
        for (tile, run) in uses.iter().filter_map(|one| self.as_in_memory(one, &inner)) {
            let span = |mode: &SwizzleMode| i64::from(mode.span() * 8 / bits);
            for mode in SwizzleMode::ALL.into_iter().filter(|mode| run % span(mode) == 0) {
                let tile = SwizzledLayout::new(mode.elements(bits), tile.clone());
                let layout = with_stages(&tile, &shape, &stages, mode, bits);
                found.extend(layout.map(|layout| (layout, Some(mode))));
            }
        }
        found
    }

    /// The mode, among so many that are no stages, along which the blocks of a pair have a half each: that of the rows of a right factor.
    pub(super) fn halves(&self, uses: &[Use], modes: usize) -> Option<usize> {
        let rows = |one: &Use| match one {
            Use::Product { product: Product::Sums(sums), left: false, reference, .. }
                if sums.row.blocks > 1 =>
            {
                Some(if reference.transposed { modes - 1 } else { 0 })
            }
            _ => None,
        };
        uses.iter().find_map(rows)
    }

    /// The layout that has the elements of a tensor in the order in which a copied tile has them in global memory: first those along the
    /// mode of the buffer that is contiguous, then those along the modes before; and how many are contiguous in both. Views nest modes in
    /// other orders than that. `None` where less than a sector is contiguous.
    fn as_in_memory(&self, one: &Use, inner: &[i64]) -> Option<(Layout, i64)> {
        let Use::Copy { view, reference, .. } = one else { return None };
        let own = own_layout(self.v, reference)?;
        let tile = self.v.tile(view);
        let global = tile.global?;
        if reference.transposed || reference.indexed.is_some() || own.size() != inner.iter().product() {
            return None;
        }
        let contiguous =
            global.modes_in_memory().find(|dim| global.strides[*dim].as_int() == Some(1))? as u32;
        // Leaves of the tile's modes, by the order of their strides in memory.
        let leaves: Vec<(usize, (i64, u32, i64))> = global
            .modes
            .iter()
            .enumerate()
            .flat_map(|(mode, leaves)| leaves.iter().map(move |leaf| (mode, *leaf)))
            .collect();
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        order.sort_by_key(|i| {
            let (_, (_, dim, step)) = leaves[*i];
            (dim != contiguous, std::cmp::Reverse(dim), step)
        });
        let (mut strides, mut next, mut run) = (vec![0; leaves.len()], 1i64, 1i64);
        for i in order {
            let (extent, dim, step) = leaves[i].1;
            strides[i] = next;
            if dim == contiguous && step == run && run == next {
                run *= extent;
            }
            next = next.checked_mul(extent)?;
        }
        let bits = self.v.tensor(reference.tensor).dtype.bits();
        if run * i64::from(bits) < SECTOR_BYTES as i64 * 8 {
            return None;
        }
        let nested = |pick: &dyn Fn(usize) -> i64| -> HTuple<i64> {
            let of = |mode: usize| {
                let within = (0..leaves.len()).filter(|i| leaves[*i].0 == mode).map(pick);
                HTuple::from_flat(within.collect::<Vec<_>>())
            };
            HTuple::Tuple((0..global.modes.len()).map(of).collect())
        };
        let layout = Layout::new(nested(&|i| leaves[i].1.0), nested(&|i| strides[i])).ok()?;
        Some((coalesce_by(&layout, &HTuple::from_flat(vec![(); inner.len()])).ok()?, run))
    }

    /// A layout for a tensor that no engine fixes: the widest swizzle that its tile has room for, or none.
    pub(super) fn common(&self, id: TensorId, uses: &[Use]) -> Option<SwizzledLayout> {
        let (shape, stages) = (self.v.shape(id), self.stages(id, uses));
        // Elements that share a byte are neighbours along the last mode, where threads hold them, too.
        let last = (0..shape.len()).rev().find(|mode| !stages.contains(mode))?;
        let next: i64 = shape[..last].iter().product();
        let shares_bytes = self.v.tensor(id).dtype.per_byte() > 1;
        let suits = |layout: &SwizzledLayout| !shares_bytes || layout.layout.eval(next) == 1;
        let mut candidates = self.candidates(id, uses).into_iter();
        if let Some((layout, _)) = candidates.find(|(layout, _)| suits(layout)) {
            return Some(layout);
        }
        let kept: Vec<i64> = (0..shape.len()).filter(|k| !stages.contains(k)).map(|k| shape[k]).collect();
        let tile = SwizzledLayout::from(Layout::row_major(HTuple::from_flat(kept)).ok()?);
        with_stages(&tile, &shape, &stages, SwizzleMode::None, self.v.tensor(id).dtype.bits())
    }
}
