//! Operands of the rows under test: everything at which rounding, ranges and special values could differ, then random ones.

use tilewright_machine::{DType, ScalarOp};

/// A generator of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u32) -> u32 {
        self.word() % n.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }
}

/// Domain of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    /// An `f32`.
    F32,
    /// Two floats of 16 bits.
    Halves(DType),
    /// One float of 16 bits.
    Half(DType),
    /// Two floats of 8 bits.
    Bytes,
    /// A number of 32 bits, at its ends, or a bit pattern.
    Word,
    /// The same of 64 bits.
    Wide,
    /// A divisor: neither 0 nor −1, of which the PTX ISA says nothing.
    Divisor,
    /// The same of 64 bits.
    WideDivisor,
    /// Shift distance.
    Amount,
    /// A position or a length of bits, of which the low eight bits count.
    Field,
    /// 0 or 1.
    Pred,
    /// An `f32` from −π to π.
    Angle,
    /// An `f32` from 2⁻¹⁰ to 2¹⁰, of either sign.
    Factor,
    /// A finite `f64`, with as many places as a product of two `f32` has.
    Double,
    /// A literal of the instruction.
    Literal(u64),
}

/// Zeros, subnormals, the ends of the normal numbers, infinities, quiet and signalling NaNs; ties of conversions to f16, bf16,
/// 8-bit floats and integers, and where these overflow.
const F32: [u32; 40] = [
    0x0000_0000,
    0x0000_0001,
    0x0000_0002,
    0x0040_0000,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x3f80_0000,
    0x3f80_0001,
    0x3f7f_ffff,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    0x7fc1_2345,
    0x7fff_ffff,
    0x7f80_0001,
    0x3f80_1000,
    0x3f80_3000,
    0x3f80_8000,
    0x3f81_8000,
    0x3f00_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x4b00_0000,
    0x4b7f_ffff,
    0x4f00_0000,
    0x4eff_ffff,
    0x477f_e000,
    0x477f_efff,
    0x477f_f000,
    0x3300_0000,
    0x3300_0001,
    0x3880_0000,
    0x387f_c000,
    0x43e0_0000,
    0x43e8_0000,
    0x4760_0000,
    0x4770_0000,
    0x3b00_0000,
    0x3780_0000,
];

const HALF: [u32; 20] = [
    0x0000, 0x0001, 0x0002, 0x0200, 0x03ff, 0x0400, 0x0401, 0x3c00, 0x3c01, 0x3bff, 0x7bff, 0x7c00, 0x7e00,
    0x7e55, 0x7fff, 0x7c01, 0x1000, 0x1001, 0x5f00, 0x5f40,
];

const BFLOAT: [u32; 18] = [
    0x0000, 0x0001, 0x0002, 0x0040, 0x007f, 0x0080, 0x0081, 0x3f80, 0x3f81, 0x3f7f, 0x7f7f, 0x7f80, 0x7fc0,
    0x7fd5, 0x7fff, 0x7f81, 0x3b80, 0x3b81,
];

const WORDS: [u32; 16] = [
    0,
    1,
    2,
    3,
    31,
    32,
    0x7fff,
    0x8000,
    0xffff,
    0x0001_0000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
    0x0100_0001,
];

impl Domain {
    /// A value; every second is a special one.
    pub(super) fn draw(self, random: &mut Random) -> u64 {
        let special = random.below(2) == 0;
        let sign = random.below(2);
        u64::from(match self {
            Domain::F32 if special => random.of(&F32) | sign << 31,
            Domain::F32 => match random.below(4) {
                0 => random.word(),
                // Not far from 1, where sums cancel and products neither overflow nor vanish.
                1 => (120 + random.below(14)) << 23 | random.word() >> 9 | sign << 31,
                // Halfway between two f16, or two bf16.
                2 => (103 + random.below(42)) << 23 | (random.word() >> 9 & !0x1fff) | 0x1000 | sign << 31,
                _ => (random.word() & 0x7fff_0000) | 0x8000 | sign << 31,
            },
            Domain::Halves(dtype) => {
                let [low, high] = [0, 1].map(|_| Domain::Half(dtype).draw(random) as u32);
                low | high << 16
            }
            Domain::Half(dtype) => {
                let known: &[u32] = if dtype == DType::F16 { &HALF } else { &BFLOAT };
                let (one, mantissa) = if dtype == DType::F16 { (15, 10) } else { (127, 7) };
                match random.below(4) {
                    0 | 1 => random.of(known) | sign << 15,
                    2 => random.word() & 0xffff,
                    _ => (one - 4 + random.below(8)) << mantissa | random.below(1 << mantissa) | sign << 15,
                }
            }
            Domain::Bytes => random.word() & 0xffff,
            Domain::Word if special => random.of(&WORDS),
            Domain::Word => random.word(),
            Domain::Wide => {
                let [low, high] = [0, 1].map(|_| Domain::Word.draw(random));
                return low | high << 32;
            }
            Domain::Divisor => match Domain::Word.draw(random) as u32 {
                0 | u32::MAX => 7,
                other => other,
            },
            Domain::WideDivisor => match Domain::Wide.draw(random) {
                0 | u64::MAX => return 7,
                other => return other,
            },
            Domain::Amount if special => random.of(&[0, 1, 31, 32, 33, 63, 64, 65, 255, 256, u32::MAX]),
            Domain::Amount => random.below(70),
            Domain::Field if special => random.of(&[0, 1, 31, 32, 33, 255, 256, u32::MAX]),
            Domain::Field => random.below(33),
            Domain::Pred => sign,
            Domain::Angle => {
                let part = f64::from(random.word()) / f64::from(u32::MAX);
                // Rounded towards zero, so as not to leave the range.
                let angle = ((2.0 * part - 1.0) * f64::from(3.141_592_5f32)) as f32;
                angle.to_bits()
            }
            Domain::Factor => sign << 31 | (117 + random.below(20)) << 23 | random.word() >> 9,
            Domain::Double => {
                let [x, y] = [0, 1].map(|_| f32::from_bits(Domain::Factor.draw(random) as u32));
                return (f64::from(x) * f64::from(y)).to_bits();
            }
            Domain::Literal(bits) => return bits,
        })
    }
}

