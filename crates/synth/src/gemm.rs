//! Matrix products: the arrangement of instruction and warps that fixes the layouts of all three operands, and
//! the calls that a set of layouts needs.
//!
//! The constraint (Hexcute, Fig. 19 b): with `f` the thread-value layouts of the tensors and `p` those of the instruction,
//! `f_c∘p_C⁻¹` and `f_a∘p_A⁻¹` agree along M, `f_c∘p_C⁻¹` and `f_b∘p_B⁻¹` along N, `f_a∘p_A⁻¹` and `f_b∘p_B⁻¹` along K.
//! A [`TiledMma`] makes three layouts that satisfy it; [`calls`] checks it for any three and finds the calls.
//!
//! The constraint leaves a freedom that the paper does not use: which elements of K (and which of N) an instruction takes
//! together is arbitrary, as long as both operands agree. A lane may therefore hold a longer run of neighbours along K than
//! the instruction's own two, spread over several instructions, so that one wide access fills its registers. That is what
//! lets weights of four bits, stored row by row, reach the registers of a 16-bit product without a repacked format. Nor does it say which
//! rows of M an instruction takes together: with neighbours in a lane, a vector along M, such as the scales of rows of weights, is read in wide accesses too.

use rustc_hash::FxHashMap as HashMap;
use std::fmt;

use tilewright_layout::{
    Layout, LayoutError, admissible, compose, filter_zeros, inverse, logical_divide, squeeze,
};
use tilewright_machine::{MmaRow, Scaling, Sparsity};
use tilewright_tile::TensorId;

use crate::tv::{InstructionTiles, TvLayout};

/// The layouts of the three operands of a matrix product.
#[derive(Clone)]
pub struct GemmLayouts {
    /// Accumulator, M×N.
    pub c: TvLayout,
    /// Left factor, M×K.
    pub a: TvLayout,
    /// Right factor, N×K.
    pub b: TvLayout,
    /// Beside the factors: the metadata of a sparse left one, M×K/2 as that, or the scales of both, M×S and N×S.
    pub beside: Beside<TvLayout>,
}

/// Operands beside the factors: metadata alone, scales of both factors, or none.
pub type Beside<T> = [Option<T>; 2];

/// The operands beside the factors of a product with metadata or scales.
pub fn beside(meta: Option<TensorId>, scales: Option<[TensorId; 2]>) -> Beside<TensorId> {
    scales.map_or([meta, None], |scales| scales.map(Some))
}

/// The values of one matrix-product call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GemmCall {
    /// Accumulator.
    pub c: Vec<u32>,
    /// Left factor.
    pub a: Vec<u32>,
    /// Right factor.
    pub b: Vec<u32>,
    /// Metadata of a sparse left factor, in whole bytes; none of a dense one.
    pub meta: Vec<u32>,
    /// The scales of both factors of a block-scaled product.
    pub scales: Option<[Vec<u32>; 2]>,
}

/// The division of a matrix product among instructions and warps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TiledMma {
    /// The instruction.
    pub row: &'static MmaRow,
    /// Warps along M and along N.
    pub warps: (i64, i64),
    /// Groups of warps that do the same work; 1 unless the tile is too small for all warps.
    pub replication: i64,
    /// Neighbours along K that a lane holds of the factors, or of a sparse left factor's metadata; `None` for the instruction's own order.
    pub k_vector: Option<i64>,
    /// Neighbours along N that a lane holds of the accumulator; `None` for the instruction's own order.
    pub n_vector: Option<i64>,
    /// Neighbours along M that a lane holds of the accumulator; `None` for the instruction's own order.
    pub m_vector: Option<i64>,
}

impl fmt::Display for TiledMma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (m, n) = self.warps;
        write!(f, "{} over {m}×{n} warps", self.row.name)?;
        if self.replication > 1 {
            write!(f, ", each part in {} warps", self.replication)?;
        }
        if let Some(v) = self.k_vector {
            let of = if self.row.sparsity.is_some() { " of the metadata" } else { "" };
            write!(f, ", {v}{of} along K a lane")?;
        }
        if let Some(v) = self.n_vector {
            write!(f, ", {v} along N a lane")?;
        }
        if let Some(v) = self.m_vector {
            write!(f, ", {v} along M a lane")?;
        }
        Ok(())
    }
}

