//! The families of layouts that the paper names (LL 4.3, 9.1), as linear layouts over `register`, `lane` and `warp`, or
//! over `offset`. Modes are named `dim0`, `dim1`, …; `order` lists modes from the fastest to the slowest. Nothing here
//! knows a GPU: these are the shapes of tiles as the manuals print them. There is no input `block`: a layout is what one
//! block of threads holds.
//!
//! All of them are tiles that grow: each step takes the next free places of one mode, and what is left of the tensor is
//! covered last. Columns are those that Triton has for the layout of the same name; `scripts/layout-oracle` checks it.

use super::tile::{TileBuilder, mode};
use super::{LinearLayout, log2, refuse, total};
use crate::error::LayoutError;

/// The inputs of a register layout.
const THREADS: [&str; 3] = ["register", "lane", "warp"];

fn check_order(operation: &'static str, order: &[usize], rank: usize) -> Result<(), LayoutError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) {
        return Ok(());
    }
    refuse(operation, format!("order {order:?}"), format!("it must name each of {rank} modes once"))
}

/// Checks that `sizes` has a power of two for each of `rank` modes.
pub fn check_sizes(
    operation: &'static str,
    name: &str,
    sizes: &[u64],
    rank: usize,
) -> Result<(), LayoutError> {
    if sizes.len() != rank {
        let reason = format!("it must have an element for each of {rank} modes");
        return refuse(operation, format!("{name} {sizes:?}"), reason);
    }
    sizes.iter().try_for_each(|size| log2(operation, name, *size).map(drop))
}

/// The modes, the last first.
fn minor_first(rank: usize) -> Vec<usize> {
    (0..rank).rev().collect()
}

/// A blocked layout (LL proposition 9.1): each thread holds a block, lanes tile it, warps tile that.
///
/// ```
/// use tilewright_layout::Blocked;
/// // Layout A of LL figure 1, with row-major order.
/// let a = Blocked { registers: vec![2, 2], lanes: vec![4, 8], warps: vec![2, 1], order: vec![1, 0] };
/// let l = a.layout(&[16, 16])?;
/// assert_eq!(
///     l.to_string(),
///     "[register: (0,1) (1,0); lane: (0,2) (0,4) (0,8) (2,0) (4,0); warp: (8,0)] -> [dim0:16, dim1:16]"
/// );
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// Elements of a thread along each mode.
    pub registers: Vec<u64>,
    /// Lanes along each mode.
    pub lanes: Vec<u64>,
    /// Warps along each mode.
    pub warps: Vec<u64>,
    /// The modes, fastest first.
    pub order: Vec<usize>,
}

impl Blocked {
    /// The layout on a tensor of `shape`: where the tile is smaller it repeats in registers, the fastest mode first; where
    /// it is larger, registers that lead out of the tensor are left out, and lanes and warps hold what others hold.
    pub fn layout(&self, shape: &[u64]) -> Result<LinearLayout, LayoutError> {
        self.check(shape)?;
        let tile = TileBuilder::new(&THREADS, shape.len())?
            .runs("register", &self.registers, &self.order, None)?
            .runs("lane", &self.lanes, &self.order, None)?
            .runs("warp", &self.warps, &self.order, None)?;
        Ok(tile.fit("register", shape, &self.order)?.drop_zeros("register"))
    }

