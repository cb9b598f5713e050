//! The table of operators whose program is a text file.

use tilewright_machine::{Feature, Features};

use super::listed::{Written, listed};
use super::operator::{Form, Knob, Limit, TextOperator};
use super::{references, space};
use crate::operators::Operator;
use crate::tuning::SizeKind;

const BM: Knob = Knob { name: "bm", constant: "BM", about: "Rows of a block's tile." };
const BN: Knob = Knob { name: "bn", constant: "BN", about: "Columns of a block's tile." };
const THREADS: Knob = Knob { name: "threads", constant: "THREADS", about: "Threads of a block." };

const SPLIT: Knob =
    Knob { name: "split", constant: "SPLIT", about: "Parts of the rows that are summed apart." };

const MN: &[(&str, SizeKind)] = &[("m", SizeKind::Extent), ("n", SizeKind::Extent)];

/// One, one more and one less than vectors and tiles, many short rows and few long ones.
const MATRICES: &[&[i64]] =
    &[&[1, 1], &[1, 17], &[17, 1], &[3, 1000], &[5, 1024], &[100, 17], &[131, 128], &[1, 4097]];

const LMN: &[(&str, SizeKind)] = &[("l", SizeKind::Count), ("m", SizeKind::Extent), ("n", SizeKind::Extent)];

/// The same in batches.
const BATCHES: &[&[i64]] =
    &[&[1, 1, 1], &[3, 1, 17], &[2, 17, 1], &[1, 65, 1000], &[5, 24, 64], &[1, 3, 4097]];

