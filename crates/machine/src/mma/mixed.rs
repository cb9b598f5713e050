//! Products of floats of two types, each in a byte.

use super::{MmaRow, fp8, scaled, six_bits};
use crate::dtype::DType;

/// A product of floats of two types, each in a byte. Source: PTX ISA 8.7, section 9.7.14.5.14.
fn mixed((name, mnemonic): (&'static str, &'static str), [a, b]: [DType; 2], with_scales: bool) -> MmaRow {
    let eight = |dtype| matches!(dtype, DType::E4M3 | DType::E5M2);
    let row = if with_scales {
        scaled(name, mnemonic, a, DType::UE8M0, 32)
    } else if eight(a) && eight(b) {
        fp8(name, mnemonic, a)
    } else {
        six_bits(name, mnemonic, a)
    };
    MmaRow { b, ..row }
}

/// The products of two types of floats in a byte each, without scales and with.
macro_rules! mixed {
    ($($prefix:literal $a:ident $a_name:literal $b:ident $b_name:literal;)*) => {
        [$(
            mixed(
                (
                    concat!("mma.m16n8k32.f32.", $a_name, ".", $b_name),
                    concat!("mma.sync.aligned.", $prefix, "m16n8k32.row.col.f32.", $a_name, ".", $b_name, ".f32"),
                ),
                [DType::$a, DType::$b],
                false,
            ),
            mixed(
                (
                    concat!("mma.mx.m16n8k32.f32.", $a_name, ".", $b_name),
                    concat!(
                        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.",
                        $a_name, ".", $b_name, ".f32.ue8m0",
                    ),
                ),
                [DType::$a, DType::$b],
                true,
            ),
        )*]
    };
}

/// All of them.
pub(super) fn rows() -> [MmaRow; 24] {
    mixed! {
        "" E4M3 "e4m3" E5M2 "e5m2";
        "" E5M2 "e5m2" E4M3 "e4m3";
        "kind::f8f6f4." E4M3 "e4m3" E3M2 "e3m2";
        "kind::f8f6f4." E4M3 "e4m3" E2M3 "e2m3";
        "kind::f8f6f4." E5M2 "e5m2" E3M2 "e3m2";
        "kind::f8f6f4." E5M2 "e5m2" E2M3 "e2m3";
        "kind::f8f6f4." E3M2 "e3m2" E4M3 "e4m3";
        "kind::f8f6f4." E3M2 "e3m2" E5M2 "e5m2";
        "kind::f8f6f4." E3M2 "e3m2" E2M3 "e2m3";
        "kind::f8f6f4." E2M3 "e2m3" E4M3 "e4m3";
        "kind::f8f6f4." E2M3 "e2m3" E5M2 "e5m2";
        "kind::f8f6f4." E2M3 "e2m3" E3M2 "e3m2";
    }
}