    /// A factor of a product whose result has this layout: every thread holds all of K for its rows or columns. For `C`
    /// it is the layout itself. Registers that lead out of the tensor stay, as zeros.
    ///
    /// ```
    /// use tilewright_layout::{Blocked, MmaOperand};
    /// let c = Blocked { registers: vec![1, 1], lanes: vec![2, 2], warps: vec![1, 1], order: vec![1, 0] };
    /// let a = c.operand(MmaOperand::A, &[2, 4])?;
    /// assert_eq!(a.to_string(), "[register: (0,1) (0,2); lane: (0,0) (1,0); warp:] -> [dim0:2, dim1:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn operand(&self, operand: MmaOperand, shape: &[u64]) -> Result<LinearLayout, LayoutError> {
        self.check(shape)?;
        let Some((k, _)) = operand.modes("an operand of a blocked layout", shape.len())? else {
            return self.layout(shape);
        };
        let mut registers = self.registers.clone();
        registers[k] = shape[k];
        TileBuilder::new(&THREADS, shape.len())?
            .runs("register", &registers, &self.order, None)?
            .runs("lane", &self.lanes, &self.order, Some(k))?
            .runs("warp", &self.warps, &self.order, Some(k))?
            .fit("register", shape, &self.order)
    }

    fn check(&self, shape: &[u64]) -> Result<(), LayoutError> {
        let operation = "a blocked layout";
        let rank = shape.len();
        check_order(operation, &self.order, rank)?;
        check_sizes(operation, "shape", shape, rank)?;
        check_sizes(operation, "registers", &self.registers, rank)?;
        check_sizes(operation, "lanes", &self.lanes, rank)?;
        check_sizes(operation, "warps", &self.warps, rank)
    }
}

/// An operand of a matrix instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MmaOperand {
    /// The left factor, M×K.
    A,
    /// The right factor, K×N.
    B,
    /// The accumulator, M×N.
    C,
}

impl MmaOperand {
    /// Of the last two modes of a factor the one along K, and the other; `None` for the accumulator.
    pub fn modes(self, operation: &'static str, rank: usize) -> Result<Option<(usize, usize)>, LayoutError> {
        let [last, before] = last_two(operation, rank)?;
        Ok(match self {
            MmaOperand::A => Some((last, before)),
            MmaOperand::B => Some((before, last)),
            MmaOperand::C => None,
        })
    }
}

/// The last mode and the one before.
fn last_two(operation: &'static str, rank: usize) -> Result<[usize; 2], LayoutError> {
    match rank {
        0 | 1 => refuse(operation, format!("a tensor of {rank} modes"), "a matrix has two"),
        _ => Ok([rank - 1, rank - 2]),
    }
}

/// K first, then the other mode of the matrix, then the batches.
fn factor_order(k: usize, other: usize, rank: usize) -> Vec<usize> {
    [k, other].into_iter().chain(minor_first(rank - 2)).collect()
}

impl LinearLayout {
    /// A tile made to cover a tensor (LL 5.1, broadcasting): repeated in registers along modes in which it is smaller, in
    /// this order; columns that lead out of the tensor become 0 where it is larger. Outputs are `dim0`, `dim1`, ….
    pub fn cover(&self, shape: &[u64], order: &[usize]) -> Result<LinearLayout, LayoutError> {
        let operation = "covering a tensor";
        check_order(operation, order, shape.len())?;
        check_sizes(operation, "shape", shape, shape.len())?;
        let tile = TileBuilder::new(&THREADS, shape.len())?.0.product(self)?;
        if tile.outs.len() != shape.len() {
            return refuse(operation, self, format!("its outputs must be of dim0, …: {} modes", shape.len()));
        }
        TileBuilder(tile).fit("register", shape, order)
    }

