//! Programs and operators on every architecture that has what they need: compiled, and assembled by `ptxas` without a warning. By day a sample of
//! the pairs, each architecture among them; all with `TILEWRIGHT_EVERY_POINT=1`, and then the counts are those of docs/blackwell.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use rayon::prelude::*;
use tilewright::compiler::{Kernel, Options, compile};
use tilewright::kernels::{OPERATORS, Operator};
use tilewright::machine::Arch;
use tilewright::tile::{
    Code, Constants, Program, Sources, check_architecture, parse_module, read_beside, verify,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn nightly() -> bool {
    env::var_os("TILEWRIGHT_EVERY_POINT").is_some_and(|v| v == "1")
}

/// The assembler; `None` without one, which CI has.
fn ptxas() -> Option<PathBuf> {
    let named = env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from);
    let found = named.or_else(|| {
        env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join("ptxas")).find(|file| file.is_file())
    });
    assert!(found.is_some() || env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
    found
}

/// Assembles a kernel; what the assembler says, if it is not silent.
fn assemble(ptxas: &Path, kernel: &Kernel, arch: Arch, turn: usize) -> Result<(), String> {
    let file = env::temp_dir().join(format!("tilewright-{}-{turn}-{arch}.ptx", std::process::id()));
    fs::write(&file, &kernel.ptx).map_err(|e| e.to_string())?;
    let target = format!("-arch={arch}");
    let output = Command::new(ptxas).args([&target, "-O1", "-o", "/dev/null"]).arg(&file).output();
    fs::remove_file(&file).map_err(|e| e.to_string())?;
    let output = output.map_err(|e| e.to_string())?;
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    if output.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
}

/// The programs of every file, each with the values of its first case.
fn programs() -> Vec<(String, Program, Options)> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("tests/run"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tile"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let source = fs::read_to_string(path).unwrap();
        let first = source.lines().find_map(|line| line.strip_prefix("// run:")).unwrap_or_default();
        let values = first.split_whitespace().filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name, value.parse::<i64>().ok()?))
        });
        let values: Vec<(&str, i64)> = values.collect();
        let sources = Sources::new(path.to_string_lossy(), source.as_str());
        let module =
            parse_module(sources, &mut read_beside).unwrap_or_else(|wrong| panic!("{path:?}: {wrong:?}"));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let with_options = |program: Program| {
            let names = program.constants().map(|(_, symbol, _)| symbol.name.clone());
            let names: Vec<String> = names.collect();
            let constants: Constants = values
                .iter()
                .filter(|(name, _)| names.iter().any(|known| known == name))
                .map(|(name, value)| ((*name).to_string(), *value))
                .collect();
            let options =
                Options::new(Arch::SM_80).for_own_sizes(&program, &values).with_constants(constants);
            (name.clone(), program, options)
        };
        module.programs.into_iter().map(with_options).collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

/// A kernel, or why there is none: true for a limit that a tuning space does not know to the last register.
fn compiled(program: &Program, options: &Options, limit: Code) -> Result<Kernel, (bool, String)> {
    compile(program, options).map_err(|refused| {
        let of_limit = refused.0.iter().all(|diagnostic| diagnostic.code == limit);
        (of_limit, refused.to_string())
    })
}

/// The verdict about a program on an architecture that has its features: true if it compiles and assembles, false if the architecture has too little
/// shared memory.
fn fits(program: &Program, options: &Options, turn: usize) -> Result<bool, String> {
    match compiled(program, options, Code::SharedMemoryExceeded) {
        Ok(kernel) => {
            ptxas().map_or(Ok(()), |ptxas| assemble(&ptxas, &kernel, options.arch, turn)).map(|()| true)
        }
        Err((true, _)) => Ok(false),
        Err((false, why)) => Err(why),
    }
}

/// The parameters of an operator in the order in which they are tried on an architecture, at the sizes of its defaults: those of its tuning space by their estimates, if it has one; else its
/// defaults.
fn candidates(operator: &Operator, arch: Arch) -> Result<Vec<Vec<(&'static str, String)>>, String> {
    let Some(tuning) = operator.tuning else { return Ok(vec![Vec::new()]) };
    let defaults = (operator.programs)(&[]).map_err(|e| e.to_string())?;
    let sizes: BTreeMap<String, i64> = defaults
        .iter()
        .flat_map(|program| program.sizes().map(|(_, symbol, default)| (symbol.name.clone(), default)))
        .collect();
    let space = (tuning.space)(arch.into(), &sizes, &[]).map_err(|e| e.to_string())?;
    Ok(space.points.into_iter().take(TRIED).map(|point| point.parameters).collect())
}

