//! Runners on a GPU: work of its stream that takes part in a contest.

use std::fmt;
use std::time::Duration;

use tilewright_runtime::{CudaDevice, L2, RuntimeError, StreamWork, Turn};

use crate::measure::Runner;

/// Work of a GPU that can be run and timed any number of times: a [`CudaSequence`](tilewright_runtime::CudaSequence), a
/// [`CudaGraph`](tilewright_runtime::CudaGraph), or a product of [`CublasLt`](crate::cublaslt::CublasLt).
pub struct CudaRunner<'a> {
    device: &'a CudaDevice,
    name: String,
    work: Box<dyn StreamWork + 'a>,
}

impl<'a> CudaRunner<'a> {
    /// A runner of this work on the device that the work is for.
    pub fn new(device: &'a CudaDevice, name: impl Into<String>, work: impl StreamWork + 'a) -> Self {
        CudaRunner { device, name: name.into(), work: Box::new(work) }
    }

    /// Runs it once and waits for it.
    ///
    /// # Errors
    ///
    /// The error of the run.
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        self.turn(&Turn { rest: Duration::ZERO, l2: L2::Kept, warmup: 1, runs: 0 }).map(drop)
    }
}

impl Runner for CudaRunner<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn turn(&mut self, turn: &Turn) -> Result<Vec<f64>, RuntimeError> {
        self.device.turn(turn, &*self.work)
    }
}

impl fmt::Debug for CudaRunner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaRunner").field(&self.name).finish()
    }
}