    /// The layout of what is left of a tensor when mode `k` is reduced or indexed: a slice of the family that this layout
    /// belongs to (LL proposition 4.8). Registers that lead to 0 are left out, and the modes behind `k` are renamed.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0) (0,1); lane: (2,0) (0,2)] -> [dim0:4, dim1:4]".parse()?;
    /// assert_eq!(l.sliced(0)?.to_string(), "[register: 1; lane: 0 2] -> [dim0:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn sliced(&self, k: usize) -> Result<LinearLayout, LayoutError> {
        let mut left = self.slice(&mode(k))?.drop_zeros("register");
        let names: Vec<String> = left.outs.iter().map(|o| o.name.clone()).collect();
        for (out, name) in left.outs.iter_mut().zip(names) {
            let number = name.strip_prefix("dim").and_then(|n| n.parse::<usize>().ok());
            if let Some(n) = number.filter(|n| *n > k) {
                out.name = mode(n - 1);
            }
        }
        LinearLayout::from_columns(left.ins, left.outs, left.columns)
    }

    /// The tile of one `mma.sync` on m16n8 with elements of `bits` bits (LL proposition 9.2): lanes of four along the
    /// fast mode, eight along the slow one. A is M×K, B is K×N, C is M×N; elements of C have 32 bits and come in pairs.
    /// For factors `vector` consecutive elements are in one lane: 32/`bits` unless more are packed to load them wider.
    ///
    /// ```
    /// use tilewright_layout::{LinearLayout, MmaOperand};
    /// let c = LinearLayout::mma_tile(MmaOperand::C, 2)?;
    /// assert_eq!(c.to_string(), "[register: (0,1) (8,0); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp:] -> [dim0:16, dim1:8]");
    /// let b = LinearLayout::mma_tile(MmaOperand::B, 2)?; // f16
    /// assert_eq!(b.to_string(), "[register: (1,0) (8,0); lane: (2,0) (4,0) (0,1) (0,2) (0,4); warp:] -> [dim0:16, dim1:8]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn mma_tile(operand: MmaOperand, vector: u64) -> Result<LinearLayout, LayoutError> {
        Ok(mma_tile("a tile of mma", operand, vector, 2)?.0)
    }

    /// An operand or the result of `mma.sync` m16n8 over a tensor of `shape` and warps along its modes, those along the
    /// last counting fastest. Factors are held by every warp that needs them, all of K in the same one. `vector` is as in
    /// [`mma_tile`](Self::mma_tile); modes before the last two are batches.
    ///
    /// ```
    /// use tilewright_layout::{LinearLayout, MmaOperand};
    /// let a = LinearLayout::mma(MmaOperand::A, 2, &[2, 2], &[32, 16])?;
    /// assert_eq!(
    ///     a.to_string(),
    ///     "[register: (0,1) (8,0) (0,8); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp: (0,0) (16,0)] -> [dim0:32, dim1:16]"
    /// );
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn mma(
        operand: MmaOperand,
        vector: u64,
        warps: &[u64],
        shape: &[u64],
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "an mma layout";
        let rank = shape.len();
        check_sizes(operation, "shape", shape, rank)?;
        check_sizes(operation, "warps", warps, rank)?;
        let factor = operand.modes(operation, rank)?;
        let order = factor.map_or_else(|| minor_first(rank), |(k, other)| factor_order(k, other, rank));
        mma_tile(operation, operand, vector, rank)?
            .runs("warp", warps, &minor_first(rank), factor.map(|f| f.0))?
            .fit("register", shape, &order)
    }

    /// The accumulator of `wgmma` m64n`n` over a tensor of `shape` and warps along M and N, those along M counting fastest
    /// and coming in fours: a warp holds 16 rows of `n` columns (LL proposition 9.2).
    pub fn wgmma(n: u64, warps: [u64; 2], shape: [u64; 2]) -> Result<LinearLayout, LayoutError> {
        let operation = "a wgmma layout";
        log2(operation, "n", n)?;
        if n < 8 {
            return refuse(operation, format!("m64n{n}"), "n is at least 8");
        }
        check_warpgroups(operation, warps, shape)?;
        mma_tile(operation, MmaOperand::C, 2, 2)?
            .run("register", 1, n / 8)?
            .runs("warp", &warps, &[0, 1], None)?
            .fit("register", &shape, &[1, 0])
    }

    /// The left factor of `wgmma` in registers, `vector` consecutive elements in one lane: [`mma`](Self::mma)'s A, with
    /// warps as in [`wgmma`](Self::wgmma).
    pub fn wgmma_left(vector: u64, warps: [u64; 2], shape: [u64; 2]) -> Result<LinearLayout, LayoutError> {
        let operation = "a wgmma layout";
        check_warpgroups(operation, warps, shape)?;
        mma_tile(operation, MmaOperand::A, vector, 2)?.runs("warp", &warps, &[0, 1], Some(1))?.fit(
            "register",
            &shape,
            &[1, 0],
        )
    }

    /// The tile of `ldmatrix` and `stmatrix` for elements of `bytes` bytes: 4 contiguous bytes a lane, four lanes a row of
    /// 16 bytes (LL 5.3), from `register` and `lane` to `offset`. What the rows' addresses are is the lanes' affair, so the
    /// tile ends here.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// assert_eq!(LinearLayout::ldmatrix_tile(2)?.to_string(), "[register: 1; lane: 2 4] -> [offset:8]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn ldmatrix_tile(bytes: u64) -> Result<LinearLayout, LayoutError> {
        let operation = "a matrix tile";
        let log = log2(operation, "an element", bytes)?;
        if log > 2 {
            return refuse(operation, format!("elements of {bytes} bytes"), "they have 1, 2 or 4");
        }
        LinearLayout::identity(4 >> log, "register", "offset")?
            .product(&LinearLayout::identity(4, "lane", "offset")?)
    }

    /// The unswizzled memory layout of a tensor, from `offset` to the modes, `order` from fastest to slowest (LL 4.3).
    pub fn unswizzled(shape: &[u64], order: &[usize]) -> Result<LinearLayout, LayoutError> {
        let operation = "an unswizzled memory layout";
        check_order(operation, order, shape.len())?;
        check_sizes(operation, "shape", shape, shape.len())?;
        Ok(TileBuilder::new(&["offset"], shape.len())?.runs("offset", shape, order, None)?.0)
    }

    /// The memory layout of mma swizzling (LL definition 4.11): within rows of the fastest mode, chunks of `vector`
    /// elements are exchanged by the row, `per_phase` rows alike and `max_phase` phases. From `offset` to the modes.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l = LinearLayout::mma_swizzled(&[4, 4], &[1, 0], 1, 1, 4)?;
    /// assert_eq!(l.to_string(), "[offset: (0,1) (0,2) (1,1) (2,2)] -> [dim0:4, dim1:4]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn mma_swizzled(
        shape: &[u64],
        order: &[usize],
        vector: u64,
        per_phase: u64,
        max_phase: u64,
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "mma swizzling";
        check_order(operation, order, shape.len())?;
        for (name, size) in [("vector", vector), ("per_phase", per_phase), ("max_phase", max_phase)] {
            log2(operation, name, size)?;
        }
        let plain = LinearLayout::unswizzled(shape, order)?;
        let [fast, rows, ..] = order else { return Ok(plain) };
        let rows_at = shape[*fast].trailing_zeros() as usize;
        // All are powers of two, so that the product may wrap around.
        let chunk = |row: u64| vector.wrapping_mul(row / per_phase % max_phase) % shape[*fast];
        plain.exchanging(*fast, rows_at, shape[*rows].trailing_zeros() as usize, chunk)
    }

    /// The layout with `chunk(2^i)` added along mode `fast` to column `at + i`, for `count` columns.
    fn exchanging(
        mut self,
        fast: usize,
        at: usize,
        count: usize,
        chunk: impl Fn(u64) -> u64,
    ) -> Result<LinearLayout, LayoutError> {
        let place = total(&self.outs[..fast]);
        for (bit, column) in self.columns.iter_mut().skip(at).take(count).enumerate() {
            *column ^= chunk(1 << bit) << place;
        }
        LinearLayout::from_columns(self.ins, self.outs, self.columns)
    }
}

