//! The tests of this crate, in one program: one is linked in place of 13, and their long tests run beside each other.

mod codes;
mod command;
mod command_line;
mod common;
mod data;
mod fmt;
mod layout;
mod lsp;
mod pack;
mod repack;
mod several;
mod tasks;
mod tuning;
mod view;
