//! The `tilewright` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tilewright_cli::command(std::env::args_os())
}
