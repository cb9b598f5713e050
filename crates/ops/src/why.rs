//! Reasons of choices.

use std::fmt;

use tilewright_tune::Origin;

use crate::early::Begin;

/// The choice for a call, and its origin.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Why {
    /// The operator whose kernels run.
    pub operator: String,
    /// The sizes.
    pub sizes: String,
    /// Their class, for all of which it is chosen.
    pub class: String,
    /// The configuration: the parameters that are no defaults.
    pub parameters: String,
    /// The names of the kernels.
    pub kernels: Vec<String>,
    /// The source of the choice; none of an operator that is not tuned.
    pub from: Option<Origin>,
    /// The same in words.
    pub reason: String,
    /// Records that were refused, each with its reason.
    pub refused: Vec<String>,
    /// Operators that are preferred and do not compute it, each with its reason.
    pub passed: Vec<String>,
    /// The begin of its launches.
    pub begin: Begin,
    /// The estimate, with its parts, beside those of rivals.
    pub estimate: Option<tilewright_tune::Why>,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = if self.parameters.is_empty() { "the defaults" } else { &self.parameters };
        writeln!(f, "{}: {parameters}, for {} ({})", self.operator, self.sizes, self.class)?;
        match self.from {
            Some(from) => writeln!(f, "  {from}: {}", self.reason)?,
            None => writeln!(f, "  it is not tuned")?,
        }
        for refused in &self.refused {
            writeln!(f, "  {refused}")?;
        }
        for passed in &self.passed {
            writeln!(f, "  passed over: {passed}")?;
        }
        if self.begin != Begin::Behind {
            writeln!(f, "  {}", self.begin)?;
        }
        match &self.estimate {
            Some(estimate) => write!(f, "{estimate}"),
            None => Ok(()),
        }
    }
}
