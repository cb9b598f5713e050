//! Element types. Each is a row: its name in the tile language, its width in bits, whether it is a float,
//! and its conversion from and to `f64`. Every execution (interpreter, simulator) converts through
//! these two functions, so a type means the same thing everywhere.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

/// Elements of `bits` bits in a 32-bit register, or 1 where an element lies in several ([`registers_of`]).
pub const fn per_register(bits: u32) -> u32 {
    if bits > 32 { 1 } else { 32 / bits }
}

/// The 32-bit registers that an element of `bits` bits lies in, the lowest bits in the first; 1 where several elements share one
/// ([`per_register`]).
pub const fn registers_of(bits: u32) -> u32 {
    bits.div_ceil(32)
}

/// The type of one tensor element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an IEEE binary32.
    BF16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// 8-bit float of 4 exponent and 3 mantissa bits: no infinities, one NaN a sign, up to 448 (`float8_e4m3fn`).
    E4M3,
    /// 8-bit float of 5 exponent and 2 mantissa bits: the upper half of an IEEE binary16.
    E5M2,
    /// 6-bit float of a sign, 3 exponent and 2 mantissa bits, in a byte whose upper two bits nobody reads: neither infinities nor NaN, up to 28 (OCP
    /// Microscaling Formats, 5.3.2).
    E3M2,
    /// 6-bit float of a sign, 2 exponent and 3 mantissa bits, in a byte whose upper two bits nobody reads: neither infinities nor NaN, up to 7.5 (OCP
    /// Microscaling Formats, 5.3.2).
    E2M3,
    /// 4-bit float of a sign, 2 exponent bits and 1 mantissa bit: 0, 0.5, 1, 1.5, 2, 3, 4, 6 of either sign (OCP Microscaling Formats, 5.3.3).
    E2M1,
    /// Scale of 8 exponent bits: 2^(bits − 127); 0xff is NaN, and there is neither a sign nor a zero (OCP Microscaling Formats, 5.4.1).
    UE8M0,
    /// Scale of 4 exponent and 3 mantissa bits: an `e4m3` without a sign, whose upper bit nobody reads; 0x7f is NaN.
    UE4M3,
    /// Signed 1-bit integer: −1 or 0.
    I1,
    /// Signed 2-bit integer.
    I2,
    /// Signed 4-bit integer.
    I4,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 1-bit integer.
    U1,
    /// Unsigned 2-bit integer.
    U2,
    /// Unsigned 4-bit integer.
    U4,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// A truth value in a byte: 1, or 0; any other byte that memory holds is true, too.
    Bool,
}

impl DType {
    /// Every element type, in the order in which messages list them.
    pub const ALL: [DType; 26] = [
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::E4M3,
        DType::E5M2,
        DType::E3M2,
        DType::E2M3,
        DType::E2M1,
        DType::UE8M0,
        DType::UE4M3,
        DType::I1,
        DType::I2,
        DType::I4,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U1,
        DType::U2,
        DType::U4,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// The name in the tile language, e.g. `f16`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::E4M3 => "e4m3",
            DType::E5M2 => "e5m2",
            DType::E3M2 => "e3m2",
            DType::E2M3 => "e2m3",
            DType::E2M1 => "e2m1",
            DType::UE8M0 => "ue8m0",
            DType::UE4M3 => "ue4m3",
            DType::I1 => "i1",
            DType::I2 => "i2",
            DType::I4 => "i4",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U1 => "u1",
            DType::U2 => "u2",
            DType::U4 => "u4",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }

