//! Values that statements read and write, as far as zeros and values that are no numbers go.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::bound::Element;
use crate::ids::StmtId;

/// Values of a statement's operands, or of its results.
#[derive(Clone, Copy, Default)]
pub(super) struct Values {
    /// One is NaN.
    pub(super) nan: bool,
    /// One is -inf, as what masks leave out is.
    pub(super) masked: bool,
    /// One is 0.
    pub(super) zero: bool,
    /// One is not 0.
    pub(super) other: bool,
}

/// Values that the executions of a statement read and wrote.
#[derive(Clone, Copy, Default)]
pub(super) struct Made {
    /// An operand had an element that is not 0.
    pub(super) of_other: bool,
    /// A result had one.
    pub(super) other: bool,
    /// A result had NaN, and no operand had: with such operands.
    pub(super) nan: Option<Values>,
}

/// [`Made`] by each statement.
pub(super) type MadeBy = Mutex<BTreeMap<StmtId, Made>>;

impl Values {
    /// Those of elements.
    pub(super) fn of<'a>(elements: impl Iterator<Item = &'a Element>) -> Values {
        let mut found = Values::default();
        for x in elements {
            found.nan |= x.value.is_nan();
            found.masked |= x.value == f64::NEG_INFINITY;
            found.zero |= x.value == 0.0;
            found.other |= x.value != 0.0;
        }
        found
    }
}

impl Made {
    /// Takes an execution in. What is copied was made by another statement, or by none.
    pub(super) fn note(&mut self, of: Values, results: Values, copies: bool) {
        self.of_other |= of.other;
        self.other |= results.other;
        if results.nan && !of.nan && !copies && self.nan.is_none() {
            self.nan = Some(of);
        }
    }
}
