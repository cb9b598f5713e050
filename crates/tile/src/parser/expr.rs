//! Integer expressions and elementwise expressions.

use super::value::{Target, is_value};
use super::{Parser, Res, syntax};
use crate::build::{Given, Named};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::{Axis, Expr, IntOp};
use crate::lexer::Tok;
use crate::names::{Word, is_reserved, word, words_of};
use crate::nearest::nearest;
use crate::program::{Asm, BinaryOp, ElemExpr, Notation, PACKED, ParamKind, UnaryOp};

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

    pub(super) fn sum(&mut self) -> Res<Int> {
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
                if self.calls_function() {
                    return self.integer_call();
                }
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
            Ok(Named::Param(id)) if self.build.program.param(id).is_signed_integer() => Ok(Expr::Scalar(id)),
            Ok(Named::Param(id)) => {
                let error = mistyped(name, span, "a parameter", "an integer");
                self.recover(error.help(match self.build.program.param(id).kind {
                    ParamKind::Tensor { .. } => format!("`{name}[0]` is an element of a tensor of integers"),
                    ParamKind::Scalar { .. } => {
                        format!("integers here have 32 bits and a sign: `{name}: i32 = 1`")
                    }
                }))
            }
            Ok(Named::Tensor(_)) => {
                let help = self.integers_help(name);
                self.recover(mistyped(name, span, "a tensor", "an integer").help(help))
            }
            Ok(Named::Pipeline(_)) => self.recover(mistyped(name, span, "a pipeline", "an integer")),
            Ok(Named::Barrier(_)) => self.recover(mistyped(name, span, "a named barrier", "an integer")),
            Ok(Named::Role) => self.recover(mistyped(name, span, "a role", "an integer")),
            Ok(Named::Function) => self.recover(mistyped(name, span, "a function", "an integer")),
            Ok(Named::Given(given)) => match self.build.given[given].clone() {
                Given::Integer(value) => Ok(value),
                other => self.recover(mistyped(name, span, other.noun(), "an integer")),
            },
            Err(error) => self.recover(error),
        }
    }

    /// An error about a word of the language in a wrong place.
    pub(super) fn misplaced_word(&self, name: &str, span: Span, expected: &str) -> Diagnostic {
        let error =
            syntax(span, format!("expected {expected}, found `{name}`, which is a word of the language"))
                .label(format!("expected {expected}"));
        // The short ones are taken for names: `u1` is a type, `e0` a step of a view.
        let digits = name.find(|c: char| c.is_ascii_digit()).filter(|at| *at > 0);
        let meaning = match (name.parse::<tilewright_machine::DType>(), digits) {
            (Ok(_), _) => "an element type",
            (_, Some(1)) if name.starts_with('e') => "a step along a mode of a buffer",
            _ if expected.starts_with("a name") => {
                return error.help(format!("take another name, such as `{name}_`"));
            }
            _ => return error,
        };
        let at = digits.unwrap_or(name.len());
        error.help(format!(
            "`{name}` is {meaning}: take another name, such as `{}_{}`",
            &name[..at],
            &name[at..]
        ))
    }

    // Elementwise expressions.

    /// An expression over register tensors, scalars and numbers.
    pub(super) fn elementwise(&mut self) -> Res<ElemExpr> {
        self.elem_level(BinaryOp::OR).map(|(expr, _)| expr)
    }

    /// The operator between operands that stands here, and its level.
    fn infix(&self) -> Option<(BinaryOp, u8)> {
        let token = self.token();
        let text = match token.tok {
            Tok::Punct(sign) => sign,
            Tok::Word => self.text(token),
            _ => return None,
        };
        BinaryOp::ALL.into_iter().find_map(|op| match op.notation() {
            Notation::Infix(level) if op.name() == text => Some((op, level)),
            _ => None,
        })
    }

    /// Operands with operators between them that bind at least as tightly as `least`.
    pub(super) fn elem_level(&mut self, least: u8) -> Res<Elem> {
        let start = self.span();
        let mut left = if least <= BinaryOp::NOT && self.at_word("not") {
            self.next();
            let (x, height) = self.elem_level(BinaryOp::NOT)?;
            (ElemExpr::unary(UnaryOp::Not, x), self.too_deep(height + 1, start)?)
        } else {
            self.elem_factor()?
        };
        let mut compared = false;
        while let Some((op, level)) = self.infix() {
            if level < least {
                break;
            }
            if op.compares() && compared {
                return Err(syntax(self.span(), "comparisons do not chain")
                    .help("write `a < b and b < c`")
                    .into());
            }
            compared = op.compares();
            self.next();
            self.skip_newlines();
            let right = self.elem_level(level + 1)?;
            let height = self.too_deep(left.1.max(right.1) + 1, start)?;
            left = (ElemExpr::binary(op, left.0, right.0), height);
        }
        Ok(left)
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
                    ElemExpr::unary(UnaryOp::Neg, other)
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
                let inner = self.elem_level(BinaryOp::OR)?;
                self.expect(")", "after the expression")?;
                Ok(inner)
            }
            Tok::Word => {
                self.next();
                let name = self.text(token);
                match name {
                    "inf" => return Ok((ElemExpr::Number(f64::INFINITY), 0)),
                    "block" => return Ok((ElemExpr::Int(Expr::Block(self.block_index()?)), 0)),
                    _ => {}
                }
                if self.calls_function() {
                    return self.elementwise_call();
                }
                if !self.at("(") {
                    return self.operand(name, token.span).map(|expr| (expr, 0));
                }
                self.elem_call(name, token.span)
            }
            _ => Err(self.unexpected("an elementwise expression").into()),
        }
    }

    /// The arguments of a call, of which the name is passed: so many, the text between them as messages have it.
    fn elem_arguments<const N: usize>(&mut self) -> Res<([ElemExpr; N], u32)> {
        const NUMERALS: [&str; 3] = ["", "second", "third"];
        self.next();
        let mut height = 0;
        let mut arguments = [const { ElemExpr::Number(0.0) }; N];
        for (i, argument) in arguments.iter_mut().enumerate() {
            if i > 0 {
                self.expect(",", &format!("and a {} operand", NUMERALS[i]))?;
            }
            let (x, of) = self.elem_level(BinaryOp::OR)?;
            height = height.max(of);
            *argument = x;
        }
        let last = if N == 1 { "after the operand" } else { "after the last operand" };
        self.expect(")", last)?;
        Ok((arguments, height))
    }

    fn elem_call(&mut self, name: &str, span: Span) -> Res<Elem> {
        let binary = |op: &BinaryOp| op.notation() == Notation::Call && op.name() == name;
        if let Some(op) = BinaryOp::ALL.into_iter().find(binary) {
            let ([a, b], height) = self.elem_arguments()?;
            return Ok((ElemExpr::binary(op, a, b), self.too_deep(height + 1, span)?));
        }
        if let Some(op) = UnaryOp::ALL.into_iter().find(|op| op.is_call() && op.name() == name) {
            let ([x], height) = self.elem_arguments()?;
            return Ok((ElemExpr::unary(op, x), self.too_deep(height + 1, span)?));
        }
        if let Some((_, dtype)) = PACKED.into_iter().find(|(packed, _)| *packed == name) {
            let ([x], height) = self.elem_arguments()?;
            return Ok((ElemExpr::Packed(dtype, Box::new(x)), self.too_deep(height + 1, span)?));
        }
        match name {
            "ceil_div" => {
                self.next();
                let a = self.expr()?;
                self.expect(",", "and a second operand")?;
                let b = self.expr()?;
                self.expect(")", "after the last operand")?;
                return Ok((ElemExpr::Int(Expr::binary(IntOp::CeilDiv, a, b)), 0));
            }
            "index" => {
                self.next();
                let axis = self.mode()?;
                self.expect(")", "after the mode")?;
                return Ok((ElemExpr::Index(axis), 0));
            }
            "where" => {
                let (operands, height) = self.elem_arguments()?;
                return Ok((ElemExpr::Where(Box::new(operands)), self.too_deep(height + 1, span)?));
            }
            "asm" => return self.asm(span),
            "bitcast" => {
                self.next();
                let (x, height) = self.elem_level(BinaryOp::OR)?;
                self.expect(",", "and an element type")?;
                let dtype = self.dtype()?;
                self.expect(")", "after the element type")?;
                return Ok((ElemExpr::Bitcast(dtype, Box::new(x)), self.too_deep(height + 1, span)?));
            }
            _ => {}
        }
        if is_value(name) {
            self.next();
            let value = self.value(name, Target::Operand(span))?;
            // Not a number after a mistake, as of an operand.
            return Ok((value.map_or(ElemExpr::Number(f64::NAN), ElemExpr::Tensor), 0));
        }
        if word(name) == Some(Word::Value) {
            let results = if name == "split" { "lo, hi" } else { "t" };
            return Err(syntax(span, format!("`{name}` cannot be part of an expression"))
                .help(format!("give it a line and a name of its own: `{results} = {name}(…)`"))
                .into());
        }
        let functions = [words_of(Word::Function), words_of(Word::Value)].concat();
        Err(no_function(name, span, &functions).into())
    }

    /// `asm("…", x, y, means = z, within = 0.001)`; the name is passed.
    fn asm(&mut self, span: Span) -> Res<Elem> {
        const EXAMPLE: &str = "e.g. `asm(\"tanh.approx.f32 $0, $1;\", x, means = tanh(x), within = 0.001)`";
        self.next();
        let token = self.token();
        if token.tok != Tok::Text {
            return Err(self.unexpected("a text of instructions").help(EXAMPLE).into());
        }
        let text = self.text(token).trim_matches('"').to_string();
        self.next();
        let (mut operands, mut height) = (Vec::new(), 0);
        let means = loop {
            if !self.at(",") {
                let missing = "`, means = …`, what the instructions compute";
                return Err(self.unexpected(missing).help(EXAMPLE).into());
            }
            self.next();
            let named = self.at_word("means") && self.ahead(1).tok == Tok::Punct("=");
            if named {
                self.next();
                self.next();
            }
            let (x, of) = self.elem_level(BinaryOp::OR)?;
            height = height.max(of);
            if named {
                break x;
            }
            operands.push(x);
        };
        let mut within = 0.0;
        if self.at(",") {
            self.next();
            if !self.at_word("within") {
                return Err(self.unexpected("`within = …`, or `)`").help(EXAMPLE).into());
            }
            self.next();
            self.expect("=", "after `within`")?;
            let number = self.token();
            if number.tok != Tok::Number {
                return Err(self.unexpected("a number").help(EXAMPLE).into());
            }
            self.next();
            within = self.float(number)?;
        }
        self.expect(")", "after the last operand")?;
        let asm = Asm { text, operands, means, within };
        Ok((ElemExpr::Asm(Box::new(asm)), self.too_deep(height + 1, span)?))
    }

    fn operand(&mut self, name: &str, span: Span) -> Res<ElemExpr> {
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, "a register tensor or a number").into());
        }
        let found = self.build.lookup(name, span, "a register tensor or a scalar parameter");
        if matches!(found, Ok(Named::Param(_))) && self.at("[") {
            return Ok(ElemExpr::Int(self.named(name, span)?.0));
        }
        let error = match found {
            Ok(Named::Tensor(id)) => {
                let part = self.part(Some(id), span)?;
                return Ok(part.map_or(ElemExpr::Number(f64::NAN), ElemExpr::Tensor));
            }
            Ok(Named::Param(id)) if self.build.program.param(id).is_signed_integer() => {
                return Ok(ElemExpr::Int(Expr::Scalar(id)));
            }
            Ok(Named::Param(id)) => {
                if matches!(self.build.program.param(id).kind, ParamKind::Scalar { .. }) {
                    return Ok(ElemExpr::Scalar(id));
                }
                mistyped(name, span, "a tensor in global memory", "a register tensor")
                    .help("copy a tile of it into a register tensor first")
            }
            Ok(Named::Symbol(id)) => return Ok(ElemExpr::Int(Expr::Symbol(id))),
            Ok(Named::Pipeline(_)) => mistyped(name, span, "a pipeline", "a register tensor or a number"),
            Ok(Named::Barrier(_)) => mistyped(name, span, "a named barrier", "a register tensor or a number"),
            Ok(Named::Role) => mistyped(name, span, "a role", "a register tensor or a number"),
            Ok(Named::Function) => mistyped(name, span, "a function", "a register tensor or a number"),
            Ok(Named::Given(given)) => match self.build.given[given].clone() {
                Given::Integer(Expr::Int(value)) => return Ok(ElemExpr::Number(value as f64)),
                Given::Integer(value) => return Ok(ElemExpr::Int(value)),
                Given::Number(value) => return Ok(value),
                Given::Tensor(_) => {
                    mistyped(name, span, "a part of a tensor in memory", "a register tensor or a number")
                }
                Given::Other(noun) => mistyped(name, span, noun, "a register tensor or a number"),
            },
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
