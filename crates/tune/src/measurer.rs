//! Measurement backend of the search.

use tilewright_compiler::Kernel;
use tilewright_kernels::Launch;

use crate::error::TuneError;
use crate::record::Conditions;

/// Outcome of loading kernels that were given to a [`Measurer`].
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// They can be run.
    Ready,
    /// They cannot, or would only slow the search down: why.
    Refused(String),
}

/// Measures candidates, each of which is the kernels that run one after another. Candidates are told apart by numbers that the search
/// gives.
pub trait Measurer {
    /// Conditions of measurement.
    fn conditions(&self) -> Conditions;

    /// Prepares kernels that will be loaded one after another, all at once.
    fn prefetch(&mut self, _: &[&Kernel]) {}

    /// Takes the kernels of a candidate, to be launched so.
    ///
    /// # Errors
    ///
    /// [`TuneError::Device`] for what is no fault of the kernels.
    fn load(&mut self, id: usize, kernels: Vec<Kernel>, launch: &Launch) -> Result<Load, TuneError>;

    /// One turn of a candidate that is loaded: its time in microseconds.
    ///
    /// # Errors
    ///
    /// [`TuneError::Device`].
    fn time(&mut self, id: usize) -> Result<f64, TuneError>;

    /// Runs two candidates on the same inputs: where their results differ by more than roundings explain, if they do.
    ///
    /// # Errors
    ///
    /// [`TuneError::Device`].
    fn difference(&mut self, id: usize, other: usize) -> Result<Option<String>, TuneError>;
}
