//! `tilewright kernels`.

use std::fmt::Write;
use std::process::ExitCode;

use tilewright::kernels::{ConfigError, OPERATORS, Parameter, operator};

use crate::args::KernelsArgs;
use crate::messages::{Failure, print};

/// Lists the operators, or prints the program of one.
pub fn kernels(args: &KernelsArgs) -> Result<ExitCode, Failure> {
    let Some(name) = &args.operator else {
        if !args.params.is_empty() || args.emit.is_some() {
            return Err(Failure::usage("-p and --emit go with an operator, e.g. `tilewright kernels gemm`"));
        }
        print(&list())?;
        return Ok(ExitCode::SUCCESS);
    };
    let operator = operator(name).map_err(Failure::usage)?;
    let mut given: Vec<(&str, &str)> = Vec::new();
    for param in &args.params {
        let Some((name, value)) = param.split_once('=') else {
            return Err(Failure::usage(format!("`-p {param}` is not NAME=VALUE, e.g. `-p bm=64`")));
        };
        let (name, value) = (name.trim(), value.trim());
        if given.iter().any(|(other, _)| *other == name) {
            return Err(Failure::usage(format!("`-p {param}`: `{name}` is given twice")));
        }
        given.push((name, value));
    }
    let programs = (operator.programs)(&given).map_err(|error| match error {
        ConfigError::Program(_) => Failure::program(crate::messages::error(error)),
        _ => Failure::usage(error),
    })?;
    let count = programs.len();
    let Some(program) = args.step.checked_sub(1).and_then(|at| programs.get(at)) else {
        let there = if count == 1 { "1 program" } else { &format!("{count} programs") };
        return Err(Failure::usage(format!(
            "`--step {}`: `{name}` is {there} with these parameters",
            args.step
        )));
    };
    print(&program.to_string())?;
    if count > 1 {
        anstream::eprintln!("program {} of {count}, which are launched in turn: see --step", args.step);
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let mut text = String::new();
    for operator in OPERATORS {
        let parameters = (operator.parameters)();
        let width = parameters.iter().map(|p| p.name.len()).max().unwrap_or(0);
        let defaults = parameters.iter().map(|p| p.default.len()).max().unwrap_or(0);
        let _ = writeln!(text, "{}: {} (since {})", operator.name, operator.about, operator.since);
        for Parameter { name, default, about } in parameters {
            let _ = writeln!(text, "  {name:<width$}  {default:<defaults$}  {about}");
        }
    }
    text
}
