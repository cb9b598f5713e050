//! The choices about a product, as data.

use std::fmt;
use std::str::FromStr;

use tilewright_tile::TileOrder;
use tilewright_tile::dsl::{grouped, hilbert, serpentine};

/// The order of an operand's modes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Major {
    /// Contiguous along k: `a[m, k]`, `b[n, k]`, row-major.
    K,
    /// Contiguous along m or n: the transpose, `[k, m]` or `[k, n]`, is row-major.
    Mn,
}

/// The shape of clusters of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cluster {
    /// Each block is on its own.
    None,
    /// `n` neighbours along m: each loads a part of their tile of B and multicasts it.
    AlongM(i64),
    /// `n` neighbours along n: each loads a part of their tile of A and multicasts it.
    AlongN(i64),
    /// So many along m and along n: each block loads a part of its tile of A for the neighbours along n, which have the same rows, and a part
    /// of its tile of B for those along m.
    AlongMn(i64, i64),
    /// `n` blocks share one tile of C: each sums a part of k, and the parts meet in distributed shared memory.
    AlongK(i64),
}

impl Cluster {
    /// Blocks of a cluster.
    pub(crate) fn blocks(self) -> i64 {
        match self {
            Cluster::None => 1,
            Cluster::AlongM(blocks) | Cluster::AlongN(blocks) | Cluster::AlongK(blocks) => blocks,
            Cluster::AlongMn(along_m, along_n) => along_m * along_n,
        }
    }

    /// Blocks of a cluster along m, n and k.
    pub(crate) fn shape(self) -> [i64; 3] {
        match self {
            Cluster::None => [1, 1, 1],
            Cluster::AlongM(blocks) => [blocks, 1, 1],
            Cluster::AlongN(blocks) => [1, blocks, 1],
            Cluster::AlongMn(along_m, along_n) => [along_m, along_n, 1],
            Cluster::AlongK(blocks) => [1, 1, blocks],
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cluster::None => f.write_str("none"),
            Cluster::AlongM(blocks) => write!(f, "m{blocks}"),
            Cluster::AlongN(blocks) => write!(f, "n{blocks}"),
            Cluster::AlongMn(along_m, along_n) => write!(f, "m{along_m}n{along_n}"),
            Cluster::AlongK(blocks) => write!(f, "k{blocks}"),
        }
    }
}

impl FromStr for Cluster {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let some = |text, word| numbered(text, word, "").filter(|blocks| *blocks > 1);
        let one = |word| some(text, word);
        let along = one("m").map(Cluster::AlongM).or_else(|| one("n").map(Cluster::AlongN));
        let both = || {
            let along_n = text.find('n')?;
            Some(Cluster::AlongMn(some(&text[..along_n], "m")?, some(&text[along_n..], "n")?))
        };
        let none = (text == "none").then_some(Cluster::None);
        let found = along.or_else(both).or_else(|| one("k").map(Cluster::AlongK)).or(none);
        found.ok_or("must be none, or m, n or k with a number of blocks, or m and n: m2, m2n2")
    }
}

/// The part of a square C that is computed (the fill mode of BLAS).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FillMode {
    /// All of it.
    #[default]
    Full,
    /// The tiles that hold elements of the lower triangle, those on the diagonal included. What lies above them is not written.
    Lower,
    /// The same tiles, which are stored in both places: C is symmetric.
    Symmetric,
}

impl FillMode {
    /// All of them.
    pub const ALL: [FillMode; 3] = [FillMode::Full, FillMode::Lower, FillMode::Symmetric];
}

impl fmt::Display for FillMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FillMode::Full => "full",
            FillMode::Lower => "lower",
            FillMode::Symmetric => "symmetric",
        })
    }
}

impl FromStr for FillMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        FillMode::ALL
            .into_iter()
            .find(|fill| fill.to_string() == text)
            .ok_or("must be full, lower or symmetric")
    }
}

/// The triangle of A outside of which there are zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Triangle {
    /// None: A is full.
    #[default]
    None,
    /// Elements of row i are in its first i + 1 columns.
    Lower,
    /// Elements of row i are from column i on.
    Upper,
}

impl Triangle {
    /// All of them.
    pub const ALL: [Triangle; 3] = [Triangle::None, Triangle::Lower, Triangle::Upper];
}

impl fmt::Display for Triangle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Triangle::None => "none",
            Triangle::Lower => "lower",
            Triangle::Upper => "upper",
        })
    }
}

impl FromStr for Triangle {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Triangle::ALL.into_iter().find(|triangle| triangle.to_string() == text);
        found.ok_or("must be none, lower or upper")
    }
}

/// The distribution of work over the blocks of a persistent kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Schedule {
    /// Whole tiles.
    #[default]
    DataParallel,
    /// Whole tiles as long as there are two for every block, and what is left by steps along k (stream-K).
    StreamK,
    /// Whole tiles as long as there is one for every block, and what is left by steps along k.
    Remainder,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 3] = [Schedule::DataParallel, Schedule::StreamK, Schedule::Remainder];
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schedule::DataParallel => "data_parallel",
            Schedule::StreamK => "stream_k",
            Schedule::Remainder => "remainder",
        })
    }
}

impl FromStr for Schedule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Schedule::ALL.into_iter().find(|s| s.to_string() == text);
        found.ok_or("must be data_parallel, stream_k or remainder")
    }
}

