//! What shape statements, joins, splits and reductions do to thread-value layouts: the coordinate maps between the tiles
//! of operand and result, composed with the layouts (Linear Layouts, section 4.4). Coordinates count the leftmost mode
//! fastest; each map leads from the coordinate of the tile named first to that of the other.

use tilewright_layout::{Layout, compose};
use tilewright_tile::core::ShapeOp;

use crate::tv::TvLayout;

fn strides(shape: &[i64]) -> Vec<i64> {
    let mut next = 1;
    shape
        .iter()
        .map(|extent| {
            let this = next;
            next *= extent;
            this
        })
        .collect()
}

fn map(shape: &[i64], strides: &[i64]) -> Option<Layout> {
    let leaves: Vec<(i64, i64)> = shape.iter().copied().zip(strides.iter().copied()).collect();
    Layout::from_leaves(&leaves).ok()
}

/// Operand's coordinate → result's coordinate; of the places that a broadcast gives an element, the first.
pub fn forward(op: &ShapeOp, src: &[i64], dst: &[i64]) -> Option<Layout> {
    match op {
        ShapeOp::Transpose(order) => {
            let to = strides(dst);
            let places: Option<Vec<i64>> =
                (0..src.len() as u32).map(|k| order.iter().position(|o| *o == k).map(|i| to[i])).collect();
            map(src, &places?)
        }
        ShapeOp::Broadcast(_) => map(src, &strides(dst)),
        ShapeOp::Reshape(_) | ShapeOp::Expand { .. } => Some(Layout::identity(src.iter().product())),
        // Not every coordinate has one.
        ShapeOp::Slice { .. } => None,
    }
}

/// Result's coordinate → operand's coordinate; of a slice, less where it begins ([`begins`]).
pub fn backward(op: &ShapeOp, src: &[i64], dst: &[i64]) -> Option<Layout> {
    match op {
        ShapeOp::Transpose(order) => {
            let from = strides(src);
            let places: Vec<i64> = order.iter().map(|k| from[*k as usize]).collect();
            map(dst, &places)
        }
        ShapeOp::Broadcast(_) => {
            let from = strides(src);
            let places: Vec<i64> = src
                .iter()
                .zip(&from)
                .map(|(extent, stride)| if *extent == 1 { 0 } else { *stride })
                .collect();
            map(dst, &places)
        }
        ShapeOp::Reshape(_) | ShapeOp::Expand { .. } => Some(Layout::identity(dst.iter().product())),
        ShapeOp::Slice { .. } => map(dst, &strides(src)),
    }
}

/// The coordinate of the operand at which the result of a shape statement begins: 0 but for a slice.
pub fn begins(op: &ShapeOp, src: &[i64]) -> i64 {
    match op {
        ShapeOp::Slice { axis, start, .. } => *start * strides(src)[*axis as usize],
        _ => 0,
    }
}

/// The layout of a slice: what the threads hold of it, where each of them holds as many values. `None` where they do not.
pub fn sliced(tv: &TvLayout, src: &[i64], dst: &[i64], axis: u32, start: i64) -> Option<TvLayout> {
    let (axis, from, to) = (axis as usize, strides(src), strides(dst));
    let length = dst[axis];
    // A leaf in the units of the result's modes. One that reaches beyond the slice is cut if `cut` allows it.
    let leaf = |(extent, stride): (i64, i64), cut: bool| {
        if stride == 0 || extent == 1 {
            return Some((extent, stride));
        }
        let k = (0..src.len()).rev().find(|k| from[*k] <= stride && src[*k] > 1)?;
        let step = stride / from[k];
        if stride % from[k] != 0 || step * extent > src[k] {
            return None;
        }
        let stays = |n: i64| start % n == 0 && length % n == 0;
        if k != axis || stays(step * extent) {
            Some((extent, step * to[k]))
        } else if cut && stays(step) && step * extent == src[k] {
            Some((length / step, step * to[k]))
        } else {
            None
        }
    };
    let threads: Option<Vec<(i64, i64)>> =
        tv.threads().leaves().into_iter().map(|l| leaf(l, false)).collect();
    let values: Option<Vec<(i64, i64)>> = tv.values().leaves().into_iter().map(|l| leaf(l, true)).collect();
    let values: Vec<(i64, i64)> = values?.into_iter().filter(|l| l.0 > 1).collect();
    TvLayout::new(Layout::from_leaves(&threads?).ok()?, Layout::from_leaves(&values).ok()?).ok()
}