/// The tiler of one mode of an operand of `extent` elements: coordinate of the instruction along it → coordinate in the mode. In the
/// instruction's own order, or with `vector` neighbours a lane: a lane's values come first, and the lanes lie `vector` apart.
/// `along` gives the mode's coordinates in the instruction's tile, of which `tv` is the layout. `None` where `extent` has no
/// whole tiles.
fn tiler(tv: &Layout, along: &Layout, extent: i64, vector: Option<i64>) -> Option<Layout> {
    let size = along.size();
    let Some(vector) = vector else { return (extent % size == 0).then(|| Layout::identity(size)) };
    // Coordinate of the mode → the value that it is in; where it only tells lanes apart, the stride is 0.
    let value = Layout::concat(&[Layout::broadcast(32), Layout::identity(tv.size() / 32)]).ok()?;
    let held = compose(&value, &compose(&inverse(tv).ok()?, along).ok()?).ok()?;
    let count = filter_zeros(&held).size();
    if vector % count != 0 || extent % (size / count * vector) != 0 {
        return None;
    }
    let values_first = held.stride().map(|stride| i64::from(*stride == 0));
    let compact = Layout::ordered(held.shape().clone(), &values_first).ok()?;
    let lanes_apart = Layout::new((count, size / count).into(), (1, vector).into()).ok()?;
    compose(&lanes_apart, &compact).ok()
}

/// The [`tiler`] along N of `extent` columns.
fn n_tiler(row: &MmaRow, extent: i64, vector: Option<i64>) -> Option<Layout> {
    let along = Layout::new((row.c_tv.size() / row.m).into(), row.m.into()).ok()?;
    tiler(&row.c_tv, &along, extent, vector)
}

/// The [`tiler`] along M of `extent` rows.
fn m_tiler(row: &MmaRow, extent: i64, vector: Option<i64>) -> Option<Layout> {
    tiler(&row.c_tv, &Layout::identity(row.m), extent, vector)
}

/// The [`tiler`]s along K of the left and of the right factor, the right one of `extent` elements.
fn k_tilers(row: &MmaRow, extent: i64, vector: Option<i64>) -> Option<[Layout; 2]> {
    // Blocks of K have scales: an instruction takes whole ones.
    if row.scaling.is_some() && vector.is_some() {
        return None;
    }
    let Some(sparsity) = &row.sparsity else {
        let along = Layout::new((row.b_tv.size() / row.n).into(), row.n.into()).ok()?;
        let both = tiler(&row.b_tv, &along, extent, vector)?;
        return Some([both.clone(), both]);
    };
    let (columns, run) = (row.a_columns(), sparsity.run());
    let (kept, group) = (Sparsity::KEPT, Sparsity::GROUP);
    match vector {
        None => (extent % row.k == 0).then(|| [Layout::identity(columns), Layout::identity(row.k)]),
        // Whole runs of metadata, which are whole groups, lie further apart: the other lanes' between them.
        Some(vector) => {
            let fits =
                vector > run && vector % run == 0 && extent % (columns / run * vector * group / kept) == 0;
            let apart = |scale: i64| {
                Layout::new((run * scale, columns / run).into(), (1, vector * scale).into()).ok()
            };
            if fits { Some([apart(1)?, apart(group / kept)?]) } else { None }
        }
    }
}

/// The values of a layout in another order: first those that lie at `run`, in its order.
fn run_first(tv: &TvLayout, run: &Layout) -> Result<TvLayout, LayoutError> {
    let values = logical_divide(tv.values(), &admissible(tv.values(), run)?)?;
    TvLayout::new(tv.threads().clone(), squeeze(&values))
}

