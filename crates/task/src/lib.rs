//! Tasks: sequential programs and mappings above the tile language.
//!
//! A task program says what is computed, in order, with no copies, barriers or roles. A mapping says where: which variant, on which
//! processor, in which memory. The system is that of *Task-Based Tensor Computations on Modern GPUs* (Cypress, PLDI 2025).

pub mod critical;
pub mod cut;
pub mod draw;
pub mod dsl;
mod emit;
pub mod environment;
mod fill;
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
pub mod space;
mod verify;

use tilewright_tile::{Constants, Diagnostics};

pub use emit::{emit, lower};
pub use environment::Environment;
pub use interpret::{Interpretation, interpret};
pub use mapping::{InstanceId, Mapping};
pub use parser::{parse, parse_file};
pub use program::{Program, TaskId, VariantId};
pub use verify::{entry_extents, verify};

/// Verifies a program, and makes the event graph of each of its mappings: everything that can be said about it before kernels are made.
///
/// # Errors
///
/// Those of [`verify`]; of a program that it finds right, those of [`passes::graph`].
pub fn check(program: &Program, constants: &Constants) -> Result<(), Diagnostics> {
    verify(program, constants)?;
    let refused = program.mappings.iter().filter_map(|mapping| passes::graph(program, mapping).err());
    let errors: Vec<_> = refused.flat_map(|errors| errors.0).collect();
    if errors.is_empty() { Ok(()) } else { Err(Diagnostics(errors)) }
}
