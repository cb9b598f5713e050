//! Passes of the core program, done to surface programs.
#![allow(dead_code, reason = "each test file uses some of it")]

use tilewright_tile::core::{Program, build, verify};
use tilewright_tile::{Verified, unroll};

/// The surface program of a core program with this done to it.
pub fn through_core(v: &Verified, pass: impl Fn(&mut Program)) -> Verified {
    let mut program = build(&unroll(v).unwrap()).unwrap();
    pass(&mut program);
    verify(&program, "the test").unwrap();
    program.surface()
}

/// The program without what no instruction does.
pub fn desugar(v: &Verified) -> Verified {
    through_core(v, |program| _ = tilewright_tile::core::desugar(program))
}
