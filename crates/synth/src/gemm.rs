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
//! lets weights of four bits, stored row by row, reach the registers of a 16-bit product without a repacked format.

use rustc_hash::FxHashMap as HashMap;
use std::fmt;

use tilewright_layout::{Layout, LayoutError, compose};
use tilewright_machine::MmaRow;

use crate::tv::{TvLayout, flat};

/// The layouts of the three operands of a matrix product.
#[derive(Clone)]
pub struct GemmLayouts {
    /// Accumulator, M×N.
    pub c: TvLayout,
    /// Left factor, M×K.
    pub a: TvLayout,
    /// Right factor, N×K.
    pub b: TvLayout,
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
}

/// How instructions and warps share a matrix product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TiledMma {
    /// The instruction.
    pub row: &'static MmaRow,
    /// Warps along M and along N.
    pub warps: (i64, i64),
    /// Groups of warps that do the same work; 1 unless the tile is too small for all warps.
    pub replication: i64,
    /// Neighbours along K that a lane holds of the factors; `None` for the instruction's own order.
    pub k_vector: Option<i64>,
    /// Neighbours along N that a lane holds of the accumulator; `None` for the instruction's own order.
    pub n_vector: Option<i64>,
}

impl fmt::Display for TiledMma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (m, n) = self.warps;
        write!(f, "{} over {m}×{n} warps", self.row.name)?;
        if self.replication > 1 {
            write!(f, ", each part in {} warps", self.replication)?;
        }
        if let Some(v) = self.k_vector {
            write!(f, ", {v} along K a lane")?;
        }
        if let Some(v) = self.n_vector {
            write!(f, ", {v} along N a lane")?;
        }
        Ok(())
    }
}

/// The sub-modes of an instruction's coordinate along one of its modes, from the lowest: (extent, whether a lane's values
/// hold it; else it tells lanes apart).
type SubModes = Vec<(i64, bool)>;

/// The sub-modes of the mode of `(lane, value) → x + extent·y` that has `x` (`second` = false) or `y`.
fn sub_modes(tv: &Layout, extent: i64, second: bool) -> Option<SubModes> {
    let mut found: Vec<(i64, i64, bool)> = Vec::new();
    for (mode, is_value) in [(0, false), (1, true)] {
        for (size, stride) in tv.mode(mode).ok()?.leaves() {
            let here = if second { stride >= extent } else { stride < extent };
            if size > 1 && here {
                found.push((if second { stride / extent } else { stride }, size, is_value));
            }
        }
    }
    found.sort_unstable();
    Some(found.into_iter().map(|(_, size, is_value)| (size, is_value)).collect())
}

/// One mode of an operand's tile: where the sub-modes of the instruction's coordinate and its repetitions lie in it.
struct Axis {
    /// Leaves (extent, stride) of the instruction's coordinate.
    own: Vec<(i64, i64)>,
    /// Leaves of its repetitions.
    repeats: Vec<(i64, i64)>,
}

/// Lays `extent` elements out over an instruction's mode with these sub-modes: in its own order, or with `v` neighbours a lane.
fn axis(sub_modes: &SubModes, extent: i64, v: Option<i64>) -> Option<Axis> {
    let own: i64 = sub_modes.iter().map(|d| d.0).product();
    let Some(v) = v else {
        return Some(Axis { own: vec![(own, 1)], repeats: vec![(extent / own, own)] });
    };
    let held: i64 = sub_modes.iter().filter(|d| d.1).map(|d| d.0).product();
    let (inner, repeats) = (v / held, extent / own);
    if v % held != 0 || repeats % inner != 0 {
        return None;
    }
    let (mut value, mut lane) = (1, v);
    let leaves = sub_modes.iter().map(|(size, is_value)| {
        let at = if *is_value { &mut value } else { &mut lane };
        let stride = *at;
        *at *= size;
        (*size, stride)
    });
    let own_leaves = leaves.collect();
    Some(Axis { own: own_leaves, repeats: vec![(inner, held), (repeats / inner, own * inner)] })
}

