//! Elementwise expressions: their operators, and how these are written. [`crate::arith`] has their types and their meaning.

use tilewright_machine::DType;

use crate::expr::{Expr, IntOp};
use crate::ids::{ParamId, TensorId};

/// A function of one value in an elementwise expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `abs(x)`
    Abs,
    /// `exp(x)`, to about 2 units in the last place of `f32`
    Exp,
    /// `exp2(x)`: 2ˣ
    Exp2,
    /// `log(x)`, natural
    Log,
    /// `log2(x)`
    Log2,
    /// `sqrt(x)`
    Sqrt,
    /// `rsqrt(x)`: 1/√x
    Rsqrt,
    /// `tanh(x)`
    Tanh,
    /// `sin(x)`, of radians of any size
    Sin,
    /// `cos(x)`, of radians of any size
    Cos,
    /// `erf(x)`: the error function
    Erf,
    /// `floor(x)`: the largest integer that is not above x
    Floor,
    /// `ceil(x)`: the least integer that is not below x
    Ceil,
    /// `round(x)`: the nearest integer, of two the even one
    Round,
    /// `float(x)`: an integer as an `f32`, rounded to nearest even; of a truth value 1 or 0
    Float,
    /// `int(x)`: a truth value as 1 or 0, an integer as it is, in `i32`
    Int,
    /// `not x`, of a truth value
    Not,
}

impl UnaryOp {
    /// All, in the order of the grammar.
    pub const ALL: [UnaryOp; 18] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Exp,
        UnaryOp::Exp2,
        UnaryOp::Log,
        UnaryOp::Log2,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Tanh,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Erf,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Float,
        UnaryOp::Int,
        UnaryOp::Not,
    ];

    /// The name in the tile language (`-` for negation).
    pub fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Abs => "abs",
            UnaryOp::Exp => "exp",
            UnaryOp::Exp2 => "exp2",
            UnaryOp::Log => "log",
            UnaryOp::Log2 => "log2",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Erf => "erf",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Round => "round",
            UnaryOp::Float => "float",
            UnaryOp::Int => "int",
            UnaryOp::Not => "not",
        }
    }

    /// True for a function that is called by its name.
    pub fn is_call(self) -> bool {
        !matches!(self, UnaryOp::Neg | UnaryOp::Not)
    }
}

/// An operator on two values in an elementwise expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// `x + y`; of integers modulo 2³²
    Add,
    /// `x - y`; of integers modulo 2³²
    Sub,
    /// `x * y`; of integers modulo 2³²
    Mul,
    /// `x / y`: rounded to nearest even; of integers rounded down, and any value where `y` is 0
    Div,
    /// `fdividef(x, y)`: a quotient to 2 units in the last place where |y| is from 2⁻¹²⁶ to 2¹²⁶, and cheap (CUDA's name)
    FastDiv,
    /// `x % y` of integers, with the sign of `y`; any value where `y` is 0
    Rem,
    /// `min(x, y)`
    Min,
    /// `max(x, y)`
    Max,
    /// `mulhi(x, y)`: the upper 32 bits of the 64-bit product of integers
    MulHi,
    /// `x & y`
    BitAnd,
    /// `x | y`
    BitOr,
    /// `x ^ y`
    BitXor,
    /// `x << y`; by 32 or more gives 0
    Shl,
    /// `x >> y`: of `i32` arithmetic, of `u32` logical; by 32 or more like by 31 of `i32`, and 0 of `u32`
    Shr,
    /// `x == y`
    Eq,
    /// `x != y`
    Ne,
    /// `x < y`
    Lt,
    /// `x <= y`
    Le,
    /// `x > y`
    Gt,
    /// `x >= y`
    Ge,
    /// `x and y`, of truth values
    And,
    /// `x or y`, of truth values
    Or,
}

/// The way in which an operator is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Between its operands, at this level of precedence: the higher binds tighter.
    Infix(u8),
    /// As a call.
    Call,
}

