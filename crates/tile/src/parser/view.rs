//! `global_view`: the buffer's offsets, the view's shape, and its strides, which are steps along modes of the buffer.

use super::expr::mistyped;
use super::{Parser, Res, syntax};
use crate::build::Named;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::{Expr, IntOp};
use crate::lexer::Tok;
use crate::names::{basis, is_reserved};
use crate::program::{ParamId, ParamKind, Program, StmtKind, SymbolKind, TensorKind, ViewLeaf, ViewMode};

/// A step of a view's mode: `scale` along mode `dim` of the buffer.
struct Step {
    dim: u32,
    scale: Expr,
}

impl Parser<'_> {
    /// `(a[offsets], SHAPE : STRIDES)`; the opening parenthesis is passed.
    pub(super) fn global_view(&mut self, name: &str, span: Span) -> Res<()> {
        let close = self.tokens[self.pos - 1].close;
        let (buffer, buffer_span) = self.word("a parameter")?;
        if is_reserved(buffer) {
            return Err(self.misplaced_word(buffer, buffer_span, "a parameter").into());
        }
        let found = match self.build.lookup(buffer, buffer_span, "a parameter") {
            Ok(Named::Param(id)) if matches!(self.build.program.param(id).kind, ParamKind::Tensor { .. }) => {
                Ok(Some(id))
            }
            Ok(Named::Param(_)) => Err(mistyped(buffer, buffer_span, "a number", "a tensor parameter")),
            Ok(Named::Tensor(_)) => {
                Err(mistyped(buffer, buffer_span, "a tensor of the block", "a tensor parameter")
                    .help("a view is taken of a parameter of the kernel"))
            }
            Ok(Named::Symbol(_)) => Err(mistyped(buffer, buffer_span, "an integer", "a tensor parameter")),
            Ok(Named::Pipeline(_)) => Err(mistyped(buffer, buffer_span, "a pipeline", "a tensor parameter")),
            Ok(Named::Barrier(_)) => {
                Err(mistyped(buffer, buffer_span, "a named barrier", "a tensor parameter"))
            }
            Ok(Named::Role) => Err(mistyped(buffer, buffer_span, "a role", "a tensor parameter")),
            Ok(Named::Function) => Err(mistyped(buffer, buffer_span, "a function", "a tensor parameter")),
            Ok(Named::Given(given)) => {
                Err(mistyped(buffer, buffer_span, self.build.given[given].noun(), "a tensor parameter"))
            }
            Ok(Named::Poisoned) => Ok(None),
            Err(error) => Err(error),
        };
        let param = match found {
            Ok(Some(param)) => param,
            other => {
                // Nothing can be said about strides of an unknown buffer: pass over the rest.
                if let Err(error) = other {
                    self.report(error)?;
                }
                self.build.poison(name, span);
                self.passed.push(self.span().to(self.tokens[close].span));
                self.pos = close;
                self.expect(")", "after the view")?;
                return Ok(());
            }
        };
        let rank = match &self.build.program.param(param).kind {
            ParamKind::Tensor { shape, .. } => shape.len(),
            ParamKind::Scalar { .. } => 0,
        };
        let (offsets, ends) =
            if self.at("[") { self.offsets()? } else { (vec![Expr::Int(0); rank], vec![None; rank]) };
        self.expect(",", "and the view's shape")?;
        let shape = self.extents()?;
        self.expect(":", "and the view's strides")?;
        let modes = self.strides(&shape, param)?;
        let mut fold = Vec::new();
        if self.eat(",") {
            self.skip_newlines();
            if self.at_word("fold") {
                fold = self.fold(param)?;
                self.eat(",");
            }
        }
        self.expect(")", "after the strides")?;
        let dtype = self.build.program.param(param).dtype;
        let kind = TensorKind::View { param, offsets, ends, modes, fold };
        match self.build.declare_tensor(name, span, dtype, kind) {
            Ok(id) => {
                let span = self.since(span);
                self.build.emit(StmtKind::Define(id), span);
                Ok(())
            }
            Err(error) => self.report(error),
        }
    }

    /// `[off :, : end]`: where it begins and, perhaps, ends along each mode.
    fn offsets(&mut self) -> Res<(Vec<Expr>, Vec<Option<Expr>>)> {
        let (mut offsets, mut ends) = (Vec::new(), Vec::new());
        self.next();
        self.list("]", |p| {
            offsets.push(if p.at(":") { Expr::Int(0) } else { p.expr()? });
            if !p.at(":") {
                return Err(p
                    .unexpected("`:` after the offset")
                    .help("a view starts at an offset and has a shape: `a[block.x * BM :, :]`")
                    .into());
            }
            p.next();
            ends.push(if p.at(",") || p.at("]") { None } else { Some(p.expr()?) });
            Ok(())
        })?;
        Ok((offsets, ends))
    }

    /// `fold = (q, p, nb) : (2 * e2, 2 * e1, e0)`: a mode that folds modes of the buffer.
    fn fold(&mut self, param: ParamId) -> Res<Vec<ViewLeaf>> {
        self.next();
        self.expect("=", "and what is folded, such as `fold = (q, p, nb) : (e2, e1, e0)`")?;
        let shape = self.extents()?;
        self.expect(":", "and the steps of what is folded")?;
        let modes = self.strides(&shape, param)?;
        Ok(modes.into_iter().flat_map(|mode| mode.leaves).collect())
    }

    /// True if the parenthesis here is a tuple: a comma stands in it, or it is empty.
    fn at_tuple(&self) -> bool {
        if !self.at("(") {
            return false;
        }
        let close = self.token().close;
        let mut at = self.pos + 1;
        while at < close {
            let token = self.tokens[at];
            match token.tok {
                Tok::Punct(",") => return true,
                Tok::Punct("(" | "[" | "{") => at = token.close + 1,
                _ => at += 1,
            }
        }
        false
    }

    /// The shape: a tuple of modes, each an extent or a tuple of extents.
    fn extents(&mut self) -> Res<Vec<(Vec<Expr>, Span)>> {
        self.expect("(", "and the view's extents, such as `(BM, BK)`")?;
        let mut modes = Vec::new();
        self.list(")", |p| {
            let start = p.span();
            let mut leaves = Vec::new();
            if p.at_tuple() {
                p.next();
                p.list(")", |p| {
                    if p.at_tuple() {
                        return Err(syntax(p.span(), "a mode of a view nests only one level deep")
                            .help("write its leaves in one tuple: `((8, 4, 2), BK)`")
                            .into());
                    }
                    leaves.push(p.expr()?);
                    Ok(())
                })?;
            } else {
                leaves.push(p.expr()?);
            }
            modes.push((leaves, p.since(start)));
            Ok(())
        })?;
        Ok(modes)
    }

    /// The strides, congruent to the shape.
    fn strides(&mut self, shape: &[(Vec<Expr>, Span)], param: ParamId) -> Res<Vec<ViewMode>> {
        let start = self.span();
        self.expect("(", "and the view's strides, such as `(e0, e1)`")?;
        let mut modes: Vec<ViewMode> = Vec::new();
        self.list(")", |p| {
            let first = p.span();
            let mut steps = Vec::new();
            if p.at_tuple() {
                p.next();
                p.list(")", |p| {
                    steps.push(p.step(param)?);
                    Ok(())
                })?;
            } else {
                steps.push(p.step(param)?);
            }
            let Some((extents, extent_span)) = shape.get(modes.len()) else {
                return Err(not_congruent(p.since(first), "this stride has no extent", shape.len()).into());
            };
            if extents.len() != steps.len() {
                let what = format!(
                    "a mode with strides and extents in numbers {} and {}",
                    steps.len(),
                    extents.len()
                );
                return Err(not_congruent(p.since(first), &what, shape.len())
                    .related(*extent_span, "the mode")
                    .into());
            }
            let leaves = extents
                .iter()
                .zip(steps)
                .map(|(extent, step)| ViewLeaf { extent: extent.clone(), dim: step.dim, scale: step.scale })
                .collect();
            modes.push(ViewMode { leaves });
            Ok(())
        })?;
        if modes.len() != shape.len() {
            let what = format!("{} strides for {} modes", modes.len(), shape.len());
            return Err(not_congruent(self.since(start), &what, shape.len()).into());
        }
        Ok(modes)
    }

    /// `e0`, `BK * e1`, `2e1`, or a stride in elements.
    fn step(&mut self, param: ParamId) -> Res<Step> {
        let start = self.span();
        if self.at_tuple() {
            return Err(syntax(start, "a mode of a view nests only one level deep").into());
        }
        if !self.has_basis() {
            let stride = self.expr()?;
            let span = self.since(start);
            return self.resolve(&stride, span, param);
        }
        let mut scale = Expr::Int(1);
        let mut height = 0;
        let mut dim = None;
        loop {
            let token = self.token();
            let text = self.text(token);
            let (factor, axis) = match token.tok {
                Tok::Word if basis(text).is_some() => {
                    self.next();
                    (None, basis(text))
                }
                Tok::Number if text.contains('e') => {
                    self.next();
                    let (count, axis) = text.split_once('e').unwrap_or((text, ""));
                    let count = count.parse::<i64>().ok();
                    let axis = axis.parse::<u32>().ok();
                    if count.is_none() || axis.is_none() {
                        return Err(syntax(token.span, format!("`{text}` is not a step along a mode")).into());
                    }
                    (count.map(Expr::Int), axis)
                }
                _ => (Some(self.factor()?.0), None),
            };
            if let Some(axis) = axis
                && dim.replace(axis).is_some()
            {
                return Err(syntax(self.since(start), "a stride walks one mode of the buffer")
                    .help("give the mode several leaves: `((8, 4), BK) : ((e0, e1), e1)`")
                    .into());
            }
            if let Some(factor) = factor {
                height += 1;
                self.too_deep(height, start)?;
                scale = Expr::binary(IntOp::Mul, scale, factor);
            }
            if !self.eat("*") {
                break;
            }
            self.skip_newlines();
        }
        if !self.at(",") && !self.at(")") {
            return Err(self
                .unexpected("`*`, `,` or `)`")
                .help("a stride is a product with one of e0, e1, …")
                .into());
        }
        Ok(Step { dim: dim.unwrap_or(0), scale })
    }

    /// True if the stride here names a basis element outside parentheses.
    fn has_basis(&self) -> bool {
        let mut at = self.pos;
        loop {
            let token = self.tokens[at];
            match token.tok {
                Tok::Word if basis(self.text(token)).is_some() => return true,
                Tok::Number if self.text(token).contains('e') => return true,
                Tok::Punct("," | ")" | "]" | "}") | Tok::End => return false,
                Tok::Punct("(" | "[" | "{") => at = token.close + 1,
                _ => at += 1,
            }
        }
    }

    /// A stride in elements as a step along the mode of the buffer that it fits best.
    fn resolve(&mut self, stride: &Expr, span: Span, param: ParamId) -> Res<Step> {
        let program = &self.build.program;
        let strides = program.param(param).strides();
        if strides.is_empty() {
            return Ok(Step { dim: 0, scale: Self::one() });
        }
        // There is no step from one tensor of an array to the next.
        let first = usize::from(program.param(param).is_array());
        let wanted = Factors::of(stride);
        // The buffer's most specific stride first: most symbols, then the largest literal.
        let mut order: Vec<usize> = (first..strides.len()).collect();
        let factors: Vec<Factors> = strides.iter().map(Factors::of).collect();
        order.sort_by_key(|&d| std::cmp::Reverse((factors[d].atoms.len(), factors[d].literal.abs())));
        for d in order {
            if let Some(scale) = wanted.over(&factors[d])
                && only_constants(&scale, program)
            {
                return Ok(Step { dim: d as u32, scale });
            }
        }
        let name = &program.param(param).name;
        let list: Vec<String> =
            strides.iter().skip(first).map(|s| crate::printer::expr_text(program, s)).collect();
        let error = Diagnostic::new(
            Code::BadValue,
            span,
            format!(
                "the stride `{}` is no multiple of a stride of `{name}`, which are ({})",
                self.words(span),
                list.join(", ")
            ),
        )
        .label("fits no mode of the buffer")
        .help("say which mode it walks, and how far: `e0` is a step along mode 0, `BK * e1` goes BK along mode 1");
        self.report(error)?;
        Ok(Step { dim: 0, scale: Self::one() })
    }
}

