//! Matrix products: the arrangement of instruction and warps that fixes the layouts of all three operands, and
//! the calls that a set of layouts needs.
//!
//! The constraint (Hexcute, Fig. 19 b): with `f` the thread-value layouts of the tensors and `p` those of the instruction,
//! `f_c∘p_C⁻¹` and `f_a∘p_A⁻¹` agree along M, `f_c∘p_C⁻¹` and `f_b∘p_B⁻¹` along N, `f_a∘p_A⁻¹` and `f_b∘p_B⁻¹` along K.
//! [`anchor`] makes three layouts that satisfy it; [`calls`] checks it for any three and finds the calls.

use std::collections::HashMap;

use tilewright_layout::{Layout, LayoutError, compose};
use tilewright_machine::MmaRow;

use crate::plan::{GemmCall, TvLayout};

/// The layouts of the three operands of a matrix product.
pub struct GemmLayouts {
    /// Accumulator, M×N.
    pub c: TvLayout,
    /// Left factor, M×K.
    pub a: TvLayout,
    /// Right factor, N×K.
    pub b: TvLayout,
    /// Warps along M and N.
    pub warps: (i64, i64),
}

/// How `warps` warps share an `m`×`n` accumulator: (along M, along N, copies). Each warp has whole instruction tiles;
/// among those splits the one with the fewest operand fragments to load wins. Copies are 1 unless the tile is too
/// small for all warps.
pub fn warp_grid(row: &MmaRow, m: i64, n: i64, warps: i64) -> (i64, i64, i64) {
    let mut best: Option<(i64, (i64, i64, i64))> = None;
    for wm in 1..=warps {
        for wn in 1..=warps / wm {
            if warps % (wm * wn) != 0 || m % (row.m * wm) != 0 || n % (row.n * wn) != 0 {
                continue;
            }
            let copies = warps / (wm * wn);
            let (per_m, per_n) = (m / wm, n / wn);
            // Loading pairs of B tiles at once (ldmatrix.x4) wants an even number of them.
            let odd = i64::from((per_n / row.n) % 2 != 0);
            let cost = copies * 1_000_000 + (per_m + per_n) * 4 + odd;
            if best.is_none_or(|(c, _)| cost < c) {
                best = Some((cost, (wm, wn, copies)));
            }
        }
    }
    best.map_or((1, 1, warps), |(_, grid)| grid)
}

/// The layouts that tile an `m`×`n`×`k` product with `row` over `warps` warps: contiguous blocks of the accumulator for each
/// warp, instruction tiles repeated within. The extents are multiples of the instruction's.
pub fn anchor(row: &MmaRow, m: i64, n: i64, k: i64, warps: i64) -> Result<GemmLayouts, LayoutError> {
    let (wm, wn, copies) = warp_grid(row, m, n, warps);
    // The operand's instruction tile, embedded in the operand's tile; then its warps and its repetitions.
    let operand =
        |tv: &Layout, rows: i64, cols: i64, height: i64, grid: &[(i64, i64)], reps: &[(i64, i64)]| {
            let embed = Layout::from_leaves(&[(rows, 1), (cols, height)])?;
            let atom = compose(&embed, tv)?;
            let mut threads = atom.mode(0)?.leaves();
            threads.extend_from_slice(grid);
            let mut values = atom.mode(1)?.leaves();
            values.extend_from_slice(reps);
            TvLayout::new(flat(&threads)?, flat(&values)?)
        };
    let (bm, bn) = (m / wm, n / wn);
    let c = operand(
        &row.c_tv,
        row.m,
        row.n,
        m,
        &[(wm, bm), (wn, bn * m), (copies, 0)],
        &[(bm / row.m, row.m), (bn / row.n, row.n * m)],
    )?;
    let a = operand(
        &row.a_tv,
        row.m,
        row.k,
        m,
        &[(wm, bm), (wn, 0), (copies, 0)],
        &[(bm / row.m, row.m), (k / row.k, row.k * m)],
    )?;
    let b = operand(
        &row.b_tv,
        row.n,
        row.k,
        n,
        &[(wm, 0), (wn, bn), (copies, 0)],
        &[(bn / row.n, row.n), (k / row.k, row.k * n)],
    )?;
    Ok(GemmLayouts { c, a, b, warps: (wm, wn) })
}

/// A mode from leaves, without those of extent 1 (at least one leaf is kept).
pub(crate) fn flat(leaves: &[(i64, i64)]) -> Result<Layout, LayoutError> {
    let mut kept: Vec<(i64, i64)> = leaves.iter().copied().filter(|(extent, _)| *extent != 1).collect();
    if kept.is_empty() {
        kept.push((1, 0));
    }
    Layout::from_leaves(&kept)
}

/// An operand's values by position: for warp 0's lane 0, coordinate → value.
struct Operand<'a> {
    tv: &'a TvLayout,
    atom: &'a Layout,
    height: i64,
    rows: i64,
    by_coordinate: HashMap<i64, u32>,
}

impl<'a> Operand<'a> {
    fn new(tv: &'a TvLayout, atom: &'a Layout, height: i64, rows: i64) -> Self {
        let by_coordinate = (0..tv.count() as i64).map(|v| (tv.at(0, v), v as u32)).collect();
        Operand { tv, atom, height, rows, by_coordinate }
    }

