//! Rows that rows of the table are made of: the knobs, sizes and edges of families of operators.

use tilewright_machine::{Feature, Features};

use super::operator::{FLOATS, Knob, TextOperator};
use super::{references, space};
use crate::tuning::SizeKind;

pub(super) const BM: Knob = Knob { name: "bm", constant: "BM", about: "Rows of a block's tile." };
pub(super) const BN: Knob = Knob { name: "bn", constant: "BN", about: "Columns of a block's tile." };
pub(super) const THREADS: Knob = Knob { name: "threads", constant: "THREADS", about: "Threads of a block." };

pub(super) const BK: Knob =
    Knob { name: "bk", constant: "BK", about: "Columns of both factors that a block multiplies at a time." };

pub(super) const SPLIT: Knob =
    Knob { name: "split", constant: "SPLIT", about: "Parts of the rows that are summed apart." };

pub(super) const CLUSTER: Knob =
    Knob { name: "cluster", constant: "C", about: "Blocks that hold a row together, each as much of it." };

pub(super) const PIECES: Knob = Knob {
    name: "pieces",
    constant: "K",
    about: "Pieces of `bn` columns that a block holds in shared memory.",
};

pub(super) const MN: &[(&str, SizeKind)] = &[("m", SizeKind::Extent), ("n", SizeKind::Extent)];

/// One, one more and one less than vectors and tiles, many short rows and few long ones.
pub(super) const MATRICES: &[&[i64]] =
    &[&[1, 1], &[1, 17], &[17, 1], &[3, 1000], &[5, 1024], &[100, 17], &[131, 128], &[1, 4097]];

/// The same, and rows that are too long for one block.
pub(super) const CLUSTERED: &[&[i64]] = &[
    &[1, 1],
    &[1, 17],
    &[17, 1],
    &[3, 1000],
    &[100, 17],
    &[5, 1024],
    &[131, 128],
    &[1, 4097],
    &[1, 40001],
    &[1, 131072],
];

pub(super) const LMN: &[(&str, SizeKind)] =
    &[("l", SizeKind::Count), ("m", SizeKind::Extent), ("n", SizeKind::Extent)];

/// The same in batches.
pub(super) const BATCHES: &[&[i64]] =
    &[&[1, 1, 1], &[3, 1, 17], &[2, 17, 1], &[1, 65, 1000], &[5, 24, 64], &[1, 3, 4097]];

/// The same of the sizes m, n and k of a product.
pub(super) const PRODUCTS: &[&[i64]] =
    &[&[1, 1, 1], &[17, 17, 33], &[3, 1000, 64], &[130, 257, 17], &[2, 4097, 40]];

/// A row of elementwise programs over `[m, n]`.
pub(super) const ELEMENTWISE: TextOperator = TextOperator {
    name: "",
    about: "",
    forms: &[],
    knobs: &[BM, BN, THREADS],
    sizes: MN,
    needs: Features::NONE,
    types: FLOATS,
    open_order: false,
    narrow: false,
    edges: MATRICES,
    large: &[16384, 8192],
    tables: &[],
    indices: &[],
    distinct: &[],
    floats: &[],
    live: 3,
    staged: 1,
    space: space::elementwise,
    traffic: |sizes| 2.0 * product(sizes),
    reference: references::copy,
    tolerance: |_| (2.0, 1e-7),
};

/// A row of programs with sums over rows of `[m, n]`.
pub(super) const ROWS: TextOperator = TextOperator { space: space::rows, ..ELEMENTWISE };

/// Rows that a cluster may hold together, of more than one block's elements too.
pub(super) const HELD_ROWS: TextOperator =
    TextOperator { knobs: &[BM, BN, CLUSTER, THREADS], edges: CLUSTERED, ..ROWS };

/// Rows that a cluster may hold in registers or in shared memory.
pub(super) const STAGED_ROWS: TextOperator =
    TextOperator { knobs: &[BM, BN, PIECES, CLUSTER, THREADS], ..HELD_ROWS };

