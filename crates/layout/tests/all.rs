//! The tests of this crate, in one program: one is linked in place of 8, and their long tests run beside each other.

mod conversions;
mod laws;
mod laws_paper;
mod linear_laws;
mod linear_paper;
mod paper;
mod paper_algebra;
mod paper_representation;