    /// Bits that an element takes, a power of two: floats of six bits lie in a byte each.
    pub const fn bits(self) -> u32 {
        match self {
            DType::I1 | DType::U1 => 1,
            DType::I2 | DType::U2 => 2,
            DType::I4 | DType::U4 | DType::E2M1 => 4,
            DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3 | DType::UE8M0 | DType::UE4M3 => 8,
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 16,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// Bytes of `elements` elements that lie packed one after the other, element `i` at bit `i · bits`, low bits first; the
    /// last byte may be filled in part.
    pub fn bytes_of(self, elements: usize) -> usize {
        let per_byte = self.per_byte() as usize;
        let whole = (self.bits() / 8).max(1) as usize;
        elements.div_ceil(per_byte).saturating_mul(whole)
    }

    /// Elements that share a byte: 1 from 8 bits on.
    pub fn per_byte(self) -> u32 {
        (8 / self.bits()).max(1)
    }

    /// True for a floating-point type.
    pub fn is_float(self) -> bool {
        use DType::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, UE4M3, UE8M0};
        matches!(self, F16 | BF16 | F32 | F64 | E4M3 | E5M2 | E3M2 | E2M3 | E2M1 | UE8M0 | UE4M3)
    }

    /// True for an integer type whose numbers an `f64` does not all hold: `i64` and `u64`.
    pub fn is_wide_integer(self) -> bool {
        matches!(self, DType::I64 | DType::U64)
    }

    /// True for a signed integer type.
    pub fn is_signed(self) -> bool {
        use DType::{I1, I2, I4, I8, I16, I32, I64};
        matches!(self, I1 | I2 | I4 | I8 | I16 | I32 | I64)
    }

    /// The smallest and the largest value of an integer type.
    pub fn range(self) -> Option<(i128, i128)> {
        let unsigned = !self.is_float() && self != DType::Bool;
        if self.is_signed() {
            let half = 1i128 << (self.bits() - 1);
            Some((-half, half - 1))
        } else {
            unsigned.then(|| (0, (1 << self.bits()) - 1))
        }
    }

    /// The bits of an element of type `i64` or `u64`, or of a narrower integer type, for an integer: modulo 2ⁿ, zero-extended.
    pub fn encode_integer(self, x: i128) -> u64 {
        x as u64 & (u64::MAX >> (64 - self.bits()))
    }

    /// The integer that the low [`bits`](DType::bits) of `bits` are in an integer type; in another type those bits.
    pub fn decode_integer(self, bits: u64) -> i128 {
        let above = 64 - self.bits();
        if self.is_signed() {
            i128::from((bits << above) as i64 >> above)
        } else {
            i128::from(bits << above >> above)
        }
    }

    /// Rounds `x` to this type and returns its bits, zero-extended. Floats go to nearest even; 8-bit floats saturate at
    /// ±448 and ±57344, infinities too, and a NaN becomes 0x7f, as PTX's `cvt.rn.satfinite` has it. So do those of six and four bits, at ±28, ±7.5
    /// and ±6, of which a NaN becomes the largest number (PTX ISA 8.6, section 9.7.9.21), and an `ue4m3`, at 0 and 448. A `ue8m0` is the nearest power of two from 2^−127 to 2^127,
    /// the larger one where two are as near; what is not positive becomes the least, and a NaN 0xff. Integers go to nearest even and saturate, NaN to 0.
    pub fn encode(self, x: f64) -> u64 {
        u64::from(match self {
            DType::F64 => return x.to_bits(),
            DType::F16 => u32::from(f16::from_f64(sticky(x)).to_bits()),
            DType::BF16 => u32::from(bf16::from_f64(sticky(x)).to_bits()),
            DType::F32 => (x as f32).to_bits(),
            DType::E4M3 | DType::E5M2 | DType::UE4M3 if x.is_nan() => 0x7f,
            DType::E4M3 => minifloat(x, 8, 3, 7, 0x7e),
            DType::E5M2 => minifloat(x, 8, 2, 15, 0x7b),
            DType::E3M2 | DType::E2M3 if x.is_nan() => 0x1f,
            DType::E3M2 => minifloat(x, 6, 2, 3, 0x1f),
            DType::E2M3 => minifloat(x, 6, 3, 1, 0x1f),
            DType::E2M1 if x.is_nan() => 0x7,
            DType::E2M1 => minifloat(x, 4, 1, 1, 0x7),
            DType::UE4M3 => minifloat(x.max(0.0).abs(), 8, 3, 7, 0x7e),
            DType::UE8M0 => power_of_two(x),
            DType::Bool => u32::from(x != 0.0),
            _ => {
                let (low, high) = self.range().unwrap_or((0, 0));
                return self.encode_integer((x.round_ties_even() as i128).clamp(low, high));
            }
        })
    }

    /// The value of the low [`bits`](DType::bits) of `bits`: exactly, but for integers of 64 bits, of which it is the nearest number
    /// ([`decode_integer`](DType::decode_integer) is exact).
    pub fn decode(self, bits: impl Into<u64>) -> f64 {
        let wide: u64 = bits.into();
        let bits = wide as u32;
        match self {
            DType::F64 => f64::from_bits(wide),
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F32 => f64::from(f32::from_bits(bits)),
            DType::E4M3 if bits & 0x7f == 0x7f => f64::NAN,
            DType::E4M3 => {
                let (exponent, mantissa) = ((bits >> 3 & 15) as i32, f64::from(bits & 7));
                let size = match exponent {
                    0 => mantissa * 2f64.powi(-9),
                    _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
                };
                if bits & 0x80 == 0 { size } else { -size }
            }
            DType::E5M2 => f16::from_bits((bits as u8 as u16) << 8).to_f64(),
            DType::E3M2 => small(bits, 6, 2, 3),
            DType::E2M3 => small(bits, 6, 3, 1),
            DType::E2M1 => {
                let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(bits & 7) as usize];
                if bits & 8 == 0 { size } else { -size }
            }
            DType::UE8M0 if bits & 0xff == 0xff => f64::NAN,
            DType::UE8M0 => 2f64.powi((bits & 0xff) as i32 - 127),
            DType::UE4M3 => DType::E4M3.decode(bits & 0x7f),
            DType::Bool => f64::from(u8::from(bits & 0xff != 0)),
            _ => self.decode_integer(wide) as f64,
        }
    }

