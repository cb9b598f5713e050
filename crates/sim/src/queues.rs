//! Queues of a warp: its asynchronous copies in flight, and its bulk copies out of shared memory.

use crate::clock::lanes;

/// An asynchronous copy of one thread in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub lane: u8,
    pub bytes: u8,
    /// The number of the lane's group that it belongs to.
    pub group: u32,
    pub offset: u32,
    pub statement: u32,
    pub origin: u32,
    /// Address in global memory that it reads, when it lands; zeros land where there is no such place.
    pub from: Option<u64>,
    /// The number of its read among those of the warp's copies that are followed; 0 of one that is not.
    pub fetch: u32,
    /// True if the bytes are there: as early as it may, before any wait.
    pub landed: bool,
    /// Cycle at which it arrives.
    pub ready: u64,
}

/// A warp's asynchronous copies in flight, in the order of their issue.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsyncQueue {
    pub copies: Vec<InFlight>,
    /// Groups that each lane has closed.
    pub committed: [u32; 32],
    /// Reads of global memory that are followed.
    pub fetches: u32,
}

impl AsyncQueue {
    /// Closes the current group of these lanes.
    pub(crate) fn commit(&mut self, active: u32) {
        lanes(active).for_each(|lane| self.committed[lane] += 1);
    }

    /// Copies that have not landed.
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }
}

/// A copy out of shared memory that a lane has started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub lane: usize,
    pub group: u32,
    pub time: u32,
    pub ready: u64,
}

/// A warp's bulk copies out of shared memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct BulkQueue {
    /// Groups that each lane has closed.
    pub committed: [u32; 32],
    /// Copies that no wait has covered.
    pub started: Vec<Started>,
    /// Copies started.
    pub time: u32,
}

impl BulkQueue {
    /// Closes the current group of these lanes.
    pub(crate) fn commit(&mut self, active: u32) {
        lanes(active).for_each(|lane| self.committed[lane] += 1);
    }
}
