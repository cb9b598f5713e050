//! The top level of a text: declarations, functions, other files, and one or more kernels.

use super::functions::Prepared;
use super::recover::{BEGINS, Mistakes};
use super::{Parser, Res, explained, programs, syntax};
use crate::build::Named;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::lexer::Tok;
use crate::nearest::nearest;
use crate::program::{Dimension, Module, Param, Program, SymbolKind};
use crate::sources::{Reader, Sources};

/// The most values of one constant of a space.
const MAX_VALUES: usize = 1 << 12;

/// Reads the kernels of a file, with the functions and constants of the files that it uses, which `reader` reads
/// ([`read_beside`](crate::read_beside)). With one kernel this is what [`parse`](crate::parse) does.
///
/// ```
/// use tilewright_tile::{Sources, parse_module, read_beside};
///
/// let text = "size n = 32
///      fn half(x) { return 0.5 * x }
///      kernel first(x: f32[n], t: f32[n]) grid(1) threads(32) {
///          gx = global_view(x, (32) : (e0))
///          gt = global_view(t, (32) : (e0))
///          r = register_tensor(f32, [32])
///          copy(gx, r)
///          s = half(r)
///          copy(s, gt)
///      }
///      kernel second(t: f32[n], y: f32[n]) grid(1) threads(32) {
///          gt = global_view(t, (32) : (e0))
///          gy = global_view(y, (32) : (e0))
///          r = register_tensor(f32, [32])
///          copy(gt, r)
///          s = half(r)
///          copy(s, gy)
///      }";
/// let module = parse_module(Sources::new("two.tile", text), &mut read_beside)?;
/// assert_eq!(module.programs.len(), 2);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Mistakes of the texts, with places in files; the texts come with them, since other files may be among them.
pub fn parse_module(sources: Sources, reader: &mut Reader<'_>) -> Result<Module, Misread> {
    let prepared = match Prepared::read(sources, reader) {
        Ok(prepared) => prepared,
        Err((sources, mistakes)) => {
            return Err(Misread { diagnostics: explained(&sources, mistakes), sources });
        }
    };
    let read = prepared.some_kernels().and_then(|kernels| {
        let programs = programs(&prepared, kernels)?;
        distinct(&prepared, &programs)?;
        Ok(programs)
    });
    match read {
        Ok(mut programs) => {
            let mut sources = prepared.sources;
            programs.iter().for_each(|program| sources.take_values(&program.sources));
            programs.iter_mut().for_each(|program| program.sources = sources.clone());
            Ok(Module { programs, sources })
        }
        Err(mistakes) => {
            let diagnostics = explained(&prepared.sources, prepared.with_errors(mistakes));
            Err(Misread { diagnostics, sources: prepared.sources })
        }
    }
}

/// Reads a text without kernels, of functions and constants that others use: its tokens and brackets, the heads of its functions, and the
/// files that it uses. A function's statements are read where a kernel calls it.
///
/// # Errors
///
/// Mistakes of the texts, with places in files.
pub fn parse_library(sources: Sources, reader: &mut Reader<'_>) -> Result<Sources, Misread> {
    let (sources, mistakes) = match Prepared::read(sources, reader) {
        Ok(prepared) if prepared.errors.is_empty() => return Ok(prepared.sources),
        Ok(prepared) => {
            let mistakes = prepared.with_errors(Mistakes::default());
            (prepared.sources, mistakes)
        }
        Err(misread) => misread,
    };
    Err(Misread { diagnostics: explained(&sources, mistakes), sources })
}

/// Messages about texts, with the texts.
#[derive(Clone, PartialEq, Debug)]
pub struct Misread {
    /// The messages.
    pub diagnostics: Diagnostics,
    /// The texts.
    pub sources: Sources,
}

impl std::fmt::Display for Misread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.diagnostics.fmt(f)
    }
}

impl std::error::Error for Misread {}

impl From<Misread> for Diagnostics {
    fn from(misread: Misread) -> Self {
        misread.diagnostics
    }
}

