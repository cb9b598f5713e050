//! Reading a program and the values given for its names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tilewright::compiler::{self, Dump, Kernel, LineInfo, MAX_EXTENT, Options, multiple_of};
use tilewright::machine::{Arch, DType, Number, Timing};
use tilewright::synth::{Ablation, Budget};
use tilewright::task::{Mapping, Program as Tasks};
use tilewright::tile::{
    Constants, Diagnostics, Misread, Module, Param, ParamKind, Program, Sources, core, decoded, nearest,
    parse_module, read_beside,
};

use crate::args::{ProgramArgs, Without};
use crate::messages::Failure;
use crate::tasks::{is_task, lowered};

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
    /// The task program, with its constants, and the mapping that the program is made by.
    pub mapping: Option<(Tasks, Mapping)>,
    /// Values for tile constants.
    pub constants: Constants,
    /// The value of every size.
    pub sizes: BTreeMap<String, i64>,
    /// The value of every scalar parameter, in order.
    pub scalars: BTreeMap<String, Number>,
    /// The candidate that was asked for.
    pub candidate: Option<usize>,
    /// The budget of the search.
    pub search: Budget,
    /// Parts of synthesis to leave out.
    pub without: Ablation,
    /// The PTX text has no source lines.
    pub no_lines: bool,
    /// The PTX text keeps assertions and prints.
    pub debug: bool,
}

/// The text of a file, or of standard input for `-`; `what` it should be is for messages.
pub fn read(file: &Path, what: &str) -> Result<(String, String), Failure> {
    let path = file.display().to_string();
    let mut bytes = Vec::new();
    let failed = |e: std::io::Error| cannot_read(file, &e);
    if file.is_dir() {
        return Err(folder(file, what));
    }
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
    let text = decoded(&path, bytes).map_err(|(message, help)| Failure::program_with(message, help))?;
    Ok((path, text))
}

/// The names of the files of a folder, in order.
fn files_of(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The refusal of a folder.
fn folder(path: &Path, what: &str) -> Failure {
    let message = format!("`{}` is a folder; this takes a file: {what}", path.display());
    let shown = path.display().to_string();
    let shown = shown.trim_end_matches('/');
    let programs: Vec<String> = files_of(path).into_iter().filter(|name| name.ends_with(".tile")).collect();
    match programs.first() {
        Some(first) => Failure::program_with(
            message,
            format!(
                "one of its {} programs, `{shown}/{first}`; all of them: `for f in {shown}/*.tile; do tilewright run $f; done`, and \
                 `tilewright check {shown}/*.tile` without a run",
                programs.len()
            ),
        ),
        None => Failure::program_with(message, "name a file, or `-` for standard input"),
    }
}

/// The refusal of a file that cannot be read, with the name that is nearest to it in its folder.
fn cannot_read(path: &Path, e: &std::io::Error) -> Failure {
    let message = format!("cannot read `{}`: {e}", path.display());
    if e.kind() != std::io::ErrorKind::NotFound {
        return Failure::program(crate::messages::error(message));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Failure::program_with(message, format!("there is no folder `{}`", folder.display()));
    }
    let names = files_of(folder);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let shown = |name: &str| parent.map_or(Path::new(name).to_path_buf(), |parent| parent.join(name));
    match nearest(&name, names.iter().map(String::as_str)) {
        Some(near) => Failure::program_with(message, format!("did you mean `{}`?", shown(near).display())),
        None => {
            let mut programs: Vec<&str> =
                names.iter().map(String::as_str).filter(|name| name.ends_with(".tile")).collect();
            let more = if programs.len() > 8 { ", …" } else { "" };
            programs.truncate(8);
            match programs.is_empty() {
                true => Failure::program_with(
                    message,
                    format!("`{}` has no programs (`*.tile`)", folder.display()),
                ),
                false => Failure::program_with(
                    message,
                    format!("the programs in `{}` are {}{more}", folder.display(), programs.join(", ")),
                ),
            }
        }
    }
}

/// A file whose kernels are not loaded: its text is wrong, or the command is.
pub enum Unloaded {
    /// The text is wrong.
    Misread(Misread),
    /// The file cannot be read, or the command line does not fit to it.
    Failed(Failure),
}

impl From<Misread> for Unloaded {
    fn from(misread: Misread) -> Self {
        Unloaded::Misread(misread)
    }
}

impl From<Failure> for Unloaded {
    fn from(failure: Failure) -> Self {
        Unloaded::Failed(failure)
    }
}

impl From<Unloaded> for Failure {
    fn from(unloaded: Unloaded) -> Self {
        match unloaded {
            Unloaded::Misread(wrong) => Failure::refused(&wrong.sources, &wrong.diagnostics),
            Unloaded::Failed(failure) => failure,
        }
    }
}

/// The programs of a text, and the core program, if the text is one's.
fn parsed(path: &str, source: &str) -> Result<(Vec<Program>, Option<core::Program>, Sources), Misread> {
    let sources = Sources::new(path, source);
    if !core::is_core_text(source) {
        let Module { programs, sources } = parse_module(sources, &mut read_beside)?;
        return Ok((programs, None, sources));
    }
    let read =
        core::parse(source).and_then(|program| Ok((core::check(&program)?.program().clone(), program)));
    match read {
        Ok((surface, program)) => Ok((vec![surface], Some(program), sources)),
        Err(diagnostics) => Err(Misread { diagnostics, sources }),
    }
}

/// The values that the command line gives, by what they are for.
struct Values {
    constants: Constants,
    sizes: BTreeMap<String, i64>,
    scalars: BTreeMap<String, Number>,
}

/// True if a program has a size, a constant or a scalar of this name.
fn has(program: &Program, name: &str) -> bool {
    program.sizes().any(|(_, s, _)| s.name == name)
        || program.constants().any(|(_, s, _)| s.name == name)
        || program.params.iter().any(|p| p.name == name && matches!(p.kind, ParamKind::Scalar { .. }))
}

/// The message that no kernel has a size, a constant or a scalar of this name.
fn unknown(given: &str, name: &str, kernels: &[Program]) -> String {
    let list = |of: &dyn Fn(&Program) -> Vec<String>| {
        let mut names: Vec<String> = Vec::new();
        for name in kernels.iter().flat_map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "none".to_string() } else { names.join(", ") }
    };
    let scalar = |p: &&Param| matches!(p.kind, ParamKind::Scalar { .. });
    format!(
        "`-p {given}`: {} no `{name}`; its sizes are {}, its constants {}, its scalars {}",
        if kernels.len() > 1 { "the file has" } else { "the program has" },
        list(&|program| program.sizes().map(|(_, s, _)| s.name.clone()).collect()),
        list(&|program| program.constants().map(|(_, s, _)| s.name.clone()).collect()),
        list(&|program| program.params.iter().filter(scalar).map(|p| p.name.clone()).collect()),
    )
}

