//! Runs the text tests: every `*.tile` file under `tests/` and `docs/tutorial/`, by what the comments at its top ask for.
//!
//! - `// error: CODE at LINE:COLUMN: MESSAGE` — compiling (with `// options: NAME=VALUE … arch=sm_80`) must fail with this message.
//! - `// run: NAME=VALUE …` — compile for these values (without `arch=…` for the least architecture that has all that is used), execute on the simulator, compare with the interpreter; no race, no stray
//!   or misaligned access. The interpretation of the core program must equal that of the program bit by bit. Each such line is a case of its own. `arch=…` and `seed=…` are values too.
//!   A line that ends in `nightly` is a case of the nightly form alone (`TILEWRIGHT_EVERY_POINT=1`): one that is long beside other cases of the same program.
//! - `// warned: NAME=VALUE …` — compile and interpret for these values: for programs that are wrong, so that the simulator need not agree.
//! - `// warning: CODE at LINE:COLUMN: MESSAGE` — the case (`run` or `warned`) before it must give this warning. A case gives all its
//!   warnings and no others.
//! - `// lint: CODE at LINE:COLUMN: MESSAGE` — a file under `tests/lint`: the lints of its kernels are these and no others; `none` where
//!   there are none.
//! - `// conflicts: N` — a bound on the bank conflicts of the cases after it.
//! - `// snapshot: tile|layouts|core|simt|ptx|output` — the form must equal the file beside it with that extension; `core` is the core
//!   program after each of its passes, `output` what it prints at its default sizes, by the interpreter and by the simulator.
//! - `// finding: CODE at LINE:COLUMN, …: MESSAGE [help: …]` — a launch on the simulator, at its default sizes, must find this, at these
//!   statements. A file gives all findings and no others.
//! - `// refused: TEXT` — the interpreter must refuse the kernel, at its default sizes, and say this text, which may begin with `CODE at LINE:COLUMN: `;
//!   or `at LINE:COLUMN, …`, the places of all statements that the message is about.
//! - `// says: TEXT` — the report (layouts, instructions, reasons) must contain the text.
//!
//! Files `*.core` hold core programs: `files/core.rs` says what they ask for. Files `*.task` hold task programs that are wrong (`files/tasks.rs`).
//!
//! The examples run too, with the cases of `tests/examples.txt`. `TILEWRIGHT_BLESS=1` rewrites expectations. With
//! `TILEWRIGHT_PTX_DIR` every PTX is written there, and where `ptxas` is found (`TILEWRIGHT_PTXAS`, else the path) the
//! examples are assembled at their default tile sizes and must not spill.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::check::{CheckOptions, check, core_difference, findings_of, interpreted, watched};
use tilewright::compiler::{Dump, Kernel, Options, arch_named, compile, dumps, multiple_of};
use tilewright::findings::refusal;
use tilewright::machine::Arch;
use tilewright::runtime::SimDevice;
use tilewright::sequence::check_in_order;
use tilewright::tile::{
    Code, Constants, Diagnostic, Diagnostics, Misread, Module, ParamKind, Program, Sources, StmtKind,
    least_architecture, lint, needs, parse_module, read_beside, verify,
};

#[path = "files/core.rs"]
mod core_files;
#[path = "files/tasks.rs"]
mod task_files;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn bless() -> bool {
    std::env::var_os("TILEWRIGHT_BLESS").is_some_and(|v| v == "1")
}

/// The values of a line such as `m=17 BM=32 arch=sm_90a`.
#[derive(Clone, Debug)]
struct Values {
    text: String,
    numbers: BTreeMap<String, f64>,
    /// The architecture; without, the least that has all that the program uses.
    arch: Option<Arch>,
    seed: u64,
}

