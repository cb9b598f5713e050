//! A stand-in for the CUDA driver, for tests on machines without a GPU: a shared library with the functions that `tilewright-launch` calls.
//!
//! It runs no kernel. It writes every call down, with the bytes of parameters as the driver would read them, keeps memory on the host, so that copies work, and
//! fails where a test says so. The library is built beside the tests that depend on this crate; [`StandIn`] finds it and reads what it wrote down.

#[allow(unsafe_code, reason = "these are functions of a C library")]
mod calls;
#[allow(unsafe_code, reason = "a library is loaded")]
mod handle;
mod state;

pub use handle::StandIn;
