//! Reductions and scans by a function of the program: `m, s = reduce((x, e), f, axis)`. The function is named, or written in its place.

use super::value::Target;
use super::{Parser, Res, syntax};
use crate::build::{Given, Named};
use crate::diagnostic::{Code, Diagnostic, Origin, Span};
use crate::elementwise::Combination;
use crate::lexer::Tok;
use crate::program::{CombineForm, ElemExpr, StmtKind, TensorId};

/// The parameters of a function: names, and where they stand.
type Params = Vec<(String, Span)>;

impl Parser<'_> {
    /// True if a function is passed here: its name, or `fn(…) { … }`.
    pub(super) fn at_function(&self) -> bool {
        let written = self.at_word("fn") && self.ahead(1).tok == Tok::Punct("(");
        written || self.is_call(self.pos) && self.ahead(1).tok == Tok::Punct(",")
    }

    /// True if a statement begins here that names several results of a reduction or a scan: `m, s = reduce(…)`.
    pub(super) fn takes_combined(&self) -> bool {
        let is = |at: usize, punct: &str| matches!(self.tokens.get(at), Some(token) if matches!(token.tok, Tok::Punct(p) if p == punct));
        let mut at = self.pos;
        while is(at + 1, ",") {
            at += 2;
        }
        let word = |at: usize| {
            self.tokens.get(at).is_some_and(|token| ["reduce", "scan"].contains(&self.text(*token)))
        };
        at > self.pos && is(at + 1, "=") && word(at + 2)
    }

    /// `m, s = reduce((x, e), f, axis)`, `m, s = scan((x, e), f, axis, reverse)`.
    pub(super) fn combined_results(&mut self) -> Res<()> {
        let start = self.span();
        let names = self.result_names()?;
        self.expect("=", "and `reduce(…)` or `scan(…)`")?;
        let form = if self.eat_word("reduce") {
            CombineForm::Reduce
        } else {
            self.next();
            CombineForm::Scan { reverse: false }
        };
        self.expect("(", "after the word")?;
        self.expect("(", "and the operands: `reduce((x, e), f, 1)`")?;
        let mut srcs = Vec::new();
        for i in 0..names.len() {
            if i > 0 {
                self.expect(",", "and an operand for each result")?;
            }
            srcs.push(self.operand_tensor("a register tensor")?);
        }
        self.expect(")", "after as many operands as results")?;
        self.expect(",", "and the function that puts them together")?;
        let Some((by, axis, form)) = self.combination(names.len(), form)? else {
            names.iter().for_each(|(name, span)| self.poison_new(name, *span));
            return Ok(());
        };
        let srcs: Option<Vec<TensorId>> = srcs.into_iter().collect();
        let Some(srcs) = srcs else {
            names.iter().for_each(|(name, span)| self.poison_new(name, *span));
            return Ok(());
        };
        let mut dsts = Vec::new();
        for ((name, span), src) in names.into_iter().zip(&srcs) {
            let dtype = self.build.program.tensor(*src).dtype;
            let shape = match form {
                CombineForm::Reduce => self.build.reduced(*src, axis),
                CombineForm::Scan { .. } => self.build.result_shape(*src),
            };
            match self.build.assign(name, span, dtype, shape, None) {
                Ok(id) => dsts.push(id),
                Err(error) => {
                    self.report(error)?;
                    dsts.push(None);
                }
            }
        }
        if let Some(dsts) = dsts.into_iter().collect::<Option<Vec<TensorId>>>() {
            let span = self.since(start);
            self.build.emit(StmtKind::Combine { dsts, srcs, by, axis, form }, span);
        }
        Ok(())
    }

    /// True if what is put together over the cluster here, behind the word, is put together by a function: `((m, s), f)`, `(t, f)`.
    pub(super) fn at_cluster_function(&self) -> bool {
        if !self.at("(") {
            return false;
        }
        let (close, mut at) = (self.token().close, self.pos + 1);
        while at < close {
            match self.tokens[at].tok {
                Tok::Punct("(" | "[" | "{") => at = self.tokens[at].close,
                Tok::Punct(",") => {
                    let next = self.tokens[at + 1];
                    let written = self.text(next) == "fn" && self.tokens[at + 2].tok == Tok::Punct("(");
                    return written || self.is_call(at + 1);
                }
                _ => {}
            }
            at += 1;
        }
        false
    }

    /// `cluster_reduce((m, s), f)`, `cluster_reduce(t, f)`; the word is passed.
    pub(super) fn cluster_combination(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `cluster_reduce`")?;
        let mut dsts = Vec::new();
        if self.eat("(") {
            self.list(")", |p| {
                dsts.push(p.tensor("a register tensor")?);
                Ok(())
            })?;
        } else {
            dsts.push(self.tensor("a register tensor")?);
        }
        self.expect(",", "and the function that puts them together")?;
        let by = self.passed(dsts.len())?;
        self.close()?;
        let dsts: Option<Vec<TensorId>> = dsts.into_iter().collect();
        if let (Some(dsts), Some(by)) = (dsts, by) {
            let span = self.since(start);
            self.build.emit(StmtKind::ClusterCombine { dsts, by }, span);
        }
        Ok(())
    }

    /// `reduce(x, f, axis)`, `scan(x, f, axis)` behind its operand and the comma.
    pub(super) fn combined_one(
        &mut self,
        to: Target<'_>,
        src: Option<TensorId>,
        form: CombineForm,
    ) -> Res<Option<TensorId>> {
        let found = self.combination(1, form)?;
        let (Some((by, axis, form)), Some(src)) = (found, src) else { return Ok(self.no_value(to)) };
        let shape = match form {
            CombineForm::Reduce => self.build.reduced(src, axis),
            CombineForm::Scan { .. } => self.build.result_shape(src),
        };
        let kind = |dst| StmtKind::Combine { dsts: vec![dst], srcs: vec![src], by, axis, form };
        self.like(to, src, shape, kind)
    }

    /// The function, the mode, and of a scan `reverse`, up to the closing parenthesis; `None` after a mistake.
    fn combination(
        &mut self,
        count: usize,
        form: CombineForm,
    ) -> Res<Option<(Combination, u32, CombineForm)>> {
        let by = self.passed(count)?;
        self.expect(",", "and the mode along which it goes")?;
        let axis = self.mode()?;
        let mut form = form;
        if self.eat(",")
            && !self.at(")")
            && let CombineForm::Scan { reverse } = &mut form
        {
            *reverse = self.reverse()?;
        }
        self.close()?;
        Ok(by.map(|by| (by, axis, form)))
    }

    /// A function that is passed.
    fn passed(&mut self, count: usize) -> Res<Option<Combination>> {
        let span = self.span();
        if self.at_word("fn") && self.ahead(1).tok == Tok::Punct("(") {
            self.next();
            self.next();
            let mut params = Params::new();
            self.list(")", |p| {
                let (name, span) = p.word("the name of a parameter")?;
                params.push((name.to_string(), span));
                Ok(())
            })?;
            if !self.at("{") {
                return Err(self.unexpected("`{` and what the function returns").into());
            }
            self.next();
            let by = self.function_of_operands("function", span, &params, count)?;
            self.next();
            return Ok(by);
        }
        let (name, _) = self.word("the name of a function, or `fn(a, b) { return … }`")?;
        let found = self.prepared.and_then(|prepared| {
            let (number, first) = prepared.calls.get(&(self.pos - 1))?;
            Some((prepared.functions.get(*number)?, *first))
        });
        let Some((function, first)) = found else {
            let message = format!("there is no function `{name}`");
            return Err(Diagnostic::new(Code::UnknownName, span, message)
                .help("write one before the kernel: `fn f(m1, s1, m2, s2) { return …, … }`")
                .into());
        };
        let behind = self.pos;
        // Behind the `{` of the copy.
        self.pos = first + 1;
        let by = self.function_of_operands(name, span, &function.params, count)?;
        self.pos = behind;
        Ok(by)
    }

    /// The statements of a function over operands, up to its `}`.
    fn function_of_operands(
        &mut self,
        name: &str,
        span: Span,
        params: &[(String, Span)],
        count: usize,
    ) -> Res<Option<Combination>> {
        if params.len() != 2 * count {
            let message = format!(
                "a function that puts {count} together with {count} takes {} parameters, and this one has {}",
                2 * count,
                params.len()
            );
            return Err(syntax(span, message)
                .help("the elements of the first tuple, then those of the second: `fn f(m1, s1, m2, s2) { return …, … }`")
                .into());
        }
        let before = self.errors.len();
        let operands: Vec<(String, Origin, Named)> = params
            .iter()
            .enumerate()
            .map(|(i, (name, span))| {
                let operand = Given::Number(ElemExpr::Operand(i as u32));
                (name.clone(), Origin::from(*span), self.build.give(operand))
            })
            .collect();
        self.build.enter(name, operands);
        let results = self.returned();
        self.build.leave();
        let results = results?;
        if self.errors.len() > before {
            return Ok(None);
        }
        if results.len() != count {
            let message = format!("the function returns {} of the {count} values of a tuple", results.len());
            return Err(syntax(span, message).help("it returns a tuple like those that it takes").into());
        }
        Ok(Some(Combination { results }))
    }

    /// The values that a function returns, behind statements that name values on the way.
    fn returned(&mut self) -> Res<Vec<ElemExpr>> {
        loop {
            self.skip_newlines();
            if self.eat_word("return") {
                break;
            }
            let (name, span) = self.word("a name for a value, or `return`")?;
            if !self.at("=") {
                let help = "a function that is passed names values, `m = max(m1, m2)`, and returns some";
                return Err(self.unexpected("`=` and a value").help(help).into());
            }
            self.next();
            self.skip_newlines();
            let value = self.elementwise()?;
            let size = Combination { results: vec![value.clone()] }.size();
            if size > Combination::MAX_SIZE {
                let message = format!(
                    "`{name}` has more than {} operators once the names in it are replaced",
                    Combination::MAX_SIZE
                );
                return Err(Diagnostic::new(Code::BadValue, span, message).help("name smaller parts").into());
            }
            if let Err(error) = self.build.declare_given(name, span, Given::Number(value)) {
                self.report(error)?;
            }
            self.end_of_statement()?;
        }
        let mut results = Vec::new();
        loop {
            results.push(self.elementwise()?);
            if !self.eat(",") {
                break;
            }
            self.skip_newlines();
        }
        self.skip_newlines();
        if !self.at("}") {
            return Err(self.unexpected("`}` behind what the function returns").into());
        }
        Ok(results)
    }
}
