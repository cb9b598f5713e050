//! Packs that a build script makes: kernels are compiled with the program that launches them, which then has neither compiler nor PTX files of its own to ship.
//!
//! ```no_run
//! // build.rs
//! use tilewright_build::{Builder, Options};
//! use tilewright_machine::Arch;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     Builder::new()
//!         .file("kernels/scale.tile", &Options::new(Arch::SM_80))?
//!         .operator("gemm_hopper", &[("bm", "128")], &Options::new(Arch::SM_90A))?
//!         .write("kernels.twpack")?;
//!     Ok(())
//! }
//! ```
//!
//! The program has the pack by `include_kernels!(concat!(env!("OUT_DIR"), "/kernels.twpack"))` (`tilewright_twpack`). Cargo runs the script again where a file that was read has changed. `examples/packed` is such a
//! program.

mod again;
mod builder;

pub use again::{compiled_again, entry};
pub use builder::{BuildError, Builder};
pub use tilewright_compiler::Options;
