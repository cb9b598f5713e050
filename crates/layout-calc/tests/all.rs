//! The tests of this crate, in one program: one is linked in place of 4, and their long tests run beside each other.

mod calc;
mod calc_draw;
mod calc_linear;
mod common;
mod fuzzed;
