//! The language server of tile programs, as `tilewright lsp` runs it (docs/editors.md): diagnostics, hover, completion, definitions, references,
//! symbols and formatting by the Language Server Protocol 3.17.
//!
//! Two things are known of a document. Its *outline* ([`outline`]) is made of its tokens alone, at every change: names, their scopes,
//! statements. Questions about names are answered by it, whether or not the text is a program. Its *analysis* ([`analysis`]) is what the
//! compiler finds, by [`check`](tilewright_compiler::check::check), as `tilewright check` does; a thread of its own makes it ([`worker`]), always of
//! the newest text. Diagnostics and hovers come from it.

pub mod actions;
pub mod analysis;
pub mod complete;
pub mod hover;
pub mod lines;
pub mod navigate;
pub mod outline;
pub mod paths;
pub mod publish;
pub mod reference;
pub mod scan;
pub mod server;
pub mod worker;

pub use server::{ServeError, serve, serve_stdio};
