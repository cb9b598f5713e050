//! Operators as tile programs. Each file is one operator: the program, built with the [Rust DSL](tilewright_tile::dsl); a
//! reference on the host; and the configurations worth trying (its *tuning space*).
//!
//! ```
//! use tilewright_kernels::gemm::GemmConfig;
//! use tilewright_machine::Arch;
//!
//! let config = GemmConfig { bm: 64, stages: 3, ..GemmConfig::default() };
//! assert_eq!(config.reject(Arch::SM_80), None);
//! println!("{}", config.program()?); // the same program as text
//!
//! // The instructions have 16 rows, which do not divide 100: the reason says what would be right.
//! let odd = GemmConfig { bm: 100, ..GemmConfig::default() };
//! assert!(odd.reject(Arch::SM_80).is_some_and(|reason| reason.contains("multiple of 16")));
//! # Ok::<(), tilewright_kernels::ConfigError>(())
//! ```
//!
//! [`OPERATORS`] lists them for tools, with their parameters by name.

pub mod attention;
pub mod attention_backward;
pub mod attention_decode;
mod config;
pub mod contraction;
pub mod conv_hopper;
pub mod epilogue;
mod estimate;
pub mod gemm;
pub mod gemm_fp8_blocks;
pub mod gemm_hopper;
pub mod gemm_weights;
mod interned;
pub mod model;
pub mod moe;
mod operators;
mod parts;
pub mod sparse;
pub mod text;
mod tiles;
mod tuning;
pub mod w4a16;
mod warp_specialized;
mod workspaces;

pub use config::{ConfigError, Parameter};
pub use operators::{MakePrograms, OPERATORS, Operator, operator};
pub use parts::{Estimate, Part, Resource, Steps};
pub use tiles::{Loads, Path};
pub use tuning::{
    Chip, ForProblem, Integers, Launch, OnChip, Point, Reject, SameProblem, SizeKind, Space, Tuning,
};
pub use workspaces::{Before, Workspace};
