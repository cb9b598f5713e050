//! Operations of one thread on its own registers, one row each: operand types, spelling, and the function that
//! evaluates it. The simulator calls the function, PTX prints the mnemonic, constant folding calls the function too.
//!
//! Values travel as `u64` bit patterns, zero-extended: a predicate is 0 or 1, an `f32` its bits.
//! Source: PTX ISA 8.1, sections 9.7.1 to 9.7.9.

use half::{bf16, f16};

use crate::dtype::DType;
use crate::features::{Feature, Features};

/// The type of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegType {
    /// A predicate.
    Pred,
    /// 16 bits.
    B16,
    /// 32 bits: an integer, an `f32`, or packed smaller elements.
    B32,
    /// 64 bits: an address or an offset.
    B64,
}

/// The row of a [`ScalarOp`].
#[derive(Clone, Copy, Debug)]
pub struct ScalarRow {
    /// The name in printed programs.
    pub name: &'static str,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: &'static str,
    /// Operand types.
    pub operands: &'static [RegType],
    /// Result type.
    pub result: RegType,
    /// The function that evaluates it.
    pub eval: fn(&[u64]) -> u64,
}

fn i(x: u64) -> i32 {
    x as u32 as i32
}
fn from_i(x: i32) -> u64 {
    u64::from(x as u32)
}
fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}
fn from_f(x: f32) -> u64 {
    u64::from(x.to_bits())
}
fn l(x: u64) -> i64 {
    x.cast_signed()
}
fn d(x: u64) -> f64 {
    f64::from_bits(x)
}
/// A float as an integer of a type, to nearest even, saturating. A NaN is half of the range for `wide` conversions, those of `f64` and to
/// 64 bits, else 0 (PTX ISA 8.1, section 9.7.9.21).
fn integer_of(dtype: DType, x: f64, wide: bool) -> u64 {
    if x.is_nan() && wide { 1 << (dtype.bits() - 1) } else { dtype.encode(x) }
}
fn pair(lo: u16, hi: u16) -> u64 {
    u64::from(lo) | u64::from(hi) << 16
}
/// Both halves of packed 16-bit floats.
fn halves(dtype: DType, bits: u64) -> [f64; 2] {
    [dtype.decode(bits as u32 & 0xffff), dtype.decode((bits >> 16) as u32 & 0xffff)]
}
/// Two numbers rounded to a type of at most 16 bits, the first lowest.
fn packed(dtype: DType, [low, high]: [f64; 2]) -> u64 {
    dtype.encode(low) | dtype.encode(high) << dtype.bits()
}
/// `a · b + c` of 16-bit floats, with the last bit set where it is not exact, so that it can be rounded once more.
pub fn fused(a: f64, b: f64, c: f64) -> f64 {
    // The product of two such numbers is exact in double precision.
    let product = a * b;
    let sum = product + c;
    let rest = sum - product;
    let error = (product - (sum - rest)) + (c - rest);
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}
fn fused_halves(dtype: DType, a: &[u64]) -> u64 {
    let [x, y, z] = [0, 1, 2].map(|k| halves(dtype, a[k]));
    packed(dtype, [0, 1].map(|k| fused(x[k], y[k], z[k])))
}
/// An operation on both halves whose result in double precision is exact, or far from any tie.
fn by_halves(dtype: DType, a: &[u64], op: fn(f64, f64) -> f64) -> u64 {
    let [x, y] = [0, 1].map(|k| halves(dtype, a[k]));
    packed(dtype, [0, 1].map(|k| op(x[k], y[k])))
}
/// The smaller number: a NaN loses, and −0 lies below +0 (PTX ISA 8.1, section 9.7.3.11).
pub fn least(x: f64, y: f64) -> f64 {
    if x.is_nan() || (!y.is_nan() && y.total_cmp(&x).is_lt()) { y } else { x }
}
/// The larger number: a NaN loses, and −0 lies below +0 (PTX ISA 8.1, section 9.7.3.12).
pub fn most(x: f64, y: f64) -> f64 {
    if x.is_nan() || (!y.is_nan() && y.total_cmp(&x).is_gt()) { y } else { x }
}
/// A subnormal number as a zero of its sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}
fn of_f32(a: &[u64], op: fn(f64, f64) -> f64) -> u64 {
    from_f(op(f64::from(f(a[0])), f64::from(f(a[1]))) as f32)
}
/// Two `f32` to packed floats of 8 bits or 4, the first operand becomes the upper one.
fn bytes_of_f32(dtype: DType, a: &[u64]) -> u64 {
    packed(dtype, [f64::from(f(a[1])), f64::from(f(a[0]))])
}
fn mask(len: u64) -> u32 {
    if len >= 32 { u32::MAX } else { (1u32 << len) - 1 }
}

