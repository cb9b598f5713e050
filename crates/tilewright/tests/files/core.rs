//! Core programs as files: `*.core` under `tests/`, by what the comments at their top ask for.
//!
//! - `// error: CODE at LINE:COLUMN: MESSAGE`: compiling (with `// options: NAME=VALUE … arch=sm_80`) must fail with this message.
//! - `// pass: multi-buffer`, `assign async layouts`, `desugar`, `desugar rearrangements`, `insert NAME before LINE`: after this pass the
//!   program must be that of the file beside it with the extension `after`. The last is [`core::insert_rearrangement`] of a tensor, before the
//!   statement on that line.
//! - `// ptx: FILE NAME=VALUE …`: the PTX must be that of the tile program in a file beside it, with these values.
//!
//! A file beside a `*.tile` of its name is that one's `snapshot: core`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use tilewright::compiler::{Dump, Options, compile_core, core_dumps};
use tilewright::machine::Arch;
use tilewright::tile::{Diagnostics, Sources, core, least_architecture};

use super::{Values, bless, describe, equals, header, line_column, read_program};

/// A core program that a file holds, and what compiling it is asked for.
struct File {
    source: String,
    values: Values,
}

impl File {
    fn read(path: &Path) -> Result<File, Failed> {
        let source = fs::read_to_string(path)?;
        let values = Values::parse(header(&source, "options").next().unwrap_or(""))?;
        Ok(File { source, values })
    }

    fn program(&self) -> Result<core::Program, Diagnostics> {
        core::parse(&self.source)
    }

    /// Without `arch=…`, for the least architecture that has all that the program uses.
    fn options(&self, program: &core::Program) -> Result<Options, Diagnostics> {
        let surface = core::check(program)?;
        let least = || least_architecture(&surface).map(|(arch, _)| arch);
        let arch = self.values.arch.or_else(least).unwrap_or(Arch::SM_80);
        Ok(self.values.options_for(surface.program(), arch))
    }

    fn said(&self, diagnostics: &Diagnostics) -> Failed {
        describe(&Sources::new("", self.source.as_str()), diagnostics).into()
    }
}

fn error(path: &Path) -> Result<(), Failed> {
    let file = File::read(path)?;
    let compiled = file.program().and_then(|program| compile_core(&program, &file.options(&program)?));
    let Err(diagnostics) = compiled else { return Err("the program compiles".into()) };
    let actual = describe(&Sources::new("", file.source.as_str()), &diagnostics);
    if diagnostics.any_internal() {
        return Err(actual.into());
    }
    let expected = header(&file.source, "error").next().unwrap_or("");
    if actual == expected {
        return Ok(());
    }
    if bless() {
        let line = format!("// error: {expected}");
        let rest = file.source.strip_prefix(&line).ok_or("the first line is not `// error: …`")?;
        return Ok(fs::write(path, format!("// error: {actual}{rest}"))?);
    }
    Err(format!("expected {expected}\n     got {actual}").into())
}

/// The statement that begins on a line.
fn statement_at(file: &File, program: &core::Program, line: &str) -> Result<core::StmtId, Failed> {
    let line: usize = line.parse().map_err(|e| format!("`{line}`: {e}"))?;
    let mut found = None;
    program.visit(&mut |stmt, _| {
        let start = stmt.span.text().map(|span| line_column(&file.source, span.range().start).0);
        if start == Some(line) && found.is_none() {
            found = Some(stmt.id);
        }
    });
    found.ok_or_else(|| format!("no statement begins on line {line}").into())
}

/// The program after a pass.
fn passed(file: &File, pass: &str) -> Result<core::Program, Failed> {
    let mut program = file.program().map_err(|d| file.said(&d))?;
    core::check(&program).map_err(|d| file.said(&d))?;
    if pass == "desugar rearrangements" {
        let mut rearrangements = BTreeSet::new();
        program.visit(&mut |stmt, _| {
            if let core::StmtKind::Rearrange { .. } = stmt.kind {
                rearrangements.insert(stmt.id);
            }
        });
        core::desugar_rearrangements(&mut program, &rearrangements);
    } else if let Some((name, line)) = pass.strip_prefix("insert ").and_then(|p| p.split_once(" before ")) {
        let before = statement_at(file, &program, line)?;
        let tensor = program.tensors.iter().position(|t| t.name == name).ok_or("no such tensor")?;
        let inserted = core::insert_rearrangement(&mut program, before, core::TensorId(tensor as u32));
        inserted.ok_or("nothing is inserted")?;
    } else {
        let options = file.options(&program).map_err(|d| file.said(&d))?;
        let dumps = core_dumps(&program, &options).map_err(|d| file.said(&d))?;
        let dump = dumps.into_iter().find(|dump| dump.pass == pass).ok_or("there is no such pass")?;
        program = dump.program.ok_or("the pass leaves the program as it is")?;
    }
    core::verify(&program, pass).map_err(|d| file.said(&d.into()))?;
    Ok(program)
}

