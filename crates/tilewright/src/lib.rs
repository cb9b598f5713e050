//! Tilewright compiles **tile programs** to GPU kernels.
//!
//! A tile program says what is computed on which tile, and in which memory each tile lives. Tilewright works out the
//! layout of every tensor in registers and shared memory, the instruction for every copy and every matrix product,
//! addresses, edges and waits; it explains its choices, runs the kernel on a GPU or on a simulated one, and emits PTX.
//!
//! # A first kernel
//!
//! `y = alpha · x + y` on vectors of any length, in Rust:
//!
//! ```
//! use tilewright::prelude::*;
//!
//! let mut k = KernelBuilder::new("axpy");
//! let n = k.size("n", 1000); //           a run-time size, with a default
//! let t = k.constant("T", 256); //        a tile constant, known when the kernel is compiled
//! let x = k.tensor("x", F32, [&n]);
//! let y = k.tensor("y", F32, [&n]);
//! let alpha = k.scalar("alpha", 2.0);
//! k.grid([n.ceil_div(&t)]);
//! k.threads(64);
//! let gx = k.global_view("gx", x.from([block_x() * &t]), [tile(0, &t)]);
//! let gy = k.global_view("gy", y.from([block_x() * &t]), [tile(0, &t)]);
//! let rx = k.register_tensor("rx", F32, [&t]);
//! let ry = k.register_tensor("ry", F32, [&t]);
//! k.copy(gx, rx);
//! k.copy(gy, ry);
//! let sum = k.define("sum", alpha * &rx + &ry);
//! k.copy(sum, gy);
//! let program = k.finish()?;
//!
//! // The same program as text; what is printed parses back to it.
//! assert_eq!(parse(&program.to_string())?, program);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Compiling it for `n = 1000` lets it rely on what 1000 is a multiple of (8), so its accesses are as wide as they can be
//! there; the edge is guarded. [`check`](check::check) runs the kernel on random inputs and compares it with the reference
//! interpreter, which defines what a program means:
//!
//! ```
//! # use tilewright::prelude::*;
//! # let program = parse("size n = 1000
//! #     const T = 256
//! #     kernel axpy(x: f32[n], y: f32[n], alpha: f32 = 2.0) grid(ceil_div(n, T)) threads(64) {
//! #         gx = global_view(x[block.x * T :], (T) : (e0))
//! #         gy = global_view(y[block.x * T :], (T) : (e0))
//! #         rx = register_tensor(f32, [T])
//! #         ry = register_tensor(f32, [T])
//! #         copy(gx, rx); copy(gy, ry)
//! #         sum = alpha * rx + ry
//! #         copy(sum, gy)
//! #     }")?;
//! let options = Options::new(Arch::SM_80).for_sizes(&program, &[("n", 1000)]);
//! let kernel = compile(&program, &options)?;
//! println!("{}", kernel.explanation); // layouts, instructions, and why
//! println!("{}", kernel.ptx); //         for any NVIDIA driver
//!
//! let device = open(DeviceChoice::Sim)?; // or Auto: a GPU if there is one
//! let outcome = check(&kernel, device.as_ref(), &CheckOptions::default())?;
//! assert!(outcome.is_right());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To run it on data of your own, allocate [`Tensor`](runtime::Tensor)s on a [`Device`](runtime::Device) and
//! [`launch`](runtime::Device::launch).
//!
//! # Where things are
//!
//! | module | what | feature |
//! | --- | --- | --- |
//! | [`layout`], [`layout_calc`] | layouts and their algebra; the calculator and pictures | |
//! | [`machine`] | element types, architectures, instruction rows | `compile` |
//! | [`tile`] | the language: program, text form, [Rust DSL](tile::dsl), verifier, interpreter | `compile` |
//! | [`task`], [`tasks`] | sequential programs and mappings above the language; runs of them by their interpreter | `compile`, `sim` |
//! | [`synth`] | synthesis and its [explanation](synth::Explanation) | `compile` |
//! | [`simt`], [`compiler`] | what one thread runs; the passes | `compile` |
//! | [`excerpts`] | messages beside the lines that they are about | `excerpts` |
//! | [`sim`], [`runtime`] | the simulated GPU; devices, buffers, launches that wait | `sim` |
//! | [`check`], [`candidates`], [`mutate`], [`sequence`] | kernels compared with the interpreter, and what else was possible | `sim` |
//! | [`kernels`] | operators as tile programs, with references and tuning spaces | `kernels` |
//! | [`mod@launch`], [`pack`] | launches on streams and in memory of others; kernels as files | `cuda` |
//! | [`cache`], [`build`] | compiled kernels that are kept; packs of build scripts | `cache`, `kernels` |
//! | [`ops`] | operators by views, on streams of others: chosen, compiled ahead of time, kept | `tune` |
//! | [`tune`], [`lab`] | the autotuner and its records; contests, cuBLASLt as a peer, microbenchmarks, fidelity to hardware | `tune` |
//!
//! All features are on by default. An engine that only launches kernels takes `default-features = false, features = ["cuda"]`, which has no
//! compiler; one that compiles when it starts takes `compile` too. The crates below this one are its parts: they have its version, and
//! what they offer beyond this list may change with any version.

