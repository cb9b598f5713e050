//! The tests of this crate, in one program: one is linked in place of 14, and their long tests run beside each other.

mod bounds;
mod common;
mod core;
mod double;
mod dsl;
mod errors;
mod foreign;
mod format;
mod interpret;
mod library;
mod lint;
mod recovery;
mod roles;
mod shapes;
mod text;
