//! The examples in Rust make the programs of the examples in text.

#![allow(dead_code)] // each example has a `main` of its own

use tilewright::prelude::*;

#[path = "../examples/epilogue.rs"]
mod epilogue;
#[path = "../examples/gemm.rs"]
mod gemm;
#[path = "../examples/gemm_shared.rs"]
mod gemm_shared;
#[path = "../examples/transpose.rs"]
mod transpose;

#[test]
fn an_epilogue_of_ones_own_is_right() {
    let program = epilogue::program().unwrap();
    for (m, n, k) in [(256, 256, 128), (100, 200, 72)] {
        let sizes = [("m", m), ("n", n), ("k", k)];
        let kernel = compile(&program, &Options::new(Arch::SM_90A).for_sizes(&program, &sizes)).unwrap();
        let device = open(DeviceChoice::Sim).unwrap();
        let sizes = sizes.map(|(name, size)| (name.to_string(), size)).into();
        let outcome =
            check(&kernel, device.as_ref(), &CheckOptions { sizes, ..CheckOptions::default() }).unwrap();
        assert!(outcome.is_right(), "{outcome:?}");
    }
}

#[test]
fn the_examples_in_rust_are_those_in_text() {
    let text = |source: &str| parse(source).unwrap();
    assert_eq!(gemm::program().unwrap(), text(include_str!("../../../examples/gemm.tile")));
    assert_eq!(gemm_shared::program().unwrap(), text(include_str!("../../../examples/gemm_shared.tile")));
    assert_eq!(transpose::program().unwrap(), text(include_str!("../../../examples/transpose.tile")));
}