fn after(path: &Path, pass: &str) -> Result<(), Failed> {
    let actual = passed(&File::read(path)?, pass)?.to_string();
    equals(&path.with_extension("after"), &actual)
}

/// The PTX is that of a tile program.
fn ptx(path: &Path, asked: &str) -> Result<(), Failed> {
    let file = File::read(path)?;
    let (name, values) = asked.split_once(' ').unwrap_or((asked, ""));
    let beside = path.with_file_name(name);
    let values = Values::parse(values)?;
    let tile = read_program(&beside, &fs::read_to_string(&beside)?)?;
    let said = |d: Diagnostics| describe(&tile.sources, &d);
    let options = values.options(&tile).map_err(said)?;
    let expected = values.compile(&tile).map_err(said)?;
    let compiled = file.program().and_then(|program| compile_core(&program, &options));
    if compiled.as_ref().is_ok_and(|kernel| kernel.ptx == expected.ptx) {
        return Ok(());
    }
    if bless() {
        let comments = |line: &&str| line.starts_with("//");
        let comments: Vec<&str> = file.source.lines().take_while(comments).collect();
        return Ok(fs::write(path, format!("{}\n{}", comments.join("\n"), expected.core))?);
    }
    let kernel = compiled.map_err(|d| file.said(&d))?;
    let diff = similar::TextDiff::from_lines(&expected.ptx, &kernel.ptx);
    Err(format!("the PTX is not that of {name}\n{}", diff.unified_diff()).into())
}

/// The core program after each of its passes reads back from its text, and keeps the rules of core programs and of the language; that after the
/// last compiles to the same PTX.
pub fn texts(passes: &[Dump], options: &Options, expected: &str) -> Result<(), Failed> {
    let programs: Vec<_> =
        passes.iter().filter_map(|dump| Some((dump.pass, dump.program.as_ref()?))).collect();
    for (i, (pass, program)) in programs.iter().enumerate() {
        let text = program.to_string();
        let said = |d: Diagnostics| {
            format!("after {pass}: {}\nin\n{text}", describe(&Sources::new("", text.as_str()), &d))
        };
        let again = core::parse(&text).map_err(said)?;
        if again != program.renumbered() || again.to_string() != text {
            return Err(format!("after {pass}, it reads back as\n{again}\nwritten\n{text}").into());
        }
        core::check(&again).map_err(said)?;
        if i + 1 == programs.len() && compile_core(&again, options).map_err(said)?.ptx != expected {
            return Err(format!("after {pass}, its text compiles to other PTX:\n{text}").into());
        }
    }
    Ok(())
}

/// The program in the guide to core programs compiles, and is printed as it stands there.
pub fn documented(guide: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(guide)?;
    let (_, example) = text.split_once("```text\n").ok_or("the guide has no example")?;
    let (source, _) = example.split_once("```").ok_or("the example does not end")?;
    let file = File { source: source.to_string(), values: Values::parse("")? };
    let program = file.program().map_err(|d| file.said(&d))?;
    let options = file.options(&program).map_err(|d| file.said(&d))?;
    let kernel = compile_core(&program, &options).map_err(|d| file.said(&d))?;
    let printed = kernel.core.to_string();
    if printed == source { Ok(()) } else { Err(format!("it is printed as\n{printed}").into()) }
}

/// The tests that a file asks for.
pub fn trials(path: &Path) -> Vec<Trial> {
    let mut trials = Vec::new();
    let Ok(source) = fs::read_to_string(path) else { return trials };
    let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
    for (key, test) in [("error", None), ("pass", Some(after as fn(&_, &_) -> _)), ("ptx", Some(ptx))] {
        for asked in header(&source, key) {
            let (path, asked) = (path.to_path_buf(), asked.to_string());
            trials.push(Trial::test(format!("core::{key}::{name}"), move || match test {
                Some(test) => test(&path, &asked),
                None => error(&path),
            }));
        }
    }
    if trials.is_empty() && !path.with_extension("tile").is_file() {
        let missing = move || Err("the file asks for nothing".into());
        trials.push(Trial::test(format!("core::header::{name}"), missing));
    }
    trials
}