/// An operand's layout from its instruction tile and its two modes. Warps come with their stride in the tile; the values of
/// the run along the mode named first are counted first.
fn operand(
    tv: &Layout,
    (first, second, height): (&Axis, &Axis, i64),
    warps: &[(i64, i64)],
    run: Option<(bool, i64)>,
) -> Result<TvLayout, LayoutError> {
    let up = |leaves: &[(i64, i64)]| leaves.iter().map(|(e, s)| (*e, s * height)).collect::<Vec<_>>();
    let embed: Vec<(i64, i64)> = first.own.iter().copied().chain(up(&second.own)).collect();
    let atom = compose(&Layout::from_leaves(&embed)?, tv)?;
    let mut threads = atom.mode(0)?.leaves();
    threads.extend_from_slice(warps);
    let mut values = atom.mode(1)?.leaves();
    values.extend(first.repeats.iter().copied().chain(up(&second.repeats)));
    values.retain(|leaf| leaf.0 > 1);
    if let Some((is_second, v)) = run {
        let unit = if is_second { height } else { 1 };
        let in_run =
            |leaf: &(i64, i64)| leaf.1 % unit == 0 && leaf.1 / unit < v && (is_second || leaf.1 < height);
        let (mut inner, outer): (Vec<_>, Vec<_>) = values.into_iter().partition(in_run);
        inner.sort_by_key(|leaf| leaf.1);
        inner.extend(outer);
        values = inner;
    }
    TvLayout::new(flat(&threads)?, flat(&values)?)
}

impl TiledMma {
    /// In the instruction's own order over the warp grid that loads the fewest operand fragments.
    pub fn plain(row: &'static MmaRow, m: i64, n: i64, warps: i64) -> Self {
        let (wm, wn, replication) = warp_grid(row, m, n, warps);
        TiledMma { row, warps: (wm, wn), replication, k_vector: None, n_vector: None }
    }

    /// The layouts that tile an `m`×`n`×`k` product: contiguous blocks of the accumulator for each warp, instruction tiles
    /// repeated within. `None` where the arrangement does not fit; the extents are multiples of the instruction's.
    pub fn layouts(&self, m: i64, n: i64, k: i64) -> Option<GemmLayouts> {
        let row = self.row;
        let (wm, wn) = self.warps;
        let (bm, bn) = (m / wm, n / wn);
        let m_modes = sub_modes(&row.c_tv, row.m, false)?;
        let n_modes = sub_modes(&row.c_tv, row.m, true)?;
        let k_modes = sub_modes(&row.b_tv, row.n, true)?;
        let along_m = axis(&m_modes, bm, None)?;
        let along_n = axis(&n_modes, bn, self.n_vector)?;
        let along_k = axis(&k_modes, k, self.k_vector)?;
        let replication = (self.replication, 0);
        let n_run = self.n_vector.map(|v| (true, v));
        let k_run = self.k_vector.map(|v| (true, v));
        let c_warps = [(wm, bm), (wn, bn * m), replication];
        let c = operand(&row.c_tv, (&along_m, &along_n, m), &c_warps, n_run).ok()?;
        let a = operand(&row.a_tv, (&along_m, &along_k, m), &[(wm, bm), (wn, 0), replication], k_run).ok()?;
        let b = operand(&row.b_tv, (&along_n, &along_k, n), &[(wm, 0), (wn, bn), replication], k_run).ok()?;
        Some(GemmLayouts { c, a, b })
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
/// with longer runs along K and along N; the plain one over the best grid first. A `grid` that is given is the only one;
/// there are none if the tile does not divide among it.
pub fn arrangements(
    row: &'static MmaRow,
    (m, n, k): (i64, i64, i64),
    warps: i64,
    grid: Option<(i64, i64)>,
) -> Vec<TiledMma> {
    let grids = match grid {
        Some((wm, wn)) if m % (row.m * wm) == 0 && n % (row.n * wn) == 0 => vec![(wm, wn, warps / (wm * wn))],
        Some(_) => Vec::new(),
        None => warp_grids(row, m, n, warps),
    };
    let runs = |longest: i64| {
        let longer = (2..=6).map(|bits| 1i64 << bits).filter(move |v| *v <= longest);
        std::iter::once(None).chain(longer.map(Some))
    };
    let mut found = Vec::new();
    for k_vector in runs(64) {
        for n_vector in runs(8) {
            for &(wm, wn, replication) in &grids {
                let tiled = TiledMma { row, warps: (wm, wn), replication, k_vector, n_vector };
                if tiled.layouts(m, n, k).is_some() {
                    found.push(tiled);
                }
            }
        }
    }
    found
}

/// An operand's values by position: for warp 0's lane 0, coordinate → value.
struct Operand<'a> {
    tv: &'a TvLayout,
    /// (lane, value of the instruction) → coordinate relative to the instruction tile's first.
    embed: Vec<Vec<i64>>,
    by_coordinate: HashMap<i64, u32>,
    /// Values that share a 32-bit register.
    per: usize,
}

impl<'a> Operand<'a> {
    /// `rows` is the extent of the instruction's first mode, `height` that of the tile's.
    fn new(tv: &'a TvLayout, atom: &Layout, rows: i64, axes: (&Axis, &Axis, i64), bits: u32) -> Option<Self> {
        let (first, second, height) = axes;
        let (first, second) = (Layout::from_leaves(&first.own).ok()?, Layout::from_leaves(&second.own).ok()?);
        let place = |lane: i64, value: i64| {
            let index = atom.eval(lane + 32 * value);
            first.eval(index % rows) + height * second.eval(index / rows)
        };
        let count = atom.size() / 32;
        let embed = (0..32).map(|lane| (0..count).map(|v| place(lane, v)).collect()).collect();
        let by_coordinate = (0..tv.count() as i64).map(|v| (tv.at(0, v), v as u32)).collect();
        Some(Operand { tv, embed, by_coordinate, per: tilewright_machine::per_register(bits) as usize })
    }

