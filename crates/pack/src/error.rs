//! Reasons why a file is no pack.

use tilewright_launch::{FormulaError, RecipeError};

/// A pack that cannot be made or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The file begins otherwise.
    #[error("this is no pack: it does not begin as one does")]
    Magic,
    /// The file is shorter or longer than it says.
    #[error("the pack has {given} bytes, and says that it has {said}")]
    Length {
        /// Bytes of the file.
        given: u64,
        /// Bytes that it says.
        said: u64,
    },
    /// A number is above its limit.
    #[error("{what} of the pack is {value}; {most} is the most")]
    Limit {
        /// The number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        most: u64,
    },
    /// The bytes are not those that were written.
    #[error("the pack is damaged: the hash of its content is not the one that it has")]
    Hash,
    /// The pack is of a later version of Tilewright.
    #[error(
        "the pack has format {given}, and this version reads formats up to {known}: take a newer version"
    )]
    Format {
        /// The format.
        given: u64,
        /// The newest that is known.
        known: u64,
    },
    /// The header is no JSON.
    #[error("the header of the pack is no JSON: {0}")]
    Json(String),
    /// A part of the header is missing, or is something else.
    #[error("{place} of the pack: {expected} is expected")]
    Field {
        /// The path to it.
        place: String,
        /// The words for what it ought to be.
        expected: &'static str,
    },
    /// A list of items is no formula.
    #[error("{place} of the pack: {error}")]
    Formula {
        /// The path to it.
        place: String,
        /// The rule that it breaks.
        error: FormulaError,
    },
    /// A kernel that no launch can follow.
    #[error("kernel `{kernel}` of the pack: {error}")]
    Recipe {
        /// The kernel.
        kernel: String,
        /// The rule that it breaks.
        error: RecipeError,
    },
    /// Two kernels have one name.
    #[error("the pack has two kernels of the name `{0}`")]
    Twice(String),
    /// Code lies outside of the file, or where other code lies.
    #[error("the code of kernel `{0}` of the pack lies outside of the file, or where other code lies")]
    Place(String),
    /// The code is not what its kind says.
    #[error("the code of kernel `{kernel}` of the pack: {reason}")]
    Code {
        /// The kernel.
        kernel: String,
        /// The reason.
        reason: &'static str,
    },
    /// A name of a size that formulas cannot have.
    #[error("size `{size}` of kernel `{kernel}` has the name of an operator")]
    Name {
        /// The kernel.
        kernel: String,
        /// The size.
        size: String,
    },
}
