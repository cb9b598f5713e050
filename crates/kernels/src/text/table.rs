//! The table of operators whose program is a text file.

use tilewright_machine::{DType, Feature, Features};

use super::listed::{Written, listed};
use super::operator::{FACTORS, Form, Knob, Limit, TextOperator};
use super::rows::{
    BATCHES, BK, BM, BN, CLUSTER, ELEMENTWISE, GATHERED, LMN, MATRICES, PIECES, PRODUCTS, QUANTISE,
    QUANTISE_BLOCKS, RAGGED, ROPE, ROWS, SPLIT, STAGED_ROWS, THREADS, WHOLE, product,
};
use super::{references, space};
use crate::operators::Operator;
use crate::tuning::SizeKind;

/// The program of a file, or of several that follow each other.
macro_rules! form {
    ($name:literal, $($file:literal)+) => { form!($name, $($file)+; Limit::None, Features::NONE) };
    ($name:literal, $($file:literal)+, needs $needs:expr) => { form!($name, $($file)+; Limit::None, $needs) };
    ($name:literal, $($file:literal)+, $limit:ident $size:literal) => {
        form!($name, $($file)+; Limit::$limit($size), Features::NONE)
    };
    ($name:literal, $($file:literal)+; $limit:expr, $needs:expr) => {
        Form {
            name: $name,
            files: &[$($file),+],
            texts: &[$(include_str!($file)),+],
            limit: $limit,
            needs: $needs,
        }
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
        forms: &[form!("chunks", "rmsnorm.tile"), form!("row", "rmsnorm.row.tile", Whole "n"), form!("shared", "rmsnorm.shared.tile", Whole "n")],
        reference: references::rmsnorm,
        ..STAGED_ROWS
    };
    AddRmsnorm = TextOperator {
        name: "add_rmsnorm",
        about: "h[m, n] = x + r, y[m, n] = h · rsqrt(mean(h²) + eps) · w[n] by rows",
        forms: &[form!("chunks", "add_rmsnorm.tile"), form!("row", "add_rmsnorm.row.tile", Whole "n"), form!("shared", "add_rmsnorm.shared.tile", Whole "n")],
        traffic: |sizes| 4.0 * product(sizes),
        staged: 2,
        reference: references::add_rmsnorm,
        tolerance: |_| (4.0, 1e-3),
        ..STAGED_ROWS
    };
    Layernorm = TextOperator {
        name: "layernorm",
        about: "y[m, n] = (x − mean(x)) · rsqrt(var(x) + eps) · w[n] + b[n] by rows",
        forms: &[form!("chunks", "layernorm.tile"), form!("row", "layernorm.row.tile", Whole "n"), form!("shared", "layernorm.shared.tile", Whole "n")],
        reference: references::layernorm,
        tolerance: |_| (2.0, 1e-5),
        // The first elements of a row.
        narrow: true,
        ..STAGED_ROWS
    };
    AddLayernorm = TextOperator {
        name: "add_layernorm",
        about: "h[m, n] = x + r, y[m, n] = (h − mean(h)) · rsqrt(var(h) + eps) · w[n] + b[n] by rows",
        forms: &[form!("chunks", "add_layernorm.tile"), form!("row", "add_layernorm.row.tile", Whole "n"), form!("shared", "add_layernorm.shared.tile", Whole "n")],
        traffic: |sizes| 4.0 * product(sizes),
        reference: references::add_layernorm,
        tolerance: |_| (4.0, 4e-3),
        narrow: true,
        staged: 2,
        ..STAGED_ROWS
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
            form!("shared", "rmsnorm_backward.shared.tile" "rmsnorm_backward.sum.tile", Whole "n"),
        ],
        knobs: &[BM, BN, PIECES, CLUSTER, SPLIT, THREADS],
        traffic: |sizes| 3.0 * product(sizes),
        live: 7,
        staged: 5,
        reference: references::rmsnorm_backward,
        tolerance: |_| (8.0, 1e-3),
        narrow: true,
        ..ROWS
    };
    AddRmsnormBackward = TextOperator {
        name: "add_rmsnorm_backward",
        about: "dx[m, n], of both summands, and dw[n] (f32) of add_rmsnorm, from x (its h), w, dy and dh",
        forms: &[
            form!("chunks", "add_rmsnorm_backward.tile" "rmsnorm_backward.dw.tile" "rmsnorm_backward.sum.tile"),
            form!("row", "add_rmsnorm_backward.row.tile" "rmsnorm_backward.sum.tile", Whole "n"),
            form!("shared", "add_rmsnorm_backward.shared.tile" "rmsnorm_backward.sum.tile", Whole "n"),
        ],
        knobs: &[BM, BN, PIECES, CLUSTER, SPLIT, THREADS],
        traffic: |sizes| 4.0 * product(sizes),
        live: 7,
        staged: 7,
        reference: references::add_rmsnorm_backward,
        tolerance: |_| (8.0, 2e-3),
        narrow: true,
        ..ROWS
    };
    LayernormBackward = TextOperator {
        name: "layernorm_backward",
        about: "dx[m, n], dw[n] and db[n] (f32) of layernorm, from x, w and dy",
        forms: &[
            form!("chunks", "layernorm_backward.tile" "layernorm_backward.dw.tile" "layernorm_backward.sum.tile"),
            form!("row", "layernorm_backward.row.tile" "layernorm_backward.sum.tile", Whole "n"),
            form!("shared", "layernorm_backward.shared.tile" "layernorm_backward.sum.tile", Whole "n"),
        ],
        knobs: &[BM, BN, PIECES, CLUSTER, SPLIT, THREADS],
        traffic: |sizes| 3.0 * product(sizes),
        live: 7,
        staged: 5,
        reference: references::layernorm_backward,
        tolerance: |_| (8.0, 1e-3),
        narrow: true,
        ..ROWS
    };
    AddLayernormBackward = TextOperator {
        name: "add_layernorm_backward",
        about: "dx[m, n], of both summands, dw[n] and db[n] (f32) of add_layernorm, from x (its h), w, dy and dh",
        forms: &[
            form!("chunks", "add_layernorm_backward.tile" "layernorm_backward.dw.tile" "layernorm_backward.sum.tile"),
            form!("row", "add_layernorm_backward.row.tile" "layernorm_backward.sum.tile", Whole "n"),
            form!("shared", "add_layernorm_backward.shared.tile" "layernorm_backward.sum.tile", Whole "n"),
        ],
        knobs: &[BM, BN, PIECES, CLUSTER, SPLIT, THREADS],
        traffic: |sizes| 4.0 * product(sizes),
        live: 7,
        staged: 7,
        reference: references::add_layernorm_backward,
        tolerance: |_| (8.0, 2e-3),
        narrow: true,
        ..ROWS
    };
    SumColumns = TextOperator {
        name: "sum_columns",
        about: "y[n] = Σ x[m, n] over m, in f32",
        forms: &[form!("tiles", "sum_columns.tile" "sum_parts.tile"), form!("direct", "sum_columns.direct.tile")],
        knobs: &[BM, BN, SPLIT, THREADS],
        space: space::columns,
        traffic: product,
        reference: references::sum_columns,
        tolerance: |_| (2.0, 1e-4),
        ..ELEMENTWISE
    };
    MeanColumns = TextOperator {
        name: "mean_columns",
        about: "y[n] = Σ x[m, n] / m over m, in f32",
        forms: &[form!("tiles", "sum_columns.tile" "mean_parts.tile"), form!("direct", "mean_columns.direct.tile")],
        knobs: &[BM, BN, SPLIT, THREADS],
        space: space::columns,
        traffic: product,
        reference: references::mean_columns,
        tolerance: |_| (2.0, 1e-5),
        ..ELEMENTWISE
    };
    MaxColumns = TextOperator {
        name: "max_columns",
        about: "y[n] = max x[m, n] over m",
        forms: &[form!("tiles", "max_columns.tile" "max_parts.tile"), form!("direct", "max_columns.direct.tile")],
        knobs: &[BM, BN, SPLIT, THREADS],
        space: space::columns,
        traffic: product,
        reference: references::max_columns,
        tolerance: |_| (0.0, 0.0),
        ..ELEMENTWISE
    };
    Softmax = TextOperator {
        name: "softmax",
        about: "y[m, n] = exp(x − max(x)) / Σ exp(x − max(x)) by rows",
        forms: &[form!("chunks", "softmax.tile"), form!("row", "softmax.row.tile", Whole "n"), form!("shared", "softmax.shared.tile", Whole "n")],
        reference: references::softmax,
        ..STAGED_ROWS
    };
    LogSoftmax = TextOperator {
        name: "log_softmax",
        about: "y[m, n] = x − log Σ exp(x) by rows",
        forms: &[form!("chunks", "log_softmax.tile"), form!("row", "log_softmax.row.tile", Whole "n"), form!("shared", "log_softmax.shared.tile", Whole "n")],
        reference: references::log_softmax,
        tolerance: |_| (2.0, 1e-5),
        ..STAGED_ROWS
    };
    SoftmaxRagged = TextOperator {
        name: "softmax_ragged",
        about: "y[m, n] = softmax of the first lengths[m] elements of each row, 0 behind them",
        forms: &[form!("chunks", "softmax_ragged.tile"), form!("row", "softmax_ragged.row.tile", Whole "n")],
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
        reference: references::embedding,
        ..GATHERED
    };
    CrossEntropy = TextOperator {
        name: "cross_entropy",
        about: "lse[m] = log Σ exp(x[m, n]), loss[m] = lse − x[m, target[m]]",
        forms: &[form!("chunks", "cross_entropy.tile"), form!("row", "cross_entropy.row.tile", Whole "n")],
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
    KlDiv = TextOperator {
        name: "kl_div",
        about: "loss[m] = Σ target[m, n] · (log target − x[m, n]) over n, where x are logarithms; a target that is not above 0 adds nothing",
        forms: &[form!("chunks", "kl_div.tile")],
        large: &[4096, 131072],
        floats: &[("target", 0.0, 1.0), ("x", -8.0, 0.0)],
        live: 5,
        reference: references::kl_div,
        tolerance: |_| (4.0, 1e-4),
        ..ROWS
    };
    Jsd = TextOperator {
        name: "jsd",
        about: "loss[m] = beta · KL(exp target[m, n], mix) + (1 − beta) · KL(exp x[m, n], mix) over n, mix = beta · exp target + (1 − beta) · exp x",
        forms: &[form!("chunks", "jsd.tile")],
        large: &[8192, 131072],
        floats: &[("target", -8.0, 0.0), ("x", -8.0, 0.0)],
        live: 8,
        reference: references::jsd,
        tolerance: |_| (4.0, 1e-4),
        ..ROWS
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
        forms: &[form!("chunks", "argmax.tile"), form!("row", "argmax.row.tile", Whole "n")],
        traffic: product,
        reference: references::argmax,
        tolerance: |_| (0.0, 0.0),
        // The columns that are read again.
        narrow: true,
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
    PermuteReversed = TextOperator {
        name: "permute_reversed",
        about: "y[n, m, l] = x[l, m, n]",
        forms: &[form!("tiles", "permute_reversed.tile")],
        sizes: &[("l", SizeKind::Extent), ("m", SizeKind::Count), ("n", SizeKind::Extent)],
        edges: &[&[1, 1, 1], &[17, 3, 1], &[65, 1, 1000], &[24, 5, 64], &[3, 2, 4097]],
        large: &[4096, 8, 4096],
        reference: references::permute_reversed,
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
        edges: &[&[1, 1, 1, 1], &[2, 17, 5, 128], &[1, 33, 8, 1000], &[3, 5, 7, 24], &[1, 3, 4097, 8]],
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
    GatherGemv = TextOperator {
        name: "gather_gemv",
        about: "y[t, m] = w[ids[t], m, n] · x[n] with weights of i8, sums in f32",
        forms: &[form!("chunks", "gather_gemv.tile")],
        sizes: &[
            ("t", SizeKind::Count),
            ("e", SizeKind::Count),
            ("m", SizeKind::Extent),
            ("n", SizeKind::Extent),
        ],
        edges: &[&[1, 1, 1, 1], &[2, 3, 17, 1], &[3, 2, 1, 17], &[2, 2, 3, 1000], &[1, 2, 100, 128], &[1, 1, 2, 4097]],
        large: &[2, 8, 16384, 16384],
        tables: &["e"],
        indices: &[("ids", "e")],
        traffic: |sizes| 0.5 * (sizes[0] * sizes[2] * sizes[3]) as f64,
        space: space::met,
        reference: references::gather_gemv,
        tolerance: |_| (2.0, 1e-3),
        // The numbers of the matrices, and results.
        narrow: true,
        ..ROWS
    };
    GemvTransposed = TextOperator {
        name: "gemv_transposed",
        about: "y[l, n] = a[l, m, n]ᵀ · x[l, m], sums in f32",
        forms: &[
            form!("tiles", "gemv_transposed.tile" "gemv_transposed.sum.tile"),
            form!("direct", "gemv_transposed.direct.tile"),
        ],
        knobs: &[BM, BN, SPLIT, THREADS],
        sizes: LMN,
        edges: BATCHES,
        large: &[1, 16384, 8192],
        space: space::columns,
        traffic: product,
        reference: references::gemv_transposed,
        tolerance: |_| (2.0, 1e-4),
        // An element of the vector for each row.
        narrow: true,
        ..ELEMENTWISE
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
    SumRagged = TextOperator {
        name: "sum_ragged",
        about: "y[b, n] = Σ x[t, n] over the rows t from begins[b] to begins[b + 1], in f32",
        forms: &[form!("tiles", "sum_ragged.tile")],
        reference: |sizes, values| references::sum_ragged(sizes, values, false),
        tolerance: |_| (2.0, 1e-4),
        ..RAGGED
    };
    MeanRagged = TextOperator {
        name: "mean_ragged",
        about: "y[b, n] = the mean of x[t, n] over the rows t from begins[b] to begins[b + 1], in f32, 0 where there is none",
        forms: &[form!("tiles", "mean_ragged.tile")],
        reference: |sizes, values| references::sum_ragged(sizes, values, true),
        tolerance: |_| (2.0, 1e-5),
        ..RAGGED
    };
    MeanRows = TextOperator {
        name: "mean_rows",
        about: "y[m] = Σ x[m, n] / n over n, in f32",
        forms: &[form!("chunks", "mean_rows.tile")],
        traffic: product,
        reference: references::mean_rows,
        tolerance: |_| (2.0, 1e-5),
        ..ROWS
    };
    MaxRows = TextOperator {
        name: "max_rows",
        about: "y[m] = max x[m, n] over n",
        forms: &[form!("chunks", "max_rows.tile")],
        traffic: product,
        reference: references::max_rows,
        tolerance: |_| (0.0, 0.0),
        ..ROWS
    };
    SumAll = TextOperator {
        name: "sum_all",
        about: "y[1] = Σ x[n] over all elements, in f32; the last block adds what the others left",
        forms: &[form!("blocks", "sum_all.tile")],
        ..WHOLE
    };
    MaxAll = TextOperator {
        name: "max_all",
        about: "y[1] = the largest x[n] of all, in f32; the last block finds it in what the others left",
        forms: &[form!("blocks", "max_all.tile")],
        reference: references::max_all,
        tolerance: |_| (0.0, 0.0),
        ..WHOLE
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
        knobs: &[BM, BN, THREADS],
        edges: MATRICES,
        space: space::elementwise,
        reference: |sizes, values| references::quantise(sizes, values, Some(128), 448.0),
        ..QUANTISE
    };
    QuantiseBlocksInt8 = TextOperator {
        name: "quantise_blocks_int8",
        about: "y[m, n] = x / s[m, n/128] in i8, with s = max(|x|) / 127 of 128 columns of a row",
        forms: &[form!("tiles", "quantise_blocks_int8.tile")],
        knobs: &[BM, BN, THREADS],
        edges: MATRICES,
        space: space::elementwise,
        reference: |sizes, values| references::quantise(sizes, values, Some(128), 127.0),
        tolerance: |name| if name == "s" { (8.0, 0.0) } else { (0.0, 0.501) },
        needs: Features::NONE,
        ..QUANTISE
    };
    QuantiseMxFp8E4m3 = TextOperator {
        name: "quantise_mxfp8_e4m3",
        about: "y[m, n] = x / s[m, n/32] in e4m3, with s a power of two for 32 columns of a row (OCP Microscaling Formats)",
        forms: &[form!("tiles", "quantise_mxfp8_e4m3.tile")],
        reference: |sizes, values| references::quantise_mx(sizes, values, DType::E4M3),
        ..QUANTISE_BLOCKS
    };
    QuantiseMxFp8E5m2 = TextOperator {
        name: "quantise_mxfp8_e5m2",
        about: "y[m, n] = x / s[m, n/32] in e5m2, with s a power of two for 32 columns of a row (OCP Microscaling Formats)",
        forms: &[form!("tiles", "quantise_mxfp8_e5m2.tile")],
        reference: |sizes, values| references::quantise_mx(sizes, values, DType::E5M2),
        ..QUANTISE_BLOCKS
    };
    QuantiseMxFp6E3m2 = TextOperator {
        name: "quantise_mxfp6_e3m2",
        about: "y[m, n] = x / s[m, n/32] in e3m2, a byte each, with s a power of two for 32 columns of a row (OCP Microscaling Formats)",
        forms: &[form!("tiles", "quantise_mxfp6_e3m2.tile")],
        reference: |sizes, values| references::quantise_mx(sizes, values, DType::E3M2),
        needs: Features::NONE,
        ..QUANTISE_BLOCKS
    };
    QuantiseMxFp6E2m3 = TextOperator {
        name: "quantise_mxfp6_e2m3",
        about: "y[m, n] = x / s[m, n/32] in e2m3, a byte each, with s a power of two for 32 columns of a row (OCP Microscaling Formats)",
        forms: &[form!("tiles", "quantise_mxfp6_e2m3.tile")],
        reference: |sizes, values| references::quantise_mx(sizes, values, DType::E2M3),
        needs: Features::NONE,
        ..QUANTISE_BLOCKS
    };
    QuantiseMxFp4 = TextOperator {
        name: "quantise_mxfp4",
        about: "y[m, n] = x / s[m, n/32] in e2m1, with s a power of two for 32 columns of a row (OCP Microscaling Formats)",
        forms: &[form!("tiles", "quantise_mxfp4.tile")],
        reference: |sizes, values| references::quantise_mx(sizes, values, DType::E2M1),
        needs: Features::NONE,
        ..QUANTISE_BLOCKS
    };
    QuantiseNvFp4 = TextOperator {
        name: "quantise_nvfp4",
        about: "y[m, n] = x / s[m, n/16] in e2m1, with s = max(|x|) / 6 in ue4m3 for 16 columns of a row",
        forms: &[form!("tiles", "quantise_nvfp4.tile")],
        reference: references::quantise_nv,
        needs: Features::NONE,
        ..QUANTISE_BLOCKS
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
        forms: &[
            form!("pairs", "selective_scan.tile"),
            form!("quads", "selective_scan.quads.tile"),
            form!("few", "selective_scan.few.tile"),
        ],
        knobs: &[],
        sizes: &[("b", SizeKind::Count), ("d", SizeKind::Extent), ("l", SizeKind::Depth)],
        edges: &[&[1, 1, 1], &[2, 5, 17], &[1, 40, 100], &[1, 33, 64], &[1, 3, 1000], &[1, 1, 4097]],
        large: &[8, 5120, 2048],
        floats: &[("a", -1.0, -0.1), ("bias", -4.0, -3.0)],
        space: space::forms,
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
    SumMiddle = TextOperator {
        name: "sum_middle",
        about: "y[l, n] = Σ x[l, m, n] over m, in f32",
        forms: &[form!("tiles", "sum_middle.tile")],
        sizes: LMN,
        edges: BATCHES,
        large: &[64, 1024, 1024],
        space: space::middle,
        traffic: product,
        reference: references::sum_columns,
        tolerance: |_| (2.0, 1e-4),
        ..ELEMENTWISE
    };
    MeanMiddle = TextOperator {
        name: "mean_middle",
        about: "y[l, n] = Σ x[l, m, n] / m over m, in f32",
        forms: &[form!("tiles", "mean_middle.tile")],
        sizes: LMN,
        edges: BATCHES,
        large: &[64, 1024, 1024],
        space: space::middle,
        traffic: product,
        reference: references::mean_columns,
        tolerance: |_| (2.0, 1e-5),
        ..ELEMENTWISE
    };
    MaxMiddle = TextOperator {
        name: "max_middle",
        about: "y[l, n] = max x[l, m, n] over m",
        forms: &[form!("tiles", "max_middle.tile")],
        sizes: LMN,
        edges: BATCHES,
        large: &[64, 1024, 1024],
        space: space::middle,
        traffic: product,
        reference: references::max_columns,
        tolerance: |_| (0.0, 0.0),
        ..ELEMENTWISE
    };
    Topk = TextOperator {
        name: "topk",
        about: "v[m, k], y[m, k]: the k largest x[m, n] of each row, the largest first, and their columns; of equals the first",
        forms: &[form!("groups", "topk.tile")],
        knobs: &[
            Knob { name: "k", constant: "K", about: "How many elements, at most 1024; the next power of two is at most bn · chunks / 64." },
            BN,
            Knob { name: "chunks", constant: "CH", about: "Chunks of bn columns whose maxima are sorted at once." },
            THREADS,
        ],
        edges: &[&[1, 1], &[3, 17], &[2, 1000], &[5, 128], &[1, 4097]],
        large: &[128, 131072],
        space: space::selection,
        traffic: product,
        reference: references::topk,
        tolerance: |_| (0.0, 0.0),
        narrow: true,
        ..ROWS
    };
    TopP = TextOperator {
        name: "top_p",
        about: "y[m]: a column drawn by u[m] from the softmax of x[m, n], cut to the fewest largest elements that have p of it",
        forms: &[form!("chunks", "top_p.tile"), form!("row", "top_p.row.tile", Whole "n")],
        knobs: &[BN, THREADS],
        large: &[128, 128256],
        floats: &[("u", 0.0, 1.0), ("x", -8.0, 8.0)],
        live: 5,
        traffic: product,
        reference: references::top_p,
        tolerance: |_| (0.0, 0.0),
        narrow: true,
        ..ROWS
    };
    Histogram = TextOperator {
        name: "histogram",
        about: "h[v]: how many x[n] are each of 0..v",
        forms: &[form!("bins", "histogram.zero.tile" "histogram.tile")],
        knobs: &[
            Knob { name: "bins", constant: "BINS", about: "Bins that a block counts, in shared memory." },
            Knob { name: "bn", constant: "T", about: "Elements that a block reads at a time." },
            Knob { name: "chunks", constant: "C", about: "How often it does." },
            THREADS,
        ],
        sizes: &[("n", SizeKind::Extent), ("v", SizeKind::Extent)],
        edges: &[&[1, 1], &[17, 3], &[1000, 17], &[4097, 1000], &[9000, 2050]],
        large: &[1 << 24, 1024],
        tables: &["v"],
        indices: &[("x", "v")],
        space: space::bins,
        // Integers of 32 bits.
        traffic: |sizes| 2.0 * sizes[0] as f64,
        reference: references::histogram,
        tolerance: |_| (0.0, 0.0),
        types: &[DType::F16],
        open_order: true,
        narrow: true,
        ..ELEMENTWISE
    };
    EmbeddingBackward = TextOperator {
        name: "embedding_backward",
        about: "dw[v, n] = Σ dy[t, n] over the t whose ids[t] is v, in f32",
        forms: &[form!("tiles", "embedding_backward.zero.tile" "embedding_backward.tile")],
        traffic: |sizes| (3 * sizes[0] * sizes[2] + 2 * sizes[1] * sizes[2]) as f64,
        large: &[65536, 32000, 4096],
        reference: references::embedding_backward,
        tolerance: |_| (16.0, 1e-4),
        open_order: true,
        ..GATHERED
    };
    Scatter = TextOperator {
        name: "scatter",
        about: "y[v, n] = x[t, n] for v = ids[t], of which no two are equal",
        forms: &[form!("tiles", "scatter.tile")],
        distinct: &["ids"],
        reference: references::scatter,
        ..GATHERED
    };
    ScatterAdd = TextOperator {
        name: "scatter_add",
        about: "y[v, n] += x[t, n] for v = ids[t]",
        forms: &[form!("tiles", "scatter_add.tile")],
        traffic: |sizes| 3.0 * (sizes[0] * sizes[2]) as f64,
        reference: references::scatter_add,
        // A rounding an addition.
        tolerance: |_| (16.0, 0.1),
        open_order: true,
        ..GATHERED
    };
    BatchedGemm = TextOperator {
        name: "batched_gemm",
        about: "c[l, m, n] = a[l, m, k] · b[l, n, k]ᵀ for many small matrices, sums in f32",
        forms: &[form!("tiles", "batched_gemm.tile")],
        knobs: &[BM, BN, BK, THREADS],
        sizes: &[
            ("l", SizeKind::Count),
            ("m", SizeKind::Extent),
            ("n", SizeKind::Extent),
            ("k", SizeKind::Depth),
        ],
        edges: &[&[1, 1, 1, 1], &[2, 17, 33, 100], &[3, 64, 64, 64], &[1, 5, 1000, 17], &[1, 4097, 3, 8]],
        large: &[1024, 128, 128, 64],
        space: space::products,
        traffic: |sizes| (sizes[0] * (sizes[1] * sizes[3] + sizes[2] * sizes[3] + sizes[1] * sizes[2])) as f64,
        reference: references::batched_gemm,
        tolerance: |_| (2.0, 1e-3),
        types: FACTORS,
        ..ELEMENTWISE
    };
    LinearCrossEntropy = TextOperator {
        name: "linear_cross_entropy",
        about: "lse[m] = log Σ exp(x[m, k] · w[n, k]ᵀ), loss[m] = lse − the logit of target[m], without the logits in memory",
        forms: &[
            form!("parts", "linear_cross_entropy.tile" "linear_cross_entropy.sum.tile"),
            form!("hopper", "linear_cross_entropy.hopper.tile" "linear_cross_entropy.tiles.tile",
                needs Features::of(&[Feature::Wgmma, Feature::Tma])),
        ],
        knobs: &[BM, BN, BK, SPLIT, THREADS],
        sizes: &[("m", SizeKind::Extent), ("n", SizeKind::Extent), ("k", SizeKind::Depth)],
        edges: PRODUCTS,
        large: &[4096, 128256, 4096],
        indices: &[("target", "n")],
        space: space::products,
        traffic: |sizes| (sizes[2] * (sizes[0] + sizes[1])) as f64,
        reference: references::linear_cross_entropy,
        tolerance: |_| (4.0, 1e-4),
        types: FACTORS,
        narrow: true,
        ..ELEMENTWISE
    };
    LinearCrossEntropyBackward = TextOperator {
        name: "linear_cross_entropy_backward",
        about: "dx[m, k] = g · w and dw[n, k] = gᵀ · x (f32), g[m, n] = (exp(x · wᵀ − lse[m]) − (n = target[m])) · dloss[m], of which some rows are in memory at a time",
        forms: &[form!("tiles", "linear_cross_entropy_backward.tile")],
        knobs: &[
            BM,
            BN,
            BK,
            Knob { name: "rows", constant: "ROWS", about: "Tiles of `bm` rows of the logits' gradient that are in memory at a time." },
            Knob { name: "blocks", constant: "BLOCKS", about: "Blocks, which all run at once." },
            THREADS,
        ],
        sizes: &[("m", SizeKind::Extent), ("n", SizeKind::Extent), ("k", SizeKind::Depth)],
        edges: PRODUCTS,
        large: &[4096, 128256, 4096],
        indices: &[("target", "n")],
        floats: &[("lse", 8.0, 10.0)],
        space: space::chunks,
        traffic: |sizes| (2 * sizes[2] * (2 * sizes[0] + 3 * sizes[1])) as f64,
        reference: references::linear_cross_entropy_backward,
        // The gradients of the logits are rounded to `dtype`, and have sums over them.
        tolerance: |_| (8.0, 4e-2),
        types: FACTORS,
        narrow: true,
        ..ELEMENTWISE
    };
    Mamba2 = TextOperator {
        name: "mamba2",
        about: "y[b, l, h, 64] = h · cs + skip · x, h = exp(dt · a) · h + dt · x ⊗ bs with 128 states, dt = softplus(delta + bias), a ≤ 0",
        forms: &[form!("chunks", "mamba2.tile")],
        knobs: &[THREADS],
        sizes: &[("b", SizeKind::Count), ("l", SizeKind::Depth), ("h", SizeKind::Extent)],
        edges: &[&[1, 1, 1], &[2, 17, 3], &[1, 64, 2], &[1, 257, 1], &[1, 1000, 1], &[1, 4097, 1]],
        large: &[8, 2048, 80],
        floats: &[("a", -1.0, -0.1), ("bias", -2.0, -1.0)],
        space: space::warpgroups,
        traffic: |sizes| 128.0 * product(sizes),
        reference: references::mamba2,
        tolerance: |_| (8.0, 4e-2),
        types: FACTORS,
        narrow: true,
        ..ELEMENTWISE
    };
}
