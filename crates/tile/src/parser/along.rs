//! Statements along a mode: scans and sorts, and what has two results.

use tilewright_machine::DType;

use super::value::Target;
use super::{Parser, Res, syntax};
use crate::diagnostic::Span;
use crate::lexer::Tok;
use crate::names::is_reserved;
use crate::nearest::nearest;
use crate::program::{ArgOp, CombineForm, ReduceOp, ScanOperands, StmtKind, TensorId};

/// The reduction of this name.
fn reduction(word: &str) -> Option<ReduceOp> {
    ReduceOp::ALL.into_iter().find(|op| op.name() == word)
}

impl Parser<'_> {
    /// `sum`, `max`, `min` or `product`.
    pub(super) fn reduction(&mut self, noun: &str) -> Res<ReduceOp> {
        let (word, span) = self.word("`sum`, `max`, `min` or `product`")?;
        if let Some(op) = reduction(word) {
            return Ok(op);
        }
        let error = syntax(span, format!("there is no {noun} `{word}`"))
            .label("expected `sum`, `max`, `min` or `product`");
        let error = match nearest(word, ReduceOp::ALL.map(ReduceOp::name)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error.help("there are sum, max, min and product"),
        };
        Err(error.into())
    }

    /// `scan(r, sum, 1)`, `scan(r, sum, 1, reverse)`, `scan(a, b, linear, 1)`, `scan(a, b, linear, 1, h0, reverse)`; the opening
    /// parenthesis is passed.
    pub(super) fn scan(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let first = self.operand_tensor("a register tensor")?;
        self.expect(",", "and `sum`, `max`, `min` or `product`, or the terms of a linear scan")?;
        if self.at_function() {
            return self.combined_one(to, first, CombineForm::Scan { reverse: false });
        }
        // A tensor may have the name of an operation.
        let is_word =
            |n: usize, word: &str| self.ahead(n).tok == Tok::Word && self.text(self.ahead(n)) == word;
        let known = self.build.get(self.text(self.token())).is_some();
        let alone = self.token().tok == Tok::Word && self.ahead(1).tok == Tok::Punct(",");
        let named = reduction(self.text(self.token())).is_some() || !known;
        let linear = !(alone && named) || is_word(2, "linear");
        if !linear {
            let op = self.reduction("scan")?;
            let (axis, _, reverse) = self.scanned(false)?;
            let operands = |[src, _]: [TensorId; 2], _| ScanOperands::One { src, op };
            return self.scan_of(to, [first, first], (axis, None, reverse), operands);
        }
        let second = self.operand_tensor("a register tensor")?;
        self.expect(",", "and `linear`")?;
        if !self.eat_word("linear") {
            return Err(self.unexpected("`linear`").help("e.g. `scan(a, b, linear, 1)`").into());
        }
        let end = self.scanned(true)?;
        let operands = |[a, b]: [TensorId; 2], before| ScanOperands::Linear { a, b, before };
        self.scan_of(to, [first, second], end, operands)
    }

    /// The statement of a scan whose operands are read.
    fn scan_of(
        &mut self,
        to: Target<'_>,
        [first, second]: [Option<TensorId>; 2],
        (axis, before, reverse): (u32, Option<Option<TensorId>>, bool),
        operands: impl Fn([TensorId; 2], Option<TensorId>) -> ScanOperands,
    ) -> Res<Option<TensorId>> {
        let (Some(first), Some(second)) = (first, second) else { return Ok(self.no_value(to)) };
        if before == Some(None) {
            return Ok(self.no_value(to));
        }
        let operands = operands([first, second], before.flatten());
        let shape = self.build.result_shape(first);
        self.like(to, first, shape, |dst| StmtKind::Scan { dst, operands, axis, reverse })
    }

    /// `, 1)`, `, 1, reverse)`, and of a linear scan `, 1, h0)`, `, 1, h0, reverse)`.
    fn scanned(&mut self, linear: bool) -> Res<(u32, Option<Option<TensorId>>, bool)> {
        self.expect(",", "and the mode along which it goes")?;
        let axis = self.mode()?;
        let (mut before, mut reverse) = (None, false);
        if self.eat(",") && !self.at(")") {
            reverse = self.eat_word("reverse");
            if !reverse && linear {
                before = Some(self.operand_tensor("what comes before the first element, in registers")?);
                reverse = self.eat(",") && !self.at(")") && self.reverse()?;
            } else if !reverse {
                self.reverse()?;
            }
        }
        self.close()?;
        Ok((axis, before, reverse))
    }

    pub(super) fn reverse(&mut self) -> Res<bool> {
        if self.eat_word("reverse") {
            return Ok(true);
        }
        Err(self
            .unexpected("`reverse` or `)`")
            .help("a scan goes from the first to the last, or in `reverse`")
            .into())
    }

    /// `sort(r, 1)`, `sort(r, 1, descending)`.
    pub(super) fn sort(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let src = self.operand_tensor("a register tensor")?;
        let (axis, descending) = self.sorted()?;
        let Some(src) = src else { return Ok(self.no_value(to)) };
        let shape = self.build.result_shape(src);
        let kind = |dst| StmtKind::Sort { dst, src, carried: None, axis, descending };
        self.like(to, src, shape, kind)
    }

    /// `, 1)`, `, 1, descending)`.
    fn sorted(&mut self) -> Res<(u32, bool)> {
        self.expect(",", "and the mode along which it sorts")?;
        let axis = self.mode()?;
        let mut descending = false;
        if self.eat(",") && !self.at(")") {
            descending = self.eat_word("descending");
            if !descending {
                let help = "a sort goes from the smallest to the largest, or is `descending`";
                return Err(self.unexpected("`descending` or `)`").help(help).into());
            }
        }
        self.close()?;
        Ok((axis, descending))
    }

    /// `k, v = sort(keys, values, 1)`; the opening parenthesis is passed.
    fn sorted_together(&mut self, results: [(&str, Span); 2]) -> Res<()> {
        let src = self.operand_tensor("a register tensor")?;
        self.expect(",", "and what goes with it")?;
        let with = self.operand_tensor("a register tensor")?;
        let (axis, descending) = self.sorted()?;
        let (Some(src), Some(with)) = (src, with) else {
            results.iter().for_each(|(name, span)| self.poison_new(name, *span));
            return Ok(());
        };
        let mut made = [None, None];
        for (slot, ((name, span), like)) in made.iter_mut().zip(results.into_iter().zip([src, with])) {
            let (dtype, shape) = (self.build.program.tensor(like).dtype, self.build.result_shape(like));
            match self.build.assign(name, span, dtype, shape, None) {
                Ok(id) => *slot = id,
                Err(error) => self.report(error)?,
            }
        }
        if let [Some(dst), Some(values)] = made {
            let span = self.since(results[0].1);
            self.build
                .emit(StmtKind::Sort { dst, src, carried: Some([values, with]), axis, descending }, span);
        }
        Ok(())
    }

    /// `lo, hi = split(t)`, `value, index = argmax(t, axis)`; the first name is passed.
    pub(super) fn two_results(&mut self, first: &str, first_span: Span) -> Res<()> {
        self.expect(",", "and a second result")?;
        self.skip_newlines();
        let (second, second_span) = self.word("a name for the second result")?;
        let results = [(first, first_span), (second, second_span)];
        for (name, span) in results {
            if is_reserved(name) {
                return Err(self.misplaced_word(name, span, "a name for the result").into());
            }
        }
        self.expect("=", "and `split(…)`, `argmax(…)`, `argmin(…)` or `sort(…)`, which have two results")?;
        self.skip_newlines();
        let arg = ArgOp::ALL.into_iter().find(|op| self.at_word(op.name()));
        if self.eat_word("sort") {
            self.expect("(", "after `sort`")?;
            return self.sorted_together(results);
        }
        if arg.is_none() && !self.at_word("split") {
            return Err(self
                .unexpected("`split(…)`, `argmax(…)`, `argmin(…)` or `sort(…)`")
                .help("these have two results: `lo, hi = split(t)`, `value, index = argmax(t, axis)`, `k, v = sort(keys, values, axis)`")
                .into());
        }
        self.next();
        self.expect("(", "after the word")?;
        let src = self.operand_tensor("a register tensor")?;
        let axis = match arg {
            Some(_) => {
                self.expect(",", "and the mode that is reduced")?;
                self.mode()?
            }
            None => 0,
        };
        self.close()?;
        let Some(src) = src else {
            results.iter().for_each(|(name, span)| self.poison_new(name, *span));
            return Ok(());
        };
        let dtype = self.build.program.tensor(src).dtype;
        let (shape, second_type) = match arg {
            Some(_) => (self.build.reduced(src, axis), DType::I32),
            None => (self.build.halved(src), dtype),
        };
        let mut made = [None, None];
        for (slot, ((name, span), dtype)) in
            made.iter_mut().zip(results.into_iter().zip([dtype, second_type]))
        {
            match self.build.assign(name, span, dtype, shape.clone(), None) {
                Ok(id) => *slot = id,
                Err(error) => self.report(error)?,
            }
        }
        if let [Some(lo), Some(hi)] = made {
            let span = self.since(first_span);
            let kind = match arg {
                Some(op) => StmtKind::Arg { value: lo, index: hi, src, op, axis },
                None => StmtKind::Split { lo, hi, src },
            };
            self.build.emit(kind, span);
        }
        Ok(())
    }
}