impl BinaryOp {
    /// All, in the order of the grammar.
    pub const ALL: [BinaryOp; 22] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::FastDiv,
        BinaryOp::Rem,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::MulHi,
        BinaryOp::BitAnd,
        BinaryOp::BitOr,
        BinaryOp::BitXor,
        BinaryOp::Shl,
        BinaryOp::Shr,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::Gt,
        BinaryOp::Ge,
        BinaryOp::And,
        BinaryOp::Or,
    ];

    /// The levels of precedence of operators between their operands, the loosest first: as Python has them.
    pub const OR: u8 = 0;
    /// The level of `and`.
    pub const AND: u8 = 1;
    /// The level of `not`.
    pub const NOT: u8 = 2;
    /// The level of comparisons, which do not chain.
    pub const COMPARISON: u8 = 3;
    /// The level of sums.
    pub const SUM: u8 = 8;
    /// The level of products.
    pub const PRODUCT: u8 = 9;
    /// The level of operands: negations, calls and what stands in parentheses.
    pub const FACTOR: u8 = 10;

    /// The text: a sign, a word, or the name of a call.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The way in which it is written.
    pub fn notation(self) -> Notation {
        self.row().1
    }

    /// The operator on integers of the program that does the same, as long as nothing overflows.
    pub fn of_integers(self) -> Option<IntOp> {
        Some(match self {
            BinaryOp::Add => IntOp::Add,
            BinaryOp::Sub => IntOp::Sub,
            BinaryOp::Mul => IntOp::Mul,
            BinaryOp::Div => IntOp::Div,
            BinaryOp::Rem => IntOp::Rem,
            BinaryOp::Min => IntOp::Min,
            BinaryOp::Max => IntOp::Max,
            BinaryOp::Eq => IntOp::Eq,
            BinaryOp::Ne => IntOp::Ne,
            BinaryOp::Lt => IntOp::Lt,
            BinaryOp::Le => IntOp::Le,
            BinaryOp::Gt => IntOp::Gt,
            BinaryOp::Ge => IntOp::Ge,
            BinaryOp::And => IntOp::And,
            BinaryOp::Or => IntOp::Or,
            BinaryOp::FastDiv
            | BinaryOp::MulHi
            | BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::Shl
            | BinaryOp::Shr => return None,
        })
    }

    /// True for an operator whose result is a truth value.
    pub fn compares(self) -> bool {
        self.notation() == Notation::Infix(BinaryOp::COMPARISON)
    }

    fn row(self) -> (&'static str, Notation) {
        use Notation::{Call, Infix};
        match self {
            BinaryOp::Or => ("or", Infix(BinaryOp::OR)),
            BinaryOp::And => ("and", Infix(BinaryOp::AND)),
            BinaryOp::Eq => ("==", Infix(BinaryOp::COMPARISON)),
            BinaryOp::Ne => ("!=", Infix(BinaryOp::COMPARISON)),
            BinaryOp::Lt => ("<", Infix(BinaryOp::COMPARISON)),
            BinaryOp::Le => ("<=", Infix(BinaryOp::COMPARISON)),
            BinaryOp::Gt => (">", Infix(BinaryOp::COMPARISON)),
            BinaryOp::Ge => (">=", Infix(BinaryOp::COMPARISON)),
            BinaryOp::BitOr => ("|", Infix(4)),
            BinaryOp::BitXor => ("^", Infix(5)),
            BinaryOp::BitAnd => ("&", Infix(6)),
            BinaryOp::Shl => ("<<", Infix(7)),
            BinaryOp::Shr => (">>", Infix(7)),
            BinaryOp::Add => ("+", Infix(BinaryOp::SUM)),
            BinaryOp::Sub => ("-", Infix(BinaryOp::SUM)),
            BinaryOp::Mul => ("*", Infix(BinaryOp::PRODUCT)),
            BinaryOp::Div => ("/", Infix(BinaryOp::PRODUCT)),
            BinaryOp::Rem => ("%", Infix(BinaryOp::PRODUCT)),
            BinaryOp::FastDiv => ("fdividef", Call),
            BinaryOp::Min => ("min", Call),
            BinaryOp::Max => ("max", Call),
            BinaryOp::MulHi => ("mulhi", Call),
        }
    }
}

/// An elementwise expression. [`crate::arith`] has its types and its meaning.
#[derive(Clone, PartialEq, Debug)]
pub enum ElemExpr {
    /// The element of a register tensor at this coordinate.
    Tensor(TensorId),
    /// A literal.
    Number(f64),
    /// A scalar parameter.
    Scalar(ParamId),
    /// An integer of the program: a counter, a size, a block's index. A condition over them is a truth value.
    Int(Expr),
    /// `index(axis)`: the coordinate of the element along a mode of the result.
    Index(u32),
    /// An operand of a [`Combination`]: an element of the first tuple, or, behind those, of the second.
    Operand(u32),
    /// A function of one value.
    Unary(UnaryOp, Box<ElemExpr>),
    /// An operator on two values.
    Binary(BinaryOp, Box<ElemExpr>, Box<ElemExpr>),
    /// `where(c, x, y)`: x where c is true, else y. Both are evaluated.
    Where(Box<[ElemExpr; 3]>),
    /// `f16x2(x)` and `bf16x2(x)`: x with every operation on values of the type rounded to it, as packed instructions do them.
    Packed(DType, Box<ElemExpr>),
    /// `bitcast(x, u32)`: the bits of a value of 32 bits, as a value of another type of 32 bits.
    Bitcast(DType, Box<ElemExpr>),
    /// `asm("…", x, y, means = z)`: what instructions of PTX compute, which is z.
    Asm(Box<Asm>),
}

