//! The `tilewright` command, as a function: the program calls it (`bin/tilewright.rs`), and the Python package.
//!
//! Results go to standard output, messages to standard error. Exit codes: 0 for success, 1 where a program is wrong, cannot
//! be compiled, or computes something else than the interpreter, 2 where the command line is wrong.

mod args;
mod assembler;
mod bench;
mod calibrate;
mod candidates;
mod check;
mod compile;
mod data;
mod device;
mod devices;
mod explain;
mod fidelity;
mod fmt;
mod kernels;
mod launch;
mod layout;
mod load;
mod lsp;
mod messages;
mod mutate;
mod outcome;
mod pack;
mod patience;
mod places;
mod profile;
mod records;
mod repack;
mod run;
mod seeds;
mod target;
mod tasks;
mod tune;
mod tune_file;
mod usage;
mod view;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Command;
use messages::Failure;

/// Runs the command with its words, the first of which is its name, once in a process.
pub fn command(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let code = match usage::parse(words.into_iter().collect()).and_then(|cli| run(cli.command)) {
        Ok(code) => code,
        Err(Failure { code, text }) => {
            anstream::eprintln!("{text}");
            ExitCode::from(code)
        }
    };
    if let Some(hint) = explain::hint(&messages::rendered()) {
        messages::note(hint);
    }
    code
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Compile(args) => compile::compile(&args),
        Command::Check(args) => check::check(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Lsp(_) => lsp::lsp(),
        Command::View(args) => view::view(&args),
        Command::Fmt(args) => fmt::fmt(&args),
        Command::Candidates(args) => candidates::list(&args),
        Command::Mutate(args) => mutate::mutate(&args),
        Command::Tasks(args) => tasks::tasks(&args),
        Command::Layout(args) => layout::layout(&args),
        Command::Kernels(args) => kernels::kernels(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Records(args) => records::records(&args),
        Command::Repack(args) => repack::repack(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Fidelity(args) => fidelity::fidelity(&args),
        Command::Bench(args) => bench::bench(&args),
    }
}
