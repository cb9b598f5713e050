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
    let given = parameters(&args.params)?;
    let program = (operator.program)(&given).map_err(|error| match error {
        ConfigError::Program(_) => Failure::program(crate::messages::error(error)),
        _ => Failure::usage(error),
    })?;
    print(&program.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The parameters of a command line, `NAME=VALUE` each.
pub fn parameters(params: &[String]) -> Result<Vec<(&str, &str)>, Failure> {
    let mut given: Vec<(&str, &str)> = Vec::new();
    for param in params {
        let Some((name, value)) = param.split_once('=') else {
            return Err(Failure::usage(format!("`-p {param}` is not NAME=VALUE, e.g. `-p bm=64`")));
        };
        let (name, value) = (name.trim(), value.trim());
        if given.iter().any(|(other, _)| *other == name) {
            return Err(Failure::usage(format!("`-p {param}`: `{name}` is given twice")));
        }
        given.push((name, value));
    }
    Ok(given)
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
