//! Task programs (`*.task`): `tilewright tasks`, what `check` and `run` do with them, and the kernel that a mapping makes of them for all that takes
//! kernels.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use tilewright::machine::{DType, Elements, Number};
use tilewright::task::draw::svg;
use tilewright::task::instantiate::instantiate;
use tilewright::task::program::{FormalKind, SymbolKind};
use tilewright::task::{Mapping, Program, lower, parse_file, passes, verify};
use tilewright::tasks::{Output, TaskOptions, agree};
use tilewright::tile::{Diagnostics, Misread, Module, Program as TileProgram, Sources};

use crate::args::{RunArgs, TasksArgs, TasksEmit};
use crate::load::{Unloaded, read};
use crate::messages::{Failure, error, print};

/// True for the path of a task program.
pub fn is_task(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "task")
}

/// A task program with the values that the command line gives.
pub struct Loaded {
    /// The texts, for messages.
    pub sources: Sources,
    /// The program.
    pub program: Program,
    /// The values.
    pub options: TaskOptions,
}

/// Reads and verifies a task program.
///
/// # Errors
///
/// A file that cannot be read, a text that is wrong, values for names that it does not have.
pub fn load(file: &Path, params: &[String]) -> Result<Loaded, Unloaded> {
    let (path, text) = read(file, "a task program")?;
    let sources = Sources::new(&path, &text);
    let misread = |diagnostics: Diagnostics| Misread { diagnostics, sources: sources.clone() };
    let program = parse_file(&sources).map_err(misread)?;
    let options = values(&program, params)?;
    verify(&program, &options.constants).map_err(misread)?;
    Ok(Loaded { sources, program, options })
}

/// The kernels that a mapping makes of a task program.
pub struct Lowered {
    /// The texts, for messages.
    pub sources: Sources,
    /// The tile programs, in the order in which they run.
    pub programs: Vec<TileProgram>,
    /// The task program with its constants, and the mapping.
    pub mapping: (Program, Mapping),
    /// The given values that are not of constants: the tile programs have the sizes and the scalars.
    pub params: Vec<String>,
}

/// Reads a task program, and lowers it by the mapping of a name, or by the first.
///
/// # Errors
///
/// Those of [`load`], a mapping that the file does not have, and what has no tile program.
pub fn lowered(file: &Path, name: Option<&str>, params: &[String]) -> Result<Lowered, Unloaded> {
    let loaded = load(file, params)?;
    let mapping = mapping(&loaded, name)?;
    let tasks = loaded.program.with_constants(&loaded.options.constants);
    let misread = |diagnostics: Diagnostics| Misread { diagnostics, sources: loaded.sources.clone() };
    let programs = lower(&tasks, mapping).map_err(misread)?;
    let programs = programs.iter().map(|kernel| kernel.program().clone()).collect();
    let mapping = mapping.clone();
    let constant = |given: &&String| {
        let name = given.split_once('=').map_or("", |(name, _)| name.trim());
        loaded.options.constants.contains_key(name)
    };
    let params = params.iter().filter(|given| !constant(given)).cloned().collect();
    Ok(Lowered { sources: loaded.sources, programs, mapping: (tasks, mapping), params })
}

/// Sorts given values by what they are for.
fn values(program: &Program, params: &[String]) -> Result<TaskOptions, Failure> {
    let mut options = TaskOptions::default();
    let scalars: BTreeMap<&str, DType> = program
        .tasks
        .iter()
        .flat_map(|task| &task.formals)
        .filter_map(|formal| match formal.kind {
            FormalKind::Float(_) => Some((formal.name.as_str(), DType::F32)),
            FormalKind::Integer(_) => Some((formal.name.as_str(), DType::I32)),
            FormalKind::Tensor { .. } => None,
        })
        .collect();
    for given in params {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::usage(format!("`-p {given}` is not NAME=VALUE, e.g. `-p m=512`")));
        };
        let (name, value) = (name.trim(), value.trim());
        let kind = program.symbols.iter().find(|symbol| symbol.name == name).map(|symbol| &symbol.kind);
        let integer = || -> Result<i64, Failure> {
            value.parse().map_err(|_| Failure::usage(format!("`-p {given}`: `{value}` is no integer")))
        };
        match kind {
            Some(SymbolKind::Size(_)) => {
                options.sizes.insert(name.to_string(), integer()?);
            }
            Some(SymbolKind::Constant(_)) => {
                options.constants.insert(name.to_string(), integer()?);
            }
            _ => match scalars.get(name) {
                Some(DType::I32) => {
                    options.scalars.insert(name.to_string(), Number::Integer(integer()?.into()));
                }
                Some(_) => {
                    let number = value.parse::<f64>().ok().filter(|x| x.is_finite());
                    let number = number
                        .ok_or_else(|| Failure::usage(format!("`-p {given}`: `{value}` is no number")))?;
                    options.scalars.insert(name.to_string(), Number::Float(f64::from(number as f32)));
                }
                None => {
                    let names = |of: &dyn Fn(&SymbolKind) -> bool| {
                        let names = program.symbols.iter().filter(|symbol| of(&symbol.kind));
                        let names: Vec<&str> = names.map(|symbol| symbol.name.as_str()).collect();
                        if names.is_empty() { "none".to_string() } else { names.join(", ") }
                    };
                    return Err(Failure::usage(format!(
                        "`-p {given}`: the program has no `{name}`; its sizes are {}, its constants {}",
                        names(&|kind| matches!(kind, SymbolKind::Size(_))),
                        names(&|kind| matches!(kind, SymbolKind::Constant(_))),
                    )));
                }
            },
        }
    }
    Ok(options)
}

