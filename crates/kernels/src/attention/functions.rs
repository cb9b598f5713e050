//! Functions of a user's own: expressions for scores and masks. A mask's values over a tile of queries and a block of keys are found by
//! interval analysis (FlexAttention's block mask, derived instead of sampled), so that blocks without a pair are skipped and blocks of pairs alone are not masked.

use std::collections::BTreeMap;
use std::fmt;

use tilewright_tile::dsl::{Elem, where_};
use tilewright_tile::program::{BinaryOp, ElemExpr, UnaryOp};
use tilewright_tile::{
    Diagnostic, Expr, IntOp, Origin, ParamId, Program, StmtKind, SymbolId, TensorId, parse,
};

use crate::config::ConfigError;

/// An expression of the tile language over the query's place `i` among the keys, the key `j`, the head `h` of q, the batch `b` and, in
/// scores, the score `x`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Expression(pub String);

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The texts for the names of an expression.
pub(crate) struct Names<'a> {
    /// The query's place, of each element.
    pub i: &'a str,
    /// The key, of each element.
    pub j: &'a str,
    /// The score.
    pub x: &'a str,
}

/// The text of `most` · tanh(x · factor), as most − 2 · most / (1 + e^(2 · x · factor)): a fused multiply-add beside an exponential and a
/// reciprocal, where `tanh` has a polynomial for small arguments besides, whose relative error is that of its results. Here the error is absolute, 2⁻²⁰ · most at
/// most: near 0 the result is a difference of two numbers of the size of `most`, each of which is off by some units in its last place. Scores are exponents of
/// weights, which do not ask for more.
pub(crate) fn capped(x: &str, factor: &str, most: &str) -> String {
    // 2 · log₂ e.
    format!("fdividef(1.0, 1.0 + exp2({x} * ({factor} * 2.8853900817779268))) * (-2.0 * {most}) + {most}")
}

/// The parsed expression, in a program of its own.
pub(crate) struct Function {
    pub(super) program: Program,
    pub(super) value: ElemExpr,
}

/// The tensors of the program in which an expression is read.
const TENSORS: [&str; 3] = ["i", "j", "x"];

impl Expression {
    /// Reads the expression, of truth values (a mask) or of scores, with further scalar parameters such as `slope: f32 = 0.5`.
    pub(crate) fn read(
        &self,
        field: &'static str,
        scalars: &str,
        truth: bool,
    ) -> Result<Function, ConfigError> {
        let tensors = [("i", "i32"), ("j", "i32"), ("x", "f32")];
        // A mask has no score.
        let tensors = &tensors[..if truth { 2 } else { 3 }];
        let kind = if truth { "a condition over i, j, h and b" } else { "a number over x, i, j, h and b" };
        let scalars = if scalars.is_empty() { String::new() } else { format!(", {scalars}") };
        let scalars = format!("b: i32 = 0, h: i32 = 0{scalars}");
        self.read_over((field, kind), tensors, &scalars, truth)
    }

    /// Reads the expression of numbers over `x`, a row `i` and a column `j`, elements of further f32 tensors and scalar parameters.
    pub(crate) fn read_values(
        &self,
        field: &'static str,
        elements: &[&str],
        scalars: &str,
    ) -> Result<Function, ConfigError> {
        let own = [("i", "i32"), ("j", "i32"), ("x", "f32")];
        let tensors: Vec<_> = own.into_iter().chain(elements.iter().map(|name| (*name, "f32"))).collect();
        let kind = "a number over x, i, j and what `tensors` and `scalars` declare";
        let function = self.read_over((field, kind), &tensors, scalars, false)?;
        let mut written = true;
        function.value.visit(&mut |part| {
            let other = matches!(
                part,
                ElemExpr::Index(_)
                    | ElemExpr::Operand(_)
                    | ElemExpr::Packed(..)
                    | ElemExpr::Bitcast(..)
                    | ElemExpr::Asm(_)
            );
            written &= !other;
        });
        let wanted = "must be made of operators, functions of numbers and `where`";
        if written { Ok(function) } else { Err(ConfigError::value(field, &self.0, wanted)) }
    }

