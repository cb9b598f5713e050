//! The hardware: element types, memories, architectures, and instruction families as data.
//!
//! An instruction is one row: the memories that it connects, the layouts of its operands, the features that it needs, its spelling and
//! its semantics. [`copy`] and [`mma`] hold the instructions that a warp executes
//! together, [`wgmma`] and [`tensor`] those of a warpgroup and of the tensor memory accelerator; their layouts map (lane, value) → index in the instruction tile and *are* their semantics. [`scalar`]
//! holds what one thread does to its own registers; there an evaluation function is the semantics. [`sync`] holds barriers, fences and
//! waits. Synthesis reads
//! layouts and cycles, lowering reads legality, PTX reads spellings, the simulator reads semantics: no second
//! description exists that could disagree. [`mod@timing`] holds what instructions and chips cost, as tables that can be measured.

pub mod arch;
mod atomic;
pub mod banks;
pub mod copy;
pub mod dtype;
pub mod elements;
pub mod emit;
pub mod error;
pub mod features;
mod launch_control;
pub mod levels;
pub mod mma;
pub mod op;
pub mod printed;
mod progress;
pub mod red;
pub mod scalar;
pub mod sync;
pub mod tcgen05;
pub mod tensor;
pub mod timing;
pub mod wgmma;

pub use arch::{
    Arch, ArchSpec, Limits, MAX_RESIDENT_THREADS, MAX_THREADS, Memory, UnknownArch, WARP, WARPGROUP,
};
pub use atomic::{AtomicOp, AtomicRow, MemoryOrder, Until, atomic, atomic_copy, atomic_rows};
pub use banks::{SECTOR_BYTES, Wavefronts, global_sectors, linear_wavefronts, shared_wavefronts};
pub use copy::{CopyKind, CopyRow, Scope, copies, copies_anywhere, copy_named, copy_rows, thread_copy};
pub use dtype::{DType, UnknownDType, per_register, registers_of};
pub use elements::{Elements, Number};
pub use emit::Emit;
pub use error::ErrorBound;
pub use features::{Feature, Features};
pub use launch_control::LaunchControl;
pub use levels::{LevelRow, MemoryRow, Processor, UnknownProcessor};
pub use mma::{
    MmaKind, MmaRow, Scaling, Sparsity, factor_types, mma_rows, mmas, mmas_of, product_needs, product_types,
    scaled_types,
};
pub use op::{Class, OpKey, Unit, WgmmaKind};
pub use printed::{PrintLog, Printed, PrintedItem, PrintedTensor};
pub use progress::Progress;
pub use red::{RedForm, RedOp, Reduction, reduction_rows, reductions, reductions_anywhere};
pub use scalar::{RegType, ScalarOp, ScalarRow, ShuffleMode, conversion_needs};
pub use sync::{ACQUIRE_TENSOR_MAP, MbarrierOp, ProxyFence, SyncOp};
pub use tcgen05::{
    Places, SumsScaling, Tcgen05Row, TensorMemory, has_scaled_tcgen05, has_sparse_tcgen05, has_tcgen05,
    in_pairs, is_tcgen05_left, is_tcgen05_sum, metadata_layout, scaled_tcgen05, scaled_tcgen05_pair,
    sparse_tcgen05, sums_layout, sums_need, tcgen05, tcgen05_pair, tcgen05_rows, tensor_memory_copies,
};
pub use tensor::{
    BoxShape, BulkOp, CacheHint, Corners, InvalidBox, MOST_PIXELS, MOST_STEP, TENSOR_MAP_BYTES,
    TO_OWN_BLOCK_PTX_VERSION, TensorOp, TensorRow, tensor_gather, tensor_im2col, tensor_map_l2_promotion,
    tensor_map_type, tensor_row, tensor_rows,
};
pub use timing::{Cost, Rate, Timing, TimingError, timing};
pub use wgmma::{Descriptor, Major, SwizzleMode, WgmmaRow, wgmma_rows, wgmmas};
