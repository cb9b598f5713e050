//! Integer expressions and layouts as thread-level arithmetic, in 32 bits.
//!
//! A layout of a thread index becomes shifts and masks where its extents are powers of two, divisions elsewhere.

use tilewright_layout::{Layout, Swizzle, coalesce};
use tilewright_machine::{Memory, ScalarOp, Scope, ShuffleMode, thread_copy};
use tilewright_simt::{Address, Builder, Operand, Special, Value};
use tilewright_synth::Divisibility;
use tilewright_tile::{Expr, IntOp, ParamId, SymbolId};

/// A literal 32-bit integer.
pub fn int(value: i64) -> Operand {
    Operand::Imm(u64::from(value as i32 as u32))
}

/// The bits of a literal `f32`.
pub fn float(value: f64) -> Operand {
    Operand::Imm(u64::from((value as f32).to_bits()))
}

/// The value that an operand is, unless it is a literal.
pub fn value(operand: Operand) -> Option<Value> {
    match operand {
        Operand::Value(value) => Some(value),
        Operand::Imm(_) => None,
    }
}

/// The index of the thread's warp in the block, the same in all its lanes as far as the assembler can see.
pub fn warp_index(b: &mut Builder) -> Operand {
    let thread = Operand::Value(b.special(Special::ThreadIndex));
    let warp = b.scalar(ScalarOp::ShrU32, &[thread, int(5)]);
    b.shuffle(warp, ShuffleMode::Idx, int(0))
}

/// A condition as a value.
pub fn condition(b: &mut Builder, op: ScalarOp, x: Operand, y: Operand) -> Option<Value> {
    value(b.scalar(op, &[x, y]))
}

/// The conjunction of two conditions, the first of which may be absent.
pub fn both(b: &mut Builder, a: Option<Operand>, c: Operand) -> Operand {
    match a {
        Some(a) => b.scalar(ScalarOp::AndPred, &[a, c]),
        None => c,
    }
}

/// A condition as a guard: one that always holds needs none, and one that never holds is that the thread's index is
/// negative.
pub fn predicate(b: &mut Builder, condition: Option<Operand>) -> Option<Value> {
    let condition = match condition? {
        Operand::Imm(0) => {
            let thread = Operand::Value(b.special(Special::ThreadIndex));
            b.scalar(ScalarOp::LtI32, &[thread, int(0)])
        }
        other => other,
    };
    value(condition)
}

/// `a + b`
pub fn add(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    b.scalar(ScalarOp::AddI32, &[x, y])
}

/// `x · factor`
pub fn scale(b: &mut Builder, x: Operand, factor: i64) -> Operand {
    if factor > 0 && factor.count_ones() == 1 {
        b.scalar(ScalarOp::ShlB32, &[x, int(i64::from(factor.trailing_zeros()))])
    } else {
        b.scalar(ScalarOp::MulI32, &[x, int(factor)])
    }
}

/// Divisors from here on have no reciprocal of 32 bits that is exact for all that is divided by them.
const RECIPROCALS: i64 = 1 << 16;

/// The way to divide by a literal.
#[derive(Clone, Copy)]
pub enum Division {
    /// The instruction, for which `ptxas` has a sequence of some 150 cycles, whatever the divisor.
    Instruction,
    /// A product with the reciprocal, rounded up to 32 bits (Granlund and Montgomery, "Division by invariant integers using multiplication", section 4), of
    /// divisors below 2¹⁶: exact below 2³¹ and as far beyond as rounding up to a multiple goes. `ptxas` takes it out of loops, at the cost of registers.
    Reciprocal,
}

impl Division {
    /// `x / divisor` for `x ≥ 0` and a positive divisor.
    fn quotient(self, b: &mut Builder, x: Operand, divisor: i64) -> Operand {
        if divisor.count_ones() == 1 || divisor >= RECIPROCALS || matches!(self, Division::Instruction) {
            return divide(b, x, divisor);
        }
        let (reciprocal, shift) = reciprocal(divisor as u32);
        let product = b.scalar(ScalarOp::MulHiU32, &[x, Operand::Imm(u64::from(reciprocal))]);
        b.scalar(ScalarOp::ShrU32, &[product, int(i64::from(shift))])
    }
}

