//! Tensor copies: from where a tile lies in global memory and how it is laid out in shared memory to boxes that the tensor memory
//! accelerator moves.
//!
//! The layout of the shared tile, turned around, says which coordinate of the tile comes next in shared memory; the view says
//! along which mode of the buffer that is. What is contiguous in both, from the first element on, is the box; what is left is one copy
//! each.

use tilewright_layout::{Coord, Layout, Stride, SwizzledLayout, compose, right_inverse};
use tilewright_machine::{BoxShape, CacheHint, SwizzleMode, TensorOp, TensorRow, tensor_row};
use tilewright_tile::GlobalTile;
use tilewright_tile::core::TileRef;

use crate::divisibility::Divisibility;
use crate::reject::TmaReject;

/// A copy of a box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TmaCall {
    /// Added to the coordinates of the tile's first element, one a dimension of the box.
    pub coords: Vec<i64>,
    /// Bytes from the tile's first element in shared memory.
    pub shared: i64,
}

/// How the blocks of a cluster share a copy: each copies a part of the box to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// Blocks of the cluster.
    pub blocks: u32,
    /// The dimension of the box that is shared out.
    pub dim: usize,
    /// Coordinates along it from one block's part to the next's.
    pub step: i64,
    /// Bytes of shared memory from one block's part to the next's.
    pub bytes: i64,
}

/// How a tile is copied by the tensor memory accelerator.
#[derive(Clone, PartialEq, Debug)]
pub struct TmaPlan {
    /// The instruction.
    pub row: &'static TensorRow,
    /// The box.
    pub shape: BoxShape,
    /// The modes of the buffer, in the order of the box's dimensions.
    pub dims: Vec<u32>,
    /// One copy each.
    pub calls: Vec<TmaCall>,
    /// How blocks share it.
    pub multicast: Option<Multicast>,
    /// What becomes of it in the L2 cache.
    pub hint: Option<CacheHint>,
}

impl TmaPlan {
    /// The instruction with its box, as reports name it: `tma.load.2d of 64×128 (128-byte swizzle)`.
    pub fn name(&self) -> String {
        let extents: Vec<String> = self.shape.extents.iter().map(ToString::to_string).collect();
        let multicast = self.multicast.map_or(String::new(), |s| format!(", multicast to {}", s.blocks));
        format!("{} of {} ({}{multicast})", self.row.name, extents.join("×"), self.shape.swizzle)
    }

    /// Bytes that land in a block's shared memory, or leave it.
    pub fn bytes(&self) -> u64 {
        self.shape.bytes() * self.calls.len() as u64 * self.multicast.map_or(1, |s| u64::from(s.blocks))
    }
}

/// A run of the tile in shared memory: so many steps along a mode of the buffer.
#[derive(Clone, Copy, Debug)]
struct Walk {
    extent: i64,
    dim: u32,
    step: i64,
    /// Elements of shared memory from one to the next.
    apart: i64,
}

/// What shared memory holds, from the first element on, as walks through the buffer.
fn walks(layout: &Layout, tile: &TileRef, global: &GlobalTile) -> Result<Vec<Walk>, TmaReject> {
    let size: i64 = tile.shape.iter().product();
    let inverse = right_inverse(layout);
    if layout.size() != size || inverse.size() != size {
        return Err(TmaReject::Gaps);
    }
    // Tile coordinate → coordinate in the buffer; with the inverse before, offset in shared memory → coordinate in the buffer.
    let step = |dim: u32, scale: i64| Coord::basis(dim as usize).checked_scale(scale);
    let steps =
        global.modes.iter().flatten().map(|(extent, dim, scale)| Some((*extent, step(*dim, *scale)?)));
    let steps = steps.collect::<Option<Vec<_>>>().ok_or(TmaReject::ModesCrossed)?;
    let buffer = Layout::from_leaves(&steps).and_then(|tile| compose(&tile, &inverse));
    let buffer = buffer.map_err(|_| TmaReject::ModesCrossed)?;
    let mut apart = 1;
    let mut found = Vec::new();
    for (extent, step) in buffer.leaves().into_iter().filter(|(extent, _)| *extent > 1) {
        let [(basis, step)] = step.terms() else {
            return Err(TmaReject::ModesCrossed);
        };
        found.push(Walk { extent, dim: basis.path()[0] as u32, step: *step, apart });
        apart *= extent;
    }
    Ok(found)
}

/// A tile in shared memory.
pub struct SharedTile {
    /// The tile's coordinate → offset in elements from where it begins.
    pub layout: SwizzledLayout,
    /// Numbers of elements of which sums are where the tile begins in its tensor.
    pub begins: Vec<i64>,
}

impl SharedTile {
    /// Checks that the tile begins at a multiple of so many bytes, wherever in its tensor it lies.
    ///
    /// # Errors
    ///
    /// Where it can begin instead.
    pub fn begins_at(&self, multiple: u32, bits: u32) -> Result<(), TmaReject> {
        let bytes = |elements: &i64| elements * i64::from(bits) / 8;
        match self.begins.iter().map(bytes).find(|begin| begin % i64::from(multiple) != 0) {
            Some(begin) => Err(TmaReject::BeginsWithin(begin, multiple)),
            None => Ok(()),
        }
    }
}