impl Values {
    fn parse(text: &str) -> Result<Values, Failed> {
        let mut values = Values { text: text.to_string(), numbers: BTreeMap::new(), arch: None, seed: 0 };
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or(format!("`{word}` is not NAME=VALUE"))?;
            match name {
                "arch" => values.arch = Some(value.parse().map_err(|e| format!("{e}"))?),
                "seed" => values.seed = value.parse().map_err(|e| format!("{e}"))?,
                _ => {
                    values
                        .numbers
                        .insert(name.to_string(), value.parse().map_err(|e| format!("`{word}`: {e}"))?);
                }
            }
        }
        Ok(values)
    }

    fn constants(&self, program: &Program) -> Constants {
        let given = |name: &String| Some((name.clone(), *self.numbers.get(name)? as i64));
        program.constants().filter_map(|(_, symbol, _)| given(&symbol.name)).collect()
    }

    fn options(&self, program: &Program) -> Result<Options, Diagnostics> {
        let constants = self.constants(program);
        let arch = match self.arch {
            Some(arch) => arch,
            None => least_architecture(&verify(program, &constants)?)
                .map(|(arch, _)| arch)
                .expect("an architecture of the list has everything that a test's program uses"),
        };
        Ok(self.options_for(program, arch).with_constants(constants))
    }

    /// Options for an architecture, without constants.
    fn options_for(&self, program: &Program, arch: Arch) -> Options {
        let multiples = self.sizes(program).into_iter().map(|(n, v)| (n, multiple_of(v))).collect();
        Options::new(arch).with_multiples(multiples)
    }

    fn compile(&self, program: &Program) -> Result<Kernel, Diagnostics> {
        compile(program, &self.options(program)?)
    }

    fn sizes(&self, program: &Program) -> BTreeMap<String, i64> {
        program
            .sizes()
            .map(|(_, s, default)| (s.name.clone(), self.numbers.get(&s.name).map_or(default, |v| *v as i64)))
            .collect()
    }
}

fn header<'a>(source: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    source
        .lines()
        .take_while(|line| line.starts_with("//") || line.trim().is_empty())
        .filter_map(move |line| line.strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(": "))
}

/// Values of a case for this run: the line without its last word `nightly`; `None` where that word leaves it to the nightly form.
fn asked_now(case: &str) -> Option<&str> {
    match case.trim().strip_suffix(" nightly") {
        Some(case) => std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some().then_some(case.trim_end()),
        None => Some(case.trim()),
    }
}

fn line_column(source: &str, at: usize) -> (usize, usize) {
    let before = &source[..at.min(source.len())];
    let line = before.matches('\n').count() + 1;
    (line, before.chars().rev().take_while(|c| *c != '\n').count() + 1)
}

/// A place as line and column, with the file's name if it is not the program's.
fn place_of(sources: &Sources, at: u32) -> String {
    let file = sources.file(at);
    let (line, column) = line_column(file.text, (at - file.start) as usize);
    let name =
        Path::new(file.path).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    if sources.files().next() == Some(file.path) {
        format!("{line}:{column}")
    } else {
        format!("{name}:{line}:{column}")
    }
}

/// A message with its place, and the calls of functions that led there.
fn describe_one(sources: &Sources, d: &Diagnostic) -> String {
    let d = sources.place(d.clone());
    let place = place_of(sources, d.span.text().map_or(0, |span| span.start));
    let help = d.help.as_ref().map_or(String::new(), |h| format!(" [help: {h}]"));
    let calls: String = d
        .related
        .iter()
        .filter(|(_, label)| label.starts_with("in this call of") || label.starts_with("the value of"))
        .filter_map(|(origin, label)| {
            Some(format!(" [{label}: {}]", place_of(sources, origin.text()?.start)))
        })
        .collect();
    format!("{} at {place}: {}{help}{calls}", d.code, d.message)
}

fn describe(sources: &Sources, diagnostics: &Diagnostics) -> String {
    let all: Vec<String> = diagnostics.0.iter().map(|d| describe_one(sources, d)).collect();
    all.join(" | ")
}

/// A path from the root of the repository, for messages.
fn from_root(path: &str) -> String {
    path.replace(&format!("{}/", root().display()), "")
}

/// Reads the kernels of a file.
fn module(path: &Path, source: &str) -> Result<Module, Misread> {
    let sources = Sources::new(from_root(&path.display().to_string()), source);
    parse_module(sources, &mut |from, name| {
        let from = root().join(from).display().to_string();
        let (path, text) = read_beside(&from, name).map_err(|why| from_root(&why))?;
        Ok((from_root(&path), text))
    })
}

