//! The core program: the form between the surface program and synthesis, in which every integer that is known when the kernel is
//! compiled is a number.
//!
//! [`build`] makes it of a verified program whose `unroll for` loops are expanded. Shapes, stages, threads, groups and warps are
//! numbers; only addresses and bounds stay [`Expr`], over sizes, counters, block indices and elements. There are no parts of tensors, and
//! no `unroll for`. Roles are a list. A stage of a pipeline is a [`Slot`]. Statements are those of the surface, in the form [`Core`].
//!
//! Its passes change it in place and say whether they did ([`Changed`]); [`verify`] checks its invariants after each.
//! `Display` prints it, [`parse`] reads it back, and [`interpret`](crate::interpret()) runs it; [`check`] says what is wrong with one that
//! an author wrote.

mod accesses;
mod build;
mod check;
mod desugar;
mod insert;
mod multi_buffer;
mod pad;
mod print;
mod program;
mod renumber;
mod verify;

pub use crate::diagnostic::Origin;
pub use crate::expr::{Expr, SymbolId};
pub use crate::ids::{StmtId, StmtIds, StmtMap};
pub use crate::parser::is_core_text;
pub use crate::program::{
    AsyncCopyAttrs, BarrierId, CopyAttrs, ElemExpr, Param, ParamId, ParamKind, PipelineId, Side, SyncScope,
    TensorId, Use, ViewMode,
};
pub use build::{build, parse};
pub use check::check;
pub use desugar::{desugar_copies, desugar_rearrangements};
pub use insert::insert_rearrangement;
pub use multi_buffer::multi_buffer;
pub use pad::{FreeExtent, free_extents, pad};
pub use program::{
    Changed, Coord, Core, Never, Operand, OperandMut, Pipeline, Program, Role, ShapeOp, Slot, Stmt, StmtKind,
    Symbol, Tensor, TensorKind, TensorRef, TileOrder, TileRef,
};
pub use verify::verify;