    fn read_over(
        &self,
        (field, kind): (&'static str, &str),
        tensors: &[(&str, &str)],
        scalars: &str,
        truth: bool,
    ) -> Result<Function, ConfigError> {
        let wrong = |wanted: String| ConfigError::value(field, &self.0, wanted);
        if self.0.contains(['\n', ';', '{', '}', '#']) || self.0.contains("//") {
            return Err(wrong("must be one expression".to_string()));
        }
        let scalars = if scalars.is_empty() { String::new() } else { format!(", {scalars}") };
        let params: String = tensors.iter().map(|(name, dtype)| format!("g{name}: {dtype}[32], ")).collect();
        let result = if truth { "where(value, 1.0, 0.0)" } else { "value" };
        let mut text = String::from("size hq = 1, hk = 1, sq = 1, sk = 1\n");
        text += &format!("kernel function({params}gy: f32[32]{scalars}) grid(1) threads(32) {{\n");
        for (name, dtype) in tensors {
            text += &format!(
                "v{name} = global_view(g{name}, (32) : (e0))\n{name} = register_tensor({dtype}, [32])\ncopy(v{name}, {name})\n"
            );
        }
        text += "vy = global_view(gy, (32) : (e0))\nvalue = ";
        let place = text.len()..text.len() + self.0.len();
        let floats = tensors.iter().filter(|(_, dtype)| *dtype == "f32");
        let used: String = floats.map(|(name, _)| format!(" + int({name} * 0.0 > 1.0)")).collect();
        text += &format!(
            "{}\nused = i * 0 + j * 0{used}\nresult = {result} + float(used)\ncopy(result, vy)\n}}\n",
            self.0
        );
        // Of the messages those about the expression itself.
        let read = |errors: tilewright_tile::Diagnostics| {
            let of_expression = |error: &&Diagnostic| match error.span {
                Origin::Text(span) => place.contains(&(span.start as usize)),
                _ => false,
            };
            let said =
                errors.0.iter().find(of_expression).map_or(String::new(), |error| format!(": {error}"));
            wrong(format!("must be {kind}{said}"))
        };
        let program = parse(&text).map_err(read)?;
        tilewright_tile::verify(&program, &BTreeMap::new()).map_err(read)?;
        let named = |id: TensorId| program.tensor(id).name == "value";
        let value = program.body.iter().find_map(|stmt| match &stmt.kind {
            StmtKind::Elementwise { dst, expr } if named(*dst) => Some(expr.clone()),
            _ => None,
        });
        let value = value.ok_or_else(|| wrong("must be an expression over elements".to_string()))?;
        Ok(Function { program, value })
    }

    /// The text with its names replaced.
    pub(crate) fn text(&self, names: &Names<'_>) -> String {
        let mut text = String::new();
        let mut rest = self.0.as_str();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let end = match is_word(first) {
                true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            let (word, behind) = rest.split_at(end);
            text += match word {
                "i" => names.i,
                "j" => names.j,
                "x" => names.x,
                "b" => "batch",
                "h" => "head",
                other => other,
            };
            rest = behind;
        }
        format!("({text})")
    }
}

/// The values of an expression over a rectangle of queries and keys, as texts of integer expressions.
#[derive(Clone, Debug)]
enum Range {
    /// An integer from the first to the second.
    Integer(String, String),
    /// A truth value: the condition under which some pair may have it, and that under which all have.
    Truth { some: String, all: String },
    /// Anything.
    Unknown,
}

impl Range {
    fn truth(some: impl Into<String>, all: impl Into<String>) -> Range {
        Range::Truth { some: some.into(), all: all.into() }
    }

    /// The truth value, of what is known of it.
    fn conditions(self) -> (String, String) {
        match self {
            Range::Truth { some, all } => (some, all),
            Range::Integer(..) | Range::Unknown => ("1 == 1".to_string(), "1 == 0".to_string()),
        }
    }
}

impl Function {
    /// The conditions, as text, under which some pair of queries from `rows[0]` to `rows[1]` and keys from `keys[0]` to `keys[1]` may
    /// be attended to, and under which all are.
    pub(crate) fn conditions(&self, rows: [&str; 2], keys: [&str; 2]) -> (String, String) {
        self.range(&self.value, &[rows, keys]).conditions()
    }

    pub(super) fn name(&self, id: TensorId) -> &str {
        &self.program.tensor(id).name
    }

    fn symbol(&self, id: SymbolId) -> &str {
        &self.program.symbols[id.0 as usize].name
    }

