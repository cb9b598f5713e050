//! The families of layouts that the paper names (LL 4.3, 9.1), as linear layouts over `register`, `lane` and `warp`, or
//! over `offset`. Modes are named `dim0`, `dim1`, …; `order` lists modes from the fastest to the slowest. Nothing here
//! knows a GPU: these are the shapes of tiles as the manuals print them.

use super::{Dim, LinearLayout, log2, refuse};
use crate::error::LayoutError;

/// The name of mode `k`.
fn mode(k: usize) -> String {
    format!("dim{k}")
}

/// A product of identities, one a mode, in the order given.
fn identities(input: &str, sizes: &[u64], order: &[usize]) -> Result<LinearLayout, LayoutError> {
    let mut layout = LinearLayout::empty();
    for k in order {
        layout = layout.product(&LinearLayout::identity(sizes[*k], input, &mode(*k))?)?;
    }
    Ok(layout)
}

fn check_order(operation: &'static str, order: &[usize], rank: usize) -> Result<(), LayoutError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) {
        return Ok(());
    }
    refuse(operation, format!("order {order:?}"), format!("it must name each of {rank} modes once"))
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
    /// it is larger the elements are held several times.
    pub fn layout(&self, shape: &[u64]) -> Result<LinearLayout, LayoutError> {
        let operation = "a blocked layout";
        check_order(operation, &self.order, shape.len())?;
        for sizes in [&self.registers, &self.lanes, &self.warps] {
            if sizes.len() != shape.len() {
                return refuse(
                    operation,
                    format!("sizes {sizes:?}"),
                    format!("there are {} modes", shape.len()),
                );
            }
        }
        let tile = identities("register", &self.registers, &self.order)?
            .product(&identities("lane", &self.lanes, &self.order)?)?
            .product(&identities("warp", &self.warps, &self.order)?)?;
        tile.cover(shape, &self.order)
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

impl LinearLayout {
    /// A tile made to cover a tensor (LL 5.1, broadcasting): repeated in registers along modes in which it is smaller, in
    /// this order; columns that lead out of the tensor become 0 where it is larger. Outputs are `dim0`, `dim1`, ….
    pub fn cover(&self, shape: &[u64], order: &[usize]) -> Result<LinearLayout, LayoutError> {
        let operation = "covering a tensor";
        check_order(operation, order, shape.len())?;
        let mut layout = self.clone();
        for k in order {
            let (name, bits) = (mode(*k), log2(operation, "a mode", shape[*k])?);
            let has = layout.outs.iter().find(|o| o.name == name).map_or(0, |o| o.bits);
            let more = LinearLayout::identity(1 << bits.saturating_sub(has), "register", &name)?;
            layout = layout.product(&more)?;
        }
        let names: Vec<String> = (0..shape.len()).map(mode).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if layout.outs.len() != names.len() {
            return refuse(operation, self, format!("its outputs must be of {}", names.join(", ")));
        }
        layout = layout.transpose(&names)?;
        // Columns beyond the tensor become 0.
        let outs: Vec<Dim> = names
            .iter()
            .zip(shape)
            .map(|(name, size)| Ok(Dim::new(*name, log2(operation, name, *size)?)))
            .collect::<Result<_, LayoutError>>()?;
        let columns = layout
            .columns
            .iter()
            .map(|c| {
                let parts = super::unflatten(&layout.outs, *c);
                let (mut column, mut at) = (0, 0);
                for (part, out) in parts.iter().zip(&outs) {
                    column |= if *part < out.size() { part << at } else { 0 };
                    at += out.bits;
                }
                column
            })
            .collect();
        let mut whole = LinearLayout::from_columns(layout.ins, outs, columns)?;
        for name in ["register", "lane", "warp"] {
            if !whole.ins.iter().any(|d| d.name == name) {
                whole.ins.push(Dim::new(name, 0));
            }
        }
        whole.transpose_ins(&["register", "lane", "warp"])
    }

    /// The tile of one `mma.sync` on m16n8 with elements of `bits` bits (LL proposition 9.2): lanes of four along the
    /// fast mode, eight along the slow one. A is M×K, B is K×N, C is M×N; elements of C have 32 bits and come in pairs.
    /// For factors `vector` consecutive elements are in one lane: 32/`bits` unless more are packed to load them wider.
    ///
    /// ```
    /// use tilewright_layout::{LinearLayout, MmaOperand};
    /// let c = LinearLayout::mma_tile(MmaOperand::C, 2)?;
    /// assert_eq!(c.to_string(), "[register: (0,1) (8,0); lane: (0,2) (0,4) (1,0) (2,0) (4,0)] -> [dim0:16, dim1:8]");
    /// let b = LinearLayout::mma_tile(MmaOperand::B, 2)?; // f16
    /// assert_eq!(b.to_string(), "[register: (1,0) (8,0); lane: (2,0) (4,0) (0,1) (0,2) (0,4)] -> [dim0:16, dim1:8]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn mma_tile(operand: MmaOperand, vector: u64) -> Result<LinearLayout, LayoutError> {
        // The fast mode, the slow one, rows of eight, and vectors along the fast mode.
        let (fast, slow, rows, vectors) = match operand {
            MmaOperand::A => (1, 0, 2, 2),
            MmaOperand::B => (0, 1, 1, 2),
            MmaOperand::C => (1, 0, 2, 1),
        };
        LinearLayout::identity(vector, "register", &mode(fast))?
            .product(&LinearLayout::identity(4, "lane", &mode(fast))?)?
            .product(&LinearLayout::identity(8, "lane", &mode(slow))?)?
            .product(&LinearLayout::identity(rows, "register", &mode(slow))?)?
            .product(&LinearLayout::identity(vectors, "register", &mode(fast))?)?
            .transpose(&["dim0", "dim1"])
    }

    /// An operand or the result of `mma.sync` m16n8 over a tensor of `shape` and a grid of warps along M and N, the
    /// warps along N counting fastest. Factors are held by every warp that needs them.
    pub fn mma(
        operand: MmaOperand,
        vector: u64,
        warps: (u64, u64),
        shape: &[u64; 2],
    ) -> Result<LinearLayout, LayoutError> {
        let along_n = |size: u64| match operand {
            MmaOperand::A => LinearLayout::zeros(size, 1, "warp", "dim1"),
            _ => LinearLayout::identity(size, "warp", "dim1"),
        };
        let along_m = |size: u64| match operand {
            MmaOperand::B => LinearLayout::zeros(size, 1, "warp", "dim0"),
            _ => LinearLayout::identity(size, "warp", "dim0"),
        };
        // Factors first repeat along K within a warp; results repeat beyond the warps.
        let (m, n) = warps;
        let mut tile = LinearLayout::mma_tile(operand, vector)?;
        let inner = match operand {
            MmaOperand::A => Some(1),
            MmaOperand::B => Some(0),
            MmaOperand::C => None,
        };
        if let Some(k) = inner {
            let has = tile.out_size(&mode(k));
            let more = LinearLayout::identity((shape[k] / has).max(1), "register", &mode(k))?;
            tile = tile.product(&more)?;
        }
        tile.product(&along_n(n)?)?.product(&along_m(m)?)?.cover(shape, &[1, 0])
    }

    /// The accumulator of `wgmma` m64n`n` over a tensor of `shape` and warps along M and N, the first four along M: a warp
    /// holds 16 rows of `n` columns (LL proposition 9.2). The left factor in registers is [`mma`](Self::mma)'s A.
    pub fn wgmma(n: u64, warps: (u64, u64), shape: &[u64; 2]) -> Result<LinearLayout, LayoutError> {
        let operation = "a wgmma layout";
        log2(operation, "n", n)?;
        if n < 8 || !warps.0.is_multiple_of(4) {
            return refuse(operation, format!("m64n{n}"), "n is at least 8, and warps along M come in fours");
        }
        LinearLayout::mma_tile(MmaOperand::C, 2)?
            .product(&LinearLayout::identity(n / 8, "register", "dim1")?)?
            .product(&LinearLayout::identity(warps.0, "warp", "dim0")?)?
            .product(&LinearLayout::identity(warps.1, "warp", "dim1")?)?
            .cover(shape, &[1, 0])
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
        check_order("an unswizzled memory layout", order, shape.len())?;
        let layout = identities("offset", shape, order)?;
        let names: Vec<String> = (0..shape.len()).map(mode).collect();
        layout.transpose(&names.iter().map(String::as_str).collect::<Vec<_>>())
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
        let [column_mode, row_mode, ..] = order else {
            return LinearLayout::unswizzled(shape, order);
        };
        let plain = LinearLayout::unswizzled(shape, order)?;
        let (columns, rows) = (shape[*column_mode], shape[*row_mode]);
        // The columns of row bits get the chunk that the row is exchanged with.
        let start: u32 = plain.outs[..*column_mode].iter().map(|o| o.bits).sum();
        let mut swizzled = plain.columns.clone();
        let column_bits = columns.trailing_zeros() as usize;
        for bit in 0..rows.trailing_zeros() {
            let phase = ((1u64 << bit) / per_phase) % max_phase;
            let chunk = (vector * phase) % columns;
            swizzled[column_bits + bit as usize] ^= chunk << start;
        }
        LinearLayout::from_columns(plain.ins, plain.outs, swizzled)
    }

    /// The accumulator of AMD's `mfma` m16n16 or m32n32 on 64 lanes over a tensor of `shape` and warps along M and N, the
    /// latter counting fastest: four consecutive rows of one column are in a lane. `transposed` exchanges rows and columns
    /// of the tile.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l = LinearLayout::mfma(16, false, (1, 1), &[16, 16])?;
    /// assert_eq!(l.bases("lane").len(), 6);
    /// assert!(l.is_bijective());
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn mfma(
        size: u64,
        transposed: bool,
        warps: (u64, u64),
        shape: &[u64; 2],
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "an mfma layout";
        if !matches!(size, 16 | 32) {
            return refuse(operation, format!("m{size}n{size}"), "tiles are 16×16 or 32×32");
        }
        let (rows, columns) = if transposed { ("dim1", "dim0") } else { ("dim0", "dim1") };
        let tile = LinearLayout::identity(4, "register", rows)?
            .product(&LinearLayout::identity(size, "lane", columns)?)?
            .product(&LinearLayout::identity(64 / size, "lane", rows)?)?;
        let repeated = tile.product(&LinearLayout::identity(size * size / 256, "register", rows)?)?;
        repeated
            .product(&LinearLayout::identity(warps.1, "warp", "dim1")?)?
            .product(&LinearLayout::identity(warps.0, "warp", "dim0")?)?
            .cover(shape, &[1, 0])
    }
}
