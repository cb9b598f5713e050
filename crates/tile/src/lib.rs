//! The tile language: program, text form, Rust DSL, verifier, reference interpreter.

pub mod arith;
pub mod asm;
pub mod barriers;
mod breaks;
mod build;
mod cluster;
pub mod code;
pub mod core;
pub mod diagnostic;
pub mod dsl;
pub mod elementwise;
pub mod expr;
pub mod features;
mod format;
pub mod ids;
pub mod interpret;
mod interval;
mod lexer;
mod library;
mod lint;
mod names;
mod nearest;
mod order;
pub mod parser;
mod printer;
pub mod program;
pub mod rasterization;
mod remedy;
pub mod renamed;
pub mod rows;
pub mod sources;
mod split;
pub mod statement;
pub mod unnamed;
pub mod unroll;
pub mod verified;
pub mod verify;

pub use arith::{
    Compute, Rounded, RoundedAsm, TypeClash, TypeClashReason, Types, ValueType, combined, combined_in,
    rounded, value_type,
};
pub use cluster::{Multicast, Peers};
pub use diagnostic::{Code, Diagnostic, Diagnostics, Origin, Span};
pub use expr::{Axis, Expr, IntOp, Scope, SymbolId};
pub use features::{Construct, Need, check_architecture, least_architecture, needs};
pub use format::format;
pub use ids::{StmtId, StmtIds, StmtMap};
pub use interpret::{Argument, InterpretError, interpret};
pub use interval::least_iterations;
pub use library::libraries;
pub use lint::{lint, lints};
pub use names::{Word, is_reserved, words};
pub use nearest::nearest;
pub use parser::{Cursor, FragmentFormal, Local, Misread, parse, parse_library, parse_module};
pub use printer::{Names, body_text, expr_text, named_statement_text, number_text, statement_text};
pub use program::Unnamed;
pub use program::{
    ArgOp, Asm, Asserted, AsyncCopyAttrs, Barrier, BarrierId, BarrierKind, BinaryOp, Combination,
    CombineForm, CopyAttrs, Dealer, Dimension, ElemExpr, Fetch, Flag, Form, IndexedMode, Iteration, Literal,
    Module, Notation, Operand, OperandMut, Param, ParamId, ParamKind, Pipeline, PipelineId, PrintItem,
    Program, ReduceOp, ScanOperands, ShapeOp, Side, Stmt, StmtKind, Surface, Symbol, SymbolKind, SyncScope,
    Tensor, TensorId, TensorKind, TensorRef, TileOrder, UnaryOp, Use, ViewLeaf, ViewMode,
};
pub use remedy::{NewEachRound, new_each_round};
pub use sources::{Sources, WrittenLine, decoded, read_beside};
pub use unroll::unroll;
pub use verified::{Constants, FoldedTile, GlobalTile, IndexedTile, TileRef, Verified};
pub use verify::{MAX_TILE, verify};
