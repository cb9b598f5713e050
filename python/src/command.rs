//! The command.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Runs the command `tilewright` with its words, the first of which is its name; its exit code. Once in a process.
#[pyfunction]
pub fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let code = py.detach(|| tilewright_cli::command(words));
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(1)
}