/// The kernels of a file, or what is wrong with it.
fn read_module(path: &Path, source: &str) -> Result<Module, String> {
    module(path, source).map_err(|wrong| describe(&wrong.sources, &wrong.diagnostics))
}

/// The kernel of a file that has one.
fn read_program(path: &Path, source: &str) -> Result<Program, String> {
    let mut module = read_module(path, source)?;
    match module.programs.len() {
        1 => Ok(module.programs.remove(0)),
        count => Err(format!("the file has {count} kernels, and this test takes one")),
    }
}

fn error_test(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let options = header(&source, "options").next().unwrap_or("");
    let named = options.split_whitespace().find_map(|word| word.strip_prefix("arch="));
    let (sources, result) = match (named.map(arch_named).transpose(), module(path, &source)) {
        (Err(unsupported), _) => (Sources::new("", source.as_str()), Err(unsupported.into())),
        (Ok(_), Err(wrong)) => (wrong.sources, Err(wrong.diagnostics)),
        (Ok(_), Ok(module)) => {
            let values = Values::parse(options)?;
            let compiled = module.programs.iter().try_for_each(|program| values.compile(program).map(|_| ()));
            (module.sources, compiled)
        }
    };
    let Err(diagnostics) = result else { return Err("the program compiles".into()) };
    expect_error(path, &source, &sources, &diagnostics)
}

/// Compares mistakes with the first line of a file, `// error: …`.
fn expect_error(
    path: &Path,
    source: &str,
    sources: &Sources,
    diagnostics: &Diagnostics,
) -> Result<(), Failed> {
    let actual = describe(sources, diagnostics);
    // No program makes the compiler itself fail.
    if diagnostics.any_internal() {
        return Err(actual.into());
    }
    let expected = header(source, "error").next().unwrap_or("");
    if actual == expected {
        return Ok(());
    }
    if bless() {
        // A first line that holds no error stays: the new one goes before it, and moves the positions that it names.
        let line = format!("// error: {expected}");
        let rest = source.strip_prefix(&line).map_or_else(|| format!("\n{source}"), str::to_string);
        fs::write(path, format!("// error: {actual}{rest}"))?;
        return Ok(());
    }
    Err(format!("expected {expected}\n     got {actual}").into())
}

/// The lints of a text's kernels.
fn lints_of(path: &Path, source: &str) -> Result<Vec<String>, Failed> {
    let Module { programs, sources } = read_module(path, source)?;
    let mut found = Vec::new();
    for program in &programs {
        let verified = verify(program, &Constants::new()).map_err(|d| describe(&sources, &d))?;
        found.extend(lint(&verified, &BTreeMap::new()).iter().map(|d| describe_one(&sources, d)));
    }
    Ok(if found.is_empty() { vec!["none".to_string()] } else { found })
}

fn lint_test(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let expected: Vec<&str> = header(&source, "lint").collect();
    let found = lints_of(path, &source)?;
    if found == expected {
        return Ok(());
    }
    if bless() {
        return bless_list(path, &source, "lint", &found, lints_of);
    }
    Err(format!("expected {expected:#?}\n     got {found:#?}").into())
}

fn write_ptx(name: &str, kernel: &Kernel) -> Result<(), Failed> {
    if let Some(folder) = std::env::var_os("TILEWRIGHT_PTX_DIR") {
        fs::create_dir_all(&folder)?;
        fs::write(Path::new(&folder).join(format!("{name}.{}.ptx", kernel.function.arch)), &kernel.ptx)?;
    }
    Ok(())
}

/// Interprets the core program of a kernel after each of its passes: every element that it writes is what the surface program writes.
fn core_agrees(kernel: &Kernel, passes: &[Dump], options: &CheckOptions) -> Result<(), Failed> {
    let surface = interpreted(kernel, options).map_err(|e| e.to_string())?;
    let programs = passes.iter().filter_map(|dump| Some((dump.pass, dump.program.as_ref()?)));
    for (pass, program) in programs {
        let difference = core_difference(program, kernel, &surface, options);
        if let Some(difference) = difference.map_err(|e| format!("after {pass}: {e}"))? {
            return Err(format!("after {pass}: {difference}").into());
        }
    }
    Ok(())
}

