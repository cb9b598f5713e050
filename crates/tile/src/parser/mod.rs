//! Text to program: a recursive-descent parser that resolves names as it goes. Mistakes are collected and reported together, twenty at most:
//! behind a mistake of grammar it goes on at the next statement (`recover.rs`).

mod along;
mod calls;
mod combine;
mod core;
mod cursor;
mod data;
mod expr;
mod flags;
mod foreign;
mod functions;
mod module;
mod print;
mod recover;
mod roles;
mod shapes;
mod statement;
mod value;
mod view;

pub use core::is_core_text;
pub(crate) use core::{CoreText, RoleText, core_text};
pub use cursor::{Cursor, FragmentFormal, Local};

use std::collections::HashSet;

use tilewright_machine::{DType, Number};

use functions::Prepared;
pub use module::{Misread, parse_library, parse_module};
use recover::Mistakes;

use crate::build::{Builder, Given, Named};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};
use crate::expr::Expr;
use crate::lexer::{Tok, Token};
use crate::nearest::nearest;
use crate::program::{ElemExpr, ParamKind, Program, SymbolKind};
use crate::sources::Sources;

/// The greatest height of an expression's tree, and the deepest nesting of loops.
pub(crate) const MAX_DEPTH: u32 = 200;
/// The number of mistakes after which the parser gives up.
const MAX_ERRORS: usize = crate::lexer::MAX_MISTAKES;

type Res<T> = Result<T, Diagnostics>;

/// Reads a program from its text form; `docs/tile-language.md` has the grammar.
///
/// The result is resolved (every name stands for a declared thing) but not checked: see [`verify`](crate::verify()).
/// Texts over 1 MiB are refused. A text gives every mistake of grammar and of names, up to twenty, but for those that
/// follow from others.
///
/// The law: `parse(&program.to_string()) == Ok(program)` for every program that `parse` or the Rust DSL made.
///
/// ```
/// let program = tilewright_tile::parse(
///     "size n = 100
///      kernel double(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {
///          gx = global_view(x[block.x * 128 :], (128) : (e0))
///          gy = global_view(y[block.x * 128 :], (128) : (e0))
///          r = register_tensor(f32, [128])
///          copy(gx, r)
///          t = 2.0 * r
///          copy(t, gy)
///      }",
/// )?;
/// assert_eq!(program.name, "double");
/// assert_eq!(tilewright_tile::parse(&program.to_string())?, program);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn parse(source: &str) -> Result<Program, Diagnostics> {
    let sources = Sources::new("", source);
    let prepared = Prepared::read(sources, &mut |_, name| {
        Err(format!(
            "a text by itself has no files beside it; `{name}` is read where `parse_module` is asked"
        ))
    });
    let prepared = prepared.map_err(|(sources, mistakes)| explained(&sources, mistakes))?;
    let read = prepared.one_kernel();
    let mut programs = read
        .and_then(|kernel| programs(&prepared, &[kernel]))
        .map_err(|mistakes| explained(&prepared.sources, prepared.with_errors(mistakes)))?;
    // One kernel, one program.
    Ok(programs.remove(0))
}

/// Mistakes in the order of the text, each once, with places in files, and with those about words of other languages explained.
fn explained(sources: &Sources, mistakes: Mistakes) -> Diagnostics {
    let mut placed: Vec<Diagnostic> = Vec::new();
    for error in sources.place_all(Diagnostics(mistakes.errors)).0 {
        let said = |known: &Diagnostic| {
            known.code == error.code
                && known.message == error.message
                && known.span.text().is_some()
                && known.span.text() == error.span.text()
        };
        if !placed.iter().any(said) {
            placed.push(error);
        }
    }
    placed.sort_by_key(|error| error.span.key());
    placed.truncate(MAX_ERRORS);
    let passed: Vec<Span> = mistakes.passed.into_iter().map(|span| sources.locate(span).span).collect();
    foreign::explained(sources, Diagnostics(placed), &passed)
}

/// The programs of kernels of the texts, or the mistakes of all.
fn programs(prepared: &Prepared, kernels: &[usize]) -> Result<Vec<Program>, Mistakes> {
    let mut mistakes = Mistakes::default();
    let mut programs = Vec::new();
    for kernel in kernels {
        match program(prepared, *kernel) {
            Ok(program) => programs.push(program),
            Err(of_kernel) => {
                mistakes.errors.extend(of_kernel.errors);
                mistakes.passed.extend(of_kernel.passed);
            }
        }
    }
    if mistakes.errors.is_empty() && prepared.errors.is_empty() { Ok(programs) } else { Err(mistakes) }
}