    fn integer(&self, expr: &Expr) -> Option<String> {
        Some(match expr {
            Expr::Int(value) => format!("({value})"),
            Expr::Symbol(id) => self.symbol(*id).to_string(),
            Expr::Scalar(id) => self.scalar(*id).to_string(),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.integer(a)?, self.integer(b)?);
                match op {
                    IntOp::Min => format!("min({a}, {b})"),
                    IntOp::Max => format!("max({a}, {b})"),
                    IntOp::CeilDiv => format!("ceil_div({a}, {b})"),
                    op => format!("({a} {} {b})", sign(*op)?),
                }
            }
            Expr::Block(_) | Expr::Element(..) => return None,
        })
    }

    fn scalar(&self, id: ParamId) -> &str {
        match self.program.params[id.0 as usize].name.as_str() {
            "b" => "batch",
            "h" => "head",
            other => other,
        }
    }

    fn range(&self, value: &ElemExpr, ends: &[[&str; 2]; 2]) -> Range {
        let point =
            |text: Option<String>| text.map_or(Range::Unknown, |text| Range::Integer(text.clone(), text));
        match value {
            ElemExpr::Tensor(id) => match TENSORS.iter().position(|name| *name == self.name(*id)) {
                Some(which @ (0 | 1)) => {
                    Range::Integer(ends[which][0].to_string(), ends[which][1].to_string())
                }
                _ => Range::Unknown,
            },
            ElemExpr::Number(x) if x.fract() == 0.0 && x.abs() < 1e9 => point(Some(format!("({x})"))),
            ElemExpr::Int(expr) if expr.is_condition() => match self.integer(expr) {
                Some(text) => Range::truth(format!("{text} == 1"), format!("{text} == 1")),
                None => Range::Unknown,
            },
            ElemExpr::Int(expr) => point(self.integer(expr)),
            ElemExpr::Unary(op, x) => match (op, self.range(x, ends)) {
                (UnaryOp::Neg, Range::Integer(low, high)) => {
                    Range::Integer(format!("(0 - {high})"), format!("(0 - {low})"))
                }
                (UnaryOp::Abs, Range::Integer(low, high)) => Range::Integer(
                    format!("max(max({low}, 0 - {high}), 0)"),
                    format!("max({high}, 0 - {low})"),
                ),
                (UnaryOp::Not, Range::Truth { some, all }) => {
                    Range::truth(format!("(not ({all}))"), format!("(not ({some}))"))
                }
                _ => Range::Unknown,
            },
            ElemExpr::Binary(op @ (BinaryOp::And | BinaryOp::Or), x, y) => {
                let [x, y] = [x, y].map(|side| self.range(side, ends).conditions());
                let both = |x: &str, y: &str| format!("(({x}) {} ({y}))", op.name());
                Range::truth(both(&x.0, &y.0), both(&x.1, &y.1))
            }
            ElemExpr::Binary(op, x, y) => operation(*op, self.range(x, ends), self.range(y, ends)),
            _ => Range::Unknown,
        }
    }

    /// True if keys have integer remainders of their own, or, where `quotients` count too, integer quotients.
    pub(super) fn divides_keys(&self, quotients: bool) -> bool {
        let is_float = |name: &str| {
            let mut floats = self.program.params.iter().filter(|param| param.dtype.is_float());
            name == "x" || floats.any(|param| param.name == name)
        };
        let mut divides = false;
        self.value.visit(&mut |part| {
            let ElemExpr::Binary(op, x, y) = part else { return };
            let of_integers = self.value_of(part, &|name| (1.0, !is_float(name))).1;
            let mut of_keys = false;
            for side in [x, y] {
                side.visit(&mut |part| {
                    of_keys |= matches!(part, ElemExpr::Tensor(id) if self.name(*id) == "j")
                });
            }
            divides |= of_keys && of_integers && (*op == BinaryOp::Rem || quotients && *op == BinaryOp::Div);
        });
        divides
    }

    /// The value in f64, of names with their values and true for integers.
    pub(crate) fn value_at(&self, of: &dyn Fn(&str) -> (f64, bool)) -> f64 {
        self.value_of(&self.value, of).0
    }

    /// The expression with its names replaced, where it is made of operators, functions and `where`.
    pub(crate) fn elem(&self, of: &dyn Fn(&str) -> Elem) -> Elem {
        self.elem_of(&self.value, of)
    }

    fn elem_of(&self, value: &ElemExpr, of: &dyn Fn(&str) -> Elem) -> Elem {
        match value {
            ElemExpr::Tensor(id) => of(self.name(*id)),
            ElemExpr::Scalar(id) => of(self.scalar(*id)),
            ElemExpr::Number(x) => (*x).into(),
            ElemExpr::Int(expr) => expr.into(),
            ElemExpr::Unary(op, x) => self.elem_of(x, of).unary(*op),
            ElemExpr::Binary(op, x, y) => Elem::binary(*op, self.elem_of(x, of), self.elem_of(y, of)),
            ElemExpr::Where(parts) => {
                let [holds, x, y] = [0, 1, 2].map(|i| self.elem_of(&parts[i], of));
                where_(holds, x, y)
            }
            _ => f64::NAN.into(),
        }
    }

    /// The value in f64 at a place, of `[i, j, h, b]` and the score, with further scalars by name; truth values are 1 and 0.
    pub(crate) fn eval(&self, at: [i64; 4], x: f64, scalars: &dyn Fn(&str) -> f64) -> f64 {
        self.value_of(&self.value, &|name| match name {
            "i" => (at[0] as f64, true),
            "j" => (at[1] as f64, true),
            "head" => (at[2] as f64, true),
            "batch" => (at[3] as f64, true),
            "x" => (x, false),
            other => (scalars(other), false),
        })
        .0
    }

    /// The value, and true if it is an integer's.
    fn value_of(&self, value: &ElemExpr, of: &dyn Fn(&str) -> (f64, bool)) -> (f64, bool) {
        match value {
            ElemExpr::Tensor(id) => of(self.name(*id)),
            ElemExpr::Number(x) => (*x, false),
            ElemExpr::Scalar(id) => of(self.scalar(*id)),
            ElemExpr::Int(expr) => (self.integer_of(expr, of) as f64, true),
            ElemExpr::Unary(op, x) => {
                let (x, whole) = self.value_of(x, of);
                match op {
                    UnaryOp::Float => (x, false),
                    UnaryOp::Int => (x, true),
                    UnaryOp::Not => (1.0 - x, true),
                    op => (op.apply_in(tilewright_tile::arith::Compute::F64, x), whole),
                }
            }
            ElemExpr::Binary(op, x, y) => {
                let ((x, whole), (y, other)) = (self.value_of(x, of), self.value_of(y, of));
                let integers = whole || other;
                let logical = |holds: bool| (f64::from(u8::from(holds)), true);
                match op {
                    BinaryOp::And => logical(x != 0.0 && y != 0.0),
                    BinaryOp::Or => logical(x != 0.0 || y != 0.0),
                    op if integers && op.of_integers().is_some() => {
                        let exact = op.of_integers().and_then(|op| op.apply(x as i64, y as i64));
                        (exact.map_or(f64::NAN, |value| value as f64), true)
                    }
                    op => match op.compare(x, y) {
                        Some(holds) => logical(holds),
                        None => {
                            let value = op.apply_in(tilewright_tile::arith::Compute::F64, x, y);
                            (value.unwrap_or(f64::NAN), false)
                        }
                    },
                }
            }
            ElemExpr::Where(parts) => {
                let which = if self.value_of(&parts[0], of).0 != 0.0 { &parts[1] } else { &parts[2] };
                self.value_of(which, of)
            }
            _ => (f64::NAN, false),
        }
    }

    fn integer_of(&self, expr: &Expr, of: &dyn Fn(&str) -> (f64, bool)) -> i64 {
        match expr {
            Expr::Int(value) => *value,
            Expr::Symbol(id) => of(self.symbol(*id)).0 as i64,
            Expr::Scalar(id) => of(self.scalar(*id)).0 as i64,
            Expr::Binary(op, a, b) => {
                op.apply(self.integer_of(a, of), self.integer_of(b, of)).unwrap_or_default()
            }
            Expr::Block(_) | Expr::Element(..) => 0,
        }
    }
}

