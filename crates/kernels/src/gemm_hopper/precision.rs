//! Products of f32 by tensor cores. A factor in f32 is read as `tf32`, or split ahead into parts that tensor cores multiply exactly; the products of parts are
//! summed in one accumulator (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
//! peak performance, 2022).

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::dsl::{Elem, KernelBuilder, Tensor};

/// The products of parts of factors that make a product of f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// One product of the upper 19 bits of both factors, which are read where they lie.
    #[default]
    Tf32,
    /// A factor is hi + lo in `tf32`; all products but lo · lo.
    Tf32x3,
    /// A factor is three parts in bf16; the six largest products.
    Bf16x6,
    /// The same parts; all nine products.
    Bf16x9,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 4] =
        [Precision::Tf32, Precision::Tf32x3, Precision::Bf16x6, Precision::Bf16x9];

    /// Parts of a factor.
    pub fn parts(self) -> usize {
        match self {
            Precision::Tf32 => 1,
            Precision::Tf32x3 => 2,
            Precision::Bf16x6 | Precision::Bf16x9 => 3,
        }
    }

    /// The type of a part. Tensor cores read f32 as `tf32`.
    pub fn part(self) -> DType {
        match self {
            Precision::Tf32 | Precision::Tf32x3 => DType::F32,
            Precision::Bf16x6 | Precision::Bf16x9 => DType::BF16,
        }
    }

    /// The parts of A and B that are multiplied, 0 the largest; the smallest products first.
    pub fn products(self) -> Vec<[usize; 2]> {
        let parts = self.parts();
        // The sum of both numbers, up to which products count.
        let most = match self {
            Precision::Tf32 => 0,
            Precision::Tf32x3 => 1,
            Precision::Bf16x6 => 2,
            Precision::Bf16x9 => 4,
        };
        let of = |sum: usize| (0..parts).rev().filter_map(move |a| Some([a, sum.checked_sub(a)?]));
        (0..=most).rev().flat_map(of).filter(|[_, b]| *b < parts).collect()
    }

    /// Splits values in f32 into their parts, the largest first, each in f32 or of the parts' type.
    pub(super) fn split(
        self,
        t: &mut KernelBuilder,
        name: &dyn Fn(&str) -> String,
        values: Tensor,
    ) -> Vec<Tensor> {
        match self {
            Precision::Tf32 => vec![values],
            Precision::Tf32x3 => {
                // Rounded to the nearest of 10 bits behind the first; the rest is exact, and has 13 at most.
                let bits = Elem::from(values).bitcast(DType::U32);
                let upper = ((bits + f64::from(1_u32 << 12)) & f64::from(!0_u32 << 13)).bitcast(DType::F32);
                let hi = t.define(&name("hi"), upper);
                let rest = t.define(&name("rest"), values - hi);
                let bits = Elem::from(rest).bitcast(DType::U32);
                let upper = ((bits + f64::from(1_u32 << 12)) & f64::from(!0_u32 << 13)).bitcast(DType::F32);
                vec![hi, t.define(&name("lo"), upper)]
            }
            Precision::Bf16x6 | Precision::Bf16x9 => {
                let mut rest = values;
                let mut parts = Vec::new();
                for part in 0..self.parts() {
                    let rounded = t.cast(&name(&format!("part{part}")), rest, DType::BF16);
                    parts.push(rounded);
                    if part + 1 < self.parts() {
                        let wide = t.cast(&name(&format!("wide{part}")), rounded, DType::F32);
                        rest = t.define(&name(&format!("rest{part}")), rest - wide);
                    }
                }
                parts
            }
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Tf32 => "tf32",
            Precision::Tf32x3 => "tf32x3",
            Precision::Bf16x6 => "bf16x6",
            Precision::Bf16x9 => "bf16x9",
        })
    }
}

impl FromStr for Precision {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Precision::ALL.into_iter().find(|precision| precision.to_string() == text);
        found.ok_or("must be tf32, tf32x3, bf16x6 or bf16x9")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_products_come_first() {
        assert_eq!(Precision::Tf32.products(), [[0, 0]]);
        assert_eq!(Precision::Tf32x3.products(), [[1, 0], [0, 1], [0, 0]]);
        assert_eq!(Precision::Bf16x6.products(), [[2, 0], [1, 1], [0, 2], [1, 0], [0, 1], [0, 0]]);
        assert_eq!(Precision::Bf16x9.products().len(), 9);
        assert_eq!(Precision::Bf16x9.products()[..3], [[2, 2], [2, 1], [1, 2]]);
    }
}