/// The copy of a tile between a view and a shared tile, by tensor copies. `blocks`: the cluster whose blocks share it, 1 for none.
///
/// # Errors
///
/// Why tensor copies cannot do it.
pub fn plan(
    divisibility: &Divisibility<'_>,
    op: TensorOp,
    tile: &TileRef,
    shared: &SharedTile,
    blocks: u32,
    hint: Option<CacheHint>,
) -> Result<TmaPlan, TmaReject> {
    let Some(global) = &tile.global else { return Err(TmaReject::NotAView) };
    let bits = tile.dtype.bits();
    if bits < 8 {
        return Err(TmaReject::ElementType(tile.dtype));
    }
    let bytes = i64::from(bits / 8);
    let layout = &shared.layout;
    let swizzle = SwizzleMode::of(&layout.swizzle, bits).ok_or(TmaReject::Swizzle(layout.swizzle))?;
    let buffer = divisibility.program().buffer_shape(global.param);
    if let Some(dim) = buffer.iter().zip(&global.shape).position(|(whole, seen)| whole != seen) {
        return Err(TmaReject::ViewEnds(dim));
    }
    let rank = global.strides.len();
    if rank > 5 {
        return Err(TmaReject::Rank(rank));
    }
    let contiguous = global.strides.iter().position(|s| s.as_int() == Some(1));
    let contiguous = contiguous.ok_or(TmaReject::BufferNotContiguous)? as u32;
    for (dim, stride) in global.strides.iter().enumerate().filter(|(d, _)| *d as u32 != contiguous) {
        if !divisibility.is_multiple(stride, 16 / bytes) {
            return Err(TmaReject::StepsUnaligned(dim, 16 / bytes));
        }
    }
    let walks = walks(&layout.layout, tile, global)?;
    // The box: dimension 0 is the contiguous mode.
    let mut dims = vec![contiguous];
    let mut extents = vec![1i64];
    let mut last = 0;
    let mut rest = Vec::new();
    let row_limit = if swizzle == SwizzleMode::None { 256 } else { i64::from(swizzle.span()) / bytes };
    for walk in walks {
        let mut walk = walk;
        if rest.is_empty() {
            let at = dims.iter().position(|d| *d == walk.dim);
            let limit = if walk.dim == contiguous { row_limit.min(256) } else { 256 };
            // A walk continues the last dimension of the box, or begins one.
            let begins = match at {
                Some(at) if at == last && walk.step == extents[at] => Some(at),
                None if walk.step == 1 && extents[last] > 1 => {
                    dims.push(walk.dim);
                    extents.push(1);
                    Some(dims.len() - 1)
                }
                _ => None,
            };
            if let Some(at) = begins {
                let room = limit / extents[at];
                let here = (1..=room.min(walk.extent)).rev().find(|n| walk.extent % n == 0).unwrap_or(1);
                extents[at] *= here;
                last = at;
                walk = Walk {
                    extent: walk.extent / here,
                    step: walk.step * here,
                    apart: walk.apart * here,
                    ..walk
                };
            }
        }
        if walk.extent > 1 {
            rest.push(walk);
        }
    }
    for dim in (0..rank as u32).filter(|d| *d != contiguous) {
        if !dims.contains(&dim) {
            dims.push(dim);
            extents.push(1);
        }
    }
    let mut multicast = None;
    if blocks > 1 {
        // Of the dimensions but the first the outermost with an extent: its parts lie one after the other.
        let dim = (1..extents.len()).rev().find(|d| extents[*d] > 1).ok_or(TmaReject::SingleRow)?;
        let blocks_here = i64::from(blocks);
        if extents[dim] % blocks_here != 0 {
            return Err(TmaReject::RowsUneven(extents[dim], blocks));
        }
        extents[dim] /= blocks_here;
        let part: i64 = extents.iter().product::<i64>() * bytes;
        if part % i64::from(swizzle.period()) != 0 {
            return Err(TmaReject::PartUneven(part, swizzle.period()));
        }
        multicast = Some(Multicast { blocks, dim, step: extents[dim], bytes: part });
    }
    let shape = BoxShape { dtype: tile.dtype, extents: extents.iter().map(|e| *e as u32).collect(), swizzle };
    shape.check()?;
    let mut calls = vec![TmaCall { coords: vec![0; rank], shared: 0 }];
    for walk in &rest {
        let dim = dims.iter().position(|d| *d == walk.dim).ok_or(TmaReject::MissingMode)?;
        calls = (0..walk.extent)
            .flat_map(|i| {
                calls.iter().map(move |call| {
                    let mut call = call.clone();
                    call.coords[dim] += i * walk.step;
                    call.shared += i * walk.apart * bytes;
                    call
                })
            })
            .collect();
    }
    if calls.len() > MAX_CALLS {
        return Err(TmaReject::TooMany(calls.len()));
    }
    if let Some(call) = calls.iter().find(|c| c.shared % i64::from(swizzle.period()) != 0) {
        return Err(TmaReject::BoxBeginsWithin(call.shared, swizzle.period()));
    }
    shared.begins_at(swizzle.period(), bits)?;
    let row = tensor_row(op, rank as u32).ok_or(TmaReject::NoRow)?;
    Ok(TmaPlan { row, shape, dims, calls, multicast, hint })
}

/// Tensor copies for one statement, at most.
const MAX_CALLS: usize = 64;
