//! Workspaces: memory for what kernels leave for each other.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::error::LaunchError;
use crate::gpu::Gpu;
use crate::stream::Stream;

/// Bytes at the beginning of a chain's workspace for what launches leave as zeros for those behind them, of any chain.
pub(crate) const LEFT_BYTES: u64 = 4096;

/// Memory of a GPU for what a kernel keeps between its blocks, or leaves for the next one.
#[derive(Debug)]
pub struct Workspace<'a> {
    pub(crate) pointer: u64,
    pub(crate) bytes: u64,
    /// True if what launches leave as zeros holds zeros.
    pub(crate) clear: bool,
    memory: PhantomData<&'a mut [u8]>,
}

impl Workspace<'_> {
    /// Memory at an address of a GPU.
    ///
    /// # Safety
    ///
    /// The memory is the GPU's, has so many bytes, and is used by nothing else until the work of each launch that was given it has ended, unless
    /// that is ordered behind it on the same stream. Where the kernel of a [`Plan`](crate::Plan) takes its workspace to be filled with zeros, it is.
    pub unsafe fn new<'a>(pointer: u64, bytes: u64) -> Workspace<'a> {
        Workspace { pointer, bytes, clear: false, memory: PhantomData }
    }

    /// The same memory, lent for a shorter time.
    pub fn reborrow(&mut self) -> Workspace<'_> {
        Workspace { pointer: self.pointer, bytes: self.bytes, clear: self.clear, memory: PhantomData }
    }

    /// Its address, and the number of its bytes with a bit above that says if it is [clear](Workspace::clear): all that a launch reads of it.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        [self.pointer, self.bytes | u64::from(self.clear) << 63]
    }

    /// Fills with zeros what launches leave as zeros for those behind them (counters in the first 4096 bytes). A [`Chain`](crate::Chain) that is given the
    /// workspace afterwards does not; without this, each that has such counters fills them first, with one more call of the driver.
    ///
    /// # Safety
    ///
    /// From now on the memory is the workspace of chains alone, on this stream or ordered behind it. A stream that is captured does not fill it before its graph runs.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub unsafe fn clear(&mut self, gpu: &Gpu, stream: Stream<'_>) -> Result<(), LaunchError> {
        let (driver, bytes) = (gpu.driver(), self.bytes.min(LEFT_BYTES) as usize);
        // SAFETY: the workspace has these bytes, as `new` asks for.
        unsafe { driver.memory_set(self.pointer, 0, bytes, stream.raw()) }
            .map_err(driver.failed("filling the counters of a workspace with zeros"))?;
        self.clear = true;
        Ok(())
    }
}
