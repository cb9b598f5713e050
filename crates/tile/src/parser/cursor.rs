//! A place in a text that another front end reads: tokens, integer expressions and names of the language, and blocks of its statements.

use std::str::FromStr;

use tilewright_layout::LayoutError;
use tilewright_machine::DType;

use super::statement::layout_error;
use super::{MAX_ERRORS, Parser, Res};
use crate::build::{Builder, Given, Head, Named, check_name};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin, Span};
use crate::expr::{Expr, SymbolId};
use crate::lexer::{Tok, read};
use crate::names::is_reserved;
use crate::program::{ElemExpr, ParamKind, Program, StmtKind, Symbol, SymbolKind, TensorKind};
use crate::sources::Sources;

/// A name that a front end gave a thing of its own ([`Cursor::declare_local`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Local(usize);

/// A name that the statements of a fragment find there ([`Cursor::fragment`]).
#[derive(Clone, PartialEq, Debug)]
pub enum FragmentFormal {
    /// A constant.
    Constant {
        /// The name.
        name: String,
        /// The default: over constants before it.
        default: Expr,
        /// The place of its declaration.
        span: Origin,
    },
    /// A number that stands where its name does.
    Number {
        /// The name.
        name: String,
        /// The number.
        value: f64,
        /// The place of its declaration.
        span: Origin,
    },
    /// A scalar parameter.
    Scalar {
        /// The name.
        name: String,
        /// Its type.
        dtype: DType,
        /// The place of its declaration.
        span: Origin,
    },
    /// A register tensor.
    Tensor {
        /// The name.
        name: String,
        /// Element type.
        dtype: DType,
        /// Its shape, over the constants of the fragment, which are numbered in their order.
        shape: Vec<Expr>,
        /// The place of its declaration.
        span: Origin,
    },
}

/// A place in a text of a language that has the tokens, the integer expressions and the statements of tile programs.
///
/// Names stand for symbols, whose table [`Cursor::finish`] returns, or for things of the front end. Mistakes are collected; what returns
/// an error stopped there, and [`Cursor::keep`] goes on behind it.
pub struct Cursor<'a> {
    parser: Parser<'a>,
}

impl<'a> Cursor<'a> {
    /// The begin of a text. Its mistakes of characters and brackets are collected, and read on behind.
    pub fn new(sources: &'a Sources) -> Self {
        let source = sources.text();
        let lexed = read(source);
        let parser = Parser {
            source,
            tokens: lexed.tokens,
            pos: 0,
            build: Builder::new(),
            errors: lexed.errors,
            core: None,
            prepared: None,
            mentioned: None,
            values: Vec::new(),
            passed: Vec::new(),
        };
        Cursor { parser }
    }

    /// The symbols that were declared, or every mistake, in the order of the text.
    ///
    /// # Errors
    ///
    /// The mistakes.
    pub fn finish(mut self) -> Res<Vec<Symbol>> {
        if self.parser.errors.is_empty() {
            return Ok(self.parser.build.program.symbols);
        }
        self.parser.errors.sort_by_key(|error| error.span.key());
        self.parser.errors.truncate(MAX_ERRORS);
        Err(Diagnostics(self.parser.errors))
    }

    // Tokens.

    /// The number of the token here, to go back to.
    pub fn position(&self) -> usize {
        self.parser.pos
    }

    /// Goes to a token.
    pub fn go_to(&mut self, position: usize) {
        self.parser.pos = position;
    }

    /// The number of the token that closes the bracket here.
    pub fn closing(&self) -> usize {
        self.parser.token().close
    }

    /// The place of the token here.
    pub fn span(&self) -> Span {
        self.parser.span()
    }

    /// The place from `start` to the last token passed.
    pub fn since(&self, start: Span) -> Span {
        self.parser.since(start)
    }