    /// The unit roundoff of a float type (half the distance from 1 to the next number); 0 for integers.
    pub fn epsilon(self) -> f64 {
        match self {
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            DType::F32 => 2f64.powi(-24),
            DType::F64 => 2f64.powi(-53),
            DType::E4M3 => 2f64.powi(-4),
            DType::E5M2 => 2f64.powi(-3),
            DType::E3M2 => 2f64.powi(-3),
            DType::E2M3 => 2f64.powi(-4),
            DType::E2M1 => 2f64.powi(-2),
            DType::UE8M0 => 2f64.powi(-1),
            DType::UE4M3 => 2f64.powi(-4),
            _ => 0.0,
        }
    }
}

/// A float of `bits` bits, `mantissa` of them of the mantissa, for a number: nearest even, at most the number of bits `most`.
fn minifloat(x: f64, bits: u32, mantissa: u32, bias: i32, most: u32) -> u32 {
    let sign = u32::from(x.is_sign_negative()) << (bits - 1);
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    // In units of the last place, the leading one of normal numbers included: a carry leads to the next exponent.
    let places = (x.abs() / 2f64.powi(exponent - mantissa as i32)).round_ties_even();
    let size = f64::from(((exponent + bias - 1) as u32) << mantissa) + places;
    sign | size.min(f64::from(most)) as u32
}

/// The number that the low `bits` of a float without infinities and NaN are, `mantissa` of them of the mantissa.
fn small(x: u32, bits: u32, mantissa: u32, bias: i32) -> f64 {
    let size = x & (u32::MAX >> (33 - bits));
    let (exponent, fraction) = ((size >> mantissa) as i32, f64::from(size & ((1 << mantissa) - 1)));
    let unit = 2f64.powi(exponent.max(1) - bias - mantissa as i32);
    let leading = if exponent == 0 { 0.0 } else { f64::from(1u32 << mantissa) };
    let number = (leading + fraction) * unit;
    if x >> (bits - 1) & 1 == 0 { number } else { -number }
}

/// The bits of a `ue8m0` for a number.
fn power_of_two(x: f64) -> u32 {
    if x.is_nan() {
        return 0xff;
    }
    // Half of the mantissa carries into the exponent.
    let rounded = x.max(2f64.powi(-127)).to_bits() + (1 << 51);
    ((rounded >> 52) as i32 - 1023 + 127).min(0xfe) as u32
}

