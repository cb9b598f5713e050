//! Tilewright's operators on one's own streams and memory.
//!
//! A [`Library`] chooses kernels for the sizes at hand, by records of what was measured, compiles and loads them once, and launches them by views of
//! memory that somebody else owns ([`tilewright_launch`]):
//!
//! ```no_run
//! # fn called(raw: *mut std::ffi::c_void, [a, b, c]: [u64; 3], [m, n, k]: [i64; 3]) -> Result<(), Box<dyn std::error::Error>> {
//! use tilewright_launch::{DType, Gpu, Stream, View, ViewMut};
//! use tilewright_ops::{Library, Problems};
//!
//! let gpu = Gpu::current()?; // the context that an engine has made current
//! let lib = Library::for_gpu(&gpu)?.strict(); // a call never compiles
//! let gemm = Problems::of("gemm").size("m", 1..=8192).size("n", n).size("k", k);
//! println!("{:?}", lib.warm_up(&gemm)?); // all kernels of that range, in parallel
//!
//! let stream = unsafe { Stream::borrow(raw) };
//! let a = unsafe { View::new(a, DType::F16, &[m, k]) };
//! let b = unsafe { View::new(b, DType::F16, &[n, k]) };
//! let mut c = unsafe { ViewMut::new(c, DType::F16, &[m, n]) };
//! lib.operator("gemm").arg("a", &a).arg("b", &b).arg("c", &mut c).run(stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! Every operator of `tilewright kernels` has the door [`Library::operator`]: its tensors and numbers are arguments by name, its parameters options. Sizes
//! follow from shapes, types and other options from the arguments, as far as a table of a few lines an operator says so.
//!
//! Kernels rely on what divides sizes only where it decides how memory is accessed: where rows begin, up to 16 bytes. So there are finitely many for a range of sizes
//! ([`Library::specialisations`]), whatever comes at run time.

mod base;
mod call;
mod class;
mod early;
mod error;
mod experts;
mod few;
mod kept;
mod library;
mod name;
mod packed;
mod problems;
mod rows;
mod sizes;
pub mod typed;
mod value;
mod why;
mod words;

pub use call::Call;
pub use early::Begin;
pub use error::OpsError;
pub use experts::{Experts, ExpertsCall};
pub use library::Library;
pub use problems::{Gemm, Problems, Span, Specialisation, Warm};
pub use tilewright_cache::Kernels;
pub use tilewright_kernels::epilogue::Part;
pub use tilewright_tune::{Origin, Store};
pub use value::Value;
pub use why::Why;