impl TiledMma {
    /// In the instruction's own order over the warp grid that loads the fewest operand fragments.
    pub fn plain(row: &'static MmaRow, m: i64, n: i64, warps: i64) -> Self {
        let (wm, wn, replication) = warp_grid(row, m, n, warps);
        TiledMma { row, warps: (wm, wn), replication, k_vector: None, n_vector: None, m_vector: None }
    }

    /// Instructions along K over which a lane's neighbours along it are spread.
    pub fn steps_together(&self) -> i64 {
        let row = self.row;
        match (self.k_vector, &row.sparsity) {
            (None, _) => 1,
            (Some(vector), Some(sparsity)) => vector / sparsity.run(),
            (Some(vector), None) => (vector * 32 / (row.k * row.n)).max(1),
        }
    }

    /// The tilers along M and N, and along K of both factors, of a product of these extents.
    fn tilers(&self, m: i64, n: i64, k: i64) -> Option<[Layout; 4]> {
        let along_m = m_tiler(self.row, m, self.m_vector)?;
        let [left, right] = k_tilers(self.row, k, self.k_vector)?;
        Some([along_m, n_tiler(self.row, n, self.n_vector)?, left, right])
    }

    /// The layouts that tile an `m`×`n`×`k` product: contiguous blocks of the accumulator for each warp, instruction tiles
    /// repeated within. `None` where the arrangement does not fit; the extents are multiples of the instruction's.
    pub fn layouts(&self, m: i64, n: i64, k: i64) -> Option<GemmLayouts> {
        let along_m = m_tiler(self.row, m / self.warps.0, self.m_vector)?;
        let along_n = n_tiler(self.row, n / self.warps.1, self.n_vector)?;
        let [left, right] = k_tilers(self.row, k, self.k_vector)?;
        Some(GemmLayouts {
            c: self.c((m, n), [&along_m, &along_n])?,
            a: self.a((m, k), [&along_m, &left])?,
            b: self.b((n, k), &along_n, &right)?,
            beside: [self.beside_left((m, k), [&along_m, &left])?, self.beside_right((n, k), &along_n)?],
        })
    }

    /// The layout of the accumulator, given the tilers of a warp's part along M and N.
    fn c(&self, (m, n): (i64, i64), tilers: [&Layout; 2]) -> Option<TvLayout> {
        let (bm, bn) = (m / self.warps.0, n / self.warps.1);
        // Sums of 16 bits share registers along N.
        let whole = tilewright_machine::per_register(self.row.c.bits()) == 1;
        let along_m = self.m_vector.filter(|_| whole).map(|vector| (vector, 1));
        let run = along_m.or_else(|| self.n_vector.map(|vector| (vector, m)));
        self.operand(&self.row.c_tv, m, (bm, bn), tilers, (bm, bn * m), run).ok()
    }

    /// The columns of A of a product of `k` columns of B.
    fn columns(&self, k: i64) -> i64 {
        k / self.row.k * self.row.a_columns()
    }

    /// The layout of operand A, given the tilers of a warp's part along M and along K.
    fn a(&self, (m, k): (i64, i64), tilers: [&Layout; 2]) -> Option<TvLayout> {
        let (bm, run) = (m / self.warps.0, self.factor_run().map(|vector| (vector, m)));
        self.operand(&self.row.a_tv, m, (bm, self.columns(k)), tilers, (bm, 0), run).ok()
    }

    /// The layout of a sparse A's metadata, given the tilers of a warp's part along M and along K, or of the scales of its blocks; none where there
    /// are neither.
    fn beside_left(&self, (m, k): (i64, i64), tilers: [&Layout; 2]) -> Option<Option<TvLayout>> {
        if let Some(scaling) = &self.row.scaling {
            let bm = m / self.warps.0;
            return self.scales((scaling, &scaling.a_tv), (m, k), (bm, tilers[0]), (bm, 0)).map(Some);
        }
        let Some(sparsity) = &self.row.sparsity else { return Some(None) };
        let (bm, run) = (m / self.warps.0, self.k_vector.map(|vector| (vector, m)));
        let part = (bm, self.columns(k));
        self.operand(&sparsity.meta_tv, m, part, tilers, (bm, 0), run).ok().map(Some)
    }

