//! How much one expression of the calculator may cost. What searches or tries coordinate by coordinate pays for its
//! steps here; without a limit, as for all callers but the calculator, paying always succeeds.

use crate::error::LayoutError;
use std::cell::Cell;

/// The steps that an expression of the calculator may take.
pub(crate) const STEPS: u64 = 1 << 24;

thread_local! {
    /// The steps left in the innermost [`Limit`] of this thread, if there is one.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Pays for `steps`; false where they are not left, and then nothing is.
#[must_use]
pub(crate) fn spend(steps: u64) -> bool {
    match LEFT.get() {
        None => true,
        Some(left) => {
            let rest = left.checked_sub(steps);
            LEFT.set(Some(rest.unwrap_or(0)));
            rest.is_some()
        }
    }
}

/// Pays for `steps`, or says that there are too many.
pub(crate) fn pay(steps: usize) -> Result<(), LayoutError> {
    if spend(steps as u64) { Ok(()) } else { Err(LayoutError::TooLong { limit: STEPS }) }
}

/// Pays for `each` step at each of `count` coordinates.
#[must_use]
pub(crate) fn spend_for(count: i64, each: usize) -> bool {
    spend(u64::try_from(count).unwrap_or(0).saturating_mul(each.max(1) as u64))
}

/// Allows [`STEPS`] until it is dropped.
pub(crate) struct Limit {
    before: Option<u64>,
}

impl Limit {
    pub(crate) fn new() -> Limit {
        Limit { before: LEFT.replace(Some(STEPS)) }
    }

    /// Whether something could not be paid for.
    pub(crate) fn exhausted(&self) -> bool {
        LEFT.get() == Some(0)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        LEFT.set(self.before);
    }
}
