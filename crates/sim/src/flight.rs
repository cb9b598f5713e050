//! Copies of the tensor memory accelerator as data: requests of threads, and copies in flight.

use tilewright_machine::{BulkOp, TensorOp};

use crate::clock::HappensBefore;
use crate::sink::Site;

/// A tensor map: index among the function's, and number among those that a parameter points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapId {
    pub index: u32,
    pub number: u32,
}

/// Ends of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Course {
    /// A box of a tensor, at these coordinates.
    Tensor { op: TensorOp, map: MapId, coords: Vec<i32> },
    /// Contiguous bytes of global memory.
    Global { store: bool, address: u64 },
    /// Shared memory of the block to that of a peer, at an address of its.
    Peer { address: u32 },
    /// The launch's answer to a request to cancel a cluster.
    Answer,
}

impl Course {
    /// True if global memory is written, and the thread's groups count it.
    pub(crate) fn is_store(&self) -> bool {
        match self {
            Course::Tensor { op, .. } => *op != TensorOp::Load,
            Course::Global { store, .. } => *store,
            Course::Peer { .. } | Course::Answer => false,
        }
    }
}

/// A copy in flight.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub site: Site,
    pub course: Course,
    pub bytes: u32,
    /// Offset of each 16 bytes of the source in this block's shared memory.
    pub source: Vec<u32>,
    /// Offset of each 16 bytes in every target's shared memory.
    pub destination: Vec<u32>,
    /// Blocks that receive it; empty for a store.
    pub targets: Vec<u32>,
    /// The mbarrier in each of them, or in the other block of its pair.
    pub barrier: Option<u32>,
    /// The parity of the block of each pair whose mbarrier it is; `None`: the block that receives the bytes.
    pub parity: Option<u32>,
    /// Of stores: the group of the lane's.
    pub group: u32,
    /// Bytes that it has read, once it has.
    pub data: Option<Vec<u8>>,
    /// Cycle at which it is complete.
    pub ready: u64,
    /// Events that its thread had executed when it issued the copy.
    pub executed: HappensBefore,
}

/// Request of a thread.
pub(crate) struct Request {
    pub site: Site,
    pub course: Course,
    /// The address of the bytes in the thread's block.
    pub shared: u32,
    pub bytes: u32,
    /// The address of the mbarrier.
    pub barrier: Option<u32>,
    /// Of loads: a bit for each block that receives the bytes.
    pub multicast: Option<u32>,
    /// True of one that signals the even blocks of pairs.
    pub even: bool,
    /// Of stores: the group, and the time of its reads among the warp's copies.
    pub group: (u32, u32),
    pub ready: u64,
}

impl Flight {
    /// True if a group of its thread counts it.
    pub(crate) fn is_store(&self) -> bool {
        self.course.is_store()
    }
}

/// Ends of a bulk copy.
pub(crate) fn bulk_course(op: BulkOp, other: u64) -> Course {
    match op {
        BulkOp::Load => Course::Global { store: false, address: other },
        BulkOp::Store => Course::Global { store: true, address: other },
        BulkOp::Peer => Course::Peer { address: other as u32 },
    }
}
