//! Times of launches that come after others: those before bring the caches into a known state, and keep the GPU busy while the host
//! queues what is timed.

use crate::cuda::{CudaSequence, Event, enqueue_all, lock, sequence_failed, settle};
use crate::error::RuntimeError;

use cudarc::driver::result::DriverError;

impl CudaSequence<'_> {
    /// Runs `before` and then this sequence, `repeats` times without waiting for the host: how many milliseconds this one took each
    /// time. `before` must be a sequence of the same device.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::ForeignBuffer`] if `before` is of another device; [`RuntimeError::Kernel`] if a launch fails.
    pub fn time_after(&self, before: &CudaSequence<'_>, repeats: usize) -> Result<Vec<f64>, RuntimeError> {
        if before.device.id != self.device.id {
            return Err(RuntimeError::ForeignBuffer { device: self.device.info.name.clone() });
        }
        self.device.bind()?;
        let stream = lock(&self.device.stream);
        let run = || -> Result<Vec<f64>, DriverError> {
            let pair = |_| Ok((Event::new()?, Event::new()?));
            let events = (0..repeats).map(pair).collect::<Result<Vec<_>, DriverError>>()?;
            for (start, end) in &events {
                enqueue_all(&before.launches, &stream)?;
                start.record(&stream)?;
                enqueue_all(&self.launches, &stream)?;
                end.record(&stream)?;
            }
            stream.synchronize()?;
            events.iter().map(|(start, end)| start.until(end)).collect()
        };
        settle(run(), &stream).map_err(sequence_failed(&self.launches))
    }

    /// Bytes of local memory of a thread (registers that were spilled), the most of all launches, and everything that the driver's
    /// assembler warned of.
    pub fn warnings(&self) -> (u32, Vec<String>) {
        let loaded = || self.launches.iter().map(|launch| &launch.loaded);
        let local = loaded().map(|l| l.local_bytes).max().unwrap_or(0);
        (local, loaded().flat_map(|l| l.advisories.iter().cloned()).collect())
    }
}
