//! Core programs: what their text has that the surface's has not. The grammar is that of the surface, but for declarations, which stand
//! before the statements, roles, slots and the word `tma`; there are no constants, no `unroll for`, and no parts of register tensors.

use std::collections::BTreeMap;

use super::{Parser, Res, syntax};
use crate::build::{Builder, Head, Named};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};
use crate::expr::{Expr, SymbolId};
use crate::lexer::{Tok, Token, lex};
use crate::names::is_reserved;
use crate::program::{BarrierKind, PipelineId, Program, Side, Stmt, StmtKind, Symbol, SymbolKind};

/// Parts of a core text that a surface program cannot hold.
#[derive(Default)]
pub(super) struct Parts {
    /// The symbol that stands in an index for the stage of a pipeline that a side has.
    slots: BTreeMap<(PipelineId, Side), SymbolId>,
    roles: Vec<RoleText>,
}

/// A role as it is written.
pub(crate) struct RoleText {
    pub(crate) name: String,
    /// Its first thread in the block.
    pub(crate) first: u32,
    pub(crate) threads: u32,
    pub(crate) registers: Option<u32>,
    /// The statement that holds its body.
    pub(crate) stmt: Stmt,
}

/// The text of a core program, read: a surface program in whose indices symbols stand for slots, and the roles.
pub(crate) struct CoreText {
    pub(crate) program: Program,
    pub(crate) slots: BTreeMap<SymbolId, (PipelineId, Side)>,
    pub(crate) roles: Vec<RoleText>,
}

/// Reads the text of a core program.
pub(crate) fn core_text(source: &str) -> Res<CoreText> {
    let tokens = lex(source)?;
    let build = Builder::new();
    let core = Some(Parts::default());
    let mut parser = Parser {
        source,
        tokens,
        pos: 0,
        build,
        errors: Vec::new(),
        core,
        prepared: None,
        mentioned: None,
        values: Vec::new(),
        passed: Vec::new(),
    };
    parser.core_file()?;
    if !parser.errors.is_empty() {
        return Err(Diagnostics(parser.errors));
    }
    let end = parser.span();
    let Parts { slots, roles } = parser.core.unwrap_or_default();
    let slots = slots.into_iter().map(|(slot, id)| (id, slot)).collect();
    Ok(CoreText { program: parser.build.finish(end), slots, roles })
}

/// True of the text of a core program: outside of brackets, a line begins with `core`. What else is wrong with the text is seen where it is
/// read.
pub fn is_core_text(source: &str) -> bool {
    let Ok(tokens) = lex(source) else { return false };
    let (mut at, mut begins) = (0, true);
    while let Some(token) = tokens.get(at) {
        if begins && token.tok == Tok::Word && source.get(token.span.range()) == Some("core") {
            return true;
        }
        begins = token.tok == Tok::Newline;
        at = if matches!(token.tok, Tok::Punct("(" | "[" | "{")) { token.close } else { at } + 1;
    }
    false
}

/// An error about a register tensor that is indexed.
pub(super) fn no_parts(span: Span) -> Diagnostic {
    Diagnostic::new(Code::WrongMemory, span, "a core program has no parts of register tensors")
        .help("declare a register tensor for each part")
}

