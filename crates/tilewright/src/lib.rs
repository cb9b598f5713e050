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
//! | module | what |
//! | --- | --- |
//! | [`layout`], [`layout_calc`] | layouts and their algebra; the calculator and pictures |
//! | [`machine`] | element types, architectures, instruction rows |
//! | [`tile`] | the language: program, text form, [Rust DSL](tile::dsl), verifier, interpreter |
//! | [`task`], [`tasks`] | sequential programs and mappings above the language; runs of them by their interpreter |
//! | [`synth`] | synthesis and its [explanation](synth::Explanation) |
//! | [`simt`], [`sim`] | what one thread runs; the simulated GPU |
//! | [`compiler`], [`runtime`] | the passes; devices, buffers, launches |
//! | [`mod@launch`], [`pack`] | launches on one's own streams; kernels as files |
//! | [`cache`], [`build`] | compiled kernels that are kept; packs of build scripts |
//! | [`lab`] | contests, cuBLASLt as a peer, microbenchmarks, fidelity to hardware |
//! | [`kernels`] | operators as tile programs, with references and tuning spaces |
//! | [`tune`] | the autotuner and its records |

pub mod arrays;
pub mod candidates;
pub mod check;
mod coordinate;
pub mod findings;
pub mod input;
mod memory;
pub mod mutate;
pub mod printed;
pub mod sequence;
pub mod tasks;

pub use tilewright_build as build;
pub use tilewright_cache as cache;
pub use tilewright_compiler as compiler;
pub use tilewright_kernels as kernels;
pub use tilewright_lab as lab;
pub use tilewright_launch as launch;
pub use tilewright_layout as layout;
pub use tilewright_layout_calc as layout_calc;
pub use tilewright_machine as machine;
pub use tilewright_pack as pack;
pub use tilewright_runtime as runtime;
pub use tilewright_sim as sim;
pub use tilewright_simt as simt;
pub use tilewright_synth as synth;
pub use tilewright_task as task;
pub use tilewright_tile as tile;
pub use tilewright_tune as tune;

/// Imports for a program that writes, compiles and runs kernels.
pub mod prelude {
    pub use crate::check::{CheckOptions, Outcome, check};
    pub use tilewright_compiler::{Kernel, Options, compile};
    pub use tilewright_machine::Arch;
    pub use tilewright_machine::DType::{
        self, BF16, E4M3, E5M2, F16, F32, I1, I2, I4, I8, I32, U1, U2, U4, U8,
    };
    pub use tilewright_runtime::{Arg, Device, DeviceChoice, LaunchReport, Sizes, Tensor, open};
    pub use tilewright_tile::dsl::{
        KernelBuilder, asm, block_x, block_y, block_z, float, index, nested, steps, tile, where_,
    };
    pub use tilewright_tile::{Constants, Diagnostics, Program, parse};
}
