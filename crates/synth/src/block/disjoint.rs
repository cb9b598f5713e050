//! Proves that two tiles of a buffer are apart, which is why some waits need not wait for writes.
//!
//! A tile's place is a box, whose first coordinates are expressions over sizes, the block's index and counters of loops. As polynomials,
//! their difference from one execution to another is what is left when everything equal has cancelled. Two boxes are apart if along one
//! mode of the buffer that difference is at least as large as the box, whatever the counters are that may have any value.

use std::collections::BTreeMap;

use tilewright_layout::{Poly, Stride};
use tilewright_tile::{Expr, GlobalTile, IntOp, SymbolId};

/// Facts about two executions of statements.
#[derive(Clone, Default)]
pub struct Known<'a> {
    /// Counters that have the same value in both, beside sizes and constants.
    pub equal: Vec<SymbolId>,
    /// Other expressions that have the same value in both.
    pub same: Vec<Expr>,
    /// Counters of loops, with their first value and the one behind their last.
    pub counters: BTreeMap<SymbolId, (Expr, Expr)>,
    /// True if a symbol is a counter: all others have one value in a launch.
    pub is_counter: Option<&'a dyn Fn(SymbolId) -> bool>,
    /// True if tiles whose place is read from a table are taken to be apart where the table's index differs.
    pub tables: bool,
}

/// An expression as a polynomial in what is no sum and no product, which `name` names; `None` on overflow.
fn polynomial(expr: &Expr, name: &mut impl FnMut(&Expr) -> String) -> Option<Poly> {
    match expr {
        Expr::Int(value) => Some(Poly::integer(*value)),
        Expr::Binary(IntOp::Add, a, b) => polynomial(a, name)?.checked_add(&polynomial(b, name)?),
        Expr::Binary(IntOp::Sub, a, b) => {
            polynomial(a, name)?.checked_add(&polynomial(b, name)?.checked_scale(-1)?)
        }
        Expr::Binary(IntOp::Mul, a, b) => polynomial(a, name)?.checked_mul(&polynomial(b, name)?),
        _ => Some(Poly::symbol(&name(expr))),
    }
}

/// True if an expression has another in it.
fn contains(expr: &Expr, part: &Expr) -> bool {
    expr == part
        || match expr {
            Expr::Binary(_, a, b) => contains(a, part) || contains(b, part),
            Expr::Element(_, index) => index.iter().any(|e| contains(e, part)),
            Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => false,
        }
}

/// Visits what an expression is made of, itself first.
fn parts<'e>(expr: &'e Expr, visit: &mut impl FnMut(&'e Expr)) {
    visit(expr);
    match expr {
        Expr::Binary(_, a, b) => {
            parts(a, visit);
            parts(b, visit);
        }
        Expr::Element(_, index) => index.iter().for_each(|e| parts(e, visit)),
        Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => {}
    }
}

impl Known<'_> {
    /// True if an expression has the same value in both executions.
    fn is_same(&self, expr: &Expr) -> bool {
        self.same.contains(expr)
            || match expr {
                Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => true,
                Expr::Symbol(id) => self.equal.contains(id) || !self.is_counter.is_some_and(|is| is(*id)),
                Expr::Binary(_, a, b) => self.is_same(a) && self.is_same(b),
                Expr::Element(_, index) => index.iter().all(|e| self.is_same(e)),
            }
    }

    /// The values that an expression can have, both ends included, where they are known.
    fn range(&self, expr: &Expr) -> Option<(i64, i64)> {
        match expr {
            Expr::Int(value) => Some((*value, *value)),
            Expr::Symbol(id) => {
                let (lo, hi) = self.counters.get(id)?;
                let (lo, hi) = (lo.as_int()?, hi.as_int()?);
                (lo < hi).then_some((lo, hi - 1))
            }
            Expr::Binary(IntOp::Rem, _, n) => n.as_int().filter(|n| *n > 0).map(|n| (0, n - 1)),
            _ => None,
        }
    }
}

/// The terms of the difference of two coordinates: what is the same in both has cancelled, but for what stands with different factors.
struct Difference {
    constant: i64,
    /// The products that are left, each with its factor.
    terms: Vec<(Vec<Expr>, i64)>,
    /// The factor of the pivot in the first and in the second.
    pivot: [i64; 2],
}

fn difference(first: &Expr, second: &Expr, known: &Known<'_>, pivot: Option<&Expr>) -> Option<Difference> {
    let mut atoms: BTreeMap<String, (Expr, usize)> = BTreeMap::new();
    let mut coordinate = |expr: &Expr, execution: usize| {
        polynomial(expr, &mut |atom| {
            // What is the same in both executions has one name, and cancels.
            let same = Some(atom) != pivot && known.is_same(atom);
            let name = if same { format!("{atom:?}") } else { format!("{execution} {atom:?}") };
            atoms.entry(name.clone()).or_insert_with(|| (atom.clone(), execution));
            name
        })
    };
    let (from, to) = (coordinate(first, 0)?, coordinate(second, 1)?);
    let mut found = Difference { constant: 0, terms: Vec::new(), pivot: [0, 0] };
    for (names, times) in to.checked_add(&from.checked_scale(-1)?)?.terms() {
        let factors: Vec<&(Expr, usize)> = names.into_iter().map(|name| &atoms[name]).collect();
        match factors.as_slice() {
            [] => found.constant = times,
            [(atom, execution)] if Some(atom) == pivot => found.pivot[*execution] = times,
            _ => found.terms.push((factors.into_iter().map(|(atom, _)| atom.clone()).collect(), times)),
        }
    }
    Some(found)
}

