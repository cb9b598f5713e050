//! Functions in double precision, as sequences of instructions on `f64` and integers each of which is defined to the bit.
//!
//! No architecture has such functions, so that they are defined here, once, for whoever takes instructions ([`Emit`]): the interpreter
//! evaluates them, lowering emits them, and the cost model counts them. The interpreter, the simulator and a GPU so give the same bits;
//! [`UnaryOp::double_error`] says how far these are from the exact value.
//!
//! The reductions are those of fdlibm (W. J. Cody and W. Waite, *Software Manual for the Elementary Functions*; Sun's `e_log.c`,
//! `k_sin.c` and `k_cos.c`), with `fma` where these split numbers; the polynomials are minimax polynomials of our own, by Remez's algorithm.

use tilewright_machine::{Emit, Features, ScalarOp};

use crate::elementwise::UnaryOp;

/// The largest argument for which `sin` and `cos` are what their names say: of larger ones they are those of 0.
pub const LARGEST_DOUBLE_ANGLE: f64 = (1u64 << 30) as f64;

/// ln 2, and what is missing.
const LN_2: [f64; 2] = [std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17];
/// 1 / ln 2, and what is missing.
const LOG2_E: [f64; 2] = [std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17];
/// π/2, as a sum.
const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// (eʳ − 1 − r − r²/2)/r³ by powers of r, the lowest first, for |r| up to ln 2 / 2.
const EXP: [f64; 9] = [
    0.166_666_666_666_666_8,
    0.041_666_666_666_619_7,
    0.008_333_333_333_319_053,
    0.001_388_888_892_063_140_4,
    0.000_198_412_698_940_590_84,
    2.480_151_618_697_038_7e-05,
    2.755_723_542_631_755e-06,
    2.762_229_260_708_231_7e-07,
    2.511_225_706_481_962e-08,
];
/// (2·atanh(s)/s − 2)/s² by powers of s², the lowest first, for s up to (√2 − 1)/(√2 + 1).
const LOG: [f64; 7] = [
    0.666_666_666_666_671,
    0.399_999_999_995_171_8,
    0.285_714_287_300_113_33,
    0.222_221_990_053_930_76,
    0.181_835_764_308_910_44,
    0.153_130_301_785_607_74,
    0.148_119_362_411_305_33,
];
/// (sin(r) − r)/r³ by powers of r², the lowest first, for |r| up to π/4.
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_44,
    0.008_333_333_333_323_667,
    -0.000_198_412_698_301_488_35,
    2.755_731_365_352_047_5e-06,
    -2.505_073_484_490_614_5e-08,
    1.589_472_693_355_896_3e-10,
];
/// (cos(r) − 1 + r²/2)/r⁴ by powers of r², the lowest first, for |r| up to π/4.
const COS: [f64; 6] = [
    0.041_666_666_666_666_65,
    -0.001_388_888_888_888_284_2,
    2.480_158_729_463_078_3e-05,
    -2.755_731_573_965_644_6e-07,
    2.087_589_791_001_489e-09,
    -1.136_799_211_147_587_8e-11,
];
/// erf(x)/x − 1 by powers of x², the lowest first, for |x| up to 1.
const ERF: [f64; 13] = [
    0.128_379_167_095_512_6,
    -0.376_126_389_031_837_5,
    0.112_837_916_709_548_58,
    -0.026_866_170_645_072_96,
    0.005_223_977_624_781_37,
    -0.000_854_832_697_876_514_9,
    0.000_120_553_310_375_511_08,
    -1.492_559_351_872_822_6e-05,
    1.646_097_295_415_377e-6,
    -1.635_002_619_207_719_5e-07,
    1.465_788_353_091_919_8e-08,
    -1.136_567_067_182_550_8e-09,
    5.945_255_584_220_853e-11,
];
/// −log₂(1 − erf(x)) by powers of x − 1, the lowest first, for x from 1 to 6.
const ERF_TAIL: [f64; 27] = [
    2.668_416_696_781_599_7,
    3.807_225_345_853_608_7,
    1.216_346_657_685_864_8,
    0.059_959_990_046_260_965,
    -0.014_475_750_204_098_409,
    0.002_853_510_951_541_857_5,
    -0.000_342_387_554_140_826_5,
    -3.789_876_173_377_582e-05,
    3.915_265_237_072_876e-05,
    -1.380_971_002_992_123_7e-05,
    2.900_730_320_290_306e-06,
    -1.342_821_484_463_323_3e-07,
    -1.962_532_299_894_706e-07,
    1.078_289_781_173_452_4e-07,
    -3.618_437_218_632_732e-08,
    9.050_675_917_694_588e-09,
    -1.726_815_909_065_734_3e-09,
    2.359_332_240_003_067_6e-10,
    -1.651_853_529_966_612_2e-11,
    -1.737_938_031_151_094e-12,
    7.848_479_048_692_495e-13,
    -1.413_244_369_882_945e-13,
    1.663_039_122_531_494e-14,
    -1.358_714_714_401_646_7e-15,
    7.510_055_433_434_12e-17,
    -2.544_989_883_377_172e-18,
    4.011_003_086_349_485_4e-20,
];

