//! Reading a program and the values given for its names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tilewright::compiler::{self, Dump, Kernel, MAX_EXTENT, Options, multiple_of};
use tilewright::machine::{Arch, Timing};
use tilewright::synth::{Ablation, Budget};
use tilewright::tile::{Constants, Module, ParamKind, Program, Sources, core, parse_module, read_beside};

use crate::args::{ProgramArgs, Without};
use crate::messages::Failure;

/// A file longer than this is not a tile program.
const SIZE_LIMIT: u64 = 1 << 20;

/// A program with the values that the command line gives.
pub struct Loaded {
    /// The path that was given.
    pub path: String,
    /// The texts, for messages.
    pub sources: Sources,
    /// The program; of the text of a core program, the surface program that says the same.
    pub program: Program,
    /// The core program that the text is.
    pub core: Option<core::Program>,
    /// Values for tile constants.
    pub constants: Constants,
    /// The value of every size.
    pub sizes: BTreeMap<String, i64>,
    /// The value of every scalar parameter, in order.
    pub scalars: BTreeMap<String, f64>,
    /// The candidate that was asked for.
    pub candidate: Option<usize>,
    /// The budget of the search.
    pub search: Budget,
    /// Parts of synthesis to leave out.
    pub without: Ablation,
}

/// The text of a file, or of standard input for `-`; `what` it should be is for messages.
fn read(file: &Path, what: &str) -> Result<(String, String), Failure> {
    let path = file.display().to_string();
    let mut bytes = Vec::new();
    let failed =
        |e: std::io::Error| Failure::program(crate::messages::error(format!("cannot read `{path}`: {e}")));
    if path == "-" {
        std::io::stdin().take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > SIZE_LIMIT {
        let text = format!("`{path}` is larger than 1 MiB: it is not {what}");
        return Err(Failure::program(crate::messages::error(text)));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((path, text)),
        Err(e) => {
            let at = e.utf8_error().valid_up_to();
            let text = format!("`{path}` is not a text file: byte {at} is not UTF-8");
            Err(Failure::program(crate::messages::error(text)))
        }
    }
}

/// The programs of a text, and the core program, if the text is one's.
fn parsed(path: &str, source: &str) -> Result<(Vec<Program>, Option<core::Program>, Sources), Failure> {
    let sources = Sources::new(path, source);
    if !core::is_core_text(source) {
        let module = parse_module(sources, &mut read_beside);
        let Module { programs, sources } =
            module.map_err(|wrong| Failure::refused(&wrong.sources, &wrong.diagnostics))?;
        return Ok((programs, None, sources));
    }
    let read =
        core::parse(source).and_then(|program| Ok((core::check(&program)?.program().clone(), program)));
    let (surface, program) = read.map_err(|d| Failure::refused(&sources, &d))?;
    Ok((vec![surface], Some(program), sources))
}

/// The values that the command line gives, by what they are for.
struct Values {
    constants: Constants,
    sizes: BTreeMap<String, i64>,
    scalars: BTreeMap<String, f64>,
}

/// True if a program has a size, a constant or a scalar of this name.
fn has(program: &Program, name: &str) -> bool {
    program.sizes().any(|(_, s, _)| s.name == name)
        || program.constants().any(|(_, s, _)| s.name == name)
        || program.params.iter().any(|p| p.name == name && matches!(p.kind, ParamKind::Scalar { .. }))
}

/// Sorts the given values by what they are for; sizes and scalars that are not given have their defaults. Values of another of the
/// kernels are left out.
fn values(params: &[String], program: &Program, kernels: &[Program]) -> Result<Values, Failure> {
    let mut constants = Constants::new();
    let mut sizes: BTreeMap<String, i64> =
        program.sizes().map(|(_, s, default)| (s.name.clone(), default)).collect();
    let mut scalars: BTreeMap<String, f64> = program
        .params
        .iter()
        .filter_map(|p| match p.kind {
            ParamKind::Scalar { default } => Some((p.name.clone(), default)),
            ParamKind::Tensor { .. } => None,
        })
        .collect();
    let mut seen = BTreeSet::new();
    for given in params {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::usage(format!("`-p {given}` is not NAME=VALUE, e.g. `-p m=512`")));
        };
        let (name, value) = (name.trim(), value.trim());
        if !seen.insert(name) {
            return Err(Failure::usage(format!("`-p {given}`: `{name}` is given twice")));
        }
        if !has(program, name) && kernels.iter().any(|other| has(other, name)) {
            continue;
        }
        if let Some(param) = program.params.iter().find(|p| p.name == name && p.is_integer()) {
            let (low, high) = param.dtype.range().unwrap_or((0, 0));
            let integer = value.parse().ok().filter(|x: &i64| (low..=high).contains(x)).ok_or_else(|| {
                Failure::usage(format!(
                    "`-p {given}`: `{name}` is a parameter of type {}, and `{value}` is no integer from {low} to {high}",
                    param.dtype
                ))
            })?;
            scalars.insert(name.to_string(), integer as f64);
            continue;
        }
        if let Some(scalar) = scalars.get_mut(name) {
            *scalar = value.parse().ok().filter(|x: &f64| (*x as f32).is_finite()).ok_or_else(|| {
                Failure::usage(format!(
                    "`-p {given}`: `{name}` is a scalar parameter, and `{value}` is not a number of its range"
                ))
            })?;
            continue;
        }
        let is_size = sizes.contains_key(name);
        let is_constant = program.constants().any(|(_, s, _)| s.name == name);
        if !is_size && !is_constant {
            let list =
                |names: Vec<&str>| if names.is_empty() { "none".to_string() } else { names.join(", ") };
            return Err(Failure::usage(format!(
                "`-p {given}`: the program has no `{name}`; its sizes are {}, its constants {}, its scalars {}",
                list(sizes.keys().map(String::as_str).collect()),
                list(program.constants().map(|(_, s, _)| s.name.as_str()).collect()),
                list(scalars.keys().map(String::as_str).collect()),
            )));
        }
        let kind = if is_size { "size" } else { "tile constant" };
        let number: i64 = value.parse().map_err(|_| {
            Failure::usage(format!("`-p {given}`: `{name}` is a {kind}, and `{value}` is not an integer"))
        })?;
        if is_size && number < 1 {
            return Err(Failure::usage(format!("`-p {given}`: the {kind} `{name}` must be at least 1")));
        }
        if number > MAX_EXTENT {
            return Err(Failure::usage(format!(
                "`-p {given}`: the {kind} `{name}` must be at most {}",
                MAX_EXTENT
            )));
        }
        if is_size {
            sizes.insert(name.to_string(), number);
        } else {
            constants.insert(name.to_string(), number);
        }
    }
    Ok(Values { constants, sizes, scalars })
}

