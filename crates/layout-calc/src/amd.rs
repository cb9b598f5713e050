//! Layouts of AMD's matrix instructions, as Triton has them (LL 4.3), over `register`, `lane` and `warp`. Modes are named `dim0`, `dim1`, ….

use std::fmt;

use tilewright_layout::{Dim, LayoutError, LinearLayout, MmaOperand, TileBuilder, check_sizes, log2};

/// The inputs of a register layout.
const THREADS: [&str; 3] = ["register", "lane", "warp"];

/// The name of mode `k`.
fn mode(k: usize) -> String {
    format!("dim{k}")
}

/// The modes, the last first.
fn minor_first(rank: usize) -> Vec<usize> {
    (0..rank).rev().collect()
}

/// A refusal of an operation on `layout`.
fn refuse<T>(operation: &'static str, layout: impl fmt::Display, reason: &str) -> Result<T, LayoutError> {
    Err(LayoutError::Inadmissible { operation, layout: layout.to_string(), reason: reason.to_string() })
}

/// Layouts of AMD's `mfma` instructions on 64 lanes: lanes run along rows of the result, consecutive registers down a
/// column; `transposed` exchanges the two.
///
/// ```
/// use tilewright_layout_calc::Mfma;
/// let c = Mfma { tile: [16, 16], transposed: false, wide: false, tiles: vec![1, 1], warps: vec![1, 1] };
/// assert_eq!(
///     c.layout(&[16, 16])?.to_string(),
///     "[register: (1,0) (2,0); lane: (0,1) (0,2) (0,4) (0,8) (4,0) (8,0); warp:] -> [dim0:16, dim1:16]"
/// );
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mfma {
    /// The instruction's M and N: 16×16, 32×32, 4×64, or 64×4, which is always transposed.
    pub tile: [u64; 2],
    /// True if lanes run down columns and registers along rows.
    pub transposed: bool,
    /// True if the result has 64-bit elements, which lie otherwise; of 16×16 only.
    pub wide: bool,
    /// Tiles that a warp holds along each mode, in registers.
    pub tiles: Vec<u64>,
    /// Warps along each mode, those along the last counting fastest.
    pub warps: Vec<u64>,
}

impl Mfma {
    /// The accumulator on a tensor of `shape`.
    pub fn layout(&self, shape: &[u64]) -> Result<LinearLayout, LayoutError> {
        let [n, m] = self.check(shape)?;
        let (down, across) = if self.transposed { (n, m) } else { (m, n) };
        let tile = TileBuilder::new(&THREADS, shape.len())?;
        let tile = match (self.tile, self.transposed) {
            ([16, 16], _) if self.wide => {
                tile.run("lane", across, 16)?.run("lane", down, 4)?.run("register", down, 4)?
            }
            ([16, 16], _) => tile.run("register", down, 4)?.run("lane", across, 16)?.run("lane", down, 4)?,
            ([32, 32], _) => tile
                .run("register", down, 4)?
                .run("lane", across, 32)?
                .run("lane", down, 2)?
                .run("register", down, 4)?,
            ([4, 64], false) | ([64, 4], true) => tile.run("register", down, 4)?.run("lane", across, 64)?,
            _ => return self.refuse("tiles are 16×16, 32×32, 4×64, or 64×4 transposed"),
        };
        // Along N a warp's registers come first.
        let tile = tile.run("register", n, self.tiles[n])?.run("warp", n, self.warps[n])?;
        let tile = tile.reach("register", n, shape[n])?;
        self.grid(tile, &minor_first(n), None)?.fit("register", shape, &minor_first(shape.len()))
    }

    /// A factor of a product whose result has this layout, `vector` consecutive elements along K in a lane; for `C` the
    /// layout itself. Of 16×16 and 32×32 only.
    pub fn operand(
        &self,
        operand: MmaOperand,
        vector: u64,
        shape: &[u64],
    ) -> Result<LinearLayout, LayoutError> {
        self.check(shape)?;
        let rank = shape.len();
        let Some((k, other)) = operand.modes("an mfma layout", rank)? else {
            return self.layout(shape);
        };
        let [16 | 32, side] = self.tile else {
            return self.refuse("factors are those of 16×16 or 32×32");
        };
        let tile = TileBuilder::new(&THREADS, rank)?
            .run("register", k, vector)?
            .run("lane", other, side)?
            .run("lane", k, 64 / side)?
            .reach("register", k, shape[k])?;
        let order = minor_first(rank);
        self.grid(tile, &order, Some(k))?.fit("register", shape, &order)
    }

    /// The tiles of a warp, and warps, mode by mode; along `whole` warps hold the same.
    fn grid(
        &self,
        tile: TileBuilder,
        order: &[usize],
        whole: Option<usize>,
    ) -> Result<TileBuilder, LayoutError> {
        order.iter().try_fold(tile, |tile, k| {
            if whole == Some(*k) {
                tile.still("warp", self.warps[*k])
            } else {
                tile.run("register", *k, self.tiles[*k])?.run("warp", *k, self.warps[*k])
            }
        })
    }