impl Difference {
    /// The least and the greatest that constant and terms add up to.
    fn range(&self, known: &Known<'_>) -> Option<(i64, i64)> {
        let mut all = (self.constant, self.constant);
        for (factors, times) in &self.terms {
            let [factor] = factors.as_slice() else { return None };
            let (lo, hi) = known.range(factor)?;
            let (a, b) = (lo.checked_mul(*times)?, hi.checked_mul(*times)?);
            all = (all.0.checked_add(a.min(b))?, all.1.checked_add(a.max(b))?);
        }
        Some(all)
    }

    /// True if the difference is at least `extent`, where the pivot is known to differ.
    fn is_apart(&self, known: &Known<'_>, pivot: Option<&Expr>, extent: i64) -> bool {
        let Some(pivot) = pivot else {
            return self.range(known).is_some_and(|(lo, hi)| lo >= extent || hi <= -extent);
        };
        let step = self.pivot[1];
        if step == 0 || self.pivot[0] != -step {
            return false;
        }
        // The pivot's steps, less all that the rest can make up for.
        if let Some((lo, hi)) = self.range(known) {
            return step.abs() - lo.abs().max(hi.abs()) >= extent;
        }
        // The rest is whole multiples of what the pivot counts to.
        let end = match pivot {
            Expr::Symbol(id) => {
                known.counters.get(id).filter(|(lo, _)| lo.as_int() == Some(0)).map(|(_, hi)| hi)
            }
            Expr::Binary(IntOp::Rem, _, n) => Some(&**n),
            _ => None,
        };
        let Some(end) = end else { return false };
        let whole =
            |(factors, times): &(Vec<Expr>, i64)| times % step == 0 && factors.iter().any(|f| f == end);
        self.constant == 0 && step.abs() >= extent && self.terms.iter().all(whole)
    }
}

/// Coordinates that a tile spans along a mode of its buffer; `None` where it goes backwards.
fn extent(tile: &GlobalTile, dim: usize) -> Option<i64> {
    if tile.indexed.is_some_and(|(along, _)| along as usize == dim) {
        return None;
    }
    let folds = |(_, mode, _): &(Expr, u32, i64)| *mode as usize == dim;
    if tile.folded.as_ref().is_some_and(|folded| folded.leaves.iter().any(folds)) {
        return None;
    }
    let mut last = 0i64;
    for (extent, mode, scale) in tile.modes.iter().flatten() {
        if *mode as usize == dim {
            if *scale < 0 {
                return None;
            }
            last = last.checked_add((extent - 1).checked_mul(*scale)?)?;
        }
    }
    Some(last + 1)
}

