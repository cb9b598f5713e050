//! Messages to the person who wrote the program. One type serves the parser, the verifier, synthesis and
//! lowering, so that every message names a place, says what clashes there, and says what would be right.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

pub use crate::code::Code;

/// A range of bytes of the source text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes `start..end`.
    pub fn new(start: usize, end: usize) -> Self {
        Span { start: start as u32, end: end as u32 }
    }

    /// True for a place between two bytes, such as the end of the text.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// As a range of byte offsets.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The smallest span that holds both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The place that a part of a program comes from. Each front end has a variant; one that makes tile programs from something
/// else (tasks) adds its own.
///
/// Origins never take part in comparing programs: two programs that say the same are equal, wherever it is said.
#[derive(Clone, Copy, Debug, Default)]
pub enum Origin {
    /// No place: nothing in the source stands for it.
    #[default]
    Unknown,
    /// Bytes of the text that was parsed.
    Text(Span),
    /// A call of the Rust DSL.
    Rust(&'static Location<'static>),
}

impl Origin {
    /// The call in Rust of the innermost function around that is not `#[track_caller]`.
    #[track_caller]
    pub fn caller() -> Self {
        Origin::Rust(Location::caller())
    }

    /// True without a place.
    pub fn is_unknown(self) -> bool {
        matches!(self, Origin::Unknown)
    }

    /// The bytes of the source text, of a program that was parsed.
    pub fn text(self) -> Option<Span> {
        match self {
            Origin::Text(span) => Some(span),
            Origin::Unknown | Origin::Rust(_) => None,
        }
    }

    /// The call, of a program that was built in Rust.
    pub fn rust(self) -> Option<&'static Location<'static>> {
        match self {
            Origin::Rust(location) => Some(location),
            Origin::Unknown | Origin::Text(_) => None,
        }
    }

    /// This place, or another where this one is unknown.
    pub fn or(self, other: Origin) -> Origin {
        if self.is_unknown() { other } else { self }
    }

    /// A key by which origins are equal and ordered, as `==` does not: text in its order, then calls by file, line and column.
    pub fn key(self) -> impl Ord + Copy + std::hash::Hash + fmt::Debug {
        (self.text(), self.rust())
    }
}

impl From<Span> for Origin {
    fn from(span: Span) -> Self {
        Origin::Text(span)
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Origin {}

/// One message about one place of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnostic {
    /// The kind of mistake.
    pub code: Code,
    /// One sentence that says what is wrong, complete without the source text beside it.
    pub message: String,
    /// The place that it is about.
    pub span: Origin,
    /// A few words for the mark under that place; may be empty.
    pub label: String,
    /// Other places that take part, each with a few words.
    pub related: Vec<(Origin, String)>,
    /// Facts beside it, a sentence each: how often it happened, and where first.
    pub notes: Vec<String>,
    /// The remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A message about a place.
    pub fn new(code: Code, span: impl Into<Origin>, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            span: span.into(),
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
        }
    }

    /// A state that earlier stages should have ruled out: nothing that the program's author can change.
    pub fn internal(span: impl Into<Origin>, what: impl fmt::Display) -> Self {
        let message = format!("internal compiler error: {what}; please report it with the program");
        Diagnostic::new(Code::Internal, span, message)
    }

    /// True if both say the same about the same place.
    pub fn repeats(&self, other: &Diagnostic) -> bool {
        self == other && self.span.key() == other.span.key()
    }

    /// With words for the mark under the place.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// With another place that takes part.
    pub fn related(mut self, span: impl Into<Origin>, label: impl Into<String>) -> Self {
        self.related.push((span.into(), label.into()));
        self
    }

    /// With a fact beside it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// With the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, " (help: {help})")?;
        }
        // Offsets in a text say little without the text, which a caller shows beside the message.
        if let Origin::Rust(location) = self.span {
            write!(f, "\n  --> {location}")?;
        }
        for (origin, label) in &self.related {
            if let Origin::Rust(location) = origin {
                write!(f, "\n  ::: {location}: {label}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// One or more messages: what a stage returns when it cannot go on.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// True if one is an internal compiler error.
    pub fn any_internal(&self) -> bool {
        self.0.iter().any(|d| d.code == Code::Internal)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "error[{}]: {diagnostic}", diagnostic.code)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Diagnostics(vec![diagnostic])
    }
}
