//! Shape statements and gathers: on plain arrays, leftmost mode fastest.

use super::bound::{self, Element};
use crate::program::{Form, ShapeOp};

/// The place in the operand of each element of a shape statement's result; `None` where their orders are the same. `from` and `to` are the shapes of operand and result. A slice counts from where it begins.
pub(super) fn order<F: Form>(op: &ShapeOp<F>, from: &[i64], to: &[i64]) -> Option<Vec<u32>> {
    let mut stride = 1;
    let mut strides = Vec::with_capacity(from.len());
    for n in from {
        strides.push(stride);
        stride *= n;
    }
    let walk: Vec<i64> = match op {
        ShapeOp::Reshape(_) | ShapeOp::Expand { .. } => return None,
        ShapeOp::Slice { .. } => strides,
        ShapeOp::Transpose(order) => order.iter().map(|&mode| strides[mode as usize]).collect(),
        ShapeOp::Broadcast(_) => return Some(repeated(from, to)),
    };
    Some(table(to.iter().copied().zip(walk)).into_iter().map(|o| o as u32).collect())
}

/// The place in a tile of shape `from` of each element of one of shape `to`, in which its modes of extent 1 are repeated.
pub(super) fn repeated(from: &[i64], to: &[i64]) -> Vec<u32> {
    let mut stride = 1;
    let mut walk = Vec::with_capacity(to.len());
    for (n, extent) in from.iter().zip(to) {
        walk.push((*extent, if *n == 1 { 0 } else { stride }));
        stride *= n;
    }
    table(walk.into_iter()).into_iter().map(|o| o as u32).collect()
}

/// The value of a layout at every index, leftmost mode fastest.
pub(super) fn table(modes: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
    let mut values = vec![0i64];
    for (extent, stride) in modes {
        let inner = values.len();
        for c in 1..extent {
            for i in 0..inner {
                values.push(values[i].wrapping_add(c.wrapping_mul(stride)));
            }
        }
    }
    values
}

/// A tile seen as three modes: what is left of a mode, the mode, what is right of it.
#[derive(Clone, Copy)]
pub(super) struct Around {
    inner: usize,
    extent: usize,
    outer: usize,
}

impl Around {
    pub(super) fn new(shape: &[i64], axis: u32) -> Self {
        let axis = axis as usize;
        let product = |part: &[i64]| part.iter().product::<i64>() as usize;
        Around {
            inner: product(&shape[..axis]),
            extent: shape[axis] as usize,
            outer: product(&shape[axis + 1..]),
        }
    }

    /// True for each place left of the mode and right of it where anything along the mode is marked.
    pub(super) fn any(self, marks: &[bool]) -> Vec<bool> {
        self.rows().map(|mut row| row.any(|at| marks[at])).collect()
    }

    /// The places along the mode, for each place left of it and right of it.
    pub(super) fn rows(self) -> impl Iterator<Item = impl Iterator<Item = usize>> {
        let row = move |(o, i)| (0..self.extent).map(move |k| self.at(i, k, o));
        (0..self.outer).flat_map(move |o| (0..self.inner).map(move |i| (o, i))).map(row)
    }

    fn at(self, i: usize, k: usize, o: usize) -> usize {
        i + self.inner * (k + self.extent * o)
    }
}

/// The elements of `src` that `index` names along the mode, modulo its extent.
pub(super) fn gather(src: &[Element], around: Around, index: &[Element], along: Around) -> Vec<Element> {
    let mut result = Vec::with_capacity(index.len());
    for o in 0..along.outer {
        for j in 0..along.extent {
            for i in 0..along.inner {
                let at = |k| src[around.at(i, k, o)];
                result.push(bound::named(index[along.at(i, j, o)], around.extent, at));
            }
        }
    }
    result
}