/// `x / divisor` for `x ≥ 0` and a positive divisor.
pub fn divide(b: &mut Builder, x: Operand, divisor: i64) -> Operand {
    if divisor.count_ones() == 1 {
        b.scalar(ScalarOp::ShrU32, &[x, int(i64::from(divisor.trailing_zeros()))])
    } else {
        b.scalar(ScalarOp::DivI32, &[x, int(divisor)])
    }
}

/// `x % divisor` for `x ≥ 0` and a positive divisor.
pub fn remainder(b: &mut Builder, x: Operand, divisor: i64) -> Operand {
    if divisor.count_ones() == 1 {
        b.scalar(ScalarOp::AndB32, &[x, int(divisor - 1)])
    } else {
        b.scalar(ScalarOp::RemI32, &[x, int(divisor)])
    }
}

/// The reciprocal of a divisor that is no power of two, times 2³² and some power of two that a shift to the right undoes.
fn reciprocal(divisor: u32) -> (u32, u32) {
    let bits = 32 - (divisor - 1).leading_zeros();
    let rounded_up = (1u64 << (31 + bits)) / u64::from(divisor) + 1;
    (rounded_up as u32, bits - 1)
}

/// Evaluates a layout at `index`, which lies in `0..layout.size()`.
pub fn layout(b: &mut Builder, layout: &Layout, index: Operand) -> Operand {
    let leaves = coalesce(layout).leaves();
    let mut sum = int(0);
    let mut done = 1;
    for (i, (extent, stride)) in leaves.iter().enumerate() {
        if *stride != 0 && *extent > 1 {
            let mut digit = divide(b, index, done);
            if i + 1 < leaves.len() {
                digit = remainder(b, digit, *extent);
            }
            let term = scale(b, digit, *stride);
            sum = add(b, sum, term);
        }
        done *= extent;
    }
    sum
}

/// Applies a swizzle to an offset in elements.
pub fn swizzle(b: &mut Builder, swizzle: Swizzle, offset: Operand) -> Operand {
    if swizzle.is_identity() {
        return offset;
    }
    let mask = ((1i64 << swizzle.bits()) - 1) << swizzle.base();
    let shifted = b.scalar(ScalarOp::ShrU32, &[offset, int(i64::from(swizzle.shift()))]);
    let masked = b.scalar(ScalarOp::AndB32, &[shifted, int(mask)]);
    b.scalar(ScalarOp::XorB32, &[offset, masked])
}

/// Evaluates an expression; `symbol` gives the values of sizes and counters.
pub fn expr(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    e: &Expr,
) -> Operand {
    expr_dividing(b, divisibility, symbol, e, Division::Instruction)
}