/// Coordinate of a tile → coordinate of the tile without mode `axis`.
pub fn without(axis: u32, shape: &[i64]) -> Option<Layout> {
    let rest: Vec<i64> =
        shape.iter().enumerate().map(|(k, e)| if k == axis as usize { 1 } else { *e }).collect();
    let places: Vec<i64> = strides(&rest)
        .into_iter()
        .enumerate()
        .map(|(k, stride)| if k == axis as usize { 0 } else { stride })
        .collect();
    map(shape, &places)
}

/// The layout seen through a coordinate map. Values that the map brings to one coordinate are held once.
pub fn seen(tv: &TvLayout, map: &Layout) -> Option<TvLayout> {
    let threads = compose(map, tv.threads()).ok()?;
    let values = compose(map, tv.values()).ok()?;
    let leaves: Vec<(i64, i64)> = values.leaves().into_iter().filter(|l| l.1 != 0).collect();
    TvLayout::new(threads, Layout::from_leaves(&leaves).ok()?).ok()
}

/// The layout of a broadcast's result: what is repeated is held in values above those there are.
pub fn repeated(tv: &TvLayout, src: &[i64], dst: &[i64]) -> Option<TvLayout> {
    let mut leaves = tv.values().leaves();
    for ((from, to), stride) in src.iter().zip(dst).zip(strides(dst)) {
        if from != to {
            leaves.push((*to, stride));
        }
    }
    leaves.retain(|l| l.0 > 1);
    TvLayout::new(tv.threads().clone(), Layout::from_leaves(&leaves).ok()?).ok()
}

/// A layout of a reduction's operand, of `shape`, from that of its result: the mode that goes is held in values, above the others.
pub fn lifted(tv: &TvLayout, shape: &[i64], axis: u32) -> Option<TvLayout> {
    let axis = axis as usize;
    let units = strides(shape);
    let leaves: Vec<(i64, i64)> =
        (0..shape.len()).filter(|k| *k != axis).map(|k| (shape[k], units[k])).collect();
    let map = if leaves.is_empty() { Layout::identity(1) } else { Layout::from_leaves(&leaves).ok()? };
    let there = seen(tv, &map)?;
    let mut values = there.values().leaves();
    values.push((shape[axis], units[axis]));
    values.retain(|l| l.0 > 1);
    TvLayout::new(there.threads().clone(), Layout::from_leaves(&values).ok()?).ok()
}

/// The layout of a join's result: the second operand's values above the first's.
pub fn joined(tv: &TvLayout, size: i64) -> Option<TvLayout> {
    let mut leaves = tv.values().leaves();
    leaves.retain(|l| l.0 > 1);
    leaves.push((2, size));
    TvLayout::new(tv.threads().clone(), Layout::from_leaves(&leaves).ok()?).ok()
}

/// The layout of either half of a split, where each thread holds both halves of what it holds.
pub fn halved(tv: &TvLayout, size: i64) -> Option<TvLayout> {
    let mut found = false;
    let mut leaves = Vec::new();
    for (extent, stride) in tv.values().leaves() {
        let ends = stride > 0 && stride <= size && stride.checked_mul(extent) == Some(2 * size);
        if ends && size % stride == 0 && !found {
            found = true;
            if extent > 2 {
                leaves.push((extent / 2, stride));
            }
        } else if extent > 1 {
            leaves.push((extent, stride));
        }
    }
    found.then_some(())?;
    TvLayout::new(tv.threads().clone(), Layout::from_leaves(&leaves).ok()?).ok()
}

