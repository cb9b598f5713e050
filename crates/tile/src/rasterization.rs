//! The orders in which a loop over tiles walks them: from a tile's number to its row and column.
//!
//! Written once, over any [`Arithmetic`]: the interpreter computes numbers with it, the compiler emits instructions.

use crate::program::{Form, TileOrder};

/// Computes with integers that are never negative.
pub trait Arithmetic {
    /// An integer.
    type Value: Clone;
    /// This number.
    fn constant(&mut self, value: i64) -> Self::Value;
    /// `a + b`.
    fn add(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// `a - b`, where `a` is at least `b`.
    fn sub(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// `a · b`.
    fn mul(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// `⌊a / b⌋`, where `b` is at least 1.
    fn div(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The remainder of `a / b`, where `b` is at least 1.
    fn rem(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The smaller of both.
    fn min(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;

    /// 1 if `a` is less than `b`, else 0.
    fn less(&mut self, a: Self::Value, b: Self::Value) -> Self::Value {
        let beyond = self.excess(b, a);
        let one = self.constant(1);
        self.min(beyond, one)
    }

    /// `yes` if the flag is 1, `no` if it is 0.
    fn select(&mut self, flag: Self::Value, yes: Self::Value, no: Self::Value) -> Self::Value {
        let one = self.constant(1);
        let other = self.sub(one, flag.clone());
        let (yes, no) = (self.mul(yes, flag), self.mul(no, other));
        self.add(yes, no)
    }

    /// `a - b`, or 0 where `b` is the larger.
    fn excess(&mut self, a: Self::Value, b: Self::Value) -> Self::Value {
        let least = self.min(a.clone(), b);
        self.sub(a, least)
    }

    /// A divisor: `a`, or 1 where that is 0.
    fn divisor(&mut self, a: Self::Value) -> Self::Value {
        let one = self.constant(1);
        let none = self.excess(one, a.clone());
        self.add(a, none)
    }
}

/// The row and the column of tile number `index`, which is less than `rows · cols`.
///
/// Of a `listed` order `index` is the number that the table has, and `rows · cols` where that is none of a tile: the result is then outside.
///
/// Every other order reaches each of the `rows`×`cols` tiles once. What it is over, apart from constants, are the given values; nothing in
/// between exceeds `rows · cols` or the larger of both plus a square's side.
pub fn tile<A: Arithmetic, F: Form>(
    a: &mut A,
    order: &TileOrder<F>,
    index: A::Value,
    rows: A::Value,
    cols: A::Value,
) -> (A::Value, A::Value) {
    // The verifier knows that both are literals of at least 1.
    match order {
        TileOrder::Grouped { rows: height, serpentine } => {
            grouped(a, F::value(height).unwrap_or(1).max(1), *serpentine, index, rows, cols)
        }
        TileOrder::Hilbert { order } => {
            hilbert(a, F::value(order).unwrap_or(1).clamp(0, MAX_HILBERT) as u32, index, rows, cols)
        }
        TileOrder::Listed { .. } => {
            let cols = a.divisor(cols);
            (a.div(index.clone(), cols.clone()), a.rem(index, cols))
        }
    }
}

/// The cluster that the interpreter has take a tile which a counter deals out: any is right, and this is none that a static walk has.
pub(crate) fn taker(number: i64, clusters: i64) -> i64 {
    // The finalizer of splitmix64.
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % clusters.max(1) as u64) as i64
}

/// The clusters that begin where those that do cancel the others, in an assignment in which some do more tiles than one.
pub(crate) fn begun(clusters: i64) -> i64 {
    (clusters / 3).max(1)
}

/// The largest order of a Hilbert curve.
pub const MAX_HILBERT: i64 = 8;

fn grouped<A: Arithmetic>(
    a: &mut A,
    height: i64,
    serpentine: bool,
    index: A::Value,
    rows: A::Value,
    cols: A::Value,
) -> (A::Value, A::Value) {
    if height == 1 && !serpentine {
        return (a.div(index.clone(), cols.clone()), a.rem(index, cols));
    }
    let height = a.constant(height);
    let height = a.min(height, rows.clone());
    let tiles = a.mul(height.clone(), cols.clone());
    let (band, inside) = (a.div(index.clone(), tiles.clone()), a.rem(index, tiles));
    let start = a.mul(band.clone(), height.clone());
    let left = a.sub(rows, start.clone());
    let width = a.min(left, height);
    let down = a.rem(inside.clone(), width.clone());
    let row = a.add(start, down);
    let col = a.div(inside, width);
    if !serpentine {
        return (row, col);
    }
    let two = a.constant(2);
    let odd = a.rem(band, two);
    let one = a.constant(1);
    let last = a.sub(cols, one);
    let back = a.sub(last, col.clone());
    (row, a.select(odd, back, col))
}

fn hilbert<A: Arithmetic>(
    a: &mut A,
    order: u32,
    index: A::Value,
    rows: A::Value,
    cols: A::Value,
) -> (A::Value, A::Value) {
    let side = a.constant(1 << order);
    let area = a.constant(1 << (2 * order));
    let (down, across) = (a.div(rows, side.clone()), a.div(cols.clone(), side.clone()));
    let (whole_rows, whole_cols) = (a.mul(down, side.clone()), a.mul(across.clone(), side.clone()));
    let whole = a.mul(whole_rows.clone(), whole_cols.clone());
    // In a square.
    let (square, at) = (a.div(index.clone(), area.clone()), a.rem(index.clone(), area));
    let across = a.divisor(across);
    let (top, left) = (a.div(square.clone(), across.clone()), a.rem(square, across));
    let (top, left) = (a.mul(top, side.clone()), a.mul(left, side));
    let (x, y) = curve(a, order, at);
    let (square_row, square_col) = (a.add(top, y), a.add(left, x));
    // Right of the squares, row by row.
    let beyond = a.excess(index.clone(), whole.clone());
    let margin = a.sub(cols.clone(), whole_cols.clone());
    let right = a.mul(whole_rows.clone(), margin.clone());
    let margin = a.divisor(margin);
    let (right_row, right_at) = (a.div(beyond.clone(), margin.clone()), a.rem(beyond.clone(), margin));
    let right_col = a.add(whole_cols, right_at);
    // Below them.
    let below = a.excess(beyond.clone(), right.clone());
    let (below_at, below_col) = (a.div(below.clone(), cols.clone()), a.rem(below, cols));
    let below_row = a.add(whole_rows, below_at);
    let is_right = a.less(beyond, right);
    let row = a.select(is_right.clone(), right_row, below_row);
    let col = a.select(is_right, right_col, below_col);
    let in_square = a.less(index, whole);
    (a.select(in_square.clone(), square_row, row), a.select(in_square, square_col, col))
}

/// The place of step `at` of the curve, to the right and down.
fn curve<A: Arithmetic>(a: &mut A, order: u32, at: A::Value) -> (A::Value, A::Value) {
    let (mut x, mut y, mut rest) = (a.constant(0), a.constant(0), at);
    for level in 0..order {
        let four = a.constant(4);
        let quarter = a.rem(rest.clone(), four.clone());
        rest = a.div(rest, four);
        // Quarters 0 to 3 lie at (0, 0), (0, 1), (1, 1), (1, 0).
        let (one, two, three) = (a.constant(1), a.constant(2), a.constant(3));
        let fourth = a.div(quarter.clone(), three);
        let right = a.div(quarter.clone(), two);
        let second_or_third = a.min(quarter, one);
        let down = a.sub(second_or_third, fourth.clone());
        let last = a.constant((1 << level) - 1);
        let (far_x, far_y) = (a.sub(last.clone(), x.clone()), a.sub(last, y.clone()));
        let (turned_x, turned_y) = (a.select(fourth.clone(), far_x, x), a.select(fourth, far_y, y));
        x = a.select(down.clone(), turned_x.clone(), turned_y.clone());
        y = a.select(down.clone(), turned_y, turned_x);
        let size = a.constant(1 << level);
        let (by_x, by_y) = (a.mul(right, size.clone()), a.mul(down, size));
        (x, y) = (a.add(x, by_x), a.add(y, by_y));
    }
    (x, y)
}

/// Arithmetic on numbers: what the interpreter computes with.
pub struct Numbers;

impl Arithmetic for Numbers {
    type Value = i64;

    fn constant(&mut self, value: i64) -> i64 {
        value
    }

    fn add(&mut self, a: i64, b: i64) -> i64 {
        a + b
    }

    fn sub(&mut self, a: i64, b: i64) -> i64 {
        a - b
    }

    fn mul(&mut self, a: i64, b: i64) -> i64 {
        a * b
    }

    fn div(&mut self, a: i64, b: i64) -> i64 {
        a / b
    }

    fn rem(&mut self, a: i64, b: i64) -> i64 {
        a % b
    }

    fn min(&mut self, a: i64, b: i64) -> i64 {
        Ord::min(a, b)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::expr::Expr;

    /// Refuses what the trait does not ask of an implementation.
    struct Strict;

    impl Arithmetic for Strict {
        type Value = i64;

        fn constant(&mut self, value: i64) -> i64 {
            assert!(value >= 0);
            value
        }

        fn add(&mut self, a: i64, b: i64) -> i64 {
            a + b
        }

        fn sub(&mut self, a: i64, b: i64) -> i64 {
            assert!(a >= b, "{a} - {b}");
            a - b
        }

        fn mul(&mut self, a: i64, b: i64) -> i64 {
            a * b
        }

        fn div(&mut self, a: i64, b: i64) -> i64 {
            assert!(b > 0);
            a / b
        }

        fn rem(&mut self, a: i64, b: i64) -> i64 {
            assert!(b > 0);
            a % b
        }

        fn min(&mut self, a: i64, b: i64) -> i64 {
            Ord::min(a, b)
        }
    }

    fn walk(order: &TileOrder, rows: i64, cols: i64) -> Vec<(i64, i64)> {
        (0..rows * cols).map(|t| tile(&mut Strict, order, t, rows, cols)).collect()
    }

    fn orders() -> Vec<TileOrder> {
        let grouped = [1, 2, 3, 5, 12, 100].into_iter();
        let grouped = grouped.flat_map(|n| {
            [false, true].map(|serpentine| TileOrder::Grouped { rows: Expr::Int(n), serpentine })
        });
        grouped.chain((1..5).map(|s| TileOrder::Hilbert { order: Expr::Int(s) })).collect()
    }

    #[test]
    fn every_order_reaches_every_tile_once() {
        for order in orders() {
            for (rows, cols) in (1..20).flat_map(|rows| (1..20).map(move |cols| (rows, cols))) {
                let walked = walk(&order, rows, cols);
                let all: BTreeSet<_> = walked.iter().copied().collect();
                assert_eq!(all.len() as i64, rows * cols, "{order:?} {rows}×{cols}");
                let inside = |(row, col): &(i64, i64)| (0..rows).contains(row) && (0..cols).contains(col);
                assert!(all.iter().all(inside), "{order:?} {rows}×{cols}");
            }
        }
    }

    #[test]
    fn numbers_compute_the_same() {
        for order in orders() {
            let numbers: Vec<_> = (0..7 * 9).map(|t| tile(&mut Numbers, &order, t, 7, 9)).collect();
            assert_eq!(numbers, walk(&order, 7, 9));
        }
    }

    #[test]
    fn a_curve_goes_from_neighbour_to_neighbour() {
        for order in 1..6 {
            let side = 1 << order;
            let walked = walk(&TileOrder::Hilbert { order: Expr::Int(order) }, side, side);
            for pair in walked.windows(2) {
                let [(r, c), (s, d)] = [pair[0], pair[1]];
                assert_eq!((r - s).abs() + (c - d).abs(), 1, "order {order}: {pair:?}");
            }
        }
    }

    #[test]
    fn bands_go_down_their_columns_and_snake_back() {
        let order = TileOrder::Grouped { rows: Expr::Int(2), serpentine: true };
        let expected = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0)];
        assert_eq!(walk(&order, 3, 3), expected);
        let order = TileOrder::Grouped { rows: Expr::Int(1), serpentine: false };
        assert_eq!(walk(&order, 2, 2), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }
}
