//! Shape statements, joins, splits and reductions as coordinate maps between the tiles of operand and result, composed with
//! thread-value layouts (Linear Layouts, section 4.4). Coordinates count the leftmost mode fastest.
//!
//! Each statement is one map that is a layout and defined everywhere: from a permuted, repeated or reduced tile's coordinate to the
//! coordinate of the tile that determines it ([`backward`], [`without`], [`half`]). [`seen`] leads layouts along a map,
//! [`lifted`] against it, by the map's right inverse and its nullspace.

use tilewright_layout::{
    HTuple, Layout, compose, filter_zeros, logical_divide, nullspace, right_inverse, squeeze,
    zipped_divide_by_mode,
};
use tilewright_tile::core::ShapeOp;

use crate::divisibility::gcd;
use crate::tv::TvLayout;

/// The strides of a tile's coordinate.
fn strides(shape: &[i64]) -> Vec<i64> {
    let before = |next: &mut i64, extent: &i64| Some(std::mem::replace(next, *next * extent));
    shape.iter().scan(1, before).collect()
}

fn map(shape: &[i64], strides: Vec<i64>) -> Option<Layout> {
    Layout::new(HTuple::from_flat(shape.to_vec()), HTuple::from_flat(strides)).ok()
}

/// Result's coordinate → operand's coordinate; of a slice, less where it begins ([`begins`]).
pub fn backward(op: &ShapeOp, src: &[i64], dst: &[i64]) -> Option<Layout> {
    let from = strides(src);
    match op {
        ShapeOp::Transpose(order) => map(dst, order.iter().map(|k| from[*k as usize]).collect()),
        ShapeOp::Broadcast(_) => broadcast(src, dst),
        ShapeOp::Reshape(_) | ShapeOp::Expand { .. } => Some(Layout::identity(dst.iter().product())),
        ShapeOp::Slice { .. } => map(dst, from),
    }
}

/// Coordinate of a tile of shape `dst` → coordinate of one of shape `src`, whose modes of extent 1 repeat.
pub fn broadcast(src: &[i64], dst: &[i64]) -> Option<Layout> {
    let stride = |(extent, stride): (&i64, i64)| if *extent == 1 { 0 } else { stride };
    map(dst, src.iter().zip(strides(src)).map(stride).collect())
}

/// The coordinate of the operand at which the result of a shape statement begins: 0 but for a slice.
pub fn begins(op: &ShapeOp, src: &[i64]) -> i64 {
    match op {
        ShapeOp::Slice { axis, start, .. } => *start * strides(src)[*axis as usize],
        _ => 0,
    }
}

/// Coordinate of a tile → coordinate of the tile without mode `axis`.
pub fn without(axis: u32, shape: &[i64]) -> Option<Layout> {
    let axis = axis as usize;
    let mut rest = shape.to_vec();
    rest[axis] = 1;
    let mut places = strides(&rest);
    places[axis] = 0;
    map(shape, places)
}

/// Coordinate of a tile → coordinate along mode `axis`.
pub fn only(axis: u32, shape: &[i64]) -> Option<Layout> {
    let mut steps = vec![0; shape.len()];
    steps[axis as usize] = 1;
    map(shape, steps)
}

/// Coordinate of a join's result → coordinate of either operand of `size` elements; the second operand lies above the first.
pub fn half(size: i64) -> Option<Layout> {
    map(&[size, 2], vec![1, 0])
}

/// The layout seen through a coordinate map. Values that the map brings to one coordinate are held once.
pub fn seen(tv: &TvLayout, map: &Layout) -> Option<TvLayout> {
    let values = compose(map, tv.values()).ok()?;
    TvLayout::new(compose(map, tv.threads()).ok()?, squeeze(&filter_zeros(&values))).ok()
}

