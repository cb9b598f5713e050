//! The tests of this crate, in one program: one is linked in place of 28, and their long tests run beside each other.

mod attention;
mod attention_backward;
mod attention_decode;
mod attention_sm80;
mod attention_tcgen05;
mod common;
mod contraction;
mod conv_hopper;
mod core_text;
mod epilogue;
mod fp8_blocks;
mod fp8_groups;
mod hopper;
mod hopper_dual;
mod hopper_f32;
mod hopper_forms;
mod hopper_function;
mod hopper_gather;
mod hopper_sums;
mod model;
mod moe;
mod moe_layer;
mod operators;
mod page;
#[path = "common/product.rs"]
mod product;
mod scaled;
mod scatter;
mod sparse;
mod tcgen05;
mod text;
mod weights;
mod weights_groups;
mod weights_tcgen05;
mod workspaces;
