//! Tasks: sequential programs and mappings above the tile language.
//!
//! A task program says what is computed, in order, with no copies, barriers or roles. A mapping says where: which variant, on which
//! processor, in which memory. The system is that of *Task-Based Tensor Computations on Modern GPUs* (Cypress, PLDI 2025).

pub mod mapping;
pub mod partition;
pub mod piece;
pub mod program;

pub use mapping::{InstanceId, Mapping};
pub use program::{Program, TaskId, VariantId};