/// A layout that is `tv` when [`seen`] through the map: every thread holds, above its values, the coordinates that the map brings to
/// one.
pub fn lifted(tv: &TvLayout, map: &Layout) -> Option<TvLayout> {
    let first = seen(tv, &right_inverse(map))?;
    let values = Layout::concat(&[first.values().clone(), nullspace(map)]).ok()?;
    TvLayout::new(first.threads().clone(), squeeze(&values)).ok()
}

/// A layout that is `tv` when [`seen`] through the map, as [`lifted`], but threads that `tv` gives the same elements share the
/// coordinates that the map brings to one, as far as their numbers have common factors.
pub fn repeated(tv: &TvLayout, map: &Layout) -> Option<TvLayout> {
    let first = seen(tv, &right_inverse(map))?;
    let mut left = nullspace(map);
    let mut threads = Vec::new();
    for (extent, stride) in first.threads().leaves() {
        let along = if stride == 0 { gcd(extent, left.size()) } else { 1 };
        if along == 1 {
            threads.push(Layout::from_leaves(&[(extent, stride)]).ok()?);
            continue;
        }
        let Ok(divided) = logical_divide(&left, &Layout::identity(along)) else { return lifted(tv, map) };
        threads.push(divided.mode(0).ok()?);
        threads.push(Layout::broadcast(extent / along));
        left = squeeze(&divided.mode(1).ok()?);
    }
    let values = Layout::concat(&[first.values().clone(), left]).ok()?;
    TvLayout::new(squeeze(&Layout::concat(&threads).ok()?), squeeze(&values)).ok()
}

/// The layout of either half of a split, where each thread holds both halves of what it holds.
pub fn halved(tv: &TvLayout, size: i64) -> Option<TvLayout> {
    let seen = seen(tv, &half(size)?)?;
    let same_threads = squeeze(seen.threads()) == squeeze(tv.threads());
    (same_threads && 2 * seen.count() == tv.count()).then_some(seen)
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
    let part = |mode: &Layout, cut: bool| {
        let leaves: Option<Vec<(i64, i64)>> = mode.leaves().into_iter().map(|l| leaf(l, cut)).collect();
        Layout::from_leaves(&leaves?).ok()
    };
    TvLayout::new(part(tv.threads(), false)?, squeeze(&part(tv.values(), true)?)).ok()
}

/// A distribution with `along` neighbouring lanes along mode `axis`, the other threads along the other modes from the last
/// to the first, and what is left in values.
pub fn across(shape: &[i64], axis: usize, along: i64, threads: i64) -> Option<TvLayout> {
    let units = strides(shape);
    let order: Vec<usize> =
        std::iter::once(axis).chain((0..shape.len()).rev().filter(|k| *k != axis)).collect();
    let modes = order.iter().map(|k| Layout::new(shape[*k].into(), units[*k].into()));
    let tile = Layout::concat(&modes.collect::<Result<Vec<_>, _>>().ok()?).ok()?;
    let mut left = threads / along;
    let lanes: Vec<Layout> = std::iter::once(Layout::identity(along))
        .chain(order[1..].iter().map(|k| {
            let most =
                (1..=shape[*k].min(left)).rev().find(|n| shape[*k] % n == 0 && left % n == 0).unwrap_or(1);
            left /= most;
            Layout::identity(most)
        }))
        .collect();
    let divided = zipped_divide_by_mode(&tile, &lanes).ok()?;
    let threads = Layout::concat(&[divided.mode(0).ok()?, Layout::broadcast(left)]).ok()?;
    TvLayout::new(squeeze(&threads), squeeze(&divided.mode(1).ok()?)).ok()
}