    /// The layout of the scales of B's blocks, given the tiler along N.
    fn beside_right(&self, (n, k): (i64, i64), along_n: &Layout) -> Option<Option<TvLayout>> {
        let Some(scaling) = &self.row.scaling else { return Some(None) };
        let bn = n / self.warps.1;
        self.scales((scaling, &scaling.b_tv), (n, k), (bn, along_n), (0, bn)).map(Some)
    }

    /// The layout of the scales of a factor of `rows` rows, of which a warp has `part`: those of a row lie one beside the other in a lane, so that a
    /// register serves several steps along K.
    fn scales(
        &self,
        (scaling, tv): (&Scaling, &Layout),
        (rows, k): (i64, i64),
        (part, along): (i64, &Layout),
        apart: (i64, i64),
    ) -> Option<TvLayout> {
        let blocks = k / scaling.block;
        let along_k = Layout::identity(self.row.k / scaling.block);
        self.operand(tv, rows, (part, blocks), [along, &along_k], apart, Some((blocks, rows))).ok()
    }

    /// Neighbours along K of the factors that come first in a lane.
    fn factor_run(&self) -> Option<i64> {
        self.k_vector.filter(|_| self.row.sparsity.is_none())
    }

    /// The layout of operand B, given the tilers of a warp's part along N and along K.
    fn b(&self, (n, k): (i64, i64), along_n: &Layout, along_k: &Layout) -> Option<TvLayout> {
        let (bn, run) = (n / self.warps.1, self.factor_run().map(|vector| (vector, n)));
        self.operand(&self.row.b_tv, n, (bn, k), [along_n, along_k], (0, bn), run).ok()
    }

    /// The layout of an operand of `rows` rows: each warp has a `part` of it, divided by `tilers`; the parts of neighbouring warps lie
    /// `apart`. Values of `run`, (elements, distance), come first.
    fn operand(
        &self,
        tv: &Layout,
        rows: i64,
        part: (i64, i64),
        tilers: [&Layout; 2],
        apart: (i64, i64),
        run: Option<(i64, i64)>,
    ) -> Result<TvLayout, LayoutError> {
        let tile = Layout::new(part.into(), (1, rows).into())?;
        let (wm, wn) = self.warps;
        let warps = Layout::new((wm, wn, self.replication).into(), (apart.0, apart.1, 0).into())?;
        let made = InstructionTiles::new(tv, &tile, tilers)?.tv(&[warps])?;
        run.map_or(Ok(made.clone()), |(extent, stride)| {
            run_first(&made, &Layout::new(extent.into(), stride.into())?)
        })
    }
}

/// The grids in which `warps` warps can share an `m`×`n` accumulator, as (along M, along N, replication), those with the fewest
/// operand fragments to load first. Each warp has whole instruction tiles. Copies are 1 unless the tile is too small for all
/// warps, and then as few as can be.
pub fn warp_grids(row: &MmaRow, m: i64, n: i64, warps: i64) -> Vec<(i64, i64, i64)> {
    let mut grids = Vec::new();
    for wm in 1..=warps {
        for wn in 1..=warps / wm {
            if warps % (wm * wn) != 0 || m % (row.m * wm) != 0 || n % (row.n * wn) != 0 {
                continue;
            }
            let replication = warps / (wm * wn);
            let (per_m, per_n) = (m / wm, n / wn);
            // Loading pairs of B tiles at once (ldmatrix.x4) wants an even number of them.
            let odd = i64::from((per_n / row.n) % 2 != 0);
            grids.push(((replication, (per_m + per_n) * 4 + odd), (wm, wn, replication)));
        }
    }
    grids.sort_by_key(|(cost, _)| *cost);
    let fewest = grids.first().map_or(warps, |(cost, _)| cost.0);
    grids.retain(|(cost, _)| cost.0 == fewest);
    if grids.is_empty() { vec![(1, 1, warps)] } else { grids.into_iter().map(|(_, grid)| grid).collect() }
}