    /// The values that the instruction tile at `base` (for warp 0) uses, if lane 0 has them, and in whole registers.
    fn find(&self, base: i64) -> Option<Vec<u32>> {
        let values: Vec<u32> = self.embed[0]
            .iter()
            .map(|x| self.by_coordinate.get(&(base + x)).copied())
            .collect::<Option<_>>()?;
        // An instruction takes registers as they are: what it wants in one must be there, in its order.
        let whole = values.chunks(self.per).all(|chunk| {
            (chunk[0] as usize).is_multiple_of(self.per)
                && chunk.iter().enumerate().all(|(i, v)| *v == chunk[0] + i as u32)
        });
        whole.then_some(values)
    }

    /// Whether the values of the instruction tile at `base` lie in the same place for every thread.
    fn holds(&self, base: i64, values: &[u32], threads: i64) -> bool {
        (0..threads / 32).all(|warp| {
            let shift = self.tv.thread_offset(32 * warp) - self.tv.thread_offset(0);
            (0..32).all(|lane| {
                let at = self.tv.thread_offset(32 * warp + lane);
                let own = &self.embed[lane as usize];
                values
                    .iter()
                    .zip(own)
                    .all(|(v, x)| at + self.tv.value_offset(i64::from(*v)) == base + shift + x)
            })
        })
    }

