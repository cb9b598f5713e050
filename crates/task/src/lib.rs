//! Tasks: sequential programs and mappings above the tile language.
//!
//! A task program says what is computed, in order, with no copies, barriers or roles. A mapping says where: which variant, on which
//! processor, in which memory. The system is that of *Task-Based Tensor Computations on Modern GPUs* (Cypress, PLDI 2025).

pub mod cut;
pub mod dsl;
mod emit;
pub mod environment;
pub mod graph;
pub mod instantiate;
pub mod interpret;
pub mod leaf;
pub mod mapping;
mod parser;
pub mod partition;
pub mod passes;
pub mod piece;
mod printer;
pub mod program;
pub mod resolve;
mod tree;
mod verify;

pub use emit::{emit, lower};
pub use environment::Environment;
pub use interpret::{Interpretation, interpret};
pub use mapping::{InstanceId, Mapping};
pub use parser::{parse, parse_file};
pub use program::{Program, TaskId, VariantId};
pub use tree::tree;
pub use verify::{entry_extents, verify};
