//! Reading a program and the values given for its names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tilewright::compiler::{self, Dump, Kernel, MAX_EXTENT, Options, multiple_of};
use tilewright::machine::{Arch, Timing};
use tilewright::synth::{Ablation, Budget};
use tilewright::tile::{Constants, Diagnostics, ParamKind, Program, core, parse};

use crate::args::{ProgramArgs, Without};
use crate::messages::Failure;

/// A file longer than this is not a tile program.
const SIZE_LIMIT: u64 = 1 << 20;

/// A program with the values that the command line gives.
pub struct Loaded {
    /// The path, for messages.
    pub path: String,
    /// The text, for messages.
    pub source: String,
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

/// The program of a text, and the core program, if the text is one's.
fn parsed(source: &str) -> Result<(Program, Option<core::Program>), Diagnostics> {
    if !core::is_core_text(source) {
        return Ok((parse(source)?, None));
    }
    let program = core::parse(source)?;
    Ok((core::check(&program)?.program().clone(), Some(program)))
}

/// The values that the command line gives, by what they are for.
struct Values {
    constants: Constants,
    sizes: BTreeMap<String, i64>,
    scalars: BTreeMap<String, f64>,
}

/// Sorts the given values by what they are for; sizes and scalars that are not given have their defaults.
fn values(args: &ProgramArgs, program: &Program) -> Result<Values, Failure> {
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
    for given in &args.params {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::usage(format!("`-p {given}` is not NAME=VALUE, e.g. `-p m=512`")));
        };
        let (name, value) = (name.trim(), value.trim());
        if !seen.insert(name) {
            return Err(Failure::usage(format!("`-p {given}`: `{name}` is given twice")));
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

/// Reads and parses the program, and sorts the given values by what they are for.
pub fn load(args: &ProgramArgs) -> Result<Loaded, Failure> {
    let (path, source) = read(&args.file, "a tile program")?;
    let (program, core) = parsed(&source).map_err(|d| Failure::refused(&path, &source, &d))?;
    let Values { constants, sizes, scalars } = values(args, &program)?;
    if args.budget == 0 {
        return Err(Failure::usage("`--budget 0`: the search must look at 1 candidate at least"));
    }
    let search = Budget { solutions: args.budget, seed: args.search_seed, steps: args.steps };
    let without = Ablation {
        shared_layouts: args.without.contains(&Without::SharedLayouts),
        thread_values: args.without.contains(&Without::ThreadValues),
    };
    Ok(Loaded {
        path,
        source,
        program,
        core,
        constants,
        sizes,
        scalars,
        candidate: args.candidate,
        search,
        without,
    })
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
        let dumps = dumps.map_err(|d| Failure::refused(&self.path, &self.source, &d))?;
        Ok(dumps.iter().map(Dump::to_string).collect::<Vec<_>>().join("\n"))
    }

    /// Compiles, or says what is wrong with the program.
    pub fn compile(&self, options: &Options) -> Result<Kernel, Failure> {
        let kernel = match &self.core {
            Some(core) => compiler::compile_core(core, options),
            None => compiler::compile(&self.program, options),
        };
        kernel.map_err(|d| Failure::refused(&self.path, &self.source, &d))
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