/// A kernel that agrees with its core program after each pass, for values, and the options of its check.
fn agreeing(program: &Program, name: &str, values: &Values) -> Result<(Kernel, CheckOptions), Failed> {
    let kernel = values.compile(program).map_err(|d| describe(&program.sources, &d))?;
    write_ptx(name, &kernel)?;
    let scalars = program
        .params
        .iter()
        .filter(|p| matches!(p.kind, ParamKind::Scalar { .. }))
        .filter_map(|p| values.numbers.get(&p.name).map(|v| (p.name.clone(), (*v).into())))
        .collect();
    let options =
        CheckOptions { sizes: values.sizes(program), scalars, seed: values.seed, ..Default::default() };
    let wanted = values.options(program)?;
    let passes = dumps(program, &wanted)?;
    core_agrees(&kernel, &passes, &options)?;
    core_files::texts(&passes, &wanted, &kernel.ptx)?;
    Ok((kernel, options))
}

/// Runs a case, and gives its warnings. Several kernels run one after another.
fn run_case(
    name: &str,
    (path, source): (&Path, &str),
    values: &Values,
    conflicts: Option<u64>,
) -> Result<Vec<String>, Failed> {
    let Module { programs, sources } = read_module(path, source)?;
    let known = |name: &String| {
        name == "conflicts"
            || programs.iter().any(|program| {
                program.symbols.iter().any(|s| s.name == *name)
                    || program.params.iter().any(|p| p.name == *name)
            })
    };
    if let Some(name) = values.numbers.keys().find(|name| !known(name)) {
        return Err(format!("the program has no `{name}`").into());
    }
    let several = programs.len() > 1;
    let mut kernels = Vec::new();
    let mut options: Option<CheckOptions> = None;
    for program in &programs {
        let name = if several { format!("{name}.{}", program.name) } else { name.to_string() };
        let (kernel, of) = agreeing(program, &name, values)?;
        kernels.push(kernel);
        match &mut options {
            None => options = Some(of),
            Some(options) => {
                options.sizes.extend(of.sizes);
                options.scalars.extend(of.scalars);
            }
        }
    }
    let device = SimDevice::new(tilewright::sim::Config { seed: values.seed, ..Default::default() });
    let kernels: Vec<&Kernel> = kernels.iter().collect();
    let ran = check_in_order(&kernels, &device, &options.unwrap_or_default()).map_err(|e| e.to_string())?;
    if !ran.is_right() {
        let wrong = ran.outcomes.iter().map(|o| format!("{:?}\n{:?}\n", o.comparisons, o.findings));
        return Err(format!("{}{:?}", wrong.collect::<String>(), ran.together).into());
    }
    if ran.outcomes.iter().any(|outcome| outcome.comparisons.is_empty()) {
        return Err("a kernel writes nothing that could be compared".into());
    }
    let counted = ran.outcomes.iter().filter_map(|o| o.report.sim()).map(|s| s.shared_conflicts).sum::<u64>();
    let warnings = ran.outcomes.iter().flat_map(|outcome| &outcome.warnings);
    match conflicts {
        Some(bound) if counted > bound => Err(format!("{counted} bank conflicts, more than {bound}").into()),
        _ => Ok(warnings.map(|d| describe_one(&sources, d)).collect()),
    }
}

/// The warnings of the interpreter alone.
fn warned(path: &Path, source: &str, values: &Values) -> Result<Vec<String>, Failed> {
    let program = read_program(path, source)?;
    let kernel = values.compile(&program).map_err(|d| describe(&program.sources, &d))?;
    let options = CheckOptions { sizes: values.sizes(&program), ..Default::default() };
    let (_, warnings) = watched(&kernel, &options).map_err(|e| e.to_string())?;
    Ok(warnings.iter().map(|d| describe_one(&program.sources, d)).collect())
}

