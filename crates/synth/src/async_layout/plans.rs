//! Plans of the copies and products whose layouts are assigned.

use tilewright_layout::{SwizzledLayout, coalesce, compose};
use tilewright_machine::Memory;
use tilewright_tile::core::{Program, TensorRef};
use tilewright_tile::{AsyncCopyAttrs, Multicast, Peers, TensorId};

use super::halves::second_half;
use super::tensor_memory::{Sums, TensorCopyPlan};
use super::tma::{SharedTile, TmaPlan};
use super::wgmma::Grid;
use super::{tensor_memory, tensor_op, tma};
use crate::copies::own_layout;
use crate::divisibility::Divisibility;
use crate::plan::StmtPlan;
use crate::reject::{Reject, TensorMemoryReject, TmaReject};
use crate::tv::TvLayout;

/// The plan of a copy that is marked for the tensor memory accelerator, given the layout of its shared tensor.
///
/// # Errors
///
/// The reason why it cannot be: then it would not have been marked.
pub fn copy_plan(
    v: &Program,
    divisibility: &Divisibility<'_>,
    (src, dst, how): (&TensorRef, &TensorRef, AsyncCopyAttrs),
    layout: &dyn Fn(TensorId) -> Option<SwizzledLayout>,
) -> Result<TmaPlan, Reject> {
    let stores = v.tensor(src.tensor).memory() == Memory::Shared;
    let (view, reference) = if stores { (dst, src) } else { (src, dst) };
    let op = tensor_op(v, src, how, !stores).ok_or(TmaReject::NotTma)?;
    let whole = layout(reference.tensor).ok_or(TmaReject::NoLayout)?;
    let tile = tile_of(v, divisibility, reference, &whole)?;
    let peers = peers(v, how);
    Ok(tma::plan(divisibility, op, &v.tile(view), &tile, peers, how.hint)?)
}

/// The blocks of the cluster that share what a copy brings, if several do. Of a pair each block has a half of its own, or, where it multiplies for itself, the whole tile.
pub(super) fn peers(v: &Program, how: AsyncCopyAttrs) -> Option<Peers> {
    let shared = how.multicast.filter(|multicast| *multicast != Multicast::Pair);
    let peers = shared.map(|multicast| multicast.peers(v.cluster_shape()));
    peers.filter(|peers| peers.blocks > 1)
}

/// A shared tile as a reference sees it, given the layout of its tensor.
pub(super) fn tile_of(
    v: &Program,
    divisibility: &Divisibility<'_>,
    reference: &TensorRef,
    whole: &SwizzledLayout,
) -> Result<SharedTile, Reject> {
    let own = own_layout(v, reference).ok_or(Reject::TooLarge)?;
    let tile = compose(&whole.layout, &own).map_err(|_| TmaReject::NotComposed)?;
    let mut begins = Vec::new();
    for (mode, index) in v.tile(reference).fixed {
        // An index lies within its mode.
        let mode = coalesce(&whole.layout.mode(mode)?);
        begins.push(match index.as_int() {
            Some(index) => mode.eval(index),
            None if mode.depth() == 0 => {
                mode.divisor().saturating_mul(index.expr().map_or(1, |e| divisibility.divisor(e)))
            }
            None => mode.divisor(),
        });
    }
    Ok(SharedTile { layout: SwizzledLayout { layout: tile, swizzle: whole.swizzle }, begins })
}