/// Emits with the names of this file.
struct Doubles<'a, E: Emit>(&'a mut E);

impl<E: Emit> Doubles<'_, E> {
    fn op<const N: usize>(&mut self, op: ScalarOp, args: [E::Value; N]) -> E::Value {
        self.0.op(op, &args)
    }

    fn number(&mut self, x: f64) -> E::Value {
        self.0.wide_literal(x.to_bits())
    }

    fn integer(&mut self, x: i32) -> E::Value {
        self.0.literal(x.cast_unsigned())
    }

    fn add(&mut self, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::AddF64, [x, y])
    }

    fn sub(&mut self, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::SubF64, [x, y])
    }

    fn mul(&mut self, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::MulF64, [x, y])
    }

    fn div(&mut self, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::DivF64, [x, y])
    }

    fn fma(&mut self, x: E::Value, y: E::Value, z: E::Value) -> E::Value {
        self.op(ScalarOp::FmaF64, [x, y, z])
    }

    fn neg(&mut self, x: E::Value) -> E::Value {
        self.op(ScalarOp::NegF64, [x])
    }

    fn abs(&mut self, x: E::Value) -> E::Value {
        self.op(ScalarOp::AbsF64, [x])
    }

    fn round(&mut self, x: E::Value) -> E::Value {
        self.op(ScalarOp::RoundF64, [x])
    }

    /// The first where the condition holds, else the second.
    fn select(&mut self, condition: E::Value, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::SelectB64, [x, y, condition])
    }

    fn less(&mut self, x: E::Value, y: E::Value) -> E::Value {
        self.op(ScalarOp::LtF64, [x, y])
    }

    /// A number that is no less than the one and no more than the other; a NaN stays one.
    fn clamp(&mut self, x: E::Value, [low, high]: [f64; 2]) -> E::Value {
        let [low, high] = [low, high].map(|x| self.number(x));
        let below = self.less(x, low);
        let raised = self.select(below, low, x);
        let above = self.less(high, raised);
        self.select(above, high, raised)
    }

    /// The polynomial with these coefficients, the lowest first.
    fn polynomial(&mut self, coefficients: &[f64], at: E::Value) -> E::Value {
        let mut powers = coefficients.iter().rev();
        let highest = self.number(powers.next().copied().unwrap_or(0.0));
        powers.fold(highest, |p, c| {
            let c = self.number(*c);
            self.fma(p, at, c)
        })
    }

    /// 2ⁿ for an integer from −1022 to 1023.
    fn power_of_two(&mut self, n: E::Value) -> E::Value {
        let [bias, places, zero] = [1023, 20, 0].map(|x| self.integer(x));
        let biased = self.op(ScalarOp::AddI32, [n, bias]);
        let high = self.op(ScalarOp::ShlB32, [biased, places]);
        self.op(ScalarOp::JoinB64, [zero, high])
    }

    /// x · 2ⁿ for an integer from −2044 to 2046, given as a float; rounded once.
    fn scaled(&mut self, x: E::Value, n: E::Value) -> E::Value {
        let n = self.op(ScalarOp::I32FromF64, [n]);
        let one = self.integer(1);
        let first = self.op(ScalarOp::ShrI32, [n, one]);
        let second = self.op(ScalarOp::SubI32, [n, first]);
        let [first, second] = [first, second].map(|n| self.power_of_two(n));
        let x = self.mul(x, first);
        self.mul(x, second)
    }

    /// n and r of x = n · ln 2 + r, with |r| up to ln 2 / 2, and what r lacks.
    fn by_ln_2(&mut self, x: E::Value) -> (E::Value, [E::Value; 2]) {
        let [high, low] = LN_2.map(|x| self.number(-x));
        let per = self.number(LOG2_E[0]);
        let n = self.mul(x, per);
        let n = self.round(n);
        // Exact: a multiple of 2⁻⁵⁴ below 1/2.
        let near = self.fma(n, high, x);
        let below = self.mul(n, low);
        let r = self.add(near, below);
        let lost = self.sub(near, r);
        (n, [r, self.add(lost, below)])
    }

    /// e^(r + rest) − 1 for |r| up to ln 2 / 2 and a small rest.
    fn power_less_one(&mut self, [r, rest]: [E::Value; 2]) -> E::Value {
        let half = self.number(0.5);
        let p = self.polynomial(&EXP, r);
        let p = self.fma(p, r, half);
        let square = self.mul(r, r);
        let above = self.fma(p, square, rest);
        self.add(r, above)
    }

    fn exp(&mut self, x: E::Value) -> E::Value {
        let one = self.number(1.0);
        let x = self.clamp(x, [-746.0, 710.0]);
        let (n, r) = self.by_ln_2(x);
        let power = self.power_less_one(r);
        let power = self.add(power, one);
        self.scaled(power, n)
    }

    /// n, and 2^(x − n) for the integer n that is next to x.
    fn part_of_exp2(&mut self, x: E::Value) -> (E::Value, E::Value) {
        let one = self.number(1.0);
        let [high, low] = LN_2.map(|x| self.number(x));
        let n = self.round(x);
        let fraction = self.sub(x, n);
        let r = self.mul(fraction, high);
        let negated = self.neg(r);
        let rest = self.fma(fraction, high, negated);
        let rest = self.fma(fraction, low, rest);
        let power = self.power_less_one([r, rest]);
        (n, self.add(power, one))
    }

    fn exp2(&mut self, x: E::Value) -> E::Value {
        let x = self.clamp(x, [-1080.0, 1030.0]);
        let (n, power) = self.part_of_exp2(x);
        self.scaled(power, n)
    }

    /// k and f of x = 2ᵏ · (1 + f) for a positive x, with 1 + f from √½ to √2.
    fn by_powers_of_two(&mut self, x: E::Value) -> (E::Value, E::Value) {
        use ScalarOp::*;
        let [least, raise, one] = [f64::MIN_POSITIVE, 2f64.powi(54), 1.0].map(|x| self.number(x));
        let subnormal = self.less(x, least);
        let raised = self.mul(x, raise);
        let x = self.select(subnormal, raised, x);
        let [high, low] = [HighB32, LowB32].map(|half| self.op(half, [x]));
        // The upper halves of 1 and of √½.
        let [to_one, mask, root, places] =
            [0x3ff0_0000 - 0x3fe6_a09e, 0x000f_ffff, 0x3fe6_a09e, 20].map(|x| self.integer(x));
        let [bias, more] = [-1023, -1023 - 54].map(|x| self.integer(x));
        let biased = self.op(AddI32, [high, to_one]);
        let exponent = self.op(ShrI32, [biased, places]);
        let bias = self.op(Select, [more, bias, subnormal]);
        let exponent = self.op(AddI32, [exponent, bias]);
        let k = self.op(F64FromI32, [exponent]);
        let mantissa = self.op(AndB32, [biased, mask]);
        let mantissa = self.op(AddI32, [mantissa, root]);
        let mantissa = self.op(JoinB64, [low, mantissa]);
        (k, self.sub(mantissa, one))
    }

    /// f²/2 and s · (f²/2 + R(s²)), of which log(1 + f) is f − (the first − the second), with s = f / (2 + f).
    fn parts_of_log(&mut self, f: E::Value) -> [E::Value; 2] {
        let [half, two] = [0.5, 2.0].map(|x| self.number(x));
        let below = self.add(f, two);
        let s = self.div(f, below);
        let z = self.mul(s, s);
        let p = self.polynomial(&LOG, z);
        let half = self.mul(f, half);
        let square = self.mul(half, f);
        let sum = self.fma(p, z, square);
        [square, self.mul(s, sum)]
    }

    /// A logarithm where x is positive and finite; else what logarithms are.
    fn ends_of_log(&mut self, x: E::Value, logarithm: E::Value) -> E::Value {
        let [zero, infinity, nan, least] =
            [0.0, f64::INFINITY, f64::NAN, f64::NEG_INFINITY].map(|x| self.number(x));
        let finite = self.less(x, infinity);
        let above = self.select(finite, logarithm, x);
        let is_zero = self.op(ScalarOp::EqF64, [x, zero]);
        let below = self.select(is_zero, least, nan);
        let positive = self.less(zero, x);
        self.select(positive, above, below)
    }

    fn log(&mut self, x: E::Value) -> E::Value {
        // The upper 32 bits of ln 2, of which every multiple is exact, and what is missing.
        let [high, low] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10].map(|x| self.number(x));
        let (k, f) = self.by_powers_of_two(x);
        let [square, rest] = self.parts_of_log(f);
        let rest = self.fma(k, low, rest);
        let rest = self.sub(square, rest);
        let sum = self.sub(f, rest);
        let logarithm = self.fma(k, high, sum);
        self.ends_of_log(x, logarithm)
    }

    fn log2(&mut self, x: E::Value) -> E::Value {
        let [per, missing] = LOG2_E.map(|x| self.number(x));
        let half = self.number(0.5);
        let (k, f) = self.by_powers_of_two(x);
        let [square, rest] = self.parts_of_log(f);
        // log(1 + f) as a sum of two.
        let high = self.sub(f, square);
        let low = self.sub(f, high);
        let low = self.sub(low, square);
        let halved = self.mul(f, half);
        let negated = self.neg(square);
        let lost = self.fma(halved, f, negated);
        let low = self.sub(low, lost);
        let low = self.add(low, rest);
        // Times 1 / ln 2.
        let product = self.mul(high, per);
        let negated = self.neg(product);
        let error = self.fma(high, per, negated);
        let error = self.fma(high, missing, error);
        let error = self.fma(low, per, error);
        let sum = self.add(k, product);
        let lost = self.sub(k, sum);
        let lost = self.add(lost, product);
        let error = self.add(lost, error);
        let logarithm = self.add(sum, error);
        self.ends_of_log(x, logarithm)
    }

    /// The multiple of π/2 that is next to an angle, an integer modulo 4, and the rest as a sum of two.
    fn by_half_pi(&mut self, x: E::Value) -> (E::Value, [E::Value; 2]) {
        let [most, per] = [LARGEST_DOUBLE_ANGLE, std::f64::consts::FRAC_2_PI].map(|x| self.number(x));
        let [first, second, third] = HALF_PI.map(|x| self.number(-x));
        // Of an infinite number and of a NaN, a NaN.
        let nothing = self.sub(x, x);
        let size = self.abs(x);
        let beyond = self.less(most, size);
        let x = self.select(beyond, nothing, x);
        let n = self.mul(x, per);
        let n = self.round(n);
        // Exact: a multiple of 2⁻⁵³ below 1.
        let near = self.fma(n, first, x);
        let product = self.mul(n, second);
        let negated = self.neg(product);
        let error = self.fma(n, second, negated);
        let high = self.add(near, product);
        // What the sum has lost.
        let back = self.sub(high, near);
        let other = self.sub(high, back);
        let [lost, more] = [self.sub(near, other), self.sub(product, back)];
        let lost = self.add(lost, more);
        let low = self.add(lost, error);
        let low = self.fma(n, third, low);
        let sum = self.add(high, low);
        let rest = self.sub(high, sum);
        let rest = self.add(rest, low);
        let quadrant = self.op(ScalarOp::I32FromF64, [n]);
        (quadrant, [sum, rest])
    }

    /// The sine of an angle whose quarters are counted from so many on: from 0 the sine, from 1 the cosine.
    fn sine(&mut self, x: E::Value, from: i32) -> E::Value {
        use ScalarOp::*;
        let (quadrant, [r, rest]) = self.by_half_pi(x);
        let [half, one] = [0.5, 1.0].map(|x| self.number(x));
        let square = self.mul(r, r);
        let halved = self.mul(square, half);
        // Of the sine: r − ((r²·(rest/2 − r³·p) − rest) − r³·c).
        let cube = self.mul(square, r);
        let lowest = self.number(SIN[0]);
        let p = self.polynomial(&SIN[1..], square);
        let product = self.mul(cube, p);
        let half_rest = self.mul(rest, half);
        let sum = self.sub(half_rest, product);
        let sum = self.mul(square, sum);
        let sum = self.sub(sum, rest);
        let product = self.mul(cube, lowest);
        let sum = self.sub(sum, product);
        let sine = self.sub(r, sum);
        // Of the cosine: 1 − r²/2, with what that loses, and r⁴·p − r·rest.
        let p = self.polynomial(&COS, square);
        let p = self.mul(square, p);
        let first = self.sub(one, halved);
        let lost = self.sub(one, first);
        let lost = self.sub(lost, halved);
        let product = self.mul(r, rest);
        let above = self.mul(square, p);
        let above = self.sub(above, product);
        let above = self.add(lost, above);
        let cosine = self.add(first, above);
        // The quarter decides between them, and about the sign.
        let [from, one, two, zero] = [from, 1, 2, 0].map(|x| self.integer(x));
        let quadrant = self.op(AddI32, [quadrant, from]);
        let odd = self.op(AndB32, [quadrant, one]);
        let odd = self.op(NeI32, [odd, zero]);
        let found = self.select(odd, cosine, sine);
        let lower = self.op(AndB32, [quadrant, two]);
        let lower = self.op(NeI32, [lower, zero]);
        let negated = self.neg(found);
        self.select(lower, negated, found)
    }

    /// A number with the sign of another in the place of its own.
    fn with_sign(&mut self, size: E::Value, of: E::Value) -> E::Value {
        let [sign, rest] = [1u64 << 63, u64::MAX >> 1].map(|bits| self.0.wide_literal(bits));
        let sign = self.op(ScalarOp::AndB64, [of, sign]);
        let size = self.op(ScalarOp::AndB64, [size, rest]);
        self.op(ScalarOp::OrB64, [size, sign])
    }

    /// 1 − 2/(e²ˣ + 1), as (e²ˣ − 1)/(e²ˣ + 1) with e²ˣ − 1 free of cancellation.
    fn tanh(&mut self, x: E::Value) -> E::Value {
        let [one, two] = [1.0, 2.0].map(|x| self.number(x));
        let size = self.abs(x);
        let double = self.add(size, size);
        let double = self.clamp(double, [0.0, 44.0]);
        let (n, r) = self.by_ln_2(double);
        let power = self.power_less_one(r);
        let n = self.op(ScalarOp::I32FromF64, [n]);
        let scale = self.power_of_two(n);
        let whole = self.sub(scale, one);
        let above = self.fma(scale, power, whole);
        let below = self.add(above, two);
        let quotient = self.div(above, below);
        self.with_sign(quotient, x)
    }

    /// x + x·p(x²) up to 1, then 1 − 2^(−q(|x|)); from 6 on it is 1.
    fn erf(&mut self, x: E::Value) -> E::Value {
        let one = self.number(1.0);
        let size = self.abs(x);
        let square = self.mul(x, x);
        let p = self.polynomial(&ERF, square);
        let small = self.fma(p, size, size);
        let clamped = self.clamp(size, [1.0, 6.0]);
        let above = self.sub(clamped, one);
        let q = self.polynomial(&ERF_TAIL, above);
        let negated = self.neg(q);
        let (n, power) = self.part_of_exp2(negated);
        let n = self.op(ScalarOp::I32FromF64, [n]);
        let scale = self.power_of_two(n);
        let power = self.mul(power, scale);
        let large = self.sub(one, power);
        let is_small = self.less(size, one);
        let found = self.select(is_small, small, large);
        self.with_sign(found, x)
    }

    fn rsqrt(&mut self, x: E::Value) -> E::Value {
        let one = self.number(1.0);
        let root = self.op(ScalarOp::SqrtF64, [x]);
        self.div(one, root)
    }
}

