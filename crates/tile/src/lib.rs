//! The tile language: program, text form, Rust DSL, verifier, reference interpreter.

pub mod arith;
mod build;
pub mod desugar;
pub mod diagnostic;
pub mod dsl;
pub mod expr;
pub mod features;
pub mod ids;
mod insert;
pub mod interpret;
mod interval;
mod lexer;
mod names;
pub mod order;
pub mod parser;
mod printer;
pub mod program;
pub mod renamed;
pub mod rings;
pub mod roles;
pub mod statement;
pub mod unroll;
pub mod verified;
pub mod verify;

pub use arith::{Rounded, rounded};
pub use desugar::{desugar, desugar_copies, desugar_rearrangements};
pub use diagnostic::{Code, Diagnostic, Diagnostics, Origin, Span};
pub use expr::{Axis, Expr, IntOp, Scope, SymbolId};
pub use features::{Construct, Need, check_architecture, least_architecture, needs};
pub use ids::{StmtId, StmtIds, StmtMap};
pub use insert::insert_rearrangement;
pub use interpret::{Argument, InterpretError, interpret};
pub use interval::least_iterations;
pub use names::{Word, words};
pub use parser::parse;
pub use printer::statement_text;
pub use program::{
    AsyncHow, BinaryOp, ElemExpr, Operand, OperandMut, Param, ParamId, ParamKind, Pipeline, PipelineId,
    Program, ReduceOp, ShapeOp, Side, Stmt, StmtKind, Symbol, SymbolKind, Tensor, TensorId, TensorKind,
    TensorRef, TileOrder, UnaryOp, Use, ViewLeaf, ViewMode,
};
pub use rings::rings;
pub use roles::Role;
pub use unroll::unroll;
pub use verified::{Constants, GlobalTile, TileRef, Verified};
pub use verify::{MAX_TILE, verify};
