//! Errors of tuning and choosing.

use std::path::PathBuf;

use tilewright_cache::FolderError;
use tilewright_kernels::ConfigError;
use tilewright_kernels::model::ModelError;
use tilewright_runtime::RuntimeError;

/// Reasons why nothing was chosen or tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// An operator, a parameter or a size is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operator has no tuning space.
    #[error("`{operator}` has no tuning space")]
    NotTuned {
        /// The operator.
        operator: &'static str,
    },
    /// A program has no space, or none that can be searched.
    #[error("`{program}` has nothing to tune: {reason}")]
    NoSpace {
        /// The kernels.
        program: String,
        /// The reason.
        reason: String,
    },
    /// A size is missing, or out of range.
    #[error("size `{size}` of `{operator}` {wrong}; its sizes are {known}")]
    Size {
        /// The operator.
        operator: &'static str,
        /// The size.
        size: String,
        /// The fault.
        wrong: String,
        /// The operator's sizes.
        known: String,
    },
    /// A text is no list of names with values.
    #[error("`{text}` is not NAME=VALUE")]
    Text {
        /// The text.
        text: String,
    },
    /// The operator's rules refuse every point of the space.
    #[error("none of the {refused} configurations of `{operator}` suits {problem} on {arch}{because}")]
    Empty {
        /// The operator.
        operator: &'static str,
        /// The problem.
        problem: String,
        /// The architecture.
        arch: String,
        /// Number of candidates looked at.
        refused: usize,
        /// The rule that refuses one of them.
        because: String,
    },
    /// The compiler or the driver refuses every configuration that was tried.
    #[error("none of the {tried} configurations that were tried for {problem} can run; the first: {reason}")]
    NothingRuns {
        /// The problem.
        problem: String,
        /// Number of candidates tried.
        tried: usize,
        /// The reason of the first.
        reason: String,
    },
    /// The device failed.
    #[error("{doing}: {error}")]
    Device {
        /// Activity that failed.
        doing: String,
        /// The error.
        error: Box<RuntimeError>,
    },
    /// The fastest configuration computes something else than another one.
    #[error(
        "WRONG RESULT: the fastest configuration of {problem}, `{winner}`, and `{other}` disagree: {difference}. Nothing is recorded. \
         This is an internal error of the compiler or the operator; please report it"
    )]
    Wrong {
        /// The problem.
        problem: String,
        /// The fastest configuration.
        winner: String,
        /// The other side of the comparison.
        other: String,
        /// The difference.
        difference: String,
    },
    /// Timings to which no model can be fitted.
    #[error("no model can be fitted to the timings: {reason}")]
    Timings {
        /// The reason.
        reason: String,
    },
    /// The text of a model is wrong.
    #[error("{}: {error}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The error.
        error: ModelError,
    },
    /// A record could not be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    Store {
        /// Activity that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// There is no place for the cache.
    #[error("there is no folder for the cache ({reason}): set TILEWRIGHT_CACHE or give one with --cache")]
    NoCache {
        /// The reason.
        reason: String,
    },
    /// Two records of one problem whose times do not compare.
    #[error(
        "{} and {} both have a record of {key}, measured with the L2 cache {} and {}: measure one of them again, or merge them apart",
        files[0].display(), files[1].display(), l2[0], l2[1]
    )]
    Conditions {
        /// The key of both.
        key: String,
        /// Their files.
        files: [PathBuf; 2],
        /// Content of the L2 cache before each run.
        l2: [String; 2],
    },
    /// A file of records has an invalid line.
    #[error("{}, line {line}: {reason}", path.display())]
    RecordFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
}

impl TuneError {
    pub(crate) fn device(doing: impl Into<String>) -> impl FnOnce(RuntimeError) -> Self {
        let doing = doing.into();
        move |error| TuneError::Device { doing, error: Box::new(error) }
    }

    pub(crate) fn store(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| TuneError::Store { action, path, error }
    }
}

impl From<FolderError> for TuneError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::File { action, path, error } => TuneError::Store { action, path, error },
            FolderError::NoCache { reason } => TuneError::NoCache { reason },
            error => TuneError::NoCache { reason: error.to_string() },
        }
    }
}
