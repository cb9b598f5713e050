//! Launches that are ready, with all that they use.

use std::sync::Arc;

use tilewright_launch::driver::DriverError;

use super::module::Loaded;
use super::records::RecordBuffer;
use super::stream::CudaStream;
use crate::buffer::Buffer;

/// A launch that can be put on a stream, any number of times, also one that is being captured: it neither allocates nor waits.
pub(super) struct Prepared {
    /// The kernel's name.
    pub(super) kernel: String,
    pub(super) loaded: Arc<Loaded>,
    pub(super) prepared: tilewright_launch::Prepared,
    /// The buffer of the kernel's records, to which its last parameter points.
    pub(super) records: Option<RecordBuffer>,
    /// Buffers that the parameters point to, and those that what they point to points to.
    pub(super) _buffers: Vec<Buffer>,
}

impl Prepared {
    pub(super) fn enqueue(&self, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: buffers are as large as the kernel's shapes (`check`), and stay alive as long as `self`, which outlives the work on the stream.
        unsafe { self.prepared.enqueue(stream.borrow()) }
    }
}

/// Memory and code that empty the L2 cache.
pub(super) struct Scrub {
    pub(super) buffer: Buffer,
    /// Reads the buffer.
    pub(super) read: Prepared,
}
