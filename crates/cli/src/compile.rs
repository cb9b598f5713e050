//! `tilewright compile`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;
use tilewright::compiler::Kernel;
use tilewright::machine::Arch;

use crate::args::{CompileArgs, Emit};
use crate::load::{arch, load, timing};
use crate::messages::{Failure, print};

/// Compiles a program and prints one of its forms.
pub fn compile(args: &CompileArgs) -> Result<ExitCode, Failure> {
    let arch = arch(&args.program, Arch::Sm80)?;
    if args.json && !matches!(args.emit, Emit::Layouts | Emit::Report) {
        return Err(Failure::usage("--json goes with --emit layouts and --emit report"));
    }
    let loaded = load(&args.program)?;
    let mut options = loaded.options(arch);
    options.timing = timing(&args.program, arch)?;
    if !args.assume.is_empty() {
        options.multiples.clear();
        for given in &args.assume {
            let parsed = given
                .split_once('=')
                .and_then(|(name, n)| Some((name.trim(), n.trim().parse::<i64>().ok()?)));
            let Some((name, multiple)) = parsed else {
                return Err(Failure::usage(format!(
                    "`--assume {given}` is not SIZE=MULTIPLE, e.g. `--assume k=16`"
                )));
            };
            if options.multiples.insert(name.to_string(), multiple).is_some() {
                return Err(Failure::usage(format!("`--assume {given}`: `{name}` is given twice")));
            }
        }
    }
    let kernel = loaded.compile(&options)?;
    let text = match args.emit {
        Emit::Tile => loaded.program.to_string(),
        Emit::Simt => kernel.function.to_string(),
        Emit::Ptx => kernel.ptx.clone(),
        Emit::Layouts | Emit::Report if args.json => {
            format!("{:#}\n", as_json(&kernel, args.emit == Emit::Report))
        }
        Emit::Layouts => kernel.explanation.chosen().to_string(),
        Emit::Report => report(&kernel),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).map_err(|e| {
            Failure::program(crate::messages::error(format!("cannot write `{}`: {e}", path.display())))
        })?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn report(kernel: &Kernel) -> String {
    let mut text = String::new();
    let f = &kernel.function;
    let _ = writeln!(text, "kernel {} for {}, {} threads a block", f.name, f.arch, f.threads);
    for assumption in &kernel.assumptions {
        let _ = writeln!(text, "assumes {} % {} == 0", assumption.size, assumption.multiple);
    }
    let _ = write!(text, "{}", kernel.explanation);
    let total: f64 = kernel.times.iter().map(|t| t.time.as_secs_f64() * 1e3).sum();
    let passes: Vec<String> =
        kernel.times.iter().map(|t| format!("{} {:.2}", t.name, t.time.as_secs_f64() * 1e3)).collect();
    let _ = writeln!(text, "compiled in {total:.2} ms: {}", passes.join(", "));
    text
}

fn as_json(kernel: &Kernel, all: bool) -> serde_json::Value {
    let mut value = json!(kernel.explanation);
    if all {
        value["kernel"] = json!(kernel.function.name);
        value["arch"] = json!(kernel.function.arch.to_string());
        value["threads"] = json!(kernel.function.threads);
        value["assumptions"] = kernel
            .assumptions
            .iter()
            .map(|a| json!({ "size": a.size, "multiple": a.multiple }))
            .collect::<Vec<_>>()
            .into();
        value["compile_ms"] = kernel
            .times
            .iter()
            .map(|t| json!({ "pass": t.name, "ms": t.time.as_secs_f64() * 1e3 }))
            .collect::<Vec<_>>()
            .into();
    }
    value
}