/// Runs a case of a file; its warnings are the lines behind it.
fn warned_case(
    path: &Path,
    (name, case, simulated): (&str, &str, bool),
    conflicts: Option<u64>,
    expected: &[String],
) -> Result<(), Failed> {
    // The cases of a file run at the same time, and may rewrite it.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = bless().then(|| ONE.lock());
    let values = Values::parse(case)?;
    let source = fs::read_to_string(path)?;
    let file = format!("{name}.{}", values.text.replace([' ', '='], "_"));
    let warnings = match simulated {
        true => run_case(&file, (path, &source), &values, conflicts)?,
        false => warned(path, &source, &values)?,
    };
    if warnings == expected {
        return Ok(());
    }
    if bless() {
        let text = fs::read_to_string(path)?;
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        let key = if simulated { "// run:" } else { "// warned:" };
        let at = lines.iter().position(|line| line.strip_prefix(key).and_then(asked_now) == Some(case));
        let first = at.ok_or("the case is gone")? + 1;
        let old = lines[first..].iter().take_while(|line| line.starts_with("// warning: ")).count();
        lines.splice(first..first + old, warnings.iter().map(|w| format!("// warning: {w}")));
        return Ok(fs::write(path, lines.join("\n") + "\n")?);
    }
    Err(format!("expected {expected:#?}\n     got {warnings:#?}").into())
}

fn snapshot(path: &Path, form: &str) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let values = Values::parse(header(&source, "options").next().unwrap_or(""))?;
    let program = read_program(path, &source)?;
    let kernel = values.compile(&program).map_err(|d| describe(&program.sources, &d))?;
    let actual = match form {
        "tile" => program.to_string(),
        "layouts" => kernel.explanation.without_search().to_string(),
        "simt" => kernel.function.to_string(),
        "ptx" => kernel.ptx,
        "core" => {
            let dumps = values.options(&program).and_then(|options| dumps(&program, &options));
            let dumps = dumps.map_err(|d| describe(&program.sources, &d))?;
            dumps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        "output" => {
            let options = CheckOptions { sizes: values.sizes(&program), ..Default::default() };
            let device = SimDevice::new(tilewright::sim::Config::default());
            let printed = check(&kernel, &device, &options).map_err(|e| e.to_string())?.printed;
            let records: String = printed.records.iter().map(|record| format!("{record}\n")).collect();
            format!("{records}{} left out\n", printed.left_out)
        }
        other => return Err(format!("there is no form `{other}`").into()),
    };
    let beside = path.with_extension(form);
    let beside = if form == "tile" { path.with_extension("printed") } else { beside };
    equals(&beside, &actual)
}

/// A file beside a test has this text; if asked to bless, it gets it.
fn equals(beside: &Path, actual: &str) -> Result<(), Failed> {
    let expected = fs::read_to_string(beside).unwrap_or_default();
    if actual == expected {
        return Ok(());
    }
    if bless() {
        return Ok(fs::write(beside, actual)?);
    }
    let diff = similar::TextDiff::from_lines(&expected, actual);
    Err(format!("{} differs\n{}", beside.display(), diff.unified_diff()).into())
}

fn says(path: &Path, text: &str) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let values = Values::parse(header(&source, "options").next().unwrap_or(""))?;
    let program = read_program(path, &source)?;
    let kernel = values.compile(&program).map_err(|d| describe(&program.sources, &d))?;
    let report = kernel.explanation.to_string();
    if report.contains(text) { Ok(()) } else { Err(format!("`{text}` is not in\n{report}").into()) }
}

/// A kernel that compiles and is wrong: what the interpreter says about it.
fn refused(path: &Path, text: &str) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let (program, kernel, options) = wrong_kernel(path, &source)?;
    let diagnostic = interpreted(&kernel, &options).err().map(|error| error.diagnostic(&program));
    let sources = &program.sources;
    let said: Vec<String> =
        diagnostic.iter().flat_map(|d| [describe_one(sources, d), places(sources, d)]).collect();
    if said.iter().any(|s| s.contains(text)) {
        Ok(())
    } else {
        Err(format!("`{text}` is not in {said:?}").into())
    }
}