/// The instructions of a function of one `f64`; `None` of those that instructions compute.
pub fn function<E: Emit>(emit: &mut E, op: UnaryOp, x: E::Value) -> Option<E::Value> {
    let mut doubles = Doubles(emit);
    Some(match op {
        UnaryOp::Exp => doubles.exp(x),
        UnaryOp::Exp2 => doubles.exp2(x),
        UnaryOp::Log => doubles.log(x),
        UnaryOp::Log2 => doubles.log2(x),
        UnaryOp::Rsqrt => doubles.rsqrt(x),
        UnaryOp::Tanh => doubles.tanh(x),
        UnaryOp::Sin => doubles.sine(x, 0),
        UnaryOp::Cos => doubles.sine(x, 1),
        UnaryOp::Erf => doubles.erf(x),
        UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Float
        | UnaryOp::Int
        | UnaryOp::Not => return None,
    })
}

/// Evaluates instructions as the simulator does.
struct Evaluate;

impl Emit for Evaluate {
    type Value = u64;

    /// Functions of `f64` are alike on every architecture.
    fn has(&self, needs: Features) -> bool {
        needs == Features::NONE
    }

    fn op(&mut self, op: ScalarOp, args: &[u64]) -> u64 {
        (op.row().eval)(args)
    }

    fn literal(&mut self, bits: u32) -> u64 {
        u64::from(bits)
    }

    fn wide_literal(&mut self, bits: u64) -> u64 {
        bits
    }
}

/// Counts instructions that are no literals.
struct Count(u32);

impl Emit for Count {
    type Value = ();

    fn has(&self, needs: Features) -> bool {
        needs == Features::NONE
    }

    fn op(&mut self, _: ScalarOp, _: &[()]) {
        self.0 += 1;
    }

    fn literal(&mut self, _: u32) {}

    fn wide_literal(&mut self, _: u64) {}
}

impl UnaryOp {
    /// The value of a number in `f64`, which is that of every execution; of functions that instructions compute the exact one, rounded to nearest even.
    pub fn apply_double(self, x: f64) -> f64 {
        function(&mut Evaluate, self, x.to_bits()).map_or_else(|| self.exact(x), f64::from_bits)
    }

    /// Instructions of the function in `f64`; `None` of those that are one.
    pub fn double_instructions(self) -> Option<u32> {
        let mut count = Count(0);
        function(&mut count, self, ()).map(|()| count.0)
    }
}
