//! `tilewright layout`: the calculator.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use tilewright::layout::calc::evaluate;

use crate::args::LayoutArgs;
use crate::messages::{Failure, error, print};

/// Evaluates one expression, or one a line from standard input.
pub fn layout(args: &LayoutArgs) -> Result<ExitCode, Failure> {
    if args.expression != "-" {
        return match evaluate(&args.expression) {
            Ok(value) => {
                print(&format!("{value}\n"))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(e) => Err(Failure::program(error(e))),
        };
    }
    let mut ok = true;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|e| Failure::program(error(format!("cannot read standard input: {e}"))))?;
        let written = match std::str::from_utf8(&line)
            .map_err(|e| e.to_string())
            .and_then(|l| evaluate(l).map_err(|e| e.to_string()))
        {
            Ok(value) => writeln!(out, "{value}"),
            Err(e) => {
                ok = false;
                writeln!(out, "error: {e}")
            }
        };
        if written.is_err() {
            break;
        }
    }
    let _ = out.flush();
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
