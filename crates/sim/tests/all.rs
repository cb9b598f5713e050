//! The tests of this crate, in one program: one is linked in place of 17, and their long tests run beside each other.

mod common;
mod control;
mod gather;
mod gemm;
mod hopper_copies;
mod hopper_multicast;
mod hopper_products;
mod hopper_sync;
mod im2col;
mod launch_control;
mod launches;
mod left_factor;
mod matrix;
mod reference;
mod sanitizer;
mod shared;
mod tensor_memory;
mod tensor_pair_scales;
mod tensor_pairs;
mod tensor_scales;
mod tensor_sparse;
mod words;