/// The tile of one `mma` m16n8 in the last two of `rank` modes.
fn mma_tile(
    operation: &'static str,
    operand: MmaOperand,
    vector: u64,
    rank: usize,
) -> Result<TileBuilder, LayoutError> {
    let [last, before] = last_two(operation, rank)?;
    // The mode that lanes of four run along, the other, eights of rows, and vectors along the first.
    let (fast, slow) = operand.modes(operation, rank)?.unwrap_or((last, before));
    let (rows, vectors) = match operand {
        MmaOperand::A => (2, 2),
        MmaOperand::B => (1, 2),
        MmaOperand::C => (2, 1),
    };
    TileBuilder::new(&THREADS, rank)?
        .run("register", fast, vector)?
        .run("lane", fast, 4)?
        .run("lane", slow, 8)?
        .run("register", slow, rows)?
        .run("register", fast, vectors)
}

fn check_warpgroups(operation: &'static str, warps: [u64; 2], shape: [u64; 2]) -> Result<(), LayoutError> {
    check_sizes(operation, "shape", &shape, 2)?;
    check_sizes(operation, "warps", &warps, 2)?;
    if !warps[0].is_multiple_of(4) {
        return refuse(operation, format!("warps {warps:?}"), "warps along M come in fours");
    }
    Ok(())
}