/// A kernel that compiles, at its default sizes.
fn wrong_kernel(path: &Path, source: &str) -> Result<(Program, Kernel, CheckOptions), Failed> {
    let values = Values::parse(header(source, "options").next().unwrap_or(""))?;
    let program = read_program(path, source)?;
    let kernel = values.compile(&program).map_err(|d| describe(&program.sources, &d))?;
    let options = CheckOptions { sizes: values.sizes(&program), ..Default::default() };
    Ok((program, kernel, options))
}

/// Findings of the simulator in a kernel.
fn all_findings(path: &Path, source: &str) -> Result<Vec<String>, Failed> {
    let (program, kernel, options) = wrong_kernel(path, source)?;
    let device = SimDevice::new(tilewright::sim::Config::default());
    let found = findings_of(&kernel, &device, &options)
        .unwrap_or_else(|error| refusal(&kernel, &options.sizes, &error, options.detail));
    let sources = &program.sources;
    let line = |d: &Diagnostic| {
        let help = d.help.as_ref().map_or(String::new(), |help| format!(" [help: {help}]"));
        format!("{} {}: {}{help}", d.code, places(sources, d), d.message)
    };
    Ok(found.iter().map(line).collect())
}

fn finding_test(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let expected: Vec<&str> = header(&source, "finding").collect();
    let found = all_findings(path, &source)?;
    if found == expected {
        return Ok(());
    }
    if bless() && !found.is_empty() {
        return bless_list(path, &source, "finding", &found, all_findings);
    }
    Err(format!("expected {expected:#?}\n     got {found:#?}").into())
}

/// Writes what was found into the header of a file: as many lines as there are findings, of which these name positions behind them.
fn bless_list(
    path: &Path,
    source: &str,
    name: &str,
    found: &[String],
    again: impl Fn(&Path, &str) -> Result<Vec<String>, Failed>,
) -> Result<(), Failed> {
    let prefix = format!("// {name}:");
    let with = |lines: &[String]| -> String {
        let header = lines.iter().map(|line| format!("{prefix} {line}\n"));
        let rest = source.lines().filter(|line| !line.starts_with(&prefix)).map(|line| format!("{line}\n"));
        header.chain(rest).collect()
    };
    let placed = again(path, &with(found))?;
    fs::write(path, with(&placed))?;
    Ok(())
}

/// The places that a message is about: `at 12:9, 20:9`.
fn places(sources: &Sources, d: &Diagnostic) -> String {
    let spans = std::iter::once(d.span).chain(d.related.iter().map(|(span, _)| *span));
    let place = |span: tilewright::tile::Span| place_of(sources, sources.locate(span).span.start);
    let all: Vec<String> = spans.filter_map(|origin| origin.text()).map(place).collect();
    format!("at {}", all.join(", "))
}

/// Below the least architecture that has all that the program uses, it is refused by what it uses; on that one, the compiler itself does not
/// fail.
fn architectures(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    read_module(path, &source)?.programs.iter().try_for_each(|program| architectures_of(program, &source))
}

fn architectures_of(program: &Program, source: &str) -> Result<(), Failed> {
    let values = Values::parse(header(source, "options").next().unwrap_or(""))?;
    let verified = verify(program, &values.constants(program)).map_err(|d| describe(&program.sources, &d))?;
    let (least, _) = least_architecture(&verified).ok_or("no architecture has everything")?;
    let before = Arch::ALL.into_iter().take_while(|arch| *arch != least);
    for arch in before.chain([least]) {
        let missing = needs(&verified).into_iter().find(|need| !arch.has(need.features()));
        let Err(diagnostics) = (Values { arch: Some(arch), ..values.clone() }).compile(program) else {
            if let Some(need) = missing {
                return Err(format!("{need:?} compiles for {arch}").into());
            }
            continue;
        };
        let unsupported = diagnostics.0.iter().any(|d| d.code == Code::UnsupportedArchitecture);
        let text = describe(&program.sources, &diagnostics);
        if unsupported != missing.is_some() || diagnostics.any_internal() {
            return Err(format!("for {arch}: {text}").into());
        }
    }
    Ok(())
}

