//! `tilewright lsp`: the language server.

use std::process::ExitCode;

use crate::messages::{Failure, error};

/// Serves the editor at standard input and output. The exit code is 0 where it has asked to shut down before it ended, else 1, as the
/// protocol has it.
pub fn lsp() -> Result<ExitCode, Failure> {
    match tilewright_lsp::serve_stdio() {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(1)),
        Err(e) => Err(Failure::program(error(e))),
    }
}
