//! Deciding whether a layout takes every value once: whether no two coordinates differ by a vector of the kernel of the
//! strides. Modes are looked at from the greatest stride to the smallest.

use crate::layout::Layout;
use crate::work;

/// True if the layout with these (extent, stride) leaves is injective; nothing where that is not decided within
/// `budget` steps of search.
pub fn injective_within(leaves: &[(i64, i64)], budget: u64) -> Option<bool> {
    // The sign of a stride does not matter: reversing a mode only shifts the values.
    let mut modes: Vec<(i128, i128)> = leaves
        .iter()
        .filter(|(s, _)| *s > 1)
        .map(|(s, d)| (i128::from(d.unsigned_abs()), i128::from(*s - 1)))
        .collect();
    if modes.iter().any(|m| m.0 == 0) {
        return Some(false);
    }
    modes.sort_unstable_by(|a, b| b.cmp(a));
    // What the modes after each can reach, and the greatest common divisor of their strides.
    let mut rest = vec![(0i128, 0i128); modes.len() + 1];
    for (k, (d, n)) in modes.iter().enumerate().rev() {
        rest[k] = (rest[k + 1].0 + d * n, gcd(rest[k + 1].1, *d));
    }
    if (0..modes.len()).all(|k| modes[k].0 > rest[k + 1].0) {
        return Some(true);
    }
    let mut budget = budget;
    Some(!has_kernel(&modes, &rest, 0, false, &mut budget)?)
}

impl Layout {
    /// True if no two integral coordinates have the same value. Exact; searches only where no simple criterion decides.
    pub fn is_injective(&self) -> bool {
        injective_within(&self.leaves(), u64::MAX).unwrap_or(false)
    }
}

/// True if `sum` and differences in the modes add to zero, with `moved` or some difference not zero. The first
/// difference that is not zero is taken positive.
fn has_kernel(
    modes: &[(i128, i128)],
    rest: &[(i128, i128)],
    sum: i128,
    moved: bool,
    budget: &mut u64,
) -> Option<bool> {
    *budget = budget.checked_sub(1)?;
    if !work::spend(4) {
        return None;
    }
    let Some(((d, n), modes)) = modes.split_first() else {
        return Some(moved && sum == 0);
    };
    let (reach, divisor) = rest[0];
    if sum.abs() > reach || (divisor != 0 && sum % divisor != 0) {
        return Some(false);
    }
    // |sum + x·d| must stay within what the remaining modes reach.
    let slack = rest[1].0;
    let low = (-slack - sum + d - 1).div_euclid(*d).max(if moved { -n } else { 0 });
    let high = (slack - sum).div_euclid(*d).min(*n);
    let mut x = low;
    while x <= high {
        if has_kernel(modes, &rest[1..], sum + x * d, moved || x != 0, budget)? {
            return Some(true);
        }
        x += 1;
    }
    Some(false)
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