/// The program of one kernel of the texts.
fn program(prepared: &Prepared, kernel: usize) -> Result<Program, Mistakes> {
    let mut build = Builder::new();
    if !prepared.calls.is_empty() {
        build.taken = prepared.words();
    }
    let several = prepared.kernels.len() > 1;
    let mut parser = Parser {
        source: prepared.sources.text(),
        tokens: prepared.tokens.clone(),
        pos: 0,
        build,
        errors: Vec::new(),
        core: None,
        prepared: Some(prepared),
        mentioned: several.then(|| prepared.mentioned(kernel)),
        values: Vec::new(),
        passed: Vec::new(),
    };
    if let Err(errors) = parser.file(kernel) {
        parser.errors.extend(errors.0);
    }
    if !parser.errors.is_empty() {
        return Err(Mistakes { errors: parser.errors, passed: parser.passed });
    }
    let end = parser.span();
    let mut program = parser.build.finish(end);
    program.sources = prepared.sources.clone();
    for (name, call, value) in parser.values {
        program.sources.push_value(&name, call, value);
    }
    Ok(program)
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    pos: usize,
    build: Builder,
    errors: Vec<Diagnostic>,
    /// Of the text of a core program, what a surface program cannot hold.
    core: Option<core::Parts>,
    /// Functions, their calls, and files that are used; none for a core program.
    prepared: Option<&'a Prepared>,
    /// The constants and sizes that are declared; without, all.
    mentioned: Option<HashSet<String>>,
    /// Calls whose values are parts of expressions: the function, the call, and the expression in the function.
    values: Vec<(String, Span, Span)>,
    /// Parts of the text that were not read, after mistakes.
    passed: Vec<Span>,
}

fn syntax(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::Syntax, span, message)
}

impl<'a> Parser<'a> {
    // Tokens.

    fn token(&self) -> Token {
        // The last token is the end, and is never passed.
        self.tokens[self.pos.min(self.tokens.len() - 1)]
    }

    fn ahead(&self, n: usize) -> Token {
        self.tokens[(self.pos + n).min(self.tokens.len() - 1)]
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// The span from `start` to the last token passed.
    fn since(&self, start: Span) -> Span {
        start.to(self.tokens[self.pos.saturating_sub(1)].span)
    }

    fn text(&self, token: Token) -> &'a str {
        self.source.get(token.span.range()).unwrap_or("")
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        if token.tok != Tok::End {
            self.pos += 1;
        }
        token
    }

    fn at(&self, punct: &str) -> bool {
        matches!(self.token().tok, Tok::Punct(p) if p == punct)
    }

    fn at_word(&self, word: &str) -> bool {
        self.token().tok == Tok::Word && self.text(self.token()) == word
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = self.at(punct);
        if found {
            self.pos += 1;
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.pos += 1;
        }
        found
    }

    fn skip_newlines(&mut self) {
        while self.token().tok == Tok::Newline {
            self.pos += 1;
        }
    }

    fn expect(&mut self, punct: &str, after: &str) -> Res<Token> {
        if self.at(punct) {
            return Ok(self.next());
        }
        let error = self.unexpected(&format!("`{punct}` {after}"));
        let next = self.token();
        Err(match next.tok {
            Tok::Word | Tok::Number if punct == "," => {
                error.help(format!("put a `,` before `{}`", self.text(next))).into()
            }
            _ => error.into(),
        })
    }

    fn word(&mut self, what: &str) -> Res<(&'a str, Span)> {
        if self.token().tok != Tok::Word {
            return Err(self.unexpected(what).into());
        }
        let token = self.next();
        Ok((self.text(token), token.span))
    }

    /// The current token, for messages.
    fn found(&self) -> String {
        let token = self.token();
        match token.tok {
            Tok::End => "the end of the text".to_string(),
            Tok::Newline if token.span.is_empty() => "the end of the text".to_string(),
            Tok::Newline if self.text(token) == ";" => "`;`".to_string(),
            Tok::Newline => "the end of the line".to_string(),
            _ => format!("`{}`", self.text(token)),
        }
    }

    fn unexpected(&self, expected: &str) -> Diagnostic {
        syntax(self.span(), format!("expected {expected}, found {}", self.found()))
            .label(format!("expected {expected}"))
    }

    /// Records a mistake that does not keep the rest from being read.
    fn report(&mut self, diagnostic: Diagnostic) -> Res<()> {
        self.errors.push(diagnostic);
        if self.errors.len() >= MAX_ERRORS {
            return Err(Diagnostics(std::mem::take(&mut self.errors)));
        }
        Ok(())
    }