/// The same, with quotients by literals in this way.
pub fn expr_dividing(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    e: &Expr,
    division: Division,
) -> Operand {
    match e {
        Expr::Int(value) => int(*value),
        Expr::Symbol(id) => symbol(*id),
        Expr::Block(axis) => Operand::Value(b.special(Special::BlockIndex(axis.index() as u8))),
        Expr::Element(param, index) => element(b, divisibility, symbol, *param, index),
        Expr::Scalar(param) => Operand::Value(b.param(param.0)),
        Expr::Binary(op, x, y) => {
            let natural = divisibility.is_nonnegative(x) && divisibility.is_nonnegative(y);
            let literal = y.as_int().filter(|d| *d > 0);
            let (vx, vy) = {
                let mut part = |of: &Expr| expr_dividing(b, divisibility, symbol, of, division);
                (part(x), part(y))
            };
            match op {
                IntOp::Add => add(b, vx, vy),
                IntOp::Sub => b.scalar(ScalarOp::SubI32, &[vx, vy]),
                IntOp::Mul => match literal {
                    Some(factor) => scale(b, vx, factor),
                    None => b.scalar(ScalarOp::MulI32, &[vx, vy]),
                },
                IntOp::Min => b.scalar(ScalarOp::MinI32, &[vx, vy]),
                IntOp::Max => b.scalar(ScalarOp::MaxI32, &[vx, vy]),
                IntOp::Div => match literal {
                    Some(d) if natural => division.quotient(b, vx, d),
                    _ if natural => b.scalar(ScalarOp::DivU32, &[vx, vy]),
                    _ => floor_divide(b, vx, vy),
                },
                IntOp::Rem => match literal {
                    Some(d) if natural => remainder(b, vx, d),
                    _ => {
                        let q = match natural {
                            true => b.scalar(ScalarOp::DivU32, &[vx, vy]),
                            false => floor_divide(b, vx, vy),
                        };
                        let product = b.scalar(ScalarOp::MulI32, &[q, vy]);
                        b.scalar(ScalarOp::SubI32, &[vx, product])
                    }
                },
                IntOp::Eq
                | IntOp::Ne
                | IntOp::Lt
                | IntOp::Le
                | IntOp::Gt
                | IntOp::Ge
                | IntOp::And
                | IntOp::Or => {
                    let holds = holds(b, divisibility, symbol, e);
                    b.scalar(ScalarOp::Select, &[int(1), int(0), holds])
                }
                IntOp::CeilDiv => match literal {
                    Some(d) if natural => {
                        let raised = add(b, vx, int(d - 1));
                        // The sum may have a bit more than numbers with signs do.
                        match d >= RECIPROCALS {
                            true => b.scalar(ScalarOp::DivU32, &[raised, int(d)]),
                            false => division.quotient(b, raised, d),
                        }
                    }
                    _ if natural => {
                        // The sum may have a bit more than numbers with signs do.
                        let sum = b.scalar(ScalarOp::AddI32, &[vx, vy]);
                        let raised = add(b, sum, int(-1));
                        b.scalar(ScalarOp::DivU32, &[raised, vy])
                    }
                    _ => {
                        let negated = b.scalar(ScalarOp::SubI32, &[int(0), vx]);
                        let q = floor_divide(b, negated, vy);
                        b.scalar(ScalarOp::SubI32, &[int(0), q])
                    }
                },
            }
        }
    }
}

/// The condition that an expression is not 0, as a predicate.
pub fn holds(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    e: &Expr,
) -> Operand {
    let Expr::Binary(op, x, y) = e else {
        let value = expr(b, divisibility, symbol, e);
        return b.scalar(ScalarOp::NeI32, &[value, int(0)]);
    };
    match op {
        IntOp::And => {
            let (x, y) = (holds(b, divisibility, symbol, x), holds(b, divisibility, symbol, y));
            b.scalar(ScalarOp::AndPred, &[x, y])
        }
        IntOp::Or => {
            // Not both of the opposites.
            let neither = holds(b, divisibility, symbol, &e.negated());
            b.scalar(ScalarOp::XorPred, &[neither, Operand::Imm(1)])
        }
        _ => {
            let (vx, vy) = (expr(b, divisibility, symbol, x), expr(b, divisibility, symbol, y));
            match op {
                IntOp::Eq => b.scalar(ScalarOp::EqI32, &[vx, vy]),
                IntOp::Ne => b.scalar(ScalarOp::NeI32, &[vx, vy]),
                IntOp::Lt => b.scalar(ScalarOp::LtI32, &[vx, vy]),
                IntOp::Gt => b.scalar(ScalarOp::LtI32, &[vy, vx]),
                IntOp::Ge => b.scalar(ScalarOp::GeI32, &[vx, vy]),
                IntOp::Le => b.scalar(ScalarOp::GeI32, &[vy, vx]),
                _ => {
                    let value = expr(b, divisibility, symbol, e);
                    b.scalar(ScalarOp::NeI32, &[value, int(0)])
                }
            }
        }
    }
}