/// `-p m=64 -p n=64` for `m=64,n=64`.
fn in_a_list(given: &str) -> Option<String> {
    let separator = [',', ';', ' '].into_iter().find(|separator| given.contains(*separator))?;
    let parts: Vec<&str> = given.split(separator).map(str::trim).filter(|part| !part.is_empty()).collect();
    let pairs = parts.len() > 1
        && parts.iter().all(|part| part.split_once('=').is_some_and(|(name, _)| !name.is_empty()));
    pairs.then(|| parts.iter().map(|part| format!("-p {part}")).collect::<Vec<_>>().join(" "))
}

/// Sorts the given values by what they are for; sizes and scalars that are not given have their defaults. Values of another of the
/// kernels are left out.
fn values(params: &[String], program: &Program, kernels: &[Program]) -> Result<Values, Failure> {
    let mut constants = Constants::new();
    let mut sizes: BTreeMap<String, i64> =
        program.sizes().map(|(_, s, default)| (s.name.clone(), default)).collect();
    let mut scalars: BTreeMap<String, Number> = program
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
            let message = format!("`-p {given}` is not NAME=VALUE, e.g. `-p m=512`");
            return Err(
                match has(program, given.trim()) || kernels.iter().any(|other| has(other, given.trim())) {
                    true => Failure::usage_with(
                        message,
                        format!("the value is missing: `-p {}=VALUE`", given.trim()),
                    ),
                    false => Failure::usage(message),
                },
            );
        };
        let (name, value) = (name.trim(), value.trim());
        if let Some(each) = in_a_list(given) {
            let message = format!("`-p {given}` gives several values at once");
            return Err(Failure::usage_with(message, format!("each has its own `-p`: `{each}`")));
        }
        if !seen.insert(name) {
            return Err(Failure::usage(format!("`-p {given}`: `{name}` is given twice")));
        }
        if !has(program, name) && kernels.iter().any(|other| has(other, name)) {
            continue;
        }
        if let Some(param) = program.params.iter().find(|p| p.name == name && p.is_integer()) {
            let (low, high) = param.dtype.range().unwrap_or((0, 0));
            let integer: i128 = value.parse().ok().filter(|x: &i128| (low..=high).contains(x)).ok_or_else(|| {
                Failure::usage(format!(
                    "`-p {given}`: `{name}` is a parameter of type {}, and `{value}` is no integer from {low} to {high}",
                    param.dtype
                ))
            })?;
            scalars.insert(name.to_string(), Number::Integer(integer));
            continue;
        }
        if let Some(scalar) = scalars.get_mut(name) {
            let dtype = program.params.iter().find(|p| p.name == name).map_or(DType::F32, |p| p.dtype);
            let fits = |x: &f64| x.is_finite() && Number::Float(*x).fits(dtype);
            *scalar = value.parse().ok().filter(fits).map(Number::Float).ok_or_else(|| {
                Failure::usage(format!(
                    "`-p {given}`: `{name}` is a scalar parameter, and `{value}` is not a number of its range"
                ))
            })?;
            continue;
        }
        let is_size = sizes.contains_key(name);
        let is_constant = program.constants().any(|(_, s, _)| s.name == name);
        if !is_size && !is_constant {
            return Err(Failure::usage(unknown(given, name, kernels)));
        }
        let kind = if is_size { "size" } else { "tile constant" };
        let number: i64 = value.parse().map_err(|_| {
            Failure::usage(format!("`-p {given}`: `{name}` is a {kind}, and `{value}` is not an integer"))
        })?;
        if is_size && number < 1 {
            let message = format!("`-p {given}`: the {kind} `{name}` must be at least 1");
            let help = match number {
                0 => format!(
                    "nothing is launched for an empty tensor: leave the launch out where `{name}` is 0, and run with `-p {name}=1` or more"
                ),
                _ => format!("a size counts elements: `-p {name}=1` or more"),
            };
            return Err(Failure::usage_with(message, help));
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
    if let Some(name) = args.mapping.as_ref().filter(|_| !is_task(&args.file)) {
        return Err(Failure::usage(format!(
            "`--mapping {name}` is for task programs (*.task), and this is a tile program"
        )));
    }
    let asked = Asked { kernel: args.kernel.as_deref(), mapping: args.mapping.as_deref() };
    let mut all = load_file(&args.file, &asked, &args.params)?;
    for loaded in &mut all {
        loaded.candidate = args.candidate;
        loaded.search = Budget { solutions: args.budget, seed: args.search_seed, steps: args.steps };
        loaded.without = Ablation {
            shared_layouts: args.without.contains(&Without::SharedLayouts),
            thread_values: args.without.contains(&Without::ThreadValues),
        };
        loaded.no_lines = args.no_lines;
        loaded.debug = args.debug;
    }
    Ok(all)
}

