//! Tiles of global buffers: the places of their elements.

use super::op::Access;

/// The coordinates at which a tile of a buffer begins, and at which the buffer, or the view of it, ends.
#[derive(PartialEq)]
pub(super) struct Corner {
    pub(super) base: Vec<i64>,
    pub(super) ends: Vec<i64>,
    /// Of a tile with a mode that a register tensor indexes: how far each index leads, `None` outside of the mode.
    pub(super) steps: Option<Vec<Option<i64>>>,
    /// Of a tile with a mode that folds modes of the buffer: the extents of its leaves.
    pub(super) digits: Vec<i64>,
}

impl Access {
    /// The offset of the first element, where the whole tile lies within the buffer.
    pub(super) fn start_if_inside(&self, Corner { base, ends, steps, digits }: &Corner) -> Option<i64> {
        let reach = self.reach.as_ref().filter(|_| steps.is_none() && digits.is_empty())?;
        let mut start = 0i64;
        for (((b, reach), extent), stride) in base.iter().zip(reach).zip(ends).zip(&self.strides) {
            if *b < 0 || b.checked_add(*reach)? >= *extent {
                return None;
            }
            start += b * stride;
        }
        Some(start)
    }

    /// Calls `visit` with the offset of every element of the tile that lies in the buffer.
    pub(super) fn visit(&self, corner: &Corner, mut visit: impl FnMut(usize)) {
        match self.start_if_inside(corner) {
            Some(start) => self.offsets.iter().for_each(|o| visit((start + o) as usize)),
            None => self.each(corner, |offset| offset.into_iter().for_each(&mut visit)),
        }
    }

    /// The same, with the element of `tile` that belongs there.
    pub(super) fn visit_with<T: Copy>(&self, corner: &Corner, tile: &[T], mut visit: impl FnMut(usize, T)) {
        let mut values = tile.iter();
        match self.start_if_inside(corner) {
            Some(start) => {
                self.offsets.iter().zip(values).for_each(|(o, x)| visit((start + o) as usize, *x));
            }
            None => self.each(corner, |offset| {
                if let (Some(x), Some(o)) = (values.next(), offset) {
                    visit(o, *x);
                }
            }),
        }
    }

    /// Calls `visit` for every element of the tile with its offset in the buffer, `None` outside.
    pub(super) fn each(
        &self,
        Corner { base, ends, steps, digits: folded }: &Corner,
        mut visit: impl FnMut(Option<usize>),
    ) {
        let mut digits = vec![0i64; self.leaves.len()];
        let mut coordinate: Vec<i128> = Vec::with_capacity(base.len());
        for element in 0..self.offsets.len() {
            coordinate.clear();
            coordinate.extend(base.iter().map(|b| i128::from(*b)));
            for ((_, dim, scale), digit) in self.leaves.iter().zip(&digits) {
                coordinate[*dim] += i128::from(*digit) * i128::from(*scale);
            }
            let step = match (&self.indexed, steps) {
                (Some(indexed), Some(steps)) => {
                    let step = steps.get(indexed.indices.of[element] as usize).copied().flatten();
                    coordinate[indexed.dim] += i128::from(step.unwrap_or(0));
                    step.is_some()
                }
                _ => true,
            };
            if let Some(number) = coordinate.last().copied().filter(|_| !folded.is_empty()) {
                let mut rest = number;
                for (i, ((_, dim, step), extent)) in self.folded.iter().zip(folded).enumerate() {
                    let last = i + 1 == folded.len();
                    let extent = i128::from(*extent).max(1);
                    let digit = if last { rest } else { rest.rem_euclid(extent) };
                    rest = rest.div_euclid(extent);
                    coordinate[*dim] += digit * i128::from(*step);
                }
            }
            let inside = step && coordinate.iter().zip(ends).all(|(c, n)| (0..i128::from(*n)).contains(c));
            // Within the buffer the offset is less than its length.
            let offset = || {
                coordinate.iter().zip(&self.strides).map(|(c, d)| c * i128::from(*d)).sum::<i128>() as usize
            };
            visit(inside.then(offset));
            for (digit, (extent, _, _)) in digits.iter_mut().zip(&self.leaves) {
                *digit += 1;
                if *digit < *extent {
                    break;
                }
                *digit = 0;
            }
        }
    }
}