/// Printing and parsing again gives the same kernels.
fn round_trip(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let module = read_module(path, &source)?;
    let printed = module.to_string();
    let again = read_module(path, &printed).map_err(|wrong| format!("{wrong}\nin\n{printed}"))?;
    if module == again { Ok(()) } else { Err(format!("parses to another program:\n{printed}").into()) }
}

fn ptxas() -> Option<PathBuf> {
    std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from).or_else(|| {
        std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas")).find(|p| p.is_file())
    })
}

/// Assembles an example, as one of its cases says for which architecture. On Hopper, nothing may serialise its products.
fn assembles_without_spills(path: &Path, arch: Arch) -> Result<(), Failed> {
    let Some(ptxas) = ptxas() else {
        if std::env::var_os("CI").is_some() {
            return Err("CI has no ptxas: set TILEWRIGHT_PTXAS".into());
        }
        println!("no ptxas: {} is not assembled", path.display());
        return Ok(());
    };
    let source = fs::read_to_string(path)?;
    let program = read_program(path, &source)?;
    let odd = "m=17 n=129 k=127";
    for sizes in ["", "m=1000 n=1000 k=1000", odd] {
        let mut values = Values { arch: Some(arch), ..Values::parse(sizes)? };
        values.numbers.retain(|name, _| program.sizes().any(|(_, s, _)| s.name == *name));
        let kernel = values.compile(&program).map_err(|d| describe(&program.sources, &d))?;
        let file = std::env::temp_dir().join(format!(
            "tilewright-{}-{arch}-{}.ptx",
            kernel.function.name,
            std::process::id()
        ));
        fs::write(&file, &kernel.ptx)?;
        let architecture = format!("-arch={arch}");
        let output =
            Command::new(&ptxas).args([&architecture, "-v", "-o", "/dev/null"]).arg(&file).output()?;
        let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
        fs::remove_file(&file)?;
        if !output.status.success() {
            return Err(format!("ptxas refuses it at `{sizes}`: {text}").into());
        }
        if text.contains("C75") || text.contains("warning") {
            return Err(format!("ptxas complains at `{sizes}`: {text}").into());
        }
        // The few registers that a role for tensor copies has are not enough for threads that copy odd rows.
        let few = program.body.iter().any(|s| matches!(s.kind, StmtKind::Role { .. })) && sizes == odd;
        if !few && !text.contains(" 0 bytes spill stores") {
            return Err(format!("it spills at `{sizes}`: {text}").into());
        }
    }
    Ok(())
}

