//! The tests of this crate, in one program: one is linked in place of 16, and their long tests run beside each other.

mod architectures;
mod bounds;
mod counts;
mod debugging;
mod hopper;
mod linear_tables;
mod movements;
mod mutation;
mod operators;
mod other_architecture;
mod packed;
mod pairs;
mod random_programs;
mod recipes;
mod rust_examples;
mod task_examples;
mod task_operators;
