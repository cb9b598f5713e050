//! Statements and the block they stand in.

use tilewright_layout::{Layout, LayoutError, SwizzledLayout};
use tilewright_machine::Memory;

use super::core::no_parts;
use super::expr::{mistyped, no_function};
use super::value::{Target, is_value};
use super::{Parser, Res, syntax};
use crate::build::{Head, Named};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::names::{Word, is_reserved, word, words_of};
use crate::nearest::nearest;
use crate::printer::expr_text;
use crate::program::{
    Asserted, BarrierKind, IndexedMode, Side, StmtKind, SymbolKind, TensorId, TensorKind, TensorRef, Use,
};
use crate::renamed::{Place, renamed_message};
use crate::statement::{Argument, PLAIN, Plain};

impl Parser<'_> {
    /// `{ statements }`.
    pub(super) fn block(&mut self) -> Res<()> {
        if !self.at("{") {
            return Err(self.no_block().into());
        }
        self.next();
        loop {
            self.skip_newlines();
            if self.eat("}") {
                return Ok(());
            }
            self.statement_or_next()?;
        }
    }

    /// The error about a block without braces.
    fn no_block(&self) -> Diagnostic {
        if self.at(":") {
            return syntax(self.span(), "a block stands in braces, not behind a colon")
                .label("expected `{`")
                .help("write `{` here, and `}` on a line of its own behind the last statement of the block");
        }
        let error = self.unexpected("`{` and the statements");
        if self.at("=") {
            return error.help("two integers are compared by `==`");
        }
        let rest = self.source.get(self.span().start as usize..).unwrap_or("");
        let rest = rest.split('\n').next().unwrap_or("").split("//").next().unwrap_or("").trim();
        let rest = rest.trim_end_matches(';').trim_end();
        match self.token().tok {
            Tok::Word => error.help(format!("a block stands in braces, even one statement: `{{ {rest} }}`")),
            _ => error.help("a block stands in braces, even one statement: `{ … }`"),
        }
    }

    pub(super) fn statement(&mut self) -> Res<()> {
        let token = self.token();
        if token.tok != Tok::Word {
            return Err(self
                .unexpected("a statement")
                .help("e.g. `copy(a, b)` or `t = cast(r, f16)`")
                .into());
        }
        if self.core_statement(token)? {
            return Ok(());
        }
        let name = self.text(token);
        if self.ahead(1).tok == Tok::Punct("=") {
            if is_reserved(name) {
                return Err(self.misplaced_word(name, token.span, "a name for the result").into());
            }
            self.next();
            self.next();
            self.skip_newlines();
            return self.assignment(name, token.span);
        }
        if self.assigns_a_part() {
            return self.part_assignment();
        }
        if self.takes_combined() {
            return self.combined_results();
        }
        if self.takes_results() {
            return self.several_results();
        }
        self.next();
        if self.at(",") && !is_reserved(name) {
            return self.two_results(name, token.span);
        }
        if self.calls_function() {
            return self.call_statement();
        }
        if name == "cluster_reduce" && self.at_cluster_function() {
            return self.cluster_combination(token.span);
        }
        if let Some(plain) = PLAIN.iter().find(|plain| plain.name == name) {
            return self.plain(plain, token.span);
        }
        match name {
            "copy" => self.copy(token.span),
            "gemm" => self.gemm(token.span),
            "syncthreads" => self.sync_threads(token.span),
            "arrive" => self.arrive(token.span),
            "syncgrid" => self.sync_grid(token.span),
            "signal" => self.signal(token.span),
            "wait" => self.wait(token.span),
            "warpgroup" => self.role(token.span),
            "in_turn" => self.in_turn(token.span),
            "produce" => self.stage(Side::Produce, token.span),
            "consume" => self.stage(Side::Consume, token.span),
            "let" => self.lets(),
            "if" => self.branch(token.span),
            "assert" => self.assert(token.span),
            "print" => self.print(token.span),
            "break" => {
                let condition = if self.eat_word("if") { self.condition()? } else { Expr::Int(1) };
                let span = self.since(token.span);
                self.build.emit(StmtKind::Break { condition }, span);
                Ok(())
            }
            "for" if self.at("(") => self.tiles(token.span),
            "for" => self.for_loop(token.span, SymbolKind::Counter),
            "unroll" => {
                let mut kind = SymbolKind::Unrolled;
                if self.eat("(") {
                    kind = SymbolKind::UnrolledBy(self.expr()?);
                    self.expect(")", "after the number of iterations")?;
                }
                if !self.eat_word("for") {
                    let help = "e.g. `unroll for kk in 0..4 { … }`";
                    return Err(self.unexpected("`for` after `unroll`").help(help).into());
                }
                self.for_loop(token.span, kind)
            }
            "size" | "const" => Err(syntax(token.span, format!("`{name}` inside the kernel"))
                .help("sizes and constants stand before the kernel")
                .into()),
            _ => Err(self.not_a_statement(name, token.span).into()),
        }
    }

    fn not_a_statement(&self, name: &str, span: Span) -> Diagnostic {
        if let Some(message) = renamed_message(Place::Language, name) {
            return syntax(span, message);
        }
        if name == "return" {
            return syntax(span, "`return` inside a block, or outside of a function")
                .help("it is the last statement of a function: `fn half(x) { return 0.5 * x }`");
        }
        if name == "drain" {
            return syntax(span, "`drain` without a loop over tiles before it")
                .help("it follows the brace that ends the loop: `} drain { … }`");
        }
        if name == "else" {
            return syntax(span, "`else` without an `if` before it")
                .help("it follows the brace that ends the branch: `} else { … }`");
        }
        if name == "split" {
            return syntax(span, "the results of `split` have no names").help("write `lo, hi = split(t)`");
        }
        if let "argmax" | "argmin" = name {
            return syntax(span, format!("the results of `{name}` have no names"))
                .help(format!("write `value, index = {name}(t, axis)`"));
        }
        if name == "ticket" {
            return Self::ticket_without_let(span);
        }
        if word(name) == Some(Word::Value) {
            return syntax(span, format!("the result of `{name}` has no name"))
                .help(format!("write `t = {name}(…)`"));
        }
        let diagnostic =
            syntax(span, format!("`{name}` does not begin a statement")).label("a statement was expected");
        let whole = |word| if word == "unroll" { "unroll for" } else { word };
        let statements: Vec<&str> =
            [words_of(Word::Call), words_of(Word::Block)].concat().into_iter().map(whole).collect();
        match nearest(name, statements.iter().copied()) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("statements are `t = …`, {}", statements.join(", "))),
        }
    }

    /// `name = …`.
    fn assignment(&mut self, name: &str, span: Span) -> Res<()> {
        let token = self.token();
        let call = token.tok == Tok::Word && self.ahead(1).tok == Tok::Punct("(");
        match if call { self.text(token) } else { "" } {
            "global_view" => {
                self.pos += 2;
                self.global_view(name, span)
            }
            form @ ("register_tensor" | "shared_tensor" | "tensor_memory") => {
                self.pos += 2;
                self.allocate(name, span, form)
            }
            call if word(call) == Some(Word::Call) => {
                let help = match call {
                    "gemm" => format!("write `gemm({name}, a, b)` on a line of its own: it adds to `{name}`"),
                    "copy" => format!(
                        "write `{name} = register_tensor(f32, [BM, BN])`, and `copy(g, {name})` on a line of its own"
                    ),
                    _ => "write it on a line of its own".to_string(),
                };
                Err(syntax(token.span, format!("`{call}` has no result")).help(help).into())
            }
            "pipeline" => {
                self.pos += 2;
                self.pipeline(name, span)
            }
            "named_barrier" => {
                self.pos += 2;
                self.named_barrier(name, span, BarrierKind::Named)
            }
            "turns" => {
                self.pos += 2;
                self.named_barrier(name, span, BarrierKind::Turns)
            }
            "split" => Err(syntax(token.span, "`split` has two results")
                .help("name both: `lo, hi = split(t)`")
                .into()),
            arg @ ("argmax" | "argmin") => Err(syntax(token.span, format!("`{arg}` has two results"))
                .help(format!("name both: `value, index = {arg}(t, axis)`"))
                .into()),
            other if call && self.is_value_alone() => {
                self.pos += 2;
                self.value(other, Target::Named(name, span)).map(|_| ())
            }
            other => {
                if call
                    && !is_value(other)
                    && !self.is_call(self.pos)
                    && word(other) != Some(Word::Function)
                    && let Some(near) = nearest(other, words_of(Word::Value))
                {
                    return Err(no_function(other, token.span, &[near]).into());
                }
                self.elementwise_assignment(name, span)
            }
        }
    }

    /// `(f16, [BM, BK], layout = …)`; the opening parenthesis is passed.
    pub(super) fn allocate(&mut self, name: &str, span: Span, form: &str) -> Res<()> {
        let close = self.tokens[self.pos - 1].close;
        let dtype = self.dtype()?;
        self.expect(",", "and the shape")?;
        let shape = self.bracketed_shape()?;
        let kind = match form {
            "shared_tensor" => TensorKind::Shared { shape, pinned: self.pinned::<SwizzledLayout>(close)? },
            "tensor_memory" => {
                self.eat(",");
                self.expect(")", "after the shape: the layout is the one that products have")?;
                TensorKind::Tensor { shape }
            }
            _ => TensorKind::Register { shape, pinned: self.pinned::<Layout>(close)? },
        };
        match self.build.declare_tensor(name, span, dtype, kind) {
            Ok(id) => {
                let span = self.since(span);
                self.build.emit(StmtKind::Define(id), span);
                Ok(())
            }
            Err(error) => self.report(error),
        }
    }

    /// An optional `, layout = …` and the closing parenthesis.
    pub(super) fn pinned<L: std::str::FromStr<Err = LayoutError>>(&mut self, close: usize) -> Res<Option<L>> {
        if !self.eat(",") || self.at(")") {
            self.expect(")", "or `, layout = …`")?;
            return Ok(None);
        }
        if !self.eat_word("layout") {
            return Err(self.unexpected("`layout = …` or `)`").into());
        }
        self.expect("=", "and a layout")?;
        let first = self.span();
        let mut last = close.max(self.pos + 1) - 1;
        if self.tokens[last].tok == Tok::Punct(",") && last > self.pos {
            last -= 1;
        }
        if self.at(")") {
            return Err(self.unexpected("a layout").into());
        }
        let span = first.to(self.tokens[last].span);
        let text = self.source.get(span.range()).unwrap_or("");
        let layout = text.parse::<L>().map_err(|error| layout_error(&error, span))?;
        self.pos = close;
        self.expect(")", "after the layout")?;
        Ok(Some(layout))
    }

    /// `copy(src, dst)` or `copy.async(src, dst, how)`; the `copy` is passed.
    fn copy(&mut self, start: Span) -> Res<()> {
        let waited = !self.eat_async("copy", "src, dst")?;
        self.expect("(", if waited { "after `copy`" } else { "after `copy.async`" })?;
        let src = self.source()?;
        self.expect(",", "and the destination")?;
        let dst = self.reference()?;
        let (waiting, asynchronous) = match waited {
            true => (Some(self.attributes()?), None),
            false => (None, Some(self.how()?)),
        };
        if let (Some(src), Some(dst)) = (src, dst) {
            let span = self.since(start);
            let kind = match (waiting, asynchronous) {
                (_, Some(how)) => StmtKind::CopyAsync { src, dst, how },
                (how, None) => StmtKind::Copy { src, dst, how: how.unwrap_or_default() },
            };
            self.build.emit(kind, span);
        }
        Ok(())
    }

    /// `gemm(c, a, b)` or `gemm.async(c, a, b)`; the `gemm` is passed.
    fn gemm(&mut self, start: Span) -> Res<()> {
        if self.eat_async("gemm", "c, a, b")? {
            return self.gemm_async(start);
        }
        self.expect("(", "after `gemm`")?;
        let c = self.tensor("the accumulator")?;
        self.expect(",", "and the left factor")?;
        let a = self.operand_tensor("the left factor")?;
        self.expect(",", "and the right factor")?;
        let b = self.operand_tensor("the right factor")?;
        let (meta, no_meta) = self.metadata("warps")?;
        let (scales, no_scales) = self.scales(Self::operand_tensor)?;
        let warps = self.shares("warps")?;
        self.expect(
            ")",
            "after the right factor, its metadata `, meta`, `, scales = (A, B)`, or `, warps = (M, N)`",
        )?;
        if let (Some(c), Some(a), Some(b), false) = (c, a, b, no_meta || no_scales) {
            let span = self.since(start);
            self.build.emit(StmtKind::Gemm { c, a, b, meta, scales, warps }, span);
        }
        Ok(())
    }

    /// An optional `, meta` of a product, in front of an optional `, word = (M, N)`; and true if it is there, but is no tensor.
    pub(super) fn metadata(&mut self, word: &str) -> Res<(Option<TensorId>, bool)> {
        let before = self.pos;
        if !self.eat(",") {
            return Ok((None, false));
        }
        // Another word in its place is told what may stand there.
        if self.at(")") || self.at_word(word) || matches!(self.ahead(1).tok, Tok::Punct("=")) {
            self.pos = before;
            return Ok((None, false));
        }
        let meta = self.operand_tensor("the metadata of a sparse left factor")?;
        Ok((meta, meta.is_none()))
    }

    /// An optional `, scales = (sa, sb)` of a product, each as `operand` reads it; and true if it is there, but one of them is no tensor.
    pub(super) fn scales<T>(
        &mut self,
        operand: impl Fn(&mut Self, &str) -> Res<Option<T>>,
    ) -> Res<(Option<[T; 2]>, bool)> {
        const WORD: &str = "scales";
        let before = self.pos;
        if !self.eat(",") || !self.eat_word(WORD) {
            self.pos = before;
            return Ok((None, false));
        }
        self.expect("=", "and the scales of both factors")?;
        self.expect("(", "as in `scales = (sa, sb)`")?;
        let left = operand(self, "the scales of the left factor")?;
        self.expect(",", "and the scales of the right factor")?;
        let right = operand(self, "the scales of the right factor")?;
        self.expect(")", "after the scales of the right factor")?;
        let both = left.zip(right).map(|(left, right)| [left, right]);
        let missing = both.is_none();
        Ok((both, missing))
    }

    /// An optional `, warps = (M, N)`, or with another word.
    pub(super) fn shares(&mut self, word: &str) -> Res<Option<[Expr; 2]>> {
        if !self.eat(",") || self.at(")") {
            return Ok(None);
        }
        if !self.eat_word(word) {
            return Err(self.unexpected(&format!("`{word} = (M, N)` or `)`")).into());
        }
        self.expect("=", "and how many along M and N")?;
        self.expect("(", &format!("as in `{word} = (2, 2)`"))?;
        let m = self.expr()?;
        self.expect(",", &format!("and the {word} along N"))?;
        let n = self.expr()?;
        self.expect(")", &format!("after the {word} along N"))?;
        self.eat(",");
        Ok(Some([m, n]))
    }

    /// The arguments of a statement that is a plain call, whose word is passed.
    fn plain(&mut self, plain: &Plain, start: Span) -> Res<()> {
        self.expect("(", &format!("after `{}`", plain.name))?;
        let mut values = Some(Vec::new());
        for (i, (argument, noun)) in plain.arguments.iter().enumerate() {
            if i > 0 {
                self.expect(",", &format!("and a {noun}"))?;
            }
            let value = match argument {
                Argument::Tensor(Use::Read) => {
                    self.operand_tensor(&format!("a {noun}"))?.map(Argument::Tensor)
                }
                Argument::Tensor(_) => self.tensor(&format!("a {noun}"))?.map(Argument::Tensor),
                Argument::Int(()) => Some(Argument::Int(self.expr()?)),
                Argument::Number(()) => Some(Argument::Number(self.known_number()?)),
                Argument::Operation(_) => Some(Argument::Operation(self.reduction(noun)?)),
            };
            values = values.zip(value).map(|(mut values, value)| {
                values.push(value);
                values
            });
        }
        let before = plain.arguments.last();
        let before = before.map_or(format!("`{}(`", plain.name), |(_, noun)| format!("the {noun}"));
        self.expect(")", &format!("after {before}"))?;
        if let Some(kind) = values.and_then(plain.make) {
            let span = self.since(start);
            self.build.emit(kind, span);
        }
        Ok(())
    }

    /// `let row = block.x * BM, last = row + BM - 1`; the word is passed.
    fn lets(&mut self) -> Res<()> {
        loop {
            let (name, span) = self.word("a name for the integer")?;
            if !self.at("=") {
                return Err(self
                    .unexpected("`=` and an integer")
                    .help("e.g. `let row = block.x * BM`")
                    .into());
            }
            self.next();
            self.skip_newlines();
            if self.at_word("ticket") {
                self.next();
                self.ticket(name, span)?;
                if !self.eat(",") {
                    return Ok(());
                }
                self.skip_newlines();
                continue;
            }
            let value = self.condition()?;
            match self.build.declare_symbol(name, span, SymbolKind::Let) {
                Ok(symbol) => {
                    let span = self.since(span);
                    self.build.emit(StmtKind::Let { symbol, value }, span);
                }
                Err(error) => self.report(error)?,
            }
            if !self.eat(",") {
                return Ok(());
            }
            self.skip_newlines();
        }
    }

    /// `if i < n { … } else if i == n { … } else { … }`; the `if` is passed.
    fn branch(&mut self, start: Span) -> Res<()> {
        if self.at_word("any") && self.ahead(1).tok == Tok::Punct("(") {
            return self.branch_of_rows(start);
        }
        let condition = if self.data_condition()? { Self::one() } else { self.condition()? };
        self.side(Head::If { condition: condition.clone(), otherwise: false }, start)?;
        // It may stand on the next line.
        let before = self.pos;
        self.skip_newlines();
        if !self.at_word("else") {
            self.pos = before;
            return Ok(());
        }
        let start = self.span();
        self.next();
        let head = Head::If { condition: condition.negated(), otherwise: true };
        let next = self.span();
        if !self.eat_word("if") {
            return self.side(head, start);
        }
        self.depth(start)?;
        self.build.begin(head);
        self.branch(next)?;
        self.build.end(start);
        Ok(())
    }

    /// `if any(c, axis) { … }`; the `if` is passed.
    fn branch_of_rows(&mut self, start: Span) -> Res<()> {
        self.next();
        self.expect("(", "after `any`")?;
        let condition = self.operand_tensor("a register tensor of truth values")?;
        self.expect(",", "and the mode along which one true element decides")?;
        let axis = self.mode()?;
        self.expect(")", "after the number of the mode")?;
        self.side(Head::IfAny { condition, axis }, start)?;
        let before = self.pos;
        self.skip_newlines();
        if self.at_word("else") {
            return Err(syntax(self.span(), "`if any(…)` has no `else`")
                .help("the body may be done for other rows too, so that no row is sure to go the other way")
                .into());
        }
        self.pos = before;
        Ok(())
    }

    /// `assert(condition, "text")`, `assert(all(t), "text")`; the word is passed.
    fn assert(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `assert`")?;
        let condition = if self.at_word("all") && self.ahead(1).tok == Tok::Punct("(") {
            self.next();
            self.next();
            let tensor = self.operand_tensor("a register tensor of truth values")?;
            self.expect(")", "after the condition")?;
            tensor.map(Asserted::All)
        } else {
            Some(Asserted::Integer(self.condition()?))
        };
        self.expect(",", "and a text for the report")?;
        let token = self.token();
        if token.tok != Tok::Text {
            return Err(self
                .unexpected("a text")
                .help("e.g. `assert(n % 8 == 0, \"rows are whole vectors\")`")
                .into());
        }
        let text = self.text(token).trim_matches('"').to_string();
        self.next();
        self.expect(")", "after the text")?;
        if let Some(condition) = condition {
            let span = self.since(start);
            self.build.emit(StmtKind::Assert { condition, text }, span);
        }
        Ok(())
    }

    /// `{ … }`, one side of a branch.
    fn side(&mut self, head: Head, start: Span) -> Res<()> {
        self.skip_newlines();
        self.depth(start)?;
        let header = self.since(start);
        self.build.begin(head);
        self.block()?;
        self.build.end(header);
        Ok(())
    }

    /// `for i in lo..hi { … }`, with a counter of this kind; the `for` is passed.
    fn for_loop(&mut self, start: Span, kind: SymbolKind) -> Res<()> {
        let (name, span) = self.word("a name for the counter")?;
        if !self.eat_word("in") {
            return Err(self.unexpected("`in`").help("e.g. `for ki in 0..ceil_div(k, BK) { … }`").into());
        }
        let lo = self.expr()?;
        self.expect("..", "and the end of the range")?;
        let hi = self.expr()?;
        if self.at_word("step") && self.ahead(1).tok != Tok::Punct("{") {
            let error = self.step_of_range(name, (&lo, &hi))?;
            self.report(error)?;
        }
        self.depth(start)?;
        if let Err(error) = self.build.begin_for(name, span, (lo, hi), kind) {
            self.report(error)?;
        }
        if self.eat_word("while") {
            let condition = self.condition()?;
            self.build.only_while(condition);
        }
        let header = self.since(start);
        self.skip_newlines();
        self.block()?;
        self.build.end(header);
        Ok(())
    }

    /// The message about `lo..hi step by`, which other languages have.
    fn step_of_range(&mut self, name: &str, (lo, hi): (&Expr, &Expr)) -> Res<Diagnostic> {
        let span = self.span();
        self.next();
        let by = self.expr()?;
        let program = &self.build.program;
        let text = |e: &Expr| expr_text(program, e);
        let rounds = if lo.as_int() == Some(0) { hi.clone() } else { hi.clone() - lo.clone() };
        let by_text = text(&by);
        let place = if lo.as_int() == Some(0) {
            format!("{name} * {by_text}")
        } else {
            format!("{} + {name} * {by_text}", text(lo))
        };
        Ok(syntax(span, "a range counts by 1: it has no step").help(format!(
            "count the rounds, `for {name} in 0..ceil_div({}, {by_text})`, and write `{place}` where `{name}` stands",
            text(&rounds)
        )))
    }

    /// `t`, `t[:, :, ki]`, `transpose(t)`; `None` after a mistake about the name.
    pub(super) fn reference(&mut self) -> Res<Option<TensorRef>> {
        let start = self.span();
        let transposed = self.at_word("transpose") && self.ahead(1).tok == Tok::Punct("(");
        if transposed {
            self.pos += 2;
        }
        if let Some(given) = self.given_tensor() {
            return self.part_of_given(given, transposed, start);
        }
        let tensor = self.named_tensor("a tensor")?;
        let (mut index, indexed) = self.entries(start)?;
        if transposed {
            self.expect(")", "after the transposed tensor")?;
        }
        let span = self.since(start);
        Ok(tensor.map(|tensor| {
            let registers = self.build.program.tensor(tensor).memory() == Memory::Register;
            let tensor = if registers && !index.is_empty() && indexed.is_none() && self.core.is_none() {
                self.build.part(tensor, std::mem::take(&mut index), span)
            } else {
                tensor
            };
            TensorRef { tensor, index, indexed, transposed, span: span.into() }
        }))
    }

    /// `[:, :, ki]`; empty where no bracket stands.
    pub(super) fn index(&mut self, start: Span) -> Res<Vec<Option<Expr>>> {
        let (index, indexed) = self.entries(start)?;
        if indexed.is_some() {
            let message = "a part of a register tensor is indexed by a register tensor";
            let error = Diagnostic::new(Code::WrongMemory, self.since(start), message);
            self.report(error.help("index a view or a shared tensor in a `copy`, or `gather` in registers"))?;
        }
        Ok(index)
    }

    /// `[:, :, ki]`, or `[id, :, ki]` with a mode that a register tensor indexes; empty where no bracket stands.
    pub(super) fn entries(&mut self, start: Span) -> Res<(Vec<Option<Expr>>, Option<IndexedMode>)> {
        let (mut index, mut indexed) = (Vec::new(), None);
        if self.eat("[") {
            self.list("]", |p| {
                let by = match p.index_tensor() {
                    Some(by) => Some(Some(by)),
                    None if p.at_elements(&|memory| memory == Memory::Register) => {
                        Some(p.operand_tensor("an index")?)
                    }
                    None => None,
                };
                if let Some(by) = by {
                    let mode = index.len() as u32;
                    index.push(None);
                    // After a mistake in the expression nothing is said of the mode.
                    let Some(by) = by else { return Ok(()) };
                    if indexed.replace(IndexedMode { mode, by }).is_some() {
                        let message = "two modes are indexed by register tensors";
                        let error = Diagnostic::new(Code::BadValue, p.since(start), message);
                        p.report(
                            error.help("a register tensor indexes one mode; compute one index of both"),
                        )?;
                    }
                    return Ok(());
                }
                let keep = p.eat(":") || p.eat_word("_");
                index.push(match p.slot()? {
                    _ if keep => None,
                    None => Some(p.expr()?),
                    slot => slot,
                });
                Ok(())
            })?;
            if index.is_empty() {
                return Err(syntax(self.since(start), "an index without entries")
                    .help("one entry a mode: `:` keeps a mode, an expression fixes it")
                    .into());
            }
        }
        Ok((index, indexed))
    }

    /// Passes the name of a tensor that is all of an entry of an index.
    fn index_tensor(&mut self) -> Option<TensorId> {
        let token = self.token();
        let alone = matches!(self.ahead(1).tok, Tok::Punct("," | "]"));
        if token.tok != Tok::Word || !alone {
            return None;
        }
        let Some(Named::Tensor(id)) = self.build.get(self.text(token)) else { return None };
        self.next();
        Some(id)
    }

    /// True if the entry of a list here is an expression over elements, not over integers: a tensor in such a memory is named in it, or what only
    /// such expressions have.
    pub(super) fn at_elements(&self, counts: &dyn Fn(Memory) -> bool) -> bool {
        let tensor = |text: &str| match self.build.get(text) {
            Some(Named::Tensor(id)) => counts(self.build.program.tensor(id).memory()),
            _ => false,
        };
        let (mut at, mut depth) = (self.pos, 0usize);
        while let Some(token) = self.tokens.get(at) {
            match token.tok {
                Tok::Punct("(" | "[") => depth += 1,
                Tok::Punct("," | "]" | ")") if depth == 0 => return false,
                Tok::Punct("]" | ")") => depth -= 1,
                Tok::End => return false,
                Tok::Word => {
                    let text = self.text(*token);
                    let called = self.tokens.get(at + 1).is_some_and(|next| next.tok == Tok::Punct("("));
                    let of_elements = match word(text) {
                        Some(Word::Function) => !["min", "max"].contains(&text),
                        _ => is_value(text),
                    };
                    // `block.x` is no tensor `x`.
                    let member = at > self.pos && self.tokens[at - 1].tok == Tok::Punct(".");
                    if called && of_elements || !member && tensor(text) {
                        return true;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        false
    }

    /// A tensor, or a part of it, `ra[:, :, 0]`; `None` after a mistake about its name.
    pub(super) fn tensor(&mut self, what: &str) -> Res<Option<TensorId>> {
        let start = self.span();
        let tensor = self.named_tensor(what)?;
        self.part(tensor, start)
    }

    /// The part of a tensor that the index here names; the tensor itself where none stands.
    pub(super) fn part(&mut self, tensor: Option<TensorId>, start: Span) -> Res<Option<TensorId>> {
        let index = self.index(start)?;
        let span = self.since(start);
        if self.core.is_some() && !index.is_empty() {
            self.report(no_parts(span))?;
            return Ok(tensor);
        }
        Ok(match tensor {
            Some(tensor) if !index.is_empty() => Some(self.build.part(tensor, index, span)),
            other => other,
        })
    }

    /// A tensor's name; `None` after a mistake about it.
    pub(super) fn named_tensor(&mut self, what: &str) -> Res<Option<TensorId>> {
        let (name, span) = self.word(what)?;
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, what).into());
        }
        let error = match self.build.lookup(name, span, "a tensor") {
            Ok(Named::Tensor(id)) => return Ok(Some(id)),
            Ok(Named::Poisoned) => return Ok(None),
            Ok(Named::Param(_)) => mistyped(name, span, "a parameter", "a tensor")
                .help(format!("make a view of it first: `g = global_view({name}[…], shape : strides)`")),
            Ok(Named::Symbol(_)) => mistyped(name, span, "an integer", "a tensor"),
            Ok(Named::Pipeline(_)) => mistyped(name, span, "a pipeline", "a tensor"),
            Ok(Named::Barrier(_)) => mistyped(name, span, "a named barrier", "a tensor"),
            Ok(Named::Role) => mistyped(name, span, "a role", "a tensor"),
            Ok(Named::Function) => mistyped(name, span, "a function", "a tensor"),
            Ok(Named::Given(given)) => mistyped(name, span, self.build.given[given].noun(), "a tensor"),
            Err(error) => error,
        };
        self.report(error)?;
        Ok(None)
    }

    /// An expression for messages, in the text's own words.
    pub(super) fn words(&self, span: Span) -> String {
        let text = self.source.get(span.range()).unwrap_or("");
        if text.chars().count() <= 60 {
            text.to_string()
        } else {
            format!("{}…", text.chars().take(60).collect::<String>())
        }
    }

    /// A literal one, for a place holder.
    pub(super) fn one() -> Expr {
        Expr::Int(1)
    }
}

pub(super) fn layout_error(error: &LayoutError, span: Span) -> Diagnostic {
    let help = "a layout is `shape:strides`, such as `((4,8),2):((2,8),1)`";
    match error {
        LayoutError::Parse { offset, message } => {
            let at = (span.start as usize).saturating_add(*offset).min(span.end as usize);
            syntax(Span::new(at, span.end as usize), format!("this is not a layout: {message}")).help(help)
        }
        other => {
            Diagnostic::new(Code::BadValue, span, format!("this layout is not legal: {other}")).help(help)
        }
    }
}