/// The sign of an operator that is written between its operands.
fn sign(op: IntOp) -> Option<&'static str> {
    BinaryOp::ALL.into_iter().find(|known| known.of_integers() == Some(op)).map(BinaryOp::name)
}

/// The range of an operation on two ranges.
fn operation(op: BinaryOp, x: Range, y: Range) -> Range {
    let (Range::Integer(low, high), Range::Integer(least, most)) = (x, y) else { return Range::Unknown };
    let constant = (least == most).then(|| least.trim_matches(['(', ')']).parse::<i64>().ok()).flatten();
    let pair = |low: String, high: String| Range::Integer(low, high);
    let call = |name: &str, a: &str, b: &str| format!("{name}({a}, {b})");
    let both = |op: &str, low: &str, high: &str| [low, high].map(|x| format!("({x} {op} {least})"));
    match op {
        BinaryOp::Add => pair(format!("({low} + {least})"), format!("({high} + {most})")),
        BinaryOp::Sub => pair(format!("({low} - {most})"), format!("({high} - {least})")),
        BinaryOp::Min => pair(call("min", &low, &least), call("min", &high, &most)),
        BinaryOp::Max => pair(call("max", &low, &least), call("max", &high, &most)),
        BinaryOp::Mul | BinaryOp::Div if constant.is_some_and(|by| by > 0) => {
            let [low, high] = both(op.name(), &low, &high);
            pair(low, high)
        }
        BinaryOp::Lt => Range::truth(format!("{low} < {most}"), format!("{high} < {least}")),
        BinaryOp::Le => Range::truth(format!("{low} <= {most}"), format!("{high} <= {least}")),
        BinaryOp::Gt => Range::truth(format!("{high} > {least}"), format!("{low} > {most}")),
        BinaryOp::Ge => Range::truth(format!("{high} >= {least}"), format!("{low} >= {most}")),
        BinaryOp::Eq => Range::truth(
            format!("({low} <= {most} and {least} <= {high})"),
            format!("({low} == {most} and {least} == {high})"),
        ),
        BinaryOp::Ne => Range::truth(
            format!("(not ({low} == {most} and {least} == {high}))"),
            format!("(not ({low} <= {most} and {least} <= {high}))"),
        ),
        _ => Range::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tilewright_tile::interpret::interpret_bounded;
    use tilewright_tile::{Argument, Constants, verify};

    /// Results of the approximate instructions lie within the stated bound of the exact values, at caps from small to large and
    /// scores from 0 to where the exponential overflows and where it vanishes.
    #[test]
    fn capped_scores_are_within_their_bound() {
        let sizes: Vec<f32> = (0..2000)
            .map(|at| 1.01f32.powi(at - 1000))
            .chain([0.0, 1e30])
            .filter(|x| x.is_finite())
            .collect();
        for cap in [0.125f32, 1.0, 20.0, 50.0, 1000.0] {
            let scores: Vec<f64> = sizes.iter().flat_map(|x| [*x, -*x]).map(|x| f64::from(x * cap)).collect();
            let text = format!(
                "kernel k(x: f32[{n}], y: f32[{n}], cap: f32 = {cap:?}) grid(1) threads(32) {{\n\
                 gx = global_view(x[:], (4096) : (e0))\n\
                 gy = global_view(y[:], (4096) : (e0))\n\
                 r = register_tensor(f32, [4096])\n\
                 copy(gx, r)\n\
                 s = {}\n\
                 copy(s, gy)\n\
                 }}",
                capped("r", "1.0 / cap", "cap"),
                n = scores.len(),
            );
            let program = parse(&text).unwrap();
            let verified = verify(&program, &Constants::new()).unwrap();
            let mut arguments = [
                Argument::Tensor(scores.clone()),
                Argument::Tensor(vec![0.0; scores.len()]),
                Argument::Scalar(f64::from(cap).into()),
            ];
            let bounds = interpret_bounded(&verified, &BTreeMap::new(), &mut arguments).unwrap();
            let (Argument::Tensor(found), Some(bounds)) = (&arguments[1], &bounds[1]) else {
                panic!("the kernel writes y")
            };
            let most = f64::from(cap);
            for ((x, y), bound) in scores.iter().zip(found).zip(bounds) {
                let off = (y - most * (x / most).tanh()).abs() + f64::from(*bound);
                assert!(off <= most * 2f64.powi(-20), "cap {cap}, {x}: {y} may be off by {off:e}");
            }
        }
    }
}
