//! Programs: texts of the tile language, with the places that their lines stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use serde_json::json;
use tilewright::compiler::{Options, arch_named, compile};
use tilewright::machine::{Arch, DType};
use tilewright::tile::Word;
use tilewright::tile::code::Code;
use tilewright::tile::{
    self, Diagnostic, Diagnostics, Origin, ParamKind, Sources, WrittenLine, least_architecture, nearest,
    parse_module, read_beside, verify,
};

use crate::error::{Class, refused, said};
use crate::kernel::Kernel;
use crate::launch::Launcher;

/// A parsed program of one kernel.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Program {
    program: Arc<tile::Program>,
    sources: Sources,
}

/// The words of the language, each with its part of speech.
#[pyfunction]
pub fn words() -> Vec<(&'static str, &'static str)> {
    let speech = |word: Word| match word {
        Word::Declaration => "declaration",
        Word::Block => "block",
        Word::Call => "call",
        Word::Value => "value",
        Word::Function => "function",
        Word::Type => "type",
        Word::Other => "other",
        Word::Future => "future",
    };
    tile::words().map(|(text, word)| (text, speech(word))).collect()
}

/// The element types, each with its bits.
#[pyfunction]
pub fn types() -> Vec<(&'static str, u32)> {
    DType::ALL.into_iter().map(|dtype| (dtype.name(), dtype.bits())).collect()
}

/// The architectures.
#[pyfunction]
pub fn architectures() -> Vec<String> {
    Arch::ALL.into_iter().map(|arch| arch.to_string()).collect()
}

/// The page about a code of messages, in Markdown.
#[pyfunction]
pub fn explain(py: Python<'_>, code: &str) -> PyResult<&'static str> {
    Code::named(code).map(Code::page).ok_or_else(|| {
        let meant = Code::nearest(code).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        said(py, Class::Compile, format!("there is no code `{code}`{meant}"))
    })
}

/// A line of a text that a program wrote: its number, the file's, and where the part begins and ends (lines from 1, bytes from 0).
type Line = (usize, usize, (usize, usize), (usize, usize));

/// The names of a program by what they are.
fn known(program: &tile::Program) -> String {
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_string() } else { names.join(", ") };
    format!(
        "its sizes are {}, its constants {}",
        list(program.sizes().map(|(_, s, _)| s.name.as_str()).collect()),
        list(program.constants().map(|(_, s, _)| s.name.as_str()).collect()),
    )
}

#[pymethods]
impl Program {
    /// Parses a text. `files` (paths and texts) and `lines` say for which places a program wrote it.
    #[new]
    #[pyo3(signature = (text, path, kernel=None, files=Vec::new(), lines=Vec::new()))]
    fn new(
        py: Python<'_>,
        text: &str,
        path: &str,
        kernel: Option<&str>,
        files: Vec<(String, String)>,
        lines: Vec<Line>,
    ) -> PyResult<Program> {
        let lines: Vec<WrittenLine> = lines
            .into_iter()
            .map(|(line, file, start, end)| WrittenLine { line, file, start, end })
            .collect();
        let written = |sources: Sources| match lines.is_empty() {
            true => sources,
            false => sources.written_for(&files, &lines),
        };
        let module =
            py.detach(|| parse_module(Sources::new(path, text), &mut read_beside)).map_err(|misread| {
                refused(py, Class::Compile, &written(misread.sources), &misread.diagnostics)
            })?;
        let sources = written(module.sources);
        let names: Vec<String> = module.programs.iter().map(|program| program.name.clone()).collect();
        let wrong = |message: String| said(py, Class::Compile, message);
        let mut programs = module.programs;
        let at = match kernel {
            Some(name) => names.iter().position(|known| known == name).ok_or_else(|| {
                wrong(format!("the text has no kernel `{name}`; its kernels are {}", names.join(", ")))
            })?,
            None if names.len() > 1 => {
                return Err(wrong(format!(
                    "the text has {} kernels: name one, `kernel=\"{}\"`; they are {}",
                    names.len(),
                    names[0],
                    names.join(", ")
                )));
            }
            None => 0,
        };
        let mut program = programs.swap_remove(at);
        program.sources = sources.clone();
        Ok(Program { program: Arc::new(program), sources })
    }

    fn __str__(&self) -> String {
        self.program.to_string()
    }

