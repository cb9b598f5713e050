//! Messages to the person who wrote the program. One type serves the parser, the verifier, synthesis and
//! lowering, so that every message names a place, says what clashes there, and says what would be right.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

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

/// The kind of mistake that a [`Diagnostic`] is about. The text form is stable: tools may match on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// The text is not a program of the language's grammar.
    Syntax,
    /// A name is used that nothing declares.
    UnknownName,
    /// A name is declared twice.
    DuplicateName,
    /// A number or an expression has no legal value here (a tile size of zero, a division by zero, an overflow).
    BadValue,
    /// A tensor has the wrong number of modes.
    WrongRank,
    /// Two shapes that must be equal are not.
    ShapeMismatch,
    /// An operand lives in a memory the statement cannot use.
    WrongMemory,
    /// Element types do not fit together.
    TypeMismatch,
    /// No instruction or no layout satisfies the statement's constraints; other shapes, types or layouts would.
    Unsatisfiable,
    /// Two layout constraints contradict each other.
    LayoutConflict,
    /// The block's shared tensors do not fit.
    SharedMemoryExceeded,
    /// The block's register tensors do not fit.
    RegistersExceeded,
    /// The architecture is unknown or lacks something the program needs.
    UnsupportedArchitecture,
    /// The kernel's threads or grid are outside what the hardware takes.
    BadLaunch,
    /// A statement stands where it cannot (outside its stage, its role, before a wait), or lacks its counterpart.
    Misplaced,
    /// Roles wait for each other for ever.
    Deadlock,
    /// A core program that was given as text violates an invariant of core programs ([`core::verify`](crate::core::verify())).
    Invariant,
    /// An internal compiler error, not a mistake of the program: [`Diagnostic::internal`].
    Internal,
    /// A warning: elements of an output that nothing writes.
    PartlyWritten,
    /// A warning: elements of an input that nothing reads.
    PartlyRead,
    /// A warning: elements of an output that are written more than once, with different values.
    WrittenAgain,
    /// A warning: a result that is overwritten before anything reads it, or that nothing reads.
    OverwrittenUnread,
    /// A warning: an output depends on elements of a register or shared tensor that nothing had written.
    ReadUnwritten,
}

impl Code {
    /// The stable text form, e.g. `shape-mismatch`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Syntax => "syntax",
            Code::UnknownName => "unknown-name",
            Code::DuplicateName => "duplicate-name",
            Code::BadValue => "bad-value",
            Code::WrongRank => "wrong-rank",
            Code::ShapeMismatch => "shape-mismatch",
            Code::WrongMemory => "wrong-memory",
            Code::TypeMismatch => "type-mismatch",
            Code::Unsatisfiable => "unsatisfiable",
            Code::LayoutConflict => "layout-conflict",
            Code::SharedMemoryExceeded => "shared-memory-exceeded",
            Code::RegistersExceeded => "registers-exceeded",
            Code::UnsupportedArchitecture => "unsupported-architecture",
            Code::BadLaunch => "bad-launch",
            Code::Misplaced => "misplaced",
            Code::Deadlock => "deadlock",
            Code::Invariant => "invariant",
            Code::Internal => "internal",
            Code::PartlyWritten => "partly-written",
            Code::PartlyRead => "partly-read",
            Code::WrittenAgain => "written-again",
            Code::OverwrittenUnread => "overwritten-unread",
            Code::ReadUnwritten => "read-unwritten",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