/// The first of [`warp_grids`].
pub fn warp_grid(row: &MmaRow, m: i64, n: i64, warps: i64) -> (i64, i64, i64) {
    warp_grids(row, m, n, warps)[0]
}

/// The arrangements to choose from for an `m`×`n`×`k` product of `row`: every grid, each in the instruction's own order and
/// with longer runs along K and along N, and up to `longest_m` along M; the plain one over the best grid first, each with the layouts that it makes. A `grid`
/// that is given is the only one; there are none if the tile does not divide among it.
pub fn arrangements(
    row: &'static MmaRow,
    (m, n, k): (i64, i64, i64),
    (warps, grid): (i64, Option<(i64, i64)>),
    longest_m: i64,
) -> (Vec<TiledMma>, Vec<GemmLayouts>) {
    let grids = match grid {
        Some((wm, wn)) if m % (row.m * wm) == 0 && n % (row.n * wn) == 0 => vec![(wm, wn, warps / (wm * wn))],
        Some(_) => Vec::new(),
        None => warp_grids(row, m, n, warps),
    };
    let runs = |shortest: u32, longest: i64| {
        let longer = (shortest..=7).map(|bits| 1i64 << bits).filter(move |v| *v <= longest);
        std::iter::once(None).chain(longer.map(Some))
    };
    let arranged = |(wm, wn, replication), k_vector, [m_vector, n_vector]: [Option<i64>; 2]| TiledMma {
        row,
        warps: (wm, wn),
        replication,
        k_vector,
        n_vector,
        m_vector,
    };
    // An operand's layout does not depend on the run along the mode that it does not have.
    let vectors =
        runs(1, longest_m).flat_map(|m_vector| runs(2, 8).map(move |n_vector| [m_vector, n_vector]));
    let accumulators: Vec<_> = vectors
        .flat_map(|vectors| grids.iter().map(move |grid| (vectors, *grid)))
        .filter_map(|(vectors, grid)| {
            let along_m = m_tiler(row, m / grid.0, vectors[0])?;
            let along_n = n_tiler(row, n / grid.1, vectors[1])?;
            let c = arranged(grid, None, vectors).c((m, n), [&along_m, &along_n])?;
            Some((vectors, grid, [along_m, along_n], c))
        })
        .collect();
    let (mut all, mut layouts) = (Vec::new(), Vec::new());
    // Of elements of a bit 16 bytes are more.
    let longest = i64::from(128 / row.a.bits()).max(64);
    for k_vector in runs(2, longest) {
        let Some([along_left, along_right]) = k_tilers(row, k, k_vector) else { continue };
        // By grid and run along M: the left factor, with what is beside it.
        let mut left: Vec<(_, TvLayout, Option<TvLayout>)> = Vec::new();
        for (vectors, grid, [along_m, along_n], c) in &accumulators {
            let tiled = arranged(*grid, k_vector, *vectors);
            let key = (*grid, vectors[0]);
            let (a, beside_left) = match left.iter().find(|(other, ..)| *other == key) {
                Some((_, a, beside)) => (a.clone(), beside.clone()),
                None => {
                    let tilers = [along_m, &along_left];
                    let Some(a) = tiled.a((m, k), tilers) else { continue };
                    let Some(beside) = tiled.beside_left((m, k), tilers) else { continue };
                    left.push((key, a.clone(), beside.clone()));
                    (a, beside)
                }
            };
            let Some(b) = tiled.b((n, k), along_n, &along_right) else { continue };
            let Some(beside_right) = tiled.beside_right((n, k), along_n) else { continue };
            all.push(tiled);
            layouts.push(GemmLayouts { c: c.clone(), a, b, beside: [beside_left, beside_right] });
        }
    }
    (all, layouts)
}