/// A distribution with `along` neighbouring lanes along mode `axis`, the other threads along the other modes from the last
/// to the first, and what is left in values.
pub fn across(shape: &[i64], axis: usize, along: i64, threads: i64) -> Option<TvLayout> {
    let units = strides(shape);
    let mut lanes = vec![(along, units[axis])];
    let mut values = vec![(shape[axis] / along, units[axis] * along)];
    let mut left = threads / along;
    for k in (0..shape.len()).rev().filter(|k| *k != axis) {
        let mut here = shape[k].min(left);
        while shape[k] % here != 0 || left % here != 0 {
            here -= 1;
        }
        lanes.push((here, units[k]));
        values.push((shape[k] / here, units[k] * here));
        left /= here;
    }
    lanes.push((left, 0));
    lanes.retain(|l| l.0 > 1);
    values.retain(|l| l.0 > 1);
    TvLayout::new(Layout::from_leaves(&lanes).ok()?, Layout::from_leaves(&values).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tv(text: &str) -> TvLayout {
        TvLayout::from_layout(text.parse().unwrap()).unwrap()
    }

    /// Each thread holds of a slice what it holds of the whole.
    #[test]
    fn slices_of_a_warpgroup_s_accumulator_stay_in_their_threads() {
        let whole = tv("((4,8,4),(2,2,32)):((128,1,16),(64,8,512))"); // 64×256
        for (start, length) in [(0, 64), (64, 64), (192, 64), (8, 24), (0, 256)] {
            let part = sliced(&whole, &[64, 256], &[64, length], 1, start).unwrap();
            assert!(part.layout().is_bijective_onto(64 * length), "{}", part.layout());
            for thread in 0..128 {
                let held: Vec<i64> = (0..128).map(|v| whole.at(thread, v)).collect();
                assert!((0..length / 2).all(|v| held.contains(&(part.at(thread, v) + 64 * start))));
            }
        }
        assert!(sliced(&whole, &[64, 256], &[64, 20], 1, 0).is_none());
        assert!(sliced(&whole, &[64, 256], &[32, 256], 0, 0).is_none());
    }

    /// Forward then backward is the identity, and every element stays in its thread.
    #[test]
    fn every_shape_statement_keeps_elements_where_they_are() {
        let cases = [
            (ShapeOp::Transpose(vec![1, 0]), vec![8, 16], vec![16, 8]),
            (ShapeOp::Reshape(Vec::new()), vec![8, 16], vec![4, 32]),
            (ShapeOp::Expand { axis: 1 }, vec![8, 16], vec![8, 1, 16]),
        ];
        let t = tv("((4,8),(2,2)):((16,1),(8,64))");
        for (op, src, dst) in cases {
            let (there, back) = (forward(&op, &src, &dst).unwrap(), backward(&op, &src, &dst).unwrap());
            for c in 0..128 {
                assert_eq!(back.eval(there.eval(c)), c, "{op:?}");
            }
            let result = seen(&t, &there).unwrap();
            for thread in 0..32 {
                for value in 0..4 {
                    assert_eq!(result.at(thread, value), there.eval(t.at(thread, value)));
                }
            }
        }
    }

    #[test]
    fn joins_and_splits_undo_each_other() {
        let t = tv("((4,8),(2,2)):((16,1),(8,64))");
        let both = joined(&t, 128).unwrap();
        assert_eq!(both.count(), 8);
        assert!(halved(&both, 128).unwrap().same_function(&t));
        // Half of a mode that goes on.
        let long = tv("(32,8):(1,32)");
        assert_eq!(halved(&long, 128).unwrap().layout().to_string(), "(32,4):(1,32)");
        assert!(halved(&t, 64).is_some() && halved(&t, 32).is_none());
    }

    #[test]
    fn a_lifted_layout_reduces_to_the_one_it_came_from() {
        let rows = tv("(32,2):(1,32)"); // 64 rows
        for (shape, axis) in [(vec![64, 8], 1), (vec![8, 64], 0)] {
            let whole = lifted(&rows, &shape, axis).unwrap();
            assert!(whole.layout().is_bijective_onto(512), "{}", whole.layout());
            assert!(seen(&whole, &without(axis, &shape).unwrap()).unwrap().same_function(&rows));
        }
    }

    #[test]
    fn a_reduced_mode_leaves_copies_in_threads_and_none_in_values() {
        let t = tv("((4,8),(2,2)):((16,1),(8,64))"); // 8 rows of lanes, 16 columns
        let rows = seen(&t, &without(1, &[8, 16]).unwrap()).unwrap();
        assert_eq!(rows.layout().to_string(), "((4,8),1):((0,1),0)");
    }
}