/// The bytes of so many steps of a stride in elements of 32 bits.
fn words(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    at: Operand,
    stride: &Expr,
) -> Operand {
    match self::stride(b, divisibility, symbol, stride) {
        Stride::Narrow(Operand::Imm(stride)) if stride < 1 << 28 => {
            b.scalar(ScalarOp::MulWide, &[at, int(4 * stride as i64)])
        }
        stride => {
            let elements = product(b, at, stride);
            b.scalar(ScalarOp::ShlB64, &[elements, int(2)])
        }
    }
}

/// The element of a table of one mode at an index that lies within it.
pub fn listed(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    table: ParamId,
    at: Operand,
) -> Operand {
    let row = thread_copy(Memory::Global, Memory::Register, Scope::Cta, 4);
    let (Some(row), Some(stride)) = (row, divisibility.program().strides(table).first()) else {
        return int(0);
    };
    let offset = words(b, divisibility, symbol, at, stride);
    let pointer = Operand::Value(b.param(table.0));
    let base = b.scalar(ScalarOp::AddI64, &[pointer, offset]);
    b.lookup(row, Address { base, offset: 0 }, None)
}

/// An element of a tensor that the kernel does not write, at one index a mode: 0 where one is outside.
fn element(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    param: ParamId,
    index: &[Expr],
) -> Operand {
    let Some(row) = thread_copy(Memory::Global, Memory::Register, Scope::Cta, 4) else { return int(0) };
    let (address, guard) = word(b, divisibility, symbol, param, index);
    let guard = predicate(b, guard);
    b.lookup(row, address, guard)
}

/// The address of a word of a parameter of 32-bit elements, and the condition that the index lies within it, where that is not known.
pub fn word(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    param: ParamId,
    index: &[Expr],
) -> (Address, Option<Operand>) {
    let verified = divisibility.program();
    let (shape, strides) = (verified.buffer_shape(param), verified.strides(param));
    let array = verified.param(param).is_array();
    let mut guard = None;
    let mut place = None;
    let mut pointer = None;
    for (i, ((index, extent), stride)) in index.iter().zip(shape).zip(strides).enumerate() {
        let at = expr(b, divisibility, symbol, index);
        if let Some(inside) = lies_inside(b, divisibility, symbol, (index, at), extent) {
            guard = Some(both(b, guard, inside));
        }
        if array && i == 0 {
            pointer = Some(tensor_of_array(b, param, at, guard));
            continue;
        }
        let offset = words(b, divisibility, symbol, at, stride);
        place = Some(match place {
            None => offset,
            Some(before) => b.scalar(ScalarOp::AddI64, &[before, offset]),
        });
    }
    let pointer = pointer.unwrap_or_else(|| Operand::Value(b.param(param.0)));
    let base = match place {
        None => pointer,
        Some(place) => b.scalar(ScalarOp::AddI64, &[pointer, place]),
    };
    (Address { base, offset: 0 }, guard)
}

/// The condition that an index, of this value, lies within a mode, where that is not known.
pub fn lies_inside(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    (index, at): (&Expr, Operand),
    extent: &Expr,
) -> Option<Operand> {
    let mut inside = None;
    if !divisibility.lies_below(index, extent, 1) {
        let extent = expr(b, divisibility, symbol, extent);
        inside = Some(b.scalar(ScalarOp::LtI32, &[at, extent]));
    }
    if !divisibility.is_nonnegative(index) {
        let above = b.scalar(ScalarOp::GeI32, &[at, int(0)]);
        inside = Some(both(b, inside, above));
    }
    inside
}

/// The pointer to a tensor of an array, given its index and the condition that there is one: loaded once for all accesses to it.
pub fn tensor_of_array(b: &mut Builder, array: ParamId, index: Operand, inside: Option<Operand>) -> Operand {
    let pointers = Operand::Value(b.param(array.0));
    // Every machine has the load.
    let Some(row) = thread_copy(Memory::Global, Memory::Register, Scope::Cta, 8) else { return pointers };
    let offset = b.scalar(ScalarOp::MulWide, &[index, int(8)]);
    let base = b.scalar(ScalarOp::AddI64, &[pointers, offset]);
    let guard = predicate(b, inside);
    b.lookup_pointer(row, Address { base, offset: 0 }, guard)
}