/// An operand's values by position: for warp 0's lane 0, coordinate → value.
struct Operand<'a> {
    tv: &'a TvLayout,
    /// Instruction tiles along both modes → coordinate of the first element.
    repeats: [Vec<i64>; 2],
    /// (lane, value of the instruction), lanes fastest → coordinate relative to the instruction tile's first.
    atom: Vec<i64>,
    by_coordinate: HashMap<i64, u32>,
    /// Values that share a 32-bit register.
    per: usize,
}

impl<'a> Operand<'a> {
    /// `extents` are those of the operand's tile.
    fn new(
        tv: &'a TvLayout,
        atom: &Layout,
        extents: (i64, i64),
        tilers: [&Layout; 2],
        bits: u32,
    ) -> Option<Self> {
        let tile = Layout::column_major(extents.into()).ok()?;
        let tiles = InstructionTiles::new(atom, &tile, tilers).ok()?;
        let by_coordinate = (0..tv.count() as i64).map(|v| (tv.at(0, v), v as u32)).collect();
        let per = tilewright_machine::per_register(bits) as usize;
        let repeats = tiles.repeats.map(|layout| layout.table());
        Some(Operand { tv, repeats, atom: tiles.atom.table(), by_coordinate, per })
    }

    /// The values that the instruction tile at `base` (for warp 0) uses, if lane 0 has them, and in whole registers.
    fn find(&self, base: i64) -> Option<Vec<u32>> {
        let values: Vec<u32> = self
            .atom
            .iter()
            .step_by(32)
            .map(|x| self.by_coordinate.get(&(base + x)).copied())
            .collect::<Option<_>>()?;
        // An instruction takes registers as they are: what it wants in one must be there, in its order.
        let whole = values.chunks(self.per).all(|chunk| {
            (chunk[0] as usize).is_multiple_of(self.per)
                && chunk.iter().enumerate().all(|(i, v)| *v == chunk[0] + i as u32)
        });
        whole.then_some(values)
    }

    /// True if the values of the instruction tile at `base` lie in the same place for every thread.
    fn holds(&self, base: i64, values: &[u32], threads: i64) -> bool {
        (0..threads / 32).all(|warp| {
            let shift = self.tv.thread_offset(32 * warp) - self.tv.thread_offset(0);
            (0..32).all(|lane| {
                let at = self.tv.thread_offset(32 * warp + lane);
                let atom = self.atom[lane as usize..].iter().step_by(32);
                values
                    .iter()
                    .zip(atom)
                    .all(|(v, x)| at + self.tv.value_offset(i64::from(*v)) == base + shift + x)
            })
        })
    }

    /// The instruction tiles that lane 0 of warp 0 takes part in, by their numbers along both modes.
    fn tiles(&self, threads: i64) -> Option<HashMap<(usize, usize), Vec<u32>>> {
        let mut tiles = HashMap::default();
        for (j, y) in self.repeats[1].iter().enumerate() {
            for (i, x) in self.repeats[0].iter().enumerate() {
                let Some(values) = self.find(x + y) else { continue };
                if !self.holds(x + y, &values, threads) {
                    return None;
                }
                tiles.insert((i, j), values);
            }
        }
        Some(tiles)
    }
}