impl Parser<'_> {
    /// `size n = 256`, then the program.
    fn core_file(&mut self) -> Res<()> {
        loop {
            self.skip_newlines();
            let token = self.token();
            match if token.tok == Tok::Word { self.text(token) } else { "" } {
                "size" => self.declarations(false)?,
                "core" => break,
                "const" => {
                    return Err(syntax(token.span, "a constant in a core program")
                        .help("constants have their values there: write the numbers")
                        .into());
                }
                "kernel" => {
                    return Err(syntax(token.span, "this is a tile program, not a core program")
                        .help("a core program begins with `core`; `--emit core` prints one")
                        .into());
                }
                _ => return Err(self.unexpected("`size` or `core`").into()),
            }
        }
        self.next();
        self.header()?;
        self.declare()?;
        self.build.declared = true;
        self.block()?;
        self.skip_newlines();
        if self.token().tok != Tok::End {
            return Err(self
                .unexpected("the end of the text")
                .help("one text holds one core program")
                .into());
        }
        Ok(())
    }

    /// `declare { counter i, j; t = register_tensor(…); p = pipeline(…) }`, if it is here.
    fn declare(&mut self) -> Res<()> {
        if !self.eat_word("declare") {
            return Ok(());
        }
        self.expect("{", "and the declarations")?;
        loop {
            self.skip_newlines();
            if self.eat("}") {
                break;
            }
            if self.at_word("counter") && self.ahead(1).tok == Tok::Word {
                self.next();
                self.declared_counters()?;
            } else {
                self.declaration()?;
            }
            self.end_of_statement()?;
        }
        self.skip_newlines();
        Ok(())
    }

    /// `i, j`.
    fn declared_counters(&mut self) -> Res<()> {
        loop {
            let (name, span) = self.word("a name for the counter")?;
            if let Err(error) = self.build.declare_symbol(name, span, SymbolKind::Counter) {
                self.report(error)?;
            }
            if !self.eat(",") {
                return Ok(());
            }
            self.skip_newlines();
        }
    }

    /// `t = register_tensor(…)` and the like.
    fn declaration(&mut self) -> Res<()> {
        const FORMS: &str = "`global_view(…)`, `register_tensor(…)`, `shared_tensor(…)`, `tensor_memory(…)`, `pipeline(…)` or `named_barrier()`";
        let (name, span) = self.word("a declaration")?;
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, "a name").into());
        }
        self.expect("=", &format!("and {FORMS}"))?;
        let (form, _) = match self.ahead(1).tok {
            Tok::Punct("(") => self.word(FORMS)?,
            _ => return Err(self.unexpected(FORMS).into()),
        };
        if !is_declared(form) {
            self.pos -= 1;
            return Err(self.unexpected(FORMS).into());
        }
        self.next();
        match form {
            "global_view" => self.global_view(name, span)?,
            "pipeline" => self.pipeline(name, span)?,
            "named_barrier" => self.named_barrier(name, span, BarrierKind::Named)?,
            _ => self.allocate(name, span, form)?,
        }
        // Declared is not defined.
        self.build.take_last();
        Ok(())
    }

    /// Reads a statement of a core program that has another form on the surface, or none; false, and nothing is read, at any other.
    pub(super) fn core_statement(&mut self, token: Token) -> Res<bool> {
        let Some(parts) = &self.core else { return Ok(false) };
        let name = self.text(token);
        let next = self.ahead(1);
        let named = next.tok == Tok::Word;
        if !parts.roles.is_empty() && self.build.depth() == 0 && !(name == "role" && named) {
            return Err(syntax(token.span, "a statement behind a role")
                .help("what all roles share stands before them")
                .into());
        }
        if next.tok == Tok::Punct("=") && is_declared(self.text(self.ahead(2))) {
            return Err(syntax(token.span, format!("`{name}` is declared among the statements"))
                .help(format!("move it into `declare {{ … }}`, and write `define {name}` here"))
                .into());
        }
        match name {
            "define" if named => self.define(token.span)?,
            "role" if named => self.core_role(token.span)?,
            "drain" => self.core_drains()?,
            "warpgroup" => {
                return Err(syntax(token.span, "a role of a core program names its threads")
                    .help("write `role name(threads 0..128, registers 40) { … }`")
                    .into());
            }
            "let" if self.text(self.ahead(3)) != "ticket" => {
                return Err(syntax(token.span, "a core program has no `let`")
                    .help("write the integer where it is used")
                    .into());
            }
            "in_turn" => {
                return Err(syntax(token.span, "a core program has no `in_turn`")
                    .help("roles wait for their turn with `syncthreads(b)`, and pass it with `arrive(c)`")
                    .into());
            }
            "unroll" => {
                return Err(syntax(token.span, "a core program has no `unroll for`")
                    .help("write its iterations, or `for`")
                    .into());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `define t`, of a tensor or a pipeline.
    fn define(&mut self, start: Span) -> Res<()> {
        self.next();
        let (name, span) = self.word("a tensor, a pipeline or a barrier")?;
        let found = self.build.lookup(name, span, "a tensor or a pipeline");
        let kind = match found {
            Ok(Named::Tensor(id)) => StmtKind::Define(id),
            Ok(Named::Pipeline(id)) => StmtKind::Pipeline(id),
            Ok(Named::Barrier(id)) => StmtKind::Barrier(id),
            Ok(Named::Poisoned) => return Ok(()),
            Ok(Named::Symbol(_) | Named::Param(_) | Named::Role | Named::Function | Named::Given(_)) => {
                let message = format!("`{name}` is neither a tensor nor a pipeline nor a barrier");
                return self.report(Diagnostic::new(Code::TypeMismatch, span, message));
            }
            Err(error) => return self.report(error),
        };
        let span = self.since(start);
        self.build.emit(kind, span);
        Ok(())
    }

    /// `drain(i, j) { … }`, perhaps none.
    pub(super) fn core_drains(&mut self) -> Res<()> {
        while self.at_word("drain") {
            let start = self.span();
            self.next();
            let mut previous = [SymbolId(0); 2];
            for (id, (name, span)) in previous.iter_mut().zip(self.counters()?) {
                match self.build.lookup(name, span, "a counter") {
                    Ok(Named::Symbol(counter)) => *id = counter,
                    Ok(_) => {
                        let message = format!("`{name}` is not a counter");
                        self.report(Diagnostic::new(Code::TypeMismatch, span, message))?;
                    }
                    Err(error) => self.report(error)?,
                }
            }
            self.skip_newlines();
            self.depth(start)?;
            let header = self.since(start);
            self.build.begin(Head::Drain { previous });
            self.block()?;
            self.build.end(header);
        }
        Ok(())
    }

    /// `role load(threads 0..128, registers 40) { … }`.
    fn core_role(&mut self, start: Span) -> Res<()> {
        if self.build.depth() > 0 {
            return Err(syntax(start, "a role within another statement")
                .help("roles stand at the outermost level, behind what they share")
                .into());
        }
        self.next();
        let (name, span) = self.word("a name for the role")?;
        self.expect("(", "and the role's threads")?;
        if !self.eat_word("threads") {
            return Err(self.unexpected("`threads`").help("e.g. `role load(threads 0..128)`").into());
        }
        let range = self.span();
        let first = self.whole_number("the first thread")?;
        self.expect("..", "and the end of the role's threads")?;
        let end = self.whole_number("the end of the threads")?;
        let threads = end.checked_sub(first);
        if threads.is_none() {
            let message = format!("the role `{name}` ends before it begins");
            let error = Diagnostic::new(Code::BadValue, self.since(range), message);
            self.report(error.help("write its first thread, then one past its last"))?;
        }
        let mut registers = None;
        if self.eat(",") {
            if !self.eat_word("registers") {
                return Err(self.unexpected("`registers`").into());
            }
            registers = Some(self.whole_number("the number of registers")?);
        }
        self.expect(")", "after the role's threads, or `, registers …`")?;
        self.skip_newlines();
        let header = self.since(start);
        let warpgroups = Expr::Int(i64::from(threads.unwrap_or(0)) / 128);
        if let Err(error) = self.build.begin_role(name, span, warpgroups, None) {
            self.report(error)?;
        }
        self.block()?;
        self.build.end(header);
        if let (Some(stmt), Some(parts)) = (self.build.take_last(), &mut self.core) {
            let (name, threads) = (name.to_string(), threads.unwrap_or(0));
            parts.roles.push(RoleText { name, first, threads, registers, stmt });
        }
        Ok(())
    }

    /// A literal that is not negative.
    pub(super) fn whole_number(&mut self, what: &str) -> Res<u32> {
        let start = self.span();
        let value = self.expr()?;
        if let Some(value) = value.as_int().and_then(|value| u32::try_from(value).ok()) {
            return Ok(value);
        }
        let span = self.since(start);
        let message = format!("{what} is not a number: `{}`", self.words(span));
        self.report(Diagnostic::new(Code::BadValue, span, message).help("write one from 0 to 4294967295"))?;
        Ok(0)
    }

    /// `ab.produced` or `ab.consumed` in an index of a core program: the symbol that stands for the slot.
    pub(super) fn slot(&mut self) -> Res<Option<Expr>> {
        let dotted = self.token().tok == Tok::Word && self.ahead(1).tok == Tok::Punct(".");
        if self.core.is_none() || !dotted || self.at_word("block") {
            return Ok(None);
        }
        let pipeline = self.named_pipeline()?;
        self.expect(".", "and `produced` or `consumed`")?;
        let (word, span) = self.word("`produced` or `consumed`")?;
        let Some(side) = [Side::Produce, Side::Consume].into_iter().find(|side| side.end() == word) else {
            return Err(syntax(span, format!("a pipeline has no stage `{word}`"))
                .help("there are `produced` and `consumed`")
                .into());
        };
        let (Some(pipeline), Some(parts)) = (pipeline, &mut self.core) else {
            return Ok(Some(Self::one()));
        };
        let symbols = &mut self.build.program.symbols;
        let id = *parts.slots.entry((pipeline, side)).or_insert_with(|| {
            symbols.push(Symbol { name: word.to_string(), kind: SymbolKind::Counter, span: span.into() });
            SymbolId(symbols.len() as u32 - 1)
        });
        Ok(Some(Expr::Symbol(id)))
    }
}

/// True for the words of what is declared.
fn is_declared(form: &str) -> bool {
    ["global_view", "register_tensor", "shared_tensor", "tensor_memory", "pipeline", "named_barrier"]
        .contains(&form)
}