/// The memory layout that tensor-map copies and `wgmma` read and write: chunks of 16 bytes exchanged within rows of
/// `swizzle_bytes`, by a pattern that repeats every 8 rows; tiles of at most 256 elements a side one after the other.
///
/// ```
/// use tilewright_layout::NvmmaShared;
/// let shared = NvmmaShared { swizzle_bytes: 64, bits: 16, transposed: false, padded: false };
/// assert_eq!(
///     shared.layout(&[16, 64])?.to_string(),
///     "[offset: (0,1) (0,2) (0,4) (0,8) (0,16) (1,0) (2,8) (4,16) (8,0) (0,32)] -> [dim0:16, dim1:64]"
/// );
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmmaShared {
    /// The bytes of a row in which chunks are exchanged: 32, 64 or 128; 0 for none.
    pub swizzle_bytes: u64,
    /// The bits of an element: a power of two from 4 to 128.
    pub bits: u64,
    /// True if `dim0` is the fastest mode, rather than the last; of matrices only.
    pub transposed: bool,
    /// True if 8 elements fill 16 bytes, as unpacked 4-bit elements do; with 128 bytes and 8 bits only. Offsets of the
    /// empty half lead to 0.
    pub padded: bool,
}

impl NvmmaShared {
    /// The layout of a tensor of `shape`, from `offset` to the modes.
    pub fn layout(&self, shape: &[u64]) -> Result<LinearLayout, LayoutError> {
        let operation = "an nvmma memory layout";
        let NvmmaShared { swizzle_bytes, bits, transposed, padded } = *self;
        let rank = shape.len();
        check_sizes(operation, "shape", shape, rank)?;
        log2(operation, "bits", bits)?;
        let parameters = || format!("{self:?}");
        if !matches!(swizzle_bytes, 0 | 32 | 64 | 128) || !(4..=128).contains(&bits) {
            let reason = "the swizzle has 0, 32, 64 or 128 bytes, elements have 4 to 128 bits";
            return refuse(operation, parameters(), reason);
        }
        if padded && (swizzle_bytes, bits) != (128, 8) {
            return refuse(operation, parameters(), "only 128 bytes of 8-bit elements are padded");
        }
        if transposed && rank > 2 {
            return refuse(operation, parameters(), "only a matrix is transposed");
        }
        let order = if transposed { (0..rank).collect() } else { minor_first(rank) };
        let [fast, rows @ ..] = &order[..] else {
            return refuse(operation, "a tensor of no modes", "there must be one at least");
        };
        let tile = TileBuilder::new(&["offset"], rank)?;
        if rows.is_empty() {
            return tile.fit("offset", shape, &order);
        }
        let part: Vec<u64> = shape.iter().map(|n| *n.min(&256)).collect();
        if swizzle_bytes == 0 {
            let back: Vec<usize> = order.iter().rev().copied().collect();
            return tile.runs("offset", &part, &order, None)?.fit("offset", shape, &back);
        }
        let padding = if padded { 2 } else { 1 };
        let (chunk, width) = (128 / bits / padding, swizzle_bytes * 8 / bits / padding);
        if shape[*fast] < width {
            return refuse(
                operation,
                parameters(),
                format!("mode {fast} must have at least {width} elements"),
            );
        }
        let row_bits: u32 = rows.iter().map(|k| part[*k].trailing_zeros()).sum();
        if row_bits < 3 {
            return refuse(operation, parameters(), format!("{shape:?} has fewer than 8 rows"));
        }
        // The pattern has 8 rows: `alike` of each phase.
        let phases = swizzle_bytes / 16;
        let alike = 8 / phases;
        let tile = tile.run("offset", *fast, chunk)?.still("offset", padding)?.run(
            "offset",
            *fast,
            width / chunk,
        )?;
        let at = tile.0.columns.len();
        let tile = tile.runs("offset", &part, rows, None)?.0;
        let tile = tile.exchanging(*fast, at, 3, |row| chunk * (row / alike % phases))?;
        TileBuilder(tile).fit("offset", shape, &(0..rank).collect::<Vec<_>>())
    }
}
