//! The measuring laboratory of Tilewright: contests of kernels that take turns ([`measure`]), cuBLASLt as a peer ([`cublaslt`]), the
//! microbenchmarks behind `tilewright calibrate` ([`calibrate`]), and the comparison of instruction rows with a GPU behind
//! `tilewright fidelity` ([`fidelity`]).
//!
//! Nothing here is needed to run a kernel: that is [`tilewright_runtime`].

pub mod calibrate;
pub mod cublaslt;
pub mod fidelity;
pub mod measure;
mod runner;

pub use runner::CudaRunner;
