//! Reasons why a file is no pack, or a kernel of it is not loaded.

use std::error::Error;
use std::fmt;

use tilewright_launch::{FormulaError, LaunchError, RecipeError};

/// A pack that cannot be made or read, or a kernel of it that is not loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PackError {
    /// The file begins otherwise.
    Magic,
    /// The file is shorter or longer than it says.
    Length {
        /// Bytes of the file.
        given: u64,
        /// Bytes that it says.
        said: u64,
    },
    /// A number is above its limit.
    Limit {
        /// The number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        most: u64,
    },
    /// The bytes of a part are not those that were written.
    Hash {
        /// The part.
        place: String,
    },
    /// The file has another hash than the one that is expected.
    Pinned {
        /// The digits that are expected.
        expected: String,
        /// The digits of the file.
        given: String,
    },
    /// The pack is of a later version of Tilewright.
    Format {
        /// The format.
        given: u64,
        /// The newest that is known.
        known: u64,
    },
    /// A part is no JSON as packs have it.
    Json {
        /// The part.
        place: String,
        /// The byte at which it is none.
        at: usize,
        /// The reason.
        reason: &'static str,
    },
    /// A part does not have the one form in which it is written.
    Form {
        /// The part.
        place: String,
    },
    /// A part of the header is missing, or is something else.
    Field {
        /// The path to it.
        place: String,
        /// The words for what it ought to be.
        expected: &'static str,
    },
    /// A list of items is no formula.
    Formula {
        /// The path to it.
        place: String,
        /// The rule that it breaks.
        error: FormulaError,
    },
    /// A kernel that no launch can follow.
    Recipe {
        /// The kernel.
        kernel: String,
        /// The rule that it breaks.
        error: RecipeError,
    },
    /// Two kernels for the same GPUs have one name.
    Twice {
        /// The name.
        kernel: String,
        /// The GPUs that both are for.
        target: String,
    },
    /// A part of a kernel does not lie directly behind the part before it, or leaves the file.
    Place {
        /// The kernel.
        kernel: String,
    },
    /// The code is not what its kind says.
    Code {
        /// The kernel.
        kernel: String,
        /// The reason.
        reason: &'static str,
    },
    /// A name of a size that formulas cannot have.
    Name {
        /// The kernel.
        kernel: String,
        /// The size.
        size: String,
    },
    /// The pack has no kernel of a name.
    NoKernel {
        /// The name.
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// The pack has no kernels of an operator for what is asked of it.
    NoClass {
        /// The operator.
        operator: String,
        /// The options, and the types and shapes of tensors.
        call: String,
    },
    /// An operator's argument is missing, or is none of its.
    Argument {
        /// The operator.
        operator: String,
        /// The argument.
        argument: String,
        /// True of one that is missing.
        missing: bool,
        /// The names of all.
        known: Vec<String>,
    },
    /// No kernel of a name, or none of its code, runs on a GPU.
    NotForGpu {
        /// The name.
        name: String,
        /// The GPU.
        device: String,
        /// The GPU's compute capability.
        capability: (u32, u32),
        /// The code that there is.
        code: Vec<String>,
    },
    /// The GPU or its driver does not take a kernel.
    Launch(LaunchError),
}

impl From<LaunchError> for PackError {
    fn from(error: LaunchError) -> Self {
        PackError::Launch(error)
    }
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Magic => f.write_str("this is no pack: it does not begin as one does"),
            PackError::Length { given, said } => {
                write!(f, "the pack has {given} bytes, and says that it has {said}")
            }
            PackError::Limit { what, value, most } => {
                write!(f, "{what} of the pack is {value}; {most} is the most")
            }
            PackError::Hash { place } => {
                write!(f, "the pack is damaged: the hash of {place} is not the one that it has")
            }
            PackError::Pinned { expected, given } => {
                write!(f, "the pack has the hash {given}, and the one with {expected} is wanted")
            }
            PackError::Format { given, known } => write!(
                f,
                "the pack has format {given}, and this version reads formats up to {known}: take a newer version"
            ),
            PackError::Json { place, at, reason } => {
                write!(f, "{place} of the pack is no JSON that packs have: at byte {at}, {reason}")
            }
            PackError::Form { place } => {
                write!(
                    f,
                    "{place} of the pack is not as packs are written: it has something else, or in another form"
                )
            }
            PackError::Field { place, expected } => write!(f, "{place} of the pack: {expected} is expected"),
            PackError::Formula { place, error } => write!(f, "{place} of the pack: {error}"),
            PackError::Recipe { kernel, error } => write!(f, "kernel `{kernel}` of the pack: {error}"),
            PackError::Twice { kernel, target } => {
                write!(f, "the pack has two kernels of the name `{kernel}` for {target}")
            }
            PackError::Place { kernel } => write!(
                f,
                "a part of kernel `{kernel}` of the pack does not lie behind the part before it, or leaves the file"
            ),
            PackError::Code { kernel, reason } => {
                write!(f, "the code of kernel `{kernel}` of the pack: {reason}")
            }
            PackError::Name { kernel, size } => {
                write!(f, "size `{size}` of kernel `{kernel}` has the name of an operator")
            }
            PackError::NoKernel { name, known } => {
                write!(f, "the pack has no kernel of the name `{name}`; it has {}", listed(known))
            }
            PackError::NoClass { operator, call } => write!(
                f,
                "the pack has no kernels of `{operator}` for {call} on this GPU: `tilewright pack list` shows its operators \
                 and their sizes"
            ),
            PackError::Argument { operator, argument, missing: true, known } => {
                write!(f, "`{operator}` lacks its argument `{argument}`; it takes {}", known.join(", "))
            }
            PackError::Argument { operator, argument, missing: false, known } => {
                write!(f, "`{operator}` has no argument `{argument}`; it takes {}", known.join(", "))
            }
            PackError::NotForGpu { name, device, capability: (major, minor), code } => write!(
                f,
                "kernel `{name}` of the pack has code for {}, which {device} (compute capability {major}.{minor}) does not run",
                listed(code)
            ),
            PackError::Launch(error) => error.fmt(f),
        }
    }
}

/// A list in words.
fn listed(list: &[String]) -> String {
    if list.is_empty() { "none".to_string() } else { list.join(", ") }
}

impl Error for PackError {}