/// The kernel and the mapping of a file that are asked for, by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The kernel; without, all of them.
    pub kernel: Option<&'a str>,
    /// The mapping of a task program; without, the first.
    pub mapping: Option<&'a str>,
}

/// The kernels of a file, or the one of a name, with values for names. Of a task program the kernel that a mapping makes of it.
pub fn load_file(file: &Path, asked: &Asked<'_>, params: &[String]) -> Result<Vec<Loaded>, Unloaded> {
    let (path, all, core, sources, mapping, params) = if is_task(file) {
        let lowered = lowered(file, asked.mapping, params)?;
        let path = file.display().to_string();
        (path, lowered.programs, None, lowered.sources, Some(lowered.mapping), lowered.params)
    } else {
        let (path, source) = read(file, "a tile program")?;
        let (all, core, sources) = parsed(&path, &source)?;
        (path, all, core, sources, None, params.to_vec())
    };
    let kernel = asked.kernel;
    let mut asked: Vec<&Program> = all.iter().collect();
    if let Some(name) = kernel {
        asked.retain(|program| program.name == name);
        if asked.is_empty() {
            let known: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
            let text = format!("`--kernel {name}`: `{path}` has {}", known.join(", "));
            return Err(Failure::usage(text).into());
        }
    }
    let defaults = Options::new(Arch::SM_80);
    let one = |program: &Program| {
        let Values { constants, sizes, scalars } = values(&params, program, &all)?;
        Ok(Loaded {
            path: path.clone(),
            sources: sources.clone(),
            program: program.clone(),
            core: core.clone(),
            mapping: mapping.clone(),
            constants,
            sizes,
            scalars,
            candidate: None,
            search: defaults.budget,
            without: defaults.without,
            no_lines: false,
            debug: false,
        })
    };
    asked.into_iter().map(one).collect()
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
        options.debug = self.debug;
        options.lines = (!self.no_lines).then(|| LineInfo {
            folder: std::env::current_dir().unwrap_or_default(),
            sources: self.core.is_some().then(|| self.sources.clone()),
        });
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

    /// Compiles.
    pub fn compiled(&self, options: &Options) -> Result<Kernel, Diagnostics> {
        match &self.core {
            Some(core) => compiler::compile_core(core, options),
            None => compiler::compile(&self.program, options),
        }
    }

    /// Compiles, or says what is wrong with the program.
    pub fn compile(&self, options: &Options) -> Result<Kernel, Failure> {
        self.compiled(options).map_err(|d| Failure::refused(&self.sources, &self.with_given(d)))
    }

    /// The messages, the first with the constants that were given values other than the program's own.
    pub fn with_given(&self, mut diagnostics: Diagnostics) -> Diagnostics {
        let own = |name: &str| {
            self.program
                .constants()
                .find(|(_, symbol, _)| symbol.name == name)
                .and_then(|(_, _, e)| e.as_int())
        };
        let given = self.constants.iter().filter_map(|(name, value)| {
            let own = own(name).filter(|own| own != value)?;
            Some(format!("`-p {name}={value}` is given; the program's own value is {own}"))
        });
        if let Some(first) = diagnostics.0.first_mut() {
            first.notes.extend(given);
        }
        diagnostics
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