/// The same number for the purpose of rounding to 16 bits: `half` looks at the upper half of an `f64` alone, so what lies
/// below is folded into one bit that breaks ties.
fn sticky(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(bits >> 32 << 32 | u64::from(bits as u32 != 0) << 32)
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of an element type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an element type; there are {all}", all = DType::ALL.map(DType::name).join(", "))]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        DType::ALL.into_iter().find(|t| t.name() == s).ok_or_else(|| UnknownDType(s.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_is_the_inverse_of_decode_on_every_small_type() {
        for dtype in DType::ALL.into_iter().filter(|t| t.bits() < 32 && *t != DType::Bool) {
            for bits in 0..(1u64 << dtype.bits()) {
                let value = dtype.decode(bits);
                let read = match dtype {
                    DType::UE4M3 => 0x7f,
                    DType::E3M2 | DType::E2M3 => 0x3f,
                    _ => u64::MAX,
                };
                if bits > read {
                    assert_eq!(dtype.decode(bits).to_bits(), dtype.decode(bits & read).to_bits());
                } else if dtype == DType::E5M2 && value.is_infinite() {
                    assert_eq!(dtype.decode(dtype.encode(value)), 57344f64.copysign(value));
                } else if !value.is_nan() {
                    assert_eq!(dtype.encode(value), bits, "{dtype} {bits:#x}");
                }
            }
        }
    }

    /// The numbers of an 8-bit float, by the definition of the format: sign · 2^(e − bias) · 1.m, subnormals below.
    fn table(exponents: u32, mantissas: u32, bias: i32) -> Vec<f64> {
        (0..256u32)
            .map(|bits| {
                let (sign, e) = (1.0 - 2.0 * f64::from(bits / 128), bits % 128 / mantissas);
                let fraction = f64::from(bits % mantissas) / f64::from(mantissas);
                let size = if e == 0 {
                    fraction * 2f64.powi(1 - bias)
                } else {
                    (1.0 + fraction) * 2f64.powi(e as i32 - bias)
                };
                match (exponents, e, bits % mantissas) {
                    (16, 15, 7) | (32, 31, 1..) => f64::NAN,
                    (32, 31, 0) => sign * f64::INFINITY,
                    _ => sign * size,
                }
            })
            .collect()
    }

    #[test]
    fn eight_bit_floats_are_what_their_format_says() {
        for (dtype, table, most) in
            [(DType::E4M3, table(16, 8, 7), 448.0), (DType::E5M2, table(32, 4, 15), 57344.0)]
        {
            for (bits, expected) in table.iter().enumerate() {
                let found = dtype.decode(bits as u64);
                assert!(found == *expected || found.is_nan() && expected.is_nan(), "{dtype} {bits:#x}");
            }
            // Every number between neighbours rounds to the nearer one, a tie to the even one.
            let finite: Vec<(u64, f64)> = (0..128u64)
                .map(|bits| (bits, table[bits as usize]))
                .filter(|(_, value)| value.is_finite())
                .collect();
            for pair in finite.windows(2) {
                let ((low, a), (high, b)) = (pair[0], pair[1]);
                let middle = (a + b) / 2.0;
                let even = if low % 2 == 0 { low } else { high };
                let above = f64::from_bits(middle.to_bits() + 1);
                let below = f64::from_bits(middle.to_bits() - 1);
                for (x, bits) in [(middle, even), (above, high), (below, low), (a, low), (b, high)] {
                    assert_eq!(dtype.encode(x), bits, "{dtype} {x}");
                    assert_eq!(dtype.encode(-x), bits | 0x80, "{dtype} -{x}");
                }
            }
            for x in [most, most * 1.01, most * 2.0, 1e300, f64::INFINITY] {
                assert_eq!(dtype.decode(dtype.encode(x)), most);
                assert_eq!(dtype.decode(dtype.encode(-x)), -most);
            }
            assert_eq!(dtype.encode(f64::NAN), 0x7f);
            assert!(dtype.decode(0x7fu32).is_nan());
            assert_eq!((dtype.encode(5e-324), dtype.encode(-5e-324)), (0, 0x80));
        }
    }

    #[test]
    fn floats_of_blocks_are_what_their_formats_say() {
        // e2m1: sign · 2^(e − 1) · 1.m, and 0.m · 2^0 where e is 0.
        for bits in 0..16u32 {
            let (sign, e, m) = (bits >> 3, (bits >> 1 & 3) as i32, f64::from(bits & 1));
            let size = if e == 0 { m / 2.0 } else { (1.0 + m / 2.0) * 2f64.powi(e - 1) };
            let expected = if sign == 0 { size } else { -size };
            assert_eq!(DType::E2M1.decode(bits).to_bits(), expected.to_bits(), "{bits:#x}");
        }
        for bits in 0..255u32 {
            assert_eq!(DType::UE8M0.decode(bits), 2f64.powi(bits as i32 - 127));
        }
        assert!(DType::UE8M0.decode(0xffu32).is_nan() && DType::UE4M3.decode(0x7fu32).is_nan());
        for (bits, expected) in table(16, 8, 7).into_iter().take(127).enumerate() {
            assert_eq!(DType::UE4M3.decode(bits as u64), expected);
        }
    }

    #[test]
    fn floats_of_six_bits_are_what_their_formats_say() {
        // OCP Microscaling Formats (MX) 1.0, table 2: sign, exponent and mantissa, bias, the largest number and the least normal one, and the
        // largest and the least subnormal one.
        for (dtype, [exponents, mantissas], bias, numbers) in [
            (DType::E3M2, [8, 4], 3, [28.0, 0.25, 0.1875, 0.0625]),
            (DType::E2M3, [4, 8], 1, [7.5, 1.0, 0.875, 0.125]),
        ] {
            let mut positive = Vec::new();
            for (sign, e, m) in (0..2u32)
                .flat_map(|s| (0..exponents).flat_map(move |e| (0..mantissas).map(move |m| (s, e, m))))
            {
                let bits = (sign * exponents + e) * mantissas + m;
                let fraction = f64::from(m) / f64::from(mantissas);
                let size = match e {
                    0 => fraction * 2f64.powi(1 - bias),
                    _ => (1.0 + fraction) * 2f64.powi(e as i32 - bias),
                };
                let expected = if sign == 0 { size } else { -size };
                for above in 0..4 {
                    assert_eq!(
                        dtype.decode(above << 6 | bits).to_bits(),
                        expected.to_bits(),
                        "{dtype} {bits:#x}"
                    );
                }
                if sign == 0 {
                    positive.push(expected);
                }
            }
            let codes = [31, mantissas, mantissas - 1, 1];
            assert_eq!(codes.map(|code| dtype.decode(code)), numbers, "{dtype}");
            // Every number between neighbours rounds to the nearer one, a tie to the even one.
            for (low, pair) in (0u64..).zip(positive.windows(2)) {
                let middle = (pair[0] + pair[1]) / 2.0;
                let [above, below] =
                    [1, u64::MAX].map(|one| f64::from_bits(middle.to_bits().wrapping_add(one)));
                for (x, bits) in [(middle, low + low % 2), (above, low + 1), (below, low)] {
                    assert_eq!([dtype.encode(x), dtype.encode(-x)], [bits, bits | 0x20], "{dtype} {x}");
                }
            }
            for x in [numbers[0] * 1.01, 1e300, f64::INFINITY, f64::NAN] {
                assert_eq!(dtype.decode(dtype.encode(x)), numbers[0], "{dtype} {x}");
            }
            assert_eq!(dtype.decode(dtype.encode(f64::NEG_INFINITY)), -numbers[0]);
        }
    }

    #[test]
    fn floats_of_blocks_take_the_nearest_number() {
        let nearest = [
            (0.24, 0.0),
            (0.25, 0.0),
            (0.26, 0.5),
            (0.75, 1.0),
            (1.25, 1.0),
            (1.75, 2.0),
            (2.5, 2.0),
            (2.51, 3.0),
            (3.5, 4.0),
            (5.0, 4.0),
            (5.01, 6.0),
            (1e300, 6.0),
            (f64::INFINITY, 6.0),
        ];
        for (x, expected) in nearest {
            assert_eq!(DType::E2M1.decode(DType::E2M1.encode(x)), expected, "{x}");
            assert_eq!(DType::E2M1.decode(DType::E2M1.encode(-x)), -expected, "-{x}");
        }
        assert_eq!((DType::E2M1.encode(f64::NAN), DType::E2M1.encode(-0.1)), (7, 8));
        let scales = [(1.49, 127), (1.5, 128), (3.0, 129), (0.0, 0), (-4.0, 0), (1e-300, 0), (1e300, 0xfe)];
        for (x, bits) in scales.into_iter().chain([(f64::INFINITY, 0xfe), (f64::NAN, 0xff)]) {
            assert_eq!(DType::UE8M0.encode(x), bits, "{x}");
        }
        for (x, bits) in [(-3.0, 0), (-0.0, 0), (0.3, 0x2a), (1e9, 0x7e), (f64::NAN, 0x7f)] {
            assert_eq!(DType::UE4M3.encode(x), bits, "{x}");
        }
    }

    #[test]
    fn narrow_integers_fill_their_bits() {
        let ranges = [
            (DType::I1, -1, 0),
            (DType::I2, -2, 1),
            (DType::I4, -8, 7),
            (DType::U1, 0, 1),
            (DType::U2, 0, 3),
            (DType::U4, 0, 15),
        ];
        for (dtype, low, high) in ranges {
            assert_eq!(dtype.range(), Some((low, high)));
            for x in -20..=20i128 {
                let found = dtype.decode(dtype.encode(x as f64));
                assert_eq!(found, x.clamp(low, high) as f64, "{dtype} {x}");
            }
            assert_eq!(dtype.bytes_of(9), (9 * dtype.bits() as usize).div_ceil(8));
        }
        assert_eq!((DType::F16.bytes_of(3), DType::U8.bytes_of(3), DType::I4.bytes_of(0)), (6, 3, 0));
    }

    #[test]
    fn a_value_just_above_a_tie_rounds_up() {
        // Halfway between two neighbours, and the next larger f64 with the same upper half.
        for (dtype, tie) in [(DType::F16, 1.0 + 2f64.powi(-11)), (DType::BF16, 1.0 + 2f64.powi(-8))] {
            let one = dtype.encode(1.0);
            assert_eq!(dtype.encode(tie), one, "a tie goes to even");
            assert_eq!(dtype.encode(tie + 2f64.powi(-40)), one + 1);
            assert_eq!(dtype.encode(tie - 2f64.powi(-40)), one);
        }
        assert_eq!(DType::F16.decode(DType::F16.encode(6.917119127452167e-5)), 6.920099258422852e-5);
    }

    #[test]
    fn integers_saturate_and_round_to_even() {
        assert_eq!(DType::I8.encode(1000.0), 127);
        assert_eq!(DType::I8.encode(-1000.0), 0x80);
        assert_eq!(DType::U8.encode(-3.0), 0);
        assert_eq!(DType::I32.encode(2.5), 2);
        assert_eq!(DType::I32.encode(f64::NAN), 0);
        assert_eq!(DType::U16.encode(65535.5), 65535);
        assert_eq!(DType::I64.encode(1e300), i64::MAX as u64);
        assert_eq!(DType::U64.encode(1e300), u64::MAX);
        assert_eq!(DType::I64.encode(-2.5), (-2i64).cast_unsigned());
    }

    #[test]
    fn integers_of_64_bits_are_exact() {
        for x in [i64::MIN, -1, 0, 1, (1 << 53) + 1, i64::MAX] {
            assert_eq!(DType::I64.decode_integer(DType::I64.encode_integer(x.into())), x.into());
            let bits = x.cast_unsigned();
            assert_eq!(DType::U64.decode_integer(DType::U64.encode_integer(bits.into())), bits.into());
        }
        assert_eq!(DType::I16.decode_integer(0x1_8000), -32768);
        assert_eq!(DType::F64.decode(DType::F64.encode(0.1)), 0.1);
    }

    #[test]
    fn names_parse_back_and_an_unknown_one_lists_what_there_is() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        let error = "f61".parse::<DType>().unwrap_err();
        assert!(error.to_string().contains("there are f16, bf16"));
    }
}