/// Refuses two kernels of one name, and tensors of one name that differ in type, or of which one is an array.
fn distinct(prepared: &Prepared, programs: &[Program]) -> Res<()> {
    for (i, program) in programs.iter().enumerate() {
        for before in &programs[..i] {
            if before.name == program.name {
                let [here, first] = [i, programs.iter().position(|p| p.name == program.name).unwrap_or(0)]
                    .map(|k| prepared.tokens[prepared.kernels[k] + 1].span);
                let message = format!("two kernels are named `{}`", program.name);
                return Err(Diagnostic::new(Code::DuplicateName, here, message)
                    .related(first, "the first one")
                    .into());
            }
            for param in &program.params {
                let other = before.params.iter().find(|p| p.name == param.name && p.dtype != param.dtype);
                let Some(other) = other else { continue };
                let message = format!(
                    "`{}` has elements of type {} here, and of type {} in the kernel `{}`: kernels of a file meet in buffers by name",
                    param.name, param.dtype, other.dtype, before.name
                );
                return Err(Diagnostic::new(Code::TypeMismatch, param.span, message)
                    .related(other.span, "of another type")
                    .help("give one of them another name, or both the same type")
                    .into());
            }
            for param in &program.params {
                let differs = |p: &&Param| p.name == param.name && p.is_array() != param.is_array();
                let Some(other) = before.params.iter().find(differs) else { continue };
                let kind =
                    |param: &Param| if param.is_array() { "an array of tensors" } else { "one tensor" };
                let message = format!(
                    "`{}` is {} here, and {} in the kernel `{}`: kernels of a file meet in buffers by name",
                    param.name,
                    kind(param),
                    kind(other),
                    before.name
                );
                return Err(Diagnostic::new(Code::TypeMismatch, param.span, message)
                    .related(other.span, "the other one")
                    .help("give one of them another name, or declare both alike")
                    .into());
            }
        }
    }
    Ok(())
}

