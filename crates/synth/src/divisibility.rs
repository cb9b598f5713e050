//! Divisors of expressions of run-time sizes, known when a kernel is compiled, and accesses that cannot leave their buffer.
//! Vector widths and the absence of edge checks rest on them, so each that a kernel relies on is an assumption that its
//! launch checks.

use std::collections::BTreeMap;

use tilewright_tile::core::{Coord, Program, StmtKind};
use tilewright_tile::{Expr, GlobalTile, IntOp, SymbolId};

/// Known multiples of run-time sizes, by name: `k → 16` says that `k` is a multiple of 16.
pub type Multiples = BTreeMap<String, i64>;

/// Divisors of one program's expressions, and bounds of its loop counters.
pub struct Divisibility<'a> {
    verified: &'a Program,
    multiples: &'a Multiples,
    /// Bounds of each loop counter.
    counters: BTreeMap<SymbolId, (Expr, Expr)>,
}

/// The greatest common divisor; `gcd(0, x) = x`.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

impl<'a> Divisibility<'a> {
    /// Facts that follow from the program and the multiples.
    pub fn new(verified: &'a Program, multiples: &'a Multiples) -> Self {
        let mut counters = BTreeMap::new();
        verified.visit(&mut |stmt, _| match &stmt.kind {
            StmtKind::For { counter, lo, hi, .. } => {
                counters.insert(*counter, (lo.clone(), hi.clone()));
            }
            StmtKind::Tiles { row, col, previous, rows, cols, .. } => {
                counters.insert(*row, (Expr::Int(0), rows.clone()));
                counters.insert(*col, (Expr::Int(0), cols.clone()));
                // Before the first round one past the last, which may be negative where there is none.
                for (counter, extent) in previous.iter().flatten().zip([rows, cols]) {
                    let least = Expr::binary(IntOp::Min, Expr::Int(0), extent.clone());
                    counters.insert(*counter, (least, extent.clone() + 1));
                }
            }
            StmtKind::Ticket { symbol, count, .. } => {
                counters.insert(*symbol, (Expr::Int(0), count.clone()));
            }
            _ => {}
        });
        Divisibility { verified, multiples, counters }
    }