/// True if two tiles of a buffer are sure to have no element in common. `pivot`: an expression that is known to differ.
pub fn apart(first: &GlobalTile, second: &GlobalTile, known: &Known<'_>, pivot: Option<&Expr>) -> bool {
    let along = |dim: usize| {
        let extent = extent(first, dim)?.max(extent(second, dim)?);
        let difference = difference(first.base.get(dim)?, second.base.get(dim)?, known, pivot)?;
        Some(difference.is_apart(known, pivot, extent))
    };
    if (0..first.base.len()).any(|dim| along(dim) == Some(true)) {
        return true;
    }
    let Some(pivot) = pivot else { return false };
    // An expression that counts with the pivot differs too; if it is divided, its quotient or its remainder does.
    let mut divided: Vec<(Expr, Expr)> = Vec::new();
    let mut looked_up = false;
    for base in first.base.iter().chain(&second.base) {
        parts(base, &mut |part| match part {
            Expr::Binary(IntOp::Div | IntOp::Rem, a, n)
                if contains(a, pivot) && !divided.iter().any(|(x, m)| *x == **a && *m == **n) =>
            {
                divided.push(((**a).clone(), (**n).clone()));
            }
            Expr::Element(_, index) => looked_up |= index.iter().any(|e| contains(e, pivot)),
            _ => {}
        });
    }
    for (a, n) in divided {
        let counts = difference(&a, &a, known, Some(pivot))
            .is_some_and(|d| d.terms.is_empty() && d.constant == 0 && d.pivot[1] != 0);
        if !counts || !known.is_same(&n) {
            continue;
        }
        let of = |op: IntOp| Expr::Binary(op, Box::new(a.clone()), Box::new(n.clone()));
        let (quotient, remainder) = (of(IntOp::Div), of(IntOp::Rem));
        let mut then = known.clone();
        then.same.push(quotient.clone());
        if apart(first, second, known, Some(&quotient)) && apart(first, second, &then, Some(&remainder)) {
            return true;
        }
    }
    looked_up && known.tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_tile::{Axis, ParamId};

    fn tile(base: [Expr; 2]) -> GlobalTile {
        GlobalTile {
            param: ParamId(0),
            base: base.to_vec(),
            modes: vec![vec![(128, 0, 1)], vec![(64, 1, 1)]],
            shape: vec![Expr::Symbol(SymbolId(9)), Expr::Symbol(SymbolId(9))],
            strides: vec![Expr::Int(1024), Expr::Int(1)],
            array: false,
            indexed: None,
            folded: None,
        }
    }

    fn symbol(id: u32) -> Expr {
        Expr::Symbol(SymbolId(id))
    }

    /// Counters are symbols 0 to 3; 0 and 1 count the `rows` and columns of tiles.
    fn known(equal: &[u32], rows: Expr) -> Known<'static> {
        let mut counters = BTreeMap::new();
        counters.insert(SymbolId(0), (Expr::Int(0), rows));
        counters.insert(SymbolId(1), (Expr::Int(0), symbol(8)));
        counters.insert(SymbolId(2), (Expr::Int(0), Expr::Int(4)));
        Known {
            equal: equal.iter().map(|id| SymbolId(*id)).collect(),
            counters,
            is_counter: Some(&|id| id.0 < 4),
            ..Known::default()
        }
    }

    #[test]
    fn chunks_of_a_tile_and_tiles_of_a_loop_are_apart() {
        let chunk = |j: i64| tile([symbol(0) * 128, symbol(1) * 256 + j * 64]);
        let within = known(&[0, 1], symbol(7));
        assert!(apart(&chunk(0), &chunk(1), &within, None));
        assert!(!apart(&chunk(1), &chunk(1), &within, None));
        // Another row; another column of the same row.
        assert!(apart(&chunk(0), &chunk(3), &known(&[], symbol(7)), Some(&symbol(0))));
        assert!(apart(&chunk(0), &chunk(3), &known(&[0], symbol(7)), Some(&symbol(1))));
        // A fifth chunk would be the next tile's first.
        assert!(!apart(&chunk(4), &chunk(0), &known(&[0], symbol(7)), Some(&symbol(1))));
        // Places that do not depend on the counter.
        let fixed = tile([Expr::Int(0), symbol(1) * 64]);
        assert!(!apart(&fixed, &fixed, &known(&[], symbol(7)), Some(&symbol(0))));
    }

    #[test]
    fn a_counter_of_an_inner_loop_may_have_any_value() {
        let by_inner = |step: i64| tile([symbol(0) * 128, symbol(1) * step + symbol(2) * 64]);
        assert!(apart(&by_inner(256), &by_inner(256), &known(&[0], symbol(7)), Some(&symbol(1))));
        assert!(!apart(&by_inner(192), &by_inner(192), &known(&[0], symbol(7)), Some(&symbol(1))));
    }

    #[test]
    fn quotient_and_remainder_tell_what_they_are_of() {
        let which = symbol(0) * 2 + Expr::Block(Axis::X) % 2;
        let place = tile([(&which % symbol(6)) * 128 + symbol(5), (&which / symbol(6)) * 64]);
        assert!(apart(&place, &place, &known(&[], symbol(7)), Some(&symbol(0))));
        let half = tile([(&which % symbol(6)) * 128, Expr::Int(0)]);
        assert!(!apart(&half, &half, &known(&[], symbol(7)), Some(&symbol(0))));
    }

    #[test]
    fn what_lies_a_whole_number_of_rows_away_is_another_row() {
        let rows = symbol(7);
        let shifted = |j: i64| {
            let away = (Expr::Int(j) - Expr::Block(Axis::X) % 2) % 2;
            tile([(symbol(0) + away * &rows) * 128, symbol(1) * 64])
        };
        assert!(apart(&shifted(2), &shifted(3), &known(&[], rows.clone()), Some(&symbol(0))));
        assert!(!apart(&shifted(2), &shifted(3), &known(&[], symbol(8)), Some(&symbol(0))));
        let remainder = |j: i64| {
            let away = (Expr::Int(j) - Expr::Block(Axis::X) % 2) % 2;
            tile([(symbol(0) % &rows + away * &rows) * 128, symbol(0) / &rows * 64])
        };
        assert!(apart(&remainder(2), &remainder(3), &known(&[], symbol(8)), Some(&symbol(0))));
    }

    #[test]
    fn a_table_may_say_the_same_twice() {
        let table = tile([Expr::Element(ParamId(1), vec![symbol(0)]), Expr::Int(0)]);
        let mut divisibility = known(&[], symbol(7));
        assert!(!apart(&table, &table, &divisibility, Some(&symbol(0))));
        divisibility.tables = true;
        assert!(apart(&table, &table, &divisibility, Some(&symbol(0))));
    }
}