impl Parser<'_> {
    /// The program's file, of whose kernels one is read: that of this token.
    pub(super) fn file(&mut self, kernel: usize) -> Res<()> {
        let mut behind_kernel = false;
        loop {
            self.skip_newlines();
            if self.token().tok == Tok::End {
                return Ok(());
            }
            let mark = self.mark();
            let begins_kernel = self.at_word("kernel");
            if let Err(errors) = self.item(kernel, behind_kernel) {
                self.keep(errors)?;
                self.pass_item(&mark);
            }
            behind_kernel |= begins_kernel;
        }
    }

    /// A declaration, a function, what a file uses, or a kernel.
    fn item(&mut self, kernel: usize, behind_kernel: bool) -> Res<()> {
        let token = self.token();
        let word = if token.tok == Tok::Word { self.text(token) } else { "" };
        match word {
            "kernel" if self.pos == kernel => self.kernel(),
            "kernel" => {
                self.pass_kernel();
                Ok(())
            }
            "size" | "const" | "space" | "use" if behind_kernel => {
                let what = match word {
                    "space" => "a space",
                    "use" => "`use`",
                    _ => "a declaration",
                };
                Err(syntax(token.span, format!("{what} after the kernel"))
                    .help("sizes, constants and what a file uses stand before the kernel")
                    .into())
            }
            "size" => self.declarations(false),
            "const" => self.declarations(true),
            "fn" => self.pass_function(),
            "use" => self.used_file(kernel),
            "space" => self.space(),
            _ => {
                let mut error = self.unexpected("`size`, `const`, `fn` or `kernel`");
                if let Some(near) = nearest(word, BEGINS) {
                    error = error.help(format!("did you mean `{near}`?"));
                }
                Err(error.into())
            }
        }
    }

    fn pass_kernel(&mut self) {
        self.pos = self.prepared.map_or(self.tokens.len() - 1, |prepared| prepared.after_kernel(self.pos));
    }

    /// Goes to the token behind the value of a declaration.
    pub(super) fn pass_declaration(&mut self) {
        while !self.at(",") && !matches!(self.token().tok, Tok::Newline | Tok::End) {
            let token = self.token();
            self.pos =
                if matches!(token.tok, Tok::Punct("(" | "[" | "{")) { token.close } else { self.pos } + 1;
        }
    }

    /// Binds the name of a function, whose text is read where it is called.
    fn pass_function(&mut self) -> Res<()> {
        let name = self.ahead(1);
        let known = self
            .prepared
            .and_then(|prepared| prepared.functions.iter().find(|function| function.span == name.span));
        if let Some(function) = known {
            self.pos = function.end;
            if let Err(error) = self.build.declare_function(&function.name, function.span) {
                self.report(error)?;
            }
        }
        self.end_of_statement()
    }

    /// Functions and constants of a file that is used here; it was read before.
    fn used_file(&mut self, kernel: usize) -> Res<()> {
        let Some(prepared) = self.prepared else { return Ok(()) };
        let first = prepared.uses.get(&self.pos).copied();
        let behind = self.pos + 2;
        if let Some(first) = first {
            let outer = self.mentioned.replace(prepared.mentioned(kernel));
            self.pos = first;
            let read = self.library(kernel);
            self.mentioned = outer;
            read?;
        }
        self.pos = behind;
        self.end_of_statement()
    }

    /// The top level of a file that is used.
    fn library(&mut self, kernel: usize) -> Res<()> {
        loop {
            self.skip_newlines();
            let token = self.token();
            match if token.tok == Tok::Word { self.text(token) } else { "" } {
                "const" => self.declarations(true)?,
                "fn" => self.pass_function()?,
                "use" => self.used_file(kernel)?,
                "kernel" => self.pass_kernel(),
                "size" | "space" => {
                    while !matches!(self.token().tok, Tok::Newline | Tok::End) {
                        let token = self.token();
                        let block = matches!(token.tok, Tok::Punct("(" | "[" | "{"));
                        self.pos = if block { token.close } else { self.pos } + 1;
                        if self.tokens[self.pos - 1].tok == Tok::Punct(",") {
                            self.skip_newlines();
                        }
                    }
                }
                _ if token.tok == Tok::End => return Ok(()),
                _ => return Err(self.unexpected("`const`, `fn` or `use`").into()),
            }
        }
    }

    /// `space { BM = 64 | 128, STAGES = 2..5 }`: values of constants for a tuner.
    fn space(&mut self) -> Res<()> {
        self.next();
        self.skip_newlines();
        self.expect("{", "and the values of constants")?;
        self.list("}", Self::dimension)?;
        self.end_of_statement()
    }

    /// `BM = 64 | 128` or `STAGES = 2..5`, whose end is excluded.
    fn dimension(&mut self) -> Res<()> {
        let (name, span) = self.word("the name of a constant")?;
        self.expect("=", "and its values")?;
        let start = self.span();
        let mut values: Vec<i64> = Vec::new();
        loop {
            self.skip_newlines();
            let from = self.span();
            let low = self.number_of_space()?;
            if self.eat("..") {
                let high = self.number_of_space()?;
                if high <= low || high - low > MAX_VALUES as i64 {
                    let message = format!("the range {low}..{high} has no values, or too many");
                    return Err(Diagnostic::new(Code::BadValue, self.since(from), message)
                        .help("the end is excluded: `2..5` is 2, 3 and 4")
                        .into());
                }
                values.extend(low..high);
            } else {
                values.push(low);
            }
            self.skip_newlines();
            if !self.eat("|") {
                break;
            }
        }
        let span_of_values = self.since(start);
        for (i, value) in values.iter().enumerate() {
            if values[..i].contains(value) {
                return Err(Diagnostic::new(
                    Code::BadValue,
                    span_of_values,
                    format!("`{name}` has {value} twice"),
                )
                .into());
            }
        }
        let declared = self.build.get(name);
        let constant = match declared {
            Some(Named::Symbol(id))
                if matches!(self.build.program.symbol(id).kind, SymbolKind::Constant(_)) =>
            {
                id
            }
            // A constant of another kernel.
            None if self.prepared.is_some_and(|p| p.kernels.len() > 1 && p.is_declared(name)) => {
                return Ok(());
            }
            _ => {
                let error = Diagnostic::new(Code::UnknownName, span, format!("`{name}` is no constant"))
                    .label("a constant was expected")
                    .help(format!("declare it before: `const {name} = {}`", values.first().unwrap_or(&1)));
                return self.report(error);
            }
        };
        if self.build.program.space.iter().any(|known| known.constant == constant) {
            let message = format!("the space has `{name}` twice");
            return self.report(Diagnostic::new(Code::DuplicateName, span, message));
        }
        self.build.program.space.push(Dimension { constant, values, span: span_of_values.into() });
        Ok(())
    }

    fn number_of_space(&mut self) -> Res<i64> {
        let negative = self.eat("-");
        if self.token().tok != Tok::Number {
            return Err(self.unexpected("an integer").into());
        }
        let token = self.next();
        let value = self.integer(token)?;
        Ok(if negative { -value } else { value })
    }
}