    /// The kernel's name.
    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    /// Sizes, constants and parameters, as JSON; of tensors also whether the kernel reads and writes them, where the program is right.
    fn json(&self) -> String {
        let program = &self.program;
        let verified = verify(program, &tile::Constants::new()).ok();
        let among = |ids: Option<&[tile::ParamId]>, number: usize| {
            ids.is_some_and(|ids| ids.iter().any(|id| id.0 as usize == number))
        };
        let sizes: Vec<_> = program.sizes().map(|(_, s, default)| json!([s.name, default])).collect();
        let constants: Vec<_> = program.constants().map(|(_, s, e)| json!([s.name, e.as_int()])).collect();
        let params = program.params.iter().enumerate().map(|(number, param)| match &param.kind {
            ParamKind::Scalar { default } => {
                let default = default.integer().map_or(json!(default.nearest()), |n| json!(n as i64));
                json!({ "name": param.name, "dtype": param.dtype.name(), "scalar": true, "default": default })
            }
            ParamKind::Tensor { shape, strides, array, .. } => {
                let extents: Vec<String> =
                    shape.iter().map(|extent| tile::expr_text(&**program, extent)).collect();
                let (reads, elements) = verified.as_ref().map(|v| (v.inputs(), v.elements())).unzip();
                json!({
                    "name": param.name,
                    "dtype": param.dtype.name(),
                    "scalar": false,
                    "shape": extents,
                    "stored": strides.is_some() || *array,
                    "read": among(reads, number) || among(elements, number),
                    "written": among(verified.as_ref().map(|v| v.outputs()), number),
                })
            }
        });
        json!({
            "name": program.name,
            "sizes": sizes,
            "constants": constants,
            "params": params.collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// The sizes that shapes of arrays say, of arrays by name.
    fn sizes_of(&self, shapes: BTreeMap<String, Vec<i64>>) -> BTreeMap<String, i64> {
        let mut sizes = BTreeMap::new();
        for param in &self.program.params {
            let (ParamKind::Tensor { shape, .. }, Some(found)) = (&param.kind, shapes.get(&param.name))
            else {
                continue;
            };
            for (extent, found) in shape.iter().zip(found) {
                let tile::Expr::Symbol(symbol) = extent else { continue };
                if let Some((_, size, _)) = self.program.sizes().find(|(id, ..)| id == symbol) {
                    sizes.entry(size.name.clone()).or_insert(*found);
                }
            }
        }
        sizes
    }

    /// The launches of the program, with values of constants.
    fn launcher(&self, py: Python<'_>, constants: BTreeMap<String, i64>) -> PyResult<Launcher> {
        if let Some(name) =
            constants.keys().find(|name| self.program.constants().all(|(_, s, _)| s.name != **name))
        {
            let message =
                format!("`{name}` is no constant of `{}`: {}", self.program.name, known(&self.program));
            return Err(said(py, Class::Compile, message));
        }
        let constants = constants.into_iter().collect();
        Launcher::new(self.program.clone(), self.sources.clone(), constants)
            .map_err(|diagnostics| refused(py, Class::Compile, &self.sources, &diagnostics))
    }

    /// Compiles for an architecture, these very sizes (or multiples that are assumed) and values of constants.
    #[pyo3(signature = (arch, values, assume=None))]
    fn compile(
        &self,
        py: Python<'_>,
        arch: Option<&str>,
        values: BTreeMap<String, i64>,
        assume: Option<BTreeMap<String, i64>>,
    ) -> PyResult<Kernel> {
        let program = &self.program;
        let (mut sizes, mut constants) = (BTreeMap::new(), tile::Constants::new());
        for (name, value) in values {
            if program.sizes().any(|(_, s, _)| s.name == name) {
                if value < 1 {
                    let message = format!("the size `{name}` must be at least 1, and is {value}");
                    return Err(said(py, Class::Launch, message));
                }
                sizes.insert(name, value);
            } else if program.constants().any(|(_, s, _)| s.name == name) {
                constants.insert(name, value);
            } else {
                let names = program.sizes().map(|(_, s, _)| s.name.as_str());
                let names = names.chain(program.constants().map(|(_, s, _)| s.name.as_str()));
                let near =
                    nearest(&name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let message = format!(
                    "`{name}` is neither a size nor a constant of `{}`: {}{near}",
                    program.name,
                    known(program)
                );
                return Err(said(py, Class::Compile, message));
            }
        }
        let failed = |diagnostics: Diagnostics| refused(py, Class::Compile, &self.sources, &diagnostics);
        let compiled = py.detach(|| {
            let arch = match arch {
                Some(name) => arch_named(name)?,
                None => self.least(&constants)?,
            };
            let given: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let mut options = Options::new(arch).with_constants(constants).for_sizes(program, &given);
            if let Some(multiples) = assume {
                options = options.with_multiples(multiples);
            }
            compile(program, &options)
        });
        let kernel = compiled.map_err(failed)?;
        Ok(Kernel { kernel, sources: self.sources.clone(), sizes })
    }
}

impl Program {
    /// The least architecture that has all that the program uses.
    fn least(&self, constants: &tile::Constants) -> Result<Arch, Diagnostics> {
        let verified = verify(&self.program, constants)?;
        let none = || {
            let message = "no architecture has everything that the program uses";
            Diagnostic::new(Code::UnsupportedArchitecture, Origin::Unknown, message)
        };
        Ok(least_architecture(&verified).ok_or_else(none)?.0)
    }
}