/// Domains of an operation's operands, once for each literal that is tried; empty if it is tested elsewhere.
pub(super) fn operands(op: ScalarOp) -> Vec<Vec<Domain>> {
    use Domain::*;
    use ScalarOp::*;
    let one = |domains: &[Domain]| vec![domains.to_vec()];
    match op {
        MulHiI32 | MulHiU32 | MinU32 | MaxU32 | LtU32 | GeU32 | AddI32 | SubI32 | MulI32 | MinI32
        | MaxI32 | AndB32 | OrB32 | XorB32 | MulWide | LtI32 | GeI32 | EqI32 | NeI32 => one(&[Word, Word]),
        DivI32 | RemI32 | DivU32 | RemU32 => one(&[Word, Divisor]),
        ShlB32 | ShrU32 | ShrI32 => one(&[Word, Amount]),
        BfeU32 | BfeS32 => one(&[Word, Field, Field]),
        BfiB32 => one(&[Word, Word, Field, Field]),
        PrmtB32 => one(&[Word, Word, Word]),
        Lop3B32 => [0x00, 0x01, 0x1b, 0x6a, 0x80, 0x96, 0xca, 0xe8, 0xea, 0xf8, 0xfe, 0xff]
            .map(|table| vec![Word, Word, Word, Literal(table)])
            .to_vec(),
        ExtendI64 | ExtendU64 | LowB16 | F32FromI32 | F32FromU32 | F64FromI32 | F64FromU32 => one(&[Word]),
        DivI64 | RemI64 | DivU64 | RemU64 => one(&[Wide, WideDivisor]),
        AddI64 | MulI64 | SubI64 | MinI64 | MaxI64 | MinU64 | MaxU64 | MulHiI64 | MulHiU64 | AndB64
        | OrB64 | XorB64 | LtI64 | GeI64 | LtU64 | GeU64 | EqI64 | NeI64 => one(&[Wide, Wide]),
        JoinB64 => one(&[Word, Word]),
        SelectB64 => one(&[Wide, Wide, Pred]),
        ShlB64 | ShrI64 | ShrU64 => one(&[Wide, Amount]),
        LowB32 | HighB32 | F64FromI64 | F64FromU64 | F32FromI64 | F32FromU64 => one(&[Wide]),
        // The loads of peers' memory use it.
        Mapa => Vec::new(),
        AndPred | XorPred | OrPred => one(&[Pred, Pred]),
        NotPred => one(&[Pred]),
        SinF32 | CosF32 | F64FromF32 => one(&[Angle]),
        DivApproxFtzF32 => one(&[Factor, Factor]),
        F32FromF64 | RoundF64 | NegF64 | AbsF64 | SqrtF64 | FloorF64 | CeilF64 | I32FromF64 | U32FromF64
        | I64FromF64 | U64FromF64 => one(&[Double]),
        MulF64 | AddF64 | SubF64 | DivF64 | MinF64 | MaxF64 | LtF64 | LeF64 | EqF64 | NeF64 => {
            one(&[Double, Double])
        }
        FmaF64 => one(&[Double, Double, Double]),
        Select => one(&[Word, Word, Pred]),
        LtF32 | LeF32 | EqF32 | NeF32 | AddF32 | SubF32 | MulF32 | DivF32 | MinF32 | MaxF32
        | F16x2FromF32 | BF16x2FromF32 | E4M3x2FromF32 | E5M2x2FromF32 | E2M1x2FromF32 | E3M2x2FromF32
        | E2M3x2FromF32 => one(&[F32, F32]),
        FmaF32 => one(&[F32, F32, F32]),
        NegF32 | AbsF32 | SqrtF32 | RsqrtF32 | RsqrtFtzF32 | Lg2FtzF32 | RcpFtzF32 | Ex2FtzF32 | Lg2F32
        | F16FromF32 | BF16FromF32 | I32FromF32 | U32FromF32 | I64FromF32 | U64FromF32 | RoundF32
        | FloorF32 | CeilF32 => one(&[F32]),
        AddF16x2 | SubF16x2 | MulF16x2 | MinF16x2 | MaxF16x2 => one(&[Halves(DType::F16); 2]),
        AddBF16x2 | SubBF16x2 | MulBF16x2 | MinBF16x2 | MaxBF16x2 => one(&[Halves(DType::BF16); 2]),
        FmaF16x2 => one(&[Halves(DType::F16); 3]),
        FmaBF16x2 => one(&[Halves(DType::BF16); 3]),
        ExtendB16 | F32FromF16 => one(&[Half(DType::F16)]),
        F16x2FromE4M3x2 | F16x2FromE2M1x2 | F16x2FromE3M2x2 | F16x2FromE2M3x2 | BF16x2FromUE8M0x2 => {
            one(&[Bytes])
        }
        E4M3x2FromF16x2 | E5M2x2FromF16x2 => one(&[Halves(DType::F16)]),
    }
}