/// Reads and parses the kernels of a file, and sorts the given values by what they are for: all of them in the order in which they run, or the one
/// that is asked for.
pub fn load_all(args: &ProgramArgs) -> Result<Vec<Loaded>, Failure> {
    if args.budget == 0 {
        return Err(Failure::usage("`--budget 0`: the search must look at 1 candidate at least"));
    }
    let mut all = load_file(&args.file, args.kernel.as_deref(), &args.params)?;
    for loaded in &mut all {
        loaded.candidate = args.candidate;
        loaded.search = Budget { solutions: args.budget, seed: args.search_seed, steps: args.steps };
        loaded.without = Ablation {
            shared_layouts: args.without.contains(&Without::SharedLayouts),
            thread_values: args.without.contains(&Without::ThreadValues),
        };
    }
    Ok(all)
}

/// The kernels of a file, or the one of a name, with values for names.
pub fn load_file(file: &Path, kernel: Option<&str>, params: &[String]) -> Result<Vec<Loaded>, Failure> {
    let (path, source) = read(file, "a tile program")?;
    let (mut programs, core, sources) = parsed(&path, &source)?;
    if let Some(name) = kernel {
        let known: Vec<&str> = programs.iter().map(|p| p.name.as_str()).collect();
        let Some(i) = known.iter().position(|known| *known == name) else {
            let text = format!("`--kernel {name}`: `{path}` has {}", known.join(", "));
            return Err(Failure::usage(text));
        };
        programs = vec![programs.swap_remove(i)];
    }
    let defaults = Options::new(Arch::SM_80);
    let one = |program: &Program| {
        let Values { constants, sizes, scalars } = values(params, program, &programs)?;
        Ok(Loaded {
            path: path.clone(),
            sources: sources.clone(),
            program: program.clone(),
            core: core.clone(),
            constants,
            sizes,
            scalars,
            candidate: None,
            search: defaults.budget,
            without: defaults.without,
        })
    };
    programs.iter().map(one).collect()
}

