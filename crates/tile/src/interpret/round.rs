//! Rounding to an element type, fast for the types that kernels compute with.

use tilewright_machine::DType;

/// Keeps `52 - dropped` bits after the leading one, to nearest even. For finite numbers.
fn keep_bits(x: f64, dropped: u32) -> f64 {
    let bits = x.to_bits();
    let half = (1u64 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
    f64::from_bits((bits + half) & !((1u64 << dropped) - 1))
}

/// A binary format with subnormals: `dropped` bits fewer than `f64`, normal from `least` on; `magic` is 1.5·2⁵² times the
/// distance of subnormals, so that adding it rounds to a multiple of that distance.
fn narrow(x: f64, dropped: u32, least: f64, magic: f64, most: f64) -> f64 {
    let size = x.abs();
    if size >= least {
        if !size.is_finite() {
            return x;
        }
        let rounded = keep_bits(x, dropped);
        return if rounded.abs() > most { f64::INFINITY.copysign(x) } else { rounded };
    }
    if size.is_nan() {
        return x;
    }
    ((x + magic) - magic).copysign(x)
}

/// The value of `dtype` nearest to `x`, ties to even: what `dtype.encode` stores.
pub fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        DType::F16 => narrow(x, 42, f64::from_bits(0x3f10_0000_0000_0000), 402_653_184.0, 65504.0),
        DType::BF16 => {
            // 2^-126, and 1.5 * 2^52 * 2^-133.
            let least = f64::from_bits((1023 - 126) << 52);
            let magic = 1.5 * f64::from_bits((1023 - 81) << 52);
            narrow(x, 45, least, magic, f64::from(f32::from_bits(0x7f7f_0000)))
        }
        _ => dtype.decode(dtype.encode(x)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_encoding_and_decoding() {
        let mut seed = 1u64;
        let mut values =
            vec![0.0, -0.0, 65504.0, 65519.99, 65520.0, 1e300, f64::INFINITY, f64::NAN, 5e-324, 3.39e38];
        for i in 0..400_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Exponents around each format's limits, and midpoints between neighbours.
            let exponent = 1023 - 150 + (seed >> 33) % 300;
            let mantissa = if i % 3 == 0 { (seed >> 8) & 0xfff << 40 } else { (seed >> 5) & ((1 << 52) - 1) };
            values.push(f64::from_bits((seed & 1) << 63 | exponent << 52 | mantissa));
        }
        for dtype in DType::ALL {
            for &x in &values {
                // `half` (2.7) drops the low word of a double before it rounds to 16 bits: keep a trace of it above.
                let bits = x.to_bits();
                let sticky = if dtype.bits() == 16 && !x.is_nan() {
                    f64::from_bits(bits >> 32 << 32 | u64::from(bits as u32 != 0) << 32)
                } else {
                    x
                };
                let (expected, found) = (dtype.decode(dtype.encode(sticky)), round(dtype, x));
                let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
                assert!(same, "{dtype} {x:e}: {expected:e} {found:e}");
            }
        }
    }
}
