//! Loads and stores of tiles of global buffers.

use tilewright_machine::DType;

use super::InterpretError;
use super::bound::Element;
use super::plan::Access;
use super::role::Role;
use crate::expr::Expr;

/// The coordinates at which a tile of a buffer begins, and at which the buffer, or the view of it, ends.
#[derive(PartialEq)]
pub(super) struct Corner {
    base: Vec<i64>,
    ends: Vec<i64>,
}

impl Role<'_> {
    pub(super) fn corner(&self, access: &Access) -> Result<Corner, InterpretError> {
        let all = |list: &[Expr], what: &str| -> Result<Vec<i64>, _> {
            list.iter().map(|e| self.value(e, || format!("{what} of `{}`", access.name))).collect()
        };
        Ok(Corner { base: all(&access.base, "an offset")?, ends: all(&access.shape, "the end")? })
    }

    pub(super) fn load(&self, access: &Access, out: &mut Vec<Element>) -> Result<(), InterpretError> {
        let corner = self.corner(access)?;
        let start = access.start_if_inside(&corner);
        if let Some(watch) = &self.watch {
            access.visit(&corner, |offset| watch.loaded(access.param, offset));
        }
        let buffer = &self.buffers[access.param];
        match start {
            Some(start) => out.extend(access.offsets.iter().map(|o| buffer.read((start + o) as usize))),
            None => access.each(&corner, |offset| {
                out.push(offset.map_or(Element::exact(0.0), |o| buffer.read(o)));
            }),
        }
        Ok(())
    }

    /// Writes a tile to a buffer from a coordinate on; adds it to what is there, rounded to the type, if there is one.
    pub(super) fn store(&self, access: &Access, corner: &Corner, tile: &[Element], add: Option<DType>) {
        let buffer = &self.buffers[access.param];
        if let Some(watch) = &self.watch {
            access.visit_with(corner, tile, |offset, x: Element| {
                let values = add.is_none().then(|| [buffer.read(offset).value, x.value]);
                watch.stored(access.param, offset, values);
            });
        }
        let put = |offset: usize, x: Element| match add {
            None => buffer.write(offset, x),
            Some(dtype) => buffer.add(offset, x, dtype),
        };
        access.visit_with(corner, tile, put);
    }
}

impl Access {
    /// The offset of the first element, where the whole tile lies within the buffer.
    pub(super) fn start_if_inside(&self, Corner { base, ends }: &Corner) -> Option<i64> {
        let reach = self.reach.as_ref()?;
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
    fn visit(&self, corner: &Corner, mut visit: impl FnMut(usize)) {
        match self.start_if_inside(corner) {
            Some(start) => self.offsets.iter().for_each(|o| visit((start + o) as usize)),
            None => self.each(corner, |offset| offset.into_iter().for_each(&mut visit)),
        }
    }

    /// The same, with the element of `tile` that belongs there.
    fn visit_with<T: Copy>(&self, corner: &Corner, tile: &[T], mut visit: impl FnMut(usize, T)) {
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
    pub(super) fn each(&self, Corner { base, ends }: &Corner, mut visit: impl FnMut(Option<usize>)) {
        let mut digits = vec![0i64; self.leaves.len()];
        let mut coordinate: Vec<i128> = Vec::with_capacity(base.len());
        for _ in 0..self.offsets.len() {
            coordinate.clear();
            coordinate.extend(base.iter().map(|b| i128::from(*b)));
            for ((_, dim, scale), digit) in self.leaves.iter().zip(&digits) {
                coordinate[*dim] += i128::from(*digit) * i128::from(*scale);
            }
            let inside = coordinate.iter().zip(ends).all(|(c, n)| (0..i128::from(*n)).contains(c));
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