    fn end_of_statement(&mut self) -> Res<()> {
        match self.token().tok {
            Tok::Newline => {
                self.skip_newlines();
                Ok(())
            }
            Tok::Punct("}") | Tok::End => Ok(()),
            _ => Err(self
                .unexpected("the end of the line")
                .help("one statement a line, or `;` between them")
                .into()),
        }
    }

    /// A comma-separated list up to `close`, which is passed; a comma may follow the last item.
    fn list(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Res<()>) -> Res<()> {
        loop {
            self.skip_newlines();
            if self.eat(close) {
                return Ok(());
            }
            item(self)?;
            self.skip_newlines();
            if self.eat(",") {
                continue;
            }
            if !self.at(close) {
                let error = self.unexpected(&format!("`{close}` or `,`"));
                let next = self.token();
                return Err(match next.tok {
                    Tok::Word | Tok::Number => {
                        error.help(format!("put a `,` before `{}`", self.text(next))).into()
                    }
                    _ => error.into(),
                });
            }
            self.next();
            return Ok(());
        }
    }

    // The top level.

    /// `size m = 1024, n = 1024` or `const BM = 64, W = 2 * BM`.
    fn declarations(&mut self, constants: bool) -> Res<()> {
        self.next();
        loop {
            let (name, span) = self.word("a name")?;
            if self.mentioned.as_ref().is_some_and(|mentioned| !mentioned.contains(name)) && self.at("=") {
                self.pass_declaration();
                if !self.eat(",") {
                    return self.end_of_statement();
                }
                self.skip_newlines();
                continue;
            }
            if !self.at("=") {
                let what = if constants { "constant" } else { "size" };
                return Err(self.unexpected(&format!("`=` and the {what}'s default")).into());
            }
            self.next();
            let start = self.span();
            let value = self.expr()?;
            let declared = if constants {
                self.build.declare_symbol(name, span, SymbolKind::Constant(value))
            } else if let Some(value) = value.as_int() {
                self.build.declare_symbol(name, span, SymbolKind::Size(value))
            } else {
                let span = self.since(start);
                self.build.poison(name, span);
                Err(Diagnostic::new(
                    Code::BadValue,
                    span,
                    format!("the default of the size `{name}` is not a number"),
                )
                .help("a size's default is a literal, such as 1024"))
            };
            if let Err(error) = declared {
                self.report(error)?;
            }
            if !self.eat(",") {
                return self.end_of_statement();
            }
            self.skip_newlines();
        }
    }

    /// `kernel name(params) grid(…) threads(…) cluster(…) { … }`.
    fn kernel(&mut self) -> Res<()> {
        self.next();
        let mark = self.mark();
        if let Err(errors) = self.header() {
            if self.core.is_some() || !self.pass_header(&mark) {
                return Err(errors);
            }
            // A mistake of characters or brackets in the header leads to others on its following lines.
            let from = self.tokens[mark.pos].span.to(self.span());
            let told = |error: &Diagnostic| {
                error.span.text().is_some_and(|span| from.start <= span.start && span.end <= from.end)
            };
            if !self.prepared.is_some_and(|prepared| prepared.errors.iter().any(told)) {
                self.keep(errors)?;
            }
        }
        self.block()?;
        self.end_of_statement()
    }

    /// `name(params) grid(…) threads(…) cluster(…)`.
    fn header(&mut self) -> Res<()> {
        self.skip_newlines();
        let (name, _) = self.word("the kernel's name")?;
        self.build.program.name = name.to_string();
        self.skip_newlines();
        self.expect("(", "and the kernel's parameters")?;
        self.params()?;
        self.header_word("grid", "grid(ceil_div(m, BM), ceil_div(n, BN))")?;
        let start = self.span();
        self.expect("(", "and the number of blocks")?;
        let mut grid = Vec::new();
        self.list(")", |p| {
            grid.push(p.expr()?);
            Ok(())
        })?;
        self.build.program.grid = grid;
        self.build.program.grid_span = self.since(start).into();
        self.header_word("threads", "threads(128)")?;
        let start = self.span();
        self.expect("(", "and the number of threads of a block")?;
        self.build.program.threads = self.expr()?;
        if self.eat(",") {
            self.build.program.resident = self.expr()?;
        }
        self.expect(")", "after the number of threads")?;
        self.build.program.threads_span = self.since(start).into();
        self.skip_newlines();
        if self.eat_word("cluster") {
            let start = self.span();
            self.expect("(", "and the number of blocks of a cluster")?;
            let mut extents = Vec::new();
            self.list(")", |p| {
                extents.push(p.expr()?);
                Ok(())
            })?;
            self.build.program.cluster = extents;
            self.build.program.cluster_span = self.since(start).into();
            self.skip_newlines();
        }
        Ok(())
    }

