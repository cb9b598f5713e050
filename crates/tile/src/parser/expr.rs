//! Integer expressions and elementwise expressions.

use super::{Parser, Res, syntax};
use crate::build::Named;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::{Axis, Expr, IntOp};
use crate::lexer::Tok;
use crate::names::{Word, is_reserved, nearest, word, words_of};
use crate::program::{BinaryOp, ElemExpr, UnaryOp};

/// An integer expression and the height of its tree.
type Int = (Expr, u32);
/// An elementwise expression and the height of its tree.
type Elem = (ElemExpr, u32);

impl Parser<'_> {
    /// An integer expression.
    pub(super) fn expr(&mut self) -> Res<Expr> {
        self.sum().map(|(expr, _)| expr)
    }

    fn combine(&self, op: IntOp, a: Int, b: Int, start: Span) -> Res<Int> {
        let expr = Expr::binary(op, a.0, b.0);
        let height = if expr.as_int().is_some() { 0 } else { a.1.max(b.1) + 1 };
        Ok((expr, self.too_deep(height, start)?))
    }

    /// A condition: comparisons of integers, joined by `not`, `and`, `or`; or any integer, which holds where it is not 0.
    pub(super) fn condition(&mut self) -> Res<Expr> {
        self.disjunction().map(|(expr, _)| expr)
    }

    fn disjunction(&mut self) -> Res<Int> {
        let start = self.span();
        let mut left = self.conjunction()?;
        while self.eat_word("or") {
            self.skip_newlines();
            let right = self.conjunction()?;
            left = self.combine(IntOp::Or, left, right, start)?;
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Res<Int> {
        let start = self.span();
        let mut left = self.negation()?;
        while self.eat_word("and") {
            self.skip_newlines();
            let right = self.negation()?;
            left = self.combine(IntOp::And, left, right, start)?;
        }
        Ok(left)
    }

    fn negation(&mut self) -> Res<Int> {
        let start = self.span();
        if !self.eat_word("not") {
            return self.comparison();
        }
        let (value, height) = self.negation()?;
        Ok((value.negated(), self.too_deep(height + 1, start)?))
    }

    fn comparison(&mut self) -> Res<Int> {
        let start = self.span();
        let left = self.sum()?;
        let Some(op) = self.comparator() else { return Ok(left) };
        self.next();
        self.skip_newlines();
        let right = self.sum()?;
        if self.comparator().is_some() {
            return Err(syntax(self.span(), "a comparison of a comparison")
                .help("write `a <= b and b < c`, or parentheses")
                .into());
        }
        self.combine(op, left, right, start)
    }

    /// The comparison that the token at hand is.
    fn comparator(&self) -> Option<IntOp> {
        Some(match self.token().tok {
            Tok::Punct("==") => IntOp::Eq,
            Tok::Punct("!=") => IntOp::Ne,
            Tok::Punct("<") => IntOp::Lt,
            Tok::Punct("<=") => IntOp::Le,
            Tok::Punct(">") => IntOp::Gt,
            Tok::Punct(">=") => IntOp::Ge,
            _ => return None,
        })
    }

    fn sum(&mut self) -> Res<Int> {
        let start = self.span();
        let mut left = self.product()?;
        loop {
            let op = match self.token().tok {
                Tok::Punct("+") => IntOp::Add,
                Tok::Punct("-") => IntOp::Sub,
                _ => return Ok(left),
            };
            self.next();
            self.skip_newlines();
            let right = self.product()?;
            left = self.combine(op, left, right, start)?;
        }
    }

    fn product(&mut self) -> Res<Int> {
        let start = self.span();
        let mut left = self.factor()?;
        loop {
            let op = match self.token().tok {
                Tok::Punct("*") => IntOp::Mul,
                Tok::Punct("/") => IntOp::Div,
                Tok::Punct("%") => IntOp::Rem,
                _ => return Ok(left),
            };
            self.next();
            self.skip_newlines();
            let right = self.factor()?;
            left = self.combine(op, left, right, start)?;
        }
    }

    /// A literal, a name, a call or a parenthesis, perhaps negated.
    pub(super) fn factor(&mut self) -> Res<Int> {
        let start = self.span();
        let mut minuses = 0usize;
        while self.eat("-") {
            minuses += 1;
        }
        let mut value = self.atom()?;
        for _ in 0..minuses {
            value = self.combine(IntOp::Sub, (Expr::Int(0), 0), value, start)?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Res<Int> {
        let token = self.token();
        match token.tok {
            Tok::Number => {
                self.next();
                Ok((Expr::Int(self.integer(token)?), 0))
            }
            Tok::Punct("(") => {
                self.next();
                // In parentheses a condition is the integer 1 or 0.
                let inner = self.disjunction()?;
                self.expect(")", "after the expression")?;
                Ok(inner)
            }
            Tok::Word => {
                self.next();
                let name = self.text(token);
                let op = match name {
                    "block" => return self.block_index().map(|axis| (Expr::Block(axis), 0)),
                    "ceil_div" => IntOp::CeilDiv,
                    "min" => IntOp::Min,
                    "max" => IntOp::Max,
                    _ => {
                        if self.at("(") {
                            return Err(no_function(name, token.span, &["ceil_div", "min", "max"]).into());
                        }
                        return self.named(name, token.span);
                    }
                };
                self.expect("(", &format!("after `{name}`"))?;
                let a = self.sum()?;
                self.expect(",", "and a second operand")?;
                let b = self.sum()?;
                self.expect(")", "after the second operand")?;
                self.combine(op, a, b, token.span)
            }
            _ => Err(self.unexpected("an expression").into()),
        }
    }

    fn block_index(&mut self) -> Res<Axis> {
        self.expect(".", "and `x`, `y` or `z` after `block`")?;
        let (name, span) = self.word("`x`, `y` or `z`")?;
        match name {
            "x" => Ok(Axis::X),
            "y" => Ok(Axis::Y),
            "z" => Ok(Axis::Z),
            _ => Err(syntax(span, format!("a block has no index `{name}`"))
                .help("there are x, y and z")
                .into()),
        }
    }

    /// A symbol, or an element of a parameter.
    fn named(&mut self, name: &str, span: Span) -> Res<Int> {
        if !self.at("[") || is_reserved(name) {
            return Ok((self.symbol(name, span)?, 0));
        }
        let Named::Param(param) = self.build.lookup(name, span, "a parameter")? else {
            let message = format!("`{name}` has no elements that are integers: it is no parameter");
            let error = Diagnostic::new(Code::TypeMismatch, span, message);
            return Err(error.help("integers are elements of tensor parameters of type i32").into());
        };
        self.next();
        let (mut index, mut height) = (Vec::new(), 0);
        loop {
            let (entry, of_entry) = self.sum()?;
            height = height.max(of_entry);
            index.push(entry);
            if !self.eat(",") {
                break;
            }
            self.skip_newlines();
        }
        self.expect("]", "after the index")?;
        Ok((Expr::Element(param, index), self.too_deep(height + 1, span)?))
    }

    fn symbol(&mut self, name: &str, span: Span) -> Res<Expr> {
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, "an integer").into());
        }
        match self.build.lookup(name, span, "a constant, a size or a counter") {
            Ok(Named::Symbol(id)) => Ok(Expr::Symbol(id)),
            Ok(Named::Poisoned) => Ok(Expr::Int(1)),
            Ok(Named::Param(id)) if self.build.program.param(id).is_integer() => Ok(Expr::Scalar(id)),
            Ok(Named::Param(_)) => {
                let error = mistyped(name, span, "a parameter", "an integer");
                self.recover(error.help(format!("`{name}[0]` is an element of a tensor of integers")))
            }
            Ok(Named::Tensor(_)) => self.recover(mistyped(name, span, "a tensor", "an integer")),
            Ok(Named::Pipeline(_)) => self.recover(mistyped(name, span, "a pipeline", "an integer")),
            Ok(Named::Role) => self.recover(mistyped(name, span, "a role", "an integer")),
            Err(error) => self.recover(error),
        }
    }

    /// An error about a word of the language in a wrong place.
    pub(super) fn misplaced_word(&self, name: &str, span: Span, expected: &str) -> Diagnostic {
        syntax(span, format!("expected {expected}, found `{name}`, which is a word of the language"))
            .label(format!("expected {expected}"))
    }

    // Elementwise expressions.

    /// An expression over register tensors, scalars and numbers.
    pub(super) fn elementwise(&mut self) -> Res<ElemExpr> {
        self.elem_sum().map(|(expr, _)| expr)
    }

    fn elem_combine(&self, op: BinaryOp, a: Elem, b: Elem, start: Span) -> Res<Elem> {
        let height = self.too_deep(a.1.max(b.1) + 1, start)?;
        Ok((ElemExpr::Binary(op, Box::new(a.0), Box::new(b.0)), height))
    }

    fn elem_sum(&mut self) -> Res<Elem> {
        let start = self.span();
        let mut left = self.elem_product()?;
        loop {
            let op = match self.token().tok {
                Tok::Punct("+") => BinaryOp::Add,
                Tok::Punct("-") => BinaryOp::Sub,
                _ => return Ok(left),
            };
            self.next();
            self.skip_newlines();
            let right = self.elem_product()?;
            left = self.elem_combine(op, left, right, start)?;
        }
    }

    fn elem_product(&mut self) -> Res<Elem> {
        let start = self.span();
        let mut left = self.elem_factor()?;
        loop {
            let op = match self.token().tok {
                Tok::Punct("*") => BinaryOp::Mul,
                Tok::Punct("/") => BinaryOp::Div,
                Tok::Punct("%") => {
                    return Err(syntax(self.span(), "there is no elementwise remainder").into());
                }
                _ => return Ok(left),
            };
            self.next();
            self.skip_newlines();
            let right = self.elem_factor()?;
            left = self.elem_combine(op, left, right, start)?;
        }
    }

    fn elem_factor(&mut self) -> Res<Elem> {
        let start = self.span();
        let mut minuses = 0usize;
        while self.eat("-") {
            minuses += 1;
        }
        let (mut expr, mut height) = self.elem_atom()?;
        for _ in 0..minuses {
            expr = match expr {
                ElemExpr::Number(x) => ElemExpr::Number(-x),
                other => {
                    height = self.too_deep(height + 1, start)?;
                    ElemExpr::Unary(UnaryOp::Neg, Box::new(other))
                }
            };
        }
        Ok((expr, height))
    }

    fn elem_atom(&mut self) -> Res<Elem> {
        let token = self.token();
        match token.tok {
            Tok::Number => {
                self.next();
                Ok((ElemExpr::Number(self.float(token)?), 0))
            }
            Tok::Punct("(") => {
                self.next();
                let inner = self.elem_sum()?;
                self.expect(")", "after the expression")?;
                Ok(inner)
            }
            Tok::Word => {
                self.next();
                let name = self.text(token);
                if name == "inf" {
                    return Ok((ElemExpr::Number(f64::INFINITY), 0));
                }
                if !self.at("(") {
                    return self.operand(name, token.span).map(|expr| (expr, 0));
                }
                self.elem_call(name, token.span)
            }
            _ => Err(self.unexpected("an elementwise expression").into()),
        }
    }

    fn elem_call(&mut self, name: &str, span: Span) -> Res<Elem> {
        let binary = match name {
            "min" => Some(BinaryOp::Min),
            "max" => Some(BinaryOp::Max),
            _ => None,
        };
        let unary = UnaryOp::ALL.into_iter().find(|op| op.name() == name);
        if name == "float" {
            self.next();
            let value = self.expr()?;
            self.expect(")", "after the integer")?;
            return Ok((ElemExpr::Int(value), 0));
        }
        if let Some(op) = binary {
            self.next();
            let a = self.elem_sum()?;
            self.expect(",", "and a second operand")?;
            let b = self.elem_sum()?;
            self.expect(")", "after the second operand")?;
            return self.elem_combine(op, a, b, span);
        }
        if let Some(op) = unary {
            self.next();
            let (x, height) = self.elem_sum()?;
            self.expect(")", "after the operand")?;
            let height = self.too_deep(height + 1, span)?;
            return Ok((ElemExpr::Unary(op, Box::new(x)), height));
        }
        if word(name) == Some(Word::Value) {
            let results = if name == "split" { "lo, hi" } else { "t" };
            return Err(syntax(span, format!("`{name}` cannot be part of an elementwise expression"))
                .help(format!("give it a line and a name of its own: `{results} = {name}(…)`"))
                .into());
        }
        let functions = [words_of(Word::Function), words_of(Word::Value)].concat();
        Err(no_function(name, span, &functions).into())
    }

    fn operand(&mut self, name: &str, span: Span) -> Res<ElemExpr> {
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, "a register tensor or a number").into());
        }
        let error = match self.build.lookup(name, span, "a register tensor or a scalar parameter") {
            Ok(Named::Tensor(id)) => {
                let part = self.part(Some(id), span)?;
                return Ok(part.map_or(ElemExpr::Number(f64::NAN), ElemExpr::Tensor));
            }
            Ok(Named::Param(id)) if self.build.program.param(id).is_integer() => {
                mistyped(name, span, "an integer", "a register tensor or a number")
                    .help(format!("write `float({name})`"))
            }
            Ok(Named::Param(id)) => {
                if matches!(self.build.program.param(id).kind, crate::program::ParamKind::Scalar { .. }) {
                    return Ok(ElemExpr::Scalar(id));
                }
                mistyped(name, span, "a tensor in global memory", "a register tensor")
                    .help("copy a tile of it into a register tensor first")
            }
            Ok(Named::Symbol(_)) => mistyped(name, span, "an integer", "a register tensor or a number")
                .help(format!("write `float({name})`")),
            Ok(Named::Pipeline(_)) => mistyped(name, span, "a pipeline", "a register tensor or a number"),
            Ok(Named::Role) => mistyped(name, span, "a role", "a register tensor or a number"),
            Ok(Named::Poisoned) => return Ok(ElemExpr::Number(f64::NAN)),
            Err(error) => error,
        };
        self.report(error)?;
        // Not a number: this program is not returned, and the assignment knows that an operand is missing.
        Ok(ElemExpr::Number(f64::NAN))
    }
}

pub(super) fn mistyped(name: &str, span: Span, is: &str, expected: &str) -> Diagnostic {
    Diagnostic::new(Code::TypeMismatch, span, format!("`{name}` is {is}, not {expected}"))
        .label(format!("expected {expected}"))
}

pub(super) fn no_function(name: &str, span: Span, candidates: &[&str]) -> Diagnostic {
    let diagnostic = Diagnostic::new(Code::UnknownName, span, format!("there is no function `{name}` here"));
    match nearest(name, candidates.iter().copied()) {
        Some(near) => diagnostic.label("unknown function").help(format!("did you mean `{near}`?")),
        None if word(name).is_some() => {
            diagnostic.label("not an expression").help(format!("`{name}` stands on a line of its own"))
        }
        None => diagnostic.label("unknown function").help(format!("there are {}", candidates.join(", "))),
    }
}