/// A factor of an offset into a buffer: offsets may need 64 bits where coordinates do not.
#[derive(Clone, Copy)]
pub enum Stride {
    /// Fits in 32 bits.
    Narrow(Operand),
    /// A 64-bit value.
    Wide(Operand),
}

/// Evaluates a stride: products and sums of sizes in 64 bits.
pub fn stride(
    b: &mut Builder,
    divisibility: &Divisibility<'_>,
    symbol: &dyn Fn(SymbolId) -> Operand,
    e: &Expr,
) -> Stride {
    match e {
        Expr::Int(value) if i32::try_from(*value).is_err() => Stride::Wide(Operand::Imm(*value as u64)),
        Expr::Binary(op @ (IntOp::Mul | IntOp::Add), x, y) => {
            let (x, y) = (stride(b, divisibility, symbol, x), stride(b, divisibility, symbol, y));
            Stride::Wide(match (op, x, y) {
                (IntOp::Mul, Stride::Narrow(x), Stride::Narrow(y)) => b.scalar(ScalarOp::MulWide, &[x, y]),
                (IntOp::Mul, x, y) => {
                    let (x, y) = (widen(b, x), widen(b, y));
                    b.scalar(ScalarOp::MulI64, &[x, y])
                }
                (_, x, y) => {
                    let (x, y) = (widen(b, x), widen(b, y));
                    b.scalar(ScalarOp::AddI64, &[x, y])
                }
            })
        }
        _ => Stride::Narrow(expr(b, divisibility, symbol, e)),
    }
}

fn widen(b: &mut Builder, stride: Stride) -> Operand {
    match stride {
        Stride::Narrow(x) => b.scalar(ScalarOp::ExtendI64, &[x]),
        Stride::Wide(x) => x,
    }
}

/// `coordinate · stride`, in 64 bits.
pub fn product(b: &mut Builder, coordinate: Operand, stride: Stride) -> Operand {
    match stride {
        Stride::Narrow(stride) => b.scalar(ScalarOp::MulWide, &[coordinate, stride]),
        Stride::Wide(stride) => {
            let coordinate = b.scalar(ScalarOp::ExtendI64, &[coordinate]);
            b.scalar(ScalarOp::MulI64, &[coordinate, stride])
        }
    }
}

/// `⌊x / y⌋` for any signs.
fn floor_divide(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    let q = b.scalar(ScalarOp::DivI32, &[x, y]);
    let product = b.scalar(ScalarOp::MulI32, &[q, y]);
    let rest = b.scalar(ScalarOp::SubI32, &[x, product]);
    let inexact = b.scalar(ScalarOp::NeI32, &[rest, int(0)]);
    let signs = b.scalar(ScalarOp::XorB32, &[rest, y]);
    let opposite = b.scalar(ScalarOp::LtI32, &[signs, int(0)]);
    let adjust = b.scalar(ScalarOp::AndPred, &[inexact, opposite]);
    let lower = add(b, q, int(-1));
    b.scalar(ScalarOp::Select, &[lower, q, adjust])
}

#[cfg(test)]
mod tests {
    use super::{RECIPROCALS, reciprocal};

    /// The error of a product grows with the dividend, and of equal ones is largest below a multiple: the last dividend of that kind decides.
    #[test]
    fn a_product_with_the_reciprocal_is_the_quotient() {
        for d in (3..RECIPROCALS as u32).filter(|d| !d.is_power_of_two()) {
            let (by, shift) = reciprocal(d);
            let most = i32::MAX as u32 + d - 1;
            let below = most / d * d - 1;
            for x in [0, 1, d - 1, d, below, below + 1, most] {
                let product = (u64::from(x) * u64::from(by)) >> 32;
                assert_eq!(product >> shift, u64::from(x / d), "{x} / {d}");
            }
        }
    }
}