/// The rasterization order: the order in which the tiles of C are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rasterization {
    /// Groups of this many rows of tiles, each column by column.
    Grouped(i64),
    /// The same, every second group from its last column to its first.
    Serpentine(i64),
    /// Squares of 2ˢ × 2ˢ tiles, each along a Hilbert curve.
    Hilbert(i64),
}

impl Rasterization {
    pub(crate) fn tiles(self) -> TileOrder {
        match self {
            Rasterization::Grouped(rows) => grouped(rows),
            Rasterization::Serpentine(rows) => serpentine(rows),
            Rasterization::Hilbert(order) => hilbert(order),
        }
    }

    /// Rows of tiles that are taken together.
    pub(crate) fn rows(self) -> i64 {
        match self {
            Rasterization::Grouped(rows) | Rasterization::Serpentine(rows) => rows,
            Rasterization::Hilbert(order) => 1 << order,
        }
    }
}

impl fmt::Display for Rasterization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rasterization::Grouped(rows) => write!(f, "grouped({rows})"),
            Rasterization::Serpentine(rows) => write!(f, "serpentine({rows})"),
            Rasterization::Hilbert(order) => write!(f, "hilbert({order})"),
        }
    }
}

impl FromStr for Rasterization {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let grouped = numbered(text, "grouped(", ")").map(Rasterization::Grouped);
        let serpentine = numbered(text, "serpentine(", ")").map(Rasterization::Serpentine);
        let hilbert = numbered(text, "hilbert(", ")").map(Rasterization::Hilbert);
        grouped.or(serpentine).or(hilbert).ok_or("must be grouped(rows), serpentine(rows) or hilbert(order)")
    }
}

/// The batching mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Batch {
    /// One product.
    None,
    /// `l` products one after the other in memory: `a[l, m, k]`, `b[l, n, k]`, `c[l, m, n]`.
    Packed,
    /// `l` products whose matrices begin `step_a`, `step_b` and `step_c` elements apart.
    Strided,
    /// `l` products whose matrices lie anywhere in memory: `a[l][m, k]`, `b[l][n, k]`, `c[l][m, n]` are arrays of tensors.
    Pointers,
    /// One product a group of rows of A, each with a matrix of its own: `a[m, k]`, `b[g, n, k]`, `c[m, n]`. The rows are sorted by group, and
    /// each group's begin at a multiple of the rows of A in a tile; `groups[ceil_div(m, rows)]` (i32) has the group of each such tile,
    /// −1 for rows that are padding. There all sums are 0.
    Grouped,
    /// The same for rows that lie one group behind the other, with no padding. There are `t` tiles of rows: `groups[t]` has the group of
    /// each, −1 of an unused tile, `first[t]` its first row, and `ends[g]` the row behind each group's last. All are i32. What a tile has
    /// behind its group's end is not written.
    Ragged,
}

impl Batch {
    /// Returns whether there are several products, each with an A of its own.
    pub(crate) fn counts_products(self) -> bool {
        self != Batch::None && !self.has_groups()
    }

    /// Returns whether tiles of rows of A belong to groups.
    pub(crate) fn has_groups(self) -> bool {
        matches!(self, Batch::Grouped | Batch::Ragged)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Batch::None => "none",
            Batch::Packed => "packed",
            Batch::Strided => "strided",
            Batch::Pointers => "pointers",
            Batch::Grouped => "grouped",
            Batch::Ragged => "ragged",
        })
    }
}

impl FromStr for Batch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all =
            [Batch::None, Batch::Packed, Batch::Strided, Batch::Pointers, Batch::Grouped, Batch::Ragged];
        all.into_iter()
            .find(|b| b.to_string() == text)
            .ok_or("must be none, packed, strided, pointers, grouped or ragged")
    }
}

/// The value of C made of the product with B, `g`, and that with the second matrix, `u`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dual {
    /// `g`: there is no second matrix.
    #[default]
    None,
    /// `g + u`, in the accumulators of one product.
    Add,
    /// `g · u`.
    Mul,
    /// `max(g, 0) · u`.
    ReluMul,
    /// `gelu(g) · u`, with the approximation of [`Part::Gelu`](crate::epilogue::Part::Gelu).
    GeluMul,
    /// `silu(g) · u`.
    SiluMul,
}

impl Dual {
    /// All of them.
    pub const ALL: [Dual; 6] =
        [Dual::None, Dual::Add, Dual::Mul, Dual::ReluMul, Dual::GeluMul, Dual::SiluMul];

    /// The matrices that A is multiplied by.
    pub(crate) fn matrices(self) -> i64 {
        if self == Dual::None { 1 } else { 2 }
    }

    /// Accumulators as large as the tile.
    pub(crate) fn sums(self) -> i64 {
        if matches!(self, Dual::None | Dual::Add) { 1 } else { 2 }
    }
}

impl fmt::Display for Dual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dual::None => "none",
            Dual::Add => "add",
            Dual::Mul => "mul",
            Dual::ReluMul => "relu_mul",
            Dual::GeluMul => "gelu_mul",
            Dual::SiluMul => "silu_mul",
        })
    }
}

impl FromStr for Dual {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Dual::ALL.into_iter().find(|dual| dual.to_string() == text);
        found.ok_or("must be none, add, mul, relu_mul, gelu_mul or silu_mul")
    }
}

/// The number in `word12` or `word(12)`, whose word and brackets are given.
fn numbered(value: &str, word: &str, close: &str) -> Option<i64> {
    value.strip_prefix(word)?.strip_suffix(close)?.parse().ok()
}
