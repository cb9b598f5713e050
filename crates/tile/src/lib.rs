//! The tile language: program, text form, Rust DSL, verifier, reference interpreter.

pub mod arith;
mod build;
pub mod core;
pub mod diagnostic;
pub mod dsl;
pub mod elementwise;
pub mod expr;
pub mod features;
pub mod ids;
pub mod interpret;
mod interval;
mod lexer;
mod library;
mod names;
pub mod parser;
mod printer;
pub mod program;
pub mod rasterization;
pub mod renamed;
pub mod sources;
pub mod statement;
pub mod unnamed;
pub mod unroll;
pub mod verified;
pub mod verify;

pub use arith::{Compute, Rounded, TypeClash, TypeClashReason, Types, ValueType, rounded, value_type};
pub use diagnostic::{Code, Diagnostic, Diagnostics, Origin, Span};
pub use expr::{Axis, Expr, IntOp, Scope, SymbolId};
pub use features::{Construct, Need, check_architecture, least_architecture, needs};
pub use ids::{StmtId, StmtIds, StmtMap};
pub use interpret::{Argument, InterpretError, interpret};
pub use interval::least_iterations;
pub use names::{Word, words};
pub use parser::{Misread, parse, parse_module};
pub use printer::{Names, named_statement_text, statement_text};
pub use program::Unnamed;
pub use program::{
    ArgOp, AsyncCopyAttrs, BinaryOp, CopyAttrs, Dimension, ElemExpr, Form, IndexedMode, Literal, Module,
    Notation, Operand, OperandMut, Param, ParamId, ParamKind, Pipeline, PipelineId, Program, ReduceOp,
    ScanOperands, ShapeOp, Side, Stmt, StmtKind, Surface, Symbol, SymbolKind, Tensor, TensorId, TensorKind,
    TensorRef, TileOrder, UnaryOp, Use, ViewLeaf, ViewMode,
};
pub use sources::{Sources, read_beside};
pub use unroll::unroll;
pub use verified::{Constants, GlobalTile, IndexedTile, TileRef, Verified};
pub use verify::{MAX_TILE, verify};