    /// The last mode and the one before, where all sizes are right.
    fn check(&self, shape: &[u64]) -> Result<[usize; 2], LayoutError> {
        let operation = "an mfma layout";
        let rank = shape.len();
        check_sizes(operation, "shape", shape, rank)?;
        check_sizes(operation, "tiles", &self.tiles, rank)?;
        check_sizes(operation, "warps", &self.warps, rank)?;
        if self.wide && self.tile != [16, 16] {
            return self.refuse("64-bit elements are those of 16×16");
        }
        match rank {
            0 | 1 => refuse(operation, format!("a tensor of {rank} modes"), "a matrix has two"),
            _ => Ok([rank - 1, rank - 2]),
        }
    }

    fn refuse<T>(&self, reason: &str) -> Result<T, LayoutError> {
        let [m, n] = self.tile;
        let transposed = if self.transposed { " transposed" } else { "" };
        refuse("an mfma layout", format!("tiles of {m}×{n}{transposed}"), reason)
    }
}

/// Layouts of AMD's `wmma` instructions, 16×16 on 32 lanes. Where tiles of a warp and warps lie is a linear layout of its
/// own, from `register` and `warp` to the tiles along `dim0` and `dim1`.
///
/// ```
/// use tilewright_layout_calc::Wmma;
/// let c = Wmma { version: 2, transposed: false, grid: "[register:; warp: (0,1)] -> [dim0:1, dim1:2]".parse()? };
/// assert_eq!(
///     c.layout([16, 32])?.to_string(),
///     "[register: (1,0) (2,0) (4,0); lane: (0,1) (0,2) (0,4) (0,8) (8,0); warp: (0,16)] -> [dim0:16, dim1:32]"
/// );
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wmma {
    /// 1, 2 or 3: in the first, rows alternate between the halves of a warp, and both hold all of a factor.
    pub version: u32,
    /// True if lanes run down columns and registers along rows.
    pub transposed: bool,
    /// From the tiles of a warp and the warps to the tiles of the matrix.
    pub grid: LinearLayout,
}

impl Wmma {
    /// The accumulator on a matrix of `shape`.
    pub fn layout(&self, shape: [u64; 2]) -> Result<LinearLayout, LayoutError> {
        self.check(shape)?;
        let (down, across) = if self.transposed { (1, 0) } else { (0, 1) };
        let tile = TileBuilder::new(&THREADS, 2)?.run("lane", across, 16)?;
        let tile = match self.version {
            1 => tile.run("lane", down, 2)?.run("register", down, 8)?,
            _ => tile.run("register", down, 8)?.run("lane", down, 2)?,
        };
        let grid = self.grid.drop_zeros("register");
        tile.product(&grid)?.fit("register", &shape, &[1, 0])
    }

    /// A factor, `vector` consecutive elements along K in a lane, of an instruction that takes `depth` along K; for `C` the
    /// accumulator.
    pub fn operand(
        &self,
        operand: MmaOperand,
        vector: u64,
        depth: u64,
        shape: [u64; 2],
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "a wmma layout";
        self.check(shape)?;
        log2(operation, "vector", vector)?;
        log2(operation, "depth", depth)?;
        let Some((k, other)) = operand.modes(operation, 2)? else {
            return self.layout(shape);
        };
        let tile = TileBuilder::new(&THREADS, 2)?.run("register", k, vector)?.run("lane", other, 16)?;
        let tile = match self.version {
            1 => tile.still("lane", 2)?,
            _ => tile.run("lane", k, 2)?,
        };
        let tile = tile.run("register", k, (depth / 2 / vector).max(1))?;
        let grid = self.grid.slice(&mode(k))?.drop_zeros("register");
        tile.product(&grid)?.fit("register", &shape, &[k, other])
    }

    fn check(&self, shape: [u64; 2]) -> Result<(), LayoutError> {
        let operation = "a wmma layout";
        check_sizes(operation, "shape", &shape, 2)?;
        if !(1..=3).contains(&self.version) {
            return refuse(operation, format!("version {}", self.version), "there are 1, 2 and 3");
        }
        let names = |dims: &[Dim], known: &[&str]| dims.iter().all(|d| known.contains(&d.name.as_str()));
        let both = ["dim0", "dim1"].iter().all(|m| self.grid.outs().iter().any(|o| o.name == **m));
        if both && names(self.grid.ins(), &["register", "warp"]) && self.grid.outs().len() == 2 {
            return Ok(());
        }
        refuse(operation, &self.grid, "the grid leads from register and warp to dim0 and dim1")
    }
}
