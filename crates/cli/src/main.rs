//! The `tilewright` command.
//!
//! Results go to standard output, messages to standard error. Exit codes: 0 for success, 1 where a program is wrong, cannot
//! be compiled, or computes something else than the interpreter, 2 where the command line is wrong.

mod args;
mod assembler;
mod bench;
mod calibrate;
mod candidates;
mod compile;
mod data;
mod devices;
mod fidelity;
mod kernels;
mod launch;
mod layout;
mod load;
mod messages;
mod mutate;
mod outcome;
mod problems;
mod profile;
mod run;
mod seeds;
mod target;
mod tune;
mod tune_file;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use messages::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Compile(args) => compile::compile(&args),
        Command::Candidates(args) => candidates::list(&args),
        Command::Mutate(args) => mutate::mutate(&args),
        Command::Layout(args) => layout::layout(&args),
        Command::Kernels(args) => kernels::kernels(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Fidelity(args) => fidelity::fidelity(&args),
        Command::Bench(args) => bench::bench(&args),
    };
    match result {
        Ok(code) => code,
        Err(Failure { code, text }) => {
            anstream::eprintln!("{text}");
            ExitCode::from(code)
        }
    }
}