macro_rules! scalar_ops {
    ($( $(#[$doc:meta])* $op:ident: $name:literal = $mnemonic:literal ($($arg:ident),*) -> $ret:ident, $eval:expr; )*) => {
        /// An operation of one thread on registers. See [`ScalarOp::row`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ScalarOp { $( $(#[$doc])* $op, )* }

        impl ScalarOp {
            /// Every operation.
            pub const ALL: &'static [ScalarOp] = &[ $(ScalarOp::$op,)* ];

            /// The row of this operation.
            pub fn row(self) -> ScalarRow {
                match self {
                    $( ScalarOp::$op => ScalarRow {
                        name: $name,
                        mnemonic: $mnemonic,
                        operands: &[$(RegType::$arg),*],
                        result: RegType::$ret,
                        eval: $eval,
                    }, )*
                }
            }
        }
    };
}

scalar_ops! {
    /// 32-bit addition, wrapping.
    AddI32: "add" = "add.s32" (B32, B32) -> B32, |a| from_i(i(a[0]).wrapping_add(i(a[1])));
    /// 32-bit subtraction, wrapping.
    SubI32: "sub" = "sub.s32" (B32, B32) -> B32, |a| from_i(i(a[0]).wrapping_sub(i(a[1])));
    /// 32-bit product, low half.
    MulI32: "mul" = "mul.lo.s32" (B32, B32) -> B32, |a| from_i(i(a[0]).wrapping_mul(i(a[1])));
    /// Signed 32-bit quotient, rounded towards zero; by zero gives all ones.
    DivI32: "div" = "div.s32" (B32, B32) -> B32, |a| if i(a[1]) == 0 { 0xffff_ffff } else { from_i(i(a[0]).wrapping_div(i(a[1]))) };
    /// Signed 32-bit remainder, with the sign of the dividend; by zero gives the dividend.
    RemI32: "rem" = "rem.s32" (B32, B32) -> B32, |a| if i(a[1]) == 0 { a[0] } else { from_i(i(a[0]).wrapping_rem(i(a[1]))) };
    /// Signed minimum.
    MinI32: "min" = "min.s32" (B32, B32) -> B32, |a| from_i(i(a[0]).min(i(a[1])));
    /// Signed maximum.
    MaxI32: "max" = "max.s32" (B32, B32) -> B32, |a| from_i(i(a[0]).max(i(a[1])));
    /// Upper half of the 64-bit product of two signed numbers.
    MulHiI32: "mul.hi" = "mul.hi.s32" (B32, B32) -> B32, |a| from_i(((i64::from(i(a[0])) * i64::from(i(a[1]))) >> 32) as i32);
    /// Upper half of the 64-bit product of two unsigned numbers.
    MulHiU32: "mul.hi.u32" = "mul.hi.u32" (B32, B32) -> B32, |a| ((a[0] & 0xffff_ffff) * (a[1] & 0xffff_ffff)) >> 32;
    /// Unsigned 32-bit quotient; by zero gives all ones.
    DivU32: "div.u32" = "div.u32" (B32, B32) -> B32, |a| (a[0] & 0xffff_ffff).checked_div(a[1] & 0xffff_ffff).unwrap_or(0xffff_ffff);
    /// Unsigned 32-bit remainder; by zero gives the dividend.
    RemU32: "rem.u32" = "rem.u32" (B32, B32) -> B32, |a| (a[0] & 0xffff_ffff).checked_rem(a[1] & 0xffff_ffff).unwrap_or(a[0] & 0xffff_ffff);
    /// Unsigned minimum.
    MinU32: "min.u32" = "min.u32" (B32, B32) -> B32, |a| (a[0] & 0xffff_ffff).min(a[1] & 0xffff_ffff);
    /// Unsigned maximum.
    MaxU32: "max.u32" = "max.u32" (B32, B32) -> B32, |a| (a[0] & 0xffff_ffff).max(a[1] & 0xffff_ffff);
    /// Bitwise and.
    AndB32: "and" = "and.b32" (B32, B32) -> B32, |a| a[0] & a[1];
    /// Bitwise or.
    OrB32: "or" = "or.b32" (B32, B32) -> B32, |a| a[0] | a[1];
    /// Bitwise exclusive or.
    XorB32: "xor" = "xor.b32" (B32, B32) -> B32, |a| a[0] ^ a[1];
    /// Shift left; by 32 or more gives 0.
    ShlB32: "shl" = "shl.b32" (B32, B32) -> B32, |a| if a[1] >= 32 { 0 } else { u64::from((a[0] as u32) << a[1]) };
    /// Logical shift right; by 32 or more gives 0.
    ShrU32: "shr" = "shr.u32" (B32, B32) -> B32, |a| if a[1] >= 32 { 0 } else { u64::from((a[0] as u32) >> a[1]) };
    /// Arithmetic shift right; by 32 or more gives the sign.
    ShrI32: "shr.s32" = "shr.s32" (B32, B32) -> B32, |a| from_i(i(a[0]) >> a[1].min(31));
    /// Bit field `(value, position, length)`, zero-extended. Of positions and lengths the low eight bits count.
    BfeU32: "bfe.u32" = "bfe.u32" (B32, B32, B32) -> B32, |a| {
        let [position, length] = [a[1] & 0xff, a[2] & 0xff];
        u64::from((a[0] as u32).checked_shr(position as u32).unwrap_or(0) & mask(length))
    };
    /// Bit field `(value, position, length)`, extended by its highest bit; what lies above the word is the word's highest bit.
    BfeS32: "bfe.s32" = "bfe.s32" (B32, B32, B32) -> B32, |a| {
        let [position, length] = [a[1] & 0xff, a[2] & 0xff];
        let rest = i64::from(i(a[0])) >> position.min(31);
        from_i(if length == 0 { 0 } else if length >= 32 { rest as i32 } else { (rest << (64 - length) >> (64 - length)) as i32 })
    };
    /// Inserts the low bits of the first operand into the second: `(field, base, position, length)`. Of the last two the low
    /// eight bits count.
    BfiB32: "bfi" = "bfi.b32" (B32, B32, B32, B32) -> B32, |a| {
        let shifted = |x: u32| x.checked_shl((a[2] & 0xff) as u32).unwrap_or(0);
        let m = shifted(mask(a[3] & 0xff));
        u64::from((a[1] as u32 & !m) | (shifted(a[0] as u32) & m))
    };
    /// Bytes of two words, `(low, high, selector)`: each of the selector's four nibbles names a byte, 0 to 3 of the first
    /// operand, 4 to 7 of the second; with its top bit set the byte's sign, eight times.
    PrmtB32: "prmt" = "prmt.b32" (B32, B32, B32) -> B32, |a| {
        let bytes = a[0] & 0xffff_ffff | a[1] << 32;
        (0..4).fold(0, |word, k| {
            let nibble = a[2] >> (4 * k) & 15;
            let byte = bytes >> (8 * (nibble & 7)) & 0xff;
            let byte = if nibble & 8 == 0 { byte } else { (byte >> 7) * 0xff };
            word | byte << (8 * k)
        })
    };
    /// `(a, b, c, table)`: a function of three bits, place by place; its value at bits (x, y, z) is bit 4x + 2y + z of the
    /// table.
    Lop3B32: "lop3" = "lop3.b32" (B32, B32, B32, B32) -> B32, |a| {
        (0..8).filter(|k| a[3] >> k & 1 == 1).fold(0, |all, k| {
            let term = |word: u64, set: bool| if set { word } else { !word };
            all | term(a[0], k & 4 != 0) & term(a[1], k & 2 != 0) & term(a[2], k & 1 != 0) & 0xffff_ffff
        })
    };
    /// Sign-extends 32 to 64 bits.
    ExtendI64: "extend" = "cvt.s64.s32" (B32) -> B64, |a| i(a[0]) as i64 as u64;
    /// 64-bit product of two signed 32-bit numbers.
    MulWide: "mul.wide" = "mul.wide.s32" (B32, B32) -> B64, |a| (i64::from(i(a[0])) * i64::from(i(a[1]))) as u64;
    /// 64-bit addition, wrapping.
    AddI64: "add.64" = "add.s64" (B64, B64) -> B64, |a| a[0].wrapping_add(a[1]);
    /// 64-bit product, low half.
    MulI64: "mul.64" = "mul.lo.s64" (B64, B64) -> B64, |a| a[0].wrapping_mul(a[1]);
    /// 64-bit shift left (the amount is 32 bits wide).
    ShlB64: "shl.64" = "shl.b64" (B64, B32) -> B64, |a| if a[1] >= 64 { 0 } else { a[0] << a[1] };
    /// 64-bit arithmetic shift right (the amount is 32 bits wide).
    ShrI64: "shr.64" = "shr.s64" (B64, B32) -> B64, |a| (a[0] as i64 >> a[1].min(63)) as u64;
    /// 64-bit subtraction, wrapping.
    SubI64: "sub.64" = "sub.s64" (B64, B64) -> B64, |a| a[0].wrapping_sub(a[1]);
    /// Signed 64-bit quotient, rounded towards zero; by zero gives all ones.
    DivI64: "div.64" = "div.s64" (B64, B64) -> B64, |a| if a[1] == 0 { u64::MAX } else { l(a[0]).wrapping_div(l(a[1])).cast_unsigned() };
    /// Signed 64-bit remainder, with the sign of the dividend; by zero gives all ones, as an H200 does (PTX leaves it open).
    RemI64: "rem.64" = "rem.s64" (B64, B64) -> B64, |a| if a[1] == 0 { u64::MAX } else { l(a[0]).wrapping_rem(l(a[1])).cast_unsigned() };
    /// Unsigned 64-bit quotient; by zero gives all ones.
    DivU64: "div.u64" = "div.u64" (B64, B64) -> B64, |a| a[0].checked_div(a[1]).unwrap_or(u64::MAX);
    /// Unsigned 64-bit remainder; by zero gives all ones, as an H200 does (PTX leaves it open).
    RemU64: "rem.u64" = "rem.u64" (B64, B64) -> B64, |a| a[0].checked_rem(a[1]).unwrap_or(u64::MAX);
    /// Signed 64-bit minimum.
    MinI64: "min.64" = "min.s64" (B64, B64) -> B64, |a| l(a[0]).min(l(a[1])).cast_unsigned();
    /// Signed 64-bit maximum.
    MaxI64: "max.64" = "max.s64" (B64, B64) -> B64, |a| l(a[0]).max(l(a[1])).cast_unsigned();
    /// Unsigned 64-bit minimum.
    MinU64: "min.u64" = "min.u64" (B64, B64) -> B64, |a| a[0].min(a[1]);
    /// Unsigned 64-bit maximum.
    MaxU64: "max.u64" = "max.u64" (B64, B64) -> B64, |a| a[0].max(a[1]);
    /// Upper half of the 128-bit product of two signed numbers.
    MulHiI64: "mul.hi.64" = "mul.hi.s64" (B64, B64) -> B64, |a| ((i128::from(l(a[0])) * i128::from(l(a[1]))) >> 64) as u64;
    /// Upper half of the 128-bit product of two unsigned numbers.
    MulHiU64: "mul.hi.u64" = "mul.hi.u64" (B64, B64) -> B64, |a| ((u128::from(a[0]) * u128::from(a[1])) >> 64) as u64;
    /// 64-bit bitwise and.
    AndB64: "and.64" = "and.b64" (B64, B64) -> B64, |a| a[0] & a[1];
    /// 64-bit bitwise or.
    OrB64: "or.64" = "or.b64" (B64, B64) -> B64, |a| a[0] | a[1];
    /// 64-bit bitwise exclusive or.
    XorB64: "xor.64" = "xor.b64" (B64, B64) -> B64, |a| a[0] ^ a[1];
    /// 64-bit logical shift right (the amount is 32 bits wide).
    ShrU64: "shr.u64" = "shr.u64" (B64, B32) -> B64, |a| if a[1] >= 64 { 0 } else { a[0] >> a[1] };
    /// Zero-extends 32 to 64 bits.
    ExtendU64: "extend.u64" = "cvt.u64.u32" (B32) -> B64, |a| a[0] & 0xffff_ffff;
    /// Two words as 64 bits, the lower half first.
    JoinB64: "join64" = "mov.b64" (B32, B32) -> B64, |a| a[0] & 0xffff_ffff | a[1] << 32;
    /// The high 32 bits.
    HighB32: "high32" = "mov.b64" (B64) -> B32, |a| a[0] >> 32;
    /// Signed 64-bit `<`.
    LtI64: "lt.64" = "setp.lt.s64" (B64, B64) -> Pred, |a| u64::from(l(a[0]) < l(a[1]));
    /// Signed 64-bit `>=`.
    GeI64: "ge.64" = "setp.ge.s64" (B64, B64) -> Pred, |a| u64::from(l(a[0]) >= l(a[1]));
    /// Unsigned 64-bit `<`.
    LtU64: "lt.u64" = "setp.lt.u64" (B64, B64) -> Pred, |a| u64::from(a[0] < a[1]);
    /// Unsigned 64-bit `>=`.
    GeU64: "ge.u64" = "setp.ge.u64" (B64, B64) -> Pred, |a| u64::from(a[0] >= a[1]);
    /// 64-bit `==`.
    EqI64: "eq.64" = "setp.eq.s64" (B64, B64) -> Pred, |a| u64::from(a[0] == a[1]);
    /// 64-bit `!=`.
    NeI64: "ne.64" = "setp.ne.s64" (B64, B64) -> Pred, |a| u64::from(a[0] != a[1]);
    /// `(then, else, condition)`: selects 64 bits by a predicate.
    SelectB64: "select.64" = "selp.b64" (B64, B64, Pred) -> B64, |a| if a[2] != 0 { a[0] } else { a[1] };
    /// The low 32 bits.
    LowB32: "low32" = "cvt.u32.u64" (B64) -> B32, |a| a[0] & 0xffff_ffff;
    /// `(address, rank)`: the address, in the cluster's window, of the same place in the shared memory of block `rank` of the cluster.
    Mapa: "mapa" = "mapa.shared::cluster.u32" (B32, B32) -> B32, |a| a[0] & 0x00ff_ffff | (a[1] & 0xff) << 24;
    /// Signed `<`.
    LtI32: "lt" = "setp.lt.s32" (B32, B32) -> Pred, |a| u64::from(i(a[0]) < i(a[1]));
    /// Signed `>=`.
    GeI32: "ge" = "setp.ge.s32" (B32, B32) -> Pred, |a| u64::from(i(a[0]) >= i(a[1]));
    /// `==`.
    EqI32: "eq" = "setp.eq.s32" (B32, B32) -> Pred, |a| u64::from(a[0] as u32 == a[1] as u32);
    /// `!=`.
    NeI32: "ne" = "setp.ne.s32" (B32, B32) -> Pred, |a| u64::from(a[0] as u32 != a[1] as u32);
    /// Unsigned `<`.
    LtU32: "lt.u32" = "setp.lt.u32" (B32, B32) -> Pred, |a| u64::from((a[0] as u32) < a[1] as u32);
    /// Unsigned `>=`.
    GeU32: "ge.u32" = "setp.ge.u32" (B32, B32) -> Pred, |a| u64::from(a[0] as u32 >= a[1] as u32);
    /// `<` of `f32`; false where an operand is a NaN.
    LtF32: "lt.f32" = "setp.lt.f32" (B32, B32) -> Pred, |a| u64::from(f(a[0]) < f(a[1]));
    /// `<=` of `f32`; false where an operand is a NaN.
    LeF32: "le.f32" = "setp.le.f32" (B32, B32) -> Pred, |a| u64::from(f(a[0]) <= f(a[1]));
    /// `==` of `f32`; false where an operand is a NaN.
    EqF32: "eq.f32" = "setp.eq.f32" (B32, B32) -> Pred, |a| u64::from(f(a[0]) == f(a[1]));
    /// `!=` of `f32`; true where an operand is a NaN.
    NeF32: "ne.f32" = "setp.neu.f32" (B32, B32) -> Pred, |a| u64::from(f(a[0]) != f(a[1]));
    /// Disjunction of predicates.
    OrPred: "or.pred" = "or.pred" (Pred, Pred) -> Pred, |a| a[0] | a[1];
    /// Negation of a predicate.
    NotPred: "not.pred" = "not.pred" (Pred) -> Pred, |a| a[0] ^ 1;
    /// Conjunction of predicates.
    AndPred: "and.pred" = "and.pred" (Pred, Pred) -> Pred, |a| a[0] & a[1];
    /// Exclusive or of predicates.
    XorPred: "xor.pred" = "xor.pred" (Pred, Pred) -> Pred, |a| a[0] ^ a[1];
    /// `(then, else, condition)`: selects by a predicate.
    Select: "select" = "selp.b32" (B32, B32, Pred) -> B32, |a| if a[2] != 0 { a[0] } else { a[1] };
    /// `f32` sum.
    AddF32: "add.f32" = "add.rn.f32" (B32, B32) -> B32, |a| from_f(f(a[0]) + f(a[1]));
    /// `f32` difference.
    SubF32: "sub.f32" = "sub.rn.f32" (B32, B32) -> B32, |a| from_f(f(a[0]) - f(a[1]));
    /// `f32` product.
    MulF32: "mul.f32" = "mul.rn.f32" (B32, B32) -> B32, |a| from_f(f(a[0]) * f(a[1]));
    /// `f32` product and sum, rounded once.
    FmaF32: "fma.f32" = "fma.rn.f32" (B32, B32, B32) -> B32, |a| from_f(f(a[0]).mul_add(f(a[1]), f(a[2])));
    /// Packed `f16` sums.
    AddF16x2: "add.f16x2" = "add.rn.f16x2" (B32, B32) -> B32, |a| by_halves(DType::F16, a, |x, y| x + y);
    /// Packed `f16` differences.
    SubF16x2: "sub.f16x2" = "sub.rn.f16x2" (B32, B32) -> B32, |a| by_halves(DType::F16, a, |x, y| x - y);
    /// Packed `f16` products.
    MulF16x2: "mul.f16x2" = "mul.rn.f16x2" (B32, B32) -> B32, |a| by_halves(DType::F16, a, |x, y| x * y);
    /// Packed `f16` minima; a NaN operand loses, and −0 lies below +0.
    MinF16x2: "min.f16x2" = "min.f16x2" (B32, B32) -> B32, |a| by_halves(DType::F16, a, least);
    /// Packed `f16` maxima; a NaN operand loses, and −0 lies below +0.
    MaxF16x2: "max.f16x2" = "max.f16x2" (B32, B32) -> B32, |a| by_halves(DType::F16, a, most);
    /// Packed `bf16` sums.
    AddBF16x2: "add.bf16x2" = "add.rn.bf16x2" (B32, B32) -> B32, |a| by_halves(DType::BF16, a, |x, y| x + y);
    /// Packed `bf16` differences.
    SubBF16x2: "sub.bf16x2" = "sub.rn.bf16x2" (B32, B32) -> B32, |a| by_halves(DType::BF16, a, |x, y| x - y);
    /// Packed `bf16` products.
    MulBF16x2: "mul.bf16x2" = "mul.rn.bf16x2" (B32, B32) -> B32, |a| by_halves(DType::BF16, a, |x, y| x * y);
    /// Packed `bf16` minima; a NaN operand loses, and −0 lies below +0.
    MinBF16x2: "min.bf16x2" = "min.bf16x2" (B32, B32) -> B32, |a| by_halves(DType::BF16, a, least);
    /// Packed `bf16` maxima; a NaN operand loses, and −0 lies below +0.
    MaxBF16x2: "max.bf16x2" = "max.bf16x2" (B32, B32) -> B32, |a| by_halves(DType::BF16, a, most);
    /// Packed `f16` products and sums, rounded once.
    FmaF16x2: "fma.f16x2" = "fma.rn.f16x2" (B32, B32, B32) -> B32, |a| fused_halves(DType::F16, a);
    /// Packed `bf16` products and sums, rounded once.
    FmaBF16x2: "fma.bf16x2" = "fma.rn.bf16x2" (B32, B32, B32) -> B32, |a| fused_halves(DType::BF16, a);
    /// `f32` quotient, correctly rounded.
    DivF32: "div.f32" = "div.rn.f32" (B32, B32) -> B32, |a| from_f(f(a[0]) / f(a[1]));
    /// `f32` quotient, to 2 units in the last place for divisors from 2⁻¹²⁶ to 2¹²⁶.
    DivApproxFtzF32: "div.approx.ftz.f32" = "div.approx.ftz.f32" (B32, B32) -> B32, |a| from_f(flush(flush(f(a[0])) / flush(f(a[1]))));
    /// `f32` rounded to an integer, to nearest even.
    RoundF32: "round.f32" = "cvt.rni.f32.f32" (B32) -> B32, |a| from_f(f(a[0]).round_ties_even());
    /// `f32` rounded down to an integer.
    FloorF32: "floor.f32" = "cvt.rmi.f32.f32" (B32) -> B32, |a| from_f(f(a[0]).floor());
    /// `f32` rounded up to an integer.
    CeilF32: "ceil.f32" = "cvt.rpi.f32.f32" (B32) -> B32, |a| from_f(f(a[0]).ceil());
    /// `f32` sine, to 2⁻²⁰·⁵ from −π to π.
    SinF32: "sin.f32" = "sin.approx.f32" (B32) -> B32, |a| from_f(libm::sin(f64::from(f(a[0]))) as f32);
    /// `f32` cosine, to 2⁻²⁰·⁵ from −π to π.
    CosF32: "cos.f32" = "cos.approx.f32" (B32) -> B32, |a| from_f(libm::cos(f64::from(f(a[0]))) as f32);
    /// `f32` to `f64`, exactly.
    F64FromF32: "f64.f32" = "cvt.f64.f32" (B32) -> B64, |a| f64::from(f(a[0])).to_bits();
    /// `f64` to `f32`, to nearest even.
    F32FromF64: "f32.f64" = "cvt.rn.f32.f64" (B64) -> B32, |a| from_f(f64::from_bits(a[0]) as f32);
    /// `f64` product.
    MulF64: "mul.f64" = "mul.rn.f64" (B64, B64) -> B64, |a| (f64::from_bits(a[0]) * f64::from_bits(a[1])).to_bits();
    /// `f64` product and sum, rounded once.
    FmaF64: "fma.f64" = "fma.rn.f64" (B64, B64, B64) -> B64, |a| f64::from_bits(a[0]).mul_add(f64::from_bits(a[1]), f64::from_bits(a[2])).to_bits();
    /// `f64` sum.
    AddF64: "add.f64" = "add.rn.f64" (B64, B64) -> B64, |a| (d(a[0]) + d(a[1])).to_bits();
    /// `f64` difference.
    SubF64: "sub.f64" = "sub.rn.f64" (B64, B64) -> B64, |a| (d(a[0]) - d(a[1])).to_bits();
    /// `f64` quotient, correctly rounded.
    DivF64: "div.f64" = "div.rn.f64" (B64, B64) -> B64, |a| (d(a[0]) / d(a[1])).to_bits();
    /// `f64` minimum; a NaN operand loses, and −0 lies below +0.
    MinF64: "min.f64" = "min.f64" (B64, B64) -> B64, |a| least(d(a[0]), d(a[1])).to_bits();
    /// `f64` maximum; a NaN operand loses, and −0 lies below +0.
    MaxF64: "max.f64" = "max.f64" (B64, B64) -> B64, |a| most(d(a[0]), d(a[1])).to_bits();
    /// `f64` negation.
    NegF64: "neg.f64" = "neg.f64" (B64) -> B64, |a| (-d(a[0])).to_bits();
    /// `f64` absolute value.
    AbsF64: "abs.f64" = "abs.f64" (B64) -> B64, |a| d(a[0]).abs().to_bits();
    /// `f64` square root, correctly rounded.
    SqrtF64: "sqrt.f64" = "sqrt.rn.f64" (B64) -> B64, |a| d(a[0]).sqrt().to_bits();
    /// `f64` rounded down to an integer.
    FloorF64: "floor.f64" = "cvt.rmi.f64.f64" (B64) -> B64, |a| d(a[0]).floor().to_bits();
    /// `f64` rounded up to an integer.
    CeilF64: "ceil.f64" = "cvt.rpi.f64.f64" (B64) -> B64, |a| d(a[0]).ceil().to_bits();
    /// `<` of `f64`; false where an operand is a NaN.
    LtF64: "lt.f64" = "setp.lt.f64" (B64, B64) -> Pred, |a| u64::from(d(a[0]) < d(a[1]));
    /// `<=` of `f64`; false where an operand is a NaN.
    LeF64: "le.f64" = "setp.le.f64" (B64, B64) -> Pred, |a| u64::from(d(a[0]) <= d(a[1]));
    /// `==` of `f64`; false where an operand is a NaN.
    EqF64: "eq.f64" = "setp.eq.f64" (B64, B64) -> Pred, |a| u64::from(d(a[0]) == d(a[1]));
    /// `!=` of `f64`; true where an operand is a NaN.
    NeF64: "ne.f64" = "setp.neu.f64" (B64, B64) -> Pred, |a| u64::from(d(a[0]) != d(a[1]));
    /// Signed 32-bit integer to `f64`, exactly.
    F64FromI32: "f64.i32" = "cvt.rn.f64.s32" (B32) -> B64, |a| f64::from(i(a[0])).to_bits();
    /// Unsigned 32-bit integer to `f64`, exactly.
    F64FromU32: "f64.u32" = "cvt.rn.f64.u32" (B32) -> B64, |a| f64::from(a[0] as u32).to_bits();
    /// Signed 64-bit integer to `f64`, to nearest even.
    F64FromI64: "f64.i64" = "cvt.rn.f64.s64" (B64) -> B64, |a| (l(a[0]) as f64).to_bits();
    /// Unsigned 64-bit integer to `f64`, to nearest even.
    F64FromU64: "f64.u64" = "cvt.rn.f64.u64" (B64) -> B64, |a| (a[0] as f64).to_bits();
    /// Signed 64-bit integer to `f32`, to nearest even.
    F32FromI64: "f32.i64" = "cvt.rn.f32.s64" (B64) -> B32, |a| from_f(l(a[0]) as f32);
    /// Unsigned 64-bit integer to `f32`, to nearest even.
    F32FromU64: "f32.u64" = "cvt.rn.f32.u64" (B64) -> B32, |a| from_f(a[0] as f32);
    /// `f64` to signed 32-bit integer, to nearest even, saturating; NaN gives the least.
    I32FromF64: "i32.f64" = "cvt.rni.s32.f64" (B64) -> B32, |a| integer_of(DType::I32, d(a[0]), true);
    /// `f64` to unsigned 32-bit integer, to nearest even, saturating; NaN gives 2³¹.
    U32FromF64: "u32.f64" = "cvt.rni.u32.f64" (B64) -> B32, |a| integer_of(DType::U32, d(a[0]), true);
    /// `f64` to signed 64-bit integer, to nearest even, saturating; NaN gives the least.
    I64FromF64: "i64.f64" = "cvt.rni.s64.f64" (B64) -> B64, |a| integer_of(DType::I64, d(a[0]), true);
    /// `f64` to unsigned 64-bit integer, to nearest even, saturating; NaN gives 2⁶³.
    U64FromF64: "u64.f64" = "cvt.rni.u64.f64" (B64) -> B64, |a| integer_of(DType::U64, d(a[0]), true);
    /// `f32` to signed 64-bit integer, to nearest even, saturating; NaN gives the least.
    I64FromF32: "i64.f32" = "cvt.rni.s64.f32" (B32) -> B64, |a| integer_of(DType::I64, f64::from(f(a[0])), true);
    /// `f32` to unsigned 64-bit integer, to nearest even, saturating; NaN gives 2⁶³.
    U64FromF32: "u64.f32" = "cvt.rni.u64.f32" (B32) -> B64, |a| integer_of(DType::U64, f64::from(f(a[0])), true);
    /// `f64` rounded to an integer, to nearest even.
    RoundF64: "round.f64" = "cvt.rni.f64.f64" (B64) -> B64, |a| f64::from_bits(a[0]).round_ties_even().to_bits();
    /// `f32` minimum; a NaN operand loses, and −0 lies below +0.
    MinF32: "min.f32" = "min.f32" (B32, B32) -> B32, |a| of_f32(a, least);
    /// `f32` maximum; a NaN operand loses, and −0 lies below +0.
    MaxF32: "max.f32" = "max.f32" (B32, B32) -> B32, |a| of_f32(a, most);
    /// `f32` negation.
    NegF32: "neg.f32" = "neg.f32" (B32) -> B32, |a| from_f(-f(a[0]));
    /// `f32` absolute value.
    AbsF32: "abs.f32" = "abs.f32" (B32) -> B32, |a| from_f(f(a[0]).abs());
    /// `f32` square root, correctly rounded.
    SqrtF32: "sqrt.f32" = "sqrt.rn.f32" (B32) -> B32, |a| from_f(f(a[0]).sqrt());
    /// `f32` 1/√x, to about 2 units in the last place.
    RsqrtF32: "rsqrt.f32" = "rsqrt.approx.f32" (B32) -> B32, |a| from_f(1.0 / f(a[0]).sqrt());
    /// `f32` 1/x, to a unit in the last place; subnormal operands and results are zeros.
    RcpFtzF32: "rcp.ftz.f32" = "rcp.approx.ftz.f32" (B32) -> B32, |a| from_f(flush(1.0 / flush(f(a[0]))));
    /// `f32` 2ˣ, to about 2 units in the last place; subnormal results are zeros.
    Ex2FtzF32: "ex2.ftz.f32" = "ex2.approx.ftz.f32" (B32) -> B32, |a| from_f(flush(libm::exp2f(f(a[0]))));
    /// `f32` 1/√x, to about 2 units in the last place, where x is normal; of a subnormal one that of 0.
    RsqrtFtzF32: "rsqrt.ftz.f32" = "rsqrt.approx.ftz.f32" (B32) -> B32, |a| from_f(1.0 / flush(f(a[0])).sqrt());
    /// `f32` log₂ x, to about 2 units in the last place, where x is normal; of a subnormal one that of 0.
    Lg2FtzF32: "lg2.ftz.f32" = "lg2.approx.ftz.f32" (B32) -> B32, |a| from_f(libm::log2f(flush(f(a[0]))));
    /// `f32` log₂ x, to about 2 units in the last place.
    Lg2F32: "lg2.f32" = "lg2.approx.f32" (B32) -> B32, |a| from_f(libm::log2f(f(a[0])));
    /// The low 16 bits.
    LowB16: "low16" = "cvt.u16.u32" (B32) -> B16, |a| a[0] & 0xffff;
    /// Zero-extends 16 to 32 bits.
    ExtendB16: "extend16" = "cvt.u32.u16" (B16) -> B32, |a| a[0] & 0xffff;
    /// `f16` to `f32`, exactly.
    F32FromF16: "f32.f16" = "cvt.f32.f16" (B16) -> B32, |a| from_f(f16::from_bits(a[0] as u16).to_f32());
    /// `f32` to `f16`, to nearest even.
    F16FromF32: "f16.f32" = "cvt.rn.f16.f32" (B32) -> B16, |a| u64::from(f16::from_f32(f(a[0])).to_bits());
    /// `f32` to `bf16`, to nearest even.
    BF16FromF32: "bf16.f32" = "cvt.rn.bf16.f32" (B32) -> B16, |a| u64::from(bf16::from_f32(f(a[0])).to_bits());
    /// Two `f32` to packed `f16`, to nearest even: the first operand becomes the upper half.
    F16x2FromF32: "f16x2.f32" = "cvt.rn.f16x2.f32" (B32, B32) -> B32, |a| pair(f16::from_f32(f(a[1])).to_bits(), f16::from_f32(f(a[0])).to_bits());
    /// Two `f32` to packed `bf16`, to nearest even: the first operand becomes the upper half.
    BF16x2FromF32: "bf16x2.f32" = "cvt.rn.bf16x2.f32" (B32, B32) -> B32, |a| pair(bf16::from_f32(f(a[1])).to_bits(), bf16::from_f32(f(a[0])).to_bits());
    /// Packed `e4m3` to packed `f16`, exactly.
    F16x2FromE4M3x2: "f16x2.e4m3x2" = "cvt.rn.f16x2.e4m3x2" (B16) -> B32, |a| packed(DType::F16, [0, 8].map(|k| DType::E4M3.decode((a[0] >> k) as u32 & 0xff)));
    /// Packed `f16` to packed `e4m3`, to nearest even, saturating.
    E4M3x2FromF16x2: "e4m3x2.f16x2" = "cvt.rn.satfinite.e4m3x2.f16x2" (B32) -> B16, |a| packed(DType::E4M3, halves(DType::F16, a[0]));
    /// Packed `f16` to packed `e5m2`, to nearest even, saturating.
    E5M2x2FromF16x2: "e5m2x2.f16x2" = "cvt.rn.satfinite.e5m2x2.f16x2" (B32) -> B16, |a| packed(DType::E5M2, halves(DType::F16, a[0]));
    /// Two `f32` to packed `e4m3`, to nearest even, saturating: the first operand becomes the upper byte.
    E4M3x2FromF32: "e4m3x2.f32" = "cvt.rn.satfinite.e4m3x2.f32" (B32, B32) -> B16, |a| bytes_of_f32(DType::E4M3, a);
    /// Two `f32` to packed `e5m2`, to nearest even, saturating: the first operand becomes the upper byte.
    E5M2x2FromF32: "e5m2x2.f32" = "cvt.rn.satfinite.e5m2x2.f32" (B32, B32) -> B16, |a| bytes_of_f32(DType::E5M2, a);
    /// Packed `e2m1`, in the low byte, to packed `f16`, exactly.
    F16x2FromE2M1x2: "f16x2.e2m1x2" = "cvt.rn.f16x2.e2m1x2" (B16) -> B32, |a| packed(DType::F16, [0, 4].map(|k| DType::E2M1.decode((a[0] >> k) as u32 & 0xf)));
    /// Two `f32` to packed `e2m1` in the low byte, to nearest even, saturating: the first operand becomes the upper half of the byte.
    E2M1x2FromF32: "e2m1x2.f32" = "cvt.rn.satfinite.e2m1x2.f32" (B32, B32) -> B16, |a| bytes_of_f32(DType::E2M1, a);
    /// Packed `e3m2` to packed `f16`, exactly.
    F16x2FromE3M2x2: "f16x2.e3m2x2" = "cvt.rn.f16x2.e3m2x2" (B16) -> B32, |a| packed(DType::F16, [0, 8].map(|k| DType::E3M2.decode((a[0] >> k) as u32 & 0xff)));
    /// Two `f32` to packed `e3m2`, to nearest even, saturating: the first operand becomes the upper byte.
    E3M2x2FromF32: "e3m2x2.f32" = "cvt.rn.satfinite.e3m2x2.f32" (B32, B32) -> B16, |a| bytes_of_f32(DType::E3M2, a);
    /// Packed `e2m3` to packed `f16`, exactly.
    F16x2FromE2M3x2: "f16x2.e2m3x2" = "cvt.rn.f16x2.e2m3x2" (B16) -> B32, |a| packed(DType::F16, [0, 8].map(|k| DType::E2M3.decode((a[0] >> k) as u32 & 0xff)));
    /// Two `f32` to packed `e2m3`, to nearest even, saturating: the first operand becomes the upper byte.
    E2M3x2FromF32: "e2m3x2.f32" = "cvt.rn.satfinite.e2m3x2.f32" (B32, B32) -> B16, |a| bytes_of_f32(DType::E2M3, a);
    /// Packed `ue8m0` to packed `bf16`, exactly.
    BF16x2FromUE8M0x2: "bf16x2.ue8m0x2" = "cvt.rn.bf16x2.ue8m0x2" (B16) -> B32, |a| packed(DType::BF16, [0, 8].map(|k| DType::UE8M0.decode((a[0] >> k) as u32 & 0xff)));
    /// Signed 32-bit integer to `f32`, to nearest even.
    F32FromI32: "f32.i32" = "cvt.rn.f32.s32" (B32) -> B32, |a| from_f(i(a[0]) as f32);
    /// Unsigned 32-bit integer to `f32`, to nearest even.
    F32FromU32: "f32.u32" = "cvt.rn.f32.u32" (B32) -> B32, |a| from_f(a[0] as u32 as f32);
    /// `f32` to unsigned 32-bit integer, to nearest even, saturating; NaN gives 0.
    U32FromF32: "u32.f32" = "cvt.rni.u32.f32" (B32) -> B32, |a| u64::from(f(a[0]).round_ties_even() as u32);
    /// `f32` to signed 32-bit integer, to nearest even, saturating; NaN gives 0.
    I32FromF32: "i32.f32" = "cvt.rni.s32.f32" (B32) -> B32, |a| from_i(f(a[0]).round_ties_even() as i32);
}

impl ScalarOp {
    /// The features that an architecture must have (PTX ISA 8.1, sections 9.7.4 and 9.7.9.21; PTX ISA 9.1, `cvt`; and `ptxas`).
    pub fn needs(self) -> Features {
        match self {
            ScalarOp::F16x2FromE4M3x2
            | ScalarOp::E4M3x2FromF16x2
            | ScalarOp::E5M2x2FromF16x2
            | ScalarOp::E4M3x2FromF32
            | ScalarOp::E5M2x2FromF32 => Feature::Fp8Conversion.into(),
            ScalarOp::F16x2FromE2M1x2
            | ScalarOp::E2M1x2FromF32
            | ScalarOp::F16x2FromE3M2x2
            | ScalarOp::E3M2x2FromF32
            | ScalarOp::F16x2FromE2M3x2
            | ScalarOp::E2M3x2FromF32
            | ScalarOp::BF16x2FromUE8M0x2 => Feature::MxConversion.into(),
            ScalarOp::AddBF16x2 | ScalarOp::SubBF16x2 | ScalarOp::MulBF16x2 => {
                Feature::Bf16x2Arithmetic.into()
            }
            ScalarOp::Mapa => Feature::Cluster.into(),
            _ => Features::NONE,
        }
    }
}

/// The features that a conversion of elements of one type into another needs: one to either 8-bit float, and one from `e4m3`, have
/// instructions of their own.
pub fn conversion_needs(from: DType, to: DType) -> Features {
    match (from, to) {
        _ if from == to => Features::NONE,
        (_, DType::E4M3) => ScalarOp::E4M3x2FromF16x2.needs(),
        (_, DType::E5M2) => ScalarOp::E5M2x2FromF16x2.needs(),
        (DType::E4M3, _) => ScalarOp::F16x2FromE4M3x2.needs(),
        _ => Features::NONE,
    }
}

/// The lane that a warp shuffle reads from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShuffleMode {
    /// Lane `operand`.
    Idx,
    /// Lane `self ^ operand`.
    Bfly,
    /// Lane `self - operand`; its own value if that is below 0.
    Up,
    /// Lane `self + operand`; its own value if that is above 31.
    Down,
}

impl ShuffleMode {
    /// Every mode.
    pub const ALL: [ShuffleMode; 4] =
        [ShuffleMode::Idx, ShuffleMode::Bfly, ShuffleMode::Up, ShuffleMode::Down];

    /// PTX mnemonic; the membership mask (all lanes) and the clamp follow the operands.
    pub fn mnemonic(self) -> &'static str {
        match self {
            ShuffleMode::Idx => "shfl.sync.idx.b32",
            ShuffleMode::Bfly => "shfl.sync.bfly.b32",
            ShuffleMode::Up => "shfl.sync.up.b32",
            ShuffleMode::Down => "shfl.sync.down.b32",
        }
    }

    /// The clamp operand that makes the shuffle span the whole warp.
    pub fn clamp(self) -> u32 {
        if self == ShuffleMode::Up { 0 } else { 31 }
    }

    /// The lane that `lane` reads from; of the operand the low five bits count.
    pub fn source(self, lane: u32, operand: u32) -> u32 {
        match self {
            ShuffleMode::Idx => operand % 32,
            ShuffleMode::Bfly => lane ^ (operand % 32),
            ShuffleMode::Up => lane.checked_sub(operand % 32).unwrap_or(lane),
            ShuffleMode::Down => Some(lane + operand % 32).filter(|s| *s < 32).unwrap_or(lane),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(op: ScalarOp, args: &[u64]) -> u64 {
        assert_eq!(op.row().operands.len(), args.len());
        (op.row().eval)(args)
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ScalarOp::ALL.iter().map(|op| op.row().name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ScalarOp::ALL.len());
    }

    #[test]
    fn results_fit_their_type() {
        for op in ScalarOp::ALL {
            let row = op.row();
            let args: Vec<u64> =
                row.operands.iter().map(|t| if *t == RegType::Pred { 1 } else { 7 }).collect();
            let result = (row.eval)(&args);
            let fits = match row.result {
                RegType::Pred => result <= 1,
                RegType::B16 => result <= 0xffff,
                RegType::B32 => result <= 0xffff_ffff,
                RegType::B64 => true,
            };
            assert!(fits, "{}", row.name);
        }
    }

    #[test]
    fn bit_fields() {
        assert_eq!(run(ScalarOp::BfeU32, &[0xdead_beef, 8, 8]), 0xbe);
        assert_eq!(run(ScalarOp::BfeS32, &[0xdead_beef, 8, 8]), 0xffff_ffbe);
        assert_eq!(run(ScalarOp::BfiB32, &[0x12, 0xdead_beef, 8, 8]), 0xdead_12ef);
        assert_eq!(run(ScalarOp::BfiB32, &[0x1234, 0xdead_beef, 16, 16]), 0x1234_beef);
        assert_eq!(run(ScalarOp::BfiB32, &[0x1234, 0xdead_beef, 0x120, 8]), 0xdead_beef);
        // As the PTX ISA's pseudocode goes, bit by bit.
        let pseudocode = |x: u32, position: u32, length: u32, signed: bool| -> u64 {
            let (position, length) = (position & 0xff, length & 0xff);
            let sign = signed && length > 0 && x >> (position + length - 1).min(31) & 1 == 1;
            let bit =
                |k: u32| if k < length && position + k < 32 { x >> (position + k) & 1 == 1 } else { sign };
            (0..32).map(|k| u64::from(bit(k)) << k).sum()
        };
        for x in [0xdead_beef, 0x7fff_ffff, 0x8000_0000, 0x1234_5678u32] {
            for position in [0, 1, 8, 30, 31, 32, 33, 255, 256, 300] {
                for length in [0, 1, 7, 31, 32, 33, 255, 256, 263] {
                    let args = [u64::from(x), u64::from(position), u64::from(length)];
                    assert_eq!(
                        run(ScalarOp::BfeU32, &args),
                        pseudocode(x, position, length, false),
                        "{args:?}"
                    );
                    assert_eq!(
                        run(ScalarOp::BfeS32, &args),
                        pseudocode(x, position, length, true),
                        "{args:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn bytes_are_permuted() {
        assert_eq!(run(ScalarOp::PrmtB32, &[0x3322_1100, 0x7766_5544, 0x7410]), 0x7744_1100);
        assert_eq!(run(ScalarOp::PrmtB32, &[0x8022_7f00, 0, 0xb9b9]), 0xff00_ff00);
    }

    #[test]
    fn three_bits_are_looked_up() {
        let (a, b, c) = (0xf0f0_1234, 0x00ff_00ff, 0x6400_6400);
        assert_eq!(run(ScalarOp::Lop3B32, &[a, b, c, 0x6a]), (a & b) ^ c);
        assert_eq!(run(ScalarOp::Lop3B32, &[a, b, c, 0xea]), (a & b) | c);
        assert_eq!(run(ScalarOp::Lop3B32, &[a, b, c, 0x01]), !(a | b | c) & 0xffff_ffff);
    }

    #[test]
    fn packed_products_are_rounded_once() {
        // 1 + 2⁻¹¹ is a tie of f16; what lies 2⁻²⁴ below decides.
        let [one, tie, below] = [0x3c00u64, 0x1000, 0x8001];
        assert_eq!(run(ScalarOp::FmaF16x2, &[one, tie, one]), 0x3c00);
        assert_eq!(run(ScalarOp::FmaF16x2, &[0x3c01, one, tie]), 0x3c02);
        assert_eq!(run(ScalarOp::AddF16x2, &[0x3c01, below]) & 0xffff, 0x3c01);
        // v · 2⁻⁴ + 1024 · 2⁻⁴ back to v, in both halves.
        for v in 0..16u64 {
            let word = (0x6400 + 16 * v) << 16 | (0x6400 + v);
            let result = run(ScalarOp::FmaF16x2, &[word, 0x2c00_3c00, 0xd400_e400]);
            assert_eq!(halves(DType::F16, result), [v as f64; 2]);
        }
    }

    #[test]
    fn packed_arithmetic_is_that_of_f32_rounded_once() {
        use ScalarOp::*;
        let ops = [
            (AddF32, AddF16x2, AddBF16x2),
            (SubF32, SubF16x2, SubBF16x2),
            (MulF32, MulF16x2, MulBF16x2),
            (MinF32, MinF16x2, MinBF16x2),
            (MaxF32, MaxF16x2, MaxBF16x2),
        ];
        // Every exponent with both signs, next to powers of two and between: subnormals, zeros, infinities and NaNs too.
        let values = |mantissa: u32| -> Vec<u64> {
            let (ones, middle) = ((1u64 << mantissa) - 1, 1 << (mantissa - 1));
            let mantissas = [0, 1, middle, middle + 1, ones - 1, ones];
            let every = (0..0x8000u64 >> mantissa).flat_map(|e| mantissas.map(|m| e << mantissa | m));
            every.flat_map(|w| [w, w | 0x8000]).collect()
        };
        for (dtype, values) in [(DType::F16, values(10)), (DType::BF16, values(7))] {
            let step = values.len() / 380;
            let narrow = if dtype == DType::F16 { F16FromF32 } else { BF16FromF32 };
            let wide = |x: u64| from_f(dtype.decode(x as u32) as f32);
            for x in &values {
                for y in values.iter().skip(*x as usize % step).step_by(step) {
                    for (op, half, bfloat) in ops {
                        let packed = if dtype == DType::F16 { half } else { bfloat };
                        let expected = run(narrow, &[run(op, &[wide(*x), wide(*y)])]);
                        // Something else in the lower half.
                        let found = run(packed, &[x << 16 | 0x3c00, y << 16 | 0x1234]) >> 16;
                        let nan = [found, expected].iter().all(|b| dtype.decode(*b as u32).is_nan());
                        assert!(nan || found == expected, "{op:?} {dtype} {x:#x} {y:#x}");
                    }
                }
            }
        }
        for (x, y) in [(0x8000, 0), (0, 0x8000)] {
            assert_eq!((run(MinF16x2, &[x, y]), run(MaxF16x2, &[x, y])), (0x8000, 0));
        }
        assert_eq!(run(MaxBF16x2, &[0x7fc0_7fc0, 0xff80_3f80]), 0xff80_3f80);
    }

    #[test]
    fn eight_bit_floats_are_packed_low_to_high() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(run(ScalarOp::E4M3x2FromF32, &[bits(1.0), bits(-500.0)]), 0x38fe);
        assert_eq!(run(ScalarOp::E5M2x2FromF32, &[bits(f32::NAN), bits(1.0)]), 0x7f3c);
        assert_eq!(run(ScalarOp::F16x2FromE4M3x2, &[0x38fe]), 0x3c00_df00);
        assert_eq!(run(ScalarOp::E4M3x2FromF16x2, &[0x3c00_df00]), 0x38fe);
        assert_eq!(run(ScalarOp::E5M2x2FromF16x2, &[0x3c00_fc00]), 0x3cfb);
        assert_eq!(run(ScalarOp::E2M1x2FromF32, &[bits(f32::NAN), bits(-2.5)]), 0x7c);
        assert_eq!(run(ScalarOp::F16x2FromE2M1x2, &[0x7c]), 0x4600_c000);
        assert_eq!(run(ScalarOp::E3M2x2FromF32, &[bits(f32::NAN), bits(-2.5)]), 0x1f31);
        assert_eq!(run(ScalarOp::F16x2FromE3M2x2, &[0x1f31]), 0x4f00_c100);
        assert_eq!(run(ScalarOp::E2M3x2FromF32, &[bits(f32::NAN), bits(-2.5)]), 0x1f32);
        assert_eq!(run(ScalarOp::F16x2FromE2M3x2, &[0x1f32]), 0x4780_c100);
        assert_eq!(run(ScalarOp::BF16x2FromUE8M0x2, &[0x8000]), 0x4000_0040);
    }

    #[test]
    fn packed_conversions_put_the_first_operand_high() {
        let one = u64::from(1f32.to_bits());
        let two = u64::from(2f32.to_bits());
        assert_eq!(run(ScalarOp::F16x2FromF32, &[two, one]), 0x4000_3c00);
        assert_eq!(run(ScalarOp::BF16x2FromF32, &[two, one]), 0x4000_3f80);
    }

    #[test]
    fn shuffles_name_their_source_lane() {
        assert_eq!(ShuffleMode::Bfly.source(5, 1), 4);
        assert_eq!(ShuffleMode::Up.source(2, 4), 2);
        assert_eq!(ShuffleMode::Down.source(30, 4), 30);
        assert_eq!(ShuffleMode::Down.source(3, 4), 7);
        assert_eq!(ShuffleMode::Idx.source(3, 9), 9);
        assert_eq!(ShuffleMode::Down.source(3, u32::MAX), 3);
    }
}
