//! The thread-level program: what one thread of a block runs, as typed SSA with structured control flow.
//!
//! It stands between lowering, which builds it with a [`Builder`], and its two readers: the PTX printer, one line an
//! instruction, and the simulator, which executes it. It knows instruction rows, and nothing of tiles.

pub mod builder;
pub mod function;
pub mod passes;
mod print;
pub mod printed;
pub mod record;
mod scopes;
pub mod verify;

pub use builder::Builder;
pub use function::{
    Address, Array, ArrayId, DescriptorValue, Factor, Function, FunctionParam, FunctionParamKind, Inst,
    MetadataCells, Op, Operand, OriginId, Position, Reg, ScaleBytes, ScaleCells, SharedBuffer, Special,
    TensorBuffer, TensorMap, Value,
};
pub use printed::{Print, PrintItem};
pub use scopes::Build;
pub use verify::{VerifyError, verify};