/// A product with its sums in tensor memory.
pub(super) fn sums_of(
    v: &Program,
    c: TensorId,
    (a, b): (&TensorRef, &TensorRef),
    (sparse, scales): (bool, Option<&[TensorRef; 2]>),
    pairs: bool,
) -> Result<Sums, TensorMemoryReject> {
    let dtype = |id: TensorId| v.tensor(id).dtype;
    let (left, right) = (v.tile(a).shape, v.tile(b).shape);
    let (a, b, extents) = (dtype(a.tensor), dtype(b.tensor), [left[0], right[0], right[1]]);
    match scales {
        Some([scale, other]) => {
            let of = |scale: &TensorRef, mode: usize| v.tile(scale).shape.get(mode).copied().unwrap_or(0);
            let rows = [of(scale, 0), of(other, 0)];
            Sums::scaled((a, b, dtype(scale.tensor)), extents, (rows, of(scale, 1)), pairs)
        }
        None if sparse && pairs => Err(TensorMemoryReject::SparsePairs),
        None if sparse => Sums::sparse((a, b, dtype(c)), extents),
        None if pairs => Sums::of_pair((a, b, dtype(c)), extents),
        None => Sums::new((a, b, dtype(c)), extents),
    }
}

/// The plan of a copy between tensor memory and registers of these layouts; `None` of any other.
///
/// # Errors
///
/// The reason why no instruction does it: [`assign_async_layouts`](super::assign_async_layouts) has seen to it that one does, unless another statement has another layout.
pub fn tensor_copy_plan(
    v: &Program,
    (src, dst): (&TensorRef, &TensorRef),
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
) -> Result<Option<TensorCopyPlan>, Reject> {
    let memory = |r: &TensorRef| v.tensor(r.tensor).memory();
    let loads = memory(src) == Memory::Tensor;
    if !loads && memory(dst) != Memory::Tensor {
        return Ok(None);
    }
    let (sums, fragment) = if loads { (src, dst) } else { (dst, src) };
    let tile = tensor_memory::matrix(&v.tile(sums).shape).ok_or(Reject::NoLayout)?;
    let tv = register(fragment.tensor).ok_or(Reject::NoLayout)?;
    let bits = v.tensor(sums.tensor).dtype.bits();
    Ok(Some(tensor_memory::copy_plan(loads, (tile, bits), &tv, i64::from(v.threads()))?))
}

/// The plan of an asynchronous product, given the layouts of its shared operands. The program's threads are the role's.
///
/// # Errors
///
/// The reason why no instruction does it: [`assign_async_layouts`](super::assign_async_layouts) has seen to it that one does.
pub fn product_plan(
    (v, divisibility): (&Program, &Divisibility<'_>),
    (c, a, b): (TensorId, &TensorRef, &TensorRef),
    (sparse, scales): (bool, Option<&[TensorRef; 2]>),
    asked: Option<&[i64; 2]>,
    layout: &dyn Fn(TensorId) -> Option<SwizzledLayout>,
) -> Result<StmtPlan, Reject> {
    let program = v;
    let dtype = |id: TensorId| program.tensor(id).dtype;
    let (left, right) = (v.tile(a).shape, v.tile(b).shape);
    let asked = asked.copied();
    let types = (dtype(a.tensor), dtype(b.tensor), dtype(c));
    let tile = |reference: &TensorRef| {
        let whole = layout(reference.tensor).ok_or(TmaReject::NoLayout)?;
        tile_of(v, divisibility, reference, &whole).map(|tile| tile.layout)
    };
    if program.tensor(c).memory() == Memory::Tensor {
        let left = match program.tensor(a.tensor).memory() {
            Memory::Tensor => None,
            _ => Some(tile(a)?),
        };
        let right = tile(b)?;
        let pairs = second_half(&right.layout).is_some();
        return Ok(StmtPlan::Sums(
            sums_of(v, c, (a, b), (sparse, scales), pairs)?.plan(left.as_ref(), &right)?,
        ));
    }
    let grid = Grid::new(types, sparse, [left[0], right[0], right[1]], i64::from(v.threads() / 128), asked)?;
    let first = match program.tensor(a.tensor).memory() {
        Memory::Shared => Some(tile(a)?),
        _ => None,
    };
    Ok(StmtPlan::Wgmma(grid.plan(first.as_ref(), &tile(b)?)?))
}