    /// The coordinate, relative to an instruction tile's first, of a value of a lane in that tile.
    fn embed(&self, lane: i64, value: i64) -> i64 {
        let index = self.atom.eval(lane + 32 * value);
        index % self.rows + self.height * (index / self.rows)
    }

    /// The values that an instruction tile whose first coordinate (for warp 0) is `base` uses, if the layout has
    /// them in the same place for every thread.
    fn values(&self, base: i64, threads: i64) -> Option<Vec<u32>> {
        let count = self.atom.size() / 32;
        let values: Vec<u32> = (0..count)
            .map(|v| self.by_coordinate.get(&(base + self.embed(0, v))).copied())
            .collect::<Option<_>>()?;
        for warp in 0..threads / 32 {
            let shift = self.tv.threads().eval(32 * warp) - self.tv.threads().eval(0);
            for lane in 0..32 {
                for (v, value) in values.iter().enumerate() {
                    let expected = base + shift + self.embed(lane, v as i64);
                    if self.tv.at(32 * warp + lane, i64::from(*value)) != expected {
                        return None;
                    }
                }
            }
        }
        Some(values)
    }
}

/// The calls of `row` that compute `c += a·bᵀ` with these layouts, or `None` where the layouts do not satisfy the constraint.
pub fn calls(
    row: &MmaRow,
    (m, n, k): (i64, i64, i64),
    c: &TvLayout,
    a: &TvLayout,
    b: &TvLayout,
    threads: i64,
) -> Option<Vec<GemmCall>> {
    let oc = Operand::new(c, &row.c_tv, m, row.m);
    let oa = Operand::new(a, &row.a_tv, m, row.m);
    let ob = Operand::new(b, &row.b_tv, n, row.n);
    // Warps must agree: the M of a warp's accumulator is the M of its A, and so for N.
    for warp in 0..threads / 32 {
        let (tc, ta, tb) = (c.at(32 * warp, 0), a.at(32 * warp, 0), b.at(32 * warp, 0));
        if tc % m != ta % m || tc / m != tb % n || ta / m != 0 || tb / n != 0 {
            return None;
        }
    }
    let mut result = Vec::new();
    let firsts = |operand: &Operand<'_>| -> Vec<i64> {
        let width = operand.atom.size() / operand.rows;
        let mut firsts: Vec<i64> = operand
            .by_coordinate
            .keys()
            .copied()
            .filter(|x| (x % operand.height) % operand.rows == 0 && (x / operand.height) % width == 0)
            .collect();
        firsts.sort_unstable();
        firsts
    };
    let tiles_c: HashMap<i64, Vec<u32>> =
        firsts(&oc).into_iter().map(|x| oc.values(x, threads).map(|v| (x, v))).collect::<Option<_>>()?;
    let tiles_a: HashMap<i64, Vec<u32>> =
        firsts(&oa).into_iter().map(|x| oa.values(x, threads).map(|v| (x, v))).collect::<Option<_>>()?;
    let tiles_b: HashMap<i64, Vec<u32>> =
        firsts(&ob).into_iter().map(|x| ob.values(x, threads).map(|v| (x, v))).collect::<Option<_>>()?;
    let mut order: Vec<i64> = tiles_c.keys().copied().collect();
    order.sort_unstable();
    for kk in (0..k).step_by(row.k as usize) {
        for x in &order {
            let (row_m, col_n) = (x % m, x / m);
            result.push(GemmCall {
                c: tiles_c[x].clone(),
                a: tiles_a.get(&(row_m + m * kk))?.clone(),
                b: tiles_b.get(&(col_n + n * kk))?.clone(),
            });
        }
    }
    // Every value of the accumulator takes part.
    let covered = order.len() * (row.c_tv.size() / 32) as usize;
    (covered == c.count()).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::mma_rows;

    #[test]
    fn anchored_layouts_satisfy_the_constraint_of_every_row() {
        for row in mma_rows() {
            for (m, n, k, warps) in
                [(64, 64, 32, 4), (128, 128, 32, 4), (16, 8, 16, 1), (48, 24, 16, 3), (16, 8, 16, 4)]
            {
                let l = anchor(row, m, n, k, warps).unwrap();
                let calls = calls(row, (m, n, k), &l.c, &l.a, &l.b, warps * 32).expect(row.name);
                let copies = warps / (l.warps.0 * l.warps.1);
                assert_eq!(calls.len() as i64 * row.macs() * warps, m * n * k * copies, "{}", row.name);
            }
        }
    }

    #[test]
    fn layouts_that_disagree_along_k_have_no_calls() {
        let row = &mma_rows()[0];
        let l = anchor(row, 64, 64, 32, 4).unwrap();
        let other = anchor(row, 64, 64, 32, 2).unwrap();
        assert!(calls(row, (64, 64, 32), &l.c, &other.a, &l.b, 128).is_none());
    }

    #[test]
    fn the_warp_grid_prefers_square_blocks() {
        let row = &mma_rows()[0];
        assert_eq!(warp_grid(row, 128, 128, 4), (2, 2, 1));
        assert_eq!(warp_grid(row, 64, 256, 4), (1, 4, 1));
        assert_eq!(warp_grid(row, 16, 8, 4), (1, 1, 4));
    }
}