/// The program of a file, or of several that follow each other.
macro_rules! form {
    ($name:literal, $($file:literal)+) => {
        Form { name: $name, texts: &[$(include_str!($file)),+], limit: Limit::None }
    };
    ($name:literal, $($file:literal)+, $limit:ident $size:literal) => {
        Form { name: $name, texts: &[$(include_str!($file)),+], limit: Limit::$limit($size) }
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
    needs: Features::NONE,
    narrow: false,
    edges: MATRICES,
    large: &[16384, 8192],
    indices: &[],
    floats: &[],
    live: 3,
    space: space::elementwise,
    traffic: |sizes| 2.0 * product(sizes),
    reference: references::copy,
    tolerance: |_| (2.0, 1e-7),
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

/// A row of quantisations of `[m, n]` to 8 bits.
const QUANTISE: TextOperator = TextOperator {
    needs: Features::of(&[Feature::Fp8Conversion]),
    traffic: |sizes| 1.5 * product(sizes),
    // A quotient may lie on the other side of a tie; subnormal results are multiples of 2^-9.
    tolerance: |name| if name == "s" { (8.0, 0.0) } else { (1.01, 0.00098) },
    ..ROWS
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
        forms: &[form!("chunks", "rmsnorm.tile"), form!("row", "rmsnorm.row.tile", Whole "n")],
        reference: references::rmsnorm,
        ..ROWS
    };
    AddRmsnorm = TextOperator {
        name: "add_rmsnorm",
        about: "h[m, n] = x + r, y[m, n] = h · rsqrt(mean(h²) + eps) · w[n] by rows",
        forms: &[form!("chunks", "add_rmsnorm.tile"), form!("row", "add_rmsnorm.row.tile", Whole "n")],
        traffic: |sizes| 4.0 * product(sizes),
        reference: references::add_rmsnorm,
        tolerance: |_| (4.0, 1e-3),
        ..ROWS
    };
    Layernorm = TextOperator {
        name: "layernorm",
        about: "y[m, n] = (x − mean(x)) · rsqrt(var(x) + eps) · w[n] + b[n] by rows",
        forms: &[form!("chunks", "layernorm.tile"), form!("row", "layernorm.row.tile", Whole "n")],
        reference: references::layernorm,
        tolerance: |_| (2.0, 1e-5),
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
    RmsnormBackward = TextOperator {
        name: "rmsnorm_backward",
        about: "dx[m, n] and dw[n] (f32) of rmsnorm, from x, w and dy",
        forms: &[
            form!("chunks", "rmsnorm_backward.tile" "rmsnorm_backward.dw.tile" "rmsnorm_backward.sum.tile"),
            form!("row", "rmsnorm_backward.row.tile" "rmsnorm_backward.sum.tile", Whole "n"),
        ],
        knobs: &[BM, BN, SPLIT, THREADS],
        traffic: |sizes| 3.0 * product(sizes),
        live: 7,
        reference: references::rmsnorm_backward,
        tolerance: |_| (8.0, 1e-3),
        narrow: true,
        ..ROWS
    };
    LayernormBackward = TextOperator {
        name: "layernorm_backward",
        about: "dx[m, n], dw[n] and db[n] (f32) of layernorm, from x, w and dy",
        forms: &[form!("chunks", "layernorm_backward.tile" "layernorm_backward.dw.tile" "layernorm_backward.sum.tile")],
        knobs: &[BM, BN, SPLIT, THREADS],
        traffic: |sizes| 3.0 * product(sizes),
        live: 7,
        reference: references::layernorm_backward,
        tolerance: |_| (8.0, 1e-3),
        narrow: true,
        ..ROWS
    };
    SumColumns = TextOperator {
        name: "sum_columns",
        about: "y[n] = Σ x[m, n] over m, in f32",
        forms: &[form!("tiles", "sum_columns.tile" "sum_parts.tile")],
        knobs: &[BM, BN, SPLIT, THREADS],
        space: space::columns,
        traffic: product,
        reference: references::sum_columns,
        tolerance: |_| (2.0, 1e-4),
        ..ELEMENTWISE
    };
    Softmax = TextOperator {
        name: "softmax",
        about: "y[m, n] = exp(x − max(x)) / Σ exp(x − max(x)) by rows",
        forms: &[form!("chunks", "softmax.tile"), form!("row", "softmax.row.tile", Whole "n")],
        reference: references::softmax,
        ..ROWS
    };
    LogSoftmax = TextOperator {
        name: "log_softmax",
        about: "y[m, n] = x − log Σ exp(x) by rows",
        forms: &[form!("chunks", "log_softmax.tile"), form!("row", "log_softmax.row.tile", Whole "n")],
        reference: references::log_softmax,
        tolerance: |_| (2.0, 1e-5),
        ..ROWS
    };
    SoftmaxRagged = TextOperator {
        name: "softmax_ragged",
        about: "y[m, n] = softmax of the first lengths[m] elements of each row, 0 behind them",
        forms: &[form!("chunks", "softmax_ragged.tile")],
        knobs: &[BN, THREADS],
        indices: &[("lengths", "n")],
        reference: references::softmax_ragged,
        narrow: true,
        ..ROWS
    };
    Embedding = TextOperator {
        name: "embedding",
        about: "y[t, n] = w[ids[t], n]",
        forms: &[form!("tiles", "embedding.tile")],
        knobs: &[Knob { name: "bm", constant: "R", about: "Rows that a block copies." }, BN, THREADS],
        sizes: &[("t", SizeKind::Extent), ("v", SizeKind::Extent), ("n", SizeKind::Extent)],
        edges: &[&[1, 1, 1], &[17, 5, 17], &[3, 1000, 1000], &[131, 7, 128]],
        large: &[65536, 128256, 4096],
        indices: &[("ids", "v")],
        // The numbers of the rows.
        narrow: true,
        space: space::gathered,
        traffic: |sizes| 2.0 * (sizes[0] * sizes[2]) as f64,
        reference: references::embedding,
        ..ELEMENTWISE
    };
    CrossEntropy = TextOperator {
        name: "cross_entropy",
        about: "lse[m] = log Σ exp(x[m, n]), loss[m] = lse − x[m, target[m]]",
        forms: &[form!("chunks", "cross_entropy.tile")],
        knobs: &[BN, THREADS],
        indices: &[("target", "n")],
        large: &[4096, 131072],
        traffic: product,
        reference: references::cross_entropy,
        tolerance: |_| (4.0, 1e-5),
        narrow: true,
        ..ROWS
    };
    CrossEntropyBackward = TextOperator {
        name: "cross_entropy_backward",
        about: "dx[m, n] = (exp(x − lse[m]) − (n = target[m])) · dloss[m]",
        forms: &[form!("tiles", "cross_entropy_backward.tile")],
        indices: &[("target", "n")],
        reference: references::cross_entropy_backward,
        tolerance: |_| (2.0, 1e-5),
        narrow: true,
        ..ELEMENTWISE
    };
    Dropout = TextOperator {
        name: "dropout",
        about: "y[m, n] = x / (1 − p) where the Philox number of the element is at least p, else 0",
        forms: &[form!("tiles", "dropout.tile"), form!("vectors", "dropout.vectors.tile", Vectors "n")],
        reference: references::dropout,
        ..ELEMENTWISE
    };
    Argmax = TextOperator {
        name: "argmax",
        about: "y[m]: the column of the largest x[m, n], the first of equals; v[m]: that element",
        forms: &[form!("chunks", "argmax.tile")],
        traffic: product,
        reference: references::argmax,
        tolerance: |_| (0.0, 0.0),
        ..ROWS
    };
    Transpose = TextOperator {
        name: "transpose",
        about: "y[l, n, m] = x[l, m, n]ᵀ",
        forms: &[form!("tiles", "transpose.tile")],
        sizes: LMN,
        edges: BATCHES,
        large: &[1, 8192, 8192],
        reference: references::transpose,
        space: space::transposed,
        ..ELEMENTWISE
    };
    Permute = TextOperator {
        name: "permute",
        about: "y[l, n, m, d] = x[l, m, n, d]",
        forms: &[form!("tiles", "permute.tile")],
        knobs: &[BM, BN, Knob { name: "d", constant: "D", about: "Numbers of a row that a block takes." }, THREADS],
        sizes: &[
            ("l", SizeKind::Count),
            ("m", SizeKind::Extent),
            ("n", SizeKind::Extent),
            ("d", SizeKind::Extent),
        ],
        edges: &[&[1, 1, 1, 1], &[2, 17, 5, 128], &[1, 33, 8, 1000], &[3, 5, 7, 24]],
        large: &[4, 4096, 32, 128],
        reference: references::permute,
        space: space::heads,
        ..ELEMENTWISE
    };
    Gemv = TextOperator {
        name: "gemv",
        about: "y[l, m] = a[l, m, n] · x[l, n], sums in f32",
        forms: &[form!("chunks", "gemv.tile")],
        sizes: LMN,
        edges: BATCHES,
        large: &[1, 16384, 8192],
        traffic: product,
        reference: references::gemv,
        tolerance: |_| (2.0, 1e-4),
        ..ROWS
    };
    SumRows = TextOperator {
        name: "sum_rows",
        about: "y[m] = Σ x[m, n] over n, in f32",
        forms: &[form!("chunks", "sum_rows.tile")],
        traffic: product,
        reference: references::sum_rows,
        tolerance: |_| (2.0, 1e-4),
        ..ROWS
    };
    QuantiseRowsFp8 = TextOperator {
        name: "quantise_rows_fp8",
        about: "y[m, n] = x / s[m] in e4m3, with s = max(|x|) / 448 of each row",
        forms: &[form!("chunks", "quantise_rows_fp8.tile"), form!("row", "quantise_rows_fp8.row.tile", Whole "n")],
        reference: |sizes, values| references::quantise(sizes, values, None, 448.0),
        ..QUANTISE
    };
    QuantiseRowsInt8 = TextOperator {
        name: "quantise_rows_int8",
        about: "y[m, n] = x / s[m] in i8, with s = max(|x|) / 127 of each row",
        forms: &[form!("chunks", "quantise_rows_int8.tile"), form!("row", "quantise_rows_int8.row.tile", Whole "n")],
        reference: |sizes, values| references::quantise(sizes, values, None, 127.0),
        tolerance: |name| if name == "s" { (8.0, 0.0) } else { (0.0, 0.501) },
        needs: Features::NONE,
        ..QUANTISE
    };
    QuantiseBlocksFp8 = TextOperator {
        name: "quantise_blocks_fp8",
        about: "y[m, n] = x / s[m, n/128] in e4m3, with s = max(|x|) / 448 of 128 columns of a row",
        forms: &[form!("tiles", "quantise_blocks_fp8.tile")],
        space: space::elementwise,
        reference: |sizes, values| references::quantise(sizes, values, Some(128), 448.0),
        ..QUANTISE
    };
    QuantiseBlocksInt8 = TextOperator {
        name: "quantise_blocks_int8",
        about: "y[m, n] = x / s[m, n/128] in i8, with s = max(|x|) / 127 of 128 columns of a row",
        forms: &[form!("tiles", "quantise_blocks_int8.tile")],
        space: space::elementwise,
        reference: |sizes, values| references::quantise(sizes, values, Some(128), 127.0),
        tolerance: |name| if name == "s" { (8.0, 0.0) } else { (0.0, 0.501) },
        needs: Features::NONE,
        ..QUANTISE
    };
    CausalConv1d = TextOperator {
        name: "causal_conv1d",
        about: "y[b, d, l] = silu(bias[d] + Σ w[d, k] · x[b, d, l − 3 + k]) over k from 0 to 3",
        forms: &[form!("shifted", "causal_conv1d.tile"), form!("vectors", "causal_conv1d.vectors.tile", Vectors "l")],
        sizes: &[("b", SizeKind::Count), ("d", SizeKind::Extent), ("l", SizeKind::Extent)],
        edges: &[&[1, 1, 1], &[2, 5, 17], &[1, 3, 1000], &[2, 1, 4097], &[1, 33, 64]],
        large: &[8, 5120, 2048],
        reference: references::causal_conv1d,
        tolerance: |_| (2.0, 1e-6),
        narrow: true,
        ..ELEMENTWISE
    };
    SelectiveScan = TextOperator {
        name: "selective_scan",
        about: "y[b, d, l] = (Σ h · cs + skip · u) · silu(z), h = exp(dt · a) · h + dt · u · bs over 16 states, dt = softplus(delta + bias)",
        forms: &[form!("lanes", "selective_scan.tile")],
        knobs: &[],
        sizes: &[("b", SizeKind::Count), ("d", SizeKind::Extent), ("l", SizeKind::Depth)],
        edges: &[&[1, 1, 1], &[2, 5, 17], &[1, 40, 100], &[1, 33, 64], &[1, 3, 1000]],
        large: &[8, 5120, 2048],
        floats: &[("a", -1.0, -0.1), ("bias", -4.0, -3.0)],
        space: space::single,
        traffic: |sizes| 4.0 * product(sizes) + 32.0 * (sizes[0] * sizes[2]) as f64,
        reference: references::selective_scan,
        tolerance: |_| (8.0, 1e-3),
        narrow: true,
        ..ELEMENTWISE
    };
    Cumsum = TextOperator {
        name: "cumsum",
        about: "y[m, n] = Σ x[m, i] over i from 0 to n, in f32",
        forms: &[form!("chunks", "cumsum.tile")],
        traffic: |sizes| 3.0 * product(sizes),
        reference: references::cumsum,
        tolerance: |_| (2.0, 1e-4),
        ..ROWS
    };
}