    /// The instruction tiles that lane 0 of warp 0 takes part in, in the order of `bases`.
    fn tiles(
        &self,
        bases: &[(i64, i64)],
        height: i64,
        threads: i64,
    ) -> Option<HashMap<(i64, i64), Vec<u32>>> {
        let mut tiles = HashMap::default();
        for (x, y) in bases {
            let base = x + height * y;
            let Some(values) = self.find(base) else { continue };
            if !self.holds(base, &values, threads) {
                return None;
            }
            tiles.insert((*x, *y), values);
        }
        Some(tiles)
    }
}

/// The calls that compute `c += a·bᵀ` with these layouts, or `None` where the layouts do not satisfy the constraint for this
/// instruction and these orders of K and N. The warp grid is the layouts' own.
pub fn calls(
    by: &TiledMma,
    (m, n, k): (i64, i64, i64),
    c: &TvLayout,
    a: &TvLayout,
    b: &TvLayout,
    threads: i64,
) -> Option<Vec<GemmCall>> {
    let row = by.row;
    let along_m = axis(&sub_modes(&row.c_tv, row.m, false)?, m, None)?;
    let along_n = axis(&sub_modes(&row.c_tv, row.m, true)?, n, by.n_vector)?;
    let along_k = axis(&sub_modes(&row.b_tv, row.n, true)?, k, by.k_vector)?;
    // Warps must agree: the M of a warp's accumulator is the M of its A, and so for N.
    for warp in 0..threads / 32 {
        let (tc, ta, tb) = (c.at(32 * warp, 0), a.at(32 * warp, 0), b.at(32 * warp, 0));
        if tc % m != ta % m || tc / m != tb % n || ta / m != 0 || tb / n != 0 {
            return None;
        }
    }
    let oc = Operand::new(c, &row.c_tv, row.m, (&along_m, &along_n, m), row.c.bits())?;
    let oa = Operand::new(a, &row.a_tv, row.m, (&along_m, &along_k, m), row.ab.bits())?;
    let ob = Operand::new(b, &row.b_tv, row.n, (&along_n, &along_k, n), row.ab.bits())?;
    let starts = |axis: &Axis| -> Option<Vec<i64>> {
        let repeats = Layout::from_leaves(&axis.repeats).ok()?;
        Some((0..repeats.size()).map(|i| repeats.eval(i)).collect())
    };
    let (ms, ns, ks) = (starts(&along_m)?, starts(&along_n)?, starts(&along_k)?);
    let pairs = |xs: &[i64], ys: &[i64]| -> Vec<(i64, i64)> {
        ys.iter().flat_map(|y| xs.iter().map(move |x| (*x, *y))).collect()
    };
    let order = pairs(&ms, &ns);
    let tiles_c = oc.tiles(&order, m, threads)?;
    let tiles_a = oa.tiles(&pairs(&ms, &ks), m, threads)?;
    let tiles_b = ob.tiles(&pairs(&ns, &ks), n, threads)?;
    let mut result = Vec::new();
    for z in &ks {
        for (x, y) in &order {
            let Some(values) = tiles_c.get(&(*x, *y)) else { continue };
            result.push(GemmCall {
                c: values.clone(),
                a: tiles_a.get(&(*x, *z))?.clone(),
                b: tiles_b.get(&(*y, *z))?.clone(),
            });
        }
    }
    // Every value of the accumulator takes part.
    let covered = tiles_c.len() * (row.c_tv.size() / 32) as usize;
    (covered == c.count()).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::mma_rows;

    #[test]
    fn arranged_layouts_satisfy_the_constraint_of_every_row() {
        for row in mma_rows() {
            for (m, n, k, warps) in
                [(64, 64, 32, 4), (128, 128, 64, 4), (16, 8, 16, 1), (48, 24, 16, 3), (16, 8, 16, 4)]
            {
                let all = arrangements(row, (m, n, k), warps, None);
                assert_eq!(all[0], TiledMma::plain(row, m, n, warps));
                for by in all {
                    let l = by.layouts(m, n, k).unwrap();
                    for (tv, size) in [(&l.c, m * n), (&l.a, m * k), (&l.b, n * k)] {
                        let mut image = tv.layout().image();
                        image.sort_unstable();
                        image.dedup();
                        assert_eq!(image, (0..size).collect::<Vec<_>>(), "{by}");
                    }
                    let calls = calls(&by, (m, n, k), &l.c, &l.a, &l.b, warps * 32).expect(row.name);
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
    fn layouts_that_disagree_along_k_have_no_calls() {
        let row = &mma_rows()[0];
        let by = TiledMma::plain(row, 64, 64, 4);
        let l = by.layouts(64, 64, 32).unwrap();
        let other = TiledMma::plain(row, 64, 64, 2).layouts(64, 64, 32).unwrap();
        assert!(calls(&by, (64, 64, 32), &l.c, &other.a, &l.b, 128).is_none());
        let run = TiledMma { k_vector: Some(8), ..by }.layouts(64, 64, 32).unwrap();
        assert!(calls(&by, (64, 64, 32), &l.c, &run.a, &l.b, 128).is_none());
    }

    #[test]
    fn the_warp_grid_prefers_square_blocks() {
        let row = &mma_rows()[0];
        assert_eq!(warp_grid(row, 128, 128, 4), (2, 2, 1));
        assert_eq!(warp_grid(row, 64, 256, 4), (1, 4, 1));
        assert_eq!(warp_grid(row, 16, 8, 4), (1, 1, 4));
    }
}
