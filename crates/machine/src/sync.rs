//! Synchronisation between threads, blocks and proxies: barriers, fences and waits.

use crate::arch::Memory;
use crate::features::{Feature, Features};

/// Barriers and waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SyncOp {
    /// All threads of the block arrive; memory accesses before are seen after.
    Barrier,
    /// All lanes of the warp arrive; memory accesses before are seen after.
    WarpBarrier,
    /// Closes the thread's current group of asynchronous copies.
    AsyncCommit,
    /// Waits until at most this many of the thread's groups are in flight.
    AsyncWaitGroup(u32),
    /// Waits for all of the thread's asynchronous copies.
    AsyncWaitAll,
    /// `threads` threads of the block arrive at barrier `id` (1 to 15); memory accesses before are seen after.
    NamedBarrier {
        /// Number of the barrier, one of the block's sixteen.
        id: u32,
        /// Number of threads that take part, a multiple of 32.
        threads: u32,
    },
    /// The threads arrive at barrier `id` and do not wait: what they did before is seen by those that wait there.
    BarrierArrive {
        /// Number of the barrier, one of the block's sixteen.
        id: u32,
        /// Number of threads that take part, a multiple of 32.
        threads: u32,
    },
    /// Every thread of the cluster arrives and waits for the others; memory accesses before, also to the shared memory of peers, are
    /// seen after.
    ClusterBarrier,
    /// The same at the start of a kernel, behind [`FenceMbarrierInit`](Self::FenceMbarrierInit): initialised mbarriers are seen after, and no other memory access before is. An
    /// arrival that releases waits for all of the thread's accesses to global memory, as a fence of the GPU does (SASS of sm_90a).
    ///
    /// Source: PTX ISA 9.0, section 9.7.13.4 (`fence.mbarrier_init`, with its example).
    ClusterStart,
    /// The registers that `wgmma` is about to read and write are as ordinary code has left them.
    WgmmaFence,
    /// Closes the warpgroup's current group of matrix products.
    WgmmaCommit,
    /// Waits until at most this many of the warpgroup's groups of matrix products are in flight.
    WgmmaWait(u32),
    /// Closes the thread's current group of bulk copies out of shared memory.
    BulkCommit,
    /// Waits until at most this many of the thread's groups of bulk copies are in flight: their writes are done.
    BulkWait(u32),
    /// Waits until at most this many of the thread's groups of bulk copies still read shared memory.
    BulkWaitRead(u32),
    /// The thread's accesses to memory of these state spaces so far come before what the asynchronous proxy does there later, and the
    /// reverse.
    FenceProxyAsync(ProxyFence),
    /// The initialisation of mbarriers by this thread is visible to the cluster.
    FenceMbarrierInit,
    /// Registers of each thread of the warpgroup from here on: more or fewer than before. A multiple of 8 from 24 to 256.
    SetMaxRegisters {
        /// True if the warpgroup asks for more (and waits until others have given theirs); false if it gives some away.
        more: bool,
        /// Registers of each thread from here on.
        registers: u32,
    },
    /// Waits until the grids that this one depends on have ended and their writes are visible.
    DependencyWait,
    /// Grids that depend on this one may start.
    DependentsLaunch,
    /// The block allocates no more tensor memory.
    TensorRelinquish,
    /// Waits until the warp's loads from tensor memory are done.
    TensorWaitLoad,
    /// Waits until the warp's stores to tensor memory are done.
    TensorWaitStore,
    /// Accesses of the thread to tensor memory so far come before those of others behind a synchronisation that follows.
    TensorFenceBefore,
    /// Accesses of the thread to tensor memory from here on come after those of others before a synchronisation that has been.
    TensorFenceAfter,
}

