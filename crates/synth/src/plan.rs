//! What synthesis decides, as values: the layout of each tensor, the instruction calls of each statement.
//!
//! Directions: a register tensor's thread-value layout maps (thread, value) → linear coordinate in the tile (leftmost
//! mode fastest). A shared tensor's layout maps that coordinate → offset in elements, the swizzle last. An
//! [`Access`] says which coordinates a thread's address names, call by call.

use tilewright_layout::{Layout, LayoutError, SwizzledLayout};
use tilewright_machine::{CopyRow, MmaRow};

use crate::allocate::Allocation;
use crate::gather::GatherPlan;
use crate::gemm::Arrangement;
use crate::hopper::product::ProductPlan;
use crate::hopper::tensor::TensorPlan;
use crate::movement::Movement;
use crate::reduce::ReducePlan;

/// A thread-value layout: rank 2, mode 0 the threads of the block, mode 1 the values of a thread.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TvLayout {
    layout: Layout,
    threads: Layout,
    values: Layout,
}

impl TvLayout {
    /// From a thread mode and a value mode.
    pub fn new(threads: Layout, values: Layout) -> Result<Self, LayoutError> {
        Ok(TvLayout { layout: Layout::concat(&[threads.clone(), values.clone()])?, threads, values })
    }

    /// From a layout of rank 2.
    pub fn from_layout(layout: Layout) -> Result<Self, LayoutError> {
        TvLayout::new(layout.mode(0)?, layout.mode(1)?)
    }

    /// The whole layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The thread mode: thread → coordinate of its value 0.
    pub fn threads(&self) -> &Layout {
        &self.threads
    }

    /// The value mode: value → coordinate relative to value 0.
    pub fn values(&self) -> &Layout {
        &self.values
    }

    /// Values a thread holds.
    pub fn count(&self) -> usize {
        self.values.size() as usize
    }

    /// The coordinate of a value of a thread.
    pub fn at(&self, thread: i64, value: i64) -> i64 {
        self.threads.eval(thread) + self.values.eval(value)
    }

    /// Whether both give every (thread, value) the same coordinate.
    pub fn same_function(&self, other: &TvLayout) -> bool {
        let same = |a: &Layout, b: &Layout| {
            a == b || (a.size() == b.size() && (0..a.size()).all(|i| a.eval(i) == b.eval(i)))
        };
        same(&self.threads, &other.threads) && same(&self.values, &other.values)
    }
}

/// The layout of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub enum TensorLayout {
    /// Of a register tensor.
    Register(TvLayout),
    /// Of a shared tensor: tile coordinate → offset in elements.
    Shared {
        /// The layout.
        layout: SwizzledLayout,
        /// Size in bytes.
        bytes: u32,
        /// The unified constraint it was made from, with unknown strides as `D1`, `D2`, ….
        constraint: String,
    },
}

/// Which elements the threads of a block touch with one statement, instruction call by instruction call.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// Contiguous elements at one address.
    pub vector: u32,
    /// thread → linear coordinate in the statement's tile of the first element at the thread's address.
    pub threads: Layout,
    /// The calls, each an offset added to the thread's coordinate.
    pub calls: Vec<Call>,
    /// Whether several threads touch the same elements: only those whose digits in broadcast modes are 0 may store.
    pub broadcast: bool,
}

/// One instruction call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Added to the thread's coordinate.
    pub offset: i64,
    /// Per-thread instructions: the values moved, in the order of rising addresses. Matrix instructions: for each
    /// matrix the first of the two values in its register. Empty where no register tensor takes part.
    pub values: Vec<u32>,
}

/// How a `copy` is done.
#[derive(Clone, PartialEq, Debug)]
pub enum CopyPlan {
    /// Between a register tensor and memory.
    Direct {
        /// The instruction.
        row: &'static CopyRow,
        /// What it touches.
        access: Access,
    },
    /// From global to shared memory, without registers.
    Async {
        /// The instruction.
        row: &'static CopyRow,
        /// What it touches.
        access: Access,
    },
    /// From global to shared memory through registers of the moment.
    Staged {
        /// The load from global memory.
        load: &'static CopyRow,
        /// The store to shared memory.
        store: &'static CopyRow,
        /// What both touch.
        access: Access,
    },
    /// Between register tensors that agree which thread holds what: (source value, destination value).
    Registers {
        /// The moves.
        moves: Vec<(u32, u32)>,
    },
}

/// How a `gemm` is done: calls of one instruction, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct GemmPlan {
    /// The instruction.
    pub row: &'static MmaRow,
    /// How instructions and warps share the product.
    pub by: Arrangement,
    /// For each call the values of the accumulator, of A and of B, in the order of the instruction's values.
    pub calls: Vec<GemmCall>,
}

/// The values of one matrix-product call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GemmCall {
    /// Accumulator.
    pub c: Vec<u32>,
    /// Left factor.
    pub a: Vec<u32>,
    /// Right factor.
    pub b: Vec<u32>,
}

/// What was decided for one statement.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtPlan {
    /// Nothing to decide.
    None,
    /// A copy.
    Copy(CopyPlan),
    /// A copy by the tensor memory accelerator.
    Tensor(TensorPlan),
    /// A matrix product.
    Gemm(GemmPlan),
    /// An asynchronous matrix product of warpgroups.
    Product(ProductPlan),
    /// A rearrangement or a shape statement.
    Move(Movement),
    /// A join or a split: the moves (source value, destination value) of the first and of the second half.
    Halves([Vec<(u32, u32)>; 2]),
    /// A reduction.
    Reduce(ReducePlan),
    /// A gather.
    Gather(GatherPlan),
}

impl StmtPlan {
    /// Bytes of shared memory that the statement needs for itself.
    pub fn scratch_bytes(&self) -> u32 {
        match self {
            StmtPlan::Move(movement) => movement.shared_bytes(),
            StmtPlan::Reduce(plan) => plan.shared_bytes(),
            StmtPlan::Gather(plan) => plan.shared_bytes(),
            StmtPlan::None
            | StmtPlan::Copy(_)
            | StmtPlan::Tensor(_)
            | StmtPlan::Gemm(_)
            | StmtPlan::Product(_)
            | StmtPlan::Halves(_) => 0,
        }
    }
}

/// What was decided for a program.
#[derive(Clone, Debug)]
pub struct Synthesis {
    /// One entry a tensor of the program; `None` for views of global memory.
    pub tensors: Vec<Option<TensorLayout>>,
    /// One entry a statement, in the order of [`Verified::visit`](tilewright_tile::Verified::visit).
    pub statements: Vec<StmtPlan>,
    /// Where the shared tensors lie in the block's window.
    pub allocation: Allocation,
    /// Bytes of shared memory, behind the tensors, that statements use one after the other, each for itself.
    pub scratch_bytes: u32,
    /// Why, for people and for tools.
    pub explanation: crate::explain::Explanation,
}

impl Synthesis {
    /// The thread-value layout of a register tensor.
    pub fn register(&self, tensor: tilewright_tile::TensorId) -> Option<&TvLayout> {
        match self.tensors.get(tensor.0 as usize) {
            Some(Some(TensorLayout::Register(tv))) => Some(tv),
            _ => None,
        }
    }

    /// The layout and size of a shared tensor.
    pub fn shared(&self, tensor: tilewright_tile::TensorId) -> Option<(&SwizzledLayout, u32)> {
        match self.tensors.get(tensor.0 as usize) {
            Some(Some(TensorLayout::Shared { layout, bytes, .. })) => Some((layout, *bytes)),
            _ => None,
        }
    }
}