/// A row of reductions of a whole tensor.
pub(super) const WHOLE: TextOperator = TextOperator {
    knobs: &[
        BN,
        Knob { name: "blocks", constant: "BLOCKS", about: "Blocks, which share the tensor in turns." },
        THREADS,
    ],
    sizes: &[("n", SizeKind::Extent)],
    edges: &[&[1], &[17], &[1000], &[4097], &[300_001]],
    large: &[1 << 27],
    space: space::whole,
    traffic: product,
    reference: references::sum_all,
    tolerance: |_| (2.0, 1e-4),
    // What the blocks leave.
    narrow: true,
    ..ELEMENTWISE
};

/// A row of rotary embeddings of `[t, h, d]`.
pub(super) const ROPE: TextOperator = TextOperator {
    knobs: &[
        BM,
        Knob { name: "heads", constant: "HB", about: "Heads of a block's tile." },
        Knob { name: "d", constant: "D", about: "Numbers of a head." },
        THREADS,
    ],
    sizes: &[("t", SizeKind::Extent), ("h", SizeKind::Extent)],
    edges: &[&[1, 1], &[17, 8], &[3, 33], &[131, 5], &[1000, 1], &[4097, 1]],
    large: &[32768, 32],
    space: space::heads,
    // Of heads of 128 numbers.
    traffic: |sizes| 256.0 * product(sizes) + 128.0 * sizes[0] as f64,
    ..ELEMENTWISE
};

/// A row of programs over rows that indices name.
pub(super) const GATHERED: TextOperator = TextOperator {
    knobs: &[Knob { name: "bm", constant: "R", about: "Rows that a block copies." }, BN, THREADS],
    sizes: &[("t", SizeKind::Extent), ("v", SizeKind::Extent), ("n", SizeKind::Extent)],
    edges: &[&[1, 1, 1], &[17, 5, 17], &[3, 1000, 1000], &[131, 7, 128], &[2, 3, 4097]],
    large: &[65536, 128256, 4096],
    tables: &["v"],
    indices: &[("ids", "v")],
    // The numbers of the rows.
    narrow: true,
    space: space::gathered,
    traffic: |sizes| 2.0 * (sizes[0] * sizes[2]) as f64,
    ..ELEMENTWISE
};

/// A row of sums over the rows of sequences, one behind the other.
pub(super) const RAGGED: TextOperator = TextOperator {
    sizes: &[("b", SizeKind::Count), ("t", SizeKind::Extent), ("n", SizeKind::Extent)],
    edges: &[&[1, 1, 1], &[3, 17, 17], &[5, 1000, 3], &[2, 64, 128], &[1, 3, 1000], &[2, 3, 4097]],
    large: &[64, 65536, 1024],
    tables: &["b"],
    indices: &[("begins", "t")],
    // Where sequences begin.
    narrow: true,
    space: space::ragged,
    traffic: |sizes| (sizes[1] * sizes[2]) as f64,
    ..ELEMENTWISE
};

/// A row of quantisations of `[m, n]` to 8 bits.
pub(super) const QUANTISE: TextOperator = TextOperator {
    needs: Features::of(&[Feature::Fp8Conversion]),
    traffic: |sizes| 1.5 * product(sizes),
    // A quotient may lie on the other side of a tie; subnormal results are multiples of 2^-9.
    tolerance: |name| if name == "s" { (8.0, 0.0) } else { (1.01, 0.00098) },
    ..HELD_ROWS
};

/// Quotients of blocks of columns, exact before they are rounded once.
pub(super) const QUANTISE_BLOCKS: TextOperator = TextOperator {
    knobs: &[BM, BN, THREADS],
    edges: MATRICES,
    space: space::elementwise,
    tolerance: |_| (0.0, 0.0),
    ..QUANTISE
};

pub(super) fn product(sizes: &[i64]) -> f64 {
    sizes.iter().map(|n| *n as f64).product()
}