/// Points of a tuning space that are tried, at most.
const TRIED: usize = 8;

/// The verdict about an operator on an architecture that has its features: true if a configuration compiles, whose programs all assemble, false if its
/// tuning space has none.
fn operator_fits(operator: &Operator, arch: Arch, turn: usize) -> Result<bool, String> {
    let candidates = candidates(operator, arch)?;
    let mut refused = Vec::new();
    for parameters in &candidates {
        let given: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let programs = (operator.programs)(&given).map_err(|e| e.to_string())?;
        let kernels = programs.iter().map(|program| {
            let options = Options::new(arch).for_own_sizes(program, &[]);
            compiled(program, &options, Code::RegistersExceeded)
        });
        match kernels.collect::<Result<Vec<_>, _>>() {
            Err((true, why)) => refused.push(why),
            Err((false, why)) => return Err(why),
            Ok(kernels) => {
                for (i, kernel) in kernels.iter().enumerate() {
                    ptxas().map_or(Ok(()), |ptxas| assemble(&ptxas, kernel, arch, 10 * turn + i))?;
                }
                return Ok(true);
            }
        }
    }
    if refused.is_empty() { Ok(false) } else { Err(refused.join("\n")) }
}

/// Pairs of a number and an architecture, of which every `of`-th is there by day.
fn pairs(count: usize, of: usize) -> Vec<(usize, Arch)> {
    let every =
        (0..count).flat_map(|at| Arch::ALL.into_iter().enumerate().map(move |(i, arch)| (at, i, arch)));
    // A day's sample goes through the architectures: neighbours in it are of different ones.
    let chosen =
        every.filter(|(at, i, _)| nightly() || (at + i * (count / Arch::ALL.len())).is_multiple_of(of));
    chosen.map(|(at, _, arch)| (at, arch)).collect()
}

/// Numbers of programs that fit, by architecture.
fn counted(verdicts: Vec<(Arch, Result<bool, String>)>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for (arch, verdict) in verdicts {
        match verdict {
            Ok(fits) => *counts.entry(arch.name()).or_default() += usize::from(fits),
            Err(text) => wrong.push(text),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    counts
}

fn programs_by_architecture() -> BTreeMap<&'static str, usize> {
    let programs = programs();
    let verdicts = pairs(programs.len(), 67).into_par_iter().enumerate().map(|(turn, (at, arch))| {
        let (name, program, options) = &programs[at];
        let mut options = options.clone();
        options.arch = arch;
        let verified = verify(program, &options.constants).map_err(|d| d.to_string());
        let verdict = verified.and_then(|verified| match check_architecture(&verified, arch) {
            Err(_) => Ok(false),
            Ok(()) => fits(program, &options, turn).map_err(|text| format!("{name} for {arch}: {text}")),
        });
        (arch, verdict)
    });
    counted(verdicts.collect())
}

fn operators_by_architecture() -> BTreeMap<&'static str, usize> {
    let turns = pairs(OPERATORS.len(), 23);
    let verdicts = turns.into_par_iter().enumerate().map(|(turn, (at, arch))| {
        let operator = &OPERATORS[at];
        let named = |text| format!("{} for {arch}: {text}", operator.name);
        let fits = || operator_fits(operator, arch, 10_000 + turn).map_err(named);
        (arch, if arch.has(operator.needs) { fits() } else { Ok(false) })
    });
    counted(verdicts.collect())
}

#[test]
fn programs_and_operators_are_assembled_for_every_architecture() {
    let (programs, operators) = (programs_by_architecture(), operators_by_architecture());
    let mut rows = String::new();
    for arch in Arch::ALL {
        let of = |counts: &BTreeMap<&str, usize>| counts.get(arch.name()).copied().unwrap_or_default();
        writeln!(rows, "| `{arch}` | {} | {} |", of(&programs), of(&operators)).unwrap();
    }
    print!("{rows}");
    if nightly() && ptxas().is_some() {
        let page = fs::read_to_string(root().join("docs/blackwell.md")).unwrap();
        assert!(page.contains(&rows), "docs/blackwell.md has other counts than\n{rows}");
    }
}