impl SyncOp {
    /// PTX spelling, operands included.
    pub fn spelling(self) -> String {
        match self {
            SyncOp::Barrier => "bar.sync 0".to_string(),
            SyncOp::WarpBarrier => "bar.warp.sync 0xffffffff".to_string(),
            SyncOp::AsyncCommit => "cp.async.commit_group".to_string(),
            SyncOp::AsyncWaitGroup(n) => format!("cp.async.wait_group {n}"),
            SyncOp::AsyncWaitAll => "cp.async.wait_all".to_string(),
            SyncOp::NamedBarrier { id, threads } => format!("bar.sync {id}, {threads}"),
            SyncOp::BarrierArrive { id, threads } => format!("bar.arrive {id}, {threads}"),
            SyncOp::ClusterBarrier => {
                "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned".to_string()
            }
            SyncOp::ClusterStart => {
                "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned".to_string()
            }
            SyncOp::WgmmaFence => "wgmma.fence.sync.aligned".to_string(),
            SyncOp::WgmmaCommit => "wgmma.commit_group.sync.aligned".to_string(),
            SyncOp::WgmmaWait(n) => format!("wgmma.wait_group.sync.aligned {n}"),
            SyncOp::BulkCommit => "cp.async.bulk.commit_group".to_string(),
            SyncOp::BulkWait(n) => format!("cp.async.bulk.wait_group {n}"),
            SyncOp::BulkWaitRead(n) => format!("cp.async.bulk.wait_group.read {n}"),
            SyncOp::FenceProxyAsync(fence) => fence.spelling().to_string(),
            SyncOp::FenceMbarrierInit => "fence.mbarrier_init.release.cluster".to_string(),
            SyncOp::SetMaxRegisters { more, registers } => {
                format!("setmaxnreg.{}.sync.aligned.u32 {registers}", if more { "inc" } else { "dec" })
            }
            SyncOp::DependencyWait => "griddepcontrol.wait".to_string(),
            SyncOp::DependentsLaunch => "griddepcontrol.launch_dependents".to_string(),
            SyncOp::TensorRelinquish => {
                "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned".to_string()
            }
            SyncOp::TensorWaitLoad => "tcgen05.wait::ld.sync.aligned".to_string(),
            SyncOp::TensorWaitStore => "tcgen05.wait::st.sync.aligned".to_string(),
            SyncOp::TensorFenceBefore => "tcgen05.fence::before_thread_sync".to_string(),
            SyncOp::TensorFenceAfter => "tcgen05.fence::after_thread_sync".to_string(),
        }
    }

    /// The features that an architecture must have.
    pub fn needs(self) -> Features {
        match self {
            SyncOp::Barrier
            | SyncOp::WarpBarrier
            | SyncOp::NamedBarrier { .. }
            | SyncOp::BarrierArrive { .. } => Features::NONE,
            SyncOp::AsyncCommit | SyncOp::AsyncWaitGroup(_) | SyncOp::AsyncWaitAll => Feature::CpAsync.into(),
            SyncOp::ClusterBarrier | SyncOp::ClusterStart => Feature::Cluster.into(),
            SyncOp::WgmmaFence | SyncOp::WgmmaCommit | SyncOp::WgmmaWait(_) => Feature::Wgmma.into(),
            SyncOp::BulkCommit
            | SyncOp::BulkWait(_)
            | SyncOp::BulkWaitRead(_)
            | SyncOp::FenceProxyAsync(_) => Feature::Tma.into(),
            SyncOp::FenceMbarrierInit => Feature::TransactionBarrier.into(),
            SyncOp::SetMaxRegisters { .. } => Feature::SetMaxRegisters.into(),
            SyncOp::DependencyWait | SyncOp::DependentsLaunch => Feature::DependentLaunch.into(),
            SyncOp::TensorRelinquish
            | SyncOp::TensorWaitLoad
            | SyncOp::TensorWaitStore
            | SyncOp::TensorFenceBefore
            | SyncOp::TensorFenceAfter => Feature::Tcgen05.into(),
        }
    }
}

/// The state spaces that a fence between the generic and the asynchronous proxy covers. It orders nothing in any other.
///
/// Source: PTX ISA 9.0, section 9.7.13.4 (`membar`, `fence`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProxyFence {
    /// Shared memory of the thread's block.
    Shared,
    /// Shared memory of every block of the cluster.
    SharedCluster,
    /// Global memory.
    Global,
    /// Every state space.
    All,
}

impl ProxyFence {
    /// All of them.
    pub const ALL: [ProxyFence; 4] =
        [ProxyFence::Shared, ProxyFence::SharedCluster, ProxyFence::Global, ProxyFence::All];

    /// PTX spelling.
    pub fn spelling(self) -> &'static str {
        match self {
            ProxyFence::Shared => "fence.proxy.async.shared::cta",
            ProxyFence::SharedCluster => "fence.proxy.async.shared::cluster",
            ProxyFence::Global => "fence.proxy.async.global",
            ProxyFence::All => "fence.proxy.async",
        }
    }

    /// True if it covers this memory, of the thread's own block or of a peer.
    pub fn covers(self, memory: Memory) -> bool {
        match memory {
            Memory::Shared => self != ProxyFence::Global,
            Memory::Global => matches!(self, ProxyFence::Global | ProxyFence::All),
            Memory::Register | Memory::Tensor => false,
        }
    }
}

/// PTX spelling of the fence behind which tensor copies of the thread read a tensor map of global memory as the host has written it before the
/// launch; its operands are the map's address and [`TENSOR_MAP_BYTES`](crate::TENSOR_MAP_BYTES).
///
/// Source: PTX ISA 9.0, section 9.7.13.4 (`fence.proxy.tensormap`), and section 8.9.4, by which a kernel's start acquires for every proxy but that
/// of tensor maps; CUDA C++ Programming Guide, "Using TMA to transfer multi-dimensional arrays": the scope is that of the system where the host
/// wrote the map.
pub const ACQUIRE_TENSOR_MAP: &str = "fence.proxy.tensormap::generic.acquire.sys";

