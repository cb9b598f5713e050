//! The tests of this crate, in one program: one is linked in place of 16, and their long tests run beside each other.

mod common;
mod docs;
mod dsl;
mod emit;
mod events;
mod examples;
mod fit;
mod graphs;
mod mutated;
mod paper;
mod pieces;
mod place;
mod random;
mod retime;
mod round_trip;
mod space;
mod tree;
