//! Task programs that are wrong: `tests/error/*.task`. Their first line is `// error: CODE at LINE:COLUMN: MESSAGE`, of the parser, the
//! verifier, or the event graph or the tile program of a mapping; with a line `// interpret: NAME=VALUE …` of the task interpreter, which runs the first mapping with these values.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use tilewright::machine::Number;
use tilewright::task::program::SymbolKind;
use tilewright::task::{Program, check, lower, parse_file, verify};
use tilewright::tasks::{TaskOptions, run};
use tilewright::tile::{Diagnostics, Sources};

use super::{expect_error, from_root, header};

/// Values of a line `m=17 D=16 scale=0.5`.
fn values(program: &Program, line: &str) -> Result<TaskOptions, Failed> {
    let mut options = TaskOptions::default();
    for word in line.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or(format!("`{word}` is not NAME=VALUE"))?;
        let kind = program.symbols.iter().find(|symbol| symbol.name == name).map(|symbol| &symbol.kind);
        match kind {
            Some(SymbolKind::Size(_)) => options.sizes.insert(name.to_string(), value.parse()?),
            Some(SymbolKind::Constant(_)) => options.constants.insert(name.to_string(), value.parse()?),
            _ => options.scalars.insert(name.to_string(), Number::Float(value.parse()?)).map(|_| 0),
        };
    }
    Ok(options)
}

/// Mistakes of a file.
fn mistakes(sources: &Sources, interpreted: Option<&str>) -> Result<Diagnostics, Failed> {
    let program = match parse_file(sources) {
        Ok(program) => program,
        Err(errors) => return Ok(errors),
    };
    if let Err(errors) = verify(&program, &Default::default()) {
        return Ok(errors);
    }
    let Some(line) = interpreted else {
        let lowered = || program.mappings.iter().try_for_each(|mapping| lower(&program, mapping).map(|_| ()));
        let found = check(&program, &Default::default()).and_then(|()| lowered());
        return found.err().ok_or("the program is right".into());
    };
    let mapping = program.mappings.first().ok_or("the file has no mapping")?;
    match run(&program, mapping, &values(&program, line)?) {
        Ok(_) => Err("the program runs".into()),
        Err(errors) => Ok(errors),
    }
}

/// The message of a file is that of its first line.
pub fn error_test(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let sources = Sources::new(from_root(&path.display().to_string()), source.as_str());
    let errors = mistakes(&sources, header(&source, "interpret").next())?;
    expect_error(path, &source, &sources, &errors)
}