/// The calls that compute `c += a·bᵀ` with these layouts, or `None` where the layouts do not satisfy the constraint for this
/// instruction and these orders of K and N. The warp grid is the layouts' own.
pub fn calls(
    by: &TiledMma,
    (m, n, k): (i64, i64, i64),
    [c, a, b]: [&TvLayout; 3],
    beside: Beside<&TvLayout>,
    threads: i64,
) -> Option<Vec<GemmCall>> {
    let row = by.row;
    let [along_m, along_n, along_left, along_right] = &by.tilers(m, n, k)?;
    // Warps must agree: the M of a warp's accumulator is the M of its A, and so for N.
    for warp in 0..threads / 32 {
        let (tc, ta, tb) = (c.at(32 * warp, 0), a.at(32 * warp, 0), b.at(32 * warp, 0));
        let first = |beside: Option<&TvLayout>, factor: i64| beside.map_or(factor, |tv| tv.at(32 * warp, 0));
        let alike = first(beside[0], ta) == ta && first(beside[1], tb) == tb;
        if tc % m != ta % m || tc / m != tb % n || ta / m != 0 || tb / n != 0 || !alike {
            return None;
        }
    }
    let oc = Operand::new(c, &row.c_tv, (m, n), [along_m, along_n], row.c.bits())?;
    let left = (m, by.columns(k));
    let oa = Operand::new(a, &row.a_tv, left, [along_m, along_left], row.a.bits())?;
    let ob = Operand::new(b, &row.b_tv, (n, k), [along_n, along_right], row.b.bits())?;
    let (mut tiles_meta, mut tiles_scales) = (None, None);
    match (&row.sparsity, &row.scaling, beside) {
        (Some(sparsity), None, [Some(meta), None]) => {
            // Registers of metadata are put together of whole bytes.
            let places = Operand::new(meta, &sparsity.meta_tv, left, [along_m, along_left], 8)?;
            tiles_meta = Some(places.tiles(threads)?);
        }
        (None, Some(scaling), [Some(of_a), Some(of_b)]) => {
            // Bytes, which are put together where they do not lie so.
            let (blocks, along) = (k / scaling.block, Layout::identity(row.k / scaling.block));
            let of_a = Operand::new(of_a, &scaling.a_tv, (m, blocks), [along_m, &along], 32)?;
            let of_b = Operand::new(of_b, &scaling.b_tv, (n, blocks), [along_n, &along], 32)?;
            tiles_scales = Some([of_a.tiles(threads)?, of_b.tiles(threads)?]);
        }
        (None, None, [None, None]) => {}
        _ => return None,
    }
    let (tiles_c, tiles_a, tiles_b) = (oc.tiles(threads)?, oa.tiles(threads)?, ob.tiles(threads)?);
    let [ms, ns] = oc.repeats.map(|repeats| repeats.len());
    let mut result = Vec::new();
    for z in 0..oa.repeats[1].len() {
        for (y, x) in (0..ns).flat_map(|y| (0..ms).map(move |x| (y, x))) {
            let Some(values) = tiles_c.get(&(x, y)) else { continue };
            result.push(GemmCall {
                c: values.clone(),
                a: tiles_a.get(&(x, z))?.clone(),
                b: tiles_b.get(&(y, z))?.clone(),
                meta: match &tiles_meta {
                    Some(tiles) => tiles.get(&(x, z))?.clone(),
                    None => Vec::new(),
                },
                scales: match &tiles_scales {
                    Some([of_a, of_b]) => Some([of_a.get(&(x, z))?.clone(), of_b.get(&(y, z))?.clone()]),
                    None => None,
                },
            });
        }
    }
    // Every value of the accumulator takes part.
    let covered = tiles_c.len() * (row.c_tv.size() / 32) as usize;
    (covered == c.count()).then_some(result)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use tilewright_machine::mma_rows;

    #[test]
    fn arranged_layouts_satisfy_the_constraint_of_every_row() {
        // Rows of the same layouts and widths have the same arrangements.
        let form = |row: &'static MmaRow| {
            let block = row.scaling.as_ref().map(|scaling| scaling.block);
            (&row.a_tv, &row.b_tv, &row.c_tv, row.sparsity.is_some(), block, row.a.bits(), row.c.bits())
        };
        let first = |(i, row): &(usize, &'static MmaRow)| {
            mma_rows().iter().position(|other| form(other) == form(row)) == Some(*i)
        };
        for (_, row) in mma_rows().iter().enumerate().filter(first) {
            for (m, n, k, warps) in
                [(64, 64, 32, 4), (128, 128, 64, 4), (16, 8, 16, 1), (48, 24, 16, 3), (16, 8, 16, 4)]
            {
                let k = k.max(row.k);
                // Of bits and of blocks, the smaller tiles have as much to show in a quarter of the time.
                if m * k > 1 << 14 || row.scaling.is_some() && m > 64 {
                    continue;
                }
                let longest_m = if n < 64 { 8 } else { 1 };
                let (all, layouts) = arrangements(row, (m, n, k), (warps, None), longest_m);
                assert_eq!(all[0], TiledMma::plain(row, m, n, warps));
                for (by, l) in all.into_iter().zip(layouts) {
                    let left = by.columns(k) * m;
                    let operands = [(&l.c, m * n), (&l.a, left), (&l.b, n * k)];
                    let sizes = match &row.scaling {
                        Some(scaling) => [m, n].map(|rows| rows * k / scaling.block),
                        None => [left, 0],
                    };
                    let beside = l.beside.iter().flatten().zip(sizes);
                    for (tv, size) in operands.into_iter().chain(beside) {
                        let mut image = tv.layout().image();
                        image.sort_unstable();
                        image.dedup();
                        assert_eq!(image, (0..size).collect::<Vec<_>>(), "{by}");
                    }
                    let calls = calls(
                        &by,
                        (m, n, k),
                        [&l.c, &l.a, &l.b],
                        l.beside.each_ref().map(Option::as_ref),
                        warps * 32,
                    )
                    .expect(row.name);
                    assert_eq!(calls.len() as i64 * row.macs() * warps, m * n * k * by.replication, "{by}");
                }
            }
        }
    }

    #[test]
    fn a_run_along_k_is_a_lanes_first_values() {
        let row = &mma_rows()[0];
        let by = TiledMma { k_vector: Some(8), ..TiledMma::plain(row, 64, 64, 4) };
        let l = by.layouts(64, 64, 64).unwrap();
        for lane in 0..32 {
            for v in 0..8 {
                assert_eq!(l.b.at(lane, v) - l.b.at(lane, 0), 64 * v);
                assert_eq!(l.a.at(lane, v) - l.a.at(lane, 0), 64 * v);
            }
        }
    }

    #[test]
    fn a_run_along_m_is_a_lanes_rows_side_by_side() {
        let row = &mma_rows()[0];
        let by = TiledMma { m_vector: Some(4), k_vector: Some(8), ..TiledMma::plain(row, 128, 16, 4) };
        let l = by.layouts(128, 16, 64).unwrap();
        let products = calls(&by, (128, 16, 64), [&l.c, &l.a, &l.b], [None; 2], 128).unwrap();
        assert_eq!(products.len() as i64 * row.macs() * 4, 128 * 16 * 64);
        for lane in 0..32 {
            let rows = |tv: &TvLayout| {
                let rows = (0..tv.count() as i64).map(|v| tv.at(lane, v) % 128).collect::<BTreeSet<_>>();
                rows.into_iter().collect::<Vec<_>>()
            };
            let first = lane / 4 * 4;
            assert_eq!(rows(&l.a), (first..first + 4).collect::<Vec<_>>());
            assert_eq!((0..4).map(|v| l.c.at(lane, v) % 128).collect::<Vec<_>>(), rows(&l.a));
        }
    }

    #[test]
    fn layouts_that_disagree_along_k_have_no_calls() {
        let row = &mma_rows()[0];
        let by = TiledMma::plain(row, 64, 64, 4);
        let l = by.layouts(64, 64, 32).unwrap();
        let other = TiledMma::plain(row, 64, 64, 2).layouts(64, 64, 32).unwrap();
        assert!(calls(&by, (64, 64, 32), [&l.c, &other.a, &l.b], [None; 2], 128).is_none());
        let run = TiledMma { k_vector: Some(8), ..by }.layouts(64, 64, 32).unwrap();
        assert!(calls(&by, (64, 64, 32), [&l.c, &run.a, &l.b], [None; 2], 128).is_none());
    }

    #[test]
    fn the_warp_grid_prefers_square_blocks() {
        let row = &mma_rows()[0];
        assert_eq!(warp_grid(row, 128, 128, 4), (2, 2, 1));
        assert_eq!(warp_grid(row, 64, 256, 4), (1, 4, 1));
        assert_eq!(warp_grid(row, 16, 8, 4), (1, 1, 4));
    }
}
