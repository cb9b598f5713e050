//! What a search needs of whoever measures.

use tilewright_compiler::Kernel;

use crate::error::TuneError;
use crate::record::Conditions;

/// What became of kernels that were given to a [`Meter`].
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// They can be run.
    Ready,
    /// They cannot, or would only slow the search down: why.
    Refused(String),
}

/// Measures candidates, each of which is the kernels that run one after another. Candidates are told apart by numbers that the search
/// gives.
pub trait Meter {
    /// How times are measured.
    fn conditions(&self) -> Conditions;

    /// Is told of kernels that will be loaded one after another: what can be done for all of them at once.
    fn announce(&mut self, _: &[&Kernel]) {}

    /// Takes the kernels of a candidate.
    ///
    /// # Errors
    ///
    /// [`TuneError::Device`] for what is no fault of the kernels.
    fn load(&mut self, id: usize, kernels: Vec<Kernel>) -> Result<Load, TuneError>;

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
