//! Budget of one expression of the calculator. What searches or tries coordinate by coordinate pays for its
//! steps here; without a limit, as for all callers but the calculator, paying always succeeds.

use crate::error::LayoutError;
use std::cell::Cell;

/// The steps that an expression of the calculator may take.
pub const STEPS: u64 = 1 << 24;

thread_local! {
    /// The steps left in the innermost [`Limit`] of this thread, if there is one.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Pays for `steps`; false where they are not left, and then nothing is.
#[must_use]
pub fn spend(steps: u64) -> bool {
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
pub fn pay(steps: usize) -> Result<(), LayoutError> {
    if spend(steps as u64) { Ok(()) } else { Err(LayoutError::TooLong { limit: STEPS }) }
}

/// Pays for the values at `count` coordinates of a layout with this many `leaves`.
#[must_use]
pub fn spend_for(count: i64, leaves: usize) -> bool {
    spend(u64::try_from(count).unwrap_or(0).saturating_mul(8 + 4 * leaves as u64))
}

/// The same, or says that it is too much.
pub fn pay_for(count: i64, leaves: usize) -> Result<(), LayoutError> {
    if spend_for(count, leaves) { Ok(()) } else { Err(LayoutError::TooLong { limit: STEPS }) }
}

/// Allows [`STEPS`] until it is dropped.
#[derive(Debug)]
pub struct Limit {
    before: Option<u64>,
}

impl Limit {
    /// A limit from here on.
    #[expect(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Limit {
        Limit { before: LEFT.replace(Some(STEPS)) }
    }

    /// True if something could not be paid for.
    pub fn exhausted(&self) -> bool {
        LEFT.get() == Some(0)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        LEFT.set(self.before);
    }
}
