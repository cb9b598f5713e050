//! Parts of a program as messages quote them.

use std::fmt;

use crate::diagnostic::Origin;

/// A part of a program as a message quotes it, and its place: a statement by its text, an extent of the grid or a parameter by its name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Quote {
    /// The words.
    pub text: String,
    /// The place.
    pub span: Origin,
}

impl Quote {
    /// These words about this place.
    pub fn new(text: impl Into<String>, span: Origin) -> Self {
        Quote { text: text.into(), span }
    }

    /// With the place, if it has none.
    pub fn at(self, span: Origin) -> Self {
        Quote { span: self.span.or(span), ..self }
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
