//! Element types. Each is a row: its name in the tile language, its width in bits, whether it is a float,
//! and its conversion from and to `f64`. Every execution (interpreter, simulator) converts through
//! these two functions, so a type means the same thing everywhere.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

/// The type of one tensor element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an IEEE binary32.
    BF16,
    /// IEEE binary32.
    F32,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
}

impl DType {
    /// Every element type, in the order in which messages list them.
    pub const ALL: [DType; 6] = [DType::F16, DType::BF16, DType::F32, DType::I8, DType::U8, DType::I32];

    /// The name in the tile language, e.g. `f16`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
        }
    }

    /// Width in bits.
    pub fn bits(self) -> u32 {
        match self {
            DType::I8 | DType::U8 => 8,
            DType::F16 | DType::BF16 => 16,
            DType::F32 | DType::I32 => 32,
        }
    }

    /// Width in bytes.
    pub fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32)
    }

    /// Rounds `x` to this type (floats: to nearest even; integers: to nearest even, saturating, NaN to 0)
    /// and returns its bits, zero-extended.
    pub fn encode(self, x: f64) -> u32 {
        match self {
            DType::F16 => u32::from(f16::from_f64(sticky(x)).to_bits()),
            DType::BF16 => u32::from(bf16::from_f64(sticky(x)).to_bits()),
            DType::F32 => (x as f32).to_bits(),
            DType::I8 => u32::from(x.round_ties_even() as i8 as u8),
            DType::U8 => u32::from(x.round_ties_even() as u8),
            DType::I32 => x.round_ties_even() as i32 as u32,
        }
    }

    /// The value of the low [`bits`](DType::bits) of `bits`, exactly.
    pub fn decode(self, bits: u32) -> f64 {
        match self {
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F32 => f64::from(f32::from_bits(bits)),
            DType::I8 => f64::from(bits as u8 as i8),
            DType::U8 => f64::from(bits as u8),
            DType::I32 => f64::from(bits as i32),
        }
    }

    /// The unit roundoff of a float type (half the distance from 1 to the next number); 0 for integers.
    pub fn epsilon(self) -> f64 {
        match self {
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            DType::F32 => 2f64.powi(-24),
            DType::I8 | DType::U8 | DType::I32 => 0.0,
        }
    }
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
#[error("`{0}` is not an element type; there are f16, bf16, f32, i8, u8, i32")]
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
        for dtype in [DType::F16, DType::BF16, DType::I8, DType::U8] {
            for bits in 0..(1u32 << dtype.bits()) {
                let value = dtype.decode(bits);
                if !value.is_nan() {
                    assert_eq!(dtype.encode(value), bits, "{dtype} {bits:#x}");
                }
            }
        }
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
