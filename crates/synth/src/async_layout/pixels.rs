//! Tensor copies in im2col mode: tiles of pixels, counted across the rows of an image and from one image to the next.
//!
//! A view whose mode folds modes of its buffer has such tiles. The digits of a pixel's number are its place in the bounding box of the map; where the
//! view begins is the lower corner, and indices along the other modes, such as the taps of a filter, are offsets that a load adds to every pixel.

use tilewright_machine::{BoxShape, CacheHint, Corners, SwizzleMode, TensorOp, tensor_im2col};
use tilewright_tile::core::TileRef;
use tilewright_tile::{Expr, FoldedTile, GlobalTile, IntOp, Peers};

use super::tma::{Folded, SharedTile, TmaPlan, between_halves, ends_with_buffer, walks};
use crate::divisibility::Divisibility;
use crate::reject::TmaReject;

/// Pixels of a load, at most.
const MOST_PIXELS: i64 = tilewright_machine::MOST_PIXELS as i64;

/// The load of a tile of a view that folds modes of its buffer.
///
/// # Errors
///
/// The reason why the im2col mode cannot do it.
pub fn plan(
    divisibility: &Divisibility<'_>,
    op: TensorOp,
    tile: &TileRef,
    shared: &SharedTile,
    peers: Option<Peers>,
    hint: Option<CacheHint>,
) -> Result<TmaPlan, TmaReject> {
    let Some((global, folded)) = tile.global.as_ref().and_then(|of| Some((of, of.folded.as_ref()?))) else {
        return Err(TmaReject::NotAView);
    };
    if op != TensorOp::Load || global.array {
        return Err(TmaReject::NotTma);
    }
    let bits = i64::from(tile.dtype.bits());
    let bytes = bits / 8;
    let layout = &shared.layout;
    let swizzle = shared.swizzle(tile.dtype.bits())?;
    ends_with_buffer(divisibility, global)?;
    let rank = global.strides.len();
    let row = tensor_im2col().iter().find(|row| row.rank as usize == rank);
    let row = row.ok_or(TmaReject::Im2colRank(rank))?;
    let inner = global.modes_in_memory().find(|dim| global.strides[*dim].as_int() == Some(1));
    let inner = inner.ok_or(TmaReject::BufferNotContiguous)?;
    if tile.dtype.per_byte() > 1 {
        return Err(TmaReject::WithinByte(inner, i64::from(tile.dtype.per_byte())));
    }
    let multiple = 16 / bytes;
    let unaligned = |dim: &usize| *dim != inner && !divisibility.is_multiple(&global.strides[*dim], multiple);
    if let Some(dim) = global.modes_in_memory().find(unaligned) {
        return Err(TmaReject::StepsUnaligned(dim, multiple));
    }
    if !divisibility.is_multiple(&global.base[inner], multiple) {
        return Err(TmaReject::BeginsUnaligned(inner, multiple));
    }
    // Where it is not known, the interpreter has looked, and as an unsigned number it is far behind the last pixel.
    if divisibility.begins_ahead(&global.base[rank]) {
        return Err(TmaReject::PixelsAhead);
    }
    let images = images(global, folded, inner)?;
    // The modes that have corners and offsets: those that are folded in their order, then the others.
    let mut spatial: Vec<usize> = folded.leaves.iter().map(|(_, dim, _)| *dim as usize).collect();
    spatial.retain(|dim| *dim != images);
    let others: Vec<usize> =
        (0..rank).rev().filter(|dim| ![inner, images].contains(dim) && !spatial.contains(dim)).collect();
    spatial.extend(others);
    // Channels and pixels are in the box; what is left along modes of pixels are offsets.
    let limit = match swizzle {
        SwizzleMode::None => 256,
        _ => i64::from(swizzle.span()) / bytes,
    };
    let dims: Vec<u32> = [inner, rank].into_iter().chain(spatial.iter().copied()).map(|d| d as u32).collect();
    let second = between_halves(&layout.layout, global)?;
    let mut of_box = Folded::of_pixels(dims, [limit, MOST_PIXELS], walks(&layout.layout, tile, global)?);
    let period = i64::from(swizzle.period());
    let halves = second.map(|second| of_box.halves(second)).transpose()?;
    let multicast = peers.map(|peers| of_box.share_out(peers, bytes, period)).transpose()?;
    let calls = of_box.calls(bytes)?;
    let mut steps = vec![1];
    let mut corners = Corners { lower: Vec::new(), upper: Vec::new() };
    for (at, dim) in spatial.iter().copied().enumerate() {
        let leaf = folded.leaves.iter().find(|(_, of, _)| *of as usize == dim);
        let (extent, step) = leaf.map_or((Expr::Int(1), 1), |(extent, _, step)| (extent.clone(), *step));
        let unknown = || TmaReject::CornerUnknown(dim);
        let lower = folded.offsets[dim].as_int().ok_or_else(unknown)?;
        let upper = last(&extent, step).and_then(|last| {
            // Relative to the buffer's last place.
            let mut sum = Linear::default();
            sum.add(&last, 1)?;
            sum.add(&global.shape[dim], -1)?;
            sum.constant()?.checked_add(lower + 1)
        });
        let farthest = folded.farthest[dim].ok_or(TmaReject::OffsetsUnknown(dim))?;
        let farthest = farthest + calls.iter().map(|call| call.coords[2 + at]).max().unwrap_or(0);
        let most = *Corners::offsets(rank).end();
        if farthest > most {
            return Err(TmaReject::OffsetsBeyond(dim, farthest, most));
        }
        let corner = |place: i64| i32::try_from(place).map_err(|_| unknown());
        corners.lower.push(corner(lower)?);
        corners.upper.push(corner(upper.ok_or_else(unknown)?)?);
        steps.push(u32::try_from(step).unwrap_or(u32::MAX));
    }
    steps.push(1);
    let extents = of_box.extents[..2].iter().map(|extent| *extent as u32).collect();
    let shape = BoxShape { dtype: tile.dtype, extents, steps, swizzle, corners: Some(corners) };
    shape.check()?;
    if let Some(call) = calls.iter().find(|call| call.shared % period != 0) {
        return Err(TmaReject::BoxBeginsWithin(call.shared, swizzle.period()));
    }
    shared.begins_at(swizzle.period(), tile.dtype.bits())?;
    let dims = [inner].into_iter().chain(spatial).chain([images]).map(|dim| dim as u32).collect();
    Ok(TmaPlan { row, shape, per_unit: 1, dims, span: None, calls, halves, multicast, hint, gather: None })
}