/// An operation on an mbarrier: 64 bits in shared memory that count arrivals and bytes. A phase ends when no arrival and no bytes are
/// outstanding; the next then begins with the same number of arrivals.
///
/// Source: PTX ISA 8.0, section 9.7.12.15.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MbarrierOp {
    /// Makes an mbarrier whose phases end after the operand's number of arrivals (1 to 2²⁰ − 1), in phase 0.
    Init,
    /// One arrival. No operand (0).
    Arrive,
    /// One arrival at the mbarrier of a peer in the cluster, by its address there. No operand (0).
    ArrivePeer,
    /// The same, and what the thread did before is seen by threads that wait with [`MbarrierOp::WaitCluster`], in any block of the
    /// cluster. No operand (0).
    ArriveCluster,
    /// The phase waits for as many more bytes as the operand says, and one arrival.
    ArriveExpect,
    /// Waits until the phase with the operand's parity has ended: what was done before the arrivals is seen after.
    Wait,
    /// The same, also for what other blocks of the cluster did before they arrived with [`MbarrierOp::ArriveCluster`].
    WaitCluster,
    /// One arrival, once all products with sums in tensor memory that the thread has issued are complete: those who wait see them complete. No operand (0).
    Commit,
    /// The same, at the barrier of this place in every block of the cluster whose rank is a bit of the operand.
    CommitPeers,
}

impl MbarrierOp {
    /// All.
    pub const ALL: [MbarrierOp; 9] = [
        MbarrierOp::Init,
        MbarrierOp::Arrive,
        MbarrierOp::ArrivePeer,
        MbarrierOp::ArriveCluster,
        MbarrierOp::ArriveExpect,
        MbarrierOp::Wait,
        MbarrierOp::WaitCluster,
        MbarrierOp::Commit,
        MbarrierOp::CommitPeers,
    ];

    /// True if it waits for the end of a phase.
    pub fn waits(self) -> bool {
        matches!(self, MbarrierOp::Wait | MbarrierOp::WaitCluster)
    }

    /// True if it follows the products with sums in tensor memory.
    pub fn commits(self) -> bool {
        matches!(self, MbarrierOp::Commit | MbarrierOp::CommitPeers)
    }

    /// True if it is an arrival at a barrier by its address in the cluster.
    pub fn reaches_peers(self) -> bool {
        matches!(self, MbarrierOp::ArrivePeer | MbarrierOp::ArriveCluster)
    }

    /// The features that an architecture must have.
    pub fn needs(self) -> Features {
        let barrier = Features::from(Feature::TransactionBarrier);
        if self.reaches_peers() || self == MbarrierOp::WaitCluster {
            barrier | Feature::Cluster.into()
        } else if self == MbarrierOp::Commit {
            barrier | Feature::Tcgen05.into()
        } else if self == MbarrierOp::CommitPeers {
            barrier | Feature::Tcgen05.into() | Feature::Cluster.into()
        } else {
            barrier
        }
    }

    /// True if it has an operand.
    pub fn has_operand(self) -> bool {
        matches!(self, MbarrierOp::Init | MbarrierOp::ArriveExpect | MbarrierOp::CommitPeers) || self.waits()
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            MbarrierOp::Init => "mbarrier.init",
            MbarrierOp::Arrive => "mbarrier.arrive",
            MbarrierOp::ArrivePeer => "mbarrier.arrive.peer",
            MbarrierOp::ArriveCluster => "mbarrier.arrive.cluster",
            MbarrierOp::ArriveExpect => "mbarrier.arrive.expect_tx",
            MbarrierOp::Wait => "mbarrier.wait",
            MbarrierOp::WaitCluster => "mbarrier.wait.cluster",
            MbarrierOp::Commit => "tcgen05.commit",
            MbarrierOp::CommitPeers => "tcgen05.commit.peers",
        }
    }

    /// PTX mnemonic.
    pub fn mnemonic(self) -> &'static str {
        match self {
            MbarrierOp::Init => "mbarrier.init.shared::cta.b64",
            MbarrierOp::Arrive => "mbarrier.arrive.shared::cta.b64",
            MbarrierOp::ArrivePeer => "mbarrier.arrive.shared::cluster.b64",
            MbarrierOp::ArriveCluster => "mbarrier.arrive.release.cluster.shared::cluster.b64",
            MbarrierOp::ArriveExpect => "mbarrier.arrive.expect_tx.shared::cta.b64",
            MbarrierOp::Wait => "mbarrier.try_wait.parity.shared::cta.b64",
            MbarrierOp::WaitCluster => "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
            MbarrierOp::Commit => "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",
            MbarrierOp::CommitPeers => {
                "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
            }
        }
    }
}