    fn header_word(&mut self, word: &str, example: &str) -> Res<()> {
        self.skip_newlines();
        if self.eat_word(word) {
            return Ok(());
        }
        Err(self
            .unexpected(&format!("`{word}(…)`"))
            .help(format!("after the parameters, write e.g. `{example}`"))
            .into())
    }

    /// `a: f16[m, k]`, `a: f16[m, k] : (1, m)`, `a: f16[l][m, k]`, `constant a: f16[m, k]` or `alpha: f32 = 2.0`.
    fn param(&mut self) -> Res<()> {
        let start = self.span();
        // A parameter may have the name `constant`.
        let constant = self.at_word("constant") && self.ahead(1).tok == Tok::Word;
        if constant {
            self.next();
        }
        if self.at_word("const") && self.ahead(1).tok == Tok::Word {
            let error = self.unexpected("a parameter");
            return Err(error
                .help("a tensor that no launch of a sequence writes is `constant w: f16[n, k]`")
                .into());
        }
        let (name, _) = self.word("a parameter")?;
        self.expect(":", "and the parameter's type")?;
        if self.at("*") || self.at("&") {
            return Err(self.pointer(name, None));
        }
        let dtype = self.dtype()?;
        if self.at("*") || self.at("&") {
            return Err(self.pointer(name, Some(dtype)));
        }
        let kind = if self.eat("[") {
            let mut shape = self.extents_of_param()?;
            let array = self.eat("[");
            if array {
                if shape.len() != 1 {
                    let message =
                        format!("an array of tensors has one extent, and `{name}` has {}", shape.len());
                    return Err(Diagnostic::new(Code::WrongRank, self.since(start), message)
                        .help(format!(
                            "the number of tensors, then the shape of each: `{name}: {dtype}[l][m, k]`"
                        ))
                        .into());
                }
                shape.append(&mut self.extents_of_param()?);
                if self.at("[") {
                    let error = self.unexpected("the end of the parameter");
                    return Err(error.help("an array of tensors is no array of arrays").into());
                }
            }
            let mut strides = None;
            if self.eat(":") {
                let mut list = Vec::new();
                self.expect("(", "and the strides in elements")?;
                self.list(")", |p| {
                    list.push(p.expr()?);
                    Ok(())
                })?;
                strides = Some(list);
            }
            ParamKind::Tensor { shape, strides, array, constant }
        } else if constant {
            return Err(syntax(start, format!("`constant` is for tensors, and `{name}` is none"))
                .help(format!(
                    "a tensor: `constant {name}: {dtype}[m, n]`; a number never changes: `{name}: f32 = 1.0`"
                ))
                .into());
        } else if self.eat("=") {
            ParamKind::Scalar { default: self.number_of(dtype)? }
        } else {
            return Err(self
                .unexpected("`[` and a shape, or `=` and a default")
                .help(format!("a tensor: `{name}: {dtype}[m, n]`; a number: `{name}: f32 = 1.0`"))
                .into());
        };
        let span = self.since(start);
        if let Err(error) = self.build.declare_param(name, span, dtype, kind) {
            self.report(error)?;
        }
        Ok(())
    }

    /// Extents and the closing bracket.
    fn extents_of_param(&mut self) -> Res<Vec<Expr>> {
        let mut shape = Vec::new();
        self.list("]", |p| {
            shape.push(p.expr()?);
            Ok(())
        })?;
        Ok(shape)
    }

    /// The error about a parameter of a pointer's type, at its sign.
    fn pointer(&self, name: &str, dtype: Option<DType>) -> Diagnostics {
        let of = dtype.map_or_else(|| self.text(self.ahead(1)).to_string(), |dtype| dtype.to_string());
        let shape = foreign::shape_of(self.source, name);
        let message = format!("there are no pointers: `{name}` is a tensor with its shape");
        syntax(self.span(), message).label("a pointer").help(format!("write `{name}: {of}[{shape}]`")).into()
    }

