//! Timing of work on a GPU: runs between events, each from the same state of the L2 cache.

use std::sync::Arc;

use tilewright_compiler::{Options, compile};
use tilewright_launch::driver::DriverError;
use tilewright_machine::Arch;
use tilewright_tile::parse;

use super::driver::failed;
use super::prepared::Scrub;
use super::stream::{CudaStream, Event, StreamWork, settle};
use super::{CudaDevice, kernel_error, lock};
use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::RuntimeError;
use crate::turn::{L2, Turn};

/// Bytes that are written or read to empty the L2 cache: more than twice that of any GPU so far.
const SCRUBBED: usize = 256 << 20;
/// Blocks that read: a multiple of the multiprocessors of most GPUs, eight for each of an H200's.
const READERS: usize = 1056;

/// Reads `x`, 8 KiB a row, and writes 4 bytes a block, so that the reads are needed.
const READ: &str = "
size rows = 32768
const BLOCKS = 1056

kernel read_all(x: f32[rows, 2048], y: f32[BLOCKS]) grid(BLOCKS) threads(256)
{
    gx = global_view(x, (2048, BLOCKS, ceil_div(rows, BLOCKS)) : (e1, e0, BLOCKS * e0))
    gy = global_view(y[block.x :], (1) : (e0))
    sums = register_tensor(f32, [2048])
    row = register_tensor(f32, [2048])
    fill(sums, 0.0)
    for i in 0..ceil_div(rows, BLOCKS) {
        copy(gx[:, block.x, i], row)
        sums = sums + row
    }
    total = reduce(sums, sum, 0)
    copy(total, gy)
}
";

impl CudaDevice {
    /// Memory and code that empty the L2 cache, made when they are first asked for.
    fn scrub(&self) -> Result<Arc<Scrub>, RuntimeError> {
        if let Some(made) = &*lock(&self.scrub) {
            return Ok(made.clone());
        }
        let broken = |_| RuntimeError::Inconsistent { kernel: "read_all".to_string() };
        let program = parse(READ).map_err(broken)?;
        let rows = (SCRUBBED / (2048 * 4)) as i64;
        let options = Options::new(Arch::SM_80).for_sizes(&program, &[("rows", rows)]);
        let kernel = compile(&program, &options).map_err(broken)?;
        let (buffer, sums) = (self.alloc(SCRUBBED)?, self.alloc(READERS * 4)?);
        let sizes = Sizes::from([("rows".to_string(), rows)]);
        let args = [Arg::Buffer(&buffer), Arg::Buffer(&sums)];
        let read = self.prepare(&kernel, &sizes, &args, LaunchOptions::default())?;
        let made = Arc::new(Scrub { buffer, read });
        *lock(&self.scrub) = Some(made.clone());
        Ok(made)
    }

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    ///
    /// The buffer is another device's, or the driver fails.
    pub fn fill(&self, buffer: &Buffer, byte: u8) -> Result<(), RuntimeError> {
        let pointer = self.address(buffer)?;
        if buffer.bytes() == 0 {
            return Ok(());
        }
        self.bind()?;
        let stream = lock(&self.stream);
        // SAFETY: the buffer is as long as that, and stays alive until the stream has been waited for.
        unsafe { stream.driver().memory_set(pointer, byte, buffer.bytes(), stream.raw) }
            .and_then(|()| stream.synchronize())
            .map_err(failed(format!("filling {} bytes on {}", buffer.bytes(), self.info.name)))
    }

    /// Takes a turn: pauses, then runs the work as often as the turn says, with the L2 cache in the state that it names before each
    /// run. Returns the milliseconds of each run that counts.
    ///
    /// # Errors
    ///
    /// The error of a run.
    pub fn turn(&self, turn: &Turn, work: &dyn StreamWork) -> Result<Vec<f64>, RuntimeError> {
        self.bind()?;
        let scrub = if turn.l2 == L2::Kept { None } else { Some(self.scrub()?) };
        let driver = |error| kernel_error(work.name())(error);
        // Nobody else's work is on the stream while this one rests and runs.
        let stream = lock(&self.stream);
        let run = || -> Result<Vec<f64>, RuntimeError> {
            let pair = |_| Ok((Event::new(stream.driver())?, Event::new(stream.driver())?));
            let events = (0..turn.runs).map(pair).collect::<Result<Vec<_>, DriverError>>().map_err(driver)?;
            let empty = || match (&scrub, turn.l2) {
                (Some(scrub), L2::Written) => {
                    let pointer = self.address(&scrub.buffer)?;
                    // SAFETY: the buffer is as long as that, and lives until the stream has been waited for.
                    unsafe { stream.driver().memory_set(pointer, 0, scrub.buffer.bytes(), stream.raw) }
                        .map_err(driver)
                }
                (Some(scrub), L2::Read) => scrub.read.enqueue(&stream).map_err(driver),
                _ => Ok(()),
            };
            for _ in 0..turn.warmup {
                empty()?;
                work.enqueue(&stream)?;
            }
            // Nothing waits for the host between the runs.
            for (start, end) in &events {
                empty()?;
                start.record(&stream).map_err(driver)?;
                work.enqueue(&stream)?;
                end.record(&stream).map_err(driver)?;
            }
            stream.synchronize().map_err(driver)?;
            events.iter().map(|(start, end)| start.until(end).map_err(driver)).collect()
        };
        std::thread::sleep(turn.rest);
        settle(run(), &stream)
    }
}

impl CudaDevice {
    /// Puts some work on the stream, `warmup` times and then `repeats` times between two events each, and waits for it: the
    /// milliseconds of each of these. The context is current.
    pub(super) fn measure(
        &self,
        warmup: usize,
        repeats: usize,
        work: impl Fn(&CudaStream) -> Result<(), DriverError>,
    ) -> Result<Vec<f64>, DriverError> {
        let stream = lock(&self.stream);
        let run = || -> Result<Vec<f64>, DriverError> {
            let pair = |_| Ok((Event::new(stream.driver())?, Event::new(stream.driver())?));
            let events = (0..repeats).map(pair).collect::<Result<Vec<_>, DriverError>>()?;
            for _ in 0..warmup {
                work(&stream)?;
            }
            // Nothing waits for the host between the runs.
            for (start, end) in &events {
                start.record(&stream)?;
                work(&stream)?;
                end.record(&stream)?;
            }
            stream.synchronize()?;
            events.iter().map(|(start, end)| start.until(end)).collect()
        };
        settle(run(), &stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use crate::{Tensor, open};

    #[test]
    fn the_reader_reads_every_element_once() {
        let program = parse(READ).unwrap();
        let rows = READERS + 3;
        let options = Options::new(Arch::SM_80).for_sizes(&program, &[("rows", rows as i64)]);
        let kernel = compile(&program, &options).unwrap();
        let device = open(DeviceChoice::Sim).unwrap();
        let values: Vec<f64> = (0..rows * 2048).map(|i| f64::from(i % 2048 == 7)).collect();
        let x = Tensor::from_f64(&*device, tilewright_machine::DType::F32, &values).unwrap();
        let y = Tensor::zeros(&*device, tilewright_machine::DType::F32, READERS).unwrap();
        let sizes = Sizes::from([("rows".to_string(), rows as i64)]);
        device.launch(&kernel, &sizes, &[Arg::Tensor(&x), Arg::Tensor(&y)]).unwrap();
        let sums = y.read(&*device).unwrap();
        assert_eq!(sums[..3], [2.0; 3]);
        assert_eq!(sums[3..], [1.0; READERS - 3]);
    }
}