/// The kernels of a file as one module.
pub fn module_of(all: &[Loaded]) -> Module {
    Module {
        programs: all.iter().map(|loaded| loaded.program.clone()).collect(),
        sources: all.first().map_or_else(Sources::default, |loaded| loaded.sources.clone()),
    }
}

/// [`load_all`] for a command that takes one kernel.
pub fn load(args: &ProgramArgs) -> Result<Loaded, Failure> {
    let mut kernels = load_all(args)?;
    let names: Vec<&str> = kernels.iter().map(|loaded| loaded.program.name.as_str()).collect();
    match names.as_slice() {
        [_] => Ok(kernels.remove(0)),
        several => Err(Failure::usage(format!(
            "`{}` has {} kernels, and this takes one: add --kernel with one of {}",
            args.file.display(),
            several.len(),
            several.join(", ")
        ))),
    }
}

/// The table named on the command line, completed by the built-in one. It must be one of `arch`.
pub fn timing(args: &ProgramArgs, arch: Arch) -> Result<Option<Arc<Timing>>, Failure> {
    let Some(file) = &args.timing else { return Ok(None) };
    let (shown, text) = read(file, "a timing table")?;
    let table: Timing = text.parse().map_err(|e| Failure::usage(format!("`--timing {shown}`: {e}")))?;
    if table.arch != arch {
        return Err(Failure::usage(format!(
            "`--timing {shown}` is a table of {}; the program is compiled for {arch} (see --arch)",
            table.arch
        )));
    }
    Ok(Some(Arc::new(table.completed())))
}

impl Loaded {
    /// Options to compile for these very sizes.
    pub fn options(&self, arch: Arch) -> Options {
        let multiples = self.sizes.iter().map(|(name, value)| (name.clone(), multiple_of(*value))).collect();
        let mut options = Options::new(arch);
        options.constants = self.constants.clone();
        options.multiples = multiples;
        options.sizes = self.sizes.clone();
        options.candidate = self.candidate;
        options.without = self.without;
        options.budget = self.search;
        options
    }

    /// The core program after each of its passes, as text.
    pub fn passes(&self, options: &Options) -> Result<String, Failure> {
        let dumps = match &self.core {
            Some(core) => compiler::core_dumps(core, options),
            None => compiler::dumps(&self.program, options),
        };
        let dumps = dumps.map_err(|d| Failure::refused(&self.sources, &d))?;
        Ok(dumps.iter().map(Dump::to_string).collect::<Vec<_>>().join("\n"))
    }

    /// Compiles, or says what is wrong with the program.
    pub fn compile(&self, options: &Options) -> Result<Kernel, Failure> {
        let kernel = match &self.core {
            Some(core) => compiler::compile_core(core, options),
            None => compiler::compile(&self.program, options),
        };
        kernel.map_err(|d| Failure::refused(&self.sources, &d))
    }

    /// The tile program, for a command that takes no other.
    pub fn tile_program(&self, command: &str) -> Result<&Program, Failure> {
        match self.core {
            None => Ok(&self.program),
            Some(_) => Err(Failure::usage(format!(
                "`{}` is the text of a core program, and `tilewright {command}` takes a tile program; `compile` and `run` take both",
                self.path
            ))),
        }
    }
}
