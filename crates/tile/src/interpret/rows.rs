//! `if any`: branches that rows decide.
//!
//! A kernel's warps do the body for the rows that they hold if one of these asks for it. A program is right only if its results are the
//! same whichever other rows enter; so it is run with those that ask for it alone, then with all, and the results are compared
//! ([`differences`]). They may differ by rounding: what a kernel computes in another way on the way to a type of few bits is rounded in
//! another way, so that in programs with such branches every rounding to such a type counts.

use std::collections::BTreeMap;

use tilewright_machine::DType;

use super::error::InterpretError;
use super::op::{Branch, Entered, Op, Plan};
use super::ring::Ring;
use super::role::Role;
use super::{Argument, Bounds};
use crate::program::Param;

/// The part of an element by which results may differ that are computed in other ways, in `f32`.
const OF_ELEMENT: f64 = 1.0 / 16384.0;
/// The part of the root mean square of the elements about it, for what is left where sums cancel.
const OF_SCALE: f64 = 1.0 / 262_144.0;
/// Binary exponents between an element and those that dwarf it.
const GAP: i32 = 24;

impl<'a> Role<'a> {
    /// The rows that enter a branch.
    pub(super) fn entering(&self, number: usize, condition: usize, rows: &[u32], count: usize) -> Vec<bool> {
        if self.plan.entered.has(number) {
            return vec![true; count];
        }
        let mut entering = vec![false; count];
        for (row, element) in rows.iter().zip(&self.tiles[condition]) {
            entering[*row as usize] |= element.value != 0.0;
        }
        entering
    }

    /// Does an operation, and gives the elements of rows that did not enter the branch what they had.
    pub(super) fn of_rows(
        &mut self,
        dst: &'a [(usize, Vec<u32>)],
        op: &'a Op,
        rings: &mut [Ring],
    ) -> Result<(), InterpretError> {
        let before: Vec<_> = dst.iter().map(|(tensor, _)| self.tiles[*tensor].clone()).collect();
        self.operation(op, rings)?;
        for ((tensor, rows), before) in dst.iter().zip(before) {
            let elements = self.tiles[*tensor].iter_mut().zip(before).zip(rows);
            for ((element, before), _) in elements.filter(|(_, row)| !self.rows[**row as usize]) {
                *element = before;
            }
        }
        Ok(())
    }

    /// Lets the bounds of what an operation has rounded to a type of few bits reach to what another number on its way may be rounded to.
    pub(super) fn rounded_openly(&mut self, op: &Op) {
        let (dst, dtype) = match op {
            Op::Convert { dst, dtype: Some(dtype), .. } => (*dst, *dtype),
            Op::Elementwise { dst, dtype, .. }
            | Op::Reduce { dst, dtype, .. }
            | Op::Scan { dst, dtype, .. } => (*dst, *dtype),
            _ => return,
        };
        if dtype.is_float() && dtype.bits() < 32 {
            for element in self.tiles[dst].iter_mut().filter(|element| element.value.is_finite()) {
                element.bound += dtype.epsilon() * element.value.abs();
            }
        }
    }
}

/// The scales of elements: the root mean square of those that do not dwarf them.
struct Scales(BTreeMap<i32, (f64, f64)>);

fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32) - 1023
}

impl Scales {
    fn of(values: &[f64]) -> Scales {
        let mut found: BTreeMap<i32, (f64, f64)> = BTreeMap::new();
        for x in values.iter().filter(|x| x.is_finite() && **x != 0.0) {
            let (count, squares) = found.entry(exponent(*x)).or_default();
            *count += 1.0;
            *squares += x * x;
        }
        Scales(found)
    }

    fn at(&self, x: f64) -> f64 {
        let (mut count, mut squares) = (0.0, 0.0);
        for (_, (n, sum)) in self.0.range(..=exponent(x).saturating_add(GAP)) {
            count += n;
            squares += sum;
        }
        if count > 0.0 { f64::sqrt(squares / count) } else { 0.0 }
    }
}

/// An error if results differ from those of another run by more than rounding. What those in which all rows enter all branches differ by
/// widens the bounds.
pub(super) fn differences(
    params: &[Param],
    (branch, entered): (&Branch, Entered),
    (results, bounds): (&[Argument], &mut Bounds),
    (others, other_bounds): (&[Argument], &Bounds),
) -> Result<(), InterpretError> {
    for (i, param) in params.iter().enumerate() {
        let (Some(Argument::Tensor(only)), Some(Argument::Tensor(every))) = (results.get(i), others.get(i))
        else {
            continue;
        };
        let (Some(Some(bounds)), Some(Some(reach))) = (bounds.get_mut(i), other_bounds.get(i)) else {
            continue;
        };
        let scales = Scales::of(only);
        for (k, ((x, y), (bound, reach))) in
            only.iter().zip(every).zip(bounds.iter_mut().zip(reach)).enumerate()
        {
            if x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() {
                continue;
            }
            let rounding = match param.dtype.is_float() && param.dtype != DType::Bool {
                true => OF_ELEMENT * x.abs().max(y.abs()) + OF_SCALE * scales.at(*x),
                false => 0.0,
            };
            let slack = f64::from(*bound) + f64::from(*reach) + rounding;
            let apart = (x - y).abs();
            if apart > slack || apart.is_nan() {
                return Err(InterpretError::RowsDiffer {
                    statement: branch.text.clone(),
                    param: param.name.clone(),
                    element: k,
                    only: *x,
                    all: *y,
                });
            }
            if entered == Entered::All {
                *bound = (apart + slack) as f32;
            }
        }
    }
    Ok(())
}

/// The runs of a plan whose results must be those of the first: all rows of each branch alone, and of all branches; with the branch that is
/// to be named. The last widens bounds, whichever branches a pass has made of one.
pub(super) fn others(plan: &Plan) -> Vec<(Entered, usize)> {
    let count = plan.branches.len();
    let each = (0..count).filter(|_| count > 1).map(|number| (Entered::One(number), number));
    let last = (count > 0).then_some((Entered::All, 0));
    each.chain(last).collect()
}