fn not_congruent(span: Span, what: &str, modes: usize) -> Diagnostic {
    Diagnostic::new(Code::WrongRank, span, format!("shape and strides do not correspond: {what}")).help(
        format!(
            "the strides mirror the shape: one for each of its {modes} modes, one for each leaf of a mode"
        ),
    )
}

fn only_constants(expr: &Expr, program: &Program) -> bool {
    match expr {
        Expr::Int(_) => true,
        Expr::Symbol(id) => matches!(program.symbol(*id).kind, SymbolKind::Constant(_)),
        Expr::Block(_) | Expr::Element(..) | Expr::Scalar(_) => false,
        Expr::Binary(_, a, b) => only_constants(a, program) && only_constants(b, program),
    }
}

/// A product, as a literal and the factors that are none.
struct Factors {
    literal: i64,
    atoms: Vec<Expr>,
}

impl Factors {
    fn of(expr: &Expr) -> Factors {
        let mut factors = Factors { literal: 1, atoms: Vec::new() };
        factors.multiply(expr);
        factors
    }

    fn multiply(&mut self, expr: &Expr) {
        match expr {
            Expr::Binary(IntOp::Mul, a, b) => {
                self.multiply(a);
                self.multiply(b);
            }
            Expr::Int(value) => match self.literal.checked_mul(*value) {
                Some(product) => self.literal = product,
                None => self.atoms.push(expr.clone()),
            },
            _ => self.atoms.push(expr.clone()),
        }
    }

    /// The quotient, where the division leaves nothing.
    fn over(&self, divisor: &Factors) -> Option<Expr> {
        let mut rest = self.atoms.clone();
        for atom in &divisor.atoms {
            let at = rest.iter().position(|a| a == atom)?;
            rest.remove(at);
        }
        if self.literal.checked_rem(divisor.literal)? != 0 {
            return None;
        }
        let literal = self.literal.checked_div(divisor.literal)?;
        let mut scale = None;
        for atom in rest {
            scale = Some(match scale {
                None => atom,
                Some(product) => product * atom,
            });
        }
        Some(match scale {
            None => Expr::Int(literal),
            Some(product) => Expr::Int(literal) * product,
        })
    }
}