/// The mapping of a name; without a name the first.
fn mapping<'a>(loaded: &'a Loaded, name: Option<&str>) -> Result<&'a Mapping, Failure> {
    let mappings = &loaded.program.mappings;
    let names: Vec<&str> = mappings.iter().map(|mapping| mapping.name.as_str()).collect();
    match name {
        None => mappings.first().ok_or_else(|| {
            Failure::program_with(
                "the file has no mapping, without which nothing says which variants run",
                "add one: `mapping NAME for sm_90a { entry task.variant on host(global) }`",
            )
        }),
        Some(name) => mappings.iter().find(|mapping| mapping.name == name).ok_or_else(|| {
            let known = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            Failure::usage(format!("`--mapping {name}`: the file's mappings are {known}"))
        }),
    }
}

/// The lines of `tilewright check` for a right task program.
pub fn summary(loaded: &Loaded) -> String {
    let program = &loaded.program;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for mapping in &program.mappings {
        let entry = mapping.entry().map(|entry| program.instance_name(mapping.instance(entry)));
        table.add_row([
            format!("{} for {}", mapping.name, mapping.arch),
            format!("{} instances, from {}", mapping.instances.len(), entry.unwrap_or_default()),
        ]);
    }
    format!("{table}\n")
}

/// `tilewright tasks`: the trees of instances, or the event graphs that are made of them.
///
/// # Errors
///
/// Those of [`load`], a mapping that the file does not have, and what a graph refuses.
pub fn tasks(args: &TasksArgs) -> Result<ExitCode, Failure> {
    let loaded = load(&args.file, &args.params)?;
    let all: Vec<&Mapping> = match &args.mapping {
        Some(_) => vec![mapping(&loaded, args.mapping.as_deref())?],
        None => {
            mapping(&loaded, None)?;
            loaded.program.mappings.iter().collect()
        }
    };
    let mut texts = Vec::new();
    for mapping in all {
        let (program, named) = (&loaded.program, format!("{} for {}\n", mapping.name, mapping.arch));
        let text = match args.emit {
            TasksEmit::Tree => instantiate(program, mapping).map(|tree| tree.text(program, mapping)),
            TasksEmit::Events => passes::graph(program, mapping).map(|graph| named + &graph.text()),
            TasksEmit::Copies => {
                passes::graph(program, mapping).map(|graph| named + &graph.copies_text(program))
            }
            TasksEmit::Memory => passes::graph(program, mapping).map(|graph| named + &graph.memory_text()),
            TasksEmit::Svg => passes::graph(program, mapping).map(|graph| svg(program, mapping, &graph)),
            TasksEmit::Tile => {
                let program = program.with_constants(&loaded.options.constants);
                lower(&program, mapping).map(|kernels| {
                    let programs = kernels.iter().map(|kernel| kernel.program().clone()).collect();
                    format!("// {named}{}", Module::of(programs))
                })
            }
        };
        if args.emit == TasksEmit::Svg && loaded.program.mappings.len() > 1 && args.mapping.is_none() {
            let message = "a picture is of one mapping, and the file has several";
            return Err(Failure::usage_with(message, "name it: `--mapping NAME`"));
        }
        texts.push(text.map_err(|errors| Failure::refused(&loaded.sources, &errors))?);
    }
    print(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Lines of `tilewright run` on a task program, beside its kernel: the task interpreter, in two orders of the parallel iterations, and the interpreter of
/// the tile program, on the same inputs.
///
/// # Errors
///
/// Those of [`load`], what the program does that has no meaning, and results that differ.
pub fn agreement(args: &RunArgs) -> Result<String, Failure> {
    let loaded = load(&args.program.file, &args.program.params)?;
    let mapping = mapping(&loaded, args.program.mapping.as_deref())?;
    let refused = |errors: Diagnostics| Failure::refused(&loaded.sources, &errors);
    let kernels =
        lower(&loaded.program.with_constants(&loaded.options.constants), mapping).map_err(refused)?;
    let options = TaskOptions { seed: args.inputs.seed, ..loaded.options.clone() };
    let outputs = agree(&loaded.program, mapping, &kernels, &options).map_err(refused)?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for output in &outputs {
        table.add_row(row(output));
    }
    let entry = mapping.entry().map(|entry| loaded.program.instance_name(mapping.instance(entry)));
    let text = format!("{} by the mapping {}\n{table}\n", entry.unwrap_or_default(), mapping.name);
    if outputs.iter().any(|output| output.differ != 0) {
        return Err(Failure::program(
            text + &error("results depend on the order of the parallel iterations"),
        ));
    }
    if outputs.iter().any(|output| output.apart != Some(0)) {
        return Err(Failure::program(
            text + &error("the tile program has other results than the task interpreter"),
        ));
    }
    Ok(
        text + "the same bits by the task interpreter, in two orders of the parallel iterations, and by that of the tile program\n"
    )
}

/// The row of an output: its type, and the least and the greatest of its elements.
fn row(output: &Output) -> [String; 3] {
    let shape: Vec<String> = output.shape.iter().map(i64::to_string).collect();
    let range = match &output.elements {
        Elements::Floats(values) => {
            let numbers = || values.iter().copied().filter(|x| !x.is_nan());
            let (least, most) = (numbers().reduce(f64::min), numbers().reduce(f64::max));
            let nans = values.len() - numbers().count();
            let range =
                least.zip(most).map_or(String::new(), |(least, most)| format!("{least:.6} to {most:.6}"));
            if nans == 0 { range } else { format!("{range}, {nans} elements are not numbers") }
        }
        Elements::Integers(values) => {
            let range = values.iter().min().zip(values.iter().max());
            range.map_or(String::new(), |(least, most)| format!("{least} to {most}"))
        }
    };
    [output.name.clone(), format!("{}[{}]", output.dtype, shape.join(", ")), range]
}