/// The mode of the buffer that counts images: that of the last digit, which goes on where the others begin again.
fn images(global: &GlobalTile, folded: &FoldedTile, inner: usize) -> Result<usize, TmaReject> {
    let Some((extent, dim, step)) = folded.leaves.last() else { return Err(TmaReject::NotAView) };
    let images = *dim as usize;
    if folded.leaves.iter().any(|(_, dim, _)| *dim as usize == inner) {
        return Err(TmaReject::FoldsChannels(inner));
    }
    let starts = folded.offsets[images] == Expr::Int(0) && folded.taps[images] == Expr::Int(0);
    // A tile that leads along it beside the folded mode would have no offset for that.
    let alone = global.modes.iter().flatten().all(|(extent, dim, _)| *extent == 1 || *dim as usize != images);
    match *step == 1 && starts && alone && *extent == global.shape[images] {
        true => Ok(images),
        false => Err(TmaReject::FoldsImages(images)),
    }
}

/// A distance from the first of so many places to the last, or less than a step beyond.
fn last(extent: &Expr, step: i64) -> Option<Expr> {
    if let Some(extent) = extent.as_int() {
        return (extent - 1).checked_mul(step).map(Expr::Int);
    }
    if step == 1 {
        return Some(extent.clone() - 1);
    }
    let (counted, more) = match extent {
        Expr::Binary(IntOp::Add, counted, more) => (&**counted, more.as_int()?),
        Expr::Binary(IntOp::Sub, counted, less) => (&**counted, less.as_int()?.checked_neg()?),
        counted => (counted, 0),
    };
    // Of a quotient rounded down, `reach / step + more`, the steps before the last are within `reach + (more - 1) * step`.
    let (reach, rounded) = match counted {
        Expr::Binary(IntOp::Div, reach, by) if by.as_int() == Some(step) => (reach, 0),
        Expr::Binary(IntOp::CeilDiv, reach, by) if by.as_int() == Some(step) => (reach, step - 1),
        _ => return None,
    };
    let beyond = (more - 1).checked_mul(step)?.checked_add(rounded)?;
    Some((**reach).clone() + beyond)
}

/// A sum of multiples of expressions and a number.
#[derive(Default)]
struct Linear {
    terms: Vec<(Expr, i64)>,
    number: i64,
}

impl Linear {
    /// Adds a multiple of an expression; `None` on overflow.
    fn add(&mut self, e: &Expr, times: i64) -> Option<()> {
        match e {
            Expr::Int(value) => self.number = self.number.checked_add(value.checked_mul(times)?)?,
            Expr::Binary(IntOp::Add, a, b) => {
                self.add(a, times)?;
                self.add(b, times)?;
            }
            Expr::Binary(IntOp::Sub, a, b) => {
                self.add(a, times)?;
                self.add(b, times.checked_neg()?)?;
            }
            Expr::Binary(IntOp::Mul, a, b) if a.as_int().or(b.as_int()).is_some() => match a.as_int() {
                Some(factor) => self.add(b, times.checked_mul(factor)?)?,
                None => self.add(a, times.checked_mul(b.as_int()?)?)?,
            },
            other => match self.terms.iter_mut().find(|(known, _)| known == other) {
                Some((_, count)) => *count = count.checked_add(times)?,
                None => self.terms.push((other.clone(), times)),
            },
        }
        Some(())
    }

    /// Its value, if no expression is left in it.
    fn constant(&self) -> Option<i64> {
        self.terms.iter().all(|(_, count)| *count == 0).then_some(self.number)
    }
}
