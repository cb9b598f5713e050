//! `tilewright compile`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;
use tilewright::compiler::{Kernel, Options};
use tilewright::layout::{Layout, SwizzledLayout};
use tilewright::layout_calc::draw::Picture;
use tilewright::machine::DType;

use crate::args::{CompileArgs, Draw, Emit};
use crate::assembler::assembled;
use crate::load::{Loaded, load_all, module_of, timing};
use crate::messages::{Failure, error, print};
use crate::target::{Target, target_without_device};
use crate::tune_file::take_record;

/// Compiles a program and prints one of its forms.
pub fn compile(args: &CompileArgs) -> Result<ExitCode, Failure> {
    if args.json && !matches!(args.emit, Emit::Layouts | Emit::Report) {
        return Err(Failure::usage("--json goes with --emit layouts and --emit report"));
    }
    let mut all = load_all(&args.program)?;
    let target = target_without_device(&args.program, &all)?;
    target.say();
    take_record(&mut all, &target, args.program.defaults)?;
    let several = all.len() > 1;
    if several && (args.draw.is_some() || args.json || args.emit == Emit::Launch) {
        return Err(Failure::usage("--draw, --json and --emit launch take one kernel: add --kernel"));
    }
    let kernels = all.iter().map(|loaded| {
        let options = options(args, loaded, &all, &target)?;
        Ok((loaded.compile(&options)?, options))
    });
    let kernels: Vec<(Kernel, Options)> = kernels.collect::<Result<_, Failure>>()?;
    let texts =
        all.iter().zip(&kernels).map(|(loaded, (kernel, options))| form(args, loaded, kernel, options));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    if let (true, Some(path)) = (several, &args.output) {
        // A file for each kernel: `a.ptx` becomes `a.NAME.ptx`.
        for (loaded, text) in all.iter().zip(texts) {
            let extension = path.extension().map_or(String::new(), |e| format!(".{}", e.display()));
            let file =
                path.with_extension(format!("{}{extension}", loaded.program.name).trim_start_matches('.'));
            std::fs::write(&file, text).map_err(|e| crate::messages::cannot_write(&file, e))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let text = match args.emit {
        Emit::Tile if several => module_of(&all).to_string(),
        Emit::Ptx => Kernel::module(&kernels.iter().map(|(kernel, _)| kernel).collect::<Vec<_>>()),
        _ => texts.join("\n"),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).map_err(|e| {
            Failure::program(crate::messages::error(format!("cannot write `{}`: {e}", path.display())))
        })?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The options that a kernel is compiled with.
fn options(args: &CompileArgs, loaded: &Loaded, all: &[Loaded], target: &Target) -> Result<Options, Failure> {
    let mut options = loaded.options(target.arch);
    options.timing = timing(&args.program, target.arch)?;
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
            // A size of another kernel of the file; one that none has is refused where it is looked for.
            let elsewhere = |other: &Loaded| other.sizes.contains_key(name);
            if !elsewhere(loaded) && all.iter().any(elsewhere) {
                continue;
            }
            if options.multiples.insert(name.to_string(), multiple).is_some() {
                return Err(Failure::usage(format!("`--assume {given}`: `{name}` is given twice")));
            }
        }
    }
    Ok(options)
}

/// The form of a kernel that is asked for.
fn form(args: &CompileArgs, loaded: &Loaded, kernel: &Kernel, options: &Options) -> Result<String, Failure> {
    Ok(match args.emit {
        _ if args.draw.is_some() => drawn(kernel, args)?,
        Emit::Tile => loaded.program.to_string(),
        Emit::Core => kernel.core.to_string(),
        Emit::Passes => loaded.passes(options)?,
        Emit::Simt => kernel.function.to_string(),
        Emit::Ptx => kernel.ptx.clone(),
        Emit::Layouts | Emit::Report if args.json => {
            format!("{:#}\n", as_json(kernel, args.emit == Emit::Report))
        }
        Emit::Layouts => kernel.explanation.chosen().to_string(),
        Emit::Report => report(kernel),
        Emit::Launch => format!("{:#}\n", crate::launch::describe(kernel, &loaded.sizes)?),
    })
}

/// The picture of a tensor's layout.
fn drawn(kernel: &Kernel, args: &CompileArgs) -> Result<String, Failure> {
    let name = args.draw.as_deref().unwrap_or_default();
    let tensors = &kernel.explanation.tensors;
    let Some(tensor) = tensors.iter().find(|t| t.name == name) else {
        let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        return Err(Failure::program(error(format!(
            "the program has no register or shared tensor `{name}`; it has {}",
            names.join(", ")
        ))));
    };
    let refuse =
        |e: &dyn std::fmt::Display| Failure::program(error(format!("`{name}` cannot be drawn: {e}")));
    let picture = if tensor.memory == "register" {
        let layout: Layout = tensor.layout.parse().map_err(|e| refuse(&e))?;
        let rows = tensor.shape.first().copied().unwrap_or(1);
        let columns = tensor.shape.iter().skip(1).product();
        Picture::thread_values(&layout, (rows, columns)).map_err(|e| refuse(&e))?
    } else {
        let mut layout: SwizzledLayout = tensor.layout.parse().map_err(|e| refuse(&e))?;
        // Of a tensor with stages the first one.
        if layout.layout.rank() > 2 {
            let modes = layout.layout.modes();
            layout.layout = Layout::concat(&modes[..2]).map_err(|e| refuse(&e))?;
        }
        let dtype: DType = tensor.dtype.parse().map_err(|e| refuse(&e))?;
        Picture::banks(&layout, i64::from(dtype.bits())).map_err(|e| refuse(&e))?
    };
    Ok(match args.draw_as {
        Draw::Text => picture.text(),
        Draw::Svg => picture.svg(),
        Draw::Latex => picture.latex(),
    })
}

fn report(kernel: &Kernel) -> String {
    let mut text = String::new();
    let f = &kernel.function;
    let _ = writeln!(text, "kernel {} for {}, {} threads a block", f.name, f.arch, f.threads);
    for assumption in &kernel.assumptions {
        let _ = writeln!(text, "assumes {} % {} == 0", assumption.size, assumption.multiple);
    }
    let _ = write!(text, "{}", kernel.explanation);
    match assembled(kernel) {
        Some(Ok(found)) => drop(writeln!(text, "ptxas: {}", found.text())),
        Some(Err(reason)) => drop(writeln!(text, "ptxas: {reason}")),
        None => {}
    }
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
        value["ptxas"] = match assembled(kernel) {
            Some(Ok(found)) => found.json(),
            Some(Err(reason)) => json!({ "error": reason }),
            None => serde_json::Value::Null,
        };
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