/// A distribution with a run of values along mode `axis` in each thread, neighbouring threads along that mode, then along the others from the
/// last to the first.
pub fn runs(shape: &[i64], axis: usize, threads: i64) -> Option<TvLayout> {
    let units = strides(shape);
    let each = (shape.iter().product::<i64>() / threads).max(1);
    let extent = shape[axis];
    let run = (1..=each.min(extent)).rev().find(|n| extent % n == 0)?;
    let others = (0..shape.len()).rev().filter(|k| *k != axis).map(|k| (shape[k], units[k]));
    let (mut left, mut lanes, mut values) = (threads, Vec::new(), vec![(run, units[axis])]);
    for (extent, unit) in std::iter::once((extent / run, units[axis] * run)).chain(others) {
        let most = (1..=extent.min(left)).rev().find(|n| extent % n == 0 && left % n == 0)?;
        lanes.push((most, unit));
        values.push((extent / most, unit * most));
        left /= most;
    }
    lanes.push((left, 0));
    let threads = Layout::from_leaves(&lanes).ok()?;
    TvLayout::new(squeeze(&threads), squeeze(&Layout::from_leaves(&values).ok()?)).ok()
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
            let back = backward(&op, &src, &dst).unwrap();
            let there = right_inverse(&back);
            for c in 0..128 {
                assert_eq!(back.eval(there.eval(c)), c, "{op:?}");
            }
            let result = lifted(&t, &back).unwrap();
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
        let both = lifted(&t, &half(128).unwrap()).unwrap();
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
            let reduced = without(axis, &shape).unwrap();
            let whole = lifted(&rows, &reduced).unwrap();
            assert!(whole.layout().is_bijective_onto(512), "{}", whole.layout());
            assert!(seen(&whole, &reduced).unwrap().same_function(&rows));
        }
    }

    /// A broadcast's result holds what it repeats above what there is; seen backward it is the operand.
    #[test]
    fn a_broadcast_is_repeated_above_the_values() {
        let t = tv("((4,8),2):((0,1),8)"); // 16 rows of one column
        let map = backward(&ShapeOp::Broadcast(Vec::new()), &[16, 1], &[16, 4]).unwrap();
        let result = lifted(&t, &map).unwrap();
        assert_eq!(result.layout().to_string(), "((4,8),(2,4)):((0,1),(8,16))");
        assert!(seen(&result, &map).unwrap().same_function(&t));
    }

    /// Lanes that hold copies of the operand share its repetitions.
    #[test]
    fn copies_in_threads_share_what_a_broadcast_repeats() {
        let t = tv("((4,8),2):((0,1),8)"); // 16 rows of one column
        for (columns, layout) in [(4, "((4,8),2):((16,1),8)"), (8, "((4,8),(2,2)):((16,1),(8,64))")] {
            let map = backward(&ShapeOp::Broadcast(Vec::new()), &[16, 1], &[16, columns]).unwrap();
            let result = repeated(&t, &map).unwrap();
            assert_eq!(result.layout().to_string(), layout);
            assert!(seen(&result, &map).unwrap().same_function(&t));
        }
        // An odd number of columns has no factor that four lanes have.
        let map = backward(&ShapeOp::Broadcast(Vec::new()), &[16, 1], &[16, 3]).unwrap();
        assert!(repeated(&t, &map).unwrap().same_function(&lifted(&t, &map).unwrap()));
    }

    #[test]
    fn a_run_is_as_long_as_a_thread_has_values() {
        let text = |shape: &[i64], axis, threads| runs(shape, axis, threads).unwrap().layout().to_string();
        assert_eq!(text(&[16, 64], 1, 128), "((8,16),8):((128,1),16)");
        assert_eq!(text(&[64], 0, 128), "((64,2),1):((1,0),0)");
        assert_eq!(text(&[4, 96], 1, 32), "((8,4),12):((48,1),4)");
    }

    #[test]
    fn a_reduced_mode_leaves_copies_in_threads_and_none_in_values() {
        let t = tv("((4,8),(2,2)):((16,1),(8,64))"); // 8 rows of lanes, 16 columns
        let rows = seen(&t, &without(1, &[8, 16]).unwrap()).unwrap();
        assert_eq!(rows.layout().to_string(), "((4,8),1):((0,1),0)");
    }
}