    /// The text of a place.
    pub fn text(&self, span: Span) -> &'a str {
        self.parser.source.get(span.range()).unwrap_or("")
    }

    /// True at the end of the text.
    pub fn at_end(&self) -> bool {
        self.parser.token().tok == Tok::End
    }

    /// True at a sign.
    pub fn at(&self, sign: &str) -> bool {
        self.parser.at(sign)
    }

    /// True at a word.
    pub fn at_word(&self, word: &str) -> bool {
        self.parser.at_word(word)
    }

    /// The word here, if one is.
    pub fn peek_word(&self) -> Option<&'a str> {
        let token = self.parser.token();
        (token.tok == Tok::Word).then(|| self.parser.text(token))
    }

    /// True at a literal with a fraction or an exponent, perhaps behind a sign.
    pub fn at_float(&self) -> bool {
        let token = self.parser.ahead(usize::from(self.at("-")));
        let text = self.parser.text(token);
        token.tok == Tok::Number && !text.starts_with("0x") && text.contains(['.', 'e', 'E'])
            || token.tok == Tok::Word && text == "inf"
    }

    /// True if the sign stands so many tokens ahead.
    pub fn is_ahead(&self, tokens: usize, sign: &str) -> bool {
        matches!(self.parser.ahead(tokens).tok, Tok::Punct(p) if p == sign)
    }

    /// Passes a sign, if it is here.
    pub fn eat(&mut self, sign: &str) -> bool {
        self.parser.eat(sign)
    }

    /// Passes a word, if it is here.
    pub fn eat_word(&mut self, word: &str) -> bool {
        self.parser.eat_word(word)
    }

    /// Passes ends of lines.
    pub fn skip_newlines(&mut self) {
        self.parser.skip_newlines();
    }

    /// Passes a sign; `after` says in the message where it stands.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn expect(&mut self, sign: &str, after: &str) -> Res<Span> {
        self.parser.expect(sign, after).map(|token| token.span)
    }

    /// Passes a word; `what` says in the message what was expected.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn word(&mut self, what: &str) -> Res<(&'a str, Span)> {
        self.parser.word(what)
    }

    /// A name that is no word of the language.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn name(&mut self, what: &str) -> Res<(&'a str, Span)> {
        let (name, span) = self.parser.word(what)?;
        if is_reserved(name) {
            return Err(self.parser.misplaced_word(name, span, what).into());
        }
        check_name(name, span)?;
        Ok((name, span))
    }

    /// A comma-separated list up to `close`, which is passed; a comma may follow the last item.
    ///
    /// # Errors
    ///
    /// Those of an item, or none of `,` and the closing sign is here.
    pub fn list(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Res<()>) -> Res<()> {
        loop {
            self.skip_newlines();
            if self.eat(close) {
                return Ok(());
            }
            item(self)?;
            self.skip_newlines();
            if !self.eat(",") && !self.at(close) {
                return Err(self.unexpected(&format!("`{close}` or `,`")).into());
            }
        }
    }

    /// Passes the end of a statement.
    ///
    /// # Errors
    ///
    /// The statement goes on.
    pub fn end_of_statement(&mut self) -> Res<()> {
        self.parser.end_of_statement()
    }

    // Values.

    /// An integer expression.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn expr(&mut self) -> Res<Expr> {
        self.parser.expr()
    }

    /// A condition: comparisons of integers, joined by `not`, `and`, `or`; or any integer.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn condition(&mut self) -> Res<Expr> {
        self.parser.condition()
    }

    /// An element type.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn dtype(&mut self) -> Res<DType> {
        self.parser.dtype()
    }

    /// A literal with an optional sign, as a number.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn number(&mut self) -> Res<f64> {
        self.parser.signed_number()
    }

    /// An integer literal with an optional sign.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn integer(&mut self) -> Res<i64> {
        let negative = self.eat("-");
        if self.parser.token().tok != Tok::Number {
            return Err(self.unexpected("an integer").into());
        }
        let token = self.parser.next();
        let value = self.parser.integer(token)?;
        Ok(if negative { -value } else { value })
    }

    /// A layout, up to a token, which is not passed.
    ///
    /// # Errors
    ///
    /// Something else is here.
    pub fn layout<L: FromStr<Err = LayoutError>>(&mut self, end: usize) -> Res<L> {
        if self.parser.pos >= end {
            return Err(self.unexpected("a layout").into());
        }
        let span = self.span().to(self.parser.tokens[end - 1].span);
        let layout = self.text(span).parse::<L>().map_err(|error| layout_error(&error, span))?;
        self.parser.pos = end;
        Ok(layout)
    }

    /// The last comma of a list that ends with a token; that token where there is none.
    pub fn last_comma(&self, close: usize) -> usize {
        let commas = (self.parser.pos..close).rev();
        commas.into_iter().find(|at| self.parser.tokens[*at].tok == Tok::Punct(",")).unwrap_or(close)
    }

    // Mistakes.

    /// A mistake of grammar: what is expected here, and what is found.
    pub fn unexpected(&self, expected: &str) -> Diagnostic {
        self.parser.unexpected(expected)
    }

    /// Records a mistake that does not keep the rest from being read.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn report(&mut self, diagnostic: Diagnostic) -> Res<()> {
        self.parser.report(diagnostic)
    }

    /// Records mistakes behind which the reading goes on, at the next statement behind a token.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn keep(&mut self, errors: Diagnostics, from: usize) -> Res<()> {
        self.parser.keep(errors)?;
        let mut at = from;
        while let Some(token) = self.parser.tokens.get(at) {
            match token.tok {
                Tok::Newline | Tok::End | Tok::Punct("}" | ")" | "]") => break,
                Tok::Punct("(" | "[" | "{") => at = token.close + 1,
                _ => at += 1,
            }
        }
        self.parser.pos = at.min(self.parser.tokens.len() - 1);
        self.skip_newlines();
        Ok(())
    }

    // Names.

    /// Declares a symbol, whose name is visible until the scope ends.
    ///
    /// # Errors
    ///
    /// The name is taken, or none.
    pub fn declare(&mut self, name: &str, span: Span, kind: SymbolKind) -> Result<SymbolId, Diagnostic> {
        self.parser.build.declare_symbol(name, span, kind)
    }

    /// Makes a symbol that is declared already visible by its name until the scope ends.
    ///
    /// # Errors
    ///
    /// The name is taken.
    pub fn show(&mut self, symbol: SymbolId) -> Result<(), Diagnostic> {
        let Symbol { name, span, .. } = self.parser.build.program.symbol(symbol).clone();
        self.parser.build.bind_symbol(&name, span, symbol)
    }

    /// Binds a name to a thing of the front end until the scope ends; `noun` is what messages call it.
    ///
    /// # Errors
    ///
    /// The name is taken, or none.
    pub fn declare_local(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        noun: &'static str,
    ) -> Result<Local, Diagnostic> {
        self.parser.build.declare_given(name, span, Given::Other(noun))?;
        Ok(Local(self.parser.build.given.len() - 1))
    }

    /// Keeps uses of a name, whose declaration was wrong, from being reported.
    pub fn poison(&mut self, name: &str, span: Span) {
        self.parser.build.poison(name, span);
    }

    /// The thing of the front end that a name stands for; `None` after a mistake that was reported.
    ///
    /// # Errors
    ///
    /// The name stands for nothing, or for something else; `what` says what was expected.
    pub fn local(&self, name: &str, span: Span, what: &str) -> Result<Option<Local>, Diagnostic> {
        let mistyped = |is: &str| {
            Diagnostic::new(Code::TypeMismatch, span, format!("`{name}` is {is}, not {what}"))
                .label(format!("expected {what}"))
        };
        match self.parser.build.lookup(name, span, what)? {
            Named::Given(given) => Ok(Some(Local(given))),
            Named::Poisoned => Ok(None),
            _ => Err(mistyped("an integer")),
        }
    }

    /// The thing of the front end that a name stands for here, if it stands for one.
    pub fn is_local(&self, name: &str) -> Option<Local> {
        match self.parser.build.get(name) {
            Some(Named::Given(given)) => Some(Local(given)),
            _ => None,
        }
    }

    /// The symbol that a name stands for here, if it stands for one.
    pub fn symbol(&self, name: &str) -> Option<SymbolId> {
        match self.parser.build.get(name) {
            Some(Named::Symbol(id)) => Some(id),
            _ => None,
        }
    }

    /// True if a name stands for something here.
    pub fn is_known(&self, name: &str) -> bool {
        self.parser.build.get(name).is_some()
    }

    /// The symbols so far.
    pub fn symbols(&self) -> &[Symbol] {
        &self.parser.build.program.symbols
    }

    /// Begins a scope; `name` is what messages call it.
    pub fn begin_scope(&mut self, name: &'static str) {
        self.parser.build.begin(Head::Scope(name));
    }

    /// Ends the innermost scope: names that were declared in it are visible no longer.
    pub fn end_scope(&mut self) {
        self.parser.build.end(Origin::Unknown);
    }

    /// The number of scopes around.
    pub fn scopes(&self) -> usize {
        self.parser.build.depth()
    }

    /// Ends scopes down to a number, after a mistake in them.
    pub fn end_scopes(&mut self, scopes: usize) {
        let (_, calls) = self.parser.build.nesting();
        self.parser.build.unwind(scopes, calls);
    }

    // Statements.

    /// A block of statements of the tile language, as a program of its own that is no kernel: with the formals as its constants, scalar
    /// parameters and register tensors, which come first in its tables, and no statement that defines them. Names of the text around are
    /// not visible.
    ///
    /// # Errors
    ///
    /// No block is here, or there are too many mistakes.
    pub fn fragment(&mut self, name: &str, formals: &[FragmentFormal]) -> Res<Program> {
        let start = self.span();
        let around = std::mem::replace(&mut self.parser.build, Builder::new());
        let read = self.block_of(formals);
        let mut build = std::mem::replace(&mut self.parser.build, around);
        read?;
        build.program.name = name.to_string();
        let mut program = build.finish(self.since(start));
        let tensors = formals.iter().filter(|formal| matches!(formal, FragmentFormal::Tensor { .. })).count();
        program.body.drain(..tensors.min(program.body.len()));
        Ok(program)
    }

    fn block_of(&mut self, formals: &[FragmentFormal]) -> Res<()> {
        let build = &mut self.parser.build;
        for formal in formals {
            let declared = match formal {
                FragmentFormal::Constant { name, default, span } => {
                    build.declare_symbol(name, *span, SymbolKind::Constant(default.clone())).map(|_| ())
                }
                FragmentFormal::Number { name, value, span } => {
                    build.declare_given(name, *span, Given::Number(ElemExpr::Number(*value)))
                }
                FragmentFormal::Scalar { name, dtype, span } => {
                    let default = match dtype.is_float() {
                        true => tilewright_machine::Number::Float(0.0),
                        false => tilewright_machine::Number::Integer(0),
                    };
                    build.declare_param(name, *span, *dtype, ParamKind::Scalar { default }).map(|_| ())
                }
                FragmentFormal::Tensor { name, dtype, shape, span } => {
                    let kind = TensorKind::Register { shape: shape.clone(), pinned: None };
                    build
                        .declare_tensor(name, *span, *dtype, kind)
                        .map(|id| build.emit(StmtKind::Define(id), *span))
                }
            };
            declared?;
        }
        self.parser.block()
    }
}