/// Instructions of PTX in an elementwise expression, and what they compute.
#[derive(Clone, PartialEq, Debug)]
pub struct Asm {
    /// The text, of which [`crate::asm`] says what may stand in it.
    pub text: String,
    /// The operands, `$1` first: values of 32 or 64 bits.
    pub operands: Vec<ElemExpr>,
    /// The meaning: what the interpreter computes. The result is of its type.
    pub means: ElemExpr,
    /// The largest distance of the result from the meaning, as a part of its size.
    pub within: f64,
}

/// The types of packed arithmetic, each with the name of its call.
pub const PACKED: [(&str, DType); 2] = [("f16x2", DType::F16), ("bf16x2", DType::BF16)];

impl ElemExpr {
    /// A function of an expression. What is `float(3)` in the text is a function of an integer.
    pub fn unary(op: UnaryOp, x: ElemExpr) -> ElemExpr {
        match (op, whole(&x)) {
            (UnaryOp::Int, Some(value)) => ElemExpr::Int(value),
            (UnaryOp::Float, Some(value)) => ElemExpr::Unary(op, Box::new(ElemExpr::Int(value))),
            _ => ElemExpr::Unary(op, Box::new(x)),
        }
    }

    /// An operator on two expressions. An operation on an integer of the program and another, or a literal, is an integer of the program.
    pub fn binary(op: BinaryOp, x: ElemExpr, y: ElemExpr) -> ElemExpr {
        let integer = |x: &ElemExpr| matches!(x, ElemExpr::Int(_));
        if (integer(&x) || integer(&y))
            && let Some(op) = op.of_integers()
            && let (Some(x), Some(y)) = (whole(&x), whole(&y))
        {
            return ElemExpr::Int(Expr::binary(op, x, y));
        }
        ElemExpr::Binary(op, Box::new(x), Box::new(y))
    }

    /// Calls `visit` for the expression and all within, each before its operands.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a ElemExpr)) {
        visit(self);
        match self {
            ElemExpr::Unary(_, x) | ElemExpr::Bitcast(_, x) | ElemExpr::Packed(_, x) => x.visit(visit),
            ElemExpr::Binary(_, x, y) => {
                x.visit(visit);
                y.visit(visit);
            }
            ElemExpr::Where(operands) => operands.iter().for_each(|x| x.visit(visit)),
            ElemExpr::Asm(asm) => asm.operands.iter().chain([&asm.means]).for_each(|x| x.visit(visit)),
            ElemExpr::Tensor(_)
            | ElemExpr::Number(_)
            | ElemExpr::Scalar(_)
            | ElemExpr::Int(_)
            | ElemExpr::Index(_)
            | ElemExpr::Operand(_) => {}
        }
    }

    /// The tensors it reads, in order of occurrence, with repetitions.
    pub fn tensors(&self) -> Vec<TensorId> {
        let mut tensors = Vec::new();
        self.visit(&mut |x| {
            if let ElemExpr::Tensor(id) = x {
                tensors.push(*id);
            }
        });
        tensors
    }
}

/// A function of the program that puts two tuples of elements together, which a [`StmtKind::Combine`](crate::StmtKind::Combine) asks to be associative.
#[derive(Clone, PartialEq, Debug)]
pub struct Combination {
    /// The elements of the tuple that both come to, over [`ElemExpr::Operand`]s: as many as each of both has.
    pub results: Vec<ElemExpr>,
}

impl Combination {
    /// The most operators, operands and literals of its results.
    pub const MAX_SIZE: usize = 10_000;

    /// Operators, operands and literals of its results.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.results.iter().for_each(|result| result.visit(&mut |_| size += 1));
        size
    }
}

/// An integer of the program, or a literal that is an integer.
fn whole(expr: &ElemExpr) -> Option<Expr> {
    // A larger literal is a bit pattern: integers of the program do not wrap.
    const LARGEST: f64 = i32::MAX as f64;
    match expr {
        ElemExpr::Int(e) => Some(e.clone()),
        ElemExpr::Number(x) if x.fract() == 0.0 && x.abs() <= LARGEST => Some(Expr::Int(*x as i64)),
        _ => None,
    }
}
