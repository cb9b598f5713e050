//! Checks that every integer of a kernel fits in 32 bits at given sizes: a recipe's bounds, in order.

use crate::formula::{Fault, Interval, Known, narrow};
use crate::recipe::{Bound, Recipe};

/// A bound that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken<'a> {
    /// The words for it.
    pub(crate) what: &'a str,
    pub(crate) fault: Fault,
}

/// Checks all bounds at these sizes, with this grid and these integer arguments (by parameter).
pub(crate) fn check<'a>(
    recipe: &'a Recipe,
    sizes: &[i64],
    grid: [u32; 3],
    scalars: &[Option<i64>],
) -> Result<(), Broken<'a>> {
    let mut counters: Vec<Option<Interval>> = vec![None; recipe.counters()];
    let mut at = 0;
    while let Some(bound) = recipe.bounds.get(at) {
        at += 1;
        let known = Known { sizes, grid, scalars, counters: &counters };
        match bound {
            Bound::Fits { what, formula, reach } => {
                let broken = |fault| Broken { what: what.as_str(), fault };
                let (low, high) = formula.interval(&known).map_err(broken)?;
                let reach = i128::from(*reach);
                narrow((low.min(low + reach), high.max(high + reach))).map_err(broken)?;
            }
            Bound::Range { what, counter, least, most, beyond, body } => {
                let broken = |fault| Broken { what: what.as_str(), fault };
                let (low, _) = least.interval(&known).map_err(broken)?;
                let (_, high) = most.interval(&known).map_err(broken)?;
                let range = (low, high + i128::from(*beyond));
                if range.0 <= range.1 {
                    if let Some(slot) = counters.get_mut(*counter as usize) {
                        *slot = Some(range);
                    }
                } else {
                    at += *body as usize;
                }
            }
            Bound::When { what, condition, body } => {
                let broken = |fault| Broken { what: what.as_str(), fault };
                if condition.interval(&known).map_err(broken)? == (0, 0) {
                    at += *body as usize;
                }
            }
        }
    }
    Ok(())
}

/// True if the verdict depends on arguments.
pub(crate) fn depends_on_scalars(recipe: &Recipe) -> bool {
    use crate::formula::{Formula, Item};
    let reads = |formula: &Formula| formula.items().iter().any(|item| matches!(item, Item::Scalar(_)));
    recipe.bounds.iter().any(|bound| match bound {
        Bound::Fits { formula, .. } => reads(formula),
        Bound::Range { least, most, .. } => reads(least) || reads(most),
        Bound::When { condition, .. } => reads(condition),
    })
}
