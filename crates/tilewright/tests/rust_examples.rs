//! The examples in Rust make the programs of the examples in text.

#![allow(dead_code)] // each example has a `main` of its own

use tilewright::prelude::*;

#[path = "../examples/gemm.rs"]
mod gemm;
#[path = "../examples/gemm_shared.rs"]
mod gemm_shared;
#[path = "../examples/transpose.rs"]
mod transpose;

#[test]
fn the_examples_in_rust_are_those_in_text() {
    let text = |source: &str| parse(source).unwrap();
    assert_eq!(gemm::program().unwrap(), text(include_str!("../../../examples/gemm.tile")));
    assert_eq!(gemm_shared::program().unwrap(), text(include_str!("../../../examples/gemm_shared.tile")));
    assert_eq!(transpose::program().unwrap(), text(include_str!("../../../examples/transpose.tile")));
}
