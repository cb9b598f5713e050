//! Products of f32 on tensor cores, which read the upper 19 bits of a factor (`tf32`).

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Elem, KernelBuilder, Tensor};

/// The way of a product of f32 over tensor cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// One product of factors cut to 11 bits.
    #[default]
    Tf32,
    /// Three products of factors in two parts of 11 bits each: nearly the error of f32.
    Tf32x3,
}

impl Precision {
    /// Each of them.
    pub const ALL: [Precision; 2] = [Precision::Tf32, Precision::Tf32x3];

    /// Products of a pair of tiles.
    pub(crate) fn products(self) -> i64 {
        match self {
            Precision::Tf32 => 1,
            Precision::Tf32x3 => 3,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Tf32 => "tf32",
            Precision::Tf32x3 => "tf32x3",
        })
    }
}

impl FromStr for Precision {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Precision::ALL
            .into_iter()
            .find(|precision| precision.to_string() == text)
            .ok_or("must be tf32 or tf32x3")
    }
}

/// Bits of an f32 that a tf32 lacks.
const CUT: u32 = 13;

/// Half a unit in the last place of a tf32, in those of an f32.
const HALF: i64 = 1 << (CUT - 1);

/// A factor's fragment as the sum of two numbers of tf32, in registers of their own: `big` is the factor rounded, `small` what that leaves.
pub(super) struct Halves {
    big: Tensor,
    small: Tensor,
}

impl Halves {
    /// Declares the registers.
    pub fn declare(t: &mut KernelBuilder, name: &str, shape: [&Expr; 2]) -> Self {
        let [big, small] =
            ["big", "small"].map(|part| t.register_tensor(&format!("{name}_{part}"), DType::F32, shape));
        Halves { big, small }
    }

    /// Divides a factor. Products cut what lies below a tf32, so that adding half of its last place rounds to nearest; for the difference
    /// the bits below must be gone.
    pub fn divide(&self, t: &mut KernelBuilder, factor: &Tensor) {
        let raised = |x: Elem| x.bitcast(DType::I32) + HALF;
        let rounded = raised(factor.into()) & -(1i64 << CUT);
        t.assign(&self.big, rounded.bitcast(DType::F32));
        t.assign(&self.small, raised(Elem::from(factor) - self.big).bitcast(DType::F32));
    }
}

/// `sums += a · bᵀ` of factors in halves, the smallest products first; that of both small parts is below the error of the others.
pub(super) fn multiply(t: &mut KernelBuilder, sums: &Tensor, a: &Halves, b: &Halves) {
    t.gemm(sums, a.small, b.big);
    t.gemm(sums, a.big, b.small);
    t.gemm(sums, a.big, b.big);
}