#[cfg(feature = "sim")]
pub mod arrays;
#[cfg(feature = "sim")]
pub mod candidates;
#[cfg(feature = "sim")]
pub mod check;
#[cfg(feature = "sim")]
mod coordinate;
#[cfg(feature = "excerpts")]
pub mod excerpts;
#[cfg(feature = "sim")]
pub mod findings;
#[cfg(feature = "sim")]
pub mod input;
#[cfg(feature = "sim")]
mod memory;
#[cfg(feature = "sim")]
pub mod mutate;
#[cfg(feature = "sim")]
pub mod printed;
#[cfg(feature = "sim")]
pub mod sequence;
#[cfg(feature = "sim")]
pub mod tasks;

#[cfg(feature = "kernels")]
pub use tilewright_build as build;
#[cfg(feature = "cache")]
pub use tilewright_cache as cache;
#[cfg(feature = "compile")]
pub use tilewright_compiler as compiler;
#[cfg(feature = "kernels")]
pub use tilewright_kernels as kernels;
#[cfg(feature = "tune")]
pub use tilewright_lab as lab;
#[cfg(feature = "cuda")]
pub use tilewright_launch as launch;
pub use tilewright_layout as layout;
pub use tilewright_layout_calc as layout_calc;
#[cfg(feature = "compile")]
pub use tilewright_machine as machine;
#[cfg(feature = "tune")]
pub use tilewright_ops as ops;
#[cfg(feature = "sim")]
pub use tilewright_runtime as runtime;
#[cfg(feature = "sim")]
pub use tilewright_sim as sim;
#[cfg(feature = "compile")]
pub use tilewright_simt as simt;
#[cfg(feature = "compile")]
pub use tilewright_synth as synth;
#[cfg(feature = "compile")]
pub use tilewright_task as task;
#[cfg(feature = "compile")]
pub use tilewright_tile as tile;
#[cfg(feature = "tune")]
pub use tilewright_tune as tune;
#[cfg(feature = "cuda")]
pub use tilewright_twpack as pack;

/// Imports for a program that writes, compiles and runs kernels.
#[cfg(feature = "compile")]
pub mod prelude {
    #[cfg(feature = "sim")]
    pub use crate::check::{CheckOptions, Outcome, check};
    pub use tilewright_compiler::{Kernel, Options, compile};
    pub use tilewright_machine::Arch;
    pub use tilewright_machine::DType::{
        self, BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, I1, I2, I4, I8, I16, I32, I64, U1, U2, U4,
        U8, U16, U32, U64, UE4M3, UE8M0,
    };
    #[cfg(feature = "sim")]
    pub use tilewright_runtime::{
        Arg, Buffer, Device, DeviceChoice, LaunchOptions, LaunchReport, Sizes, Tensor, open,
    };
    pub use tilewright_tile::ReduceOp;
    pub use tilewright_tile::dsl::{
        KernelBuilder, asm, block_x, block_y, block_z, float, index, nested, steps, tile, where_,
    };
    pub use tilewright_tile::{Constants, Diagnostics, Program, parse};
}

#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../README.md")]
struct Readme;