/// The files of a folder and those in it with an extension.
fn found(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![folder.to_path_buf()];
    while let Some(folder) = queue.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                queue.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let root = root();
    let stem = |path: &Path| path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
    for path in found(&root.join("tests/error"), "task") {
        trials.push(Trial::test(format!("error::{}", stem(&path)), move || task_files::error_test(&path)));
    }
    for path in [found(&root.join("tests"), "tile"), found(&root.join("docs/tutorial"), "tile")].concat() {
        // Mistakes as users make them, which ask for no message in particular (tests/mistakes/README.md).
        if path.starts_with(root.join("tests/mistakes")) {
            continue;
        }
        let Ok(bytes) = fs::read(&path) else { continue };
        let source = String::from_utf8_lossy(&bytes).into_owned();
        let name = stem(&path);
        if path.starts_with(root.join("tests/error")) {
            trials.push(Trial::test(format!("error::{name}"), {
                let path = path.clone();
                move || error_test(&path)
            }));
            continue;
        }
        if path.starts_with(root.join("tests/lint")) {
            let same = path.clone();
            trials.push(Trial::test(format!("lint::{name}"), move || lint_test(&path)));
            trials.push(Trial::test(format!("round_trip::{name}"), move || round_trip(&same)));
            continue;
        }
        let mut conflicts = None;
        let mut asked = 0;
        let lines = source.lines().take_while(|l| l.starts_with("//") || l.trim().is_empty());
        let mut lines = lines.peekable();
        while let Some(line) = lines.next() {
            if let Some(bound) = line.strip_prefix("// conflicts: ") {
                conflicts = Some(bound.trim().to_string());
            }
            let simulated = line.strip_prefix("// run:");
            if let Some(case) = simulated.or(line.strip_prefix("// warned:")) {
                asked += 1;
                let simulated = simulated.is_some();
                let mut expected = Vec::new();
                while let Some(text) = lines.peek().and_then(|line| line.strip_prefix("// warning: ")) {
                    expected.push(text.to_string());
                    lines.next();
                }
                let Some(case) = asked_now(case) else { continue };
                let (path, case, name) = (path.clone(), case.to_string(), name.clone());
                let conflicts = conflicts.clone();
                trials.push(Trial::test(format!("run::{name}::{case}"), move || {
                    let bound =
                        conflicts.map(|c| c.parse().map_err(|e| format!("`{c}`: {e}"))).transpose()?;
                    warned_case(&path, (&name, &case, simulated), bound, &expected)
                }));
            }
        }
        for form in header(&source, "snapshot") {
            asked += 1;
            let (path, form) = (path.clone(), form.to_string());
            trials.push(Trial::test(format!("snapshot::{name}::{form}"), move || snapshot(&path, &form)));
        }
        for text in header(&source, "refused") {
            asked += 1;
            let (path, text) = (path.clone(), text.to_string());
            trials.push(Trial::test(format!("refused::{name}::{text}"), move || refused(&path, &text)));
        }
        if header(&source, "finding").next().is_some() {
            asked += 1;
            let path = path.clone();
            trials.push(Trial::test(format!("finding::{name}"), move || finding_test(&path)));
        }
        for text in header(&source, "says") {
            asked += 1;
            let (path, text) = (path.clone(), text.to_string());
            trials.push(Trial::test(format!("says::{name}::{text}"), move || says(&path, &text)));
        }
        if asked == 0 {
            trials.push(Trial::test(format!("header::{name}"), || Err("the file asks for nothing".into())));
        } else {
            let same = path.clone();
            trials.push(Trial::test(format!("architectures::{name}"), move || architectures(&same)));
            trials.push(Trial::test(format!("round_trip::{name}"), move || round_trip(&path)));
        }
    }
    trials.extend(found(&root.join("tests"), "core").iter().flat_map(|path| core_files::trials(path)));
    let guide = root.join("docs/core-program.md");
    trials.push(Trial::test("core::documented", move || core_files::documented(&guide)));
    let cases = fs::read_to_string(root.join("tests/examples.txt")).unwrap_or_default();
    for path in found(&root.join("examples"), "tile") {
        let name = stem(&path);
        let mut ran = 0;
        let mut archs = HashSet::new();
        for line in cases.lines() {
            let Some((example, case)) = line.split_once(':') else { continue };
            if example.trim() != name || line.starts_with('#') {
                continue;
            }
            ran += 1;
            let Some(case) = asked_now(case) else { continue };
            archs.extend(Values::parse(case).map(|values| values.arch.unwrap_or(Arch::SM_80)));
            let (case, name, path) = (case.to_string(), name.clone(), path.clone());
            trials.push(Trial::test(format!("example::{name}::{case}"), move || {
                let values = Values::parse(&case)?;
                let source = fs::read_to_string(&path)?;
                let bound = values.numbers.get("conflicts").map(|c| *c as u64);
                let file = format!("{name}.{}", values.text.replace([' ', '='], "_"));
                match &*run_case(&file, (&path, &source), &values, bound)? {
                    [] => Ok(()),
                    warnings => Err(format!("{warnings:#?}").into()),
                }
            }));
        }
        if ran == 0 {
            let name = name.clone();
            trials.push(Trial::test(format!("example::{name}"), move || {
                Err(format!("tests/examples.txt has no case for {name}").into())
            }));
        }
        trials.push(Trial::test(format!("architectures::{name}"), {
            let path = path.clone();
            move || architectures(&path)
        }));
        trials.push(Trial::test(format!("round_trip::{name}"), {
            let path = path.clone();
            move || round_trip(&path)
        }));
        for arch in archs {
            let path = path.clone();
            let trial = move || assembles_without_spills(&path, arch);
            trials.push(Trial::test(format!("assemble::{name}::{arch}"), trial));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
