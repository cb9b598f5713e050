//! Errors of operators.

use tilewright_compiler::NoRecipe;
use tilewright_kernels::ConfigError;
use tilewright_kernels::moe::MoeError;
use tilewright_launch::{DType, LaunchError};
use tilewright_tile::Diagnostics;
use tilewright_tune::TuneError;
use tilewright_twpack::PackError;

/// An operator that was not run. Each names the operator and what clashes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// A kernel is not launched, not loaded, or does not take an argument.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// An operator, an option or a value that there is not.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nothing is chosen for the sizes.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// A layer of experts that there is not.
    #[error(transparent)]
    Experts(#[from] MoeError),
    /// A kernel of a pack cannot be used, or none be kept in one.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// No architecture that kernels are compiled for runs on the GPU.
    #[error("{device} (compute capability {}.{}) runs none of the architectures that kernels are compiled for", capability.0, capability.1)]
    Device {
        /// The GPU.
        device: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// None of the operators that compute it can do so here.
    #[error("`{operator}` has no kernel for this: {reasons}")]
    Nothing {
        /// The operator.
        operator: String,
        /// The lack of each of the operators that compute it.
        reasons: String,
    },
    /// The compiler refuses a configuration.
    #[error("`{operator}` with {parameters}: {diagnostics}")]
    Compile {
        /// The operator.
        operator: String,
        /// The parameters.
        parameters: String,
        /// The compiler's errors.
        diagnostics: Diagnostics,
    },
    /// Launches cannot follow a kernel.
    #[error("`{operator}` with {parameters}: {error}")]
    Recipe {
        /// The operator.
        operator: String,
        /// The parameters.
        parameters: String,
        /// The reason.
        error: NoRecipe,
    },
    /// A tensor or a number that the operator takes is not given.
    #[error("`{operator}` takes `{argument}` ({what}), which is not given")]
    Missing {
        /// The operator.
        operator: String,
        /// The argument.
        argument: String,
        /// Its type and shape.
        what: String,
    },
    /// An argument that the operator does not take, with these options.
    #[error("`{operator}` takes no `{argument}` with these options; it takes {known}")]
    Unknown {
        /// The operator.
        operator: String,
        /// The argument.
        argument: String,
        /// The names of those that it takes.
        known: String,
    },
    /// A tensor has another number of modes than the operator's.
    #[error("`{argument}` of `{operator}` is {expected}; the tensor has {given} modes")]
    Modes {
        /// The operator.
        operator: String,
        /// The argument.
        argument: String,
        /// Its shape, as the operator has it.
        expected: String,
        /// The number of modes of the tensor.
        given: usize,
    },
    /// A tensor has elements of another type than the operator's, and no option goes with it.
    #[error("`{argument}` of `{operator}` has elements of type {expected}; the tensor has {given}")]
    Type {
        /// The operator.
        operator: String,
        /// The argument.
        argument: String,
        /// The operator's type.
        expected: DType,
        /// The tensor's.
        given: DType,
    },
    /// Two tensors say different things of a size.
    #[error("size `{size}` of `{operator}` is {first} by `{by}`, and {second} by `{argument}`")]
    Clash {
        /// The operator.
        operator: String,
        /// The size.
        size: String,
        /// Its value.
        first: i64,
        /// The argument that it is of.
        by: String,
        /// Another value.
        second: i64,
        /// The argument that the other is of.
        argument: String,
    },
    /// A size that no tensor's shape tells.
    #[error("no argument of `{operator}` tells its size `{size}`: give it (`.size(\"{size}\", …)`)")]
    Size {
        /// The operator.
        operator: String,
        /// The size.
        size: String,
    },
    /// More than a call can have.
    #[error("a call of `{operator}` has more than {most} {what}")]
    TooMany {
        /// The operator.
        operator: String,
        /// The kind of things that are too many.
        what: &'static str,
        /// The most.
        most: usize,
    },
    /// A range of sizes without a size, or with what is none.
    #[error(
        "the range of size `{size}` of `{operator}` goes from {first} to {last}: sizes are from 1 on, and there is at least one"
    )]
    Range {
        /// The operator.
        operator: String,
        /// The size.
        size: String,
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// The library is strict, and no kernel is warm for these sizes.
    #[error(
        "`{operator}` is not warm for {class}, and the library is strict: warm it up before (`Library::warm_up`, with a range that has {sizes})"
    )]
    NotWarm {
        /// The operator.
        operator: String,
        /// The class of sizes.
        class: String,
        /// The sizes.
        sizes: String,
    },
    /// A kernel would have to be compiled or loaded while the stream is captured.
    #[error(
        "`{operator}` is not ready for {sizes}, and the stream is being captured: run it before, or warm it up (`Library::warm_up`)"
    )]
    NotReady {
        /// The operator.
        operator: String,
        /// The sizes.
        sizes: String,
    },
    /// The workspace is missing or too small.
    #[error(
        "`{operator}` needs a workspace of {needed} bytes at a multiple of 256 for these sizes: give it one (`.workspace(&mut w)`)"
    )]
    Workspace {
        /// The operator.
        operator: String,
        /// Bytes that it needs.
        needed: u64,
    },
}
