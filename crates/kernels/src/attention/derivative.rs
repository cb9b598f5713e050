//! The derivative of a user's score by x, from its expression.

use tilewright_tile::program::{BinaryOp, ElemExpr, UnaryOp};
use tilewright_tile::{StmtKind, statement_text};

use super::functions::{Expression, Function};

/// The derivative of a score by x where it is not 1.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    /// The derivative, over the names of a score.
    pub expression: Expression,
    /// True if it depends on x.
    pub varies: bool,
}

impl Function {
    /// The derivative by x; `None` if it is 1.
    ///
    /// # Errors
    ///
    /// The text of what would be right, if an operation on x is none whose derivative is known.
    pub(crate) fn derivative(&self) -> Result<Option<Change>, String> {
        let derivative = self.by_x(&self.value)?.unwrap_or(ElemExpr::Number(0.0));
        if derivative == ElemExpr::Number(1.0) {
            return Ok(None);
        }
        let varies = self.has_x(&derivative);
        Ok(Some(Change { expression: Expression(self.written(&derivative)), varies }))
    }

    /// The text of an expression of the function's program.
    fn written(&self, expr: &ElemExpr) -> String {
        let of_value = self.program.body.iter().find_map(|stmt| match &stmt.kind {
            StmtKind::Elementwise { dst, .. } if self.name(*dst) == "value" => Some((stmt, *dst)),
            _ => None,
        });
        let Some((stmt, dst)) = of_value else { return String::new() };
        let mut stmt = stmt.clone();
        stmt.kind = StmtKind::Elementwise { dst, expr: expr.clone() };
        let text = statement_text(&self.program, &stmt);
        text.trim().split_once("value = ").map_or(String::new(), |(_, value)| value.to_string())
    }

    /// True if x is in an expression.
    fn has_x(&self, value: &ElemExpr) -> bool {
        let mut found = false;
        value.visit(&mut |part| found |= matches!(part, ElemExpr::Tensor(id) if self.name(*id) == "x"));
        found
    }

    /// The derivative by x; `None` if it is 0.
    fn by_x(&self, value: &ElemExpr) -> Result<Option<ElemExpr>, String> {
        if !self.has_x(value) {
            return Ok(None);
        }
        let (number, binary) = (ElemExpr::Number, ElemExpr::binary);
        let unary = |op, x: &ElemExpr| ElemExpr::unary(op, x.clone());
        Ok(match value {
            ElemExpr::Tensor(_) => Some(number(1.0)),
            ElemExpr::Unary(op, x) => {
                let Some(inner) = self.by_x(x)? else { return Ok(None) };
                let outer = match op {
                    UnaryOp::Neg => number(-1.0),
                    UnaryOp::Abs => {
                        where_([binary(BinaryOp::Lt, (**x).clone(), number(0.0)), number(-1.0), number(1.0)])
                    }
                    UnaryOp::Exp => unary(UnaryOp::Exp, x),
                    UnaryOp::Exp2 => product(unary(UnaryOp::Exp2, x), number(std::f64::consts::LN_2)),
                    UnaryOp::Log => quotient(number(1.0), (**x).clone()),
                    UnaryOp::Log2 => quotient(number(std::f64::consts::LOG2_E), (**x).clone()),
                    UnaryOp::Sqrt => product(number(0.5), unary(UnaryOp::Rsqrt, x)),
                    UnaryOp::Rsqrt => {
                        quotient(product(number(-0.5), unary(UnaryOp::Rsqrt, x)), (**x).clone())
                    }
                    UnaryOp::Tanh => {
                        let square = product(unary(UnaryOp::Tanh, x), unary(UnaryOp::Tanh, x));
                        binary(BinaryOp::Sub, number(1.0), square)
                    }
                    UnaryOp::Sin => unary(UnaryOp::Cos, x),
                    UnaryOp::Cos => unary(UnaryOp::Neg, &unary(UnaryOp::Sin, x)),
                    UnaryOp::Erf => {
                        let square = product((**x).clone(), (**x).clone());
                        let bell = unary(UnaryOp::Exp, &unary(UnaryOp::Neg, &square));
                        product(number(std::f64::consts::FRAC_2_SQRT_PI), bell)
                    }
                    // Steps.
                    UnaryOp::Floor
                    | UnaryOp::Ceil
                    | UnaryOp::Round
                    | UnaryOp::Float
                    | UnaryOp::Int
                    | UnaryOp::Not => {
                        return Ok(None);
                    }
                };
                Some(product(outer, inner))
            }
            ElemExpr::Binary(op, ..) if op.compares() || matches!(op, BinaryOp::And | BinaryOp::Or) => None,
            ElemExpr::Binary(op, x, y) => {
                let [of_x, of_y] = [self.by_x(x)?, self.by_x(y)?];
                let (x, y) = ((**x).clone(), (**y).clone());
                match op {
                    BinaryOp::Add => sum(of_x, of_y),
                    BinaryOp::Sub => difference(of_x, of_y),
                    BinaryOp::Mul => sum(of_x.map(|by| product(by, y)), of_y.map(|by| product(x, by))),
                    // (x′ − (x / y) · y′) / y.
                    BinaryOp::Div | BinaryOp::FastDiv => {
                        let behind = of_y.map(|by| product(quotient(x, y.clone()), by));
                        difference(of_x, behind).map(|over| quotient(over, y))
                    }
                    BinaryOp::Min => chosen(binary(BinaryOp::Le, x, y), of_x, of_y),
                    BinaryOp::Max => chosen(binary(BinaryOp::Ge, x, y), of_x, of_y),
                    other => return Err(unknown(other.name())),
                }
            }
            ElemExpr::Where(parts) => {
                let [condition, x, y] = &**parts;
                chosen(condition.clone(), self.by_x(x)?, self.by_x(y)?)
            }
            ElemExpr::Packed(dtype, _) => return Err(unknown(&format!("{dtype}x2"))),
            ElemExpr::Bitcast(..) => return Err(unknown("bitcast")),
            _ => return Err(unknown("asm")),
        })
    }
}