    /// The program.
    pub fn program(&self) -> &'a Program {
        self.verified
    }

    /// True if an entry of an index is sure to lie within a mode of this extent.
    pub fn is_inside(&self, coord: &Coord, extent: i64) -> bool {
        match coord {
            Coord::Expr(e) => self.is_within(e, extent),
            Coord::Slot(slot) => i64::from(self.verified.pipeline(slot.pipeline).stages) <= extent,
        }
    }

    /// A number that divides every value of the expression; 0 says that the value is 0.
    pub fn divisor(&self, expr: &Expr) -> i64 {
        match expr {
            Expr::Int(value) => value.abs(),
            Expr::Block(_) | Expr::Element(..) | Expr::Scalar(_) => 1,
            Expr::Symbol(id) => {
                let symbol = self.verified.symbol(*id);
                match symbol.size {
                    Some(_) => self.multiples.get(&symbol.name).copied().unwrap_or(1).max(1),
                    None => 1,
                }
            }
            Expr::Binary(op, a, b) => {
                let (x, y) = (self.divisor(a), self.divisor(b));
                match op {
                    IntOp::Add | IntOp::Sub | IntOp::Rem | IntOp::Min | IntOp::Max => gcd(x, y),
                    IntOp::Mul => x.saturating_mul(y),
                    IntOp::Div | IntOp::CeilDiv => match b.as_int() {
                        Some(d) if d != 0 && x % d == 0 => x / d.abs(),
                        _ => 1,
                    },
                    IntOp::Eq | IntOp::Ne | IntOp::Lt | IntOp::Le | IntOp::Gt | IntOp::Ge => 1,
                    IntOp::And | IntOp::Or => 1,
                }
            }
        }
    }

    /// True if every value of the expression is a multiple of `n`.
    pub fn is_multiple(&self, expr: &Expr, n: i64) -> bool {
        n == 1 || self.divisor(expr) % n == 0
    }

    /// True if no value of the expression is negative.
    pub fn is_nonnegative(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Int(value) => *value >= 0,
            Expr::Block(_) => true,
            Expr::Element(..) | Expr::Scalar(_) => false,
            Expr::Symbol(id) => match self.counters.get(id) {
                Some((lo, _)) => self.is_nonnegative(lo),
                None => true,
            },
            Expr::Binary(op, a, b) => match op {
                IntOp::Sub => self.bounds(expr).0 >= Some(0),
                op if op.is_condition() => true,
                IntOp::Max => self.is_nonnegative(a) || self.is_nonnegative(b),
                _ => self.is_nonnegative(a) && self.is_nonnegative(b),
            },
        }
    }

    /// True if the smallest value of the expression is known, and negative.
    pub fn begins_ahead(&self, expr: &Expr) -> bool {
        self.bounds(expr).0.is_some_and(|least| least < 0)
    }

    /// The smallest and the largest value of the expression, as far as they are known.
    fn bounds(&self, expr: &Expr) -> (Option<i64>, Option<i64>) {
        let both = |a: Option<i64>, b: Option<i64>, op: IntOp| op.apply(a?, b?);
        match expr {
            Expr::Int(value) => (Some(*value), Some(*value)),
            Expr::Block(axis) => {
                let extent = self.verified.grid.get(axis.index()).and_then(Expr::as_int);
                (Some(0), extent.map(|n| n - 1))
            }
            Expr::Element(..) | Expr::Scalar(_) => (None, None),
            Expr::Symbol(id) => match self.counters.get(id) {
                Some((lo, hi)) => (self.bounds(lo).0, self.bounds(hi).1.and_then(|n| n.checked_sub(1))),
                None => (Some(1), None),
            },
            Expr::Binary(op, a, b) => {
                let ((a, c), (b, d)) = (self.bounds(a), self.bounds(b));
                match (op, b, d) {
                    (IntOp::Rem, Some(n), Some(m)) if n == m && n > 0 => (Some(0), Some(n - 1)),
                    (IntOp::Add, ..) => (both(a, b, *op), both(c, d, *op)),
                    (IntOp::Sub, ..) => (both(a, d, *op), both(c, b, *op)),
                    (IntOp::Div | IntOp::CeilDiv, Some(n), Some(m)) if n == m && n > 0 => {
                        (both(a, b, *op), both(c, b, *op))
                    }
                    (IntOp::Mul, ..) if a >= Some(0) && b >= Some(0) => (both(a, b, *op), both(c, d, *op)),
                    (op, ..) if op.is_condition() => (Some(0), Some(1)),
                    (IntOp::Min, ..) => (both(a, b, *op), both(c, d, *op).or(c).or(d)),
                    (IntOp::Max, ..) => (both(a, b, *op).or(a).or(b), both(c, d, *op)),
                    _ => (None, None),
                }
            }
        }
    }

    /// True if a loop between these bounds is known to have a round.
    pub fn has_round(&self, lo: &Expr, hi: &Expr) -> bool {
        matches!((self.bounds(lo).1, self.bounds(hi).0), (Some(lo), Some(hi)) if lo < hi)
    }

    /// True if every value of the expression is known to lie in `0..extent`.
    fn is_within(&self, expr: &Expr, extent: i64) -> bool {
        let (low, high) = self.bounds(expr);
        low >= Some(0) && high.is_some_and(|high| high < extent)
    }

    /// True if coordinates `base[dim] + c`, for `0 ≤ c < extent`, always lie below the buffer's extent in that mode.
    ///
    /// Three cases are recognised: literals, `min(…, extent - c)`, and the tiling idiom `base = i · c` where `i` counts the tiles of size `c` that
    /// cover the extent (a block index with that grid, or a loop counter with that bound) and `c` divides the extent.
    pub fn stays_inside(&self, tile: &GlobalTile, dim: usize, extent: i64) -> bool {
        let indexed = tile.indexed.is_some_and(|(along, _)| along as usize == dim);
        !indexed && self.lies_below(&tile.base[dim], &tile.shape[dim], extent)
    }

    /// The same of coordinates `base + c` and a mode of extent `shape`.
    pub fn lies_below(&self, base: &Expr, shape: &Expr, extent: i64) -> bool {
        if let (Some(base), Some(shape)) = (base.as_int(), shape.as_int()) {
            return base.checked_add(extent).is_some_and(|end| end <= shape);
        }
        match base {
            Expr::Binary(IntOp::Min, a, b) => {
                return self.lies_below(a, shape, extent) || self.lies_below(b, shape, extent);
            }
            Expr::Binary(IntOp::Sub, end, back) if **end == *shape => {
                return back.as_int().is_some_and(|back| back >= extent);
            }
            _ => {}
        }
        // A single tile at offset zero is the idiom with one tile; its size must be a literal, handled above.
        let (index, step) = match base {
            Expr::Binary(IntOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (_, Some(step)) => (a.as_ref(), step),
                (Some(step), _) => (b.as_ref(), step),
                _ => return false,
            },
            Expr::Block(_) | Expr::Symbol(_) => (base, 1),
            _ => return false,
        };
        let bound = match index {
            Expr::Block(axis) => self.verified.grid.get(axis.index()),
            Expr::Symbol(id) => self.counters.get(id).map(|(_, hi)| hi),
            _ => None,
        };
        let Some(bound) = bound else { return false };
        let tiles = matches!(bound, Expr::Binary(IntOp::CeilDiv | IntOp::Div, total, tile)
            if **total == *shape && tile.as_int() == Some(step));
        let covers = tiles || (step == 1 && bound == shape);
        covers && extent <= step && self.is_multiple(shape, step)
    }
}

/// The weight of a statement's work `depth` loops deep, where the number of rounds is not known.
pub(crate) fn weight(depth: usize) -> u64 {
    if depth > 0 { 16 } else { 1 }
}