    fn dtype(&mut self) -> Res<DType> {
        if self.at("[") {
            let error = self.unexpected("an element type");
            return Err(error.help("the type comes first, e.g. `register_tensor(f32, [BM, BN])`").into());
        }
        let (name, span) = self.word("an element type")?;
        name.parse().map_err(|error: tilewright_machine::UnknownDType| {
            let diagnostic = syntax(span, error.to_string()).label("not an element type");
            match nearest(name, DType::ALL.map(DType::name)) {
                Some(near) => diagnostic.help(format!("did you mean `{near}`?")).into(),
                None => diagnostic.into(),
            }
        })
    }

    /// A literal with an optional sign, as a number.
    fn signed_number(&mut self) -> Res<f64> {
        let negative = self.eat("-");
        if self.eat_word("inf") {
            return Ok(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        if self.token().tok != Tok::Number {
            return Err(self.unexpected("a number").into());
        }
        let token = self.next();
        let value = self.float(token)?;
        Ok(if negative { -value } else { value })
    }

    /// A literal with an optional sign, or a name that stands for one.
    fn known_number(&mut self) -> Res<f64> {
        let at = self.ahead(usize::from(self.at("-")));
        let given = match self.build.get(self.text(at)) {
            Some(Named::Given(given)) if at.tok == Tok::Word => &self.build.given[given],
            _ => return self.signed_number(),
        };
        let value = match given {
            Given::Number(ElemExpr::Number(value)) => *value,
            Given::Integer(Expr::Int(value)) => *value as f64,
            _ => return self.signed_number(),
        };
        let negative = self.eat("-");
        self.next();
        Ok(if negative { -value } else { value })
    }

    /// A literal with its sign, as a number of a type: of integers every one of 64 bits.
    fn number_of(&mut self, dtype: DType) -> Res<Number> {
        let at = self.ahead(usize::from(self.at("-")));
        let text = self.text(at);
        let whole = match text.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let Some(whole) = whole.filter(|_| dtype.range().is_some() && at.tok == Tok::Number) else {
            return Ok(Number::Float(self.signed_number()?));
        };
        let negative = self.eat("-");
        self.next();
        Ok(Number::Integer(if negative { -whole } else { whole }))
    }

    /// The value of a literal, as a floating-point number. An integer that no double is, is an error, not another one.
    fn float(&self, token: Token) -> Res<f64> {
        let text = self.text(token);
        let whole = match text.strip_prefix("0x") {
            Some(digits) => Some(u64::from_str_radix(digits, 16).map_err(|_| too_long(token.span))?.into()),
            None => text.parse::<u128>().ok(),
        };
        if let Some(whole) = whole
            && whole as f64 as u128 != whole
        {
            let reason = "this integer has no double of its own, and the next one would stand for it";
            return Err(Diagnostic::new(Code::BadValue, token.span, reason)
                .help("put it together of two: `int(0x12345678) << 32 | 0x9abcdef0`")
                .into());
        }
        match whole.map_or_else(|| text.parse::<f64>(), |whole| Ok(whole as f64)) {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(Diagnostic::new(Code::BadValue, token.span, "this number does not fit in a double")
                .help("write `inf` for infinity")
                .into()),
        }
    }

    /// The value of a literal, as an integer.
    fn integer(&self, token: Token) -> Res<i64> {
        let text = self.text(token);
        if let Some(digits) = text.strip_prefix("0x") {
            return i64::from_str_radix(digits, 16).map_err(|_| too_long(token.span).into());
        }
        if text.contains(['.', 'e', 'E']) {
            return Err(syntax(token.span, format!("`{text}` is not an integer"))
                .label("an integer was expected")
                .into());
        }
        text.parse().map_err(|_| too_long(token.span).into())
    }

    /// An error where one more block would nest too deep.
    fn depth(&self, start: Span) -> Res<()> {
        if self.build.depth() >= MAX_DEPTH as usize {
            return Err(syntax(start, format!("loops nest deeper than {MAX_DEPTH} levels")).into());
        }
        Ok(())
    }

    fn too_deep(&self, height: u32, start: Span) -> Res<u32> {
        if height > MAX_DEPTH {
            return Err(syntax(
                self.since(start),
                format!("this expression is deeper than {MAX_DEPTH} levels"),
            )
            .help("name a part of it")
            .into());
        }
        Ok(height)
    }

    /// An expression's place holder after a mistake about a name.
    fn recover(&mut self, diagnostic: Diagnostic) -> Res<Expr> {
        self.report(diagnostic)?;
        Ok(Expr::Int(1))
    }
}
fn too_long(span: Span) -> Diagnostic {
    Diagnostic::new(Code::BadValue, span, "this integer does not fit in 64 bits")
}