fn unknown(name: &str) -> String {
    format!(
        "must have a derivative by x: that of `{name}` is not known, but those of sums, products, quotients, min, max, where and functions such as exp and tanh are"
    )
}

fn where_(parts: [ElemExpr; 3]) -> ElemExpr {
    ElemExpr::Where(Box::new(parts))
}

fn product(x: ElemExpr, y: ElemExpr) -> ElemExpr {
    let one = ElemExpr::Number(1.0);
    if x == one {
        return y;
    }
    if y == one { x } else { ElemExpr::binary(BinaryOp::Mul, x, y) }
}

fn quotient(x: ElemExpr, y: ElemExpr) -> ElemExpr {
    ElemExpr::binary(BinaryOp::Div, x, y)
}

fn sum(x: Option<ElemExpr>, y: Option<ElemExpr>) -> Option<ElemExpr> {
    match (x, y) {
        (Some(x), Some(y)) => Some(ElemExpr::binary(BinaryOp::Add, x, y)),
        (x, y) => x.or(y),
    }
}

fn difference(x: Option<ElemExpr>, y: Option<ElemExpr>) -> Option<ElemExpr> {
    match (x, y) {
        (Some(x), Some(y)) => Some(ElemExpr::binary(BinaryOp::Sub, x, y)),
        (None, Some(y)) => Some(ElemExpr::unary(UnaryOp::Neg, y)),
        (x, None) => x,
    }
}

/// The derivative of what a condition chooses.
fn chosen(condition: ElemExpr, x: Option<ElemExpr>, y: Option<ElemExpr>) -> Option<ElemExpr> {
    let number = |value: Option<ElemExpr>| value.unwrap_or(ElemExpr::Number(0.0));
    match (x, y) {
        (None, None) => None,
        (Some(x), Some(y)) if x == y => Some(x),
        (x, y) => Some(where_([condition, number(x), number(y)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative equals a difference quotient, everywhere.
    #[test]
    fn derivatives_are_those_of_differences() {
        let texts = [
            "x",
            "x - 0.5 * float(i - j)",
            "-x * 0.25 + slope",
            "tanh(x / 4.0) * 4.0",
            "where(j < 5, x * x, x / (1.0 + x * x))",
            "max(x, 0.5) + min(x, float(h))",
            "exp(0.1 * x) - exp2(x * 0.2) + log(3.0 + abs(x)) + log2(4.0 + x)",
            "sqrt(3.0 + x) * rsqrt(4.0 + x) + sin(x) * cos(x) + erf(x)",
            "floor(x) + x + float(int(x > 0.25))",
            "slope / (x - 7.0) + fdividef(x, 3.0 - x)",
            "floor(x) * 2.0",
        ];
        for text in texts {
            let read =
                |text: &str| Expression(text.to_string()).read("score", "slope: f32 = 0.5", false).unwrap();
            let function = read(text);
            let change = function.derivative().unwrap();
            let derivative =
                change.as_ref().map(|change| read(&format!("{} + x * 0.0", change.expression.0)));
            for (at, x) in [([3, 4, 0, 0], 0.3), ([3, 9, 1, 0], -1.7), ([0, 2, 2, 1], 1.1)] {
                let value = |x: f64| function.eval(at, x, &|_| 0.5);
                let wanted = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6;
                let found = derivative.as_ref().map_or(1.0, |derivative| derivative.eval(at, x, &|_| 0.5));
                assert!(
                    (found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()),
                    "{text} at {x}: {found}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn a_factor_alone_does_not_vary() {
        let change = |text: &str| {
            Expression(text.to_string()).read("score", "slope: f32 = 0.5", false).unwrap().derivative()
        };
        assert_eq!(change("x + float(i)"), Ok(None));
        let factor = change("x * slope").unwrap().unwrap();
        assert_eq!((factor.expression.0.as_str(), factor.varies), ("slope", false));
        assert!(!change("where(j < 4, x, 0.0)").unwrap().unwrap().varies);
        assert!(change("x * x").unwrap().unwrap().varies);
        assert!(
            change("bitcast(bitcast(x, u32), f32)").unwrap_err().contains("that of `bitcast` is not known")
        );
    }
}
