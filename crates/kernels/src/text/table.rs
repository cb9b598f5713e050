//! The table of operators whose program is a text file.

use super::{Form, Knob, TextOperator, Written, listed, references, space};
use crate::operators::Operator;
use crate::tuning::SizeKind;

const BM: Knob = Knob { name: "bm", constant: "BM", about: "Rows of a block's tile." };
const BN: Knob = Knob { name: "bn", constant: "BN", about: "Columns of a block's tile." };
const THREADS: Knob = Knob { name: "threads", constant: "THREADS", about: "Threads of a block." };

const MN: &[(&str, SizeKind)] = &[("m", SizeKind::Extent), ("n", SizeKind::Extent)];

/// One, one more and one less than vectors and tiles, many short rows and few long ones.
const MATRICES: &[&[i64]] =
    &[&[1, 1], &[1, 17], &[17, 1], &[3, 1000], &[5, 1024], &[100, 17], &[131, 128], &[1, 4097]];

/// The program of a file.
macro_rules! form {
    ($name:literal, $file:literal) => {
        Form { name: $name, text: include_str!($file), whole: None }
    };
    ($name:literal, $file:literal, $whole:literal) => {
        Form { name: $name, text: include_str!($file), whole: Some($whole) }
    };
}

/// Defines a type for each row, and both lists.
macro_rules! operators {
    ($($Type:ident = $row:expr;)+) => {
        $(
            struct $Type;

            impl Written for $Type {
                const OPERATOR: &'static TextOperator = &$row;
            }
        )+

        /// The operators whose program is a text file.
        pub const TEXT_OPERATORS: &[&TextOperator] = &[$($Type::OPERATOR),+];

        pub(crate) const LISTED: &[Operator] = &[$(listed::<$Type>()),+];
    };
}

/// A row of elementwise programs over `[m, n]`.
const ELEMENTWISE: TextOperator = TextOperator {
    name: "",
    about: "",
    forms: &[],
    knobs: &[BM, BN, THREADS],
    sizes: MN,
    edges: MATRICES,
    large: &[16384, 8192],
    indices: &[],
    space: space::elementwise,
    traffic: |sizes| 2.0 * product(sizes),
    reference: references::copy,
    tolerance: (2.0, 1e-7),
};

/// A row of programs with sums over rows of `[m, n]`.
const ROWS: TextOperator = TextOperator { space: space::rows, ..ELEMENTWISE };

/// A row of rotary embeddings of `[t, h, d]`.
const ROPE: TextOperator = TextOperator {
    knobs: &[
        BM,
        Knob { name: "heads", constant: "HB", about: "Heads of a block's tile." },
        Knob { name: "d", constant: "D", about: "Numbers of a head." },
        THREADS,
    ],
    sizes: &[("t", SizeKind::Extent), ("h", SizeKind::Extent)],
    edges: &[&[1, 1], &[17, 8], &[3, 33], &[131, 5]],
    large: &[32768, 32],
    space: space::heads,
    // Of heads of 128 numbers.
    traffic: |sizes| 256.0 * product(sizes) + 128.0 * sizes[0] as f64,
    ..ELEMENTWISE
};

fn product(sizes: &[i64]) -> f64 {
    sizes.iter().map(|n| *n as f64).product()
}

operators! {
    Copy = TextOperator {
        name: "copy",
        about: "y[m, n] = x[m, n]",
        forms: &[form!("tiles", "copy.tile")],
        ..ELEMENTWISE
    };
    SiluMul = TextOperator {
        name: "silu_mul",
        about: "y[m, n] = silu(a[m, n]) · b[m, n]",
        forms: &[form!("tiles", "silu_mul.tile")],
        traffic: |sizes| 3.0 * product(sizes),
        reference: references::silu_mul,
        ..ELEMENTWISE
    };
    GeluMul = TextOperator {
        name: "gelu_mul",
        about: "y[m, n] = gelu(a[m, n]) · b[m, n], gelu by tanh",
        forms: &[form!("tiles", "gelu_mul.tile")],
        traffic: |sizes| 3.0 * product(sizes),
        reference: references::gelu_mul,
        ..ELEMENTWISE
    };
    Rmsnorm = TextOperator {
        name: "rmsnorm",
        about: "y[m, n] = x · rsqrt(mean(x²) + eps) · w[n] by rows",
        forms: &[form!("chunks", "rmsnorm.tile"), form!("row", "rmsnorm.row.tile", "n")],
        reference: references::rmsnorm,
        ..ROWS
    };
    AddRmsnorm = TextOperator {
        name: "add_rmsnorm",
        about: "h[m, n] = x + r, y[m, n] = h · rsqrt(mean(h²) + eps) · w[n] by rows",
        forms: &[form!("chunks", "add_rmsnorm.tile"), form!("row", "add_rmsnorm.row.tile", "n")],
        traffic: |sizes| 4.0 * product(sizes),
        reference: references::add_rmsnorm,
        tolerance: (4.0, 1e-3),
        ..ROWS
    };
    Layernorm = TextOperator {
        name: "layernorm",
        about: "y[m, n] = (x − mean(x)) · rsqrt(var(x) + eps) · w[n] + b[n] by rows",
        forms: &[form!("chunks", "layernorm.tile"), form!("row", "layernorm.row.tile", "n")],
        reference: references::layernorm,
        tolerance: (2.0, 1e-5),
        ..ROWS
    };
    Rope = TextOperator {
        name: "rope",
        about: "y[t, h, d]: x with the pairs (x[i], x[i + d/2]) of every head turned by the angles of cos, sin[t, d/2]",
        forms: &[form!("tiles", "rope.tile")],
        reference: references::rope_half,
        ..ROPE
    };
    RopeInterleaved = TextOperator {
        name: "rope_interleaved",
        about: "y[t, h, d]: x with the pairs (x[2i], x[2i + 1]) of every head turned by the angles of cos, sin[t, d/2]",
        forms: &[form!("tiles", "rope_interleaved.tile")],
        reference: references::rope_interleaved,
        ..ROPE
    };
    Transpose = TextOperator {
        name: "transpose",
        about: "y[n, m] = x[m, n]ᵀ",
        forms: &[form!("tiles", "transpose.tile")],
        reference: references::transpose,
        space: space::transposed,
        ..ELEMENTWISE
    };
    Gemv = TextOperator {
        name: "gemv",
        about: "y[m] = a[m, n] · x[n], sums in f32",
        forms: &[form!("chunks", "gemv.tile")],
        traffic: product,
        reference: references::gemv,
        tolerance: (2.0, 1e-4),
        ..ROWS
    };
}
